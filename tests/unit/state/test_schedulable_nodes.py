"""What placing pods knows of a node follows every object that the node is made of."""

import msgspec

from dovetail.api import names, objects
from dovetail.state.cluster import ClusterState
from dovetail.state.scheduling import SchedulingState
from tests.unit.state.world import (
    CLASS,
    CREATED,
    WITH_VOLUME,
    World,
    a_claim,
    a_node,
    a_pod,
    a_volume,
    a_volume_claim,
)

OF_POOL = {names.NODEPOOL_LABEL: "a", "example.com/machine": "default"}  # without a type it does not count yet


def test_a_node_that_does_not_count_yet_and_is_deleted_takes_no_more_pods() -> None:
    world = World()
    world.feed(a_claim("c", "i"), a_node("n", "i", labels=OF_POOL))
    assert [(node.name, node.open) for node in world.placing.places().nodes] == [("c", True)]
    world.feed(a_node("n", "i", labels=OF_POOL, deletionTimestamp=CREATED))
    assert [(node.name, node.open) for node in world.placing.places().nodes] == [("c", False)]
    world.check_equal()


def test_the_mark_of_a_claim_does_not_pass_to_another_of_its_name() -> None:
    world = World()
    world.feed(a_claim("c", "i"))
    world.mark("c", marked=True)
    plural, manifest = a_claim("c", "i")
    world.state.apply(plural, *world.put(plural, manifest, anew=True))
    assert [node.open for node in world.placing.places().nodes] == [True]
    world.check_equal()


def test_pods_of_a_node_that_does_not_count_yet_are_read_again_when_their_volumes_change() -> None:
    world = World()
    world.feed(a_claim("c", "i"), a_node("n", "i", labels=OF_POOL), a_pod("p", "n", spec=WITH_VOLUME))
    world.check_equal()
    world.feed(a_volume_claim(), a_volume())
    world.check_equal()


def test_a_pod_that_finishes_gives_its_room_back() -> None:
    world = World()
    world.feed(a_node("n"), a_pod("p", "n"))
    assert [node.requested["cpu"] for node in world.placing.places().nodes] == [1000]
    world.feed(a_pod("p", "n", phase="Succeeded"))
    assert [node.requested["cpu"] for node in world.placing.places().nodes] == [0]


def test_claims_of_one_instance_stand_by_themselves_even_with_one_uid() -> None:
    """A dump may have been written by hand."""
    state = ClusterState(CLASS)
    placing = SchedulingState(state)
    for name in ("c", "d"):
        plural, manifest = a_claim(name, "i")
        state.load(plural, msgspec.convert(manifest, objects.NodeClaim))
    plural, manifest = a_node("n", "i", labels=OF_POOL)
    state.load(plural, msgspec.convert(manifest, objects.Node))
    assert sorted(node.name for node in state.managed.ours().values()) == ["c", "d", "n"]
    assert [node.name for node in placing.places().nodes] == ["c"]  # the instance counts once
