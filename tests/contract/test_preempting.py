"""Who makes room for a pod of a higher priority, and who has the room until it comes?"""

from collections.abc import Mapping
from typing import Any

import pytest

from dovetail.ports import Create, Delete, Forbidden, Patch
from tests.contract.backends import Cluster, condition
from tests.contract.bodies import NODES, PDBS, PODS, PRIORITY_CLASSES, Object, budget, ends_after, pod
from tests.contract.test_pods import among, is_ready, refused, run, waits

HIGH = 1000
SLOW = ends_after("20s")  # longer than any test looks


async def classes(cluster: Cluster, *values: int, **fields: Any) -> dict[int, str]:
    """A priority class of each value."""
    made = {value: cluster.unique("priority") for value in values}
    for value, name in made.items():
        await cluster.make(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value, **fields})
    return made


async def start(cluster: Cluster, space: str, name: str, on: str, class_: str, *, app: str = "", **spec: Any) -> None:
    """A pod that is Ready and takes long to end; `on` is a node's name."""
    spec = {"nodeName": on, "grace": 30, "annotations": SLOW, "priorityClassName": class_, **spec}
    body = pod(name, **spec)
    body["metadata"]["labels"]["app"] = app or name
    await cluster.api.write(Create(PODS, body, namespace=space))
    await cluster.wait(PODS, name, is_ready, namespace=space)


async def preempts(cluster: Cluster, space: str, name: str, on: str, **spec: Any) -> tuple[str, set[str]]:
    """The pod's nominated node, and the pods that the scheduler drives away for it."""
    await cluster.api.write(Create(PODS, pod(name, on, **spec), namespace=space))
    await cluster.wait(PODS, name, lambda it: it["status"].get("nominatedNodeName"), namespace=space)
    await cluster.settle(1)
    found = (await cluster.api.list(PODS, namespace=space)).items
    gone = {it["metadata"]["name"] for it in found if "deletionTimestamp" in it["metadata"]}
    assert gone == {
        it["metadata"]["name"]
        for it in found
        if condition(it, "DisruptionTarget").get("reason") == "PreemptionByScheduler"
    }
    return (await cluster.api.get(PODS, name, namespace=space))["status"]["nominatedNodeName"], gone


def stays(found: Object) -> bool:
    return "deletionTimestamp" not in found["metadata"] and not condition(found, "DisruptionTarget")


# -- who may -----------------------------------------------------------------------------------------------------------


async def test_a_pod_of_the_same_priority_stays(cluster: Cluster) -> None:
    space, on, of = await cluster.new_namespace(), await cluster.add_node(cpu="1"), await classes(cluster, HIGH)
    await start(cluster, space, "a", on, of[HIGH], cpu="700m")
    message = await refused(cluster, space, "b", on, cpu="700m", priorityClassName=of[HIGH])
    assert " preemption: 0/" in message
    assert "1 No preemption victims found for incoming pod" in message
    await cluster.settle(1)
    assert stays(await cluster.api.get(PODS, "a", namespace=space))
    assert "nominatedNodeName" not in (await cluster.api.get(PODS, "b", namespace=space))["status"]


async def test_a_pod_that_never_preempts_waits(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node(cpu="1")
    of = await classes(cluster, HIGH, preemptionPolicy="Never")
    await run(cluster, space, "a", on, cpu="700m", grace=1)
    message = await refused(cluster, space, "b", on, cpu="700m", priorityClassName=of[HIGH])
    assert message.endswith("preemption: not eligible due to preemptionPolicy=Never.")
    await cluster.settle(1)
    assert stays(await cluster.api.get(PODS, "a", namespace=space))
    found = await cluster.api.get(PODS, "b", namespace=space)
    assert (found["spec"]["preemptionPolicy"], found["status"].get("nominatedNodeName")) == ("Never", None)
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    await cluster.wait(PODS, "b", is_ready, namespace=space)


async def test_the_priority_of_a_pod_is_its_classs(cluster: Cluster) -> None:
    space, of = await cluster.new_namespace(), await classes(cluster, HIGH)
    made = await cluster.api.write(Create(PODS, pod("a", "none-" + space), namespace=space))
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    right = pod("b", "none-" + space, priority=HIGH, priorityClassName=of[HIGH])
    made = await cluster.api.write(Create(PODS, right, namespace=space))
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (HIGH, "PreemptLowerPriority")
    with pytest.raises(Forbidden, match=r"the integer value of priority \(7\) must not .* computed 1000 from"):
        await cluster.api.write(Create(PODS, pod("c", priority=7, priorityClassName=of[HIGH]), namespace=space))
    with pytest.raises(Forbidden, match=r"the string value of PreemptionPolicy \(Never\) must not be provided"):
        await cluster.api.write(Create(PODS, pod("c", preemptionPolicy="Never"), namespace=space))


# -- who goes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "asks", "gone"),
    [
        pytest.param({"a": (1, "300m"), "b": (2, "300m"), "c": (3, "600m")}, "500m", "ab", id="two of lower priority"),
        pytest.param({"a": (1, "400m"), "b": (2, "400m"), "c": (3, "400m")}, "400m", "a", id="the lowest"),
        pytest.param({"a": (1, "200m"), "b": (1, "400m"), "c": (1, "600m")}, "400m", "c", id="the youngest"),
    ],
)
async def test_the_least_important_pods_of_a_node_go(
    cluster: Cluster, pods: Mapping[str, tuple[int, str]], asks: str, gone: str
) -> None:
    space, on, of = (
        await cluster.new_namespace(),
        await cluster.add_node(cpu="1200m"),
        await classes(cluster, 1, 2, 3, HIGH),
    )
    for name, (priority, cpu) in pods.items():
        await start(cluster, space, name, on, of[priority], cpu=cpu)
        await cluster.settle(1.1)  # they start in different seconds
    assert await preempts(cluster, space, "z", on, cpu=asks, priorityClassName=of[HIGH]) == (on, set(gone))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param([3, 3], [5], id="the lowest highest priority"),
        pytest.param([10, 5], [10, 1, 1], id="the fewest"),
        pytest.param([10, 2], [10, 5], id="the lowest sum"),
    ],
)
async def test_the_node_with_the_least_harm(cluster: Cluster, one: list[int], other: list[int]) -> None:
    space, group, of = (
        await cluster.new_namespace(),
        cluster.unique("group"),
        await classes(cluster, 1, 2, 3, 5, 10, HIGH),
    )
    nodes = [await cluster.add_node(group=group, cpu="1200m") for _ in range(2)]
    for letter, on, priorities in (("b", nodes[0], other), ("a", nodes[1], one)):
        for number, priority in enumerate(priorities):
            cpu = f"{1200 // len(priorities)}m"
            await start(cluster, space, f"{letter}{number}", on, of[priority], cpu=cpu)
    expected = {f"a{number}" for number in range(len(one))}
    found = await preempts(cluster, space, "z", group, cpu="1200m", priorityClassName=of[HIGH])
    assert found == (nodes[1], expected)


async def test_the_node_whose_victim_started_last(cluster: Cluster) -> None:
    space, group, of = await cluster.new_namespace(), cluster.unique("group"), await classes(cluster, 1, HIGH)
    nodes = sorted([await cluster.add_node(group=group, cpu="1") for _ in range(2)])
    await start(cluster, space, "a", nodes[0], of[1], cpu="700m")
    await cluster.settle(1.1)
    await start(cluster, space, "b", nodes[1], of[1], cpu="700m")
    assert await preempts(cluster, space, "z", group, cpu="700m", priorityClassName=of[HIGH]) == (nodes[1], {"b"})


async def protect(cluster: Cluster, space: str, app: str, *, healthy: int, allowed: int) -> None:
    await cluster.api.write(Create(PDBS, budget(app, minAvailable=healthy - allowed), namespace=space))
    expected = {"currentHealthy": healthy, "disruptionsAllowed": allowed}
    await cluster.wait(PDBS, app, lambda it: expected.items() <= it["status"].items(), namespace=space)
    await cluster.settle(0.5)  # the scheduler sees it a little later


async def test_rather_a_pod_of_a_higher_priority_than_one_of_a_budget(cluster: Cluster) -> None:
    space, group, of = await cluster.new_namespace(), cluster.unique("group"), await classes(cluster, 1, 5, HIGH)
    nodes = [await cluster.add_node(group=group, cpu="1") for _ in range(2)]
    await start(cluster, space, "a", nodes[0], of[1], cpu="1")
    for name in ("b", "c"):
        await start(cluster, space, name, nodes[1], of[5], cpu="500m")
    await protect(cluster, space, "a", healthy=1, allowed=0)
    await protect(cluster, space, "b", healthy=1, allowed=0)
    found = await preempts(cluster, space, "y", group, cpu="500m", priorityClassName=of[HIGH])
    assert found == (nodes[1], {"c"})


async def test_a_budget_does_not_save_the_only_victim(cluster: Cluster) -> None:
    space, on, of = await cluster.new_namespace(), await cluster.add_node(cpu="1"), await classes(cluster, 1, HIGH)
    await start(cluster, space, "a", on, of[1], cpu="700m")
    await protect(cluster, space, "a", healthy=1, allowed=0)
    assert await preempts(cluster, space, "z", on, cpu="700m", priorityClassName=of[HIGH]) == (on, {"a"})


async def test_what_a_budget_allows_is_for_the_important(cluster: Cluster) -> None:
    space, on, of = await cluster.new_namespace(), await cluster.add_node(cpu="1"), await classes(cluster, 1, 5, HIGH)
    await start(cluster, space, "a", on, of[1], app="x", cpu="500m")
    await start(cluster, space, "b", on, of[5], app="x", cpu="500m")
    await protect(cluster, space, "x", healthy=2, allowed=1)
    # One of them may go. It is counted as that of the higher priority, so the other one is kept.
    assert await preempts(cluster, space, "z", on, cpu="500m", priorityClassName=of[HIGH]) == (on, {"b"})


async def test_a_port_and_a_neighbour_are_made_room_for(cluster: Cluster) -> None:
    space, on, of = await cluster.new_namespace(), await cluster.add_node(), await classes(cluster, 1, HIGH)
    ports = [{"name": "main", "image": "none", "ports": [{"containerPort": 80, "hostPort": 8080}]}]
    await start(cluster, space, "a", on, of[1], containers=ports)
    await start(cluster, space, "b", on, of[1])
    await start(cluster, space, "c", on, of[1])
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [among("b")]}}
    found = await preempts(cluster, space, "z", on, priorityClassName=of[HIGH], containers=ports, affinity=apart)
    assert found == (on, {"a", "b"})


# -- until it has its place --------------------------------------------------------------------------------------------


async def test_the_place_is_kept(cluster: Cluster) -> None:
    space, on, of = await cluster.new_namespace(), await cluster.add_node(cpu="1"), await classes(cluster, 1, 500, HIGH)
    await start(cluster, space, "a", on, of[1], cpu="700m", annotations=ends_after("4s"))
    assert await preempts(cluster, space, "b", on, cpu="900m", priorityClassName=of[HIGH]) == (on, {"a"})
    # There is room beside the one that leaves, but not beside the one that comes.
    message = await refused(cluster, space, "c", on, cpu="200m", priorityClassName=of[500])
    assert "Insufficient cpu" in message.partition("preemption: ")[2]
    found = await cluster.wait(PODS, "b", is_ready, namespace=space)
    assert (found["spec"]["nodeName"], "nominatedNodeName" in found["status"]) == (on, False)
    found = await cluster.api.get(PODS, "c", namespace=space)
    assert (found["spec"].get("nodeName"), waits(found)) == (None, True)


async def test_the_place_goes_to_who_is_still_more_important(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node(cpu="1")
    of = await classes(cluster, 1, HIGH, 2 * HIGH)
    await start(cluster, space, "a", on, of[1], cpu="700m", annotations=ends_after("4s"))
    assert await preempts(cluster, space, "b", on, cpu="900m", priorityClassName=of[HIGH]) == (on, {"a"})
    await run(cluster, space, "c", on, cpu="200m", priorityClassName=of[2 * HIGH])
    await cluster.wait_gone(PODS, "a", namespace=space)
    # Nothing is left for the other one to hope for.
    await cluster.wait(PODS, "b", lambda it: "nominatedNodeName" not in it["status"], namespace=space)
    assert waits(await cluster.api.get(PODS, "b", namespace=space))


async def test_it_goes_elsewhere_if_there_is_room_sooner(cluster: Cluster) -> None:
    space, group, of = await cluster.new_namespace(), cluster.unique("group"), await classes(cluster, 1, HIGH)
    one = await cluster.add_node(group=group, cpu="1")
    await start(cluster, space, "a", one, of[1], cpu="700m")
    assert await preempts(cluster, space, "b", group, cpu="700m", priorityClassName=of[HIGH]) == (one, {"a"})
    two = await cluster.add_node(group=group, cpu="1")
    assert (await cluster.wait(PODS, "b", is_ready, namespace=space))["spec"]["nodeName"] == two


async def test_it_preempts_anew_if_the_node_is_lost_to_it(cluster: Cluster) -> None:
    space, group, of = await cluster.new_namespace(), cluster.unique("group"), await classes(cluster, 1, 2, HIGH)
    nodes = [await cluster.add_node(group=group, cpu="1") for _ in range(2)]
    await start(cluster, space, "a", nodes[0], of[1], cpu="700m")
    await start(cluster, space, "b", nodes[1], of[2], cpu="700m")
    assert await preempts(cluster, space, "z", group, cpu="700m", priorityClassName=of[HIGH]) == (nodes[0], {"a"})
    await cluster.api.write(Patch(NODES, nodes[0], {"spec": {"unschedulable": True}}))
    await cluster.wait(PODS, "b", lambda it: not stays(it), namespace=space)
    await cluster.wait(PODS, "z", lambda it: it["status"].get("nominatedNodeName") == nodes[1], namespace=space)


async def test_a_pod_that_leaves_anyway_is_waited_for(cluster: Cluster) -> None:
    space, on, of = await cluster.new_namespace(), await cluster.add_node(cpu="1"), await classes(cluster, 1, HIGH)
    await start(cluster, space, "a", on, of[1], cpu="700m", annotations=ends_after("3s"))
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    await cluster.api.write(Create(PODS, pod("b", on, cpu="700m", priorityClassName=of[HIGH]), namespace=space))
    await cluster.wait(PODS, "b", lambda it: it["status"].get("nominatedNodeName") == on, namespace=space)
    await cluster.settle(0.5)
    left = await cluster.api.get(PODS, "a", namespace=space)
    assert condition(left, "DisruptionTarget") == {}
    await cluster.wait(PODS, "b", is_ready, namespace=space)
