"""A new leader carries commands on from what the objects say, or takes them back (R24; 02 §14.34)."""

from datetime import timedelta

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.planning.disruption.board import Method
from dovetail.ports import NODECLAIMS, NODES, Unavailable
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from tests.harness.stage import stage
from tests.harness.termination import is_deleting
from tests.sim.disruption_commands.setting import Setting, play

pytestmark = stage(play)

ROLLED_BACK = EventReason.DISRUPTION_ROLLED_BACK


async def test_replacements_that_are_there_are_waited_for(setting: Setting) -> None:
    await setting.stand("a", "b")
    await setting.start(setting.command("a", "b", replacements=1))
    await setting.sim.wait_until(lambda: setting.is_disrupting("a") and setting.is_disrupting("b"))
    await setting.program.restart()
    await setting.sim.run_for("1s")
    assert setting.is_disrupting("a")
    assert setting.commands.owns_claim("a")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a", "b"))
    assert len(setting.claims()) == 1
    assert setting.notes(ROLLED_BACK, "a") == []


async def test_the_deadline_is_the_one_of_the_start(setting: Setting) -> None:
    await setting.stand("a")
    setting.cloud.next_launches(Launch(registers=False))
    began_at = setting.now()
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.run_for("5m")
    await setting.program.restart()
    await setting.run_until(began_at + timedelta(minutes=9, seconds=59))
    assert setting.is_disrupting("a")
    await setting.run_past(began_at + timedelta(minutes=10))
    await setting.sim.run_for("1s")
    assert setting.is_untouched("a")


async def test_one_that_came_up_in_time_counts_however_late_that_is_seen(setting: Setting) -> None:
    await setting.stand("a", "b")
    setting.sim.server.faults.add(
        Fault(Unavailable("away")), verb="delete", resource=NODECLAIMS, client=names.COMPONENT, times=1000
    )
    await setting.start(setting.command("a", "b", replacements=1))
    await setting.sim.run_for("2m")
    assert setting.is_disrupting("a")
    await setting.program.kill()
    setting.sim.server.faults.clear()
    await setting.sim.run_for("1h")
    await setting.program.start()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a", "b"))


async def test_nodes_of_a_command_that_is_half_done_go_too(setting: Setting) -> None:
    await setting.stand("a", "b")
    setting.sim.server.faults.add(
        Fault(Unavailable("away")), verb="delete", resource=NODECLAIMS, name="b", client=names.COMPONENT, times=1000
    )
    await setting.start(setting.command("a", "b", replacements=1))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))
    await setting.program.kill()
    setting.sim.server.faults.clear()
    await setting.program.start()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "b"))
    assert setting.notes(ROLLED_BACK, "b") == []


async def test_what_was_not_created_is_lost_and_the_command_with_it(setting: Setting) -> None:
    await setting.stand("a")
    setting.sim.server.faults.add(Fault(Unavailable("away")), verb="create", resource=NODECLAIMS, times=1000)
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.run_for("10s")
    await setting.program.kill()
    setting.sim.server.faults.clear()
    await setting.program.start()
    await setting.sim.run_for("1s")
    assert setting.is_untouched("a")
    (note,) = setting.notes(ROLLED_BACK, "a")
    assert "is gone" in note


@pytest.mark.parametrize("tainted", [False, True])
async def test_a_node_that_took_pods_meanwhile_does_not_go(setting: Setting, tainted: bool) -> None:
    """Without a taint nobody knows what came to the node while nobody was there."""
    await setting.stand("a")
    refused = {"subresource": "status"} if tainted else {"resource": NODES}
    setting.sim.server.faults.add(
        Fault(Unavailable("away")), verb="patch", client=names.COMPONENT, times=1000, **refused
    )
    await setting.start(setting.command("a", method=Method.EMPTINESS))
    await setting.sim.run_for("10s")
    assert setting.record("a") is not None
    await setting.program.kill()
    setting.sim.server.faults.clear()
    await setting.program.start()
    await setting.sim.run_for("1s")
    if tainted:
        assert is_deleting(setting.claim("a"))
    else:
        assert setting.is_untouched("a")


async def test_after_the_deadline_even_what_needs_no_replacement_stays(setting: Setting) -> None:
    await setting.stand("a")
    setting.sim.server.faults.add(
        Fault(Unavailable("away")), verb="patch", subresource="status", client=names.COMPONENT, times=1000
    )
    await setting.start(setting.command("a", method=Method.EMPTINESS))
    await setting.sim.run_for("10s")
    await setting.program.kill()
    setting.sim.server.faults.clear()
    await setting.sim.run_for("1h")
    await setting.program.start()
    await setting.sim.run_for("1s")
    assert setting.is_untouched("a")


async def test_a_roll_back_that_was_cut_short_is_finished(setting: Setting) -> None:
    (node,) = await setting.stand("a")
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: setting.is_disrupting("a"))
    setting.sim.server.faults.add(
        Fault(Unavailable("away")), verb="patch", name="a", client=names.COMPONENT, times=1000
    )
    (new,) = (each["metadata"]["name"] for each in setting.replacements())
    await setting.delete_claim(new)
    await setting.sim.run_for("20s")
    assert setting.taints(node) == []
    assert setting.condition(ConditionType.DISRUPTION_REASON, "a")["status"] == "True"
    await setting.program.kill()
    setting.sim.server.faults.clear()
    await setting.program.start()
    await setting.sim.run_for("1s")
    assert setting.is_untouched("a")
