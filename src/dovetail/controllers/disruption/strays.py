"""Removes what commands have left behind (02 §2, step 2; R52).

`DisruptionStrays` removes marks from nodes that are in no command. An earlier version, another program, or somebody who
removed a record by hand may have left them. `FailedReplacements` deletes replacements that were never initialized.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from dovetail.api import names, objects
from dovetail.api.names import EventReason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController, seconds_until
from dovetail.controllers.base.writing import about_claim, delete_claim, warn
from dovetail.controllers.disruption.commands import DisruptionCommands
from dovetail.controllers.disruption.disrupted_marks import is_going, is_marked, lift_marks
from dovetail.planning.disruption.execution import BY_DOVETAIL, Execution
from dovetail.planning.disruption.records import record_on
from dovetail.planning.timings import Timings
from dovetail.rules.states import has_disrupted_taint
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.scheduling import SchedulingState

log = logging.getLogger(__name__)

# Forceful disruptions write their reason a moment before they delete the claim.
AFTER_SECONDS: Final = 5.0


class DisruptionStrays(KeyedController[str]):
    """The controller of marks that belong to no command. Keys are names of claims."""

    name = "disruption.strays"

    def __init__(self, cluster: WatchedCluster, state: SchedulingState, execution: Execution = BY_DOVETAIL) -> None:
        super().__init__()
        self._cluster = cluster
        self._state = state
        self._execution = execution
        self.own(cluster.claims, self._strays, after_seconds=AFTER_SECONDS)
        self.follow(cluster.nodes, self._claims_of, after_seconds=AFTER_SECONDS)
        if execution.drops_commands:
            self.follow(cluster.pools, self._claims_in, after_seconds=AFTER_SECONDS)

    def _claims_in(self, pool: objects.NodePool) -> list[str]:
        return [name for claim in self._cluster.claims_in[pool.metadata.name] for name in self._strays(claim)]

    def _strays(self, claim: objects.NodeClaim) -> list[str]:
        return [claim.metadata.name] if self._is_stray(claim) else []

    def _claims_of(self, node: objects.Node) -> list[str]:
        if not has_disrupted_taint(node, self._execution.disrupted):
            return []
        return [name for claim in self._cluster.claims_of(node) for name in self._strays(claim)]

    def _is_stray(self, claim: objects.NodeClaim) -> bool:
        if self._cluster.manages_claim(claim):
            if record_on(claim) is not None:
                return False
        elif not self._execution.drops_commands:
            return False
        recorded = names.DISRUPTION_COMMAND in claim.metadata.annotations
        marked = recorded or is_marked(self._cluster, claim, self._execution)
        return marked and not is_going(self._cluster, claim)

    async def reconcile(self, key: str) -> Outcome:
        claim = self._cluster.claims.get_consistent(key)
        if claim is not None and self._is_stray(claim):
            self._state.unmark(key)
            await lift_marks(self.api, self._cluster, claim, self.clock.now(), self._execution)
            log.warning("removed disruption marks of a NodeClaim that is in no command", extra={"NodeClaim": key})
        return Done()


class FailedReplacements(KeyedController[str]):
    """The controller of replacements that never became ready. Keys are names of claims.

    A registered replacement of a failed command may still start, and is then ordinary capacity (R23).
    If it has not started when the next attempt is due, it is deleted, unless pods run on it.
    """

    name = "disruption.failed_replacements"

    def __init__(self, cluster: WatchedCluster, commands: DisruptionCommands, timings: Timings) -> None:
        super().__init__()
        self._cluster = cluster
        self._commands = commands
        self._given_up_after = timedelta(seconds=timings.replacement_seconds)
        self.own(cluster.claims, self._replacements, after_seconds=AFTER_SECONDS)
        self.follow(cluster.pods, lambda pod: self._on(pod.node_name), after_seconds=AFTER_SECONDS)

    def _replacements(self, claim: objects.NodeClaim) -> list[str]:
        """The claim itself, and the replacements in its record, which may fail when the record is removed."""
        record = record_on(claim)
        itself = [claim.metadata.name] if names.REPLACEMENT_OF in claim.metadata.annotations else []
        return [*itself, *(() if record is None else record.replacements)]

    def _on(self, node: str) -> list[str]:
        node_object = self._cluster.nodes.value(node)
        claims = () if node_object is None else self._cluster.claims_of(node_object)
        return [claim.metadata.name for claim in claims if self._commands.is_failed_replacement(claim)]

    async def reconcile(self, key: str) -> Outcome:
        claim = self._cluster.claims.get_consistent(key)
        if claim is None or not self._commands.is_failed_replacement(claim):
            return Done()
        now = self.clock.now()
        due = self._due(claim, now)
        if due > now:
            return Done(seconds_until(due, now))
        nodes = self._cluster.node_names(claim)
        if not any(pod.reschedulable for node in nodes for pod in self._cluster.pods_on[node]):
            await delete_claim(self.api, self._cluster, claim)
            note = "It was to replace a node and was never initialized; it is removed before another one is tried"
            warn(self.recorder, about_claim(claim), EventReason.REPLACEMENT_FAILED, note)
            log.warning("removed a replacement that was never initialized", extra={"NodeClaim": key})
        return Done()

    def _due(self, claim: objects.NodeClaim, now: datetime) -> datetime:
        """When the time for a replacement is over, and the back-off of its pool has ended."""
        pool = claim.metadata.labels.get(names.NODEPOOL_LABEL, "")
        created_at = min(claim.metadata.creation_timestamp or now, now)  # a dump may hold any instant
        return max(created_at + self._given_up_after, self._commands.backoff_until(pool, now) or now)
