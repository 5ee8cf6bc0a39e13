"""Commands that are given up: everything as it was, and only what is of use stays (R23; 02 §13 F3, §14.30–36)."""

from datetime import timedelta

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.planning.disruption.board import Method
from dovetail.planning.disruption.records import record_of
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, Delete, Forbidden, InsufficientCapacity, Patch
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.claims import node_claim
from tests.harness.provisioning import OF_FOUR, pool_of_four
from tests.harness.stage import stage
from tests.harness.termination import counted, is_deleting
from tests.sim.disruption_commands.setting import TAINT, Setting, play

pytestmark = stage(play)

ROLLED_BACK = EventReason.DISRUPTION_ROLLED_BACK
TEN_MINUTES = timedelta(minutes=10)


# -- the deadline ------------------------------------------------------------------------------------------------------


async def test_a_replacement_that_never_registers_is_deleted_at_the_deadline(setting: Setting) -> None:
    (node,) = await setting.stand("a")
    setting.cloud.next_launches(Launch(registers=False))
    began_at = setting.now()
    await setting.start(setting.command("a", replacements=1))
    await setting.run_until(began_at + TEN_MINUTES - timedelta(seconds=1))
    assert setting.is_disrupting("a")
    (new,) = (each["metadata"]["name"] for each in setting.replacements())
    await setting.run_past(began_at + TEN_MINUTES)
    await setting.sim.run_for("100ms")
    assert setting.is_untouched("a")
    assert is_deleting(setting.claim(new))
    for about in ("a", node):
        (note,) = setting.notes(ROLLED_BACK, about)
        assert f"replacement {new} was not registered (Node not registered with cluster)" in note
        assert setting.events(ROLLED_BACK, about)[0]["type"] == "Warning"
    assert setting.held_for() == timedelta(seconds=60) - timedelta(milliseconds=101)
    failures = setting.parts.counts.queue_failures
    assert counted(failures, decision="replace", reason="drifted", consolidation_type="") == 1
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, new))
    assert setting.parts.state.place(node) is not None
    (place,) = (each for each in setting.parts.state.places().nodes if each.name == node)
    assert place.open


async def test_one_that_registers_and_is_never_initialized_stays(setting: Setting) -> None:
    await setting.stand("a")
    setting.cloud.next_launches(Launch(ready=False))
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.run_for("10m1s")
    assert setting.is_untouched("a")
    (new,) = (each["metadata"]["name"] for each in setting.replacements())
    (note,) = setting.notes(ROLLED_BACK, "a")
    assert f"replacement {new} was not initialized" in note
    assert not is_deleting(setting.claim(new))
    assert len(setting.sim.objects(NODES)) == 2


async def test_of_several_replacements_those_that_came_stay(setting: Setting) -> None:
    await setting.stand("a")
    setting.cloud.next_launches(Launch(registers=False))
    await setting.start(setting.command("a", replacements=2))
    await setting.sim.run_for("11m")
    assert setting.is_untouched("a")
    (stays,) = setting.replacements()
    name = stays["metadata"]["name"]
    assert setting.condition(ConditionType.INITIALIZED, name)["status"] == "True"
    assert counted(setting.parts.counts.queue_failures) == 1


async def test_pools_are_held_back_longer_each_time_until_one_succeeds(setting: Setting) -> None:
    await setting.stand("a", "b", "c")

    async def fails(claim: str) -> timedelta:
        setting.cloud.next_launches(Launch(error=InsufficientCapacity("none"), seconds=1))
        await setting.start(setting.command(claim, replacements=1))
        await setting.sim.run_for("2s")
        held = setting.held_for()
        assert held is not None
        return timedelta(minutes=round(held / timedelta(minutes=1)))

    for minutes in (1, 2, 4, 8, 16, 30, 30):
        assert await fails("a") == timedelta(minutes=minutes)
        assert setting.held_for("other") is None
        await setting.sim.run_for(f"{minutes}m")
        assert setting.held_for() is None
    await setting.start(setting.command("b", method=Method.EMPTINESS))  # which says nothing about launches
    await setting.sim.run_for("1s")
    assert await fails("a") == timedelta(minutes=30)
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))
    assert setting.held_for() is None
    assert await fails("c") == timedelta(minutes=1)


async def test_commands_that_fail_together_count_as_one_attempt(setting: Setting) -> None:
    await setting.stand("a", "b", "c")
    setting.cloud.next_launches(Launch(error=InsufficientCapacity("none"), seconds=1), times=3)
    for name in "abc":
        await setting.start(setting.command(name, replacements=1))
    await setting.sim.run_for("5s")
    assert all(map(setting.is_untouched, "abc"))
    held = setting.held_for()
    assert held is not None
    assert held < timedelta(minutes=1)


# -- before the deadline -----------------------------------------------------------------------------------------------


async def test_without_capacity_it_is_given_up_at_once(setting: Setting) -> None:
    await setting.stand("a")
    setting.cloud.next_launches(Launch(error=InsufficientCapacity("none")))
    await setting.start(setting.command("a", replacements=1))
    assert await setting.seconds_until(lambda: setting.is_disrupting("a")) < 1
    assert await setting.seconds_until(lambda: setting.is_untouched("a")) < 10
    await setting.sim.run_for("1s")
    (note,) = setting.notes(ROLLED_BACK, "a")
    assert "is gone" in note
    await setting.sim.run_for("1m")
    assert not setting.replacements()


async def test_so_it_is_if_somebody_deletes_the_replacement(setting: Setting) -> None:
    await setting.stand("a", "b")
    await setting.start(setting.command("a", "b", replacements=2))
    await setting.sim.run_for("10s")
    first, second = (each["metadata"]["name"] for each in setting.replacements())
    await setting.delete_claim(first)
    await setting.sim.run_for("1s")
    assert setting.is_untouched("a")
    assert setting.is_untouched("b")
    assert is_deleting(setting.claim(second))  # it had no Node yet


async def test_a_create_that_is_refused(setting: Setting) -> None:
    await setting.stand("a")
    setting.sim.server.faults.add(Fault(Forbidden("a webhook said no")), verb="create", resource=NODECLAIMS)
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.run_for("1s")
    assert setting.is_untouched("a")
    (note,) = setting.notes(ROLLED_BACK, "a")
    assert "a webhook said no" in note


async def test_a_claim_of_the_same_name_is_not_taken_for_the_replacement(setting: Setting) -> None:
    await setting.stand("a")
    command = setting.command("a", replacements=1)
    (name,) = record_of(command, setting.now()).replacements
    setting.sim.server.faults.add(Fault(delay_seconds=1), verb="create", resource=NODECLAIMS, client=names.COMPONENT)
    await setting.start(command)
    await setting.sim.run_for("500ms")
    await setting.sim.apply(node_claim(name, requirements=[OF_FOUR]))
    await setting.sim.run_for("2s")
    assert setting.is_untouched("a")
    (note,) = setting.notes(ROLLED_BACK, "a")
    assert "is no replacement of ours" in note
    assert not is_deleting(setting.claim(name))


async def test_limits_are_those_of_the_moment(setting: Setting) -> None:
    await setting.stand("a")
    command = setting.command("a", replacements=1)
    await setting.sim.apply(pool_of_four(limits={"cpu": "3"}))
    await setting.sim.run_for("1s")
    await setting.start(command)
    await setting.sim.run_for("1s")
    assert setting.is_untouched("a")
    (note,) = setting.notes(ROLLED_BACK, "a")
    assert "NodePool default would be over its limits: it uses" in note


async def test_nothing_is_made_from_a_pool_that_is_gone(setting: Setting) -> None:
    await setting.stand("a")
    await setting.sim.apply(pool_of_four("other"))
    await setting.sim.run_for("2s")
    command = setting.command("a", replacements=1, pool="other")
    await setting.parts.refresh()
    pools = setting.pools()
    await setting.sim.api.write(Delete(NODEPOOLS, "other"))
    await setting.commands.start(setting.context(), command, pools)
    await setting.sim.run_for("1s")
    assert setting.is_untouched("a")
    assert not setting.replacements()


# -- others act meanwhile ----------------------------------------------------------------------------------------------


async def test_a_node_that_goes_anyway_is_let_go_and_the_others_wait(setting: Setting) -> None:
    """One of two expires; the other still has its replacement coming."""
    _, node = await setting.stand("a", "b")
    setting.cloud.register_seconds = 300
    await setting.start(setting.command("a", "b", replacements=1))
    await setting.sim.run_for("10s")
    await setting.delete_claim("b")
    await setting.sim.run_for("1s")
    assert TAINT in setting.taints(node)
    assert setting.is_disrupting("a")
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("a")))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a", "b"))
    assert counted(setting.metrics.nodeclaims_disrupted, reason="drifted") == 1


async def test_a_node_that_expires_meanwhile_is_never_untainted(setting: Setting) -> None:
    pod = manifests.pod("kept", annotations={names.DO_NOT_DISRUPT: "true"})
    await setting.begin()
    node = await setting.launch("a", requirements=[OF_FOUR], expireAfter="3m", pods=[pod])
    setting.cloud.next_launches(Launch(registers=False))
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("a")))
    assert setting.condition(ConditionType.DISRUPTION_REASON, "a")["reason"] == "Expired"
    for _ in range(30):
        await setting.sim.run_for("30s")
        assert TAINT in setting.taints(node)
    assert setting.notes(ROLLED_BACK, "a") == []
    assert setting.runs("kept")


async def test_a_node_that_is_deleted_by_hand_keeps_its_taint(setting: Setting) -> None:
    (node,) = await setting.stand("a")
    setting.cloud.delete_seconds = 120
    setting.cloud.next_launches(Launch(error=InsufficientCapacity("none"), seconds=5))
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.run_for("1s")
    await setting.delete_node(node)
    await setting.sim.run_for("1m")
    assert TAINT in setting.taints(node)


async def test_not_even_in_the_middle_of_a_roll_back(setting: Setting) -> None:
    (node,) = await setting.stand("a")
    await setting.bind(node, manifests.pod("kept", annotations={names.DO_NOT_DISRUPT: "true"}))
    setting.cloud.next_launches(Launch(registers=False))
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.run_for("9m59s")
    slow = Fault(delay_seconds=5)
    setting.sim.server.faults.add(slow, verb="delete", resource=NODECLAIMS, client=names.COMPONENT)
    await setting.sim.run_for("2s")
    await setting.delete_node(node)
    before = len(setting.requests("patch", NODES, node))
    await setting.sim.run_for("1m")
    assert TAINT in setting.taints(node)
    assert len(setting.requests("patch", NODES, node)) - before == 1  # the drain's: a label


async def test_a_taint_that_somebody_removes_comes_back(setting: Setting) -> None:
    (node,) = await setting.stand("a")
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: setting.is_disrupting("a"))
    await setting.untaint(node)
    await setting.sim.run_for("1s")
    assert setting.is_disrupting("a")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))


async def test_removing_the_record_from_one_node_calls_the_command_off(setting: Setting) -> None:
    await setting.stand("a", "b")
    await setting.start(setting.command("a", "b", replacements=1))
    await setting.sim.wait_until(lambda: setting.is_disrupting("a") and setting.is_disrupting("b"))
    await setting.annotate(NODECLAIMS, "a", {names.DISRUPTION_COMMAND: None})
    await setting.sim.run_for("10s")
    assert setting.is_untouched("a")
    assert setting.is_untouched("b")
    (note,) = setting.notes(ROLLED_BACK, "b")
    assert "its record on NodeClaim a was edited" in note
    await setting.sim.run_for("15m")
    assert setting.is_untouched("a")
    assert setting.is_untouched("b")
    place = setting.parts.state.place(setting.candidate("a").node)
    assert place is not None
    assert place.seen.open
    assert await setting.start(setting.command("a", method=Method.EMPTINESS))


@pytest.mark.parametrize("text", ["", "{", "null", '{"id": ""}', "[" * 10_000])
async def test_a_record_that_cannot_be_read_is_no_command(setting: Setting, text: str) -> None:
    (node,) = await setting.stand("a")
    await setting.sim.api.write(
        Patch(NODES, node, {"spec": {"taints": [{"key": TAINT[0], "effect": TAINT[1], "value": "x"}]}})
    )
    await setting.annotate(NODECLAIMS, "a", {names.DISRUPTION_COMMAND: text})
    await setting.sim.run_for("10s")
    assert setting.is_untouched("a")


# -- what nobody carries on --------------------------------------------------------------------------------------------


async def test_a_taint_of_no_command_goes_and_others_stay(setting: Setting) -> None:
    (node,) = await setting.stand("a")
    kept = [{"key": TAINT[0], "effect": "PreferNoSchedule"}, {"key": "team", "value": "x", "effect": "NoSchedule"}]
    stray = {"key": TAINT[0], "effect": TAINT[1]}
    await setting.sim.api.write(Patch(NODES, node, {"spec": {"taints": [kept[0], stray, kept[1]]}}))
    await setting.sim.run_for("10s")
    assert setting.is_untouched("a")
    assert setting.taints(node) == [(TAINT[0], "PreferNoSchedule"), ("team", "NoSchedule")]


async def test_so_does_a_reason_that_an_earlier_process_has_left(setting: Setting) -> None:
    (node,) = await setting.stand("a")
    setting.cloud.next_launches(Launch(registers=False))
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: setting.is_disrupting("a"))
    await setting.program.kill()
    await setting.annotate(NODECLAIMS, "a", {names.DISRUPTION_COMMAND: None})
    await setting.program.start()
    await setting.sim.run_for("1s")
    assert setting.is_untouched("a")
    assert TAINT not in setting.taints(node)


async def test_an_expired_claim_keeps_its_reason(setting: Setting) -> None:
    """Forceful disruptions write the reason without a command, a moment before they delete."""
    setting.sim.server.faults.add(
        Fault(delay_seconds=3), verb="delete", resource=NODECLAIMS, name="a", client=names.COMPONENT
    )
    await setting.stand("a", expireAfter="3m")
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("a")))
    assert setting.condition(ConditionType.DISRUPTION_REASON, "a")["reason"] == "Expired"


async def test_nodes_of_others_are_left_alone(setting: Setting) -> None:
    await setting.begin()
    await setting.add_node("n1", managed=False)
    await setting.sim.api.write(Patch(NODES, "n1", {"spec": {"taints": [{"key": TAINT[0], "effect": TAINT[1]}]}}))
    await setting.sim.run_for("1m")
    assert TAINT in setting.taints("n1")
