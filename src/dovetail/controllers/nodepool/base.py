"""What do all controllers of NodePools share: their keys, whose pool it is, and how its status is written."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController
from dovetail.planning.conditions import Conditions
from dovetail.ports import NODEPOOLS, Patch
from dovetail.runtime.work_queue import Done, Outcome


class PoolController(KeyedController[str]):
    """Works on the pools that are ours, by name."""

    workers = 2  # what there is of a pool with hundreds of nodes takes milliseconds to count: not of all in one turn

    def __init__(self, cluster: WatchedCluster, *, after_seconds: float = 0.0) -> None:
        super().__init__()
        self.cluster = cluster
        self.follow(cluster.pools, lambda pool: [pool.metadata.name], after_seconds=after_seconds)

    def keys(self) -> Iterable[str]:
        return [pool.metadata.name for pool in self.cluster.pools.values()]

    async def reconcile(self, key: str) -> Outcome:
        pool = self.cluster.pools.current(key)
        if pool is None or not self.cluster.manages(pool.spec.template.spec.node_class_ref):
            self.forget(key)
            return Done()
        return await self.tend(pool)

    @abstractmethod
    async def tend(self, pool: objects.NodePool) -> Outcome:
        """Do what is to be done for the pool as it is now. Raises ApiError, InFlight."""

    def forget(self, key: str) -> None:
        """The pool is gone, or not ours."""

    def pools_with(self, node_class: objects.NodeClass) -> Iterable[str]:
        """The pools that are made from the node class."""
        return [
            pool.metadata.name
            for pool in self.cluster.pools.values()
            if self.cluster.manages(pool.spec.template.spec.node_class_ref)
            and pool.spec.template.spec.node_class_ref.name == node_class.metadata.name
        ]

    async def write_status(self, pool: objects.NodePool, status: dict[str, Any]) -> None:
        """Several controllers write here, and conditions are one list: only onto what was read."""
        meta = pool.metadata
        body = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": status}
        written = await self.api.write(Patch(NODEPOOLS, meta.name, body, subresource="status"))
        self.cluster.pools.wrote(written)

    async def write_conditions(self, pool: objects.NodePool, conditions: Conditions, **status: Any) -> None:
        """The conditions and what changes with them, if anything does."""
        if conditions.changed or status:
            await self.write_status(pool, {"conditions": conditions.body(), **status})
