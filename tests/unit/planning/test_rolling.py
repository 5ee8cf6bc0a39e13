"""What roll writes, and when it is too late to take it back."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from dovetail.api import names, objects
from dovetail.model.beside import Roll, RollCause, read_roll, written_mark
from dovetail.planning.rolling import RollOutcome, asking, has_begun, undoing
from tests.harness.builders import at

NOW = at("2026-03-06T16:20:00Z")
ASKED = written_mark(Roll(why=RollCause.ASKED, at=NOW))
STAMPED = written_mark(Roll(why=RollCause.EXPIRED, at=NOW))
NO_MARKS: Mapping[str, str] = MappingProxyType({})
STAMP = {names.NODEPOOL_HASH: f"{names.STAMP_PREFIX}1", names.HASH_BEFORE: "123"}


def claim(annotations: Mapping[str, str] = NO_MARKS, *, true: str = "", deleted: bool = False) -> objects.NodeClaim:
    return objects.NodeClaim(
        metadata=objects.ObjectMeta(
            name="c1", annotations=dict(annotations), deletion_timestamp=NOW if deleted else None
        ),
        status=objects.NodeClaimStatus(conditions=[objects.Condition(type=true, status="True")] if true else []),
    )


def test_a_mark_names_who_has_asked_and_since_when() -> None:
    step = asking(claim(), NOW)
    assert step.outcome is RollOutcome.ASKED
    assert read_roll(step.annotations[names.ROLLED] or "") == Roll(why=RollCause.ASKED, at=NOW)


BEGUN = [
    pytest.param(claim({names.ROLLED: ASKED}, deleted=True), id="it is being deleted"),
    pytest.param(claim({names.ROLLED: ASKED}, true="DisruptionReason"), id="Karpenter has begun"),
    pytest.param(claim({names.DISRUPTION_COMMAND: "{}", names.ROLLED: ASKED}), id="a command of ours has begun"),
]


@pytest.mark.parametrize("going", BEGUN)
def test_what_has_begun_is_neither_asked_for_nor_taken_back(going: objects.NodeClaim) -> None:
    assert has_begun(going)
    assert asking(going, NOW) == undoing(going)
    assert (asking(going, NOW).outcome, asking(going, NOW).annotations) == (RollOutcome.HAS_BEGUN, {})


@pytest.mark.parametrize(
    "marked",
    [
        pytest.param(claim({names.ROLLED: ASKED}), id="by somebody"),
        pytest.param(claim({names.ROLLED: STAMPED, **STAMP}), id="guard replaces it for its age"),
    ],
)
def test_nobody_asks_twice(marked: objects.NodeClaim) -> None:
    assert asking(marked, NOW).outcome is RollOutcome.ALREADY_ASKED
    assert asking(marked, NOW).annotations == {}


@pytest.mark.parametrize("text", ["", "yes", "{}", STAMPED])
def test_a_mark_that_asks_for_nothing_is_replaced_and_never_taken_back(text: str) -> None:
    assert asking(claim({names.ROLLED: text}), NOW).outcome is RollOutcome.ASKED
    assert undoing(claim({names.ROLLED: text})).outcome is RollOutcome.NOT_ASKED
    assert undoing(claim({names.ROLLED: text})).annotations == {}


@pytest.mark.parametrize(
    ("annotations", "back"),
    [
        pytest.param({}, {names.ROLLED: None}, id="no stamp"),
        pytest.param(STAMP, {names.ROLLED: None, names.HASH_BEFORE: None, names.NODEPOOL_HASH: "123"}, id="stamped"),
        pytest.param(
            {**STAMP, names.NODEPOOL_HASH: "456"},
            {names.ROLLED: None, names.HASH_BEFORE: None},
            id="somebody has written another hash since",
        ),
    ],
)
def test_undo_leaves_what_was_there_before(annotations: dict[str, str], back: dict[str, str | None]) -> None:
    step = undoing(claim({names.ROLLED: ASKED, **annotations}))
    assert (step.outcome, step.annotations) == (RollOutcome.UNDONE, back)
