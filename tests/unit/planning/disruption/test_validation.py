"""Is a command that was found a while ago still right (02 §8)? Docstrings cite 02 §14."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from dovetail.api import names
from dovetail.planning.disruption.board import DisruptionBoard, Method
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.methods import decide_pass
from dovetail.planning.disruption.records import read_record, record_of, written
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.planning.disruption.validation import RejectionCause, validated
from dovetail.scheduling.placement import MachineType
from dovetail.scheduling.requirements import Requirement, Requirements
from tests.unit.planning.disruption.boards import AT, DRIFTED, EMPTY, Used, board, later, pod, room, used
from tests.unit.scheduling.problems import machine, pool

LATER = AT + timedelta(seconds=15)


def command(on: DisruptionBoard) -> Command:
    return decide_pass(on, ConsolidationOptions()).commands[0]


def started(found: Command, on: DisruptionBoard) -> Command:
    """It is as right as it was."""
    still, rejected, _ = validated(found, later(on, at=LATER), ConsolidationOptions())
    assert rejected is None, rejected
    assert still is not None
    return still


def rejected(found: Command, on: DisruptionBoard) -> tuple[RejectionCause, tuple[str, ...], str]:
    """It is not to be started at all."""
    still, why, _ = validated(found, later(on, at=LATER), ConsolidationOptions())
    assert still is None
    assert why is not None
    return why.cause, why.nodes, str(why.message)


# -- emptiness ---------------------------------------------------------------------------------------------------------


def empty_board(*some: Used, allowed: int = 100) -> DisruptionBoard:
    return board(*some, reasons={EMPTY: some}, allowed=allowed)


def test_empty_nodes_that_are_still_empty_go() -> None:
    some = [used(name) for name in "abc"]
    found = command(empty_board(*some))
    again = started(found, empty_board(*some))
    assert again.nodes == found.nodes
    assert again.savings == found.savings == 12
    assert again.at == LATER


def test_of_empty_nodes_those_go_that_still_are() -> None:
    """02 §14.46."""
    some = [used(name) for name in "abc"]
    still, why, _ = validated(command(empty_board(*some)), empty_board(*some[1:]), ConsolidationOptions())
    assert still is not None
    assert still.nodes == ["b", "c"]
    assert still.savings == 8
    assert why is not None
    assert (why.cause, why.nodes) == (RejectionCause.CHURN, ("a",))


def test_as_many_empty_nodes_go_as_the_budget_allows_now() -> None:
    """02 §14.46."""
    some = [used(name) for name in "abc"]
    still, why, _ = validated(command(empty_board(*some)), empty_board(*some, allowed=1), ConsolidationOptions())
    assert still is not None
    assert still.nodes == ["a"]
    assert why is not None
    assert (why.cause, why.nodes) == (RejectionCause.BUDGET, ("b", "c"))


def test_when_no_empty_node_is_left_nothing_is_started() -> None:
    some = [used(name) for name in "ab"]
    assert rejected(command(empty_board(*some)), empty_board())[:2] == (RejectionCause.CHURN, ("a", "b"))


def test_a_node_of_the_same_name_that_is_another_is_not_meant() -> None:
    old = used("a")
    new = Used(old.node, msgspec.structs.replace(old.candidate, claim_uid="another"))
    assert rejected(command(empty_board(old)), empty_board(new))[:2] == (RejectionCause.CHURN, ("a",))


# -- consolidation -----------------------------------------------------------------------------------------------------


def spare(count: int = 2) -> list[Used]:
    return [used(f"n{number}", pod(f"p{number}")) for number in range(count)]


def test_a_set_that_can_still_go_goes() -> None:
    some = spare()
    found = command(board(*some, room("z", 2)))
    again = started(found, board(*some, room("z", 2)))
    assert (again.method, again.nodes, again.landing) == (Method.MULTI_NODE, found.nodes, found.landing)
    assert again.savings == found.savings == 8


def test_a_node_that_is_held_back_now_stops_all_of_it() -> None:
    """02 §14.45: A pod that must not be disrupted, a budget of pods, a nomination: then it is no candidate any more."""
    some = spare()
    found = command(board(*some, room("z", 2)))
    cause, nodes, message = rejected(found, board(some[0], some[1].node, room("z", 2)))
    assert (cause, nodes, message) == (RejectionCause.CHURN, ("n0", "n1"), "n1 cannot go any more")


def test_a_budget_that_is_smaller_now_stops_all_of_it() -> None:
    """02 §14.45."""
    some = spare()
    found = command(board(*some, room("z", 2)))
    assert rejected(found, board(*some, room("z", 2), allowed=1))[:2] == (RejectionCause.BUDGET, ("n0", "n1"))


def test_pods_that_have_no_place_any_more_stop_it() -> None:
    """02 §14.45."""
    some = spare()
    found = command(board(*some, room("z", 2)))
    cause, _, message = rejected(found, board(*some, room("z", 1)))
    assert cause is RejectionCause.SCHEDULING
    assert "has no other place" in message


def test_pods_that_came_meanwhile_are_looked_at() -> None:
    """02 §14.45."""
    one = used("n0", pod("p0"))
    found = command(board(one, room("z", 2)))
    grown = used("n0", pod("p0"), pod("new"))
    assert sorted(started(found, board(grown, room("z", 2))).landing) == ["new", "p0"]
    assert rejected(found, board(grown, room("z", 1)))[0] is RejectionCause.SCHEDULING


def replacing(*names_: str, price: int = 4) -> DisruptionBoard:
    types: Sequence[MachineType] = [machine(name, 2, price=1 + number) for number, name in enumerate(names_)]
    return board(used("a", pod("p1"), price=price), types=types)


def test_a_replacement_keeps_the_types_that_were_planned() -> None:
    found = command(replacing("one", "two"))
    again = started(found, replacing("zero", "one", "two"))
    assert again.replacements[0].types == ("one", "two")
    assert found.savings == 4 - 1
    assert again.savings == 4 - 2  # what is planned costs more now; that there is a cheaper type does not help


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (replacing("one", "other"), "some of the planned instance types would not do any more"),
        (replacing("one", "two", price=2), "some of the planned instance types would not do any more"),
        (replacing("one", "two", price=1), "the cheapest new node that would do costs 0, not less than 0"),
    ],
)
def test_a_replacement_that_would_be_another_now_stops_it(now: DisruptionBoard, message: str) -> None:
    """02 §14.45."""
    assert rejected(command(replacing("one", "two")), now) == (RejectionCause.SCHEDULING, ("a",), message)


def test_a_replacement_that_is_no_longer_needed_makes_it_a_deletion() -> None:
    again = started(command(replacing("one", "two")), board(used("a", pod("p1")), room("z", 4)))
    assert again.decision == "delete"
    assert again.savings == 4


def test_a_node_that_is_needed_now_stops_a_deletion() -> None:
    going = used("a", pod("p1"))
    found = command(board(going, room("z", 4)))
    now = board(going, types=[machine("one", 1)])
    assert rejected(found, now) == (RejectionCause.SCHEDULING, ("a",), "a new node is needed now")


def test_planned_types_that_are_too_few_for_a_new_minimum_stop_it() -> None:
    going = used("a", pod("p1"))
    found = command(board(going, types=[machine("one", 1), machine("two", 2)]))
    three = pool(requirements=Requirements((Requirement(names.INSTANCE_TYPE_LABEL, min_values=3),)))
    now = board(going, types=[machine("one", 1), machine("two", 2), machine("three", 3)], pools=[three])
    assert rejected(found, now)[0] is RejectionCause.SCHEDULING


def test_drift_is_started_as_it_was_found() -> None:
    going = used("a", pod("p1"))
    found = command(board(going, room("z", 4), reasons={DRIFTED: [going]}))
    assert validated(found, board(), ConsolidationOptions())[:2] == (found, None)


# -- what is written down ----------------------------------------------------------------------------------------------


def test_a_command_can_be_carried_on_from_what_is_written_down() -> None:
    """R24."""
    found = command(replacing("one", "two"))
    recorded = record_of(found, LATER)
    assert read_record(written(recorded)) == recorded
    assert recorded.id == found.id
    assert len(set(recorded.replacements)) == 1
    assert read_record("by hand") is None
    assert read_record("{}") is None
