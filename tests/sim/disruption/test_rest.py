"""Consolidation comes to rest: pods are moved once, and to where they stay."""

from dovetail.ports import NODES
from tests.harness import manifests
from tests.harness.disruption import disrupted, play, pool, scale
from tests.harness.provisioning import Setting
from tests.harness.stage import stage

pytestmark = stage(play)


async def test_no_pod_is_moved_in_vain(setting: Setting) -> None:
    """The scheduler would put small pods where large ones are planned. Without waves this moved nodes for hours."""
    apps, left = {"a0": (5, "1"), "a1": (4, "700m"), "a2": (7, "1500m")}, {"a0": 2, "a1": 0, "a2": 5}
    await setting.begin(pool())
    for app, (replicas, cpu) in apps.items():
        await setting.sim.apply(manifests.deployment(app, replicas=replicas, cpu=cpu))
    for app, (replicas, _) in apps.items():
        await setting.runs_all(app, replicas)
    for app, replicas in left.items():
        await scale(setting, replicas, app)
    await setting.sim.run_for("30m")
    at_first = disrupted(setting, "underutilized")
    assert at_first <= 3
    assert len(setting.sim.objects(NODES)) <= 4
    assert not setting.sim.pods(node="")
    await setting.sim.run_for("5h")
    assert disrupted(setting, "underutilized") == at_first
