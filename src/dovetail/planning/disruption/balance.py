"""Is a move worth its disruption where a pool asks for balance (02 §7.10)?"""

from collections.abc import Mapping
from typing import Final

from dovetail.api.names import ConsolidationPolicy
from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import Candidate, PoolFacts
from dovetail.planning.disruption.replacing import Move, NotConsolidatable

# Half as much of what there is to save as of what there is to disrupt is enough.
_LEAST_SCORE: Final = 0.5


def unbalanced(move: Move, pools: Mapping[str, PoolFacts]) -> NotConsolidatable | None:
    """Why a pool whose policy is Balanced does not want the move; every such pool has to."""
    of_pool: dict[str, list[Candidate]] = {}
    for each in move.candidates:
        of_pool.setdefault(each.pool, []).append(each)
    source_cost = sum(each.price or 0 for each in move.candidates)
    for name, candidates in sorted(of_pool.items()):
        pool = pools[name]
        if pool.policy != ConsolidationPolicy.BALANCED:
            continue
        share = sum(each.price or 0 for each in candidates) / source_cost if source_cost else 0.0
        score = _score(pool, move.savings * share, sum(each.cost for each in candidates))
        if score < _LEAST_SCORE:
            saves = f"for each part of its disruption this saves {score:.2f} parts of its cost"
            return NotConsolidatable(
                Sentence(f"NodePool {name} is Balanced, and {saves}, less than {_LEAST_SCORE}"), dear=True
            )
    return None


def _score(pool: PoolFacts, savings: float, cost: float) -> float:
    """Where the pool's totals are not known, nothing is known to be worth it. One division: 0.5 must be 0.5."""
    if pool.total_cost <= 0 or pool.total_disruption <= 0 or savings <= 0:
        return 0.0
    return savings * pool.total_disruption / (cost * pool.total_cost) if cost > 0 else float("inf")
