"""Workloads in a simulated cluster behave as in a real one, in virtual time."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from dovetail.api.names import HOSTNAME_LABEL, ZONE_LABEL
from dovetail.api.objects import Lease
from dovetail.ports import LEASES, Delete, Evict, NotFound, Patch, TooManyRequests
from dovetail.sim.actors.cluster import START, SimCluster, run
from dovetail.sim.actors.wire import (
    CLAIMS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PDBS,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Raw,
    annotations_of,
    condition_of,
    condition_status,
    deleting,
    name_of,
    node_of,
    phase_of,
    pod_ready,
    status_of,
    uid_of,
)
from dovetail.sim.server.kinds import NAMESPACES
from tests.harness import manifests
from tests.harness.stage import stage

pytestmark = stage(run, gives=("cluster",))

Scenario = Callable[[SimCluster], Coroutine[Any, Any, None]]


def elapsed(cluster: SimCluster) -> timedelta:
    return cluster.clock.now() - START


def ready(cluster: SimCluster, app: str, number: int) -> Callable[[], bool]:
    return lambda: len(cluster.pods(app=app, ready=True)) == number


def status(cluster: SimCluster, kind: Any, name: str) -> Raw:
    found = cluster.object(kind, name)
    assert found is not None
    return status_of(found)


async def evict(cluster: SimCluster, pod: Raw) -> None:
    await cluster.api.write(Evict(name_of(pod), namespace="default", uid=uid_of(pod)))


# -- scheduling and kubelets ------------------------------------------------------------------------------------------


async def test_a_pod_waits_for_a_node_and_starts_on_it(cluster: SimCluster) -> None:
    await cluster.apply(manifests.pod("p"))
    await cluster.run_for("1m")
    condition = condition_of(cluster.pods()[0], "PodScheduled")
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == "no nodes available to schedule pods"
    await cluster.apply(manifests.node("small", cpu="50m"))
    await cluster.run_for("1m")
    condition = condition_of(cluster.pods()[0], "PodScheduled")
    assert condition is not None
    assert condition["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are "
        "available: 1 Preemption is not helpful for scheduling."
    )
    await cluster.apply(manifests.node("n1"))
    await cluster.wait_until(ready(cluster, "p", 1), timeout="3s")
    (pod,) = cluster.pods()
    assert (node_of(pod), phase_of(pod), condition_status(pod, "PodScheduled")) == ("n1", "Running", "True")
    assert status_of(pod)["podIP"]
    assert status_of(pod)["containerStatuses"][0]["ready"]


async def test_gated_and_foreign_pods_are_left_alone(cluster: SimCluster) -> None:
    gated = manifests.pod("gated", schedulingGates=[{"name": "wait"}])
    await cluster.apply(manifests.node("n1"), gated, manifests.pod("foreign", schedulerName="other"))
    await cluster.run_for("1m")
    assert [node_of(pod) for pod in cluster.pods()] == ["", ""]
    await cluster.api.write(Patch(PODS, "gated", {"spec": {"schedulingGates": None}}, namespace="default"))
    await cluster.wait_until(ready(cluster, "gated", 1), timeout="3s")


async def test_higher_priority_goes_first(cluster: SimCluster) -> None:
    await cluster.apply(manifests.priority_class("high", 1000))
    await cluster.apply(manifests.pod("low", cpu="3"), manifests.pod("high", cpu="3", priorityClassName="high"))
    await cluster.apply(manifests.node("n1", cpu="4"))
    await cluster.run_for("1m")
    assert {name_of(pod): node_of(pod) for pod in cluster.pods()} == {"high": "n1", "low": ""}
    await cluster.api.write(Delete(PODS, "high", namespace="default"))
    await cluster.wait_until(ready(cluster, "low", 1), timeout="5s")


async def test_a_node_becomes_ready_and_loses_its_taint(cluster: SimCluster) -> None:
    slow = manifests.node("slow")
    slow["metadata"]["annotations"] = {"dovetail.dev/ready-delay": "30s"}
    await cluster.apply(slow)
    await cluster.run_for("29s")
    node = cluster.objects(NODES)[0]
    assert condition_status(node, "Ready") is None
    assert node["spec"]["taints"][0]["key"] == "node.kubernetes.io/not-ready"
    await cluster.run_for("1.1s")
    node = cluster.objects(NODES)[0]
    assert condition_status(node, "Ready") == "True"
    assert not node["spec"].get("taints")
    assert status_of(node)["allocatable"]["cpu"] == "4"
    assert status_of(node)["nodeInfo"]["kubeletVersion"] == "v1.36.1"


async def test_spread_and_anti_affinity(cluster: SimCluster) -> None:
    await cluster.apply(*(manifests.node(f"{zone}{number}", zone=zone) for zone in "abc" for number in (1, 2)))
    selector = {"matchLabels": {"app": "spread"}}
    constraint = {"topologyKey": ZONE_LABEL, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spread = [{**constraint, "labelSelector": selector}]
    apart = {"topologyKey": HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": "apart"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    await cluster.apply(
        manifests.deployment("spread", replicas=9, topologySpreadConstraints=spread),
        manifests.deployment("apart", replicas=7, affinity=anti),
    )
    await cluster.run_for("1m")
    zones = [node_of(pod)[0] for pod in cluster.pods(app="spread")]
    assert sorted(zones) == sorted("abc" * 3)
    nodes = [node_of(pod) for pod in cluster.pods(app="apart")]
    assert sorted(nodes) == ["", "a1", "a2", "b1", "b2", "c1", "c2"]
    waiting = next(pod for pod in cluster.pods(app="apart") if not node_of(pod))
    condition = condition_of(waiting, "PodScheduled")
    assert condition is not None
    assert "6 node(s) didn't match pod anti-affinity rules" in condition["message"]


async def test_a_volume_keeps_its_pod_in_its_zone(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("a1", zone="a"), manifests.node("b1", zone="b"))
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "spec": {}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {"volumeName": "pv"}}
    await cluster.apply({**volume, "metadata": {"name": "pv", "labels": {ZONE_LABEL: "b"}}})
    await cluster.apply({**claim, "metadata": {"name": "data"}})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await cluster.apply(manifests.pod("p", volumes=volumes))
    await cluster.run_for("1m")
    assert node_of(cluster.pods()[0]) == "b1"


@pytest.mark.parametrize(
    ("annotations", "grace", "seconds"),
    [
        ({}, 30, 1),
        ({"dovetail.dev/shutdown": "10s"}, 30, 10),
        ({"dovetail.dev/shutdown": "10m"}, 30, 30),
        ({"dovetail.dev/shutdown": "10m"}, 300, 300),
        ({"dovetail.dev/shutdown": "10m"}, 0, 0),
    ],
)
async def test_graceful_shutdown_to_the_second(
    cluster: SimCluster, annotations: dict[str, str], grace: int, seconds: int
) -> None:
    pod = manifests.pod("p", annotations=annotations, terminationGracePeriodSeconds=grace)
    await cluster.apply(manifests.node("n1"), pod)
    await cluster.run_for("1m")
    await cluster.api.write(Delete(PODS, "p", namespace="default"))
    started = elapsed(cluster)
    await cluster.wait_until(lambda: not cluster.pods(), timeout="1h")
    assert elapsed(cluster) - started == timedelta(seconds=seconds)


async def test_a_second_delete_shortens_the_grace(cluster: SimCluster) -> None:
    never = {"dovetail.dev/shutdown": "24h"}
    pod = manifests.pod("p", annotations=never, terminationGracePeriodSeconds=600)
    await cluster.apply(manifests.node("n1"), pod)
    await cluster.run_for("1m")
    await cluster.api.write(Delete(PODS, "p", namespace="default"))
    await cluster.run_for("10s")
    await cluster.api.write(Delete(PODS, "p", namespace="default", grace_seconds=20))
    await cluster.wait_until(lambda: not cluster.pods(), timeout="1h")
    # The server counts the shorter grace from the first delete.
    assert elapsed(cluster) == timedelta(seconds=80)


async def test_a_pod_that_is_not_ready_by_annotation(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.pod("p", annotations={"dovetail.dev/ready": "false"}))
    await cluster.run_for("1m")
    (pod,) = cluster.pods()
    assert (phase_of(pod), pod_ready(pod)) == ("Running", False)
    change = {"metadata": {"annotations": {"dovetail.dev/ready": None}}}
    await cluster.api.write(Patch(PODS, "p", change, namespace="default"))
    await cluster.wait_until(ready(cluster, "p", 1), timeout="1s")


# -- workloads --------------------------------------------------------------------------------------------------------


async def test_a_rollout_keeps_within_its_bounds(cluster: SimCluster) -> None:
    await cluster.apply(*(manifests.node(f"n{number}") for number in range(4)))
    await cluster.apply(manifests.deployment("web", replicas=8))
    await cluster.wait_until(lambda: status(cluster, DEPLOYMENTS, "web").get("availableReplicas") == 8)
    await cluster.apply(manifests.deployment("web", replicas=8, cpu="200m"))
    most, least = 0, 8
    for _ in range(60):
        await cluster.run_for("500ms")
        live = [pod for pod in cluster.pods() if not deleting(pod)]
        most, least = max(most, len(live)), min(least, sum(map(pod_ready, live)))
    assert (most, least) == (10, 6)  # 25 % more, and 25 % unavailable
    got = status(cluster, DEPLOYMENTS, "web")
    assert (got["updatedReplicas"], got["replicas"], got["observedGeneration"]) == (8, 8, 2)
    assert got["conditions"][1]["reason"] == "NewReplicaSetAvailable"
    sizes = [
        (each["spec"]["replicas"], annotations_of(each)["deployment.kubernetes.io/revision"])
        for each in sorted(cluster.objects(REPLICASETS), key=lambda each: int(each["spec"]["replicas"]))
    ]
    assert sizes == [(0, "1"), (8, "2")]
    # And back: the first ReplicaSet is taken up again.
    await cluster.apply(manifests.deployment("web", replicas=8))
    await cluster.run_for("5m")
    sizes = [
        (each["spec"]["replicas"], annotations_of(each)["deployment.kubernetes.io/revision"])
        for each in sorted(cluster.objects(REPLICASETS), key=lambda each: int(each["spec"]["replicas"]))
    ]
    assert sizes == [(0, "2"), (8, "3")]


async def test_recreate_waits_for_the_old_pods(cluster: SimCluster) -> None:
    fields = {"strategy": {"type": "Recreate"}}
    slow = {"dovetail.dev/shutdown": "20s"}
    await cluster.apply(manifests.node("n1"))
    await cluster.apply(manifests.deployment("web", replicas=2, fields=fields, annotations=slow))
    await cluster.wait_until(ready(cluster, "web", 2))
    await cluster.apply(manifests.deployment("web", replicas=2, fields=fields, annotations=slow, cpu="200m"))
    await cluster.run_for("19s")
    assert all(deleting(pod) for pod in cluster.pods())
    await cluster.run_for("10s")
    assert len(cluster.pods(ready=True)) == 2
    assert not any(deleting(pod) for pod in cluster.pods())


async def test_scaling_down_gives_up_the_cheapest_pods_and_deletion_cascades(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.deployment("web", replicas=4))
    await cluster.wait_until(ready(cluster, "web", 4))
    cheap = name_of(cluster.pods()[2])
    cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}}
    await cluster.api.write(Patch(PODS, cheap, cost, namespace="default"))
    await cluster.api.write(Patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, namespace="default"))
    await cluster.run_for("10s")
    assert cheap not in {name_of(pod) for pod in cluster.pods()}
    assert len(cluster.pods()) == 3
    await cluster.api.write(Delete(DEPLOYMENTS, "web", namespace="default"))
    await cluster.run_for("10s")
    assert cluster.pods() == cluster.objects(REPLICASETS) == []


async def test_a_pod_with_other_labels_is_released_and_taken_back(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.deployment("web", replicas=2))
    await cluster.wait_until(ready(cluster, "web", 2))
    pod = name_of(cluster.pods()[0])
    await cluster.api.write(Patch(PODS, pod, {"metadata": {"labels": {"app": "debug"}}}, namespace="default"))
    await cluster.wait_until(ready(cluster, "web", 2), timeout="5s")
    released = cluster.object(PODS, pod)
    assert released is not None
    assert not released["metadata"].get("ownerReferences")
    await cluster.api.write(Patch(PODS, pod, {"metadata": {"labels": {"app": "web"}}}, namespace="default"))
    await cluster.run_for("5s")
    assert len(cluster.pods()) == 2
    assert all(each["metadata"]["ownerReferences"] for each in cluster.pods())


async def test_a_drain_by_eviction_keeps_the_budget(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.deployment("web", replicas=3))
    await cluster.apply(manifests.pdb("web", maxUnavailable=1))
    await cluster.wait_until(lambda: status(cluster, PDBS, "web").get("disruptionsAllowed") == 1)
    await cluster.apply(manifests.node("n2"))
    await cluster.api.write(Patch(NODES, "n1", {"spec": {"unschedulable": True}}))
    await cluster.run_for("5s")
    node = cluster.object(NODES, "n1")
    assert node is not None
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["node.kubernetes.io/unschedulable"]
    refused, least = 0, 3
    for _ in range(600):
        left = [pod for pod in cluster.pods(node="n1") if not deleting(pod)]
        if not left:
            break
        try:
            await evict(cluster, left[0])
        except TooManyRequests:
            refused += 1
        least = min(least, len([pod for pod in cluster.pods(ready=True) if not deleting(pod)]))
        await cluster.run_for("1s")
    await cluster.run_for("5s")
    assert refused > 0
    assert least == 2
    assert [node_of(pod) for pod in cluster.pods()] == ["n2"] * 3
    assert status(cluster, PDBS, "web")["disruptionsAllowed"] == 1
    assert not status(cluster, PDBS, "web").get("disruptedPods")


async def test_a_stateful_set_comes_up_in_order_and_keeps_its_names(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"))
    claims = [{"metadata": {"name": "data"}, "spec": {}}]
    fields = {"replicas": 3, "serviceName": "db", "volumeClaimTemplates": claims}
    slow = {"dovetail.dev/start-delay": "10s", "dovetail.dev/shutdown": "5s"}
    await cluster.apply(manifests.workload("StatefulSet", "db", fields=fields, annotations=slow))
    await cluster.run_for("15s")
    assert [name_of(pod) for pod in cluster.pods()] == ["db-0", "db-1"]
    await cluster.wait_until(ready(cluster, "db", 3))
    assert [name_of(claim) for claim in cluster.objects(CLAIMS)] == ["data-db-0", "data-db-1", "data-db-2"]
    await cluster.run_for("1s")
    assert status(cluster, STATEFULSETS, "db")["readyReplicas"] == 3
    before = cluster.object(PODS, "db-1")
    assert before is not None
    await cluster.api.write(Delete(PODS, "db-1", namespace="default"))
    await cluster.run_for("4s")
    during = cluster.object(PODS, "db-1")
    assert during is not None
    assert uid_of(during) == uid_of(before)
    await cluster.run_for("2s")
    after = cluster.object(PODS, "db-1")
    assert after is not None
    assert uid_of(after) != uid_of(before)
    await cluster.api.write(Patch(STATEFULSETS, "db", {"spec": {"replicas": 1}}, namespace="default"))
    await cluster.wait_until(lambda: len(cluster.pods()) == 1)
    gone = [line.split()[3] for line in cluster.trace if " delete pods" in line]
    assert gone[-1] == "default/db-1"
    assert gone.index("default/db-2") < len(gone) - 1


async def test_a_stateful_set_is_updated_from_the_end(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"))
    await cluster.apply(manifests.workload("StatefulSet", "db", fields={"replicas": 3}))
    await cluster.wait_until(ready(cluster, "db", 3))
    await cluster.run_for("1s")
    mark = len(cluster.trace)
    await cluster.apply(manifests.workload("StatefulSet", "db", fields={"replicas": 3}, cpu="200m"))
    await cluster.run_for("1m")
    created = [line.split()[3] for line in cluster.trace[mark:] if " create pods" in line]
    assert created == ["default/db-2", "default/db-1", "default/db-0"]
    got = status(cluster, STATEFULSETS, "db")
    assert got["currentRevision"] == got["updateRevision"]
    assert got["updatedReplicas"] == 3


async def test_a_daemon_comes_to_each_new_node_and_not_to_tainted_ones(cluster: SimCluster) -> None:
    taint = {"key": "dedicated", "effect": "NoSchedule"}
    await cluster.apply(manifests.node("n1"), manifests.node("dedicated", taints=[taint]))
    await cluster.apply(manifests.workload("DaemonSet", "agent"))
    await cluster.wait_until(ready(cluster, "agent", 1))
    await cluster.apply(manifests.node("n2"))
    await cluster.wait_until(ready(cluster, "agent", 2), timeout="5s")
    assert sorted(node_of(pod) for pod in cluster.pods()) == ["n1", "n2"]
    await cluster.run_for("1s")
    assert status(cluster, DAEMONSETS, "agent")["desiredNumberScheduled"] == 2
    assert status(cluster, DAEMONSETS, "agent")["numberAvailable"] == 2
    # With a taint that only keeps from scheduling the daemon stays, but does not come back.
    await cluster.api.write(Patch(NODES, "n2", {"spec": {"taints": [taint]}}))
    await cluster.run_for("1m")
    assert len(cluster.pods(node="n2")) == 1
    await evict(cluster, cluster.pods(node="n2")[0])
    await cluster.run_for("1m")
    assert cluster.pods(node="n2") == []
    # A cordon does not keep daemons away.
    await cluster.api.write(Patch(NODES, "n1", {"spec": {"unschedulable": True}}))
    await evict(cluster, cluster.pods(node="n1")[0])
    await cluster.run_for("1m")
    assert len(cluster.pods(node="n1", ready=True)) == 1


async def test_a_daemon_set_is_updated_node_by_node(cluster: SimCluster) -> None:
    await cluster.apply(*(manifests.node(f"n{number}") for number in range(3)))
    await cluster.apply(manifests.workload("DaemonSet", "agent"))
    await cluster.wait_until(ready(cluster, "agent", 3))
    await cluster.apply(manifests.workload("DaemonSet", "agent", cpu="200m"))
    least = 3
    for _ in range(60):
        await cluster.run_for("1s")
        least = min(least, len([pod for pod in cluster.pods(ready=True) if not deleting(pod)]))
    assert least == 2
    assert status(cluster, DAEMONSETS, "agent")["updatedNumberScheduled"] == 3


async def test_a_job_runs_to_its_end(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"))
    fields = {"completions": 3, "parallelism": 2, "ttlSecondsAfterFinished": 60}
    await cluster.apply(manifests.workload("Job", "work", fields=fields, annotations={"dovetail.dev/run-for": "10s"}))
    await cluster.wait_until(lambda: condition_status(cluster.objects(JOBS)[0], "Complete") == "True")
    got = status(cluster, JOBS, "work")
    assert (got["succeeded"], got.get("active"), got["completionTime"]) == (3, None, got["completionTime"])
    assert all("finalizers" not in pod["metadata"] for pod in cluster.pods())
    assert [phase_of(pod) for pod in cluster.pods()] == ["Succeeded"] * 3
    await cluster.run_for("61s")
    assert cluster.objects(JOBS) == []
    assert cluster.pods() == []


async def test_a_job_gives_up_after_its_backoff_limit(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"))
    failing = {"dovetail.dev/exit-code": "1"}
    await cluster.apply(manifests.workload("Job", "work", fields={"backoffLimit": 2}, annotations=failing))
    await cluster.wait_until(lambda: condition_status(cluster.objects(JOBS)[0], "Failed") == "True", timeout="5m")
    condition = condition_of(cluster.objects(JOBS)[0], "Failed")
    assert condition is not None
    assert condition["reason"] == "BackoffLimitExceeded"
    assert len(cluster.pods()) == 3
    assert timedelta(seconds=30) <= elapsed(cluster) <= timedelta(seconds=40)  # 10 s and 20 s of waiting


async def test_an_evicted_job_pod_is_replaced_and_counted(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"))
    await cluster.apply(manifests.workload("Job", "work", annotations={"dovetail.dev/run-for": "1h"}))
    await cluster.wait_until(lambda: len(cluster.pods(ready=True)) == 1)
    await evict(cluster, cluster.pods()[0])
    await cluster.wait_until(lambda: condition_status(cluster.objects(JOBS)[0], "Complete") == "True", timeout="2h")
    got = status(cluster, JOBS, "work")
    assert (got["succeeded"], got["failed"]) == (1, 1)


async def test_a_budget_over_pods_without_a_scale_allows_nothing(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.workload("DaemonSet", "agent"))
    await cluster.apply(manifests.pdb("agent", maxUnavailable=1))
    await cluster.wait_until(ready(cluster, "agent", 1))
    await cluster.run_for("1s")
    got = status(cluster, PDBS, "agent")
    assert got["disruptionsAllowed"] == 0
    assert got["conditions"][0]["reason"] == "SyncFailed"


# -- faults and garbage -----------------------------------------------------------------------------------------------


async def test_pods_of_a_vanished_node_go_after_the_quarantine(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.pod("p"))
    await cluster.wait_until(ready(cluster, "p", 1))
    await cluster.api.write(Delete(NODES, "n1"))
    started = elapsed(cluster)
    await cluster.wait_until(lambda: not cluster.pods(), timeout="5m")
    assert elapsed(cluster) - started == timedelta(seconds=40)


async def test_a_node_that_comes_back_keeps_its_pods(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.pod("p"))
    await cluster.wait_until(ready(cluster, "p", 1))
    await cluster.api.write(Delete(NODES, "n1"))
    await cluster.run_for("30s")
    await cluster.apply(manifests.node("n1"))
    await cluster.run_for("5m")
    assert len(cluster.pods()) == 1


@pytest.mark.parametrize(("fault", "seconds"), [("not ready", 300), ("dead", 350)])
async def test_taint_eviction_after_five_minutes(cluster: SimCluster, fault: str, seconds: int) -> None:
    await cluster.apply(manifests.node("n1"), manifests.deployment("web", replicas=2))
    await cluster.apply(manifests.workload("DaemonSet", "agent"))
    await cluster.wait_until(lambda: len(cluster.pods(ready=True)) == 3)
    await cluster.apply(manifests.node("n2"))
    await cluster.run_for("10s")
    started = cluster.clock.now()
    if fault == "dead":
        cluster.kill_kubelet("n1")
    else:
        cluster.set_node_ready("n1", ready=False)
    await cluster.run_for("1m")
    node = cluster.object(NODES, "n1")
    assert node is not None
    key = "node.kubernetes.io/unreachable" if fault == "dead" else "node.kubernetes.io/not-ready"
    assert {(taint["key"], taint["effect"]) for taint in node["spec"]["taints"]} == {
        (key, "NoSchedule"),
        (key, "NoExecute"),
    }
    # A kubelet that speaks goes on to speak for its pods.
    assert any(pod_ready(pod) for pod in cluster.pods(node="n1")) is (fault != "dead")
    await cluster.wait_until(lambda: any(deleting(pod) for pod in cluster.pods(app="web")), timeout="1h")
    assert cluster.clock.now() - started == timedelta(seconds=seconds)
    pod = next(pod for pod in cluster.pods(app="web") if deleting(pod))
    condition = condition_of(pod, "DisruptionTarget")
    assert condition is not None
    assert condition["reason"] == "DeletionByTaintManager"
    await cluster.run_for("10m")
    assert len([pod for pod in cluster.pods(app="web", node="n2") if pod_ready(pod)]) == 2
    left = cluster.pods(app="web", node="n1")
    assert len(left) == (2 if fault == "dead" else 0)  # nobody confirms the end of pods of a dead kubelet
    assert len(cluster.pods(app="agent", node="n1")) == 1


async def test_a_kubelet_that_comes_back_takes_up_its_pods(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.deployment("web", replicas=2))
    await cluster.wait_until(ready(cluster, "web", 2))
    cluster.kill_kubelet("n1")
    await cluster.run_for("2m")
    assert len(cluster.pods(ready=True)) == 0
    cluster.revive_kubelet("n1")
    await cluster.wait_until(ready(cluster, "web", 2), timeout="5s")
    await cluster.run_for("1h")
    node = cluster.object(NODES, "n1")
    assert node is not None
    assert not node["spec"].get("taints")
    assert len(cluster.pods(ready=True)) == 2


async def test_a_labelled_node_is_not_ready(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"))
    await cluster.run_for("5s")
    for value, expected in (("true", "False"), (None, "True")):
        await cluster.api.write(Patch(NODES, "n1", {"metadata": {"labels": {"dovetail.dev/not-ready": value}}}))
        await cluster.run_for("5s")
        assert condition_status(cluster.objects(NODES)[0], "Ready") == expected


async def test_a_namespace_takes_its_objects_along(cluster: SimCluster) -> None:
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    await cluster.apply(manifests.node("n1"))
    await cluster.apply(manifests.deployment("web", replicas=2), namespace="team")
    await cluster.wait_until(ready(cluster, "web", 2))
    await cluster.api.write(Delete(NAMESPACES, "team"))
    await cluster.run_for("1m")
    assert cluster.pods() == cluster.objects(DEPLOYMENTS) == []


async def test_actors_heal_after_dropped_watches_and_forgotten_versions(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.deployment("web", replicas=2))
    await cluster.wait_until(ready(cluster, "web", 2))
    cluster.server.drop_watches()
    cluster.server.compact()
    await cluster.api.write(Delete(PODS, name_of(cluster.pods()[0]), namespace="default", grace_seconds=0))
    await cluster.api.write(Patch(DEPLOYMENTS, "web", {"spec": {"replicas": 4}}, namespace="default"))
    await cluster.wait_until(ready(cluster, "web", 4), timeout="1m")


async def test_a_budget_that_is_changed_counts_other_pods(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.deployment("web", replicas=3))
    await cluster.apply(manifests.deployment("db", replicas=2), manifests.pdb("web", minAvailable=1))
    await cluster.wait_until(lambda: status(cluster, PDBS, "web").get("disruptionsAllowed") == 2)
    await cluster.api.write(
        Patch(PDBS, "web", {"spec": {"selector": {"matchLabels": {"app": "db"}}}}, namespace="default")
    )
    await cluster.run_for("1s")
    assert status(cluster, PDBS, "web")["expectedPods"] == 2
    pod = name_of(cluster.pods(app="web")[0])
    await cluster.api.write(Patch(PODS, pod, {"metadata": {"labels": {"app": "db"}}}, namespace="default"))
    await cluster.run_for("1s")
    assert status(cluster, PDBS, "web")["expectedPods"] == 3  # the pod is released, and matches
    await cluster.api.write(Delete(PODS, pod, namespace="default"))
    await cluster.run_for("5s")
    assert status(cluster, PDBS, "web")["expectedPods"] == 2


def test_a_failing_scenario_raises_its_own_error() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.run_for("1s")
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run(scenario)


def test_a_failing_actor_ends_the_scenario() -> None:
    async def scenario(cluster: SimCluster) -> None:
        cluster.scheduler.enqueue("nonsense")
        await cluster.run_for("1h")

    with pytest.raises(ExceptionGroup) as caught:
        run(scenario)
    assert isinstance(caught.value.exceptions[0], AssertionError)


async def test_wait_until_times_out_in_virtual_time(cluster: SimCluster) -> None:
    with pytest.raises(TimeoutError):
        await cluster.wait_until(lambda: False, timeout="1h")
    assert cluster.clock.now() == START + timedelta(hours=1)


YAML = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1}}
- {apiVersion: v1, kind: Pod, metadata: {name: p, labels: {app: p}}, spec: {containers: [{name: c, image: i}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: team}}
"""


async def test_manifests_as_yaml(cluster: SimCluster) -> None:
    await cluster.apply(YAML)
    await cluster.wait_until(ready(cluster, "p", 1))
    assert cluster.clock.now() == START + timedelta(seconds=2)


async def test_the_lease_of_a_node_is_fresh_for_as_long_as_its_kubelet_lives(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.node("n2"))
    await cluster.run_for("1h")
    before = len(cluster.trace)
    cluster.kill_kubelet("n2")
    died_at = cluster.clock.now()
    await cluster.run_for("30s")
    assert len(cluster.trace) == before  # nothing is written for it
    leases = {one.metadata.name: one.spec.renew_time for one in await _node_leases(cluster)}
    now = cluster.clock.now()
    assert leases["n1"] is not None
    assert leases["n2"] is not None
    assert now - leases["n1"] < timedelta(seconds=10)
    assert timedelta(0) <= died_at - leases["n2"] < timedelta(seconds=10)
    found = await cluster.api.get(LEASES, "n1", namespace="kube-node-lease")
    assert (found.spec.holder_identity, found.spec.renew_time) == ("n1", leases["n1"])
    with pytest.raises(NotFound):
        await cluster.api.get(LEASES, "n3", namespace="kube-node-lease")


async def _node_leases(cluster: SimCluster) -> list[Lease]:
    return list((await cluster.api.list(LEASES, namespace="kube-node-lease")).items)
