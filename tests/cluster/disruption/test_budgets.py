"""How many nodes go at once, for which reason, and what uses budgets up (seed 004), on a real control plane."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.ports import NODES, PODS
from tests.cluster.disruption.chronicle import reason_of
from tests.cluster.disruption.playing import Endings, Timeline, judge, name_of, named
from tests.cluster.disruption.setting import Setting, half
from tests.cluster.termination.setting import GUARDED

EXAMPLE = [
    {"nodes": "15", "reasons": ["drifted", "underutilized"]},
    {"nodes": "10", "reasons": ["drifted"]},
    {"nodes": "5"},
]
LEAST_SECONDS = 15


def budget_of(nodes: str, *, limit: Callable[[int], int]) -> Timeline:
    """Three empty nodes, and so many may go; those that go keep their slots until their claims are gone (R26)."""

    async def timeline(setting: Setting) -> None:
        await setting.begin(consolidateAfter="0s", budgets=[{"nodes": nodes}])
        left = set(await setting.launch_bare("a", "b", "c"))
        while left:
            may_go = limit(len(left))
            await setting.some_go(may_go)
            await setting.all_methods_are_tried()  # with no more of them, for all slots are taken
            going = setting.disrupted()
            assert len(going) == may_go
            setting.assert_within(limit)
            if not going:
                await setting.are_candidates(left)
                break
            for claim in going:
                await setting.release(claim)
            left -= going

    return named(f"a_budget_of_{nodes.replace('%', '_percent')}", timeline)


async def the_worked_example(setting: Setting) -> None:
    """Seed 004: "Total Disrupting = 3 + 6 + 5 = 14. drifted = 10 - 14: No disruption allowed due to drift.
    underutilized = 15 - 14: Disruption allowed for at least one node due to consolidation. Default: 5 - 14: No
    disruption allowed for other methods." By the first equation drift could go on (10 - 3): it must be seen not to."""
    await setting.begin(budgets=EXAMPLE)
    began_at = setting.history.now()
    others = ["b0", "b1", "d0", "d1", "d2", *(f"s{number}" for number in range(6)), "more-b", "more-s0", "more-s1"]
    more_drifted, keeper, *launched = await setting.launch_bare("more-d", "keeper", *others)
    bare, drifting, spare, (more_bare, one, other) = launched[:2], launched[2:5], launched[5:11], launched[11:]
    await setting.occupy(*drifting, *spare, more_bare, one, other, keeper, annotations=GUARDED)
    await setting.occupy(more_drifted, cpu="3800m")  # which fits nowhere else
    seconds = enough_seconds(setting, began_at)
    expiring = await setting.launch_bare("e0", "e1", "e2", expireAfter=f"{seconds}s")
    await setting.occupy(*expiring, annotations=GUARDED)

    await setting.change_pool(disruption={"consolidateAfter": "0s"})
    await setting.go(*bare)
    await setting.outdate(*drifting)
    await setting.unguard(*drifting)
    await setting.go(*drifting)
    async with setting.consolidating:
        await setting.unguard(*spare)
        await setting.go(*spare)
    await setting.history.reaches(expires_at(setting, "e2", seconds))
    await setting.go(*expiring)
    disrupting = {*bare, *drifting, *spare, *expiring}
    assert setting.disrupted() == went_for(setting, Drifted=drifting, Underutilized=spare, Expired=expiring, Empty=bare)
    await setting.allows(
        {"Empty": (5, 14, 0), "Drifted": (10, 14, 0), "Underutilized": (15, 14, 1), "Expired": (5, 14, 0)}
    )

    await setting.outdate(more_drifted)
    await setting.are_candidates([more_drifted])
    await setting.all_methods_are_tried()
    await setting.annotate(PODS, more_drifted, GUARDED)  # it would fit on the next one
    await setting.empty(more_bare)
    await setting.are_candidates([more_bare])
    await setting.all_methods_are_tried()
    assert setting.disrupted() == disrupting
    async with setting.consolidating:
        await setting.unguard(one, other)
        await setting.some_go(15)
    (last,) = setting.disrupted() - disrupting
    (left,) = {one, other} - {last}
    await setting.are_candidates([left])
    await setting.all_methods_are_tried()
    assert setting.disrupted() == went_for(setting, Underutilized=[last]) | disrupting
    await setting.allows(
        {"Empty": (5, 15, 0), "Drifted": (10, 15, 0), "Underutilized": (15, 15, 0), "Expired": (5, 15, 0)}
    )


def enough_seconds(setting: Setting, began_at: datetime) -> int:
    """For nodes to come up before they expire, given how long as many have taken: a busy machine gets more."""
    return max(LEAST_SECONDS, int(2 * (setting.history.now() - began_at).total_seconds()))


def expires_at(setting: Setting, claim: str, seconds: int) -> datetime:
    created_at = setting.claim(claim).metadata.creation_timestamp
    assert created_at is not None
    return created_at + timedelta(seconds=seconds)


def went_for(setting: Setting, **claims: Sequence[str]) -> set[str]:
    """All of these; each went for the reason by which it is given."""
    for reason, those in claims.items():
        for claim in those:
            assert reason_of(setting.chronicle.things(claim)[-1], ConditionType.DISRUPTION_REASON) == reason, claim
    return {claim for those in claims.values() for claim in those}


async def who_goes_at_once_uses_the_budget_up(setting: Setting) -> None:
    """Seed 003: "Karpenter immediately begins gracefully terminating nodes that are interrupted, unhealthy, or expired
    as soon as they're detected, without waiting for replacement nodes", budget or not (R19); and "all nodes in S3
    through S6 are counted", so that others wait for all three to be gone (R26)."""
    await setting.begin(budgets=[{"nodes": "1"}])
    began_at = setting.history.now()
    ill, spot, steady, drifted = await setting.launch_bare("ill", "spot", "steady", "drifted")
    await setting.occupy(ill, spot, steady)
    await setting.occupy(drifted, cpu="3800m")  # the others have room on the steady one
    seconds = enough_seconds(setting, began_at)
    (expired,) = await setting.launch_bare("expired", expireAfter=f"{seconds}s")
    await setting.occupy(expired)
    await setting.annotate(NODES, setting.node(expired), {names.DO_NOT_DISRUPT: "true"})
    await setting.annotate(NODES, setting.node(spot), {names.KWOK_INTERRUPTED: "true"})
    await setting.go(spot)
    await setting.fall_ill(ill, ago=timedelta(minutes=10))
    await setting.go(ill)
    await setting.history.reaches(expires_at(setting, "expired", seconds))
    await setting.go(expired)
    went_for(setting, Interrupted=[spot], Unhealthy=[ill], Expired=[expired])
    setting.assert_not_before(expires_at(setting, "expired", seconds), expired)
    assert not any(setting.chronicle.commands_of(claim) for claim in (expired, ill, spot)), "they wait for nobody"
    assert setting.ever() == {expired, ill, spot, steady, drifted}

    await setting.outdate(drifted)
    for claim in (spot, expired, ill):
        await setting.are_candidates([drifted])
        await setting.all_methods_are_tried()
        assert drifted not in setting.disrupted()
        await setting.release(claim)
    await setting.go(drifted)
    went_for(setting, Drifted=[drifted])
    assert all(
        moment.disrupted <= {drifted} or drifted not in moment.disrupted
        for moment in setting.chronicle.moments(setting.name)
    )
    await setting.release(drifted)
    setting.assert_replaced_first(drifted)


TIMELINES: Sequence[Timeline] = (
    the_worked_example,
    who_goes_at_once_uses_the_budget_up,
    budget_of("0", limit=lambda _: 0),
    budget_of("1", limit=lambda _: 1),
    budget_of("50%", limit=half),
)


@pytest.mark.parametrize("timeline", TIMELINES, ids=name_of)
def test_timeline(timeline: Timeline, endings: Endings) -> None:
    judge(timeline, endings)
