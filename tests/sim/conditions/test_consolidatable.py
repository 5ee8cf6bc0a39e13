"""lastPodEventTime and the condition Consolidatable (02 §10, §14.44, R24)."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from dovetail.api import names
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PODS, Conflict, Delete, OutcomeUnknown, Patch, Unavailable
from dovetail.sim.actors.cluster import START
from dovetail.sim.actors.wire import RUN_FOR
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.claims import launched, node_pool, put_status
from tests.harness.stage import PARAMETER, stage
from tests.sim.conditions.setting import MOMENT, Setting, play

pytestmark = stage(play)

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def pool(after: str = "10m", **fields: Any) -> dict[str, Any]:
    return node_pool(disruption={"consolidateAfter": after, "budgets": [{"nodes": "10%"}]}, **fields)


# -- the window --------------------------------------------------------------------------------------------------------


async def test_it_begins_with_the_initialization_and_ends_to_the_moment(setting: Setting) -> None:
    await setting.begin(pool(), "c1")
    await setting.run_to(START + 10 * MINUTE)
    assert not setting.consolidatable()
    assert setting.writes() == 0
    await setting.sim.run_for("2ms")
    assert setting.consolidatable()
    assert setting.last_pod_event() is None
    assert setting.writes() == 1


async def test_a_pod_begins_it_anew_in_one_write(setting: Setting) -> None:
    await setting.begin(pool(), "c1")
    await setting.sim.run_for("20m")
    assert setting.consolidatable()
    before = setting.writes()
    await setting.bind("c1", "web")
    bound = setting.last_pod_event()
    assert bound is not None
    assert timedelta() <= setting.now() - bound < SECOND
    assert not setting.consolidatable()
    assert setting.writes() == before + 1
    await setting.run_to(bound + 10 * MINUTE)
    assert not setting.consolidatable()
    await setting.sim.run_for("2ms")
    assert setting.consolidatable()
    assert setting.last_pod_event() == bound


async def test_0s_is_at_once_after_the_initialization(setting: Setting) -> None:
    await setting.begin(pool("0s"), "c1", true=("Launched", "Registered"))
    await setting.sim.run_for("1h")
    assert not setting.consolidatable()
    await launched(setting.sim, "c1", node="n-c1", true=("Launched", "Registered", "Initialized"))
    await setting.sim.run_for("1ms")
    assert setting.consolidatable()
    await setting.bind("c1", "web")
    assert setting.consolidatable()
    assert setting.last_pod_event() is not None


async def test_it_goes_when_the_claim_is_no_longer_initialized(setting: Setting) -> None:
    await setting.begin(pool("0s"), "c1")
    assert setting.consolidatable()
    conditions = [
        {**entry, "status": "Unknown"} if entry["type"] == "Initialized" else entry
        for entry in (setting.sim.object(NODECLAIMS, "c1") or {})["status"]["conditions"]
    ]
    await put_status(setting.sim, NODECLAIMS, "c1", {"conditions": conditions})
    await setting.sim.run_for("1ms")
    assert not setting.consolidatable()


async def test_edits_of_the_pool_count_at_once(setting: Setting) -> None:
    await setting.begin(pool("Never"), "c1")

    async def edit(after: str) -> None:
        await setting.edit(NODEPOOLS, "default", {"spec": {"disruption": {"consolidateAfter": after}}})

    await setting.sim.run_for("9h")
    assert not setting.consolidatable()
    await edit("1h")
    assert setting.consolidatable()
    await edit("20h")
    assert not setting.consolidatable()
    await edit("0s")
    assert setting.consolidatable()
    await edit("Never")
    assert not setting.consolidatable()


async def test_static_pools_never_have_it(setting: Setting) -> None:
    await setting.begin(pool("0s", replicas=1), "c1")
    await setting.bind("c1", "web")
    await setting.sim.run_for("1h")
    assert not any(
        entry["type"] == "Consolidatable" for _, _, status in setting.history for entry in status.get("conditions", ())
    )
    assert setting.last_pod_event() is not None


# -- pod events --------------------------------------------------------------------------------------------------------


async def quiet(setting: Setting, *pods: str, annotations: dict[str, str] | None = None, **spec: Any) -> None:
    """A claim with pods whose window is over."""
    await setting.begin(pool(), "c1")
    for name in pods:
        pod = manifests.pod(name, annotations=annotations, **spec)
        pod["spec"]["nodeSelector"] = {names.HOSTNAME_LABEL: "n-c1"}
        await setting.sim.apply(pod)
    await setting.sim.run_for("20m")
    assert setting.consolidatable()


async def test_a_pod_that_ends_is_an_event(setting: Setting) -> None:
    await quiet(setting, "job", annotations={RUN_FOR: "2h"}, restartPolicy="Never")
    first = setting.last_pod_event()
    await setting.sim.wait_until(
        lambda: (setting.sim.object(PODS, "job") or {})["status"]["phase"] == "Succeeded", timeout="3h"
    )
    ended_at = setting.now()
    await setting.sim.run_for("1ms")
    assert first is not None
    assert first < ended_at - 110 * MINUTE
    assert setting.last_pod_event() == ended_at.replace(microsecond=0)
    assert not setting.consolidatable()


async def test_a_pod_that_is_going_is_an_event_and_its_end_is_none(setting: Setting) -> None:
    await quiet(setting, "web")
    await setting.sim.api.write(Delete(PODS, "web", namespace="default"))
    went_at = setting.now()
    await setting.sim.wait_until(lambda: setting.sim.object(PODS, "web") is None)
    assert setting.now() > went_at
    await setting.sim.run_for("1m")
    assert setting.last_pod_event() == went_at.replace(microsecond=0)
    assert len(setting.recorded()) == 2
    await setting.run_to(went_at.replace(microsecond=0) + 10 * MINUTE)
    assert not setting.consolidatable()
    await setting.sim.run_for("2ms")
    assert setting.consolidatable()


async def test_a_pod_that_is_first_seen_on_its_node_is_an_event(setting: Setting) -> None:
    await quiet(setting)
    await setting.sim.apply({**manifests.pod("web"), "spec": {**manifests.pod("web")["spec"], "nodeName": "n-c1"}})
    seen_at = setting.now()
    await setting.sim.run_for("1ms")
    assert setting.last_pod_event() == seen_at.replace(microsecond=0)
    assert not setting.consolidatable()


async def test_pods_of_daemon_sets_are_none(setting: Setting) -> None:
    await quiet(setting)
    before = setting.writes()
    await setting.sim.apply(manifests.workload("DaemonSet", "agent"))
    await setting.sim.wait_until(lambda: len(setting.sim.pods(node="n-c1", ready=True)) == 1)
    await setting.sim.api.write(Delete(PODS, setting.sim.pods(node="n-c1")[0]["metadata"]["name"], namespace="default"))
    await setting.sim.run_for("10m")
    assert len(setting.sim.pods(node="n-c1", ready=True)) == 1
    assert setting.writes() == before
    assert setting.consolidatable()


async def test_pods_elsewhere_and_without_a_node_are_none(setting: Setting) -> None:
    await setting.begin(pool(), "c1", "c2")
    await setting.sim.apply(manifests.node("foreign"))
    await setting.sim.run_for("20m")
    before = setting.writes()
    await setting.sim.apply(
        manifests.pod("lost", nodeSelector={names.HOSTNAME_LABEL: "nowhere"}),
        manifests.pod("other", nodeSelector={names.HOSTNAME_LABEL: "foreign"}),
    )
    await setting.sim.wait_until(lambda: setting.host("other") == "foreign")
    await setting.bind("c2", "web")
    await setting.sim.run_for("1s")
    assert setting.writes() == before + 1
    assert setting.last_pod_event("c1") is None
    assert setting.consolidatable("c1")
    assert not setting.consolidatable("c2")


async def test_many_events_are_two_writes_and_the_last_one_is_not_lost(setting: Setting) -> None:
    await quiet(setting)
    await setting.bind("c1", "p0")
    first_at = setting.last_pod_event()
    assert first_at is not None
    await setting.run_to(first_at + SECOND)
    for number in range(1, 6):
        await setting.sim.run_for("1s")
        await setting.bind("c1", f"p{number}")
    last_at = setting.now().replace(microsecond=0)
    assert setting.last_pod_event() == first_at
    wrote_at = setting.recorded()[0][0]
    await setting.run_to(wrote_at + 10 * SECOND)
    assert setting.last_pod_event() == first_at
    await setting.sim.run_for("2ms")
    assert setting.last_pod_event() == last_at
    # Also the next one waits for ten seconds since this write, though its event is older.
    await setting.bind("c1", "late")
    late_at = setting.now().replace(microsecond=0)
    await setting.sim.run_for("20s")
    written = setting.recorded()
    assert [at for _, at in written] == [first_at, last_at, late_at]
    assert all(b[0] - a[0] >= 10 * SECOND for a, b in pairwise(written))
    await setting.sim.run_for("20m")
    assert len(setting.recorded()) == 3


async def test_an_event_that_waits_to_be_recorded_holds_the_condition_back(setting: Setting) -> None:
    """A window shorter than the ten seconds: it counts from what happened and not from what is written."""
    await setting.begin(pool("4s"), "c1")
    await setting.sim.run_for("1m")
    await setting.bind("c1", "p0")
    first_at = setting.last_pod_event()
    assert first_at is not None
    await setting.run_to(first_at + 3 * SECOND)
    await setting.sim.run_for("500ms")
    await setting.bind("c1", "p1")
    second_at = setting.now().replace(microsecond=0)
    await setting.run_to(second_at + 4 * SECOND)
    assert not setting.consolidatable()
    assert setting.last_pod_event() == first_at
    await setting.sim.run_for("2ms")
    assert setting.consolidatable()
    # And it goes again with the next one, which is not written yet either.
    await setting.bind("c1", "p2")
    assert setting.last_pod_event() == first_at
    assert not setting.consolidatable()


# -- another process ---------------------------------------------------------------------------------------------------


async def test_a_restart_moves_nothing_and_writes_nothing(setting: Setting) -> None:
    await setting.begin(pool(), "c1", "c2", "c3")
    await setting.sim.run_for("30m")
    await setting.bind("c1", "early")
    await setting.sim.run_for("15m")
    await setting.bind("c2", "late-1", "late-2")
    await setting.sim.run_for("3m")
    before = [(setting.last_pod_event(name), setting.consolidatable(name)) for name in ("c1", "c2", "c3")]
    assert [holds for _, holds in before] == [True, False, True]
    for _ in range(3):
        await setting.program.restart()
        await setting.sim.run_for("30s")
        assert setting.writes() == 0
        assert before == [(setting.last_pod_event(name), setting.consolidatable(name)) for name in ("c1", "c2", "c3")]
    ends_at = before[1][0]
    assert ends_at is not None
    await setting.run_to(ends_at + 10 * MINUTE)
    assert not setting.consolidatable("c2")
    await setting.sim.run_for("2ms")
    assert setting.consolidatable("c2")


async def test_who_came_while_nobody_looked_counts_from_then_on(setting: Setting) -> None:
    await quiet(setting, "old")
    await setting.program.kill()
    await setting.bind("c1", "new")
    bound_at = setting.now().replace(microsecond=0)
    await setting.sim.run_for("3m")
    await setting.program.start()
    await setting.sim.run_for("1ms")
    assert setting.last_pod_event() == bound_at
    assert not setting.consolidatable()
    await setting.run_to(bound_at + 10 * MINUTE)
    assert not setting.consolidatable()
    await setting.sim.run_for("2ms")
    assert setting.consolidatable()


async def test_who_was_made_long_before_and_bound_while_nobody_looked_counts_from_its_binding(setting: Setting) -> None:
    """By its PodScheduled condition (R24): when a pod was made says little."""
    await setting.begin(pool(), "c1")
    waiting = manifests.pod("waiting", nodeSelector={"seat": "free"})
    await setting.sim.apply(waiting)
    await setting.sim.run_for("20m")
    await setting.bind("c1", "web")
    await setting.sim.run_for("20m")
    assert setting.consolidatable()
    await setting.program.kill()
    label = {"metadata": {"labels": {"seat": "free"}}}
    await setting.sim.api.write(Patch(NODES, "n-c1", label))
    await setting.sim.wait_until(lambda: setting.host("waiting") == "n-c1")
    bound_at = setting.now().replace(microsecond=0)
    await setting.sim.run_for("1m")
    await setting.program.start()
    await setting.sim.run_for("1ms")
    assert setting.last_pod_event() == bound_at
    assert not setting.consolidatable()


async def test_a_window_ends_on_time_though_nobody_ran_at_its_end(setting: Setting) -> None:
    await quiet(setting)
    await setting.bind("c1", "web")
    await setting.program.kill()
    await setting.sim.run_for("1h")
    assert not setting.consolidatable()
    await setting.program.start()
    await setting.sim.run_for("1ms")
    assert setting.consolidatable()
    assert setting.writes() == 1


# -- whose claim, and what goes wrong ----------------------------------------------------------------------------------


async def test_without_its_pool_nothing_changes(setting: Setting) -> None:
    await setting.begin(pool("30m"), "c1", "c2")
    await setting.sim.run_for("20m")
    await setting.bind("c2", "web")
    await setting.sim.run_for("15m")
    assert (setting.consolidatable("c1"), setting.consolidatable("c2")) == (True, False)
    await setting.sim.api.write(Delete(NODEPOOLS, "default"))
    await setting.sim.run_for("2h")
    assert (setting.consolidatable("c1"), setting.consolidatable("c2")) == (True, False)
    await setting.sim.apply(pool("30m"))
    await setting.sim.run_for("1ms")
    assert (setting.consolidatable("c1"), setting.consolidatable("c2")) == (True, True)


@pytest.mark.parametrize("whose", ["deleting", "foreign"])
async def test_claims_that_go_or_are_not_ours_are_left_alone(setting: Setting, whose: str) -> None:
    foreign: dict[str, Any] = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    }
    await setting.begin(pool(), "c1", finalizers=True, **(foreign if whose == "foreign" else {}))
    if whose == "deleting":
        await setting.sim.api.write(Delete(NODECLAIMS, "c1"))
    await setting.bind("c1", "web")
    await setting.sim.run_for("1h")
    assert setting.writes() == 0


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(error=Unavailable("down")), id="down"),
        pytest.param(Fault(error=Conflict("somebody was faster")), id="conflict"),
        pytest.param(Fault(error=OutcomeUnknown("timeout"), after=True), id="done, but nobody says so"),
        pytest.param(Fault(error=OutcomeUnknown("timeout")), id="not done, and nobody says so"),
        pytest.param(Fault(delay_seconds=5.0), id="slow"),
    ],
)
async def test_an_event_is_not_lost_when_it_cannot_be_written(setting: Setting, fault: Fault) -> None:
    await quiet(setting)
    setting.sim.server.faults.add(fault, verb="patch", resource=NODECLAIMS, client=names.COMPONENT, times=3)
    await setting.bind("c1", "web")
    bound_at = setting.now().replace(microsecond=0)
    await setting.sim.run_for("1m")
    assert setting.last_pod_event() == bound_at
    assert not setting.consolidatable()
    await setting.sim.run_for("10m")
    assert setting.consolidatable()


async def test_a_watch_that_breaks_loses_and_repeats_nothing(setting: Setting) -> None:
    await quiet(setting, "web")
    before = setting.recorded()
    setting.sim.server.faults.drop_watches(None)
    await setting.sim.run_for("1m")
    assert setting.recorded() == before
    setting.sim.server.faults.drop_watches(PODS)
    await setting.bind("c1", "new")
    await setting.sim.run_for("30s")
    assert len(setting.recorded()) == len(before) + 1


@pytest.mark.parametrize("seed", range(5))
@stage(seed=PARAMETER, shuffle=True, latency_seconds=0.02)
async def test_in_any_order_of_things(setting: Setting) -> None:
    """Slow answers, and what is due at one instant in any order: each event is recorded to the second it was seen."""
    await setting.begin(pool("1m"), "c1", "c2")
    for number in range(8):
        await setting.sim.run_for("7s")
        await setting.bind(f"c{number % 2 + 1}", f"p{number}")
    last_at = setting.now()
    await setting.sim.run_for("15s")
    for claim in ("c1", "c2"):
        written = setting.recorded(claim)
        assert all(b[0] - a[0] >= 9 * SECOND for a, b in pairwise(written))
    found = setting.last_pod_event("c2")
    assert found is not None
    assert last_at - SECOND - 50 * MOMENT <= found <= last_at
    await setting.sim.run_for("2m")
    assert setting.consolidatable("c1")
    assert setting.consolidatable("c2")
