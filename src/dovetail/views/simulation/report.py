"""The report of a simulation: nodes that came and went and why, the cost, and the timeline."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final

import msgspec

from dovetail.api.names import Reason
from dovetail.model.decider import Decider
from dovetail.model.finding import Finding
from dovetail.rules.reasons import MARKED

HOUR: Final = timedelta(hours=1)


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event."""

    at: datetime
    type: str
    object: str
    message: str


class ReportedViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A broken rule; there should be none."""

    at: datetime
    rule: str
    object: str
    message: str


class MachineLife(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One machine during the run. A missing instant lies before or after the run."""

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
    """Machines; `at_start` and `at_end` count NodeClaims."""

    at_start: int
    at_end: int
    launched: int
    terminated: dict[str, int]


class PodCounts(msgspec.Struct, frozen=True, kw_only=True):
    """`forced`: deleted for a deadline despite protection; `lost`: gone with their node; `pending`: at the end."""

    evicted: int
    preempted: int
    forced: int
    lost: int
    pending: int


class Cost(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """In the catalogue's currency. `known_share`: the part of the total whose prices are no guesses.

    `prices`: where they come from.
    """

    total: float
    per_hour_start: float
    per_hour_end: float
    known_share: float | None = None
    prices: str = ""


class ConsolidationCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The accounts of consolidation commands that were closed in the run (ADR-0038). Savings are per hour.

    `given_up`: commands that were rolled back before they did anything; they count nowhere else.

    `moved_again`: a second time within an hour; `moved_in_vain`: by commands that realised less than half of what they
    promised; `unplanned`: nodes launched for moved pods that nobody planned.
    """

    commands: int
    given_up: int
    promised: float
    realised: float
    moved: int
    moved_per_day: float
    moved_again: int
    moved_in_vain: int
    unplanned: int


class ProtectionCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What pods asked for by their annotations, in Dovetail's reading, and what became of it.

    `evicted`, `forced`: pods that were taken off all the same, the latter for the deadline of their node. `late`: nodes
    that Karpenter had taken when one of their pods was not to be disrupted, as `dovetail_beside_late_total` counts
    them; None: Karpenter is not there. `held_nodes`, `held_hours`: from which guard or drive kept it off.
    """

    held_nodes: int
    held_hours: float
    evicted: int
    forced: int
    late: int | None


class Hour(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One hour of the run. `nodes`: at its end; `cost`: in it."""

    at: datetime
    nodes: int
    cost: float
    disruptions: int
    evicted: int
    forced: int


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The report of one run, as `simulate -o json` prints it."""

    start: datetime
    end: datetime
    seed: int
    decider: Decider
    nodes: NodeCounts
    pods: PodCounts
    cost: Cost
    protection: ProtectionCounts
    consolidation: ConsolidationCounts | None
    """None: Karpenter decides, and keeps no accounts."""
    violations: tuple[ReportedViolation, ...]
    checked: bool
    """Whether the rules of Dovetail were checked: they are those of `run`."""
    hours: tuple[Hour, ...]
    lives: tuple[MachineLife, ...]
    timeline: tuple[TimelineEntry, ...]
    problems: tuple[Finding, ...] = ()


DISRUPTED: Final = "disrupted"
UNHEEDED: Final = "unheeded"  # a pod went although its annotations ask to keep it
_VIOLATION: Final = "violation"
_FIRST_WORD: Final = re.compile(r"\w*")
_MATTERS: Final = 5  # and what weighs more
_KEPT: Final = (
    "pods evicted despite their annotations",
    "pods forced despite their annotations",
    "nodes taken too early",
    "nodes held",
    "hours of nodes held",
)
_IN_DOLLARS: Final = (
    "cost in all",
    "hourly cost at the end",
    "savings promised by the hour",
    "savings realised by the hour",
)
# How important each type of event is, if not all can be shown.
WEIGHTS: Final = {
    _VIOLATION: 9,
    "forced": 8,
    "lost": 8,
    "failed": 8,
    UNHEEDED: 7,
    DISRUPTED: 6,
    "fault": 5,
    "scenario": 5,
    "rolled-back": 6,
    "preempted": 6,
    "terminated": 3,
    **{reason.lower(): 2 for reason in MARKED},  # a node gets the condition
    Reason.EXPIRED.lower(): 3,
    "launched": 2,
    "unschedulable": 2,
    "ready": 1,
    "evicted": 1,
}


def most_important(timeline: Sequence[TimelineEntry], count: int) -> list[TimelineEntry]:
    """The most important entries, in the order of time. Of those that matter, first one of each kind, then a second,
    so that what happens every day does not hide the one upgrade; of the rest, the later of equal ones."""
    seen: Counter[tuple[str, str]] = Counter()
    ranked = []
    for index, entry in enumerate(timeline):
        weight = WEIGHTS.get(entry.type, 0)
        kind = entry.type, _FIRST_WORD.findall(entry.message)[0]  # such as the reason of a decision
        seen[kind] += 1
        always = entry.type == _VIOLATION
        turn = 0 if always else seen[kind] if weight >= _MATTERS else len(timeline)
        ranked.append((turn, -weight, -index))
    return [timeline[index] for index in sorted(-index for _, _, index in sorted(ranked)[:count])]


def by_hour_of_day(report: SimulationReport, zone: tzinfo) -> list[int]:
    """The number of disruptions that start in each of the 24 hours of the day."""
    counts = Counter(entry.at.astimezone(zone).hour for entry in report.timeline if entry.type == DISRUPTED)
    return [counts[hour] for hour in range(24)]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of two runs."""

    what: str
    first: float
    second: float

    @property
    def always(self) -> bool:
        """Whether people want to see it even if it is equal."""
        return self.what in ("cost in all", "violations")

    @property
    def of_modes(self) -> bool:
        """Whether people who compare modes want to see it even if it is equal."""
        return self.what in _KEPT

    @property
    def title(self) -> str:
        """With the unit, for people."""
        return f"{self.what} ($)" if self.what in _IN_DOLLARS else self.what


def figure_text(value: float) -> str:
    """A figure with three decimals at most."""
    return str(round(value, 3)).removesuffix(".0")


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs of one scenario with different settings."""

    labels: tuple[str, str]
    differences: tuple[Difference, ...]
    reports: tuple[SimulationReport, SimulationReport]


def compared(first: SimulationReport, second: SimulationReport, labels: tuple[str, str]) -> Comparison:
    """Compare the figures of two runs."""
    reasons = sorted(first.nodes.terminated.keys() | second.nodes.terminated.keys())
    one, other = dict(_figures(first, reasons)), dict(_figures(second, reasons))
    differences = (Difference(what=what, first=one[what], second=other[what]) for what in one if what in other)
    return Comparison(labels=labels, differences=tuple(differences), reports=(first, second))


def _figures(report: SimulationReport, reasons: Sequence[str]) -> list[tuple[str, float]]:
    """Those that this one has."""
    kept, saved = report.protection, report.consolidation
    return [
        ("nodes launched", report.nodes.launched),
        ("nodes at the end", report.nodes.at_end),
        *((f"terminated: {reason}", report.nodes.terminated.get(reason, 0)) for reason in reasons),
        *((f"pods {field}", getattr(report.pods, field)) for field in PodCounts.__struct_fields__),
        (_KEPT[0], kept.evicted),
        (_KEPT[1], kept.forced),
        *([] if kept.late is None else [(_KEPT[2], kept.late)]),
        (_KEPT[3], kept.held_nodes),
        (_KEPT[4], kept.held_hours),
        ("cost in all", report.cost.total),
        ("hourly cost at the end", report.cost.per_hour_end),
        *(
            []
            if saved is None
            else [
                ("savings promised by the hour", saved.promised),
                ("savings realised by the hour", saved.realised),
                ("pods moved by consolidation", saved.moved),
                ("pods moved again", saved.moved_again),
                ("pods moved in vain", saved.moved_in_vain),
                ("nodes nobody planned", saved.unplanned),
            ]
        ),
        ("most disruptions in one hour", max((hour.disruptions for hour in report.hours), default=0)),
        *([("violations", len(report.violations))] if report.checked else []),
    ]
