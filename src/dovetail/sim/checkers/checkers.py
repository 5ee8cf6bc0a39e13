"""All checkers of a run: attached to a simulated cluster, they look at every write and collect what was broken.

checkers = Checkers(cluster)
...                          # the run
checkers.finish()
assert not checkers.violations
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from dovetail.api import names
from dovetail.model.instance_types import InstanceType
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PODS, EventType, Resource
from dovetail.providers.catalogue import built_in
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.checkers import (
    budgets,
    evictions,
    explanations,
    leftovers,
    marks,
    protected_pods,
    replacements,
    rescheduling,
)
from dovetail.sim.checkers.checked_cluster import CheckedCluster, Violation, begins_to_go
from dovetail.sim.checkers.records import CommandTracker
from dovetail.sim.server.api_server import PendingRequest
from dovetail.sim.server.store import Change

RULES: Final = (
    protected_pods.RULE,
    budgets.RULE,
    replacements.FIRST,
    replacements.CHEAPER,
    leftovers.RULE,
    rescheduling.RULE,
    explanations.RULE,
    marks.RULE,
    evictions.RULE,
)


class Checkers:
    """`except_for`: rules whose premise a run breaks on purpose. `slack_seconds`: how long a decision of the program
    may take to arrive, as where requests or plans take time. `types`: what the cloud sells."""

    def __init__(
        self,
        cluster: SimCluster,
        *,
        except_for: Sequence[str] = (),
        slack_seconds: float = 0.0,
        reading: str = budgets.BY_REASON,
        types: Sequence[InstanceType] | None = None,
    ) -> None:
        assert set(except_for) <= set(RULES), f"{except_for}: rules are {RULES}"
        server = cluster.server
        assert server.witness is None, "it has checkers already"
        scene = self._scene = CheckedCluster(server.registry.store, cluster.clock.now, timedelta(seconds=slack_seconds))
        self._except_for = frozenset(except_for)
        self._commands = CommandTracker(scene)
        self._protected = protected_pods.ProtectionChecker(scene)
        self._budgets = budgets.BudgetChecker(scene, reading)
        self._replacing = replacements.ReplacementChecker(scene, self._commands, built_in() if types is None else types)
        self._leftovers = leftovers.LeftoverChecker(scene, self._commands)
        self._explained = explanations.ExplainChecker(scene, reading)
        self._marks = marks.TaintChecker(scene, self._explained.could_go)
        self._evicted = evictions.EvictionChecker(scene)
        self._rescheduled = rescheduling.ReschedulingChecker(scene, self._commands, lambda: server.faults_met)
        self._alive: tuple[datetime | None, datetime | None] = (scene.now(), None)  # since when, and until when
        server.witness = self._asked
        server.registry.store.observers.append(self._observe)

    # -- what became of it ---------------------------------------------------------------------------------------------

    @property
    def violations(self) -> list[Violation]:
        """Of the rules that the run is held to, in the order of time."""
        return [each for each in self._scene.violations if each.rule not in self._except_for]

    @property
    def applied(self) -> Counter[str]:
        """How often each rule had something to look at."""
        return self._scene.applied

    @property
    def not_applied(self) -> Counter[str]:
        """How often each rule could not tell, because its premise did not hold."""
        return self._scene.not_applied

    def program_starts(self) -> None:
        """Another process: what it is to clean up, it does from now on."""
        self._alive = (self._scene.now(), None)

    def program_stops(self) -> None:
        if self._alive[1] is None:
            self._alive = (self._alive[0], self._scene.now())

    def finish(self) -> None:
        """The run is over: look at what is left behind."""
        since, until = self._alive
        self._marks.ended(since, until or self._scene.now())
        self._rescheduled.ended()

    # -- what happens --------------------------------------------------------------------------------------------------

    def _asked(self, asked: PendingRequest | None) -> None:
        self._scene.asked = asked
        if asked is not None and asked.request.client == names.COMPONENT:
            self._explained.asked(asked.request)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        scene, plural = self._scene, resource.plural
        scene.observe(resource, change)
        self._rescheduled.changed(plural, change)
        if plural == PODS.plural:
            self._protected.pod_changed(change)
            if scene.by_us and begins_to_go(change):
                self._explained.goes()
        elif plural == NODES.plural:
            self._marks.node_changed(change)
            self._evicted.node_changed(change)
        elif plural == NODEPOOLS.plural:
            self._budgets.pool_changed(change)
        elif plural == NODECLAIMS.plural:
            self._claim_changed(change)

    def _claim_changed(self, change: Change) -> None:
        claim = change.new.body
        begun = self._commands.claim_changed(change)
        if begun is not None:
            self._budgets.begun(claim, begun)
            self._explained.begun(claim, begun)
        self._marks.claim_changed(change)
        if change.type is EventType.ADDED and self._scene.by_us:
            self._leftovers.claim_created(claim)
        if change.type is EventType.DELETED:
            self._budgets.claim_gone(claim)
        if self._scene.by_us and begins_to_go(change):
            assert change.old is not None
            self._explained.goes()
            self._replacing.claim_deleted(change.old.body)
