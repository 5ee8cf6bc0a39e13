"""The hourly cost of each NodePool: the sum of the prices of its NodeClaims' machines (04 §3.3).

The controller asks the provider for prices periodically.
"""

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
    """The controller of cost metrics. Keys are names of NodePools, because each may have other machines and prices."""

    name = "state.pricing"

    def __init__(self, cluster: WatchedCluster, types: InstanceTypeSource, metrics: Metrics) -> None:
        super().__init__()
        self._cluster = cluster
        self._types = types
        self._metrics = metrics
        self._asked: set[str] = set()
        self.own(cluster.pools, lambda pool: [] if pool.metadata.name in self._asked else [pool.metadata.name])
        cluster.pools.subscribe(self._forget)

    def cost(self, pool: str) -> float:
        """Per hour. A machine without a known price counts 0 (04 §8.14)."""
        prices = self._cluster.instance_types.of(pool).prices
        return sum(prices.get(bought_as(claim.metadata.labels), 0) for claim in self._cluster.claims_in[pool]) / BILLION

    async def reconcile(self, key: str) -> Outcome:
        pool = self._cluster.pools.get_consistent(key)
        if pool is None or not self._cluster.manages_pool(pool):
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
