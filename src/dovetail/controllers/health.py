"""Nodes that have been unhealthy for too long are replaced: S1 to S4, drained, bounded by their TGP (R24a)."""

from collections.abc import Iterable
from typing import Final

from dovetail.api import names, objects
from dovetail.api.names import EventReason, Reason
from dovetail.controllers.cluster import Cluster
from dovetail.controllers.keyed import Keyed, seconds_until
from dovetail.controllers.reasons import write_reason
from dovetail.controllers.writing import about_node, disrupt, tell_disrupted, warn
from dovetail.observe.metrics import Metrics
from dovetail.planning.health import ailment, snake_case, too_many_unhealthy
from dovetail.planning.timings import Timings
from dovetail.ports import CloudProvider
from dovetail.runtime.work_queue import Done, Outcome

BLOCKED_DEDUPE_SECONDS: Final = 900.0


class Health(Keyed[str]):
    """Keys are names of Nodes."""

    name = "node.health"

    def __init__(self, cluster: Cluster, provider: CloudProvider, metrics: Metrics, timings: Timings) -> None:
        super().__init__()
        self._cluster = cluster
        self._policies = provider.repair_policies()
        self._metrics = metrics
        self._timings = timings
        self.follow(cluster.nodes, lambda node: [node.metadata.name])

    def keys(self) -> Iterable[str]:
        return [node.metadata.name for node in self._cluster.nodes.values()]

    async def reconcile(self, key: str) -> Outcome:
        node = self._cluster.nodes.current(key)
        if node is None or not self._cluster.manages_node(node):
            return Done()
        claim = self._cluster.claim_of(node)
        ill = ailment(node, self._policies)
        if claim is None or ill is None:
            return Done()
        claim = self._cluster.claims.current(claim.metadata.name)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return Done()
        now = self.clock.now()
        if now < ill.replace_at:
            return Done(seconds_until(ill.replace_at, now))
        blocked = too_many_unhealthy(self._peers(node), self._policies)
        if blocked is not None:
            note, reason = f"not replaced: {blocked}", EventReason.NODE_REPAIR_BLOCKED
            warn(self.recorder, about_node(node), reason, note, dedupe_seconds=BLOCKED_DEDUPE_SECONDS)
            return Done(self._timings.repair_blocked_seconds)
        why = f"{ill.condition} of node {key} has been bad for too long"
        claim = await write_reason(self.api, self._cluster, claim, Reason.UNHEALTHY, now)
        await disrupt(self.api, self._cluster, self._metrics, claim, reason=Reason.UNHEALTHY.lower(), why=why)
        tell_disrupted(self.recorder, self._cluster, claim, Reason.UNHEALTHY, why)
        labels = claim.metadata.labels
        self._metrics.nodeclaims_unhealthy_disrupted.labels(
            snake_case(ill.condition),
            labels.get(names.NODEPOOL_LABEL, ""),
            labels.get(names.CAPACITY_TYPE_LABEL, ""),
            claim.status.image_id,
        ).inc()
        return Done()

    def _peers(self, node: objects.Node) -> list[objects.Node]:
        """The nodes of its pool; all of ours, for a node without one."""
        pool = node.metadata.labels.get(names.NODEPOOL_LABEL)
        return [
            peer
            for peer in self._cluster.nodes.values()
            if self._cluster.manages_node(peer) and (not pool or peer.metadata.labels.get(names.NODEPOOL_LABEL) == pool)
        ]
