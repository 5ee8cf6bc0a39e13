"""What evicted pods are told, and pods that go anyway because their namespace does. With all controllers running."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.ports import EVENTS, NODECLAIMS, NODES, PODS, Delete, Forbidden, Patch, Unavailable
from dovetail.sim.actors.wire import NOT_READY, SHUTDOWN
from dovetail.sim.server.faults import Fault
from dovetail.sim.server.kinds import NAMESPACES
from tests.harness import manifests
from tests.harness.stage import stage
from tests.harness.termination import FOR_EVER, Setting, counted, is_deleting, play

pytestmark = stage(play)

FORCEFUL = "Forceful Termination"
TEAM = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
Doom = Callable[[Setting, str], Coroutine[Any, Any, None]]


# -- why (03 §5.3) -----------------------------------------------------------------------------------------------------


async def by_hand(setting: Setting, _node: str) -> None:
    await setting.delete_claim()


async def by_its_node(setting: Setting, node: str) -> None:
    await setting.delete_node(node)


async def by_age(setting: Setting, _node: str) -> None:
    await setting.sim.run_for("1h")


async def by_illness(setting: Setting, node: str) -> None:
    others = [await setting.launch(f"other-{number}") for number in range(4)]  # of too many ill ones none is replaced
    assert others
    await setting.sim.api.write(Patch(NODES, node, {"metadata": {"labels": {NOT_READY: "true"}}}))
    await setting.sim.run_for("11m")


async def by_notice(setting: Setting, node: str) -> None:
    await setting.annotate(NODES, node, {names.KWOK_INTERRUPTED: "true"})


@pytest.mark.parametrize(
    ("doom", "reason"),
    [(by_hand, FORCEFUL), (by_its_node, FORCEFUL), (by_age, "Expired"), (by_notice, "Interrupted")],
)
async def test_evicted_pods_are_told_why(setting: Setting, doom: Doom, reason: str) -> None:
    node = await setting.launch(pods=[manifests.pod("web")], expireAfter="1h")
    await doom(setting, node)
    await setting.sim.wait_until(lambda: setting.gone(NODES, node))
    (event,) = setting.events(EventReason.EVICTED, "web")
    assert event["note"] == f"Evicted pod: {reason}"
    assert counted(setting.metrics.pods_drained, reason=reason) == 1
    assert counted(setting.metrics.pods_drained) == 1


@pytest.mark.parametrize(("doom", "reason"), [(by_age, "Expired"), (by_notice, "Interrupted")])
async def test_pods_deleted_for_the_deadline_are_told_why(setting: Setting, doom: Doom, reason: str) -> None:
    pods = [manifests.pod("web", annotations={names.DO_NOT_DISRUPT: "true"})]
    node = await setting.launch(pods=pods, expireAfter="1h", terminationGracePeriod="10m")
    await doom(setting, node)
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="1h")
    (event,) = setting.events(EventReason.DISRUPTED, "web")
    assert f"({reason})" in event["note"]
    assert counted(setting.metrics.pods_drained, reason=reason) == 1


@stage(cloud=True)
async def test_pods_of_an_unhealthy_node_are_told_why(setting: Setting) -> None:
    node = await setting.launch(
        pods=[manifests.pod("web", tolerations=[{"operator": "Exists", "effect": "NoExecute"}])]
    )
    await by_illness(setting, node)
    await setting.sim.wait_until(lambda: bool(setting.events(EventReason.EVICTED, "web")), timeout="10m")
    assert setting.events(EventReason.EVICTED, "web")[0]["note"] == "Evicted pod: Unhealthy"


async def test_why_is_on_the_claim_and_known_to_the_next_leader(setting: Setting) -> None:
    span = {names.DO_NOT_DISRUPT: "2h"}
    node = await setting.launch(pods=[manifests.pod("web", annotations=span)], expireAfter="1h")
    await setting.sim.run_for("90m")
    found = setting.condition(ConditionType.DISRUPTION_REASON)
    assert (found["status"], found["reason"], found["message"]) == ("True", "Expired", "Expired")
    await setting.program.restart()
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="1h")
    (event,) = setting.events(EventReason.EVICTED, "web")
    assert event["note"] == "Evicted pod: Expired"


async def test_a_claim_that_dies_between_the_reason_and_its_deletion(setting: Setting) -> None:
    node = await setting.launch(pods=[manifests.pod("web")], expireAfter="1h")
    down = Fault(error=Unavailable("down"))
    setting.sim.server.faults.add(down, verb="delete", resource=NODECLAIMS, times=FOR_EVER)
    await setting.sim.run_for("1h1m")
    assert setting.condition(ConditionType.DISRUPTION_REASON)["reason"] == "Expired"
    # It is no node that was chosen to be replaced: nothing was begun (R21).
    assert setting.condition(ConditionType.DISRUPTION_STATE)["reason"] == "S1"
    writes = len(setting.requests("patch", NODECLAIMS))
    await setting.sim.run_for("10m")
    assert len(setting.requests("patch", NODECLAIMS)) == writes
    await setting.program.kill()
    setting.sim.server.faults.clear()
    await setting.program.start()
    await setting.sim.wait_until(lambda: setting.gone(NODES, node))
    assert counted(setting.metrics.nodeclaims_disrupted, reason="expired") == 1


async def test_a_claim_deleted_by_hand_before_a_notice_came_went_by_hand(setting: Setting) -> None:
    pods = [
        manifests.pod("web", annotations={SHUTDOWN: "20s"}),
        manifests.pod("last", annotations={SHUTDOWN: "1s"}),
    ]
    pods[1]["spec"]["priorityClassName"] = "system-cluster-critical"
    node = await setting.launch(pods=pods)
    await setting.delete_claim()
    await setting.sim.run_for("10s")
    await setting.annotate(NODES, node, {names.KWOK_INTERRUPTED: "true"})
    await setting.sim.wait_until(lambda: setting.gone(NODES, node))
    assert {event["note"] for event in setting.events(EventReason.EVICTED)} == {f"Evicted pod: {FORCEFUL}"}


# -- a namespace that is being deleted ---------------------------------------------------------------------------------


async def test_a_pod_whose_namespace_goes_is_waited_for_and_not_fought_over(setting: Setting) -> None:
    node = await setting.launch()
    await setting.sim.apply(TEAM)
    pod = manifests.pod("web", annotations={SHUTDOWN: "10s"}, nodeName=node)
    await setting.sim.apply(pod, namespace="team")
    await setting.sim.run_for("5s")
    await setting.sim.api.write(Delete(NAMESPACES, "team"))
    await setting.delete_claim()
    # The namespace controller gives others 5 seconds to notice; the pod takes 10 to end.
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == pytest.approx(15, abs=1)
    assert len(setting.tried_to_evict("web")) == 1
    assert counted(setting.metrics.pods_eviction_requests, code="403") == 1
    assert counted(setting.metrics.pods_drained) == 0
    assert counted(setting.metrics.reconcile_errors, controller="eviction-queue") == 0
    assert not any("refused" in event["note"] for event in setting.events(EventReason.FAILED_DRAINING))


async def test_it_is_tried_again_now_and_then_and_said_whom_the_drain_waits_for(setting: Setting) -> None:
    node = await setting.launch(pods=[manifests.pod("web")])
    going = Forbidden("pods is forbidden: unable to create new content in namespace x because it is being terminated")
    setting.sim.server.faults.add(Fault(error=going), verb="evict", resource=PODS, times=10)
    await setting.delete_claim()
    await setting.sim.run_for("2m")
    tries = setting.tried_to_evict("web")
    assert all(later - sooner >= timedelta(seconds=30) for sooner, later in pairwise(tries))
    assert 3 <= len(tries) <= 5
    (event,) = setting.events(EventReason.FAILED_DRAINING, node)
    assert "default/web (its namespace is being deleted, and the pod with it)" in event["note"]
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="10m")


async def test_another_refusal_is_tried_again_by_back_off(setting: Setting) -> None:
    node = await setting.launch(pods=[manifests.pod("web")])
    refused = Forbidden("pods is forbidden: User dovetail cannot create resource pods/eviction")
    setting.sim.server.faults.add(Fault(error=refused), verb="evict", resource=PODS, times=5)
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) < 10
    assert len(setting.tried_to_evict("web")) == 6


# -- what is no trouble ------------------------------------------------------------------------------------------------


def slow(name: str, app: str = "", **spec: Any) -> manifests.Manifest:
    """It takes 20 of its 30 seconds to end."""
    pod = manifests.pod(name, annotations={SHUTDOWN: "20s"}, **spec)
    pod["metadata"]["labels"] = {"app": app or name}
    return pod


async def test_pods_that_go_one_group_after_the_other_are_no_trouble(setting: Setting) -> None:
    critical = slow("critical", priorityClassName="system-cluster-critical")
    node = await setting.launch(pods=[slow("web"), critical])
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == pytest.approx(40, abs=1)
    assert setting.events(EventReason.FAILED_DRAINING) == []


async def test_a_budget_that_lets_one_pod_go_after_the_other_is_no_trouble(setting: Setting) -> None:
    node = await setting.launch(pods=[slow("web-1", "web"), slow("web-2", "web")])
    await setting.sim.apply(manifests.pdb("web", minAvailable=1))
    await setting.sim.run_for("1s")
    await setting.delete_claim()
    await setting.sim.run_for("15s")
    (going, waiting) = sorted(("web-1", "web-2"), key=lambda name: not is_deleting(setting.pod(name)))
    assert is_deleting(setting.pod(going))
    assert not is_deleting(setting.pod(waiting))
    assert setting.events(EventReason.FAILED_DRAINING) == []
    # It never becomes two again, so that the budget lets the last one go no more: this is trouble.
    await setting.sim.run_for("60s")
    assert any(waiting in event["note"] for event in setting.events(EventReason.FAILED_DRAINING, node))


async def test_a_pod_that_outlives_its_grace_is_trouble_a_moment_later(setting: Setting) -> None:
    held = slow("web")
    held["metadata"]["finalizers"] = ["example.com/x"]
    node = await setting.launch(pods=[held])
    await setting.delete_claim()
    await setting.sim.run_for("24s")
    assert setting.events(EventReason.FAILED_DRAINING) == []
    await setting.sim.run_for("2s")
    (event,) = setting.events(EventReason.FAILED_DRAINING, node)
    assert "default/web (terminating, should be gone since" in event["note"]


async def test_an_eviction_that_fails_says_how(setting: Setting) -> None:
    node = await setting.launch(pods=[manifests.pod("web")])
    error = Unavailable("the webhook does not answer")
    setting.sim.server.faults.add(Fault(error=error), verb="evict", resource=PODS, times=FOR_EVER)
    await setting.delete_claim()
    await setting.sim.run_for("30s")
    (event,) = setting.events(EventReason.FAILED_DRAINING, node)
    assert "default/web (its eviction fails: the webhook does not answer)" in event["note"]


# -- another leader ----------------------------------------------------------------------------------------------------


async def test_another_leader_says_nothing_a_second_time(setting: Setting) -> None:
    held = manifests.pod("held", annotations={names.DO_NOT_DISRUPT: "true"})
    span = manifests.pod("span", annotations={names.DO_NOT_DISRUPT: "4h"})
    wrong = manifests.pod("wrong", annotations={names.DO_NOT_DISRUPT: "4 hours"})
    await setting.launch(pods=[held, span, wrong], terminationGracePeriod="6h")
    await setting.delete_claim()
    await setting.sim.run_for("10s")
    assert is_deleting(setting.claim())
    before = setting.sim.objects(EVENTS)
    told = {event["reason"] for event in before}
    assert told >= {
        EventReason.FAILED_DRAINING,
        EventReason.TERMINATION_GRACE_PERIOD_EXPIRING,
        EventReason.DO_NOT_DISRUPT_UNTIL,
        EventReason.INVALID_DO_NOT_DISRUPT,
    }
    for _ in range(3):
        await setting.program.restart()
        await setting.sim.run_for("10s")
    assert setting.sim.objects(EVENTS) == before
    # Later it is no news either, but counts.
    await setting.sim.run_for("5m")
    await setting.program.restart()
    await setting.sim.run_for("10s")
    after = setting.sim.objects(EVENTS)
    assert [event["metadata"]["name"] for event in after] == [event["metadata"]["name"] for event in before]
    assert {event["series"]["count"] for event in after if event["reason"] == EventReason.FAILED_DRAINING} == {2}
