"""What a NodePool's status says of its budgets, on the simulated API server."""

from typing import Any

from dovetail.controllers.nodepool.disruptions import NodePoolDisruptions
from dovetail.planning.timings import Timings
from dovetail.ports import EVENTS, NODECLAIMS, NODEPOOLS, Delete, Patch
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from tests.harness.claims import launched, node, node_claim, node_pool, status_of
from tests.harness.running import Program, run_controllers
from tests.harness.stage import stage


def controllers(program: Program) -> list[Controller]:
    return [NodePoolDisruptions(program.cluster, Timings())]


pytestmark = stage(run_controllers, controllers)


def shown(sim: SimCluster) -> dict[str, dict[str, Any]]:
    found = status_of(sim, NODEPOOLS, "default").get("disruptions", [])
    return {each["reason"]: {key: value for key, value in each.items() if key != "reason"} for each in found}


async def grow(sim: SimCluster, number: int) -> None:
    for each in range(number):
        initialized = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}
        await sim.apply(node_claim(f"c{each}", finalizers=True), node(f"n{each}", labels=initialized))
        await launched(sim, f"c{each}", node=f"n{each}", true=("Launched", "Registered", "Initialized"))


async def test_each_reason_has_its_numbers(sim: SimCluster) -> None:
    budgets = [{"nodes": "50%", "reasons": ["Drifted"]}, {"nodes": "1"}]
    await sim.apply(node_pool(disruption={"consolidateAfter": "0s", "budgets": budgets}))
    await grow(sim, 3)
    await sim.run_for("10s")
    assert shown(sim)["Drifted"] == {"limit": 2, "inUse": 0, "allowed": 2}
    assert shown(sim)["Empty"] == {"limit": 1, "inUse": 0, "allowed": 1}
    await sim.api.write(Delete(NODECLAIMS, "c0"))
    await sim.run_for("10s")
    assert shown(sim)["Drifted"] == {"limit": 2, "inUse": 1, "allowed": 1}
    assert shown(sim)["Underutilized"] == {"limit": 1, "inUse": 1, "allowed": 0}


async def test_it_says_when_a_window_changes_it_and_then_changes(sim: SimCluster) -> None:
    nightly = {"nodes": "0", "schedule": "0 6 * * *", "duration": "8h"}
    await sim.apply(node_pool(disruption={"consolidateAfter": "0s", "budgets": [nightly, {"nodes": "3"}]}))
    await grow(sim, 1)
    await sim.run_for("10s")
    midnight = shown(sim)["Empty"]
    assert midnight == {"limit": 3, "inUse": 0, "allowed": 3, "nextChange": "2026-03-02T06:00:00Z"}
    await sim.run_for("7h")
    assert shown(sim)["Empty"] == {"limit": 0, "inUse": 0, "allowed": 0, "nextChange": "2026-03-02T14:00:00Z"}
    await sim.run_for("8h")
    assert shown(sim)["Empty"]["limit"] == 3


async def test_nothing_is_written_while_nothing_changes(sim: SimCluster) -> None:
    await sim.apply(node_pool())
    await grow(sim, 2)
    await sim.run_for("10s")
    before = len(sim.trace)
    await sim.run_for("1h")
    assert [line for line in sim.trace[before:] if "nodepools" in line] == []


async def test_the_owner_is_told_once_what_is_wrong_with_the_budgets(sim: SimCluster) -> None:
    """R25: two readings; R28: a reason without effect; R29: a budget that cannot be read."""
    budgets = [{"nodes": "5", "reasons": ["Drifted"]}, {"nodes": "1"}, {"nodes": "2", "reasons": ["Expired"]}]
    await sim.apply(node_pool(disruption={"consolidateAfter": "0s", "budgets": budgets}))
    await grow(sim, 3)
    await sim.run_for("30m")
    told = [event for event in sim.objects(EVENTS) if event["regarding"]["kind"] == "NodePool"]
    assert sorted(event["reason"] for event in told) == ["BudgetReadingDiffers", "BudgetWithoutEffect"]
    assert all(event["type"] == "Warning" and "series" not in event for event in told)
    mended = {"budgets": [{"nodes": "5", "schedule": "0 0 * * *", "duration": "1h", "reasons": ["Drifted"]}]}
    await sim.api.write(Patch(NODEPOOLS, "default", {"spec": {"disruption": mended}}))
    await sim.run_for("30m")
    assert len([event for event in sim.objects(EVENTS) if event["regarding"]["kind"] == "NodePool"]) == 2
