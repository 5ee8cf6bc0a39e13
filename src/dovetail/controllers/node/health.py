"""Deletes the NodeClaims of nodes that have been unhealthy for too long (R24a, R47).

The node is drained. The claim's terminationGracePeriod and the repair policy bound the drain.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, EventReason, Reason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController, own_name, seconds_until
from dovetail.controllers.base.writing import (
    about_node,
    bound_drain,
    disrupt,
    publish,
    publish_disrupted,
    warn,
    write_reason,
)
from dovetail.observe.metrics import Metrics
from dovetail.planning.conditions import TRUE
from dovetail.planning.node.health import NodeFault, ailment, is_repaired, snake_case, too_many_unhealthy
from dovetail.planning.timings import Timings
from dovetail.ports import CloudProvider
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.values.timestamp import spoken_time

BLOCKED_DEDUPE_SECONDS: Final = 900.0


class _ObservedFault(msgspec.Struct, frozen=True):
    """A fault of a Node, and when this process first saw it."""

    uid: str
    condition: str
    since: datetime


class NodeHealth(KeyedController[str]):
    """The controller of node repair. Keys are names of Nodes."""

    name = "node.health"

    def __init__(self, cluster: WatchedCluster, provider: CloudProvider, metrics: Metrics, timings: Timings) -> None:
        super().__init__()
        self._cluster = cluster
        self._policies = provider.repair_policies()
        self._metrics = metrics
        self._timings = timings
        self._seen_for = timedelta(seconds=timings.fault_seen_seconds)
        self._seen: dict[str, _ObservedFault] = {}  # by name of the Node
        self.own(cluster.nodes, own_name)
        self.follow(cluster.claims, self._nodes_of_deleted)

    def _nodes_of_deleted(self, claim: objects.NodeClaim) -> list[str]:
        return [] if claim.metadata.deletion_timestamp is None else self._cluster.node_names(claim)

    async def reconcile(self, key: str) -> Outcome:
        node = self._cluster.nodes.get_consistent(key)
        ill = None if node is None or not self._cluster.manages_node(node) else ailment(node, self._policies)
        if node is None or ill is None:
            self._seen.pop(key, None)
            return Done()
        now = self.clock.now()
        act_at = max(ill.replace_at, self._seen_since(node, ill, now) + self._seen_for)
        claim = self._cluster.consistent_claim_of(node)
        if claim is None:
            return Done()
        if claim.metadata.deletion_timestamp is not None:
            await self._bound(claim, ill)
            return Done()
        if now < act_at:
            return Done(seconds_until(act_at, now))
        if not is_repaired(node):
            note, reason = f"not replaced: the Node is annotated {names.DO_NOT_REPAIR}", EventReason.NODE_REPAIR_BLOCKED
            publish(self.recorder, about_node(node), reason, note, dedupe_seconds=BLOCKED_DEDUPE_SECONDS)
            return Done()
        blocked = too_many_unhealthy(self._peers(node), self._policies)
        if blocked is not None:
            note, reason = f"not replaced: {blocked}", EventReason.NODE_REPAIR_BLOCKED
            warn(self.recorder, about_node(node), reason, note, dedupe_seconds=BLOCKED_DEDUPE_SECONDS)
            return Done(self._timings.repair_blocked_seconds)
        since = next(
            condition.last_transition_time for condition in node.status.conditions if condition.type == ill.condition
        )
        unhealthy = "NotReady" if ill.condition == "Ready" else f"unhealthy ({ill.condition})"
        why = f"Node {key} has been {unhealthy} since {'' if since is None else spoken_time(since)}"
        claim = await write_reason(self.api, self._cluster, claim, Reason.UNHEALTHY, now)
        await disrupt(self.api, self._cluster, self._metrics, claim, reason=Reason.UNHEALTHY.lower(), why=why)
        publish_disrupted(self.recorder, self._cluster, claim, Reason.UNHEALTHY, why)
        self._metrics.nodeclaims_unhealthy_disrupted.labels(
            snake_case(ill.condition),
            claim.metadata.pool,
            claim.metadata.labels.get(names.CAPACITY_TYPE_LABEL, ""),
            claim.status.image_id,
        ).inc()
        return Done()

    def _seen_since(self, node: objects.Node, ill: NodeFault, now: datetime) -> datetime:
        """When this process first saw the fault. What an earlier process saw is unknown."""
        name, fault = node.metadata.name, (node.metadata.uid, ill.condition)
        seen = self._seen.get(name)
        if seen is None or (seen.uid, seen.condition) != fault:
            seen = self._seen[name] = _ObservedFault(*fault, now)
        return seen.since

    async def _bound(self, claim: objects.NodeClaim, ill: NodeFault) -> None:
        """Applies the drain limit of the policy, if the claim is deleted for repair."""
        deleted_at, seconds = claim.metadata.deletion_timestamp, ill.drain_seconds
        repaired = any(
            (condition.type, condition.status, condition.reason)
            == (ConditionType.DISRUPTION_REASON, TRUE, Reason.UNHEALTHY)
            for condition in claim.status.conditions
        )
        if repaired and deleted_at is not None and seconds is not None:
            await bound_drain(self.api, self._cluster, claim, deleted_at + timedelta(seconds=seconds))

    def _peers(self, node: objects.Node) -> list[objects.Node]:
        """The nodes of the same pool. For a node without a pool: all nodes of ours."""
        pool = node.metadata.pool
        return [
            peer
            for peer in self._cluster.nodes.values()
            if self._cluster.manages_node(peer) and (not pool or peer.metadata.pool == pool)
        ]
