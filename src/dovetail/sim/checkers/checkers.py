"""Attaches all checkers to a simulated cluster. They check every write and collect violations.

checkers = Checkers(cluster)
...                          # the run
checkers.finish()
assert not checkers.violations
"""

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
    """`except_for`: rules that the run breaks on purpose. `slack_seconds`: the longest time between a decision and its
    request, where requests or plans take time. `types`: the instance types of the cloud."""

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
        # By rule: how often it was checked, and how often not, because its premise did not hold.
        self.applied, self.not_applied = scene.applied, scene.not_applied
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
        self._alive: tuple[datetime | None, datetime | None] = (scene.now(), None)  # start and end of the program
        server.witness = self._asked
        server.registry.store.observers.append(self._observe)

    # -- results -------------------------------------------------------------------------------------------------------

    @property
    def violations(self) -> list[Violation]:
        """The violations of all rules but the excepted ones, in the order of time."""
        return [violation for violation in self._scene.violations if violation.rule not in self._except_for]

    def program_starts(self) -> None:
        """A new process of the program starts."""
        self._alive = (self._scene.now(), None)

    def program_stops(self) -> None:
        if self._alive[1] is None:
            self._alive = (self._alive[0], self._scene.now())

    def finish(self) -> None:
        """Run the checks of the end of a run."""
        since, until = self._alive
        self._marks.ended(since, until or self._scene.now())
        self._rescheduled.ended()

    # -- requests and writes -------------------------------------------------------------------------------------------

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
