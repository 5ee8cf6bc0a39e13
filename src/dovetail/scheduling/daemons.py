"""The resources and ports that daemons take on a node (05 §8)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.api.pod_specs import SchedulingPod
from dovetail.scheduling.host_ports import NO_PORTS, HostPorts, host_ports
from dovetail.scheduling.node_affinity import read_node_affinity
from dovetail.scheduling.requirements import Requirements, of_labels
from dovetail.scheduling.resources import NOTHING, Resources, pod_request, total
from dovetail.scheduling.taints import SOFT_TAINTS_TOLERATED, Taints, Tolerations, untolerated

# Labels that every new node gets sooner or later.
_COMING: Final = of_labels({names.REGISTERED_LABEL: "true", names.INITIALIZED_LABEL: "true"})
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Daemon(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What the pods of a DaemonSet need. PreferNoSchedule taints never keep a daemon away."""

    name: str
    alternatives: tuple[Requirements, ...]
    tolerations: Tolerations
    request: Resources
    ports: HostPorts = NO_PORTS

    def tolerates(self, taints: Taints) -> bool:
        return untolerated(self.tolerations, taints) is None

    def runs_on(self, labels: Requirements, taints: Taints) -> bool:
        return self.tolerates(taints) and any(map(labels.compatible, self.alternatives))


def read_daemon(name: str, template: SchedulingPod, pods: Iterable[SchedulingPod]) -> Daemon:
    """Read a DaemonSet from its template and its pods. Raises RequirementError and ResourceError."""
    pod = representative(template, pods)
    return Daemon(
        name=name,
        alternatives=read_node_affinity(pod.spec, preferences=False).alternatives(),
        tolerations=frozenset((*pod.spec.tolerations, SOFT_TAINTS_TOLERATED)),
        request=pod_request(pod),
        ports=host_ports(pod.spec),
    )


def representative(template: SchedulingPod, pods: Iterable[SchedulingPod]) -> SchedulingPod:
    """The newest pod, which shows what admission did to the template; without pods, the template.

    Each pod asks for its node by name, so the node affinity of the template counts if it has one.
    """
    newest = max(pods, key=_age_key, default=template)
    asked = template.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    if asked is None or newest is template:
        return newest
    replace, affinity = msgspec.structs.replace, newest.spec.affinity
    nodes = replace(affinity.node_affinity, required_during_scheduling_ignored_during_execution=asked)
    return replace(newest, spec=replace(newest.spec, affinity=replace(affinity, node_affinity=nodes)))


def _age_key(pod: SchedulingPod) -> tuple[datetime, str]:
    return (pod.metadata.creation_timestamp or _LONG_AGO, pod.metadata.uid)


def node_reserve(daemons: Iterable[Daemon], labels: Requirements, taints: Taints, bound: Resources) -> Resources:
    """The room to reserve on a node for daemons that are not there yet; `bound` is what the others request.

    An unexpected daemon on the node takes nothing from the others: the reserve is never negative.
    """
    expected = total(daemon.request for daemon in daemons if daemon.runs_on(labels, taints))
    return (expected - bound) | NOTHING


class DaemonGroup(msgspec.Struct, frozen=True):
    """The instance types of one NodePool that get the same daemons."""

    daemons: tuple[Daemon, ...]
    types: tuple[str, ...]
    overhead: Resources
    ports: HostPorts


def daemon_groups(
    daemons: Sequence[Daemon],
    *,
    template: Requirements,
    taints: Taints,
    types: Mapping[str, Requirements],
    allow_undefined: frozenset[str] = names.WELL_KNOWN_LABELS,
) -> list[DaemonGroup]:
    """Groups the types, in their order. `template` and `taints` are those of the NodePool's nodes."""
    node = template & _COMING
    possible = [
        (daemon, [alternative for alternative in daemon.alternatives if node.compatible(alternative, allow_undefined)])
        for daemon in daemons
        if daemon.tolerates(taints)
    ]
    types_by_daemons: dict[tuple[Daemon, ...], list[str]] = {}
    for name, requirements in types.items():
        running = tuple(daemon for daemon, ways in possible if any(map(requirements.intersects, ways)))
        types_by_daemons.setdefault(running, []).append(name)
    return [
        DaemonGroup(
            daemons=running,
            types=tuple(of_type),
            overhead=total(daemon.request for daemon in running),
            ports=NO_PORTS.union(*(daemon.ports for daemon in running)),
        )
        for running, of_type in types_by_daemons.items()
    ]


def least_overhead(groups: Iterable[DaemonGroup]) -> Resources:
    """The least that daemons take on any type of the groups (05 §8.4)."""
    overheads = [group.overhead for group in groups]
    return reduce(and_, overheads) if overheads else NOTHING
