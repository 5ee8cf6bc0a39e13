"""What is done against, or beside, the answers of `explain`."""

import pytest

from dovetail.api import names
from dovetail.ports import NODECLAIMS, NODES, Delete, Patch, TooManyRequests
from tests.harness import manifests
from tests.harness.stage import stage
from tests.unit.sim.checkers.planting import READY, Ground, play

pytestmark = stage(play)

RULE = "explained"


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Drifted", "was disrupted for Drifted, and explain says that it has no such reason"),
        ("Expired", "was disrupted for Expired, and explain says that it has no such reason"),
        ("Empty", "was disrupted for Empty, and explain says that it has no such reason"),
        ("Boredom", "was disrupted for Boredom, of which explain says nothing"),
    ],
)
async def test_a_reason_that_explain_does_not_see_is_caught(ground: Ground, reason: str, message: str) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.pod("p", "a")
    await ground.write_down("a", reason=reason)
    assert ground.violations(RULE) == [("NodeClaim/a", message)]


@pytest.mark.parametrize(
    ("disruption", "annotations", "why"),
    [
        ({"consolidationPolicy": "WhenEmpty"}, {}, "nodepool: NodePool default consolidates only when empty"),
        ({"consolidateAfter": "Never"}, {}, "consolidate-after: NodePool default never consolidates"),
        (
            {"budgets": [{"nodes": "0"}]},
            {},
            "budget: budgets[0] of NodePool default allows 0 nodes for Underutilized now",
        ),
        ({}, {names.DO_NOT_DISRUPT: "true"}, "pods: its only pod is protected"),
    ],
)
async def test_a_disruption_that_explain_refuses_is_caught(
    ground: Ground, disruption: dict[str, object], annotations: dict[str, str], why: str
) -> None:
    await ground.begin(**disruption)
    await ground.nodes("a")
    await ground.pod("p", "a", annotations=annotations)
    await ground.write_down("a", reason="Underutilized")
    ((object_, message),) = ground.violations(RULE)
    assert object_ == "NodeClaim/a"
    assert message.startswith(f"was disrupted for Underutilized, and explain says: {why}")


async def test_a_disruption_that_explain_allows_is_not(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a", terminationGracePeriod="1h")
    await ground.pod("p", "a", annotations={names.DO_NOT_DISRUPT: "true"})
    await ground.status("a", *READY, "Drifted")
    await ground.sim.run_for("1s")
    await ground.write_down("a", reason="Drifted")
    checkers = ground.finish()
    assert checkers.violations == []
    assert checkers.applied[RULE] == 1


async def test_what_came_up_at_this_very_instant_could_not_be_known(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.pod("p", "a")
    body = {"metadata": {"annotations": {names.DO_NOT_DISRUPT: "true"}}}
    await ground.sim.api.write(Patch(NODES, "a", body))
    await ground.write_down("a", reason="Underutilized")
    checkers = ground.finish()
    assert checkers.violations == []
    assert checkers.not_applied[RULE] == 1


# -- claims that go without a command ----------------------------------------------------------------------------------


async def test_graceful_reasons_need_a_command(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.status("a", *READY, reason="Drifted")
    await ground.delete("a")
    assert ground.violations(RULE) == [("NodeClaim/a", "was deleted for Drifted, and no command says so")]


@pytest.mark.parametrize(("hours", "caught"), [(0.9, True), (1.1, False)])
async def test_expiration_has_its_instant(ground: Ground, hours: float, caught: bool) -> None:
    await ground.begin()
    await ground.nodes("a", expireAfter="1h")
    await ground.run_to(hours)
    await ground.status("a", *READY, reason="Expired")
    await ground.sim.run_for("1s")
    await ground.delete("a")
    objection = ("NodeClaim/a", "was disrupted for Expired, and explain says that it has no such reason")
    assert ground.violations(RULE) == ([objection] if caught else [])


# -- pods --------------------------------------------------------------------------------------------------------------


async def test_a_pod_of_a_node_that_stays_is_not_taken_off(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.pod("p", "a")
    await ground.evict("p")
    assert ground.violations(RULE) == [("Pod/default/p", "was taken off its node, and explain says: its node is in S1")]


async def test_nor_is_one_that_explain_protects(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.pod("p", "a", annotations={names.DO_NOT_DISRUPT: "true"})
    await ground.drain("a")
    await ground.sim.run_for("1s")
    await ground.evict("p")
    ((object_, message),) = ground.violations(RULE)
    assert object_ == "Pod/default/p"
    assert message.startswith("was taken off its node, and explain says: do-not-disrupt: protected until")


async def test_a_pod_may_go_when_explain_says_so(ground: Ground) -> None:
    """The last eviction that a budget allows: the server takes it from the budget before it evicts."""
    await ground.begin()
    await ground.nodes("a")
    await ground.pod("p", "a")
    await ground.sim.apply(manifests.pdb("p", minAvailable=0))
    await ground.drain("a")
    await ground.sim.run_for("1s")
    await ground.evict("p")
    checkers = ground.finish()
    assert checkers.violations == []
    assert checkers.applied[RULE] == 1


async def test_an_eviction_that_the_server_refuses_is_none(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.pod("p", "a")
    await ground.sim.apply(manifests.pdb("p", maxUnavailable=0))
    await ground.drain("a")
    await ground.sim.run_for("1s")
    with pytest.raises(TooManyRequests):
        await ground.evict("p")
    await ground.sim.api.write(Delete(NODECLAIMS, "a"))
    assert ground.finish().violations == []
