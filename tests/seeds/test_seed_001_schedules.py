"""Seed 001, pod disruption schedule: its examples, defaults, errors and interactions."""

from datetime import timedelta

import pytest

from dovetail.model.pod_records import PodRecord
from dovetail.rules.deadlines import forced_deletion, node_deadline
from dovetail.rules.pdb import PdbIndex
from dovetail.rules.protection import (
    annotation_faults,
    disruption_block_schedule,
    disruption_schedule,
    protection,
)
from tests.harness.builders import at, claim, pdb, pod
from tests.seeds.documents import (
    SEED_001_ALTERNATIVE_1,
    SEED_001_BATCH,
    SEED_001_BUSINESS,
    SEED_001_OPTION_B,
    SEED_001_SPEC,
    SEED_001_TRAINING,
)
from tests.seeds.reading import annotated_pod, limits, read_pod, read_pool

TICK = timedelta(microseconds=1)

OPTION_A = """
    metadata:
      annotations:
        # Pod can only be disrupted on Saturdays between 2 AM and 6 AM
        karpenter.sh/disruption-schedule: "0 2 * * 6"
        karpenter.sh/disruption-schedule-duration: "4h"
    """


@pytest.mark.parametrize(
    ("subject", "opens", "closes", "reopens"),
    [
        pytest.param(
            read_pod(SEED_001_SPEC),
            "2026-03-07T02:00:00Z",
            "2026-03-07T06:00:00Z",
            "2026-03-14T02:00:00Z",
            id="proposed spec: Saturdays 2 to 6 AM",
        ),
        pytest.param(
            annotated_pod(OPTION_A),
            "2026-03-07T02:00:00Z",
            "2026-03-07T06:00:00Z",
            "2026-03-14T02:00:00Z",
            id="option A",
        ),
        pytest.param(
            annotated_pod(SEED_001_TRAINING),
            "2026-03-07T02:00:00Z",
            "2026-03-07T08:00:00Z",
            "2026-03-14T02:00:00Z",
            id="ML training: weekend maintenance",
        ),
        pytest.param(
            annotated_pod(SEED_001_BUSINESS),
            "2026-03-06T22:00:00Z",
            "2026-03-07T06:00:00Z",
            "2026-03-07T22:00:00Z",
            id="business application: after hours, over midnight",
        ),
        pytest.param(
            annotated_pod(SEED_001_BATCH),
            "2026-03-08T00:00:00Z",
            "2026-03-09T00:00:00Z",
            "2026-03-15T00:00:00Z",
            id="batch job: anytime Sunday",
        ),
    ],
)
def test_allow_window_examples(subject: PodRecord, opens: str, closes: str, reopens: str) -> None:
    def answer(now: str, shift: timedelta = timedelta()) -> tuple[bool, str | None]:
        verdict = disruption_schedule(subject, at(now) + shift)
        return verdict.allowed, None if verdict.until is None else f"{verdict.until:%Y-%m-%dT%H:%M:%SZ}"

    assert answer(opens, -TICK) == (False, opens)
    assert answer(opens) == (True, closes)
    assert answer(closes, -TICK) == (True, closes)
    assert answer(closes) == (False, reopens)
    assert annotation_faults(subject.annotations) == []


def test_the_window_over_midnight_is_open_at_midnight() -> None:
    assert disruption_schedule(annotated_pod(SEED_001_BUSINESS), at("2026-03-07T00:00:00Z")).allowed


@pytest.mark.parametrize(
    ("now", "allowed", "until"),
    [
        ("2026-03-09T08:59:59.999999Z", True, "2026-03-09T09:00:00Z"),
        ("2026-03-09T09:00:00Z", False, "2026-03-09T17:00:00Z"),
        ("2026-03-09T16:59:59.999999Z", False, "2026-03-09T17:00:00Z"),
        ("2026-03-09T17:00:00Z", True, "2026-03-10T09:00:00Z"),
        ("2026-03-07T12:00:00Z", True, "2026-03-09T09:00:00Z"),
    ],
    ids=["before", "9 AM", "before 5 PM", "5 PM", "Saturday"],
)
def test_option_b_block_window(now: str, allowed: bool, until: str) -> None:
    verdict = disruption_block_schedule(annotated_pod(SEED_001_OPTION_B), at(now))
    assert (verdict.allowed, verdict.until) == (allowed, at(until))


# -- validation, defaults, errors -------------------------------------------------------------------------------------


def test_duration_defaults_to_one_hour() -> None:
    subject = pod(schedule="0 2 * * 6")
    assert disruption_schedule(subject, at("2026-03-07T02:00:00Z")).until == at("2026-03-07T03:00:00Z")
    assert annotation_faults(subject.annotations) == []


def test_neither_annotation_means_normal_rules() -> None:
    assert all(verdict.allowed for verdict in protection(pod(), at("2026-03-04T12:00:00Z")))


def test_invalid_cron_is_always_disruptable_with_a_warning() -> None:
    subject = pod(schedule="every saturday", duration="4h")
    verdict = disruption_schedule(subject, at("2026-03-04T12:00:00Z"))
    assert (verdict.allowed, verdict.until) == (True, None)
    assert {fault.rule for fault in annotation_faults(subject.annotations)} == {"InvalidDisruptionSchedule"}


@pytest.mark.parametrize("duration", ["four hours", "59s", "0", "-1h", "168h1s"])
def test_invalid_duration_is_one_hour_with_a_warning(duration: str) -> None:
    subject = pod(schedule="0 2 * * 6", duration=duration)
    assert disruption_schedule(subject, at("2026-03-07T02:59:59.999999Z")).allowed
    assert not disruption_schedule(subject, at("2026-03-07T03:00:00Z")).allowed
    assert [fault.rule for fault in annotation_faults(subject.annotations)] == ["InvalidDisruptionSchedule"]


@pytest.mark.parametrize(("duration", "closes"), [("1m", "2026-03-07T02:01:00Z"), ("168h", None)])
def test_one_minute_and_seven_days_are_valid(duration: str, closes: str | None) -> None:
    subject = pod(schedule="0 2 * * 6", duration=duration)
    assert annotation_faults(subject.annotations) == []
    # Seven days from every Saturday on leave no gap.
    assert disruption_schedule(subject, at("2026-03-07T02:00:00Z")).until == (closes and at(closes))


# -- interactions -----------------------------------------------------------------------------------------------------


def test_do_not_disrupt_takes_precedence_over_an_open_window() -> None:
    subject = pod(do_not_disrupt="true", schedule="0 2 * * 6", duration="4h")
    verdicts = protection(subject, at("2026-03-07T03:00:00Z"))
    assert [verdict.allowed for verdict in verdicts] == [False, True, True]


def test_in_its_window_but_blocked_by_a_pdb_it_is_not_disrupted() -> None:
    subject = pod(schedule="0 2 * * 6", duration="4h")
    assert disruption_schedule(subject, at("2026-03-07T03:00:00Z")).allowed
    assert not PdbIndex([pdb(allowed=0)], [subject]).verdict(subject).allowed


def test_termination_grace_period_takes_precedence_over_the_schedule() -> None:
    subject = pod(schedule="0 2 * * 6", duration="4h", grace=30)
    deleted = "2026-03-09T00:00:00Z"
    deadline = node_deadline(claim(deleted=deleted, grace_period="24h"))
    assert deadline == at("2026-03-10T00:00:00Z")
    forced = forced_deletion(subject, deadline, at(deleted))
    assert forced is not None
    assert forced.at == at("2026-03-09T23:59:30Z")
    assert not disruption_schedule(subject, forced.at).allowed


def test_motivation_two_nodes_that_reach_their_period_together_force_both_pods() -> None:
    """Steps 1 to 5 of "Limitations": the PDB allows one, but the deadline asks nobody."""
    labels = {"app": "worker"}
    pods = [pod(f"w-{n}", labels=labels, do_not_disrupt="true", node=f"n-{n}") for n in range(3)]
    index = PdbIndex([pdb(match=labels, max_unavailable=1)], pods)
    assert [index.verdict(each).message for each in pods] == ["guard allows 1 more"] * 3
    deleted = "2026-03-09T00:00:00Z"
    deadline = node_deadline(claim(deleted=deleted, grace_period="24h"))
    assert deadline is not None
    forced = [forced_deletion(each, deadline, at(deleted)) for each in pods[:2]]
    assert [each.at for each in forced if each] == [at("2026-03-09T23:59:30Z")] * 2


# -- alternative 1, a schedule on the pool ----------------------------------------------------------------------------


def test_alternative_1_never_opens_because_the_least_budget_counts() -> None:
    pool = read_pool(SEED_001_ALTERNATIVE_1)
    for now in ("2026-03-07T03:00:00Z", "2026-03-04T12:00:00Z"):
        assert set(limits(pool, now).values()) == {0}
