"""Views answer about a drain in the reading of who drains: beside Karpenter, Karpenter (R56)."""

from datetime import UTC, datetime

import msgspec
import pytest

from dovetail.api import names
from dovetail.model.decider import Decider, DecidingController, parse_decider
from dovetail.model.pod_records import PodRecord
from dovetail.model.rule_settings import RuleSettings, SpanStart, settings_of
from dovetail.model.snapshot import Snapshot
from dovetail.views.assessment import assess
from dovetail.views.drained import read_drains
from dovetail.views.explain.verdicts import Explanation, explain
from dovetail.views.forecast.assembly import forecast
from dovetail.views.forecast.data import ForecastEventType, NodeForecast
from tests.harness.builders import at, claim, node, pod, pool
from tests.harness.snapshots import take_snapshot

NOW = datetime(2026, 3, 6, 16, 0, tzinfo=UTC)
EVENING = datetime(2026, 3, 6, 22, 0, tzinfo=UTC)
CREATED, STARTED = "2026-03-06T13:00:00Z", at("2026-03-06T13:30:00Z")
THEIRS = ("karpenter", "dovetail:guard", "dovetail:drive")
BESIDE = THEIRS[1:]
_ENDS = (ForecastEventType.FORCED, ForecastEventType.DEADLINE)
CLOSED = "0 2 * * 6"
DELETED = "2026-03-06T15:50:00Z"


def cluster(
    by: str, *pods: PodRecord, deleted: str | None = DELETED, grace: str | None = "1h", expire_after: str = "Never"
) -> Snapshot:
    """Node-1 with the pods, as this decider reads them. Without `deleted`, it does not drain."""
    settings = settings_of(parse_decider(by))
    started = STARTED if settings.in_drains.durations is SpanStart.START else None
    read = [msgspec.structs.replace(each, settings=settings, started_at=started) for each in pods]
    snapshot = take_snapshot(
        claims=[claim(deleted=deleted, grace_period=grace, expire_after=expire_after)],
        nodes=[node()],
        pods=read,
        pools=[pool(consolidate_after="Never")],
    )
    return msgspec.structs.replace(snapshot, settings=settings)


def explained(snapshot: Snapshot) -> Explanation:
    return explain(assess(snapshot, NOW))


def foretold(snapshot: Snapshot) -> NodeForecast:
    return forecast(assess(snapshot, NOW), EVENING).nodes[0]


def evicted_at(told: NodeForecast) -> list[str]:
    types = (ForecastEventType.POD_EVICTED, ForecastEventType.POD_DELETED)
    return [f"{event.type} {event.at:%H:%M}" for event in told.events if event.type in types]


def cause(snapshot: Snapshot) -> str:
    answer = explained(snapshot).nodes[0].answer
    return str(answer.cause) if answer else ""


@pytest.mark.parametrize(
    ("by", "until"),
    [(by, "2026-03-06T17:30:00Z") for by in THEIRS] + [("dovetail", "2026-03-06T17:00:00Z")],
)
def test_in_karpenters_drain_a_duration_counts_from_the_start_of_the_pod(by: str, until: str) -> None:
    subject = cluster(by, pod(do_not_disrupt="4h", created=CREATED), grace=None)
    (view,) = explained(subject).pods
    assert (view.allowed, view.until) == (False, at(until))
    assert evicted_at(foretold(subject)) == [f"pod-evicted {until[11:16]}"]


@pytest.mark.parametrize("by", BESIDE)
def test_until_the_drain_begins_durations_count_as_dovetail_reads_them(by: str) -> None:
    (view,) = explained(cluster(by, pod(do_not_disrupt="4h", created=CREATED), deleted=None)).pods
    assert view.until == at("2026-03-06T17:00:00Z")


@pytest.mark.parametrize("subject", [pod(schedule=CLOSED), pod(do_not_disrupt="yes")])
@pytest.mark.parametrize("by", [*THEIRS, "dovetail"])
def test_in_karpenters_drain_schedules_and_unreadable_values_do_not_protect(by: str, subject: PodRecord) -> None:
    snapshot = cluster(by, subject)
    (view,) = explained(snapshot).pods
    assert view.allowed == (by != "dovetail")
    assert evicted_at(foretold(snapshot)) == (["pod-deleted 16:49"] if by == "dovetail" else ["pod-evicted 16:00"])


@pytest.mark.parametrize("by", BESIDE)
def test_a_schedule_that_the_drain_does_not_read_says_so(by: str) -> None:
    (view,) = explained(cluster(by, pod(schedule=CLOSED))).pods
    (said,) = (each for each in view.verdicts if each.rule == "disruption-schedule")
    assert said.message == "not in force: Karpenter's drain does not read it; it needs --hold-pods"


@pytest.mark.parametrize("by", BESIDE)
def test_a_hold_of_ours_protects_in_karpenters_drain(by: str) -> None:
    held = {names.POD_HOLD: '{"until":"2026-03-06T18:00:00Z","value":"true"}'}
    subject = cluster(by, pod(schedule=CLOSED, do_not_disrupt="true", annotations=held), grace=None)
    (view,) = explained(subject).pods
    assert (view.allowed, view.until) == (False, at("2026-03-06T18:00:00Z"))
    assert evicted_at(foretold(subject)) == ["pod-evicted 18:00"]


@pytest.mark.parametrize("by", [*THEIRS, "dovetail"])
def test_the_answer_says_whose_drain_it_is(by: str) -> None:
    said = cause(cluster(by, pod(do_not_disrupt="true")))
    assert said.startswith("Karpenter's drain waits for " if by in THEIRS else "waits for ")
    assert cause(cluster(by)) == (
        "drained; Karpenter terminates its instance next"
        if by in THEIRS
        else "drained; its instance is terminated next"
    )


@pytest.mark.parametrize("by", [*THEIRS, "dovetail"])
def test_karpenters_instance_does_not_end_at_the_deadline_but_when_its_pods_are_gone(by: str) -> None:
    """A pod without grace is deleted at the deadline itself, and has a second."""
    told = foretold(cluster(by, pod(do_not_disrupt="true", grace=0)))
    (end,) = (event for event in told.events if event.type in _ENDS)
    gone = max(span.end for span in told.spans if span.kind == "draining")
    assert end.type is ForecastEventType.FORCED
    if by == "dovetail":
        assert (end.message, gone) == ("forced removal, if the drain has not ended by then", told.deadline)
    else:
        assert gone == at("2026-03-06T16:50:01Z")
        assert end.message == (
            "deadline of Karpenter's drain: what is left has been deleted; the instance ends when it is gone"
        )


@pytest.mark.parametrize("by", [*THEIRS, "dovetail"])
def test_the_deadline_of_a_drain_that_ends_before_says_whose_it_is(by: str) -> None:
    (end,) = (event for event in foretold(cluster(by, pod())).events if event.type in _ENDS)
    whose = "Karpenter's" if by in THEIRS else "the"
    assert (end.type, end.message) == (
        ForecastEventType.DEADLINE,
        f"deadline of {whose} drain; the drain should be over 2026-03-06T16:00:30Z",
    )


@pytest.mark.parametrize("by", [*THEIRS, "dovetail"])
def test_a_drain_to_come_is_read_as_one(by: str) -> None:
    """The node expires at 18:00."""
    subject = cluster(by, pod(schedule=CLOSED), deleted=None, grace="1h", expire_after="138h")
    told = foretold(subject)
    assert told.expires_at is not None
    begins = f"{told.expires_at:%H:%M}"
    (view,) = explained(subject).pods
    if by == "dovetail":
        assert evicted_at(told) != [f"pod-evicted {begins}"]
        assert view.forced_at
    else:
        assert evicted_at(told) == [f"pod-evicted {begins}"]
        assert not view.forced_at
    (drain,) = (span for span in told.spans if span.kind == "draining")
    assert bool(drain.causes) == (by == "dovetail")


def test_where_dovetail_runs_or_nothing_drains_the_snapshot_stays_as_it_is() -> None:
    running = cluster("dovetail", pod(schedule=CLOSED))
    assert read_drains(running) is running
    steady = cluster("dovetail:guard", pod(schedule=CLOSED), deleted=None)
    assert read_drains(steady) is steady


def test_read_once_or_twice_it_is_the_same() -> None:
    read = read_drains(cluster("dovetail:guard", pod(schedule=CLOSED)))
    assert read_drains(read) == read
    assert read.nodes[0].pods[0] is read.pods[0]


def test_a_karpenter_before_1_12_drains_without_durations_beside_guard_too() -> None:
    guard = parse_decider("dovetail:guard")
    old = Decider(DecidingController.DOVETAIL, mode=guard.mode, version="1.11")
    assert settings_of(old).in_drains.durations is SpanStart.NEVER
    assert settings_of(guard).in_drains.durations is SpanStart.START
    assert RuleSettings(decider=guard).in_drains == RuleSettings(decider=guard)


@pytest.mark.parametrize("joined", [True, False])
def test_the_answer_after_a_drain_does_not_repeat_the_state(joined: bool) -> None:
    """Every command says the state before the answer."""
    left = claim(deleted=DELETED, true=["InstanceTerminating"])
    said = explained(take_snapshot(claims=[left], nodes=[node()] if joined else [], pools=[pool()])).nodes[0]
    assert said.answer is not msgspec.UNSET
    assert (said.state, str(said.answer.cause)) == ("S5" if joined else "S6", "its pods are gone")
