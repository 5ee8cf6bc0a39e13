"""When a Node is written for a hold, and when it is left as it is (10 §I.3)."""

from datetime import datetime, timedelta

import msgspec
import pytest

from dovetail.api import names
from dovetail.model.beside import BesideMode, Hold, read_hold, written_mark
from dovetail.model.node_records import NodeRecord
from dovetail.planning.beside.marks import MarkAction, hold_change, is_in_the_way
from tests.harness import builders
from tests.harness.builders import at

NOW = at("2026-03-06T12:00:00Z")
SOON, LATER = NOW + timedelta(minutes=1), NOW + timedelta(hours=1)


def hold(until: datetime | None = SOON, by: BesideMode = BesideMode.GUARD) -> Hold:
    return Hold(by=by, until=until, why="disruption-schedule")


def node(value: str | None = None, mark: Hold | str | None = None) -> NodeRecord:
    held = written_mark(mark) if isinstance(mark, Hold) else mark
    return msgspec.structs.replace(builders.node(do_not_disrupt=value), held=held)


def action(of: NodeRecord, wanted: Hold | None) -> MarkAction | None:
    change = hold_change(of, wanted, NOW)
    return None if change is None else change.action


def test_both_annotations_come_and_go_in_one_patch() -> None:
    put = hold_change(node(), hold(), NOW)
    assert put is not None
    assert put.annotations[names.DO_NOT_DISRUPT] == "true"
    assert read_hold(put.annotations[names.HELD] or "") == hold()
    taken = hold_change(node("true", hold()), None, NOW)
    assert taken is not None
    assert taken.annotations == {names.DO_NOT_DISRUPT: None, names.HELD: None}


@pytest.mark.parametrize(
    ("written", "wanted", "expected"),
    [
        (SOON, SOON, None),
        (SOON, LATER, None),  # the instant is not kept up to date
        (LATER, SOON, None),
        (None, SOON, None),
        (SOON, None, None),
        (NOW, LATER, MarkAction.REFRESH),  # until it has passed
        (NOW - timedelta(hours=1), None, MarkAction.REFRESH),
        (NOW, NOW, None),
    ],
)
def test_a_hold_is_rewritten_when_its_instant_has_passed(
    written: datetime | None, wanted: datetime | None, expected: MarkAction | None
) -> None:
    assert action(node("true", hold(written)), hold(wanted)) is expected


def test_whoever_holds_from_now_on_writes_that() -> None:
    assert action(node("true", hold(by=BesideMode.DRIVE)), hold()) is MarkAction.REFRESH


@pytest.mark.parametrize("value", ["true", "false", "4h"])
def test_a_users_annotation_is_left_alone(value: str) -> None:
    assert action(node(value), hold()) is None
    assert action(node(value), None) is None
    assert is_in_the_way(node(value)) is (value != "true")


@pytest.mark.parametrize("wanted", [None, hold()])
def test_a_mark_that_cannot_be_read_is_not_acted_upon(wanted: Hold | None) -> None:
    assert action(node("true", "garbage"), wanted) is None


def test_a_mark_without_what_it_marked_goes_or_becomes_a_hold() -> None:
    assert action(node(None, hold()), None) is MarkAction.DROP_MARK
    assert action(node("8h", hold()), hold()) is MarkAction.DROP_MARK
    assert action(node(None, hold()), hold()) is MarkAction.HOLD
