"""The methods of a pass in their order, each under the budgets of its reason (02 §2, §7)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

import msgspec

from dovetail.api.names import Reason
from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import (
    CONSOLIDATING,
    REASONS,
    Candidate,
    DisruptionBoard,
    Method,
    RemainingBudgets,
)
from dovetail.planning.disruption.commands import Command, make_command, saved_by_deleting, with_final_landing
from dovetail.planning.disruption.consolidation import (
    ConsolidationResult,
    GoOn,
    in_order,
    multi,
    single,
    still_possible,
)
from dovetail.planning.disruption.emptiness import without_replacement
from dovetail.planning.disruption.landing import (
    in_waves,
    largest_that_holds,
    no_room_at_once,
    replacement_nodes,
    waves_of_replaced,
)
from dovetail.planning.disruption.replacing import ConsolidationOptions, Move, NotConsolidatable, simulate
from dovetail.scheduling.placement import NewClaim, PodInfo, Solution
from dovetail.scheduling.requirements import NO_REQUIREMENTS
from dovetail.scheduling.resources import NOTHING

# Limits of the sets and single nodes that one pass consolidates.
_SETS: Final = 10
_SINGLES: Final = 50
# After so many misses the room of a pool is used up; the next pass tries again.
_MISSES: Final = 20
# Only so many drifted and expired nodes of a pass are checked for waves: it must not delay the others.
_WITH_WAVES: Final = 20
_NEVER_SEEN: Final = datetime.max.replace(tzinfo=UTC)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a pass.

    `commands` are to be started; if `validated_first`, after a validation (02 §8). `standing`: nodes that could be
    disrupted and are not (R22). `refused`: why the others cannot. `unreplaced`: why nodes are not replaced for a
    reason other than consolidation. `board`: with the commands executed, if the pass continues.
    """

    commands: tuple[Command, ...] = ()
    validated_first: bool = False
    standing: frozenset[str] = frozenset()
    refused: Mapping[str, Sentence] = {}
    unreplaced: Mapping[tuple[str, Reason], Sentence] = {}
    complete: bool = True
    board: DisruptionBoard | None = None


def decide_pass(board: DisruptionBoard, rules: ConsolidationOptions, *, go_on: GoOn = lambda: True) -> Decision:
    """Runs the methods in their order. The first one that produces commands ends the pass.

    Empty nodes are the exception: the pass continues with consolidation, as if they had gone.
    """
    standing: set[str] = set()
    refused: dict[str, Sentence] = {}
    unreplaced: dict[tuple[str, Reason], Sentence] = {}
    complete, validated_first = True, False
    commands: tuple[Command, ...] = ()
    this = _Pass(board, rules, go_on)
    for method, decide in _METHODS:
        decision = decide(this, method)
        standing |= decision.standing
        refused = {**decision.refused, **refused}  # the first reason counts
        if method not in CONSOLIDATING:
            unreplaced |= {(node, REASONS[method]): why for node, why in decision.refused.items()}
        complete &= decision.complete
        if not decision.commands:
            continue
        if commands and not decision.validated_first:
            break  # it would start before them; the next pass finds it again
        commands, validated_first = (*commands, *decision.commands), decision.validated_first
        if method is not Method.EMPTINESS:
            break
        assert decision.board is not None
        this = _Pass(decision.board.without_decided(), rules, go_on)
    taken = {node for command in commands for node in command.nodes}
    started = taken if not validated_first else set[str]()
    return Decision(
        commands=commands,
        validated_first=validated_first,
        standing=frozenset(standing - started),
        refused={node: why for node, why in refused.items() if node not in standing | taken},
        unreplaced={key: why for key, why in unreplaced.items() if key[0] not in taken},
        complete=complete,
    )


class _Pass:
    """The arguments of the methods. `alone`, the result for each single node, is computed once."""

    def __init__(self, board: DisruptionBoard, rules: ConsolidationOptions, go_on: GoOn) -> None:
        self.board = board
        self.rules = rules
        self.go_on = go_on

    @cached_property
    def alone(self) -> ConsolidationResult:
        return single(self.board, self.rules, self.go_on)


def _emptiness(this: _Pass, method: Method) -> Decision:
    """One command for all empty nodes that the budgets allow (02 §7.2), and one for each node whose pods cost nothing
    to move (R51)."""
    result = without_replacement(this.board, in_order(this.board.of(REASONS[method])), this.go_on)
    bare = [candidate for candidate in result.taken if candidate.bare]
    groups = [*([bare] if bare else []), *([candidate] for candidate in result.taken if not candidate.bare)]
    return Decision(
        commands=tuple(
            make_command(this.board, method, group, solution=result.landing, savings=saved_by_deleting(group))
            for group in groups
        ),
        validated_first=True,
        standing=frozenset(candidate.node for candidate in (*result.taken, *result.waiting)),
        refused=result.refused,
        complete=result.complete,
        board=result.board,
    )


def _like_for_like(this: _Pass, method: Method) -> Decision:
    """Replaces each node by one from the template, within the budget and the limit of nodes (02 §7.3)."""
    board, reason = this.board, REASONS[method]
    budgets = RemainingBudgets(board, reason)
    order = [candidate for candidate in _longest_first(board.of(reason)) if _is_static(board, candidate)]
    free = {name: pool.free_claims for name, pool in board.pools.items()}
    commands: list[Command] = []
    for candidate in order:
        pool, left = board.pools[candidate.pool], free[candidate.pool]
        if pool.claims > (pool.replicas or 0) or (left is not None and left <= 0):
            continue  # scaling down comes first, and the limit must allow a replacement
        if budgets.take(candidate):
            free[candidate.pool] = None if left is None else left - 1
            template = NewClaim(pool=candidate.pool, pods=(), requirements=NO_REQUIREMENTS, types=(), requests=NOTHING)
            commands.append(make_command(board, method, [candidate], replacements=[template]))
    taken = {node for command in commands for node in command.nodes}
    waiting = frozenset(candidate.node for candidate in order if candidate.node not in taken)
    return Decision(commands=tuple(commands), standing=waiting)


def _replaced(this: _Pass, method: Method) -> Decision:
    """All nodes without pods to place, or else all nodes whose pods have a place; one command each (02 §7.4)."""
    board, reason = this.board, REASONS[method]
    order = _longest_first(candidate for candidate in board.of(reason) if not _is_static(board, candidate))
    budgets = RemainingBudgets(board, reason)
    nodes = frozenset(candidate.node for candidate in order)
    bare = [candidate for candidate in order if candidate.bare and budgets.take(candidate)]
    if bare:
        commands = [make_command(board, method, [candidate], savings=candidate.price) for candidate in bare]
        return Decision(commands=tuple(commands), standing=nodes)
    commands, refused, complete = [], dict[str, Sentence](), True
    exchange = NodeExchange(board, order)
    for candidate in order:
        if not budgets.allow(candidate) or not exchange.board.is_open(candidate):
            continue
        complete = this.go_on()
        if not complete:
            break
        solution = exchange.place(candidate) if this.rules.in_waves else exchange.place_at_once(candidate, this.rules)
        if isinstance(solution, NotConsolidatable):
            refused[candidate.node] = solution.message
        elif budgets.take(candidate):
            before, new = exchange.board, exchange.go(candidate, solution)
            waves = waves_of_replaced(before, this.rules, candidate, new) if len(commands) < _WITH_WAVES else ()
            waves = () if isinstance(waves, PodInfo) else waves
            commands.append(make_command(board, method, [candidate], solution=solution, replacements=new, waves=waves))
    return Decision(
        commands=with_final_landing(commands, exchange.board),
        standing=nodes - refused.keys(),
        refused=refused,
        complete=complete,
    )


class NodeExchange:
    """Places the pods of many nodes that one pass replaces (02 §7.4, R20).

    A node that is still starting accepts only the pods it was created for, so replacements run in parallel. Pods go to
    nodes that are to be replaced themselves only if nothing else is possible, because they would move again.
    """

    def __init__(self, board: DisruptionBoard, candidates: Iterable[Candidate]) -> None:
        self.board = board
        self._coming, self._owed = board.world.coming_up(board.owed)
        self._aging = {candidate.node for candidate in candidates}

    def place(self, candidate: Candidate, *, explain: bool = True) -> Solution | NotConsolidatable:
        """The targets of its pods, in addition to the pods that were placed before."""
        board = self.board
        aging = sorted(self._aging - {candidate.node, *self._coming} - board.gone - board.expecting)
        solution = simulate(board, [candidate], shut=[*self._coming, *aging], owed=self._owed) if aging else None
        if isinstance(solution, Solution):
            return solution
        return simulate(board, [candidate], shut=self._coming, owed=self._owed, explain=explain)

    def place_at_once(self, candidate: Candidate, rules: ConsolidationOptions) -> Solution | NotConsolidatable:
        """The same for a drain without waves. If the pods could take each other's room, they all go to one new node."""
        solution = self.place(candidate)
        if isinstance(solution, NotConsolidatable):
            return solution
        pod = waves_of_replaced(self.board, rules, candidate, self._new_nodes(candidate, solution))
        if not isinstance(pod, PodInfo):
            return solution
        gone = [*self.board.gone, candidate.node]
        together = self.board.world.what_if(candidate.pods, gone, only_new=True)
        return together if together.all_scheduled and len(together.new_claims) == 1 else no_room_at_once(pod)

    @staticmethod
    def _new_nodes(candidate: Candidate, solution: Solution) -> list[NewClaim]:
        return solution.new_for({pod.uid for pod in candidate.pods})

    def go(self, candidate: Candidate, solution: Solution) -> list[NewClaim]:
        """Takes the node, and returns the new nodes it needs."""
        self.board = self.board.after([candidate], solution)
        return self._new_nodes(candidate, solution)


def _longest_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Nodes without pods to place first, then by the age of the reason."""
    return sorted(
        candidates, key=lambda candidate: (not candidate.bare, candidate.since or _NEVER_SEEN, candidate.node)
    )


def _is_static(board: DisruptionBoard, candidate: Candidate) -> bool:
    return board.pools[candidate.pool].replicas is not None


def _several(this: _Pass, method: Method) -> Decision:
    """Sets, then single nodes, that can be consolidated together."""
    board, alone = this.board, this.alone
    commands: list[Command] = []
    while len(commands) < _SETS:
        move = multi(board, this.rules, this.go_on, alone, again=bool(commands))
        move = None if move is None else largest_that_holds(board, this.rules, move)
        if move is None:
            break
        commands.append(_consolidating(board, method, move))
        board = board.after(move.candidates, move.solution, replacement_nodes(board, move.replacements))
        alone = alone.without_decided(board)
    if not commands:
        return Decision(complete=this.go_on())
    return _consolidated(this, commands, board, alone)


def _one(this: _Pass, _: Method) -> Decision:
    return _consolidated(this, [], this.board, this.alone)


def _consolidated(this: _Pass, commands: list[Command], board: DisruptionBoard, rest: ConsolidationResult) -> Decision:
    """Adds single nodes to the commands."""
    most, misses = len(commands) + _SINGLES, Counter[str]()
    unsafe: dict[str, Sentence] = {}
    for alone in rest.moves:
        if len(commands) >= most or not this.go_on():
            break
        pool = alone.candidates[0].pool
        move = still_possible(board, this.rules, alone) if misses[pool] < _MISSES else None
        held = None if move is None else in_waves(board, this.rules, move)
        if isinstance(held, NotConsolidatable):
            unsafe[alone.candidates[0].node] = held.message
        misses[pool] += not isinstance(held, Move)
        if isinstance(held, Move):
            commands.append(_consolidating(board, Method.SINGLE_NODE, held))
            board = board.after(held.candidates, held.solution, replacement_nodes(board, held.replacements))
    singles = this.alone
    could_go = {candidate.node for move in singles.moves for candidate in move.candidates} - unsafe.keys()
    return Decision(
        commands=with_final_landing(commands, board),
        validated_first=True,
        standing=frozenset(could_go.union(*(command.nodes for command in commands))),
        refused=singles.refused | unsafe,
        complete=singles.complete,
    )


def _consolidating(board: DisruptionBoard, method: Method, move: Move) -> Command:
    return make_command(
        board,
        method,
        move.candidates,
        solution=move.solution,
        replacements=move.replacements,
        savings=None if any(candidate.price is None for candidate in move.candidates) else move.savings,
        waves=move.waves,
    )


# In the order of a pass. Graceful expiration works like drift (R20).
_METHODS = (
    (Method.EMPTINESS, _emptiness),
    (Method.STATIC_DRIFT, _like_for_like),
    (Method.DRIFT, _replaced),
    (Method.STATIC_EXPIRATION, _like_for_like),
    (Method.EXPIRATION, _replaced),
    (Method.MULTI_NODE, _several),
    (Method.SINGLE_NODE, _one),
)
