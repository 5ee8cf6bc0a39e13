"""Checks that no node keeps the taint of a command that is over (R23), or of a candidate that is none (R22)."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from dovetail.api import names
from dovetail.api.names import ConditionType, TaintEffect
from dovetail.ports import NODES
from dovetail.sim.actors.wire import Raw, condition_status, deleting
from dovetail.sim.checkers.budgets import is_tainted
from dovetail.sim.checkers.checked_cluster import CheckedCluster
from dovetail.sim.checkers.records import record_on
from dovetail.sim.server.store import Change

RULE: Final = "marks"
# The program looks for stray taints after five seconds, runs a pass at most a minute after a change, and limits how
# fast it writes taints.
_SETTLED: Final = timedelta(minutes=2)


class TaintChecker:
    """Checks the taints that the program has set."""

    def __init__(self, scene: CheckedCluster, could_go: Callable[[Raw, datetime], bool]) -> None:
        self._scene = scene
        self._could_go = could_go  # whether the node may have a graceful reason at the instant
        self._tainted: dict[str, datetime] = {}  # nodes that we tainted as disrupted, and since when
        self._marked: dict[str, datetime] = {}  # nodes that we tainted as candidates, and since when
        self._released: dict[str, datetime] = {}  # claims whose record is gone, and since when

    def node_changed(self, change: Change) -> None:
        node, name = change.new.body, change.new.body["metadata"]["name"]
        for marked_at, key, effect in (
            (self._tainted, names.DISRUPTED_TAINT, TaintEffect.NO_SCHEDULE),
            (self._marked, names.CANDIDATE_TAINT, TaintEffect.PREFER_NO_SCHEDULE),
        ):
            had = change.old is not None and is_tainted(change.old.body, key, effect)
            if not is_tainted(node, key, effect):
                marked_at.pop(name, None)
            elif not had and self._scene.by_us:
                marked_at[name] = self._scene.now()

    def claim_changed(self, change: Change) -> None:
        """A command that ends removes its taints and conditions before its record."""
        claim, name = change.new.body, change.new.body["metadata"]["name"]
        if change.old is None or record_on(change.old.body) is None or record_on(claim) is not None:
            return
        self._released[name] = self._scene.now()
        if not self._scene.by_us or deleting(claim):
            return
        self._scene.applied[RULE] += 1
        node = self._scene.member_of_claim(claim).node
        if node is not None and not deleting(node) and is_tainted(node) and node["metadata"]["name"] in self._tainted:
            self._scene.report(RULE, node, "is still tainted, and its command is over")
        if condition_status(claim, ConditionType.DISRUPTION_REASON) == "True":
            self._scene.report(RULE, claim, "still says why it is disrupted, and its command is over")

    def ended(self, alive_since: datetime | None, alive_until: datetime) -> None:
        """Check the end of the run. `alive_since`: the last start of the program; None: it was not running."""
        if alive_since is None:
            self._scene.not_applied[RULE] += 1
            return
        self._scene.applied[RULE] += 1
        for node in list(self._scene.bodies(NODES)):
            name = node["metadata"]["name"]
            if name in self._tainted and not deleting(node):
                self._disrupted(node, max(alive_since, self._tainted[name]), alive_until)
            if name in self._marked and not deleting(node):
                self._candidate(node, max(alive_since, self._marked[name]), alive_until)

    def _disrupted(self, node: Raw, since: datetime, until: datetime) -> None:
        claim = self._scene.member_of_node(node).claim
        if claim is not None:
            if deleting(claim) or record_on(claim) is not None:
                return
            since = max(since, self._released.get(claim["metadata"]["name"], since))
        if until - since > _SETTLED:
            self._scene.report(RULE, node, "is tainted as disrupted, stays, and is in no command")

    def _candidate(self, node: Raw, since: datetime, until: datetime) -> None:
        member = self._scene.member_of_node(node)
        if member.claim is None or deleting(member.claim) or record_on(member.claim) is not None:
            return  # it goes for another reason, or is no longer a candidate
        since = max(since, *map(self._scene.touched_at, self._scene.parts(member)))
        if until - since <= _SETTLED:
            return
        if not any(self._could_go(node, at) for at in (until, until - _SETTLED)):
            self._scene.report(RULE, node, "is tainted as a candidate, and no graceful reason can stand for it")
