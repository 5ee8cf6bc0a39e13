"""When are the pods of nodes that are not Ready driven off, and when is the fault not the nodes'?"""

from collections.abc import Iterable

from dovetail.ports import Patch
from tests.contract.backends import Cluster, condition
from tests.contract.bodies import NODES, not_ready
from tests.contract.test_pods import NOT_READY, taints


async def fails(cluster: Cluster, *nodes: str) -> None:
    """The nodes say that they are not Ready, and nobody new is sent there."""
    for name in nodes:
        await cluster.api.write(Patch(NODES, name, not_ready(True)))
    for name in nodes:
        await cluster.wait(NODES, name, lambda it: "NoSchedule" in taints(it).get(NOT_READY, ()))


async def recovers(cluster: Cluster, name: str) -> None:
    await cluster.api.write(Patch(NODES, name, not_ready(False)))
    await cluster.wait(NODES, name, lambda it: condition(it, "Ready")["status"] == "True")


async def emptied(cluster: Cluster, nodes: Iterable[str]) -> list[str]:
    """Those of the nodes that do not keep their pods."""
    return [name for name in nodes if "NoExecute" in taints(await cluster.api.get(NODES, name)).get(NOT_READY, ())]


async def zone(cluster: Cluster, size: int) -> list[str]:
    name = cluster.unique("zone")
    return [await cluster.add_node(zone=name) for _ in range(size)]


async def test_the_nodes_of_a_zone_are_emptied_one_after_the_other(cluster: Cluster) -> None:
    nodes = await zone(cluster, 3)
    await fails(cluster, *nodes[:2])
    (first,) = await cluster.eventually(lambda: emptied(cluster, nodes))
    began = cluster.now()
    await cluster.settle(5)
    assert await emptied(cluster, nodes) == [first]
    await cluster.eventually(lambda: emptied(cluster, nodes), lambda found: found == nodes[:2])
    lasted = (cluster.now() - began).total_seconds()
    assert abs(lasted - 10) <= (0.1 if cluster.exact else 3)


async def test_when_most_of_a_zone_fails_it_is_left_alone(cluster: Cluster) -> None:
    nodes = await zone(cluster, 5)
    await fails(cluster, nodes[0])
    await cluster.eventually(lambda: emptied(cluster, nodes), lambda found: found == nodes[:1])
    await fails(cluster, *nodes[1:3])
    await cluster.settle(14)  # long enough for the next, had it been its turn
    assert await emptied(cluster, nodes) == nodes[:1]
    await recovers(cluster, nodes[2])
    await cluster.eventually(lambda: emptied(cluster, nodes), lambda found: found == nodes[:2])


async def test_when_all_of_a_zone_fails_its_pods_go_elsewhere(cluster: Cluster) -> None:
    nodes = await zone(cluster, 1)
    await zone(cluster, 1)
    await fails(cluster, *nodes)
    await cluster.eventually(lambda: emptied(cluster, nodes), lambda found: found == nodes)


async def test_when_no_node_is_ready_nobody_is_driven_off(lone_cluster: Cluster) -> None:
    cluster = lone_cluster
    one, two = await cluster.add_node(), await cluster.add_node()
    await fails(cluster, one)
    await cluster.eventually(lambda: emptied(cluster, (one, two)), lambda found: found == [one])
    await fails(cluster, two)
    await cluster.eventually(lambda: emptied(cluster, (one, two)), lambda found: not found)
    await cluster.settle(12)
    assert await emptied(cluster, (one, two)) == []
    await recovers(cluster, two)
    await cluster.eventually(lambda: emptied(cluster, (one, two)), lambda found: found == [one])


async def test_the_only_node_keeps_its_pods(lone_cluster: Cluster) -> None:
    cluster = lone_cluster
    on = await cluster.add_node()
    await fails(cluster, on)
    await cluster.settle(5)
    assert taints(await cluster.api.get(NODES, on))[NOT_READY] == {"NoSchedule"}
