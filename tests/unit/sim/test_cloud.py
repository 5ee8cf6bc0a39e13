"""The simulator's cloud, by the contract of all providers and by its faults."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.objects import NodePool
from dovetail.model.instance_types import InstanceType
from dovetail.ports import (
    NODECLAIMS,
    NODES,
    CloudError,
    CreateFailed,
    InstanceGone,
    InsufficientCapacity,
    Patch,
    Unavailable,
)
from dovetail.providers.catalogue import built_in
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.actors.wire import condition_status
from dovetail.sim.cloud.machines import Launch, SimCloud
from dovetail.sim.server.faults import Fault
from tests.harness.stage import PARAMETER, gives, stage
from tests.unit.providers.claims import OTHER, SMALL, labels_of, requirement
from tests.unit.providers.conformance import (
    ProviderConformance,
    launch,
    launch_node,
    make_claim,
    nodes_of,
    take_over,
)

CloudScenario = Callable[[SimCluster, SimCloud], Coroutine[Any, Any, None]]


@gives("sim", "cloud")
def with_cloud(scenario: CloudScenario, **options: Any) -> None:
    async def run_scenario(sim: SimCluster) -> None:
        async with SimCloud(sim) as cloud:
            await scenario(sim, cloud)

    run(run_scenario, **options)


pytestmark = stage(with_cloud)


def cheapest_offer(type_: InstanceType) -> float:
    return min(each.price for each in type_.offerings)


@stage(gives=("sim", "provider"))
class TestConformance(ProviderConformance):
    """With the simulator's cloud."""


# -- launches ----------------------------------------------------------------------------------------------------------


async def test_a_claim_that_lists_no_types_gets_the_cheapest_that_it_allows(sim: SimCluster, cloud: SimCloud) -> None:
    cpus = requirement(names.KWOK_INSTANCE_CPU_LABEL, "In", "4")
    others = requirement(names.INSTANCE_TYPE_LABEL, "NotIn", "c-4x-amd64-linux", "c-4x-arm64-linux")
    first = await cloud.create(await make_claim(sim, "web-1", cpus, types=()))
    second = await cloud.create(await make_claim(sim, "web-2", cpus, others, types=()))
    found = [each.labels[names.INSTANCE_TYPE_LABEL] for each in (first, second)]
    types = [each for each in built_in() if "-4x-" in each.name]
    left = [each for each in types if each.name not in others.values]
    assert found == [min(some, key=cheapest_offer).name for some in (types, left)]


async def test_a_machine_outlives_whoever_asked_for_it(sim: SimCluster, cloud: SimCloud) -> None:
    claim = await make_claim(sim)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(cloud.create(claim))
        await sim.run_for("1s")
        asking.cancel()
    assert cloud.launched_for(claim.metadata.uid) == 1
    assert [instance.claim_uid for instance in await cloud.list()] == [claim.metadata.uid]
    again = await cloud.create(claim)
    assert [again] == await cloud.list()
    assert cloud.launched_for(claim.metadata.uid) == 1
    assert cloud.calls == {"create": 2, "list": 2}


@pytest.mark.parametrize("seed", range(5))
@stage(seed=PARAMETER, shuffle=True, latency_seconds=0.1)
async def test_creates_at_the_same_time_are_one_launch(sim: SimCluster, cloud: SimCloud) -> None:
    claim = await make_claim(sim)
    one, two = await asyncio.gather(cloud.create(claim), cloud.create(claim))
    assert one == two
    assert cloud.launched_for(claim.metadata.uid) == 1
    assert cloud.launched_for("nobody") == 0


async def test_a_launch_takes_its_time_and_then_the_node_its_own(sim: SimCluster, cloud: SimCloud) -> None:
    began = sim.clock.now()
    cloud.next_launches(Launch(seconds=120))
    claim = await launch(sim, cloud)
    assert sim.clock.now() - began == timedelta(seconds=120)
    await sim.wait_until(lambda: bool(nodes_of(sim, claim)))
    assert sim.clock.now() - began == timedelta(seconds=150)
    began = sim.clock.now()
    await launch(sim, cloud, "web-2")
    assert sim.clock.now() - began == timedelta(seconds=2)


async def test_the_next_launches_fail_as_told(sim: SimCluster, cloud: SimCloud) -> None:
    claim = await make_claim(sim)
    cloud.next_launches(Launch(error=InsufficientCapacity("none left")), times=2)
    cloud.next_launches(Launch(error=CreateFailed("Throttled", "too many calls")))
    for _ in range(2):
        with pytest.raises(InsufficientCapacity, match="none left"):
            await cloud.create(claim)
    with pytest.raises(CreateFailed, match="too many calls") as failed:
        await cloud.create(claim)
    assert failed.value.reason == "Throttled"
    assert cloud.launched_for(claim.metadata.uid) == 0
    await cloud.create(claim)
    assert cloud.launched_for(claim.metadata.uid) == 1


async def test_an_answer_that_is_lost_leaves_a_machine(sim: SimCluster, cloud: SimCloud) -> None:
    claim = await make_claim(sim)
    cloud.next_launches(Launch(error=CloudError("timeout"), after=True))
    with pytest.raises(CloudError, match="timeout"):
        await cloud.create(claim)
    (lost,) = await cloud.list()
    assert await cloud.create(claim) == lost
    assert cloud.launched_for(claim.metadata.uid) == 1


async def test_a_launch_may_never_register(sim: SimCluster, cloud: SimCloud) -> None:
    cloud.next_launches(Launch(registers=False))
    claim = await launch(sim, cloud)
    await sim.run_for("1h")
    assert nodes_of(sim, claim) == []
    assert len(await cloud.list()) == 1


async def test_a_node_may_register_not_ready(sim: SimCluster, cloud: SimCloud) -> None:
    cloud.next_launches(Launch(ready=False))
    claim = await launch(sim, cloud)
    await sim.run_for("5m")
    (node,) = nodes_of(sim, claim)
    assert condition_status(node, "Ready") == "False"
    sim.set_node_ready(node["metadata"]["name"], ready=True)
    await sim.run_for("10s")
    assert condition_status(nodes_of(sim, claim)[0], "Ready") == "True"


async def test_a_node_comes_although_the_api_server_was_down(sim: SimCluster, cloud: SimCloud) -> None:
    sim.server.faults.add(Fault(error=Unavailable("down")), verb="create", client="cloud", times=5)
    claim = await launch(sim, cloud)
    await sim.wait_until(lambda: bool(nodes_of(sim, claim)))
    assert not sim.server.faults.pending


# -- capacity ----------------------------------------------------------------------------------------------------------


async def unavailable(cloud: SimCloud) -> set[tuple[str, str, str]]:
    """Type, zone and capacity type of what the catalogue says cannot be had."""
    found = set()
    for type_ in (await cloud.instance_types(NodePool())).types:
        for offering in type_.offerings:
            labels = labels_of(offering.requirements)
            if not offering.available:
                found.add((type_.name, labels[names.ZONE_LABEL][0], labels[names.CAPACITY_TYPE_LABEL][0]))
    return found


async def test_what_is_exhausted_is_replaced_by_the_next_best(sim: SimCluster, cloud: SimCloud) -> None:
    cloud.exhaust(SMALL, capacity_type="spot")
    assert await unavailable(cloud) == set()  # nobody has met it yet
    got = await cloud.create(await make_claim(sim, "one", types=(SMALL, OTHER)))
    assert (got.labels[names.INSTANCE_TYPE_LABEL], got.labels[names.CAPACITY_TYPE_LABEL]) == (OTHER, "spot")
    assert await unavailable(cloud) == {(SMALL, f"test-zone-{zone}", "spot") for zone in "abcd"}
    cloud.restock()
    assert await unavailable(cloud) == set()
    got = await cloud.create(await make_claim(sim, "two", types=(SMALL, OTHER)))
    assert got.labels[names.INSTANCE_TYPE_LABEL] == SMALL


async def test_a_zone_can_be_exhausted_for_good(sim: SimCluster, cloud: SimCloud) -> None:
    cloud.exhaust(zone="test-zone-b")
    pinned = requirement(names.ZONE_LABEL, "In", "test-zone-b")
    claim = await make_claim(sim, "web-1", pinned)
    for _ in range(2):
        with pytest.raises(InsufficientCapacity):
            await cloud.create(claim)
    assert cloud.launched_for(claim.metadata.uid) == 0
    zones = set()
    for number in range(20):
        got = await cloud.create(await make_claim(sim, f"free-{number}"))
        zones.add(got.labels[names.ZONE_LABEL])
    assert zones == {"test-zone-a", "test-zone-c", "test-zone-d"}


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_a_deletion_takes_its_time(sim: SimCluster, cloud: SimCloud) -> None:
    cloud.delete_seconds = 300
    claim = await launch_node(sim, cloud)
    name = nodes_of(sim, claim)[0]["metadata"]["name"]
    await sim.api.write(Patch(NODES, name, {"metadata": {"finalizers": [names.TERMINATION_FINALIZER]}}))
    await cloud.delete(claim)
    await sim.run_for("299s")
    await cloud.delete(claim)  # asking again does not begin anew
    assert (await cloud.get(claim.status.provider_id)).deleting
    assert [each.deleting for each in await cloud.list()] == [True]
    assert condition_status(nodes_of(sim, claim)[0], "Ready") == "True"
    await sim.run_for("1s")
    with pytest.raises(InstanceGone):
        await cloud.delete(claim)
    await sim.run_for("1m")
    (node,) = nodes_of(sim, claim)  # held by the finalizer, and nobody speaks for it
    assert condition_status(node, "Ready") == "Unknown"


async def test_a_machine_deleted_before_its_node_came_leaves_none(sim: SimCluster, cloud: SimCloud) -> None:
    claim = await launch(sim, cloud)
    await sim.run_for("10s")
    await cloud.delete(claim)
    await sim.run_for("1h")
    assert nodes_of(sim, claim) == []


async def test_a_lost_launch_is_deleted_by_the_claims_uid(sim: SimCluster, cloud: SimCloud) -> None:
    claim = await make_claim(sim)
    await cloud.create(claim)
    assert claim.status.provider_id == ""
    await cloud.delete(claim)
    await sim.run_for("1m")
    assert await cloud.list() == []


async def test_deletions_fail_as_told(sim: SimCluster, cloud: SimCloud) -> None:
    claim = await launch(sim, cloud)
    cloud.next_deletions(CloudError("throttled"), times=2)
    for _ in range(2):
        with pytest.raises(CloudError, match="throttled"):
            await cloud.delete(claim)
    assert not (await cloud.get(claim.status.provider_id)).deleting
    await cloud.delete(claim)
    assert (await cloud.get(claim.status.provider_id)).deleting
    assert cloud.calls["delete"] == 3


@pytest.mark.parametrize("held", [False, True])
async def test_a_machine_that_vanishes_leaves_a_silent_node_if_it_is_held(
    sim: SimCluster, cloud: SimCloud, held: bool
) -> None:
    claim = await launch_node(sim, cloud)
    if held:
        name = nodes_of(sim, claim)[0]["metadata"]["name"]
        await sim.api.write(Patch(NODES, name, {"metadata": {"finalizers": [names.TERMINATION_FINALIZER]}}))
    cloud.vanish(claim.status.provider_id)
    with pytest.raises(InstanceGone):
        await cloud.get(claim.status.provider_id)
    assert await cloud.list() == []
    await sim.run_for("5m")
    assert [condition_status(node, "Ready") for node in nodes_of(sim, claim)] == (["Unknown"] if held else [])
    assert cloud.launched_for(claim.metadata.uid) == 1


async def test_a_machine_that_vanishes_before_its_node_comes_leaves_none(sim: SimCluster, cloud: SimCloud) -> None:
    claim = await launch(sim, cloud)
    sim.server.faults.add(Fault(delay_seconds=20), verb="create", client="cloud")
    await sim.run_for("40s")  # its Node is on the way
    cloud.vanish(claim.status.provider_id)
    await sim.run_for("5m")
    assert nodes_of(sim, claim) == []


async def test_an_interruption_is_told_and_carried_out(sim: SimCluster, cloud: SimCloud) -> None:
    claim = await launch_node(sim, cloud)
    deadline = sim.clock.now() + timedelta(minutes=2)
    cloud.interrupt(claim.status.provider_id, deadline=deadline)
    notice = await anext(cloud.interruptions())
    assert notice.provider_id == claim.status.provider_id
    assert (notice.kind, notice.deadline) == ("SpotInterruption", deadline)
    await sim.run_for("119s")
    assert not (await cloud.get(claim.status.provider_id)).deleting
    await sim.run_for("1s")
    with pytest.raises(InstanceGone):
        await cloud.get(claim.status.provider_id)


async def test_a_notice_alone_takes_nothing_away(sim: SimCluster, cloud: SimCloud) -> None:
    claim = await launch_node(sim, cloud)
    cloud.interrupt(claim.status.provider_id, kind="Rebalance")
    await sim.run_for("1h")
    assert len(await cloud.list()) == 1


async def test_drift_is_told(sim: SimCluster, cloud: SimCloud) -> None:
    claim = await launch(sim, cloud)
    cloud.drift[claim.status.provider_id] = "ImageDrift"
    assert await cloud.drift_reason(claim) == "ImageDrift"


async def three_launches_and_an_end(sim: SimCluster) -> list[str]:
    async with SimCloud(sim) as cloud:
        for number in range(3):
            claim = await make_claim(sim, f"web-{number}")
            await take_over(sim, claim, await cloud.create(claim))
        await sim.run_for("5m")
        await cloud.delete(await sim.api.get(NODECLAIMS, "web-1"))
        await sim.run_for("5m")
    return sim.trace


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(three_launches_and_an_end, seed=4) == run(three_launches_and_an_end, seed=4)


def test_the_scenarios_own_error_is_raised_as_it_is() -> None:
    async def scenario(_sim: SimCluster, _cloud: SimCloud) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        with_cloud(scenario)
