"""What a node's state does not say: it is not Ready, cordoned, starting, or its deletion hangs; since when and why.

A node that starts has not registered or initialized yet. A deletion hangs if nothing is left to wait for, and the
object is still there after an hour.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from dovetail.api.names import TERMINATION_FINALIZER, ConditionType
from dovetail.model.node_records import ClaimRecord
from dovetail.model.refs import Ref
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.node.drain import is_waited_for
from dovetail.planning.timings import Timings
from dovetail.rules.budgets import is_initialized
from dovetail.views.explain.data import View

LONGEST_GOODBYE: Final = timedelta(hours=1)
_TIMINGS: Final = Timings()
_LAUNCH: Final = timedelta(seconds=_TIMINGS.launch_timeout_seconds)
_REGISTRATION: Final = timedelta(seconds=_TIMINGS.registration_timeout_seconds)
_STEPS: Final = {
    ConditionType.LAUNCHED: "its instance is not launched yet",
    ConditionType.REGISTERED: "its instance has not registered as a Node yet",
    ConditionType.INITIALIZED: "its Node is not initialized yet",
}
# The steps of a termination, in their order.
_GOODBYES: Final = (ConditionType.DRAINED, ConditionType.VOLUMES_DETACHED, ConditionType.INSTANCE_TERMINATING)


class BadgeKind(StrEnum):
    """The words for people."""

    STARTING = "starting"
    NOT_READY = "NotReady"
    CORDONED = "cordoned"
    HANGING = "not going"


class Badge(View, frozen=True):
    """One word about a node. `until`: when a start is given up."""

    kind: BadgeKind
    since: datetime | None
    why: str = ""
    until: datetime | None = None


def badges(member: ClusterNode, at: datetime) -> tuple[Badge, ...]:
    """The badges of a node, the most important first."""
    return tuple(_badges(member, at))


def _badges(member: ClusterNode, at: datetime) -> Iterator[Badge]:
    node = member.node
    badge = startup(member) or hanging(member, at)
    if badge is not None:
        yield badge
    if node is not None and not node.ready and badge is None:
        yield Badge(BadgeKind.NOT_READY, node.ready_changed_at, node.unready_message)
    if node is not None and node.cordoned:
        yield Badge(BadgeKind.CORDONED, node.cordoned_at)


# -- a node that starts ------------------------------------------------------------------------------------------------


def startup(member: ClusterNode) -> Badge | None:
    """What the start of the node waits for, in the words of its NodeClaim."""
    claim = member.claim
    if claim is None or claim.created_at is None or member.deleting or is_initialized(member):
        return None
    step = _first_missing(claim, registered=member.node is not None and member.node.registered)
    condition = claim.conditions.get(step)
    said = "" if condition is None or condition.status == "True" else condition.message or condition.reason
    limit = {ConditionType.LAUNCHED: _LAUNCH, ConditionType.REGISTERED: _REGISTRATION}.get(step)
    return Badge(
        BadgeKind.STARTING,
        claim.created_at,
        _STEPS[step] + (f": {said}" if said else ""),
        None if limit is None else claim.created_at + limit,
    )


def _first_missing(claim: ClaimRecord, *, registered: bool) -> ConditionType:
    if registered or claim.is_true(ConditionType.REGISTERED):
        return ConditionType.INITIALIZED
    return ConditionType.REGISTERED if claim.is_true(ConditionType.LAUNCHED) else ConditionType.LAUNCHED


def is_overdue(badge: Badge, at: datetime) -> bool:
    """Whether the start takes longer than starts do."""
    return badge.since is not None and at >= (badge.until or badge.since + _REGISTRATION)


# -- a deletion that hangs ---------------------------------------------------------------------------------------------


def hanging(member: ClusterNode, at: datetime) -> Badge | None:
    """Whose finalizer keeps an object from which nothing is left to drain, and since when."""
    deleted = [part.deleted_at for part in (member.claim, member.node) if part is not None and part.deleted_at]
    if not deleted or any(is_waited_for(pod, at, _TIMINGS) for pod in member.pods):
        return None
    claim = member.claim
    steps = [] if claim is None else [since for step in _GOODBYES if (since := claim.true_since(step))]
    since = max([min(deleted), *steps])
    if at < since + LONGEST_GOODBYE:
        return None
    return Badge(BadgeKind.HANGING, min(deleted), _held_by(member))


def foreign_finalizers(member: ClusterNode) -> list[tuple[Ref, str]]:
    """The finalizers of others on the Node and the NodeClaim."""
    return [(about, finalizer) for about, finalizer in _finalizers(member) if finalizer != TERMINATION_FINALIZER]


def _finalizers(member: ClusterNode) -> list[tuple[Ref, str]]:
    parts = (member.node, member.claim)
    return [(part.object, finalizer) for part in parts if part is not None for finalizer in part.finalizers]


def _held_by(member: ClusterNode) -> str:
    left = "its Node is gone" if member.node is None else "it has no pods left to drain"
    waits = _unfinished(member.claim)
    if foreign := foreign_finalizers(member):
        kept = ", ".join(f"finalizer {finalizer} keeps the {about.kind}" for about, finalizer in foreign)
        return f"{left}; {kept}{waits}"
    kinds = " and ".join(dict.fromkeys(about.kind for about, _ in _finalizers(member))) or member.object.kind
    removes = "its controller removes when the instance has ended"
    return f"{left}; finalizer {TERMINATION_FINALIZER}, which {removes}, keeps the {kinds}{waits}"


def _unfinished(claim: ClaimRecord | None) -> str:
    """The step of the termination that has not come to its end, in the words of the claim."""
    conditions = {} if claim is None else claim.conditions
    for step in _GOODBYES:
        condition = conditions.get(step)
        if condition is not None and condition.status != "True":
            return f"; {step.value} is {condition.status}: {condition.message or condition.reason}"
    return ""
