"""How much do the pods of a node request, and how much may they use at most?

Pods that are alike share what scheduling reads of them, so each kind of pod is summed up once.
"""

from collections.abc import Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from dovetail.api.pod_specs import Container, ContainerResources, SchedulingPod, SchedulingPodSpec
from dovetail.model.records import Owner, PodRecord, PodScheduling
from dovetail.scheduling.resources import NOTHING, ONE_POD, ResourceError, Resources, pod_request


class PodAmounts(NamedTuple):
    """Of one pod."""

    requests: Resources = NOTHING
    limits: Resources = NOTHING


class NodeSums(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Of all pods of a node that have not ended: thousandths of a cpu, bytes, units."""

    requests: dict[str, int]
    limits: dict[str, int]
    daemon_requests: dict[str, int]
    daemon_limits: dict[str, int]


class PodSums:
    """Adds up pods, and keeps what each kind of pod asks for. Used by one thread at a time."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[PodScheduling, PodAmounts] = WeakKeyDictionary()

    def of(self, pods: Iterable[PodRecord]) -> NodeSums | None:
        """None if no pod counts."""
        sums = NodeSums({}, {}, {}, {})
        counted = False
        for pod in pods:
            if pod.terminal or pod.scheduling is None:
                continue
            counted, amounts = True, self._amounts(pod.scheduling)
            _add(sums.requests, amounts.requests)
            _add(sums.limits, amounts.limits)
            if pod.owner & Owner.DAEMONSET:
                _add(sums.daemon_requests, amounts.requests)
                _add(sums.daemon_limits, amounts.limits)
        return sums if counted else None

    def _amounts(self, scheduling: PodScheduling) -> PodAmounts:
        known = self._known.get(scheduling)
        if known is None:
            known = self._known[scheduling] = amounts_of(scheduling)
        return known


def _add(sums: dict[str, int], amounts: Resources) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + amount


def amounts_of(scheduling: PodScheduling) -> PodAmounts:
    """What cannot be read counts as nothing here: whoever places the pod says so."""
    try:
        requests = pod_request(SchedulingPod(spec=scheduling.spec, status=scheduling.status))
        limits = pod_request(SchedulingPod(spec=_limits_as_requests(scheduling.spec)))
    except ResourceError:
        return PodAmounts()
    return PodAmounts(requests, limits - ONE_POD)


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
