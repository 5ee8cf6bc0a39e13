"""Checks that a retry buys no replacement while one of a failed try is left (R52).

A leftover is a replacement whose command is over, and whose Node is registered but was never initialized.
"""

from typing import Final

from dovetail.api import names
from dovetail.api.names import ConditionType, Reason, TaintEffect
from dovetail.ports import NODECLAIMS
from dovetail.sim.actors.wire import Raw, annotations_of, condition_status, deleting, name_of
from dovetail.sim.checkers.budgets import is_tainted
from dovetail.sim.checkers.checked_cluster import CheckedCluster, ClaimAndNode
from dovetail.sim.checkers.records import CommandTracker, record_on

RULE: Final = "leftovers"


class LeftoverChecker:
    """Checks a replacement when the program creates it."""

    def __init__(self, scene: CheckedCluster, commands: CommandTracker) -> None:
        self._scene = scene
        self._commands = commands

    def claim_created(self, claim: Raw) -> None:
        """The program has created the claim."""
        id_ = annotations_of(claim).get(names.REPLACEMENT_OF)
        if id_ is None:
            return
        self._scene.applied[RULE] += 1
        pool = ClaimAndNode(claim, None).pool
        present = [
            other
            for other in self._scene.bodies(NODECLAIMS)
            if ClaimAndNode(other, None).pool == pool and not deleting(other)
        ]
        records = [record for other in present if (record := record_on(other)) is not None]
        awaited = {name for record in records for name in record.replacements}
        left = [other for other in present if name_of(other) not in awaited and self._is_leftover(other)]
        for leftover in left:
            if shared := self._claims_of(id_) & self._claims_of(annotations_of(leftover)[names.REPLACEMENT_OF]):
                listed = ", ".join(sorted(shared))
                message = f"is bought to replace {listed} though {name_of(leftover)} of an earlier try stands"
                self._scene.report(RULE, claim, message)
        wanted = [other for other in present if other not in left and self._is_wanted(other)]
        if len(left) > len(wanted):
            listed = ", ".join(sorted(map(name_of, left)))
            message = f"is bought though NodePool {pool} has {len(left)} replacements of earlier tries ({listed})"
            self._scene.report(RULE, claim, f"{message}, and {len(wanted)} to replace")

    def _is_leftover(self, claim: Raw) -> bool:
        """A claim that became a leftover at this very instant does not count."""
        return (
            names.REPLACEMENT_OF in annotations_of(claim)
            and condition_status(claim, ConditionType.REGISTERED) == "True"
            and condition_status(claim, ConditionType.INITIALIZED) != "True"
            and not self._scene.is_news([(NODECLAIMS, name_of(claim), "")])
        )

    def _claims_of(self, command: str) -> set[str]:
        """The claims that the command replaces."""
        tracked = self._commands.begun.get(command)
        return set() if tracked is None else set(tracked.labels)

    def _is_wanted(self, claim: Raw) -> bool:
        """Whether a command replaces the claim, or it has a graceful reason."""
        if record_on(claim) is not None:
            return True
        if any(condition_status(claim, each) == "True" for each in Reason):  # a condition is named as its reason
            return True
        node = self._scene.member_of_claim(claim).node
        return node is not None and is_tainted(node, names.CANDIDATE_TAINT, TaintEffect.PREFER_NO_SCHEDULE)
