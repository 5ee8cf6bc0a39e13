"""Deletes the NodeClaims of nodes that the provider is about to interrupt, with the deadline it gives (R41)."""

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
from dovetail.values.timestamp import spoken_time


class _InterruptionNotice(msgspec.Struct, frozen=True):
    """The latest notice for a node, and the earliest deadline of all notices that are not handled yet."""

    notice: Interruption
    deadline: datetime | None


class Interruptions(KeyedController[str]):
    """The controller of interruptions. Keys are provider IDs of machines with a notice."""

    name = "node.interruption"

    def __init__(self, cluster: WatchedCluster, provider: CloudProvider, metrics: Metrics) -> None:
        super().__init__()
        self._cluster = cluster
        self._provider = provider
        self._metrics = metrics
        self._notices: dict[str, _InterruptionNotice] = {}  # by provider ID
        self.follow(cluster.nodes, lambda node: self._noticed(node.spec.provider_id))
        self.follow(cluster.claims, lambda claim: self._noticed(claim.status.provider_id))

    def keys(self) -> Iterable[str]:
        return list(self._notices)

    def _noticed(self, provider_id: str) -> list[str]:
        return [provider_id] if provider_id in self._notices else []

    async def run(self, context: Context) -> None:
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(), name="interruption notices")
            await super().run(context)
            listening.cancel()

    async def _listen(self) -> None:
        async for notice in self._provider.interruptions():
            earlier = self._notices.get(notice.provider_id)
            deadlines = [each.deadline for each in (notice, earlier) if each is not None and each.deadline is not None]
            self._notices[notice.provider_id] = _InterruptionNotice(notice, min(deadlines, default=None))
            self.add(notice.provider_id)

    async def reconcile(self, key: str) -> Outcome:
        pending, node = self._notices.get(key), self._node_with(key)
        claim = None if node is None else self._cluster.consistent_claim_of(node)
        if pending is None or node is None or claim is None or not self._cluster.manages_claim(claim):
            return Done()  # if the Node appears later, its watch event adds the key
        if not pending.notice.act:
            self._warn(node, claim, f"{pending.notice.kind}: the provider may take node {node.metadata.name} away")
            self._end(key, pending)
            return Done()
        if claim.metadata.deletion_timestamp is None:
            await self._delete(node, claim, pending.notice)
            return Done()  # the watch event of the deletion adds the key; the deadline is recorded then
        deadline = self.clock.now() if pending.notice.force and pending.deadline is None else pending.deadline
        if deadline is not None:
            await bound_drain(self.api, self._cluster, claim, deadline)
        self._end(key, pending)
        return Done()

    def _node_with(self, provider_id: str) -> objects.Node | None:
        """The Node of the machine; if several claim to be it, none."""
        nodes = self._cluster.nodes_with[provider_id]
        return self._cluster.nodes.get_consistent(nodes[0].metadata.name) if len(nodes) == 1 else None

    def _end(self, key: str, pending: _InterruptionNotice) -> None:
        self._provider.dealt_with(pending.notice)
        if self._notices.get(key) is pending:  # and no newer notice has arrived
            del self._notices[key]

    async def _delete(self, node: objects.Node, claim: objects.NodeClaim, notice: Interruption) -> None:
        claim = await write_reason(self.api, self._cluster, claim, Reason.INTERRUPTED, self.clock.now())
        by = f", by {spoken_time(notice.deadline)}" if notice.deadline is not None else ""
        why = f"{notice.kind}: the provider takes node {node.metadata.name} away{by}"
        await disrupt(self.api, self._cluster, self._metrics, claim, reason=Reason.INTERRUPTED.lower(), why=why)
        self._warn(node, claim, why)

    def _warn(self, node: objects.Node, claim: objects.NodeClaim, why: str) -> None:
        for about in (about_node(node), about_claim(claim)):
            warn(self.recorder, about, EventReason.DISRUPTION_TERMINATING, f"Disrupting {about.kind}: {why}")
