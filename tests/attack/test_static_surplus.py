"""Static capacity removes surplus nodes: never a healthy one while a broken one is there."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.controllers.assembly import FeatureGates
from dovetail.ports import NODEPOOLS, NODES, Patch
from dovetail.sim.cloud.machines import Launch
from tests.harness.claims import Manifest
from tests.harness.disruption import edit_template, found, is_true, node_of, others, play
from tests.harness.provisioning import Setting, pool_of_four
from tests.harness.stage import stage

pytestmark = stage(play)

REPLICAS = 5
NEVER_REMOVED = {"key": "example.com/cni", "value": "missing", "effect": "NoSchedule"}


def static(replicas: int = REPLICAS, *, budget: str = "100%", **fields: Any) -> Manifest:
    disruption = {"consolidateAfter": "0s", "budgets": [{"nodes": budget}]}
    return pool_of_four("static", replicas=replicas, disruption=disruption, **fields)


def initialized(setting: Setting) -> list[str]:
    return [name for name in others(setting, pool="static") if is_true(setting, name, ConditionType.INITIALIZED)]


async def stand(setting: Setting, pool: Manifest) -> None:
    await setting.begin(pool)
    await setting.sim.wait_until(lambda: len(initialized(setting)) == REPLICAS)
    await setting.sim.run_for("30s")


async def edit(setting: Setting, **spec: Any) -> None:
    await setting.sim.api.write(Patch(NODEPOOLS.read_as(dict[str, Any]), "static", {"spec": spec}))


async def break_template(setting: Setting) -> None:
    """New nodes get a startup taint that nobody removes, so they never initialize."""
    await edit_template(setting, name="static", spec={"startupTaints": [NEVER_REMOVED]})


@pytest.mark.parametrize(("budget", "span"), [("1", "6h"), ("100%", "2h")])
async def test_a_broken_template_costs_no_healthy_node(setting: Setting, budget: str, span: str) -> None:
    await stand(setting, static(budget=budget))
    healthy = initialized(setting)
    await break_template(setting)
    await setting.sim.run_for(span)
    assert initialized(setting) == healthy


@stage(gates=FeatureGates(node_repair=False))
async def test_machines_that_never_become_ready_cost_no_healthy_node(setting: Setting) -> None:
    await stand(setting, static())
    healthy = initialized(setting)
    setting.cloud.next_launches(Launch(ready=False), times=50)
    await edit_template(setting, name="static", metadata={"labels": {"version": "2"}})
    await setting.sim.run_for("2h")
    assert initialized(setting) == healthy


async def test_the_surplus_node_is_the_one_that_is_not_ready(setting: Setting) -> None:
    await stand(setting, static())
    ill = initialized(setting)[-1]
    setting.sim.set_node_ready(node_of(setting, ill), ready=False)
    await setting.sim.run_for("5s")
    await edit(setting, replicas=REPLICAS - 1)
    await setting.sim.wait_until(lambda: len(others(setting, pool="static")) == REPLICAS - 1)
    assert ill not in others(setting, pool="static")


@pytest.mark.parametrize("fewer", [1, 3])
async def test_a_replacement_in_flight_is_not_removed_when_replicas_are_lowered(setting: Setting, fewer: int) -> None:
    setting.cloud.register_seconds = 300
    await stand(setting, static(budget="1"))
    old = initialized(setting)
    await edit_template(setting, name="static", metadata={"labels": {"version": "2"}})
    await setting.sim.wait_until(lambda: len(others(setting, pool="static")) == REPLICAS + 1)
    (replacement,) = others(setting, *old, pool="static")
    for name in old:
        if names.DISRUPTION_COMMAND not in found(setting, name)["metadata"]["annotations"]:
            await setting.annotate(NODES, node_of(setting, name), {names.DO_NOT_DISRUPT: "true"})
    await edit(setting, replicas=REPLICAS - fewer)
    await setting.sim.run_for("15m")
    assert replacement in initialized(setting)
    assert len(others(setting, pool="static")) == REPLICAS - fewer
    assert not setting.events(EventReason.DISRUPTION_ROLLED_BACK)
