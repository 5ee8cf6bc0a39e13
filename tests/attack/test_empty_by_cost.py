"""Pods that cost nothing to move, by their deletion cost or a very low priority, still need a place (R51)."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from tests.harness import manifests
from tests.harness.disruption import disrupted, node_of, play, pool, scale, stand
from tests.harness.provisioning import Setting
from tests.harness.stage import stage

pytestmark = stage(play)

LOWEST = "-2147483648"
CHEAP: dict[str, Any] = {"annotations": {names.POD_DELETION_COST: LOWEST}}
LOW_PRIORITY: dict[str, Any] = {"priorityClassName": "low"}
BUDGET_OF_EMPTY = [{"nodes": "0", "reasons": ["Empty"]}, {"nodes": "100%", "reasons": ["Underutilized"]}]
BUDGET_OF_UNDERUTILIZED = [{"nodes": "100%", "reasons": ["Empty"]}, {"nodes": "0", "reasons": ["Underutilized"]}]


async def begin(setting: Setting, **disruption: Any) -> None:
    await setting.begin(pool(**disruption))
    await setting.sim.apply(manifests.priority_class("low", -2_000_000_000))


@pytest.mark.parametrize("pods", [CHEAP, LOW_PRIORITY])
async def test_a_node_whose_pods_have_no_place_elsewhere_stays(setting: Setting, pods: dict[str, Any]) -> None:
    await begin(setting)
    claims = await stand(setting, replicas=2, **pods)
    await setting.sim.run_for("2h")
    assert sorted(each["metadata"]["name"] for each in setting.claims()) == claims
    assert setting.tried_to_evict() == []
    notes = setting.notes(EventReason.UNCONSOLIDATABLE, node_of(setting, claims[0]))
    assert any("would need a new node" in note for note in notes)


@pytest.mark.parametrize("pods", [CHEAP, LOW_PRIORITY])
@pytest.mark.parametrize("policy", ["WhenEmpty", "WhenEmptyOrUnderutilized"])
async def test_a_node_whose_pods_have_a_place_elsewhere_goes_under_the_budget_of_empty(
    setting: Setting, pods: dict[str, Any], policy: str
) -> None:
    await begin(setting, budgets=BUDGET_OF_UNDERUTILIZED, consolidationPolicy=policy)
    await stand(setting, replicas=2, cpu="2500m")
    await setting.sim.apply(manifests.deployment("cheap", replicas=2, cpu="500m", **pods))
    await setting.runs_all("cheap", 2)
    await scale(setting, 1)
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1, timeout="10m")
    await setting.runs_all("cheap", 2)
    await setting.sim.run_for("1h")
    assert len(setting.claims()) == 1
    assert (disrupted(setting, "empty"), disrupted(setting, "underutilized")) == (1, 0)


async def test_a_node_whose_pods_cost_nothing_waits_for_the_budget_of_empty(setting: Setting) -> None:
    await begin(setting, budgets=BUDGET_OF_EMPTY)
    await stand(setting, replicas=2, cpu="2500m", **CHEAP)
    await setting.sim.apply(manifests.deployment("cheap", replicas=2, cpu="500m", **CHEAP))
    await setting.runs_all("cheap", 2)
    await scale(setting, 1)
    await setting.sim.run_for("1h")
    assert len(setting.claims()) == 2


async def test_of_two_nodes_that_could_move_to_each_other_one_stays(setting: Setting) -> None:
    await begin(setting)
    await stand(setting, replicas=2, cpu="2500m", **CHEAP)
    await setting.sim.apply(manifests.deployment("cheap", replicas=4, cpu="300m", **CHEAP))
    await setting.runs_all("cheap", 4)
    await scale(setting, 0)
    await setting.sim.run_for("1h")
    await setting.runs_all("cheap", 4)
    assert len(setting.claims()) == 1
    assert disrupted(setting, "empty") == 1


async def test_an_empty_node_goes_together_with_one_whose_pods_have_a_place(setting: Setting) -> None:
    await begin(setting)
    await stand(setting, replicas=3, cpu="2500m")
    await setting.sim.apply(manifests.deployment("cheap", replicas=2, cpu="500m", **CHEAP))
    await setting.runs_all("cheap", 2)
    await scale(setting, 1)
    await setting.sim.wait_until(lambda: len(setting.sim.pods(app="web")) == 1)
    assert len({pod["spec"]["nodeName"] for pod in setting.sim.pods()}) == 2  # and one of three is empty
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1, timeout="10m")
    await setting.runs_all("cheap", 2)
    await setting.runs_all("web", 1)
    assert disrupted(setting, "empty") == 2
