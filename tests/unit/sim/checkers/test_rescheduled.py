"""Pods that consolidation evicts and that find no node again."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dovetail.ports import NODES, PODS, Delete, Unavailable
from dovetail.sim.checkers.checkers import Checkers
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.stage import stage
from tests.unit.sim.checkers.planting import DISRUPTED, Ground, play

pytestmark = stage(play)

RULE = "rescheduled"


async def _evicted(
    ground: Ground,
    replicas: int,
    *,
    reason: str = "Underutilized",
    meanwhile: Callable[[Ground], Coroutine[Any, Any, None]] | None = None,
    then: str = "10m",
) -> Checkers:
    """Nodes a and b of 4 cpus have so many pods of 1 cpu; those of a are evicted, and have to go to b."""
    await ground.begin()
    await ground.nodes("a", "b")
    await ground.sim.apply(manifests.deployment("web", replicas=replicas, cpu="1"))
    await ground.sim.wait_until(lambda: len(ground.sim.pods(ready=True)) == replicas)
    await ground.sim.run_for("1s")
    await ground.write_down("a", reason=reason)
    await ground.taint("a", DISRUPTED)
    await ground.delete("a")
    if meanwhile is not None:
        await meanwhile(ground)
    await ground.us.write(Delete(NODES, "a"))
    for pod in ground.sim.pods(node="a"):
        await ground.evict(pod["metadata"]["name"])
    await ground.sim.run_for(then)
    return ground.finish()


async def test_a_pod_that_finds_no_node_again_is_caught(ground: Ground) -> None:
    checkers = await _evicted(ground, 5)
    (found,) = [each for each in checkers.violations if each.rule == RULE]
    assert checkers.applied[RULE] == 3
    assert found.object.startswith("Pod/default/web-")
    assert "has no node since 2026-03-02T00:00:0" in found.message
    assert ", after consolidation evicted Pod/default/web-" in found.message


async def test_pods_that_find_one_are_not(ground: Ground) -> None:
    checkers = await _evicted(ground, 4)
    assert checkers.violations == []
    assert checkers.applied[RULE] == 2
    assert checkers.not_applied[RULE] == 0


async def test_pods_of_one_owner_that_each_wait_for_a_minute_are_not(ground: Ground) -> None:
    """Whenever somebody looks, one of them waits: never the same one."""
    await ground.begin()
    await ground.nodes("a", "b")
    slow = {"dovetail.dev/shutdown": "60s"}
    spec = {"terminationGracePeriodSeconds": 90}
    await ground.sim.apply(manifests.deployment("web", replicas=4, cpu="1", annotations=slow, **spec))
    await ground.sim.wait_until(lambda: len(ground.sim.pods(ready=True)) == 4)
    await ground.sim.run_for("1s")
    await ground.taint("a", DISRUPTED)
    for id_ in range(12):
        from_ = "a" if ground.sim.pods(node="a") else "b"
        await ground.write_down(from_, reason="Underutilized", id_=str(id_))
        await ground.evict(ground.sim.pods(node=from_)[0]["metadata"]["name"])
        await ground.sim.run_for("70s")
    await ground.sim.run_for("5m")
    checkers = ground.finish()
    assert [each for each in checkers.violations if each.rule == RULE] == []
    assert checkers.applied[RULE] == 12


async def test_a_run_that_ends_too_early_tells_nothing(ground: Ground) -> None:
    checkers = await _evicted(ground, 5, then="1m")
    assert (checkers.applied[RULE], checkers.not_applied[RULE]) == (0, 3)


async def test_drift_makes_no_such_promise(ground: Ground) -> None:
    assert (await _evicted(ground, 5, reason="Drifted")).applied[RULE] == 0


async def a_pod_comes(ground: Ground) -> None:
    await ground.sim.apply(manifests.pod("late", cpu="1"))


async def a_node_fails(ground: Ground) -> None:
    ground.sim.set_node_ready("b", ready=False)
    await ground.sim.run_for("1s")


async def requests_fail(ground: Ground) -> None:
    ground.sim.server.faults.add(Fault(error=Unavailable("down")), client="kubelet", times=2)


async def a_pod_is_deleted(ground: Ground) -> None:
    (pod, *_) = ground.sim.pods(node="b")
    await ground.sim.api.write(Delete(PODS, pod["metadata"]["name"], namespace="default"))


@pytest.mark.parametrize("meanwhile", [a_pod_comes, a_node_fails, requests_fail, a_pod_is_deleted])
async def test_what_happens_meanwhile_makes_it_not_apply(ground: Ground, meanwhile: Any) -> None:
    checkers = await _evicted(ground, 6, meanwhile=meanwhile)
    assert checkers.applied[RULE] == 0
    assert checkers.not_applied[RULE] > 0
