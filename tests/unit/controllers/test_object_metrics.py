"""Gauges and counters of single objects, as a scrape shows them: pods' requests, prices, conditions, times (04 §3).
With all controllers running where they have a part in it."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.objects import NodePool
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.metrics.cluster import ClusterMetrics
from dovetail.controllers.metrics.pool_costs import PoolCosts
from dovetail.model.instance_types import TypeCatalogue
from dovetail.observe.metrics import Metrics
from dovetail.ports import (
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PODS,
    CloudError,
    CloudProvider,
    Delete,
    Patch,
    Unavailable,
)
from dovetail.providers.catalogue import built_in
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.wire import RUN_FOR, START_DELAY
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.claims import condition, node, node_claim, node_class, node_pool, put_status
from tests.harness.manifests import Manifest
from tests.harness.metrics_text import exposition
from tests.harness.running import Program
from tests.harness.stage import gives, stage
from tests.harness.termination import INSTANCE_TYPE, Setting, counted, play

MEBI = 2**20
Scenario = Callable[[Setting], Coroutine[Any, Any, None]]


def more(program: Program, provider: CloudProvider, metrics: Metrics) -> list[Controller]:
    """What `dovetail run` puts beside the controllers."""
    prices = PoolCosts(program.cluster, InstanceTypeSource(program.cluster, provider, keep_seconds=300), metrics)
    metrics.registry.register(ClusterMetrics(program.cluster, program.sim.clock, leads=lambda: True, prices=prices))
    return [prices]


@gives("setting")
def measured(scenario: Scenario, **options: Any) -> None:
    play(scenario, more=more, **options)


pytestmark = stage(measured)


def series(setting: Setting, metric: str, /, *, of: Sequence[str] = (), **labels: str) -> dict[str, float]:
    """The series of this name that have these labels, by their other labels `of`."""
    found = {}
    for line in exposition(setting.metrics.registry).decode().splitlines():
        text, _, value = line.rpartition(" ")
        start, _, rest = text.partition("{")
        if start != metric:
            continue
        pairs = dict(pair.split("=", 1) for pair in rest.rstrip("}").replace('"', "").split(",") if pair)
        if labels.items() <= pairs.items():
            found[",".join(pairs[key] for key in of)] = float(value)
    return found


def limited(name: str, *, cpu: str, limit: str, **spec: Any) -> Manifest:
    made = manifests.pod(name, cpu=cpu, memory="64Mi", **spec)
    made["spec"]["containers"][0]["resources"]["limits"] = {"cpu": limit}
    return made


# -- what pods request (04 §3.2) ---------------------------------------------------------------------------------------

REQUESTS, LIMITS = "karpenter_nodes_total_pod_requests", "karpenter_nodes_total_pod_limits"
DAEMON_REQUESTS, DAEMON_LIMITS = "karpenter_nodes_total_daemon_requests", "karpenter_nodes_total_daemon_limits"
RESOURCE = ("resource_type",)


async def test_requests_and_limits_of_the_pods_of_a_node(setting: Setting) -> None:
    found = await setting.launch(
        pods=[limited("a", cpu="250m", limit="1"), limited("b", cpu="500m", limit="2"), manifests.pod("c")]
    )
    here = {"node_name": found, "managed": "true"}
    assert series(setting, REQUESTS, of=RESOURCE, **here) == {"cpu": 0.85, "memory": 256 * MEBI, "pods": 3}
    assert series(setting, LIMITS, of=RESOURCE, **here) == {"cpu": 3}
    assert series(setting, DAEMON_REQUESTS, of=RESOURCE, **here) == {}
    await setting.sim.api.write(Delete(PODS, "b", namespace="default", grace_seconds=0))
    await setting.sim.run_for("1s")
    assert series(setting, REQUESTS, of=RESOURCE, **here) == {"cpu": 0.35, "memory": 192 * MEBI, "pods": 2}
    assert series(setting, LIMITS, of=RESOURCE, **here) == {"cpu": 1}
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.gone(NODES, found))
    await setting.sim.run_for("1s")
    for name in (REQUESTS, LIMITS, "karpenter_nodes_allocatable", "karpenter_nodes_current_lifetime_seconds"):
        assert series(setting, name, of=RESOURCE if name != "karpenter_nodes_current_lifetime_seconds" else ()) == {}


async def test_pods_of_daemon_sets_count_twice_and_finished_ones_not_at_all(setting: Setting) -> None:
    done = manifests.pod("done", cpu="1", annotations={RUN_FOR: "1s"}, restartPolicy="Never")
    found = await setting.launch(pods=[manifests.pod("web", cpu="1")])
    await setting.sim.apply(manifests.workload("DaemonSet", "logs", cpu="100m", memory="32Mi"))
    await setting.sim.wait_until(lambda: bool(setting.sim.pods(app="logs", ready=True)))
    await setting.bind(found, done)
    await setting.sim.run_for("10s")
    here = {"node_name": found}
    assert series(setting, REQUESTS, of=RESOURCE, **here)["cpu"] == pytest.approx(1.1)
    assert series(setting, DAEMON_REQUESTS, of=RESOURCE, **here) == {"cpu": 0.1, "memory": 32 * MEBI, "pods": 1}
    assert series(setting, DAEMON_LIMITS, of=RESOURCE, **here) == {}


async def test_labels_of_a_node_that_change_change_those_of_its_pods_sums(setting: Setting) -> None:
    found = await setting.launch(pods=[manifests.pod("web", cpu="1")])
    assert series(setting, REQUESTS, node_name=found, resource_type="cpu", zone="elsewhere") == {}
    await setting.sim.api.write(Patch(NODES, found, {"metadata": {"labels": {names.ZONE_LABEL: "elsewhere"}}}))
    await setting.sim.run_for("1s")
    assert series(setting, REQUESTS, node_name=found, resource_type="cpu", zone="elsewhere") == {"": 1}


async def test_how_much_of_the_cluster_is_used(setting: Setting) -> None:
    utilization = "karpenter_cluster_utilization_percent"
    for name in ("n1", "n2"):
        await setting.sim.apply(node(name))  # 4 cpu each
    await setting.sim.run_for("2s")
    assert series(setting, utilization, of=RESOURCE)["cpu"] == 0
    await setting.bind("n1", manifests.pod("a", cpu="3"))
    await setting.bind("n2", manifests.pod("b", cpu="1"))
    await setting.sim.run_for("2s")
    assert series(setting, utilization, of=RESOURCE)["cpu"] == 50
    assert "example.com/none" not in series(setting, utilization, of=RESOURCE)


async def test_a_request_that_cannot_be_read_counts_as_nothing(setting: Setting) -> None:
    pod = manifests.pod("web", cpu="1")
    pod["spec"]["containers"][0]["resources"]["requests"]["example.com/odd"] = str(2**70)
    found = await setting.launch(pods=[pod, manifests.pod("other", cpu="1")])
    assert series(setting, REQUESTS, of=RESOURCE, node_name=found)["cpu"] == 1


# -- what pools cost (04 §3.3) -----------------------------------------------------------------------------------------

COST = "karpenter_nodepools_cost_total"


def price_of(setting: Setting, claim: str) -> float:
    found = setting.claim(claim)
    assert found is not None
    labels = found["metadata"]["labels"]
    wanted = {labels[names.ZONE_LABEL], labels[names.CAPACITY_TYPE_LABEL]}
    (type_,) = (each for each in built_in() if each.name == INSTANCE_TYPE)
    (offering,) = (
        each for each in type_.offerings if {each.requirements[0].values[0], each.requirements[1].values[0]} == wanted
    )
    return offering.price


async def test_a_pool_costs_what_its_claims_do(setting: Setting) -> None:
    await setting.sim.apply(node_class(), node_pool(), node_pool("idle"))
    await setting.sim.run_for("1s")
    assert series(setting, COST, of=("nodepool",)) == {"default": 0, "idle": 0}
    await setting.launch("c1")
    await setting.launch("c2")
    both = price_of(setting, "c1") + price_of(setting, "c2")
    assert series(setting, COST, of=("nodepool",)) == {"default": pytest.approx(both), "idle": 0}
    await setting.delete_claim("c2")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c2"))
    await setting.sim.run_for("1s")
    assert series(setting, COST, of=("nodepool",))["default"] == pytest.approx(price_of(setting, "c1"))
    await setting.sim.api.write(Delete(NODEPOOLS, "idle"))
    await setting.sim.run_for("1s")
    assert list(series(setting, COST, of=("nodepool",))) == ["default"]


async def test_a_machine_without_a_price_costs_nothing(setting: Setting) -> None:
    await setting.sim.apply(node_class(), node_pool())
    labels = {names.INSTANCE_TYPE_LABEL: "unheard-of", names.ZONE_LABEL: "z", names.CAPACITY_TYPE_LABEL: "spot"}
    claim = node_claim("odd", requirements=[{"key": "a", "operator": "In", "values": ["nowhere"]}])
    claim["metadata"]["labels"] |= labels
    await setting.sim.apply(claim)
    assert series(setting, COST, of=("nodepool",)) == {"default": 0}


class Dear(KwokProvider):
    """A provider whose prices rise, and which does not always say them."""

    asked = 0
    silent = False

    async def instance_types(self, pool: NodePool) -> TypeCatalogue:
        self.asked += 1
        if self.silent:
            raise CloudError("try later")
        return await super().instance_types(pool)


@stage(provider_of=Dear)
async def test_prices_are_asked_for_every_hour_and_kept_if_there_is_no_answer(setting: Setting) -> None:
    provider = setting.provider
    assert isinstance(provider, Dear)
    await setting.sim.apply(node_class(), node_pool())
    await setting.launch("c1")
    cost = series(setting, COST, of=("nodepool",))
    assert cost["default"] > 0
    await setting.sim.run_for("55m")
    assert provider.asked == 1
    provider.silent = True
    await setting.sim.run_for("10m")
    assert provider.asked > 2
    assert counted(setting.metrics.nodepools_cost_errors, nodepool="default") > 1
    assert series(setting, COST, of=("nodepool",)) == cost


# -- conditions (04 §3.6) ----------------------------------------------------------------------------------------------

COUNT, CURRENT = "status_condition_count", "status_condition_current_status_seconds"
CONDITION = ("type", "status")


async def test_conditions_of_claims_nodes_and_pools(setting: Setting) -> None:
    await setting.sim.apply(node_class(), node_pool())
    found = await setting.launch("c1")
    await setting.sim.run_for("100s")
    ours = {"karpenter_sh_nodepool": "default", "karpenter_kwok_sh_kwoknodeclass": "default"}
    conditions = series(setting, f"operator_nodeclaim_{COUNT}", of=CONDITION, name="c1", **ours)
    assert conditions.items() >= dict.fromkeys(["Launched,True", "Ready,True", "Initialized,True"], 1).items()
    assert series(setting, f"operator_nodepool_{COUNT}", name="default", type="Ready", status="True") == {"": 1}
    nodes = series(setting, f"operator_node_{COUNT}", name=found, type="Ready", karpenter_sh_initialized="true", **ours)
    assert nodes == {"": 1}
    ages = series(setting, f"operator_nodeclaim_{CURRENT}", of=CONDITION, name="c1", reason="Launched")
    assert ages["Launched,True"] == pytest.approx(100, abs=10)
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"))
    await setting.sim.run_for("1s")
    for what in (COUNT, CURRENT, "termination_current_time_seconds"):
        for kind in ("operator_nodeclaim", "operator_node"):
            assert series(setting, f"{kind}_{what}", name="c1") == {}
            assert series(setting, f"{kind}_{what}", name=found) == {}


async def test_transitions_are_counted_with_how_long_the_old_status_lasted(setting: Setting) -> None:
    await setting.sim.apply(node_class(), node_pool())
    await setting.launch("c1")
    counts = "operator_nodeclaim_status_condition_transitions_total"
    seconds = "operator_nodeclaim_status_condition_transition_seconds"
    assert series(setting, counts, of=CONDITION, karpenter_sh_nodepool="default") == {
        "Registered,True": 1,
        "Initialized,True": 1,
        "Ready,True": 1,
    }
    assert series(setting, f"{seconds}_count", of=CONDITION) == {
        "Registered,Unknown": 1,
        "Initialized,Unknown": 1,
        "Ready,Unknown": 1,
    }
    assert series(setting, "operator_status_condition_transitions_total", kind="NodeClaim", type="Ready") == {"": 1}
    bounds = series(setting, f"{seconds}_bucket", of=("le",), type="Ready")
    assert list(bounds) == [*(f"{0.5 * 2**n:g}" for n in range(15)), "+Inf"]


async def test_how_long_a_status_lasted_is_told_by_the_conditions_themselves(setting: Setting) -> None:
    await setting.sim.apply(node_pool())
    for status, at in (("False", "2026-03-01T00:00:00Z"), ("True", "2026-03-01T00:01:30Z")):
        await put_status(
            setting.sim, NODEPOOLS, "default", {"conditions": [condition("Odd", status, lastTransitionTime=at)]}
        )
        await setting.sim.run_for("1s")
    seconds = "operator_nodepool_status_condition_transition_seconds"
    assert series(setting, f"{seconds}_sum", of=CONDITION, type="Odd") == {"Odd,False": 90}


async def test_how_long_objects_take_to_go(setting: Setting) -> None:
    guarded = manifests.pod("web", annotations={names.DO_NOT_DISRUPT: "1h"})
    found = await setting.launch("c1", pods=[guarded])
    await setting.delete_claim()
    await setting.sim.run_for("10m")
    for kind, name in (("nodeclaim", "c1"), ("node", found)):
        going = series(setting, f"operator_{kind}_termination_current_time_seconds", name=name)
        assert going == {"": pytest.approx(600, abs=2)}
        assert series(setting, f"operator_{kind}_termination_duration_seconds_count") == {}
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"), timeout="2h")
    await setting.sim.run_for("1s")
    for kind in ("operator_nodeclaim", "operator_node", "operator"):
        took = series(setting, f"{kind}_termination_duration_seconds_sum")
        assert took == {"": pytest.approx(3600, abs=20)}
        assert series(setting, f"{kind}_termination_current_time_seconds") == {}


async def test_objects_of_others_are_theirs_to_tell(setting: Setting) -> None:
    theirs = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    foreign = node("n1")
    del foreign["metadata"]["labels"][names.KWOK_NODECLASS_LABEL]
    await setting.sim.apply(
        foreign, node_claim("c1", nodeClassRef=theirs), node_pool(template={"nodeClassRef": theirs})
    )
    for kind, name in ((NODECLAIMS, "c1"), (NODEPOOLS, "default")):
        for status in ("Unknown", "True"):
            await put_status(setting.sim, kind, name, {"conditions": [condition("Ready", status)]})
            await setting.sim.run_for("1s")
    assert not any(line.startswith("operator_") for line in exposition(setting.metrics.registry).decode().splitlines())


# -- pods (04 §3.5) ----------------------------------------------------------------------------------------------------


async def test_how_long_pods_take_to_be_bound_and_to_run(setting: Setting) -> None:
    await setting.sim.apply(manifests.pod("web", annotations={START_DELAY: "20s"}))
    await setting.sim.run_for("60s")
    assert series(setting, "karpenter_pods_bound_duration_seconds_count") == {"": 0}
    await setting.sim.apply(node("n1"))
    await setting.sim.wait_until(lambda: setting.runs("web"), timeout="5m")
    bound = series(setting, "karpenter_pods_bound_duration_seconds_sum")[""]
    started = series(setting, "karpenter_pods_startup_duration_seconds_sum")[""]
    assert bound == pytest.approx(60, abs=15)
    assert started == pytest.approx(bound + 20, abs=2)
    assert series(setting, "karpenter_pods_startup_duration_seconds", quantile="0.5") == {"": started}
    # What was there before us is not counted.
    await setting.program.restart()
    await setting.sim.run_for("1m")
    assert series(setting, "karpenter_pods_bound_duration_seconds_count") == {"": 0}


# -- queues (04 §3.6) --------------------------------------------------------------------------------------------------


@stage(cloud=True)
async def test_what_waits_and_what_is_in_work(setting: Setting) -> None:
    lifecycle = {"name": "nodeclaim.lifecycle", "controller": "nodeclaim.lifecycle"}
    slow = Fault(delay_seconds=30)
    setting.sim.server.faults.add(slow, verb="patch", resource=NODECLAIMS, client=names.COMPONENT)
    await setting.want()
    await setting.sim.run_for("10s")
    for name in ("workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds"):
        assert series(setting, name, **lifecycle) == {"": pytest.approx(10, abs=1)}
    await setting.sim.run_for("60s")
    for name in ("workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds"):
        assert series(setting, name, **lifecycle) == {"": 0}
    handed_out = series(setting, "workqueue_queue_duration_seconds_count", **lifecycle)[""]
    assert handed_out == series(setting, "workqueue_work_duration_seconds_count", **lifecycle)[""]
    assert handed_out <= series(setting, "workqueue_adds_total", **lifecycle)[""]
    assert series(setting, "workqueue_work_duration_seconds_sum", **lifecycle)[""] >= 30
    assert series(setting, "workqueue_retries_total", **lifecycle) == {}


async def test_failed_attempts_are_retries(setting: Setting) -> None:
    setting.sim.server.faults.add(Fault(error=Unavailable("down")), verb="patch", resource=NODECLAIMS, times=3)
    await setting.launch()
    retries = series(setting, "workqueue_retries_total", of=("name",))
    assert sum(retries.values()) == 3
