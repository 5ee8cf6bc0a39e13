"""When the state can be relied on, and how long a node is expected to be used."""

from datetime import timedelta

from dovetail.api import names, objects
from dovetail.ports import NODECLAIMS, NODES, Create, Patch
from tests.harness.claims import node_claim
from tests.harness.placing import Scene, a_claim, a_node, a_pod, play
from tests.harness.stage import stage

pytestmark = stage(play)


async def test_a_claim_that_is_being_launched_holds_everything_up(world: Scene) -> None:
    assert world.unsynced() is None
    await world.put(a_claim("b"), a_claim("a"))
    assert world.unsynced() == "NodeClaims a, b are being launched"
    await world.put(a_claim("a", of="n"))
    assert world.unsynced() == "NodeClaims b are being launched"
    await world.put(a_claim("b", of="m"))
    assert world.unsynced() is None


async def test_a_slow_launch_holds_up_for_a_while_only(world: Scene) -> None:
    await world.put(a_claim("slow"))
    await world.clock.sleep(29.8)
    assert world.unsynced() is not None
    await world.clock.sleep(0.2)
    assert world.unsynced() is None
    slow = world.cluster.claims.value("slow")
    assert slow is not None
    assert slow.metadata.creation_timestamp is not None
    end = slow.metadata.creation_timestamp + timedelta(seconds=30)
    assert world.state.unsynced(end - timedelta(microseconds=1)) is not None
    assert world.state.unsynced(end) is None
    assert not world.node("slow").allocatable
    await world.put(a_claim("next"))
    assert world.unsynced() == "NodeClaims next are being launched"
    await world.put(a_claim("slow", of="n"))
    assert world.node("slow").allocatable


async def test_a_claim_that_is_deleted_before_it_is_launched_holds_up_no_longer(world: Scene) -> None:
    await world.put(a_claim("gone"), a_claim("going", finalizers=True))
    await world.delete(NODECLAIMS, "gone")
    assert world.unsynced() == "NodeClaims going are being launched"
    await world.delete(NODECLAIMS, "going")
    assert world.unsynced() is None
    assert [node.name for node in world.state.places().nodes if node.open] == []


async def test_claims_of_other_providers_hold_nothing_up(world: Scene) -> None:
    await world.put(a_claim("c", nodeClassRef={"group": "x.example", "kind": "Other", "name": "o"}))
    assert world.unsynced() is None


async def test_a_claim_that_we_made_holds_up_before_the_watch_tells_of_it(world: Scene) -> None:
    made = world.server.registry.create(Create(NODECLAIMS, node_claim("c")))
    world.cluster.claims.note_write(made.read_as(objects.NodeClaim))
    assert world.unsynced() == "the watch does not show the new NodeClaims c yet"
    await world.told()
    assert world.unsynced() == "NodeClaims c are being launched"


async def test_own_writes_to_claims_that_are_known_hold_nothing_up(world: Scene) -> None:
    await world.put(a_claim("c", of="n"))
    written = world.server.registry.patch(Patch(NODECLAIMS, "c", {"metadata": {"labels": {"a": "b"}}}))
    world.cluster.claims.note_write(written.read_as(objects.NodeClaim))
    assert world.unsynced() is None


async def test_only_so_many_names_are_told(world: Scene) -> None:
    await world.put(*(a_claim(f"c{number}") for number in range(8)))
    assert world.unsynced() == "NodeClaims c0, c1, c2, c3, c4 and 3 more are being launched"


# -- nominations (06 §7.4) ---------------------------------------------------------------------------------------------


async def test_a_nomination_lasts_until_its_end(world: Scene) -> None:
    await world.put(a_node("n"), a_pod("waiting"))
    now = world.clock.now()
    assert "n" not in world.state.nominations(now)
    world.state.nominate("n", now + timedelta(seconds=20))
    assert "n" in world.state.nominations(now + timedelta(seconds=19.9))
    assert "n" not in world.state.nominations(now + timedelta(seconds=20))
    world.state.nominate("n", now + timedelta(seconds=5))  # never shorter
    assert "n" in world.state.nominations(now + timedelta(seconds=19.9))
    world.state.nominate("n", now + timedelta(seconds=30))
    assert "n" in world.state.nominations(now + timedelta(seconds=29))
    assert "m" not in world.state.nominations(now)


async def test_a_node_that_is_gone_cannot_be_nominated(world: Scene) -> None:
    """Nobody would remove the nomination, and a new node with the same name would inherit it."""
    await world.put(a_pod("waiting"))
    now = world.clock.now()
    world.state.nominate("n", now + timedelta(seconds=20))
    await world.put(a_node("n"))
    assert world.state.nominations(now) == {}


async def test_a_nomination_outlives_registration(world: Scene) -> None:
    await world.put(a_claim("c", of="n"), a_pod("waiting"))
    now = world.clock.now()
    world.state.nominate("c", now + timedelta(seconds=20))
    await world.put(a_node("n", unregistered=True))
    assert "c" in world.state.nominations(now)
    await world.change(NODES, "n", {"metadata": {"labels": {names.REGISTERED_LABEL: "true"}}})
    assert "c" in world.state.nominations(now)
    await world.delete(NODECLAIMS, "c")
    assert world.state.nominations(now) == {}
