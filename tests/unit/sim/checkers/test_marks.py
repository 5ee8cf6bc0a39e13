"""Marks that are left on nodes that stay."""

from typing import Any

from dovetail.api import names
from dovetail.ports import NODECLAIMS, NODES, Patch
from tests.harness.stage import stage
from tests.unit.sim.checkers.planting import CANDIDATE, DISRUPTED, READY, Ground, play

pytestmark = stage(play)

RULE = "marks"
RELEASED: dict[str, Any] = {"metadata": {"annotations": {names.DISRUPTION_COMMAND: None}}}


async def test_a_command_that_ends_and_leaves_its_taint_is_caught(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.write_down("a")
    await ground.taint("a", DISRUPTED)
    await ground.us.write(Patch(NODECLAIMS, "a", RELEASED))
    assert ground.violations(RULE) == [("Node/a", "is still tainted, and its command is over")]


async def test_so_is_one_that_leaves_its_condition(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.write_down("a")
    await ground.status("a", *READY, reason="Drifted")
    await ground.us.write(Patch(NODECLAIMS, "a", RELEASED))
    assert ground.violations(RULE) == [("NodeClaim/a", "still says why it is disrupted, and its command is over")]


async def test_one_that_takes_them_off_first_is_not(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.status("a", *READY, "Drifted")
    await ground.sim.run_for("1s")
    await ground.write_down("a")
    await ground.taint("a", DISRUPTED)
    await ground.taint("a")
    await ground.us.write(Patch(NODECLAIMS, "a", RELEASED))
    await ground.sim.run_for("1h")
    checkers = ground.finish()
    assert checkers.violations == []
    assert checkers.applied[RULE] == 2


async def test_a_taint_without_a_command_is_caught_at_the_end(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a", "b")
    await ground.taint("a", DISRUPTED)
    await ground.sim.run_for("5m")
    await ground.taint("b", DISRUPTED)  # somebody may be about to take it off
    assert ground.violations(RULE) == [("Node/a", "is tainted as disrupted, stays, and is in no command")]


async def test_nobody_cleans_up_while_the_program_is_down(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.taint("a", DISRUPTED)
    ground.checkers.program_stops()
    await ground.sim.run_for("1h")
    assert ground.violations(RULE) == []


async def test_what_somebody_else_has_tainted_is_theirs(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.sim.api.write(Patch(NODES.read_as(dict[str, Any]), "a", {"spec": {"taints": [DISRUPTED, CANDIDATE]}}))
    await ground.sim.run_for("1h")
    assert ground.violations(RULE) == []


async def test_a_candidate_that_can_be_none_is_caught(ground: Ground) -> None:
    await ground.begin(consolidateAfter="Never")
    await ground.nodes("a", "b")
    await ground.pod("p", "a")
    await ground.taint("a", CANDIDATE)
    await ground.status("b", *READY, "Drifted")
    await ground.taint("b", CANDIDATE)
    await ground.sim.run_for("5m")
    assert ground.violations(RULE) == [("Node/a", "is tainted as a candidate, and no graceful reason can stand for it")]


async def test_a_candidate_that_only_a_budget_keeps_is_not(ground: Ground) -> None:
    await ground.begin(budgets=[{"nodes": "0"}])
    await ground.nodes("a")
    await ground.pod("p", "a")
    await ground.taint("a", CANDIDATE)
    await ground.sim.run_for("5m")
    assert ground.violations(RULE) == []
