"""Nodes with protected pods, and nodes that expire gracefully: who may go, when, and what is brought up before."""

from datetime import timedelta

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.ports import NODECLAIMS, NODES
from dovetail.rules.states import NodeState
from dovetail.sim.actors.wire import created_at
from tests.harness import manifests
from tests.harness.disruption import (
    Most,
    Taken,
    disrupted,
    drift,
    found,
    hold,
    idle_until,
    is_marked,
    is_true,
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
from tests.harness.termination import GUARDED, is_deleting

pytestmark = stage(play)

MOMENT = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
GRACE = timedelta(seconds=30)  # of a pod that says nothing else
FOUR_HOURS = {names.DO_NOT_DISRUPT: "4h"}


# -- do-not-disrupt for a while (seed 000) -----------------------------------------------------------------------------


async def test_a_node_goes_the_moment_its_pods_protection_ends(setting: Setting) -> None:
    """Seed 000: "After the grace period expires, the pod is treated as if it doesn't have the do-not-disrupt
    annotation. The node becomes eligible for disruption if no other constraints prevent it"."""
    (old,) = await stand(setting, pool(), annotations=FOUR_HOURS)
    (pod,) = setting.sim.pods(app="web")
    ends_at = created_at(pod) + 4 * HOUR
    await drift(setting, old)
    await setting.sim.run_for("5m")
    taken = Taken(setting)
    assert await idle_until(setting, ends_at) == (0, 0), "nothing is polled"
    assert state(setting, old) is NodeState.CANDIDATE
    await setting.run_past(ends_at)
    await setting.sim.run_for("100ms")
    assert taken.at == {old: ends_at}
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old))


async def test_the_longest_of_several_protections_counts(setting: Setting) -> None:
    """02 §14.1."""
    await setting.begin(pool(consolidateAfter="Never"))
    (node,) = await hold(setting, "a", pods={"annotations": {names.DO_NOT_DISRUPT: "1h"}})
    await setting.bind(node, manifests.pod("longer", annotations={names.DO_NOT_DISRUPT: "2h"}))
    pod = setting.pod("longer")
    assert pod is not None
    ends_at = created_at(pod) + 2 * HOUR
    await drift(setting, "a")
    taken = Taken(setting)
    await setting.run_until(ends_at + HOUR)
    assert taken.at == {"a": ends_at}


async def test_in_the_seeds_timeline_drift_begins_and_the_pod_stays_for_its_four_hours(setting: Setting) -> None:
    """Seed 000, "NodePool with 72-hour eventual disruption … Pod with 4-hour protection", as R16 reads hours 0–4: no
    consolidation touches the node; drift may start S4, and the pod still stays until hour 4."""
    told = pool(consolidationPolicy="WhenEmpty", template={"terminationGracePeriod": "72h"})
    (old,) = await stand(setting, told, annotations=FOUR_HOURS)
    (pod,) = setting.sim.pods(app="web")
    name, ends_at = pod["metadata"]["name"], created_at(pod) + 4 * HOUR
    await drift(setting, old)
    await setting.sim.run_for("1m")
    assert state(setting, old) is NodeState.DRAINING
    assert others(setting, old) == [], "no capacity is brought up for a pod that stays"
    await setting.run_until(ends_at - MOMENT)
    assert setting.runs(name)
    await setting.run_until(ends_at + SECOND)
    assert not setting.runs(name)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old))
    await setting.runs_all("web", 1)


# -- terminationGracePeriod (seed 002) ---------------------------------------------------------------------------------


async def test_drift_takes_a_node_with_a_guarded_pod_if_its_drain_has_a_limit(setting: Setting) -> None:
    """Seed 002: "When set, drifted nodes will begin draining even if there are pods blocking eviction. Draining will
    respect PDBs and the do-not-disrupt annotation until the TGP is reached"; and "that pod will be deleted at T = node
    timeout - pod terminationGracePeriodSeconds" (R17)."""
    (old,) = await stand(setting, pool(template={"terminationGracePeriod": "1h"}), annotations=GUARDED)
    (pod,) = setting.sim.pods(app="web")
    name = pod["metadata"]["name"]
    await drift(setting, old)
    await setting.sim.run_for("5s")
    assert is_deleting(setting.claim(old))
    deadline = setting.deadline(old)
    assert deadline is not None
    await setting.run_until(deadline - GRACE - MOMENT)
    assert setting.runs(name)
    assert others(setting, old) == [], "nothing was brought up for it"
    await setting.run_past(deadline - GRACE)
    assert not setting.runs(name)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="2m")
    assert setting.now() <= deadline + 2 * GRACE, "nothing outlasts the deadline but the end of the machine"
    await setting.runs_all("web", 1)


async def test_only_the_pods_that_leave_get_a_replacement(setting: Setting) -> None:
    """02 §14.8: drift proceeds, but brings up nothing for the pod that stays."""
    await setting.begin(pool(template={"terminationGracePeriod": "1h"}))
    await setting.sim.apply(manifests.deployment("free", replicas=1, cpu="1500m"))
    await setting.runs_all("free", 1)
    await setting.sim.apply(manifests.deployment("kept", replicas=1, cpu="2", annotations=GUARDED))
    await setting.runs_all("kept", 1)
    ((old),) = others(setting)
    await drift(setting, old)
    await setting.sim.wait_until(lambda: len(setting.claims()) == 2)
    (new,) = others(setting, old)
    assert found(setting, new)["spec"]["resources"]["requests"]["cpu"] == "1500m"
    await setting.sim.wait_until(lambda: is_deleting(setting.claim(old)))
    assert is_true(setting, new, ConditionType.INITIALIZED)
    await setting.sim.run_for("5m")
    assert [pod["spec"]["nodeName"] for pod in setting.sim.pods(app="free")] == [node_of(setting, new)]
    assert [pod["spec"]["nodeName"] for pod in setting.sim.pods(app="kept")] == [node_of(setting, old)]
    assert len(setting.claims()) == 2


async def test_without_a_limit_a_guarded_pod_keeps_its_drifted_node(setting: Setting) -> None:
    """Seed 002: "Karpenter automatically excludes nodes containing do-not-disrupt annotated pods", and without TGP it
    stays so (R16)."""
    (old,) = await stand(setting, pool(), annotations=GUARDED)
    await drift(setting, old)
    await setting.sim.run_for("12h")
    assert touched(setting) == []
    assert state(setting, old) is NodeState.CANDIDATE


async def test_consolidation_never_takes_a_node_with_a_guarded_pod(setting: Setting) -> None:
    """02 §14.7: even with TGP; seed 000: "Workload owners should have full control to block these"."""
    await setting.begin(pool())
    grace = {"terminationGracePeriod": "1h"}
    await hold(setting, "a", "b", pods={"annotations": GUARDED}, **grace)
    await hold(setting, "mirror", pods={"annotations": GUARDED}, **grace)
    await setting.sim.run_for("12h")
    assert touched(setting) == []
    assert len(setting.claims()) == 3
    assert not is_marked(setting, "a")


# -- gracefulExpireAfter (seed 003, option 2; R20) ---------------------------------------------------------------------


async def test_nodes_expire_gracefully_one_after_the_other_with_replacements_first(setting: Setting) -> None:
    """Seed 003: "Karpenter can add expireAfter: 10d in addition to gracefulExpireAfter: 20d" in the order of R20: under
    budgets, replacements first, like Drift."""
    told = pool(budgets=[{"nodes": "1"}], gracefulExpireAfter="2h", template={"expireAfter": "6h"})
    old = await stand(setting, told, replicas=3)
    expires_at = min(created_at(found(setting, claim)) for claim in old) + 2 * HOUR
    most, taken = Most(setting), Taken(setting)
    # A writer of the condition has its own timer.
    assert (await idle_until(setting, expires_at))[0] == 0
    assert not any(is_true(setting, claim, ConditionType.EXPIRED) for claim in old)
    await setting.sim.run_for("5s")
    assert all(is_true(setting, claim, ConditionType.EXPIRED) for claim in old)
    (first,) = touched(setting)
    assert state(setting, first) is NodeState.DISRUPTING
    assert all(is_marked(setting, claim) for claim in old if claim != first)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, *old), timeout="15m")
    assert most.of == {"default": 1}
    assert min(taken.at.values()) - expires_at <= 2 * SECOND
    assert disrupted(setting, "expired") == 3
    await setting.runs_all("web", 3)


async def test_expire_after_is_the_hard_limit_behind_it(setting: Setting) -> None:
    """R20: "expireAfter stays the hard limit", whatever budgets say (R19)."""
    told = pool(budgets=[{"nodes": "0"}], gracefulExpireAfter="1h", template={"expireAfter": "3h"})
    old = await stand(setting, told, replicas=2)
    first_at = min(created_at(found(setting, claim)) for claim in old)
    await setting.run_until(first_at + 3 * HOUR - SECOND)
    assert touched(setting) == []
    assert all(state(setting, claim) is NodeState.CANDIDATE for claim in old)
    await setting.run_until(max(created_at(found(setting, claim)) for claim in old) + 3 * HOUR + SECOND)
    assert sorted(touched(setting)) == old
    assert all(state(setting, claim) is NodeState.DRAINING for claim in old)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, *old))
    await setting.runs_all("web", 2)


async def test_a_budget_for_expired_governs_graceful_expiry_alone(setting: Setting) -> None:
    """Seed 004: "All disruption Reasons affected by the current Budgets implementation (underutilized, empty, expired,
    drifted) should be supported"."""
    budgets = [{"nodes": "0", "reasons": ["expired"], "schedule": "0 0 * * *", "duration": "6h"}]
    told = pool(budgets=budgets, gracefulExpireAfter="1h", consolidateAfter="10m")
    await setting.begin(told)
    (old,) = await stand(setting, told)
    await setting.run_until(created_at(found(setting, old)) + 2 * HOUR)
    assert state(setting, old) is NodeState.CANDIDATE
    six = setting.now().replace(hour=6, minute=0, second=0, microsecond=0)
    taken = Taken(setting)
    assert await idle_until(setting, six) == (0, 0)
    await setting.sim.run_for("1s")
    assert taken.at == {old: six}
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old))
    (new,) = others(setting, old)
    await scale(setting, 0)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, new), timeout="15m")


async def test_a_node_that_says_do_not_disrupt_expires_only_by_the_hard_limit(setting: Setting) -> None:
    """R6, R19: forceful methods ignore the annotation of a Node, graceful ones do not."""
    (old,) = await stand(setting, pool(gracefulExpireAfter="1h", template={"expireAfter": "2h"}))
    await setting.annotate(NODES, node_of(setting, old), {names.DO_NOT_DISRUPT: "true"})
    begun_at = created_at(found(setting, old))
    await setting.run_until(begun_at + 2 * HOUR - SECOND)
    assert touched(setting) == []
    await setting.run_until(begun_at + 2 * HOUR + SECOND)
    assert touched(setting) == [old]
