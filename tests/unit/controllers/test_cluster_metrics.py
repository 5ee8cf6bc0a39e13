"""Gauges that follow from the cluster's state, on the simulated cluster (R40)."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.controllers.metrics.cluster import ClusterMetrics
from dovetail.model.rule_settings import DEFAULT_SETTINGS, BudgetSemantics, RuleSettings
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PODS, Delete, Patch
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from dovetail.values.timestamp import parse_time
from tests.harness import manifests
from tests.harness.claims import condition, launched, node, node_claim, node_pool, put_status
from tests.harness.metrics_text import exposition
from tests.harness.running import Program, run_controllers
from tests.harness.stage import PARAMETER, gives, stage

READY = ("Launched", "Registered", "Initialized")


class Scrape:
    """What a scrape would show."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leads = True

    def made(self, program: Program, settings: RuleSettings = DEFAULT_SETTINGS, **options: Any) -> list[Controller]:
        program.cluster.settings = settings
        metrics = ClusterMetrics(program.cluster, program.sim.clock, leads=lambda: self.leads, **options)
        self.registry = CollectorRegistry()
        self.registry.register(metrics)
        return []

    def __call__(self, start: str) -> dict[str, float]:
        """The series of this name, by their labels, without those that are 0."""
        found = {}
        for line in exposition(self.registry).decode().splitlines():
            series, _, value = line.rpartition(" ")
            name, _, labels = series.partition("{")
            if name == start and float(value):
                found[labels.rstrip("}").replace('"', "")] = float(value)
        return found


@gives("sim", "scrape")
def scraped(scenario: Callable[[SimCluster, Scrape], Coroutine[Any, Any, None]], **options: Any) -> None:
    scrape = Scrape()
    run_controllers(lambda sim, _: scenario(sim, scrape), lambda program: scrape.made(program, **options))


pytestmark = stage(scraped)


async def put(sim: SimCluster, name: str, *, true: tuple[str, ...] = READY, **spec: Any) -> None:
    """A claim and its node of one name."""
    await sim.apply(node_claim(name, **spec), node(name, pool=spec.get("pool", "default")))
    await launched(sim, name, node=name, true=true)


async def add_pods(sim: SimCluster, on: str, app: str, count: int, **annotations: str) -> None:
    """Running pods of an app on a node; `_` in the names of annotations stands for `-`."""
    written = {f"karpenter.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
    for number in range(count):
        made = manifests.pod(f"{app}-{number}", annotations=written, nodeName=on)
        made["metadata"]["labels"] = {"app": app}
        await sim.apply(made)
    await sim.run_for("5s")


async def test_states_of_nodes(sim: SimCluster, scrape: Scrape) -> None:
    await sim.apply(node_pool())
    await put(sim, "steady")
    await put(sim, "drifted", true=(*READY, "Drifted"))
    await put(sim, "going", finalizers=True)
    await sim.api.write(Delete(NODECLAIMS, "going"))
    await sim.run_for("1s")
    states = {f"nodepool=default,state={state}": 1.0 for state in ("S1", "S2", "S4")}
    assert scrape("dovetail_node_state") == states
    assert scrape("karpenter_cluster_state_node_count") == {"": 3}
    assert scrape("karpenter_cluster_state_synced") == {"": 1}
    # Every state is there, so that a graph does not break off.
    assert exposition(scrape.registry).count(b"dovetail_node_state{") == 6


async def test_other_peoples_claims_do_not_count(sim: SimCluster, scrape: Scrape) -> None:
    await sim.apply(node_pool())
    await put(sim, "theirs", nodeClassRef={"group": "example.com", "kind": "Other", "name": "x"})
    assert scrape("dovetail_node_state") == {}


async def test_protections_end_and_begin_with_the_time(sim: SimCluster, scrape: Scrape) -> None:
    await sim.apply(node_pool(), manifests.node("n"))
    await add_pods(sim, "n", "forever", 2, do_not_disrupt="true")
    await add_pods(sim, "n", "four", 3, do_not_disrupt="4h")
    await add_pods(sim, "n", "wrong", 1, do_not_disrupt="1d")
    await add_pods(sim, "n", "no", 1, do_not_disrupt="false")
    await add_pods(sim, "n", "never", 1, disruption_schedule="0 0 31 2 *")
    await add_pods(sim, "n", "often", 2, disruption_schedule="* * * * *")
    await add_pods(sim, "n", "block", 1, disruption_block_schedule="* * * * *")
    await add_pods(sim, "n", "bad", 1, disruption_schedule="never")
    before = {
        "protection=do-not-disrupt,state=active": 5.0,
        "protection=do-not-disrupt,state=elapsed": 1.0,
        "protection=do-not-disrupt,state=invalid": 1.0,
        "protection=schedule,state=active": 1.0,
        "protection=schedule,state=elapsed": 2.0,
        "protection=schedule,state=invalid": 1.0,
        "protection=block-schedule,state=active": 1.0,
    }
    assert scrape("dovetail_protected_pods") == before
    await sim.run_for("4h")
    assert scrape("dovetail_protected_pods") == {
        **before,
        "protection=do-not-disrupt,state=active": 2.0,
        "protection=do-not-disrupt,state=elapsed": 4.0,
    }
    await sim.api.write(Delete(PODS, "forever-0", namespace="default", grace_seconds=0))
    await sim.run_for("1s")
    assert scrape("dovetail_protected_pods")["protection=do-not-disrupt,state=active"] == 1


async def test_budgets_of_pods(sim: SimCluster, scrape: Scrape) -> None:
    await sim.apply(node_pool(), manifests.node("n"))
    for app, count in (("strict", 3), ("loose", 2), ("twice", 1)):
        await add_pods(sim, "n", app, count)
    twice = manifests.pdb("twice", minAvailable=0)
    again = {**twice, "metadata": {"name": "again"}}
    await sim.apply(manifests.pdb("strict", minAvailable=3), manifests.pdb("loose", minAvailable=1), twice, again)
    await sim.run_for("5s")
    assert scrape("dovetail_protected_pods") == {
        "protection=pdb,state=active": 3.0,
        "protection=pdb,state=elapsed": 2.0,
        "protection=pdb,state=invalid": 1.0,
    }
    await sim.apply(manifests.pdb("strict", minAvailable=2))
    await sim.run_for("5s")
    assert scrape("dovetail_protected_pods")["protection=pdb,state=elapsed"] == 5


async def test_what_is_wanted_and_blocked_and_for_how_long(sim: SimCluster, scrape: Scrape) -> None:
    await sim.apply(node_pool(disruption={"budgets": [{"nodes": "100%"}], "consolidateAfter": "1m"}))
    await put(sim, "a", true=(*READY, "Drifted"))
    await put(sim, "b", true=(*READY, "Drifted"), terminationGracePeriod="1h")
    for on in ("a", "b"):
        await add_pods(sim, on, f"held-{on}", 1, do_not_disrupt="4h")
    await add_pods(sim, "a", "free", 1)
    blocked = "nodepool=default,reason=Drifted,blocker=do-not-disrupt"
    # A grace period lets drift begin (R16).
    assert scrape("dovetail_nodes_blocked") == {blocked: 1}
    created_at = sim.object(PODS, "held-a-0")["metadata"]["creationTimestamp"]  # type: ignore[index]
    ends_at = parse_time(created_at) + timedelta(hours=4)
    assert scrape("dovetail_next_unblock_timestamp_seconds") == {"nodepool=default": ends_at.timestamp()}
    assert scrape("dovetail_blocked_node_seconds_total") == {}
    await sim.run_for("60s")
    assert scrape("dovetail_blocked_node_seconds_total") == {blocked: 60}
    await sim.run_for("4h")
    assert scrape("dovetail_nodes_blocked") == {}
    assert scrape("dovetail_next_unblock_timestamp_seconds") == {}
    await sim.run_for("60s")
    assert scrape("dovetail_blocked_node_seconds_total") == {blocked: 60 + 4 * 3600}


async def test_every_blocker_counts_budgets_too(sim: SimCluster, scrape: Scrape) -> None:
    await sim.apply(node_pool(disruption={"budgets": [{"nodes": "0"}], "consolidateAfter": "1h"}))
    await put(sim, "empty")
    await put(sim, "guarded", true=(*READY, "Drifted"))
    await sim.api.write(Patch(NODES, "guarded", {"metadata": {"annotations": {names.DO_NOT_DISRUPT: "true"}}}))
    await add_pods(sim, "guarded", "free", 1)
    prefix = "nodepool=default,reason"
    assert scrape("dovetail_nodes_blocked") == {
        f"{prefix}=Empty,blocker=budget": 1,
        f"{prefix}=Empty,blocker=consolidate-after": 1,
        f"{prefix}=Drifted,blocker=budget": 1,
        f"{prefix}=Drifted,blocker=node-do-not-disrupt": 1,
    }
    # Of the empty one the quiet time ends; of the other only an edit changes anything.
    (ends_at,) = scrape("dovetail_next_unblock_timestamp_seconds").values()
    assert 0 < ends_at - sim.clock.now().timestamp() <= 3600
    # What is under way is not blocked.
    taint = {"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"}
    await sim.api.write(Patch(NODES, "guarded", {"spec": {"taints": [taint]}}))
    conditions = [condition(type_, observedGeneration=1) for type_ in (*READY, "Drifted", "DisruptionReason")]
    await put_status(sim, NODECLAIMS, "guarded", {"conditions": conditions})
    await sim.run_for("1s")
    assert not any("Drifted" in labels for labels in scrape("dovetail_nodes_blocked"))


@pytest.mark.parametrize("settings", [RuleSettings(budgets=each) for each in BudgetSemantics])
@stage(settings=PARAMETER)
async def test_budgets_of_pools_in_either_reading(sim: SimCluster, scrape: Scrape, settings: RuleSettings) -> None:
    budgets = [{"nodes": "2", "reasons": ["Drifted"]}, {"nodes": "1"}]
    await sim.apply(node_pool(disruption={"budgets": budgets}), node_pool("free", disruption={"budgets": []}))
    for name in ("a", "b"):
        await put(sim, name, finalizers=True)
    await sim.api.write(Delete(NODECLAIMS, "a"))
    await sim.run_for("30s")
    limits = scrape("karpenter_nodepools_allowed_disruptions")
    assert limits["nodepool=default,reason=Drifted"] == (2 if settings.budgets is BudgetSemantics.SEED else 1)
    assert limits["nodepool=default,reason=Empty"] == 1
    assert limits["nodepool=free,reason=Empty"] == 2147483647
    assert scrape("karpenter_nodepools_nodes_consuming_budgets")["nodepool=default,reason=Drifted"] == 1


async def test_resources_of_pools_and_nodes_vanish_with_them(sim: SimCluster, scrape: Scrape) -> None:
    await sim.apply(node_pool(limits={"cpu": "1500m", "memory": "1Gi", "nodes": "7"}))
    await put_status(sim, NODEPOOLS, "default", {"resources": {"cpu": "250m"}})
    await put(sim, "a")
    await sim.run_for("90s")
    assert scrape("karpenter_nodepools_limit") == {
        "resource_type=cpu,nodepool=default": 1.5,
        "resource_type=memory,nodepool=default": 2**30,
        "resource_type=nodes,nodepool=default": 7,
    }
    assert scrape("karpenter_nodepools_usage") == {"resource_type=cpu,nodepool=default": 0.25}
    found = scrape("karpenter_nodes_allocatable")
    (cpu,) = (labels for labels in found if "resource_type=cpu" in labels)
    assert found[cpu] == 4
    assert cpu.startswith("node_name=a,phase=,managed=true,")
    assert "nodepool=default" in cpu
    (age,) = scrape("karpenter_nodes_current_lifetime_seconds").values()
    assert age >= 90
    await sim.api.write(Delete(NODES, "a"))
    await sim.run_for("1s")
    assert scrape("karpenter_nodes_allocatable") == {}
    assert scrape("karpenter_nodes_current_lifetime_seconds") == {}


@stage(objects_too=False)
async def test_gauges_of_single_objects_can_be_left_out(sim: SimCluster, scrape: Scrape) -> None:
    await sim.apply(node_pool(limits={"cpu": "1"}))
    await put(sim, "a")
    text = exposition(scrape.registry).decode()
    assert "karpenter_nodes_" not in text
    assert "karpenter_nodepools_" not in text
    assert scrape("dovetail_node_state") == {"nodepool=default,state=S1": 1}


async def test_only_the_leader_tells(sim: SimCluster, scrape: Scrape) -> None:
    await sim.apply(node_pool())
    scrape.leads = False
    text = exposition(scrape.registry).decode()
    assert "karpenter_cluster_state_synced 1" in text
    assert "dovetail_" not in text
    assert "node_count" not in text
