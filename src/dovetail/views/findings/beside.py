"""Findings about the annotations of guard and drive. A value that cannot be read is never acted upon."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from dovetail.api import names
from dovetail.model.beside import OFF, read_budgets, read_hold, read_pod_hold, read_roll
from dovetail.model.finding import Finding
from dovetail.rules.protection import own_hold
from dovetail.values.duration import DurationError, parse_nillable, shown
from dovetail.values.timestamp import spoken_time
from dovetail.views.findings.subject import Subject

LEFT_AFTER: Final = timedelta(minutes=1)  # after its end; many holds that end together are removed at 10 a second
_REMOVE: Final = "remove the annotation; Dovetail writes it anew if it is needed"


class _Mark(NamedTuple):
    readable: Callable[[str], bool]
    outcome: str
    remedy: str = _REMOVE


def _is_span(text: str) -> bool:
    try:
        parse_nillable(text)
    except DurationError:
        return False
    return True


_USERS: Final = "do-not-disrupt counts as a user's, and Dovetail does not touch it"
_MARKS: Final[Mapping[tuple[str, str], _Mark]] = {
    ("Node", names.HELD): _Mark(
        lambda text: read_hold(text) is not None,
        _USERS,
        f"remove the annotation, and {names.DO_NOT_DISRUPT} with it unless you have written it",
    ),
    ("Pod", names.POD_HOLD): _Mark(
        lambda text: read_pod_hold(text) is not None,
        _USERS,
        f"remove the annotation, and {names.DO_NOT_DISRUPT} with it unless you have written it",
    ),
    ("NodeClaim", names.ROLLED): _Mark(
        lambda text: read_roll(text) is not None,
        "it asks for nothing",
        "remove the annotation; to have the node replaced, use `dovetail roll`",
    ),
    ("NodePool", names.GRACEFUL_EXPIRE_AFTER): _Mark(
        _is_span, "no node of the pool expires gracefully", "write a duration such as 720h, or Never"
    ),
    ("NodePool", names.OWN_BUDGETS): _Mark(
        lambda text: read_budgets(text) is not None,
        "spec.disruption.budgets applies",
        'write a JSON list as in spec.disruption.budgets, such as [{"nodes": "1", "reasons": ["Expired"]}]',
    ),
    ("NodePool", names.BESIDE): _Mark(
        lambda text: text == OFF, "guard and drive act on its nodes", f'write "{OFF}", or remove the annotation'
    ),
}


def mark_findings(subject: Subject, annotations: Mapping[str, str]) -> Iterator[Finding]:
    """Values that cannot be read, and the holds of ours, which are not a user's protection."""
    for (kind, key), mark in _MARKS.items():
        text = annotations.get(key)
        if kind != subject.kind or text is None:
            continue
        field = f"metadata.annotations[{key}]"
        if not mark.readable(text):
            message = f"{shown(text)} cannot be read: {mark.outcome}"
            yield subject.warning(names.EventReason.INVALID_MARK, field, message, mark.remedy)
        elif key == names.HELD and (hold := read_hold(text)) is not None:
            remedy = "nothing to do; `dovetail cleanup` removes it for good"
            yield subject.info("HeldByDovetail", field, hold.sentence, remedy)


def left_holds(subject: Subject, annotations: Mapping[str, str], at: datetime) -> Iterator[Finding]:
    """The hold on a pod that outlives its end: guard or drive runs without --hold-pods now, or not at all."""
    hold = own_hold(annotations)
    if hold is not None and hold.until <= at - LEFT_AFTER:
        field = f"metadata.annotations[{names.DO_NOT_DISRUPT}]"
        message = f"was held by Dovetail until {spoken_time(hold.until)}, and nobody has removed the hold"
        remedy = "stop guard or drive and run `dovetail cleanup`, or run it with --hold-pods again"
        yield subject.warning(names.EventReason.HOLD_LEFT, field, message, remedy)
