"""How does a pod live: when is it bound, does it run, and does it end; and what does the scheduler say meanwhile?"""

from contextlib import aclosing
from datetime import datetime
from typing import Any

import pytest

from dovetail.ports import Create, Delete, EventType, Forbidden, Patch
from dovetail.values.timestamp import parse_time
from tests.contract.backends import Cluster, condition
from tests.contract.bodies import NODES, PODS, PRIORITY_CLASSES, Object, ends_after, not_ready, pod, starts_after

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"


def is_ready(found: Object) -> bool:
    return condition(found, "Ready").get("status") == "True"


def waits(found: Object) -> bool:
    """Whether the scheduler has said that it found no node."""
    return condition(found, "PodScheduled").get("reason") == "Unschedulable"


async def run(cluster: Cluster, space: str, name: str, on: str, **fields: Any) -> Object:
    """A pod that is Ready."""
    await cluster.api.write(Create(PODS, pod(name, on, **fields), namespace=space))
    return await cluster.wait(PODS, name, is_ready, namespace=space)


async def refused(cluster: Cluster, space: str, name: str, on: str, **fields: Any) -> str:
    """What the scheduler says of a pod for which there is no node."""
    await cluster.api.write(Create(PODS, pod(name, on, **fields), namespace=space))
    found = await cluster.wait(PODS, name, waits, namespace=space)
    said = condition(found, "PodScheduled")
    assert (said["status"], found["status"]["phase"], found["spec"].get("nodeName")) == ("False", "Pending", None)
    return str(said["message"])


def taints(found: Object) -> dict[str, set[str]]:
    kept: dict[str, set[str]] = {}
    for taint in found["spec"].get("taints") or ():
        kept.setdefault(taint["key"], set()).add(taint["effect"])
    return kept


# -- running -----------------------------------------------------------------------------------------------------------


async def test_a_pod_is_bound_and_becomes_ready(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    found = await run(cluster, space, "a", on)
    status = found["status"]
    assert (found["spec"]["nodeName"], status["phase"]) == (on, "Running")
    expected = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    assert {type_: condition(found, type_).get("status") for type_ in expected} == dict.fromkeys(expected, "True")
    assert all(status[key] for key in ("startTime", "podIP", "hostIP"))
    (container,) = status["containerStatuses"]
    assert (container["name"], container["ready"], container["restartCount"]) == ("main", True, 0)
    assert "running" in container["state"]


async def test_the_steps_of_a_pod(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    start = (await cluster.api.list(PODS, namespace=space)).resource_version
    await run(cluster, space, "a", on, grace=1)
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    await cluster.wait_gone(PODS, "a", namespace=space)
    steps = []
    watch = cluster.api.watch(PODS, resource_version=start, namespace=space, timeout_seconds=20)
    async with aclosing(watch) as events:
        async for event in events:
            if event.object is None:
                continue
            spec, meta = event.object["spec"], event.object["metadata"]
            step = (spec.get("nodeName", ""), event.object["status"]["phase"], "deletionTimestamp" in meta)
            if step not in steps:
                steps.append(step)
            if event.type is EventType.DELETED:
                break
    assert steps == [("", "Pending", False), (on, "Pending", False), (on, "Running", False), (on, "Running", True)]


async def test_a_pod_given_its_node_needs_no_scheduler(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    found = await run(cluster, space, "a", "", nodeName=on)
    assert found["status"]["phase"] == "Running"


async def test_a_pod_that_starts_slowly(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.api.write(Create(PODS, pod("a", on, annotations=starts_after("4s")), namespace=space))
    await cluster.wait(PODS, "a", lambda it: it["spec"].get("nodeName"), namespace=space)
    bound = cluster.now()
    await cluster.settle(2.5)
    found = await cluster.api.get(PODS, "a", namespace=space)
    assert (found["status"]["phase"], is_ready(found)) == ("Pending", False)
    await cluster.wait(PODS, "a", is_ready, namespace=space)
    lasted = (cluster.now() - bound).total_seconds()
    assert abs(lasted - 4) <= (0.05 if cluster.exact else 1.5)


async def gone(cluster: Cluster, space: str, name: str) -> datetime:
    await cluster.wait_gone(PODS, name, namespace=space)
    return cluster.now()


async def test_a_process_that_does_not_end_is_ended_with_its_grace(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await run(cluster, space, "a", on, grace=3, annotations=ends_after("1h"))
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    due = parse_time((await cluster.api.get(PODS, "a", namespace=space))["metadata"]["deletionTimestamp"])
    late = (await gone(cluster, space, "a") - due).total_seconds()
    assert abs(late) <= (0.05 if cluster.exact else 1.6)


async def test_a_process_that_ends_ends_its_pod(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await run(cluster, space, "a", on, grace=30, annotations=ends_after("2s"))
    before = cluster.now()
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    lasted = (await gone(cluster, space, "a") - before).total_seconds()
    assert abs(lasted - 2) <= (0.05 if cluster.exact else 1.5)


async def test_a_leaving_pod_runs_and_is_ready_until_it_ends(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await run(cluster, space, "a", on, grace=30, annotations=ends_after("3s"))
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    await cluster.settle(1)
    found = await cluster.api.get(PODS, "a", namespace=space)
    assert (found["status"]["phase"], is_ready(found)) == ("Running", True)


async def test_a_shorter_grace_is_heeded_while_the_pod_leaves(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await run(cluster, space, "a", on, grace=60, annotations=ends_after("1h"))
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    await cluster.settle(1)
    await cluster.api.write(Delete(PODS, "a", namespace=space, grace_seconds=2))
    due = parse_time((await cluster.api.get(PODS, "a", namespace=space))["metadata"]["deletionTimestamp"])
    late = (await gone(cluster, space, "a") - due).total_seconds()
    # kwok counts the grace anew from when it hears of it, and is late by at most a second.
    assert abs(late) <= (0.05 if cluster.exact else 2.5)


async def test_a_finalizer_outlasts_the_process(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    body = pod("a", on, grace=1)
    body["metadata"]["finalizers"] = ["dovetail.dev/contract"]
    await cluster.api.write(Create(PODS, body, namespace=space))
    await cluster.wait(PODS, "a", is_ready, namespace=space)
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    await cluster.wait(
        PODS, "a", lambda it: it["metadata"].get("deletionGracePeriodSeconds") == 0, namespace=space, timeout=10
    )
    await cluster.api.write(Patch(PODS, "a", {"metadata": {"finalizers": None}}, namespace=space))
    assert await cluster.find(PODS, "a", namespace=space) is None


# -- scheduling --------------------------------------------------------------------------------------------------------


async def test_a_pod_that_fits_nowhere_waits_for_a_node(cluster: Cluster) -> None:
    space, group = await cluster.new_namespace(), cluster.unique("group")
    await cluster.add_node()
    message = await refused(cluster, space, "a", group)
    assert message.startswith("0/")
    assert " nodes are available: " in message
    assert "didn't match Pod's node affinity/selector" in message
    on = await cluster.add_node(group=group)
    found = await cluster.wait(PODS, "a", is_ready, namespace=space)
    assert found["spec"]["nodeName"] == on
    said = condition(found, "PodScheduled")
    assert (said["status"], said.get("reason"), said.get("message")) == ("True", None, None)


async def test_a_pod_too_large_waits_for_room(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node(cpu="1")
    await run(cluster, space, "a", on, cpu="700m", grace=1)
    message = await refused(cluster, space, "b", on, cpu="700m")
    assert message.startswith("0/")
    assert "Insufficient cpu" in message
    await cluster.api.write(Delete(PODS, "a", namespace=space, grace_seconds=0))
    await cluster.wait(PODS, "b", is_ready, namespace=space)


async def test_pods_are_counted_until_they_are_gone(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node(cpu="1")
    await run(cluster, space, "a", on, cpu="700m", grace=30, annotations=ends_after("3s"))
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    await refused(cluster, space, "b", on, cpu="700m")
    await cluster.wait(PODS, "b", is_ready, namespace=space)
    assert await cluster.find(PODS, "a", namespace=space) is None


async def test_a_taint_keeps_pods_away(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    on = await cluster.add_node(taints=[{"key": "mine", "value": "x", "effect": "NoSchedule"}])
    message = await refused(cluster, space, "a", on)
    assert "untolerated taint" in message
    await run(cluster, space, "b", "", nodeSelector={"test": on}, tolerations=[{"operator": "Exists"}])
    kept = [taint for taint in (await cluster.api.get(NODES, on))["spec"]["taints"] if taint["key"] != "mine"]
    await cluster.api.write(Patch(NODES, on, {"spec": {"taints": kept}}))
    await cluster.wait(PODS, "a", is_ready, namespace=space)


async def test_a_taint_that_is_tolerated_by_its_value(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    on = await cluster.add_node(taints=[{"key": "mine", "value": "x", "effect": "NoSchedule"}])
    own = {"key": "test", "operator": "Exists"}
    other = {"key": "mine", "operator": "Equal", "value": "y", "effect": "NoSchedule"}
    right = {"key": "mine", "operator": "Equal", "value": "x", "effect": "NoSchedule"}
    body = pod("a", on)
    body["spec"]["tolerations"] = [own, other]
    await cluster.api.write(Create(PODS, body, namespace=space))
    await cluster.wait(PODS, "a", waits, namespace=space)
    await run(cluster, space, "b", "", nodeSelector={"test": on}, tolerations=[own, right])


async def test_a_cordoned_node_takes_no_pods(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await run(cluster, space, "a", on)
    await cluster.api.write(Patch(NODES, on, {"spec": {"unschedulable": True}}))
    await cluster.wait(NODES, on, lambda it: taints(it).get(UNSCHEDULABLE) == {"NoSchedule"})
    await refused(cluster, space, "b", on)
    assert is_ready(await cluster.api.get(PODS, "a", namespace=space))
    await cluster.api.write(Patch(NODES, on, {"spec": {"unschedulable": None}}))
    await cluster.wait(PODS, "b", is_ready, namespace=space)
    await cluster.wait(NODES, on, lambda it: UNSCHEDULABLE not in taints(it))


async def test_a_gated_pod_is_not_tried(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    gated = pod("a", on, schedulingGates=[{"name": "dovetail.dev/gate"}])
    made = await cluster.api.write(Create(PODS, gated, namespace=space))
    said = condition(made, "PodScheduled")
    assert (said["status"], said["reason"]) == ("False", "SchedulingGated")
    await cluster.settle(1)
    assert "nodeName" not in (await cluster.api.get(PODS, "a", namespace=space))["spec"]
    await cluster.api.write(Patch(PODS, "a", {"spec": {"schedulingGates": None}}, namespace=space))
    await cluster.wait(PODS, "a", is_ready, namespace=space)


async def test_another_scheduler_is_waited_for(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.api.write(Create(PODS, pod("a", on, schedulerName="other"), namespace=space))
    await cluster.settle(1.5)
    found = await cluster.api.get(PODS, "a", namespace=space)
    assert ("nodeName" in found["spec"], condition(found, "PodScheduled")) == (False, {})


def among(*labels: str, **spec: Any) -> Object:
    """A pod spec's rule that concerns pods with one of the `app` labels, by host."""
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": list(labels)}]}
    return {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname", **spec}


async def test_pods_that_repel_each_other(cluster: Cluster) -> None:
    space, group = await cluster.new_namespace(), cluster.unique("group")
    await cluster.add_node(group=group)
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [among("a", "b")]}}
    await run(cluster, space, "a", group, affinity=rule)
    message = await refused(cluster, space, "b", group, affinity=rule)
    assert "didn't match pod anti-affinity rules" in message
    two = await cluster.add_node(group=group)
    found = await cluster.wait(PODS, "b", is_ready, namespace=space)
    assert found["spec"]["nodeName"] == two


async def test_pods_that_attract_each_other(cluster: Cluster) -> None:
    space, group = await cluster.new_namespace(), cluster.unique("group")
    for _ in range(3):
        await cluster.add_node(group=group)
    rule = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [among("a")]}}
    message = await refused(cluster, space, "b", group, affinity=rule)
    assert "didn't match pod affinity rules" in message
    first = await run(cluster, space, "a", group)
    second = await cluster.wait(PODS, "b", is_ready, namespace=space)
    assert first["spec"]["nodeName"] == second["spec"]["nodeName"]


async def test_pods_that_are_spread(cluster: Cluster) -> None:
    space, group = await cluster.new_namespace(), cluster.unique("group")
    for _ in range(2):
        await cluster.add_node(group=group)
    rule = among("a", "b", "c", "d", maxSkew=1, whenUnsatisfiable="DoNotSchedule")
    found = [
        (await run(cluster, space, name, group, topologySpreadConstraints=[rule]))["spec"]["nodeName"]
        for name in "abcd"
    ]
    assert sorted(found.count(name) for name in set(found)) == [2, 2]


async def test_a_node_by_its_affinity(cluster: Cluster) -> None:
    space, group = await cluster.new_namespace(), cluster.unique("group")
    nodes = [await cluster.add_node(group=group) for _ in range(2)]
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": nodes[:1]}]}
    rule = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    assert (await run(cluster, space, "a", group, affinity=rule))["spec"]["nodeName"] == nodes[1]


async def test_a_pod_of_a_higher_priority_takes_the_place(cluster: Cluster) -> None:
    space, on, high = await cluster.new_namespace(), await cluster.add_node(cpu="1"), cluster.unique("high")
    await cluster.make(PRIORITY_CLASSES, {"metadata": {"name": high}, "value": 1000})
    await run(cluster, space, "a", on, cpu="700m", grace=30, annotations=ends_after("2s"))
    made = await cluster.api.write(Create(PODS, pod("b", on, cpu="700m", priorityClassName=high), namespace=space))
    assert made["spec"]["priority"] == 1000
    left = await cluster.wait(PODS, "a", lambda it: "deletionTimestamp" in it["metadata"], namespace=space)
    said = condition(left, "DisruptionTarget")
    assert (said["status"], said["reason"]) == ("True", "PreemptionByScheduler")
    found = await cluster.wait(PODS, "b", lambda it: it["status"].get("nominatedNodeName"), namespace=space)
    assert (found["status"]["nominatedNodeName"], waits(found)) == (on, True)
    await cluster.wait(PODS, "b", is_ready, namespace=space)


async def test_a_priority_class_that_does_not_exist(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    with pytest.raises(Forbidden, match="no PriorityClass with name none was found"):
        await cluster.api.write(Create(PODS, pod("a", priorityClassName="none"), namespace=space))


async def test_a_node_that_is_being_deleted_still_takes_pods(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.api.write(Patch(NODES, on, {"metadata": {"finalizers": ["dovetail.dev/contract"]}}))
    await cluster.api.write(Delete(NODES, on))
    assert (await run(cluster, space, "a", on))["spec"]["nodeName"] == on


# -- nodes -------------------------------------------------------------------------------------------------------------


async def test_a_new_node_is_tainted_until_it_is_ready(cluster: Cluster) -> None:
    name = cluster.unique("node")
    made = await cluster.make(NODES, {"metadata": {"name": name}})
    assert taints(made) == {NOT_READY: {"NoSchedule"}}


async def test_a_node_that_ceases_to_be_ready(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.add_node()  # nobody is evicted when no node at all is ready
    await run(cluster, space, "a", on)
    await cluster.api.write(Patch(NODES, on, not_ready(True)))
    await cluster.wait(NODES, on, lambda it: condition(it, "Ready")["status"] == "False")
    await cluster.wait(NODES, on, lambda it: taints(it).get(NOT_READY) == {"NoSchedule", "NoExecute"})
    await refused(cluster, space, "b", on)
    await cluster.settle(2)
    # Its pods have 300 s before they are evicted.
    found = await cluster.api.get(PODS, "a", namespace=space)
    assert (found["status"]["phase"], "deletionTimestamp" in found["metadata"]) == ("Running", False)
    await cluster.api.write(Patch(NODES, on, not_ready(False)))
    await cluster.wait(NODES, on, lambda it: NOT_READY not in taints(it))
    await cluster.wait(PODS, "b", is_ready, namespace=space)


async def test_the_pods_of_a_node_that_says_it_is_not_ready_stay_ready(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.add_node()
    await run(cluster, space, "a", on)
    await cluster.api.write(Patch(NODES, on, not_ready(True)))
    await cluster.wait(NODES, on, lambda it: taints(it).get(NOT_READY) == {"NoSchedule", "NoExecute"})
    await cluster.settle(3)
    # The controller manager says otherwise only of nodes that it no longer hears of.
    assert is_ready(await cluster.api.get(PODS, "a", namespace=space))


async def test_no_execute_evicts(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await run(cluster, space, "a", on, grace=30, annotations=ends_after("2s"))
    own = {"key": "test", "operator": "Exists"}
    stays = {"key": "mine", "operator": "Exists"}
    await run(cluster, space, "b", "", nodeSelector={"test": on}, tolerations=[own, stays])
    now = (await cluster.api.get(NODES, on))["spec"]["taints"]
    await cluster.api.write(Patch(NODES, on, {"spec": {"taints": [*now, {"key": "mine", "effect": "NoExecute"}]}}))
    found = await cluster.wait(PODS, "a", lambda it: "deletionTimestamp" in it["metadata"], namespace=space)
    said = condition(found, "DisruptionTarget")
    assert (said["status"], said["reason"]) == ("True", "DeletionByTaintManager")
    await cluster.wait_gone(PODS, "a", namespace=space)
    assert is_ready(await cluster.api.get(PODS, "b", namespace=space))


async def test_no_execute_waits_as_long_as_it_is_tolerated(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    own = {"key": "test", "operator": "Exists"}
    while_ = {"key": "mine", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}
    await run(cluster, space, "a", "", nodeSelector={"test": on}, tolerations=[own, while_], grace=1)
    now = (await cluster.api.get(NODES, on))["spec"]["taints"]
    await cluster.api.write(Patch(NODES, on, {"spec": {"taints": [*now, {"key": "mine", "effect": "NoExecute"}]}}))
    began = cluster.now()
    await cluster.settle(1.5)
    assert "deletionTimestamp" not in (await cluster.api.get(PODS, "a", namespace=space))["metadata"]
    await cluster.eventually(
        lambda: cluster.find(PODS, "a", namespace=space), lambda it: it is None or "deletionTimestamp" in it["metadata"]
    )
    lasted = (cluster.now() - began).total_seconds()
    assert abs(lasted - 3) <= (0.1 if cluster.exact else 1.5)


async def test_a_deleted_node_goes_at_once_and_its_pods_later(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await run(cluster, space, "a", on)
    await cluster.api.write(Delete(NODES, on))
    assert await cluster.find(NODES, on) is None
    assert await cluster.find(PODS, "a", namespace=space) is not None
