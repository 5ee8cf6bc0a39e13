"""Which NodeClaim a Node belongs to, and whether we manage it."""

from dovetail.api import names
from dovetail.state.nodes import ManagedNode, NodeKey, NodeKeyKind
from tests.unit.state.world import Put, World, a_claim, a_node

OF_POOL = {names.NODEPOOL_LABEL: "a", "example.com/machine": "default"}


def node_with(*claims: Put) -> ManagedNode:
    """A Node of a NodePool, with the NodeClaims of its instance."""
    world = World()
    world.feed(*claims, a_node("n", "i", labels=OF_POOL))
    found = world.state.managed.get(NodeKey(NodeKeyKind.NODE, "n"))
    assert found is not None
    return found


def test_a_node_belongs_to_the_only_claim_of_its_instance() -> None:
    found = node_with(a_claim("c", "i"), a_claim("d", "j"))
    assert found.claim is not None
    assert found.claim.metadata.name == "c"
    assert found.ours


def test_a_node_with_two_claims_belongs_to_neither() -> None:
    assert node_with(a_claim("c", "i"), a_claim("d", "i")).claim is None


def test_a_node_without_a_claim_is_ours_by_its_label() -> None:
    assert node_with().ours


def test_a_node_of_another_controllers_claim_is_not_ours() -> None:
    found = node_with(a_claim("c", "i", kind="Other"))
    assert found.claim is not None
    assert not found.ours


def test_our_claim_counts_and_not_another_controllers_with_the_same_instance() -> None:
    found = node_with(a_claim("b", "i", kind="Other"), a_claim("c", "i"))
    assert found.claim is not None
    assert (found.claim.metadata.name, found.ours) == ("c", True)


def test_a_second_node_of_a_claims_instance_is_not_ours() -> None:
    found = node_with(a_claim("c", "i"), a_node("m", "i", labels=OF_POOL))
    assert (found.claim, found.ours) == (None, False)
