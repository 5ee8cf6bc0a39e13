"""Which kinds of objects do commands read of a cluster, and what remains unsaid without each?"""

from typing import Any, Final

import msgspec

from dovetail import ports
from dovetail.ports import Resource

RawKind = Resource[msgspec.Raw]


class ReadKind(msgspec.Struct, frozen=True):
    """A kind, as raw documents, and what is unknown where it cannot be read."""

    resource: RawKind
    without: str

    @property
    def right(self) -> str:
        """The rule of a ClusterRole by which it can be read."""
        resource = self.resource
        return f'{{apiGroups: ["{resource.group}"], resources: ["{resource.plural}"], verbs: ["get", "list", "watch"]}}'


def _kind(resource: Resource[Any], without: str) -> ReadKind:
    return ReadKind(resource.read_as(msgspec.Raw), without)


def _workload(group: str, plural: str, kind: str) -> ReadKind:
    resource = Resource(group, "v1", plural, kind, msgspec.Raw, namespaced=True)
    return ReadKind(resource, "who would replace pods that are evicted is unknown")


# What every rule is asked about: enough for `explain` and `forecast`.
RULE_KINDS: Final = (
    _kind(ports.NODEPOOLS, "budgets, and what pools allow, are unknown"),
    _kind(ports.NODECLAIMS, "when nodes expire, drift or must be gone is unknown"),
    _kind(ports.NODES, "there are no nodes to speak of"),
    _kind(ports.PDBS, "pods that a PodDisruptionBudget protects are told as if they were free"),
    _kind(ports.PODS, "nodes are told as if nothing ran on them"),
)

# Where pods could go, besides: `plan`.
PLACING_KINDS: Final = (
    _kind(ports.NAMESPACES, "affinities that select namespaces by label match none"),
    _kind(ports.DAEMONSETS, "what daemons will need on new nodes is unknown"),
    _kind(ports.VOLUME_CLAIMS, "where pods with volumes can go is unknown"),
    _kind(ports.VOLUMES, "where pods with volumes can go is unknown"),
    _kind(ports.STORAGE_CLASSES, "where new volumes can be had is unknown"),
    _kind(ports.CSI_NODES, "how many volumes fit on a node is unknown"),
    _kind(ports.KWOK_NODECLASSES, "whether node classes are ready is unknown"),
)

# Who makes pods anew: `simulate`.
WORKLOAD_KINDS: Final = (
    _workload("apps", "deployments", "Deployment"),
    _workload("apps", "replicasets", "ReplicaSet"),
    _workload("apps", "statefulsets", "StatefulSet"),
    _workload("batch", "jobs", "Job"),
    ReadKind(
        Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", msgspec.Raw),
        "which new pods go first is unknown",
    ),
)

ALL_KINDS: Final = (*RULE_KINDS, *PLACING_KINDS, *WORKLOAD_KINDS)
