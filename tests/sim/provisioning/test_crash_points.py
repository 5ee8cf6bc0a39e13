"""A controller that dies before or after any of its writes makes no node twice, and leaves no pod without one."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dovetail.api import names
from dovetail.controllers.provisioning.provisioner import ProvisioningOptions
from dovetail.ports import NODECLAIMS, NODES, Delete
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.loop.virtual_loop import InlineCompute
from tests.conftest import CRASH_POINTS
from tests.harness import manifests
from tests.harness.claims import node_class
from tests.harness.provisioning import BIG, pool_of_four
from tests.sim.crash.mortal import Flow, World, crash_points, live_through

PROVISIONING = ProvisioningOptions(compute=InlineCompute())
Account = Mapping[str, Any]


def account(world: World) -> Account:
    """What there is, without names, which follow from when a process began."""
    sim, now = world.sim, world.sim.clock.now()
    machines = world.cloud.machines.values()
    return {
        "claims": sorted(map(_gist, sim.objects(NODECLAIMS)), key=str),
        "nodes": Counter(node["metadata"]["labels"].get(names.NODEPOOL_LABEL) for node in sim.objects(NODES)),
        "running machines": sum(not machine.gone(now) for machine in machines),
        "machines ever": len(machines),
        "ready": Counter(pod["metadata"]["labels"]["app"] for pod in sim.pods(ready=True)),
    }


def _gist(claim: Mapping[str, Any]) -> tuple[Any, ...]:
    spec = claim["spec"]
    conditions = {each["type"]: each["status"] for each in claim["status"]["conditions"]}
    return claim["metadata"]["labels"][names.NODEPOOL_LABEL], spec.get("resources"), sorted(conditions.items())


async def begin(world: World, *pools: Mapping[str, Any]) -> None:
    await world.sim.apply(node_class(), *pools)
    await world.sim.run_for("5s")


def running(sim: SimCluster, app: str, count: int) -> Callable[[], bool]:
    return lambda: len(sim.pods(app=app, ready=True)) == count


async def pods_get_nodes(world: World) -> Account:
    """Two machines at once, and then one more."""
    await begin(world, pool_of_four())
    world.begin()
    await world.sim.apply(manifests.deployment("web", replicas=2, cpu=BIG))
    await world.sim.wait_until(running(world.sim, "web", 2), timeout="20m")
    await world.sim.apply(manifests.deployment("late", cpu=BIG))
    await world.sim.wait_until(running(world.sim, "late", 1), timeout="20m")
    await world.sim.run_for("3m")  # in which anything too much would show
    return account(world)


async def a_node_goes(world: World) -> Account:
    """Its pod cannot leave before it runs elsewhere, so there must be a node for it."""
    await begin(world, pool_of_four())
    await world.sim.apply(manifests.deployment("web", replicas=2, cpu="1"), manifests.pdb("web", minAvailable=1))
    await world.sim.wait_until(running(world.sim, "web", 2))
    world.begin()
    (claim,) = world.sim.objects(NODECLAIMS)
    await world.sim.api.write(Delete(NODECLAIMS, claim["metadata"]["name"]))
    uid = claim["metadata"]["uid"]
    await world.sim.wait_until(
        lambda: all(each["metadata"]["uid"] != uid for each in world.sim.objects(NODECLAIMS)), timeout="20m"
    )
    await world.sim.wait_until(running(world.sim, "web", 2), timeout="20m")
    await world.sim.run_for("3m")  # in which anything too much would show
    return account(world)


async def replicas_change(world: World) -> Account:
    await begin(world)
    world.begin()
    await world.sim.apply(pool_of_four(replicas=2))
    await world.sim.wait_until(lambda: len(world.sim.objects(NODES)) == 2, timeout="20m")
    await world.sim.run_for("1m")
    await world.sim.apply(pool_of_four(replicas=1))
    await world.sim.wait_until(lambda: len(world.sim.objects(NODES)) == 1, timeout="20m")
    await world.sim.run_for("3m")  # in which anything too much would show
    return account(world)


@pytest.mark.parametrize("flow", [pods_get_nodes, a_node_goes, replicas_change], ids=lambda flow: flow.__name__)
def test_every_crash_point(flow: Flow[Account], record_property: Callable[[str, object], None]) -> None:
    undisturbed = live_through(flow, None, provisioning=PROVISIONING)
    points = crash_points(len(undisturbed.writes))
    assert any(write.startswith("create nodeclaims ") for write in undisturbed.writes)
    different = {}
    for point in points:
        ending = live_through(flow, point, provisioning=PROVISIONING)
        if ending.account != undisturbed.account:
            different[f"{point}: {ending.writes[point.write - 1]}"] = ending.account
    record_property(CRASH_POINTS, len(points))
    assert not different, (undisturbed.account, different)
