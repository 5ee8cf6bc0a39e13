"""How much there is of a NodePool (01 §5.1)."""

from dovetail.api import names, objects
from dovetail.planning.nodepool.usage import usage

NONE = {"cpu": "0", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "0"}


def claim(capacity: objects.Quantities) -> objects.NodeClaim:
    return objects.NodeClaim(status=objects.NodeClaimStatus(capacity=capacity))


def node(capacity: objects.Quantities, *, initialized: bool = True) -> objects.Node:
    labels = {names.INITIALIZED_LABEL: "true"} if initialized else {}
    return objects.Node(metadata=objects.ObjectMeta(labels=labels), status=objects.NodeStatus(capacity=capacity))


def test_nothing_is_told_as_zero() -> None:
    assert usage([]).texts == NONE
    assert usage([]).nodes == 0


def test_capacities_are_added_up_exactly_and_written_as_they_were() -> None:
    found = usage(
        [
            (None, node({"cpu": "1500m", "memory": "2Gi", "pods": 110, "gpu": "1"})),
            (None, node({"cpu": "500m", "memory": "512Mi", "pods": "110"})),
        ]
    )
    assert found.nodes == 2
    assert found.texts == {
        "cpu": "2",
        "memory": "2560Mi",
        "pods": "220",
        "ephemeral-storage": "0",
        "gpu": "1",
        "nodes": "2",
    }


def test_an_initialized_node_is_taken_at_its_word() -> None:
    found = usage([(claim({"cpu": "8", "memory": "16Gi"}), node({"cpu": "4"}))])
    assert found.texts == {**NONE, "cpu": "4", "nodes": "1"}


def test_until_then_the_claim_speaks_where_the_node_says_nothing() -> None:
    expected = claim({"cpu": "8", "memory": "16Gi", "gpu": "2"})
    found = usage([(expected, node({"cpu": "4", "memory": "0", "pods": "110"}, initialized=False))])
    assert found.texts == {**NONE, "cpu": "4", "memory": "16Gi", "gpu": "2", "pods": "110", "nodes": "1"}


def test_a_claim_without_a_node_counts_as_promised() -> None:
    assert usage([(claim({"cpu": "8"}), None)]).texts == {**NONE, "cpu": "8", "nodes": "1"}


def test_a_bad_number_counts_nothing() -> None:
    assert usage([(None, node({"cpu": "many", "memory": "1Gi"}))]).texts == {**NONE, "memory": "1Gi", "nodes": "1"}
