"""Findings about the annotations of pods, pod templates and Nodes (R2–R12)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from dovetail.api import names
from dovetail.api.documents import Document
from dovetail.api.misnamed import misnamed_keys
from dovetail.api.schema import describe
from dovetail.api.yaml_events import join, shorten
from dovetail.model.finding import Finding
from dovetail.model.rule_settings import DEFAULT_SETTINGS, DURATIONS_SINCE, RuleSettings
from dovetail.rules.nodes import USUAL_BOOT, VALIDATION_SECONDS, grace_taken
from dovetail.rules.protection import (
    NOT_IN_FORCE,
    AnnotationFault,
    DoNotDisrupt,
    PodSchedule,
    ScheduleKind,
    annotation_faults,
    read_by,
    read_do_not_disrupt,
    read_on_node,
    read_schedule,
)
from dovetail.values.duration import HOUR, MICROSECOND, short_duration, shown
from dovetail.values.schedule.instants import all_of, complement, with_time_left
from dovetail.values.schedule.window import Window
from dovetail.values.timestamp import spoken_time
from dovetail.views.findings.beside import left_holds, mark_findings
from dovetail.views.findings.subject import Subject

NOT_REPAIRED = "NotRepaired"
_MAX_KEYS = 20
_MAX_FAULTS = 3
_WINDOW_EXAMPLE = f'{names.DISRUPTION_SCHEDULE}: "0 2 * * 6"'


class Template(NamedTuple):
    """The metadata of a pod or pod template, and its path in the object."""

    path: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]

    def field(self, key: str) -> str:
        return annotation_field(self.path, key)


def annotation_field(path: str, key: str) -> str:
    return f"{join(path, 'annotations')}[{shorten(key, 320)}]"


def pod_findings(
    subject: Subject, template: Template, grace_seconds: int, at: datetime, settings: RuleSettings
) -> Iterator[Finding]:
    """All findings about the annotations of one pod or pod template."""
    annotations = template.annotations
    yield from misnamed_findings(subject, template.path, annotations, template.labels, "Pod")
    yield from mark_findings(subject, annotations)
    yield from left_holds(subject, annotations, at)
    if not any(key in annotations for key in names.PROTECTION_ANNOTATIONS):
        return
    yield from _faults(subject, template, settings)
    yield from protection_findings(subject, template, grace_seconds, at, settings)


def protection_findings(
    subject: Subject, template: Template, grace_seconds: int, at: datetime, settings: RuleSettings = DEFAULT_SETTINGS
) -> Iterator[Finding]:
    """Findings about protections that can be read, but hardly are what was meant."""
    annotations = template.annotations
    schedules = {kind: read_schedule(kind, annotations) for kind in ScheduleKind} if settings.schedules else {}
    if names.DO_NOT_DISRUPT in annotations:
        yield from _do_not_disrupt(subject, template, settings, schedules.values())
    for kind, schedule in schedules.items():
        yield from _windows(subject, template, kind, schedule, at)
    if not settings.schedules:
        return
    yield from _free_time(subject, template, schedules, grace_seconds, at)


# -- values that are not understood -----------------------------------------------------------------------------------


def _faults(subject: Subject, template: Template, settings: RuleSettings) -> list[Finding]:
    """The faults that the controller warns of, one finding for each annotation. What is not read is no mistake."""
    grouped: dict[tuple[str, str], list[AnnotationFault]] = defaultdict(list)
    for fault in annotation_faults(template.annotations, settings):
        grouped[fault.rule, fault.annotation].append(fault)
    return [
        subject.finding(faults[0].severity, rule, template.field(key), _joined(faults), faults[0].remedy)
        for (rule, key), faults in grouped.items()
    ]


def _joined(faults: list[AnnotationFault]) -> str:
    # The last one may say what happens to the pod.
    shown_faults = faults if len(faults) <= _MAX_FAULTS else [*faults[: _MAX_FAULTS - 1], faults[-1]]
    more = [f"and {len(faults) - len(shown_faults)} more"] if len(faults) > len(shown_faults) else []
    return "; ".join([fault.message for fault in shown_faults] + more)


def coerced_findings(subject: Subject, document: Document, *, durations: bool) -> list[Finding]:
    """Labels and annotations that are not strings: the API server refuses the object.

    `durations`: whether those of do-not-disrupt count here.
    """
    return [
        subject.error(
            "NotAString",
            field,
            "it has no value: kubectl refuses the object, and the API server reads an empty string"
            if value is None
            else f"the value is {describe(value)} and not a string: the API server refuses the object",
            _quoted(field, value, durations=durations),
        )
        for field, value in document.coerced[:_MAX_KEYS]
    ]


def _quoted(field: str, value: object, *, durations: bool) -> str:
    if value is None:
        return "give it a value in quotes, or remove it"
    if field.endswith(f"[{names.DO_NOT_DISRUPT}]"):
        text = describe(value)
        fault = read_do_not_disrupt(text, durations=durations).fault
        return f'quote it: "{text}"' if fault is None else fault.remedy
    # YAML has several notations for a value: 010 and 8, yes and true.
    return "write a string" if isinstance(value, dict | list) else "put the value in quotes, as it is written"


# -- do-not-disrupt ---------------------------------------------------------------------------------------------------


def _do_not_disrupt(
    subject: Subject, template: Template, settings: RuleSettings, schedules: Iterable[PodSchedule]
) -> Iterator[Finding]:
    field, value = template.field(names.DO_NOT_DISRUPT), template.annotations[names.DO_NOT_DISRUPT]
    meaning = read_by(settings, value)
    if not meaning.protects:
        if meaning.fault is not None:
            return
        message = '"false" protects nothing, the same as no annotation'
        yield subject.info("NotProtected", field, message, "leave it out, or keep it")
        return
    on_every_node = subject.kind == "DaemonSet"
    if on_every_node:
        yield subject.warning(
            "DaemonSetBlocksNodes",
            field,
            "pods of a DaemonSet protect like any others: this blocks the disruption of every node they run on",
            "remove the annotation; a DaemonSet's pods need no protection from their node's replacement",
        )
    if meaning.fault is not None:
        return
    if any(schedule.window is not None for schedule in schedules):
        yield _beside_schedule(subject, field, meaning)
    elif meaning.span_ns is None and not on_every_node:
        yield subject.info(
            "IndefiniteProtection",
            field,
            "the pod blocks every graceful disruption of its node for as long as it lives",
            _less_than_true(settings),
        )


def _less_than_true(settings: RuleSettings) -> str:
    """What to write instead of "true", so that the pod stays protected (R56)."""
    if settings.schedules:
        return f'give the longest time it needs, such as "4h", or a window to go in, such as {_WINDOW_EXAMPLE}'
    since = ".".join(map(str, DURATIONS_SINCE))
    if not settings.reads_durations:
        advice = f"remove it once it is not needed: {settings.decider.name} reads no durations, Karpenter {since} does"
    elif settings.decider.version:
        advice = 'give the longest time it needs, such as "4h"'
    else:
        advice = f'give the longest time it needs, such as "4h", which Karpenter reads from {since} on'
    return f"{advice}; a schedule instead would take the protection away, because only Dovetail reads it"


def _beside_schedule(subject: Subject, field: str, meaning: DoNotDisrupt) -> Finding:
    """do-not-disrupt and a schedule on one pod (R12; seed 001: use one or the other)."""
    rule = "DoNotDisruptWithSchedule"
    if meaning.span_ns is None:
        return subject.warning(
            rule,
            field,
            "do-not-disrupt wins over any schedule: the pod is never disrupted and its schedule is pointless",
            "use one or the other: remove do-not-disrupt to let the schedule govern",
        )
    return subject.info(
        rule,
        field,
        f"do-not-disrupt wins for the pod's first {short_duration(meaning.span_ns)}; the schedule governs afterwards",
        "use one or the other, unless this is meant",
    )


def _unread_on_node(subject: Subject, field: str, value: str) -> Finding:
    """A duration on a Node, which only Dovetail reads (R6)."""
    message = f'not in force: Karpenter reads only "true" on a Node, not {shown(value)}'
    return subject.warning(NOT_IN_FORCE, field, message, 'write "true", or use dovetail drive or run')


def node_findings(
    subject: Subject, path: str, annotations: Mapping[str, str], settings: RuleSettings
) -> Iterator[Finding]:
    """Findings about the annotations of a Node, or of a template of Nodes (R6, R47)."""
    value, field = annotations.get(names.DO_NOT_DISRUPT), annotation_field(path, names.DO_NOT_DISRUPT)
    if value == "false":
        message = '"false" on a Node blocks nothing: the same as leaving it out'
        yield subject.info("NotProtected", field, message, "remove the annotation")
    elif value is not None and (fault := read_on_node(settings, value).fault) is not None:
        some = '"true" and a positive duration do' if settings.node_durations else '"true" does'
        message = f"{shown(value)} on a Node blocks nothing: only {some}, unlike on a pod"
        yield subject.error(names.EventReason.INVALID_DO_NOT_DISRUPT, field, message, fault.remedy)
    elif value is not None and value != "true" and not settings.node_durations:
        yield _unread_on_node(subject, field, value)
    value, field = annotations.get(names.DO_NOT_REPAIR), annotation_field(path, names.DO_NOT_REPAIR)
    if value == "true":
        message = "the node is not replaced when it is unhealthy, however long that lasts"
        yield subject.info(NOT_REPAIRED, field, message, "remove the annotation, unless this is meant")
    elif value not in (None, "false"):
        message = f'{shown(value)} has no effect: only "true" keeps an unhealthy node'
        yield subject.error("InvalidDoNotRepair", field, message, 'write "true", or remove the annotation')


# -- schedules --------------------------------------------------------------------------------------------------------


def run_together(window: Window, at: datetime) -> tuple[str, str]:
    """The message and the remedy for windows that are still open when the next one begins."""
    opens = window.at(at).opens_at
    closes = None if opens is None else window.instants.until(opens)
    example = ""
    if opens is not None and closes is not None:
        length = short_duration((closes - opens) // timedelta(microseconds=1) * MICROSECOND)
        example = f", as one window of {length} from {spoken_time(opens)} to {spoken_time(closes)}"
    message = f"each window is still open when the next one begins, so they run together{example}"
    return message, _start_only(window) or "shorten it to the time between two starts, or start a window less often"


def _start_only(window: Window) -> str | None:
    """What to write instead of `0 9-17 * * *` for 8h: the author takes the hours for the window."""
    (cron, span_ns), *others = window.parts
    words = cron.text.split()
    if others or len(words) < 5:
        return None
    minute, hours, *days = words[-5:]
    first, _, last = hours.partition("-")
    if not all(text.isascii() and text.isdigit() for text in (minute, first, last)):
        return None
    if span_ns <= HOUR or (int(last) - int(first)) * HOUR != span_ns:
        return None
    start, end = (f"{int(hour):02}:{int(minute):02}" for hour in (first, last))
    return f'write "{" ".join([*words[:-5], minute, first, *days])}", which opens it once, from {start} to {end}'


def _windows(
    subject: Subject, template: Template, kind: ScheduleKind, schedule: PodSchedule, at: datetime
) -> Iterator[Finding]:
    """Windows that never open, or never close (R9, R10)."""
    window = schedule.window
    if window is None:
        return
    field, allows = template.field(kind.value[0]), kind is ScheduleKind.ALLOW
    silent = [cron.text for cron, _ in schedule.expressions if cron.never]
    if silent:
        if not window.never:
            outcome = "the other expressions still apply"
        elif allows:
            outcome = "its window never opens, so the pod is protected for good"
        else:
            outcome = "it never blocks anything"
        yield subject.warning(
            "ScheduleNeverFires",
            field,
            f"{shown(silent[0])} names a day that does not exist and never fires; {outcome}",
            "name a day that exists, such as 28 for a day of every month, or remove the expression",
        )
    elif window.stays_open(at):
        outcome = "the schedule has no effect: the pod can be disrupted at any time"
        if not allows:
            outcome = "the pod is protected for good"
        yield subject.warning(
            "ScheduleAlwaysOpen",
            field,
            f"the window opens again before it closes; {outcome}",
            f'shorten {kind.value[1]}, or let the schedule fire less often, such as "0 2 * * 6" with "4h"',
        )
    elif window.runs_together(at):
        yield subject.warning("WindowsRunTogether", template.field(kind.value[1]), *run_together(window, at))


def _free_time(
    subject: Subject,
    template: Template,
    schedules: Mapping[ScheduleKind, PodSchedule],
    grace_seconds: int,
    at: datetime,
) -> Iterator[Finding]:
    """Schedules that never allow a disruption together (R7), or never for long enough (R50)."""
    allow, block = schedules[ScheduleKind.ALLOW].window, schedules[ScheduleKind.BLOCK].window
    parts = [*([allow.instants] if allow else []), *([complement(block.instants)] if block else [])]
    if any(part.first(at) is None for part in parts):
        return  # `_windows` reports the schedule that is to blame
    free, takes = all_of(parts), timedelta(seconds=VALIDATION_SECONDS) + USUAL_BOOT + grace_taken(grace_seconds)
    if free.first(at) is None:
        yield subject.warning(
            "SchedulesNeverAllow",
            template.field(names.DISRUPTION_BLOCK_SCHEDULE),
            "the block windows cover every allow window, so the pod is never free to be disrupted",
            f"remove one of the two: {names.DISRUPTION_SCHEDULE} alone already blocks outside its windows",
        )
    elif with_time_left(free, takes).first(at) is None:
        yield subject.warning(
            "WindowTooShort",
            template.field((ScheduleKind.ALLOW if allow else ScheduleKind.BLOCK).value[1]),
            "the pod is never free for long enough to replace its node, which takes 15s to validate, about 1m to boot, "
            f"and the {grace_seconds}s of the pod's own grace; so the node is never replaced",
            "make the windows longer, such as 1h",
        )


# -- annotations that are not where they belong -----------------------------------------------------------------------


def misnamed_findings(
    subject: Subject, path: str, annotations: Mapping[str, str], labels: Mapping[str, str], kind: str = ""
) -> Iterator[Finding]:
    """Keys that look like those of Karpenter or Dovetail, but that nothing reads. `kind`: that of the template."""
    for misnamed in islice(misnamed_keys(kind or subject.kind, annotations, labels), _MAX_KEYS):
        field = f"{join(path, misnamed.holder)}[{shorten(misnamed.key, 320)}]"
        tell = subject.warning if misnamed.evident else subject.info
        yield tell(misnamed.rule, field, misnamed.message, misnamed.remedy)


def misplaced_findings(
    subject: Subject, path: str, annotations: Mapping[str, str], template: Template
) -> list[Finding]:
    """Pod annotations on the workload itself: they never reach its pods."""
    return [
        subject.warning(
            "AnnotationNotOnPods",
            annotation_field(path, key),
            f"{key} is read on pods; on the {subject.kind} itself it has no effect",
            f"move it to {join(template.path, 'annotations')}",
        )
        for key in names.PROTECTION_ANNOTATIONS
        if key in annotations and key not in template.annotations
    ]
