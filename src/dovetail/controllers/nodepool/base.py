"""The base of controllers of NodePools: keys, ownership, and writes to the status."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController, own_name
from dovetail.planning.conditions import Conditions
from dovetail.ports import NODEPOOLS, Patch
from dovetail.runtime.work_queue import Done, Outcome


class PoolController(KeyedController[str]):
    """Reconciles the NodePools that are ours. Keys are their names."""

    workers = 2  # counting a pool with hundreds of nodes takes milliseconds of the event loop

    def __init__(self, cluster: WatchedCluster, *, after_seconds: float = 0.0) -> None:
        super().__init__()
        self.cluster = cluster
        self.own(cluster.pools, own_name, after_seconds=after_seconds)

    def follow_nodes(self, *, after_seconds: float) -> None:
        """Reconciles the pool of each NodeClaim and Node that changes."""
        self.follow(self.cluster.claims, pools_of_claim, after_seconds=after_seconds)
        self.follow(self.cluster.nodes, self._pools_of_node, after_seconds=after_seconds)

    def _pools_of_node(self, node: objects.Node) -> set[str]:
        """By its claims as well, because a Node has its labels only once it is registered."""
        names_ = {name for claim in self.cluster.claims_of(node) for name in pools_of_claim(claim)}
        return names_.union(filter(None, [node.metadata.pool]))

    async def reconcile(self, key: str) -> Outcome:
        pool = self.cluster.pools.get_consistent(key)
        if pool is None or not self.cluster.manages_pool(pool):
            self.forget(key)
            return Done()
        return await self.reconcile_pool(pool)

    @abstractmethod
    async def reconcile_pool(self, pool: objects.NodePool) -> Outcome:
        """Brings the pool to its desired state. Raises ApiError, InFlight."""

    def forget(self, key: str) -> None:
        """Called for a pool that is gone or not ours."""

    def pools_with(self, node_class: objects.NodeClass) -> Iterable[str]:
        """The pools that use the node class."""
        name = node_class.metadata.name
        pools = self.cluster.our_pools()
        return [pool.metadata.name for pool in pools if pool.spec.template.spec.node_class_ref.name == name]

    async def write_status(self, pool: objects.NodePool, status: dict[str, Any]) -> None:
        """Fails if somebody else has written the pool: several controllers write the one list of conditions."""
        meta = pool.metadata
        body = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": status}
        written = await self.api.write(Patch(NODEPOOLS, meta.name, body, subresource="status"))
        self.cluster.pools.note_write(written)

    async def write_conditions(self, pool: objects.NodePool, conditions: Conditions, **status: Any) -> None:
        """Writes the conditions and the status fields, if anything changes."""
        if conditions.changed or status:
            await self.write_status(pool, {"conditions": conditions.body(), **status})


def pools_of_claim(claim: objects.NodeClaim) -> list[str]:
    pool = claim.metadata.pool
    return [pool] if pool else []
