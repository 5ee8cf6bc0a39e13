"""The back-off of workloads whose consolidation saved nothing."""

from datetime import datetime, timedelta

import msgspec

from dovetail.api.pod_specs import SchedulingPodSpec
from dovetail.model.pod_records import PodRecord, PodScheduling
from dovetail.planning.disruption.backoff import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    REMEMBERED,
    WATCHED,
    ConsolidationBackoff,
    left_alone,
)
from dovetail.planning.disruption.board import Method
from dovetail.planning.disruption.commands import Command
from tests.harness import builders
from tests.unit.planning.disruption.boards import AT, pod, used

LABELS = {"app": "web"}
NODE = used("a", pod("p1", labels=LABELS)).candidate
SECOND = timedelta(seconds=1)


def command(method: Method = Method.SINGLE_NODE) -> Command:
    return Command(id="id", at=AT, method=method, candidates=(NODE,))


def pending(labels: dict[str, str] = LABELS) -> PodRecord:
    """A pod that kube-scheduler finds no node for."""
    record = builders.pod("p2", namespace="shop", node="", phase="Pending", labels=labels)
    return msgspec.structs.replace(record, scheduling=PodScheduling(SchedulingPodSpec()), unscheduled="Unschedulable")


def after(*failures: datetime) -> ConsolidationBackoff:
    """A command starts at each of these instants, and one of its pods waits a second later."""
    backoff = ConsolidationBackoff()
    for at in failures:
        backoff.on_command_started(command(), at)
        backoff.on_pod_changed(pending(), at + SECOND)
    return backoff


def test_a_pending_pod_of_a_consolidated_node_starts_a_back_off() -> None:
    ends = AT + SECOND + FIRST_PAUSE
    backoff = after(AT)
    assert list(backoff.active(AT + SECOND).values()) == [ends]
    assert backoff.active(ends - SECOND)
    assert not backoff.active(ends)


def test_a_pod_of_another_workload_starts_none() -> None:
    backoff = ConsolidationBackoff()
    backoff.on_command_started(command(), AT)
    backoff.on_pod_changed(pending({"app": "other"}), AT + SECOND)
    assert not backoff.active(AT + SECOND)


def test_a_command_that_does_not_consolidate_starts_none() -> None:
    backoff = ConsolidationBackoff()
    backoff.on_command_started(command(Method.DRIFT), AT)
    backoff.on_pod_changed(pending(), AT + SECOND)
    assert not backoff.active(AT + SECOND)


def test_a_pod_that_waits_after_the_watched_time_starts_none() -> None:
    backoff = ConsolidationBackoff()
    backoff.on_command_started(command(), AT)
    backoff.on_pod_changed(pending(), AT + WATCHED)
    assert not backoff.active(AT + WATCHED)


def test_the_pause_doubles_up_to_a_day() -> None:
    backoff, at = ConsolidationBackoff(), AT
    for number in range(16):
        backoff.on_command_started(command(), at)
        backoff.on_pod_changed(pending(), at)
        (end,) = backoff.active(at).values()
        assert end - at == min(FIRST_PAUSE * 2**number, LONGEST_PAUSE)
        at = end
    assert FIRST_PAUSE * 2**15 > LONGEST_PAUSE


def test_a_failure_is_forgotten_after_a_while() -> None:
    """The memory lasts twice the pause after its end, plus a fixed time."""
    forgotten = AT + SECOND + 3 * FIRST_PAUSE + REMEMBERED
    again = after(AT, forgotten - SECOND)
    assert list(again.active(forgotten).values()) == [forgotten + FIRST_PAUSE]
    shortly_before = after(AT, forgotten - 2 * SECOND)
    assert list(shortly_before.active(forgotten).values()) == [forgotten - SECOND + 2 * FIRST_PAUSE]


def test_a_node_with_pods_in_back_off_is_unmovable() -> None:
    active = after(AT).active(AT + SECOND)
    (why,) = left_alone(NODE, active).unmovable
    assert "shop/p1" in str(why)
    assert "it stays until" in str(why)
    other = used("b", pod("p3")).candidate
    assert left_alone(other, active) is other
