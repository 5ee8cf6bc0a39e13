"""The snapshot: which NodeClaim, Node and pods belong together."""

import itertools

import pytest

from dovetail.model.records import ClaimRecord, NodeRecord
from dovetail.model.snapshot import ClusterNode, Snapshot, take_snapshot
from tests.harness.builders import claim, member, node, pdb, pod, pool


def pairs(snapshot: Snapshot) -> list[tuple[str | None, str | None]]:
    return [(each.claim.name if each.claim else None, each.node.name if each.node else None) for each in snapshot.nodes]


def test_nothing_is_an_empty_snapshot() -> None:
    assert take_snapshot() == Snapshot()


@pytest.mark.parametrize(
    ("claims", "nodes", "expected"),
    [
        pytest.param(
            [claim("c", provider_id="kwok://x")], [node("n", provider_id="kwok://x")], [("c", "n")], id="one pair"
        ),
        pytest.param(
            [claim("same", provider_id="kwok://x")],
            [node("same", provider_id="kwok://y")],
            [(None, "same"), ("same", None)],
            id="never by name",
        ),
        pytest.param(
            [claim("c", provider_id="")], [node("n", provider_id="")], [("c", None), (None, "n")], id="not by empty IDs"
        ),
        pytest.param([claim("c", provider_id="kwok://x")], [], [("c", None)], id="a claim alone"),
        pytest.param([], [node("n")], [(None, "n")], id="a Node alone"),
        pytest.param(
            [claim("c-1", provider_id="kwok://x"), claim("c-2", provider_id="kwok://x")],
            [node("n", provider_id="kwok://x")],
            [("c-1", None), ("c-2", None), (None, "n")],
            id="two claims of one ID: none is matched",
        ),
        pytest.param(
            [claim("c", provider_id="kwok://x")],
            [node("n-1", provider_id="kwok://x"), node("n-2", provider_id="kwok://x")],
            [("c", None), (None, "n-1"), (None, "n-2")],
            id="two Nodes of one ID: none is matched",
        ),
        pytest.param(
            [claim("c-1", provider_id="kwok://x"), claim("c-2", provider_id="kwok://y")],
            [node("n-1", provider_id="kwok://y"), node("n-2", provider_id="kwok://x")],
            [("c-2", "n-1"), ("c-1", "n-2")],
            id="crosswise",
        ),
        pytest.param(
            [claim("c-1", provider_id="kwok://x"), claim("c-2", provider_id="kwok://x"), claim("c-3", provider_id="k")],
            [node("n-1", provider_id="kwok://x"), node("n-3", provider_id="k")],
            [("c-1", None), ("c-2", None), (None, "n-1"), ("c-3", "n-3")],
            id="a duplicate does not disturb the others",
        ),
    ],
)
def test_join(
    claims: list[ClaimRecord], nodes: list[NodeRecord], expected: list[tuple[str | None, str | None]]
) -> None:
    assert sorted(pairs(take_snapshot(claims=claims, nodes=nodes)), key=str) == sorted(expected, key=str)


def test_duplicates_are_problems_of_each() -> None:
    claims = [claim(name, provider_id="kwok://x") for name in ("c-1", "c-2")]
    nodes = [node(name, provider_id="kwok://x") for name in ("n-1", "n-2", "n-3")]
    found = take_snapshot(claims=claims, nodes=nodes).problems
    assert {problem.rule for problem in found} == {"DuplicateProviderID"}
    assert sorted((str(problem.object), problem.field) for problem in found) == [
        ("Node/n-1", "spec.providerID"),
        ("Node/n-2", "spec.providerID"),
        ("Node/n-3", "spec.providerID"),
        ("NodeClaim/c-1", "status.providerID"),
        ("NodeClaim/c-2", "status.providerID"),
    ]
    assert {problem.message for problem in found} == {
        "3 Nodes have the provider ID kwok://x; none of them is matched",
        "2 NodeClaims have the provider ID kwok://x; none of them is matched",
    }


def test_empty_provider_ids_are_no_duplicates() -> None:
    snapshot = take_snapshot(claims=[claim(name, provider_id="") for name in ("c-1", "c-2")])
    assert (pairs(snapshot), snapshot.problems) == ([("c-1", None), ("c-2", None)], ())


def test_pods_are_on_their_node() -> None:
    pods = [
        pod("b", node="n-1"),
        pod("a", node="n-1", namespace="zoo"),
        pod("c", node="n-2"),
        pod("pending", node=""),
        pod("lost", node="gone"),
        pod("a", node="n-1"),
    ]
    snapshot = take_snapshot(pods=pods, nodes=[node("n-2"), node("n-1")], claims=[claim("c", provider_id="other")])
    assert [(each.name, [str(p.object) for p in each.pods]) for each in snapshot.nodes] == [
        ("c", []),
        ("n-1", ["Pod/default/a", "Pod/default/b", "Pod/zoo/a"]),
        ("n-2", ["Pod/default/c"]),
    ]
    assert [str(p.object) for p in snapshot.pods] == [
        "Pod/default/a",
        "Pod/default/b",
        "Pod/default/c",
        "Pod/default/lost",
        "Pod/default/pending",
        "Pod/zoo/a",
    ]


def test_a_node_with_an_empty_name_gets_no_pending_pods() -> None:
    assert take_snapshot(pods=[pod(node="")], nodes=[node("")]).nodes[0].pods == ()


def test_a_claim_without_its_node_has_no_pods_even_if_a_pod_names_it() -> None:
    snapshot = take_snapshot(pods=[pod(node="c")], claims=[claim("c", provider_id="kwok://x")])
    assert snapshot.nodes == (member(claim("c", provider_id="kwok://x")),)


def test_the_order_of_the_input_does_not_matter() -> None:
    nodes = [node("n-1"), node("n-2"), node("n-3")]
    claims = [claim("c-3", provider_id="kwok://n-1"), claim("c-2", provider_id="kwok://n-2"), claim("n-10")]
    pods = [pod("a", node="n-1"), pod("b", node="n-1"), pod("c", node="n-2")]
    pools = [pool("b"), pool("a")]
    pdbs = [pdb("z"), pdb("a", namespace="zoo"), pdb("b")]
    first = take_snapshot(nodes=nodes, claims=claims, pods=pods, pools=pools, pdbs=pdbs)
    assert [each.name for each in first.nodes] == ["n-1", "n-10", "n-2", "n-3"]
    assert list(first.pools) == ["a", "b"]
    assert [str(each.object) for each in first.pdbs] == [
        "PodDisruptionBudget/default/b",
        "PodDisruptionBudget/default/z",
        "PodDisruptionBudget/zoo/a",
    ]
    for order in itertools.permutations(range(3)):
        again = take_snapshot(
            nodes=[nodes[n] for n in order],
            claims=[claims[n] for n in order],
            pods=(pods[n] for n in order),
            pools=pools[::-1],
            pdbs=[pdbs[n] for n in order],
        )
        assert again == first
        assert list(again.pools) == list(first.pools)


@pytest.mark.parametrize(
    ("subject", "name", "object_", "pool_", "deleting"),
    [
        pytest.param(member(claim("c"), node("n")), "n", "Node/n", "default", False, id="both: the Node's name"),
        pytest.param(member(claim("c")), "c", "NodeClaim/c", "default", False, id="claim alone"),
        pytest.param(member(None, node("n", pool="gpu")), "n", "Node/n", "gpu", False, id="Node alone"),
        pytest.param(member(), "", "", "", False, id="neither"),
        pytest.param(
            member(claim(pool="a"), node(pool="b")),
            "node-1",
            "Node/node-1",
            "b",
            False,
            id="the registered Node's",
        ),
        pytest.param(
            member(claim(pool="a"), node(pool="b", registered=False)),
            "node-1",
            "Node/node-1",
            "a",
            False,
            id="not registered: the claim's pool",
        ),
        pytest.param(
            member(claim(pool="a"), node(pool="b", registered=False, initialized=True)),
            "node-1",
            "Node/node-1",
            "b",
            False,
            id="initialized: the Node's pool",
        ),
        pytest.param(
            member(None, node(pool="b", registered=False)),
            "node-1",
            "Node/node-1",
            "b",
            False,
            id="only the Node's",
        ),
        pytest.param(
            member(claim(deleted="2026-03-07T02:00:00Z"), node()),
            "node-1",
            "Node/node-1",
            "default",
            True,
            id="claim deleted",
        ),
        pytest.param(
            member(claim(), node(deleted="2026-03-07T02:00:00Z")),
            "node-1",
            "Node/node-1",
            "default",
            True,
            id="Node deleted",
        ),
    ],
)
def test_cluster_node(subject: ClusterNode, name: str, object_: str, pool_: str, deleting: bool) -> None:
    assert (subject.name, str(subject.object), subject.pool, subject.deleting) == (name, object_, pool_, deleting)
