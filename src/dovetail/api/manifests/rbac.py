"""The rights of the controller. A test compares them with its requests to a real server.

There is no `update`: every change is a patch (R31).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.api.manifests.parts import NAME, Manifest, manifest
from dovetail.api.names import DovetailMode

_SYSTEM_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})


class Grant(msgspec.Struct, frozen=True):
    """Verbs on resources of a group; with names, only on those objects."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def rule(self) -> Manifest:
        rule: Manifest = {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}
        if self.names:
            rule["resourceNames"] = list(self.names)
        return rule


CLUSTER_GRANTS: Final = (
    # What decisions are made of.
    Grant("", ("pods", "nodes", "persistentvolumeclaims"), ("list", "watch")),
    Grant("policy", ("poddisruptionbudgets",), ("list", "watch")),
    Grant("storage.k8s.io", ("volumeattachments",), ("list", "watch")),
    # For scheduling.
    Grant("", ("persistentvolumes", "namespaces"), ("list", "watch")),
    Grant("storage.k8s.io", ("storageclasses", "csinodes"), ("list", "watch")),
    Grant("apps", ("daemonsets",), ("list", "watch")),
    # Drains.
    Grant("", ("pods",), ("delete",)),
    Grant("", ("pods/eviction",), ("create",)),
    # Nodes: labels, taints, finalizers, and their end.
    Grant("", ("nodes",), ("get", "patch", "delete")),
    # Ours.
    Grant(names.GROUP, (names.NODEPOOL_PLURAL,), ("list", "watch", "patch")),
    Grant(names.GROUP, (names.NODECLAIM_PLURAL,), ("get", "list", "watch", "create", "patch", "delete")),
    Grant(names.GROUP, (f"{names.NODEPOOL_PLURAL}/status", f"{names.NODECLAIM_PLURAL}/status"), ("patch",)),
    Grant("events.k8s.io", ("events",), ("create", "patch")),
    # To find other active controllers, in any namespace (R38).
    Grant("coordination.k8s.io", ("leases",), ("list",), names=(names.LEADER_ELECTION_LEASE,)),
)

# With default spread constraints, whose selectors are deduced from these.
SPREAD_GRANTS: Final = (
    Grant("", ("services", "replicationcontrollers"), ("list", "watch")),
    Grant("apps", ("replicasets", "statefulsets"), ("list", "watch")),
)

# Who reads the dashboard, and what they may list.
DASHBOARD_GRANTS: Final = (
    Grant("authentication.k8s.io", ("tokenreviews",), ("create",)),
    Grant("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
)

# Guard: what it reads, and the marks that it puts on Nodes and NodeClaims. Pods are only evicted by Karpenter.
GUARD_GRANTS: Final = (
    Grant("", ("pods",), ("list", "watch")),
    Grant("policy", ("poddisruptionbudgets",), ("list", "watch")),
    Grant("", ("nodes",), ("list", "watch", "patch")),
    Grant(names.GROUP, (names.NODECLAIM_PLURAL,), ("list", "watch", "patch")),
    Grant(names.GROUP, (names.NODEPOOL_PLURAL,), ("list", "watch")),
    Grant("events.k8s.io", ("events",), ("create", "patch")),
    # Whether another guard or drive runs, and whether Karpenter does, in any namespace.
    Grant("coordination.k8s.io", ("leases",), ("list",), names=(names.BESIDE_LEASE, names.LEADER_ELECTION_LEASE)),
)
HOLD_PODS_GRANTS: Final = (Grant("", ("pods",), ("patch",)),)

# Drive: besides, what planning reads, and the NodeClaims that it creates and deletes. Karpenter drains and ends.
DRIVE_GRANTS: Final = (
    Grant("", ("pods", "persistentvolumeclaims", "persistentvolumes", "namespaces"), ("list", "watch")),
    Grant("policy", ("poddisruptionbudgets",), ("list", "watch")),
    Grant("storage.k8s.io", ("volumeattachments", "storageclasses", "csinodes"), ("list", "watch")),
    Grant("apps", ("daemonsets",), ("list", "watch")),
    Grant("", ("nodes",), ("list", "watch", "patch")),
    Grant(names.GROUP, (names.NODECLAIM_PLURAL,), ("get", "list", "watch", "create", "patch", "delete")),
    Grant(names.GROUP, (f"{names.NODECLAIM_PLURAL}/status",), ("patch",)),
    Grant(names.GROUP, (names.NODEPOOL_PLURAL,), ("list", "watch")),
    Grant("events.k8s.io", ("events",), ("create", "patch")),
    # To see whether a Karpenter is alive, in any namespace, and another replica of ours.
    Grant("coordination.k8s.io", ("leases",), ("list",), names=(names.LEADER_ELECTION_LEASE, names.BESIDE_LEASE)),
)


def _own_namespace(lease: str) -> tuple[Grant, ...]:
    return (
        Grant("coordination.k8s.io", ("leases",), ("create",)),
        Grant("coordination.k8s.io", ("leases",), ("get", "patch"), names=(lease,)),
    )


class ModeRights(msgspec.Struct, frozen=True):
    """The rights of a mode in the cluster, and in the namespace of the controller."""

    cluster: tuple[Grant, ...]
    own_namespace: tuple[Grant, ...]


RIGHTS: Final[Mapping[DovetailMode, ModeRights]] = {
    DovetailMode.RUN: ModeRights(CLUSTER_GRANTS, _own_namespace(names.LEADER_ELECTION_LEASE)),
    DovetailMode.GUARD: ModeRights(GUARD_GRANTS, _own_namespace(names.BESIDE_LEASE)),
    DovetailMode.DRIVE: ModeRights(DRIVE_GRANTS, _own_namespace(names.BESIDE_LEASE)),
}


def rbac(
    namespace: str,
    of_provider: Sequence[Grant] = (),
    *,
    spread_by_default: bool = False,
    mode: DovetailMode = DovetailMode.RUN,
    hold_pods: bool = False,
) -> list[Manifest]:
    """The namespace, the service account, its roles and bindings. `of_provider`: the rights of the provider."""
    rights = RIGHTS[mode]
    spread = SPREAD_GRANTS if spread_by_default and mode is not DovetailMode.GUARD else ()
    grants = (*rights.cluster, *spread)
    if mode is DovetailMode.RUN:
        grants = (*rights.cluster, *of_provider, *spread, *DASHBOARD_GRANTS)
    elif hold_pods:
        grants = (*grants, *HOLD_PODS_GRANTS)
    group = "rbac.authorization.k8s.io"
    version = f"{group}/v1"
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]
    cluster_role = {"apiGroup": group, "kind": "ClusterRole", "name": NAME}
    role = {"apiGroup": group, "kind": "Role", "name": NAME}
    return [
        *([] if namespace in _SYSTEM_NAMESPACES else [_namespace(namespace)]),
        manifest("v1", "ServiceAccount", NAME, namespace=namespace),
        manifest(version, "ClusterRole", NAME, rules=[grant.rule() for grant in grants]),
        manifest(version, "ClusterRoleBinding", NAME, roleRef=cluster_role, subjects=subjects),
        manifest(version, "Role", NAME, namespace=namespace, rules=[grant.rule() for grant in rights.own_namespace]),
        manifest(version, "RoleBinding", NAME, namespace=namespace, roleRef=role, subjects=subjects),
    ]


def _namespace(name: str) -> Manifest:
    namespace = manifest("v1", "Namespace", name)
    namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "restricted"
    return namespace
