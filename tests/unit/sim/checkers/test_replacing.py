"""Nodes that are given up before what replaces them is there, or for something dearer."""

import pytest

from dovetail.ports import NODECLAIMS, NODES, Create, Delete
from tests.harness.claims import node_claim
from tests.unit.sim.checkers.planting import CHEAP, DEAR, READY, Ground, checked, told

FIRST, CHEAPER = "replacements-first", "cheaper"


@pytest.mark.parametrize(
    ("true", "missing"),
    [(None, "r is not there"), (("Launched",), "r is not initialized"), (("Launched", "Registered"), "r is not init")],
)
def test_a_node_that_goes_before_its_replacement_is_there_is_caught(true: tuple[str, ...] | None, missing: str) -> None:
    async def scenario(ground: Ground) -> None:
        await ground.begin()
        await ground.nodes("a")
        await ground.write_down("a", replacements=("r",))
        if true is not None:
            await ground.nodes("r", true=true)
        await ground.sim.run_for("1m")
        await ground.delete("a")

    ((object_, message),) = told(scenario, FIRST)
    assert object_ == "NodeClaim/a"
    assert message.startswith(f"was deleted (Drifted) though its replacement {missing}")


def test_so_is_one_whose_replacement_came_too_late() -> None:
    async def scenario(ground: Ground) -> None:
        await ground.begin()
        await ground.nodes("a")
        await ground.write_down("a", replacements=("r",))
        await ground.sim.run_for("11m")
        await ground.nodes("r")
        await ground.delete("a")

    ((_, message),) = told(scenario, FIRST)
    assert message == "was deleted (Drifted) though its replacement r was initialized only after 2026-03-02T00:10:02Z"


def test_and_one_whose_replacement_goes_itself() -> None:
    async def scenario(ground: Ground) -> None:
        await ground.begin()
        await ground.nodes("a", "r")
        await ground.write_down("a", replacements=("r",))
        await ground.delete("r")
        await ground.sim.run_for("1s")
        await ground.delete("a")

    assert [message for _, message in told(scenario, FIRST)] == [
        "was deleted (Drifted) though its replacement r is going itself"
    ]


def test_that_a_replacement_has_just_been_created_is_no_excuse() -> None:
    async def scenario(ground: Ground) -> None:
        await ground.begin()
        await ground.nodes("a")
        await ground.write_down("a", replacements=("r",))
        await ground.us.write(Create(NODECLAIMS, node_claim("r")))
        await ground.delete("a")

    assert [message for _, message in told(scenario, FIRST)] == [
        "was deleted (Drifted) though its replacement r is not initialized"
    ]


def test_that_somebody_has_just_deleted_it_could_not_be_known() -> None:
    async def scenario(ground: Ground) -> None:
        await ground.begin()
        await ground.nodes("a", "r")
        await ground.write_down("a", replacements=("r",))
        await ground.sim.api.write(Delete(NODECLAIMS, "r"))
        await ground.delete("a")

    assert told(scenario, FIRST) == []


def test_one_that_waits_for_its_replacement_is_not() -> None:
    async def scenario(ground: Ground) -> None:
        await ground.begin()
        await ground.nodes("a")
        await ground.write_down("a", replacements=("r",))
        await ground.nodes("r")
        await ground.delete("a")

    checkers = checked(scenario)
    assert checkers.applied[FIRST] == 1
    assert [each for each in checkers.violations if each.rule == FIRST] == []


def test_a_node_that_somebody_deletes_waits_for_nothing() -> None:
    async def scenario(ground: Ground) -> None:
        await ground.begin()
        await ground.nodes("a")
        await ground.write_down("a", replacements=("r",))
        await ground.sim.api.write(Delete(NODES, "a"))
        await ground.delete("a")

    assert told(scenario, FIRST) == []


@pytest.mark.parametrize("reason", ["Expired", "Unhealthy", "Interrupted"])
def test_nor_does_one_that_goes_by_force(reason: str) -> None:
    async def scenario(ground: Ground) -> None:
        await ground.begin()
        await ground.nodes("a")
        await ground.write_down("a", replacements=("r",))
        await ground.status("a", *READY, reason=reason)
        await ground.delete("a")

    assert told(scenario, FIRST) == []


# -- the price ---------------------------------------------------------------------------------------------------------


def _consolidated(machine: str, reason: str = "Underutilized") -> list[tuple[str, str]]:
    async def scenario(ground: Ground) -> None:
        await ground.begin()
        await ground.nodes("a", "b", machine=CHEAP)
        await ground.write_down("a", "b", reason=reason, replacements=("r",))
        await ground.nodes("r", machine=machine)
        await ground.delete("a")
        await ground.delete("b")

    checkers = checked(scenario)
    assert checkers.applied[CHEAPER] == (reason == "Underutilized")
    return [(each.object, each.message) for each in checkers.violations if each.rule == CHEAPER]


def test_a_consolidation_that_costs_more_is_caught() -> None:
    ((object_, message),) = _consolidated(DEAR)
    assert object_ == "NodeClaim/a, b"
    assert message.startswith("cost 0.")
    assert " an hour and were replaced by r for 0." in message


def test_one_that_costs_less_is_not() -> None:
    assert _consolidated(CHEAP) == []


def test_drift_may_cost_what_it_costs() -> None:
    assert _consolidated(DEAR, reason="Drifted") == []


def test_the_same_price_is_no_gain() -> None:
    async def scenario(ground: Ground) -> None:
        await ground.begin()
        await ground.nodes("a", machine=CHEAP)
        await ground.write_down("a", reason="Underutilized", replacements=("r",))
        await ground.nodes("r", machine=CHEAP)
        await ground.delete("a")

    assert len(told(scenario, CHEAPER)) == 1


def test_without_a_price_nothing_can_be_said() -> None:
    async def scenario(ground: Ground) -> None:
        await ground.begin()
        await ground.nodes("a", machine="made-to-order")
        await ground.write_down("a", reason="Underutilized", replacements=("r",))
        await ground.nodes("r", machine=CHEAP)
        await ground.delete("a")

    checkers = checked(scenario)
    assert (checkers.applied[CHEAPER], checkers.not_applied[CHEAPER]) == (0, 1)
