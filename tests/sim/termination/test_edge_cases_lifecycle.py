"""03 §10, 59 to 71: claims that do not come up, that are lost, and what registration and initialization leave behind.
With all controllers running."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.ports import (
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PODS,
    CreateFailed,
    Delete,
    Forbidden,
    Invalid,
    Patch,
    Unavailable,
)
from dovetail.sim.actors.wire import Raw
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from dovetail.values.timestamp import parse_time
from tests.harness import manifests
from tests.harness.claims import condition_of, node, node_class, node_pool, put_status
from tests.harness.stage import PARAMETER, stage
from tests.harness.termination import FOR_EVER, GUARDED, Setting, counted, is_deleting, play
from tests.sim.termination.past import Past

pytestmark = stage(play)

MINUTE = timedelta(minutes=1)
HEALTHY = ConditionType.NODE_REGISTRATION_HEALTHY
STARTUP = {"key": "example.com/startup", "effect": "NoSchedule"}
OWN = {"key": "example.com/own", "effect": "NoSchedule", "value": "yes"}


def is_true(setting: Setting, type_: str, claim: str = "c1") -> bool:
    return setting.condition(type_, claim).get("status") == "True"


def claim_of(setting: Setting, name: str = "c1") -> Raw:
    found = setting.claim(name)
    assert found is not None
    return found


def created_at(setting: Setting, name: str = "c1") -> datetime:
    return parse_time(claim_of(setting, name)["metadata"]["creationTimestamp"])


def provider_id(setting: Setting, name: str = "c1") -> str:
    return str(claim_of(setting, name)["status"]["providerID"])


def only_node(setting: Setting) -> Raw:
    (found,) = setting.sim.objects(NODES)
    return found


def told(setting: Setting, pool: str = "default") -> tuple[str, str]:
    """What the pool says of its registrations."""
    found = condition_of(setting.sim, NODEPOOLS, pool, HEALTHY)
    return found["status"], found["reason"]


# -- claims that do not come up (59, 63) ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Forbidden("admission webhook denied the request"), Invalid("not such a Node")])
async def test_a_node_that_is_refused_leaves_its_claim_to_time_out(
    setting: Setting, error: Forbidden | Invalid
) -> None:
    """03 §10.59."""
    setting.sim.server.faults.add(Fault(error=error), verb="create", resource=NODES, times=FOR_EVER)
    await setting.want()
    await setting.sim.run_for("14m59s")
    assert is_true(setting, ConditionType.LAUNCHED)
    waiting = setting.condition(ConditionType.REGISTERED)
    assert (waiting["status"], waiting["reason"]) == ("Unknown", "NodeNotFound")
    assert not is_deleting(claim_of(setting))
    end = created_at(setting) + 15 * MINUTE
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"), timeout="2m")
    assert setting.now() == end
    await setting.sim.run_for("1s")
    assert counted(setting.metrics.nodeclaims_disrupted, reason="registration_timeout") == 1
    assert counted(setting.metrics.nodeclaims_terminated) == 1


@stage(cloud=True)
async def test_the_time_to_register_counts_from_the_transition(setting: Setting) -> None:
    """03 §10.63."""
    setting.cloud.next_launches(Launch(registers=False))
    await setting.want()
    await setting.sim.wait_until(lambda: is_true(setting, ConditionType.LAUNCHED))
    await setting.run_until(created_at(setting) + 10 * MINUTE)
    # Two Nodes, of which neither can be right, make it False: a transition.
    await setting.program.stop()
    for name in ("n1", "n2"):
        body = node(name)
        body["spec"]["providerID"] = provider_id(setting)
        await setting.sim.apply(body)
    await setting.program.start()
    await setting.sim.run_for("1s")
    found = setting.condition(ConditionType.REGISTERED)
    assert (found["status"], found["reason"]) == ("False", "MultipleNodesFound")
    since = parse_time(found["lastTransitionTime"])
    assert since == created_at(setting) + 10 * MINUTE
    await setting.run_until(since + 15 * MINUTE - timedelta(milliseconds=1))
    assert not is_deleting(claim_of(setting))
    await setting.run_past(since + 15 * MINUTE)
    assert is_deleting(claim_of(setting))


@pytest.mark.parametrize("seconds", [0, 897])
@stage(cloud=True)
async def test_a_claim_that_registers_late_lives(setting: Setting, seconds: int) -> None:
    """03 §10.63."""
    setting.cloud.register_seconds = seconds  # and two for the launch
    await setting.want()
    await setting.sim.wait_until(lambda: is_true(setting, ConditionType.REGISTERED), timeout="15m")
    assert setting.now() == created_at(setting) + timedelta(seconds=seconds + 2)
    # And whatever becomes of it later: it has registered.
    setting.sim.set_node_ready(str(only_node(setting)["metadata"]["name"]), ready=False)
    await setting.sim.run_for("9m")
    assert not is_deleting(claim_of(setting))
    assert counted(setting.metrics.nodeclaims_disrupted) == 0


@stage(cloud=True)
async def test_the_time_to_launch_ends_to_the_second_whatever_the_back_off(setting: Setting) -> None:
    """03 §10.63."""
    setting.cloud.next_launches(Launch(error=CreateFailed("Quota", "none left")), times=1000)
    await setting.want()
    await setting.sim.run_for("4m59s")
    end = created_at(setting) + 5 * MINUTE
    assert setting.condition(ConditionType.LAUNCHED)["reason"] == "Quota"
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"), timeout="1m")
    assert setting.now() == end
    assert counted(setting.metrics.nodeclaims_disrupted, reason="launch_timeout") == 1


@pytest.mark.parametrize("minutes", [7, 20])
@stage(cloud=True)
async def test_a_restart_does_not_start_the_time_anew(setting: Setting, minutes: int) -> None:
    """03 §10.63."""
    setting.cloud.next_launches(Launch(registers=False))
    await setting.want()
    await setting.sim.wait_until(lambda: is_true(setting, ConditionType.LAUNCHED))
    await setting.program.kill()
    await setting.run_until(created_at(setting) + minutes * MINUTE)
    await setting.program.start()
    end = max(setting.now(), created_at(setting) + 15 * MINUTE)
    await setting.sim.wait_until(lambda: is_deleting(claim_of(setting)))
    assert setting.now() == end


# -- claims that have lost their machine (60–62) ----------------------------------------------------------------------


async def tear_out(setting: Setting, name: str) -> None:
    """Have the Node gone without anybody having drained it."""
    await setting.sim.api.write(Patch(NODES, name, {"metadata": {"finalizers": None}}))
    await setting.delete_node(name)
    assert setting.gone(NODES, name)


@pytest.mark.parametrize("cloud", [False, True])
@stage(cloud=PARAMETER)
async def test_a_claim_without_machine_and_node_is_collected_within_two_minutes(setting: Setting, cloud: bool) -> None:
    """03 §10.60."""
    name = await setting.launch()
    await setting.sim.run_for("3m7s")
    if cloud:
        setting.cloud.vanish(provider_id(setting))
    await tear_out(setting, name)
    assert await setting.seconds_until(lambda: setting.gone(NODECLAIMS, "c1")) <= 120
    assert counted(setting.metrics.nodeclaims_disrupted, reason="garbage_collected") == 1


@stage(cloud=True)
async def test_a_node_that_is_not_ready_does_not_speak_for_its_machine(setting: Setting) -> None:
    """03 §10.60."""
    name = await setting.launch(pods=[manifests.pod("web", annotations=GUARDED)])
    setting.cloud.vanish(provider_id(setting))
    await setting.sim.wait_until(
        lambda: condition_of(setting.sim, NODES, name, "Ready").get("status") == "Unknown", timeout="2m"
    )
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1") and setting.gone(NODES, name), timeout="2m")
    assert counted(setting.metrics.nodeclaims_disrupted, reason="garbage_collected") == 1


@stage(cloud=True)
async def test_a_claim_that_never_registered_is_not_collected(setting: Setting) -> None:
    """03 §10.61."""
    setting.cloud.next_launches(Launch(registers=False))
    await setting.want()
    await setting.sim.wait_until(lambda: is_true(setting, ConditionType.LAUNCHED))
    setting.cloud.vanish(provider_id(setting))
    await setting.sim.run_for("14m")
    assert not is_deleting(claim_of(setting))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"), timeout="1m")
    assert counted(setting.metrics.nodeclaims_disrupted, reason="garbage_collected") == 0
    assert counted(setting.metrics.nodeclaims_disrupted, reason="registration_timeout") == 1


@stage(cloud=True)
async def test_a_ready_node_speaks_for_its_machine(setting: Setting) -> None:
    """03 §10.62."""
    name = await setting.launch(pods=[manifests.pod("web")])
    setting.cloud.vanish(provider_id(setting))
    await setting.sim.run_for("1s")
    setting.sim.revive_kubelet(name)  # it was the provider's book-keeping
    await setting.sim.run_for("1h")
    assert not is_deleting(claim_of(setting))
    assert setting.runs("web")
    assert counted(setting.metrics.nodeclaims_disrupted) == 0


# -- taints, owners, conditions (64–66, 69) ---------------------------------------------------------------------------


async def register(setting: Setting, **options: Any) -> str:
    """Have a claim with taints of its own registered; the name of its Node."""
    await setting.want(**{"taints": [OWN], "startupTaints": [STARTUP], **options})
    await setting.sim.wait_until(lambda: is_true(setting, ConditionType.REGISTERED))
    return str(only_node(setting)["metadata"]["name"])


async def untaint(setting: Setting, name: str, key: str) -> None:
    found = setting.node(name)
    assert found is not None
    taints = [taint for taint in found["spec"].get("taints") or () if taint["key"] != key]
    await setting.sim.api.write(Patch(NODES, name, {"spec": {"taints": taints}}))


def keys(setting: Setting, name: str) -> set[str]:
    return {key for key, _ in setting.taints(name)}


async def test_a_startup_taint_that_comes_back_is_just_a_taint(setting: Setting) -> None:
    """03 §10.64."""
    name = await register(setting)
    await setting.sim.run_for("5m")
    waiting = setting.condition(ConditionType.INITIALIZED)
    assert (waiting["status"], waiting["reason"]) == ("Unknown", "StartupTaintsExist")
    assert keys(setting, name) == {OWN["key"], STARTUP["key"]}
    await untaint(setting, name, STARTUP["key"])
    await setting.sim.wait_until(lambda: is_true(setting, ConditionType.INITIALIZED), timeout="1s")
    past = Past(setting.sim, NODECLAIMS, "c1")
    await setting.sim.api.write(Patch(NODES, name, {"spec": {"taints": [OWN, STARTUP]}}))
    await setting.sim.run_for("1h")
    assert keys(setting, name) == {OWN["key"], STARTUP["key"]}
    found = setting.node(name)
    assert found is not None
    assert found["metadata"]["labels"][names.INITIALIZED_LABEL] == "true"
    await setting.annotate(NODECLAIMS, "c1", {"example.com/turn": "1"})
    await setting.sim.run_for("1m")
    assert set(past.statuses(ConditionType.INITIALIZED)) == {"True"}
    assert set(past.statuses(ConditionType.READY)) == {"True"}


async def test_later_changes_of_the_node_do_not_undo_initialization(setting: Setting) -> None:
    """03 §10.64."""
    name = await setting.launch()
    setting.sim.set_node_ready(name, ready=False)
    await setting.sim.run_for("5m")
    assert is_true(setting, ConditionType.INITIALIZED)
    assert is_true(setting, ConditionType.READY)


@pytest.mark.parametrize(("value", "synced"), [("true", False), ("false", True), ("yes", True), ("", True)])
@pytest.mark.parametrize("cloud", [False, True])
@stage(cloud=PARAMETER)
async def test_only_true_keeps_the_taints_from_the_node(setting: Setting, value: str, synced: bool) -> None:
    """03 §10.65."""
    name = await register(setting, labels={names.DO_NOT_SYNC_TAINTS_LABEL: value})
    await setting.sim.run_for("10s")
    assert keys(setting, name) == ({OWN["key"], STARTUP["key"]} if synced else set())
    assert is_true(setting, ConditionType.INITIALIZED) is not synced


async def test_registering_again_doubles_nothing_and_brings_nothing_back(setting: Setting) -> None:
    """03 §10.66."""
    # The Node is written, and then the claim cannot be: so all of it is done once more.
    down = Fault(error=Unavailable("down"))
    setting.sim.server.faults.add(
        down,
        verb="patch",
        resource=NODECLAIMS,
        subresource="status",
        client=names.COMPONENT,
        times=FOR_EVER,
        when=lambda _request: bool(registered(setting)),
    )
    await setting.want(taints=[OWN], startupTaints=[STARTUP])
    await setting.sim.wait_until(lambda: bool(registered(setting)))
    name = registered(setting)[0]
    await setting.sim.run_for("5s")
    await untaint(setting, name, STARTUP["key"])  # whoever waits for that is quick
    await setting.sim.run_for("5s")
    assert not is_true(setting, ConditionType.REGISTERED)
    setting.sim.server.faults.clear()
    await setting.sim.wait_until(lambda: is_true(setting, ConditionType.INITIALIZED))
    found = only_node(setting)
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [claim_of(setting)["metadata"]["uid"]]
    assert found["metadata"]["finalizers"] == [names.TERMINATION_FINALIZER]
    assert keys(setting, name) == {OWN["key"]}
    assert counted(setting.metrics.nodes_created) == 1


def registered(setting: Setting) -> list[str]:
    return [
        str(found["metadata"]["name"])
        for found in setting.sim.objects(NODES)
        if found["metadata"]["labels"].get(names.REGISTERED_LABEL) == "true"
    ]


async def test_conditions_of_another_generation_are_observed_anew(setting: Setting) -> None:
    """03 §10.69."""
    three = (ConditionType.LAUNCHED, ConditionType.REGISTERED, ConditionType.INITIALIZED)
    await setting.launch()
    await setting.sim.run_for("1m")
    # The spec cannot be changed, so it is the conditions that fall behind here.
    before = {entry["type"]: entry for entry in claim_of(setting)["status"]["conditions"]}
    old = [{**entry, "observedGeneration": 0} for entry in before.values()]
    await put_status(setting.sim, NODECLAIMS, "c1", {"conditions": old})
    await setting.sim.run_for("10s")
    for type_ in three:
        found = setting.condition(type_)
        assert found["observedGeneration"] == claim_of(setting)["metadata"]["generation"] == 1
        assert found["lastTransitionTime"] == before[type_]["lastTransitionTime"]
    assert is_true(setting, ConditionType.READY)


# -- pools (67, 68, 70, 71) -------------------------------------------------------------------------------------------


async def make_pool(setting: Setting) -> str:
    await setting.sim.apply(node_class(), node_pool())
    await setting.sim.run_for("1s")
    found = setting.sim.object(NODEPOOLS, "default")
    assert found is not None
    return str(found["metadata"]["uid"])


@stage(cloud=True)
async def test_two_failures_of_the_last_four_make_a_pool_unhealthy(setting: Setting) -> None:
    """03 §10.67."""
    uid = await make_pool(setting)
    assert told(setting)[0] == "Unknown"
    unknown = [{"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["no-such-type"]}]
    for number, status in ((1, "Unknown"), (2, "False")):
        await setting.want(f"bad-{number}", pool_uid=uid, requirements=unknown)
        await setting.sim.run_for("6m")
        assert setting.gone(NODECLAIMS, f"bad-{number}")
        assert told(setting)[0] == status
    found = condition_of(setting.sim, NODEPOOLS, "default", HEALTHY)
    assert found["reason"] == "LaunchFailed"
    assert "no-such-type" in found["message"]
    for number, status in ((1, "False"), (2, "False"), (3, "True")):
        await setting.launch(f"good-{number}", pool_uid=uid)
        await setting.sim.run_for("1s")
        assert told(setting)[0] == status


@stage(cloud=True)
async def test_machines_that_do_not_register_count_as_well(setting: Setting) -> None:
    """03 §10.67."""
    uid = await make_pool(setting)
    setting.cloud.next_launches(Launch(registers=False), times=2)
    await setting.want("bad-1", pool_uid=uid)
    await setting.want("bad-2", pool_uid=uid)
    await setting.sim.run_for("16m")
    assert told(setting) == ("False", "RegistrationFailed")
    assert condition_of(setting.sim, NODEPOOLS, "default", "Ready")["status"] == "True"  # no part of it


@stage(cloud=True)
async def test_claims_of_a_pool_that_is_gone_say_nothing_and_harm_nothing(setting: Setting) -> None:
    """03 §10.68."""
    await make_pool(setting)
    setting.cloud.next_launches(Launch(registers=False))
    await setting.want("slow")  # it has the pool's label, but not the pool as its owner
    await setting.sim.wait_until(lambda: is_true(setting, ConditionType.LAUNCHED, "slow"))
    await setting.sim.api.write(Delete(NODEPOOLS, "default"))
    await setting.launch("quick")
    await setting.sim.run_for("20m")
    assert setting.gone(NODECLAIMS, "slow")
    assert counted(setting.metrics.nodeclaims_disrupted, reason="registration_timeout", nodepool="default") == 1
    assert setting.gone(NODEPOOLS, "default")
    # The program runs on, and a new pool of the name begins anew.
    await make_pool(setting)
    assert told(setting)[0] == "Unknown"


async def test_a_claim_without_pool_lives_and_dies_like_any_other(setting: Setting) -> None:
    """03 §10.70."""
    name = await setting.launch(pool="", expireAfter="1h", pods=[manifests.pod("web")])
    found = setting.node(name)
    assert found is not None
    assert names.NODEPOOL_LABEL not in found["metadata"]["labels"]
    assert found["metadata"]["labels"][names.KWOK_NODECLASS_LABEL] == "default"
    end = created_at(setting) + timedelta(hours=1)
    await setting.run_until(end - timedelta(milliseconds=1))
    assert not is_deleting(claim_of(setting))
    assert setting.runs("web")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1") and setting.gone(NODES, name))
    assert setting.now() == end + timedelta(seconds=5)
    assert len(setting.tried_to_evict("web")) == 1
    assert counted(setting.metrics.nodeclaims_disrupted, reason="expired", nodepool="") == 1


@pytest.mark.parametrize(("others", "replaced"), [(5, True), (4, False)])
@stage(cloud=True)
async def test_of_a_claim_without_pool_the_whole_cluster_is_asked(
    setting: Setting, others: int, replaced: bool
) -> None:
    """03 §10.70: Two unhealthy nodes of six are not more than 20 %, rounded up; two of five are."""
    lone = await setting.launch("lone", pool="")
    nodes = [await setting.launch(f"c{number}", pool=f"pool-{number % 2}") for number in range(others)]
    for name in (lone, nodes[0]):
        setting.sim.set_node_ready(name, ready=False)
    await setting.sim.run_for("9m59s")
    assert counted(setting.metrics.nodeclaims_disrupted) == 0
    await setting.sim.run_for("2s")
    assert counted(setting.metrics.nodeclaims_disrupted, reason="unhealthy", nodepool="") == replaced
    assert bool(setting.events(EventReason.NODE_REPAIR_BLOCKED, lone)) is not replaced
    # Of the other one only its own pool is asked, in which it is the only one.
    assert counted(setting.metrics.nodeclaims_disrupted, reason="unhealthy", nodepool="pool-0") == 1


async def test_with_their_pool_claims_go_and_are_drained(setting: Setting) -> None:
    """03 §10.71."""
    uid = await make_pool(setting)
    pods = [manifests.pod("web"), manifests.pod("guarded", annotations=GUARDED)]
    name = await setting.launch("c1", pool_uid=uid, terminationGracePeriod="1h", pods=pods)
    other = await setting.launch("c2", pool_uid="")
    await setting.sim.api.write(Delete(NODEPOOLS, "default"))
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("c1")), timeout="1m")
    deadline = setting.now() + timedelta(hours=1)
    await setting.sim.run_for("1m")
    assert setting.gone(PODS, "web")
    assert setting.runs("guarded")
    assert setting.deadline() == deadline
    await setting.sim.wait_until(lambda: setting.gone(NODES, name) and setting.gone(NODECLAIMS, "c1"), timeout="1h")
    assert setting.now() <= deadline
    await setting.sim.run_for("10m")
    # Nothing comes in its place, and what was not the pool's stays.
    assert [each["metadata"]["name"] for each in setting.sim.objects(NODES)] == [other]
    assert not is_deleting(setting.claim("c2"))
