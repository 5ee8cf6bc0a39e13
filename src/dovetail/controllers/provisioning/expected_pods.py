"""Reserves starting nodes for the pods that they were created for.

A pod stays pending until its node is up. Planning it again in each pass would create more nodes: the starting nodes
would be filled in another order than planned, and some pod would not fit.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from dovetail.api.names import ConditionType
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.node_records import claim_record
from dovetail.scheduling.daemons import Daemon, node_reserve
from dovetail.scheduling.host_ports import NO_PORTS
from dovetail.scheduling.placement import BoundPod, NodeInfo, PodInfo, TopologyRuleKind, rank
from dovetail.scheduling.resources import Resources
from dovetail.state.schedulable_nodes import SchedulableNode
from dovetail.state.scheduling import SchedulingState


class ExpectedNodes(msgspec.Struct, frozen=True):
    """The nodes with their expected pods, by claim the nodes that expect pods as they are, and these pods' UIDs."""

    nodes: tuple[NodeInfo, ...]
    starting: Mapping[str, NodeInfo]
    pods: frozenset[str]


class ExpectedPods:
    """A node is reserved until it is up, and for `kept_for` after that. Then its pods are planned again."""

    def __init__(
        self, cluster: WatchedCluster, state: SchedulingState, *, target: Callable[[str], str], kept_for: timedelta
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._target = target  # by pod UID: the claim that it was sent to
        self._kept_for = kept_for

    def of(
        self, pods: Iterable[PodInfo], nodes: tuple[NodeInfo, ...], daemons: Sequence[Daemon], now: datetime
    ) -> ExpectedNodes:
        """Assigns the pods to their starting nodes, as far as these still have room."""
        sent: dict[str, list[PodInfo]] = defaultdict(list)
        for pod in pods:
            if claim := self._target(pod.uid):
                sent[claim].append(pod)
        starting: dict[str, NodeInfo] = {}
        with_them: dict[str, NodeInfo] = {}
        expected: set[str] = set()
        for claim, claim_pods in sent.items():
            place = self._coming(claim, now)
            if place is not None and (fitting := _fitting(claim_pods, _free(place.seen, daemons))):
                starting[claim] = place.seen
                with_them[place.seen.name] = _with(place.seen, fitting)
                expected.update(pod.uid for pod in fitting)
        if not expected:
            return ExpectedNodes(nodes, {}, frozenset())
        changed = (with_them.get(node.name) or _without(node, expected) for node in nodes)
        return ExpectedNodes(tuple(changed), starting, frozenset(expected))

    def _coming(self, claim: str, now: datetime) -> SchedulableNode | None:
        """The node of the claim, if it is starting or has only just started."""
        claim_object = self._cluster.claims.value(claim)
        if claim_object is None or not claim_object.status.provider_id:
            return None
        up_at = claim_record(claim_object).true_since(ConditionType.INITIALIZED)
        if up_at is not None and now - up_at >= self._kept_for:
            return None
        for name in (claim, *self._cluster.node_names(claim_object)):  # its name depends on its progress
            place = self._state.place(name)
            if place is not None and place.claim is claim_object:
                return place if place.seen.open else None
        return None


def _free(node: NodeInfo, daemons: Sequence[Daemon]) -> Resources:
    reserve = node_reserve(daemons, node.requirements(), node.taints, node.requested_by_daemons)
    return node.allocatable - node.requested - reserve


def _fitting(pods: Iterable[PodInfo], free: Resources) -> list[PodInfo]:
    """The pods that fit, largest first."""
    fitting = []
    for pod in sorted(pods, key=rank):
        if pod.request.fits(free):
            fitting.append(pod)
            free -= pod.request
    return fitting


def _with(node: NodeInfo, pods: Sequence[PodInfo]) -> NodeInfo:
    """The node with these pods bound to it."""
    return msgspec.structs.replace(
        node,
        requested=sum((pod.request for pod in pods), node.requested),
        ports=NO_PORTS.union(node.ports, *(pod.ports for pod in pods)),
        attachments=node.attachments.union(*(pod.volumes.attachments for pod in pods)),
        pods=(*node.pods, *map(_bound, pods)),
    )


def _bound(pod: PodInfo) -> BoundPod:
    apart = tuple(rule.inverse() for rule in pod.rules if rule.kind is TopologyRuleKind.APART)
    return BoundPod(uid=pod.uid, namespace=pod.namespace, labels=pod.labels, apart=apart)


def _without(node: NodeInfo, uids: set[str]) -> NodeInfo:
    """A disrupted node without the pods that are expected elsewhere."""
    if node.open or uids.isdisjoint(pod.uid for pod in node.pods):
        return node
    return msgspec.structs.replace(node, pods=tuple(pod for pod in node.pods if pod.uid not in uids))
