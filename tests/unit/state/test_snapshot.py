"""The snapshot: which NodeClaim, Node and pods belong together."""

import itertools
from collections.abc import Sequence

import msgspec
import pytest

from dovetail.model.snapshot import Snapshot
from dovetail.state.cluster import ClusterState
from tests.unit.state.world import Put, a_claim, a_node, a_pod


def snapshot_of(*puts: Put) -> Snapshot:
    """The snapshot of a state that documents have fed."""
    state = ClusterState()
    for plural, manifest in puts:
        state.load(plural, msgspec.convert(manifest, state.reading(plural).struct))
    return state.snapshot()


def pairs(snapshot: Snapshot) -> list[tuple[str | None, str | None]]:
    return [(each.claim.name if each.claim else None, each.node.name if each.node else None) for each in snapshot.nodes]


def test_nothing_is_an_empty_snapshot() -> None:
    assert snapshot_of() == Snapshot()


@pytest.mark.parametrize(
    ("puts", "expected"),
    [
        pytest.param([a_claim("c", "x"), a_node("n", "x")], [("c", "n")], id="one pair"),
        pytest.param([a_claim("same", "x"), a_node("same", "y")], [(None, "same"), ("same", None)], id="never by name"),
        pytest.param([a_claim("c"), a_node("n")], [("c", None), (None, "n")], id="not by empty IDs"),
        pytest.param([a_claim("c", "x")], [("c", None)], id="a claim alone"),
        pytest.param([a_node("n", "x")], [(None, "n")], id="a Node alone"),
        pytest.param(
            [a_claim("c-1", "x"), a_claim("c-2", "x"), a_node("n", "x")],
            [("c-1", None), ("c-2", None), (None, "n")],
            id="two claims of one ID: none is matched",
        ),
        pytest.param(
            [a_claim("c", "x"), a_node("n-1", "x"), a_node("n-2", "x")],
            [("c", None), (None, "n-1"), (None, "n-2")],
            id="two Nodes of one ID: none is matched",
        ),
        pytest.param(
            [a_claim("c-1", "x"), a_claim("c-2", "y"), a_node("n-1", "y"), a_node("n-2", "x")],
            [("c-2", "n-1"), ("c-1", "n-2")],
            id="crosswise",
        ),
        pytest.param(
            [a_claim("c-1", "x"), a_claim("c-2", "x"), a_claim("c-3", "k"), a_node("n-1", "x"), a_node("n-3", "k")],
            [("c-1", None), ("c-2", None), (None, "n-1"), ("c-3", "n-3")],
            id="a duplicate does not disturb the others",
        ),
        pytest.param([a_claim("c", "x", kind="Other"), a_node("n", "x")], [("c", "n")], id="of any controller"),
        pytest.param(
            [a_claim("c", "x"), a_claim("c", "y"), a_node("n", "x")],
            [("c", None), (None, "n")],
            id="the last document of an object counts",
        ),
    ],
)
def test_join(puts: Sequence[Put], expected: list[tuple[str | None, str | None]]) -> None:
    assert pairs(snapshot_of(*puts)) == expected


def test_duplicates_are_problems_of_each() -> None:
    claims = [a_claim(name, instance) for name, instance in (("c-2", "y"), ("c-1", "y"), ("c-3", "x"), ("c-0", "x"))]
    nodes = [a_node(name, "x") for name in ("n-1", "n-2", "n-3")]
    problems = snapshot_of(*claims, *nodes).problems
    assert {problem.rule for problem in problems} == {"DuplicateProviderID"}
    assert [(str(problem.object), problem.field) for problem in problems] == [
        ("Node/n-1", "spec.providerID"),
        ("Node/n-2", "spec.providerID"),
        ("Node/n-3", "spec.providerID"),
        ("NodeClaim/c-0", "status.providerID"),
        ("NodeClaim/c-3", "status.providerID"),
        ("NodeClaim/c-1", "status.providerID"),
        ("NodeClaim/c-2", "status.providerID"),
    ]
    assert [problem.message for problem in problems[::3]] == [
        "3 Nodes have the provider ID x; none of them is matched",
        "2 NodeClaims have the provider ID x; none of them is matched",
        "2 NodeClaims have the provider ID y; none of them is matched",
    ]


def test_empty_provider_ids_are_no_duplicates() -> None:
    snapshot = snapshot_of(a_claim("c-1"), a_claim("c-2"))
    assert (pairs(snapshot), snapshot.problems) == ([("c-1", None), ("c-2", None)], ())


def test_pods_are_on_their_node() -> None:
    pods = [
        a_pod("b", "n-1"),
        a_pod("a", "n-1", namespace="zoo"),
        a_pod("c", "n-2"),
        a_pod("pending"),
        a_pod("lost", "gone"),
        a_pod("a", "n-1"),
    ]
    snapshot = snapshot_of(*pods, a_node("n-2"), a_node("n-1"), a_claim("c", "other"))
    assert [(each.name, [str(pod.object) for pod in each.pods]) for each in snapshot.nodes] == [
        ("c", []),
        ("n-1", ["Pod/x/a", "Pod/x/b", "Pod/zoo/a"]),
        ("n-2", ["Pod/x/c"]),
    ]
    everywhere = ["Pod/x/a", "Pod/x/b", "Pod/x/c", "Pod/x/lost", "Pod/x/pending", "Pod/zoo/a"]
    assert [str(pod.object) for pod in snapshot.pods] == everywhere


def test_a_node_with_an_empty_name_gets_no_pending_pods() -> None:
    assert snapshot_of(a_pod("pending"), a_node("")).nodes[0].pods == ()


def test_a_claim_without_its_node_has_no_pods_even_if_a_pod_names_it() -> None:
    (node,) = snapshot_of(a_pod("web", "c"), a_claim("c", "x")).nodes
    assert (node.name, node.pods) == ("c", ())


def test_the_order_of_the_input_does_not_matter() -> None:
    nodes = [a_node("n-1", "1"), a_node("n-2", "2"), a_node("n-3", "3")]
    claims = [a_claim("c-3", "1"), a_claim("c-2", "2"), a_claim("n-10", "10")]
    pods = [a_pod("a", "n-1"), a_pod("b", "n-1"), a_pod("c", "n-2")]
    pools: list[Put] = [("nodepools", {"metadata": {"name": name}}) for name in "cba"]
    pdbs: list[Put] = [
        ("poddisruptionbudgets", {"metadata": {"namespace": namespace, "name": name}})
        for namespace, name in (("x", "z"), ("zoo", "a"), ("x", "b"))
    ]
    first = snapshot_of(*nodes, *claims, *pods, *pools, *pdbs)
    assert [each.name for each in first.nodes] == ["n-1", "n-10", "n-2", "n-3"]
    assert list(first.pools) == ["a", "b", "c"]
    assert [(each.namespace, each.name) for each in first.pdbs] == [("x", "b"), ("x", "z"), ("zoo", "a")]
    for order in itertools.permutations(range(3)):
        again = snapshot_of(*(kind[number] for kind in (pdbs, pods, pools, claims, nodes) for number in order))
        assert again == first
        assert list(again.pools) == list(first.pools)


def test_an_unchanged_node_is_the_same_object_in_the_next_snapshot() -> None:
    state = ClusterState()
    for plural, manifest in (a_node("n-1", "1"), a_node("n-2", "2"), a_pod("a", "n-1")):
        state.load(plural, msgspec.convert(manifest, state.reading(plural).struct))
    before = state.snapshot().nodes
    state.load("pods", msgspec.convert(a_pod("a", "n-2")[1], state.reading("pods").struct))
    assert [old is new for old, new in zip(before, state.snapshot().nodes, strict=True)] == [False, False]
    before = state.snapshot().nodes
    state.load("pods", msgspec.convert(a_pod("b", "n-2")[1], state.reading("pods").struct))
    assert [old is new for old, new in zip(before, state.snapshot().nodes, strict=True)] == [True, False]
