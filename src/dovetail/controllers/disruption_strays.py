"""Takes the marks of a command off nodes that are in none (02 §2, step 2): whoever put them there does not come back.

An earlier version, another program, or somebody who removed the record of a command by hand may have left them.
"""

import logging
from collections.abc import Iterable
from typing import Final

from dovetail.api import names, objects
from dovetail.controllers.cluster import Cluster
from dovetail.controllers.disrupted_marks import has_reason, is_going, is_tainted, lift_marks
from dovetail.controllers.keyed import Keyed
from dovetail.controllers.placing_state import PlacingState
from dovetail.planning.disruption.records import record_on
from dovetail.runtime.work_queue import Done, Outcome

log = logging.getLogger(__name__)

# Forceful disruptions write their reason a moment before they delete the claim.
AFTER_SECONDS: Final = 5.0


class DisruptionStrays(Keyed[str]):
    """Keys are names of claims."""

    name = "disruption.strays"

    def __init__(self, cluster: Cluster, state: PlacingState) -> None:
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
        if not is_tainted(node):
            return []
        return [name for claim in self._cluster.claims_with[node.spec.provider_id] for name in self._strays(claim)]

    def _is_stray(self, claim: objects.NodeClaim) -> bool:
        if not self._cluster.manages(claim.spec.node_class_ref) or record_on(claim) is not None:
            return False
        marked = names.DISRUPTION_COMMAND in claim.metadata.annotations or has_reason(claim)
        return (marked or any(map(is_tainted, self._cluster.nodes_of(claim)))) and not is_going(self._cluster, claim)

    async def reconcile(self, key: str) -> Outcome:
        claim = self._cluster.claims.current(key)
        if claim is not None and self._is_stray(claim):
            await lift_marks(self.api, self._cluster, claim, self.clock.now())
            self._state.unmark(key)
            log.warning("was marked as disrupted and is in no command: the marks are gone", extra={"NodeClaim": key})
        return Done()
