"""Finds nodes that can be consolidated, alone or together, and chooses the best (02 §7.8, §7.9; 08 §8; R36).

Every pass tries every candidate, and chooses the best single node, not the first. It searches sets in four ways, and
chooses the one that gains most: the longest prefix of the order, the best pair of the first nodes and what else fits,
a walk over the removable nodes that skips what does not fit, and the same walk in each pool alone, so that a large pool
does not hide a small one. A walk ends with nodes that save something only together, on one new node.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import combinations
from math import inf
from operator import and_
from typing import Final

import msgspec

from dovetail.api.names import Reason
from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import Candidate, DisruptionBoard, RemainingBudgets
from dovetail.planning.disruption.replacing import ConsolidationOptions, Move, NotConsolidatable, decide
from dovetail.planning.disruption.worth import gain, most_gain, not_worth_it
from dovetail.scheduling.fast.bits import members
from dovetail.scheduling.fast.bounds import witness
from dovetail.scheduling.resources import NOTHING, Resources, total

GoOn = Callable[[], bool]

# As many nodes as upstream tries together, so that everything it finds is found here (R36).
_PREFIX: Final = 100
# Bounds the number of pods in all sets that are tried: a multiple of the pods of the candidates. Unlike a time limit it
# gives the same answer for the same board.
_TIMES: Final = 10
_FEWEST_PODS, _MOST_PODS = 5_000, 80_000
# All pairs of so many of the first nodes are looked at, and so many pods of them tried.
_PAIRED: Final = 24
_PAIR_PODS: Final = 1_000


class ConsolidationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The possible moves, best first, and why the other nodes cannot be moved. `complete`: all were tried.

    `too_expensive`: refused nodes whose pods have a place, but one that saves nothing.
    """

    moves: tuple[Move, ...] = ()
    refused: dict[str, Sentence] = {}
    too_expensive: tuple[Candidate, ...] = ()
    complete: bool = True

    def without_decided(self, board: DisruptionBoard) -> "ConsolidationResult":
        """Without nodes that the pass has decided about since."""
        moves = tuple(move for move in self.moves if all(map(board.is_open, move.candidates)))
        expensive = tuple(candidate for candidate in self.too_expensive if board.is_open(candidate))
        return msgspec.structs.replace(self, moves=moves, too_expensive=expensive)


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Best ratio of savings to cost first, then by name."""
    return sorted(candidates, key=lambda candidate: (-candidate.savings_ratio, candidate.node))


def fair_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The same order, but one node of each pool in turn, so that every pool gets some of the time."""
    turns: dict[str, int] = {}
    numbered = []
    for candidate in in_order(candidates):
        turns[candidate.pool] = turns.get(candidate.pool, 0) + 1
        numbered.append((turns[candidate.pool], candidate))
    return [
        candidate for _, candidate in sorted(numbered, key=lambda pair: (pair[0], -pair[1].savings_ratio, pair[1].node))
    ]


def single(board: DisruptionBoard, rules: ConsolidationOptions, go_on: GoOn) -> ConsolidationResult:
    """Tries each node alone, without budgets: a node that could be removed is a candidate (R22)."""
    moves: list[Move] = []
    refused: dict[str, Sentence] = {}
    expensive: list[Candidate] = []
    complete, hopeless = True, False
    for candidate in fair_order(board.of(Reason.UNDERUTILIZED)):
        complete = go_on()
        if not complete:
            break
        decided, hopeless = _one(board, candidate, rules, look_first=hopeless)
        if not isinstance(decided, NotConsolidatable):
            moves.append(decided)
            continue
        refused[candidate.node] = decided.message
        if decided.too_expensive:
            expensive.append(candidate)
    return ConsolidationResult(
        moves=_best_first(moves), refused=refused, too_expensive=tuple(in_order(expensive)), complete=complete
    )


def _one(
    board: DisruptionBoard, candidate: Candidate, rules: ConsolidationOptions, *, look_first: bool
) -> tuple[Move | NotConsolidatable, bool]:
    """The result, and whether the quick check alone shows that the node cannot be removed.

    The quick check costs as much as the full one, and consecutive nodes are similar. So it runs first only if it was
    sufficient for the previous node. The result is the same.
    """
    impossible = _impossible(board, candidate) if look_first else None
    if impossible is not None:
        return impossible, True
    decided = _wanted(board, [candidate], rules)
    if isinstance(decided, NotConsolidatable) and not look_first:
        impossible = _impossible(board, candidate)
    return impossible or decided, impossible is not None


def _impossible(board: DisruptionBoard, candidate: Candidate) -> NotConsolidatable | None:
    if not candidate.pods or candidate.unmovable or candidate.price is None:
        return None
    seen = witness(board.world, candidate.pods, [candidate.node], candidate.price)
    if seen is None or seen.dearer is None:
        return None
    return NotConsolidatable(seen.sentence, too_expensive=seen.dearer.price is not None)


def _wanted(
    board: DisruptionBoard, candidates: Sequence[Candidate], rules: ConsolidationOptions
) -> Move | NotConsolidatable:
    decided = decide(board, candidates, rules)
    return decided if isinstance(decided, NotConsolidatable) else not_worth_it(decided, board.pools) or decided


def _best_first(moves: Iterable[Move]) -> tuple[Move, ...]:
    return tuple(sorted(moves, key=lambda move: (-move.savings_per_cost, move.candidates[0].node)))


def multi(
    board: DisruptionBoard,
    rules: ConsolidationOptions,
    go_on: GoOn,
    alone: ConsolidationResult | None = None,
    *,
    again: bool = False,
) -> Move | None:
    """The set of two or more nodes that saves most, within budgets. `alone`: the result of `single`.

    `again`: it is not the first search of this pass, so it is shorter.
    """
    alone = single(board, rules, go_on) if alone is None else alone
    removable, expensive = [move.candidates[0] for move in alone.moves], list(alone.too_expensive)
    search = _Search(board, rules, go_on)
    work = sum(len(candidate.pods) for candidate in (*removable, *expensive)) * _TIMES
    most = max(_FEWEST_PODS, min(work, _FEWEST_PODS if again else _MOST_PODS))
    moves = []
    if not again:
        pairs = search.from_pairs(in_order((*removable, *expensive))[:_PAIRED])
        moves += [search.longest_prefix(_within_budgets(board)[:_PREFIX]), pairs]
    moves.append(search.walk(removable, expensive, most * 3 // 4))
    pools = sorted({candidate.pool for candidate in (*removable, *expensive)})
    moves += [
        search.walk(_of_pool(removable, pool), _of_pool(expensive, pool), most // 4 // len(pools))
        for pool in (pools if len(pools) > 1 else ())
    ]
    sets = [move for move in moves if move is not None and len(move.candidates) > 1]
    return max(sets, key=search.gain, default=None)


def still_possible(board: DisruptionBoard, rules: ConsolidationOptions, move: Move) -> Move | None:
    """The move as it is possible together with what the pass has decided since; None if it is not."""
    fits = all(map(board.is_open, move.candidates)) and RemainingBudgets(board, Reason.UNDERUTILIZED).within(
        move.candidates
    )
    decided = _wanted(board, move.candidates, rules) if fits else None
    return decided if isinstance(decided, Move) else None


def _within_budgets(board: DisruptionBoard) -> list[Candidate]:
    budgets = RemainingBudgets(board, Reason.UNDERUTILIZED)
    return [
        candidate
        for candidate in in_order(board.of(Reason.UNDERUTILIZED))
        if not candidate.unmovable and budgets.take(candidate)
    ]


def _of_pool(candidates: Iterable[Candidate], pool: str) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.pool == pool]


class _Search:
    """The sets that were tried. `_spent`: the number of their pods."""

    def __init__(self, board: DisruptionBoard, rules: ConsolidationOptions, go_on: GoOn) -> None:
        self._board = board
        self._rules = rules
        self._go_on = go_on
        self._room = _Room(board)
        self._budgets = RemainingBudgets(board, Reason.UNDERUTILIZED)
        self._spent = 0
        self._known: dict[tuple[str, ...], Move | NotConsolidatable] = {}

    def gain(self, move: Move | None) -> tuple[float, int, float]:
        """Orders sets: by what they gain, by the number of nodes without a price, by the lowest cost."""
        if move is None:
            return -inf, 0, 0.0
        return gain(move, self._board.pools), sum(not candidate.price for candidate in move.candidates), -move.cost

    def _try(self, candidates: Sequence[Candidate]) -> Move | NotConsolidatable:
        key = tuple(candidate.node for candidate in candidates)
        if key not in self._known:
            self._spent += sum(len(candidate.pods) for candidate in candidates)
            self._known[key] = _wanted(self._board, candidates, self._rules)
        return self._known[key]

    def longest_prefix(self, order: Sequence[Candidate]) -> Move | None:
        """Binary search, as if a longer prefix were never possible where a shorter one is not."""
        best, low, high = None, 2, len(order)
        while low <= high and self._go_on():
            middle = (low + high) // 2
            move = self._try(order[:middle]) if self._room.may_save(order[:middle]) else None
            if not isinstance(move, Move):
                high = middle - 1
            else:
                best, low = move, middle + 1
        return best

    def from_pairs(self, order: Sequence[Candidate]) -> Move | None:
        """The best pair of the nodes, with what else fits. Pairs that may gain most are tried first."""
        best: Move | None = None
        end = self._spent + _PAIR_PODS
        pairs = [(self._most(pair), number, pair) for number, pair in enumerate(combinations(order, 2))]
        for most, _, pair in sorted(pairs, key=lambda bound: (-bound[0], bound[1])):
            if most <= max(0, self.gain(best)[0]) or self._spent >= end or not self._go_on():
                break
            best = self._better(pair, best)
        for candidate in order if best is not None else ():
            more = () if best is None or candidate in best.candidates else (*best.candidates, candidate)
            if more and self._most(more) > self.gain(best)[0] and self._spent < end and self._go_on():
                best = self._better(more, best)
        return best

    def _most(self, candidates: Sequence[Candidate]) -> float:
        """The most that the set can gain, by its sums."""
        price = self._room.price_of_rest(candidates) if self._budgets.within(candidates) else None
        return -inf if price is None else most_gain(candidates, price, self._board.pools)

    def _better(self, candidates: Sequence[Candidate], best: Move | None) -> Move | None:
        move = self._try(candidates)
        return move if isinstance(move, Move) and self.gain(move) > self.gain(best) else best

    def walk(self, removable: Sequence[Candidate], expensive: Sequence[Candidate], most_pods: int) -> Move | None:
        end = self._spent + most_pods
        return self._together(self._grown(removable, end), expensive[:_PREFIX], end)

    def _grown(self, order: Sequence[Candidate], end: int) -> Move | None:
        """Grows a set: first half of what the sums allow, then more or fewer nodes at a time."""
        taken: list[Candidate] = []
        best: Move | None = None
        place, step = 0, max(1, len(self._room.next_of(order, 0, len(order), taken)[0]) // 2)
        while self._spent < end and self._go_on():
            more, after = self._room.next_of(order, place, step, taken)
            if not more:
                break
            move = self._try([*taken, *more])
            if isinstance(move, Move) and self.gain(move) > self.gain(best):
                best, place = move, after
                taken += more
                step *= 2
            elif len(more) > 1:
                step = len(more) // 2
            else:
                place = after
        return best

    def _together(self, best: Move | None, order: Sequence[Candidate], end: int) -> Move | None:
        """Extends a set by nodes that save something only together."""
        taken = [] if best is None else list(best.candidates)
        waiting: list[Candidate] = []
        place = 0
        while self._spent < end and self._go_on():
            more, place = self._room.next_of(order, place, 1, [*taken, *waiting])
            if not more:
                break
            together = [*taken, *waiting, *more]
            if self._room.price_of_rest(together) is None:
                continue
            if len(together) == 1 or not self._room.may_save(together):
                waiting += more  # saves nothing yet, according to the sums
                continue
            move = self._try(together)
            if isinstance(move, Move) and self.gain(move) > self.gain(best):
                best = move
                taken += [*waiting, *more]
                waiting = []
            elif isinstance(move, Move) or move.too_expensive:
                waiting += more
        return best


class _Room:
    """Bounds what can be removed together: sums of budgets, and of resources on the other nodes and on a new one."""

    def __init__(self, board: DisruptionBoard) -> None:
        self._board = board
        self._rows = board.world.rows
        largest = NOTHING
        for table in board.world.tables:
            for _, type_ in table.chosen(table.suitable(table.start)):
                largest |= type_.allocatable
        # Free resources count only where at least the smallest pod fits.
        requests = dict.fromkeys(pod.request for candidate in board.of(Reason.UNDERUTILIZED) for pod in candidate.pods)
        self._useful = self._rows.with_room(reduce(and_, requests, next(iter(requests), NOTHING)))
        if board.world.options.refuse_uninitialized:
            self._useful &= self._rows.initialized
        useful = (row for row in members(self._useful) if self._rows.nodes[row].name not in board.gone)
        self._free = total(self._rows.free[row] for row in useful) - total(pod.request for pod in board.moved)
        self._there = self._free + largest
        self._takes: dict[str, Resources] = {}

    def next_of(
        self, order: Sequence[Candidate], place: int, most: int, taken: Sequence[Candidate]
    ) -> tuple[list[Candidate], int]:
        """Up to `most` nodes from `place` on that fit together with `taken`, and the place after them."""
        budgets = RemainingBudgets(self._board, Reason.UNDERUTILIZED)
        left = self._there
        for candidate in taken:
            budgets.take(candidate)
            left -= self._of(candidate)
        fitting: list[Candidate] = []
        while place < len(order) and len(fitting) < most:
            candidate = order[place]
            place += 1
            if self._of(candidate).fits(left) and budgets.take(candidate):
                fitting.append(candidate)
                left -= self._of(candidate)
        return fitting, place

    def may_save(self, taken: Sequence[Candidate]) -> bool:
        """Whether no new node is needed, or one for the rest of the pods may be cheaper."""
        price = self.price_of_rest(taken)
        return price is not None and (price == 0 or price < sum(candidate.price or 0 for candidate in taken))

    def price_of_rest(self, taken: Iterable[Candidate]) -> int | None:
        """The lowest price of one new node for the pods without room; 0: none needed; None: no type is large enough."""
        lacking = total(map(self._of, taken)) - self._free
        needed = {name: amount for name, amount in lacking.items() if amount > 0}
        if not needed:
            return 0
        tables = self._board.world.tables
        cheapest = (table.cheapest_of(table.fitting(needed) & table.suitable(table.start)) for table in tables)
        return min((each[0] for each in cheapest if each is not None), default=None)

    def _of(self, candidate: Candidate) -> Resources:
        """The requests of its pods, and the free resources that are lost with the node."""
        takes = self._takes.get(candidate.node)
        if takes is None:
            row = self._rows.of_name[candidate.node]
            free = self._rows.free[row] if self._useful >> row & 1 else NOTHING
            takes = self._takes[candidate.node] = candidate.request + free
        return takes
