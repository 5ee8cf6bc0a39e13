"""Finds nodes to remove without a replacement: empty ones, and those whose pods cost nothing to move (02 §7.2, R51).

Nodes with pods that cost nothing to move use the budget of Empty. They are removed only if other nodes have room for
these pods.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dovetail.api.names import Reason
from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import Candidate, DisruptionBoard, RemainingBudgets
from dovetail.planning.disruption.replacing import NotConsolidatable, crowded_out, simulate
from dovetail.scheduling.placement import Solution


class EmptinessResult(NamedTuple):
    """`taken` are removed. A budget blocks `waiting`. `refused`: why the others stay. `board`: without `taken`."""

    taken: list[Candidate]
    waiting: list[Candidate]
    refused: dict[str, Sentence]
    board: DisruptionBoard
    complete: bool

    @property
    def landing(self) -> Solution:
        """The targets of the pods."""
        existing: dict[str, tuple[str, ...]] = defaultdict(tuple)
        for uid, node in self.board.landing.items():
            existing[node] += (uid,)
        return Solution(existing=existing)


def without_replacement(
    board: DisruptionBoard, candidates: Sequence[Candidate], go_on: Callable[[], bool] = lambda: True
) -> EmptinessResult:
    """Takes empty nodes first, so that no pod is sent there; then, one by one, those whose pods have a place."""
    budgets = RemainingBudgets(board, Reason.EMPTY)
    taken: list[Candidate] = []
    waiting: list[Candidate] = []
    for candidate in (candidate for candidate in candidates if candidate.bare):
        (taken if budgets.take(candidate) else waiting).append(candidate)
    refused: dict[str, Sentence] = {}
    complete = True
    board = board.after(taken, Solution())
    for candidate in (candidate for candidate in candidates if not candidate.bare):
        if not board.is_open(candidate):
            refused[candidate.node] = Sentence("pods of another node that goes are to run there")
            continue
        complete = go_on()
        if not complete:
            break
        solution = _placed(board, candidate)
        if isinstance(solution, NotConsolidatable):
            refused[candidate.node] = solution.message
        elif budgets.take(candidate):
            taken.append(candidate)
            board = board.after([candidate], solution)
        else:
            waiting.append(candidate)
    return EmptinessResult(taken, waiting, refused, board, complete)


def _placed(board: DisruptionBoard, candidate: Candidate) -> Solution | NotConsolidatable:
    """The targets of its pods on existing nodes."""
    solution = simulate(board, [candidate], most_new=1)
    if isinstance(solution, NotConsolidatable):
        return solution
    if solution.new_for({pod.uid for pod in candidate.pods}):
        return NotConsolidatable(Sentence("its pods would need a new node"))
    return crowded_out(board, solution) or solution
