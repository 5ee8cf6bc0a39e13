"""What the clock decides on a real control plane: windows of budgets (seed 004) and of pods (seed 001).

A day is a minute here, for cron knows nothing shorter: what would be tomorrow comes when the next one begins. Whatever
has to be seen while a window is closed is seen first, however long that takes; only then is the window brought near.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason, Reason
from dovetail.ports import PODS
from dovetail.values.timestamp import format_time
from tests.cluster.disruption.playing import Endings, Timeline, judge, name_of, named
from tests.cluster.disruption.setting import EVERYTHING, NOTHING, Setting
from tests.cluster.termination.setting import GUARDED

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
SOON = timedelta(seconds=3)

Budgets = Sequence[Mapping[str, Any]]


def cron(at: datetime, *, weekly: bool = False) -> str:
    """Every day at this time, or every week on this day."""
    return f"{at.minute} {at.hour} * * {at.isoweekday() % 7 if weekly else '*'}"


def next_minute(setting: Setting, *, after: timedelta = timedelta()) -> datetime:
    return (setting.history.now() + after + MINUTE).replace(second=0, microsecond=0)


# -- budgets -----------------------------------------------------------------------------------------------------------


def opens(turn: datetime) -> Budgets:
    """A window that names the reason has its say alone (R25); outside of it nothing goes."""
    return [*NOTHING, {"nodes": "100%", "reasons": ["Empty"], "schedule": cron(turn), "duration": "1h"}]


def closes(turn: datetime) -> Budgets:
    """In the window nothing goes."""
    return [{"nodes": "0", "schedule": cron(turn - 10 * MINUTE), "duration": "10m"}]


def window(name: str, budgets: Callable[[datetime], Budgets]) -> Timeline:
    async def timeline(setting: Setting) -> None:
        turn = next_minute(setting, after=timedelta(seconds=10))
        await setting.begin(consolidateAfter="0s", budgets=budgets(turn))
        bare = await setting.launch_bare("a", "b")
        await setting.go(*bare)
        setting.assert_not_before(turn, *bare)

    return named(name, timeline)


def no_upgrades_before(turn: datetime) -> Budgets:
    return [{"nodes": "0", "reasons": ["Drifted"], "schedule": cron(turn - DAY / 2), "duration": "12h"}]


def quiet_before(turn: datetime) -> Budgets:
    quiet = {"nodes": "0", "reasons": ["Drifted", "Underutilized"]}
    return [
        {**quiet, "schedule": cron(turn - DAY / 2), "duration": "12h"},
        {"nodes": "100%", "reasons": ["Empty"]},
    ]


async def three_kinds(setting: Setting, budgets: Budgets) -> tuple[str, str, str]:
    """One that has drifted, one that is bare, and one whose pod fits elsewhere, which may not go yet."""
    await setting.begin(budgets=budgets)
    (bare,) = await setting.launch_bare("bare")
    (drifted,) = await setting.hold("drifted", cpu="3")
    (half,) = await setting.hold("half", cpu="1", annotations=GUARDED)
    await setting.hold("other", cpu="2", annotations=GUARDED)
    await setting.outdate(drifted)
    return drifted, bare, half


async def goes_first(setting: Setting, claim: str, reason: Reason, stays: str) -> None:
    """And it goes for this reason, while the other one, which is a candidate, stays."""
    await setting.go(claim)
    (command,) = setting.chronicle.commands_of(claim)
    assert command.reason is reason
    await setting.are_candidates([stays])
    assert stays not in setting.disrupted()


async def goes_at(setting: Setting, turn: datetime, claim: str, reason: Reason) -> None:
    await setting.go(claim)
    setting.assert_not_before(turn, claim)
    (command,) = setting.chronicle.commands_of(claim)
    assert command.reason is reason


async def upgrades_wait_and_savings_do_not(setting: Setting) -> None:
    """Seed 004: "Users need the capability to schedule upgrades only during business hours … Additionally, they require
    a system that doesn't compromise the cost savings from consolidation when upgrades are blocked due to drift"."""
    drifted, bare, half = await three_kinds(setting, no_upgrades_before(setting.history.now() + DAY / 4))
    await setting.outdate(bare, half)
    await setting.change_pool(disruption={"consolidateAfter": "0s"})
    await goes_first(setting, bare, Reason.EMPTY, stays=drifted)
    async with setting.consolidating:
        await setting.unguard(half)
        await goes_first(setting, half, Reason.UNDERUTILIZED, stays=drifted)
    turn = next_minute(setting)
    await setting.allow(no_upgrades_before(turn))
    await goes_at(setting, turn, drifted, Reason.DRIFTED)
    await setting.release(drifted)
    setting.assert_replaced_first(drifted)


async def empty_nodes_go_all_day_and_others_after_hours(setting: Setting) -> None:
    """Seed 004: "Users want to minimize workload disruptions during business hours but still want to be able to delete
    empty nodes throughout the day. That is, empty can run all day, while limiting cost savings and upgrades due to
    drift to non-business hours only"."""
    drifted, bare, half = await three_kinds(setting, quiet_before(setting.history.now() + DAY / 4))
    await setting.unguard(half)
    await setting.change_pool(disruption={"consolidateAfter": "0s"})
    await goes_first(setting, bare, Reason.EMPTY, stays=drifted)
    await setting.are_candidates([half])
    await setting.all_methods_are_tried()
    assert setting.disrupted() == {bare}
    turn = next_minute(setting)
    await setting.history.reaches(turn - SOON)
    async with setting.consolidating:
        await setting.allow(quiet_before(turn))
        await goes_at(setting, turn, drifted, Reason.DRIFTED)
        await goes_at(setting, turn, half, Reason.UNDERUTILIZED)


# -- pods --------------------------------------------------------------------------------------------------------------


def may_go_from(turn: datetime) -> dict[str, str]:
    """Seed 001: "The schedule defines when the pod CAN be disrupted. Outside the window, disruption is blocked"."""
    return {names.DISRUPTION_SCHEDULE: cron(turn, weekly=True), names.DISRUPTION_SCHEDULE_DURATION: "4h"}


def may_not_go_before(turn: datetime) -> dict[str, str]:
    """Seed 001, option B: "The schedule defines when the pod CANNOT be disrupted"."""
    return {names.DISRUPTION_BLOCK_SCHEDULE: cron(turn - DAY / 2), names.DISRUPTION_BLOCK_DURATION: "12h"}


def pods_window(name: str, annotations: Callable[[datetime], dict[str, str]], *, far: timedelta) -> Timeline:
    """A drifted node whose pod is in such a window stays, people are told until when, and then it goes."""

    async def timeline(setting: Setting) -> None:
        opens_at = (setting.history.now() + far).replace(second=0, microsecond=0)
        await setting.begin(budgets=EVERYTHING)
        (old,) = await setting.hold("old", annotations=annotations(opens_at))
        await setting.outdate(old)
        await setting.all_methods_are_tried()
        assert setting.disrupted() == set()
        turn = next_minute(setting)
        await setting.annotate(PODS, old, annotations(turn))
        await setting.go(old)
        setting.assert_not_before(turn, old)
        await setting.release(old)
        setting.assert_replaced_first(old)
        note = (await setting.event(EventReason.DISRUPTION_BLOCKED, old)).note
        assert format_time(opens_at) in note

    return named(name, timeline)


TIMELINES: Sequence[Timeline] = (
    window("a_window_opens", opens),
    window("a_window_closes", closes),
    upgrades_wait_and_savings_do_not,
    empty_nodes_go_all_day_and_others_after_hours,
    pods_window("pods_for_weekends_only", may_go_from, far=3 * DAY),
    pods_window("pods_that_may_not_go_in_business_hours", may_not_go_before, far=DAY / 4),
)


@pytest.mark.parametrize("timeline", TIMELINES, ids=name_of)
def test_timeline(timeline: Timeline, endings: Endings) -> None:
    judge(timeline, endings)
