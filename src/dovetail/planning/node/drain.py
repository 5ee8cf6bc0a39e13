"""What is to be done with each pod of a node that is going, and when does that change by the clock alone (03 §4–§5)?

The whole of a drain is this one function of the pods, the deadline and the instant. Whoever acts on a pod asks it again
right before, so that a protection that came back, a deadline that came near or a window that closed is never missed.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from dovetail.model.records import Owner, PodRecord
from dovetail.planning.timings import Timings
from dovetail.rules.deadlines import LEAST_GRACE_SECONDS, ForcedDeletion, forced_deletion
from dovetail.rules.protection import protection
from dovetail.rules.verdict import together
from dovetail.values.timestamp import format_time


class DrainAction(StrEnum):
    """What a pod's turn is."""

    EVICT = "evict"
    DELETE = "delete"  # for the node's deadline, whatever protects it (R17)
    PROTECTED = "protected"  # until its verdict changes
    GOING = "going"  # terminating already
    LATER = "later"  # its group's turn has not come


class PodStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod that the drain waits for; `until` is when time alone changes its action."""

    pod: PodRecord
    action: DrainAction
    why: str
    until: datetime | None = None
    forced: ForcedDeletion | None = None


class DrainPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that are waited for, in the order of their groups."""

    steps: tuple[PodStep, ...]
    until: datetime | None

    def step_of(self, uid: str) -> PodStep | None:
        return next((step for step in self.steps if step.pod.uid == uid), None)


def drain_plan(
    pods: Iterable[PodRecord],
    *,
    deadline: datetime | None,
    now: datetime,
    timings: Timings = Timings(),  # noqa: B008
) -> DrainPlan:
    """Groups go one after the other; deletions for the deadline wait for no group (03 §4.3)."""
    waiting = sorted(
        (pod for pod in pods if is_waited_for(pod, now, timings)),
        key=lambda pod: (_group(pod), pod.namespace, pod.name),
    )
    forced = {
        pod.uid: deletion
        for pod in waiting
        if deadline is not None and (deletion := forced_deletion(pod, deadline, now)) is not None
    }
    # A pod that is deleted for the deadline still has its grace, and until it is gone its group is not (03 §4.4).
    first = min(map(_group, waiting), default=0)
    steps = tuple(_step(pod, forced.get(pod.uid), _group(pod) == first, now, timings) for pod in waiting)
    instants = [step.until for step in steps if step.until is not None]
    if deadline is not None and deadline > now:
        instants.append(deadline)
    return DrainPlan(steps=steps, until=min(instants, default=None))


def is_drainable(pod: PodRecord) -> bool:
    """Whether a drain concerns the pod at all: mirror pods and those that tolerate the taint stay (02 §4.1)."""
    return not (pod.owner & Owner.NODE or pod.tolerates_disrupted)


def is_waited_for(pod: PodRecord, now: datetime, timings: Timings) -> bool:
    """Whether the node must not go before the pod is gone."""
    return (
        is_drainable(pod) and not pod.terminal and not (pod.deleted_at is not None and now >= _stuck_at(pod, timings))
    )


def _group(pod: PodRecord) -> int:
    """03 §4: critical pods last, and within each half DaemonSets' last."""
    return 2 * pod.critical + bool(pod.owner & Owner.DAEMONSET)


def _due(forced: ForcedDeletion | None, now: datetime) -> bool:
    return forced is not None and forced.at <= now


def _stuck_at(pod: PodRecord, timings: Timings) -> datetime:
    assert pod.deleted_at is not None
    return pod.deleted_at + timedelta(seconds=timings.stuck_pod_seconds)


def _step(pod: PodRecord, forced: ForcedDeletion | None, its_turn: bool, now: datetime, timings: Timings) -> PodStep:
    if _due(forced, now):
        # One that is terminating is deleted again for as long as that would shorten its end.
        until = None if pod.deleted_at is None else pod.deleted_at - timedelta(seconds=LEAST_GRACE_SECONDS)
        return PodStep(pod=pod, action=DrainAction.DELETE, why="its node's deadline", until=until, forced=forced)
    force_at = None if forced is None else forced.at
    if pod.deleted_at is not None:
        stuck_at = _stuck_at(pod, timings)
        why = f"terminating, until {format_time(pod.deleted_at)}"
        return PodStep(pod=pod, action=DrainAction.GOING, why=why, until=stuck_at, forced=forced)
    if not its_turn:
        return PodStep(pod=pod, action=DrainAction.LATER, why="others go first", until=force_at, forced=forced)
    verdicts = protection(pod, now)
    blockers = [verdict for verdict in verdicts if not verdict.allowed]
    instants = [at for at in (together(verdicts).until(now), force_at) if at is not None]
    return PodStep(
        pod=pod,
        action=DrainAction.PROTECTED if blockers else DrainAction.EVICT,
        why="; ".join(f"{verdict.rule}: {verdict.message}" for verdict in blockers) or "may be evicted",
        until=min(instants, default=None),
        forced=forced,
    )


# -- what it waits for, for people -------------------------------------------------------------------------------------

NAMED_AT_MOST = 3


def waiting_note(steps: Sequence[PodStep], deadline: datetime | None, blocked: dict[str, str]) -> str:
    """Who a drain waits for and why, and when it is forced. `blocked`: what eviction was refused for, by pod UID."""
    one = len(steps) == 1
    named = [
        f"{step.pod.namespace}/{step.pod.name} ({blocked.get(step.pod.uid, step.why)})"
        for step in sorted(steps, key=_tells_most)[:NAMED_AT_MOST]
    ]
    more = f" and {len(steps) - NAMED_AT_MOST} more" if len(steps) > NAMED_AT_MOST else ""
    forced = (
        f"; all that is left is deleted by {format_time(deadline)}"
        if deadline is not None
        else "; the drain has no deadline, so the node waits for as long as it takes"
    )
    return f"{len(steps)} {'pod is' if one else 'pods are'} waiting to be evicted: {', '.join(named)}{more}{forced}"


def _tells_most(step: PodStep) -> int:
    return (DrainAction.PROTECTED, DrainAction.EVICT, DrainAction.DELETE, DrainAction.GOING, DrainAction.LATER).index(
        step.action
    )
