"""Keeps NodePools with `replicas` at that number of nodes (06 §9)."""

import logging
from collections.abc import Sequence
from typing import Final

from dovetail.api import objects
from dovetail.api.names import ConditionType
from dovetail.api.objects import is_true
from dovetail.controllers.base.claim_creation import ClaimCreation
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.writing import delete_claim
from dovetail.controllers.nodepool.base import PoolController, pools_of_claim
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.disruption.records import record_on
from dovetail.planning.nodepool.static_capacity import ClaimCensus, census, growth, node_limit, victims
from dovetail.planning.provisioning.claims import claim_name, static_claim_body
from dovetail.planning.timings import Timings
from dovetail.ports import AlreadyExists, ApiError
from dovetail.rules.pdb import PdbIndex
from dovetail.runtime.work_queue import Done, Outcome, TerminalFailure
from dovetail.scheduling.requirements import RequirementError
from dovetail.values.duration import DurationError

log = logging.getLogger(__name__)

# Claims change several times while they start. The delay counts these changes together.
SETTLE_SECONDS: Final = 1.0


class StaticCapacity(PoolController):
    """Creates missing claims and deletes surplus ones. Budgets do not apply."""

    name = "static.capacity"

    def __init__(self, cluster: WatchedCluster, creation: ClaimCreation, timings: Timings) -> None:
        super().__init__(cluster)
        self._creation = creation
        self._timings = timings
        self._started = ""
        self._named = 0
        self._free: dict[str, list[str]] = {}  # by pool: names that may be unused
        self.follow(cluster.claims, pools_of_claim, after_seconds=SETTLE_SECONDS)

    async def reconcile_pool(self, pool: objects.NodePool) -> Outcome:
        replicas = pool.spec.replicas
        if replicas is None or pool.metadata.deletion_timestamp is not None:
            return Done()
        counted = self._census(pool)
        if len(counted.active) > replicas:
            pdbs = PdbIndex(self.cluster.pdbs.values(), ())
            await self._shrink(victims(counted, replicas=replicas, pdbs=pdbs, now=self.clock.now()))
        elif is_true(pool, ConditionType.READY):
            wanted = growth(counted, replicas=replicas, limit=node_limit(pool))
            if wanted.lacking and not wanted.granted:
                log.info("%s of %s nodes: its limit is reached", len(counted.active), replicas)
                return Done(self._timings.static_capacity_blocked_seconds)
            try:
                await self._grow(pool, wanted.granted)
            except (RequirementError, DurationError) as error:
                return TerminalFailure(str(error))
        return Done(self._timings.static_capacity_seconds)

    def forget(self, key: str) -> None:
        self._free.pop(key, None)

    def _census(self, pool: objects.NodePool) -> ClaimCensus:
        """Raises InFlight, so that a claim that we have just deleted does not count."""
        name = pool.metadata.name
        latest = (self.cluster.claims.get_consistent(claim.metadata.name) for claim in self.cluster.claims_in[name])
        claims = [claim for claim in latest if claim is not None]
        records = {claim.metadata.name: record for claim in claims if (record := record_on(claim)) is not None}
        return census(
            map(self.cluster.member, claims),
            in_commands=records.keys(),
            awaited={replacement for record in records.values() for replacement in record.replacements},
            reserved=self._creation.unseen_creates(name),
        )

    async def _grow(self, pool: objects.NodePool, count: int) -> None:
        """Raises the first ApiError, after trying all creates."""
        wanted = self._names(pool, count)
        bodies = [static_claim_body(pool, name=name, well_known=self.cluster.well_known_labels) for name in wanted]
        outcomes = await self._creation.create(self.api, self.clock, bodies)
        free = self._free[pool.metadata.name]
        for body, outcome in zip(bodies, outcomes, strict=True):
            if not isinstance(outcome, ApiError) or isinstance(outcome, AlreadyExists):
                free.remove(body["metadata"]["name"])
        for outcome in outcomes:
            if isinstance(outcome, ApiError):
                raise outcome

    def _names(self, pool: objects.NodePool, count: int) -> Sequence[str]:
        """Returns the same names until a create with them succeeds, because a failed create may have taken effect."""
        self._started = self._started or self.clock.now().isoformat()
        free = self._free.setdefault(pool.metadata.name, [])
        while len(free) < count:
            self._named += 1
            free.append(claim_name(pool.metadata.name, pool.metadata.uid, self._started, str(self._named)))
        return free[:count]

    async def _shrink(self, chosen: Sequence[ClusterNode]) -> None:
        for member in chosen:
            assert member.claim is not None
            claim = self.cluster.claims.get_consistent(member.claim.name)
            if claim is not None:
                await delete_claim(self.api, self.cluster, claim)
                log.info("deleting nodeclaim: its pool has more than its replicas", extra={"NodeClaim": member.name})
