"""Where do the pods of nodes go that are exchanged for new ones, many at a time (02 §7.4, R20)?

Nodes that are coming up are spoken for, by pods that are owed a place: neither is asked about here, so that one
exchange does not wait for the other. Nor are pods put on nodes that are to be exchanged themselves, if there is any
other way: they would have to move again.
"""

from collections.abc import Iterable

from dovetail.planning.disruption.board import Board, Candidate
from dovetail.planning.disruption.replacing import Refused, wholly
from dovetail.scheduling.problem import NewClaim, Pod, Solution


class Renewal:
    """What is exchanged in one pass."""

    def __init__(self, board: Board, candidates: Iterable[Candidate]) -> None:
        self._world = board.world
        self._coming, self._owed = board.world.coming_up(board.owed)
        self._aging = {each.node for each in candidates}
        self._gone: list[str] = []
        self._moved: list[Pod] = []  # of those that are gone, to nodes that are there
        self._expecting: set[str] = set()  # these nodes

    def expects(self, candidate: Candidate) -> bool:
        """Whether pods have been sent there in this pass: then it goes in another."""
        return candidate.node in self._expecting

    def place(self, candidate: Candidate) -> Solution | Refused:
        """Where its pods go, besides those that have been sent away before."""
        if candidate.unmovable:
            return Refused(candidate.unmovable[0])
        aging = sorted(self._aging - {candidate.node, *self._gone, *self._coming, *self._expecting})
        found = self._placed(candidate, aging) if aging else None
        return found if isinstance(found, Solution) else self._placed(candidate, ())

    def _placed(self, candidate: Candidate, aging: Iterable[str]) -> Solution | Refused:
        without, shut = [*self._gone, candidate.node], [*self._coming, *aging]
        pods = [*self._moved, *candidate.pods]
        found = wholly(self._world.what_if(pods, without, shut=shut, owed=self._owed, explain=not aging))
        if isinstance(found, Solution) and (crowded := self._crowded_out(found)) is not None:
            return Refused(f"{crowded} moves at the same time, and would lose its place")
        return found

    def _crowded_out(self, solution: Solution) -> Pod | None:
        new = {uid for claim in solution.new_claims for uid in claim.pods}
        return next((pod for pod in self._moved if pod.uid in new), None)

    def go(self, candidate: Candidate, solution: Solution) -> list[NewClaim]:
        """It goes, and needs these new nodes."""
        its = {pod.uid: pod for pod in candidate.pods}
        self._gone.append(candidate.node)
        for node, uids in solution.existing.items():
            here = [its[uid] for uid in uids if uid in its]
            self._moved += here
            if here:
                self._expecting.add(node)
        return [claim for claim in solution.new_claims if not its.keys().isdisjoint(claim.pods)]
