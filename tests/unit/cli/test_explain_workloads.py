"""`dovetail explain` of Deployments and other workloads."""

import json
from typing import Any

import pytest

from tests.unit.cli.running import Program
from tests.unit.cli.test_explain_command import AT, CLUSTER, FRIDAY, TRAINER


def pod(name: str, owner: str, **meta: Any) -> dict[str, Any]:
    kind, _, owner_name = owner.partition("/")
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner_name, "uid": owner_name, "controller": True}
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": "2026-03-05T00:01:00Z", **meta}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "ownerReferences": [reference]},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running"},
    }


WEB = pod("web-5d4-a", "ReplicaSet/web-5d4", labels={"pod-template-hash": "5d4"})
GUARDED = pod(
    "web-5d4-b",
    "ReplicaSet/web-5d4",
    labels={"pod-template-hash": "5d4"},
    annotations={"karpenter.sh/do-not-disrupt": "true"},
)
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"replicas": 3},
}


def asked(dovetail: Program, name: str, *objects: dict[str, Any], code: int = 0) -> dict[str, Any]:
    file = dovetail.file("\n---\n".join([TRAINER, *map(json.dumps, objects)]))
    outcome = dovetail("explain", "-f", file, "--at", AT, "-o", "json", name)
    assert (outcome.code, outcome.err) == (code, "")
    answer: dict[str, Any] = json.loads(outcome.out)
    return answer


def test_a_deployment_is_found_by_the_hash_of_its_pods_if_the_input_has_no_replica_sets(dovetail: Program) -> None:
    answer = asked(dovetail, "deploy/shop/web", WEB, GUARDED, code=1)
    (workload,) = answer["workloads"]
    pods = ["web-5d4-a", "web-5d4-b"]
    expected = {"kind": "Deployment", "namespace": "shop", "name": "web", "known": False, "replicas": None}
    assert workload == {**expected, "pods": pods}
    assert [(each["name"], each["allowed"]) for each in answer["pods"]] == [(pods[0], True), (pods[1], False)]


def test_a_protected_pod_says_which_reason_of_its_node_it_blocks(dovetail: Program) -> None:
    free, guarded = asked(dovetail, "deploy/shop/web", WEB, GUARDED, code=1)["pods"]
    assert "blocks" not in free
    assert guarded["blocks"] == ["Drifted"]


def test_owner_references_of_replica_sets_count_more_than_names(dovetail: Program) -> None:
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "front", "uid": "f", "controller": True}
    metadata = {"name": "web-5d4", "namespace": "shop", "ownerReferences": [other]}
    replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": {}}
    answer = asked(dovetail, "deploy/shop/front", WEB, replica_set)
    assert answer["workloads"][0]["pods"] == ["web-5d4-a"]


def test_a_workload_in_the_input_tells_how_many_pods_it_should_have(dovetail: Program) -> None:
    answer = asked(dovetail, "deployment/shop/web", WEB, DEPLOYMENT)
    assert (answer["workloads"][0]["known"], answer["workloads"][0]["replicas"]) == (True, 3)
    outcome = dovetail("explain", "-f", str(dovetail.folder / "input.yaml"), "--at", AT, "-n", "shop", "deploy/web")
    assert "Deployment/shop/web: 1 of 3 pods, 0 protected\n" in outcome.out


def test_a_workload_without_pods_is_no_mistake(dovetail: Program) -> None:
    answer = asked(dovetail, "deployment/shop/web", DEPLOYMENT)
    assert (answer["workloads"][0]["pods"], answer["pods"]) == ([], [])


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("sts/shop/db", "StatefulSet/db"),
        ("ds/shop/agent", "DaemonSet/agent"),
        ("rs/shop/web-5d4", "ReplicaSet/web-5d4"),
        ("job/shop/report", "Job/report"),
    ],
)
def test_other_workloads_are_found_by_owner_references(dovetail: Program, name: str, owner: str) -> None:
    assert asked(dovetail, name, pod("one", owner))["workloads"][0]["pods"] == ["one"]


def test_a_misspelt_workload_gets_a_suggestion(dovetail: Program) -> None:
    outcome = dovetail("explain", "-f", CLUSTER, "--at", FRIDAY, "deployment/shop/chekout")
    message = "deployment/shop/chekout is not in the input; did you mean deployment/shop/checkout?"
    assert (outcome.code, outcome.err) == (2, f"dovetail: {message}\n")


def test_forecast_names_no_workloads(dovetail: Program) -> None:
    outcome = dovetail("forecast", "-f", CLUSTER, "--at", FRIDAY, "deployment/shop/checkout")
    assert outcome.code == 2
    assert "want KIND/NAME with a kind of pod, node, nodeclaim or nodepool" in outcome.err
