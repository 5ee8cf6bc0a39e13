"""Nodes that have been unhealthy for too long are replaced, unless too many are (02 §11, R24a)."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.controllers.node.health import NodeHealth
from dovetail.observe.metrics import Metrics
from dovetail.planning.node.health import RepairPolicy
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, NODES, Delete, KubeApi, Patch, Unavailable
from dovetail.providers.kwok.provider import REPAIR_POLICIES, KwokProvider
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import KUBELET
from dovetail.sim.server.faults import Fault
from dovetail.values.timestamp import format_time, parse_time
from tests.harness import manifests
from tests.harness.claims import condition, condition_of, launched, node, node_claim, put_status
from tests.harness.running import Program, run_controllers
from tests.harness.stage import gives, stage
from tests.harness.termination import GUARDED, Setting, annotation, counted, is_deleting, play

READY = ("Launched", "Registered", "Initialized")
TOLERATION = timedelta(minutes=10)
SEEN = timedelta(seconds=10)
MOMENT = timedelta(milliseconds=1)


class Kwok(KwokProvider):
    """With repair policies of the test's."""

    def __init__(self, api: KubeApi, policies: Sequence[RepairPolicy]) -> None:
        super().__init__(api)
        self._policies = policies

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return self._policies


class Running:
    """The controller alone, and what it has counted since the program started."""

    def __init__(self, *policies: RepairPolicy) -> None:
        self.metrics = Metrics(CollectorRegistry())
        self._policies = policies or REPAIR_POLICIES

    def controllers(self, program: Program) -> list[NodeHealth]:
        self.metrics = Metrics(CollectorRegistry())
        return [NodeHealth(program.cluster, Kwok(program.api, self._policies), self.metrics, Timings())]

    @property
    def replaced(self) -> float:
        return counted(self.metrics.nodeclaims_disrupted, reason="unhealthy")


@gives("sim", "program", "running")
def run(scenario: Any, *policies: RepairPolicy, **options: Any) -> None:
    running = Running(*policies)
    run_controllers(lambda sim, program: scenario(sim, program, running), running.controllers, **options)


pytestmark = stage(run)


async def add(sim: SimCluster, number: int, *, pool: str = "default") -> None:
    """A node n<number> of ours that says nothing by itself, and its claim c<number>."""
    body = node(f"n{number}", pool=pool)
    body["metadata"]["annotations"] = {KUBELET: "none"}
    await sim.apply(body, node_claim(f"c{number}", pool=pool, finalizers=True))
    await launched(sim, f"c{number}", node=f"n{number}", true=READY)
    await say(sim, number, "True")


async def say(sim: SimCluster, number: int, status: str, type_: str = "Ready") -> None:
    """The node's condition changes, now."""
    since = format_time(sim.clock.now().replace(microsecond=0))
    beat = {"lastTransitionTime": since, "lastHeartbeatTime": since, "reason": "Test", "message": ""}
    await put_status(sim, NODES, f"n{number}", {"conditions": [{"type": type_, "status": status, **beat}]})


async def add_all(sim: SimCluster, count: int, *, pool: str = "default", first: int = 1) -> range:
    numbers = range(first, first + count)
    for number in numbers:
        await add(sim, number, pool=pool)
    return numbers


def deleting(sim: SimCluster, numbers: Sequence[int]) -> list[int]:
    return [number for number in numbers if is_deleting(sim.object(NODECLAIMS, f"c{number}"))]


def since(sim: SimCluster, number: int) -> datetime:
    return parse_time(condition_of(sim, NODES, f"n{number}", "Ready")["lastTransitionTime"])


async def until(sim: SimCluster, at: datetime) -> None:
    await sim.clock.sleep((at - sim.clock.now()).total_seconds())


# -- when -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["False", "Unknown"])
async def test_a_node_is_replaced_when_its_toleration_ends_and_not_before(
    sim: SimCluster, program: Program, running: Running, status: str
) -> None:
    numbers = await add_all(sim, 3)
    await sim.run_for("1h")
    await say(sim, 2, status)
    due = since(sim, 2) + TOLERATION
    await until(sim, due - MOMENT)
    assert deleting(sim, numbers) == []
    await sim.wait_until(lambda: deleting(sim, numbers) == [2], timeout="1s")
    assert sim.clock.now() == due
    await sim.run_for("1h")
    assert program.requests("delete nodeclaims") == 1
    assert running.replaced == 1
    labels = {"condition": "ready", "nodepool": "default"}
    assert counted(running.metrics.nodeclaims_unhealthy_disrupted, **labels) == 1


async def test_a_node_that_recovers_in_time_is_kept_and_its_time_starts_over(sim: SimCluster) -> None:
    await add(sim, 1)
    await say(sim, 1, "False")
    await sim.run_for("9m59s")
    await say(sim, 1, "True")
    await sim.run_for("1h")
    assert deleting(sim, [1]) == []
    await say(sim, 1, "False")
    due = since(sim, 1) + TOLERATION
    await sim.wait_until(lambda: deleting(sim, [1]) == [1], timeout="11m")
    assert sim.clock.now() == due


async def test_from_not_ready_to_silent_is_a_transition(sim: SimCluster) -> None:
    await add(sim, 1)
    await say(sim, 1, "False")
    await sim.run_for("9m")
    await say(sim, 1, "Unknown")
    due = since(sim, 1) + TOLERATION
    await sim.wait_until(lambda: deleting(sim, [1]) == [1], timeout="11m")
    assert sim.clock.now() == due


@pytest.mark.parametrize("minutes", [5, 30])
async def test_a_restart_does_not_start_the_toleration_anew(sim: SimCluster, program: Program, minutes: int) -> None:
    await add(sim, 1)
    await say(sim, 1, "False")
    await program.kill()
    await sim.run_for(f"{minutes}m")
    await program.start()
    due = max(sim.clock.now() + SEEN, since(sim, 1) + TOLERATION)
    await sim.wait_until(lambda: deleting(sim, [1]) == [1], timeout="10m")
    assert sim.clock.now() == due


async def test_conditions_that_no_policy_names_are_nobodys_business(sim: SimCluster) -> None:
    await add(sim, 1)
    await say(sim, 1, "True", "DiskPressure")
    await sim.run_for("2h")
    assert deleting(sim, [1]) == []


async def test_nodes_of_others_and_nodes_without_claim_are_left_alone(sim: SimCluster, program: Program) -> None:
    await add_all(sim, 3)
    foreign = {"metadata": {"labels": {names.KWOK_NODECLASS_LABEL: None}}}
    await sim.api.write(Patch(NODES.read_as(dict[str, Any]), "n1", foreign))
    await sim.api.write(Patch(NODECLAIMS, "c2", {"metadata": {"finalizers": None}}))
    await sim.api.write(Delete(NODECLAIMS, "c2"))
    for number in (1, 2):
        await say(sim, number, "False")
    await sim.run_for("2h")
    assert deleting(sim, [1, 3]) == []
    assert program.requests("delete") == 0


async def test_a_claim_that_is_going_anyway_is_left_alone(sim: SimCluster, program: Program, running: Running) -> None:
    await add(sim, 1)
    await say(sim, 1, "False")
    await sim.run_for("5m")
    await sim.api.write(Delete(NODECLAIMS, "c1"))
    await sim.run_for("1h")
    assert program.requests("delete") == 0
    assert running.replaced == 0


async def test_a_request_that_fails_is_made_up_for_and_counted_once(sim: SimCluster, running: Running) -> None:
    await add(sim, 1)
    down = Fault(error=Unavailable("down"))
    sim.server.faults.add(down, verb="delete", resource=NODECLAIMS, client=names.COMPONENT, times=3)
    await say(sim, 1, "False")
    await sim.run_for("11m")
    assert deleting(sim, [1]) == [1]
    assert running.replaced == 1


# -- the guard --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ill", "all_"), [(1, 1), (1, 5), (2, 6), (2, 10), (3, 11)], ids=str)
async def test_up_to_a_fifth_rounded_up_are_replaced(sim: SimCluster, program: Program, ill: int, all_: int) -> None:
    numbers = await add_all(sim, all_)
    for number in numbers[:ill]:
        await say(sim, number, "False")
    await sim.run_for("10m1s")
    assert deleting(sim, numbers) == list(numbers[:ill])
    assert program.events(EventReason.NODE_REPAIR_BLOCKED) == []


@pytest.mark.parametrize(("ill", "all_"), [(2, 2), (2, 5), (3, 10)], ids=str)
async def test_beyond_that_none_is_and_each_is_told(
    sim: SimCluster, program: Program, running: Running, ill: int, all_: int
) -> None:
    numbers = await add_all(sim, all_)
    for number in numbers[:ill]:
        await say(sim, number, "False")
    await sim.run_for("10m1s")
    assert deleting(sim, numbers) == []
    told = program.events(EventReason.NODE_REPAIR_BLOCKED)
    assert sorted(event["regarding"]["name"] for event in told) == sorted(f"n{number}" for number in numbers[:ill])
    assert all(event["type"] == "Warning" for event in told)
    assert all(f"{ill} of {all_} nodes are unhealthy" in event["note"] for event in told)
    await sim.run_for("3h")
    assert deleting(sim, numbers) == []
    assert running.replaced == 0


async def test_once_others_have_recovered_it_goes_on_within_five_minutes(sim: SimCluster) -> None:
    numbers = await add_all(sim, 5)
    for number in (1, 2):
        await say(sim, number, "False")
    await sim.run_for("12m")
    assert deleting(sim, numbers) == []
    await say(sim, 2, "True")
    await sim.wait_until(lambda: deleting(sim, numbers) == [1], timeout="3m1s")


async def test_each_pool_has_a_guard_of_its_own(sim: SimCluster, program: Program) -> None:
    await add_all(sim, 2, pool="ill")
    await add_all(sim, 20, pool="well", first=3)
    for number in (1, 2, 3):
        await say(sim, number, "False")
    await sim.run_for("10m1s")
    # Three of 22 would do, but two of two do not.
    assert deleting(sim, range(1, 23)) == [3]
    told = {event["regarding"]["name"] for event in program.events(EventReason.NODE_REPAIR_BLOCKED)}
    assert told == {"n1", "n2"}


@pytest.mark.parametrize(("others", "replaced"), [(9, [1]), (8, [1]), (4, [])])
async def test_for_a_node_without_pool_all_of_ours_count(
    sim: SimCluster, program: Program, others: int, replaced: list[int]
) -> None:
    await add(sim, 1, pool="")
    await add_all(sim, others, pool="p", first=2)
    await sim.apply(manifests.node("somebody-elses"))  # does not count: with it, four others would do
    for number in (1, 2):
        await say(sim, number, "False")
    await sim.run_for("10m1s")
    assert deleting(sim, [1]) == replaced
    assert bool(program.events(EventReason.NODE_REPAIR_BLOCKED)) is not bool(replaced)


async def test_those_whose_time_has_not_come_count_as_well(sim: SimCluster) -> None:
    numbers = await add_all(sim, 5)
    await say(sim, 1, "False")
    await sim.run_for("9m59s")
    await say(sim, 2, "Unknown")
    await sim.run_for("2s")
    assert deleting(sim, numbers) == []


# -- how long a fault is seen (R47) ------------------------------------------------------------------------------------

AT_ONCE = RepairPolicy(condition="KernelReady", status="False", toleration_seconds=0)


@stage(run, AT_ONCE)
async def test_a_fault_that_is_not_tolerated_is_acted_on_after_ten_seconds(sim: SimCluster) -> None:
    numbers = await add_all(sim, 5)
    await say(sim, 1, "False", "KernelReady")
    seen_at = sim.clock.now()
    await sim.wait_until(lambda: deleting(sim, numbers) == [1], timeout="1m")
    assert sim.clock.now() == seen_at + SEEN


@stage(run, AT_ONCE)
async def test_a_failure_that_reaches_nodes_one_by_one_meets_the_guard_as_a_whole(
    sim: SimCluster, program: Program
) -> None:
    numbers = await add_all(sim, 10)
    for number in numbers[:8]:
        await say(sim, number, "False", "KernelReady")
        await sim.run_for("1s")
    await sim.run_for("1h")
    assert deleting(sim, numbers) == []
    told = program.events(EventReason.NODE_REPAIR_BLOCKED)
    assert {event["regarding"]["name"] for event in told} == {f"n{number}" for number in numbers[:8]}


@stage(run, AT_ONCE)
async def test_a_fault_that_passes_within_ten_seconds_is_not_acted_on(sim: SimCluster) -> None:
    await add(sim, 1)
    for _ in range(5):
        await say(sim, 1, "False", "KernelReady")
        await sim.run_for("9s")
        await say(sim, 1, "True", "KernelReady")
        await sim.run_for("9s")
    assert deleting(sim, [1]) == []


async def test_a_fault_that_is_old_when_it_is_first_seen_is_seen_for_ten_seconds_too(sim: SimCluster) -> None:
    """Whoever reports it may have waited: what counts is since when the other nodes could have been seen as well."""
    numbers = await add_all(sim, 5)
    old = format_time(sim.clock.now() - timedelta(hours=1))
    fault = {"type": "Ready", "status": "False", "lastTransitionTime": old, "reason": "Test", "message": ""}
    for number in numbers:
        await put_status(sim, NODES, f"n{number}", {"conditions": [fault]})
        await sim.run_for("1s")
    await sim.run_for("1h")
    assert deleting(sim, numbers) == []


# -- a Node that is not to be repaired (R47) ---------------------------------------------------------------------------


async def do_not_repair(sim: SimCluster, number: int, value: str | None) -> None:
    body = {"metadata": {"annotations": {names.DO_NOT_REPAIR: value}}}
    await sim.api.write(Patch(NODES.read_as(dict[str, Any]), f"n{number}", body))


async def test_a_node_that_is_annotated_is_not_repaired_until_the_annotation_goes(
    sim: SimCluster, program: Program
) -> None:
    await add(sim, 1)
    await do_not_repair(sim, 1, "true")
    await say(sim, 1, "False")
    await sim.run_for("2h")
    assert deleting(sim, [1]) == []
    (told, *_) = program.events(EventReason.NODE_REPAIR_BLOCKED)
    assert (told["regarding"]["name"], names.DO_NOT_REPAIR in told["note"]) == ("n1", True)
    await do_not_repair(sim, 1, None)
    await sim.wait_until(lambda: deleting(sim, [1]) == [1], timeout="1s")


@pytest.mark.parametrize("value", ["false", "", "True", "yes", "4h"])
async def test_any_other_value_has_no_effect(sim: SimCluster, value: str) -> None:
    await add(sim, 1)
    await do_not_repair(sim, 1, value)
    await say(sim, 1, "False")
    await sim.wait_until(lambda: deleting(sim, [1]) == [1], timeout="11m")


async def test_a_node_that_is_not_to_be_repaired_still_counts_for_the_guard(sim: SimCluster) -> None:
    numbers = await add_all(sim, 5)
    await do_not_repair(sim, 1, "true")
    for number in (1, 2):
        await say(sim, number, "False")
    await sim.run_for("1h")
    assert deleting(sim, numbers) == []


# -- a policy that bounds the drain (R47) ------------------------------------------------------------------------------

BOUNDED = RepairPolicy(condition="KernelReady", status="False", toleration_seconds=60, drain_seconds=1800)


@gives("setting")
def play_bounded(scenario: Callable[[Setting], Coroutine[Any, Any, None]]) -> None:
    """With all controllers, and machines whose kernel is repaired within half an hour."""

    async def with_policy(setting: Setting) -> None:
        setting.cloud.policies = [BOUNDED]
        await setting.program.restart()
        await scenario(setting)

    play(with_policy, cloud=True)


async def break_kernel(setting: Setting, found: str) -> None:
    fault = condition("KernelReady", "False", lastTransitionTime=format_time(setting.now()))
    kept = (await setting.sim.api.get(NODES.read_as(dict[str, Any]), found))["status"]["conditions"]
    await put_status(setting.sim, NODES, found, {"conditions": [*kept, fault]})


@pytest.mark.parametrize(
    ("period", "expected_minutes"),
    [
        pytest.param(None, 30, id="the policy's alone"),
        pytest.param("2h", 30, id="the policy's is earlier"),
        pytest.param("10m", 10, id="the claim's is earlier"),
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
@stage(play_bounded)
async def test_the_earlier_bound_of_policy_and_claim_is_the_deadline(
    setting: Setting, period: str | None, expected_minutes: int, restarts: bool
) -> None:
    grace = {} if period is None else {"terminationGracePeriod": period}
    found = await setting.launch(pods=[manifests.pod("guarded", annotations=GUARDED)], **grace)
    await break_kernel(setting, found)
    await setting.sim.wait_until(lambda: is_deleting(setting.claim()), timeout="2m")
    deadline = setting.now() + timedelta(minutes=expected_minutes)
    if restarts:
        await setting.program.restart()  # after the deletion, before the deadline is written
    await setting.sim.run_for("1m")
    assert setting.deadline() == deadline
    await setting.sim.wait_until(lambda: setting.cloud.calls["delete"] > 0, timeout="1h")
    assert setting.now() == deadline - timedelta(seconds=29)  # the pod's own grace, of which it takes a second


@stage(play_bounded)
async def test_a_claim_that_goes_for_another_reason_keeps_its_own_deadline(setting: Setting) -> None:
    pods = [manifests.pod("guarded", annotations=GUARDED)]
    found = await setting.launch(pods=pods, terminationGracePeriod="2h")
    await setting.delete_claim()
    deadline = setting.now() + timedelta(hours=2)
    await break_kernel(setting, found)
    await setting.sim.run_for("10m")
    assert setting.deadline() == deadline


# -- what becomes of it (R24a) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("period", [None, "2h"])
@stage(play, cloud=True)
async def test_it_is_drained_like_any_other_within_its_grace_period(setting: Setting, period: str | None) -> None:
    """With all controllers, and a cloud whose machine still runs: repair writes no deadline of its own."""
    stays = [{"key": names.NOT_READY_TAINT, "operator": "Exists", "effect": "NoExecute"}]
    grace = {} if period is None else {"terminationGracePeriod": period}
    pods = [manifests.pod("guarded", annotations=GUARDED, tolerations=stays), manifests.pod("free")]
    found = await setting.launch(pods=pods, **grace)
    setting.sim.set_node_ready(found, ready=False)
    await setting.sim.wait_until(lambda: is_deleting(setting.claim()), timeout="11m")
    deleted_at = setting.now()
    await setting.sim.run_for("1m")
    if period is None:
        assert annotation(setting.claim(), names.TERMINATION_TIMESTAMP) is None
    else:
        assert setting.deadline() == deleted_at + timedelta(hours=2)
    await setting.sim.run_for("1h")
    assert setting.pod("free") is None
    pod = setting.pod("guarded")
    assert pod is not None
    assert not is_deleting(pod)
    assert setting.cloud.calls["delete"] == 0


async def test_it_is_told_on_claim_and_node(sim: SimCluster, program: Program) -> None:
    await add(sim, 1)
    await say(sim, 1, "False")
    await sim.run_for("11m")
    told = program.events(EventReason.DISRUPTION_TERMINATING)
    assert {(event["regarding"]["kind"], event["regarding"]["name"]) for event in told} == {
        ("Node", "n1"),
        ("NodeClaim", "c1"),
    }
    assert all("Unhealthy" in event["note"] and "Ready" in event["note"] for event in told)
