"""Counts the nodes that Karpenter had taken when one of their pods was not to be disrupted (10 §I.7).

Karpenter does not look at a hold again once its command has begun. Guard cannot prevent that, but whoever is affected
shall know.
"""

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from dovetail.api import objects
from dovetail.api.names import ConditionType, EventReason, Reason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController, own_name, seconds_until
from dovetail.controllers.base.writing import about_pod, warn
from dovetail.controllers.beside.scope import BesideScope
from dovetail.model.node_records import claim_record
from dovetail.model.pod_records import PodRecord
from dovetail.observe.beside_metrics import BesideMetrics
from dovetail.planning.beside.holding import free_instants, hold_decision
from dovetail.rules.protection import may_be_protected, protection
from dovetail.runtime.work_queue import Done, Outcome

log = logging.getLogger(__name__)

_NO_LEAD = timedelta(0)
_GRACEFUL: Final = frozenset({Reason.EMPTY, Reason.UNDERUTILIZED, Reason.DRIFTED})


class LateNodes(KeyedController[str]):
    """The counter of late nodes. Keys are names of NodeClaims. A claim counts once while Karpenter's
    command lasts; each of its pods gets an event."""

    name = "beside.late"

    def __init__(self, cluster: WatchedCluster, scope: BesideScope, metrics: BesideMetrics) -> None:
        super().__init__()
        self._cluster = cluster
        self._scope = scope
        self._metrics = metrics
        self._late: dict[str, set[str]] = {}  # by name of the claim: the UIDs of the pods that were told
        self.own(cluster.claims, own_name)
        self.follow(cluster.pods, self._claims_of)

    def _claims_of(self, pod: PodRecord) -> Iterator[str]:
        if may_be_protected(pod) and (node := self._cluster.nodes.value(pod.node_name)) is not None:
            yield from self._cluster.claim_names(node)

    async def reconcile(self, key: str) -> Outcome:
        claim, now = self._cluster.claims.value(key), self.clock.now()
        if claim is None or not self._is_taken(claim):
            self._late.pop(key, None)
            return Done()
        pods = [pod for node in self._cluster.nodes_of(claim) for pod in self._cluster.pods_on[node.metadata.name]]
        for pod in pods:
            if not free_instants(pod).contains(now):
                self._tell(claim, pod, now)
        return Done(seconds_until(hold_decision(pods, now, _NO_LEAD).until, now))

    def _is_taken(self, claim: objects.NodeClaim) -> bool:
        """By a graceful command. Expiry and interruption ask no pod, and Karpenter gives no reason for them."""
        record, reason = claim_record(claim), ConditionType.DISRUPTION_REASON
        graceful = record.is_true(reason) and record.conditions[reason].reason in _GRACEFUL
        return graceful and self._scope.has_pool(claim.metadata.pool)

    def _tell(self, claim: objects.NodeClaim, pod: PodRecord, now: datetime) -> None:
        name = claim.metadata.name
        if name not in self._late:
            self._metrics.late.labels(claim.metadata.pool).inc()
        uids = self._late.setdefault(name, set())
        if pod.uid in uids:
            return
        uids.add(pod.uid)
        blocking = next(verdict for verdict in protection(pod, now) if not verdict.allowed)
        note = (
            f"Karpenter began to disrupt node {pod.node_name} before it could be held, and does not stop: "
            f"{blocking.rule}: {blocking.message}"
        )
        warn(self.recorder, about_pod(pod), EventReason.TAKEN_WHILE_BLOCKED, note)
        extra = {"Pod": f"{pod.namespace}/{pod.name}", "Node": pod.node_name, "NodeClaim": name}
        log.warning("node taken while a pod was not to be disrupted", extra=extra)
