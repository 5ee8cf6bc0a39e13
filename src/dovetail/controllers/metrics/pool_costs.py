"""What does each NodePool cost by the hour: the sum of what its NodeClaims' machines are offered for (04 §3.3)?

Prices are asked of the provider now and then; of the sum everything else is in the caches.
"""

from collections.abc import Iterable
from typing import Final

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.base.keyed import KeyedController
from dovetail.observe.metrics import Metrics
from dovetail.runtime.work_queue import Done, Outcome, Retry
from dovetail.state.instance_types import BILLION, bought_as
from dovetail.state.store import Change, Deleted

REFRESH_SECONDS: Final = 3600.0


class PoolCosts(KeyedController[str]):
    """Keys are names of NodePools: each may be offered other machines, at other prices."""

    name = "state.pricing"

    def __init__(self, cluster: WatchedCluster, types: InstanceTypeSource, metrics: Metrics) -> None:
        super().__init__()
        self._cluster = cluster
        self._types = types
        self._metrics = metrics
        self._asked: set[str] = set()
        self.follow(cluster.pools, lambda pool: [] if pool.metadata.name in self._asked else [pool.metadata.name])
        cluster.pools.subscribe(self._forget)

    def keys(self) -> Iterable[str]:
        return [pool.metadata.name for pool in self._cluster.pools.values()]

    def cost(self, pool: str) -> float:
        """By the hour; a machine whose price is not known counts 0 (04 §8.14)."""
        prices = self._cluster.instance_types.of(pool).prices
        return sum(prices.get(bought_as(claim.metadata.labels), 0) for claim in self._cluster.claims_in[pool]) / BILLION

    async def reconcile(self, key: str) -> Outcome:
        pool = self._cluster.pools.current(key)
        if pool is None or not self._cluster.manages(pool.spec.template.spec.node_class_ref):
            return Done()
        await self._types.refresh([pool])
        answer = self._cluster.instance_types.said(key)
        if answer.failed:
            self._metrics.nodepools_cost_errors.labels(key).inc()
            return Retry(f"the cloud does not say its prices: {answer.flaw}")
        self._asked.add(key)
        return Done(REFRESH_SECONDS)

    def _forget(self, change: Change[objects.NodePool]) -> None:
        if isinstance(change, Deleted):
            self._asked.discard(change.key[1])
