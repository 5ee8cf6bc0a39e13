"""Shows each claim's state S1–S6 as a condition, where nobody else has just written it (R21).

For people only: decisions derive the state anew. It waits a moment, so that a claim on its way is not written twice.
"""

from collections.abc import Iterable
from typing import Final

from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.base.writing import write_status
from dovetail.planning.conditions import Conditions
from dovetail.runtime.work_queue import Done, Outcome

AFTER_SECONDS: Final = 1.0


class StateReporter(KeyedController[str]):
    """Keys are names of claims."""

    name = "nodeclaim.state"

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.follow(cluster.claims, lambda claim: [claim.metadata.name], after_seconds=AFTER_SECONDS)
        self.follow(cluster.nodes, cluster.claim_names, after_seconds=AFTER_SECONDS)

    def keys(self) -> Iterable[str]:
        return [claim.metadata.name for claim in self._cluster.claims.values()]

    async def reconcile(self, key: str) -> Outcome:
        claim = self._cluster.claims.current(key)
        if claim is not None and self._cluster.manages(claim.spec.node_class_ref) and claim.status.conditions:
            await write_status(self.api, self._cluster, claim, Conditions(claim, self.clock.now()))
        return Done()
