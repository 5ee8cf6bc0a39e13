"""Short forms of the manifests that tests and benchmarks need again and again."""

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.api.names import HOSTNAME_LABEL, ZONE_LABEL

Manifest = dict[str, Any]


def node(
    name: str,
    *,
    zone: str = "",
    cpu: str = "4",
    memory: str = "16Gi",
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> Manifest:
    """A Node as a provider registers it."""
    amounts = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {HOSTNAME_LABEL: name, **({ZONE_LABEL: zone} if zone else {}), **(labels or {})},
        },
        "spec": {"taints": [dict(taint) for taint in taints]} if taints else {},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod_spec(*, cpu: str = "100m", memory: str = "128Mi", **spec: Any) -> Manifest:
    """One container with requests."""
    container = {
        "name": "main",
        "image": "example.invalid/main",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    return {"containers": [container], **spec}


def pod(name: str, *, annotations: Mapping[str, str] | None = None, **spec: Any) -> Manifest:
    meta = {"name": name, "labels": {"app": name}, "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec(**spec)}


def priority_class(name: str, value: int, **fields: Any) -> Manifest:
    meta = {"name": name}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": value, **fields}


def workload(
    kind: str,
    name: str,
    *,
    annotations: Mapping[str, str] | None = None,
    fields: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Manifest:
    """A workload of the kind: `fields` of its own spec, the rest of the pods'."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels, "annotations": dict(annotations or {})}, "spec": pod_spec(**spec)}
    own: Manifest = {"template": template, **(fields or {})}
    if kind == "Job":
        template["spec"].setdefault("restartPolicy", "Never")
    else:
        own["selector"] = {"matchLabels": labels}
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": own}


def deployment(name: str, *, replicas: int = 1, **spec: Any) -> Manifest:
    fields = {"replicas": replicas, **spec.pop("fields", {})}
    return workload("Deployment", name, fields=fields, **spec)


def pdb(name: str, **spec: Any) -> Manifest:
    """A budget for the pods of the app of the same name."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, **spec},
    }
