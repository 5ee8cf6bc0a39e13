"""Finds annotations of pods that nothing reads because their names are wrong."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from dovetail.api import names
from dovetail.api.yaml_events import shorten
from dovetail.values.mending import is_unitless, meant_duration
from dovetail.values.spelling import meant_word

_OURS = frozenset(names.PROTECTION_ANNOTATIONS)
_SHORT = {key.partition("/")[2]: key for key in names.PROTECTION_ANNOTATIONS}
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


class MisnamedAnnotation(NamedTuple):
    """An annotation that nothing reads, or a label that should be one, and what to write instead."""

    rule: str
    holder: str
    """`annotations` or `labels`."""
    key: str
    message: str
    remedy: str


def misnamed_annotations(annotations: Mapping[str, str], labels: Mapping[str, str]) -> Iterator[MisnamedAnnotation]:
    """The annotations whose names look like ours, and our annotations among the labels."""
    for key in annotations:
        if meant := _possible(key):
            message = f"nothing reads {shorten(key, 120)}: it has no effect"
            yield MisnamedAnnotation("UnknownAnnotation", "annotations", key, message, _remedy(key, meant, annotations))
    for key in () if _OURS.isdisjoint(labels) else names.PROTECTION_ANNOTATIONS:
        if key in labels and key not in annotations:
            message = f"{key} is read as an annotation; as a label it has no effect"
            yield MisnamedAnnotation("AnnotationAsLabel", "labels", key, message, "move it to the annotations")


def may_be_misnamed(annotations: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether `misnamed_annotations` may find something. Most pods need no further check."""
    return any(map(_possible, annotations)) or not _OURS.isdisjoint(labels)


@lru_cache(maxsize=4096)
def _possible(key: str) -> tuple[str, ...]:
    """The annotations that the key could mean; none if it is one of them, or nothing like them."""
    domain, _, name = key.rpartition("/")
    ours = domain == names.GROUP
    if key in _OURS or len(key) > 320 or not (ours or name in _SHORT):
        return ()
    if not ours:
        return (_SHORT[name],)
    if name in _FORMER or name in _UNCLEAR:
        return (_FORMER[name],) if name in _FORMER else _UNCLEAR[name]
    meant = meant_word(name, _SHORT)
    return () if meant is None else (_SHORT[meant],)


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
