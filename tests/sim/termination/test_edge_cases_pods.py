"""03 §10, 21 to 37: which pods does a drain wait for, which does it evict, and when? With all controllers running."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.ports import NODES, PDBS, PODS, Delete, Unavailable
from dovetail.sim.actors.cluster import START
from dovetail.sim.actors.wire import EXIT_CODE, RUN_FOR, SHUTDOWN, uid_of
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.manifests import Manifest
from tests.harness.stage import stage
from tests.harness.termination import (
    FOR_EVER,
    GUARDED,
    Setting,
    attach,
    claimed_volume,
    counted,
    is_deleting,
    play,
    volume_claim,
)

pytestmark = stage(play)

LEAST_DRAIN = 5  # seconds
GRACE = timedelta(seconds=30)  # of a pod that says nothing else
CRITICAL = "system-cluster-critical"


def slow(seconds: int, **annotations: str) -> dict[str, str]:
    """The annotations of a pod that takes so long to end."""
    return {SHUTDOWN: f"{seconds}s", **annotations}


def of_app(pod: Manifest, app: str) -> Manifest:
    return {**pod, "metadata": {**pod["metadata"], "labels": {"app": app}}}


def held(name: str, **spec: Any) -> Manifest:
    """A pod that stays until a finalizer of somebody else's is gone."""
    pod = manifests.pod(name, **spec)
    return {**pod, "metadata": {**pod["metadata"], "finalizers": ["example.com/hold"]}}


def daemons(name: str, **options: Any) -> Manifest:
    return manifests.workload("DaemonSet", name, **options)


async def run_daemons(setting: Setting, *sets: Manifest) -> None:
    await setting.sim.apply(*sets)
    apps = [each["metadata"]["name"] for each in sets]
    await setting.sim.wait_until(lambda: all(setting.sim.pods(app=app, ready=True) for app in apps))


def pod_of(setting: Setting, app: str) -> str:
    (pod,) = setting.sim.pods(app=app)
    return str(pod["metadata"]["name"])


def stays(setting: Setting, app: str) -> bool:
    """Whether the app's pod runs and nobody has asked it to go."""
    return setting.runs(pod_of(setting, app))


async def replace(setting: Setting, pod: Manifest, node: str) -> None:
    """Have the pod gone at once, and another of its name run on the node."""
    name = pod["metadata"]["name"]
    await setting.sim.api.write(Delete(PODS, name, namespace="default", grace_seconds=0))
    await setting.bind(node, pod)


# -- who is waited for (21–25) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_code", ["0", "1"])
async def test_finished_pods_never_delay(setting: Setting, exit_code: str) -> None:
    """03 §10.21."""
    done = manifests.pod("done", annotations={**GUARDED, RUN_FOR: "1s", EXIT_CODE: exit_code}, restartPolicy="Never")
    node = await setting.launch(pods=[done])
    await setting.sim.run_for("5s")
    found = setting.pod("done")
    assert found is not None
    assert found["status"]["phase"] == ("Succeeded" if exit_code == "0" else "Failed")
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == LEAST_DRAIN
    assert setting.tried_to_evict() == []
    assert setting.requests("delete", PODS) == []


def mirror(name: str, node: Manifest) -> Manifest:
    """A static pod as its kubelet shows it to the server."""
    pod = manifests.pod(name, annotations={**GUARDED, names.STATIC_POD_MIRROR: "0123"})
    owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": uid_of(node)}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [{**owner, "controller": True}]}}


@pytest.mark.parametrize("grace_period", [None, "0s", "1h"])
async def test_mirror_pods_are_neither_evicted_nor_waited_for(setting: Setting, grace_period: str | None) -> None:
    """03 §10.22."""
    period: dict[str, Any] = {} if grace_period is None else {"terminationGracePeriod": grace_period}
    node = await setting.launch(**period)
    found = setting.node(node)
    assert found is not None
    await setting.bind(node, mirror("static", dict(found)))
    await setting.delete_claim()
    expected = 0 if grace_period == "0s" else LEAST_DRAIN
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == expected
    assert setting.tried_to_evict() == []
    assert setting.requests("delete", PODS) == []


@pytest.mark.parametrize(
    "toleration",
    [
        pytest.param({"key": names.DISRUPTED_TAINT, "operator": "Equal", "effect": "NoSchedule"}, id="Equal"),
        pytest.param({"key": names.DISRUPTED_TAINT, "operator": "Exists"}, id="Exists"),
        pytest.param({"operator": "Exists"}, id="everything"),
    ],
)
@pytest.mark.parametrize("grace_period", [None, "1h"])
async def test_pods_that_tolerate_the_taint_stay_and_so_do_their_volumes(
    setting: Setting, toleration: dict[str, str], grace_period: str | None
) -> None:
    """03 §10.23."""
    agent = manifests.pod("agent", tolerations=[toleration], volumes=[claimed_volume("data", "data")])
    await setting.sim.apply(volume_claim("data", "pv-1"))
    period: dict[str, Any] = {} if grace_period is None else {"terminationGracePeriod": grace_period}
    node = await setting.launch(pods=[agent], **period)
    await attach(setting, "disk", node, "pv-1")
    await setting.delete_claim()
    await setting.run_until(setting.now() + timedelta(seconds=LEAST_DRAIN - 1))
    assert setting.runs("agent")
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 1
    assert setting.tried_to_evict() == []
    assert setting.requests("delete", PODS) == []


async def test_ephemeral_volumes_of_pods_that_tolerate_the_taint_stay(setting: Setting) -> None:
    """03 §10.23."""
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
    agent = manifests.pod("agent", tolerations=[{"operator": "Exists"}], volumes=[scratch])
    await setting.sim.apply(volume_claim("agent-scratch", "pv-1"))
    node = await setting.launch(pods=[agent])
    await attach(setting, "disk", node, "pv-1")
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == LEAST_DRAIN


async def test_a_pod_that_tolerates_only_unschedulable_nodes_is_evicted(setting: Setting) -> None:
    """03 §10.24."""
    toleration = {"key": names.UNSCHEDULABLE_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    node = await setting.launch(pods=[manifests.pod("web", tolerations=[toleration], annotations=slow(9))])
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 9
    assert len(setting.tried_to_evict("web")) == 1


async def test_a_pod_without_an_owner_is_evicted(setting: Setting) -> None:
    """03 §10.25."""
    node = await setting.launch(pods=[manifests.pod("bare")])
    deleted_at = setting.now()
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.gone(NODES, node))
    assert setting.tried_to_evict("bare") == [deleted_at]
    (event,) = setting.events(EventReason.EVICTED, "bare")
    assert event["note"] == "Evicted pod: Forceful Termination"


# -- in which order (26–28) -------------------------------------------------------------------------------------------


async def test_a_group_is_left_alone_until_the_one_before_is_gone(setting: Setting) -> None:
    """03 §10.26."""
    ends: dict[str, Any] = {"annotations": slow(30), "terminationGracePeriodSeconds": 60}
    ordinary = manifests.pod("ordinary", **ends)
    critical = manifests.pod("critical", priorityClassName=CRITICAL, **ends)
    node = await setting.launch(pods=[ordinary, critical])
    await run_daemons(setting, daemons("daemon", **ends))
    await run_daemons(setting, daemons("core", priorityClassName="system-node-critical", **ends))
    order = ["ordinary", pod_of(setting, "daemon"), "critical", pod_of(setting, "core")]
    deleted_at = setting.now()
    await setting.delete_claim()
    for turn in range(4):
        await setting.run_until(deleted_at + timedelta(seconds=30 * turn + 29))
        going = [is_deleting(setting.pod(name)) for name in order]
        assert going == [place == turn for place in range(4)]
        assert [setting.pod(name) is None for name in order] == [place < turn for place in range(4)]
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="2s")
    tries = [setting.tried_to_evict(name) for name in order]
    assert tries == [[deleted_at + timedelta(seconds=30 * turn)] for turn in range(4)]


async def test_pods_are_critical_by_the_name_of_their_class_and_not_by_its_value(setting: Setting) -> None:
    """03 §10.26."""
    await setting.sim.apply(manifests.priority_class("important", value=1_000_000_000))
    important = manifests.pod("important", priorityClassName="important", annotations=slow(20))
    node = await setting.launch(pods=[important, manifests.pod("web", annotations=slow(20))])
    deleted_at = setting.now()
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.gone(NODES, node))
    assert [setting.tried_to_evict(name) for name in ("important", "web")] == [[deleted_at], [deleted_at]]


@pytest.mark.parametrize("end", ["expiry", "removal", "deadline"])
async def test_a_protected_pod_of_the_first_group_holds_back_the_others(setting: Setting, end: str) -> None:
    """03 §10.27."""
    protection = {names.DO_NOT_DISRUPT: "10m" if end == "expiry" else "true"}
    short: dict[str, Any] = {"terminationGracePeriodSeconds": 10}
    period: dict[str, Any] = {"terminationGracePeriod": "10m"} if end == "deadline" else {}
    node = await setting.launch(pods=[manifests.pod("critical", priorityClassName=CRITICAL, **short)], **period)
    await run_daemons(setting, daemons("daemon", **short))
    created_at = setting.now()
    await setting.bind(node, manifests.pod("web", annotations=protection))
    daemon, deleted_at = pod_of(setting, "daemon"), setting.now()
    ends_at = {
        "expiry": created_at + timedelta(minutes=10),
        "removal": deleted_at + timedelta(minutes=5),
        "deadline": deleted_at + timedelta(minutes=10) - GRACE,
    }[end]
    await setting.delete_claim()
    await setting.run_until(ends_at - timedelta(seconds=1))
    assert all(setting.runs(name) for name in ("web", daemon, "critical"))
    assert setting.tried_to_evict() == []
    if end == "removal":
        await setting.run_until(ends_at)
        await setting.annotate(PODS, "web", {names.DO_NOT_DISRUPT: None})
    await setting.run_past(ends_at)
    assert is_deleting(setting.pod("web"))
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="5s")
    assert setting.tried_to_evict("web") == ([] if end == "deadline" else [ends_at])
    # One second for each group to end, also for what is deleted for the deadline (03 §4.4).
    assert setting.tried_to_evict(daemon) == [ends_at + timedelta(seconds=1)]
    assert setting.tried_to_evict("critical") == [ends_at + timedelta(seconds=2)]


async def test_a_budget_holds_back_later_groups_but_no_forced_deletion(setting: Setting) -> None:
    """03 §10.28."""
    patient: dict[str, Any] = {"terminationGracePeriodSeconds": 600}
    pods = [manifests.pod("web"), manifests.pod("critical", priorityClassName=CRITICAL, **patient)]
    node = await setting.launch(pods=pods, terminationGracePeriod="15m")
    await run_daemons(setting, daemons("daemon"), daemons("patient", **patient))
    await setting.sim.apply(manifests.pdb("web", minAvailable=1))
    await setting.sim.run_for("1s")
    daemon, patient_daemon = pod_of(setting, "daemon"), pod_of(setting, "patient")
    deadline = setting.now() + timedelta(minutes=15)
    await setting.delete_claim()
    await setting.run_until(deadline - timedelta(seconds=601))
    assert all(setting.runs(name) for name in ("web", daemon, patient_daemon, "critical"))
    await setting.run_past(deadline - timedelta(seconds=600))
    assert is_deleting(setting.pod("critical"))
    assert is_deleting(setting.pod(patient_daemon))
    await setting.run_until(deadline - timedelta(seconds=31))
    assert all(setting.runs(name) for name in ("web", daemon))
    await setting.run_past(deadline - timedelta(seconds=30))
    assert all(is_deleting(setting.pod(name)) for name in ("web", daemon))
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="2s")
    assert [setting.tried_to_evict(name) for name in (daemon, patient_daemon, "critical")] == [[], [], []]


# -- protections that end during the drain (29–31) ---------------------------------------------------------------------


async def test_protection_that_is_removed_during_the_drain(setting: Setting) -> None:
    """03 §10.29."""
    node = await setting.launch(pods=[manifests.pod("web", annotations=GUARDED)])
    await setting.delete_claim()
    await setting.sim.run_for("1h")
    assert setting.runs("web")
    removed_at = setting.now()
    await setting.annotate(PODS, "web", {names.DO_NOT_DISRUPT: None})
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 1
    assert setting.tried_to_evict("web") == [removed_at]


async def test_protection_that_comes_during_the_drain(setting: Setting) -> None:
    """03 §10.29: It counts from then on: whoever evicts asks again right before."""
    node = await setting.launch(pods=[manifests.pod("web")])
    await setting.sim.apply(manifests.pdb("web", minAvailable=1))
    await setting.sim.run_for("1s")
    await setting.delete_claim()
    await setting.sim.run_for("10s")
    await setting.annotate(PODS, "web", GUARDED)
    before = len(setting.tried_to_evict())
    await setting.sim.api.write(Delete(PDBS, "web", namespace="default"))
    await setting.sim.run_for("10m")
    assert setting.runs("web")
    assert len(setting.tried_to_evict()) == before
    assert setting.node(node) is not None


async def test_a_span_of_protection_counts_from_creation_and_ends_during_the_drain(setting: Setting) -> None:
    """03 §10.30: R2: from creation, and not from the start or the drain."""
    node = await setting.launch()
    created_at = setting.now()
    late = {names.DO_NOT_DISRUPT: "10m", "dovetail.dev/start-delay": "2m"}
    await setting.bind(node, manifests.pod("web", annotations=late))
    await setting.sim.run_for("1m")
    await setting.delete_claim()
    ends_at = created_at + timedelta(minutes=10)
    await setting.run_until(ends_at - timedelta(milliseconds=1))
    assert setting.runs("web")
    await setting.run_past(ends_at)
    assert setting.tried_to_evict("web") == [ends_at]
    assert is_deleting(setting.pod("web"))
    assert len(setting.events(EventReason.DO_NOT_DISRUPT_UNTIL, "web")) == 1  # R3


async def test_a_window_that_opens_and_closes_during_the_drain(setting: Setting) -> None:
    """03 §10.31."""
    window = {names.DISRUPTION_SCHEDULE: "10 * * * *", names.DISRUPTION_SCHEDULE_DURATION: "5m"}
    patient: dict[str, Any] = {"annotations": slow(480, **window), "terminationGracePeriodSeconds": 600}
    pods = [of_app(manifests.pod(name, **patient), "web") for name in ("web-1", "web-2")]
    node = await setting.launch(pods=pods)
    await setting.sim.apply(manifests.pdb("web", minAvailable=1), manifests.node("spare"))
    await setting.delete_claim()
    opens_at = START + timedelta(minutes=10)
    await setting.run_until(opens_at - timedelta(milliseconds=1))
    assert setting.runs("web-1")
    assert setting.runs("web-2")
    assert setting.tried_to_evict() == []
    await setting.run_past(opens_at)
    going = [name for name in ("web-1", "web-2") if is_deleting(setting.pod(name))]
    assert len(going) == 1
    (left,) = {"web-1", "web-2"} - set(going)
    # Closed at 00:15: the eviction that runs goes on, and no other is begun, though the budget now allows one.
    await setting.run_until(opens_at + timedelta(minutes=6))
    tried = len(setting.tried_to_evict())
    await setting.bind("spare", of_app(manifests.pod("web-3"), "web"))
    await setting.run_until(opens_at + timedelta(minutes=8, seconds=1))
    assert setting.pod(going[0]) is None
    await setting.run_until(opens_at + timedelta(minutes=60) - timedelta(milliseconds=1))
    assert setting.runs(left)
    assert len(setting.tried_to_evict()) == tried
    await setting.run_past(opens_at + timedelta(minutes=60))
    assert is_deleting(setting.pod(left))
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == pytest.approx(480, abs=1)


async def test_a_block_window_that_begins_during_the_drain(setting: Setting) -> None:
    """03 §10.31: R7, option B: what a budget has held back until then stays."""
    window = {names.DISRUPTION_BLOCK_SCHEDULE: "10 * * * *", names.DISRUPTION_BLOCK_DURATION: "20m"}
    await setting.launch(pods=[manifests.pod("web", annotations=window)])
    await setting.sim.apply(manifests.pdb("web", minAvailable=1))
    await setting.sim.run_for("1s")
    await setting.delete_claim()
    await setting.run_until(START + timedelta(minutes=11))
    tried = len(setting.tried_to_evict())
    await setting.sim.api.write(Delete(PDBS, "web", namespace="default"))
    await setting.run_until(START + timedelta(minutes=30) - timedelta(milliseconds=1))
    assert setting.runs("web")
    assert len(setting.tried_to_evict()) == tried
    await setting.run_past(START + timedelta(minutes=30))
    assert is_deleting(setting.pod("web"))


# -- pods that linger, come late, or are others than they were (32–35) -------------------------------------------------


async def test_a_pod_that_is_stuck_is_waited_for_a_minute(setting: Setting) -> None:
    """03 §10.32."""
    node = await setting.launch(pods=[held("stuck"), manifests.pod("critical", priorityClassName=CRITICAL)])
    deleted_at = setting.now()
    await setting.delete_claim()
    await setting.sim.run_for("2s")
    found = setting.pod("stuck")
    assert found is not None
    # It ended after a second, but somebody's finalizer holds the object; the other group waits with the node.
    await setting.sim.wait_until(lambda: bool(setting.tried_to_evict("critical")), timeout="2m")
    assert setting.now() == deleted_at + timedelta(seconds=61)
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="2s")
    assert setting.pod("stuck") is not None


async def test_a_pod_that_was_bound_just_before_the_taint_is_drained(setting: Setting) -> None:
    """03 §10.33."""
    node = await setting.launch()
    deleted_at = setting.now()
    await setting.delete_claim()
    await setting.run_until(deleted_at + timedelta(seconds=4.5))
    assert setting.node(node) is not None
    assert setting.condition(ConditionType.DRAINED)["status"] == "Unknown"
    # The scheduler had chosen the node before it saw the taint, and its binding arrives only now; the pod runs
    # before our eviction arrives.
    setting.sim.server.faults.add(Fault(delay_seconds=2), verb="evict")
    await setting.bind(node, manifests.pod("late", annotations=slow(10)))
    await setting.run_until(deleted_at + timedelta(seconds=16))
    assert is_deleting(setting.pod("late"))
    assert len(setting.tried_to_evict("late")) == 1
    assert setting.node(node) is not None
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="2s")


async def test_an_empty_node_drains_for_five_seconds(setting: Setting) -> None:
    """03 §10.33."""
    node = await setting.launch()
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == LEAST_DRAIN


async def test_another_pod_of_the_name_on_another_node_is_left_alone(setting: Setting) -> None:
    """03 §10.34."""
    node = await setting.launch(pods=[manifests.pod("web")])
    await setting.sim.apply(manifests.pdb("web", minAvailable=1), manifests.node("spare"))
    await setting.sim.run_for("2s")
    await setting.delete_claim()
    await setting.sim.run_for("10s")
    tried = len(setting.tried_to_evict())
    await replace(setting, manifests.pod("web"), "spare")
    await setting.sim.api.write(Delete(PDBS, "web", namespace="default"))
    await setting.sim.run_for("10m")
    assert setting.runs("web")
    assert len(setting.tried_to_evict()) == tried
    assert setting.gone(NODES, node)


async def test_another_pod_of_the_name_on_the_same_node_is_judged_anew(setting: Setting) -> None:
    """03 §10.34."""
    other = manifests.pod("other", annotations=GUARDED)
    node = await setting.launch(pods=[manifests.pod("web"), other])
    await setting.sim.apply(manifests.pdb("web", minAvailable=1))
    await setting.sim.run_for("2s")
    await setting.delete_claim()
    await setting.sim.run_for("10s")
    tried = len(setting.tried_to_evict())
    await replace(setting, manifests.pod("web", annotations=GUARDED), node)
    await setting.sim.api.write(Delete(PDBS, "web", namespace="default"))
    await setting.sim.run_for("10m")
    assert setting.runs("web")
    assert len(setting.tried_to_evict()) == tried


@pytest.mark.parametrize("code", ["404", "409"])
async def test_a_pod_that_is_gone_or_another_when_its_eviction_arrives(setting: Setting, code: str) -> None:
    """03 §10.35."""
    node = await setting.launch(pods=[manifests.pod("web")])
    await setting.sim.apply(manifests.node("spare"))
    await setting.sim.run_for("2s")
    setting.sim.server.faults.add(Fault(delay_seconds=3), verb="evict")
    await setting.delete_claim()
    await setting.sim.run_for("1s")
    if code == "409":
        await replace(setting, manifests.pod("web"), "spare")
    else:
        await setting.sim.api.write(Delete(PODS, "web", namespace="default", grace_seconds=0))
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="5s")
    await setting.sim.run_for("1m")
    assert len(setting.tried_to_evict()) == 1
    assert counted(setting.metrics.pods_eviction_requests, code=code) == 1
    assert counted(setting.metrics.pods_eviction_requests) == 1
    assert counted(setting.metrics.pods_drained) == 0
    assert setting.events(EventReason.EVICTED) == []
    assert setting.events(EventReason.FAILED_DRAINING) == []
    assert setting.runs("web") == (code == "409")


# -- budgets (36, 37) --------------------------------------------------------------------------------------------------


def second_pdb(app: str) -> Manifest:
    pdb = manifests.pdb(app, minAvailable=0)
    return {**pdb, "metadata": {"name": "second"}}


async def test_two_budgets_hold_a_pod_until_the_deadline(setting: Setting) -> None:
    """03 §10.36."""
    node = await setting.launch(pods=[manifests.pod("web")], terminationGracePeriod="10m")
    await setting.sim.apply(manifests.pdb("web", minAvailable=0), second_pdb("web"))
    await setting.sim.run_for("1s")
    deadline = setting.now() + timedelta(minutes=10)
    await setting.delete_claim()
    await setting.run_until(deadline - GRACE - timedelta(milliseconds=1))
    assert setting.runs("web")
    # R43: it is asked now and then, no more.
    assert 10 <= counted(setting.metrics.pods_eviction_requests, code="500") <= 20
    notes = [event["note"] for event in setting.events(EventReason.FAILED_DRAINING, node)]
    assert any("web" in note and "PodDisruptionBudgets" in note for note in notes)
    await setting.run_past(deadline - GRACE)
    assert is_deleting(setting.pod("web"))
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="2s")


async def test_a_pod_is_evicted_once_one_of_its_two_budgets_is_deleted(setting: Setting) -> None:
    """03 §10.36."""
    node = await setting.launch(pods=[manifests.pod("web")])
    await setting.sim.apply(manifests.pdb("web", minAvailable=0), second_pdb("web"))
    await setting.sim.run_for("1s")
    await setting.delete_claim()
    await setting.sim.run_for("10m")
    assert setting.runs("web")
    await setting.sim.api.write(Delete(PDBS, "second", namespace="default"))
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 1


async def test_a_budget_that_allows_again_is_used_at_once(setting: Setting) -> None:
    """03 §10.37: R43: the change of its status is the sign; until then it is asked rarely."""
    pods = [of_app(manifests.pod(name), "web") for name in ("web-1", "web-2", "web-3")]
    node = await setting.launch(pods=pods)
    await setting.sim.apply(manifests.pdb("web", minAvailable=3), manifests.node("spare"))
    await setting.sim.run_for("2s")
    await setting.delete_claim()
    await setting.sim.run_for("30m")
    assert all(setting.runs(name) for name in ("web-1", "web-2", "web-3"))
    assert 40 <= len(setting.tried_to_evict()) <= 61  # one of the three each 30 to 36 s
    tried = len(setting.tried_to_evict())
    for number in (4, 5, 6):
        await setting.sim.run_for("7s")
        await setting.bind("spare", of_app(manifests.pod(f"web-{number}"), "web"))
        await setting.sim.run_for("2s")
        assert len(setting.sim.pods(node=node)) == 6 - number
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="2s")
    assert len(setting.tried_to_evict()) <= tried + 5  # the three, and what the net tries meanwhile


async def silence_budgets(setting: Setting) -> None:
    """From now on nothing is told of budgets, as when a proxy in between has lost its mind."""
    faults = setting.sim.server.faults
    for verb in ("watch", "list"):
        fault = Fault(error=Unavailable("no"))
        faults.add(fault, verb=verb, resource=PDBS, client=names.COMPONENT, times=FOR_EVER)
    faults.drop_watches(PDBS)
    await setting.sim.run_for("1s")


@pytest.mark.parametrize("churn", [False, True])
async def test_a_budget_of_which_nothing_is_heard_is_tried_all_the_same(setting: Setting, churn: bool) -> None:
    """03 §10.37.

    R43: the net. It holds after it was in vain before, for every pod, and whatever else happens on the node."""
    pods = [of_app(manifests.pod(name), "web") for name in ("web-1", "web-2", "web-3")]
    node = await setting.launch(pods=[*pods, manifests.pod("busy", annotations=GUARDED)])
    await setting.sim.apply(manifests.pdb("web", minAvailable=3))
    await setting.sim.run_for("1s")
    await setting.delete_claim()
    await setting.sim.run_for("5m")
    await silence_budgets(setting)
    await setting.sim.apply(manifests.pdb("web", minAvailable=0))
    for turn in range(24):
        await setting.sim.run_for("5s")
        if churn:
            await setting.annotate(PODS, "busy", {"example.com/turn": str(turn)})
    assert [setting.pod(name) for name in ("web-1", "web-2", "web-3")] == [None] * 3
    assert setting.runs("busy")
    assert setting.node(node) is not None


async def test_an_eviction_that_did_not_arrive_is_sent_again_soon(setting: Setting) -> None:
    """03 §10.37: What the budget allows is not spent by a request that came to nothing."""
    node = await setting.launch(pods=[manifests.pod("web")])
    await setting.sim.apply(manifests.pdb("web", minAvailable=0))
    await setting.sim.run_for("1s")
    setting.sim.server.faults.add(Fault(error=Unavailable("no connection")), verb="evict", times=3)
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == LEAST_DRAIN
    assert len(setting.tried_to_evict()) == 4
