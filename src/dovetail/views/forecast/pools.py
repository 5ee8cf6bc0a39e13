"""Forecasts the budgets of a pool, and finds herds: many nodes with the same event at about the same time."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from dovetail.api.names import Reason
from dovetail.rules.budgets import BUDGETED
from dovetail.rules.reasons import is_budgeted
from dovetail.values.timestamp import spoken_time
from dovetail.views.assessment import PoolAssessment
from dovetail.views.forecast.data import (
    BudgetForecast,
    BudgetSpan,
    Burst,
    ForecastEventType,
    NodeForecast,
    PoolForecast,
)

# A budget with a window every minute has ten thousand a week.
MOST_SPANS = 1000
TOGETHER = timedelta(minutes=10)
FEWEST = 3
FEWEST_PERCENT = 2
# pool, what happens, when, to which node
BurstPoint: TypeAlias = tuple[str | None, ForecastEventType, datetime, str]
_HERDS = {
    ForecastEventType.EXPIRES: "expire",
    ForecastEventType.GRACEFULLY_EXPIRES: "expire gracefully",
    ForecastEventType.DISRUPTS: "may be disrupted",
    ForecastEventType.FREE: "become free",
    ForecastEventType.FORCED: "are forced out",
}


def pool_forecast(pool: PoolAssessment, at: datetime, end: datetime) -> PoolForecast:
    """The budgets for each reason over time, with the present use."""
    graceful = pool.record.graceful_expire_after_ns is not None
    return PoolForecast(
        pool.record.name,
        pool.counts.nodes,
        tuple(
            BudgetForecast(
                reason,
                not is_budgeted(reason, graceful_expiry=graceful),
                tuple(_budget_spans(pool, reason, at, end)),
            )
            for reason in BUDGETED
        ),
    )


def _budget_spans(pool: PoolAssessment, reason: Reason, at: datetime, end: datetime) -> Iterator[BudgetSpan]:
    in_use = len(pool.counts.consumers)
    for number in range(MOST_SPANS):
        allowed = pool.allowance_at(reason, at)
        last = allowed.until is None or allowed.until >= end or number == MOST_SPANS - 1
        stop = end if last or allowed.until is None else allowed.until
        yield BudgetSpan(at, stop, allowed.limit, in_use, allowed.allowed, allowed.binding)
        if last:
            return
        at = stop


def crowd_points(node: NodeForecast) -> tuple[BurstPoint, ...]:
    """The events of the node that many nodes can share."""
    return tuple((node.nodepool, event.type, event.at, node.name) for event in node.events if event.type in _HERDS)


def herds(points: Iterable[BurstPoint], sizes: Mapping[str, int]) -> list[Burst]:
    """At least three nodes of a pool, and one in fifty, with the same event within ten minutes."""
    instants: dict[tuple[str | None, ForecastEventType], list[tuple[datetime, str]]] = defaultdict(list)
    for pool, type_, at, name in points:
        instants[pool, type_].append((at, name))
    found: list[Burst] = []
    for (pool, type_), points_of in instants.items():
        fewest = max(FEWEST, -(-sizes.get(pool or "", 0) * FEWEST_PERCENT // 100))
        found += _crowds(pool, type_, sorted(points_of), fewest)
    return sorted(found, key=lambda herd: (herd.start, herd.nodepool or "", herd.type))


def _crowds(
    pool: str | None, type_: ForecastEventType, points: Sequence[tuple[datetime, str]], fewest: int
) -> Iterator[Burst]:
    first = stop = 0
    while first < len(points):
        while stop < len(points) and points[stop][0] - points[first][0] <= TOGETHER:
            stop += 1
        if stop - first < fewest:
            first += 1
            continue
        start, end = points[first][0], points[stop - 1][0]
        names = tuple(dict.fromkeys(name for _, name in points[first:stop]))
        whose = f" of {pool}" if pool else ""
        within = "" if start == end else " within 10 minutes"
        message = f"{len(names)} nodes{whose} {_HERDS[type_]}{within} at {spoken_time(start)}"
        yield Burst(start, end, type_, pool, len(names), names, message)
        first = stop
