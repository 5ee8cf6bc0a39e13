"""Pods that consolidation evicts and that find no node again."""

from collections.abc import Callable, Coroutine
from typing import Any

from dovetail.ports import NODES, PODS, Unavailable
from dovetail.sim.actors import manifests
from dovetail.sim.checkers.checkers import Checkers
from dovetail.sim.faults import Fault
from tests.unit.sim.checkers.planting import DISRUPTED, Ground, checked

RULE = "rescheduled"


def _evicted(
    replicas: int,
    *,
    reason: str = "Underutilized",
    meanwhile: Callable[[Ground], Coroutine[Any, Any, None]] | None = None,
    then: str = "10m",
) -> Checkers:
    """Nodes a and b of 4 cpus have so many pods of 1 cpu; those of a are evicted, and have to go to b."""

    async def scenario(ground: Ground) -> None:
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
        await ground.us.delete(NODES, "a")
        for pod in ground.sim.pods(node="a"):
            await ground.evict(pod["metadata"]["name"])
        await ground.sim.run_for(then)

    return checked(scenario)


def test_a_pod_that_finds_no_node_again_is_caught() -> None:
    checkers = _evicted(5)
    found = [each for each in checkers.violations if each.rule == RULE]
    assert len(found) == checkers.applied[RULE] > 0
    assert found[0].object.startswith("Pod/default/web-")
    assert "was evicted by consolidation 2026-03-02T00:00:0" in found[0].message
    assert ", and its like have no node since: web-" in found[0].message


def test_pods_that_find_one_are_not() -> None:
    checkers = _evicted(4)
    assert checkers.violations == []
    assert checkers.applied[RULE] == 2
    assert checkers.not_applied[RULE] == 0


def test_a_run_that_ends_too_early_tells_nothing() -> None:
    checkers = _evicted(5, then="1m")
    assert (checkers.applied[RULE], checkers.not_applied[RULE]) == (0, 3)


def test_drift_makes_no_such_promise() -> None:
    assert _evicted(5, reason="Drifted").applied[RULE] == 0


def test_what_happens_meanwhile_makes_it_not_apply() -> None:
    async def a_pod_comes(ground: Ground) -> None:
        await ground.sim.apply(manifests.pod("late", cpu="1"))

    async def a_node_fails(ground: Ground) -> None:
        ground.sim.set_node_ready("b", ready=False)
        await ground.sim.run_for("1s")

    async def requests_fail(ground: Ground) -> None:
        ground.sim.server.faults.add(Fault(error=Unavailable("down")), client="kubelet", times=2)

    async def a_pod_is_deleted(ground: Ground) -> None:
        (pod, *_) = ground.sim.pods(node="b")
        await ground.sim.api.delete(PODS, pod["metadata"]["name"], namespace="default")

    for meanwhile in (a_pod_comes, a_node_fails, requests_fail, a_pod_is_deleted):
        checkers = _evicted(6, meanwhile=meanwhile)
        assert checkers.applied[RULE] == 0, meanwhile.__name__
        assert checkers.not_applied[RULE] > 0, meanwhile.__name__
