"""The other actors' decisions, by tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.sim.actors.daemon_set import (
    DaemonEligibility,
    daemon_demand,
    daemon_spec,
    eligible,
    outdated,
    plan,
    target_of,
)
from dovetail.sim.actors.job import Tally, outcome, retry_at, wanted_pods
from dovetail.sim.actors.node_lifecycle import called_for, evicted_at, taints_after
from dovetail.sim.actors.pdb import ControllerScale, NoController, expected_pods, health, pdb_status
from dovetail.sim.actors.pod_life import ends_at, stopped_at
from dovetail.sim.actors.scheduling.fit import NodeUsage
from dovetail.sim.actors.stateful_set import OrdinalAction, OrdinalStep, next_steps, wanted
from dovetail.values.timestamp import format_time
from tests.harness import manifests

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
LONG_AGO = "2026-03-01T00:00:00Z"


def pod(
    name: str,
    *,
    ready: bool = True,
    leaving: bool = False,
    phase: str = "Running",
    node: str = "",
    owner: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": LONG_AGO,
        "labels": labels or {},
        "annotations": annotations or {},
    }
    if leaving:
        meta |= {"deletionTimestamp": format_time(NOW + timedelta(seconds=30)), "deletionGracePeriodSeconds": 30}
    if owner:
        meta["ownerReferences"] = [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
    condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": LONG_AGO}
    status = {"phase": phase, "conditions": [condition], "startTime": LONG_AGO}
    return {"metadata": meta, "spec": {"nodeName": node, "containers": []}, "status": status}


# -- StatefulSet ------------------------------------------------------------------------------------------------------

OLD, NEW = {"controller-revision-hash": "old"}, {"controller-revision-hash": "new"}
CREATE, DELETE = OrdinalAction.CREATE, OrdinalAction.DELETE


@pytest.mark.parametrize(
    ("spec", "pods", "steps"),
    [
        ({"replicas": 2}, {}, [OrdinalStep(CREATE, 0)]),
        ({"replicas": 2, "podManagementPolicy": "Parallel"}, {}, [OrdinalStep(CREATE, 0), OrdinalStep(CREATE, 1)]),
        ({"replicas": 2, "ordinals": {"start": 5}}, {}, [OrdinalStep(CREATE, 5)]),
        ({"replicas": 2}, {0: pod("s-0", ready=False, labels=NEW)}, []),
        ({"replicas": 2}, {0: pod("s-0", leaving=True, labels=NEW)}, []),
        ({"replicas": 2}, {0: pod("s-0", labels=NEW)}, [OrdinalStep(CREATE, 1)]),
        ({"replicas": 2}, {0: pod("s-0", phase="Failed", labels=NEW)}, [OrdinalStep(DELETE, 0)]),
        ({"replicas": 0}, {0: pod("s-0", labels=NEW), 1: pod("s-1", labels=NEW)}, [OrdinalStep(DELETE, 1)]),
        ({"replicas": 0}, {0: pod("s-0", labels=NEW), 1: pod("s-1", leaving=True, labels=NEW)}, []),
        ({"replicas": 2}, {0: pod("s-0", labels=OLD), 1: pod("s-1", labels=OLD)}, [OrdinalStep(DELETE, 1)]),
        ({"replicas": 2}, {0: pod("s-0", labels=OLD), 1: pod("s-1", labels=NEW)}, [OrdinalStep(DELETE, 0)]),
        ({"replicas": 2}, {0: pod("s-0", labels=OLD), 1: pod("s-1", ready=False, labels=NEW)}, []),
        (
            {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}},
            {0: pod("s-0", labels=OLD), 1: pod("s-1", labels=NEW)},
            [],
        ),
        (
            {"replicas": 2, "updateStrategy": {"type": "OnDelete"}},
            {0: pod("s-0", labels=OLD), 1: pod("s-1", labels=OLD)},
            [],
        ),
    ],
)
def test_stateful_set_steps(spec: dict[str, Any], pods: dict[int, Any], steps: list[OrdinalStep]) -> None:
    assert next_steps(wanted(spec), pods, "new", NOW) == steps


# -- DaemonSet --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taint", "answer"),
    [
        (None, DaemonEligibility(run=True, stay=True)),
        (("karpenter.sh/disrupted", "NoSchedule"), DaemonEligibility(run=False, stay=True)),
        (("custom", "NoExecute"), DaemonEligibility(run=False, stay=False)),
        (("custom", "PreferNoSchedule"), DaemonEligibility(run=True, stay=True)),
        (("node.kubernetes.io/unschedulable", "NoSchedule"), DaemonEligibility(run=True, stay=True)),
        (("node.kubernetes.io/not-ready", "NoExecute"), DaemonEligibility(run=True, stay=True)),
        (("node.kubernetes.io/not-ready", "NoSchedule"), DaemonEligibility(run=False, stay=True)),
    ],
)
def test_daemon_eligibility(taint: tuple[str, str] | None, answer: DaemonEligibility) -> None:
    taints = [{"key": taint[0], "effect": taint[1]}] if taint else []
    template = {"spec": manifests.pod_spec()}
    assert eligible(daemon_demand(template), "", NodeUsage(manifests.node("n", taints=taints))) == answer


def test_a_daemon_is_tied_to_its_node_by_name() -> None:
    spec = daemon_spec(manifests.pod_spec(), "n1")
    assert target_of({"spec": spec}) == "n1"
    assert {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"} in spec["tolerations"]


def test_daemon_plan() -> None:
    run, stay, no = (
        DaemonEligibility(run=True, stay=True),
        DaemonEligibility(run=False, stay=True),
        DaemonEligibility(run=False, stay=False),
    )
    pods = [pod("a", node="n1"), pod("b", node="n3"), pod("c", node="n4"), pod("d", node="n5", leaving=True)]
    pods += [pod("e", node="n6", phase="Failed"), pod("f", node="gone")]
    where = {"n1": run, "n2": run, "n3": stay, "n4": no, "n5": run, "n6": run}
    got = plan(where, pods)
    assert got.create == ["n2"]
    assert [one["metadata"]["name"] for one in got.delete] == ["c", "e"]


def test_a_daemon_rollout_replaces_one_at_a_time() -> None:
    where = {f"n{number}": DaemonEligibility(run=True, stay=True) for number in range(3)}
    pods = [pod(f"p{number}", node=f"n{number}", labels=OLD) for number in range(3)]
    assert [one["metadata"]["name"] for one in outdated(where, pods, "new", {}, NOW)] == ["p0"]
    pods[2] = pod("p2", node="n2", labels=NEW, ready=False)
    assert outdated(where, pods, "new", {}, NOW) == []
    assert outdated(where, pods, "new", {"updateStrategy": {"type": "OnDelete"}}, NOW) == []


# -- Job --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "tally", "pods"),
    [
        ({"parallelism": 3, "completions": 5}, Tally(0, 0, 0), 3),
        ({"parallelism": 3, "completions": 5}, Tally(1, 4, 0), 1),
        ({"parallelism": 3, "completions": 5, "suspend": True}, Tally(0, 0, 0), 0),
        ({"parallelism": 3}, Tally(2, 1, 0), 2),
        ({"parallelism": 3}, Tally(2, 0, 0), 3),
    ],
)
def test_wanted_pods(spec: dict[str, Any], tally: Tally, pods: int) -> None:
    assert wanted_pods(spec, tally) == pods


@pytest.mark.parametrize(
    ("spec", "tally", "reason"),
    [
        ({"completions": 2}, Tally(1, 1, 0), None),
        ({"completions": 2}, Tally(0, 2, 0), "CompletionsReached"),
        ({"completions": 2, "backoffLimit": 1}, Tally(0, 0, 1), None),
        ({"completions": 2, "backoffLimit": 1}, Tally(0, 0, 2), "BackoffLimitExceeded"),
        ({"completions": 2, "activeDeadlineSeconds": 60}, Tally(1, 0, 0), "DeadlineExceeded"),
        ({}, Tally(1, 1, 0), None),
        ({}, Tally(0, 1, 0), "CompletionsReached"),
    ],
)
def test_outcome_of_a_job(spec: dict[str, Any], tally: Tally, reason: str | None) -> None:
    found = outcome(spec, tally, NOW - timedelta(seconds=60), NOW)
    assert (found.reason if found else None) == reason


@pytest.mark.parametrize(("failures", "seconds"), [(1, 10), (2, 20), (3, 40), (20, 600)])
def test_job_backoff(failures: int, seconds: int) -> None:
    assert retry_at(failures, NOW) == NOW + timedelta(seconds=seconds)
    assert retry_at(0, NOW) is None


# -- kubelet ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shutdown", "phase", "seconds"),
    [("10s", "Running", 10), ("5m", "Running", 30), ("10s", "Pending", 0), ("bad", "Running", 1)],
)
def test_a_process_ends_within_the_grace(shutdown: str, phase: str, seconds: int) -> None:
    one = pod("p", leaving=True, phase=phase, annotations={"dovetail.dev/shutdown": shutdown})
    assert stopped_at(one, NOW) == NOW + timedelta(seconds=seconds)


def test_a_pre_stop_sleep_counts_inside_the_grace() -> None:
    one = pod("p", leaving=True)
    one["spec"]["containers"] = [{"name": "c", "lifecycle": {"preStop": {"sleep": {"seconds": 20}}}}]
    assert stopped_at(one, NOW) == NOW + timedelta(seconds=21)
    one["spec"]["containers"] = [{"name": "c", "lifecycle": {"preStop": {"sleep": {"seconds": 200}}}}]
    assert stopped_at(one, NOW) == NOW + timedelta(seconds=30)


def test_only_jobs_and_annotated_pods_end_by_themselves() -> None:
    assert ends_at(pod("p")) is None
    assert ends_at(pod("p", annotations={"dovetail.dev/run-for": "1h"})) == datetime(2026, 3, 1, 1, tzinfo=UTC)


# -- node lifecycle ---------------------------------------------------------------------------------------------------


def node(ready: str | None, *, cordoned: bool = False, taints: list[dict[str, str]] | None = None) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    return {
        "metadata": {"name": "n"},
        "spec": {"unschedulable": cordoned, "taints": taints or []},
        "status": {"conditions": conditions},
    }


@pytest.mark.parametrize(
    ("ready", "cordoned", "taints"),
    [
        ("True", False, []),
        (None, False, [("node.kubernetes.io/not-ready", "NoSchedule")]),
        (
            "False",
            False,
            [("node.kubernetes.io/not-ready", "NoSchedule"), ("node.kubernetes.io/not-ready", "NoExecute")],
        ),
        (
            "Unknown",
            False,
            [("node.kubernetes.io/unreachable", "NoSchedule"), ("node.kubernetes.io/unreachable", "NoExecute")],
        ),
        ("True", True, [("node.kubernetes.io/unschedulable", "NoSchedule")]),
    ],
)
def test_taints_by_condition(ready: str | None, cordoned: bool, taints: list[tuple[str, str]]) -> None:
    assert called_for(node(ready, cordoned=cordoned)) == taints


def test_the_taints_of_others_stay() -> None:
    mine, ours = {"key": "mine", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    assert taints_after(node("True", taints=[mine, ours]), NOW) == [mine]


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([{"operator": "Exists"}], None),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": 300}], 300),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": 300}, {"operator": "Exists"}], 300),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": -5}], 0),
        ([{"key": "other", "operator": "Exists"}], 0),
    ],
)
def test_taint_eviction(tolerations: list[dict[str, Any]], seconds: int | None) -> None:
    due = evicted_at(tolerations, [{"key": "k", "effect": "NoExecute"}], NOW)
    assert due == (None if seconds is None else NOW + timedelta(seconds=seconds))


# -- PodDisruptionBudget ----------------------------------------------------------------------------------------------


def test_expected_pods_are_what_the_controllers_want() -> None:
    pods = [pod("a", owner="rs1"), pod("b", owner="rs1"), pod("c", owner="rs2"), pod("bare")]
    scales = {"rs1": ControllerScale("deploy", 7), "rs2": ControllerScale("deploy", 7)}
    assert expected_pods(pods, scales) == 7
    with pytest.raises(NoController, match='found no controllers for pod "d"'):
        expected_pods([pod("d", owner="job")], scales)


def test_health_and_pods_about_to_go() -> None:
    fresh, stale = format_time(NOW - timedelta(minutes=1)), format_time(NOW - timedelta(minutes=3))
    pods = [pod("a"), pod("b"), pod("c"), pod("d", leaving=True), pod("e", ready=False)]
    found = health(pods, {"b": fresh, "c": stale, "d": fresh}, NOW)
    assert (found.healthy, found.disrupted) == (2, {"b": fresh})
    assert found.recheck_at == NOW + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("spec", "expected", "healthy", "allowed", "desired"),
    [
        ({"maxUnavailable": 1}, 3, 3, 1, 2),
        ({"maxUnavailable": "30%"}, 10, 9, 2, 7),
        ({"minAvailable": 2}, 3, 3, 1, 2),
        ({"minAvailable": "50%"}, 5, 5, 2, 3),
        ({"minAvailable": 1}, 0, 0, 0, 1),
    ],
)
def test_pdb_status(spec: dict[str, Any], expected: int, healthy: int, allowed: int, desired: int) -> None:
    pdb = manifests.pdb("web", **spec)
    pdb["metadata"] |= {"namespace": "default", "generation": 4}
    got = pdb_status(pdb, expected=expected, pod_health=health([pod(str(n)) for n in range(healthy)], {}, NOW), now=NOW)
    assert (got["disruptionsAllowed"], got["desiredHealthy"], got["expectedPods"]) == (allowed, desired, expected)
    assert got["observedGeneration"] == 4
    assert got["conditions"][0]["reason"] == ("SufficientPods" if allowed else "InsufficientPods")
