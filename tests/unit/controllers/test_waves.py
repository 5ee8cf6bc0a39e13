"""Evictions in waves: a wave begins when the successors of the last one are bound (R55)."""

from datetime import timedelta
from typing import Any

from dovetail.api import names, objects
from dovetail.api.names import Reason
from dovetail.controllers.pod.waves import LONGEST, WITHOUT_SUCCESSOR, EvictionWaves
from dovetail.model.pod_records import PodRecord
from dovetail.planning.disruption.board import Method
from dovetail.planning.disruption.records import CommandRecord, written
from dovetail.planning.node.drain import NOT_HELD
from dovetail.ports import PODS
from tests.harness.placing import START, Scene, a_claim, a_node, a_pod, play
from tests.harness.stage import stage

pytestmark = stage(play)


async def draining(
    world: Scene, *waves: tuple[str, ...], replacements: tuple[str, ...] = (), **spec: Any
) -> objects.NodeClaim:
    """Pods `big` and `small` on a node that a command disrupts, in waves of these names."""
    for name in ("big", "small"):
        await world.put(a_pod(name, on="n1", labels={"app": name}, finalizers=["example.com/slow"], **spec))
    uids = tuple(tuple(uid(world, name) for name in wave) for wave in waves)
    command = CommandRecord(
        id="c1",
        reason=Reason.UNDERUTILIZED,
        method=Method.SINGLE_NODE,
        deadline=START,
        claims=("one",),
        replacements=replacements,
        waves=uids,
    )
    annotations = {names.DISRUPTION_COMMAND: written(command)}
    await world.put(a_node("n1"), a_claim("one", of="n1", annotations=annotations))
    claim = world.cluster.claims.value("one")
    assert claim is not None
    return claim


def record(world: Scene, name: str) -> PodRecord:
    pod = world.cluster.pods.value(name, "default")
    assert pod is not None
    return pod


def uid(world: Scene, name: str) -> str:
    return record(world, name).uid


async def ends(world: Scene, name: str) -> None:
    """The pod is gone."""
    await world.change(PODS, name, {"metadata": {"finalizers": []}})


async def test_without_waves_all_pods_have_their_turn(world: Scene) -> None:
    assert EvictionWaves(world.cluster).of(await draining(world), world.clock.now()) == NOT_HELD


async def test_the_next_wave_begins_when_the_successor_is_bound(world: Scene) -> None:
    waves = EvictionWaves(world.cluster)
    claim = await draining(world, ("big",))
    turn = waves.of(claim, world.clock.now())
    assert turn.pods == frozenset({uid(world, "big")})
    assert turn.until == world.clock.now() + LONGEST
    await world.delete(PODS, "big")
    assert waves.of(claim, world.clock.now()) == turn
    await world.put(a_pod("big-2", labels={"app": "big"}, phase="Pending"))
    assert waves.of(claim, world.clock.now()) == turn
    await world.put(a_pod("big-3", on="n2", labels={"app": "big"}))
    assert waves.of(claim, world.clock.now()) == NOT_HELD


async def test_a_bound_successor_wakes_the_drain(world: Scene) -> None:
    waves = EvictionWaves(world.cluster)
    claim = await draining(world, ("big",))
    assert waves.nodes_waiting_for(record(world, "big")) == []
    waves.of(claim, world.clock.now())
    assert waves.nodes_waiting_for(record(world, "big")) == ["n1"]
    assert waves.nodes_waiting_for(record(world, "small")) == []


async def test_a_workload_that_became_smaller_does_not_stop_the_drain(world: Scene) -> None:
    waves = EvictionWaves(world.cluster)
    claim = await draining(world, ("big",))
    began = world.clock.now()
    waves.of(claim, began)
    await world.delete(PODS, "big", grace_seconds=0)
    await ends(world, "big")
    gone = world.clock.now()
    turn = waves.of(claim, gone)
    assert (turn.pods is not None, turn.until) == (True, gone + WITHOUT_SUCCESSOR)
    assert waves.of(claim, gone + WITHOUT_SUCCESSOR) == NOT_HELD


async def test_waves_end_in_any_case(world: Scene) -> None:
    waves = EvictionWaves(world.cluster)
    claim, began = await draining(world, ("big",)), world.clock.now()
    waves.of(claim, began)
    assert waves.of(claim, began + LONGEST - timedelta(seconds=1)) != NOT_HELD
    assert waves.of(claim, began + LONGEST) == NOT_HELD


async def test_a_new_leader_continues_with_the_pods_that_are_left(world: Scene) -> None:
    claim = await draining(world, ("big",), ("small",))
    await world.delete(PODS, "big", grace_seconds=0)
    await ends(world, "big")
    turn = EvictionWaves(world.cluster).of(claim, world.clock.now())
    assert turn.pods is not None
    assert uid(world, "small") in turn.pods


async def test_a_new_leader_waits_for_the_pending_successor_of_a_terminating_pod(world: Scene) -> None:
    claim = await draining(world, ("big",))
    await world.delete(PODS, "big")
    await world.put(a_pod("big-2", labels={"app": "big"}, phase="Pending"))
    waves = EvictionWaves(world.cluster)
    assert waves.of(claim, world.clock.now()).pods == frozenset({uid(world, "big")})
    await world.delete(PODS, "big-2", grace_seconds=0)
    await world.put(a_pod("big-3", on="n2", labels={"app": "big"}))
    assert waves.of(claim, world.clock.now()) == NOT_HELD


async def test_a_new_leader_does_not_wait_where_the_successor_is_bound(world: Scene) -> None:
    claim = await draining(world, ("big",))
    await world.delete(PODS, "big")
    await world.put(a_pod("big-2", on="n2", labels={"app": "big"}))
    assert EvictionWaves(world.cluster).of(claim, world.clock.now()) == NOT_HELD


async def test_there_are_no_waves_before_the_replacement_is_there(world: Scene) -> None:
    """The node goes for another reason than the command's."""
    claim = await draining(world, ("big",), replacements=("new",))
    waves = EvictionWaves(world.cluster)
    assert waves.of(claim, world.clock.now()) == NOT_HELD
    await world.put(a_claim("new", of="n2", true=["Registered"]))
    assert waves.of(claim, world.clock.now()) == NOT_HELD
    await world.put(a_claim("other", of="n3", true=["Registered", "Initialized"]))
    ready = await draining(world, ("big",), replacements=("other",))
    assert waves.of(ready, world.clock.now()).pods == frozenset({uid(world, "big")})


async def test_nothing_waits_for_a_critical_pod(world: Scene) -> None:
    """A drain evicts it after all others, so that it and they would wait for each other."""
    claim = await draining(world, ("big",), priorityClassName="system-cluster-critical")
    assert EvictionWaves(world.cluster).of(claim, world.clock.now()) == NOT_HELD
