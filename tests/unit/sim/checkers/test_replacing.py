"""Nodes that are given up before what replaces them is there, or for something dearer."""

import pytest

from dovetail.ports import NODECLAIMS, NODES, Create, Delete
from tests.harness.claims import node_claim
from tests.harness.stage import stage
from tests.unit.sim.checkers.planting import CHEAP, DEAR, READY, Ground, play

pytestmark = stage(play)

FIRST, CHEAPER = "replacements-first", "cheaper"


@pytest.mark.parametrize(
    ("true", "missing"),
    [(None, "r is not there"), (("Launched",), "r is not initialized"), (("Launched", "Registered"), "r is not init")],
)
async def test_a_node_that_goes_before_its_replacement_is_there_is_caught(
    ground: Ground, true: tuple[str, ...] | None, missing: str
) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.write_down("a", replacements=("r",))
    if true is not None:
        await ground.nodes("r", true=true)
    await ground.sim.run_for("1m")
    await ground.delete("a")
    ((object_, message),) = ground.violations(FIRST)
    assert object_ == "NodeClaim/a"
    assert message.startswith(f"was deleted (Drifted) though its replacement {missing}")


async def test_so_is_one_whose_replacement_came_too_late(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.write_down("a", replacements=("r",))
    await ground.sim.run_for("11m")
    await ground.nodes("r")
    await ground.delete("a")
    ((_, message),) = ground.violations(FIRST)
    assert message == "was deleted (Drifted) though its replacement r was initialized only after 2026-03-02T00:10:02Z"


async def test_and_one_whose_replacement_goes_itself(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a", "r")
    await ground.write_down("a", replacements=("r",))
    await ground.delete("r")
    await ground.sim.run_for("1s")
    await ground.delete("a")
    assert [message for _, message in ground.violations(FIRST)] == [
        "was deleted (Drifted) though its replacement r is going itself"
    ]


async def test_that_a_replacement_has_just_been_created_is_no_excuse(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.write_down("a", replacements=("r",))
    await ground.us.write(Create(NODECLAIMS, node_claim("r")))
    await ground.delete("a")
    assert [message for _, message in ground.violations(FIRST)] == [
        "was deleted (Drifted) though its replacement r is not initialized"
    ]


async def test_that_somebody_has_just_deleted_it_could_not_be_known(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a", "r")
    await ground.write_down("a", replacements=("r",))
    await ground.sim.api.write(Delete(NODECLAIMS, "r"))
    await ground.delete("a")
    assert ground.violations(FIRST) == []


async def test_one_that_waits_for_its_replacement_is_not(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.write_down("a", replacements=("r",))
    await ground.nodes("r")
    await ground.delete("a")
    checkers = ground.finish()
    assert checkers.applied[FIRST] == 1
    assert [each for each in checkers.violations if each.rule == FIRST] == []


async def test_a_node_that_somebody_deletes_waits_for_nothing(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.write_down("a", replacements=("r",))
    await ground.sim.api.write(Delete(NODES, "a"))
    await ground.delete("a")
    assert ground.violations(FIRST) == []


@pytest.mark.parametrize("reason", ["Expired", "Unhealthy", "Interrupted"])
async def test_nor_does_one_that_goes_by_force(ground: Ground, reason: str) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.write_down("a", replacements=("r",))
    await ground.status("a", *READY, reason=reason)
    await ground.delete("a")
    assert ground.violations(FIRST) == []


# -- the price ---------------------------------------------------------------------------------------------------------


async def _consolidated(ground: Ground, machine: str, reason: str = "Underutilized") -> list[tuple[str, str]]:
    await ground.begin()
    await ground.nodes("a", "b", machine=CHEAP)
    await ground.write_down("a", "b", reason=reason, replacements=("r",))
    await ground.nodes("r", machine=machine)
    await ground.delete("a")
    await ground.delete("b")
    checkers = ground.finish()
    assert checkers.applied[CHEAPER] == (reason == "Underutilized")
    return [(each.object, each.message) for each in checkers.violations if each.rule == CHEAPER]


async def test_a_consolidation_that_costs_more_is_caught(ground: Ground) -> None:
    ((object_, message),) = await _consolidated(ground, DEAR)
    assert object_ == "NodeClaim/a, b"
    assert message.startswith("cost 0.")
    assert " an hour and were replaced by r for 0." in message


async def test_one_that_costs_less_is_not(ground: Ground) -> None:
    assert await _consolidated(ground, CHEAP) == []


async def test_drift_may_cost_what_it_costs(ground: Ground) -> None:
    assert await _consolidated(ground, DEAR, reason="Drifted") == []


async def test_the_same_price_is_no_gain(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a", machine=CHEAP)
    await ground.write_down("a", reason="Underutilized", replacements=("r",))
    await ground.nodes("r", machine=CHEAP)
    await ground.delete("a")
    assert len(ground.violations(CHEAPER)) == 1


async def test_without_a_price_nothing_can_be_said(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a", machine="made-to-order")
    await ground.write_down("a", reason="Underutilized", replacements=("r",))
    await ground.nodes("r", machine=CHEAP)
    await ground.delete("a")
    checkers = ground.finish()
    assert (checkers.applied[CHEAPER], checkers.not_applied[CHEAPER]) == (0, 1)
