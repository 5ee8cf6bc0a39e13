"""What a pass notes on the event loop: only what has changed is looked at again, in short turns, and it is one instant.

Work is counted, not timed: what is the same object as before was not made again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.api.names import Reason
from dovetail.controllers.metrics.cluster import ClusterMetrics
from dovetail.observe.metrics import rendered
from dovetail.planning.disruption.assessment import DisruptionAssessment, DisruptionInputs, DisruptionPlanner
from dovetail.planning.disruption.board import Candidate, Method
from dovetail.planning.disruption.records import CommandRecord, written
from dovetail.ports import NODECLAIMS, NODES, PDBS, PODS
from dovetail.scheduling.placement import SchedulingOptions
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.state.scheduling import ClusterSnapshot
from tests.harness import manifests
from tests.harness.claims import condition
from tests.harness.metrics_text import exposition
from tests.harness.placing import START, Manifest, Scene, a_claim, a_node, a_pod, a_pool
from tests.harness.stage import gives, stage

NODES_THERE = 60
UP = ("Registered", "Initialized", "Consolidatable")


class Boards(Scene):
    """With the maker of boards and a scrape."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.planner = DisruptionPlanner(options=SchedulingOptions())
        self.registry = CollectorRegistry()
        self.registry.register(ClusterMetrics(self.cluster, clock, leads=lambda: True))

    async def begin(self, count: int = NODES_THERE) -> None:
        """Nodes with a pod each, all of which could be consolidated."""
        await self.put(a_pool(disruption={"consolidateAfter": "0s"}), manifests.pdb("web", maxUnavailable=1))
        await self.allow(1)
        for number in range(count):
            name = f"n-{number}"
            await self.put(
                ready(a_node(name)),
                quiet(a_claim(name, of=name, true=UP)),
                a_pod(f"p-{number}", on=name, labels={"app": "web"}),
            )
        await self.types.refresh(self.state.usable_pools())

    async def allow(self, evictions: int) -> None:
        """So many, as the budget's status says."""
        status = {"disruptionsAllowed": evictions, "expectedPods": 5}
        await self.change(PDBS, "web", {"status": status}, subresource="status")

    def snapshot(self) -> ClusterSnapshot:
        return self.state.snapshot(self.clock.now())

    def assessment(self) -> DisruptionAssessment:
        return self.planner.assess(DisruptionInputs(snapshot=self.snapshot()))


def ready(node: Manifest) -> Manifest:
    return {**node, "status": {**node.get("status", {}), "conditions": [condition("Ready")]}}


def quiet(claim: Manifest) -> Manifest:
    """No pod has come to it or left it for long."""
    claim["status"]["lastPodEventTime"] = "2026-02-01T00:00:00Z"
    return claim


@gives("world")
def play(scenario: Callable[[Boards], Coroutine[Any, Any, None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        world = Boards(clock)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(cache.run()) for cache in world.cluster.reflectors]
            for cache in world.cluster.reflectors:
                await cache.wait_synced()
            await scenario(world)
            for task in running:
                task.cancel()

    simulate(main, start=START)


pytestmark = stage(play)


def made_again(before: Mapping[Any, object], after: Mapping[Any, object]) -> list[str]:
    """The names of what is another object now."""
    return sorted(key.name for key, each in after.items() if before.get(key) is not each)


def taken(assessment: DisruptionAssessment) -> dict[str, Candidate]:
    return {each.node: each for each in assessment.candidates.get(Reason.UNDERUTILIZED, ())}


async def test_after_a_pod_has_changed_only_its_node_is_looked_at(world: Boards) -> None:
    await world.begin()
    first, whole = world.snapshot(), world.assessment()
    assert len(taken(whole)) == NODES_THERE
    assert world.snapshot().nodes is first.nodes
    await world.change(PODS, "p-7", {"metadata": {"annotations": {names.POD_DELETION_COST: "5"}}})
    second = world.snapshot()
    assert made_again(first.nodes, second.nodes) == ["n-7"]
    assert made_again(first.movable, second.movable) == ["n-7"]
    known, again = taken(whole), taken(world.assessment())
    assert [name for name, each in again.items() if each.pods is not known[name].pods] == ["n-7"]


async def test_a_candidate_has_its_reason_since_the_condition_of_that_reason(world: Boards) -> None:
    days = {"Drifted": "2026-02-03", "Expired": "2026-02-04", "Consolidatable": "2026-02-05"}
    await world.begin(0)
    claim = quiet(a_claim("n", of="n", true=("Registered", "Initialized")))
    claim["status"]["conditions"] += [
        condition(type_, lastTransitionTime=f"{day}T00:00:00Z") for type_, day in days.items()
    ]
    await world.put(a_node("n"), claim)
    since = {reason: each.since for reason, (each,) in world.assessment().candidates.items()}
    dates = {reason: str(at.date()) for reason, at in since.items() if at is not None}
    assert dates == {"Drifted": days["Drifted"], "Expired": days["Expired"], "Empty": days["Consolidatable"]}


async def test_a_replacement_that_a_command_waits_for_is_no_candidate(world: Boards) -> None:
    """It is empty until the pods move there."""
    await world.begin(0)
    old = a_claim("old", of="old", true=("Registered", "Initialized"))
    await world.put(a_node("new"), quiet(a_claim("new", of="new", true=UP)), a_node("old"), old)
    assert [each.node for each in world.assessment().candidates[Reason.EMPTY]] == ["new"]
    record = CommandRecord(
        id="x", reason=Reason.DRIFTED, method=Method.DRIFT, deadline=START, claims=("old",), replacements=("new",)
    )
    await world.change(NODECLAIMS, "old", {"metadata": {"annotations": {names.DISRUPTION_COMMAND: written(record)}}})
    assert world.assessment().candidates == {}


async def test_a_budget_whose_status_changes_makes_no_node_be_looked_at_again(world: Boards) -> None:
    await world.begin(5)
    known = taken(world.assessment())
    assert len(known) == 5
    await world.allow(2)
    assert all(each.pods is known[name].pods for name, each in taken(world.assessment()).items())
    await world.allow(0)
    assert taken(world.assessment()) == {}


async def test_claims_and_nodes_find_each_other_whoever_comes_first(world: Boards) -> None:
    await world.begin(1)
    await world.put(a_claim("late", of="m"), a_node("m"), a_pod("q", on="m"))
    (member,) = (each for key, each in world.snapshot().nodes.items() if key.name in ("late", "m"))
    assert member.claim is not None
    assert member.node is not None
    assert [pod.name for pod in member.pods] == ["q"]
    await world.delete(NODECLAIMS, "late")
    (alone,) = (each for key, each in world.snapshot().nodes.items() if key.name in ("late", "m"))
    assert (alone.claim, alone.node) == (None, member.node)
    await world.delete(NODES, "m")
    assert [key.name for key in world.snapshot().nodes] == ["n-0"]


async def test_what_happens_later_does_not_touch_what_was_noted(world: Boards) -> None:
    await world.begin(3)
    families = list(world.registry.collect())
    text, before = exposition(world.registry), world.assessment()
    noted = world.snapshot()
    await world.put(a_pod("more", on="n-1", annotations={"karpenter.sh/do-not-disrupt": "true"}))
    await world.delete(NODECLAIMS, "n-2")
    assert set(taken(world.assessment())) == {"n-0"}
    again = world.planner.assess(DisruptionInputs(snapshot=noted))
    assert (again.at, again.candidates, again.places) == (before.at, before.candidates, before.places)
    assert b"".join(rendered(families)) == text != exposition(world.registry)


async def test_at_the_start_it_takes_turns(world: Boards) -> None:
    await world.begin(120)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    await world.cluster.settled()
    other.cancel()
    assert turns >= 120 // 50
    assert len(taken(world.assessment())) == 120


async def test_pods_that_go_between_two_turns_are_left_for_the_next_look(world: Boards) -> None:
    """Of a pod that no cache holds any more nothing can be read."""
    await world.begin(120)
    odd = [a_pod(f"odd-{number}", on=f"n-{number}", cpu=f"{100 + number}m") for number in range(120)]
    await world.put(*odd)
    settling = world.cluster.settled()
    settling.send(None)  # to the end of the first turn
    for pod in odd:
        await world.delete(PODS, pod["metadata"]["name"], grace_seconds=0)
    with suppress(StopIteration):
        while True:
            settling.send(None)
    await world.refresh()
    assert {len(read.pods) for read in world.snapshot().movable.values()} == {1}
