"""Pools that lose more nodes at once than their budgets allow, and those that do not."""

from typing import Any

import pytest

from dovetail.ports import NODECLAIMS, NODEPOOLS, Delete, Patch
from dovetail.sim.actors.cluster import START
from dovetail.sim.checkers.budgets import limit_at
from tests.harness.stage import PARAMETER, stage
from tests.unit.sim.checkers.planting import Ground, play

pytestmark = stage(play)

RULE = "budgets"
NODES = ("a", "b", "c", "d")
SEED = [
    {"nodes": "15", "reasons": ["drifted", "underutilized"]},
    {"nodes": "10", "reasons": ["Drifted"]},
    {"nodes": "5"},
]


@pytest.mark.parametrize(
    ("budgets", "reason", "reading", "limit"),
    [
        (SEED, "Drifted", "by-reason", 10),
        (SEED, "Underutilized", "by-reason", 15),
        (SEED, "Empty", "by-reason", 5),
        (SEED, "Drifted", "upstream", 5),
        (SEED, "Underutilized", "upstream", 5),
        ([], "Empty", "by-reason", 101),
        ([{"nodes": "10%"}], "Empty", "by-reason", 11),
        ([{"nodes": "0%"}], "Empty", "by-reason", 0),
        ([{"nodes": "3", "reasons": []}], "Expired", "by-reason", 3),
        ([{"nodes": "3", "schedule": "0 0 * * *", "duration": "1h"}, {"nodes": "7"}], "Empty", "by-reason", 3),
        ([{"nodes": "3", "schedule": "1 0 * * *", "duration": "1h"}, {"nodes": "7"}], "Empty", "by-reason", 7),
        ([{"nodes": "3", "schedule": "61 0 * * *", "duration": "1h"}, {"nodes": "7"}], "Empty", "by-reason", 0),
        ([{"nodes": "3", "schedule": "0 0 * * *"}, {"nodes": "7"}], "Empty", "by-reason", 0),
        ([{"nodes": "-1", "reasons": ["Drifted"]}, {"nodes": "7"}], "Empty", "by-reason", 7),
        ([{"nodes": "-1", "reasons": ["Drifted"]}, {"nodes": "7"}], "Drifted", "by-reason", 0),
        ([{"nodes": "-1", "reasons": ["Drifted"]}, {"nodes": "7"}], "Empty", "upstream", 0),
        ([{"nodes": "3", "reasons": ["Drift"]}, {"nodes": "7"}], "Empty", "by-reason", 0),
    ],
)
def test_the_limit_by_the_rulings(budgets: list[dict[str, Any]], reason: str, reading: str, limit: int) -> None:
    assert limit_at(budgets, reason, START, 101, reading) == limit


async def test_one_node_too_many_is_caught(ground: Ground) -> None:
    await ground.begin(budgets=[{"nodes": "50%"}])
    await ground.nodes(*NODES)
    await ground.write_down("a", "b", "c")
    ((object_, message),) = ground.violations(RULE)
    assert object_ == "NodeClaim/c"
    assert message == (
        "was taken for Drifted as number 3 where the budgets of NodePool default allow 2 of its 4 nodes; "
        "busy are a, b, c"
    )


async def test_as_many_as_are_allowed_are_not(ground: Ground) -> None:
    await ground.begin(budgets=[{"nodes": "50%"}])
    await ground.nodes(*NODES)
    await ground.write_down("a", "b")
    checkers = ground.finish()
    assert checkers.applied[RULE] == 2
    assert [each for each in checkers.violations if each.rule == RULE] == []


async def test_whatever_goes_or_is_not_ready_counts(ground: Ground) -> None:
    """R26: here the one is draining, and the other not ready."""
    await ground.begin(budgets=[{"nodes": "2"}])
    await ground.nodes(*NODES)
    await ground.sim.api.write(Delete(NODECLAIMS, "a"))
    ground.sim.set_node_ready("b", ready=False)
    await ground.sim.run_for("1m")
    await ground.write_down("c")
    assert [object_ for object_, _ in ground.violations(RULE)] == ["NodeClaim/c"]


async def test_what_goes_at_this_very_instant_could_not_be_counted(ground: Ground) -> None:
    await ground.begin(budgets=[{"nodes": "1"}])
    await ground.nodes(*NODES)
    await ground.sim.api.write(Delete(NODECLAIMS, "a"))
    await ground.write_down("b")
    assert ground.violations(RULE) == []


async def test_a_budget_of_this_very_instant_could_not_be_read(ground: Ground) -> None:
    await ground.begin(budgets=[{"nodes": "1"}])
    await ground.nodes(*NODES)
    body = {"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}
    await ground.sim.api.write(Patch(NODEPOOLS.read_as(dict[str, Any]), "default", body))
    await ground.write_down("a")
    await ground.sim.run_for("1s")
    await ground.write_down("b", id_="2")
    assert [object_ for object_, _ in ground.violations(RULE)] == ["NodeClaim/b"]


@pytest.mark.parametrize(("reading", "caught"), [("by-reason", []), ("upstream", ["NodeClaim/a"])])
@stage(reading=PARAMETER)
async def test_the_reading_that_the_program_was_told_counts(ground: Ground, caught: list[str]) -> None:
    await ground.begin(budgets=[{"nodes": "1", "reasons": ["Drifted"]}, {"nodes": "0"}])
    await ground.nodes(*NODES)
    await ground.write_down("a")
    assert [object_ for object_, _ in ground.violations(RULE)] == caught
