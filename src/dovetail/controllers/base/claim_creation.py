"""Creates each NodeClaim exactly once, even if the outcome of a create is unknown (R24).

The name of a claim follows from its purpose. A create with an unknown outcome is sent again: if a claim with that name
exists, the first attempt took effect.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.observe.metrics import Metrics
from dovetail.ports import NODECLAIMS, AlreadyExists, ApiError, Clock, Create, KubeApi, OutcomeUnknown, WriteBody

log = logging.getLogger(__name__)

PROVISIONED: Final = "provisioned"
ATTEMPTS: Final = 3
PAUSE_SECONDS: Final = 1.0


class ClaimCreation:
    """Creates claims, and knows which of them the watch does not show yet."""

    def __init__(self, cluster: WatchedCluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._unseen: dict[str, str] = {}  # by name of the claim: its pool

    async def create(
        self, api: KubeApi, clock: Clock, bodies: Sequence[WriteBody], *, reason: str = PROVISIONED
    ) -> list[objects.NodeClaim | ApiError]:
        """Creates all claims concurrently, and returns the outcome of each.

        After OutcomeUnknown the same body may be tried again; after any other error it was not created.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._outcome(api, clock, body, reason)) for body in bodies]
        return [task.result() for task in tasks]

    async def _outcome(self, api: KubeApi, clock: Clock, body: WriteBody, reason: str) -> objects.NodeClaim | ApiError:
        try:
            claim = await _created(api, clock, body)
        except ApiError as error:
            return error
        labels, annotations = claim.metadata.labels, claim.metadata.annotations
        pool, relaxed = labels.get(names.NODEPOOL_LABEL, ""), annotations.get(names.MIN_VALUES_RELAXED, "false")
        self._cluster.claims.note_write(claim)
        self._unseen[claim.metadata.name] = pool
        self._metrics.nodeclaims_created.labels(reason, pool, relaxed).inc()
        extra = {"NodeClaim": claim.metadata.name, "NodePool": pool, "requests": claim.spec.resources.requests}
        log.info("created nodeclaim", extra=extra)
        return claim

    def unseen_creates(self, pool: str) -> int:
        """The number of the pool's claims that were created and are not in the store yet."""
        unseen = set(self._cluster.claims.unseen_creates())
        self._unseen = {name: of for name, of in self._unseen.items() if name in unseen}
        return sum(of == pool for of in self._unseen.values())


async def _created(api: KubeApi, clock: Clock, body: WriteBody) -> objects.NodeClaim:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await api.write(Create(NODECLAIMS, body))
        except AlreadyExists:
            claim = await api.get(NODECLAIMS, body["metadata"]["name"])
            if claim.metadata.deletion_timestamp is not None:
                raise
            return claim
        except OutcomeUnknown:
            if attempt == ATTEMPTS:
                raise
            await clock.sleep(PAUSE_SECONDS)
    raise AssertionError("unreachable")
