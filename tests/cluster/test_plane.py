"""Does the control plane do what our other tests take for granted, and are our definitions what we say they are?"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from dovetail.api.crds import load_crds
from tests.cluster.access import Answer, Cluster, condition, eventually
from tests.cluster.fixtures import ROOT
from tests.cluster.plane import ControlPlane
from tests.unit.api.crd_cases import CASES, Case

Object = dict[str, Any]
Namer = Callable[[str], str]

NODES: Final = "/api/v1/nodes"
NOT_READY: Final = {"dovetail.dev/test": "not-ready"}
NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
KINDS: Final = {crd["spec"]["names"]["kind"]: crd["spec"] for crd in load_crds()}
GRACE_SECONDS: Final = 3


def kwok_node(name: str, **labels: str) -> Object:
    """A node that kwok keeps, for pods that select it by the label `test`."""
    annotations = {"kwok.x-k8s.io/node": "fake"}
    return {"metadata": {"name": name, "labels": {"test": name} | labels, "annotations": annotations}}


def pod_spec(node: str, **more: Any) -> Object:
    return {"nodeSelector": {"test": node}, "containers": [{"name": "c", "image": "none"}]} | more


def pod(name: str, node: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": pod_spec(node, **spec)}


def deployment(name: str, node: str, replicas: int) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(node)}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def is_ready(found: Object) -> bool:
    return condition(found, "Ready") == "True"


@pytest.fixture(scope="module")
def node(control_plane: Cluster, unique_name: Namer) -> str:
    """A Ready node for the pods of these tests."""
    name = unique_name("node")
    control_plane.create(NODES, kwok_node(name))
    control_plane.wait(f"{NODES}/{name}", is_ready)
    return name


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_a_node_becomes_ready_and_keeps_its_capacity(control_plane: Cluster, unique_name: Namer) -> None:
    name = unique_name("node")
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    control_plane.create(NODES, kwok_node(name) | {"status": {"capacity": capacity, "allocatable": capacity}})
    status = control_plane.wait(f"{NODES}/{name}", is_ready)["status"]
    assert status["capacity"] == status["allocatable"] == capacity
    lease = control_plane.wait(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}", bool)
    assert lease["spec"]["leaseDurationSeconds"] == 40
    control_plane.wait(f"{NODES}/{name}", lambda found: "taints" not in found["spec"])


def test_a_node_without_the_annotation_is_left_alone(control_plane: Cluster, unique_name: Namer, node: str) -> None:
    name = unique_name("node")
    control_plane.create(NODES, {"metadata": {"name": name}})
    control_plane.wait(f"{NODES}/{node}", is_ready)
    assert condition(control_plane.get(f"{NODES}/{name}"), "Ready") != "True"


def test_the_label_makes_a_node_not_ready_for_as_long(control_plane: Cluster, unique_name: Namer) -> None:
    name = unique_name("node")
    path = f"{NODES}/{name}"
    control_plane.create(NODES, kwok_node(name))
    control_plane.wait(path, is_ready)
    control_plane.patch(path, {"metadata": {"labels": NOT_READY}})
    control_plane.wait(path, lambda found: condition(found, "Ready") == "False")
    control_plane.wait(path, lambda found: NOT_READY_TAINT in {t["key"] for t in found["spec"].get("taints", [])})
    control_plane.patch(path, {"metadata": {"labels": dict.fromkeys(NOT_READY)}})
    control_plane.wait(path, is_ready)
    control_plane.wait(path, lambda found: "taints" not in found["spec"])


def test_a_node_may_be_not_ready_from_the_start(control_plane: Cluster, unique_name: Namer) -> None:
    name = unique_name("node")
    control_plane.create(NODES, kwok_node(name, **NOT_READY))
    control_plane.wait(f"{NODES}/{name}", lambda found: condition(found, "Ready") == "False")


# -- pods --------------------------------------------------------------------------------------------------------------


def test_deployment_and_budget(control_plane: Cluster, namespace: str, node: str) -> None:
    """Pods are scheduled and Ready, the budget counts them, and an eviction is refused until the budget allows it."""
    apps, policy = f"/apis/apps/v1/namespaces/{namespace}", f"/apis/policy/v1/namespaces/{namespace}"
    pods, budget = f"/api/v1/namespaces/{namespace}/pods", f"{policy}/poddisruptionbudgets/web"
    spec = {"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}}
    control_plane.create(f"{policy}/poddisruptionbudgets", {"metadata": {"name": "web"}, "spec": spec})
    control_plane.create(f"{apps}/deployments", deployment("web", node, replicas=3))
    control_plane.wait(f"{apps}/deployments/web", lambda found: found["status"].get("readyReplicas") == 3)
    items = control_plane.get(pods)["items"]
    assert {(item["spec"]["nodeName"], is_ready(item), item["status"]["phase"]) for item in items} == {
        (node, True, "Running")
    }
    assert len({item["status"]["podIP"] for item in items}) == 3
    status = control_plane.wait(budget, lambda found: found["status"].get("currentHealthy") == 3)["status"]
    assert (status["disruptionsAllowed"], status["desiredHealthy"], status["expectedPods"]) == (0, 3, 3)

    name = items[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    refused = control_plane.request("POST", f"{pods}/{name}/eviction", eviction)
    assert refused.status == 429
    assert "Cannot evict pod as it would violate the pod's disruption budget" in refused.body["message"]
    control_plane.patch(budget, {"spec": {"minAvailable": 2}})
    control_plane.wait(budget, lambda found: found["status"]["disruptionsAllowed"] == 1)
    assert control_plane.request("POST", f"{pods}/{name}/eviction", eviction).status == 201
    control_plane.wait(f"{pods}/{name}", lambda found: "deletionTimestamp" in found["metadata"])


@pytest.mark.parametrize(
    ("annotations", "least", "most"),
    [
        ({}, GRACE_SECONDS, GRACE_SECONDS + 2),
        ({"pod-delete.stage.kwok.x-k8s.io/delay": "500ms"}, 0.5, 2),
        ({"pod-delete.stage.kwok.x-k8s.io/delay": "1m"}, GRACE_SECONDS, GRACE_SECONDS + 2),
    ],
    ids=["all of it", "ends earlier", "would end later"],
)
def test_a_deleted_pod_has_its_grace_period(
    control_plane: Cluster, namespace: str, node: str, *, annotations: dict[str, str], least: float, most: float
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    control_plane.create(pods, pod("a", node, annotations=annotations, terminationGracePeriodSeconds=GRACE_SECONDS))
    control_plane.wait(f"{pods}/a", is_ready)
    begun_at = time.monotonic()
    control_plane.delete(f"{pods}/a")
    # A change while it terminates starts nothing anew.
    control_plane.patch(f"{pods}/a", {"metadata": {"labels": {"changed": "yes"}}})
    control_plane.wait_gone(f"{pods}/a")
    assert least <= time.monotonic() - begun_at < most


def test_a_pod_keeps_its_finalizer(control_plane: Cluster, namespace: str, node: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    body = pod("a", node, terminationGracePeriodSeconds=1)
    body["metadata"]["finalizers"] = ["dovetail.dev/test"]
    control_plane.create(pods, body)
    control_plane.wait(f"{pods}/a", is_ready)
    control_plane.delete(f"{pods}/a")
    control_plane.wait(f"{pods}/a", lambda found: found["metadata"]["deletionGracePeriodSeconds"] == 0)
    control_plane.patch(f"{pods}/a", {"metadata": {"finalizers": None}})
    control_plane.wait_gone(f"{pods}/a")


def test_a_pod_is_ready_when_its_annotation_says(control_plane: Cluster, namespace: str, node: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    control_plane.create(pods, pod("late", node, annotations={"pod-ready.stage.kwok.x-k8s.io/delay": "1h"}))
    init = [{"name": "once", "image": "none"}, {"name": "sidecar", "image": "none", "restartPolicy": "Always"}]
    control_plane.create(pods, pod("now", node, initContainers=init, readinessGates=[{"conditionType": "a.b/c"}]))
    status = control_plane.wait(f"{pods}/now", is_ready)["status"]
    assert condition({"status": status}, "a.b/c") == "True"
    assert [next(iter(each["state"])) for each in status["initContainerStatuses"]] == ["terminated", "running"]
    late = control_plane.wait(f"{pods}/late", lambda found: "nodeName" in found["spec"])
    assert late["status"]["phase"] == "Pending"


def test_a_job_completes(control_plane: Cluster, namespace: str, node: str) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    body = {
        "metadata": {"name": "a"},
        "spec": {"completions": 2, "template": {"spec": pod_spec(node, restartPolicy="Never")}},
    }
    control_plane.create(jobs, body)
    found = control_plane.wait(f"{jobs}/a", lambda found: condition(found, "Complete") == "True")
    assert found["status"]["succeeded"] == 2


# -- users -------------------------------------------------------------------------------------------------------------


def test_users_may_do_what_they_are_bound_to(control_plane: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    token = control_plane.token_of("somebody")
    assert control_plane.request("GET", path, token=token).status == 403
    assert control_plane.request("GET", path, token="wrong").status == 401
    binding = {
        "metadata": {"name": "a"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}],
    }
    control_plane.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
    eventually(
        lambda: control_plane.request("GET", path, token=token).status == 200, seconds=10, what=lambda: "not allowed"
    )


# -- our definitions ---------------------------------------------------------------------------------------------------


def path_of(kind: str) -> str:
    spec = KINDS[kind]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"


def answer_to(cluster: Cluster, case: Case, name: str) -> Answer:
    """What the server says to the case. A status is written as such, on an object that is there."""
    collection = path_of(case.new["kind"])
    new = case.new | {"metadata": {"name": name}}
    status = "status" in new
    old = case.old or ({key: value for key, value in new.items() if key != "status"} if status else None)
    if old is None:
        return cluster.request("POST", f"{collection}?dryRun=All", new)
    there = cluster.create(collection, old | {"metadata": {"name": name}})
    new["metadata"] = {"name": name, "resourceVersion": there["metadata"]["resourceVersion"]}
    try:
        return cluster.request("PUT", f"{collection}/{name}{'/status' if status else ''}?dryRun=All", new)
    finally:
        cluster.delete(f"{collection}/{name}")


def disagreement(case: Case, answer: Answer) -> str | None:
    """What the server says otherwise than the case."""
    message = str(answer.body.get("message"))
    if case.error is None:
        return None if answer.status in (200, 201) else f"{case.name}: refused: {message}"
    if answer.status != 422:
        return f"{case.name}: {answer.status} instead of a refusal because of {case.error}"
    causes = answer.body["details"]["causes"]
    said = [case.error in cause["message"] if case.by == "cel" else case.error == cause["field"] for cause in causes]
    return None if any(said) else f"{case.name}: refused, but not because of {case.error}: {message}"


def test_the_server_accepts_our_definitions(cluster_with_crds: Cluster) -> None:
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for crd in load_crds():
        found = cluster_with_crds.get(f"{crds}/{crd['metadata']['name']}")
        assert (condition(found, "Established"), condition(found, "NonStructuralSchema")) == ("True", None)


def test_the_server_agrees_with_all_cases(cluster_with_crds: Cluster, unique_name: Namer) -> None:
    def judge(case: Case) -> str | None:
        return disagreement(case, answer_to(cluster_with_crds, case, unique_name("case")))

    with ThreadPoolExecutor(max_workers=4) as pool:
        assert [said for said in pool.map(judge, CASES) if said] == []


# -- components --------------------------------------------------------------------------------------------------------


def test_components_can_be_killed_paused_and_restarted(private_plane: ControlPlane, unique_name: Namer) -> None:
    name = unique_name("node")
    private_plane.kill("kwok")
    private_plane.create(NODES, kwok_node(name))
    private_plane.restart("kube-apiserver")
    assert condition(private_plane.get(f"{NODES}/{name}"), "Ready") is None
    private_plane.pause("etcd")
    with pytest.raises(TimeoutError):
        private_plane.request("GET", f"{NODES}/{name}", timeout_seconds=0.5)
    private_plane.resume("etcd")
    private_plane.start("kwok")
    private_plane.wait(f"{NODES}/{name}", is_ready)


STARTER: Final = """
import os, signal, sys
from pathlib import Path
from tests.cluster.plane import ControlPlane

plane = ControlPlane(Path(sys.argv[1]))
plane.start_all()
plane.pause("etcd")
print(plane.pid("etcd"), plane.pid("kube-apiserver"), flush=True)
signal.pause()
"""


def test_everything_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Even if it is killed without a chance to clean up, and even what is paused."""
    command = [sys.executable, "-c", STARTER, str(tmp_path / "plane")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout
        pids = [int(pid) for pid in starter.stdout.readline().split()]
        starter.kill()
    assert len(pids) == 2
    eventually(lambda: not any(map(is_alive, pids)), seconds=10, what=lambda: f"one of {pids} lives")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
