"""Budgets under all controllers: how many nodes go at once, for which reason, and what uses budgets up (seed 004)."""

import pytest

from dovetail.api import names
from dovetail.ports import NODECLAIMS, PODS
from dovetail.rules.states import NodeState
from tests.harness.disruption import (
    Most,
    allowed,
    disrupted,
    drift,
    edit_pool,
    empty,
    hold,
    is_marked,
    node_of,
    others,
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

FOR_EVER = 1e7  # seconds: a machine that takes so long to end keeps its node in S5
BIG = {"cpu": "3"}


async def release(setting: Setting, *claims: str) -> None:
    """Nothing protects the pods of these nodes any more."""
    for claim in claims:
        await setting.annotate(PODS, f"p-{claim}", {names.DO_NOT_DISRUPT: None})


# -- the worked example of seed 004 ------------------------------------------------------------------------------------

EXAMPLE = [
    {"nodes": "15", "reasons": ["drifted", "underutilized"]},
    {"nodes": "10", "reasons": ["drifted"]},
    {"nodes": "5"},
]


async def test_the_worked_example_of_the_seed(setting: Setting) -> None:
    """Seed 004: "Total Disrupting = 3 + 6 + 5 = 14. drifted = 10 - 14: No disruption allowed due to drift.
    underutilized = 15 - 14: Disruption allowed for at least one node due to consolidation. Default: 5 - 14: No
    disruption allowed for other methods." By the first equation drift could go on (10 - 3): it must be seen not to."""
    setting.cloud.delete_seconds = FOR_EVER
    await setting.begin(pool(budgets=EXAMPLE))
    guarded = {"annotations": GUARDED, "cpu": "500m"}
    expiring = [f"expired-{number}" for number in range(3)]
    await hold(setting, *expiring, pods=guarded, expireAfter="45m")
    drifting = [f"drifted-{number}" for number in range(3)]
    spare = [f"spare-{number}" for number in range(6)]
    bare = [f"bare-{number}" for number in range(2)]
    more = ["more-bare", "more-spare-0", "more-spare-1", "keeper"]
    await hold(setting, *drifting, *spare, *bare, *more, pods=guarded)
    await hold(setting, "more-drifted", pods={"cpu": "3800m"})  # which fits nowhere else
    assert len(setting.claims()) == 19

    for claim in bare:
        await empty(setting, claim)
    await setting.sim.run_for("2m")
    assert sorted(touched(setting)) == sorted(bare)
    await drift(setting, *drifting)
    await release(setting, *drifting)
    await setting.sim.run_for("2m")
    assert sorted(touched(setting)) == sorted([*bare, *drifting])
    await release(setting, *spare)
    await setting.sim.run_for("2m")
    assert sorted(touched(setting)) == sorted([*bare, *drifting, *spare])
    await setting.sim.wait_until(lambda: len(touched(setting)) == 14, timeout="45m")
    await setting.sim.run_for("10s")
    assert sorted(touched(setting)) == sorted([*bare, *drifting, *spare, *expiring])
    went = {reason: disrupted(setting, reason) for reason in ("drifted", "underutilized", "expired", "empty")}
    assert went == {"drifted": 3, "underutilized": 6, "expired": 3, "empty": 2}
    assert allowed(setting) == {
        "Empty": (5, 14, 0),
        "Drifted": (10, 14, 0),
        "Underutilized": (15, 14, 1),
        "Expired": (5, 14, 0),
    }

    await drift(setting, "more-drifted")
    await setting.sim.run_for("10m")
    assert len(touched(setting)) == 14
    assert is_marked(setting, "more-drifted")
    await setting.annotate(PODS, "p-more-drifted", GUARDED)  # it would fit on the next one
    await empty(setting, "more-bare")
    await setting.sim.run_for("10m")
    assert len(touched(setting)) == 14
    assert is_marked(setting, "more-bare")
    await release(setting, "more-spare-0", "more-spare-1")
    await setting.sim.run_for("10m")
    (last,) = set(touched(setting)) - {*bare, *drifting, *spare, *expiring}
    assert last in ("more-spare-0", "more-spare-1")
    assert disrupted(setting, "underutilized") == 7
    assert allowed(setting)["Underutilized"] == (15, 15, 0)
    (left,) = {"more-spare-0", "more-spare-1"} - {last}
    assert is_marked(setting, left)


async def test_a_reason_that_no_budget_names_is_unbounded_where_there_is_no_other(setting: Setting) -> None:
    """Seed 004: "Lets choose total number of nodes, since this allows the user to also specify periods where no nodes
    are to be disrupted of a particular type of disruption"."""
    budgets = [{"nodes": "0", "reasons": ["drifted", "underutilized"]}, {"nodes": "0", "reasons": ["expired"]}]
    await setting.begin(pool(budgets=budgets))
    await hold(setting, "a", "b", "c", "d", pods=BIG)
    await drift(setting, "a")
    await setting.sim.run_for("10m")
    assert touched(setting) == []
    assert allowed(setting)["Empty"] == (4, 0, 4)
    most = Most(setting)
    for claim in ("b", "c", "d"):
        await empty(setting, claim)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "b", "c", "d"))
    assert most.of == {"default": 3}, "all at once"


async def test_a_budget_without_reasons_is_for_the_reasons_that_no_other_names(setting: Setting) -> None:
    """Seed 004: "If a budget reason is unspecified like budgets[1], we will assume this budget applies to all actions
    that are not specified" (R25)."""
    await setting.begin(pool(budgets=[{"nodes": "2", "reasons": ["drifted"]}, {"nodes": "0"}]))
    claims = ("a", "b", "c", "bare")
    await hold(setting, *claims, pods=BIG)
    most = Most(setting)
    await empty(setting, "bare")
    await drift(setting, "a", "b", "c")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a", "b", "c"), timeout="30m")
    assert most.of == {"default": 2}
    await setting.sim.run_for("30m")
    assert is_marked(setting, "bare")
    assert state(setting, "bare") is NodeState.CANDIDATE


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "of", "at_once"),
    [("0", 3, 0), ("0%", 3, 0), ("1", 3, 1), ("50%", 3, 2), ("50%", 4, 2), ("10%", 3, 1), ("100%", 3, 3), ("7", 3, 3)],
)
async def test_so_many_go_at_once_and_percentages_round_up(setting: Setting, nodes: str, of: int, at_once: int) -> None:
    """R27, 02 §14.17."""
    await stand(setting, pool(budgets=[{"nodes": nodes}]), replicas=of)
    most = Most(setting)
    await scale(setting, 0)
    if at_once == 0:
        await setting.sim.run_for("1h")
        assert len(setting.claims()) == of
    else:
        await setting.sim.wait_until(lambda: not setting.claims(), timeout="10m")
    assert most.of["default"] == at_once


async def test_several_pools_have_each_their_own_budget(setting: Setting) -> None:
    """02 §14.21: a budget of one pool never limits another, and a command over several pools respects each."""
    counts = {"none": "0", "one": "1", "half": "50%", "all": "100%"}
    pools = [pool(name, team=name, budgets=[{"nodes": nodes}]) for name, nodes in counts.items()]
    for name in counts:
        await stand(setting, *pools, replicas=4, app=name, nodeSelector={"team": name})
    assert len(setting.claims()) == 16
    most = Most(setting)
    for name in counts:
        await scale(setting, 0, name)
    await setting.sim.wait_until(lambda: len(setting.claims()) == 4, timeout="10m")
    assert most.of == {"one": 1, "half": 2, "all": 4}
    assert len(setting.claims("none")) == 4


async def test_drift_in_several_pools_goes_on_at_once(setting: Setting) -> None:
    """One pool that may not must not starve the others (02 §14.25)."""
    counts = {"none": "0", "one": "1", "two": "2"}
    pools = [pool(name, team=name, budgets=[{"nodes": nodes}]) for name, nodes in counts.items()]
    for name in counts:
        await stand(setting, *pools, replicas=3, app=name, nodeSelector={"team": name})
    old = {name: others(setting, pool=name) for name in counts}
    most = Most(setting)
    await drift(setting, *(claim for claims in old.values() for claim in claims))
    await setting.sim.run_for("20s")
    assert [len(touched(setting, name)) for name in ("none", "one")] == [0, 1]
    assert 1 <= len(touched(setting, "two")) <= 2
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, *old["one"], *old["two"]), timeout="30m")
    assert most.of["one"] == 1
    assert most.of["two"] <= 2
    assert most.of["none"] == 0
    assert sorted(others(setting, pool="none")) == sorted(old["none"])


# -- what uses budgets up ----------------------------------------------------------------------------------------------


async def test_nodes_that_are_not_ready_use_the_budget_up(setting: Setting) -> None:
    """Seed 004: "AllowedDisruptionByReason = minNodeCountOfActiveBudget[reason] - unhealthyNodes -
    totalDisruptingNodes"."""
    await setting.begin(pool(budgets=[{"nodes": "1"}], consolidateAfter="Never"))
    await hold(setting, "ill", "drifted", "c", "d", "e", pods=BIG)
    setting.sim.set_node_ready(node_of(setting, "ill"), ready=False)
    await setting.sim.run_for("1m")
    await drift(setting, "drifted")
    await setting.sim.run_for("5m")
    assert touched(setting) == []
    assert allowed(setting)["Drifted"] == (1, 1, 0)
    setting.sim.set_node_ready(node_of(setting, "ill"), ready=True)
    assert await setting.seconds_until(lambda: touched(setting) == ["drifted"]) <= 15


async def test_a_node_counts_until_it_is_gone(setting: Setting) -> None:
    """Seed 003: "All nodes in S3 through S6 are counted against NDBs"."""
    await setting.begin(pool(budgets=[{"nodes": "1"}]))
    await hold(setting, "a", "b", "c", pods=BIG)
    setting.cloud.delete_seconds = 1200
    await empty(setting, "a")
    await setting.sim.wait_until(lambda: state(setting, "a") is NodeState.TERMINATING)
    await empty(setting, "b")
    await setting.sim.run_for("15m")
    assert touched(setting) == ["a"]
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))
    assert await setting.seconds_until(lambda: touched(setting) == ["b"]) <= 17, "a second, and the validation"


async def test_a_manual_deletion_uses_the_budget_up(setting: Setting) -> None:
    """R26: every node in S3–S6 whatever its reason."""
    old = await stand(setting, pool(budgets=[{"nodes": "1"}]), replicas=3)
    setting.cloud.delete_seconds = 600
    await setting.delete_claim(old[0])
    await drift(setting, old[1])
    await setting.sim.run_for("9m")
    assert touched(setting) == [old[0]]
    await setting.sim.wait_until(lambda: touched(setting) == [old[1]])


# -- what cannot be read, and what changes -----------------------------------------------------------------------------


async def test_a_budget_that_cannot_be_read_allows_nothing_for_its_reasons(setting: Setting) -> None:
    """R29: counts as active with 0 for the reasons it names; the pool's other budgets stand."""
    bad = {"nodes": "3", "reasons": ["Drifted"], "schedule": "61 25 * * *", "duration": "1h"}
    await setting.begin(pool(budgets=[bad, {"nodes": "100%"}]))
    await hold(setting, "drifted", "bare", pods=BIG)
    await drift(setting, "drifted")
    await empty(setting, "bare")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "bare"))
    await setting.sim.run_for("1h")
    assert touched(setting) == []
    assert allowed(setting)["Drifted"][0] == 0
    await edit_pool(setting, budgets=[{"nodes": "100%"}])
    assert await setting.seconds_until(lambda: touched(setting) == ["drifted"]) <= 2


async def test_one_that_names_no_reason_and_cannot_be_read_stops_every_reason(setting: Setting) -> None:
    """R29: for every reason if it names none, whatever the others say."""
    bad = {"nodes": "3", "schedule": "0 0 * * MOON", "duration": "1h"}
    await setting.begin(pool(budgets=[bad, {"nodes": "100%", "reasons": ["Drifted", "Empty"]}]))
    await hold(setting, "drifted", "bare", pods=BIG)
    await drift(setting, "drifted")
    await empty(setting, "bare")
    await setting.sim.run_for("1h")
    assert touched(setting) == []
    assert {limit for limit, _, _ in allowed(setting).values()} == {0}


async def test_a_budget_is_read_anew_when_it_is_edited(setting: Setting) -> None:
    old = await stand(setting, pool(budgets=[{"nodes": "0"}]), replicas=3)
    await drift(setting, *old)
    await setting.sim.run_for("1h")
    assert touched(setting) == []
    await edit_pool(setting, budgets=[{"nodes": "2"}])
    assert await setting.seconds_until(lambda: len(touched(setting)) == 2) <= 4
    await edit_pool(setting, budgets=[{"nodes": "0"}])
    await setting.sim.run_for("10m")
    assert touched(setting) == []
    assert all(setting.claim(claim) is not None for claim in old), "nothing is drained past a budget (R50)"
