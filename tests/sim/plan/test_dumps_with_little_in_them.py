"""`plan` on dumps that leave out what every cluster has, and on dumps that contradict themselves."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from dovetail.api.documents import read_documents
from dovetail.planning.disruption.methods import Decision, decide_pass
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.sim.scenarios.one_shot import OneShotResult, look
from tests.harness.builders import at
from tests.harness.claims import condition, node, node_claim, node_pool

START = at("2026-03-20T00:00:00Z")
UP = ("Launched", "Registered", "Initialized", "Consolidatable", "Ready")
MACHINE = {
    "karpenter.sh/capacity-type": "on-demand",
    "node.kubernetes.io/instance-type": "c-4x-amd64-linux",
    "topology.kubernetes.io/zone": "test-zone-a",
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
    "karpenter.sh/registered": "true",
    "karpenter.sh/initialized": "true",
}
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110"}

Manifest = dict[str, Any]


def machine(name: str, *, of: str = "") -> list[Manifest]:
    """A Node and its NodeClaim, which could be consolidated. `of`: only a Node, on the instance of another."""
    made = node(of or name)
    made["metadata"] |= {"name": name, "creationTimestamp": "2026-02-01T00:00:00Z"}
    made["metadata"]["labels"] |= {**MACHINE, "kubernetes.io/hostname": name}
    made["status"] = {"capacity": ROOM, "allocatable": ROOM, "conditions": [condition("Ready")]}
    if of:
        return [made]
    claim = node_claim(f"{name}-claim")
    claim["metadata"]["labels"] = {**claim["metadata"].get("labels", {}), **MACHINE}
    claim["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
    claim["status"] = {
        "providerID": made["spec"]["providerID"],
        "nodeName": name,
        "capacity": ROOM,
        "allocatable": ROOM,
        "conditions": [condition(each) for each in UP],
    }
    return [made, claim]


def pool(nodes: str) -> Manifest:
    made = node_pool(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": nodes}]})
    made["status"] = {"conditions": [condition("Ready")]}
    return made


def pod(name: str, node_name: str, **spec: Any) -> Manifest:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"u-{name}", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}, "ownerReferences": [owner]},
        "spec": {"nodeName": node_name, "containers": [container], **spec},
        "status": {"phase": "Running", "conditions": [condition("Ready")]},
    }


def seen(*manifests: Manifest) -> OneShotResult:
    text = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": manifests})
    documents = list(read_documents(text, file=str(Path("dump.json"))))
    return look(documents, START + timedelta(hours=1))


def decided(*manifests: Manifest) -> Decision:
    return decide_pass(seen(*manifests).board, ConsolidationOptions())


def test_a_namespace_that_the_dump_leaves_out_has_its_name_as_a_label() -> None:
    """So that a pod which must not share a node with those of the namespace `default` is not put there."""
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
    }
    apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    machines = (pool("100%"), *machine("n1"), *machine("n2"), pod("db", "n1"))
    assert len(places(decided(*machines, pod("alone", "n2")))) == 1  # without the rule one node is enough
    assert len(places(decided(*machines, pod("alone", "n2", **apart)))) == 2


def places(decision: Decision) -> set[tuple[str, str]]:
    """Where pods are to go: the name of a node, or of a replacement of the command."""
    return {(command.id, str(to)) for command in decision.commands for to in command.landing.values()}


def test_two_nodes_of_one_instance_do_not_enlarge_the_pool() -> None:
    """A kubelet has registered again under another name: half of two machines is one, which the lost one uses up."""
    still = seen(pool("50%"), *machine("n1"), *machine("n1-again", of="n1"), *machine("n2"), pod("db", "n2"))
    (spent,) = still.assessment.spending.values()
    assert spent.counts.nodes == 2


def test_a_pod_without_a_status_is_pending() -> None:
    """A PodDisruptionBudget does not keep what has not started (R58)."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "none", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0, "expectedPods": 1, "currentHealthy": 0, "desiredHealthy": 1},
    }
    silent = pod("db", "n1")
    del silent["status"]
    running = seen(pool("100%"), *machine("n1"), pod("db", "n1"), budget)
    assert [left.node for left in running.assessment.left] == ["n1"]
    assert not seen(pool("100%"), *machine("n1"), silent, budget).assessment.left
