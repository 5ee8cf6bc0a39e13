"""Records of NodePools: the fields that decisions read."""

from datetime import datetime

from dovetail.api import names, objects
from dovetail.model.record_fields import Record, nillable_ns, simple_ns, utc
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, GracefulExpiry, RuleSettings
from dovetail.values import limits

# The API refuses more (R30).
MAX_BUDGETS = 50
GRACEFUL_FIELD = "spec.disruption.gracefulExpireAfter"


class PoolRecord(Record, frozen=True):
    name: str
    deleted_at: datetime | None
    consolidate_after_ns: int | None
    consolidation_policy: str
    graceful_expire_after_ns: int | None
    replicas: int | None
    grace_period_ns: int | None
    budgets: tuple[objects.Budget, ...]
    unread_graceful: str = ""  # the field that asks for graceful expiry, which is not in force

    @property
    def object(self) -> Ref:
        return Ref("NodePool", "", self.name)


def pool_record(pool: objects.NodePool, settings: RuleSettings = DEFAULT_SETTINGS) -> PoolRecord:
    disruption, graceful = pool.spec.disruption, _graceful_expire_after(pool)
    in_force = settings.graceful_expiry is not GracefulExpiry.NEVER
    return PoolRecord(
        name=pool.metadata.name,
        deleted_at=utc(pool.metadata.deletion_timestamp),
        consolidate_after_ns=nillable_ns(disruption.consolidate_after),
        consolidation_policy=disruption.consolidation_policy,
        graceful_expire_after_ns=graceful if in_force else None,
        replicas=pool.spec.replicas,
        grace_period_ns=simple_ns(pool.spec.template.spec.termination_grace_period),
        budgets=disruption.budgets[:MAX_BUDGETS],
        unread_graceful="" if in_force or graceful is None else graceful_field(pool),
    )


def _graceful_expire_after(pool: objects.NodePool) -> int | None:
    """The field, or the annotation for CRDs that do not have the field."""
    by_field = nillable_ns(pool.spec.disruption.graceful_expire_after)
    annotation = pool.metadata.annotations.get(names.GRACEFUL_EXPIRE_AFTER)
    return by_field if by_field is not None or annotation is None else nillable_ns(annotation[: limits.DURATION + 1])


def graceful_field(pool: objects.NodePool) -> str:
    """The field that asks for graceful expiry: the one of the spec counts before the annotation."""
    by_field = nillable_ns(pool.spec.disruption.graceful_expire_after) is not None
    return GRACEFUL_FIELD if by_field else f"metadata.annotations[{names.GRACEFUL_EXPIRE_AFTER}]"
