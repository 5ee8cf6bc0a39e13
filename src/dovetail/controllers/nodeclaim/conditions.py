"""What do the writers of NodeClaims' conditions share: which claims are theirs, and when is one to be looked at?

When it changes, and when its pool is edited. A pool's status changes every few seconds while nodes come and go: that
says nothing about its claims.
"""

from abc import abstractmethod
from collections.abc import Iterable

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.store import Added, Change, Deleted, Updated


class ClaimConditions(KeyedController[str]):
    """Works on the claims that are ours and to stay, by name. Make it before the caches run."""

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.follow(cluster.claims, lambda claim: [claim.metadata.name])
        cluster.pools.subscribe(self._pool_changed)

    def keys(self) -> Iterable[str]:
        return [claim.metadata.name for claim in self.cluster.claims.values()]

    async def reconcile(self, key: str) -> Outcome:
        claim = self.cluster.claims.current(key)
        if (
            claim is None
            or claim.metadata.deletion_timestamp is not None
            or not self.cluster.manages(claim.spec.node_class_ref)
        ):
            self.forget(key)
            return Done()
        return await self.tend(claim)

    @abstractmethod
    async def tend(self, claim: objects.NodeClaim) -> Outcome:
        """Write what is to be written of the claim as it is now. Raises ApiError."""

    def forget(self, key: str) -> None:
        """The claim is gone or going, or not ours."""

    def pool_of(self, claim: objects.NodeClaim) -> objects.NodePool | None:
        kept = self.cluster.pools.get(("", claim.metadata.labels.get(names.NODEPOOL_LABEL, "")))
        return None if kept is None else kept.value

    def _pool_changed(self, change: Change[objects.NodePool]) -> None:
        match change:
            case Added(key=(_, pool)) | Deleted(key=(_, pool)):
                pass
            case Updated(key=(_, pool), old=old, new=new) if _edition(old.value) != _edition(new.value):
                pass
            case _:
                return
        for claim in self.cluster.claims_in[pool]:
            self.add(claim.metadata.name)


def _edition(pool: objects.NodePool) -> tuple[int, dict[str, str]]:
    """Another one whenever somebody has edited the spec, or its hash is a new one."""
    return pool.metadata.generation, pool.metadata.annotations
