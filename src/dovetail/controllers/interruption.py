"""The provider is going to take a node away: S1 to S4 at once, by the deadline it gives (R41)."""

import asyncio
from collections.abc import Iterable
from datetime import datetime

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import EventReason, Reason
from dovetail.controllers.cluster import Cluster
from dovetail.controllers.keyed import Keyed
from dovetail.controllers.reasons import write_reason
from dovetail.controllers.writing import about_claim, about_node, disrupt, warn, write_metadata
from dovetail.model.records import claim_record
from dovetail.observe.metrics import Metrics
from dovetail.ports import CloudProvider, Interruption
from dovetail.rules.deadlines import node_deadline
from dovetail.runtime.manager import Context
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.values.timestamp import format_time


class Interruptions(Keyed[str]):
    """Keys are names of Nodes that a notice was given for."""

    name = "node.interruption"

    def __init__(self, cluster: Cluster, provider: CloudProvider, metrics: Metrics) -> None:
        super().__init__()
        self._cluster = cluster
        self._provider = provider
        self._metrics = metrics
        self._notices: dict[str, Interruption] = {}
        self.follow(cluster.nodes, lambda node: [node.metadata.name] if node.metadata.name in self._notices else [])

    def keys(self) -> Iterable[str]:
        return list(self._notices)

    async def run(self, context: Context) -> None:
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(), name="interruption notices")
            await super().run(context)
            listening.cancel()

    async def _listen(self) -> None:
        async for notice in self._provider.interruptions():
            self._notices[notice.node] = notice
            self.add(notice.node)

    async def reconcile(self, key: str) -> Outcome:
        notice, node = self._notices.get(key), self._cluster.nodes.current(key)
        claim = None if node is None else self._cluster.claim_of(node)
        if notice is None or node is None or claim is None:
            return Done()  # a node that is yet to come brings us back
        claim = self._cluster.claims.current(claim.metadata.name)
        if claim is None or not self._cluster.manages(claim.spec.node_class_ref):
            return Done()
        deadline = self._deadline(claim, notice)
        if deadline is not None:
            annotations = {names.TERMINATION_TIMESTAMP: format_time(deadline.replace(microsecond=0))}
            claim = await write_metadata(self.api, self._cluster, claim, {"annotations": annotations})
        if claim.metadata.deletion_timestamp is None:
            claim = await write_reason(self.api, self._cluster, claim, Reason.INTERRUPTED, self.clock.now())
            by = f", by {format_time(notice.deadline)}" if notice.deadline is not None else ""
            why = f"{notice.kind}: the provider takes node {key} away{by}"
            await disrupt(self.api, self._cluster, self._metrics, claim, reason=Reason.INTERRUPTED.lower(), why=why)
            for about in (about_node(node), about_claim(claim)):
                warn(self.recorder, about, EventReason.DISRUPTION_TERMINATING, f"Disrupting {about.kind}: {why}")
        self._provider.dealt_with(notice)
        if self._notices.get(key) is notice:  # and not one that came meanwhile
            del self._notices[key]
        return Done()

    def _deadline(self, claim: objects.NodeClaim, notice: Interruption) -> datetime | None:
        """The notice's deadline, if that is earlier than the one there is or would be; None: leave it as it is."""
        if notice.deadline is None:
            return None
        record = claim_record(claim)
        # As if it were deleted now: what is written on it already will stand then (03 §10.10).
        known = node_deadline(msgspec.structs.replace(record, deleted_at=record.deleted_at or self.clock.now()))
        return notice.deadline if known is None or notice.deadline < known else None
