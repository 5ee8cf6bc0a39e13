"""A dump of a cluster of any size, shaped like what `kubectl get` prints; the same size gives the same bytes.

`python -m bench.cluster 500 yaml FILE` writes one.
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

PODS_PER_NODE = 20
_CREATED = "2026-03-01T08:00:00Z"
# One pod in ten is protected in some way, as in clusters that use these annotations a lot.
_ANNOTATIONS: list[dict[str, str]] = [
    {"karpenter.sh/do-not-disrupt": "true"},
    {"karpenter.sh/do-not-disrupt": "240h"},
    {"karpenter.sh/disruption-schedule": "0 2 * * 6", "karpenter.sh/disruption-schedule-duration": "6h"},
    {"karpenter.sh/disruption-schedule": "CRON_TZ=Europe/Berlin 0 22 * * *;0 12 * * 0"},
    {"karpenter.sh/disruption-block-schedule": "0 9 * * 1-5", "karpenter.sh/disruption-block-duration": "8h"},
]
_NODE_CLASS = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"}
_NODE_CLASS_REF = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
_LINUX = [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]
_AMOUNTS = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "20Gi", "pods": "110"}


def objects(nodes: int) -> Iterator[dict[str, Any]]:
    """A node class, NodePools, NodeClaims, Nodes, PDBs and pods, with all that a scheduling simulation needs."""
    chance = random.Random(nodes)
    pools = max(1, nodes // 500)
    yield {**_NODE_CLASS, "metadata": {"name": "default", "uid": _uid(6, 0), "creationTimestamp": _CREATED}}
    for pool in range(pools):
        yield _pool(pool)
    for app in range(nodes // 5):
        yield _pdb(app)
    for node in range(nodes):
        pool = node % pools
        yield _claim(node, pool, drifted=chance.random() < 0.1)
        yield _node(node, pool)
        for pod in range(PODS_PER_NODE):
            yield _pod(node, pod, chance, app=chance.randrange(max(1, nodes // 5)))


def write(nodes: int, form: str, file: Path) -> None:
    """The dump as one List."""
    dump = {"apiVersion": "v1", "kind": "List", "items": list(objects(nodes))}
    with file.open("w") as out:
        if form == "json":
            json.dump(dump, out, indent=1)
        else:
            yaml.dump(dump, out, Dumper=yaml.CSafeDumper, sort_keys=False)


def _pool(pool: int) -> dict[str, Any]:
    budgets = [
        {"nodes": "10%"},
        {"nodes": "5", "reasons": ["Drifted"]},
        {"nodes": "0", "reasons": ["Underutilized"], "schedule": "0 9 * * 1-5", "duration": "8h"},
    ]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": f"pool-{pool}", "uid": _uid(0, pool), "creationTimestamp": _CREATED},
        "spec": {
            "disruption": {"consolidateAfter": "5m", "budgets": budgets},
            "template": {"spec": {"nodeClassRef": _NODE_CLASS_REF, "requirements": _LINUX}},
        },
    }


def _pdb(app: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": f"app-{app}",
            "namespace": f"team-{app % 40}",
            "uid": _uid(1, app),
            "creationTimestamp": _CREATED,
        },
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": f"app-{app}"}}},
        "status": {"disruptionsAllowed": int(app % 20 > 0), "expectedPods": 100},
    }


def _uid(kind: int, number: int) -> str:
    return f"00000000-0000-4000-800{kind}-{number:012}"


def _conditions(*types: str) -> list[dict[str, str]]:
    return [
        {"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": _CREATED}
        for type_ in types
    ]


def _claim(node: int, pool: int, *, drifted: bool) -> dict[str, Any]:
    conditions = ["Launched", "Registered", "Initialized", "Ready", *(["Drifted"] if drifted else [])]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": f"pool-{pool}-{node:05}",
            "uid": _uid(2, node),
            "labels": {"karpenter.sh/nodepool": f"pool-{pool}"},
            "creationTimestamp": _CREATED,
        },
        "spec": {
            "expireAfter": "720h",
            "terminationGracePeriod": "24h" if node % 3 else "72h",
            "nodeClassRef": _NODE_CLASS_REF,
            "requirements": _LINUX,
        },
        "status": {
            "providerID": f"kwok://node-{node:05}",
            "nodeName": f"node-{node:05}",
            "conditions": _conditions(*conditions),
        },
    }


def _node(node: int, pool: int) -> dict[str, Any]:
    labels = {
        "karpenter.sh/nodepool": f"pool-{pool}",
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.kwok.sh/kwoknodeclass": "default",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": f"node-{node:05}",
        "node.kubernetes.io/instance-type": "s-16x-amd64-linux",
        "topology.kubernetes.io/zone": f"test-zone-{'abcd'[node % 4]}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"node-{node:05}",
            "uid": _uid(3, node),
            "labels": labels,
            "creationTimestamp": _CREATED,
        },
        "spec": {"providerID": f"kwok://node-{node:05}"},
        "status": {"capacity": _AMOUNTS, "allocatable": _AMOUNTS, "conditions": _conditions("Ready")},
    }


def _pod(node: int, pod: int, chance: random.Random, *, app: int) -> dict[str, Any]:
    name = f"app-{app}-6d4cf56db6-{node:05}-{pod}"
    annotations = {"kubernetes.io/psp": "restricted", "prometheus.io/scrape": "true"}
    if chance.random() < 0.1:
        annotations |= chance.choice(_ANNOTATIONS)
    container = {
        "name": "main",
        "image": f"registry.example/app-{app}:1.2.3",
        "env": [{"name": f"SETTING_{number}", "value": "x" * 20} for number in range(5)],
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}},
        "terminationMessagePath": "/dev/termination-log",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": f"team-{app % 40}",
            "uid": _uid(5, node * PODS_PER_NODE + pod),
            "resourceVersion": str(1_000_000 + node),
            "labels": {"app": f"app-{app}", "pod-template-hash": "6d4cf56db6", "team": f"team-{app % 40}"},
            "annotations": annotations,
            "creationTimestamp": _CREATED,
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"app-{app}-6d4cf56db6",
                    "uid": _uid(4, app),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "nodeName": f"node-{node:05}",
            "containers": [container],
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "priority": 0,
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
            ],
        },
        "status": {
            "phase": "Running",
            "startTime": _CREATED,
            "conditions": _conditions("Initialized", "Ready", "ContainersReady", "PodScheduled"),
        },
    }


if __name__ == "__main__":
    write(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
