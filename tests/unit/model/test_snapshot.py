"""The names, the pool and the state of deletion of a node, from its NodeClaim and its Node."""

import pytest

from dovetail.model.snapshot import ClusterNode
from tests.harness.builders import claim, member, node


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
