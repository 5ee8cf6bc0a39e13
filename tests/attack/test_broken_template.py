"""A template whose nodes never come up: retries buy no more than they replace, and people are told (R52)."""

from itertools import product
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.ports import NODECLAIMS, NODES, Patch, Resource
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.store import Change
from tests.harness.disruption import edit_template, play, pool, stand
from tests.harness.provisioning import Setting
from tests.harness.soak import SOAK
from tests.harness.stage import stage

pytestmark = stage(play)

REASONS, BROKEN, BUDGETS = ("Drifted", "Expired"), ("startup taint", "not ready"), ("1", "100%")
# A CNI whose agent crashes never removes its startup taint.
BROKEN_CNI = {"startupTaints": [{"key": "cni.example.com/not-ready", "effect": "NoSchedule"}]}


class MostNodes:
    """The largest number of Nodes that existed at once."""

    def __init__(self, setting: Setting) -> None:
        self.count = len(setting.sim.objects(NODES))
        self._setting = setting
        setting.sim.server.registry.store.observers.append(self._observe)

    def _observe(self, kind: Resource[Any], _: Change) -> None:
        if kind.plural == NODES.plural:
            standing = [
                each for each in self._setting.sim.objects(NODES) if "deletionTimestamp" not in each["metadata"]
            ]
            self.count = max(self.count, len(standing))


@pytest.mark.parametrize(
    ("reason", "broken", "budget"),
    [case for number, case in enumerate(product(REASONS, BROKEN, BUDGETS)) if SOAK or number in (1, 2, 4, 7)],
)
async def test_failed_replacements_do_not_pile_up(setting: Setting, reason: str, broken: str, budget: str) -> None:
    graceful: dict[str, Any] = {"gracefulExpireAfter": "1h"} if reason == "Expired" else {}
    claims = await stand(setting, pool(budgets=[{"nodes": budget}], **graceful), replicas=5)
    most = MostNodes(setting)
    if broken == "not ready":
        setting.cloud.next_launches(Launch(ready=False), times=1000)
    if reason == "Drifted":
        await edit_template(setting, spec=BROKEN_CNI if broken == "startup taint" else {"expireAfter": "999h"})
    elif broken == "startup taint":
        await edit_template(setting, spec=BROKEN_CNI, metadata={"annotations": {}})
    await setting.sim.run_for("3h")
    in_flight = 1 if budget == "1" else 5
    assert most.count <= 5 + in_flight
    assert {each["metadata"]["name"] for each in setting.claims()} >= set(claims)
    assert len(setting.sim.pods(app="web", ready=True)) == 5
    notes = setting.notes(EventReason.REPLACEMENT_FAILED, "default")
    assert notes
    assert "was not initialized (Node sim-default-" in notes[-1]
    assert ("startup taint cni.example.com" if broken == "startup taint" else "is not Ready") in notes[-1]


async def test_a_replacement_that_comes_up_late_is_used(setting: Setting) -> None:
    (old,) = await stand(setting, pool(consolidateAfter="10m"), replicas=1)
    await edit_template(setting, spec=BROKEN_CNI)
    await setting.sim.run_for("10m10s")
    (late,) = (each["metadata"]["name"] for each in setting.claims() if each["metadata"]["name"] != old)
    node = setting.claim(late)["status"]["nodeName"]  # type: ignore[index]
    await setting.sim.api.write(Patch(NODES, node, {"spec": {"taints": []}}))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="5m")
    assert [each["metadata"]["name"] for each in setting.claims()] == [late]


async def test_a_mended_template_is_tried_after_the_failed_replacement_is_gone(setting: Setting) -> None:
    (old,) = await stand(setting, pool(), replicas=1)
    await edit_template(setting, spec=BROKEN_CNI)
    await setting.sim.run_for("10m10s")
    (failed,) = (each["metadata"]["name"] for each in setting.claims() if each["metadata"]["name"] != old)
    await edit_template(setting, spec={"startupTaints": []}, metadata={"labels": {"mended": "true"}})
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="10m")
    (new,) = setting.claims()
    assert new["metadata"]["name"] not in (old, failed)
    assert new["metadata"]["labels"]["mended"] == "true"
    assert names.REPLACEMENT_OF in new["metadata"]["annotations"]
