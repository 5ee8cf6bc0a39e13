"""The drain plan of a node: what to do with each pod, and when time alone changes that (03 §4–§5).

`drain_plan` is a pure function of the pods, the deadline and the instant. Callers ask it again right before they act on
a pod, so that a new protection, a new deadline or a closed window is never missed.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from dovetail.api.names import ConditionType
from dovetail.model.node_records import ClaimRecord
from dovetail.model.pod_records import Owner, PodRecord
from dovetail.planning.timings import Timings
from dovetail.rules.deadlines import LEAST_GRACE_SECONDS, ForcedDeletion, forced_deletion
from dovetail.rules.protection import protection
from dovetail.rules.verdict import together
from dovetail.values.timestamp import spoken_time


class DrainAction(StrEnum):
    """What to do with a pod."""

    EVICT = "evict"
    DELETE = "delete"  # for the node's deadline, despite protections (R17)
    PROTECTED = "protected"  # until its verdict changes
    GOING = "going"  # already terminating
    LATER = "later"  # an earlier group is not gone yet


class PodStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that the drain waits for. `until`: when time alone changes the action."""

    pod: PodRecord
    action: DrainAction
    why: str
    until: datetime | None = None
    forced: ForcedDeletion | None = None


class EvictionTurn(msgspec.Struct, frozen=True):
    """The UIDs of the pods whose turn it is; None: all. `until`: when time alone changes that."""

    pods: frozenset[str] | None = None
    until: datetime | None = None

    def has(self, pod: PodRecord) -> bool:
        return self.pods is None or pod.uid in self.pods


NOT_HELD: Final = EvictionTurn()


class DrainPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that the drain waits for, in the order of their groups."""

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
    held: EvictionTurn = NOT_HELD,
) -> DrainPlan:
    """Groups are evicted one after the other. Deletions for the deadline do not wait (03 §4.3).

    `held`: pods of the first group are evicted in waves (R55).
    """
    waiting = sorted(
        (pod for pod in pods if is_waited_for(pod, now, timings)),
        key=lambda pod: (_group(pod), pod.namespace, pod.name),
    )
    forced = {
        pod.uid: deletion
        for pod in waiting
        if deadline is not None and (deletion := forced_deletion(pod, deadline, now)) is not None
    }
    # A pod that is deleted for the deadline still has its grace, and its group waits for it (03 §4.4).
    first = min(map(_group, waiting), default=0)
    steps = tuple(
        _step(pod, forced.get(pod.uid), _group(pod) == first and held.has(pod), now, timings) for pod in waiting
    )
    instants = [step.until for step in steps if step.until is not None]
    if held.until is not None:
        instants.append(held.until)
    if deadline is not None and deadline > now:
        instants.append(deadline)
    return DrainPlan(steps=steps, until=min(instants, default=None))


def is_drainable(pod: PodRecord) -> bool:
    """Whether a drain removes the pod: mirror pods and pods that tolerate the taint stay (02 §4.1)."""
    return not (pod.owner & Owner.NODE or pod.tolerates_disrupted)


def is_waited_for(pod: PodRecord, now: datetime, timings: Timings) -> bool:
    """Whether the node must not go before the pod is gone."""
    stuck = pod.deleted_at is not None and now >= _stuck_at(pod, timings)
    return is_drainable(pod) and not pod.terminal and not stuck


def _group(pod: PodRecord) -> int:
    """Critical pods last, and within each half pods of DaemonSets last (03 §4)."""
    return 2 * pod.critical + bool(pod.owner & Owner.DAEMONSET)


def _stuck_at(pod: PodRecord, timings: Timings) -> datetime:
    assert pod.deleted_at is not None
    return pod.deleted_at + timedelta(seconds=timings.stuck_pod_seconds)


def _step(pod: PodRecord, forced: ForcedDeletion | None, its_turn: bool, now: datetime, timings: Timings) -> PodStep:
    if forced is not None and forced.at <= now:
        # A terminating pod is deleted again as long as that shortens its grace.
        until = None if pod.deleted_at is None else pod.deleted_at - timedelta(seconds=LEAST_GRACE_SECONDS)
        return PodStep(pod=pod, action=DrainAction.DELETE, why="its node's deadline", until=until, forced=forced)
    force_at = None if forced is None else forced.at
    if pod.deleted_at is not None:
        stuck_at = _stuck_at(pod, timings)
        why = f"{terminating(pod, now)}; ignored from {spoken_time(stuck_at)}"
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


def is_within_grace(pod: PodRecord, now: datetime, timings: Timings) -> bool:
    """Whether it is terminating as it should: until its own grace is over, and a moment longer."""
    return pod.deleted_at is not None and now < late_at(pod, timings)


def late_at(pod: PodRecord, timings: Timings) -> datetime:
    """From when on a terminating pod takes longer than its own grace. The kubelet needs a moment at its end."""
    assert pod.deleted_at is not None
    return pod.deleted_at + timedelta(seconds=timings.least_drain_seconds)


def terminating(pod: PodRecord, now: datetime) -> str:
    """When the pod has to end, and what holds it. It is being deleted."""
    assert pod.deleted_at is not None
    ends = "until" if pod.deleted_at > now else "should be gone since"
    held = f", held by finalizer {', '.join(pod.finalizers)}" if pod.finalizers else ""
    return f"terminating, {ends} {spoken_time(pod.deleted_at)}{held}"


NAMED_AT_MOST = 3
# Begins the message of the condition Drained if nothing that rules read holds a pod back.
EVICTION_FAILS: Final = "evicting a pod fails"


def failing_evictions(claim: ClaimRecord | None) -> str:
    """How the API server answers evictions of a drain, if they fail: no rule tells that, for example of a webhook."""
    drained = None if claim is None else claim.conditions.get(ConditionType.DRAINED)
    message = "" if drained is None else drained.message
    return message if message.startswith(EVICTION_FAILS) else ""


def waiting_note(steps: Sequence[PodStep], deadline: datetime | None, blocked: dict[str, str]) -> str:
    """Which pods the drain waits for and why, and the deadline. `blocked`: refused evictions, by pod UID."""
    single = len(steps) == 1
    named = [
        f"{step.pod.namespace}/{step.pod.name} ({blocked.get(step.pod.uid, step.why)})"
        for step in sorted(steps, key=tells_most)[:NAMED_AT_MOST]
    ]
    more = f" and {len(steps) - NAMED_AT_MOST} more" if len(steps) > NAMED_AT_MOST else ""
    what = "waiting to be evicted"
    forced = f"; no terminationGracePeriod: the node waits until {'it is' if single else 'they are'} gone"
    if is_going(steps):  # the node waits for none of them for ever
        what, forced = "terminating", ""
    if deadline is not None:
        forced = f"; all that is left is deleted by {spoken_time(deadline)}"
    return f"{len(steps)} {'pod is' if single else 'pods are'} {what}: {', '.join(named)}{more}{forced}"


def is_going(steps: Iterable[PodStep]) -> bool:
    """Whether every pod is terminating."""
    return all(step.action is DrainAction.GOING for step in steps)


def tells_most(step: PodStep) -> int:
    """Orders steps: those that explain best why a drain takes long come first."""
    return (DrainAction.PROTECTED, DrainAction.EVICT, DrainAction.DELETE, DrainAction.GOING, DrainAction.LATER).index(
        step.action
    )
