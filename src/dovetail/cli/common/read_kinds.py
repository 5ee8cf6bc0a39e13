"""The kinds that commands read from a cluster, and what is unknown without each."""

from collections.abc import Container
from typing import Any, Final

import msgspec

from dovetail import ports
from dovetail.ports import Resource
from dovetail.scheduling.default_spread import SchedulerProfiles

RawKind = Resource[msgspec.Raw]


class ReadKind(msgspec.Struct, frozen=True):
    """A kind, as raw documents, and what is unknown if it cannot be read."""

    resource: RawKind
    without: str

    @property
    def right(self) -> str:
        """The rule of a ClusterRole that allows to read it."""
        resource = self.resource
        return f'{{apiGroups: ["{resource.group}"], resources: ["{resource.plural}"], verbs: ["get", "list", "watch"]}}'


def _kind(resource: Resource[Any], without: str) -> ReadKind:
    return ReadKind(resource.read_as(msgspec.Raw), without)


def _workload(group: str, plural: str, kind: str) -> ReadKind:
    resource = Resource(group, "v1", plural, kind, msgspec.Raw, namespaced=True)
    return ReadKind(resource, "the owners that replace evicted pods are unknown")


# What rules read: enough for `explain` and `forecast`.
RULE_KINDS: Final = (
    _kind(ports.NODEPOOLS, "budgets and other settings of pools are unknown"),
    _kind(ports.NODECLAIMS, "when nodes expire, drift or must be gone is unknown"),
    _kind(ports.NODES, "there are no nodes in the answer"),
    _kind(ports.PDBS, "pods that a PodDisruptionBudget protects appear to be free"),
    _kind(ports.PODS, "nodes appear to be empty"),
)

# Where pods can go, for `plan`.
PLACING_KINDS: Final = (
    _kind(ports.NAMESPACES, "affinities that select namespaces by label match none"),
    _kind(ports.DAEMONSETS, "the requests of daemons on new nodes are unknown"),
    _kind(ports.VOLUME_CLAIMS, "where pods with volumes can go is unknown"),
    _kind(ports.VOLUMES, "where pods with volumes can go is unknown"),
    _kind(ports.STORAGE_CLASSES, "where new volumes can be created is unknown"),
    _kind(ports.CSI_NODES, "how many volumes fit on a node is unknown"),
    _kind(ports.KWOK_NODECLASSES, "whether node classes are ready is unknown"),
)

# Who replaces pods, for `simulate`.
WORKLOAD_KINDS: Final = (
    _workload("apps", "deployments", "Deployment"),
    _workload("apps", "replicasets", "ReplicaSet"),
    _workload("apps", "statefulsets", "StatefulSet"),
    _workload("batch", "jobs", "Job"),
    ReadKind(
        Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", msgspec.Raw),
        "the priorities of new pods are unknown",
    ),
)

_SERVICES: Final = _kind(ports.SERVICES, "default spread constraints of pods of a Service are unknown")

ALL_KINDS: Final = (*RULE_KINDS, *PLACING_KINDS, *WORKLOAD_KINDS, _SERVICES)


def workload_kinds(kinds: Container[str]) -> tuple[ReadKind, ...]:
    """Those of these kinds of workloads, which are in lower case."""
    return tuple(kind for kind in (*PLACING_KINDS, *WORKLOAD_KINDS) if kind.resource.kind.lower() in kinds)


def spread_kinds(profiles: SchedulerProfiles | None) -> tuple[ReadKind, ...]:
    """What default spread constraints select pods by, if the scheduler has any."""
    if profiles is None or not profiles.any_constraints:
        return ()
    owners = (kind for kind in WORKLOAD_KINDS if kind.resource.kind in ("ReplicaSet", "StatefulSet"))
    return (_SERVICES, *owners)
