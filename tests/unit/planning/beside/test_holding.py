"""Which nodes are held, at the edges (10 §I.3)."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.model.beside import PodHold, written_mark
from dovetail.planning.beside.holding import hold_decision
from dovetail.rules.verdict import Rule
from tests.harness.builders import at, pod

LEAD = timedelta(minutes=10)
NIGHT: dict[str, Any] = {"schedule": "0 2 * * *", "duration": "2h"}


@pytest.mark.parametrize(
    ("now", "held", "until"),
    [
        ("2026-03-06T01:59:59Z", True, "2026-03-06T02:00:00Z"),
        ("2026-03-06T02:00:00Z", False, "2026-03-06T03:50:00Z"),
        ("2026-03-06T03:49:59Z", False, "2026-03-06T03:50:00Z"),
        ("2026-03-06T03:50:00Z", True, "2026-03-07T02:00:00Z"),
        ("2026-03-06T04:00:00Z", True, "2026-03-07T02:00:00Z"),
    ],
)
def test_a_window_closes_a_lead_early(now: str, held: bool, until: str) -> None:
    decision = hold_decision([pod(**NIGHT)], at(now), LEAD)
    assert (decision.held, decision.until) == (held, at(until))


@pytest.mark.parametrize(("duration", "closes"), [("20m", "02:10:00"), ("15m", "02:07:30"), ("1m", "02:00:30")])
def test_the_lead_takes_at_most_half_of_a_window(duration: str, closes: str) -> None:
    one = pod(schedule="0 2 * * *", duration=duration)
    decision = hold_decision([one], at("2026-03-06T02:00:00Z"), LEAD)
    assert (decision.held, decision.until) == (False, at(f"2026-03-06T{closes}Z"))


def test_the_time_before_a_block_window_has_the_whole_lead() -> None:
    one = pod(block_schedule="0 9 * * *", block_duration="8h")
    decision = hold_decision([one], at("2026-03-06T08:49:59Z"), LEAD)
    assert (decision.held, decision.until) == (False, at("2026-03-06T08:50:00Z"))
    assert hold_decision([one], at("2026-03-06T08:50:00Z"), LEAD).until == at("2026-03-06T17:00:00Z")


@pytest.mark.parametrize(
    ("value", "held", "until"),
    [
        ("true", False, None),  # Karpenter reads it
        ("false", False, None),
        ("4h", True, "2026-03-01T04:00:00Z"),
        ("soon", True, None),
        ("0s", True, None),
    ],
)
def test_do_not_disrupt(value: str, held: bool, until: str | None) -> None:
    decision = hold_decision([pod(do_not_disrupt=value)], at("2026-03-01T01:00:00Z"), LEAD)
    assert (decision.held, decision.until) == (held, None if until is None else at(until))


def test_our_own_hold_on_a_pod_is_not_a_wish_of_its_user() -> None:
    opens_at = at("2026-03-06T02:00:00Z")
    mark = {names.POD_HOLD: written_mark(PodHold(until=opens_at, value="true"))}
    one = pod(do_not_disrupt="true", annotations=mark, **NIGHT)
    decision = hold_decision([one], at("2026-03-06T01:00:00Z"), LEAD)
    assert (decision.held, decision.until) == (True, opens_at)
    assert not hold_decision([one], opens_at, LEAD).held


@pytest.mark.parametrize("gone", [{"phase": "Succeeded"}, {"phase": "Failed"}, {"deleted": "2026-03-06T00:00:00Z"}])
def test_pods_that_are_finished_or_terminating_hold_nothing(gone: dict[str, Any]) -> None:
    assert not hold_decision([pod(**NIGHT, **gone)], at("2026-03-06T01:00:00Z"), LEAD).held


def test_the_pod_that_blocks_longest_is_named() -> None:
    pods = [pod("a", **NIGHT), pod("b", do_not_disrupt="240h"), pod("c")]
    decision = hold_decision(pods, at("2026-03-06T01:00:00Z"), LEAD)
    assert decision.pod is pods[1]
    assert decision.blocker is not None
    assert decision.blocker.rule is Rule.DO_NOT_DISRUPT


def test_the_end_of_a_hold_is_when_all_pods_are_free() -> None:
    pods = [pod("a", schedule="0 2,5 * * *", duration="1h"), pod("b", schedule="0 3,5 * * *", duration="1h")]
    decision = hold_decision(pods, at("2026-03-06T01:00:00Z"), LEAD)
    assert decision.until == at("2026-03-06T05:00:00Z")


def test_a_node_whose_pods_are_never_free_together_is_held_and_looked_at_again() -> None:
    pods = [pod("a", schedule="0 2 * * *", duration="1h"), pod("b", schedule="0 3 * * *", duration="1h")]
    now = at("2026-03-06T01:00:00Z")
    decision = hold_decision(pods, now, LEAD)
    assert decision.held
    assert decision.until is not None
    assert decision.until - now > timedelta(days=5)


def test_a_node_without_protected_pods_is_free_for_good() -> None:
    assert hold_decision([pod("a"), pod("b")], at("2026-03-06T01:00:00Z"), LEAD).until is None
