"""Each method of voluntary disruption with all controllers on a real control plane, the real scheduler and kwok,
shortened to seconds (R44).

The timelines of all modules here run beside each other under one program, so that all of them take hardly longer than
the longest, and each is judged by a test of its own: by the order in which the server told of changes and the instants
that objects tell, never by how long something took.
"""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.planning.disruption.board import Method
from dovetail.ports import NODECLAIMS, NODES
from tests.cluster.disruption.chronicle import since
from tests.cluster.disruption.playing import Endings, Timeline, judge, name_of
from tests.cluster.disruption.setting import EVERYTHING, FOUR_CPUS, NOTHING, ONE_CPU, TEAM, Setting, half
from tests.cluster.termination.history import Thing

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
    expired_at = since(found, ConditionType.EXPIRED)
    assert expired_at is not None
    assert expired_at >= found.metadata.creation_timestamp + timedelta(seconds=5)
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


def names_of(claims: Sequence[Thing]) -> set[str]:
    return {claim.metadata.name for claim in claims}


TIMELINES: Sequence[Timeline] = (
    emptiness,
    drift_of_a_static_pool,
    drift_of_a_dynamic_pool,
    graceful_expiry,
    graceful_expiry_of_a_static_pool,
    several_nodes_become_one,
    one_node_becomes_a_cheaper_one,
)


@pytest.mark.parametrize("timeline", TIMELINES, ids=name_of)
def test_timeline(timeline: Timeline, endings: Endings) -> None:
    judge(timeline, endings)
