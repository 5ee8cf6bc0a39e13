"""Sums of the requests and limits of a node's pods. Each distinct spec is read once."""

from collections.abc import Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from dovetail.api.pod_specs import Container, ContainerResources, SchedulingPod, SchedulingPodSpec
from dovetail.model.pod_records import Owner, PodRecord, PodScheduling
from dovetail.scheduling.resources import NOTHING, ONE_POD, ResourceError, Resources, pod_request


class PodAmounts(NamedTuple):
    """Requests and limits of one pod."""

    requests: Resources = NOTHING
    limits: Resources = NOTHING


class NodeSums(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Sums over the running pods of a node: thousandths of a cpu, bytes, units."""

    requests: dict[str, int]
    limits: dict[str, int]
    daemon_requests: dict[str, int]
    daemon_limits: dict[str, int]


class PodSums:
    """Caches the amounts of each spec. Used by one thread at a time."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[PodScheduling, PodAmounts] = WeakKeyDictionary()

    def of(self, pods: Iterable[PodRecord]) -> NodeSums | None:
        """Returns None if no pod counts."""
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
        amounts = self._known.get(scheduling)
        if amounts is None:
            amounts = self._known[scheduling] = amounts_of(scheduling)
        return amounts


def _add(sums: dict[str, int], amounts: Resources) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + amount


def amounts_of(scheduling: PodScheduling) -> PodAmounts:
    """A spec that cannot be read counts as nothing. Scheduling reports it."""
    try:
        requests = pod_request(SchedulingPod(spec=scheduling.spec, status=scheduling.status))
        limits = pod_request(SchedulingPod(spec=_limits_as_requests(scheduling.spec)))
    except ResourceError:
        return PodAmounts()
    return PodAmounts(requests, limits - ONE_POD)


def _limits_as_requests(spec: SchedulingPodSpec) -> SchedulingPodSpec:
    """Limits add up by the same rules as requests, except for the overhead, which has no limit."""
    return msgspec.structs.replace(
        spec,
        containers=tuple(map(_limited, spec.containers)),
        init_containers=tuple(map(_limited, spec.init_containers)),
        resources=ContainerResources(requests=spec.resources.limits),
        overhead={},
    )


def _limited(container: Container) -> Container:
    return msgspec.structs.replace(container, resources=ContainerResources(requests=container.resources.limits))
