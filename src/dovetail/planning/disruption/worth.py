"""Decides whether a move is worth it: what it saves against what it disrupts (02 §7.10, ADR-0037).

Both are shares: of the cost of the NodePool, and of its disruption, which is the number of its nodes plus the eviction
costs of their pods. A pool with the policy Balanced asks for more than others.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from dovetail.api.names import ConsolidationPolicy
from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import Candidate, PoolFacts
from dovetail.planning.disruption.replacing import Move, NotConsolidatable

# The share of the pool's cost that is saved, for each share of it that is disrupted.
_BALANCED: Final = 0.5
_LEAST: Final = 0.25


def not_worth_it(move: Move, pools: Mapping[str, PoolFacts]) -> NotConsolidatable | None:
    """Why a pool of the move refuses it; None: all of them accept."""
    source_cost = sum(candidate.price or 0 for candidate in move.candidates)
    for name in sorted({candidate.pool for candidate in move.candidates}):
        pool, candidates = pools[name], [candidate for candidate in move.candidates if candidate.pool == name]
        balanced = pool.policy == ConsolidationPolicy.BALANCED
        if not balanced and pool.total_cost <= 0:
            continue  # some price is unknown
        share = sum(candidate.price or 0 for candidate in candidates) / source_cost if source_cost else 0.0
        score = _score(pool, move.savings * share, sum(candidate.cost for candidate in candidates))
        if score < (least := _BALANCED if balanced else _LEAST):
            saves = f"for each part of its disruption this saves {score:.2f} parts of its cost, less than {least}"
            why = (
                f"NodePool {name} is Balanced, and {saves}"
                if balanced
                else f"it is not worth it: in NodePool {name}, {saves}"
            )
            return NotConsolidatable(Sentence(why), too_expensive=True)
    return None


def _score(pool: PoolFacts, savings: float, cost: float) -> float:
    """Returns 0 if the totals of the pool are unknown. One division, so that 0.5 is exact."""
    if pool.total_cost <= 0 or pool.total_disruption <= 0 or savings <= 0:
        return 0.0
    return savings * pool.total_disruption / (cost * pool.total_cost) if cost > 0 else float("inf")


def gain(move: Move, pools: Mapping[str, PoolFacts]) -> float:
    """What a move saves beyond the least that its disruption asks for, in billionths per hour."""
    return move.savings - _asked(move.candidates, pools)


def most_gain(candidates: Iterable[Candidate], new: int, pools: Mapping[str, PoolFacts]) -> float:
    """The gain of removing the nodes if the new nodes cost so much."""
    return sum(candidate.price or 0 for candidate in candidates) - new - _asked(candidates, pools)


def _asked(candidates: Iterable[Candidate], pools: Mapping[str, PoolFacts]) -> float:
    asked = 0.0
    for candidate in candidates:
        pool = pools[candidate.pool]
        asked += candidate.cost * pool.total_cost / pool.total_disruption if pool.total_disruption > 0 else 0.0
    return _LEAST * asked
