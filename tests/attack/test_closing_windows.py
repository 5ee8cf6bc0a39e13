"""Rules that begin to block while a replacement boots keep the node; windows that are too short are not used (R50)."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.ports import NODECLAIMS, NODES, PDBS, PODS, Delete, Patch
from dovetail.rules.states import NodeState
from dovetail.sim.actors.cluster import START
from dovetail.sim.cloud.machines import Launch
from tests.harness import manifests
from tests.harness.disruption import drift, edit_pool, hold, node_of, play, pool, stand, state, touched
from tests.harness.provisioning import Setting
from tests.harness.stage import stage

pytestmark = stage(play)

ROLLED_BACK = EventReason.DISRUPTION_ROLLED_BACK
NIGHTLY = {names.DISRUPTION_SCHEDULE: "0 2 * * *", names.DISRUPTION_SCHEDULE_DURATION: "1h"}
TWO = START + timedelta(hours=2)


async def begin(setting: Setting, **pods: Any) -> str:
    """A drifted node whose replacement takes five minutes to boot, in S3."""
    (old,) = await stand(setting, pool(), replicas=1, **pods)
    setting.cloud.next_launches(Launch(seconds=300))
    await drift(setting, old)
    await setting.sim.wait_until(lambda: state(setting, old) is NodeState.DISRUPTING)
    return old


async def protect_pod(setting: Setting) -> None:
    (pod,) = setting.sim.pods(app="web")
    await setting.sim.api.write(
        Patch(
            PODS,
            pod["metadata"]["name"],
            {"metadata": {"annotations": {names.DO_NOT_DISRUPT: "true"}}},
            namespace="default",
        )
    )


async def protect_node(setting: Setting) -> None:
    (old,) = (each for each in setting.claims() if names.REPLACEMENT_OF not in each["metadata"]["annotations"])
    await setting.annotate(NODES, old["status"]["nodeName"], {names.DO_NOT_DISRUPT: "true"})


async def forbid_evictions(setting: Setting) -> None:
    await setting.sim.apply(manifests.pdb("web", maxUnavailable=0))


async def lower_budget(setting: Setting) -> None:
    await edit_pool(setting, budgets=[{"nodes": "0"}])


async def end_drift(setting: Setting) -> None:
    (old,) = (each for each in setting.claims() if names.REPLACEMENT_OF not in each["metadata"]["annotations"])
    await drift(setting, old["metadata"]["name"], drifted=False)


@pytest.mark.parametrize("protect", [protect_pod, protect_node, forbid_evictions, lower_budget, end_drift])
@pytest.mark.parametrize("restart", [False, True], ids=["same process", "new leader"])
async def test_what_blocks_meanwhile_rolls_the_command_back(setting: Setting, protect: Any, restart: bool) -> None:
    old = await begin(setting)
    await protect(setting)
    if restart:
        await setting.program.restart()
    await setting.sim.run_for("10m")
    assert state(setting, old) in (NodeState.STEADY, NodeState.CANDIDATE)
    assert (names.DISRUPTED_TAINT, "NoSchedule") not in setting.taints(node_of(setting, old))
    assert setting.notes(ROLLED_BACK, old)
    assert len(setting.sim.pods(app="web", ready=True)) == 1


async def test_a_disruption_budget_that_is_used_up_for_a_moment_is_waited_for(setting: Setting) -> None:
    old = await begin(setting)
    await setting.sim.apply(manifests.pdb("web", minAvailable=1))
    await setting.sim.wait_until(lambda: state(setting, old) is NodeState.DRAINING, timeout="10m")
    await setting.sim.api.write(Delete(PDBS, "web", namespace="default"))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="5m")


async def test_a_window_that_closes_while_the_replacement_boots_keeps_the_node(setting: Setting) -> None:
    (old,) = await stand(setting, pool(), replicas=1, annotations=NIGHTLY)
    await setting.run_until(TWO + timedelta(minutes=57))
    setting.cloud.next_launches(Launch(seconds=300))
    await drift(setting, old)
    await setting.sim.wait_until(lambda: state(setting, old) is NodeState.DISRUPTING)
    await setting.sim.run_for("10m")
    assert state(setting, old) is NodeState.CANDIDATE
    assert "outside its disruption window" in setting.notes(ROLLED_BACK, old)[-1]
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="24h")
    assert TWO + timedelta(days=1) < setting.now() < TWO + timedelta(days=1, minutes=10)


async def test_a_node_with_little_time_left_in_its_window_waits_for_the_next(setting: Setting) -> None:
    (old,) = await stand(setting, pool(), replicas=1, annotations=NIGHTLY)
    await setting.run_until(TWO + timedelta(minutes=59))
    await drift(setting, old)
    await setting.run_until(TWO + timedelta(days=1) - timedelta(seconds=1))
    assert touched(setting) == []
    assert [each["metadata"]["name"] for each in setting.claims()] == [old]
    await setting.sim.run_for("30s")
    assert touched(setting) == [old]


async def test_consolidation_waits_likewise(setting: Setting) -> None:
    await setting.begin(pool(consolidateAfter="Never"))
    await hold(setting, "old", "other", pods={"annotations": NIGHTLY})
    await setting.run_until(TWO + timedelta(minutes=59))
    await edit_pool(setting, consolidateAfter="0s")
    await setting.run_until(TWO + timedelta(days=1) - timedelta(seconds=1))
    assert touched(setting) == []
    assert [each["metadata"]["name"] for each in setting.claims()] == ["old", "other"]
    await setting.sim.run_for("1m")
    assert [each["metadata"]["name"] for each in setting.claims()] == ["other"]


async def test_a_window_that_is_always_too_short_is_never_used_and_explained(setting: Setting) -> None:
    short = {names.DISRUPTION_SCHEDULE: "0 2 * * *", names.DISRUPTION_SCHEDULE_DURATION: "1m"}
    (old,) = await stand(setting, pool(), replicas=1, annotations=short)
    await drift(setting, old)
    await setting.sim.run_for("48h")
    assert touched(setting) == []
    notes = setting.notes(EventReason.DISRUPTION_BLOCKED, node_of(setting, old))
    assert notes
