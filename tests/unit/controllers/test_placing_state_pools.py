"""What new nodes can be made of, and what DaemonSets run on them."""

import pytest

from dovetail.api import names
from dovetail.model.instance_types import InstanceType, Offering
from dovetail.ports import DAEMONSETS, NODECLAIMS, NODEPOOLS, PODS, CloudError
from dovetail.providers.catalogue import built_in
from tests.harness.claims import node_class
from tests.harness.placing import TYPES, Scene, a_claim, a_daemon_set, a_pod, a_pool, play
from tests.harness.stage import stage

pytestmark = stage(play)


def names_of(scene: Scene) -> list[str]:
    return [pool.name for pool in scene.state.places().pools]


# -- pools (05 §1, §9) -------------------------------------------------------------------------------------------------


async def test_pools_that_can_be_used_heaviest_first(world: Scene) -> None:
    other = a_pool("other", template={"nodeClassRef": {"group": "x.example", "kind": "Other", "name": "o"}})
    await world.put(
        a_pool("light"),
        a_pool("heavy", weight=9),
        a_pool("even"),
        a_pool("static", replicas=3),
        a_pool("unready", ready=False),
        other,
    )
    await world.refreshed()
    assert names_of(world) == ["heavy", "light", "even"]  # of equal ones the last by name (05 §9)
    await world.change(NODEPOOLS, "light", {"metadata": {"finalizers": ["example.com/hold"]}})
    await world.delete(NODEPOOLS, "light")
    assert names_of(world) == ["heavy", "even"]


async def test_a_pool_without_types_is_left_out(world: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await world.put(a_pool("a"), a_pool("b"), a_pool("c"))
    assert world.state.places().left_out["a"] == "its instance types have not been looked up yet"
    world.provider.types = {"a": CloudError("throttled"), "b": ()}
    await world.refreshed()
    assert names_of(world) == ["c"]
    assert world.state.places().left_out == {
        "a": "its instance types cannot be looked up: throttled",
        "b": "the provider has no instance types for it",
    }
    world.provider.types = {}
    await world.refreshed()
    assert names_of(world) == ["c", "b", "a"]
    assert "NodePool a is left out: its instance types cannot be looked up: throttled" in caplog.messages


async def test_a_pool_that_cannot_be_read_is_left_out(world: Scene) -> None:
    await world.put(a_pool("a", limits={"cpu": "99999999999999999999"}), a_pool("b"))
    await world.refreshed()
    assert names_of(world) == ["b"]
    assert "cpu" in world.state.places().left_out["a"]


async def test_a_status_that_is_counted_changes_nothing(world: Scene) -> None:
    await world.put(a_pool("a"))
    before = await world.refreshed()
    await world.change(NODEPOOLS, "a", {"status": {"nodes": 7}}, subresource="status")
    assert await world.refreshed() is before
    await world.change(NODEPOOLS, "a", {"spec": {"weight": 7}})
    after = await world.refreshed()
    assert after.pools[0].weight == 7
    assert after.types is before.types


# -- types -------------------------------------------------------------------------------------------------------------


async def test_types_as_the_engine_reads_them(world: Scene) -> None:
    await world.put(a_pool("a"), a_pool("b"))
    types = (await world.refreshed()).types
    assert types["a"] is types["b"]  # one list, read once
    found = types["a"][0]
    assert found.name == TYPES[0].name
    assert (found.capacity["cpu"], found.allocatable["cpu"]) == (4000, 3900)
    assert {offer.price for offer in found.offers} == {
        round(offering.price * 1_000_000_000) for offering in TYPES[0].offerings
    }


async def test_the_provider_is_asked_when_there_is_reason_to(world: Scene) -> None:
    await world.put(node_class(), a_pool("a"))
    asked = world.provider.asked
    await world.refreshed()
    await world.refreshed()
    assert len(asked) == 1
    await world.change(NODEPOOLS, "a", {"spec": {"weight": 1}})
    await world.refreshed()
    assert len(asked) == 2
    await world.put(node_class(spec={"nodeRegistrationDelay": "1s"}))
    await world.refreshed()
    assert len(asked) == 3
    await world.put(a_claim("c", pool="a"))
    await world.delete(NODECLAIMS, "c")  # it could not be had
    await world.refreshed()
    assert len(asked) == 4
    await world.put(a_claim("c", pool="a", of="n"))
    await world.delete(NODECLAIMS, "c")
    await world.refreshed()
    assert len(asked) == 4
    await world.clock.sleep(300)
    await world.refreshed()
    await world.refreshed()
    assert len(asked) == 5


async def test_of_a_new_list_only_what_is_new_is_another_object(world: Scene) -> None:
    await world.put(a_pool("a"))
    before = (await world.refreshed()).types["a"]
    first, *others = TYPES
    gone = InstanceType(
        name=first.name,
        requirements=first.requirements,
        capacity=first.capacity,
        overhead=first.overhead,
        offerings=tuple(
            Offering(requirements=each.requirements, price=each.price, available=False) for each in first.offerings
        ),
    )
    world.provider.types = {"a": [gone, *others]}
    await world.clock.sleep(300)
    after = (await world.refreshed()).types["a"]
    assert [new is old for new, old in zip(after, before, strict=True)] == [False] + [True] * len(others)
    world.provider.types = {"a": [gone, *others]}
    await world.clock.sleep(300)
    assert (await world.refreshed()).types["a"] is after


async def test_reservations_are_told_apart(world: Scene) -> None:
    kind = TYPES[0].offerings[0].requirements[0]
    reserved = type(kind)(names.CAPACITY_TYPE_LABEL, "In", ["reserved"])
    zones = [type(kind)(names.ZONE_LABEL, "In", [zone]) for zone in ("a", "b")]
    offerings = tuple(
        Offering(requirements=(reserved, zone), price=0.0, reservation_capacity=count)
        for count, zone in enumerate(zones, 1)
    )
    first = TYPES[0]
    type_ = InstanceType(
        name="r", requirements=first.requirements, capacity=first.capacity, offerings=(*offerings, *first.offerings)
    )
    world.provider.types = {"a": [type_]}
    await world.put(a_pool("a"))
    offers = (await world.refreshed()).types["a"][0].offers
    assert [offer.left for offer in offers[:2]] == [1, 2]
    assert len({offer.reservation for offer in offers[:2]} - {""}) == 2
    assert {offer.reservation for offer in offers[2:]} == {""}


async def test_a_type_that_cannot_be_read_is_left_out(world: Scene) -> None:
    bad = type(TYPES[0].requirements[0])("x", "Near", ["y"])
    odd = InstanceType(name="odd", requirements=(bad,), capacity={}, offerings=())
    world.provider.types = {"a": [odd, *TYPES], "b": [odd]}
    await world.put(a_pool("a"), a_pool("b"))
    places = await world.refreshed()
    assert len(places.types["a"]) == len(TYPES)
    assert places.left_out == {"b": "none of its instance types can be read"}


async def test_all_that_is_built_in_can_be_read(world: Scene) -> None:
    world.provider.types = {"a": built_in()}
    await world.put(a_pool("a"))
    assert len((await world.refreshed()).types["a"]) == len(built_in())


# -- daemons (05 §8.1) -------------------------------------------------------------------------------------------------


def owner_of(scene: Scene, name: str) -> tuple[str, str, str]:
    kept = scene.cluster.daemon_sets.get(("default", name))
    assert kept is not None
    return ("DaemonSet", name, kept.uid)


async def test_the_template_speaks_until_there_is_a_pod_and_then_the_newest(world: Scene) -> None:
    await world.put(a_daemon_set("d", cpu="100m"))
    (daemon,) = world.state.places().daemons
    assert (daemon.name, daemon.request["cpu"]) == ("default/d", 100)
    owner = owner_of(world, "d")
    await world.put(a_pod("d-1", on="n", cpu="200m", owner=owner))
    assert world.state.places().daemons[0].request["cpu"] == 200
    await world.clock.sleep(5)
    await world.put(a_pod("d-0", on="m", cpu="300m", owner=owner))
    assert world.state.places().daemons[0].request["cpu"] == 300
    await world.delete(PODS, "d-0", grace_seconds=0)
    assert world.state.places().daemons[0].request["cpu"] == 200
    await world.delete(PODS, "d-1", grace_seconds=0)
    assert world.state.places().daemons[0].request["cpu"] == 100
    await world.delete(DAEMONSETS, "d")
    assert world.state.places().daemons == ()


async def test_that_each_pod_is_for_one_node_does_not_count(world: Scene) -> None:
    await world.put(a_daemon_set("d"))
    owner = owner_of(world, "d")
    seen = []
    for number, node in enumerate(("n", "m", "l")):
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = [{"matchFields": [field]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        await world.put(a_pod(f"d-{number}", on=node, cpu="100m", owner=owner, affinity={"nodeAffinity": required}))
        seen.append(world.state.places().daemons)
    assert len({id(pod.scheduling) for pod in world.cluster.pods.values()}) == 1
    assert seen[1] is seen[0]
    assert seen[2] is seen[0]


async def test_a_daemon_set_that_cannot_be_read_is_left_out(world: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await world.put(a_daemon_set("bad", cpu="much"), a_daemon_set("good"))
    assert [daemon.name for daemon in world.state.places().daemons] == ["default/good"]
    assert any("DaemonSet default/bad counts as if it were not there" in message for message in caplog.messages)
