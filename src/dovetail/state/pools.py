"""The NodePools that new nodes can be created from, with their instance types (05 §1)."""

from collections.abc import Iterator, Mapping

import msgspec

from dovetail.api import objects
from dovetail.api.names import ConditionType
from dovetail.api.objects import is_true
from dovetail.scheduling.placement import MachineType, Pool, read_pool
from dovetail.scheduling.requirements import RequirementError
from dovetail.scheduling.resources import ResourceError
from dovetail.state.cluster import ClusterState


class UsablePools(msgspec.Struct, frozen=True):
    """Heaviest first, with the types of each. `left_out`: why other pools cannot be used."""

    pools: tuple[Pool, ...] = ()
    types: Mapping[str, tuple[MachineType, ...]] = {}
    left_out: Mapping[str, str] = {}


class SchedulingPools:
    """The index of usable NodePools. Create it before changes are applied."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._types = cluster.instance_types
        self._version = -1  # of the types that were read last
        self._changed = True
        self._pools = UsablePools()
        cluster.pools.subscribe(self._touch)

    def _touch(self, _: object) -> None:
        self._changed = True

    def usable(self) -> Iterator[objects.NodePool]:
        """Our pools without `replicas` that are ready and not being deleted."""
        for pool in self._cluster.our_pools():
            stays = pool.spec.replicas is None and pool.metadata.deletion_timestamp is None
            if stays and is_true(pool, ConditionType.READY):
                yield pool

    def pools(self) -> UsablePools:
        """The same object until something changes."""
        if self._changed or self._types.version != self._version:
            self._changed, self._version = False, self._types.version
            pools = self._read()
            for name, flaw in pools.left_out.items():
                if self._pools.left_out.get(name) != flaw:
                    self._cluster.warn(f"NodePool {name} is left out: {flaw}")
            if pools != self._pools:
                self._pools = _keeping(self._pools, pools)
        return self._pools

    def _read(self) -> UsablePools:
        pools: list[Pool] = []
        left_out: dict[str, str] = {}
        for pool in self.usable():
            flaw = self._types.of(pool.metadata.name).flaw
            if not flaw:
                try:
                    pools.append(read_pool(pool))
                except (RequirementError, ResourceError) as error:
                    flaw = str(error)
            if flaw:
                left_out[pool.metadata.name] = flaw
        by_name = sorted(pools, key=lambda pool: pool.name, reverse=True)
        heaviest_first = tuple(sorted(by_name, key=lambda pool: -pool.weight))
        return UsablePools(
            heaviest_first, {pool.name: self._types.of(pool.name).types for pool in heaviest_first}, left_out
        )


def _keeping(old: UsablePools, new: UsablePools) -> UsablePools:
    """The new pools, with the old objects where nothing changed."""
    old_pools = {pool.name: pool for pool in old.pools}
    pools = tuple(old_pools[pool.name] if old_pools.get(pool.name) == pool else pool for pool in new.pools)
    return UsablePools(
        old.pools if old.pools == pools else pools, old.types if old.types == new.types else new.types, new.left_out
    )
