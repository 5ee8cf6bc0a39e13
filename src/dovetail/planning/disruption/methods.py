"""What does a pass decide: the methods in their order, each under the budgets of its reason (02 §2, §7)?"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

import msgspec

from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import REASONS, Candidate, DisruptionBoard, Method, RemainingBudgets
from dovetail.planning.disruption.commands import Command, make_command, saved_by_deleting, side_by_side
from dovetail.planning.disruption.consolidation import ConsolidationResult, GoOn, besides, in_order, multi, single
from dovetail.planning.disruption.emptiness import without_replacement
from dovetail.planning.disruption.replacing import ConsolidationOptions, Move, NotConsolidatable, simulate
from dovetail.scheduling.placement import NewClaim, Solution
from dovetail.scheduling.requirements import NO_REQUIREMENTS
from dovetail.scheduling.resources import NOTHING

# So many sets, and so many single nodes besides, are consolidated side by side.
_SETS: Final = 10
_SINGLES: Final = 50
# So many of a pool that no longer fit besides the others mean that its room is used up; the next pass looks again.
_MISSES: Final = 20
_NEVER_SEEN: Final = datetime.max.replace(tzinfo=UTC)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass has found.

    `commands` are to be started, those of `validated_first` only after a while and if they are still right (02 §8).
    `standing`: nodes that could go, and do not go now (R22). `refused`: of the others, why they cannot.
    `board`: as it is with the commands, if others may be decided besides.
    """

    commands: tuple[Command, ...] = ()
    validated_first: bool = False
    standing: frozenset[str] = frozenset()
    refused: Mapping[str, Sentence] = {}
    complete: bool = True
    board: DisruptionBoard | None = None


def decide_pass(
    board: DisruptionBoard,
    rules: ConsolidationOptions,
    *,
    skip: Callable[[Method], bool] = lambda _: False,
    go_on: GoOn = lambda: True,
) -> Decision:
    """The first method that has something to do decides. `skip`: methods to leave out, for tests of the others.

    Empty nodes do not keep the others waiting: consolidation is decided besides, as if they had gone.
    """
    standing: set[str] = set()
    refused: dict[str, Sentence] = {}
    complete, validated_first = True, False
    commands: tuple[Command, ...] = ()
    this = _Pass(board, rules, go_on)
    for method, decide in _METHODS:
        if skip(method):
            continue
        found = decide(this, method)
        standing |= found.standing
        refused |= found.refused
        complete &= found.complete
        if not found.commands:
            continue
        if commands and not found.validated_first:
            break  # it would overtake them: the next pass finds it again
        commands, validated_first = (*commands, *found.commands), found.validated_first
        if method is not Method.EMPTINESS:
            break
        assert found.board is not None
        this = _Pass(found.board.with_open_ones(), rules, go_on)
    taken = {node for command in commands for node in command.nodes}
    started = taken if not validated_first else set[str]()
    return Decision(
        commands=commands,
        validated_first=validated_first,
        standing=frozenset(standing - started),
        refused={node: why for node, why in refused.items() if node not in standing | taken},
        complete=complete,
    )


class _Pass:
    """What the methods share: `alone`, what can be said of each node by itself, is worked out once."""

    def __init__(self, board: DisruptionBoard, rules: ConsolidationOptions, go_on: GoOn) -> None:
        self.board = board
        self.rules = rules
        self.go_on = go_on

    @cached_property
    def alone(self) -> ConsolidationResult:
        return single(self.board, self.rules, self.go_on)


def _emptiness(this: _Pass, method: Method) -> Decision:
    """All empty nodes that the budgets allow, in one command (02 §7.2), and a command for each that is left by pods
    that cost nothing to move (R51)."""
    found = without_replacement(this.board, in_order(this.board.of(REASONS[method])), this.go_on)
    bare = [each for each in found.taken if each.bare]
    groups = [*([bare] if bare else []), *([each] for each in found.taken if not each.bare)]
    return Decision(
        commands=tuple(
            make_command(this.board, method, group, solution=found.landing, savings=saved_by_deleting(group))
            for group in groups
        ),
        validated_first=True,
        standing=frozenset(each.node for each in (*found.taken, *found.waiting)),
        refused=found.refused,
        complete=found.complete,
        board=found.board,
    )


def _like_for_like(this: _Pass, method: Method) -> Decision:
    """One new node from the template for each that goes, as far as budget and the limit of nodes allow (02 §7.3)."""
    board, reason = this.board, REASONS[method]
    budgets = RemainingBudgets(board, reason)
    order = [each for each in _longest_first(board.of(reason)) if _is_static(board, each)]
    free = {name: pool.free_claims for name, pool in board.pools.items()}
    commands: list[Command] = []
    for each in order:
        pool, left = board.pools[each.pool], free[each.pool]
        if pool.claims > (pool.replicas or 0) or (left is not None and left <= 0):
            continue  # scaling down comes first; and a replacement must be allowed
        if budgets.take(each):
            free[each.pool] = None if left is None else left - 1
            template = NewClaim(pool=each.pool, pods=(), requirements=NO_REQUIREMENTS, types=(), requests=NOTHING)
            commands.append(make_command(board, method, [each], replacements=[template]))
    taken = {node for command in commands for node in command.nodes}
    waiting = frozenset(each.node for each in order if each.node not in taken)
    return Decision(commands=tuple(commands), standing=waiting)


def _replaced(this: _Pass, method: Method) -> Decision:
    """All that need no place for their pods, or else all whose pods have one; a command for each (02 §7.4)."""
    board, reason = this.board, REASONS[method]
    order = _longest_first(each for each in board.of(reason) if not _is_static(board, each))
    budgets = RemainingBudgets(board, reason)
    nodes = frozenset(each.node for each in order)
    bare = [each for each in order if each.bare and budgets.take(each)]
    if bare:
        commands = [make_command(board, method, [each], savings=each.price) for each in bare]
        return Decision(commands=tuple(commands), standing=nodes)
    commands, refused, complete = [], dict[str, Sentence](), True
    exchange = _NodeExchange(board, order)
    for each in order:
        if not budgets.allow(each) or not exchange.board.is_open(each):
            continue
        complete = this.go_on()
        if not complete:
            break
        solution = exchange.place(each)
        if isinstance(solution, NotConsolidatable):
            refused[each.node] = solution.message
        elif budgets.take(each):
            new = exchange.go(each, solution)
            commands.append(make_command(board, method, [each], solution=solution, replacements=new))
    return Decision(
        commands=side_by_side(commands, exchange.board),
        standing=nodes - refused.keys(),
        refused=refused,
        complete=complete,
    )


class _NodeExchange:
    """Where the pods of nodes go that are exchanged for new ones, many in one pass (02 §7.4, R20).

    Nodes that are starting accept only the pods that they were created for, so exchanges do not wait for each other.
    Pods go to nodes that are to be exchanged themselves only if nothing else is possible: they would move again.
    """

    def __init__(self, board: DisruptionBoard, candidates: Iterable[Candidate]) -> None:
        self.board = board
        self._coming, self._owed = board.world.coming_up(board.owed)
        self._aging = {each.node for each in candidates}

    def place(self, candidate: Candidate) -> Solution | NotConsolidatable:
        """Where its pods go, besides those that have been sent away before."""
        board = self.board
        aging = sorted(self._aging - {candidate.node, *self._coming} - board.gone - board.expecting)
        found = simulate(board, [candidate], shut=[*self._coming, *aging], owed=self._owed) if aging else None
        if isinstance(found, Solution):
            return found
        return simulate(board, [candidate], shut=self._coming, owed=self._owed, explain=True)

    def go(self, candidate: Candidate, solution: Solution) -> list[NewClaim]:
        """It goes, and needs these new nodes."""
        self.board = self.board.after([candidate], solution)
        return solution.new_for({pod.uid for pod in candidate.pods})


def _longest_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Without pods that need a place first, then those that have the reason longest."""
    return sorted(candidates, key=lambda each: (not each.bare, each.since or _NEVER_SEEN, each.node))


def _is_static(board: DisruptionBoard, candidate: Candidate) -> bool:
    return board.pools[candidate.pool].replicas is not None


def _several(this: _Pass, method: Method) -> Decision:
    """Sets, and then single nodes, that can go side by side; that there is none is only sure if time was enough."""
    board, alone = this.board, this.alone
    commands: list[Command] = []
    while len(commands) < _SETS:
        move = multi(board, this.rules, this.go_on, alone, again=bool(commands))
        if move is None:
            break
        commands.append(_consolidating(board, method, move))
        board = board.after(move.candidates, move.solution)
        alone = alone.besides(board)
    if not commands:
        return Decision(complete=this.go_on())
    return _consolidated(this, commands, board, alone)


def _one(this: _Pass, _: Method) -> Decision:
    return _consolidated(this, [], this.board, this.alone)


def _consolidated(this: _Pass, commands: list[Command], board: DisruptionBoard, rest: ConsolidationResult) -> Decision:
    """These, and single nodes besides."""
    most, misses = len(commands) + _SINGLES, Counter[str]()
    for alone in rest.moves:
        if len(commands) >= most or not this.go_on():
            break
        pool = alone.candidates[0].pool
        move = besides(board, this.rules, alone) if misses[pool] < _MISSES else None
        misses[pool] += move is None
        if move is not None:
            commands.append(_consolidating(board, Method.SINGLE_NODE, move))
            board = board.after(move.candidates, move.solution)
    found = this.alone
    could_go = {each.node for move in found.moves for each in move.candidates}
    return Decision(
        commands=side_by_side(commands, board),
        validated_first=True,
        standing=frozenset(could_go.union(*(command.nodes for command in commands))),
        refused=found.refused,
        complete=found.complete,
    )


def _consolidating(board: DisruptionBoard, method: Method, move: Move) -> Command:
    return make_command(
        board,
        method,
        move.candidates,
        solution=move.solution,
        replacements=move.replacements,
        savings=None if any(each.price is None for each in move.candidates) else move.savings,
    )


# In the order in which they decide. Graceful expiry works as drift does (R20).
_METHODS = (
    (Method.EMPTINESS, _emptiness),
    (Method.STATIC_DRIFT, _like_for_like),
    (Method.DRIFT, _replaced),
    (Method.STATIC_EXPIRATION, _like_for_like),
    (Method.EXPIRATION, _replaced),
    (Method.MULTI_NODE, _several),
    (Method.SINGLE_NODE, _one),
)
