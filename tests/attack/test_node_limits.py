"""Drift of all nodes at once keeps to `limits.nodes`, however slow the API is."""

from typing import Any

import pytest

from dovetail.api.names import ConditionType, EventReason
from dovetail.ports import NODECLAIMS, Resource
from dovetail.sim.server.store import Change
from tests.harness.disruption import edit_template, is_true, others, play, pool, stand
from tests.harness.provisioning import Setting, pool_of_four
from tests.harness.stage import PARAMETER, stage

pytestmark = stage(play, latency_seconds=0.2)

REPLICAS = 5


def initialized(setting: Setting) -> list[str]:
    return [name for name in others(setting, pool="static") if is_true(setting, name, ConditionType.INITIALIZED)]


class Most:
    """How many NodeClaims there were at once, from now on."""

    def __init__(self, setting: Setting) -> None:
        self.claims = len(setting.claims())
        self._setting = setting
        setting.sim.server.registry.store.observers.append(self._observe)

    def _observe(self, kind: Resource[Any], _: Change) -> None:
        if kind.plural == NODECLAIMS.plural:
            self.claims = max(self.claims, len(self._setting.claims()))


@pytest.mark.parametrize("latency_seconds", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("spare", [1, 2])
@stage(latency_seconds=PARAMETER)
async def test_drift_of_all_nodes_at_once_stays_within_the_limit(setting: Setting, spare: int) -> None:
    disruption = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    limits = {"nodes": str(REPLICAS + spare)}
    await setting.begin(pool_of_four("static", replicas=REPLICAS, disruption=disruption, limits=limits))
    await setting.sim.wait_until(lambda: len(initialized(setting)) == REPLICAS)
    await setting.sim.run_for("30s")
    old, most = initialized(setting), Most(setting)
    await edit_template(setting, name="static", metadata={"labels": {"version": "2"}})
    await setting.sim.wait_until(
        lambda: len(initialized(setting)) == REPLICAS and not set(old) & set(initialized(setting)), timeout="1h"
    )
    assert most.claims == REPLICAS + spare


async def test_a_claim_that_is_deleted_meanwhile_is_not_made_up_for_beyond_the_limit(setting: Setting) -> None:
    setting.cloud.delete_seconds = 300
    disruption = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    limits = {"nodes": str(REPLICAS + 1)}
    await setting.begin(pool_of_four("static", replicas=REPLICAS, disruption=disruption, limits=limits))
    await setting.sim.wait_until(lambda: len(initialized(setting)) == REPLICAS)
    await setting.sim.run_for("30s")
    most = Most(setting)
    await edit_template(setting, name="static", metadata={"labels": {"version": "2"}})
    await setting.delete_claim(initialized(setting)[0])
    await setting.sim.run_for("1h")
    assert len(initialized(setting)) == REPLICAS
    assert most.claims == REPLICAS + 1


@pytest.mark.parametrize("latency_seconds", [0.0, 1.0])
@stage(latency_seconds=PARAMETER)
async def test_nodes_for_pods_are_replaced_at_their_limit_without_a_rollback(setting: Setting) -> None:
    """Nodes that are being replaced do not count for the limit, and their replacements do."""
    full = pool(budgets=[{"nodes": "100%"}])
    full["spec"]["limits"] = {"nodes": "5"}
    old = await stand(setting, full, replicas=5)
    await edit_template(setting, metadata={"labels": {"version": "2"}})
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, *old), timeout="1h")
    assert all(setting.notes(EventReason.DISRUPTION_ROLLED_BACK, each) == [] for each in old)
    assert len(setting.claims()) == 5
