"""What the API server knows of each kind: subresources, generations, merge keys and selectable fields.

A kind that is not in the table is a custom resource with a status subresource.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from dovetail.api import names
from dovetail.api.schema import Schema, crd_schema
from dovetail.ports import Resource

Body = dict[str, Any]  # an object as JSON has it

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", dict[str, Any])
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", dict[str, Any])
# Priority classes that every cluster has.
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
# The scheduler binds a pod to a node by creating one of these with the pod's name and `target.name`.
BINDINGS = Resource("", "v1", "bindings", "Binding", dict[str, Any], namespaced=True)

_COMMON_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_POD_FIELDS = _COMMON_FIELDS.union(
    ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork"),
    ("status.phase", "status.podIP", "status.nominatedNodeName"),
)
_EVENT_FIELDS = _COMMON_FIELDS.union(
    ("reason", "type", "reportingController"),
    ("regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid"),
)


class KindBehavior(msgspec.Struct, frozen=True):
    """How the server handles a kind."""

    custom: bool = False
    schema: Schema | None = None
    has_status: bool = False  # a status subresource
    creates_status: bool = False  # a create may set the status, as a kubelet that registers its Node does
    has_generation: bool = False
    has_scale: bool = False
    replicas_status: str = "replicas"  # the status field that the scale subresource shows
    orphans: bool = False  # deleting without a propagation policy leaves the dependents (batch/v1 Jobs)
    micro_times: tuple[tuple[str, ...], ...] = ()  # fields that must have six digits of a second
    selectable: frozenset[str] = _COMMON_FIELDS


_STATUS = KindBehavior(has_status=True)
_WORKLOAD = KindBehavior(has_status=True, has_generation=True)
_SCALED = KindBehavior(has_status=True, has_generation=True, has_scale=True)
_PLAIN = KindBehavior()

_BUILT_IN: Mapping[tuple[str, str], KindBehavior] = {
    ("", "pods"): KindBehavior(has_status=True, has_generation=True, selectable=_POD_FIELDS),
    ("", "nodes"): KindBehavior(
        has_status=True, creates_status=True, selectable=frozenset({"metadata.name", "spec.unschedulable"})
    ),
    ("", "namespaces"): KindBehavior(has_status=True, selectable=frozenset({"metadata.name", "status.phase"})),
    ("", "persistentvolumeclaims"): _STATUS,
    ("", "persistentvolumes"): _STATUS,
    ("", "services"): _STATUS,
    ("", "configmaps"): _PLAIN,
    ("", "serviceaccounts"): _PLAIN,
    ("", "events"): _PLAIN,
    ("events.k8s.io", "events"): KindBehavior(micro_times=(("eventTime",),), selectable=_EVENT_FIELDS),
    ("coordination.k8s.io", "leases"): KindBehavior(micro_times=(("spec", "acquireTime"), ("spec", "renewTime"))),
    ("policy", "poddisruptionbudgets"): _WORKLOAD,
    ("apps", "deployments"): _SCALED,
    ("apps", "replicasets"): _SCALED,
    ("apps", "statefulsets"): _SCALED,
    ("apps", "daemonsets"): _WORKLOAD,
    ("batch", "jobs"): KindBehavior(has_status=True, has_generation=True, orphans=True),
    ("storage.k8s.io", "storageclasses"): _PLAIN,
    ("storage.k8s.io", "csinodes"): _PLAIN,
    ("storage.k8s.io", "volumeattachments"): _STATUS,
    ("scheduling.k8s.io", "priorityclasses"): _PLAIN,
}


def kind_of(resource: Resource[Any]) -> KindBehavior:
    """How the server handles the kind of the resource."""
    return _kind(resource.group, resource.plural, resource.kind)


@lru_cache(maxsize=256)
def _kind(group: str, plural: str, kind: str) -> KindBehavior:
    built_in = _BUILT_IN.get((group, plural))
    if built_in is not None:
        return built_in
    ours = group in (names.GROUP, names.KWOK_GROUP)
    pool = ours and kind == names.NODEPOOL_KIND
    return KindBehavior(
        custom=True,
        schema=crd_schema(kind) if ours else None,
        has_status=True,
        has_generation=True,
        has_scale=pool,
        replicas_status="nodes" if pool else "replicas",
    )


# Lists that a strategic merge patch merges by this key, wherever they occur in a built-in kind; "" is a set of strings.
# It replaces all others as a whole: `taints` and `tolerations` have no patch strategy.
MERGE_KEYS: Mapping[str, str] = {
    **dict.fromkeys(("finalizers", "podCIDRs"), ""),
    **dict.fromkeys(("conditions", "addresses"), "type"),
    **dict.fromkeys(("containers", "initContainers", "ephemeralContainers", "volumes", "env"), "name"),
    **dict.fromkeys(("imagePullSecrets", "schedulingGates", "resourceClaims"), "name"),
    **dict.fromkeys(("hostAliases", "podIPs", "hostIPs"), "ip"),
    "ownerReferences": "uid",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "topologySpreadConstraints": "topologyKey",
    "ports": "containerPort",
}
