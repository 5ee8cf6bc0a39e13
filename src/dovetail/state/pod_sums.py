"""How much do the pods of each node request, and how much may they use at most?

Pods that are alike share what scheduling reads of them, so each kind of pod is summed up once, and a change of a pod
costs a few additions.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from dovetail.api.pod_specs import Container, ContainerResources, SchedulingPod, SchedulingPodSpec
from dovetail.model.records import Owner, PodRecord, Scheduling
from dovetail.scheduling.resources import NOTHING, ONE_POD, ResourceError, Resources, pod_request
from dovetail.state.cluster import ClusterState
from dovetail.state.store import Added, Change, Deleted, Updated


class Amounts(NamedTuple):
    """Of one pod."""

    requests: Resources = NOTHING
    limits: Resources = NOTHING


class NodeSums(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Of all pods of a node that have not ended: thousandths of a cpu, bytes, units. Each change makes another one."""

    requests: Mapping[str, int] = {}
    limits: Mapping[str, int] = {}
    daemon_requests: Mapping[str, int] = {}
    daemon_limits: Mapping[str, int] = {}
    pods: int = 0

    def counted(self, amounts: Amounts, step: int, *, daemon: bool) -> "NodeSums":
        """With a pod more (1), or one less (-1)."""
        requests, limits = amounts if daemon else Amounts()
        return NodeSums(
            _added(self.requests, amounts.requests, step),
            _added(self.limits, amounts.limits, step),
            _added(self.daemon_requests, requests, step),
            _added(self.daemon_limits, limits, step),
            self.pods + step,
        )


def _added(sums: Mapping[str, int], amounts: Resources, step: int) -> Mapping[str, int]:
    if not amounts:
        return sums
    found = dict(sums)
    for name, amount in amounts.items():
        left = found.get(name, 0) + step * amount
        if left:
            found[name] = left
        else:
            found.pop(name, None)
    return found


_NOTHING: Final = NodeSums()


class PodSums:
    """The sums of every node that has pods. Make it before changes are applied."""

    def __init__(self, cluster: ClusterState) -> None:
        self._nodes: dict[str, NodeSums] = {}
        self._known: WeakKeyDictionary[Scheduling, Amounts] = WeakKeyDictionary()
        cluster.pods.subscribe(self._follow)

    def now(self) -> Mapping[str, NodeSums]:
        """By node; later changes do not touch it."""
        return self._nodes.copy()

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
        before, daemon = self._nodes.get(pod.node_name, _NOTHING), bool(pod.owner & Owner.DAEMONSET)
        sums = self._nodes[pod.node_name] = before.counted(self._amounts(pod.scheduling), step, daemon=daemon)
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
