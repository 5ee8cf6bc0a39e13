"""Forecasts when each node becomes free, expires or is forced out, and what budgets allow, over a span of time.

The rules name the instants at which their answers change, and the forecast visits only these: nothing is sampled.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from itertools import chain

from dovetail.model.finding import Finding
from dovetail.views.assessment import Assessment, NodeAssessment
from dovetail.views.explain.problems import all_problems
from dovetail.views.forecast.data import Forecast, NodeForecast
from dovetail.views.forecast.drains import Drain
from dovetail.views.forecast.moves import Moves, first_move
from dovetail.views.forecast.nodes import ForecastContext, node_forecast
from dovetail.views.forecast.pools import crowd_points, herds, pool_forecast

__all__ = ["Forecast", "forecast"]


def forecast(
    assessment: Assessment,
    end: datetime,
    *,
    problems: Iterable[Finding] = (),
) -> Forecast:
    """Step from change to change up to the end."""
    at, snapshot = assessment.at, assessment.snapshot
    future = ForecastContext(assessment, end)
    begun = [(node, future.begun(node)) for node in assessment.nodes]
    moves = Moves(assessment, filter(None, (first_of(assessment, node, drained) for node, drained in begun)))
    nodes = tuple(
        node_forecast(node, future, moves, drained)
        for node, drained in sorted(begun, key=lambda each: not each[0].member.managed)
    )
    return Forecast(
        at=at,
        decider=snapshot.settings.decider,
        end=end,
        exact_until=end if moves.earliest is None else min(moves.earliest, end),
        nodes=nodes,
        nodepools=tuple(pool_forecast(pool, at, end) for pool in assessment.pools.values()),
        herds=tuple(
            herds(
                chain.from_iterable(map(crowd_points, filter(_is_managed, nodes))),
                Counter(member.pool for member in snapshot.nodes),
            )
        ),
        problems=all_problems(assessment, problems),
    )


def _is_managed(node: NodeForecast) -> bool:
    return node.managed


def first_of(assessment: Assessment, node: NodeAssessment, drained: Drain | None) -> datetime | None:
    """The first instant at which something may happen to the node, or in its drain."""
    in_drain = None if drained is None else min((event.at for event in drained.events), default=drained.gone_at)
    return min(filter(None, (first_move(assessment, node), in_drain)), default=None)
