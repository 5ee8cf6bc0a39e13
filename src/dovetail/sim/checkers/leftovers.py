"""Does no retry buy what a failed try has left standing (R52)? So nodes are at most those wanted and those in flight.

A leftover is a replacement whose command is over: its Node is registered, and was never initialized.
"""

from typing import Final

from dovetail.api import names
from dovetail.api.names import ConditionType, Reason, TaintEffect
from dovetail.ports import NODECLAIMS
from dovetail.sim.actors.wire import Raw, annotations_of, condition_status, deleting
from dovetail.sim.checkers.budgets import is_tainted
from dovetail.sim.checkers.checked_cluster import CheckedCluster, ClaimAndNode
from dovetail.sim.checkers.records import CommandTracker, record_on

RULE: Final = "leftovers"


class LeftoverChecker:
    """Looked at when the program creates a replacement."""

    def __init__(self, scene: CheckedCluster, commands: CommandTracker) -> None:
        self._scene = scene
        self._commands = commands

    def claim_created(self, claim: Raw) -> None:
        """By the program."""
        id_ = annotations_of(claim).get(names.REPLACEMENT_OF)
        if id_ is None:
            return
        self._scene.applied[RULE] += 1
        pool = ClaimAndNode(claim, None).pool
        there = [each for each in self._scene.claims() if ClaimAndNode(each, None).pool == pool and not deleting(each)]
        records = [record for each in there if (record := record_on(each)) is not None]
        awaited = {name for record in records for name in record.replacements}
        left = [each for each in there if _name(each) not in awaited and self._is_leftover(each)]
        object_ = f"NodeClaim/{_name(claim)}"
        for each in left:
            if shared := self._claims_of(id_) & self._claims_of(annotations_of(each)[names.REPLACEMENT_OF]):
                message = (
                    f"is bought to replace {', '.join(sorted(shared))} though {_name(each)} of an earlier try stands"
                )
                self._scene.report(RULE, object_, message)
        wanted = [each for each in there if each not in left and self._is_wanted(each)]
        if len(left) > len(wanted):
            listed = ", ".join(sorted(map(_name, left)))
            message = f"is bought though NodePool {pool} has {len(left)} replacements of earlier tries ({listed})"
            self._scene.report(RULE, object_, f"{message}, and {len(wanted)} to replace")

    def _is_leftover(self, claim: Raw) -> bool:
        """What became one only now, nobody could have known."""
        return (
            names.REPLACEMENT_OF in annotations_of(claim)
            and condition_status(claim, ConditionType.REGISTERED) == "True"
            and condition_status(claim, ConditionType.INITIALIZED) != "True"
            and not self._scene.is_news([(NODECLAIMS, _name(claim), "")])
        )

    def _claims_of(self, command: str) -> set[str]:
        """Those that the command is or was to replace."""
        known = self._commands.begun.get(command)
        return set() if known is None else set(known.labels)

    def _is_wanted(self, claim: Raw) -> bool:
        """Whether a command replaces it, or some graceful reason for that stands."""
        if record_on(claim) is not None:
            return True
        if any(condition_status(claim, each) == "True" for each in Reason):  # a condition is named as its reason
            return True
        node = self._scene.member_of_claim(claim).node
        return node is not None and is_tainted(node, names.CANDIDATE_TAINT, TaintEffect.PREFER_NO_SCHEDULE)


def _name(claim: Raw) -> str:
    return str(claim["metadata"]["name"])
