"""R46: when has something that a command reads changed last?"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pytest

from dovetail.api.names import Reason
from dovetail.planning.disruption.board import Candidate, Method
from dovetail.planning.disruption.commands import Command, PodDestination
from dovetail.planning.disruption.evaluation import NodeEvaluator
from dovetail.planning.disruption.pool_budgets import PoolBudgets
from dovetail.planning.disruption.quiet import LastChanges
from dovetail.state.protections import PodProtections
from tests.harness.claims import condition
from tests.unit.state.world import CLASS, NOW, Put, World, a_claim, a_node, a_pod

LATER: Final = timedelta(minutes=1)
UP: Final = ("Launched", "Registered", "Initialized")
LABELS: Final = {
    "karpenter.sh/nodepool": "a",
    "karpenter.sh/registered": "true",
    "karpenter.sh/initialized": "true",
}
PREFER: Final = {"key": "karpenter.sh/candidate", "effect": "PreferNoSchedule"}
COMMAND: Final = Command(
    id="c",
    at=NOW,
    method=Method.SINGLE_NODE,
    candidates=(Candidate(node="n1", claim="c1", claim_uid="u1", pool="a"),),
    landing={"p1": PodDestination(node="n2"), "p2": PodDestination(replacement=1)},
)


def a_ready_node(number: int, *, labels: Mapping[str, str] = LABELS, **wire: Any) -> Put:
    plural, manifest = a_node(f"n{number}", f"i{number}", labels=labels, **wire)
    return plural, {**manifest, "status": {**manifest["status"], "conditions": [condition("Ready")]}}


def a_pool(name: str, nodes: str = "10%", **status: Any) -> Put:
    reference = {"group": CLASS.group, "kind": CLASS.kind, "name": "default"}
    disruption = {"consolidateAfter": "30s", "budgets": [{"nodes": nodes}]}
    spec = {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}, "disruption": disruption}
    return "nodepools", {"metadata": {"name": name}, "spec": spec, "status": status}


class Cluster:
    """Three nodes of the NodePool a and one of b, each with a pod."""

    def __init__(self) -> None:
        self._world = World()
        self._changes = LastChanges()
        self._budgets = PoolBudgets()
        self._evaluator = NodeEvaluator(PodProtections())
        self._now = NOW
        self._world.feed(a_pool("a"), a_pool("b"))
        for number in (1, 2, 3):
            self._world.feed(a_claim(f"c{number}", f"i{number}", true=UP), a_ready_node(number))
        self._world.feed(
            a_claim("c4", "i4", pool="b", true=UP),
            a_ready_node(4, labels={**LABELS, "karpenter.sh/nodepool": "b"}),
            *(a_pod(f"p{number}", f"n{number}") for number in (1, 2, 3, 4)),
        )
        self._observe()

    def _observe(self) -> None:
        self._world.state.settle()
        snapshot = self._world.placing.snapshot(self._now)
        pools = self._budgets.read(snapshot.pools)
        nodes = self._evaluator.at(self._now, snapshot.nodes, {name: pool.record for name, pool in pools.items()})
        self._changes.observe(snapshot, pools, self._budgets.spending(pools, nodes, self._now))

    def counts_after(self, *puts: Put, command: Command = COMMAND) -> bool:
        """Whether the command has to wait because of the change, which comes a minute after the first look."""
        assert self._changes.before(command) == self._now
        self._now += LATER
        self._world.feed(*puts)
        self._observe()
        return self._changes.before(command) == self._now

    def delete(self, plural: str, key: tuple[str, str]) -> None:
        self._world.state.apply(plural, *self._world.delete(plural, key))


@pytest.mark.parametrize(
    "change",
    [
        a_pod("p1", "n1", annotations={"karpenter.sh/do-not-disrupt": "1h"}),
        a_pod("p1", "n1", phase="Failed"),
        a_pod("new", "n1"),
        a_pod("new", "n2"),
        a_ready_node(1, annotations={"karpenter.sh/do-not-disrupt": "true"}),
        a_ready_node(2, labels={**LABELS, "disk": "fast"}),
        a_ready_node(2, taints=[{"key": "mine", "effect": "NoSchedule"}]),
        a_pool("a", "50%"),
        a_claim("c3", "i3", true=UP, deletionTimestamp="2026-03-01T00:00:30Z"),
    ],
    ids=[
        "a pod is protected",
        "a pod ends",
        "a pod comes",
        "a pod comes to a node that gets pods",
        "the Node is protected",
        "labels of a node that gets pods",
        "a taint of a node that gets pods",
        "a budget",
        "another node of the pool uses the budget",
    ],
)
def test_a_change_of_what_the_command_reads_counts(change: Put) -> None:
    assert Cluster().counts_after(change)


@pytest.mark.parametrize(
    "change",
    [
        a_pod("p3", "n3", annotations={"karpenter.sh/do-not-disrupt": "1h"}),
        a_pod("new", "n4"),
        a_pool("b", "50%"),
        a_pool("a", nodes="10%", conditions=[condition("Ready")], resources={"cpu": "12"}),
        a_claim("c1", "i1", true=(*UP, "Consolidatable")),
        a_ready_node(1, taints=[PREFER]),
        a_ready_node(2, taints=[PREFER]),
    ],
    ids=[
        "another node",
        "another pool's node",
        "another pool",
        "the status of the pool",
        "our condition",
        "our mark",
        "our mark on a node that gets pods",
    ],
)
def test_what_the_command_does_not_read_and_what_we_write_do_not_count(change: Put) -> None:
    assert not Cluster().counts_after(change)


def test_time_alone_does_not_count() -> None:
    cluster = Cluster()
    assert not cluster.counts_after()


def test_a_node_that_comes_back_has_changed() -> None:
    cluster = Cluster()
    cluster.delete("nodes", ("", "n2"))
    assert cluster.counts_after()


def test_a_node_of_others_counts_where_it_gets_pods() -> None:
    cluster = Cluster()
    assert cluster.counts_after(a_claim("c2", "i2", kind="Other", true=UP))


def test_a_command_without_known_nodes_waits_from_its_decision_on() -> None:
    gone = Candidate(node="gone", claim="gone", claim_uid="u", pool="gone")
    command = Command(id="c", at=NOW + LATER, method=Method.EMPTINESS, candidates=(gone,))
    assert command.reason is Reason.EMPTY
    assert LastChanges().before(command) == NOW + LATER
