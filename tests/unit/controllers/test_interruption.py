"""The provider is going to take a node away: its claim goes at once, by the earliest deadline there is (R41). With all
controllers running."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.ports import NODECLAIMS, NODES, PODS, Unavailable
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from dovetail.values.timestamp import format_time, parse_time
from tests.harness import manifests
from tests.harness.stage import stage
from tests.harness.termination import FOR_EVER, GUARDED, Setting, annotation, counted, is_deleting, play

pytestmark = stage(play)

MINUTE = timedelta(minutes=1)
MOMENT = timedelta(milliseconds=1)


def guarded(**spec: Any) -> manifests.Manifest:
    return manifests.pod("web", annotations=GUARDED, **spec)


def provider_id(setting: Setting, claim: str = "c1") -> str:
    found = setting.claim(claim)
    assert found is not None
    return str(found["status"]["providerID"])


def interrupted(setting: Setting) -> float:
    return counted(setting.metrics.nodeclaims_disrupted, reason="interrupted")


async def interrupt(setting: Setting, after: timedelta | None, claim: str = "c1") -> datetime | None:
    """Have the machine announced to go after so long, or at some time; when, exactly."""
    deadline = None if after is None else setting.now() + after
    setting.cloud.interrupt(provider_id(setting, claim), deadline=deadline)
    await setting.sim.run_for("1ms")
    return deadline


# -- whose deadline counts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("period", "notice", "expected"),
    [
        pytest.param(None, None, None, id="neither has one"),
        pytest.param("1h", None, 60, id="only the claim has one"),
        pytest.param(None, 2, 2, id="only the notice has one"),
        pytest.param("1h", 2, 2, id="the notice's is earlier"),
        pytest.param("1m", 2, 1, id="the claim's is earlier"),
        pytest.param("2m", 2, 2, id="both are the same"),
        pytest.param("0s", 2, 0, id="the claim is forced anyway"),
    ],
)
@stage(cloud=True)
async def test_the_earlier_deadline_counts(
    setting: Setting, period: str | None, notice: int | None, expected: int | None
) -> None:
    grace = {} if period is None else {"terminationGracePeriod": period}
    await setting.launch(pods=[guarded()], **grace)
    at = setting.now()
    await interrupt(setting, None if notice is None else notice * MINUTE)
    assert is_deleting(setting.claim())
    assert setting.deadline() == (None if expected is None else at + expected * MINUTE)
    assert interrupted(setting) == 1


@stage(cloud=True)
async def test_pods_go_in_time_for_the_notices_deadline(setting: Setting) -> None:
    await setting.launch(pods=[guarded(), manifests.pod("free")], terminationGracePeriod="24h")
    deadline = await interrupt(setting, 2 * MINUTE)
    assert deadline is not None
    await setting.run_until(deadline - timedelta(seconds=30) - MOMENT)
    assert setting.pod("free") is None
    assert setting.runs("web")
    await setting.run_past(deadline - timedelta(seconds=30))
    assert is_deleting(setting.pod("web"))
    await setting.sim.wait_until(lambda: setting.gone(PODS, "web"))
    assert setting.now() <= deadline


@stage(cloud=True)
async def test_without_any_deadline_it_is_drained_like_an_expired_one(setting: Setting) -> None:
    await setting.launch(pods=[guarded()])
    await interrupt(setting, None)
    await setting.sim.run_for("10h")
    assert setting.runs("web")
    assert annotation(setting.claim(), names.TERMINATION_TIMESTAMP) is None


async def test_a_deadline_that_has_passed_ends_it_at_once(setting: Setting) -> None:
    found = await setting.launch(pods=[guarded()], terminationGracePeriod="24h")
    await setting.annotate(NODES, found, {names.KWOK_INTERRUPTED: format_time(setting.now() - 5 * MINUTE)})
    await setting.sim.wait_until(lambda: setting.gone(NODES, found), timeout="1s")


@pytest.mark.parametrize(("written", "expected"), [(1, 1), (5, 2)])
@stage(cloud=True)
async def test_a_deadline_that_somebody_has_written_is_only_tightened(
    setting: Setting, written: int, expected: int
) -> None:
    """It is what will count once the claim is deleted (03 §10.10), though it is not deleted yet."""
    await setting.launch(pods=[guarded()])
    at = setting.now()
    await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: format_time(at + written * MINUTE)})
    await interrupt(setting, 2 * MINUTE)
    assert setting.deadline() == at + expected * MINUTE


@stage(cloud=True)
async def test_a_deadline_that_cannot_be_read_gives_way(setting: Setting) -> None:
    await setting.launch(pods=[guarded()])
    await setting.annotate(NODECLAIMS, "c1", {names.TERMINATION_TIMESTAMP: "tomorrow"})
    deadline = await interrupt(setting, 2 * MINUTE)
    assert setting.deadline() == deadline


# -- what is going already --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("period", "notice", "expected"),
    [
        pytest.param("1h", 2, 12, id="earlier"),
        pytest.param("15m", 8, 15, id="later"),
        pytest.param("1h", None, 60, id="none"),
        pytest.param(None, 2, 12, id="the only one"),
        pytest.param(None, None, None, id="none at all"),
    ],
)
@stage(cloud=True)
async def test_a_claim_that_is_going_is_hurried_and_not_counted(
    setting: Setting, period: str | None, notice: int | None, expected: int | None
) -> None:
    grace = {} if period is None else {"terminationGracePeriod": period}
    await setting.launch(pods=[guarded()], **grace)
    deleted_at = setting.now()
    await setting.delete_claim()
    await setting.sim.run_for("10m")
    await interrupt(setting, None if notice is None else notice * MINUTE)
    assert setting.deadline() == (None if expected is None else deleted_at + expected * MINUTE)
    assert interrupted(setting) == 0
    assert setting.requests("delete", NODECLAIMS) == []


# -- twice ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("second", "expected"), [(None, 5), (5, 5), (2, 2), (30, 5)])
@stage(cloud=True)
async def test_told_twice_the_earlier_one_counts_and_it_is_done_once(
    setting: Setting, second: int | None, expected: int
) -> None:
    await setting.launch(pods=[guarded()], terminationGracePeriod="24h")
    at = setting.now()
    setting.cloud.interrupt(provider_id(setting), deadline=at + 5 * MINUTE)
    await setting.sim.run_for("1ms")
    setting.cloud.interrupt(
        provider_id(setting), kind="Again", deadline=None if second is None else at + second * MINUTE
    )
    await setting.sim.run_for("30s")
    assert setting.deadline() == at + expected * MINUTE
    assert interrupted(setting) == 1
    assert len(setting.requests("delete", NODECLAIMS)) == 1
    assert len(setting.events(EventReason.DISRUPTION_TERMINATING, "c1")) == 1


@stage(cloud=True)
async def test_a_second_notice_that_comes_while_the_first_is_dealt_with_is_not_lost(setting: Setting) -> None:
    await setting.launch(pods=[guarded()], terminationGracePeriod="24h")
    at = setting.now()
    slow = Fault(delay_seconds=2)
    setting.sim.server.faults.add(slow, verb="delete", resource=NODECLAIMS, client=names.COMPONENT)
    setting.cloud.interrupt(provider_id(setting), deadline=at + 5 * MINUTE)
    await setting.sim.run_for("1s")
    setting.cloud.interrupt(provider_id(setting), deadline=at + 2 * MINUTE)
    await setting.sim.run_for("10s")
    assert is_deleting(setting.claim())
    assert setting.deadline() == at + 2 * MINUTE


@stage(cloud=True)
async def test_a_second_notice_after_a_failure_loosens_nothing(setting: Setting) -> None:
    await setting.launch(pods=[guarded()])
    at = setting.now()
    down = Fault(error=Unavailable("down"))
    # The claim cannot be deleted yet, and so no deadline is written.
    setting.sim.server.faults.add(down, verb="delete", resource=NODECLAIMS, client=names.COMPONENT, times=4)
    setting.cloud.interrupt(provider_id(setting), deadline=at + 2 * MINUTE)
    await setting.sim.run_for("1ms")
    setting.cloud.interrupt(provider_id(setting), deadline=at + 5 * MINUTE)
    await setting.sim.wait_until(lambda: is_deleting(setting.claim()), timeout="10s")
    await setting.sim.run_for("1s")
    assert setting.deadline() == at + 2 * MINUTE
    assert interrupted(setting) == 1


# -- which node -------------------------------------------------------------------------------------------------------


@stage(cloud=True)
async def test_a_notice_for_a_node_that_is_yet_to_come_counts_when_it_is_there(setting: Setting) -> None:
    await setting.want(terminationGracePeriod="24h")
    await setting.sim.wait_until(lambda: setting.condition("Launched").get("status") == "True")
    deadline = await interrupt(setting, 10 * MINUTE)
    await setting.sim.run_for("20s")
    assert not is_deleting(setting.claim())
    await setting.sim.wait_until(lambda: is_deleting(setting.claim()), timeout="1m")
    await setting.sim.run_for("1ms")
    assert setting.deadline() == deadline


@stage(cloud=True)
async def test_a_notice_for_a_node_that_nobody_knows_changes_nothing(setting: Setting) -> None:
    await setting.launch()
    setting.cloud.next_launches(Launch(registers=False))
    await setting.want("silent")
    await setting.sim.wait_until(lambda: setting.condition("Launched", "silent").get("status") == "True")
    await interrupt(setting, None, "silent")
    await setting.sim.run_for("10m")
    assert not is_deleting(setting.claim())
    assert not is_deleting(setting.claim("silent"))
    assert interrupted(setting) == 0
    # And the next one is heard.
    await interrupt(setting, None)
    assert is_deleting(setting.claim())


@stage(cloud=True)
async def test_only_the_node_that_was_named_goes(setting: Setting) -> None:
    for name in ("c1", "c2", "c3"):
        await setting.launch(name, pods=[manifests.pod(f"web-{name}", annotations=GUARDED)])
    await interrupt(setting, 2 * MINUTE, "c2")
    await setting.sim.run_for("1m")
    assert [is_deleting(setting.claim(name)) for name in ("c1", "c2", "c3")] == [False, True, False]


@stage(cloud=True)
async def test_it_is_told_on_claim_and_node(setting: Setting) -> None:
    found = await setting.launch(pods=[guarded()], terminationGracePeriod="24h")
    deadline = await interrupt(setting, 2 * MINUTE)
    assert deadline is not None
    await setting.sim.run_for("1s")
    for about in (found, "c1"):
        (told,) = setting.events(EventReason.DISRUPTION_TERMINATING, about)
        assert "SpotInterruption" in told["note"]
        assert format_time(deadline) in told["note"]
    labels = {"reason": "interrupted", "nodepool": "default", "termination_mode": "eventual"}
    assert counted(setting.metrics.nodeclaims_disrupted, **labels) == 1
    assert counted(setting.metrics.pods_disruption_initiated, **labels) == 1


@stage(cloud=True)
async def test_a_notice_that_could_not_be_dealt_with_outlives_the_process(setting: Setting) -> None:
    await setting.launch(pods=[guarded()])
    down = Fault(error=Unavailable("down"))
    setting.sim.server.faults.add(down, resource=NODECLAIMS, client=names.COMPONENT, times=FOR_EVER)
    deadline = await interrupt(setting, 10 * MINUTE)
    await setting.sim.run_for("30s")
    await setting.program.kill()
    setting.sim.server.faults.clear()
    await setting.program.start()
    await setting.sim.wait_until(lambda: is_deleting(setting.claim()), timeout="1m")
    await setting.sim.run_for("1ms")
    assert setting.deadline() == deadline


# -- kwok -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "minutes"), [("true", 60), ("soon", 60), ("2026-03-02T00:02:00Z", None)])
async def test_at_kwok_an_annotation_is_the_notice(setting: Setting, value: str, minutes: int | None) -> None:
    found = await setting.launch(pods=[guarded()], terminationGracePeriod="1h")
    at = setting.now()
    await setting.annotate(NODES, found, {names.KWOK_INTERRUPTED: value})
    await setting.sim.wait_until(lambda: is_deleting(setting.claim()), timeout="1s")
    await setting.sim.run_for("1ms")
    assert setting.deadline() == (parse_time(value) if minutes is None else at + minutes * MINUTE)


async def test_at_kwok_false_is_no_notice(setting: Setting) -> None:
    found = await setting.launch()
    await setting.annotate(NODES, found, {names.KWOK_INTERRUPTED: "false"})
    await setting.sim.run_for("1h")
    assert not is_deleting(setting.claim())


async def test_at_kwok_a_notice_outlives_the_process(setting: Setting) -> None:
    found = await setting.launch(pods=[guarded()])
    await setting.program.kill()
    deadline = setting.now() + 10 * MINUTE
    await setting.annotate(NODES, found, {names.KWOK_INTERRUPTED: format_time(deadline)})
    await setting.sim.run_for("1m")
    await setting.program.start()
    await setting.sim.wait_until(lambda: is_deleting(setting.claim()), timeout="1s")
    await setting.sim.run_for("1s")
    assert setting.deadline() == deadline
    assert interrupted(setting) == 1
