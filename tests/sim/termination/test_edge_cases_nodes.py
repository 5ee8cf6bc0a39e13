"""03 §10, 1 to 20: whose Node and claim is it, by when, and is there a machine at all? With all controllers running."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.ports import NODECLAIMS, NODES, PODS, CloudError, Conflict, Delete, Patch
from dovetail.sim.actors.wire import KUBELET, SHUTDOWN
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from dovetail.values.timestamp import format_time, parse_time
from tests.harness import manifests
from tests.harness.claims import launched, node_claim
from tests.harness.stage import PARAMETER, stage
from tests.harness.termination import GUARDED, Setting, annotation, attach, counted, is_deleting, play

pytestmark = stage(play)

LEAST_DRAIN = 5  # seconds
DISRUPTED = (names.DISRUPTED_TAINT, "NoSchedule")
LAUNCHED = ("Launched", "Registered", "Initialized")


def web(name: str = "web", **spec: Any) -> manifests.Manifest:
    return manifests.pod(name, **spec)


def guarded(name: str = "web", **spec: Any) -> manifests.Manifest:
    """A pod that only its owner or the node's deadline can make go."""
    return manifests.pod(name, annotations=GUARDED, **spec)


# -- whose is it (1–9) ------------------------------------------------------------------------------------------------


@stage(cloud=True)
async def test_node_without_claim_is_drained_and_let_go_without_asking_the_provider(setting: Setting) -> None:
    """03 §10.1."""
    await setting.add_node("lone", pods=[web()])
    await setting.delete_node("lone")
    # The 5 s are the claim's condition's, so they do not count here (03 §4.6); the pod takes a second to end.
    assert await setting.seconds_until(lambda: setting.gone(NODES, "lone")) == 1
    assert len(setting.tried_to_evict("web")) == 1
    assert setting.gone(NODECLAIMS, "c1")
    assert (setting.cloud.calls["delete"], setting.cloud.calls["get"]) == (0, 0)


async def test_node_without_claim_waits_for_a_protected_pod(setting: Setting) -> None:
    """03 §10.1."""
    await setting.add_node("lone", pods=[guarded()])
    await setting.delete_node("lone")
    await setting.sim.run_for("3h")
    assert setting.runs("web")
    assert DISRUPTED in setting.taints("lone")


async def second_claim(setting: Setting, node: str) -> None:
    """A claim c2 that says of itself what c1 does, as after a backup was restored into the living cluster."""
    await setting.program.stop()
    await setting.sim.apply(node_claim("c2", finalizers=True))
    first = setting.claim()
    assert first is not None
    await launched(setting.sim, "c2", node=node, true=LAUNCHED, nodeName=node, providerID=first["status"]["providerID"])
    await setting.program.start()


@stage(cloud=True)
async def test_two_claims_for_one_machine_count_as_none(setting: Setting) -> None:
    """03 §10.2."""
    node = await setting.launch(pods=[web()])
    await second_claim(setting, node)
    await setting.delete_node(node)
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 1
    assert len(setting.tried_to_evict("web")) == 1
    assert setting.cloud.calls["delete"] == 0
    for claim in ("c1", "c2"):
        assert not is_deleting(setting.claim(claim))
        assert setting.condition(ConditionType.DRAINED, claim) == {}


async def test_one_of_two_claims_for_one_machine_is_deleted(setting: Setting) -> None:
    """03 §10.2."""
    node = await setting.launch(pods=[guarded()], terminationGracePeriod="1m")
    await second_claim(setting, node)
    await setting.delete_claim()
    # Whose deadline it is cannot be said, so there is none.
    await setting.sim.run_for("2h")
    assert setting.runs("web")
    assert not is_deleting(setting.claim("c2"))


async def test_all_nodes_of_a_claim_are_deleted_and_it_waits_for_all(setting: Setting) -> None:
    """03 §10.3."""
    first = await setting.launch(pods=[web()])
    claim = setting.claim()
    assert claim is not None
    slow = manifests.pod("slow", annotations={SHUTDOWN: "20s"})
    await setting.add_node("second", pods=[slow], provider_id=claim["status"]["providerID"])
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, first)) == LEAST_DRAIN
    assert is_deleting(setting.node("second"))
    assert is_deleting(setting.claim())
    assert await setting.seconds_until(lambda: setting.gone(NODES, "second")) == 20 - LEAST_DRAIN
    assert await setting.seconds_until(lambda: setting.gone(NODECLAIMS, "c1")) == 0


async def test_nodes_that_are_not_ours_are_left_alone(setting: Setting) -> None:
    """03 §10.4."""
    await setting.add_node("foreign", pods=[web()], managed=False)
    before = setting.taints("foreign")
    await setting.delete_node("foreign")
    await setting.sim.run_for("1h")
    assert setting.runs("web")
    assert setting.taints("foreign") == before
    assert [sent for sent in setting.sent if sent.request.name in ("foreign", "web")] == []


@pytest.mark.parametrize("first", ["claim", "node"])
async def test_deleting_either_ends_both(setting: Setting, first: str) -> None:
    """03 §10.5."""
    node = await setting.launch(pods=[web()], terminationGracePeriod="1h")
    deleted_at = setting.now()
    if first == "claim":
        await setting.delete_claim()
    else:
        await setting.delete_node(node)
    await setting.sim.wait_until(lambda: is_deleting(setting.node(node)) and is_deleting(setting.claim()))
    await setting.sim.wait_until(lambda: setting.deadline() == deleted_at + timedelta(hours=1))
    await setting.sim.wait_until(lambda: DISRUPTED in setting.taints(node))
    assert setting.now() == deleted_at
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == LEAST_DRAIN
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"), timeout="1s")


@pytest.mark.parametrize("seed", range(6))
@stage(seed=PARAMETER, shuffle=True, latency_seconds=0.01)
async def test_nothing_is_drained_or_counted_twice(setting: Setting) -> None:
    """03 §10.6."""
    pods = [manifests.pod(f"web-{number}", annotations={SHUTDOWN: f"{number}s"}) for number in range(8)]
    node = await setting.launch(pods=pods)
    # Whatever happens to pods, claim and Node has the same Node looked at again, by up to a hundred workers.
    await setting.delete_claim()
    await setting.delete_node(node)
    for number in range(20):
        await setting.annotate(NODES, node, {"example.com/turn": str(number)})
        await setting.annotate(NODECLAIMS, "c1", {"example.com/turn": str(number)})
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1") and setting.gone(NODES, node))
    await setting.sim.run_for("1m")
    assert {pod["metadata"]["name"]: len(setting.tried_to_evict(pod["metadata"]["name"])) for pod in pods} == {
        f"web-{number}": 1 for number in range(8)
    }
    metrics = setting.metrics
    assert counted(metrics.pods_drained) == 8
    assert counted(metrics.pods_eviction_requests, code="200") == 8
    assert counted(metrics.nodes_drained) == 1
    assert counted(metrics.nodes_terminated) == 1
    assert counted(metrics.nodeclaims_terminated) == 1
    assert len(setting.events(EventReason.EVICTED)) == 8


@pytest.mark.parametrize("seed", range(3))
@stage(seed=PARAMETER, shuffle=True, latency_seconds=0.01)
async def test_nothing_is_looked_at_again_once_all_is_gone(setting: Setting) -> None:
    """03 §10.6."""
    node = await setting.launch(pods=[web()])
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1") and setting.gone(NODES, node))
    await setting.sim.run_for("10s")
    # An own write whose object is gone is not waited for.
    assert setting.program.cluster.nodes.get_consistent(node) is None
    assert setting.program.cluster.claims.get_consistent("c1") is None
    assert setting.program.cluster.pods.get_consistent("web", "default") is None


@stage(cloud=True)
async def test_claim_that_was_never_launched_just_goes(setting: Setting) -> None:
    """03 §10.7."""
    setting.cloud.next_launches(Launch(error=CloudError("out of order")), times=1000)
    await setting.want()
    await setting.sim.run_for("1m")
    assert setting.condition(ConditionType.LAUNCHED)["status"] == "Unknown"
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODECLAIMS, "c1")) == 0
    assert setting.cloud.calls["delete"] == 0
    assert setting.requests("delete", NODES) == []


@stage(cloud=True)
async def test_claim_that_never_registered_ends_its_machine_and_leaves_the_node(setting: Setting) -> None:
    """03 §10.8."""
    # Registration cannot write the Node, so it stays as the machine has made it.
    setting.sim.server.faults.add(
        Fault(error=Conflict("changed meanwhile")),
        verb="patch",
        resource=NODES,
        client=names.COMPONENT,
        times=10**6,
    )
    await setting.want(terminationGracePeriod="1h")
    await setting.sim.wait_until(lambda: bool(setting.sim.objects(NODES)))
    await setting.sim.run_for("30s")
    assert setting.condition(ConditionType.LAUNCHED)["status"] == "True"
    assert setting.condition(ConditionType.REGISTERED)["status"] == "Unknown"
    (node,) = setting.sim.objects(NODES)
    setting.cloud.delete_seconds = 30
    await setting.delete_claim()
    await setting.sim.run_for("20s")
    assert not is_deleting(setting.node(node["metadata"]["name"]))
    assert setting.condition(ConditionType.INSTANCE_TERMINATING)["status"] == "True"
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"), timeout="15s")
    assert setting.requests("delete", NODES) == []
    assert await setting.cloud.list() == []


@stage(cloud=True)
async def test_no_provider_id_matches_no_provider_id(setting: Setting) -> None:
    """03 §10.9."""
    setting.cloud.next_launches(Launch(error=CloudError("out of order")), times=1000)
    await setting.want("c1")
    await setting.want("c2")
    await setting.add_node("bare", pods=[web()], provider_id="")
    await setting.sim.run_for("1m")
    await setting.delete_claim("c1")
    await setting.sim.run_for("1m")
    assert setting.gone(NODECLAIMS, "c1")
    assert setting.runs("web")
    assert not is_deleting(setting.node("bare"))
    await setting.delete_node("bare")
    await setting.sim.wait_until(lambda: setting.gone(NODES, "bare"), timeout="5s")
    assert not is_deleting(setting.claim("c2"))
    assert setting.claim("c2") is not None
    assert (setting.cloud.calls["delete"], setting.cloud.calls["get"]) == (0, 0)


# -- by when (10–14) --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [10, 300])
async def test_a_deadline_that_is_written_already_stands(setting: Setting, minutes: int) -> None:
    """03 §10.10."""
    node = await setting.launch(pods=[guarded()], terminationGracePeriod="1h")
    written = setting.now() + timedelta(minutes=minutes)
    await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: format_time(written)})
    await setting.delete_claim()
    await setting.run_until(written - timedelta(seconds=31))
    assert setting.deadline() == written
    assert setting.runs("web")
    await setting.run_past(written - timedelta(seconds=30))  # its own grace
    assert is_deleting(setting.pod("web"))
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="2s")


async def test_without_a_grace_period_there_is_no_deadline(setting: Setting) -> None:
    """03 §10.11."""
    node = await setting.launch(pods=[guarded()])
    await setting.delete_claim()
    await setting.sim.run_for("24h")
    assert annotation(setting.claim(), names.TERMINATION_TIMESTAMP) is None
    assert setting.runs("web")
    assert DISRUPTED in setting.taints(node)
    assert setting.condition(ConditionType.DRAINED)["status"] == "Unknown"
    assert setting.events(EventReason.TERMINATION_GRACE_PERIOD_EXPIRING) == []
    await setting.sim.api.write(Delete(PODS, "web", namespace="default"))
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 1


@stage(cloud=True)
async def test_a_grace_period_of_nothing_forces_all_at_once(setting: Setting) -> None:
    """03 §10.12."""
    pods = [guarded("guarded"), web("budgeted"), manifests.pod("slow", annotations={SHUTDOWN: "25s"})]
    names_ = ["guarded", "budgeted", "slow"]
    node = await setting.launch(pods=pods, terminationGracePeriod="0s")
    await setting.sim.apply(manifests.pdb("budgeted", maxUnavailable=0))
    await attach(setting, "disk", node, "pv-1")
    setting.cloud.delete_seconds = 60
    deleted_at = setting.now()
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.cloud.calls["delete"] > 0)
    # R17: they are told, with a second each, and nobody waits for them or for the volume.
    assert setting.now() == deleted_at
    assert setting.deadline() == deleted_at
    for name in names_:
        found = setting.pod(name)
        assert found is not None
        assert parse_time(found["metadata"]["deletionTimestamp"]) == deleted_at + timedelta(seconds=1)
    assert setting.tried_to_evict() == []
    await setting.sim.wait_until(lambda: setting.condition(ConditionType.INSTANCE_TERMINATING).get("status") == "True")
    elapsed = setting.condition(ConditionType.VOLUMES_DETACHED)
    assert (elapsed["status"], elapsed["reason"]) == ("False", "TerminationGracePeriodElapsed")
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="65s")
    assert sorted(event["regarding"]["name"] for event in setting.events(EventReason.DISRUPTED)) == sorted(names_)


async def test_a_deadline_that_cannot_be_read_forces_nothing(setting: Setting) -> None:
    """03 §10.13: R32: it is told on the claim, and without a grace period the drain goes on without a deadline."""
    node = await setting.launch(pods=[guarded(), web("free")])
    await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: "tomorrow"})
    await setting.delete_claim()
    await setting.sim.run_for("30m")
    assert annotation(setting.claim(), names.TERMINATION_TIMESTAMP) == "tomorrow"
    assert setting.runs("web")
    assert setting.pod("free") is None
    told = setting.events(EventReason.FAILED_TERMINATION, "c1")
    assert "tomorrow" in told[0]["note"]
    # Once it is put right it counts.
    written = setting.now() + timedelta(minutes=1)
    await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: format_time(written)})
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 60 - 30 + 1


@pytest.mark.parametrize("written_minutes", [None, 90])
@stage(cloud=True)
async def test_an_unhealthy_node_is_drained_within_its_grace_period(
    setting: Setting, written_minutes: int | None
) -> None:
    """03 §10.14.

    R24a: upstream's repair forces at once; here it is S1 to S4 like any other, bounded by the grace period."""
    stays = [{"key": names.NOT_READY_TAINT, "operator": "Exists", "effect": "NoExecute"}]
    node = await setting.launch(pods=[guarded(tolerations=stays)], terminationGracePeriod="1h")
    deadline = None if written_minutes is None else setting.now() + timedelta(minutes=written_minutes)
    if deadline is not None:
        await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: format_time(deadline)})
    setting.sim.set_node_ready(node, ready=False)
    assert await setting.seconds_until(lambda: is_deleting(setting.claim()), timeout="15m") == 600
    deadline = deadline or setting.now() + timedelta(hours=1)
    await setting.run_until(deadline - timedelta(seconds=31))
    assert counted(setting.metrics.nodeclaims_disrupted, reason="unhealthy") == 1
    assert setting.deadline() == deadline
    assert not is_deleting(setting.pod("web"))
    await setting.run_past(deadline - timedelta(seconds=30))
    assert is_deleting(setting.pod("web"))
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="2m")


@stage(cloud=True)
async def test_a_deadline_of_an_unhealthy_node_that_has_passed_stands(setting: Setting) -> None:
    """03 §10.14."""
    node = await setting.launch(pods=[guarded()], terminationGracePeriod="1h")
    past = format_time(setting.now())
    await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: past})
    setting.sim.set_node_ready(node, ready=False)
    await setting.sim.wait_until(lambda: is_deleting(setting.claim()), timeout="15m")
    await setting.sim.wait_until(lambda: setting.cloud.calls["delete"] > 0, timeout="1s")
    assert annotation(setting.claim(), names.TERMINATION_TIMESTAMP) == past


# -- taint and label (15–17) ------------------------------------------------------------------------------------------


async def mark(setting: Setting, node: str, *taints: tuple[str, str], balancers: str | None = None) -> None:
    """Give the node taints and the load balancers' label by hand."""
    body = {
        "metadata": {"labels": {names.EXCLUDE_BALANCERS_LABEL: balancers}},
        "spec": {"taints": [{"key": key, "effect": effect, "value": "hand"} for key, effect in taints]},
    }
    await setting.sim.api.write(Patch(NODES, node, body))


def balancers_of(setting: Setting, node: str) -> str | None:
    found = setting.node(node)
    assert found is not None
    label: str | None = found["metadata"]["labels"].get(names.EXCLUDE_BALANCERS_LABEL)
    return label


OTHER = ("example.com/other", "NoSchedule")


@pytest.mark.parametrize("effect", ["PreferNoSchedule", "NoExecute"])
async def test_a_taint_of_the_key_with_another_effect_is_replaced(setting: Setting, effect: str) -> None:
    """03 §10.15."""
    stays = [{"key": names.DISRUPTED_TAINT, "operator": "Exists", "effect": "NoExecute"}]
    node = await setting.launch(pods=[guarded(tolerations=stays)])
    await mark(setting, node, (names.DISRUPTED_TAINT, effect), OTHER)
    await setting.delete_claim()
    await setting.sim.run_for("1s")
    assert sorted(setting.taints(node)) == sorted([OTHER, DISRUPTED])
    assert balancers_of(setting, node) == "karpenter"


async def test_the_label_is_added_even_where_the_taint_was_there(setting: Setting) -> None:
    """03 §10.15."""
    node = await setting.launch(pods=[guarded()])
    await mark(setting, node, DISRUPTED, OTHER)
    await setting.delete_claim()
    await setting.sim.run_for("1s")
    assert sorted(setting.taints(node)) == sorted([OTHER, DISRUPTED])
    assert balancers_of(setting, node) == "karpenter"


async def test_nothing_is_written_where_both_are_there(setting: Setting) -> None:
    """03 §10.15."""
    node = await setting.launch(pods=[guarded()])
    await mark(setting, node, DISRUPTED, balancers="karpenter")
    await setting.delete_claim()
    before = len(setting.requests("patch", NODES))
    await setting.sim.run_for("1m")
    assert len(setting.requests("patch", NODES)) == before


@pytest.mark.parametrize("taints", [(), (DISRUPTED,)])
@pytest.mark.parametrize("before", [None, "", "true"])
async def test_the_label_for_load_balancers_is_exactly_karpenter(
    setting: Setting, before: str | None, taints: tuple[tuple[str, str], ...]
) -> None:
    """03 §10.16."""
    node = await setting.launch(pods=[guarded()])
    await mark(setting, node, *taints, balancers=before)
    await setting.delete_claim()
    await setting.sim.run_for("1s")
    assert balancers_of(setting, node) == "karpenter"


async def test_a_conflict_at_the_taint_is_no_error(setting: Setting) -> None:
    """03 §10.17."""
    node = await setting.launch(pods=[guarded()])
    conflict = Fault(error=Conflict("changed meanwhile"))
    setting.sim.server.faults.add(conflict, verb="patch", resource=NODES, client=names.COMPONENT, times=10)
    await setting.delete_claim()
    # Ten times at once, and not with ever longer waits; visible within 3 s of the deletion (03 §3.5).
    assert await setting.seconds_until(lambda: DISRUPTED in setting.taints(node)) < 1


async def test_somebody_else_taints_meanwhile(setting: Setting) -> None:
    """03 §10.17."""
    node = await setting.launch(pods=[guarded()])
    # Our patch is on its way while the Node changes: the lock refuses it, and both taints are there in the end.
    slow = Fault(delay_seconds=1)
    setting.sim.server.faults.add(slow, verb="patch", resource=NODES, client=names.COMPONENT)
    await setting.delete_claim()
    await setting.sim.run_for("500ms")
    await mark(setting, node, OTHER)
    await setting.sim.run_for("2s")
    assert sorted(setting.taints(node)) == sorted([OTHER, DISRUPTED])


# -- is there a machine (18–20) ---------------------------------------------------------------------------------------


async def lose_machine(setting: Setting, node: str) -> None:
    found = setting.node(node)
    assert found is not None
    setting.cloud.vanish(found["spec"]["providerID"])
    await setting.sim.run_for("1s")


@stage(cloud=True)
async def test_a_node_that_is_not_ready_and_has_no_machine_is_not_drained(setting: Setting) -> None:
    """03 §10.18."""
    node = await setting.launch(pods=[guarded(), web("free")])
    await attach(setting, "disk", node, "pv-1")
    await lose_machine(setting, node)
    await setting.sim.run_for("70s")  # its silence is noticed
    await setting.delete_node(node)
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 0
    assert setting.tried_to_evict() == []
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"), timeout="1s")


async def test_on_kwok_a_node_that_is_not_ready_has_lost_its_machine_after_a_minute(setting: Setting) -> None:
    """03 §10.18: R58: until then its heartbeat may only be late, and it is drained like any other."""
    node = await setting.launch(pods=[guarded()])
    setting.sim.set_node_ready(node, ready=False)
    await setting.sim.run_for("1s")
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1")) == 60


@stage(cloud=True)
async def test_a_node_that_is_not_ready_but_has_its_machine_is_drained(setting: Setting) -> None:
    """03 §10.18."""
    node = await setting.launch(pods=[guarded()])
    setting.sim.set_node_ready(node, ready=False)
    await setting.sim.run_for("1s")
    await setting.delete_claim()
    await setting.sim.run_for("1m")
    assert DISRUPTED in setting.taints(node)
    assert not is_deleting(setting.pod("web"))


@stage(cloud=True)
async def test_a_ready_node_is_drained_even_if_the_provider_does_not_know_it(setting: Setting) -> None:
    """03 §10.19."""
    node = await setting.launch(pods=[manifests.pod("web", annotations={SHUTDOWN: "12s"})])
    await lose_machine(setting, node)
    setting.sim.revive_kubelet(node)  # it was not the machine, but the provider's book-keeping
    asked = setting.cloud.calls["get"]
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 12
    assert len(setting.tried_to_evict("web")) == 1
    assert setting.cloud.calls["get"] == asked


@stage(cloud=True)
async def test_a_node_that_nobody_has_spoken_for_is_not_ready(setting: Setting) -> None:
    """03 §10.20."""
    await setting.add_node("silent", pods=[guarded()], annotations={KUBELET: "none"}, provider_id="sim://silent")
    found = setting.node("silent")
    assert found is not None
    assert not [each for each in found["status"].get("conditions", ()) if each["type"] == "Ready"]
    await setting.delete_node("silent")
    assert await setting.seconds_until(lambda: setting.gone(NODES, "silent")) == 0
    assert setting.cloud.calls["get"] == 1
    assert setting.tried_to_evict() == []
