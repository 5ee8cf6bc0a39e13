"""Removes what commands have left behind (02 §2, step 2; R52).

Marks on nodes that are in no command: an earlier version, another program, or somebody who removed the record of a
command by hand may have left them. Replacements that never came up: the next attempt would buy others beside them.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, EventReason
from dovetail.api.objects import is_true
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController, seconds_until
from dovetail.controllers.base.writing import about_claim, delete_claim, warn
from dovetail.controllers.disruption.commands import DisruptionCommands
from dovetail.controllers.disruption.disrupted_marks import is_going, lift_marks
from dovetail.planning.disruption.records import record_on
from dovetail.planning.timings import Timings
from dovetail.rules.states import has_disrupted_taint
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.scheduling import SchedulingState

log = logging.getLogger(__name__)

# Forceful disruptions write their reason a moment before they delete the claim.
AFTER_SECONDS: Final = 5.0


class DisruptionStrays(KeyedController[str]):
    """Keys are names of claims."""

    name = "disruption.strays"

    def __init__(self, cluster: WatchedCluster, state: SchedulingState) -> None:
        super().__init__()
        self._cluster = cluster
        self._state = state
        self.follow(cluster.claims, self._strays, after_seconds=AFTER_SECONDS)
        self.follow(cluster.nodes, self._claims_of, after_seconds=AFTER_SECONDS)

    def keys(self) -> Iterable[str]:
        return [name for claim in self._cluster.claims.values() for name in self._strays(claim)]

    def _strays(self, claim: objects.NodeClaim) -> list[str]:
        return [claim.metadata.name] if self._is_stray(claim) else []

    def _claims_of(self, node: objects.Node) -> list[str]:
        if not has_disrupted_taint(node):
            return []
        return [name for claim in self._cluster.claims_of(node) for name in self._strays(claim)]

    def _is_stray(self, claim: objects.NodeClaim) -> bool:
        if not self._cluster.manages(claim.spec.node_class_ref) or record_on(claim) is not None:
            return False
        marked = names.DISRUPTION_COMMAND in claim.metadata.annotations or is_true(
            claim, ConditionType.DISRUPTION_REASON
        )
        marked = marked or any(map(has_disrupted_taint, self._cluster.nodes_of(claim)))
        return marked and not is_going(self._cluster, claim)

    async def reconcile(self, key: str) -> Outcome:
        claim = self._cluster.claims.current(key)
        if claim is not None and self._is_stray(claim):
            await lift_marks(self.api, self._cluster, claim, self.clock.now())
            self._state.unmark(key)
            log.warning("was marked as disrupted and is in no command: the marks are gone", extra={"NodeClaim": key})
        return Done()


class FailedReplacements(KeyedController[str]):
    """Keys are names of claims.

    A replacement that is registered when its command is given up may still come up; then it is ordinary capacity (R23).
    If it has not come up when the next attempt is due, it is removed. While pods run on it, it stays.
    """

    name = "disruption.failed_replacements"

    def __init__(self, cluster: WatchedCluster, commands: DisruptionCommands, timings: Timings) -> None:
        super().__init__()
        self._cluster = cluster
        self._commands = commands
        self._given_up_after = timedelta(seconds=timings.replacement_seconds)
        self.follow(cluster.claims, self._concerned, after_seconds=AFTER_SECONDS)
        self.follow(cluster.pods, lambda pod: self._on(pod.node_name), after_seconds=AFTER_SECONDS)

    def keys(self) -> Iterable[str]:
        return [
            claim.metadata.name
            for claim in self._cluster.claims.values()
            if names.REPLACEMENT_OF in claim.metadata.annotations
        ]

    def _concerned(self, claim: objects.NodeClaim) -> list[str]:
        """It may be one itself; and when a record is removed, its replacements are nobody's any more."""
        record = record_on(claim)
        itself = [claim.metadata.name] if names.REPLACEMENT_OF in claim.metadata.annotations else []
        return [*itself, *(() if record is None else record.replacements)]

    def _on(self, node: str) -> list[str]:
        kept = self._cluster.nodes.get(("", node)) if node else None
        claims = () if kept is None else self._cluster.claims_of(kept.value)
        return [claim.metadata.name for claim in claims if self._commands.is_failed_replacement(claim)]

    async def reconcile(self, key: str) -> Outcome:
        claim = self._cluster.claims.current(key)
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
        """When it has had the time that a replacement has, and its pool may be tried again."""
        pool = claim.metadata.labels.get(names.NODEPOOL_LABEL, "")
        created_at = min(claim.metadata.creation_timestamp or now, now)  # a dump may hold any instant
        return max(created_at + self._given_up_after, self._commands.held_back(pool, now) or now)
