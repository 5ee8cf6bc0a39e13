"""Where do the pods of nodes go that are exchanged for new ones, many at a time (02 §7.4, R20)?

Nodes that are coming up are spoken for, by pods that are owed a place: neither is asked about here, so that one
exchange does not wait for the other. Nor are pods put on nodes that are to be exchanged themselves, if there is any
other way: they would have to move again.
"""

from collections.abc import Iterable

from dovetail.planning.disruption.board import Board, Candidate
from dovetail.planning.disruption.replacing import Refused, simulate
from dovetail.scheduling.problem import NewClaim, Solution


class Renewal:
    """What is exchanged in one pass."""

    def __init__(self, board: Board, candidates: Iterable[Candidate]) -> None:
        self.board = board
        self._coming, self._owed = board.world.coming_up(board.owed)
        self._aging = {each.node for each in candidates}

    def place(self, candidate: Candidate) -> Solution | Refused:
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
