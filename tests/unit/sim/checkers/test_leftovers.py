"""Replacements that are bought again and again, though what a failed try has left is still there."""

from dovetail.api import names
from dovetail.ports import NODECLAIMS, Create, Patch
from tests.harness.claims import node_claim
from tests.harness.stage import stage
from tests.unit.sim.checkers.planting import READY, Ground, play

pytestmark = stage(play)

RULE = "leftovers"
UP = ("Launched", "Registered")


async def buy(ground: Ground, name: str, id_: str) -> None:
    """As the program does for a command."""
    await ground.us.write(
        Create(NODECLAIMS, node_claim(name, annotations={names.REPLACEMENT_OF: id_}, finalizers=True))
    )


async def fail(ground: Ground, *claims: str, id_: str, left: str, reason: str = "Drifted") -> None:
    """A command that is given up when its replacement has a Node, which does not become ready."""
    await ground.write_down(*claims, id_=id_, reason=reason, replacements=(left,))
    await ground.nodes(left, true=UP, annotations={names.REPLACEMENT_OF: id_})
    await ground.sim.run_for("10m")
    for claim in claims:
        await ground.us.write(Patch(NODECLAIMS, claim, {"metadata": {"annotations": {names.DISRUPTION_COMMAND: None}}}))
    await ground.sim.run_for("1m")


async def retry(ground: Ground, *claims: str, id_: str = "again", new: str = "new") -> None:
    await ground.write_down(*claims, id_=id_, replacements=(new,))
    await buy(ground, new, id_)


async def test_a_retry_that_buys_while_the_replacement_of_the_first_try_stands_is_caught(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a", "b")
    await fail(ground, "a", id_="first", left="r1")
    await retry(ground, "a", "b")
    assert ground.violations(RULE) == [
        ("NodeClaim/new", "is bought to replace a though r1 of an earlier try stands"),
    ]


async def test_a_retry_that_removes_it_before_is_not(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await fail(ground, "a", id_="first", left="r1")
    await ground.delete("r1")
    await retry(ground, "a")
    assert ground.violations(RULE) == []


async def test_a_retry_after_it_has_come_up_is_not(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await fail(ground, "a", id_="first", left="r1")
    await ground.status("r1", *READY)
    await ground.sim.run_for("1m")
    await retry(ground, "a")
    assert ground.violations(RULE) == []


async def test_a_retry_that_uses_it_is_not(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a", "b")
    await fail(ground, "a", id_="first", left="r1")
    await ground.write_down("a", "b", id_="again", replacements=("r1", "new"))
    await buy(ground, "new", "again")
    assert ground.violations(RULE) == []


async def test_what_was_left_only_now_nobody_could_have_known(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await fail(ground, "a", id_="first", left="r1")
    await ground.sim.run_for("1m")
    await ground.write_down("a", id_="again", replacements=("new",))
    await ground.status("r1", *UP)
    await buy(ground, "new", "again")
    assert ground.violations(RULE) == []


async def test_the_replacement_of_another_node_does_not_count(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.nodes("b", true=(*READY, "Drifted"))
    await fail(ground, "a", id_="first", left="r1")
    await retry(ground, "b")
    assert ground.violations(RULE) == []


async def test_more_of_them_than_nodes_that_are_to_be_replaced_are_caught(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a", "b", "c")
    await fail(ground, "a", id_="first", left="r1", reason="Underutilized")
    await fail(ground, "b", id_="second", left="r2", reason="Underutilized")
    await retry(ground, "c")
    ((object_, message),) = ground.violations(RULE)
    assert object_ == "NodeClaim/new"
    assert message == "is bought though NodePool default has 2 replacements of earlier tries (r1, r2), and 1 to replace"


async def test_as_many_as_nodes_that_still_drift_are_not(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a", "b", "c", true=(*READY, "Drifted"))
    await fail(ground, "a", id_="first", left="r1")
    await fail(ground, "b", id_="second", left="r2")
    await retry(ground, "c")
    assert ground.violations(RULE) == []
