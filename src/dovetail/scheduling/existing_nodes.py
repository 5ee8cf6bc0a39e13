"""Existing nodes: checks whether a pod fits, and keeps track of the room (05 §9)."""

from collections.abc import Iterable

from dovetail.scheduling.no_place import Lack
from dovetail.scheduling.placement import NodeInfo, PodInfo, TopologyRule
from dovetail.scheduling.refusals import Refusal, check_ports, check_taints
from dovetail.scheduling.relaxation import RelaxedRequest
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.resources import Resources
from dovetail.scheduling.topology import Topology
from dovetail.scheduling.volumes import over_limit


def nodes_in_order(nodes: Iterable[NodeInfo]) -> list[NodeInfo]:
    """The open nodes, in the order in which they are tried."""
    return sorted((node for node in nodes if node.open), key=lambda node: (not node.initialized, node.name))


class ExistingNode:
    """A node and its free room."""

    def __init__(self, node: NodeInfo, labels: Requirements, free: Resources) -> None:
        self.node = node
        self.labels = labels
        self.free = free
        self.ports = node.ports
        self.attachments = node.attachments
        self.placed: list[PodInfo] = []

    def take(self, wish: RelaxedRequest, topology: Topology) -> None:
        """Place the pod. Raises Refusal."""
        self.check(wish, topology)
        pod = wish.pod
        self.free -= pod.request
        self.ports |= pod.ports
        self.attachments |= pod.volumes.attachments
        self.placed.append(pod)
        topology.record(pod, self.labels, self.node.taints, there=True)

    def check(self, wish: RelaxedRequest, topology: Topology) -> None:
        """Raises Refusal. The labels of an existing node are fixed: no rule can narrow them."""
        pod = wish.pod
        check_taints(wish, self.node.taints)
        if driver := over_limit(pod.volumes.attachments, self.attachments, self.node.attach_limits):
            raise Refusal(f"volumes of {driver} are at their limit", Lack.VOLUMES)
        check_ports(pod.ports, self.ports)
        if short := pod.request.lacking(self.free):
            raise Refusal(f"too little {short}", Lack.ROOM)
        if unmet := self.labels.incompatibility(wish.full):
            raise Refusal(unmet, Lack.REQUIREMENTS)
        if not any(map(self.labels.compatible, pod.volumes.alternatives)):
            raise Refusal("its volumes cannot be used here", Lack.VOLUMES)
        narrowed = topology.narrowed(pod, wish.rules, wish.strict, self.labels)
        if isinstance(narrowed, TopologyRule):
            raise Refusal(f"{narrowed} does not allow it", Lack.PODS)
