"""Forecasts the drain of a node: what happens to its pods, and when it ends.

Follows the drain plan of the controller from one of its instants to the next. The plan does not know how long a pod
takes to end; here, each takes its whole grace period.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from dovetail.model.pod_records import PodRecord
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import RuleSettings
from dovetail.planning.node.drain import DrainAction, PodStep, drain_plan, is_waited_for
from dovetail.planning.timings import Timings
from dovetail.rules.pdb import PdbIndex
from dovetail.rules.protection import protection
from dovetail.rules.verdict import together
from dovetail.values.timestamp import spoken_time
from dovetail.views.forecast.data import Certainty, ForecastEvent, ForecastEventType

_TIMINGS = Timings()
_STUCK = timedelta(seconds=_TIMINGS.stuck_pod_seconds)
# Enough for a pod with a window of a minute an hour that a budget blocks for weeks.
_MOST_STEPS = 1000
_KARPENTERS_END = "deadline of Karpenter's drain: what is left has been deleted; the instance ends when it is gone"


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """`gone_at`: when the last pod is gone at the latest, or the deadline. None: time alone does not end it."""

    deadline: datetime | None
    events: tuple[ForecastEvent, ...]
    gone_at: datetime | None


def drain(
    node: Ref,
    pods: Sequence[PodRecord],
    pdbs: PdbIndex,
    *,
    begins_at: datetime,
    deadline: datetime | None,
    end: datetime,
    begun: bool,
    sure: bool,
    settings: RuleSettings,
    failing: bool = False,
) -> Drain:
    """The drain up to the end of the span. `begun`: before the forecast; `sure`: it begins then, with these pods.

    `failing`: the API server refuses evictions, and goes on to do so.
    """
    walk = _Walk(pods, pdbs, begins_at=begins_at, deadline=deadline, begun=begun, sure=sure, settings=settings)
    walk.failing = failing
    now: datetime | None = begins_at
    for _ in range(_MOST_STEPS):
        if now is None or now > end or not walk.waiting:
            break
        if deadline is not None and now > deadline and settings.ends_at_deadline:
            break
        now = walk.step(now)
    gone_at = walk.gone_at()
    events = walk.events
    if deadline is not None and begins_at < deadline <= end:
        events.append(_deadline(node, walk, deadline, gone_at))
    return Drain(deadline=deadline, events=tuple(events), gone_at=gone_at)


class _Walk:
    def __init__(
        self,
        pods: Sequence[PodRecord],
        pdbs: PdbIndex,
        *,
        begins_at: datetime,
        deadline: datetime | None,
        begun: bool,
        sure: bool,
        settings: RuleSettings,
    ) -> None:
        self.waiting = {pod.uid or pod.object: pod for pod in pods if is_waited_for(pod, begins_at, _TIMINGS)}
        self.events: list[ForecastEvent] = []
        self.held = False
        """Whether a protected pod stays until it is deleted for the deadline."""
        self.failing = False
        """Whether no eviction succeeds."""
        self.sure = sure
        self.settings = settings
        self._pdbs = pdbs
        self._begins_at = begins_at
        self._deadline = deadline
        self._begun = begun
        self._later: set[Ref] = set()
        least = timedelta(seconds=0 if begun else _TIMINGS.least_drain_seconds)
        self._last_end = begins_at + least

    def step(self, now: datetime) -> datetime | None:
        """Do what is due, and return when something is due next; None: never."""
        plan = drain_plan(self.waiting.values(), deadline=self._deadline, now=now, timings=_TIMINGS)
        for step in plan.steps:
            if step.action is DrainAction.LATER:
                self._later.add(step.pod.object)
            elif step.action is DrainAction.DELETE:
                self._delete(step, now)
            elif step.action is DrainAction.EVICT:
                self._evict(step.pod, now)
        followed = any(step.action is DrainAction.LATER for step in plan.steps)
        going = [at for pod in self.waiting.values() if (at := self._ends_at(pod)) is not None]
        self._last_end = max([self._last_end, *going])
        # Terminating pods are followed only if another group waits for them.
        self.waiting = {
            key: pod
            for key, pod in self.waiting.items()
            if (at := self._ends_at(pod)) is None or (followed and at > now)
        }
        instants = [plan.until, *(going if followed else ())]
        return min((at for at in instants if at is not None and at > now), default=None)

    def _ends_at(self, pod: PodRecord) -> datetime | None:
        """When a terminating pod is gone. One that should be gone already is ignored after a while."""
        held = pod.deleted_at is not None and pod.deleted_at <= self._begins_at
        return pod.deleted_at + _STUCK if held and pod.deleted_at is not None else pod.deleted_at

    def gone_at(self) -> datetime | None:
        """None: a pod stays without end."""
        if self.waiting:
            return self._deadline
        limit = self._deadline if self.settings.ends_at_deadline else None
        return self._last_end if limit is None else min(self._last_end, limit)

    def _evict(self, pod: PodRecord, now: datetime) -> None:
        guarded = bool(self._pdbs.binding(pod))
        if self.failing:
            return
        if guarded and not self._pdbs.verdict(pod).allowed:
            return  # it waits for its PDB, which time alone does not change
        # An eviction that was possible before the forecast begins did not happen, for an unknown reason.
        overdue = self._begun and now == self._begins_at
        exact = self.sure and not overdue and not guarded and pod.object not in self._later
        self._add(ForecastEventType.POD_EVICTED, pod, now, f"evicted, with {pod.grace_seconds}s of grace", exact=exact)
        self._goes(pod, now, pod.grace_seconds)

    def _delete(self, step: PodStep, now: datetime) -> None:
        pod, forced = step.pod, step.forced
        assert forced is not None
        if pod.deleted_at is None:
            freed_at = together(protection(pod, self._begins_at)).first(self._begins_at)
            held = freed_at is None or freed_at >= now
            self.held |= held or self.failing
            overdue = self._begun and now == self._begins_at
            message = f"deleted for the deadline of its node, with {forced.grace_seconds}s of grace"
            self._add(ForecastEventType.POD_DELETED, pod, now, message, exact=self.sure and held and not overdue)
        self._goes(pod, now, forced.grace_seconds)

    def _goes(self, pod: PodRecord, now: datetime, grace_seconds: int) -> None:
        ends_at = now + timedelta(seconds=max(1, min(grace_seconds, 10**8)))
        self.waiting[pod.uid or pod.object] = msgspec.structs.replace(pod, deleted_at=ends_at)

    def _add(self, type_: ForecastEventType, pod: PodRecord, at: datetime, message: str, *, exact: bool) -> None:
        self.events.append(
            ForecastEvent(at, type_, pod.object, message, Certainty.EXACT if exact else Certainty.ASSUMED)
        )


def _deadline(node: Ref, walk: _Walk, deadline: datetime, gone_at: datetime | None) -> ForecastEvent:
    certainty = Certainty.EXACT if walk.sure else Certainty.ASSUMED
    if walk.held or (gone_at is not None and gone_at >= deadline):
        own = walk.settings.ends_at_deadline
        forced = "forced removal, if the drain has not ended by then" if own else _KARPENTERS_END
        return ForecastEvent(deadline, ForecastEventType.FORCED, node, forced, certainty)
    over = "" if gone_at is None else f"; the drain should be over {spoken_time(gone_at)}"
    whose = "Karpenter's" if walk.settings.karpenter_drains else "the"
    return ForecastEvent(deadline, ForecastEventType.DEADLINE, node, f"deadline of {whose} drain{over}", certainty)
