"""Is everything served that 04 §3 names, and under no name that it does not know?"""

from typing import Any

from dovetail.api.names import DO_NOT_DISRUPT
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.metrics.cluster import ClusterMetrics
from dovetail.controllers.metrics.pool_costs import PoolCosts
from dovetail.observe.metrics import Metrics
from dovetail.ports import PODS, CloudProvider, Delete
from dovetail.runtime.manager import Controller
from tests.harness.metrics_text import exposition
from tests.harness.running import Program
from tests.harness.stage import stage
from tests.harness.termination import Setting, play


def of(prefix: str, names: str) -> set[str]:
    return {f"{prefix}_{name}" for name in names.split()}


STATUS_COUNTS = "status_condition_transitions_total status_condition_transition_seconds termination_duration_seconds"
STATUS_GAUGES = "status_condition_count status_condition_current_status_seconds termination_current_time_seconds"
SERVED = (
    of(
        "karpenter_nodeclaims",
        "created_total disrupted_total terminated_total termination_duration_seconds "
        "instance_termination_duration_seconds unhealthy_disrupted_total",
    )
    | of(
        "karpenter_nodes",
        "created_total terminated_total drained_total termination_duration_seconds lifetime_duration_seconds "
        "allocatable total_pod_requests total_pod_limits total_daemon_requests total_daemon_limits system_overhead "
        "current_lifetime_seconds",
    )
    | of(
        "karpenter_nodepools",
        "allowed_disruptions nodes_consuming_budgets limit usage cost_total cost_tracker_errors_total",
    )
    | of(
        "karpenter_pods",
        "disruption_initiated_total drained_total eviction_requests_total startup_duration_seconds "
        "bound_duration_seconds scheduling_decision_duration_seconds provisioning_bound_duration_seconds "
        "provisioning_startup_duration_seconds",
    )
    | of(
        "karpenter_scheduler",
        "scheduling_duration_seconds queue_depth unfinished_work_seconds ignored_pods_count unschedulable_pods_count "
        "pending_pods_by_effective_zone_count",
    )
    | of("karpenter_cluster", "state_node_count state_synced state_unsynced_time_seconds utilization_percent")
    | of("karpenter_cloudprovider", "duration_seconds errors_total")
    | {"karpenter_build_info"}
    | {
        name
        for kind in ("operator_nodeclaim", "operator_nodepool", "operator_node")
        for name in of(kind, f"{STATUS_COUNTS} {STATUS_GAUGES}")
    }
    | of("operator", STATUS_COUNTS)
    | of("controller_runtime", "reconcile_total reconcile_errors_total reconcile_time_seconds")
    | of(
        "workqueue",
        "depth adds_total retries_total queue_duration_seconds work_duration_seconds unfinished_work_seconds "
        "longest_running_processor_seconds",
    )
    | {"rest_client_requests_total", "leader_election_master_status"}
    | {"process_resident_memory_bytes", "process_cpu_seconds_total"}
)
# Decisions of the disruption engine (04 §3.4).
LATER = of(
    "karpenter_voluntary_disruption",
    "decision_evaluation_duration_seconds decisions_total decisions_by_nodepool_total eligible_nodes "
    "consolidation_timeouts_total failed_validations_total queue_failures_total",
) | of("karpenter_consolidation", "score moves_total")
# They have a series for each pod (R37), or are the same series under a deprecated name.
LEFT_OUT = of(
    "karpenter_pods",
    "state unstarted_time_seconds unbound_time_seconds provisioning_unbound_time_seconds "
    "provisioning_unstarted_time_seconds provisioning_scheduling_undecided_time_seconds",
) | of("operator", STATUS_GAUGES)
# Ours alone (R40, and what 04 §3.6 leaves to us).
OURS = of(
    "dovetail",
    "protected_pods nodes_blocked blocked_node_seconds_total node_state forced_pods_total invalid_annotations_total "
    "next_unblock_timestamp_seconds unsupported_pods events_total undecodable_objects_total "
    "failures_total event_loop_late_seconds_max",
)


def served() -> dict[str, str]:
    """The type of each metric that a running program tells, by its name."""
    found: dict[str, str] = {}

    def more(program: Program, provider: CloudProvider, metrics: Metrics) -> list[Controller]:
        prices = PoolCosts(program.cluster, InstanceTypeSource(program.cluster, provider, keep_seconds=300), metrics)
        metrics.registry.register(ClusterMetrics(program.cluster, program.sim.clock, leads=lambda: True, prices=prices))
        metrics.read_events(dict)
        metrics.read_failures(dict)
        metrics.read_undecodable(dict)
        metrics.read_requests(dict)
        return [prices]

    async def scenario(setting: Setting) -> None:
        await setting.launch()
        for line in exposition(setting.metrics.registry).decode().splitlines():
            if line.startswith("# TYPE "):
                name, type_ = line.removeprefix("# TYPE ").split()
                found[name] = type_

    play(scenario, more=more)
    return found


def test_every_name_is_served_or_said_to_come() -> None:
    names = served().keys()
    assert SERVED - names == set()
    assert OURS - names == set()
    assert names & (LATER | LEFT_OUT) == set()


def test_no_other_names_are_made_up() -> None:
    known = SERVED | OURS
    others = [name for name in served() if name not in known and not name.startswith("process_")]
    assert others == []


def test_what_kind_of_metric_each_is() -> None:
    types = served()
    for name in SERVED:
        if name == "karpenter_nodepools_cost_total":  # upstream's name, though it goes up and down
            assert types[name] == "gauge"
        elif name.endswith("_total"):
            assert types[name] == "counter", name
        elif name.endswith(("_duration_seconds", "_transition_seconds", "_reconcile_time_seconds")):
            assert types[name] in ("histogram", "summary"), name
        else:
            assert types[name] == "gauge", name
    summaries = {name for name, type_ in types.items() if type_ == "summary"}
    assert summaries == {
        "karpenter_nodes_termination_duration_seconds",
        "karpenter_pods_startup_duration_seconds",
    }


def cluster_metrics(program: Program, _provider: CloudProvider, metrics: Metrics) -> list[Controller]:
    metrics.registry.register(ClusterMetrics(program.cluster, program.sim.clock, leads=lambda: True))
    return []


def conspicuous_pod(name: str, **annotations: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "conspicuous-namespace", "labels": {"app": "conspicuous-app"}}
    spec = {"containers": [{"name": "main", "image": "x"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta | {"annotations": annotations}, "spec": spec}


@stage(play, more=cluster_metrics)
async def test_no_label_holds_the_name_or_namespace_of_a_pod(setting: Setting) -> None:
    """R37, R49: metrics are served without a token. The names of nodes, claims and pools are few enough."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "conspicuous-namespace"}}
    pdb = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "conspicuous-pdb", "namespace": "conspicuous-namespace"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "conspicuous-app"}}},
    }
    await setting.sim.apply(namespace)
    await setting.sim.apply(pdb)
    unreadable = conspicuous_pod("conspicuous-2", **{DO_NOT_DISRUPT: "unreadable"})
    await setting.launch(pods=[conspicuous_pod("conspicuous-1"), unreadable])
    await setting.delete_claim()
    await setting.sim.run_for("1m")
    text = exposition(setting.metrics.registry).decode()  # one is evicted, the other blocked
    assert 'karpenter_pods_eviction_requests_total{code="200"} 1' in text
    assert 'dovetail_invalid_annotations_total{annotation="karpenter.sh/do-not-disrupt"} 1' in text
    assert 'dovetail_protected_pods{protection="pdb",state="active"} 1' in text
    assert "conspicuous" not in text
    await setting.sim.api.write(Delete(PODS, "conspicuous-2", namespace="conspicuous-namespace"))
    await setting.sim.wait_until(lambda: setting.claim() is None)
    assert "conspicuous" not in exposition(setting.metrics.registry).decode()
