"""Each method of voluntary disruption, and its budgets, with all controllers on a real control plane, the real
scheduler and kwok; shortened to seconds (R44).

The timelines run beside each other under one program, so that all of them take hardly longer than the longest, and each
is judged by a test of its own: by the order in which the server told of changes, never by how long something took.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api import names
from dovetail.api.names import Condition, EventReason
from dovetail.planning.disruption.board import Method
from dovetail.ports import NODECLAIMS, NODES
from tests.cluster.disruption.chronicle import is_disrupted
from tests.cluster.disruption.program import acting
from tests.cluster.disruption.setting import EVERYTHING, FOUR_CPUS, NOTHING, ONE_CPU, TEAM, Setting
from tests.cluster.plane import ControlPlane
from tests.cluster.termination.history import Thing

TIMELINE_SECONDS = 300  # far more than any takes
MINUTE = timedelta(minutes=1)

Timeline = Callable[[Setting], Coroutine[Any, Any, None]]


def half(nodes: int) -> int:
    """Percentages round up (R27)."""
    return -(-nodes // 2)


# -- one timeline a method ---------------------------------------------------------------------------------------------


async def emptiness(setting: Setting) -> None:
    """Whose last pod is gone goes, and nothing comes instead; who has a pod stays."""
    await setting.begin(consolidateAfter="0s", consolidationPolicy="WhenEmpty", budgets=EVERYTHING)
    await setting.deploy("web", replicas=2, cpu="3")
    both = set(await setting.has_nodes(2))
    await setting.scale("web", 1)
    (pod,) = setting.pods("web")
    (kept,) = await setting.has_nodes(1)
    assert setting.node(kept) == pod.spec["nodeName"]
    (gone,) = both - {kept}
    (command,) = setting.chronicle.commands_of(gone)
    assert (command.method, command.replacements) == (Method.EMPTINESS, ())
    assert setting.history.gone(NODES, setting.node(gone)) is not None
    assert setting.runs(pod.metadata.name)
    assert setting.ever() == both


async def drift_of_a_static_pool(setting: Setting) -> None:
    """All are replaced, and there is never one too few."""
    await setting.begin(replicas=3, budgets=[{"nodes": "50%"}])
    old = set(await setting.has_nodes(3))
    await setting.let_drift()
    await setting.history.until(lambda: not old & names_of(setting.claims()), f"{setting.name}: the old ones are gone")
    new = set(await setting.has_nodes(3))
    assert {setting.assert_replaced_first(claim) for claim in old} == new
    assert {setting.chronicle.commands_of(claim)[0].method for claim in old} == {Method.STATIC_DRIFT}
    assert {claim.metadata.labels.get(TEAM) for claim in setting.claims()} == {"blue"}
    assert setting.ever() == old | new
    setting.assert_never_fewer(3)
    setting.assert_within(half)


async def drift_of_a_dynamic_pool(setting: Setting) -> None:
    """One after the other, as the budget says, and each when its replacement is there."""
    await setting.begin(budgets=[{"nodes": "1"}])
    await setting.deploy("web", replicas=2, cpu="3")
    old = set(await setting.has_nodes(2))
    await setting.delay_nodes("1h")
    await setting.let_drift()
    await setting.some_go(1)
    await setting.all_methods_are_tried()  # and the other one stays, for the first has the slot
    setting.assert_within(lambda _: 1)
    await setting.delay_nodes("0s")
    await setting.history.until(lambda: not old & names_of(setting.claims()), f"{setting.name}: the old ones are gone")
    new = set(await setting.has_nodes(2))
    await setting.runs_all("web", 2)
    assert {setting.assert_replaced_first(claim) for claim in old} == new
    assert {setting.chronicle.commands_of(claim)[0].method for claim in old} == {Method.DRIFT}
    assert {pod.spec["nodeName"] for pod in setting.pods("web")} == {setting.node(claim) for claim in new}
    assert setting.ever() == old | new
    setting.assert_never_fewer(2)
    setting.assert_within(lambda _: 1)


async def graceful_expiry(setting: Setting) -> None:
    """R20: old enough is a candidate, no more, until the budget has room; then as drift."""
    await setting.begin(budgets=NOTHING, gracefulExpireAfter="5s")
    await setting.deploy("web", cpu="3")
    (old,) = await setting.has_nodes(1)
    await setting.are_candidates([old])
    found = setting.history.get(NODECLAIMS, old)
    assert found is not None
    assert found.metadata.creation_timestamp is not None
    assert since(found, Condition.EXPIRED) >= found.metadata.creation_timestamp + timedelta(seconds=5)
    setting.assert_within(lambda _: 0)
    await setting.allow(EVERYTHING)
    await setting.history.until(lambda: old in setting.disrupted(), f"{old} is going")
    await setting.change_pool(disruption={"gracefulExpireAfter": "Never"})  # else the new one is the next
    await setting.history.until(lambda: setting.history.gone(NODECLAIMS, old), f"{old} is gone")
    new = setting.assert_replaced_first(old)
    assert setting.chronicle.commands_of(old)[0].method is Method.EXPIRATION
    await setting.runs_all("web", 1)
    assert await setting.has_nodes(1) == [new]
    assert setting.ever() == {old, new}
    await setting.event(EventReason.DISRUPTION_TERMINATING, old)


async def graceful_expiry_of_a_static_pool(setting: Setting) -> None:
    """As drift there: all are replaced, and there is never one too few."""
    await setting.begin(replicas=2, budgets=NOTHING, gracefulExpireAfter="5s")
    old = set(await setting.has_nodes(2))
    await setting.are_candidates(old)
    await setting.allow([{"nodes": "2"}])
    await setting.some_go(2)
    await setting.change_pool(disruption={"gracefulExpireAfter": "Never"})  # else the new ones are the next
    await setting.history.until(lambda: not old & names_of(setting.claims()), f"{setting.name}: the old ones are gone")
    new = set(await setting.has_nodes(2))
    assert {setting.assert_replaced_first(claim) for claim in old} == new
    assert setting.ever() == old | new
    setting.assert_never_fewer(2)


async def several_nodes_become_one(setting: Setting) -> None:
    """Three with a small pod each: no two large ones fit on a node, and no two small ones beside a large one."""
    await setting.begin(consolidateAfter="0s", budgets=NOTHING)
    await setting.deploy("large", replicas=3, cpu="2500m")
    await setting.deploy("small", replicas=3, cpu="1")
    three = await setting.has_nodes(3)
    await setting.scale("large", 0)
    await setting.are_candidates(three)
    setting.assert_within(lambda _: 0)
    async with setting.consolidating:
        await setting.allow(EVERYTHING)
        (kept,) = await setting.has_nodes(1)
    await setting.runs_all("small", 3)
    gone = [claim for claim in three if claim != kept]
    (first,), (second,) = (setting.chronicle.commands_of(claim) for claim in gone)
    assert first == second
    assert (first.method, first.replacements) == (Method.MULTI_NODE, ())
    assert setting.ever() == set(three)


async def one_node_becomes_a_cheaper_one(setting: Setting) -> None:
    await setting.begin(types=(FOUR_CPUS, ONE_CPU), consolidateAfter="0s", budgets=NOTHING)
    await setting.deploy("large", cpu="2500m")
    await setting.deploy("small", cpu="500m")
    (old,) = await setting.has_nodes(1)
    await setting.scale("large", 0)
    await setting.are_candidates([old])
    setting.assert_within(lambda _: 0)
    async with setting.consolidating:
        await setting.allow(EVERYTHING)
        await setting.history.until(lambda: setting.history.gone(NODECLAIMS, old), f"{old} is gone")
    new = setting.assert_replaced_first(old)
    assert setting.chronicle.commands_of(old)[0].method is Method.SINGLE_NODE
    await setting.runs_all("small", 1)
    assert await setting.has_nodes(1) == [new]
    assert setting.ever() == {old, new}
    types = [claim.metadata.labels[names.INSTANCE_TYPE_LABEL] for claim in setting.claims()]
    assert types == [ONE_CPU]


# -- budgets -----------------------------------------------------------------------------------------------------------


def budget_of(nodes: str, *, limit: Callable[[int], int]) -> Timeline:
    """Three empty nodes, and so many may go; those that go keep their slots until their claims are gone (R26)."""

    async def timeline(setting: Setting) -> None:
        await setting.begin(consolidateAfter="0s", budgets=[{"nodes": nodes}])
        left = set(await setting.launch_bare("a", "b", "c"))
        while left:
            may_go = limit(len(left))
            await setting.some_go(may_go)
            await setting.a_pass_is_made()  # with no more of them, for all slots are taken
            going = setting.disrupted()
            assert len(going) == may_go
            setting.assert_within(limit)
            if not going:
                await setting.are_candidates(left)
                break
            for claim in going:
                await setting.release(claim)
            left -= going

    timeline.__name__ = f"a_budget_of_{nodes.replace('%', '_percent')}"
    return timeline


def cron(opens_at: datetime) -> str:
    return f"{opens_at.minute} {opens_at.hour} * * *"


def opens(turn: datetime) -> Sequence[Mapping[str, Any]]:
    """A window that names the reason has its say alone (R25); outside of it nothing goes."""
    return [*NOTHING, {"nodes": "100%", "reasons": ["Empty"], "schedule": cron(turn), "duration": "1h"}]


def closes(turn: datetime) -> Sequence[Mapping[str, Any]]:
    """In the window nothing goes."""
    return [{"nodes": "0", "schedule": cron(turn - 10 * MINUTE), "duration": "10m"}]


def window(name: str, budgets: Callable[[datetime], Sequence[Mapping[str, Any]]]) -> Timeline:
    async def timeline(setting: Setting) -> None:
        turn = (setting.history.now() + timedelta(seconds=10) + MINUTE).replace(second=0, microsecond=0)
        await setting.begin(consolidateAfter="0s", budgets=budgets(turn))
        bare = await setting.launch_bare("a", "b")
        await setting.history.until(lambda: setting.disrupted() == set(bare), f"{bare} go")
        for claim in bare:
            versions = [each.thing for each in setting.history.versions(NODECLAIMS, claim) if each.thing is not None]
            first = next(each for each in versions if is_disrupted(each))
            assert since(first, Condition.DISRUPTION_REASON) >= turn
            ends = [at for each in versions if (at := each.metadata.deletion_timestamp) is not None]
            assert min(ends, default=turn) >= turn

    timeline.__name__ = name
    return timeline


def since(claim: Thing, type_: str) -> datetime:
    """When the condition turned to what it is."""
    (found,) = (each for each in claim.status["conditions"] if each["type"] == type_)
    return msgspec.convert(found["lastTransitionTime"], datetime)


def names_of(claims: Sequence[Thing]) -> set[str]:
    return {claim.metadata.name for claim in claims}


# -- all of them -------------------------------------------------------------------------------------------------------

TIMELINES: Sequence[Timeline] = (
    window("a_window_opens", opens),
    window("a_window_closes", closes),
    emptiness,
    drift_of_a_static_pool,
    drift_of_a_dynamic_pool,
    graceful_expiry,
    graceful_expiry_of_a_static_pool,
    several_nodes_become_one,
    one_node_becomes_a_cheaper_one,
    budget_of("0", limit=lambda _: 0),
    budget_of("1", limit=lambda _: 1),
    budget_of("50%", limit=half),
)
Endings = dict[str, BaseException | None]


def name_of(timeline: Timeline) -> str:
    return str(getattr(timeline, "__name__", timeline))


async def play(plane: ControlPlane, timelines: Sequence[Timeline]) -> Endings:
    """How each of them ended, all beside each other: None is well."""
    async with acting(plane) as stage:

        async def one(number: int, timeline: Timeline) -> None:
            setting = Setting(stage, f"timeline-{number}")
            try:
                async with asyncio.timeout(TIMELINE_SECONDS):
                    await timeline(setting)
            finally:
                await setting.clear()

        ended = await asyncio.gather(*map(one, range(len(timelines)), timelines), return_exceptions=True)
        return {name_of(timeline): error for timeline, error in zip(timelines, ended, strict=True)}
    raise AssertionError("the program ended before the timelines")


@pytest.fixture(scope="module")
def endings(request: pytest.FixtureRequest, plane: ControlPlane) -> Endings:
    """Of those that were asked for."""
    wanted = {item.name for item in request.session.items}
    timelines = [timeline for timeline in TIMELINES if f"test_timeline[{name_of(timeline)}]" in wanted]
    return asyncio.run(play(plane, timelines))


@pytest.mark.xdist_group("disruption")
@pytest.mark.parametrize("timeline", [name_of(timeline) for timeline in TIMELINES])
def test_timeline(timeline: str, endings: Endings) -> None:
    error = endings[timeline]
    if error is not None:
        raise error
