"""What is written on claims and read again, and how far a replacement has come."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
import pytest

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, Reason
from dovetail.controllers.disruption.replacements import awaits
from dovetail.planning.disruption.board import Candidate, Method
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.records import (
    CommandRecord,
    is_carried_by_all,
    is_replacement,
    read_record,
    record_of,
    record_on,
    written,
)
from dovetail.scheduling.placement import NewClaim
from dovetail.scheduling.requirements import NO_REQUIREMENTS
from dovetail.scheduling.resources import NOTHING
from tests.harness.builders import at

NOON = at("2026-03-02T12:00:00Z")
NEW = NewClaim(pool="default", pods=(), requirements=NO_REQUIREMENTS, types=("t",), requests=NOTHING)
COMMAND = Command(
    id="c1",
    at=NOON,
    method=Method.MULTI_NODE,
    candidates=(Candidate(node="n", claim="a", claim_uid="u", pool="default"),),
    replacements=(NEW, NEW),
)


def claim(
    annotations: dict[str, str] | None = None, true_since: Mapping[ConditionType, datetime] | None = None
) -> objects.NodeClaim:
    conditions = [
        objects.Condition(type=type_, status="True", last_transition_time=since)
        for type_, since in (true_since or {}).items()
    ]
    return objects.NodeClaim(
        metadata=objects.ObjectMeta(name="new", annotations=annotations or {}),
        status=objects.NodeClaimStatus(conditions=conditions),
    )


# -- records -----------------------------------------------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written() -> None:
    record = record_of(COMMAND, NOON)
    assert (record.id, record.reason, record.method, record.deadline) == ("c1", Reason.UNDERUTILIZED, "multi", NOON)
    assert len(set(record.replacements)) == 2
    assert read_record(written(record)) == record
    assert record_on(claim({names.DISRUPTION_COMMAND: written(record)})) == record
    assert record_on(claim()) is None


def test_names_are_chosen_by_the_command_and_no_other() -> None:
    again, other = record_of(COMMAND, NOON), record_of(msgspec.structs.replace(COMMAND, id="c2"), NOON)
    assert again.replacements == record_of(COMMAND, NOON + timedelta(hours=1)).replacements
    assert set(again.replacements).isdisjoint(other.replacements)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"id": "c1"}',
        '{"id": "", "reason": "Empty", "method": "empty", "deadline": "2026-03-02T12:00:00Z"}',
        '{"id": "c1", "reason": "Empty", "method": "empty", "deadline": "2026-03-02T12:00:00"}',  # in which zone?
        '{"id": "c1", "reason": "Bored", "method": "empty", "deadline": "2026-03-02T12:00:00Z"}',
        '{"x": ' + "[" * 100_000,
    ],
)
def test_what_is_no_record_is_none(text: str) -> None:
    assert read_record(text) is None


def test_fields_that_a_later_version_adds_are_passed_over() -> None:
    text = '{"id": "c1", "reason": "Empty", "method": "empty", "deadline": "2026-03-02T12:00:00Z", "new": 1}'
    assert read_record(text) == CommandRecord(id="c1", reason=Reason.EMPTY, method=Method.EMPTINESS, deadline=NOON)


# -- replacements ------------------------------------------------------------------------------------------------------

LAUNCHED, REGISTERED, INITIALIZED = ConditionType.LAUNCHED, ConditionType.REGISTERED, ConditionType.INITIALIZED


@pytest.mark.parametrize(
    ("progress", "lacks"),
    [
        ((), "launched"),
        ((LAUNCHED,), "registered"),
        ((LAUNCHED, REGISTERED), "initialized"),
        ((LAUNCHED, REGISTERED, INITIALIZED), ""),
    ],
)
def test_what_is_still_to_come_is_named(progress: tuple[ConditionType, ...], lacks: str) -> None:
    found = awaits("new", claim(true_since=dict.fromkeys(progress, NOON)), NOON)
    assert found == (f"replacement new was not {lacks}" if lacks else "")


def test_what_came_too_late_has_not_come() -> None:
    progress = {LAUNCHED: NOON, REGISTERED: NOON, INITIALIZED: NOON + timedelta(seconds=1)}
    assert awaits("new", claim(true_since=progress), NOON) == "replacement new was not initialized"


def test_one_that_is_gone_or_going_is_not_there() -> None:
    whole = claim(true_since=dict.fromkeys((LAUNCHED, REGISTERED, INITIALIZED), NOON))
    going = msgspec.structs.replace(whole, metadata=objects.ObjectMeta(name="new", deletion_timestamp=NOON))
    assert awaits("new", going, NOON) == awaits("new", None, NOON) == "replacement new is not there"


def test_a_replacement_says_whose_it_is_and_has_the_name_that_follows() -> None:
    record = record_of(COMMAND, NOON)

    def named(name: str, command: str) -> objects.NodeClaim:
        labels, annotations = {names.NODEPOOL_LABEL: COMMAND.replacements[0].pool}, {names.REPLACEMENT_OF: command}
        return objects.NodeClaim(metadata=objects.ObjectMeta(name=name, labels=labels, annotations=annotations))

    assert all(is_replacement(named(name, "c1"), record) for name in record.replacements)
    assert not is_replacement(named(record.replacements[0], "c2"), record)
    assert not is_replacement(named("default-xyz", "c1"), record)
    forged = msgspec.structs.replace(record, replacements=("default-xyz",))
    assert not is_replacement(named("default-xyz", "c1"), forged)


@pytest.mark.parametrize(
    ("others", "counts"),
    [
        ({"a": "same", "b": "same"}, True),
        ({"a": "same", "b": "gone"}, True),
        ({"a": "same", "b": "deleting"}, True),
        ({"a": "same", "b": "none"}, False),
        ({"a": "same", "b": "other"}, False),
        ({"a": "gone", "b": "gone"}, False),
    ],
)
def test_a_record_counts_if_every_claim_that_it_names_carries_it(others: dict[str, str], counts: bool) -> None:
    record = msgspec.structs.replace(record_of(COMMAND, NOON), claims=("a", "b"))
    other = msgspec.structs.replace(record, replacements=())
    texts = {"same": written(record), "other": written(other)}

    def find(name: str) -> objects.NodeClaim | None:
        kind = others[name]
        annotations = {names.DISRUPTION_COMMAND: texts[kind]} if kind in texts else {}
        deleted_at = NOON if kind == "deleting" else None
        metadata = objects.ObjectMeta(name=name, annotations=annotations, deletion_timestamp=deleted_at)
        return None if kind == "gone" else objects.NodeClaim(metadata=metadata)

    assert is_carried_by_all(record, find) is counts
