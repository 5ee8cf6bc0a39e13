"""The Deployment of the controller, its Service and its PodDisruptionBudget (07 §7)."""

from typing import Any, Final

from dovetail.api import names
from dovetail.api.manifests.parts import NAME, SELECTED, Manifest, manifest
from dovetail.api.names import DovetailMode

METRICS_PORT: Final = 8080
PROBE_PORT: Final = 8081
DASHBOARD_PORT: Final = 8642
USER: Final = 65532
# Above what an orderly stop may take: twenty seconds for the controllers, and as many for the events.
GRACE_SECONDS: Final = 60


def deployment(
    namespace: str,
    image: str,
    scheduler_config: str = "",
    mode: DovetailMode = DovetailMode.RUN,
    *,
    hold_pods: bool = False,
) -> list[Manifest]:
    """Two replicas, one of which leads."""
    arguments = [mode.value, *(["--hold-pods"] if hold_pods else [])]
    selector = {"matchLabels": dict(SELECTED)}
    ports = [{"name": "http-metrics", "port": METRICS_PORT, "targetPort": "http-metrics"}]
    template = {"metadata": {"labels": dict(SELECTED)}, "spec": _pod(_container(image, scheduler_config, arguments))}
    return [
        manifest(
            "apps/v1",
            "Deployment",
            NAME,
            namespace=namespace,
            spec={"replicas": 2, "revisionHistoryLimit": 10, "selector": selector, "template": template},
        ),
        manifest("v1", "Service", NAME, namespace=namespace, spec={"selector": dict(SELECTED), "ports": ports}),
        manifest(
            "policy/v1",
            "PodDisruptionBudget",
            NAME,
            namespace=namespace,
            spec={"maxUnavailable": 1, "selector": selector},
        ),
    ]


def _pod(container: dict[str, Any]) -> dict[str, Any]:
    # Never on nodes that it might itself end, and never two replicas on one node.
    not_on_own = {"matchExpressions": [{"key": names.NODEPOOL_LABEL, "operator": "DoesNotExist"}]}
    return {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [not_on_own]}},
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": dict(SELECTED)}}
                ]
            },
        },
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "containers": [container],
    }


def _container(image: str, scheduler_config: str, arguments: list[str]) -> dict[str, Any]:
    namespace = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    # On loopback: for kubectl port-forward.
    dashboard = [{"name": "DASHBOARD_PORT", "value": str(DASHBOARD_PORT)}] if arguments == [DovetailMode.RUN] else []
    return {
        "name": "controller",
        "image": image,
        "args": arguments,
        "env": [
            {"name": "SYSTEM_NAMESPACE", "valueFrom": namespace},
            {"name": "METRICS_PORT", "value": str(METRICS_PORT)},
            {"name": "HEALTH_PROBE_PORT", "value": str(PROBE_PORT)},
            *dashboard,
            *([{"name": "SCHEDULER_CONFIG", "value": scheduler_config}] if scheduler_config else []),
        ],
        "ports": [
            {"name": "http-metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
            {"name": "http", "containerPort": PROBE_PORT, "protocol": "TCP"},
        ],
        "livenessProbe": _probe("/healthz", initial_seconds=30),
        "readinessProbe": _probe("/readyz", initial_seconds=5),
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _probe(path: str, *, initial_seconds: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "http"}, "initialDelaySeconds": initial_seconds, "timeoutSeconds": 30}
