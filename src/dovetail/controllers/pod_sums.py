"""How much do the pods of each node request, and how much may they use at most?

Pods that are alike share what scheduling reads of them, so each kind of pod is summed up once, and a change of a pod
costs a few additions.
"""

from collections import defaultdict
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from dovetail.api.pod_specs import Container, ContainerResources, SchedulingPod, SchedulingPodSpec
from dovetail.controllers.cluster import Cluster
from dovetail.model.records import Owner, PodRecord, Scheduling
from dovetail.runtime.reflector import Added, Change, Deleted, Updated
from dovetail.scheduling.resources import NOTHING, ONE_POD, ResourceError, Resources, pod_request


class Amounts(NamedTuple):
    """Of one pod."""

    requests: Resources = NOTHING
    limits: Resources = NOTHING


class NodeSums:
    """Of all pods of a node that have not ended: thousandths of a cpu, bytes, units. Each change is a new version."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.limits: dict[str, int] = {}
        self.daemon_requests: dict[str, int] = {}
        self.daemon_limits: dict[str, int] = {}
        self.pods = 0
        self.version = 0

    def count(self, amounts: Amounts, step: int, *, daemon: bool) -> None:
        """Add a pod (1), or take one off (-1)."""
        self.pods += step
        self.version += 1
        _add(self.requests, amounts.requests, step)
        _add(self.limits, amounts.limits, step)
        if daemon:
            _add(self.daemon_requests, amounts.requests, step)
            _add(self.daemon_limits, amounts.limits, step)


def _add(sums: dict[str, int], amounts: Resources, step: int) -> None:
    for name, amount in amounts.items():
        left = sums.get(name, 0) + step * amount
        if left:
            sums[name] = left
        else:
            sums.pop(name, None)


class PodSums:
    """The sums of every node that has pods. Make it before the caches run."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes: defaultdict[str, NodeSums] = defaultdict(NodeSums)
        self._known: WeakKeyDictionary[Scheduling, Amounts] = WeakKeyDictionary()
        cluster.pods.subscribe(self._follow)

    def of(self, node: str) -> NodeSums | None:
        """None if nothing is there."""
        return self._nodes.get(node)

    def _follow(self, change: Change[PodRecord]) -> None:
        match change:
            case Added(new=new):
                self._count(new.value, 1)
            case Updated(old=old, new=new):
                if _place(old.value) != _place(new.value):
                    self._count(old.value, -1)
                    self._count(new.value, 1)
            case Deleted(old=old):
                self._count(old.value, -1)

    def _count(self, pod: PodRecord, step: int) -> None:
        if not pod.node_name or pod.terminal or pod.scheduling is None:
            return
        sums = self._nodes[pod.node_name]
        sums.count(self._amounts(pod.scheduling), step, daemon=bool(pod.owner & Owner.DAEMONSET))
        if not sums.pods:
            del self._nodes[pod.node_name]

    def _amounts(self, scheduling: Scheduling) -> Amounts:
        known = self._known.get(scheduling)
        if known is None:
            known = self._known[scheduling] = amounts_of(scheduling)
        return known


def _place(pod: PodRecord) -> tuple[str, bool, int]:
    """What decides where, whether and how much it counts."""
    return pod.node_name, pod.terminal, id(pod.scheduling)


def amounts_of(scheduling: Scheduling) -> Amounts:
    """What cannot be read counts as nothing here: whoever places the pod says so."""
    try:
        requests = pod_request(SchedulingPod(spec=scheduling.spec, status=scheduling.status))
        limits = pod_request(SchedulingPod(spec=_limits_as_requests(scheduling.spec)))
    except ResourceError:
        return Amounts()
    return Amounts(requests, limits - ONE_POD)


def _limits_as_requests(spec: SchedulingPodSpec) -> SchedulingPodSpec:
    """They add up by the same rules, but for the overhead, which nobody limits."""
    return msgspec.structs.replace(
        spec,
        containers=tuple(map(_limited, spec.containers)),
        init_containers=tuple(map(_limited, spec.init_containers)),
        resources=ContainerResources(requests=spec.resources.limits),
        overhead={},
    )


def _limited(container: Container) -> Container:
    return msgspec.structs.replace(container, resources=ContainerResources(requests=container.resources.limits))
