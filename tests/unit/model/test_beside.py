"""Are the marks of guard and drive read back as written, and is everything else left alone?"""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import names, objects
from dovetail.model.beside import (
    BesideMode,
    Hold,
    PodHold,
    Roll,
    RollCause,
    is_opted_out,
    read_budgets,
    read_hold,
    read_pod_hold,
    read_roll,
    written_mark,
)
from dovetail.model.node_records import node_record
from dovetail.model.pool_records import pool_record
from dovetail.rules.protection import do_not_disrupt, node_do_not_disrupt
from dovetail.rules.verdict import Rule
from tests.harness.builders import pod

AT = datetime(2026, 3, 7, 2, tzinfo=UTC)
HOLD = Hold(by=BesideMode.GUARD, until=AT, why="disruption-schedule")


def node(annotations: dict[str, str]) -> objects.Node:
    return objects.Node(metadata=objects.ObjectMeta(name="n", annotations=annotations))


def test_marks_are_read_back() -> None:
    assert read_hold(written_mark(HOLD)) == HOLD
    assert read_hold('{"by":"drive"}') == Hold(by=BesideMode.DRIVE)
    pod_hold = PodHold(until=AT, value="79s")
    assert read_pod_hold(written_mark(pod_hold)) == pod_hold
    roll = Roll(why=RollCause.ASKED, at=AT)
    assert read_roll(written_mark(roll)) == roll


@pytest.mark.parametrize(
    "text",
    [
        *("", "true", "[]", "null", '{"by":"me"}', '{"until":null}', '{"by":"guard","until":"2026-03-07T02:00:00"}'),
        *('{"by":"guard","until":"0001-01-01T00:00:00+14:00"}', '{"by":"guard","why":"' + "x" * 300 + '"}', "[" * 250),
    ],
)
def test_other_texts_are_not_holds(text: str) -> None:
    assert read_hold(text) is None
    assert read_roll(text) is None
    assert read_pod_hold(text) is None


@given(st.text(max_size=300))
def test_any_text_is_read_without_failing(text: str) -> None:
    for read in (read_hold, read_pod_hold, read_roll, read_budgets):
        read(text)


def test_a_hold_of_ours_is_not_a_users_annotation() -> None:
    mark = written_mark(HOLD)
    held = node_record(node({names.DO_NOT_DISRUPT: "true", names.HELD: mark}))
    verdict = node_do_not_disrupt(held, AT)
    assert verdict.allowed
    assert verdict.message == "held by Dovetail guard until 2026-03-07T02:00:00Z: disruption-schedule"
    edited = written_mark(msgspec.structs.replace(HOLD, why="disruption-schedule Pod/ml/trainer"))
    told = node_record(node({names.DO_NOT_DISRUPT: "true", names.HELD: edited}))
    assert node_do_not_disrupt(told, AT).message == "held by Dovetail guard until 2026-03-07T02:00:00Z"
    changed = node_record(node({names.DO_NOT_DISRUPT: "4h", names.HELD: mark}))
    assert changed.hold is None
    unreadable = node_record(node({names.DO_NOT_DISRUPT: "true", names.HELD: "yes"}))
    assert not node_do_not_disrupt(unreadable, AT).allowed


def test_the_longest_hold_is_read_back() -> None:
    hold = Hold(by=BesideMode.GUARD, until=AT, why=max(Rule, key=len))
    assert read_hold(written_mark(hold)) == hold


def test_the_sentence_of_a_hold_takes_no_word_from_its_text() -> None:
    assert Hold(by=BesideMode.GUARD, why="Pod/ml/trainer is protected").sentence == "held by Dovetail guard"


def test_a_hold_of_ours_on_a_pod_is_not_a_users_annotation() -> None:
    mark = written_mark(PodHold(until=AT, value="79s"))
    assert do_not_disrupt(pod(do_not_disrupt="79s", annotations={names.POD_HOLD: mark}), AT).allowed
    assert not do_not_disrupt(pod(do_not_disrupt="true", annotations={names.POD_HOLD: mark}), AT).allowed
    assert not do_not_disrupt(pod(do_not_disrupt="true", annotations={names.POD_HOLD: "79s"}), AT).allowed


def test_a_pool_says_by_annotation_what_karpenters_crd_has_no_field_for() -> None:
    def pool(annotations: dict[str, str], field: str = "Never") -> objects.NodePool:
        disruption = objects.Disruption(graceful_expire_after=field)
        return objects.NodePool(
            metadata=objects.ObjectMeta(name="p", annotations=annotations),
            spec=objects.NodePoolSpec(disruption=disruption),
        )

    hour = 3600 * 10**9
    assert pool_record(pool({names.GRACEFUL_EXPIRE_AFTER: "1h"})).graceful_expire_after_ns == hour
    assert pool_record(pool({names.GRACEFUL_EXPIRE_AFTER: "2h"}, field="1h")).graceful_expire_after_ns == hour
    assert pool_record(pool({names.GRACEFUL_EXPIRE_AFTER: "soon"})).graceful_expire_after_ns is None
    assert is_opted_out(pool({names.BESIDE: "off"}))
    assert not is_opted_out(pool({names.BESIDE: "of"}))
    assert read_budgets('[{"nodes": "1", "reasons": ["expired"]}]') is not None
    assert read_budgets('{"nodes": "1"}') is None
