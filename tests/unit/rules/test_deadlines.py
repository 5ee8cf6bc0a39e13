"""When a node expires, when its drain must be over, and when its pods are deleted for that (R15–R20, 03 §5)."""

from datetime import timedelta

import pytest

from dovetail.model.node_records import ClaimRecord
from dovetail.model.pod_records import PodRecord
from dovetail.rules.deadlines import (
    deletion_grace_seconds,
    expires_at,
    forced_deletion,
    gracefully_expires_at,
    node_deadline,
)
from tests.harness.builders import at, claim, pod, pool

CREATED = "2026-03-01T00:00:00Z"
DELETED = "2026-03-04T12:00:00Z"


def instant(text: str | None) -> object:
    return None if text is None else at(text)


# -- expiry -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        pytest.param(claim(expire_after="720h"), "2026-03-31T00:00:00Z", id="30 days"),
        pytest.param(claim(expire_after="1h30m"), "2026-03-01T01:30:00Z", id="hours and minutes"),
        pytest.param(claim(expire_after="0s"), CREATED, id="at once"),
        pytest.param(claim(expire_after="Never"), None, id="Never"),
        pytest.param(claim(expire_after="10d"), None, id="an unreadable duration expires nothing"),
        pytest.param(claim(expire_after="720h", created=None), None, id="not created yet"),
        pytest.param(claim(expire_after="720h", deleted=DELETED), "2026-03-31T00:00:00Z", id="deleted already"),
        pytest.param(claim(expire_after="2000000h", created="9990-01-01T00:00:00Z"), None, id="beyond the calendar"),
    ],
)
def test_expires_at(subject: ClaimRecord, expected: str | None) -> None:
    assert expires_at(subject) == instant(expected)


@pytest.mark.parametrize(
    ("graceful", "created", "expected"),
    [
        pytest.param("480h", CREATED, "2026-03-21T00:00:00Z", id="20 days"),
        pytest.param("0s", CREATED, CREATED, id="at once"),
        pytest.param("Never", CREATED, None, id="Never"),
        pytest.param("soon", CREATED, None, id="unreadable"),
        pytest.param("480h", None, None, id="not created yet"),
    ],
)
def test_gracefully_expires_at(graceful: str, created: str | None, expected: str | None) -> None:
    subject = claim(created=created, expire_after="720h")
    assert gracefully_expires_at(subject, pool(graceful_expire_after=graceful)) == instant(expected)


def test_without_a_pool_nothing_expires_gracefully() -> None:
    assert gracefully_expires_at(claim(), None) is None


# -- the node's deadline ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        pytest.param(claim(deleted=DELETED, grace_period="24h"), "2026-03-05T12:00:00Z", id="from deletion, 24h"),
        pytest.param(claim(deleted=DELETED, grace_period="0s"), DELETED, id="0s forces at once"),
        pytest.param(claim(deleted=DELETED), None, id="unset waits for ever"),
        pytest.param(claim(grace_period="24h"), None, id="not being deleted"),
        pytest.param(claim(deleted=DELETED, grace_period="1d"), None, id="an unreadable period forces nothing"),
        pytest.param(claim(deleted=DELETED, grace_period=""), None, id="an empty period forces nothing"),
        pytest.param(
            claim(deleted=DELETED, grace_period="24h", termination_timestamp="2026-03-04T12:10:00Z"),
            "2026-03-04T12:10:00Z",
            id="the annotation wins, earlier",
        ),
        pytest.param(
            claim(deleted=DELETED, grace_period="1h", termination_timestamp="2026-03-09T00:00:00+01:00"),
            "2026-03-08T23:00:00Z",
            id="the annotation wins, later, with an offset",
        ),
        pytest.param(
            claim(deleted=DELETED, termination_timestamp="2026-03-04T12:10:00Z"),
            "2026-03-04T12:10:00Z",
            id="the annotation alone",
        ),
        pytest.param(
            claim(deleted=DELETED, grace_period="24h", termination_timestamp="tomorrow"),
            "2026-03-05T12:00:00Z",
            id="an unreadable annotation does not count",
        ),
        pytest.param(
            claim(deleted=DELETED, grace_period="24h", termination_timestamp=""),
            "2026-03-05T12:00:00Z",
            id="an empty annotation does not count",
        ),
        pytest.param(
            claim(deleted=DELETED, termination_timestamp="tomorrow"),
            None,
            id="an unreadable annotation alone forces nothing",
        ),
        pytest.param(
            claim(grace_period="24h", termination_timestamp="2026-03-04T12:10:00Z"),
            None,
            id="the annotation of a claim that is not being deleted",
        ),
        pytest.param(claim(deleted="9999-01-01T00:00:00Z", grace_period="20000h"), None, id="beyond the calendar"),
    ],
)
def test_node_deadline(subject: ClaimRecord, expected: str | None) -> None:
    assert node_deadline(subject) == instant(expected)


# -- forced deletions -------------------------------------------------------------------------------------------------

DEADLINE = at("2026-03-04T12:15:00Z")


@pytest.mark.parametrize(
    ("subject", "now", "expected"),
    [
        pytest.param(pod(grace=600), "12:00:00", ("12:05:00", 600), id="seed 002: 10m grace, at +5m"),
        pytest.param(pod(grace=600), "12:04:59.999999", ("12:05:00", 600), id="an instant before"),
        pytest.param(pod(grace=600), "12:05:00", ("12:05:00", 600), id="at that instant"),
        pytest.param(pod(grace=600), "12:05:00.000001", ("12:05:00.000001", 599), id="just after: whole seconds"),
        pytest.param(pod(grace=600), "12:10:00", ("12:10:00", 300), id="late: what is left"),
        pytest.param(pod(grace=600), "12:14:58.5", ("12:14:58.5", 1), id="1.5s left are 1"),
        pytest.param(pod(grace=600), "12:14:59.5", ("12:14:59.5", 1), id="half a second left is 1"),
        pytest.param(pod(grace=600), "12:15:00", ("12:15:00", 1), id="at the deadline"),
        pytest.param(pod(grace=600), "12:20:00", ("12:20:00", 1), id="past the deadline"),
        pytest.param(pod(grace=30), "12:00:00", ("12:14:30", 30), id="30s grace"),
        pytest.param(pod(grace=None), "12:00:00", ("12:14:30", 30), id="no grace given is 30s"),
        pytest.param(pod(grace=900), "12:00:00", ("12:00:00", 900), id="grace equal to the period: at once"),
        pytest.param(pod(grace=901), "12:00:00", ("12:00:00", 900), id="grace above the period: at once, cut"),
        pytest.param(pod(grace=10**9), "12:00:00", ("12:00:00", 900), id="a grace of 31 years"),
        pytest.param(pod(grace=10**18), "12:00:00", ("12:00:00", 900), id="a grace beyond all reckoning"),
        pytest.param(pod(grace=2**63 - 1), "12:00:00", ("12:00:00", 900), id="the greatest grace"),
        pytest.param(pod(grace=0), "12:00:00", ("12:15:00", 1), id="grace 0: at the deadline with 1"),
        pytest.param(pod(grace=1), "12:00:00", ("12:14:59", 1), id="grace 1"),
        pytest.param(pod(grace=-5), "12:00:00", ("12:15:00", 1), id="a negative grace counts as 0"),
        pytest.param(pod(do_not_disrupt="true"), "12:00:00", ("12:14:30", 30), id="protection does not count"),
        pytest.param(pod(grace=600, phase="Succeeded"), "12:10:00", None, id="succeeded"),
        pytest.param(pod(grace=600, phase="Failed"), "12:10:00", None, id="failed"),
    ],
)
def test_forced_deletion(subject: PodRecord, now: str, expected: tuple[str, int] | None) -> None:
    found = forced_deletion(subject, DEADLINE, at(f"2026-03-04T{now}Z"))
    assert (found and (found.pod, found.at, found.grace_seconds)) == (
        expected and (subject, at(f"2026-03-04T{expected[0]}Z"), expected[1])
    )


@pytest.mark.parametrize(
    ("gone_at", "now", "expected"),
    [
        # A terminating pod's deletionTimestamp is when its grace ends.
        pytest.param("12:14:59", "12:05:00", None, id="gone before the deadline"),
        pytest.param("12:15:00", "12:05:00", None, id="gone at the deadline"),
        pytest.param("12:15:01", "12:05:00", ("12:05:00", 600), id="outlives the node: at once with its own"),
        pytest.param("12:30:00", "12:08:00", ("12:08:00", 420), id="outlives the node: with what is left"),
        pytest.param("12:30:00", "12:16:00", ("12:16:00", 1), id="past the deadline"),
    ],
)
def test_forced_deletion_of_a_terminating_pod(gone_at: str, now: str, expected: tuple[str, int] | None) -> None:
    subject = pod(grace=600, deleted=f"2026-03-04T{gone_at}Z")
    found = forced_deletion(subject, DEADLINE, at(f"2026-03-04T{now}Z"))
    assert (found and (found.at, found.grace_seconds)) == (expected and (at(f"2026-03-04T{expected[0]}Z"), expected[1]))


@pytest.mark.parametrize(
    ("own", "left", "expected"),
    [
        (600, timedelta(seconds=600), 600),
        (600, timedelta(seconds=601), 600),
        (600, timedelta(seconds=599, microseconds=999_999), 599),
        (600, timedelta(seconds=2), 2),
        (600, timedelta(microseconds=1_999_999), 1),
        (600, timedelta(microseconds=1), 1),
        (600, timedelta(), 1),
        (600, timedelta(microseconds=-1), 1),
        (600, timedelta(days=-1), 1),
        (0, timedelta(days=1), 1),
        (1, timedelta(days=1), 1),
        (2, timedelta(days=1), 2),
    ],
)
def test_grace_is_the_least_of_own_and_left_but_never_nothing(own: int, left: timedelta, expected: int) -> None:
    assert deletion_grace_seconds(pod(grace=own), DEADLINE, DEADLINE - left) == expected


def test_seed_002_three_pods_of_ten_minutes_in_fifteen() -> None:
    deadline = node_deadline(claim(deleted=DELETED, grace_period="15m"))
    assert deadline == DEADLINE
    evicted = pod("a", grace=600, deleted="2026-03-04T12:10:00Z")  # at once, as its PDB allows one at a time
    waiting = [pod(name, grace=600) for name in ("b", "c")]
    found = [forced_deletion(each, deadline, at(DELETED)) for each in (evicted, *waiting)]
    assert found[0] is None
    assert [(each.at, each.grace_seconds) for each in found[1:] if each] == [(at("2026-03-04T12:05:00Z"), 600)] * 2
