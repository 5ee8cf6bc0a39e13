"""What of an object is only there because of us, and what has to be written for it to be as if we had never been (R38)?

Objects are taken as the API gives them, not as our structs: a list is written back as a whole, and a field that we do
not model must not be lost. What upstream writes too is left as it is, but for a command that has not come to its end:
whoever comes next does not know of it, so its nodes take pods again.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.api.names import ConditionType, TaintEffect
from dovetail.rules.reasons import DISRUPTION_REASONS

Raw = dict[str, Any]

ANNOTATIONS: Final = (names.DISRUPTION_COMMAND, names.REPLACEMENT_OF)  # Nodes are made with their NodeClaim's
CONDITIONS: Final = (
    ConditionType.DISRUPTION_STATE,
    *(row.condition for row in DISRUPTION_REASONS.values() if not row.upstream),
    ConditionType.NODE_LOST,
)
_CANDIDATE: Final = (names.CANDIDATE_TAINT, TaintEffect.PREFER_NO_SCHEDULE)
_DISRUPTED: Final = (names.DISRUPTED_TAINT, TaintEffect.NO_SCHEDULE)


class MergePatch(msgspec.Struct, frozen=True):
    """A merge patch, but for the precondition."""

    body: Raw
    subresource: str = ""


class Cleaning(msgspec.Struct, frozen=True):
    """What goes, in words, and the patches that make it go, in this order."""

    changes: tuple[str, ...] = ()
    patches: tuple[MergePatch, ...] = ()


def clean_node(node: Raw, claim: Raw | None) -> Cleaning:
    """`claim`: the NodeClaim that it belongs to, as it was before it was cleaned itself."""
    unwanted = {_CANDIDATE}
    if claim is not None and is_ours(claim) and not is_going(claim) and not is_going(node):
        unwanted.add(_DISRUPTED)
    taints = _list(node.get("spec"), "taints")
    kept, gone = _without(taints, lambda taint: (taint.get("key"), taint.get("effect")) in unwanted)
    metadata, removed = _without_annotations(node)
    body: dict[str, Any] = {"metadata": metadata} if removed else {}
    if gone:
        body["spec"] = {"taints": kept or None}
    changes = [f"taint {taint['key']}:{taint['effect']}" for taint in gone] + removed
    return Cleaning(tuple(changes), (MergePatch(body),) if body else ())


def clean_claim(claim: Raw, nodes: Sequence[Raw] = ()) -> Cleaning:
    """`nodes`: those that belong to it. The record of a command goes last: until then a new leader can carry it on."""
    unwanted: set[str] = set(CONDITIONS)
    if is_ours(claim) and not any(map(is_going, (claim, *nodes))):
        unwanted.add(ConditionType.DISRUPTION_REASON)
    conditions = _list(claim.get("status"), "conditions")
    kept, gone = _without(conditions, lambda entry: entry.get("type") in unwanted)
    metadata, removed = _without_annotations(claim)
    patches = [MergePatch({"status": {"conditions": kept or None}}, "status")] if gone else []
    if removed:
        patches.append(MergePatch({"metadata": metadata}))
    return Cleaning(tuple([f"condition {entry['type']}" for entry in gone] + removed), tuple(patches))


def clean_pool(pool: Raw) -> Cleaning:
    if "disruptions" not in (pool.get("status") or {}):
        return Cleaning()
    return Cleaning(("status.disruptions",), (MergePatch({"status": {"disruptions": None}}, "status"),))


def is_ours(claim: Raw) -> bool:
    """Whether we have acted on it: another program's commands are none of our business (EC2 nodes beside kwok's)."""
    conditions = _list(claim.get("status"), "conditions")
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    return any(entry.get("type") in CONDITIONS for entry in conditions) or any(
        key in annotations for key in ANNOTATIONS
    )


def is_going(thing: Raw) -> bool:
    """Past the point of no return: what upstream finds there is what it would have put there itself."""
    return bool((thing.get("metadata") or {}).get("deletionTimestamp"))


def _list(parent: Any, field: str) -> list[Raw]:
    return (parent or {}).get(field) or []


def _without(entries: Sequence[Raw], unwanted: Callable[[Raw], bool]) -> tuple[list[Raw], list[Raw]]:
    """What stays, and what goes."""
    return [each for each in entries if not unwanted(each)], [each for each in entries if unwanted(each)]


def _without_annotations(thing: Raw) -> tuple[Raw, list[str]]:
    """The metadata to write, and what goes by it. The last annotation takes the empty map with it."""
    annotations = (thing.get("metadata") or {}).get("annotations") or {}
    gone = [key for key in ANNOTATIONS if key in annotations]
    metadata = {"annotations": dict.fromkeys(gone) if len(gone) < len(annotations) else None}
    return metadata, [f"annotation {key}" for key in gone]
