"""What does each NodePool cost by the hour: the sum of what its NodeClaims' machines are offered for (04 §3.3)?

Prices are asked of the provider now and then; of the sum everything else is in the caches.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from dovetail.api import names, objects
from dovetail.controllers.base.keyed import Keyed
from dovetail.observe.metrics import Metrics
from dovetail.ports import CloudError, CloudProvider, InstanceType, Offering
from dovetail.runtime.reflector import Change, Deleted
from dovetail.runtime.work_queue import Done, Outcome, Retry
from dovetail.state.cluster import Cluster

REFRESH_SECONDS: Final = 3600.0

Offered: TypeAlias = tuple[str, str, str]  # instance type, zone, capacity type


class Prices(Keyed[str]):
    """Keys are names of NodePools: each may be offered other machines, at other prices."""

    name = "state.pricing"

    def __init__(self, cluster: Cluster, provider: CloudProvider, metrics: Metrics) -> None:
        super().__init__()
        self._cluster = cluster
        self._provider = provider
        self._metrics = metrics
        self._prices: dict[str, Mapping[Offered, float]] = {}
        self.follow(cluster.pools, lambda pool: [] if pool.metadata.name in self._prices else [pool.metadata.name])
        cluster.pools.subscribe(self._forget)

    def keys(self) -> Iterable[str]:
        return [pool.metadata.name for pool in self._cluster.pools.values()]

    def cost(self, pool: str) -> float:
        """By the hour; a machine whose price is not known counts 0 (04 §8.14)."""
        prices = self._prices.get(pool, {})
        return sum(prices.get(bought_as(claim.metadata.labels), 0.0) for claim in self._cluster.claims_in[pool])

    async def reconcile(self, key: str) -> Outcome:
        pool = self._cluster.pools.current(key)
        if pool is None or not self._cluster.manages(pool.spec.template.spec.node_class_ref):
            return Done()
        try:
            types = await self._provider.instance_types(pool)
        except CloudError as error:
            self._metrics.nodepools_cost_errors.labels(key).inc()
            return Retry(f"the cloud does not say its prices: {error}")
        self._prices[key] = prices_of(types)
        return Done(REFRESH_SECONDS)

    def _forget(self, change: Change[objects.NodePool]) -> None:
        if isinstance(change, Deleted):
            self._prices.pop(change.key[1], None)


def bought_as(labels: Mapping[str, str]) -> Offered:
    """What the machine of a claim or Node with these labels was bought as; empty texts before its launch."""
    type_, zone = labels.get(names.INSTANCE_TYPE_LABEL, ""), labels.get(names.ZONE_LABEL, "")
    return type_, zone, labels.get(names.CAPACITY_TYPE_LABEL, "")


def prices_of(types: Iterable[InstanceType]) -> dict[Offered, float]:
    return {
        (type_.name, _only(offering, names.ZONE_LABEL), _only(offering, names.CAPACITY_TYPE_LABEL)): offering.price
        for type_ in types
        for offering in type_.offerings
    }


def _only(offering: Offering, label: str) -> str:
    """The one value that the offering is for."""
    return next((each.values[0] for each in offering.requirements if each.key == label and each.values), "")
