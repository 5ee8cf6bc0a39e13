"""Has a node been quiet for long enough, and what disturbs it (02 §10, §14.44, R24)?"""

from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.model.pod_records import PodRecord
from dovetail.planning.nodeclaim.consolidatable import (
    ConsolidatableStatus,
    consolidatable,
    is_pod_event,
    recordable_at,
    unrecorded_event,
)
from dovetail.planning.timings import Timings
from tests.harness.builders import at, claim, pod, pool

INITIALIZED = "2026-03-01T12:00:00Z"
EVENT = "2026-03-01T13:00:00Z"
SECOND, MOMENT = timedelta(seconds=1), timedelta(microseconds=1)
NOT_READY = {"Launched": "True", "Registered": "True", "Initialized": "Unknown"}


# -- the condition -----------------------------------------------------------------------------------------------------


def judged(
    now: datetime, *, after: str = "10m", event: datetime | None = None, **options: Any
) -> ConsolidatableStatus | None:
    subject = claim(**{"initialized_since": INITIALIZED, **options})
    return consolidatable(subject, pool(consolidate_after=after), now, event_at=event)


def test_it_holds_from_the_boundary_on() -> None:
    boundary = at("2026-03-01T13:10:00Z")
    assert judged(boundary - MOMENT, last_pod_event=EVENT) == ConsolidatableStatus(False, boundary)
    assert judged(boundary, last_pod_event=EVENT) == ConsolidatableStatus(True, None)
    assert judged(boundary + MOMENT, last_pod_event=EVENT) == ConsolidatableStatus(True, None)


def test_without_a_pod_event_the_initialization_counts() -> None:
    boundary = at("2026-03-01T12:10:00Z")
    assert judged(boundary - MOMENT) == ConsolidatableStatus(False, boundary)
    assert judged(boundary) == ConsolidatableStatus(True, None)


def test_an_event_that_is_not_recorded_yet_counts() -> None:
    now, event = at("2026-03-01T13:10:00Z"), at("2026-03-01T13:00:05Z")
    assert judged(now, last_pod_event=EVENT, event=event) == ConsolidatableStatus(False, event + 600 * SECOND)


@pytest.mark.parametrize(
    ("after", "options", "expected"),
    [
        pytest.param("0s", {}, ConsolidatableStatus(True, None), id="0s: at once"),
        pytest.param("Never", {}, ConsolidatableStatus(False, None), id="Never"),
        pytest.param("soon", {}, ConsolidatableStatus(False, None), id="unreadable: never, by no mistake"),
        pytest.param("0s", {"statuses": NOT_READY}, ConsolidatableStatus(False, None), id="not initialized"),
        pytest.param(
            "0s",
            {"statuses": NOT_READY, "last_pod_event": EVENT},
            ConsolidatableStatus(False, None),
            id="not yet, with pods",
        ),
        pytest.param(
            "2500000h", {"initialized_since": None}, ConsolidatableStatus(False, None), id="nobody knows since when"
        ),
    ],
)
def test_the_pool_and_the_initialization_decide(
    after: str, options: dict[str, Any], expected: ConsolidatableStatus
) -> None:
    assert judged(at(INITIALIZED), after=after, **options) == expected


def test_static_pools_have_no_such_condition() -> None:
    assert consolidatable(claim(), pool(replicas=3, consolidate_after="0s"), at(EVENT)) is None


# -- pod events --------------------------------------------------------------------------------------------------------

GONE = "2026-03-01T14:00:00Z"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, pod(), True, id="first seen, bound"),
        pytest.param(None, pod(node=""), False, id="first seen, not bound"),
        pytest.param(None, pod(phase="Succeeded"), True, id="first seen, bound and over"),
        pytest.param(pod(node=""), pod(), True, id="bound"),
        pytest.param(pod(), pod(), False, id="nothing"),
        pytest.param(pod(), pod(ready="False"), False, id="not ready"),
        pytest.param(pod(phase="Pending"), pod(), False, id="running"),
        pytest.param(pod(), pod(phase="Succeeded"), True, id="succeeded"),
        pytest.param(pod(), pod(phase="Failed"), True, id="failed"),
        pytest.param(pod(phase="Failed"), pod(phase="Failed"), False, id="still failed"),
        pytest.param(pod(), pod(deleted=GONE), True, id="terminating"),
        pytest.param(pod(deleted=GONE), pod(deleted=GONE), False, id="still terminating"),
        pytest.param(pod(deleted=GONE), pod(deleted=GONE, phase="Succeeded"), True, id="terminating, and now over"),
        pytest.param(pod(node="", phase="Pending"), pod(node="", phase="Failed"), False, id="failed without a node"),
        pytest.param(pod(node="", owner="DaemonSet"), pod(owner="DaemonSet"), False, id="a daemon's is bound"),
        pytest.param(pod(owner="DaemonSet"), pod(owner="DaemonSet", deleted=GONE), False, id="a daemon's goes"),
        pytest.param(None, pod(owner="DaemonSet"), False, id="a daemon's is there"),
        pytest.param(None, pod(owner=None), True, id="nobody's"),
    ],
)
def test_pods_that_come_and_go_are_events(old: PodRecord | None, new: PodRecord, expected: bool) -> None:
    assert is_pod_event(old, new) is expected


NOW = at("2026-03-01T15:00:00Z")


@pytest.mark.parametrize(
    ("recorded", "seen", "expected"),
    [
        pytest.param(None, None, None, id="nothing ever"),
        pytest.param(None, "2026-03-01T14:00:00.7Z", "2026-03-01T14:00:00Z", id="to the second"),
        pytest.param(EVENT, "2026-03-01T14:00:00Z", "2026-03-01T14:00:00Z", id="later than what is recorded"),
        pytest.param(EVENT, "2026-03-01T13:00:00.9Z", None, id="in the second that is recorded"),
        pytest.param(EVENT, "2026-03-01T12:59:59Z", None, id="before what is recorded"),
        pytest.param("9999-12-31T23:59:59Z", "2026-03-01T14:00:00Z", None, id="somebody has written nonsense"),
    ],
)
def test_what_was_seen_is_recorded_once(recorded: str | None, seen: str | None, expected: str | None) -> None:
    subject = claim(last_pod_event=recorded, initialized_since=INITIALIZED)
    found = unrecorded_event(subject, (), None if seen is None else at(seen), NOW)
    assert found == (None if expected is None else at(expected))


@pytest.mark.parametrize(
    ("recorded", "came", "expected"),
    [
        pytest.param(EVENT, EVENT, False, id="who has been counted is not counted again"),
        pytest.param(EVENT, "2026-03-01T12:00:00Z", False, id="who came before"),
        pytest.param(EVENT, "2026-03-01T13:00:01Z", True, id="who came when nobody looked"),
        pytest.param(None, "2026-03-01T11:00:00Z", False, id="who came before the initialization"),
        pytest.param(None, "2026-03-01T12:00:01Z", True, id="who came after the initialization"),
        pytest.param(EVENT, "2026-03-01T15:00:01Z", False, id="who is still to come, by some other clock"),
    ],
)
def test_of_what_nobody_saw_the_pods_tell_who_came(recorded: str | None, came: str, expected: bool) -> None:
    subject = claim(last_pod_event=recorded, initialized_since=INITIALIZED)
    assert unrecorded_event(subject, [pod(created=came)], None, NOW) == (at(came) if expected else None)
    assert unrecorded_event(subject, [pod(created=came, owner="DaemonSet")], None, NOW) is None


def test_before_the_initialization_everybody_is_new() -> None:
    subject = claim(statuses=NOT_READY)
    assert unrecorded_event(subject, [pod(created=INITIALIZED), pod(created=None)], None, NOW) == at(INITIALIZED)


def test_the_last_one_counts() -> None:
    subject = claim(last_pod_event=EVENT)
    pods = [pod(created=f"2026-03-01T14:00:0{second}Z") for second in (3, 5, 4)]
    assert unrecorded_event(subject, pods, at("2026-03-01T14:00:04Z"), NOW) == at("2026-03-01T14:00:05Z")
    assert unrecorded_event(subject, pods, at("2026-03-01T14:00:06Z"), NOW) == at("2026-03-01T14:00:06Z")


def test_events_are_recorded_at_most_every_ten_seconds() -> None:
    timings, recorded = Timings(), at(EVENT)
    assert recordable_at(claim(), None, timings) is None
    assert recordable_at(claim(last_pod_event=EVENT), None, timings) == recorded + 10 * SECOND
    # One that had to wait was recorded later than it happened.
    assert recordable_at(claim(last_pod_event=EVENT), recorded + 9 * SECOND, timings) == recorded + 19 * SECOND
    assert recordable_at(claim(last_pod_event="9999-12-31T23:59:59Z"), None, timings) is None
