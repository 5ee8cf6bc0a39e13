"""Which pods wait for a node that is made for them already, and what do the nodes look like with them?

Until its node is up a pod asks for a place again and again. To look for one anew each time would end with more nodes:
the nodes that are coming would be filled in another order than they were planned in, and somebody would be left over.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from dovetail.api.names import ConditionType
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.records import claim_record
from dovetail.scheduling.daemons import Daemon, node_reserve
from dovetail.scheduling.host_ports import NO_PORTS
from dovetail.scheduling.placement import BoundPod, NodeInfo, PodInfo, TopologyRuleKind, rank
from dovetail.scheduling.resources import Resources
from dovetail.state.schedulable_nodes import SchedulableNode
from dovetail.state.scheduling import SchedulingState


class ExpectedNodes(msgspec.Struct, frozen=True):
    """Nodes as they will be, the names of those on which pods are expected, and the UIDs of these pods."""

    nodes: tuple[NodeInfo, ...]
    names: frozenset[str]
    pods: frozenset[str]


class ExpectedPods:
    """A node keeps its place for a pod until it is up, and for so long after that; then whoever still waits is free."""

    def __init__(
        self, cluster: WatchedCluster, state: SchedulingState, *, target: Callable[[str], str], kept_for: timedelta
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._target = target  # of a pod's UID: the name of the claim that it was sent to
        self._kept_for = kept_for

    def of(
        self, pods: Iterable[PodInfo], nodes: tuple[NodeInfo, ...], daemons: Sequence[Daemon], now: datetime
    ) -> ExpectedNodes:
        """Of the pods that ask for a place. What others have taken of a node is no longer there for them."""
        sent: dict[str, list[PodInfo]] = defaultdict(list)
        for pod in pods:
            if claim := self._target(pod.uid):
                sent[claim].append(pod)
        with_them: dict[str, NodeInfo] = {}
        expected: set[str] = set()
        for claim, its in sent.items():
            place = self._coming(claim, now)
            if place is not None and (fitting := _fitting(its, _free(place.seen, daemons))):
                with_them[place.seen.name] = _with(place.seen, fitting)
                expected.update(pod.uid for pod in fitting)
        if not expected:
            return ExpectedNodes(nodes, frozenset(), frozenset())
        made = (with_them.get(node.name) or _without(node, expected) for node in nodes)
        return ExpectedNodes(tuple(made), frozenset(with_them), frozenset(expected))

    def _coming(self, claim: str, now: datetime) -> SchedulableNode | None:
        """The node of the claim, if it is not up yet or has only just come up."""
        kept = self._cluster.claims.get(("", claim))
        if kept is None or not kept.value.status.provider_id:
            return None
        up_at = claim_record(kept.value).true_since(ConditionType.INITIALIZED)
        if up_at is not None and now - up_at >= self._kept_for:
            return None
        nodes = self._cluster.nodes_with[kept.value.status.provider_id]
        for name in (claim, *(node.metadata.name for node in nodes)):  # by which of the two it goes
            place = self._state.place(name)
            if place is not None and place.claim is kept.value:
                return place if place.seen.open else None
        return None


def _free(node: NodeInfo, daemons: Sequence[Daemon]) -> Resources:
    reserve = node_reserve(daemons, node.requirements(), node.taints, node.requested_by_daemons)
    return node.allocatable - node.requested - reserve


def _fitting(pods: Iterable[PodInfo], free: Resources) -> list[PodInfo]:
    """As many as there is room for, the largest first."""
    found = []
    for pod in sorted(pods, key=rank):
        if pod.request.fits(free):
            found.append(pod)
            free -= pod.request
    return found


def _with(node: NodeInfo, pods: Sequence[PodInfo]) -> NodeInfo:
    """As if they were there."""
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
    """A node that is going, without pods that are expected elsewhere: they are not in two places."""
    if node.open or uids.isdisjoint(pod.uid for pod in node.pods):
        return node
    return msgspec.structs.replace(node, pods=tuple(pod for pod in node.pods if pod.uid not in uids))
