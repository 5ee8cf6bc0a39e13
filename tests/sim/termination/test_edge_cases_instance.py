"""03 §10, 47 to 58: volumes, machines that do not end or do not begin, and what is written on the claim meanwhile. With
all controllers running."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.ports import (
    KWOK_NODECLASSES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PODS,
    VOLUME_CLAIMS,
    CloudError,
    Conflict,
    CreateFailed,
    Delete,
    InstanceGone,
    InsufficientCapacity,
    OutcomeUnknown,
    Patch,
    Unavailable,
)
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.claims import condition, condition_of, node_class, node_pool, put_status
from tests.harness.manifests import Manifest
from tests.harness.stage import PARAMETER, stage
from tests.harness.termination import (
    FOR_EVER,
    GUARDED,
    INSTANCE_TYPE,
    Setting,
    attach,
    claimed_volume,
    counted,
    detach,
    is_deleting,
    play,
    volume_claim,
)
from tests.sim.termination.past import Past

pytestmark = stage(play)

LEAST_DRAIN = 5  # seconds
STAYS = [{"key": names.DISRUPTED_TAINT, "operator": "Exists"}]
SECOND = timedelta(seconds=1)


def disk_user(name: str, claim: str, **spec: Any) -> Manifest:
    return manifests.pod(name, volumes=[claimed_volume("data", claim)], **spec)


def finalizers(setting: Setting, node: str) -> list[str]:
    found = setting.node(node)
    return [] if found is None else list(found["metadata"].get("finalizers") or ())


# -- volumes (47–49) --------------------------------------------------------------------------------------------------


async def test_volumes_of_pods_that_stay_and_inline_ones_are_not_waited_for(setting: Setting) -> None:
    """03 §10.47."""
    await setting.sim.apply(volume_claim("logs", "pv-logs"))
    node = await setting.launch(pods=[disk_user("agent", "logs", tolerations=STAYS)])
    await attach(setting, "of-the-agent", node, "pv-logs")
    await attach(setting, "inline", node, None)
    await attach(setting, "elsewhere", "another-node", "pv-2")
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == LEAST_DRAIN
    assert setting.events(EventReason.AWAITING_VOLUME_DETACHMENT) == []


async def test_ephemeral_volumes_of_pods_that_stay_are_not_waited_for(setting: Setting) -> None:
    """03 §10.47."""
    await setting.sim.apply(volume_claim("agent-scratch", "pv-scratch"))
    ephemeral = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}
    stays = manifests.pod("agent", volumes=[{"name": "scratch", "ephemeral": ephemeral}], tolerations=STAYS)
    node = await setting.launch(pods=[stays])
    await attach(setting, "scratch-of-the-agent", node, "pv-scratch")
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == LEAST_DRAIN


@stage(cloud=True)
async def test_other_volumes_are_waited_for_and_named(setting: Setting) -> None:
    """03 §10.47."""
    await setting.sim.apply(volume_claim("data", "pv-data"))
    node = await setting.launch(pods=[disk_user("web", "data")])
    await attach(setting, "disk-0", node, "pv-data")
    for number in range(1, 7):
        await attach(setting, f"disk-{number}", node, f"pv-{number}")
    await setting.delete_claim()
    await setting.sim.run_for("1h")
    assert setting.gone(PODS, "web")
    assert setting.condition(ConditionType.DRAINED)["status"] == "True"
    waiting = setting.condition(ConditionType.VOLUMES_DETACHED)
    assert (waiting["status"], waiting["reason"]) == ("Unknown", "AwaitingVolumeDetachment")
    (told,) = setting.events(EventReason.AWAITING_VOLUME_DETACHMENT, node)
    assert "7 volumes are still attached: disk-0, disk-1, disk-2, disk-3, disk-4 and 2 more" in told["note"]
    assert setting.cloud.calls["delete"] == 0
    for number in range(6):
        await detach(setting, f"disk-{number}")
    await setting.sim.run_for("1h")
    assert setting.cloud.calls["delete"] == 0
    # Nothing polls: the last one brings us back.
    await detach(setting, "disk-6")
    await setting.sim.run_for("1ms")
    assert setting.cloud.calls["delete"] > 0
    assert setting.condition(ConditionType.VOLUMES_DETACHED)["status"] == "True"
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="31s")


async def test_a_volume_that_goes_just_after_the_drain_is_the_last_to_be_waited_for(setting: Setting) -> None:
    """03 §10.47."""
    node = await setting.launch()
    await attach(setting, "disk", node, "pv-1")
    await setting.delete_claim()
    await setting.sim.run_for(f"{LEAST_DRAIN + 1}s")
    assert setting.condition(ConditionType.DRAINED)["status"] == "True"
    await detach(setting, "disk")
    # The least time of a drain counts once: not again from its end.
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="1s")


async def test_a_volume_of_a_pod_that_is_protected_is_waited_for_with_it(setting: Setting) -> None:
    """03 §10.47."""
    await setting.sim.apply(volume_claim("data", "pv-data"))
    node = await setting.launch(pods=[disk_user("web", "data", annotations=GUARDED)])
    await attach(setting, "disk", node, "pv-data")
    await setting.delete_claim()
    await setting.sim.run_for("1h")
    assert setting.runs("web")
    assert setting.condition(ConditionType.VOLUMES_DETACHED) == {}  # the drain comes first
    await setting.annotate(PODS, "web", {names.DO_NOT_DISRUPT: None})
    await setting.sim.run_for("10s")
    assert setting.gone(PODS, "web")
    assert setting.condition(ConditionType.VOLUMES_DETACHED)["status"] == "Unknown"
    await detach(setting, "disk")
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="1s")


async def test_a_claim_of_a_volume_that_is_not_there_exempts_nothing_and_breaks_nothing(setting: Setting) -> None:
    """03 §10.48."""
    await setting.sim.apply(volume_claim("logs", "pv-logs"), volume_claim("old", "pv-old"))
    stays = disk_user("agent", "logs", tolerations=STAYS)
    stays["spec"]["volumes"].append(claimed_volume("old", "old"))
    node = await setting.launch(pods=[stays])
    await attach(setting, "disk", node, "pv-logs")
    await attach(setting, "lost", node, "pv-old")
    await setting.sim.api.write(Delete(VOLUME_CLAIMS, "old", namespace="default"))
    await setting.delete_claim()
    await setting.sim.run_for("1m")
    (told,) = setting.events(EventReason.AWAITING_VOLUME_DETACHMENT, node)
    assert "1 volumes are still attached: lost" in told["note"]
    await detach(setting, "lost")
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="1s")


@stage(cloud=True)
async def test_at_the_deadline_volumes_are_no_longer_waited_for(setting: Setting) -> None:
    """03 §10.49."""
    node = await setting.launch(pods=[manifests.pod("web")], terminationGracePeriod="10m")
    await attach(setting, "disk", node, "pv-1")
    deadline = setting.now() + timedelta(minutes=10)
    await setting.delete_claim()
    await setting.run_until(deadline - timedelta(milliseconds=1))
    assert setting.condition(ConditionType.VOLUMES_DETACHED)["status"] == "Unknown"
    assert setting.cloud.calls["delete"] == 0
    await setting.run_past(deadline)
    found = setting.condition(ConditionType.VOLUMES_DETACHED)
    assert (found["status"], found["reason"]) == ("False", "TerminationGracePeriodElapsed")
    assert setting.condition(ConditionType.DRAINED)["status"] == "True"
    assert setting.condition(ConditionType.INSTANCE_TERMINATING)["status"] == "True"
    await setting.sim.wait_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1"))
    assert setting.now() == deadline + timedelta(seconds=setting.cloud.delete_seconds)


# -- the end of a machine (50–52) -------------------------------------------------------------------------------------


@stage(cloud=True)
async def test_an_error_of_the_provider_is_tried_again_and_keeps_the_node(setting: Setting) -> None:
    """03 §10.50."""
    node = await setting.launch(pods=[manifests.pod("web")])
    setting.cloud.next_deletions(CloudError("throttled"), times=8)
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.condition(ConditionType.DRAINED).get("status") == "True")
    await setting.sim.run_for("5s")
    assert 1 < setting.cloud.calls["delete"] < 8  # again and again, with growing waits
    assert setting.condition(ConditionType.INSTANCE_TERMINATING) == {}
    assert finalizers(setting, node) == [names.TERMINATION_FINALIZER]
    await setting.sim.wait_until(lambda: setting.condition(ConditionType.INSTANCE_TERMINATING) != {})
    assert setting.cloud.calls["delete"] >= 9
    await setting.sim.wait_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1"))
    assert await setting.cloud.list() == []


@stage(cloud=True)
async def test_an_error_for_a_machine_that_never_registered_keeps_the_claim(setting: Setting) -> None:
    """03 §10.50."""
    setting.cloud.next_launches(Launch(registers=False))
    await setting.want()
    await setting.sim.wait_until(lambda: setting.condition(ConditionType.LAUNCHED).get("status") == "True")
    setting.cloud.next_deletions(CloudError("throttled"), times=3)
    await setting.delete_claim()
    await setting.sim.run_for("2s")
    assert setting.condition(ConditionType.INSTANCE_TERMINATING) == {}
    assert setting.claim() is not None
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"))
    assert await setting.cloud.list() == []


@pytest.mark.parametrize("seconds", [3, 60, 62])
@stage(cloud=True)
async def test_a_machine_that_takes_its_time_is_asked_after_every_five_seconds(setting: Setting, seconds: int) -> None:
    """03 §10.51."""
    setting.cloud.delete_seconds = seconds
    node = await setting.launch()
    await setting.delete_claim()
    await setting.sim.run_for(f"{LEAST_DRAIN}s")
    await setting.sim.run_for("1ms")
    asked = setting.cloud.calls["delete"]
    assert setting.condition(ConditionType.INSTANCE_TERMINATING)["status"] == "True"
    polls = -(-seconds // 5)
    await setting.sim.run_for(f"{5 * polls - 1}s")
    assert finalizers(setting, node) == [names.TERMINATION_FINALIZER]
    assert setting.claim() is not None
    assert setting.cloud.calls["delete"] == asked + polls - 1
    await setting.sim.run_for("1s")
    assert setting.gone(NODES, node)
    assert setting.gone(NODECLAIMS, "c1")


async def test_at_kwok_a_machine_may_be_ended_as_often_as_one_likes(setting: Setting) -> None:
    """03 §10.52."""
    node = await setting.launch()
    claim = await setting.sim.api.get(NODECLAIMS, "c1")
    provider = KwokProvider(setting.sim.api)
    for _ in range(3):
        with pytest.raises(InstanceGone):
            await provider.delete(claim)
    assert is_deleting(setting.node(node))  # it holds our finalizer, and so both are drained and go
    assert await setting.seconds_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1")) == 5
    with pytest.raises(InstanceGone):
        await provider.delete(claim)


async def test_a_node_that_was_never_registered_goes_with_its_claim(setting: Setting) -> None:
    """03 §10.52."""
    conflict = Fault(error=Conflict("changed meanwhile"))
    setting.sim.server.faults.add(conflict, verb="patch", resource=NODES, client=names.COMPONENT, times=FOR_EVER)
    await setting.want()
    await setting.sim.wait_until(lambda: bool(setting.sim.objects(NODES)))
    assert setting.condition(ConditionType.REGISTERED)["status"] == "Unknown"
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODECLAIMS, "c1")) == 0
    assert setting.sim.objects(NODES) == []


async def test_a_claim_that_somebody_lets_go_leaves_its_node_to_be_drained(setting: Setting) -> None:
    """03 §10.52."""
    node = await setting.launch(pods=[manifests.pod("web", annotations=GUARDED)])
    await setting.delete_claim()
    await setting.sim.run_for("10s")
    await setting.sim.api.write(Patch(NODECLAIMS, "c1", {"metadata": {"finalizers": None}}))
    assert setting.gone(NODECLAIMS, "c1")
    await setting.sim.run_for("1h")
    assert setting.runs("web")
    await setting.sim.api.write(Delete(PODS, "web", namespace="default"))
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="2s")


# -- what is counted and written (53–55) ------------------------------------------------------------------------------


async def poke(setting: Setting, node: str, times: int) -> None:
    """Have everything looked at again."""
    for number in range(times):
        await setting.annotate(NODES, node, {"example.com/turn": str(number)})
        await setting.annotate(NODECLAIMS, "c1", {"example.com/turn": str(number)})
        await setting.sim.run_for("100ms")


@pytest.mark.parametrize("seed", [0, 2, 15, 35])
@stage(seed=PARAMETER, shuffle=True)
async def test_a_node_counts_as_drained_once(setting: Setting) -> None:
    """03 §10.53."""
    node = await setting.launch(pods=[manifests.pod("web")])
    await attach(setting, "disk", node, "pv-1")  # so that there is time to look again after the drain
    await setting.delete_claim()
    await poke(setting, node, 20)
    assert counted(setting.metrics.nodes_drained) == 0
    await setting.sim.wait_until(lambda: setting.condition(ConditionType.DRAINED).get("status") == "True")
    await poke(setting, node, 20)
    assert counted(setting.metrics.nodes_drained, nodepool="default") == 1
    before = setting.metrics
    await setting.program.stop()
    await setting.program.start()
    await poke(setting, node, 3)
    assert setting.metrics is not before
    await detach(setting, "disk")
    await setting.sim.wait_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1"))
    await setting.sim.run_for("1m")
    assert counted(setting.metrics.nodes_drained) == 0  # whoever came later has seen that it was
    assert counted(setting.metrics.nodes_terminated) == 1


async def test_what_could_not_be_written_is_not_counted(setting: Setting) -> None:
    """03 §10.53."""
    node = await setting.launch()
    await setting.delete_claim()
    await setting.sim.run_for("4s")
    down = Fault(error=Unavailable("down"))
    setting.sim.server.faults.add(
        down, verb="patch", resource=NODECLAIMS, subresource="status", client=names.COMPONENT, times=3
    )
    await setting.sim.wait_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1"))
    await setting.sim.run_for("1m")
    assert counted(setting.metrics.nodes_drained) == 1


@stage(cloud=True)
async def test_a_claim_on_its_way_out_stays_ready(setting: Setting) -> None:
    """03 §10.54."""
    node = await setting.launch(pods=[manifests.pod("web")], terminationGracePeriod="1h")
    past = Past(setting.sim, NODECLAIMS, "c1")
    await attach(setting, "disk", node, "pv-1")
    await setting.delete_claim()
    await setting.sim.run_for("1m")
    await detach(setting, "disk")
    await setting.sim.wait_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1"))
    assert past.statuses(ConditionType.READY) == ["True"]
    assert past.statuses(ConditionType.DRAINED) == ["Unknown", "True"]
    assert past.statuses(ConditionType.VOLUMES_DETACHED) == ["Unknown", "True"]
    assert past.statuses(ConditionType.INSTANCE_TERMINATING) == ["True"]
    for state in past.states:
        observed = {entry["type"]: entry["observedGeneration"] for entry in state["status"]["conditions"]}
        if "Drained" in observed:
            assert set(observed.values()) == {state["metadata"]["generation"]}


QUANTITIES: dict[str, Any] = {"cpu": "1000m", "memory": "1048576Ki", "ephemeral-storage": 1000000000, "pods": "0.01k"}


@pytest.mark.parametrize("cloud", [False, True])
@stage(cloud=PARAMETER)
async def test_quantities_stay_as_they_were_written(setting: Setting) -> None:
    """03 §10.55."""
    past = Past(setting.sim, NODECLAIMS, "c1")
    requests = {"requests": QUANTITIES}
    startup = [{"key": "example.com/startup", "effect": "NoSchedule"}]
    await setting.want(resources=requests, startupTaints=startup, terminationGracePeriod="90m")
    await setting.sim.wait_until(lambda: setting.condition(ConditionType.REGISTERED).get("status") == "True")
    node = str(setting.sim.objects(NODES)[0]["metadata"]["name"])
    await setting.sim.api.write(Patch(NODES, node, {"spec": {"taints": []}}))
    await setting.sim.wait_until(lambda: setting.condition(ConditionType.INITIALIZED).get("status") == "True")
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1"))
    # 1 and 1000m are the same and not the same text, and the API server compares texts.
    specs = [state["spec"] for state in past.states]
    assert len(specs) > 5
    assert all(spec == specs[0] for spec in specs)
    assert specs[0]["resources"]["requests"] == QUANTITIES
    assert specs[0]["terminationGracePeriod"] == "90m"


# -- the beginning of a machine (56–58) -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "subresource"),
    [
        pytest.param(Fault(error=Unavailable("down")), "status", id="status not written"),
        pytest.param(Fault(error=Conflict("changed")), "status", id="status refused"),
        pytest.param(Fault(error=OutcomeUnknown("lost"), after=True), "status", id="status written, answer lost"),
        pytest.param(Fault(error=Unavailable("down")), "", id="metadata not written"),
        pytest.param(Fault(error=OutcomeUnknown("lost"), after=True), "", id="metadata written, answer lost"),
    ],
)
@stage(cloud=True)
async def test_what_could_not_be_written_down_is_not_launched_again(
    setting: Setting, fault: Fault, subresource: str
) -> None:
    """03 §10.56."""
    setting.sim.server.faults.add(
        fault,
        verb="patch",
        resource=NODECLAIMS,
        subresource=subresource,
        client=names.COMPONENT,
        times=3,
        when=lambda _request: setting.cloud.calls["create"] > 0,
    )
    await setting.want()
    await setting.sim.wait_until(lambda: setting.condition(ConditionType.INITIALIZED).get("status") == "True")
    claim = setting.claim()
    assert claim is not None
    assert setting.cloud.calls["create"] == 1
    assert setting.cloud.launched_for(claim["metadata"]["uid"]) == 1
    assert len(setting.cloud.machines) == 1


@stage(cloud=True)
async def test_a_claim_that_is_deleted_while_its_machine_is_launched_does_not_leak_it(setting: Setting) -> None:
    """03 §10.56."""
    setting.cloud.launch_seconds = 60
    await setting.want()
    await setting.sim.run_for("30s")
    assert setting.cloud.calls["create"] == 1
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"))
    assert len(setting.cloud.machines) == 1
    assert await setting.cloud.list() == []


@stage(cloud=True)
async def test_after_a_crash_in_between_the_same_machine_is_found_again(setting: Setting) -> None:
    """03 §10.56."""
    down = Fault(error=Unavailable("down"))
    setting.sim.server.faults.add(
        down,
        verb="patch",
        resource=NODECLAIMS,
        client=names.COMPONENT,
        times=FOR_EVER,
        when=lambda _request: setting.cloud.calls["create"] == 1,
    )
    await setting.want()
    await setting.sim.run_for("20s")
    assert setting.condition(ConditionType.LAUNCHED) == {}
    await setting.program.restart()
    await setting.sim.wait_until(lambda: setting.condition(ConditionType.INITIALIZED).get("status") == "True")
    assert setting.cloud.calls["create"] == 2
    assert len(setting.cloud.machines) == 1


@stage(cloud=True)
async def test_a_claim_for_which_nothing_can_be_had_vanishes(setting: Setting) -> None:
    """03 §10.57."""
    setting.cloud.exhaust(INSTANCE_TYPE)
    await setting.want()
    assert await setting.seconds_until(lambda: setting.gone(NODECLAIMS, "c1")) < 1
    await setting.sim.run_for("1s")
    (told,) = setting.events(EventReason.INSUFFICIENT_CAPACITY, "c1")
    assert told["type"] == "Warning"
    assert "c1" in told["note"]
    assert len(told["note"]) <= 300
    assert counted(setting.metrics.nodeclaims_disrupted) == 1
    labels = {"reason": "insufficient_capacity", "nodepool": "default", "termination_mode": "graceful"}
    assert counted(setting.metrics.nodeclaims_disrupted, **labels) == 1
    assert setting.cloud.machines == {}
    assert setting.cloud.calls["delete"] == 0


@stage(cloud=True)
async def test_a_long_story_is_cut(setting: Setting) -> None:
    """03 §10.57."""
    setting.cloud.next_launches(Launch(error=InsufficientCapacity("nothing left " * 100)))
    await setting.want()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"), timeout="1s")
    await setting.sim.run_for("1s")
    (told,) = setting.events(EventReason.INSUFFICIENT_CAPACITY, "c1")
    assert len(told["note"]) == 300


@stage(cloud=True)
async def test_other_errors_are_told_on_the_claim_and_tried_again(setting: Setting) -> None:
    """03 §10.57: 03 §7.1, in contrast."""
    setting.cloud.next_launches(Launch(error=CreateFailed("QuotaExceeded", "no quota")), times=2)
    setting.cloud.next_launches(Launch(error=CloudError("x" * 400)), times=2)
    past = Past(setting.sim, NODECLAIMS, "c1")
    await setting.want()
    await setting.sim.wait_until(lambda: setting.condition(ConditionType.INITIALIZED).get("status") == "True")
    assert past.reasons(ConditionType.LAUNCHED) == ["QuotaExceeded", "LaunchFailed", "Launched"]
    assert past.statuses(ConditionType.LAUNCHED) == ["Unknown", "True"]
    assert {len(entry["message"]) for entry in past.conditions(ConditionType.LAUNCHED)} == {8, 300, 0}
    assert setting.events(EventReason.INSUFFICIENT_CAPACITY) == []
    assert counted(setting.metrics.nodeclaims_disrupted) == 0


@pytest.mark.parametrize("cloud", [False, True])
@stage(cloud=PARAMETER)
async def test_without_its_node_class_a_claim_is_gone_within_seconds(setting: Setting) -> None:
    """03 §10.58."""
    reference = {"group": names.KWOK_GROUP, "kind": names.KWOK_NODECLASS_KIND, "name": "missing"}
    await setting.want(nodeClassRef=reference)
    assert await setting.seconds_until(lambda: setting.gone(NODECLAIMS, "c1")) < 3
    await setting.sim.run_for("1s")
    (told,) = setting.events(EventReason.INSUFFICIENT_CAPACITY, "c1")
    assert "missing" in told["note"]
    assert counted(setting.metrics.nodeclaims_disrupted, reason="insufficient_capacity") == 1


@pytest.mark.parametrize("cloud", [False, True])
@stage(cloud=PARAMETER)
async def test_with_a_node_class_that_is_not_ready_a_claim_is_gone_and_the_pool_says_so(setting: Setting) -> None:
    """03 §10.58."""
    await setting.sim.apply(node_class(), node_pool())
    await setting.sim.run_for("1s")
    assert condition_of(setting.sim, NODEPOOLS, "default", "NodeClassReady")["status"] == "True"
    failing = condition("Ready", "False", reason="NoSubnets", message="no subnets found")
    await put_status(setting.sim, KWOK_NODECLASSES, "default", {"conditions": [failing]})
    await setting.want()
    assert await setting.seconds_until(lambda: setting.gone(NODECLAIMS, "c1")) < 3
    await setting.sim.run_for("1s")
    (told,) = setting.events(EventReason.NODECLASS_NOT_READY, "c1")
    assert "no subnets found" in told["note"]
    assert counted(setting.metrics.nodeclaims_disrupted, reason="nodeclass_not_ready") == 1
    pool = condition_of(setting.sim, NODEPOOLS, "default", "NodeClassReady")
    assert (pool["status"], pool["message"]) == ("False", "no subnets found")
    assert condition_of(setting.sim, NODEPOOLS, "default", "Ready")["status"] == "False"
    assert setting.sim.objects(NODES) == []
