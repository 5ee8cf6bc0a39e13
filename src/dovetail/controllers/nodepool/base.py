"""What do all controllers of NodePools share: their keys, whose pool it is, and how its status is written."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from dovetail.api import names, objects
from dovetail.controllers.base.keyed import Keyed
from dovetail.model.snapshot import ClusterNode, cluster_node
from dovetail.planning.conditions import Conditions
from dovetail.ports import NODEPOOLS
from dovetail.rules.states import State, state_of
from dovetail.runtime.reflector import Change
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.cluster import Cluster
from dovetail.state.members import values_of

_AT_ONCE: Final = 50  # claims read in one turn of the event loop by each worker


class PoolController(Keyed[str]):
    """Works on the pools that are ours, by name."""

    workers = 2  # what there is of a pool with hundreds of nodes takes milliseconds to count: not of all in one turn

    def __init__(self, cluster: Cluster, *, after_seconds: float = 0.0) -> None:
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
        written = await self.api.patch(NODEPOOLS, meta.name, body, subresource="status")
        self.cluster.pools.wrote(written)

    async def write_conditions(self, pool: objects.NodePool, conditions: Conditions, **status: Any) -> None:
        """The conditions and what changes with them, if anything does."""
        if conditions.changed or status:
            await self.write_status(pool, {"conditions": conditions.body(), **status})


class PoolMember(NamedTuple):
    """A claim of a pool, its one Node if it has one, what the rules read of both, and where it stands."""

    claim: objects.NodeClaim
    node: objects.Node | None
    read: ClusterNode
    state: State


class PoolMembers:
    """The claims of each pool, of which only those are read anew that have changed. Make it before the caches run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._members: dict[str, dict[str, PoolMember]] = {}  # by pool and claim
        self._pools: dict[str, str] = {}  # of each claim
        self._claims: set[str] = set()  # names of those that have changed
        self._instances: set[str] = set()  # of nodes that have changed
        cluster.claims.subscribe(self._claim_changed)
        cluster.nodes.subscribe(self._node_changed)

    def _claim_changed(self, change: Change[objects.NodeClaim]) -> None:
        self._claims.update(each.metadata.name for each in values_of(change))

    def _node_changed(self, change: Change[objects.Node]) -> None:
        self._instances.update(each.spec.provider_id for each in values_of(change))

    async def of(self, pool: str) -> list[PoolMember]:
        """In the order of the claims' names. What has changed is read in turns that are short."""
        self._look_up()
        while self._claims:
            await self._cluster.clock.sleep(0)
            self._look_up()
        found = self._members.get(pool, {})
        return [found[name] for name in sorted(found)]

    def _look_up(self) -> None:
        while self._instances:
            self._claims.update(claim.metadata.name for claim in self._cluster.claims_with[self._instances.pop()])
        for _ in range(min(_AT_ONCE, len(self._claims))):
            self._read(self._claims.pop())

    def _read(self, name: str) -> None:
        """It may have come, gone or changed its pool."""
        before = self._pools.pop(name, None)
        if before is not None:
            del self._members[before][name]
        kept = self._cluster.claims.get(("", name))
        pool = "" if kept is None else kept.value.metadata.labels.get(names.NODEPOOL_LABEL, "")
        if kept is None or not pool:
            return
        claim, node = kept.value, self._cluster.node_of(kept.value)
        read = cluster_node(claim, node)
        self._members.setdefault(pool, {})[name] = PoolMember(claim, node, read, state_of(read))
        self._pools[name] = pool
