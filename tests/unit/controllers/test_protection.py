"""Owners of pods are told when a protection ends (R3) and what is wrong with their annotations (R2, R11): once."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.controllers.pod.protection import ProtectionEvents
from dovetail.observe.metrics import Metrics
from dovetail.ports import PODS, Delete, Patch
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import RUN_FOR
from dovetail.values.timestamp import parse_time
from tests.harness import manifests
from tests.harness.running import Program, run_controllers
from tests.harness.stage import gives, stage
from tests.harness.termination import counted

ELAPSED = EventReason.DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED
BAD_VALUE = EventReason.INVALID_DO_NOT_DISRUPT
BAD_SCHEDULE = EventReason.INVALID_DISRUPTION_SCHEDULE


class Running:
    """The controller alone, and what it has counted since the program started."""

    metrics: Metrics

    def controllers(self, program: Program) -> list[ProtectionEvents]:
        self.metrics = Metrics(CollectorRegistry())
        return [ProtectionEvents(program.cluster, self.metrics)]


@gives("sim", "program", "running")
def run(scenario: Any) -> None:
    running = Running()
    run_controllers(lambda sim, program: scenario(sim, program, running), running.controllers)


pytestmark = stage(run)


async def add(sim: SimCluster, value: str, name: str = "web", **annotations: str) -> None:
    await sim.apply(manifests.pod(name, annotations={names.DO_NOT_DISRUPT: value, **annotations}))


async def annotate(sim: SimCluster, annotations: dict[str, str | None], name: str = "web") -> None:
    body = {"metadata": {"annotations": annotations}}
    await sim.api.write(Patch(PODS, name, body, namespace="default"))
    await sim.run_for("1s")


def told(program: Program, reason: str = ELAPSED) -> list[str]:
    """Which pods were told, in order."""
    return [str(event["regarding"]["name"]) for event in program.events(reason)]


def told_at(program: Program) -> list[datetime]:
    return [parse_time(event["eventTime"]) for event in program.events(ELAPSED)]


def created_at(sim: SimCluster, name: str = "web") -> datetime:
    found = sim.object(PODS, name)
    assert found is not None
    return parse_time(found["metadata"]["creationTimestamp"])


# -- the end of a protection (R3) -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "seconds"), [("1s", 1), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400)])
async def test_the_end_is_told_once_when_it_comes(sim: SimCluster, program: Program, value: str, seconds: int) -> None:
    await sim.run_for("10s")
    await add(sim, value)
    await sim.clock.sleep(seconds - 0.001)
    assert told(program) == []
    await sim.run_for("30m")
    assert told_at(program) == [created_at(sim) + timedelta(seconds=seconds)]
    (event,) = program.events(ELAPSED)
    assert event["type"] == "Normal"
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Pod", "web")
    assert "series" not in event
    for number in range(20):
        await annotate(sim, {"example.com/turn": str(number)})
    assert len(program.events(ELAPSED)) == 1
    assert "series" not in program.events(ELAPSED)[0]


@pytest.mark.parametrize("value", ["true", "false", "never", "0s", "-1h"])
async def test_what_has_no_end_is_not_told(sim: SimCluster, program: Program, value: str) -> None:
    await add(sim, value)
    await sim.run_for("50m")
    assert told(program) == []


async def test_each_pod_has_an_end_of_its_own(sim: SimCluster, program: Program) -> None:
    for minutes in (30, 10, 20):
        await add(sim, f"{minutes}m", f"web-{minutes}")
    await sim.run_for("59m")
    assert told(program) == ["web-10", "web-20", "web-30"]


async def test_an_end_that_has_passed_before_we_run_is_not_told(sim: SimCluster, program: Program) -> None:
    await program.stop()
    await add(sim, "10m")
    await sim.run_for("10m")
    await program.start()
    await sim.run_for("30m")
    assert told(program) == []


async def test_an_end_that_comes_after_the_start_is(sim: SimCluster, program: Program) -> None:
    await program.stop()
    await add(sim, "10m")
    await sim.run_for("9m59s")
    await program.start()
    await sim.run_for("30m")
    assert told_at(program) == [created_at(sim) + timedelta(minutes=10)]


@pytest.mark.parametrize("crash", [False, True])
async def test_a_restart_repeats_nothing(sim: SimCluster, program: Program, crash: bool) -> None:
    await add(sim, "10m")
    await sim.run_for("11m")
    for _ in range(3):
        await (program.kill() if crash else program.stop())
        await program.start()
        await sim.run_for("5m")
    (event,) = program.events(ELAPSED)
    assert "series" not in event


@pytest.mark.parametrize("how", ["deleted", "ended", "removed", "for good", "not at all"])
async def test_a_protection_that_ends_otherwise_is_not_told(sim: SimCluster, program: Program, how: str) -> None:
    await sim.apply(manifests.node("n1"))
    ends = {RUN_FOR: "1m"} if how == "ended" else {}
    await add(sim, "10m", **ends)
    await sim.run_for("5m")
    match how:
        case "deleted":
            await sim.api.write(Delete(PODS, "web", namespace="default", grace_seconds=0))
        case "removed":
            await annotate(sim, {names.DO_NOT_DISRUPT: None})
        case "for good":
            await annotate(sim, {names.DO_NOT_DISRUPT: "true"})
        case "not at all":
            await annotate(sim, {names.DO_NOT_DISRUPT: "false"})
    await sim.run_for("30m")
    assert told(program) == []


async def test_a_pod_on_its_way_out_is_not_told(sim: SimCluster, program: Program) -> None:
    await sim.apply(manifests.node("n1"))
    pod = manifests.pod("web", annotations={names.DO_NOT_DISRUPT: "10m"}, terminationGracePeriodSeconds=3000)
    pod["metadata"]["finalizers"] = ["example.com/hold"]
    await sim.apply(pod)
    await sim.run_for("9m")
    await sim.api.write(Delete(PODS, "web", namespace="default"))
    await sim.run_for("30m")
    assert sim.object(PODS, "web") is not None
    assert told(program) == []


@pytest.mark.parametrize(
    ("value", "minutes"),
    [
        pytest.param("20m", [20], id="later"),
        pytest.param("7m", [7], id="earlier, but still to come"),
        pytest.param("3m", [], id="earlier, and passed before it was written"),
    ],
)
async def test_the_end_moves_with_the_annotation(
    sim: SimCluster, program: Program, value: str, minutes: list[int]
) -> None:
    await add(sim, "10m")
    await sim.run_for("5m")
    await annotate(sim, {names.DO_NOT_DISRUPT: value})
    await sim.run_for("30m")
    assert told_at(program) == [created_at(sim) + timedelta(minutes=each) for each in minutes]


async def test_a_protection_that_is_renewed_ends_once_more(sim: SimCluster, program: Program) -> None:
    await add(sim, "10m")
    await sim.run_for("15m")
    await annotate(sim, {names.DO_NOT_DISRUPT: "25m"})
    await sim.run_for("30m")
    assert told_at(program) == [created_at(sim) + timedelta(minutes=each) for each in (10, 25)]


async def test_another_pod_of_the_name_is_another_pod(sim: SimCluster, program: Program) -> None:
    await add(sim, "10m")
    await sim.run_for("11m")
    await sim.api.write(Delete(PODS, "web", namespace="default", grace_seconds=0))
    await add(sim, "1m")
    await sim.run_for("30m")
    assert told(program) == ["web", "web"]


# -- what is wrong (R2, R11) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["yes", "", "4", "0s", "-4h", "TRUE"])
async def test_a_bad_value_is_told_once(sim: SimCluster, program: Program, running: Running, value: str) -> None:
    await add(sim, value)
    await sim.run_for("1s")
    for number in range(5):
        await annotate(sim, {"example.com/turn": str(number)})
        await sim.run_for("10m")
    (event,) = program.events(BAD_VALUE)
    assert event["type"] == "Warning"
    assert names.DO_NOT_DISRUPT in event["note"]
    assert "4h" in event["note"]  # what would be understood
    assert "series" not in event
    assert counted(running.metrics.invalid_annotations, annotation=names.DO_NOT_DISRUPT) == 1


async def test_another_mistake_is_told_again(sim: SimCluster, program: Program) -> None:
    await add(sim, "yes")
    await sim.run_for("5m")
    await annotate(sim, {names.DO_NOT_DISRUPT: "4h"})
    await sim.run_for("5m")
    await annotate(sim, {names.DO_NOT_DISRUPT: "yes"})
    await sim.run_for("5m")
    assert len(program.events(BAD_VALUE)) == 1
    await annotate(sim, {names.DO_NOT_DISRUPT: "4 hours"})
    assert len(program.events(BAD_VALUE)) == 2


ALLOW, ALLOW_FOR = names.DISRUPTION_SCHEDULE, names.DISRUPTION_SCHEDULE_DURATION
BLOCK, BLOCK_FOR = names.DISRUPTION_BLOCK_SCHEDULE, names.DISRUPTION_BLOCK_DURATION


@pytest.mark.parametrize(
    ("annotations", "wrong"),
    [
        pytest.param({ALLOW: "0 2 * * 6", ALLOW_FOR: "4h"}, 0, id="nothing"),
        pytest.param({ALLOW: "0 2 * * 6"}, 0, id="no duration"),
        pytest.param({ALLOW: "whenever"}, 1, id="cron"),
        pytest.param({ALLOW: "0 2 * * 6", ALLOW_FOR: "long"}, 1, id="duration"),
        pytest.param({ALLOW: "0 2 * * 6", ALLOW_FOR: "30s"}, 1, id="too short"),
        pytest.param({ALLOW: "0 2 * * 6", ALLOW_FOR: "169h"}, 1, id="too long"),
        pytest.param({ALLOW_FOR: "4h"}, 1, id="duration without schedule"),
        pytest.param({ALLOW: "0 2 * * 6; whenever", ALLOW_FOR: "4h"}, 1, id="one of two"),
        pytest.param({BLOCK: "whenever"}, 1, id="block cron"),
        pytest.param({BLOCK: "0 2 * * 6", BLOCK_FOR: "169h"}, 1, id="blocks too long"),
        pytest.param({ALLOW: "whenever", BLOCK: "whenever"}, 2, id="both"),
    ],
)
async def test_what_is_wrong_with_a_schedule_is_told_once(
    sim: SimCluster, program: Program, running: Running, annotations: dict[str, str], wrong: int
) -> None:
    await sim.apply(manifests.pod("web", annotations=annotations))
    await sim.run_for("1s")
    for number in range(5):
        await annotate(sim, {"example.com/turn": str(number)})
        await sim.run_for("10m")
    events = program.events(BAD_SCHEDULE)
    assert len(events) == wrong
    assert all(event["type"] == "Warning" and "series" not in event for event in events)
    assert counted(running.metrics.invalid_annotations) == wrong


async def test_pods_without_such_annotations_are_not_looked_at(sim: SimCluster, program: Program) -> None:
    await sim.apply(manifests.pod("web", annotations={"example.com/do-not-disrupt": "yes"}))
    await sim.run_for("10m")
    assert program.events() == []
