"""Patches that remove from objects what only Dovetail writes (R38).

Objects are raw JSON, not our structs: a list is written back as a whole, and fields that we do not model must not be
lost. What upstream writes too stays, except for the marks of a command under way: the next controller does not know the
command, so its nodes must take pods again.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.api.names import ConditionType, TaintEffect
from dovetail.rules.reasons import DISRUPTION_REASONS

Raw = dict[str, Any]

ANNOTATIONS: Final = (names.DISRUPTION_COMMAND, names.REPLACEMENT_OF)  # Nodes inherit those of their NodeClaim
CONDITIONS: Final = (
    ConditionType.DISRUPTION_STATE,
    *(row.condition for row in DISRUPTION_REASONS.values() if not row.upstream),
    ConditionType.NODE_LOST,
)
_CANDIDATE: Final = (names.CANDIDATE_TAINT, TaintEffect.PREFER_NO_SCHEDULE)
_DISRUPTED: Final = (names.DISRUPTED_TAINT, TaintEffect.NO_SCHEDULE)


class MergePatch(msgspec.Struct, frozen=True):
    """A merge patch without precondition."""

    body: Raw
    subresource: str = ""


class Cleaning(msgspec.Struct, frozen=True):
    """The changes in words, and the patches in their order."""

    changes: tuple[str, ...] = ()
    patches: tuple[MergePatch, ...] = ()


def clean_node(node: Raw, claim: Raw | None) -> Cleaning:
    """`claim`: the NodeClaim of the Node, before it was cleaned itself."""
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
    """`nodes`: the Nodes of the claim. The record of a command goes last, so that a new leader can continue it."""
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
    """Whether we have written to the claim. Commands of another controller are not touched."""
    conditions = _list(claim.get("status"), "conditions")
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    has_condition = any(entry.get("type") in CONDITIONS for entry in conditions)
    return has_condition or any(key in annotations for key in ANNOTATIONS)


def is_going(thing: Raw) -> bool:
    """Whether the object is being deleted. Upstream writes the same marks there."""
    return bool((thing.get("metadata") or {}).get("deletionTimestamp"))


def _list(parent: Any, field: str) -> list[Raw]:
    return (parent or {}).get(field) or []


def _without(entries: Sequence[Raw], unwanted: Callable[[Raw], bool]) -> tuple[list[Raw], list[Raw]]:
    """The entries to keep, and the entries to remove."""
    return [each for each in entries if not unwanted(each)], [each for each in entries if unwanted(each)]


def _without_annotations(thing: Raw) -> tuple[Raw, list[str]]:
    """The metadata to write, and the removed annotations. The last one removes the empty map, too."""
    annotations = (thing.get("metadata") or {}).get("annotations") or {}
    gone = [key for key in ANNOTATIONS if key in annotations]
    metadata = {"annotations": dict.fromkeys(gone) if len(gone) < len(annotations) else None}
    return metadata, [f"annotation {key}" for key in gone]
