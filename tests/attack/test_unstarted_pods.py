"""PodDisruptionBudgets hold back exactly the pods that the eviction API asks them about (R57)."""

from typing import Any

import pytest

from dovetail.api.names import EventReason
from dovetail.model.pdb_records import PdbRecord
from dovetail.model.pod_records import PodRecord
from dovetail.ports import NODECLAIMS, PDBS, PODS
from dovetail.rules.verdict import Rule
from dovetail.sim.actors.wire import READY, START_DELAY
from dovetail.views.assessment import assess
from dovetail.views.explain.verdicts import explain
from tests.harness import manifests
from tests.harness.builders import at, claim, node, pdb, pod, pool
from tests.harness.claims import Manifest
from tests.harness.disruption import drift, play, touched
from tests.harness.disruption import pool as pool_manifest
from tests.harness.provisioning import OF_FOUR, Setting
from tests.harness.snapshots import take_snapshot
from tests.harness.stage import stage

pytestmark = stage(play)

NOW = at("2026-03-07T12:00:00Z")
UNSTARTED = {START_DELAY: "1000h"}  # stays in phase Pending, as with an image that cannot be pulled
NEVER: dict[str, Any] = {"consolidateAfter": "Never"}


@pytest.mark.parametrize("budgets", [1, 2])
async def test_a_drifted_node_with_a_pending_pod_goes_at_once(setting: Setting, budgets: int) -> None:
    await setting.begin(pool_manifest(**NEVER))
    name = await setting.launch("a", requirements=[OF_FOUR])
    await put(setting, name, "stuck", annotations=UNSTARTED)
    for number in range(budgets):
        guard = manifests.pdb(f"guard-{number}", maxUnavailable=0)
        guard["spec"]["selector"] = {"matchLabels": {"app": "web"}}
        await setting.sim.apply(guard)
    await setting.sim.run_for("1m")
    assert [each["status"]["phase"] for each in setting.sim.objects(PODS)] == ["Pending"]
    await drift(setting, "a")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"), timeout="5m")
    assert setting.events(EventReason.FAILED_DRAINING) == []


async def test_evicting_pending_pods_spends_nothing_of_their_budget(setting: Setting) -> None:
    """Otherwise the next pod waits for a change of the budget's status, which these evictions do not bring about."""
    await setting.begin(pool_manifest(**NEVER))
    name = await setting.launch("a", requirements=[OF_FOUR])
    await put(setting, name, *(f"stuck-{number}" for number in range(5)), annotations=UNSTARTED)
    await setting.sim.apply(manifests.pdb("web", minAvailable=1))
    await setting.sim.run_for("1m")
    await drift(setting, "a")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"), timeout="5m")
    assert setting.events(EventReason.FAILED_DRAINING) == []


async def test_a_pod_that_is_not_ready_goes_at_once_where_the_others_are_enough(setting: Setting) -> None:
    await setting.begin(pool_manifest(**NEVER))
    name, other = [await setting.launch(each, requirements=[OF_FOUR]) for each in ("a", "b")]
    await put(setting, name, "unready", annotations={READY: "false"})
    await put(setting, other, "healthy")
    await setting.sim.apply(manifests.pdb("web", minAvailable=1))
    await setting.sim.run_for("1m")
    (budget,) = setting.sim.objects(PDBS)
    assert (budget["status"]["currentHealthy"], budget["status"]["disruptionsAllowed"]) == (1, 0)
    await drift(setting, "a", "b")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"), timeout="5m")
    await setting.sim.run_for("10m")
    assert touched(setting) == [], "the node of the healthy pod stays"


async def put(setting: Setting, node_name: str, *pods: str, annotations: Manifest | None = None) -> None:
    """Put pods of the workload `web` on the node, without waiting for their start."""
    for name in pods:
        body = manifests.pod(name, annotations=annotations, cpu="100m")
        body["metadata"]["labels"] = {"app": "web"}
        await setting.sim.apply({**body, "spec": {**body["spec"], "nodeName": node_name}})


# -- what people are told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize("guards", [[pdb(min_available=0)], [pdb("one", allowed=0), pdb("two", allowed=0)]])
def test_explain_says_blocked_only_where_the_eviction_api_refuses(guards: list[PdbRecord], phase: str) -> None:
    stuck: PodRecord = pod(phase=phase, ready="False")
    found = explain(
        assess(take_snapshot(pods=[stuck], nodes=[node()], claims=[claim()], pools=[pool()], pdbs=guards), NOW)
    )
    (verdict,) = [each for view in found.pods for each in view.verdicts if each.rule == Rule.POD_DISRUPTION_BUDGET]
    assert verdict.allowed is (phase == "Pending")
