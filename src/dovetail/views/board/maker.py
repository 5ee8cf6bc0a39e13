"""Makes boards of a changing cluster. Rows without changes are kept from one board to the next."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import floor

import msgspec

from dovetail.api.names import Reason
from dovetail.model.finding import Finding
from dovetail.rules.states import NodeState
from dovetail.rules.verdict import Verdict
from dovetail.values.schedule.instants import Instants
from dovetail.views.assessment import Assessment, NodeAssessment, PoolAssessment, first_turn, identity
from dovetail.views.board.details import DecisionView
from dovetail.views.board.rows import (
    PROBLEMS_SHOWN,
    Board,
    NodeRow,
    PoolRow,
    SavingsView,
    make_herd,
    make_row,
    make_strip,
    seconds_of,
)
from dovetail.views.explain.pending import pending_pods
from dovetail.views.explain.problems import all_problems
from dovetail.views.forecast.assembly import first_of
from dovetail.views.forecast.data import ASSUMPTION, NodeForecast
from dovetail.views.forecast.drains import Drain
from dovetail.views.forecast.moves import Moves
from dovetail.views.forecast.nodes import ForecastContext, node_forecast
from dovetail.views.forecast.pools import BurstPoint, crowd_points, herds, pool_forecast


class _CachedRow(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A row and what it was made of."""

    node: NodeAssessment
    budgets: tuple[Instants, ...]
    """When the budgets of its pool allow a disruption, for each reason."""
    replacements: Mapping[Reason, Verdict]
    moves: object
    end: datetime
    until: datetime
    """Time alone changes nothing of it before this instant."""
    first: datetime | None
    """When something may first happen to the node."""
    row: NodeRow
    crowd: tuple[BurstPoint, ...]


class BoardMaker:
    """Makes one board after another. A row is the same object until something about it has changed."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], _CachedRow] = {}
        self._strips: dict[str, tuple[PoolAssessment, datetime, PoolRow]] = {}

    def make(
        self,
        assessment: Assessment,
        end: datetime,
        *,
        problems: Iterable[Finding] = (),
        decisions: Sequence[DecisionView] = (),
        savings: SavingsView | None = None,
    ) -> Board:
        """The board up to the end. Rows can be kept if the assessment was made with the last one as `before`."""
        at, snapshot = assessment.at, assessment.snapshot
        rows = self._make_rows(assessment, end)
        points = (
            (pool, type_, max(instant, at), name) for cached in rows for pool, type_, instant, name in cached.crowd
        )
        crowds = herds(points, Counter(member.pool for member in snapshot.nodes))
        return Board(
            at=floor(at.timestamp()),
            end=seconds_of(end),
            decider=snapshot.settings.decider,
            assumption=ASSUMPTION,
            rows=tuple(cached.row for cached in rows),
            pools=self._make_strips(assessment, end),
            herds=tuple(map(make_herd, crowds)),
            problems=all_problems(assessment, problems)[:PROBLEMS_SHOWN],
            pending=pending_pods(snapshot.pods),
            decisions=tuple(decisions),
            savings=savings,
        )

    def _make_rows(self, assessment: Assessment, end: datetime) -> list[_CachedRow]:
        future = ForecastContext(assessment, end)
        budgets = {
            name: tuple(allowance.when for allowance in pool.allowances.values())
            for name, pool in assessment.pools.items()
        }
        parts: list[tuple[NodeAssessment, _CachedRow | None, Drain | None, datetime | None]] = []
        for node in assessment.nodes:
            cached = self._rows.get(identity(node.member))
            if (
                cached is not None
                and cached.node is node
                and cached.budgets == budgets.get(node.member.pool, ())
                and cached.replacements == assessment.replacements(node)
                and assessment.at < cached.until
            ):
                parts.append((node, cached, None, cached.first and max(cached.first, assessment.at)))
            else:
                drained = future.begun(node)
                parts.append((node, None, drained, first_of(assessment, node, drained)))
        moves = Moves(assessment, filter(None, (first for *_, first in parts)))
        rows = []
        for node, cached, drained, first in parts:
            row = cached
            if row is None or (row.moves, row.end) != (moves.said, end):
                forecast = node_forecast(node, future, moves, drained, by_reason=False)
                row = _CachedRow(
                    node=node,
                    budgets=budgets.get(node.member.pool, ()),
                    replacements=assessment.replacements(node),
                    moves=moves.said,
                    end=end,
                    until=_until(assessment, node, forecast),
                    first=first,
                    row=make_row(forecast, node, future),
                    crowd=crowd_points(forecast),
                )
            rows.append(row)
        self._rows = {identity(row.node.member): row for row in rows}
        return rows

    def _make_strips(self, assessment: Assessment, end: datetime) -> tuple[PoolRow, ...]:
        before, self._strips = self._strips, {}
        for name, pool in assessment.pools.items():
            cached = before.get(name)
            if cached is None or cached[0] is not pool or cached[1] != end:
                cached = pool, end, make_strip(pool_forecast(pool, assessment.at, end))
            self._strips[name] = cached
        return tuple(strip for _, _, strip in self._strips.values())


def _until(assessment: Assessment, node: NodeAssessment, forecast: NodeForecast) -> datetime:
    at, pool = assessment.at, assessment.pool(node)
    if node.state is NodeState.DRAINING or (node.expires_at is not None and node.expires_at <= at):
        return at  # how long its drain takes is counted from now
    turns = [node.until, None if pool is None else pool.until]
    turns += [judged.until for judged in assessment.reasons(node).values()]
    turns += [span.start for span in forecast.spans]
    turns += [event.at for event in forecast.events]
    return first_turn(turns, at)
