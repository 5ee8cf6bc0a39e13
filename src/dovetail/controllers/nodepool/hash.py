"""Writes the hash of each NodePool's template to the pool, and migrates its claims to our hash version (01 §7).

The pool is written last: if the process ends in between, the pool still shows that there is work to do.
"""

from contextlib import suppress

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.writing import write_metadata
from dovetail.controllers.nodepool.base import PoolController
from dovetail.planning.nodepool.hash import migrated_annotations, pool_annotations, pool_hash
from dovetail.ports import NODEPOOLS, NotFound, Patch
from dovetail.runtime.work_queue import Done, Outcome, TerminalFailure
from dovetail.values.duration import DurationError


class NodePoolHash(PoolController):
    name = "nodepool.hash"

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__(cluster)
        self.follow(cluster.claims, _pool_of_other_version)

    async def reconcile_pool(self, pool: objects.NodePool) -> Outcome:
        try:
            hashed = pool_hash(pool.spec.template)
        except DurationError as error:
            return TerminalFailure(str(error))  # the condition ValidationSucceeded reports it
        meta = pool.metadata
        if meta.annotations.get(names.NODEPOOL_HASH_VERSION) != names.HASH_VERSION:
            for claim in self.cluster.claims_in[meta.name]:
                await self._migrate(claim.metadata.name, hashed)
        annotations = pool_annotations(hashed)
        if annotations.items() - meta.annotations.items():
            # The precondition is the version that was hashed: an edited template has another hash.
            lock = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            body = {"metadata": {**lock, "annotations": annotations}}
            written = await self.api.write(Patch(NODEPOOLS, meta.name, body))
            self.cluster.pools.note_write(written)
        return Done()

    async def _migrate(self, name: str, hashed: str) -> None:
        claim = self.cluster.claims.get_consistent(name)
        if claim is None or not self.cluster.manages_claim(claim):
            return
        if annotations := migrated_annotations(claim, hashed):
            with suppress(NotFound):
                await write_metadata(self.api, self.cluster, claim, {"annotations": annotations})


def _pool_of_other_version(claim: objects.NodeClaim) -> list[str]:
    """The pool that may wait for this claim to be migrated."""
    if claim.metadata.annotations.get(names.NODEPOOL_HASH_VERSION) == names.HASH_VERSION:
        return []
    return [claim.metadata.pool]
