"""What is read of pods for scheduling: all of it, under the API's names, and bad values as they are."""

import json
from typing import Any

import msgspec

from dovetail.api.documents import decode, read_documents
from dovetail.api.pod_specs import SchedulingPod

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"}},
    "spec": {
        "nodeName": "node-1",
        "nodeSelector": {"team": "red"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [{"key": "a", "operator": "Gt", "values": ["5"]}],
                            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}],
                        }
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "preference": {"matchExpressions": [{"key": "b", "operator": "Exists"}]}}
                ],
            },
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {}, "namespaces": ["a"], "namespaceSelector": {}}
                ]
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 7,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"app": "web"}},
                            "matchLabelKeys": ["hash"],
                            "mismatchLabelKeys": ["tenant"],
                        },
                    }
                ]
            },
        },
        "tolerations": [{"key": "sla", "operator": "Gt", "value": "900", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [
            {
                "topologyKey": "zone",
                "maxSkew": 2,
                "minDomains": 3,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
                "matchLabelKeys": ["hash"],
                "nodeAffinityPolicy": "Ignore",
                "nodeTaintsPolicy": "Honor",
            }
        ],
        "containers": [
            {
                "name": "app",
                "resources": {"requests": {"cpu": "lots", "memory": 5}, "limits": {"cpu": 1.5}},
                "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "UDP"}],
            }
        ],
        "initContainers": [{"name": "proxy", "restartPolicy": "Always"}],
        "resources": {"requests": {"cpu": "2"}},
        "overhead": {"cpu": "100m"},
        "hostNetwork": True,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "resourceClaims": [{"name": "gpu"}],
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        "nominatedNodeName": "node-2",
        "resize": "Infeasible",
        "containerStatuses": [
            {"name": "app", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}
        ],
        "initContainerStatuses": [{"name": "proxy"}],
    },
}


def test_everything_is_read_under_the_names_of_the_api() -> None:
    read = msgspec.json.decode(json.dumps(POD), type=SchedulingPod)
    body = {key: value for key, value in POD.items() if key in ("metadata", "spec", "status")}
    assert json.loads(msgspec.json.encode(read)) == body


def test_null_is_absent_and_unknown_fields_are_passed_over() -> None:
    text = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web-1", "creationTimestamp": None},
            "spec": {"affinity": {"podAffinity": None}, "containers": [{"name": "a", "image": "b", "ports": None}]},
        }
    )
    (document,) = read_documents(text.encode(), "pods.json")
    assert decode(document, SchedulingPod).spec.containers[0].name == "a"
