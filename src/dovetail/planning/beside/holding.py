"""Which nodes guard keeps Karpenter off, and until when (10 §I.3).

Karpenter looks at a node only when it decides, and what it has begun ends in a drain later. So a node is held not only
while one of its pods is protected, but for a lead time before.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.model.pod_records import PodRecord
from dovetail.rules.protection import may_be_protected, other_inputs, own_hold, protection
from dovetail.rules.verdict import Verdict, together
from dovetail.values.schedule.instants import ALWAYS, Instants

DEFAULT_LEAD: Final = timedelta(minutes=10)
LONGEST_LEAD: Final = timedelta(hours=24)  # the start of a window is sought for twice as long
_LOOKS_AHEAD: Final = 16


class PodLead(msgspec.Struct, frozen=True, gc=False):
    """Whether a pod's node is to be held for it, and when time alone changes that (None: never)."""

    held: bool
    until: datetime | None


class HoldDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a node is to be held.

    `until`: before this instant time alone does not change it; None: it never does. `blocker` is the verdict of the
    rule that keeps it longest, and `pod` the pod.
    """

    held: bool
    until: datetime | None = None
    blocker: Verdict | None = None
    pod: PodRecord | None = None


def hold_decision(pods: Iterable[PodRecord], now: datetime, lead: timedelta) -> HoldDecision:
    """What the pods of a node require."""
    free = [(pod, free_instants(pod)) for pod in _one_of_each(pods)]
    leads = [(pod, instants, pod_lead(instants, now, lead)) for pod, instants in free if instants is not ALWAYS]
    held = [each for each in leads if each[2].held]
    if not held:
        return HoldDecision(held=False, until=_earliest(hold.until for _, _, hold in leads))
    pod, instants, longest = max(held, key=lambda each: (each[2].until is None, each[2].until or now))
    blocked_at = now if not instants.contains(now) else instants.until(now)
    assert blocked_at is not None, "what is free for good is not held"
    return HoldDecision(
        held=True,
        until=None if longest.until is None else _released_at([instants for _, instants in free], longest.until, lead),
        blocker=next(verdict for verdict in protection(pod, blocked_at) if not verdict.allowed),
        pod=pod,
    )


def free_instants(pod: PodRecord) -> Instants:
    """When the rules allow that the pod is disrupted, except for "true", which Karpenter itself respects."""
    if not pod.active or not may_be_protected(pod) or respected_by_karpenter(pod):
        return ALWAYS
    return together(protection(pod, _ANY))


def respected_by_karpenter(pod: PodRecord) -> bool:
    """Whether every version of Karpenter leaves the pod alone for good, by the wish of a user."""
    return pod.annotations.get(names.DO_NOT_DISRUPT) == "true" and own_hold(pod.annotations) is None


def pod_lead(free: Instants, now: datetime, lead: timedelta) -> PodLead:
    """Held while the pod is not free, and before, for the lead or half of the window that ends, if that is less."""
    if not free.contains(now):
        return PodLead(held=True, until=free.until(now))
    closes_at = free.until(now)
    if closes_at is None:
        return PodLead(held=False, until=None)
    opened_at = _opened_at(free, now, closes_at - 2 * lead)
    held_from = closes_at - min(lead, (closes_at - opened_at) / 2)
    if now < held_from:
        return PodLead(held=False, until=held_from)
    return PodLead(held=True, until=free.until(closes_at))


def _opened_at(free: Instants, now: datetime, earliest: datetime) -> datetime:
    """The start of the window that is open now, or `earliest` if it is open since then."""
    at = earliest
    while at < now and (until := free.until(at)) is not None and until <= now:
        at = until
    return at


def _released_at(free: Sequence[Instants], at: datetime, lead: timedelta) -> datetime | None:
    """The first instant from `at` on at which no pod holds the node, or an earlier one if that is far ahead."""
    for _ in range(_LOOKS_AHEAD):
        held = [hold for hold in (pod_lead(instants, at, lead) for instants in free) if hold.held]
        if not held:
            return at
        if any(hold.until is None for hold in held):
            return None
        at = max(hold.until for hold in held if hold.until is not None)
    return at


def _one_of_each(pods: Iterable[PodRecord]) -> list[PodRecord]:
    """One of the pods that the rules treat alike: the first by name."""
    by_inputs: dict[object, PodRecord] = {}
    for pod in pods:
        if pod.active and may_be_protected(pod):
            by_inputs.setdefault((id(pod.annotations), other_inputs(pod)), pod)
    return list(by_inputs.values())


def _earliest(instants: Iterable[datetime | None]) -> datetime | None:
    return min((at for at in instants if at is not None), default=None)


_ANY: Final = datetime.fromisoformat("2000-01-01T00:00:00+00:00")  # sets of instants do not depend on the instant
