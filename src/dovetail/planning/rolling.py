"""What `dovetail roll` writes on a NodeClaim to have its node replaced gracefully, and how that is taken back."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionType
from dovetail.model.beside import Roll, RollCause, asked_roll, at_second, is_stamped, written_mark


class RollOutcome(StrEnum):
    """What came of asking for a node to be replaced, or of taking that back."""

    ASKED = "asked"
    WOULD_ASK = "would-ask"
    ALREADY_ASKED = "already-asked"
    UNDONE = "undone"
    WOULD_UNDO = "would-undo"
    NOT_ASKED = "not-asked"  # so there is nothing to undo
    HAS_BEGUN = "has-begun"  # so it is too late
    GONE = "gone"
    FAILED = "failed"


class RollStep(msgspec.Struct, frozen=True):
    """An outcome, and the annotations to merge into the NodeClaim for it; None removes one."""

    outcome: RollOutcome
    annotations: Mapping[str, str | None] = {}


def asking(claim: objects.NodeClaim, at: datetime) -> RollStep:
    """Has the node replaced. A claim that guard has stamped for its age is about to be replaced anyway."""
    annotations = claim.metadata.annotations
    if has_begun(claim):
        return RollStep(RollOutcome.HAS_BEGUN)
    if asked_roll(annotations.get(names.ROLLED)) is not None or is_stamped(annotations):
        return RollStep(RollOutcome.ALREADY_ASKED)
    return RollStep(RollOutcome.ASKED, {names.ROLLED: written_mark(Roll(why=RollCause.ASKED, at=at_second(at)))})


def undoing(claim: objects.NodeClaim) -> RollStep:
    """Takes it back, and the stamp by which guard or drive has told Karpenter."""
    annotations = claim.metadata.annotations
    if asked_roll(annotations.get(names.ROLLED)) is None:
        return RollStep(RollOutcome.NOT_ASKED)
    if has_begun(claim):
        return RollStep(RollOutcome.HAS_BEGUN)
    back: dict[str, str | None] = {names.ROLLED: None}
    before = annotations.get(names.HASH_BEFORE)
    if before is not None:
        back[names.HASH_BEFORE] = None
        if is_stamped(annotations):
            back[names.NODEPOOL_HASH] = before
    return RollStep(RollOutcome.UNDONE, back)


def has_begun(claim: objects.NodeClaim) -> bool:
    """Whether the node is in a command, of ours or of Karpenter, or leaving for any other reason."""
    return (
        claim.metadata.deletion_timestamp is not None
        or names.DISRUPTION_COMMAND in claim.metadata.annotations
        or objects.is_true(claim, ConditionType.DISRUPTION_REASON)
    )
