"""How long pods took from the first plan for them to a node, and to running (04 §3.5, 06 §6)."""

import pytest

from dovetail.ports import NODES, InsufficientCapacity
from dovetail.sim.actors.wire import START_DELAY
from dovetail.sim.cloud.machines import Launch
from tests.harness import manifests
from tests.harness.provisioning import BIG, Setting, play, pool_of_four
from tests.harness.stage import stage

pytestmark = stage(play)

BOUND = "karpenter_pods_provisioning_bound_duration_seconds"
STARTED = "karpenter_pods_provisioning_startup_duration_seconds"


def counted(setting: Setting, name: str) -> int:
    return int(setting.metrics.registry.get_sample_value(f"{name}_count") or 0)


def seconds(setting: Setting, name: str) -> float:
    return setting.metrics.registry.get_sample_value(f"{name}_sum") or 0.0


def is_bound(setting: Setting, app: str) -> bool:
    return bool(setting.sim.pods(app=app)[0]["spec"].get("nodeName"))


async def test_from_the_plan_to_the_node_and_to_running(setting: Setting) -> None:
    await setting.begin()
    setting.cloud.next_launches(Launch(seconds=20))
    await setting.sim.apply(manifests.pod("a", cpu=BIG, annotations={START_DELAY: "7s"}))
    await setting.seconds_until(lambda: bool(setting.claims()))
    to_node = await setting.seconds_until(lambda: is_bound(setting, "a"))
    assert to_node > 20
    assert (counted(setting, BOUND), counted(setting, STARTED)) == (1, 0)
    await setting.runs_all("a", 1)
    assert (counted(setting, BOUND), counted(setting, STARTED)) == (1, 1)
    assert seconds(setting, BOUND) == pytest.approx(to_node, abs=1)
    assert seconds(setting, STARTED) == pytest.approx(to_node + 7, abs=1)


async def test_after_an_error_it_counts_from_the_next_plan(setting: Setting) -> None:
    await setting.begin()
    setting.cloud.next_launches(Launch(error=InsufficientCapacity("none left"), seconds=5))
    await setting.sim.apply(manifests.pod("a", cpu=BIG))
    await setting.sim.wait_until(lambda: bool(setting.claims()))
    await setting.sim.apply(pool_of_four(limits={"cpu": "1"}))
    await setting.sim.run_for("5m")
    assert (setting.claims(), counted(setting, BOUND)) == ([], 0)
    await setting.sim.apply(pool_of_four(limits={"cpu": "100"}))
    await setting.runs_all("a", 1)
    assert (counted(setting, BOUND), counted(setting, STARTED)) == (1, 1)
    assert seconds(setting, BOUND) < 60  # and not the five minutes without a place


async def test_a_pod_that_was_never_planned_for_does_not_count(setting: Setting) -> None:
    await setting.begin()
    await setting.sim.apply(manifests.node("by-hand", cpu="8"))
    await setting.sim.run_for("5s")
    await setting.sim.apply(manifests.pod("a", cpu=BIG))
    await setting.runs_all("a", 1)
    assert (counted(setting, BOUND), counted(setting, STARTED)) == (0, 0)


async def test_a_pod_that_runs_and_is_moved_counts_once(setting: Setting) -> None:
    """While its node goes it is planned for again, but it has a node; the pod that comes in its stead has not."""
    await setting.begin()
    await setting.sim.apply(manifests.deployment("web", replicas=1, cpu=BIG))
    await setting.runs_all("web", 1)
    first = setting.claims()[0]["metadata"]["name"]
    await setting.delete_claim(first)
    await setting.sim.wait_until(lambda: len(setting.sim.objects(NODES)) == 1 and first not in str(setting.claims()))
    await setting.runs_all("web", 1)
    assert counted(setting, BOUND) == counted(setting, STARTED)
    assert counted(setting, BOUND) in (1, 2)
