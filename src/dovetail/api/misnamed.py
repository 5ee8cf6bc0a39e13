"""Finds annotations and labels that nothing reads because their names are wrong."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from dovetail.api import names
from dovetail.api.yaml_events import shorten
from dovetail.values.mending import is_unitless, meant_duration
from dovetail.values.spelling import meant_word

_OURS = frozenset(names.PROTECTION_ANNOTATIONS)
_GRACE_PERIOD = "do-not-disrupt-grace-period"
# Old names, names from proposals, and wrong analogies, which are too unlike the right name for a typing error.
_FORMER = {
    "do-not-evict": names.DO_NOT_DISRUPT,
    _GRACE_PERIOD: names.DO_NOT_DISRUPT,
    "disruption-block-schedule-duration": names.DISRUPTION_BLOCK_DURATION,
}
# Names that could mean several annotations.
_UNCLEAR = {
    "do-not-consolidate": (names.DO_NOT_DISRUPT,),
    "disruption-duration": (names.DISRUPTION_SCHEDULE_DURATION, names.DISRUPTION_BLOCK_DURATION),
    "schedule-duration": (names.DISRUPTION_SCHEDULE_DURATION, names.DISRUPTION_BLOCK_DURATION),
    "duration": (names.DISRUPTION_SCHEDULE_DURATION, names.DISRUPTION_BLOCK_DURATION),
    "schedule": (names.DISRUPTION_SCHEDULE, names.DISRUPTION_BLOCK_SCHEDULE),
}
# A duration belongs to the schedule beside it.
_DURATION_OF = {
    names.DISRUPTION_SCHEDULE_DURATION: names.DISRUPTION_SCHEDULE,
    names.DISRUPTION_BLOCK_DURATION: names.DISRUPTION_BLOCK_SCHEDULE,
}


# What users write, by the kind of object that it is read on; a NodeClaim's annotations come to its Node.
_ON_NODES = (names.DO_NOT_DISRUPT, names.DO_NOT_REPAIR)
_WRITTEN = {
    "Pod": names.PROTECTION_ANNOTATIONS,
    "Node": _ON_NODES,
    names.NODECLAIM_KIND: _ON_NODES,
    names.NODEPOOL_KIND: (names.GRACEFUL_EXPIRE_AFTER, names.OWN_BUDGETS, names.BESIDE),
}
_KNOWN = names.KARPENTER_KEYS | names.OWN_KEYS
_PREFIXES = (f"{names.GROUP}/", f"{names.OWN_GROUP}/")
_MAX_KEY = 320


class MisnamedKey(NamedTuple):
    """An annotation or label that nothing reads, and what to write instead."""

    rule: str
    holder: str
    """`annotations` or `labels`."""
    key: str
    message: str
    remedy: str
    evident: bool = True
    """Whether it is a mistake. A newer Karpenter may know a key that we do not."""


def misnamed_keys(kind: str, annotations: Mapping[str, str], labels: Mapping[str, str]) -> Iterator[MisnamedKey]:
    """The annotations and labels of a Pod, Node, NodeClaim or NodePool that nothing reads, though they look so."""
    for holder, keys in (("annotations", annotations), ("labels", labels)):
        for key in keys:
            if _is_odd(kind, holder, key) and (misnamed := _misnamed(kind, holder, key, annotations)) is not None:
                yield misnamed


def may_be_misnamed(kind: str, annotations: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether `misnamed_keys` may find something. Most objects need no further check."""
    return _has_odd(kind, "annotations", tuple(annotations)) or _has_odd(kind, "labels", tuple(labels))


@lru_cache(maxsize=1024)
def _has_odd(kind: str, holder: str, keys: tuple[str, ...]) -> bool:
    """Pods of a workload have the same keys."""
    return any(_is_odd(kind, holder, key) for key in keys)


@lru_cache(maxsize=4096)
def _is_odd(kind: str, holder: str, key: str) -> bool:
    if len(key) > _MAX_KEY:
        return False
    if key in _KNOWN:
        misplaced = holder == "labels" and key in _WRITTEN[kind]
        return misplaced or (kind != "Pod" and key in _OURS and key not in _ON_NODES)
    return key.startswith(_PREFIXES) or (kind == "Pod" and holder == "annotations" and bool(_possible(kind, key)))


def _misnamed(kind: str, holder: str, key: str, annotations: Mapping[str, str]) -> MisnamedKey | None:
    on = "" if kind == "Pod" else f" on a {kind}"
    if key in _KNOWN and key in _WRITTEN[kind]:
        if key in annotations:
            return None
        message = f"{key} is read as an annotation; as a label it has no effect"
        return MisnamedKey("AnnotationAsLabel", holder, key, message, "move it to the annotations")
    if key in _KNOWN:
        message = f"{key} is read on pods; it has no effect{on}"
        return MisnamedKey("AnnotationNotOnPods", holder, key, message, "move it to the pods")
    rule = "UnknownAnnotation" if holder == "annotations" else "UnknownLabel"
    message = f"nothing reads {shorten(key, 120)}{on}: it has no effect"
    meant = _possible(kind, key)
    if meant:
        return MisnamedKey(rule, holder, key, message, _remedy(key, meant, annotations))
    if key.startswith(_PREFIXES[1]):
        return MisnamedKey(rule, holder, key, message, "remove it")
    message = f"neither Karpenter nor Dovetail is known to read {shorten(key, 120)}{on}"
    return MisnamedKey(rule, holder, key, message, "remove it, unless something else reads it", evident=False)


@lru_cache(maxsize=4096)
def _possible(kind: str, key: str) -> tuple[str, ...]:
    """The keys that this one could mean; none if it is nothing like them."""
    domain, _, name = key.rpartition("/")
    ours = domain in (names.GROUP, names.OWN_GROUP)
    written = {known.partition("/")[2]: known for known in _WRITTEN[kind]}
    if not ours:
        return (written[name],) if name in written else ()
    if kind != names.NODEPOOL_KIND and (name in _FORMER or name in _UNCLEAR):
        meant = (_FORMER[name],) if name in _FORMER else _UNCLEAR[name]
        return tuple(known for known in meant if known in _WRITTEN[kind])
    for choice in (written, {known.partition("/")[2]: known for known in sorted(_KNOWN)}):
        word = meant_word(name, choice)
        if word is not None:
            return (choice[word],)
    return ()


def _remedy(key: str, meant: tuple[str, ...], annotations: Mapping[str, str]) -> str:
    name = key.rpartition("/")[2]
    if len(meant) > 1:
        beside = [
            annotation
            for annotation in meant
            if _DURATION_OF.get(annotation) in annotations and annotation not in annotations
        ]
        if len(beside) != 1:
            return f"write {' or '.join(meant)}, whichever is meant"
        meant = (beside[0],)
    if name == "do-not-consolidate":
        return f"remove it, or write {meant[0]}, which also stops every other graceful disruption of the node"
    if name == _GRACE_PERIOD:
        text = annotations[key].strip()
        duration = meant_duration(f"{text}s" if is_unitless(text) else text)  # the proposal counts seconds
        value = f'"{duration}"' if duration else 'a duration such as "4h"'
        return f"write the time as the value: {meant[0]}: {value}"
    if meant[0] in annotations:
        return f"remove it; {meant[0]} is set already"
    return f"write {meant[0]}" if "/" in key else f"write {meant[0]}, with its domain"
