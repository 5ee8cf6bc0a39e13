"""What happened in a simulation: how many nodes came and went and why, what it cost, and when what was done (09)."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final

import msgspec

from dovetail.api.names import Reason
from dovetail.model.finding import Finding
from dovetail.rules.reasons import MARKED

HOUR: Final = timedelta(hours=1)


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened."""

    at: datetime
    type: str
    object: str
    message: str


class ReportedViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that was broken; there should be none, ever."""

    at: datetime
    rule: str
    object: str
    message: str


class MachineLife(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One machine, as far as it was there during the run; None: not yet, or before it began."""

    node_claim: str
    node: str
    nodepool: str
    instance_type: str
    capacity_type: str
    zone: str
    price: float | None
    launched_at: datetime | None
    ready_at: datetime | None
    disrupted_at: datetime | None
    gone_at: datetime | None
    reason: str


class NodeCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Machines. `at_start` and `at_end`: how many NodeClaims there were."""

    at_start: int
    at_end: int
    launched: int
    terminated: dict[str, int]


class PodCounts(msgspec.Struct, frozen=True, kw_only=True):
    """`forced`: deleted for a deadline whatever protected them; `lost`: gone with their node; `pending`: at the end."""

    evicted: int
    preempted: int
    forced: int
    lost: int
    pending: int


class Cost(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """In the catalogue's currency."""

    total: float
    per_hour_start: float
    per_hour_end: float


class Hour(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One hour of the run. `nodes`: at its end; `cost`: in it."""

    at: datetime
    nodes: int
    cost: float
    disruptions: int
    evicted: int
    forced: int


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The account of a run; as JSON, what `simulate -o json` prints."""

    start: datetime
    end: datetime
    seed: int
    nodes: NodeCounts
    pods: PodCounts
    cost: Cost
    violations: tuple[ReportedViolation, ...]
    hours: tuple[Hour, ...]
    lives: tuple[MachineLife, ...]
    timeline: tuple[TimelineEntry, ...]
    problems: tuple[Finding, ...] = ()


DISRUPTED: Final = "disrupted"
# What a reader wants to see first, if not all can be shown.
WEIGHTS: Final = {
    "violation": 9,
    "forced": 6,
    "scenario": 6,
    "fault": 6,
    "lost": 5,
    "failed": 5,
    DISRUPTED: 4,
    "rolled-back": 4,
    "preempted": 4,
    "terminated": 3,
    **{reason.lower(): 2 for reason in MARKED},  # a node gets the reason
    Reason.EXPIRED.lower(): 3,
    "launched": 2,
    "unschedulable": 2,
    "ready": 1,
    "evicted": 1,
}


def most_important(timeline: Sequence[TimelineEntry], count: int) -> list[TimelineEntry]:
    """The weightiest, of equal ones the last; in the order of time."""
    ranked = sorted(range(len(timeline)), key=lambda index: (-WEIGHTS.get(timeline[index].type, 0), -index))
    return [timeline[index] for index in sorted(ranked[:count])]


def by_hour_of_day(report: SimulationReport, zone: tzinfo) -> list[int]:
    """How many nodes began to be disrupted in each of the 24 hours of the day."""
    counts = Counter(entry.at.astimezone(zone).hour for entry in report.timeline if entry.type == DISRUPTED)
    return [counts[hour] for hour in range(24)]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of two runs."""

    what: str
    first: float
    second: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs of one scenario with different settings."""

    labels: tuple[str, str]
    differences: tuple[Difference, ...]
    reports: tuple[SimulationReport, SimulationReport]


def compared(first: SimulationReport, second: SimulationReport, labels: tuple[str, str]) -> Comparison:
    """The figures that settings change."""
    rows: list[tuple[str, float, float]] = [
        ("nodes launched", first.nodes.launched, second.nodes.launched),
        ("nodes at the end", first.nodes.at_end, second.nodes.at_end),
    ]
    ended = (first.nodes.terminated, second.nodes.terminated)
    rows += [
        (f"terminated: {reason}", ended[0].get(reason, 0), ended[1].get(reason, 0))
        for reason in sorted(ended[0].keys() | ended[1].keys())
    ]
    rows += [
        (f"pods {field}", getattr(first.pods, field), getattr(second.pods, field))
        for field in PodCounts.__struct_fields__
    ]
    rows += [
        ("cost in all", first.cost.total, second.cost.total),
        ("cost by the hour at the end", first.cost.per_hour_end, second.cost.per_hour_end),
        ("most disruptions in one hour", _most_in_an_hour(first), _most_in_an_hour(second)),
        ("violations", len(first.violations), len(second.violations)),
    ]
    return Comparison(
        labels=labels,
        differences=tuple(Difference(what=what, first=one, second=other) for what, one, other in rows),
        reports=(first, second),
    )


def _most_in_an_hour(report: SimulationReport) -> int:
    return max((hour.disruptions for hour in report.hours), default=0)
