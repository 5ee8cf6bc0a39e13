"""Edits of deadlines and other instants at the wrong moment: no pod is forced early, none late, no controller ends."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.ports import NODECLAIMS, NODES, PODS, Delete, Patch, Resource, Unavailable
from dovetail.sim.server.faults import Fault
from dovetail.values.timestamp import format_time
from tests.harness import manifests
from tests.harness.manifests import Manifest
from tests.harness.stage import stage
from tests.harness.termination import FOR_EVER, GUARDED, Setting, annotation, is_deleting, play

pytestmark = stage(play)

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
EDGES = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")


def guarded(name: str = "web") -> Manifest:
    """A pod that only a deadline makes go, 30 s before it."""
    return manifests.pod(name, annotations=GUARDED)


# -- a deadline that changes while it is acted on ----------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(12))
@stage(cloud=True, except_for=("protected-pods", "explained"))
async def test_a_deadline_that_is_removed_as_pods_are_deleted_for_it_ends_no_controller(
    setting: Setting, steps: int
) -> None:
    """`steps`: of the event loop, from the instant of the deadline to the edit."""
    at_the_end: dict[str, Any] = {"annotations": GUARDED, "terminationGracePeriodSeconds": 0}
    await setting.launch(pods=[manifests.pod(f"web-{number}", **at_the_end) for number in range(5)])
    await setting.delete_claim()
    deadline = setting.now() + 10 * MINUTE
    await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: format_time(deadline)})
    await setting.run_until(deadline)
    for _ in range(steps):
        await asyncio.sleep(0)
    await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: None})
    await setting.sim.run_for("1m")
    # They do not know that the program could not see the edit yet.


@pytest.mark.parametrize("text", ["tomorrow", "", "2026-02-30T00:00:00Z", "9" * 300])
async def test_a_deadline_that_becomes_unreadable_falls_back_to_the_grace_period(setting: Setting, text: str) -> None:
    node = await setting.launch(pods=[guarded()], terminationGracePeriod="1h")
    deleted_at = setting.now()
    await setting.delete_claim()
    await setting.sim.run_for("20m")
    await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: text})
    await setting.run_until(deleted_at + HOUR - 31 * SECOND)
    assert setting.runs("web")
    (told, *_) = setting.events(EventReason.FAILED_TERMINATION, "c1")
    assert format_time(deleted_at + HOUR) in told["note"]
    await setting.run_past(deleted_at + HOUR - 30 * SECOND)
    assert is_deleting(setting.pod("web"))
    await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="1m")


# -- a deadline of something that never happened -----------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [2, 600], ids=["has passed", "is yet to come"])
async def test_the_deadline_of_an_interruption_that_deleted_nothing_does_not_count_later(
    setting: Setting, minutes: int
) -> None:
    node = await setting.launch(pods=[guarded()])
    down = Fault(error=Unavailable("down"))
    setting.sim.server.faults.add(down, verb="delete", resource=NODECLAIMS, client=names.COMPONENT, times=FOR_EVER)
    deadline = format_time(setting.now() + minutes * MINUTE)
    await setting.annotate(NODES, node, {names.KWOK_INTERRUPTED: deadline})
    await setting.sim.run_for("1m")
    assert not is_deleting(setting.claim())
    await setting.program.kill()
    await setting.annotate(NODES, node, {names.KWOK_INTERRUPTED: None})  # it was withdrawn
    setting.sim.server.faults.clear()
    await setting.sim.run_for("1h")
    await setting.program.start()
    await setting.delete_claim()
    await setting.sim.run_for("24h")
    assert annotation(setting.claim(), names.TERMINATION_TIMESTAMP) is None
    assert setting.runs("web")


async def test_an_interruption_whose_deadline_could_not_be_written_is_made_up_for_after_a_restart(
    setting: Setting,
) -> None:
    node = await setting.launch(pods=[guarded()], terminationGracePeriod="24h")
    deadline = setting.now() + HOUR
    down = Fault(error=Unavailable("down"))
    setting.sim.server.faults.add(
        down,
        verb="patch",
        resource=NODECLAIMS,
        client=names.COMPONENT,
        times=FOR_EVER,
        when=lambda _request: is_deleting(setting.claim()),
    )
    await setting.annotate(NODES, node, {names.KWOK_INTERRUPTED: format_time(deadline)})
    await setting.sim.run_for("1m")
    assert is_deleting(setting.claim())
    await setting.program.kill()
    setting.sim.server.faults.clear()
    await setting.program.start()
    await setting.sim.run_for("1m")
    assert setting.deadline() == deadline


# -- instants at the edges of the calendar -----------------------------------------------------------------------------


async def set_instant(setting: Setting, kind: Resource[Any], name: str, instant: str, **statuses: str) -> None:
    """Set conditions, with this lastTransitionTime; others stay as they are."""
    raw = kind.read_as(dict[str, Any])
    body = await setting.sim.api.get(raw, name)
    kept = [each for each in body["status"].get("conditions") or () if each["type"] not in statuses]
    new = [
        {"type": type_, "status": status, "reason": "Edited", "message": "", "lastTransitionTime": instant}
        for type_, status in statuses.items()
    ]
    await setting.sim.api.write(Patch(raw, name, {"status": {"conditions": [*kept, *new]}}, subresource="status"))


@pytest.mark.parametrize("instant", EDGES)
@pytest.mark.parametrize("deleted", [False, True])
async def test_transition_times_of_a_node_at_the_edges_of_the_calendar_end_no_controller(
    setting: Setting, instant: str, deleted: bool
) -> None:
    node = await setting.launch(pods=[guarded()])
    setting.sim.kill_kubelet(node)
    if deleted:
        await setting.delete_claim()
    await set_instant(setting, NODES, node, instant, Ready="False")
    await setting.sim.run_for("5m")


@pytest.mark.parametrize("instant", EDGES)
@pytest.mark.parametrize("types", [("Launched", "Registered"), ("Initialized",), ("Drained",)], ids="+".join)
async def test_transition_times_of_a_claim_at_the_edges_of_the_calendar_end_no_controller(
    setting: Setting, instant: str, types: tuple[str, ...]
) -> None:
    node = await setting.launch(pods=[manifests.pod("web")])
    if "Drained" in types:
        await setting.sim.apply(manifests.pdb("web", maxUnavailable=0))
        await setting.delete_claim()
        await setting.sim.run_for("1s")
    await set_instant(setting, NODECLAIMS, "c1", instant, **dict.fromkeys(types, "Unknown"))
    await setting.sim.run_for("5m")
    if "Drained" in types:
        await setting.sim.api.write(Delete(PODS, "web", namespace="default"))
        await setting.sim.wait_until(lambda: setting.gone(NODES, node), timeout="1m")
