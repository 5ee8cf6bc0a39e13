"""Do workloads keep their pods as they should, with the names and in the order that they should?"""

from contextlib import aclosing
from typing import Any

import pytest

from dovetail.ports import Create, Delete, Evict, Invalid, Patch, Resource
from tests.contract.backends import Cluster, condition
from tests.contract.bodies import (
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Object,
    ends_after,
    pod_spec,
    starts_after,
    workload,
)


async def pods(cluster: Cluster, space: str) -> dict[str, Object]:
    return {item["metadata"]["name"]: item for item in (await cluster.api.list(PODS, namespace=space)).items}


def is_ready(found: Object) -> bool:
    return condition(found, "Ready").get("status") == "True"


async def settled(
    cluster: Cluster, resource: Resource[dict[str, Any]], space: str, timeout: float = 20.0, **status: Any
) -> Object:
    """The status of workload `x` once it has seen its spec and says this."""
    found = await cluster.wait(
        resource,
        "x",
        lambda it: (
            it.get("status", {}).get("observedGeneration", 0) == it["metadata"]["generation"]
            and all(it["status"].get(key, 0) == value for key, value in status.items())
        ),
        namespace=space,
        timeout=timeout,
    )
    return dict(found["status"])


async def test_a_workload_has_a_status_from_the_beginning(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    body = workload("x", "none-" + space)
    job = {"metadata": {"name": "x"}, "spec": {"template": {"spec": pod_spec(restartPolicy="Never")}}}
    stateful = workload("x", "none-" + space, serviceName="x", replicas=0)
    made = {
        "Deployment": await cluster.api.write(Create(DEPLOYMENTS, body, namespace=space)),
        "DaemonSet": await cluster.api.write(Create(DAEMONSETS, body, namespace=space)),
        "StatefulSet": await cluster.api.write(Create(STATEFULSETS, stateful, namespace=space)),
        "ReplicaSet": await cluster.api.write(Create(REPLICASETS, body, namespace=space)),
        "Job": await cluster.api.write(Create(JOBS, job, namespace=space)),
    }
    assert {kind: it.get("status") for kind, it in made.items()} == {
        "Deployment": {},
        "DaemonSet": dict.fromkeys(
            ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
        ),
        "StatefulSet": {"replicas": 0, "availableReplicas": 0},
        "ReplicaSet": {"replicas": 0},
        "Job": {},
    }


# -- Deployments and ReplicaSets ---------------------------------------------------------------------------------------


async def test_a_selector_matches_the_own_pods(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(DEPLOYMENTS, workload("x", "x", replicas=0), namespace=space))
    other = {"spec": {"template": {"metadata": {"labels": {"app": "other"}}}}}
    with pytest.raises(Invalid) as refused:
        await cluster.api.write(Patch(DEPLOYMENTS, "x", other, namespace=space))
    assert "spec.template.metadata.labels: Invalid value:" in str(refused.value)
    assert "`selector` does not match template `labels`" in str(refused.value)


async def test_a_deployment_runs_its_replicas(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.api.write(Create(DEPLOYMENTS, workload("x", on, replicas=3), namespace=space))
    await settled(cluster, DEPLOYMENTS, space, replicas=3, readyReplicas=3, availableReplicas=3, updatedReplicas=3)
    found = await pods(cluster, space)
    (set_,) = (await cluster.api.list(REPLICASETS, namespace=space)).items
    hash_ = set_["metadata"]["labels"]["pod-template-hash"]
    assert set_["metadata"]["name"] == f"x-{hash_}"
    for name, each in found.items():
        assert name.startswith(f"x-{hash_}-")
        assert each["metadata"]["labels"] == {"app": "x", "pod-template-hash": hash_}
        assert each["spec"]["nodeName"] == on


async def test_a_deployment_is_available_when_enough_pods_are(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    body = workload("x", on, replicas=1, annotations=starts_after("3s"))
    await cluster.api.write(Create(DEPLOYMENTS, body, namespace=space))

    def available(it: Object) -> str:
        return str(condition(it, "Available").get("status"))

    await cluster.wait(DEPLOYMENTS, "x", lambda it: available(it) == "False", namespace=space)
    await cluster.wait(DEPLOYMENTS, "x", lambda it: available(it) == "True", namespace=space)


async def test_a_deployment_is_scaled(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.api.write(Create(DEPLOYMENTS, workload("x", on, replicas=1), namespace=space))
    await settled(cluster, DEPLOYMENTS, space, readyReplicas=1)
    first = set(await pods(cluster, space))
    await cluster.api.write(Patch(DEPLOYMENTS, "x", {"spec": {"replicas": 3}}, namespace=space))
    await settled(cluster, DEPLOYMENTS, space, readyReplicas=3)
    assert first < set(await pods(cluster, space))
    await cluster.api.write(Patch(DEPLOYMENTS, "x", {"spec": {"replicas": 0}}, namespace=space, subresource="scale"))
    await settled(cluster, DEPLOYMENTS, space, replicas=0, readyReplicas=0)
    await cluster.eventually(lambda: pods(cluster, space), lambda found: not found)


async def test_a_new_template_replaces_the_pods(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.api.write(Create(DEPLOYMENTS, workload("x", on, replicas=2), namespace=space))
    await settled(cluster, DEPLOYMENTS, space, readyReplicas=2)
    first = set(await pods(cluster, space))
    template = {"metadata": {"annotations": {"version": "2"}}}
    await cluster.api.write(Patch(DEPLOYMENTS, "x", {"spec": {"template": template}}, namespace=space))
    await settled(cluster, DEPLOYMENTS, space, updatedReplicas=2, readyReplicas=2, replicas=2)
    second = await cluster.eventually(lambda: pods(cluster, space), lambda found: not first & set(found))
    assert len(second) == 2
    sets = (await cluster.api.list(REPLICASETS, namespace=space)).items
    assert sorted(each["spec"]["replicas"] for each in sets) == [0, 2]


async def test_a_deleted_pod_is_replaced_before_it_is_gone(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    body = workload("x", on, replicas=1, annotations=ends_after("5s"))
    body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 30
    await cluster.api.write(Create(REPLICASETS, body, namespace=space))
    await settled(cluster, REPLICASETS, space, readyReplicas=1)
    (old,) = await pods(cluster, space)
    await cluster.api.write(Delete(PODS, old, namespace=space))
    both = await cluster.eventually(lambda: pods(cluster, space), lambda found: len(found) == 2, timeout=4)
    assert "deletionTimestamp" in both[old]["metadata"]
    await settled(cluster, REPLICASETS, space, replicas=1, readyReplicas=1)


async def test_a_replica_set_releases_what_no_longer_matches(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.api.write(Create(REPLICASETS, workload("x", on, replicas=1), namespace=space))
    await settled(cluster, REPLICASETS, space, readyReplicas=1)
    (old,) = await pods(cluster, space)
    await cluster.api.write(Patch(PODS, old, {"metadata": {"labels": {"app": "y"}}}, namespace=space))
    found = await cluster.eventually(lambda: pods(cluster, space), lambda found: len(found) == 2)
    assert not found[old]["metadata"].get("ownerReferences")


async def test_a_pod_that_fails_is_replaced(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(REPLICASETS, workload("x", "none-" + space, replicas=1), namespace=space))
    (old,) = await cluster.eventually(lambda: pods(cluster, space), lambda found: len(found) == 1)
    await cluster.api.write(Patch(PODS, old, {"status": {"phase": "Failed"}}, namespace=space, subresource="status"))
    found = await cluster.eventually(
        lambda: pods(cluster, space), lambda it: [each["status"]["phase"] for each in it.values()].count("Pending") == 1
    )
    assert len(set(found) - {old}) == 1


# -- StatefulSets ------------------------------------------------------------------------------------------------------


async def test_a_stateful_set_starts_its_pods_in_order(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    body = workload("x", on, replicas=3, serviceName="x", annotations=starts_after("1s"))
    start = (await cluster.api.list(PODS, namespace=space)).resource_version
    await cluster.api.write(Create(STATEFULSETS, body, namespace=space))
    await settled(cluster, STATEFULSETS, space, readyReplicas=3)
    ready: list[str] = []
    watch = cluster.api.watch(PODS, resource_version=start, namespace=space, timeout_seconds=10)
    async with aclosing(watch) as events:
        async for event in events:
            if event.object is None:
                continue
            name = event.object["metadata"]["name"]
            if event.type.value == "ADDED":
                assert ready == [f"x-{index}" for index in range(int(name[2:]))]
                assert event.object["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == name[2:]
                assert event.object["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == name
                assert event.object["spec"]["hostname"] == name
            if is_ready(event.object) and name not in ready:
                ready.append(name)
            if len(ready) == 3:
                break
    assert ready == ["x-0", "x-1", "x-2"]


async def test_a_stateful_pod_comes_back_under_its_name_when_the_old_one_is_gone(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    body = workload("x", on, replicas=1, serviceName="x", annotations=ends_after("2s"))
    body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 30
    await cluster.api.write(Create(STATEFULSETS, body, namespace=space))
    await settled(cluster, STATEFULSETS, space, readyReplicas=1)
    old = (await pods(cluster, space))["x-0"]["metadata"]["uid"]
    await cluster.api.write(Evict("x-0", namespace=space))
    await cluster.settle(1)
    assert {name: it["metadata"]["uid"] for name, it in (await pods(cluster, space)).items()} == {"x-0": old}
    new = await cluster.wait(
        PODS, "x-0", lambda it: it["metadata"]["uid"] != old and is_ready(it), namespace=space, timeout=15
    )
    assert new["spec"]["nodeName"] == on


async def test_a_stateful_set_shrinks_from_the_end(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.api.write(Create(STATEFULSETS, workload("x", on, replicas=3, serviceName="x"), namespace=space))
    await settled(cluster, STATEFULSETS, space, readyReplicas=3)
    await cluster.api.write(Patch(STATEFULSETS, "x", {"spec": {"replicas": 1}}, namespace=space))
    await settled(cluster, STATEFULSETS, space, replicas=1)
    found = await cluster.eventually(lambda: pods(cluster, space), lambda it: len(it) == 1)
    assert set(found) == {"x-0"}


async def test_a_parallel_stateful_set_does_not_wait(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    body = workload("x", "none-" + space, replicas=3, serviceName="x", podManagementPolicy="Parallel")
    await cluster.api.write(Create(STATEFULSETS, body, namespace=space))
    await cluster.eventually(lambda: pods(cluster, space), lambda found: set(found) == {"x-0", "x-1", "x-2"})


# -- DaemonSets --------------------------------------------------------------------------------------------------------


async def test_a_daemon_set_has_a_pod_on_each_node(cluster: Cluster) -> None:
    space, group = await cluster.new_namespace(), cluster.unique("group")
    nodes = {await cluster.add_node(group=group)}
    await cluster.api.write(Create(DAEMONSETS, workload("x", group), namespace=space))
    await settled(cluster, DAEMONSETS, space, desiredNumberScheduled=1, numberReady=1, numberAvailable=1)
    nodes.add(await cluster.add_node(group=group))
    await settled(cluster, DAEMONSETS, space, desiredNumberScheduled=2, numberReady=2)
    found = await pods(cluster, space)
    assert {each["spec"]["nodeName"] for each in found.values()} == nodes
    for each in found.values():
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["controller"]) == ("DaemonSet", True)


async def test_a_daemon_runs_on_a_cordoned_node(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    on = await cluster.add_node(unschedulable=True)
    await cluster.api.write(Create(DAEMONSETS, workload("x", on), namespace=space))
    await settled(cluster, DAEMONSETS, space, numberReady=1)
    (found,) = (await pods(cluster, space)).values()
    tolerated = {(each.get("key"), each.get("effect")) for each in found["spec"]["tolerations"]}
    for part, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("unschedulable", "NoSchedule"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
    ):
        assert (f"node.kubernetes.io/{part}", effect) in tolerated


async def test_a_daemon_respects_taints(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    on = await cluster.add_node(taints=[{"key": "mine", "effect": "NoSchedule"}])
    await cluster.api.write(Create(DAEMONSETS, workload("x", on), namespace=space))
    await settled(cluster, DAEMONSETS, space, desiredNumberScheduled=0)
    assert not await pods(cluster, space)
    kept = [taint for taint in (await cluster.api.get(NODES, on))["spec"]["taints"] if taint["key"] != "mine"]
    await cluster.api.write(Patch(NODES, on, {"spec": {"taints": kept}}))
    await settled(cluster, DAEMONSETS, space, desiredNumberScheduled=1, numberReady=1)


async def test_an_evicted_daemon_comes_back(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.api.write(Create(DAEMONSETS, workload("x", on), namespace=space))
    await settled(cluster, DAEMONSETS, space, numberReady=1)
    (old,) = await pods(cluster, space)
    await cluster.api.write(Evict(old, namespace=space))
    await cluster.wait_gone(PODS, old, namespace=space)
    await settled(cluster, DAEMONSETS, space, numberReady=1)
    assert old not in await pods(cluster, space)


# -- Jobs --------------------------------------------------------------------------------------------------------------


async def test_a_job_completes(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    template = {"spec": pod_spec(on, restartPolicy="Never")}
    body = {"metadata": {"name": "x"}, "spec": {"template": template, "completions": 2, "parallelism": 2}}
    await cluster.api.write(Create(JOBS, body, namespace=space))
    found = await cluster.wait(JOBS, "x", lambda it: condition(it, "Complete").get("status") == "True", namespace=space)
    assert (found["status"]["succeeded"], found["status"].get("active", 0)) == (2, 0)
    assert found["status"]["completionTime"]
    left = await pods(cluster, space)
    assert [each["status"]["phase"] for each in left.values()] == ["Succeeded"] * 2
    for each in left.values():
        assert condition(each, "Ready")["status"] == "False"
        assert each["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "x"
        assert not each["metadata"].get("finalizers")


async def test_a_job_runs_no_more_pods_at_once_than_it_may(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    template = {"spec": pod_spec("none-" + space, restartPolicy="Never")}
    body = {"metadata": {"name": "x"}, "spec": {"template": template, "completions": 5, "parallelism": 2}}
    await cluster.api.write(Create(JOBS, body, namespace=space))
    await cluster.wait(JOBS, "x", lambda it: it.get("status", {}).get("active") == 2, namespace=space)
    await cluster.settle(1)
    found = await pods(cluster, space)
    assert len(found) == 2
    assert all(each["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"] for each in found.values())


async def test_an_evicted_pod_of_a_job_is_replaced(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    long = {"pod-complete.stage.kwok.x-k8s.io/delay": "1h", "dovetail.dev/run-for": "1h"}
    template = {"metadata": {"annotations": long}, "spec": pod_spec(on, restartPolicy="Never", grace=1)}
    await cluster.api.write(Create(JOBS, {"metadata": {"name": "x"}, "spec": {"template": template}}, namespace=space))
    found = await cluster.eventually(lambda: pods(cluster, space), lambda it: any(map(is_ready, it.values())))
    (old,) = found
    evicted = cluster.now()
    await cluster.api.write(Evict(old, namespace=space))
    new = await cluster.eventually(
        lambda: pods(cluster, space), lambda it: old not in it and any(map(is_ready, it.values())), timeout=40
    )
    assert len(new) == 1
    # A pod that did not complete has failed, and the back-off of a job begins with 10 s.
    assert 8 <= (cluster.now() - evicted).total_seconds() <= 15
