"""Counts each NodePool's nodes and their resources into its status (01 §5.1)."""

from collections.abc import Iterable, Iterator, Mapping

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.nodepool.base import PoolController
from dovetail.planning.nodepool.usage import usage
from dovetail.planning.timings import Timings
from dovetail.rules.states import IN_DISRUPTION
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.nodes import ManagedNode
from dovetail.state.store import Index


class NodePoolCounter(PoolController):
    """What changes within a few seconds is counted together."""

    name = "nodepool.counter"

    def __init__(self, cluster: WatchedCluster, timings: Timings) -> None:
        super().__init__(cluster, after_seconds=timings.pool_counter_seconds)
        self._nodes_in = Index(cluster.nodes, lambda node: node.metadata.labels.get(names.NODEPOOL_LABEL, ""))
        self.follow(cluster.claims, pools_of_claim, after_seconds=timings.pool_counter_seconds)
        self.follow(
            cluster.nodes, lambda node: pools_of_node(cluster, node), after_seconds=timings.pool_counter_seconds
        )

    async def tend(self, pool: objects.NodePool) -> Outcome:
        await self.cluster.settled()
        found = usage(self._held(pool.metadata.name, self.cluster.managed.in_pool(pool.metadata.name)))
        known = pool.status
        if (known.nodes, known.resources) != (found.nodes, found.texts):
            gone = dict.fromkeys(known.resources.keys() - found.resources.keys())
            await self.write_status(pool, {"nodes": found.nodes, "resources": {**found.texts, **gone}})
        return Done()

    def _held(
        self, pool: str, nodes: Iterable[ManagedNode]
    ) -> Iterator[tuple[objects.NodeClaim | None, objects.Node | None]]:
        """What has been launched for the pool and is to stay. An instance counts once, whatever claims it."""
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


def pools_of_claim(claim: objects.NodeClaim) -> list[str]:
    return _pool_in(claim.metadata.labels)


def pools_of_node(cluster: WatchedCluster, node: objects.Node) -> set[str]:
    """By its claims as well: a node has its labels only once it is registered."""
    claims = cluster.claims_of(node)
    return {*_pool_in(node.metadata.labels), *(name for claim in claims for name in pools_of_claim(claim))}


def _pool_in(labels: Mapping[str, str]) -> list[str]:
    pool = labels.get(names.NODEPOOL_LABEL, "")
    return [pool] if pool else []
