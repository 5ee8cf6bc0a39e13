"""Tells Karpenter that a node which somebody asks to have replaced has drifted, by a hash of our own (10 §I.3).

Karpenter then keeps the condition Drifted, on which the engine acts. Its own decisions are held off.
"""

import logging

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, EventReason
from dovetail.api.objects import is_true
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import ClaimController
from dovetail.controllers.base.writing import about_claim, publish, write_metadata
from dovetail.model.beside import asked_roll, stamp_at
from dovetail.model.node_records import claim_record
from dovetail.observe.beside_metrics import BesideMetrics
from dovetail.planning.rolling import has_begun
from dovetail.runtime.work_queue import Done, Outcome

log = logging.getLogger(__name__)


class RollStamps(ClaimController):
    name = "beside.rolls"

    def __init__(self, cluster: WatchedCluster, metrics: BesideMetrics) -> None:
        super().__init__(cluster)
        self._metrics = metrics

    async def reconcile_claim(self, claim: objects.NodeClaim) -> Outcome:
        annotations = claim.metadata.annotations
        roll, record = asked_roll(annotations.get(names.ROLLED)), claim_record(claim)
        if roll is None or not record.hashed or record.stamped:
            return Done()
        if has_begun(claim) or not is_true(claim, ConditionType.INITIALIZED):
            return Done()
        stamp = stamp_at(roll.at)
        written = {names.NODEPOOL_HASH: stamp, names.HASH_BEFORE: annotations[names.NODEPOOL_HASH]}
        await write_metadata(self.api, self.cluster, claim, {"annotations": written})
        self._metrics.stamped.labels(roll.why).inc()
        about = about_claim(claim)
        note = "marked as drifted for Karpenter, because somebody asked for its replacement with `dovetail roll`"
        publish(self.recorder, about, EventReason.STAMPED, note, about.uid, stamp)
        log.info("stamped nodeclaim", extra={"NodeClaim": claim.metadata.name, "why": roll.why.value})
        return Done()
