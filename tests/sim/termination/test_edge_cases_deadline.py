"""03 §10, 38 to 46: pods are deleted for their node's deadline, each in time for its own grace (R17). With all
controllers running."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.ports import NODECLAIMS, NODES, PODS, Delete, Unavailable
from dovetail.sim.actors.wire import SHUTDOWN
from dovetail.sim.server.faults import Fault
from dovetail.values.timestamp import format_time, parse_time
from tests.harness import manifests
from tests.harness.manifests import Manifest
from tests.harness.stage import stage
from tests.harness.termination import FOR_EVER, GUARDED, Setting, counted, is_deleting, play

pytestmark = stage(play)

SECOND = timedelta(seconds=1)
STUBBORN = {SHUTDOWN: "24h"}  # only the end of its grace ends it


def guarded(name: str = "web", *, grace: int = 30, stubborn: bool = True, **spec: Any) -> Manifest:
    """A pod that only the deadline makes go, and that uses all the grace it gets."""
    annotations = {**GUARDED, **(STUBBORN if stubborn else {})}
    return manifests.pod(name, annotations=annotations, terminationGracePeriodSeconds=grace, **spec)


def ends_at(setting: Setting, pod: str) -> datetime:
    """When its grace ends."""
    found = setting.pod(pod)
    assert found is not None
    return parse_time(found["metadata"]["deletionTimestamp"])


def granted(setting: Setting, pod: str) -> int:
    """The seconds of the last deletion that counted."""
    found = setting.pod(pod)
    assert found is not None
    return int(found["metadata"]["deletionGracePeriodSeconds"])


async def delete_claim(setting: Setting) -> datetime:
    """Delete it, and see which deadline it gets."""
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.deadline() is not None)
    deadline = setting.deadline()
    assert deadline is not None
    return deadline


# -- when, and with how much grace (38–40) ----------------------------------------------------------------------------


@pytest.mark.parametrize("grace", [300, 301, 3600])
async def test_a_pod_whose_grace_takes_all_the_time_there_is_goes_at_once(setting: Setting, grace: int) -> None:
    """03 §10.38."""
    node = await setting.launch(pods=[guarded(grace=grace)], terminationGracePeriod="300s")
    deleted_at = setting.now()
    assert await delete_claim(setting) == deleted_at + timedelta(seconds=300)
    await setting.sim.wait_until(lambda: is_deleting(setting.pod("web")), timeout="1s")
    assert setting.now() == deleted_at
    assert granted(setting, "web") == 300
    assert setting.tried_to_evict() == []
    assert await setting.seconds_until(lambda: setting.gone(PODS, "web")) == 300
    assert await setting.seconds_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1")) == 0
    assert len(setting.requests("delete", PODS)) == 1
    (told,) = setting.events(EventReason.DISRUPTED, "web")
    assert "granted 300 seconds of grace-period" in told["note"]
    assert f"its own {grace} s" in told["note"]


async def test_a_pod_is_deleted_as_long_before_the_deadline_as_its_grace_takes(setting: Setting) -> None:
    """03 §10.39."""
    pods = [guarded("g60", grace=60), guarded("g100", grace=100), guarded("g0", grace=0)]
    node = await setting.launch(pods=pods, terminationGracePeriod="300s")
    deadline = await delete_claim(setting)
    await setting.run_until(deadline - timedelta(seconds=101))
    assert all(setting.runs(name) for name in ("g60", "g100", "g0"))
    await setting.run_past(deadline - timedelta(seconds=100))
    assert granted(setting, "g100") == 100
    await setting.run_until(deadline - timedelta(seconds=61))
    assert setting.runs("g60")
    await setting.run_past(deadline - timedelta(seconds=60))
    assert granted(setting, "g60") == 60
    assert ends_at(setting, "g60") == ends_at(setting, "g100") == deadline
    await setting.run_until(deadline - SECOND)
    assert setting.runs("g0")
    await setting.run_past(deadline)
    # Its own grace is nothing, but an object must not vanish before its process.
    assert granted(setting, "g0") == 1
    assert len(setting.requests("delete", PODS)) == 3
    assert setting.gone(NODES, node)  # kwok's machine goes at once
    assert setting.events(EventReason.EVICTED) == []


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_protected_pod_stays_healthy_and_then_all_is_gone(setting: Setting, stubborn: bool) -> None:
    """03 §10.40."""
    node = await setting.launch(pods=[guarded(stubborn=stubborn)], terminationGracePeriod="60s")
    deadline = await delete_claim(setting)
    await setting.run_until(deadline - timedelta(seconds=31))
    assert setting.runs("web")  # for 29 s, of the 25 that are asked for
    await setting.run_past(deadline - timedelta(seconds=30))
    assert granted(setting, "web") == 30
    await setting.sim.wait_until(
        lambda: setting.gone(PODS, "web") and setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1")
    )
    assert setting.now() == (deadline if stubborn else deadline - timedelta(seconds=29))
    assert counted(setting.metrics.forced_pods) == 1


@stage(cloud=True)
async def test_in_a_cloud_the_machine_is_ended_at_the_deadline_with_the_pod_on_it(setting: Setting) -> None:
    """03 §10.40."""
    held = guarded()
    held["metadata"]["finalizers"] = ["example.com/hold"]  # whatever the kubelet does, the object stays
    setting.cloud.delete_seconds = 20
    node = await setting.launch(pods=[held], terminationGracePeriod="60s")
    deadline = await delete_claim(setting)
    await setting.run_until(deadline - timedelta(milliseconds=1))
    assert setting.cloud.calls["delete"] == 0
    await setting.run_past(deadline)
    assert setting.cloud.calls["delete"] > 0  # seed 003, T4: nobody waits for the pod any more
    assert setting.pod("web") is not None
    assert setting.condition(ConditionType.DRAINED)["status"] == "Unknown"
    assert setting.condition(ConditionType.INSTANCE_TERMINATING)["status"] == "True"
    await setting.sim.wait_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1"))
    assert setting.now() == deadline + timedelta(seconds=20)
    assert counted(setting.metrics.nodes_drained) == 0


# -- terminating already (41) -----------------------------------------------------------------------------------------


async def test_a_pod_that_would_outlive_the_node_is_deleted_again_and_another_is_not(setting: Setting) -> None:
    """03 §10.41."""
    pods = [guarded("long", grace=600), guarded("short", grace=200), guarded("even", grace=310)]
    node = await setting.launch(pods=pods, terminationGracePeriod="300s")
    began_at = setting.now()
    for name in ("long", "short", "even"):
        await setting.sim.api.write(Delete(PODS, name, namespace="default"))
    await setting.sim.run_for("10s")
    deadline = await delete_claim(setting)
    assert deadline == began_at + timedelta(seconds=310)
    await setting.sim.run_for("1s")
    # What is left is 300 s; the server counts them from the first deletion.
    assert granted(setting, "long") == 300
    assert ends_at(setting, "long") == began_at + timedelta(seconds=300)
    assert granted(setting, "short") == 200
    assert ends_at(setting, "short") == began_at + timedelta(seconds=200)
    assert ends_at(setting, "even") == deadline
    await setting.sim.wait_until(lambda: setting.gone(NODES, node))
    assert setting.now() == deadline
    assert [sent.request.name for sent in setting.requests("delete", PODS)] == ["long"]


@stage(cloud=True)
async def test_a_pod_on_its_way_is_deleted_again_when_the_deadline_comes_nearer(setting: Setting) -> None:
    """03 §10.41."""
    slow = manifests.pod("web", annotations=STUBBORN, terminationGracePeriodSeconds=600)
    node = await setting.launch(pods=[slow], terminationGracePeriod="1h")
    await delete_claim(setting)
    await setting.sim.wait_until(lambda: is_deleting(setting.pod("web")), timeout="1s")
    assert granted(setting, "web") == 600  # evicted, and with all its grace
    await setting.sim.run_for("60s")
    nearer = setting.now() + timedelta(seconds=120)
    found = setting.node(node)
    assert found is not None
    setting.cloud.interrupt(found["spec"]["providerID"], deadline=nearer)
    await setting.sim.run_for("1s")
    assert setting.deadline() == nearer
    assert granted(setting, "web") == 120
    assert ends_at(setting, "web") <= nearer
    assert len(setting.requests("delete", PODS)) == 1


# -- never nothing, never more (42–44) --------------------------------------------------------------------------------


@pytest.mark.parametrize("ago", [timedelta(0), SECOND, timedelta(days=3)])
@stage(cloud=True)
async def test_a_deadline_that_has_passed_still_leaves_a_second(setting: Setting, ago: timedelta) -> None:
    """03 §10.42."""
    await setting.launch(pods=[guarded(grace=600), guarded("none", grace=0)], terminationGracePeriod="1h")
    now = setting.now()
    await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: format_time(now - ago)})
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: is_deleting(setting.pod("web")) and is_deleting(setting.pod("none")))
    assert setting.now() == now
    for name in ("web", "none"):  # a grace of nothing would have removed the objects on the spot
        assert granted(setting, name) == 1
        assert ends_at(setting, name) == now + SECOND
    assert len(setting.requests("delete", PODS)) == 2


async def no_looser(setting: Setting, deadline: datetime) -> None:
    """The pod has been told when it must be gone, and that stands."""
    await setting.sim.run_for("1s")
    assert ends_at(setting, "web") == deadline
    assert granted(setting, "web") == 100
    assert len(setting.requests("delete", PODS)) == 1
    await setting.sim.wait_until(lambda: setting.gone(PODS, "web"))
    assert setting.now() == deadline


@pytest.mark.parametrize("later", ["2030-01-01T00:00:00Z", None, "never"])
async def test_a_pod_that_is_told_to_go_is_not_given_more_time(setting: Setting, later: str | None) -> None:
    """03 §10.43."""
    await setting.launch(pods=[guarded(grace=100)], terminationGracePeriod="300s")
    deadline = await delete_claim(setting)
    await setting.run_past(deadline - timedelta(seconds=100))
    await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: later})
    await no_looser(setting, deadline)


async def test_a_deadline_that_is_taken_off_comes_back_as_it_was(setting: Setting) -> None:
    """03 §10.43."""
    node = await setting.launch(pods=[guarded(grace=100)], terminationGracePeriod="300s")
    deadline = await delete_claim(setting)
    await setting.sim.run_for("150s")
    await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: None})
    await setting.sim.run_for("1s")
    assert setting.deadline() == deadline
    await setting.run_until(deadline - timedelta(seconds=101))
    assert setting.runs("web")
    await setting.run_past(deadline - timedelta(seconds=100))
    assert ends_at(setting, "web") == deadline
    await setting.run_past(deadline)
    assert setting.gone(NODES, node)


@stage(cloud=True)
async def test_a_notice_with_a_later_deadline_loosens_nothing(setting: Setting) -> None:
    """03 §10.43."""
    node = await setting.launch(pods=[guarded(grace=100)], terminationGracePeriod="300s")
    deadline = await delete_claim(setting)
    found = setting.node(node)
    assert found is not None
    setting.cloud.interrupt(found["spec"]["providerID"], deadline=deadline + timedelta(hours=1))
    await setting.run_past(deadline - timedelta(seconds=100))
    assert setting.deadline() == deadline
    await no_looser(setting, deadline)


def with_hook(name: str, seconds: int, *, annotations: dict[str, str], grace: int) -> Manifest:
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}}
    pod = manifests.pod(name, annotations=annotations, terminationGracePeriodSeconds=grace)
    pod["spec"]["containers"][0] |= hook
    return pod


async def test_a_hook_longer_than_the_grace_delays_nothing(setting: Setting) -> None:
    """03 §10.44."""
    node = await setting.launch(pods=[with_hook("web", 600, annotations={}, grace=20)])
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 20
    assert len(setting.tried_to_evict()) == 1


async def test_a_hook_longer_than_the_grace_does_not_move_the_deadline(setting: Setting) -> None:
    """03 §10.44."""
    node = await setting.launch(
        pods=[with_hook("web", 600, annotations=GUARDED, grace=30)], terminationGracePeriod="60s"
    )
    deadline = await delete_claim(setting)
    await setting.run_until(deadline - timedelta(seconds=31))
    assert setting.runs("web")
    await setting.sim.wait_until(lambda: setting.gone(PODS, "web"))
    assert setting.now() == deadline
    await setting.run_past(deadline)
    assert setting.gone(NODES, node)


# -- while something else is going on (45–46) -------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [5, 61])
async def test_the_time_comes_while_a_budget_holds_the_pod_back(setting: Setting, minutes: int) -> None:
    """03 §10.45."""
    pod = manifests.pod("web", annotations=STUBBORN)
    node = await setting.launch(pods=[pod], terminationGracePeriod=f"{minutes}m")
    await setting.sim.apply(manifests.pdb("web", maxUnavailable=0))
    await setting.sim.run_for("1s")
    deadline = await delete_claim(setting)
    await setting.run_until(deadline - timedelta(seconds=30, milliseconds=1))
    assert setting.runs("web")
    await setting.run_past(deadline - timedelta(seconds=30))
    assert granted(setting, "web") == 30
    tried = len(setting.tried_to_evict())
    await setting.sim.wait_until(lambda: setting.gone(NODES, node))
    assert setting.now() == deadline
    assert len(setting.tried_to_evict()) == tried  # nobody goes on asking


@pytest.mark.parametrize("seconds", [60, 63, 66, 69])
async def test_the_time_comes_while_the_eviction_is_being_backed_off(setting: Setting, seconds: int) -> None:
    """03 §10.45."""
    pod = manifests.pod("web", annotations=STUBBORN)
    await setting.launch(pods=[pod], terminationGracePeriod=f"{seconds}s")
    down = Fault(error=Unavailable("down"))
    setting.sim.server.faults.add(down, verb="evict", client=names.COMPONENT, times=FOR_EVER)
    deadline = await delete_claim(setting)
    await setting.run_until(deadline - timedelta(seconds=30, milliseconds=1))
    assert setting.runs("web")
    assert len(setting.tried_to_evict()) > 5
    await setting.run_past(deadline - timedelta(seconds=30))
    assert granted(setting, "web") == 30  # to the second, wherever in its back-off it was


async def test_the_time_comes_while_its_window_is_closed(setting: Setting) -> None:
    """03 §10.45."""
    schedule = {names.DISRUPTION_SCHEDULE: "0 0 1 1 *", names.DISRUPTION_SCHEDULE_DURATION: "1h"}
    pod = manifests.pod("web", annotations={**STUBBORN, **schedule})
    await setting.launch(pods=[pod], terminationGracePeriod="10h")
    deadline = await delete_claim(setting)
    await setting.run_until(deadline - timedelta(seconds=31))
    assert setting.runs("web")
    await setting.run_past(deadline - timedelta(seconds=30))
    assert granted(setting, "web") == 30


async def slow_deletion(setting: Setting, *pods: Manifest) -> tuple[str, datetime]:
    """Have our deletion of pod web be on its way when this returns: it arrives five seconds later."""
    node = await setting.launch(pods=pods, terminationGracePeriod="60s")
    setting.sim.server.faults.add(Fault(delay_seconds=5), verb="delete", resource=PODS, client=names.COMPONENT, times=1)
    deadline = await delete_claim(setting)
    await setting.run_past(deadline - timedelta(seconds=30))
    assert len(setting.requests("delete", PODS)) == 1
    return node, deadline


async def test_a_pod_that_is_gone_before_its_deletion_arrives_is_done_with(setting: Setting) -> None:
    """03 §10.46."""
    node, deadline = await slow_deletion(setting, guarded())
    await setting.sim.api.write(Delete(PODS, "web", namespace="default", grace_seconds=0))
    await setting.sim.wait_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1"))
    assert setting.now() < deadline - timedelta(seconds=29)
    await setting.sim.run_for("10m")
    assert len(setting.requests("delete", PODS)) == 1
    assert counted(setting.metrics.forced_pods) == 0
    assert counted(setting.metrics.pods_drained) == 0


async def test_another_pod_of_its_name_is_not_taken_for_it(setting: Setting) -> None:
    """03 §10.46."""
    node, deadline = await slow_deletion(setting, guarded(grace=30), guarded("holds-the-node", grace=0))
    await setting.sim.api.write(Delete(PODS, "web", namespace="default", grace_seconds=0))
    await setting.bind(node, guarded(grace=10))
    await setting.run_until(deadline - timedelta(seconds=11))
    assert setting.runs("web")
    assert len(setting.requests("delete", PODS, "web")) == 1
    await setting.run_past(deadline - timedelta(seconds=10))
    assert granted(setting, "web") == 10
    assert len(setting.requests("delete", PODS, "web")) == 2
