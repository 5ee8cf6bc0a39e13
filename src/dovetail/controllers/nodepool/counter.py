"""Counts each NodePool's nodes and their resources into its status (01 §5.1)."""

from collections.abc import Iterable, Iterator

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.nodepool.base import PoolController
from dovetail.planning.nodepool.usage import usage
from dovetail.planning.timings import Timings
from dovetail.rules.states import IN_DISRUPTION
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.nodes import ManagedNode
from dovetail.state.store import Index


class NodePoolCounter(PoolController):
    """Counts changes within a few seconds together."""

    name = "nodepool.counter"

    def __init__(self, cluster: WatchedCluster, timings: Timings) -> None:
        super().__init__(cluster, after_seconds=timings.pool_counter_seconds)
        self._nodes_in = Index(cluster.nodes, lambda node: node.metadata.pool)
        self.follow_nodes(after_seconds=timings.pool_counter_seconds)

    async def reconcile_pool(self, pool: objects.NodePool) -> Outcome:
        await self.cluster.settled()
        used = usage(self._launched(pool.metadata.name, self.cluster.managed.in_pool(pool.metadata.name)))
        status = pool.status
        if (status.nodes, status.resources) != (used.nodes, used.texts):
            gone = dict.fromkeys(status.resources.keys() - used.resources.keys())
            await self.write_status(pool, {"nodes": used.nodes, "resources": {**used.texts, **gone}})
        return Done()

    def _launched(
        self, pool: str, nodes: Iterable[ManagedNode]
    ) -> Iterator[tuple[objects.NodeClaim | None, objects.Node | None]]:
        """The pool's launched nodes that stay. An instance counts once, even if several claims have its ID."""
        seen: set[str] = set()
        for member in nodes:
            if member.claim is None or not member.ours:
                continue
            instance = member.claim.status.provider_id
            if not instance or instance in seen:
                continue
            seen.add(instance)
            if member.state not in IN_DISRUPTION:
                yield member.claim, self.cluster.node_of(member.claim)
        for node in self._nodes_in[pool]:
            lost = not self.cluster.claims_of(node) and self.cluster.manages_node(node)
            if lost and node.metadata.deletion_timestamp is None:
                yield None, node
