"""The condition NodeRegistrationHealthy of a NodePool: two failures among the last four registrations (01 §5.1)."""

from collections.abc import Iterable
from typing import Final

import msgspec

from dovetail.api.names import ConditionReason, ConditionType
from dovetail.api.objects import NodeClaim, NodeClass, NodePool, condition_in
from dovetail.planning.conditions import FALSE, TRUE, UNKNOWN, Conditions

REMEMBERED: Final = 4
_FAILURES: Final = 2
_AWAITING: Final = "no node has come up or failed to since the pool or its node class was changed"


class RegistrationAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one claim; `reason` and `message` say why it failed."""

    claim_uid: str
    owner_uids: frozenset[str]
    registered: bool
    reason: str = ""
    message: str = ""


def attempt(claim: NodeClaim, *, registered: bool) -> RegistrationAttempt:
    """`registered` False: the claim is deleted because it did not register."""
    reason, message = "", ""
    if not registered:
        reason, message = ConditionReason.REGISTRATION_FAILED, f"the node of {claim.metadata.name} has not registered"
        launched = condition_in(claim.status.conditions, ConditionType.LAUNCHED)
        if launched is not None and launched.status != TRUE:
            reason, message = launched.reason or reason, launched.message
    return RegistrationAttempt(
        claim_uid=claim.metadata.uid,
        owner_uids=frozenset(owner.uid for owner in claim.metadata.owner_references),
        registered=registered,
        reason=reason,
        message=message,
    )


class RegistrationHistory(msgspec.Struct, frozen=True):
    """The last registrations, newest last: the UID of the claim, which counts once, and whether it registered."""

    results: tuple[tuple[str, bool], ...] = ()

    def after(self, latest: RegistrationAttempt) -> "RegistrationHistory":
        result = (latest.claim_uid, latest.registered)
        return self if result in self.results else RegistrationHistory((*self.results, result)[-REMEMBERED:])

    @property
    def status(self) -> str:
        if not self.results:
            return UNKNOWN
        return FALSE if sum(not registered for _, registered in self.results) >= _FAILURES else TRUE


def remembered(pool: NodePool) -> RegistrationHistory:
    """The history as far as the condition shows it, for use after a restart."""
    conditions = {entry.type: entry.status for entry in pool.status.conditions}
    match conditions.get(ConditionType.NODE_REGISTRATION_HEALTHY):
        case "True":
            return RegistrationHistory((("", True),))
        case "False":
            return RegistrationHistory((("", False),) * _FAILURES)
    return RegistrationHistory()


def is_outdated(pool: NodePool, node_class: NodeClass | None) -> bool:
    """Whether the condition is about an earlier version of the pool or its node class, so that the history restarts."""
    condition = condition_in(pool.status.conditions, ConditionType.NODE_REGISTRATION_HEALTHY)
    if condition is None or condition.observed_generation != pool.metadata.generation:
        return True
    return node_class is not None and node_class.metadata.generation != pool.status.node_class_observed_generation


def reset(conditions: Conditions) -> None:
    conditions.set(ConditionType.NODE_REGISTRATION_HEALTHY, UNKNOWN, ConditionReason.AWAITING_RECONCILIATION, _AWAITING)


def account(
    pool: NodePool, history: RegistrationHistory, attempts: Iterable[RegistrationAttempt], conditions: Conditions
) -> RegistrationHistory:
    """Adds the pool's attempts to the history and updates the condition.

    A success never makes a pool unhealthy, and a failure never makes it healthy.
    """
    for latest in attempts:
        if pool.metadata.uid not in latest.owner_uids:
            continue
        history = history.after(latest)
        if latest.registered and history.status == TRUE:
            conditions.set(ConditionType.NODE_REGISTRATION_HEALTHY)
        elif not latest.registered and history.status == FALSE:
            conditions.set(ConditionType.NODE_REGISTRATION_HEALTHY, FALSE, latest.reason, latest.message)
    return history
