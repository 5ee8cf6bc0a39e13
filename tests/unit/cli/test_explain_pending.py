"""`dovetail explain pod/X` of a pod that is on no node: what it waits for."""

import json
from typing import Any

import pytest

from tests.unit.cli.running import Program
from tests.unit.cli.test_explain_command import AT

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def pool(name: str = "default", *, ready: str = "True", **spec: Any) -> dict[str, Any]:
    template = {"spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}
    template["spec"]["requirements"] = []  # type: ignore[assignment]
    metadata = {"name": name, "creationTimestamp": "2026-03-01T00:00:00Z"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": metadata,
        "spec": {"template": template, **spec},
        "status": {"conditions": [{"type": "Ready", "status": ready, "message": "no node class"}]},
    }


def pod(*, cpu: str = "1", status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": cpu}}}
    conditions = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    metadata = {"name": "web", "namespace": "shop", "creationTimestamp": "2026-03-07T01:29:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **spec},
        "status": conditions if status is None else {"phase": "Pending", **status},
    }


STARTING = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodeClaim",
    "metadata": {
        "name": "default-x1",
        "creationTimestamp": "2026-03-07T01:29:10Z",
        "labels": {"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "on-demand"},
    },
    "spec": {
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "requirements": [],
        "resources": {"requests": {"cpu": "1"}},
    },
    "status": {
        "providerID": "kwok://default-x1",
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Launched", "status": "True", "lastTransitionTime": "2026-03-07T01:29:12Z"}],
    },
}


def pending(dovetail: Program, *objects: dict[str, Any]) -> dict[str, Any]:
    file = dovetail.file("\n---\n".join(map(json.dumps, objects)))
    outcome = dovetail("explain", "-f", file, "--at", AT, "-o", "json", "pod/shop/web")
    assert outcome.err == ""
    answer: dict[str, Any] = json.loads(outcome.out)["pods"][0]["pending"]
    return answer


def test_a_pod_for_which_a_node_can_be_made_says_in_which_pool(dovetail: Program) -> None:
    cause = "needs a new node of NodePool default, which the controller creates next"
    view = pending(dovetail, pool(), pod())
    assert view == {"reason": "new-node", "cause": cause, "waitsFor": None, "until": None}


def test_a_pod_that_fits_on_a_starting_node_waits_for_its_claim(dovetail: Program) -> None:
    found = pending(dovetail, pool(), STARTING, pod())
    assert (found["waitsFor"], found["until"]) == ("NodeClaim/default-x1", "2026-03-07T01:44:10Z")
    assert found["cause"] == (
        "waits for NodeClaim default-x1 of NodePool default, which is not ready yet; "
        "it is given up 2026-03-07T01:44:10Z if it has not registered"
    )


def test_limits_that_are_reached_are_the_cause(dovetail: Program) -> None:
    found = pending(dovetail, pool(limits={"cpu": "0"}), pod())
    assert found["cause"].startswith("fits on no node, and none can be made for it: ")
    assert "limits" in found["cause"]


def test_a_pool_that_is_not_ready_is_the_cause(dovetail: Program) -> None:
    found = pending(dovetail, pool(ready="False"), pod())
    assert found["cause"].endswith("; NodePool default is left out: it is not Ready: no node class")


def test_pools_that_are_not_ready_for_one_cause_are_told_once(dovetail: Program) -> None:
    pools = [pool(name, ready="False") for name in ("a", "b", "c")]
    found = pending(dovetail, *pools, pod())
    assert found["cause"].endswith("; NodePool a is left out: it is not Ready: no node class, as are 2 others")
    found = pending(dovetail, *pools, pod(nodeSelector={"karpenter.sh/nodepool": "b"}))
    assert found["cause"].endswith("; NodePool b is left out: it is not Ready: no node class")


def test_a_pod_that_no_type_can_hold_says_so(dovetail: Program) -> None:
    found = pending(dovetail, pool(), pod(cpu="4000"))
    assert found["cause"].startswith("fits on no node, and none can be made for it: ")
    assert found["cause"].endswith("none of its instance types will do (144 too small)")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"nominatedNodeName": "n1", "conditions": [UNSCHEDULABLE]}, "waits for node n1, where it preempts other pods"),
        ({"conditions": [{**UNSCHEDULABLE, "reason": "SchedulingGated"}]}, "its scheduling gates hold it back"),
        ({}, "kube-scheduler has not yet said that it fits on no node"),
    ],
)
def test_a_pod_that_asks_for_no_node_says_why(dovetail: Program, status: dict[str, Any], words: str) -> None:
    assert pending(dovetail, pool(), pod(status=status))["cause"].startswith(words)


def test_the_table_shows_when_the_claim_is_given_up(dovetail: Program) -> None:
    file = dovetail.file("\n---\n".join(map(json.dumps, (pool(), STARTING, pod()))))
    lines = dovetail("explain", "-f", file, "--at", AT, "pod/shop/web").out
    assert "  pending: waits for NodeClaim default-x1 " in lines
    assert "given up 2026-03-07T01:44:10Z (in 14m10s) if it has not registered" in lines


def test_the_table_of_a_namespace_says_why_a_pod_is_pending(dovetail: Program) -> None:
    file = dovetail.file("\n---\n".join(map(json.dumps, (pool(), pod(cpu="4000")))))
    (line,) = (
        line for line in dovetail("explain", "-f", file, "--at", AT, "-n", "shop").out.splitlines() if "web" in line
    )
    assert "pending: fits on no node, and none can be made for it: " in line


def test_pods_on_nodes_are_not_pending(dovetail: Program) -> None:
    file = dovetail.file(json.dumps(pod(nodeName="n1")))
    outcome = dovetail("explain", "-f", file, "--at", AT, "-o", "json", "pod/shop/web")
    assert "pending" not in json.loads(outcome.out)["pods"][0]


def test_a_cluster_without_nodes_is_told_of_its_pending_pods(dovetail: Program) -> None:
    file = dovetail.file("\n---\n".join(map(json.dumps, (pool(), pod()))))
    (line,) = (line for line in dovetail("explain", "-f", file, "--at", AT).out.splitlines() if "pending" in line)
    assert line.startswith("1 pod is pending: ")
