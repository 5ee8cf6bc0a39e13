"""Deletes NodeClaims whose instance is gone, and instances whose NodeClaim is gone (02 §11). Polls the provider."""

import logging
from collections.abc import Sequence

from dovetail.api import objects
from dovetail.api.names import ConditionType
from dovetail.api.objects import is_true
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.writing import disrupt
from dovetail.observe.metrics import Metrics
from dovetail.planning.nodeclaim.lifecycle import is_ready
from dovetail.planning.timings import Timings
from dovetail.ports import ApiError, CloudError, CloudProvider, Instance, InstanceGone
from dovetail.runtime.manager import Context
from dovetail.runtime.tasks import within
from dovetail.state.store import InFlight

log = logging.getLogger(__name__)


class GarbageCollection:
    name = "nodeclaim.garbagecollection"

    def __init__(self, cluster: WatchedCluster, provider: CloudProvider, metrics: Metrics, timings: Timings) -> None:
        self._cluster = cluster
        self._provider = provider
        self._metrics = metrics
        self._timings = timings
        self._orphans: set[str] = set()  # provider IDs without a claim in the last round

    async def run(self, context: Context) -> None:
        while not context.stopping.is_set():
            try:
                await self._round(context)
            except (ApiError, CloudError) as error:
                log.warning("garbage collection: %s", error)
            try:
                await within(context.clock, self._timings.garbage_collection_seconds, context.stopping.wait())
            except TimeoutError:
                continue

    async def _round(self, context: Context) -> None:
        # Claims are listed before instances, so that a claim that launches in between is not taken for lost.
        claims = list(self._cluster.claims.values())
        instances = await self._provider.list()
        there = {instance.provider_id for instance in instances}
        for claim in claims:
            if claim.status.provider_id not in there and self._cluster.manages_claim(claim) and self._is_lost(claim):
                await self._collect(claim, context)
        await self._collect_orphans(instances)

    async def _collect(self, claim: objects.NodeClaim, context: Context) -> None:
        """Deletes the claim. An error does not stop the round; the next round retries."""
        why, reason = "its instance is gone", "garbage_collected"
        try:
            await disrupt(context.api, self._cluster, self._metrics, claim, reason=reason, why=why)
        except ApiError as error:
            log.warning("garbage collection of %s: %s", claim.metadata.name, error)

    def _is_lost(self, claim: objects.NodeClaim) -> bool:
        """Whether the claim is registered, not being deleted, and has no Ready Node."""
        try:
            current = self._cluster.claims.get_consistent(claim.metadata.name)
        except InFlight:
            return False
        if current is None or current.metadata.uid != claim.metadata.uid:
            return False
        stays = is_true(current, ConditionType.REGISTERED) and current.metadata.deletion_timestamp is None
        return stays and not any(map(is_ready, self._cluster.nodes_of(current)))

    async def _collect_orphans(self, instances: Sequence[Instance]) -> None:
        """Deletes instances that had no claim in two rounds, as after somebody removed a finalizer by hand."""
        if self._cluster.claims.undecodable:
            return  # the claim of an instance may be undecodable (R32)
        uids = {claim.metadata.uid for claim in self._cluster.claims.values()}
        orphans = {
            instance.provider_id: instance
            for instance in instances
            if instance.claim_uid and instance.claim_uid not in uids and not instance.deleting
        }
        for provider_id in sorted(self._orphans & orphans.keys()):
            log.warning("ending an instance whose NodeClaim is gone", extra={"provider-id": provider_id})
            claim = objects.NodeClaim(
                metadata=objects.ObjectMeta(uid=orphans[provider_id].claim_uid),
                status=objects.NodeClaimStatus(provider_id=provider_id),
            )
            try:
                await self._provider.delete(claim)
            except InstanceGone:
                continue
            except CloudError as error:
                log.warning("ending %s: %s", provider_id, error)
        self._orphans = set(orphans)
