"""Which replacement does a node in S3 wait for, in which state is it, and when is it given up (R23)?"""

from collections.abc import Iterable

import msgspec
import pytest

from dovetail.api.objects import Condition
from dovetail.model.node_records import AwaitedReplacements, ClaimRecord, awaited_replacements
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.replacements import awaited_replacement
from tests.harness.builders import at, claim, member, node

DEADLINE = at("2026-03-04T12:10:00Z")


def waiting(*replacements: str) -> ClusterNode:
    awaits = AwaitedReplacements(DEADLINE, replacements)
    return member(msgspec.structs.replace(claim(), awaits=awaits), node())


def coming(name: str, *conditions: str, deleted: str | None = None) -> ClaimRecord:
    true = {type_: Condition(type=type_, status="True") for type_ in conditions}
    return msgspec.structs.replace(claim(name, provider_id="", deleted=deleted), conditions=true)


def by_name(claims: Iterable[ClaimRecord]) -> dict[str, ClusterNode]:
    return {each.name: member(each) for each in claims}


@pytest.mark.parametrize(
    ("found", "state"),
    [
        ([], "not created yet"),
        ([coming("new")], "not launched yet"),
        ([coming("new", "Launched")], "launched, but its node has not joined"),
        ([coming("new", "Launched", "Registered")], "its node is not ready"),
        ([coming("new", deleted="2026-03-04T12:00:00Z")], "it is being deleted"),
    ],
)
def test_it_waits_until_its_deadline(found: list[ClaimRecord], state: str) -> None:
    verdict = awaited_replacement(waiting("new"), by_name(found))
    assert verdict is not None
    assert (verdict.allowed, verdict.until, str(verdict.object)) == (False, DEADLINE, "NodeClaim/new")
    assert verdict.message == f"waits for replacement new ({state}); given up 2026-03-04T12:10:00Z"
    assert verdict.transient


def test_of_several_the_first_that_lacks_something_is_named() -> None:
    ready = coming("a", "Launched", "Registered", "Initialized")
    verdict = awaited_replacement(waiting("a", "b", "c"), by_name([ready]))
    assert verdict is not None
    assert verdict.message == "waits for replacement b (not created yet) and 1 more; given up 2026-03-04T12:10:00Z"
    done = awaited_replacement(waiting("a"), by_name([ready]))
    assert done is not None
    assert done.allowed


def test_a_command_without_replacements_waits_for_nobody() -> None:
    assert awaited_replacement(waiting(), {}) is None
    assert awaited_replacement(member(claim(), node()), {}) is None


@pytest.mark.parametrize("text", [None, "", "{}", "[]", '{"deadline": "soon"}', "[" * 10_000, "x" * 200_000])
def test_a_record_that_cannot_be_read_says_nothing(text: str | None) -> None:
    assert awaited_replacements(text) is None
