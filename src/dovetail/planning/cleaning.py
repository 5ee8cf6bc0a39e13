"""Patches that remove from objects what only Dovetail writes (R38).

Objects are raw JSON, not our structs: a list is written back as a whole, and fields that we do not model must not be
lost. What upstream writes too stays, except for the marks of a command under way: the next controller does not know the
command, so its nodes must take pods again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.api.names import ConditionType, TaintEffect
from dovetail.model.beside import is_stamped, read_hold
from dovetail.rules.protection import own_hold
from dovetail.rules.reasons import DISRUPTION_REASONS

JsonObject = dict[str, Any]

ANNOTATIONS: Final = (names.DISRUPTION_COMMAND, names.REPLACEMENT_OF)  # Nodes inherit those of their NodeClaim
CONDITIONS: Final = (
    ConditionType.DISRUPTION_STATE,
    *(row.condition for row in DISRUPTION_REASONS.values() if not row.upstream),
    ConditionType.NODE_LOST,
)
# Beside Karpenter. What they mark goes with them, if it is still what we have written (R48).
ROLLING: Final = (names.ROLLED, names.HASH_BEFORE)
_BESIDE_DISRUPTED: Final = (names.BESIDE_DISRUPTED_TAINT, TaintEffect.NO_SCHEDULE)
_CANDIDATE: Final = (names.CANDIDATE_TAINT, TaintEffect.PREFER_NO_SCHEDULE)
_DISRUPTED: Final = (names.DISRUPTED_TAINT, TaintEffect.NO_SCHEDULE)


class MergePatch(msgspec.Struct, frozen=True):
    """A merge patch without precondition."""

    body: JsonObject
    subresource: str = ""


class Cleaning(msgspec.Struct, frozen=True):
    """The changes in words, and the patches in their order."""

    changes: tuple[str, ...] = ()
    patches: tuple[MergePatch, ...] = ()


def clean_node(node: JsonObject, claim: JsonObject | None, *, karpenter: bool = False) -> Cleaning:
    """`claim`: the NodeClaim of the Node, before it was cleaned itself.

    `karpenter`: it runs, and its marks are its own.
    """
    unwanted = {_CANDIDATE, _BESIDE_DISRUPTED}
    if claim is not None and not karpenter and is_ours(claim) and not is_going(claim) and not is_going(node):
        unwanted.add(_DISRUPTED)
    taints = _list(node.get("spec"), "taints")
    remaining, gone = _without(taints, lambda taint: (taint.get("key"), taint.get("effect")) in unwanted)
    metadata, removed = _without_annotations(node, [*ANNOTATIONS, *_hold_keys(annotations_of(node))])
    body: dict[str, Any] = {"metadata": metadata} if removed else {}
    if gone:
        body["spec"] = {"taints": remaining or None}
    changes = [f"taint {taint['key']}:{taint['effect']}" for taint in gone] + removed
    return Cleaning(tuple(changes), (MergePatch(body),) if body else ())


def _hold_keys(annotations: Mapping[str, str]) -> list[str]:
    """A mark that cannot be read marks nothing: the other annotation is a user's."""
    held, value = annotations.get(names.HELD), annotations.get(names.DO_NOT_DISRUPT)
    ours = held is not None and value == "true" and read_hold(held) is not None
    return [names.HELD, *([names.DO_NOT_DISRUPT] if ours else [])]


def clean_pod(pod: JsonObject) -> Cleaning:
    """A user's own protection stays, also one that has replaced ours."""
    keys = [names.POD_HOLD, *([names.DO_NOT_DISRUPT] if own_hold(annotations_of(pod)) is not None else [])]
    metadata, removed = _without_annotations(pod, keys)
    return Cleaning(tuple(removed), (MergePatch({"metadata": metadata}),) if removed else ())


def clean_claim(claim: JsonObject, nodes: Sequence[JsonObject] = (), *, karpenter: bool = False) -> Cleaning:
    """`nodes`: the Nodes of the claim. The record of a command goes last, so that a new leader can continue it.

    `karpenter`: it runs, and its marks are its own.
    """
    unwanted: set[str] = set(CONDITIONS)
    if not karpenter and is_ours(claim) and not any(map(is_going, (claim, *nodes))):
        unwanted.add(ConditionType.DISRUPTION_REASON)
    conditions = _list(claim.get("status"), "conditions")
    remaining, gone = _without(conditions, lambda entry: entry.get("type") in unwanted)
    metadata, removed = _without_annotations(claim, [*ANNOTATIONS, *ROLLING])
    patches = [MergePatch({"status": {"conditions": remaining or None}}, "status")] if gone else []
    annotations = annotations_of(claim)
    before = annotations.get(names.HASH_BEFORE)
    if before is not None and is_stamped(annotations):
        metadata["annotations"][names.NODEPOOL_HASH] = before
        removed.append(f"stamp in {names.NODEPOOL_HASH}")
    if removed:
        patches.append(MergePatch({"metadata": metadata}))
    return Cleaning(tuple([f"condition {entry['type']}" for entry in gone] + removed), tuple(patches))


def clean_pool(pool: JsonObject) -> Cleaning:
    if "disruptions" not in (pool.get("status") or {}):
        return Cleaning()
    return Cleaning(("status.disruptions",), (MergePatch({"status": {"disruptions": None}}, "status"),))


def is_ours(claim: JsonObject) -> bool:
    """Whether we have written to the claim. Commands of another controller are not touched."""
    conditions = _list(claim.get("status"), "conditions")
    annotations = annotations_of(claim)
    has_condition = any(entry.get("type") in CONDITIONS for entry in conditions)
    return has_condition or any(key in annotations for key in ANNOTATIONS)


def is_going(thing: JsonObject) -> bool:
    """Whether the object is being deleted. Upstream writes the same marks there."""
    return bool((thing.get("metadata") or {}).get("deletionTimestamp"))


def _list(parent: Any, field: str) -> list[JsonObject]:
    return (parent or {}).get(field) or []


def _without(
    entries: Sequence[JsonObject], unwanted: Callable[[JsonObject], bool]
) -> tuple[list[JsonObject], list[JsonObject]]:
    """The entries to keep, and the entries to remove."""
    return [entry for entry in entries if not unwanted(entry)], [entry for entry in entries if unwanted(entry)]


def annotations_of(thing: JsonObject) -> Mapping[str, str]:
    annotations: Mapping[str, str] = (thing.get("metadata") or {}).get("annotations") or {}
    return annotations


def _without_annotations(thing: JsonObject, keys: Iterable[str]) -> tuple[JsonObject, list[str]]:
    """The metadata to write, and the removed annotations. The last one removes the empty map, too."""
    annotations = annotations_of(thing)
    gone = [key for key in keys if key in annotations]
    metadata = {"annotations": dict.fromkeys(gone) if len(gone) < len(annotations) else None}
    return metadata, [f"annotation {key}" for key in gone]
