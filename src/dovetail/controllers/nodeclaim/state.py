"""Writes the state S1–S6 of each NodeClaim as a condition, for people (R21).

Other writers of conditions set it too. Decisions never read it.
"""

from typing import Final

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import ClaimController
from dovetail.controllers.base.writing import write_status
from dovetail.planning.conditions import Conditions
from dovetail.runtime.work_queue import Done, Outcome

AFTER_SECONDS: Final = 1.0  # so that a claim whose state changes quickly is written once


class StateReporter(ClaimController):
    name = "nodeclaim.state"

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__(cluster, after_seconds=AFTER_SECONDS)
        self.follow(cluster.nodes, cluster.claim_names, after_seconds=AFTER_SECONDS)

    async def reconcile_claim(self, claim: objects.NodeClaim) -> Outcome:
        if claim.status.conditions:
            await write_status(self.api, self.cluster, claim, Conditions(claim, self.clock.now()))
        return Done()
