"""What is written on a Node to hold it, and to release it (R48)."""

import msgspec
import pytest

from dovetail.api import names
from dovetail.model.beside import BesideMode, Hold, written_mark
from dovetail.model.node_records import NodeRecord
from dovetail.planning.beside.marks import MarkAction, MarkChange, hold_change, is_in_the_way
from tests.harness.builders import at, node

NOW = at("2026-03-06T12:00:00Z")
HOLD = Hold(by=BesideMode.GUARD, until=at("2026-03-06T13:00:00Z"), why="do-not-disrupt")
OTHERS = msgspec.structs.replace(HOLD, by=BesideMode.DRIVE)
OVER = msgspec.structs.replace(HOLD, until=at("2026-03-06T11:59:59Z"))
LATER = msgspec.structs.replace(HOLD, until=at("2026-03-06T18:00:00Z"))


def held(do_not_disrupt: str | None = "true", mark: str | None = None) -> NodeRecord:
    return msgspec.structs.replace(node(do_not_disrupt=do_not_disrupt), held=mark)


@pytest.mark.parametrize(
    ("record", "wanted", "change"),
    [
        pytest.param(held(None), None, None, id="free"),
        pytest.param(
            held(None),
            HOLD,
            MarkChange(MarkAction.HOLD, {names.DO_NOT_DISRUPT: "true", names.HELD: written_mark(HOLD)}),
            id="to be held",
        ),
        pytest.param(held("true"), HOLD, None, id="a user holds it"),
        pytest.param(held("4h"), HOLD, None, id="a user holds it for a time"),
        pytest.param(held("true"), None, None, id="a user holds it, and we do not"),
        pytest.param(
            held(mark=written_mark(HOLD)),
            None,
            MarkChange(MarkAction.RELEASE, {names.DO_NOT_DISRUPT: None, names.HELD: None}),
            id="to be released",
        ),
        pytest.param(held(mark=written_mark(HOLD)), HOLD, None, id="held"),
        pytest.param(held(mark=written_mark(HOLD)), LATER, None, id="the text is not kept up to date"),
        pytest.param(
            held(mark=written_mark(OVER)),
            LATER,
            MarkChange(MarkAction.REFRESH, {names.HELD: written_mark(LATER)}),
            id="its instant has passed",
        ),
        pytest.param(
            held(mark=written_mark(OTHERS)),
            HOLD,
            MarkChange(MarkAction.REFRESH, {names.HELD: written_mark(HOLD)}),
            id="another mode held it",
        ),
        pytest.param(
            held("4h", written_mark(HOLD)),
            None,
            MarkChange(MarkAction.DROP_MARK, {names.HELD: None}),
            id="a user changed the annotation",
        ),
        pytest.param(held("4h", "not ours"), None, None, id="a mark that cannot be read is left alone"),
    ],
)
def test_what_is_written(record: NodeRecord, wanted: Hold | None, change: MarkChange | None) -> None:
    assert hold_change(record, wanted, NOW) == change


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (held(None), False),
        (held("true"), False),
        (held("4h"), True),
        (held("4h", written_mark(HOLD)), True),
        (held(mark=written_mark(HOLD)), False),
    ],
)
def test_a_value_of_a_user_that_karpenter_does_not_read_is_in_the_way(record: NodeRecord, *, expected: bool) -> None:
    assert is_in_the_way(record) is expected
