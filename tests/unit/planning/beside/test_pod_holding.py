"""What is written on pods with --hold-pods, and when it goes (10 §I.3)."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.model.beside import PodHold, read_pod_hold, written_mark
from dovetail.model.pod_records import PodRecord
from dovetail.planning.beside.pod_holding import PodHoldChange, pod_hold_annotations, pod_hold_change
from tests.harness.builders import at, pod

NIGHT: dict[str, Any] = {"schedule": "0 2 * * *", "duration": "1h"}
BEFORE, WITHIN = at("2026-03-06T01:00:00Z"), at("2026-03-06T02:00:00Z")
OPENS = at("2026-03-06T02:00:00Z")
GONE = {names.POD_HOLD: None, names.DO_NOT_DISRUPT: None}


def held(value: str = "true", until: str = "2026-03-06T02:00:00Z", **fields: Any) -> PodRecord:
    mark = {names.POD_HOLD: written_mark(PodHold(until=at(until), value=value))}
    return pod(**{"do_not_disrupt": value, "annotations": mark, **NIGHT, **fields})


def change(one: PodRecord, now: Any = BEFORE, *, in_scope: bool = True, durations: bool = True) -> PodHoldChange:
    return pod_hold_change(one, now, in_scope=in_scope, durations=durations)


def test_a_pod_that_its_schedule_blocks_is_held_until_its_window() -> None:
    assert change(pod(**NIGHT)) == PodHoldChange(hold_until=OPENS, due_at=OPENS)
    assert change(pod(**NIGHT), WITHIN) == PodHoldChange(due_at=OPENS + timedelta(hours=1))


@pytest.mark.parametrize("value", ["true", "false", "4h", "soon"])
def test_a_users_do_not_disrupt_is_left_alone(value: str) -> None:
    found = change(pod(do_not_disrupt=value, **NIGHT))
    assert (found.annotations, found.hold_until) == (None, None)


def test_a_duration_alone_holds_no_pod() -> None:
    found = change(pod(do_not_disrupt="4h"))
    assert (found.annotations, found.hold_until) == (None, None)


def test_a_hold_goes_with_the_window_the_pods_end_or_the_scope() -> None:
    assert change(held(), WITHIN).annotations == GONE
    assert change(held(phase="Succeeded")).annotations == GONE
    assert change(held(), in_scope=False).annotations == GONE
    assert change(held("79s"), WITHIN).annotations == GONE


def test_a_value_that_a_user_has_changed_stays_and_the_mark_goes() -> None:
    assert change(held(do_not_disrupt="8h")).annotations == {names.POD_HOLD: None}
    assert change(held(do_not_disrupt=None), WITHIN).annotations == {names.POD_HOLD: None}


def test_a_mark_that_cannot_be_read_is_never_acted_upon() -> None:
    one = pod(do_not_disrupt="true", annotations={names.POD_HOLD: "garbage"}, **NIGHT)
    for now in (BEFORE, WITHIN):
        assert change(one, now).annotations is None
        assert change(one, now).hold_until is None


def test_a_hold_is_written_once_and_anew_when_the_window_moves() -> None:
    assert change(held("3600s")).hold_until is None
    assert change(held("3600s", until="2026-03-06T05:00:00Z")).hold_until == OPENS
    assert change(held(), durations=False).hold_until is None


def test_a_hold_that_can_end_alone_replaces_one_that_cannot() -> None:
    assert change(held()).hold_until == OPENS
    assert change(held(phase="Pending")).hold_until is None


def test_values() -> None:
    started = at("2026-03-06T01:00:00.500000Z")
    assert pod_hold_annotations(OPENS, started, durations=True)[names.DO_NOT_DISRUPT] == "3600s"
    assert pod_hold_annotations(OPENS, started, durations=False)[names.DO_NOT_DISRUPT] == "true"
    assert pod_hold_annotations(OPENS, None, durations=True)[names.DO_NOT_DISRUPT] == "true"
    mark = read_pod_hold(pod_hold_annotations(OPENS, started, durations=True)[names.POD_HOLD])
    assert mark == PodHold(until=OPENS, value="3600s")


def test_a_window_that_never_opens_is_held_for_good() -> None:
    found = change(pod(schedule="0 0 31 2 *"))
    assert found.hold_until is not None
    assert found.due_at is None
    written = pod_hold_annotations(found.hold_until, BEFORE, durations=True)
    assert written[names.DO_NOT_DISRUPT] == "true"
    one = pod(schedule="0 0 31 2 *", do_not_disrupt="true", annotations={names.POD_HOLD: written[names.POD_HOLD]})
    assert change(one).hold_until is None
