"""The board that the dashboard and `top` show: a compact row for each node, and the budgets of each pool over time.

Instants are whole seconds since 1970. Spans have no ends: each lasts until the next one starts, the first has no start
(0) and the last no end. So a row stays the same, byte for byte, while only time passes, and a page gets only the few
rows that have changed.
"""

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from math import ceil
from typing import Final, TypeAlias

import msgspec

from dovetail.model.decider import DOVETAIL, Decider
from dovetail.model.finding import Finding
from dovetail.model.pod_records import PodRecord
from dovetail.model.refs import MaySee, Ref
from dovetail.rules.states import IN_DISRUPTION
from dovetail.rules.verdict import Rule
from dovetail.views.assessment import NodeAssessment, limited_by_deadline
from dovetail.views.board.details import A_POD, DecisionView, redacted_decisions, redacted_problems
from dovetail.views.explain.data import View
from dovetail.views.explain.pending import PendingSummary
from dovetail.views.explain.standings import NodeStanding, standing_word
from dovetail.views.forecast import data as ahead
from dovetail.views.forecast.nodes import ForecastContext, wanted_now

# Events that the spans of a row show already.
_TOLD_BY_SPANS: Final = frozenset(
    {
        ahead.ForecastEventType.FREE,
        ahead.ForecastEventType.BLOCKED,
        ahead.ForecastEventType.WINDOW_OPENS,
        ahead.ForecastEventType.WINDOW_CLOSES,
    }
)
_KINDS: Final = {kind: number for number, kind in enumerate(ahead.SpanKind)}
PROBLEMS_SHOWN: Final = 200
_APP_LABELS: Final = ("app.kubernetes.io/name", "app", "k8s-app", "job-name", "name")

# rule, object, workload, and the number of pods whose names are withheld
BlockerEntry: TypeAlias = tuple[str, Ref, str, int]
# a cause, from when, until when
BlockedSpan: TypeAlias = tuple[BlockerEntry, datetime, datetime]
# what is the matter with the node, since when, and why
RowBadge: TypeAlias = tuple[str, int | None, str]
# start, kind, and indexes into the row's causes
RowSpan: TypeAlias = tuple[int, ...]
# instant (0: now), type, object, and whether it is certain
RowEvent: TypeAlias = tuple[int, str, Ref, bool]


class NodeRow(View, frozen=True, kw_only=True):
    """One node, or a NodeClaim that has none."""

    key: str
    name: str
    pool: str
    claim: str
    state: str
    type: str
    capacity: str
    zone: str
    managed: bool
    """False: no NodePool owns it, and no rule here is about it."""
    badges: tuple[RowBadge, ...]
    standing: str
    """`stuck`, `waiting`, `leaving`, `starting`, `free` or `steady`."""
    pods: int
    free: int | None
    expires: int | None
    undated: bool
    """Nobody has to free it, and when it becomes free is not known: `free` is null."""
    graceful: int | None
    deadline: int | None
    wanted: tuple[str, ...]
    """The reasons for which it should go now."""
    stuck: tuple[str, int | None] | None
    """The reason for which it should go and cannot unless somebody acts, and since when."""
    waiting: tuple[str, int | None, int | None] | None
    """The reason for which it goes without anybody's help, since when, and from when on it may, if that is known."""
    rule: str
    """The rule because of which it is stuck or waits."""
    causes: tuple[BlockerEntry, ...]
    spans: tuple[RowSpan, ...]
    events: tuple[RowEvent, ...]


class BudgetTimeline(View, frozen=True):
    """The budgets of a pool for one reason: start, limit, in use, allowed, budget (-1: none)."""

    reason: str
    forceful: bool
    """Budgets do not apply to the reason (R19)."""
    spans: tuple[tuple[int, int, int, int, int], ...]


class PoolRow(View, frozen=True):
    """One pool."""

    name: str
    nodes: int
    lanes: tuple[BudgetTimeline, ...]


class BoardBurst(View, frozen=True):
    """Many nodes to which the same happens at about the same time."""

    start: int
    end: int
    type: str
    pool: str
    count: int
    message: str


class SavingsView(View, frozen=True, kw_only=True):
    """What consolidation promised to save per hour, what it saved, and the pods that it moved for that (ADR-0038)."""

    commands: int
    promised: float
    realised: float
    moved: int
    moved_today: int
    """In the last 24 hours."""
    moved_again: int
    moved_in_vain: int
    unplanned: int
    backoffs: tuple[tuple[str, int, str], ...]
    """Pools whose pods are not moved: name, until when, and why."""


class Board(View, frozen=True, kw_only=True):
    """The whole cluster at one instant, and its future if nothing but time changes."""

    at: int
    end: int
    decider: Decider = DOVETAIL
    assumption: str
    restricted: bool = False
    """Names of pods are withheld from this reader."""
    rows: tuple[NodeRow, ...]
    pools: tuple[PoolRow, ...]
    herds: tuple[BoardBurst, ...]
    problems: tuple[Finding, ...]
    pending: PendingSummary = PendingSummary()
    decisions: tuple[DecisionView, ...] = ()
    savings: SavingsView | None = None
    """None: the source keeps no accounts, or none is closed."""


def next_change(board: Board) -> int | None:
    """The first instant after the board's own at which time alone changes it."""
    instants = [span[0] for row in board.rows for span in row.spans]
    instants += [event[0] for row in board.rows for event in row.events]
    instants += [span[0] for pool in board.pools for lane in pool.lanes for span in lane.spans]
    return min((instant for instant in instants if instant > board.at), default=None)


# -- rows --------------------------------------------------------------------------------------------------------------


def make_row(node: ahead.NodeForecast, assessed: NodeAssessment, future: ForecastContext) -> NodeRow:
    """The row of a node, from its forecast."""
    at, member = future.at, assessed.member
    causes, spans = _spans(node, assessed, future)
    events = [event for event in node.events if event.type not in _TOLD_BY_SPANS]
    node_answer = future.answer(assessed)
    waits = node_answer.standing == NodeStanding.WAITING and node.state not in IN_DISRUPTION
    return NodeRow(
        key=str(member.object),
        name=node.name,
        pool=node.nodepool or "",
        claim=node.node_claim or "",
        state=node.state,
        type=node.instance_type or "",
        capacity=node.capacity_type or "",
        zone=node.zone or "",
        managed=node.managed,
        badges=tuple((badge.kind.value, _maybe(badge.since), badge.why) for badge in node.badges),
        standing=standing_word(node_answer.standing, node.state),
        pods=node.pods,
        undated=node.undated,
        free=0 if node.free_at is not None and node.free_at <= at else _maybe(node.free_at),
        expires=_maybe(node.expires_at),
        graceful=_maybe(node.gracefully_expires_at),
        deadline=_maybe(node.deadline),
        wanted=wanted_now(node, assessed, future),
        stuck=(node_answer.reason or _what(node), _maybe(node_answer.since))
        if node_answer.standing == NodeStanding.STUCK
        else None,
        waiting=(node_answer.reason or "", _maybe(node_answer.since), _maybe(node_answer.until)) if waits else None,
        rule=node_answer.rule,
        causes=tuple(causes),
        spans=tuple(spans),
        events=tuple(
            (0 if event.at <= at else seconds_of(event.at), event.type, event.object, event.certainty == "exact")
            for event in events
        ),
    )


def _what(node: ahead.NodeForecast) -> str:
    """What a node without a reason does."""
    return "Draining" if node.state in IN_DISRUPTION else "Starting"


def _spans(
    node: ahead.NodeForecast, assessed: NodeAssessment, future: ForecastContext
) -> tuple[dict[BlockerEntry, int], list[RowSpan]]:
    """The causes of each span. Within one span of the forecast causes come and go."""
    causes: dict[BlockerEntry, int] = {}
    spans: list[RowSpan] = []
    for span in node.spans:
        held: list[BlockedSpan] = [
            ((cause.rule, cause.object, "", 0), cause.start, cause.until or span.end)
            for cause in span.causes
            if cause.object.kind != "Pod" or cause.rule == Rule.REPLACEMENT
        ]
        if span.kind in {ahead.SpanKind.BLOCKED, ahead.SpanKind.DRAINING}:
            held += _blockers_during(span, assessed, future, node.deadline)
        held.sort(key=lambda blocked: blocked[2], reverse=True)  # the longest blocker comes first
        edges = {span.start, *(start for _, start, _ in held), *(end for _, _, end in held)}
        for edge in sorted(edge for edge in edges if span.start <= edge < span.end):
            indices = {causes.setdefault(cause, len(causes)) for cause, start, end in held if start <= edge < end}
            entry: RowSpan = (0 if edge <= future.at else seconds_of(edge), _KINDS[span.kind], *sorted(indices))
            if not spans or spans[-1][1:] != entry[1:]:
                spans.append(entry)
    return causes, spans


def _blockers_during(
    span: ahead.NodeSpan, node: NodeAssessment, future: ForecastContext, deadline: datetime | None
) -> Iterator[BlockedSpan]:
    """Every pod that blocks the node, from when to when. A forecast names only one of several alike.

    `deadline`: of its drain. A pod that a drain waits for goes as soon as it can be evicted.
    """
    drained = span.kind is ahead.SpanKind.DRAINING
    for pod, verdict in node.limiting:
        cause = (verdict.rule.value, pod.object, workload_of(pod), 0)
        if drained and deadline is not None and node.deadline is None:  # else the verdict includes it
            verdict = limited_by_deadline(pod, verdict, deadline, span.start)  # noqa: PLW2901
        when = verdict.when
        edges = [turn for turn in future.turns(when) if span.start < turn < span.end]
        for start, end in pairwise((span.start, *edges, span.end)):
            if not future.holds(when, start):
                yield cause, start, end
            elif drained:
                break


def workload_of(pod: PodRecord) -> str:
    """The namespace of the pod, and the name of its application by its labels."""
    app = next((pod.labels[label] for label in _APP_LABELS if pod.labels.get(label)), "")
    return f"{pod.namespace}/{app}" if app else pod.namespace


def _maybe(instant: datetime | None) -> int | None:
    return None if instant is None else seconds_of(instant)


def seconds_of(instant: datetime) -> int:
    """Rounded up, so that the instant has come at that second."""
    return ceil(instant.timestamp())


# -- pools and herds ---------------------------------------------------------------------------------------------------


def make_strip(pool: ahead.PoolForecast) -> PoolRow:
    lanes = []
    for lane in pool.reasons:
        spans: list[tuple[int, int, int, int, int]] = []
        for number, span in enumerate(lane.spans):
            budget = -1 if span.budget is None else span.budget
            start = seconds_of(span.start) if number else 0
            entry = (start, span.limit, span.in_use, span.allowed, budget)
            if not spans or spans[-1][1:] != entry[1:]:
                spans.append(entry)
        lanes.append(BudgetTimeline(lane.reason, lane.forceful, tuple(spans)))
    return PoolRow(pool.name, pool.nodes, tuple(lanes))


def make_herd(herd: ahead.Burst) -> BoardBurst:
    pool = herd.nodepool or ""
    return BoardBurst(seconds_of(herd.start), seconds_of(herd.end), herd.type, pool, herd.count, herd.message)


# -- for readers who may not list all pods -----------------------------------------------------------------------------


def redacted(board: Board, may_see: MaySee) -> Board:
    """The same without names of pods in namespaces that the reader may not list; those are counted only."""
    return msgspec.structs.replace(
        board,
        restricted=True,
        rows=tuple(_redacted_row(row, may_see) for row in board.rows),
        problems=redacted_problems(board.problems, may_see),
        pending=board.pending.redacted(may_see),
        decisions=redacted_decisions(board.decisions, may_see),
    )


def _redacted_row(row: NodeRow, may_see: MaySee) -> NodeRow:
    hidden: dict[str, int] = {}
    for cause in row.causes:
        if not cause[1].is_seen_by(may_see):
            hidden[cause[0]] = hidden.get(cause[0], 0) + 1
    withheld = any(not event[2].is_seen_by(may_see) for event in row.events)
    if not hidden and not withheld:
        return row
    causes: dict[BlockerEntry, int] = {}
    places = []
    for cause in row.causes:
        shown = cause if cause[1].is_seen_by(may_see) else (cause[0], A_POD, "", hidden[cause[0]])
        places.append(causes.setdefault(shown, len(causes)))
    spans: list[RowSpan] = []
    for start, kind, *indexes in row.spans:
        rest = (kind, *sorted({places[index] for index in indexes}))
        if not spans or spans[-1][1:] != rest:
            spans.append((start, *rest))
    events = tuple((at, type_, ref if ref.is_seen_by(may_see) else A_POD, sure) for at, type_, ref, sure in row.events)
    return msgspec.structs.replace(row, causes=tuple(causes), spans=tuple(spans), events=events)
