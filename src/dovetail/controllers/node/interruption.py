"""The provider is going to take a node away: S1 to S4 at once, by the deadline it gives (R41)."""

import asyncio
from collections.abc import Iterable
from datetime import datetime

import msgspec

from dovetail.api import objects
from dovetail.api.names import EventReason, Reason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.base.writing import about_claim, about_node, bound_drain, disrupt, warn, write_reason
from dovetail.observe.metrics import Metrics
from dovetail.ports import CloudProvider, Interruption
from dovetail.runtime.manager import Context
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.values.timestamp import format_time


class _InterruptionNotice(msgspec.Struct, frozen=True):
    """The latest notice for a node, and the earliest deadline of all since one was dealt with."""

    notice: Interruption
    deadline: datetime | None


class Interruptions(KeyedController[str]):
    """Keys are names of Nodes that a notice was given for."""

    name = "node.interruption"

    def __init__(self, cluster: WatchedCluster, provider: CloudProvider, metrics: Metrics) -> None:
        super().__init__()
        self._cluster = cluster
        self._provider = provider
        self._metrics = metrics
        self._told: dict[str, _InterruptionNotice] = {}  # by name of the Node
        self.follow(cluster.nodes, lambda node: [node.metadata.name] if node.metadata.name in self._told else [])
        self.follow(cluster.claims, self._nodes_of)

    def keys(self) -> Iterable[str]:
        return list(self._told)

    def _nodes_of(self, claim: objects.NodeClaim) -> list[str]:
        if not self._told:
            return []
        return [node.metadata.name for node in self._cluster.nodes_of(claim) if node.metadata.name in self._told]

    async def run(self, context: Context) -> None:
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(), name="interruption notices")
            await super().run(context)
            listening.cancel()

    async def _listen(self) -> None:
        async for notice in self._provider.interruptions():
            known = self._told.get(notice.node)
            deadlines = [each.deadline for each in (notice, known) if each is not None and each.deadline is not None]
            self._told[notice.node] = _InterruptionNotice(notice, min(deadlines, default=None))
            self.add(notice.node)

    async def reconcile(self, key: str) -> Outcome:
        told, node = self._told.get(key), self._cluster.nodes.current(key)
        claim = None if node is None else self._cluster.claim_of(node)
        if told is None or node is None or claim is None:
            return Done()  # a node that is yet to come brings us back
        claim = self._cluster.claims.current(claim.metadata.name)
        if claim is None or not self._cluster.manages(claim.spec.node_class_ref):
            return Done()
        if claim.metadata.deletion_timestamp is None:
            await self._delete(node, claim, told.notice)
            return Done()  # once it is being deleted, we are back for the deadline
        if told.deadline is not None:
            await bound_drain(self.api, self._cluster, claim, told.deadline)
        self._provider.dealt_with(told.notice)
        if self._told.get(key) is told:  # and not one that came meanwhile
            del self._told[key]
        return Done()

    async def _delete(self, node: objects.Node, claim: objects.NodeClaim, notice: Interruption) -> None:
        claim = await write_reason(self.api, self._cluster, claim, Reason.INTERRUPTED, self.clock.now())
        by = f", by {format_time(notice.deadline)}" if notice.deadline is not None else ""
        why = f"{notice.kind}: the provider takes node {node.metadata.name} away{by}"
        await disrupt(self.api, self._cluster, self._metrics, claim, reason=Reason.INTERRUPTED.lower(), why=why)
        for about in (about_node(node), about_claim(claim)):
            warn(self.recorder, about, EventReason.DISRUPTION_TERMINATING, f"Disrupting {about.kind}: {why}")
