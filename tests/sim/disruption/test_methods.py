"""Each method from the reason to the end, with all controllers running in virtual time."""

from typing import Any

from dovetail.api import names
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, Patch
from dovetail.sim.actors.wire import DEPLOYMENTS
from tests.harness import manifests, provisioning
from tests.harness.claims import Manifest
from tests.harness.provisioning import Setting, pool_of_four
from tests.harness.stage import gives, stage


@gives("setting")
def play(scenario: Any, **options: Any) -> None:
    provisioning.play(scenario, disrupting=True, **options)


pytestmark = stage(play)


def pool(**disruption: Any) -> Manifest:
    return pool_of_four(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}], **disruption})


async def scale(setting: Setting, name: str, replicas: int) -> None:
    await setting.sim.api.write(Patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, namespace="default"))


async def test_an_empty_node_goes(setting: Setting) -> None:
    await setting.begin(pool())
    await setting.sim.apply(manifests.deployment("web", replicas=2, cpu="3"))
    await setting.runs_all("web", 2)
    assert len(setting.claims()) == 2
    await scale(setting, "web", 1)
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1, timeout="5m")
    await setting.runs_all("web", 1)


async def test_a_drifted_node_goes_when_its_replacement_is_there(setting: Setting) -> None:
    await setting.begin(pool())
    await setting.sim.apply(manifests.deployment("web", replicas=1, cpu="3"))
    await setting.runs_all("web", 1)
    (old,) = setting.claims()
    await setting.sim.api.write(
        Patch(NODEPOOLS, "default", {"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}})
    )
    await setting.sim.wait_until(lambda: len(setting.claims()) == 2, timeout="5m")
    node = old["status"]["nodeName"]
    assert (names.DISRUPTED_TAINT, "NoSchedule") in setting.taints(node)
    assert "deletionTimestamp" not in old["metadata"]
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old["metadata"]["name"]), timeout="10m")
    await setting.runs_all("web", 1)
    (new,) = setting.claims()
    assert new["metadata"]["labels"]["team"] == "blue"


async def test_two_nodes_become_one(setting: Setting) -> None:
    """Each half empty: the pods of one fit on the other."""
    await setting.begin(pool())
    await setting.sim.apply(manifests.deployment("big", replicas=2, cpu="2500m"))
    await setting.runs_all("big", 2)
    await setting.sim.apply(manifests.deployment("small", replicas=2, cpu="500m"))
    await setting.runs_all("small", 2)
    assert len(setting.claims()) == 2
    await scale(setting, "big", 1)
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1, timeout="10m")
    await setting.runs_all("small", 2)
    await setting.runs_all("big", 1)
    await setting.sim.run_for("10m")
    assert len(setting.claims()) == 1
    assert len(setting.sim.objects(NODES)) == 1


async def test_a_budget_of_nothing_keeps_everything(setting: Setting) -> None:
    await setting.begin(pool(budgets=[{"nodes": "0"}]))
    await setting.sim.apply(manifests.deployment("web", replicas=2, cpu="3"))
    await setting.runs_all("web", 2)
    await scale(setting, "web", 0)
    await setting.sim.run_for("30m")
    assert len(setting.claims()) == 2
    marked = [node["metadata"]["name"] for node in setting.sim.objects(NODES)]
    assert all((names.CANDIDATE_TAINT, "PreferNoSchedule") in setting.taints(node) for node in marked)
