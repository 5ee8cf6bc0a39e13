"""Four pods that fit on two nodes of 4 cpus in one way only. Consolidation must not try again and again."""

from itertools import product
from typing import Any

import pytest

from dovetail.sim.actors.wire import SHUTDOWN
from tests.harness import manifests
from tests.harness.disruption import disrupted, play, pool
from tests.harness.provisioning import Setting
from tests.harness.soak import SOAK
from tests.harness.stage import stage

pytestmark = stage(play)

SIZES = ("900m", "1800m", "1800m", "2800m")


@pytest.mark.parametrize(
    ("kind", "together", "seconds"),
    list(product(("Deployment", "StatefulSet"), (True, False), (1, 60, 1200)))[:: 1 if SOAK else 4],
)
async def test_at_most_two_nodes_end_in_a_day(setting: Setting, kind: str, together: bool, seconds: int) -> None:
    """Pods that come one by one stand on more nodes at first."""
    await setting.begin(pool())
    for number, cpu in enumerate(SIZES):
        spec: dict[str, Any] = {
            "cpu": cpu,
            "terminationGracePeriodSeconds": seconds,
            "annotations": {SHUTDOWN: f"{seconds}s"},
        }
        await setting.sim.apply(manifests.workload(kind, f"w{number}", fields={"replicas": 1}, **spec))
        if not together:
            await setting.runs_all(f"w{number}", 1)
    for number in range(len(SIZES)):
        await setting.runs_all(f"w{number}", 1)
    await setting.sim.run_for("24h")
    assert sum(disrupted(setting, reason) for reason in ("underutilized", "empty")) <= 2
    assert not setting.sim.pods(node="")
    assert len(setting.claims()) in (2, 3)
