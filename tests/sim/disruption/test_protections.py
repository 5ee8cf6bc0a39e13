"""What holds consolidation back: quiet times, policies, the second look, nominations, and what does not (02 §7, §8)."""

from datetime import timedelta

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.ports import NODECLAIMS, NODES, PODS, Delete
from dovetail.sim.actors.wire import created_at
from tests.harness import manifests
from tests.harness.disruption import (
    Taken,
    disrupted,
    edit_pool,
    empty,
    hold,
    is_marked,
    is_true,
    node_of,
    others,
    passes,
    play,
    pool,
    scale,
    stand,
    touched,
    writes,
)
from tests.harness.provisioning import Setting
from tests.harness.stage import stage
from tests.harness.termination import GUARDED

pytestmark = stage(play)

SECOND = timedelta(seconds=1)
VALIDATION = timedelta(seconds=15)
BIG = {"cpu": "3"}


# -- consolidateAfter --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after", "seconds"), [("0s", 15), ("10s", 15), ("30s", 30), ("5m", 300)])
async def test_an_empty_node_has_to_be_quiet_first(setting: Setting, after: str, seconds: int) -> None:
    """02 §10, R46: from the last pod that came or went, and to the second; for the validation at least 15 s."""
    await setting.begin(pool(consolidateAfter=after))
    await hold(setting, "a", pods=BIG)
    await setting.sim.run_for("10m")
    taken = Taken(setting)
    await empty(setting, "a")
    emptied_at = setting.now()
    await setting.sim.wait_until(lambda: "a" in taken.at, timeout="20m")
    took = (taken.at["a"] - emptied_at).total_seconds()
    # The pod needs a moment to be gone, and a change is looked at after a second of quiet.
    assert seconds <= took <= seconds + 3


async def test_never_means_never(setting: Setting) -> None:
    await setting.begin(pool(consolidateAfter="Never"))
    await hold(setting, "a", "b")
    await empty(setting, "a")
    await setting.sim.run_for("6h")
    assert touched(setting) == []
    assert not is_marked(setting, "a")
    await edit_pool(setting, consolidateAfter="0s")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"), timeout="2m")


async def test_pods_that_come_and_go_keep_a_node_from_being_consolidated(setting: Setting) -> None:
    """Each of them begins the time anew (02 §10)."""
    await setting.begin(pool(consolidateAfter="2m"))
    await hold(setting, "kept", pods={"annotations": GUARDED})
    (node,) = await hold(setting, "busy")
    for number in range(10):
        await setting.sim.run_for("90s")
        await setting.bind(node, manifests.pod(f"job-{number}"))
        assert not is_true(setting, "busy", ConditionType.CONSOLIDATABLE)
    assert touched(setting) == []
    last_at = setting.now()
    taken = Taken(setting)
    await setting.sim.wait_until(lambda: "busy" in taken.at)
    waited = taken.at["busy"] - last_at
    assert timedelta(minutes=2) <= waited <= timedelta(seconds=123)


async def test_a_destination_may_be_inside_its_own_quiet_time(setting: Setting) -> None:
    """R35."""
    await setting.begin(pool(consolidateAfter="10m"))
    await hold(setting, "old")
    await setting.sim.run_for("9m30s")
    await hold(setting, "young", pods={"cpu": "2"})
    await setting.sim.wait_until(lambda: touched(setting) == ["old"], timeout="2m")
    assert not is_true(setting, "young", ConditionType.CONSOLIDATABLE)


# -- policies ----------------------------------------------------------------------------------------------------------


async def test_when_empty_takes_empty_nodes_only(setting: Setting) -> None:
    await setting.begin(pool(consolidationPolicy="WhenEmpty"))
    await hold(setting, "a", "b", "c")
    await setting.sim.run_for("1h")
    assert touched(setting) == []
    assert not is_marked(setting, "a")
    await empty(setting, "c")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c"), timeout="2m")
    await setting.sim.run_for("1h")
    assert sorted(others(setting)) == ["a", "b"]
    await edit_pool(setting, consolidationPolicy="WhenEmptyOrUnderutilized")
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1, timeout="5m")
    assert disrupted(setting, "underutilized") == 1


async def test_balanced_takes_what_is_worth_its_disruption(setting: Setting) -> None:
    """02 §7.10: half as much of the pool's cost as of its disruption is enough. Of nodes that cost the same, one with a
    single small pod is worth it; the one with nearly all pods is not."""
    await setting.begin(pool(consolidationPolicy="Balanced"))
    (crowded,) = await hold(setting, "crowded")
    await setting.bind(crowded, *(manifests.pod(f"c-{number}", cpu="10m") for number in range(30)))
    await hold(setting, "kept-0", "kept-1", "kept-2", pods={"cpu": "2", "annotations": GUARDED})
    await setting.sim.run_for("1h")
    assert touched(setting) == [], "a quarter of the cost for nearly all of the disruption"
    assert not is_marked(setting, "crowded")
    await hold(setting, "light")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "light"), timeout="3m")
    await setting.sim.run_for("1h")
    assert sorted(others(setting)) == ["crowded", "kept-0", "kept-1", "kept-2"]
    await edit_pool(setting, consolidationPolicy="WhenEmptyOrUnderutilized")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "crowded"), timeout="3m")


async def test_balanced_always_takes_empty_nodes(setting: Setting) -> None:
    """02 §14.56."""
    await setting.begin(pool(consolidationPolicy="Balanced"))
    await hold(setting, "a", "b", pods=BIG)
    await empty(setting, "a")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"), timeout="2m")
    assert disrupted(setting, "empty") == 1


# -- the second look (02 §8) -------------------------------------------------------------------------------------------


async def test_a_pod_that_comes_meanwhile_cancels_the_removal_of_an_empty_node(setting: Setting) -> None:
    """02 §14.46: the others go."""
    await setting.begin(pool())
    first, _ = await hold(setting, "a", "b", pods=BIG)
    await setting.sim.run_for("30s")
    await empty(setting, "a")
    await empty(setting, "b")
    await setting.sim.wait_until(lambda: is_marked(setting, "a"), timeout="30s")
    await setting.sim.run_for("10s")
    assert touched(setting) == []
    await setting.bind(first, manifests.pod("late", cpu="3"))
    await setting.sim.run_for("10s")
    assert touched(setting) == ["b"]
    (note,) = setting.notes(EventReason.CONSOLIDATION_REJECTED, "a")
    assert note.startswith("churn")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "b"))
    await setting.sim.run_for("10m")
    assert others(setting) == ["a"]
    assert not is_marked(setting, "a")


async def test_a_guarded_pod_that_comes_meanwhile_cancels_a_consolidation(setting: Setting) -> None:
    """02 §14.45; all or nothing."""
    await setting.begin(pool())
    await hold(setting, "kept", pods={"annotations": GUARDED})
    (node,) = await hold(setting, "half")
    await setting.sim.wait_until(lambda: is_marked(setting, "half"), timeout="30s")
    await setting.bind(node, manifests.pod("guarded", annotations=GUARDED))
    await setting.sim.run_for("1h")
    assert touched(setting) == []
    assert not is_marked(setting, "half")


async def test_a_budget_that_closes_meanwhile_cancels(setting: Setting) -> None:
    await setting.begin(pool())
    await hold(setting, "a", pods=BIG)
    await empty(setting, "a")
    await setting.sim.wait_until(lambda: is_marked(setting, "a"), timeout="30s")
    await edit_pool(setting, budgets=[{"nodes": "0"}])
    await setting.sim.run_for("1h")
    assert touched(setting) == []
    assert is_marked(setting, "a")


async def test_a_destination_that_fills_up_meanwhile_cancels_a_consolidation(setting: Setting) -> None:
    await setting.begin(pool())
    (kept,) = await hold(setting, "kept", pods={"annotations": GUARDED})
    await hold(setting, "half", pods={"cpu": "2"})
    await setting.sim.wait_until(lambda: is_marked(setting, "half"), timeout="30s")
    await setting.bind(kept, manifests.pod("late", cpu="3", annotations=GUARDED))
    await setting.sim.run_for("1m")
    assert touched(setting) == []
    (note,) = setting.notes(EventReason.CONSOLIDATION_REJECTED, "half")
    assert note.startswith("scheduling")
    assert not is_marked(setting, "half")


# -- nominations and pending pods --------------------------------------------------------------------------------------


async def test_what_waits_to_be_validated_keeps_nobody_else_waiting(setting: Setting) -> None:
    await setting.begin(pool())
    await hold(setting, "a", pods=BIG)
    await hold(setting, "b", pods=BIG)
    taken = Taken(setting)
    await empty(setting, "a")
    await setting.sim.run_for("8s")
    await empty(setting, "b")
    await setting.sim.wait_until(lambda: "b" in taken.at, timeout="5m")
    assert timedelta(seconds=4) <= taken.at["b"] - taken.at["a"] < VALIDATION


@pytest.mark.parametrize("waits", [60, 20])
async def test_a_node_that_expects_a_pod_is_left_alone(setting: Setting, waits: int) -> None:
    """02 §3 row 6, 06 §7.4: the pod is slow to come; if it is given up before, nobody is waited for any more."""
    await setting.begin(pool())
    await hold(setting, "a", pods=BIG)
    await empty(setting, "a")
    await setting.sim.wait_until(lambda: is_marked(setting, "a"), timeout="30s")
    await setting.sim.apply(manifests.pod("slow", schedulerName="slow"))
    setting.provisioner.state.nominate(node_of(setting, "a"), setting.now() + timedelta(seconds=60))
    nominated_at = setting.now()
    taken = Taken(setting)
    await setting.sim.run_for(f"{waits}s")
    if waits < 60:
        await setting.sim.api.write(Delete(PODS, "slow", namespace="default"))
    await setting.sim.wait_until(lambda: "a" in taken.at, timeout="5m")
    # It is looked at again when the nomination ends. Nothing else has changed meanwhile.
    late = taken.at["a"] - nominated_at - timedelta(seconds=waits)
    assert timedelta() <= late <= timedelta(seconds=0 if waits == 60 else 6)


async def test_a_pod_that_is_on_its_way_keeps_the_node_that_is_made_for_it(setting: Setting) -> None:
    """A new node is empty until its pod is there: with consolidateAfter 0s nothing but the nomination protects it."""
    await setting.begin(pool())
    for number in range(3):
        await setting.sim.apply(manifests.deployment(f"web-{number}", cpu="3"))
        await setting.runs_all(f"web-{number}", 1)
    await setting.sim.run_for("10m")
    assert disrupted(setting, "empty") == 0
    assert len(setting.claims()) == 3


async def test_a_pod_that_can_run_nowhere_does_not_stop_emptiness(setting: Setting) -> None:
    """02 §7.2: "Pending pods do not stop emptiness by themselves"."""
    await setting.begin(pool())
    await hold(setting, "a", "b", pods=BIG)
    await setting.sim.apply(manifests.deployment("huge", cpu="500"))
    await setting.sim.run_for("30s")
    await empty(setting, "a")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"), timeout="2m")
    assert len(setting.sim.pods(app="huge", ready=False)) == 1
    await edit_pool(setting, consolidateAfter="Never")
    await setting.sim.run_for("1m")
    before, written = passes(setting), writes(setting)
    await setting.sim.run_for("1h")
    assert passes(setting) - before <= 3, "what waits for ever causes no looks"
    assert writes(setting) == written


async def test_a_pod_that_can_run_nowhere_does_not_stop_consolidation(setting: Setting) -> None:
    """02 §14.39: "Permanently pending pod does not stop deletion"."""
    await setting.begin(pool())
    await setting.sim.apply(manifests.deployment("huge", cpu="500"))
    await hold(setting, "a", "b")
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1, timeout="3m")
    assert disrupted(setting, "underutilized") == 1


# -- nodes and budgets of pods -----------------------------------------------------------------------------------------


async def test_a_node_that_says_so_is_left_alone_for_as_long_as_it_says(setting: Setting) -> None:
    """R6: a Node's do-not-disrupt may be a duration, from its creation."""
    await setting.begin(pool())
    (node,) = await hold(setting, "a", pods=BIG)
    await setting.annotate(NODES, node, {names.DO_NOT_DISRUPT: "2h"})
    made = setting.node(node)
    assert made is not None
    await setting.sim.run_for("1s")
    await empty(setting, "a")
    await setting.sim.run_for("1h")
    assert touched(setting) == []
    taken = Taken(setting)
    await setting.sim.wait_until(lambda: "a" in taken.at, timeout="2h")
    assert taken.at["a"] == created_at(made) + timedelta(hours=2)


async def test_a_pod_disruption_budget_that_allows_nothing_keeps_a_node(setting: Setting) -> None:
    """02 §4.4: and when it allows something again, the node goes."""
    await stand(setting, pool(), cpu="500m", replicas=2)
    await hold(setting, "kept", pods={"cpu": "500m", "annotations": GUARDED})
    await setting.sim.apply(manifests.pdb("web", maxUnavailable=0))
    await setting.sim.run_for("1h")
    assert len(setting.claims()) == 2
    assert touched(setting) == []
    await setting.sim.apply(manifests.pdb("web", maxUnavailable=1))
    await setting.sim.wait_until(lambda: others(setting) == ["kept"], timeout="5m")
    await setting.runs_all("web", 2)


async def test_pods_that_leave_by_themselves_make_a_node_empty(setting: Setting) -> None:
    """02 §7.2: DaemonSet pods do not count, and neither do pods on their way out."""
    await setting.begin(pool())
    daemon = manifests.workload("DaemonSet", "agent", cpu="50m")
    await setting.sim.apply(daemon)
    claims = await stand(setting, replicas=2)
    assert len(setting.sim.pods(app="agent", ready=True)) == 2
    await scale(setting, 0)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, *claims), timeout="3m")
    assert disrupted(setting, "empty") == 2
    assert setting.sim.objects(PODS) == []
