"""Supplies drive with instance types: those of a file if there is one, else those that the nodes of a pool have."""

from collections.abc import Sequence

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.instance_types import InstanceType, TypeCatalogue
from dovetail.planning.beside.observed_types import observed_types
from dovetail.state.store import Change, values_of


class ObservedTypes:
    """The instance types of drive. `known`: the types of a file. Create it before changes are applied."""

    def __init__(self, cluster: WatchedCluster, known: Sequence[InstanceType] | None = None) -> None:
        self._cluster = cluster
        self._known = known
        self._version = 0
        cluster.claims.subscribe(self._claim_changed)

    async def instance_types(self, pool: objects.NodePool) -> TypeCatalogue:
        if self._known is not None:
            return TypeCatalogue(0, self._known)
        return TypeCatalogue(self._version, observed_types(pool, self._cluster.claims_in[pool.metadata.name]))

    def _claim_changed(self, change: Change[objects.NodeClaim]) -> None:
        """Equal versions mean equal types, so it grows with every claim that shows another machine."""
        if len({_machine(claim) for claim in values_of(change)}) != 1 or len(values_of(change)) == 1:
            self._version += 1


def _machine(claim: objects.NodeClaim) -> tuple[object, ...]:
    return tuple(sorted(claim.metadata.labels.items())), tuple(sorted(claim.status.allocatable.items()))
