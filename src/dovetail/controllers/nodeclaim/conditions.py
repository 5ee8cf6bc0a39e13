"""The base of controllers that write conditions of NodeClaims.

They reconcile a claim when it changes and when its NodePool is edited. Changes of the pool's status do not count: it
changes every few seconds while nodes come and go.
"""

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import ClaimController
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.store import Added, Change, Deleted, values_of


class ClaimConditions(ClaimController):
    """Reconciles our claims that are not being deleted. Create it before the reflectors run."""

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__(cluster)
        cluster.pools.subscribe(self._pool_changed)

    async def reconcile(self, key: str) -> Outcome:
        claim = self.cluster.claims.value(key)
        if claim is not None and claim.metadata.deletion_timestamp is not None:
            self.forget(key)
            return Done()
        return await super().reconcile(key)

    def pool_of(self, claim: objects.NodeClaim) -> objects.NodePool | None:
        return self.cluster.pools.value(claim.metadata.pool)

    def _pool_changed(self, change: Change[objects.NodePool]) -> None:
        versions = values_of(change)
        if versions and (isinstance(change, Added | Deleted) or _edition(versions[0]) != _edition(versions[1])):
            for claim in self.cluster.claims_in[versions[0].metadata.name]:
                self.add(claim.metadata.name)


def _edition(pool: objects.NodePool) -> tuple[int, dict[str, str]]:
    """Changes whenever somebody edits the spec, or its hash changes."""
    return pool.metadata.generation, pool.metadata.annotations
