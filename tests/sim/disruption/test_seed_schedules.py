"""What the clock decides, to the second and without polling: windows of budgets and of pods (seeds 001 and 004)."""

from datetime import timedelta

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.ports import NODECLAIMS
from dovetail.rules.states import NodeState
from dovetail.sim.actors.cluster import START
from tests.harness import manifests
from tests.harness.disruption import (
    Taken,
    disrupted,
    drift,
    empty,
    hold,
    idle_until,
    is_marked,
    play,
    pool,
    scale,
    stand,
    state,
    touched,
)
from tests.harness.provisioning import Setting
from tests.harness.stage import stage
from tests.harness.termination import GUARDED

pytestmark = stage(play)

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
NINE = START + 9 * HOUR  # on a Monday
TUESDAY = START + DAY
SATURDAY = START + 5 * DAY
BIG = {"cpu": "3"}

# 17:00 to 09:00 every day, and 09:00 to 17:00 on days off: no upgrades.
UPGRADES_IN_BUSINESS_HOURS = [
    {"nodes": "0", "reasons": ["Drifted"], "schedule": "0 17 * * *", "duration": "16h"},
    {"nodes": "0", "reasons": ["Drifted"], "schedule": "0 9 * * 0,2,6", "duration": "8h"},
]
QUIET_BUSINESS_HOURS = [
    {"nodes": "0", "reasons": ["Drifted", "Underutilized"], "schedule": "0 9 * * 1-5", "duration": "8h"},
    {"nodes": "100%", "reasons": ["Empty"]},
]
TUESDAYS = {names.DISRUPTION_SCHEDULE: "0 2 * * 2", names.DISRUPTION_SCHEDULE_DURATION: "4h"}
WEEKEND = {names.DISRUPTION_SCHEDULE: "0 2 * * 6", names.DISRUPTION_SCHEDULE_DURATION: "4h"}


# -- budgets (seed 004) ------------------------------------------------------------------------------------------------


async def test_upgrades_wait_for_business_hours_and_savings_do_not(setting: Setting) -> None:
    """Seed 004: "Users need the capability to schedule upgrades only during business hours … Additionally, they require
    a system that doesn't compromise the cost savings from consolidation when upgrades are blocked due to drift"."""
    claims = await stand(setting, pool(budgets=UPGRADES_IN_BUSINESS_HOURS), replicas=3)
    await drift(setting, *claims)
    await setting.sim.run_for("5m")
    assert touched(setting) == []
    await scale(setting, 2)  # at night, and drifted: it is empty all the same
    await setting.sim.wait_until(lambda: len(setting.claims()) == 2)
    assert disrupted(setting, "empty") == 1
    old = [each["metadata"]["name"] for each in setting.claims()]
    await setting.sim.run_for("10m")
    taken = Taken(setting)
    assert await idle_until(setting, NINE) == (0, 0), "the window is known, and nothing is polled"
    assert all(is_marked(setting, claim) for claim in old)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, *old), timeout="10m")
    assert min(taken.at.values()) == NINE
    assert disrupted(setting, "drifted") == 2
    await setting.runs_all("web", 2)


async def test_upgrades_wait_until_the_day_after_a_day_off(setting: Setting) -> None:
    """The same pool at the end of a Monday: Tuesday is off, and its evening and night follow without a gap."""
    (old,) = await stand(setting, pool(budgets=UPGRADES_IN_BUSINESS_HOURS))
    await setting.run_until(START + 17 * HOUR)
    await drift(setting, old)
    await setting.sim.run_for("1m")
    taken = Taken(setting)
    assert await idle_until(setting, NINE + 2 * DAY) == (0, 0)
    await setting.sim.run_for("1s")
    assert taken.at == {old: NINE + 2 * DAY}


async def test_empty_nodes_go_all_day_and_the_others_after_hours(setting: Setting) -> None:
    """Seed 004: "Users want to minimize workload disruptions during business hours but still want to be able to delete
    empty nodes throughout the day. That is, empty can run all day, while limiting cost savings and upgrades due to
    drift to non-business hours only"."""
    await setting.begin(pool(budgets=QUIET_BUSINESS_HOURS))
    await setting.run_until(NINE + MINUTE)
    await hold(setting, "drifted", "bare", pods=BIG)
    await hold(setting, "half", pods={"cpu": "1"})  # could go to the first of these once it is alone
    await hold(setting, "other", pods={"cpu": "2"})
    await drift(setting, "drifted")
    await empty(setting, "bare")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "bare"), timeout="2m")
    await setting.sim.run_for("1m")
    taken = Taken(setting)
    assert await idle_until(setting, NINE + 8 * HOUR) == (0, 0)
    assert touched(setting) == []
    assert is_marked(setting, "drifted")
    assert is_marked(setting, "half")
    await setting.sim.run_for("10m")
    assert taken.at["drifted"] == NINE + 8 * HOUR
    assert disrupted(setting, "drifted") == 1
    assert disrupted(setting, "underutilized") >= 1


async def test_a_budget_that_closes_in_s3_keeps_the_node(setting: Setting) -> None:
    """R50: budgets are asked again before S4, and then the command is rolled back."""
    budgets = [{"nodes": "0", "schedule": "0 1 * * *", "duration": "23h"}, {"nodes": "1"}]
    first, second = await stand(setting, pool(budgets=budgets), replicas=2)
    await setting.run_until(START + HOUR - timedelta(seconds=10))
    await drift(setting, first, second)
    await setting.sim.run_for("5m")
    assert {first, second} <= {each["metadata"]["name"] for each in setting.claims()}
    (note,) = setting.notes(EventReason.DISRUPTION_ROLLED_BACK, first)
    assert "disrupted or unhealthy is 1, and the limit for Drifted is 0 by budgets[0]" in note
    await setting.sim.run_for("1h")
    assert touched(setting) == []
    assert disrupted(setting, "drifted") == 0


# -- pods (seed 001) ---------------------------------------------------------------------------------------------------


async def test_pods_for_weekends_only_let_a_drifted_node_go_on_saturday(setting: Setting) -> None:
    """Seed 001: "The schedule defines when the pod CAN be disrupted. Outside the window, disruption is blocked"."""
    (old,) = await stand(setting, pool(), annotations=WEEKEND)
    await drift(setting, old)
    await setting.sim.run_for("5m")
    assert any("2026-03-07T02:00:00Z" in note for note in setting.notes(EventReason.DISRUPTION_BLOCKED, old))
    taken = Taken(setting)
    opens_at = SATURDAY + 2 * HOUR
    assert await idle_until(setting, opens_at) == (0, 0)
    assert state(setting, old) is NodeState.CANDIDATE
    await setting.run_past(opens_at)
    await setting.sim.run_for("100ms")
    assert taken.at == {old: opens_at}
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old))
    await setting.runs_all("web", 1)


async def test_a_node_that_drifts_when_the_window_closes_waits_for_the_next(setting: Setting) -> None:
    """Seed 001: a pod's window is half-open; at its end the pod is protected again."""
    daily = {names.DISRUPTION_SCHEDULE: "0 2 * * *", names.DISRUPTION_SCHEDULE_DURATION: "4h"}
    (old,) = await stand(setting, pool(), annotations=daily)
    await setting.run_until(START + 6 * HOUR)
    await drift(setting, old)
    taken = Taken(setting)
    await setting.run_until(TUESDAY + 3 * HOUR)
    assert taken.at == {old: TUESDAY + 2 * HOUR}


async def test_consolidation_waits_for_the_window_too(setting: Setting) -> None:
    """Seed 001: "even if the immediate cost savings from consolidation are deferred"; R46: not longer than that."""
    await setting.begin(pool())
    await hold(setting, "tuesday", pods={"annotations": TUESDAYS})
    await hold(setting, "kept", pods={"annotations": GUARDED})
    await setting.sim.run_for("5m")
    taken = Taken(setting)
    opens_at = TUESDAY + 2 * HOUR
    assert await idle_until(setting, opens_at) == (0, 0)
    assert len(setting.claims()) == 2
    await setting.sim.run_for("1m")
    assert taken.at == {"tuesday": opens_at}


async def test_two_pods_with_different_windows_must_both_allow(setting: Setting) -> None:
    """R14: all must allow. One may go on Tuesdays from 2 to 6, the other daily from 5 to 7: together from 5 to 6."""
    await setting.begin(pool(consolidateAfter="Never"))
    (node,) = await hold(setting, "a", pods={"annotations": TUESDAYS})
    daily = {names.DISRUPTION_SCHEDULE: "0 5 * * *", names.DISRUPTION_SCHEDULE_DURATION: "2h"}
    await setting.bind(node, manifests.pod("daily", annotations=daily))
    await drift(setting, "a")
    taken = Taken(setting)
    await setting.run_until(TUESDAY + 7 * HOUR)
    assert taken.at == {"a": TUESDAY + 5 * HOUR}


async def test_a_window_does_not_open_a_budget(setting: Setting) -> None:
    """Seed 001: "A pod must satisfy BOTH its disruption schedule AND any applicable PDBs to be disrupted"."""
    (old,) = await stand(setting, pool(), annotations=TUESDAYS)
    await setting.sim.apply(manifests.pdb("web", maxUnavailable=0))
    await drift(setting, old)
    await setting.run_until(TUESDAY + 4 * HOUR)
    assert touched(setting) == []
    await setting.sim.apply(manifests.pdb("web", maxUnavailable=1))
    assert await setting.seconds_until(lambda: touched(setting) == [old]) <= 3


async def test_a_block_window_keeps_a_node_and_lets_it_go_at_its_end(setting: Setting) -> None:
    """Seed 001, option B: "The schedule defines when the pod CANNOT be disrupted"."""
    business = {names.DISRUPTION_BLOCK_SCHEDULE: "0 9 * * 1-5", names.DISRUPTION_BLOCK_DURATION: "8h"}
    (old,) = await stand(setting, pool(), annotations=business)
    await setting.run_until(NINE + HOUR)
    await drift(setting, old)
    await setting.sim.run_for("1m")
    taken = Taken(setting)
    assert await idle_until(setting, NINE + 8 * HOUR) == (0, 0)
    await setting.sim.run_for("1s")
    assert taken.at == {old: NINE + 8 * HOUR}
