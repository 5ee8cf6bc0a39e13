"""When the windows in a manifest open within a span of time, for `lint --for`."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from dovetail.api import names, objects
from dovetail.api.documents import Document, InputError, decode
from dovetail.model.finding import Finding
from dovetail.model.pool_records import pool_record
from dovetail.rules.budgets import read_budgets
from dovetail.rules.protection import ScheduleKind, read_schedule
from dovetail.values.duration import MICROSECOND, short_duration
from dovetail.values.schedule.instants import Instants
from dovetail.values.schedule.window import Window
from dovetail.values.timestamp import spoken_time
from dovetail.views.findings.subject import subject_of
from dovetail.views.lint.workloads import pod_source
from dovetail.views.turns import MAX_TURNS, turns

RULE = "WindowsAhead"
# In one message.
_MOST_NAMED = 5


def openings(document: Document, at: datetime, end: datetime) -> list[Finding]:
    """A finding for each schedule of the object. `lint` itself reports what cannot be read."""
    try:
        windows = list(_windows(document))
    except InputError:
        return []
    subject = subject_of(0, document)
    return [
        subject.info(RULE, field, f"up to {spoken_time(end)} {what} {_said(window, at, end)}", "")
        for field, what, window in windows
    ]


def _windows(document: Document) -> Iterator[tuple[str, str, Window]]:
    """Each window with its field and what it is."""
    if (document.api_version, document.kind) == (names.API_VERSION, names.NODEPOOL_KIND):
        for budget in read_budgets(pool_record(decode(document, objects.NodePool)).budgets):
            if budget.window is not None:
                yield f"spec.disruption.budgets[{budget.index}].schedule", "the budget's window", budget.window
    elif (document.api_version, document.kind) in objects.KINDS_WITH_PODS:
        source = pod_source(document)
        for kind, what in ((ScheduleKind.ALLOW, "the disruption window"), (ScheduleKind.BLOCK, "the block window")):
            window = None if source.finished else read_schedule(kind, source.template.annotations).window
            if window is not None:
                yield source.template.field(kind.value[0]), what, window


def _said(window: Window, at: datetime, end: datetime) -> str:
    changes = list(turns(window.instants, at, end))
    is_open = window.instants.contains(at)
    if is_open and not changes:
        return "is open throughout"
    first = f"is open until {spoken_time(changes[0])}" if is_open else ""
    opened = changes[1::2] if is_open else changes[0::2]
    if not opened:
        return f"{first} and does not open again" if first else "does not open"
    named = ", ".join(f"{spoken_time(opens)}{_length(window.instants, opens)}" for opens in opened[:_MOST_NAMED])
    left = len(opened) - _MOST_NAMED
    more = "" if left <= 0 else f" and {'at least ' if len(changes) == MAX_TURNS else ''}{left} times more"
    return f"{first}{', then ' if first else ''}opens {named}{more}"


def _length(instants: Instants, opens: datetime) -> str:
    closes = instants.until(opens)
    if closes is None:
        return ""
    return f" for {short_duration((closes - opens) // timedelta(microseconds=1) * MICROSECOND)}"
