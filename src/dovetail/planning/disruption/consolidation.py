"""Which nodes can be spared, alone or together, and what is best (02 §7.8, §7.9; 08 §8; R36)?

Every candidate is looked at in every pass. Of single nodes the best is taken, not the first. Sets are found in three
ways, of which the one that saves most is taken: the longest prefix of the order, a walk that skips what does not fit,
and the same walk in each pool alone, so that a large pool does not hide a small one.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from dovetail.api.names import Reason
from dovetail.planning.disruption.balance import unbalanced
from dovetail.planning.disruption.board import Board, Budgets, Candidate
from dovetail.planning.disruption.replacing import Move, Refused, Rules, decide
from dovetail.scheduling.fast.bounds import witness

GoOn = Callable[[], bool]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The moves that are possible, best first, and of the other nodes why not. `complete`: all were looked at."""

    moves: tuple[Move, ...] = ()
    refused: dict[str, str] = {}
    complete: bool = True


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """What saves most for what it costs to move first; of equals by name."""
    return sorted(candidates, key=lambda each: (-each.savings_ratio, each.node))


def fair_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The same, one of each pool in turn: should time run out, no pool was left out."""
    turns: dict[str, int] = {}
    numbered = []
    for each in in_order(candidates):
        turns[each.pool] = turns.get(each.pool, 0) + 1
        numbered.append((turns[each.pool], each))
    return [each for _, each in sorted(numbered, key=lambda pair: (pair[0], -pair[1].savings_ratio, pair[1].node))]


def single(board: Board, rules: Rules, go_on: GoOn) -> Found:
    """Each node by itself, whatever budgets say: that it could go is worth knowing (R22)."""
    moves: list[Move] = []
    refused: dict[str, str] = {}
    for candidate in fair_order(board.of(Reason.UNDERUTILIZED)):
        if not go_on():
            return Found(moves=_best_first(moves), refused=refused, complete=False)
        decided = _one(board, candidate, rules)
        if isinstance(decided, Refused):
            refused[candidate.node] = str(decided)
        else:
            moves.append(decided)
    return Found(moves=_best_first(moves), refused=refused)


def _one(board: Board, candidate: Candidate, rules: Rules) -> Move | Refused:
    """Impossible is cheaper to see than to try."""
    if candidate.pods and not candidate.unmovable:
        seen = witness(board.world, candidate.pods, [candidate.node], candidate.price or 0)
        if seen is not None and seen.dearer is not None:
            return Refused(str(seen))
    return _wanted(board, [candidate], rules)


def _wanted(board: Board, candidates: Sequence[Candidate], rules: Rules) -> Move | Refused:
    decided = decide(board, candidates, rules)
    return decided if isinstance(decided, Refused) else unbalanced(decided, board.pools) or decided


def _best_first(moves: Iterable[Move]) -> tuple[Move, ...]:
    return tuple(sorted(moves, key=lambda move: (-move.worth, move.candidates[0].node)))


def multi(board: Board, rules: Rules, go_on: GoOn) -> Move | None:
    """The set of two or more nodes that saves most, within budgets."""
    budgets = Budgets(board, Reason.UNDERUTILIZED)
    allowed = [each for each in in_order(board.of(Reason.UNDERUTILIZED)) if not each.unmovable and budgets.take(each)]
    by_pool: dict[str, list[Candidate]] = {}
    for each in allowed:
        by_pool.setdefault(each.pool, []).append(each)
    orders = [allowed, *(by_pool.values() if len(by_pool) > 1 else ())]
    search = _Search(board, rules, go_on)
    found = [search.longest_prefix(allowed), *(search.walk(order) for order in orders)]
    sets = [move for move in found if move is not None and len(move.candidates) > 1]
    return max(sets, key=lambda move: (move.savings, len(move.candidates)), default=None)


class _Search:
    def __init__(self, board: Board, rules: Rules, go_on: GoOn) -> None:
        self._board = board
        self._rules = rules
        self._go_on = go_on
        self._known: dict[tuple[str, ...], Move | None] = {}

    def _try(self, candidates: Sequence[Candidate]) -> Move | None:
        key = tuple(each.node for each in candidates)
        if key not in self._known:
            decided = _wanted(self._board, candidates, self._rules)
            self._known[key] = None if isinstance(decided, Refused) else decided
        return self._known[key]

    def longest_prefix(self, order: Sequence[Candidate]) -> Move | None:
        """By halves, as if a longer prefix were never possible where a shorter one is not."""
        best, low, high = None, 2, len(order)
        while low <= high and self._go_on():
            middle = (low + high) // 2
            found = self._try(order[:middle])
            if found is None:
                high = middle - 1
            else:
                best, low = found, middle + 1
        return best

    def walk(self, order: Sequence[Candidate]) -> Move | None:
        """Take what can be taken with what is taken already; in growing steps, until one node does not fit."""
        taken: list[Candidate] = []
        best: Move | None = None
        place, step = 0, 1
        while place < len(order) and self._go_on():
            more = order[place : place + step]
            found = self._try([*taken, *more])
            if found is not None:
                taken += more
                best = found
                place += len(more)
                step *= 2
            elif len(more) > 1:
                step = len(more) // 2
            else:
                place += 1
        return best
