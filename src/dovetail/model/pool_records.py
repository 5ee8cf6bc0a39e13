"""Records of NodePools: the fields that decisions read."""

from datetime import datetime

from dovetail.api import names, objects
from dovetail.model.record_fields import Record, nillable_ns, simple_ns, utc
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings
from dovetail.values import limits

# The API refuses more (R30).
MAX_BUDGETS = 50


class PoolRecord(Record, frozen=True):
    name: str
    deleted_at: datetime | None
    consolidate_after_ns: int | None
    consolidation_policy: str
    graceful_expire_after_ns: int | None
    replicas: int | None
    grace_period_ns: int | None
    budgets: tuple[objects.Budget, ...]
    unread_graceful: bool = False  # it asks for graceful expiry, which is not in force

    @property
    def object(self) -> Ref:
        return Ref("NodePool", "", self.name)


def pool_record(pool: objects.NodePool, settings: RuleSettings = DEFAULT_SETTINGS) -> PoolRecord:
    disruption, graceful = pool.spec.disruption, _graceful_expire_after(pool)
    return PoolRecord(
        name=pool.metadata.name,
        deleted_at=utc(pool.metadata.deletion_timestamp),
        consolidate_after_ns=nillable_ns(disruption.consolidate_after),
        consolidation_policy=disruption.consolidation_policy,
        graceful_expire_after_ns=graceful if settings.graceful_expiry else None,
        replicas=pool.spec.replicas,
        grace_period_ns=simple_ns(pool.spec.template.spec.termination_grace_period),
        budgets=disruption.budgets[:MAX_BUDGETS],
        unread_graceful=graceful is not None and not settings.graceful_expiry,
    )


def _graceful_expire_after(pool: objects.NodePool) -> int | None:
    """The field, or the annotation for CRDs that do not have the field."""
    by_field = nillable_ns(pool.spec.disruption.graceful_expire_after)
    annotation = pool.metadata.annotations.get(names.GRACEFUL_EXPIRE_AFTER)
    return by_field if by_field is not None or annotation is None else nillable_ns(annotation[: limits.DURATION + 1])
