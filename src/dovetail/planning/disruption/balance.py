"""Weighs savings against disruption for pools with the policy Balanced (02 §7.10)."""

from collections.abc import Mapping
from typing import Final

from dovetail.api.names import ConsolidationPolicy
from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import PoolFacts
from dovetail.planning.disruption.replacing import Move, NotConsolidatable

# The share of the pool's cost that is saved must be at least half of the share that is disrupted.
_LEAST_SCORE: Final = 0.5


def unbalanced(move: Move, pools: Mapping[str, PoolFacts]) -> NotConsolidatable | None:
    """Why a Balanced pool of the move refuses it; None: all of them accept."""
    source_cost = sum(each.price or 0 for each in move.candidates)
    for name in sorted({each.pool for each in move.candidates}):
        pool, candidates = pools[name], [each for each in move.candidates if each.pool == name]
        if pool.policy != ConsolidationPolicy.BALANCED:
            continue
        share = sum(each.price or 0 for each in candidates) / source_cost if source_cost else 0.0
        score = _score(pool, move.savings * share, sum(each.cost for each in candidates))
        if score < _LEAST_SCORE:
            saves = f"for each part of its disruption this saves {score:.2f} parts of its cost"
            return NotConsolidatable(
                Sentence(f"NodePool {name} is Balanced, and {saves}, less than {_LEAST_SCORE}"), too_expensive=True
            )
    return None


def _score(pool: PoolFacts, savings: float, cost: float) -> float:
    """Returns 0 if the totals of the pool are unknown. One division, so that 0.5 is exact."""
    if pool.total_cost <= 0 or pool.total_disruption <= 0 or savings <= 0:
        return 0.0
    return savings * pool.total_disruption / (cost * pool.total_cost) if cost > 0 else float("inf")
