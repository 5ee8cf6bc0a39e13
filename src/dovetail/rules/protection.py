"""Protections in the annotations of pods: do-not-disrupt (R2–R6) and schedules (R7–R14)."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import lru_cache, partial
from typing import Final, NamedTuple

from dovetail.api import names
from dovetail.model.beside import PodHold, read_pod_hold
from dovetail.model.decider import Decider, DecidingController
from dovetail.model.finding import Finding, Severity
from dovetail.model.node_records import NodeRecord
from dovetail.model.pod_records import PodRecord
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, DURATIONS_SINCE, RuleSettings, SpanStart
from dovetail.rules.verdict import Remark, Rule, Verdict, allow, judge, refuse
from dovetail.values import limits
from dovetail.values.duration import (
    DAY,
    HOUR,
    MICROSECOND,
    MINUTE,
    DurationError,
    DurationTooLong,
    add,
    parse_duration,
    short_duration,
    shown,
)
from dovetail.values.mending import (
    is_length_of,
    is_unitless,
    meant_duration,
    meant_schedule,
    over_midnight,
    surplus_advice,
)
from dovetail.values.schedule.cron import Cron, CronError, parse_cron
from dovetail.values.schedule.instants import complement, since
from dovetail.values.schedule.window import Window
from dovetail.values.timestamp import spoken_time

SEPARATOR = ";"
MAX_EXPRESSIONS = 64
DEFAULT_DURATION = HOUR
SHORTEST, LONGEST = MINUTE, 7 * DAY
_GONE = "the pod is finished or terminating"


class AnnotationFault(NamedTuple):
    """A bad annotation: which one, what is wrong, and what to write instead."""

    rule: str
    annotation: str
    message: str
    remedy: str

    @property
    def severity(self) -> Severity:
        """What is not read is no mistake where it is."""
        return Severity.WARNING if self.rule == NOT_IN_FORCE else Severity.ERROR


# -- do-not-disrupt ---------------------------------------------------------------------------------------------------


class DoNotDisrupt(NamedTuple):
    """A parsed do-not-disrupt value: protected for good, for a span from creation, or not at all."""

    protects: bool
    span_ns: int | None
    fault: AnnotationFault | None = None


def read_do_not_disrupt(value: str, *, unreadable_protects: bool = True, durations: bool = True) -> DoNotDisrupt:
    """Parses the value. An invalid value protects for good (R2–R4); Karpenter ignores it.

    `durations`: whether they count, so that a remedy may name one.
    """
    return _read_do_not_disrupt(value[: limits.DURATION + 1], unreadable_protects, durations)


def read_by(settings: RuleSettings, value: str) -> DoNotDisrupt:
    """The value on a pod, as whoever decides reads it; what it says of durations says `do_not_disrupt`."""
    return read_do_not_disrupt(
        value, unreadable_protects=settings.unreadable_protects, durations=settings.reads_durations
    )


def read_on_node(settings: RuleSettings, value: str) -> DoNotDisrupt:
    return read_do_not_disrupt(value, durations=settings.node_durations)


@lru_cache(maxsize=4096)
def _read_do_not_disrupt(value: str, unreadable_protects: bool, durations: bool) -> DoNotDisrupt:
    if value == "true":
        return DoNotDisrupt(protects=True, span_ns=None)
    if value == "false":
        return DoNotDisrupt(protects=False, span_ns=None)
    try:
        span_ns = parse_duration(value)
        if span_ns > 0:
            return DoNotDisrupt(protects=True, span_ns=span_ns)
        wrong = f"{shown(value)} is not a positive duration"
    except DurationTooLong as error:
        wrong = str(error)
    except DurationError:
        wrong = f"{shown(value)} is neither {_WANTED if durations else _WANTED_BEFORE}"
    fault = AnnotationFault(
        names.EventReason.INVALID_DO_NOT_DISRUPT,
        names.DO_NOT_DISRUPT,
        f"{wrong}; {'the pod is protected indefinitely' if unreadable_protects else _IGNORED}",
        _do_not_disrupt_remedy(value, durations=durations),
    )
    return DoNotDisrupt(protects=unreadable_protects, span_ns=None, fault=fault)


_WANTED = '"true", "false" nor a duration such as "4h"'
_DURATIONS_SINCE = ".".join(map(str, DURATIONS_SINCE))
_WANTED_BEFORE = f'"true" nor "false", and durations count from Karpenter {_DURATIONS_SINCE} on'
_IGNORED = "Karpenter ignores it, so nothing protects the pod, which Dovetail would protect indefinitely"


_YES = frozenset({"true", "yes", "y", "on", "enabled", "always", "t"})
_NO = frozenset({"false", "no", "n", "off", "disabled", "none", "f", "", "0", "0s", "0m", "0h"})


def _do_not_disrupt_remedy(value: str, *, durations: bool) -> str:
    """What to write instead of a value that is not true, false or a positive duration."""
    word = value.strip().strip("\"'")
    if word.lower() in _YES:
        return 'write "true", in lower case and in quotes'
    if word.lower() in _NO:
        other = 'give a positive duration such as "4h"' if durations else 'write "true"'
        return f"remove the annotation if the pod needs no protection, or {other}"
    near = meant_duration(word)
    if not durations:
        over = f"after {near}" if near else "when its time is over" if is_unitless(word) else ""
        return f'write "true", and remove it {over}' if over else 'write "true" or "false"'
    if is_unitless(word):
        return add_unit(word)
    return f'write "{near}"' if near else 'write "true", "false" or a positive Go duration such as "4h"'


def add_unit(number: str) -> str:
    """What to write instead of a number without a unit: nobody knows which one was meant."""
    return f'add the unit: "{number}h", "{number}m" or "{number}s"'


def do_not_disrupt(pod: PodRecord, now: datetime) -> Verdict:
    """Protected for good, or until creation plus the span (R2–R4)."""
    rule, value = Rule.DO_NOT_DISRUPT, pod.annotations.get(names.DO_NOT_DISRUPT)
    if value is None:
        return allow(rule, pod.object, "not annotated")
    if not pod.active:
        return allow(rule, pod.object, _GONE)
    hold = own_hold(pod.annotations)
    settings = pod.settings
    if hold is not None:
        held = f"held by Dovetail until {spoken_time(hold.until)}, for its schedule"
        if settings.is_in_drain:
            return judge(rule, pod.object, since(hold.until), now, allowed=f"was {held}", blocked=held)
        return allow(rule, pod.object, held)
    meaning = read_by(settings, value)
    if meaning.fault is not None and meaning.protects:
        return refuse(rule, pod.object, meaning.fault.message)
    if meaning.fault is not None:
        return allow(rule, pod.object, meaning.fault.message, remark=Remark.MISTAKE)
    if not meaning.protects:
        return allow(rule, pod.object, 'annotated "false"')
    if meaning.span_ns is None:
        return refuse(rule, pod.object, "protected until the annotation is removed")
    if not settings.reads_durations:
        return allow(
            rule, pod.object, f"not in force: {_ignored_duration(settings.decider)}", remark=Remark.NOT_IN_FORCE
        )
    return _protected_for(rule, pod.object, meaning.span_ns, pod.protected_from, now, beginning=settings.durations)


def _ignored_duration(decider: Decider) -> str:
    theirs = decider.controller is DecidingController.KARPENTER
    return (
        f"{decider.name if theirs else _THE_DRAIN} ignores durations, which count from Karpenter {_DURATIONS_SINCE} on"
    )


def own_hold(annotations: Mapping[str, str]) -> PodHold | None:
    """The hold of ours on a pod, unless a user has written another do-not-disrupt since."""
    text = annotations.get(names.POD_HOLD)
    hold = None if text is None else read_pod_hold(text)
    return hold if hold is not None and hold.value == annotations.get(names.DO_NOT_DISRUPT) else None


def node_do_not_disrupt(node: NodeRecord, now: datetime) -> Verdict:
    """On a Node only "true" and positive durations count (R6). A hold of ours is no protection by a user."""
    rule, value = Rule.NODE_DO_NOT_DISRUPT, node.do_not_disrupt
    if value is None:
        return allow(rule, node.object, "not annotated")
    if node.hold is not None:
        return allow(rule, node.object, node.hold.sentence)
    meaning = read_do_not_disrupt(value)
    if meaning.fault is not None or not meaning.protects:
        return allow(rule, node.object, f"{shown(value)} on a Node blocks nothing")
    if meaning.span_ns is None:
        return refuse(rule, node.object, "protected until the annotation is removed")
    if not node.settings.node_durations:
        message = f'not in force: Karpenter reads only "true" on a Node, not {shown(value)}'
        return allow(rule, node.object, message, remark=Remark.NOT_IN_FORCE)
    return _protected_for(rule, node.object, meaning.span_ns, node.created_at, now)


def _protected_for(
    rule: Rule,
    object_: Ref,
    span_ns: int,
    begins_at: datetime | None,
    now: datetime,
    *,
    beginning: SpanStart = SpanStart.CREATION,
) -> Verdict:
    span = short_duration(span_ns)
    if begins_at is None:
        return refuse(rule, object_, f"protected for {span} from its {beginning}, which is still to come")
    ends_at = add(begins_at, span_ns)
    if ends_at is None:
        return refuse(rule, object_, f"protected for {span} from its {beginning}, beyond the end of the calendar")
    return judge(
        rule,
        object_,
        since(ends_at),
        now,
        allowed=f"its protection of {span} from {beginning} ended {spoken_time(ends_at)}",
        blocked=f"protected for {span} from {beginning}, until {spoken_time(ends_at)}",
    )


# -- schedules --------------------------------------------------------------------------------------------------------


class ScheduleKind(Enum):
    """The two kinds of schedules: when a pod can be disrupted, and when it cannot (R7)."""

    ALLOW = (names.DISRUPTION_SCHEDULE, names.DISRUPTION_SCHEDULE_DURATION)
    BLOCK = (names.DISRUPTION_BLOCK_SCHEDULE, names.DISRUPTION_BLOCK_DURATION)


class PodSchedule(NamedTuple):
    """A pod's windows (None: no schedule applies), and the faults in their text."""

    window: Window | None
    expressions: tuple[tuple[Cron, int], ...] = ()
    faults: tuple[AnnotationFault, ...] = ()


def read_schedule(kind: ScheduleKind, annotations: Mapping[str, str]) -> PodSchedule:
    """Parses the windows of this kind from a pod's annotations (R8–R11)."""
    if not annotations:
        return _NO_SCHEDULE
    schedule, duration = annotations.get(kind.value[0]), annotations.get(kind.value[1])
    if schedule is None and duration is None:
        return _NO_SCHEDULE
    longest = limits.SCHEDULE + 1
    return _read_schedule(kind, schedule and schedule[:longest], duration and duration[:longest])


_NO_SCHEDULE = PodSchedule(window=None)


@lru_cache(maxsize=4096)
def _read_schedule(kind: ScheduleKind, schedule: str | None, duration: str | None) -> PodSchedule:
    if not schedule:
        ignored = _fault(kind.value[1], "a duration without a schedule is ignored", f"add {kind.value[0]}")
        return PodSchedule(window=None, faults=(ignored,) if duration else ())
    texts, too_long = schedule.split(SEPARATOR, MAX_EXPRESSIONS), len(schedule) > limits.SCHEDULE
    if too_long or len(texts) > MAX_EXPRESSIONS:
        most = f"{limits.SCHEDULE} characters" if too_long else f"{MAX_EXPRESSIONS} expressions"
        too_much = _no_schedule_left(kind, f"the schedule has more than {most}", _CRON_REMEDY)
        return PodSchedule(window=None, faults=(too_much,))
    durations, faults = _durations(kind, duration, len(texts))
    expressions: list[tuple[Cron, int]] = []
    remedy = ""
    for text, span_ns in zip(texts, durations, strict=True):
        try:
            expressions.append((parse_cron(text.strip()), span_ns))
        except CronError as error:
            remedy = remedy or _schedule_remedy(kind, texts, duration)  # the same for all expressions
            if len(texts) == 1:
                left = _no_schedule_left(kind, str(error), remedy)
                return PodSchedule(window=None, faults=(*faults, left))
            faults.append(_fault(kind.value[0], f"{error}; this expression is dropped", remedy))
    if not expressions:
        left = _no_schedule_left(kind, "no valid expression is left", remedy)
        faults.append(left)
        return PodSchedule(window=None, faults=tuple(faults))
    return PodSchedule(Window(expressions), tuple(expressions), tuple(faults))


_CRON_REMEDY = "write five cron fields, optionally after CRON_TZ=Area/City, such as 0 2 * * 6"


def _schedule_remedy(kind: ScheduleKind, texts: Sequence[str], duration: str | None) -> str:
    """The whole value to write instead, if it is evident what was meant."""
    meant = [meant_schedule(text) for text in texts]
    if None in meant:
        return surplus_advice(texts) + _CRON_REMEDY
    written, spans = [], [_span(part) for part in (duration or "").split(SEPARATOR)]
    spans = spans * len(texts) if len(spans) == 1 else spans
    for schedule, span_ns in zip(filter(None, meant), spans, strict=False):
        if not is_length_of(span_ns, schedule):
            return over_midnight(schedule, kind.value[1], quote='"') if len(texts) == 1 else _CRON_REMEDY
        written.append(schedule.text)
    if len(written) < len(texts):
        return _CRON_REMEDY
    (first, *others) = filter(None, meant)
    until = f", which opens it from {first.hours}" if first.hours and not others else ""
    return f'write "{SEPARATOR.join(written)}"{until}'


def _span(text: str) -> int | None:
    try:
        return parse_duration(meant_duration(text) or text.strip())
    except DurationError:
        return None


_DURATION_REMEDY = "write a Go duration from 1m to 168h, or one for each expression separated by ;"


def _durations(kind: ScheduleKind, text: str | None, count: int) -> tuple[list[int], list[AnnotationFault]]:
    """An invalid duration counts as 1h, but a block window that is too long counts as 7 days (R11)."""
    if not text:
        return [DEFAULT_DURATION] * count, []
    parts, too_long = text.split(SEPARATOR, MAX_EXPRESSIONS), len(text) > limits.SCHEDULE
    if too_long or len(parts) not in {1, count}:
        wrong = (
            f"more than {limits.SCHEDULE} characters" if too_long else f"{len(parts)} durations for {count} expressions"
        )
        wrong = f"{wrong}; each counts as 1h"
        return [DEFAULT_DURATION] * count, [_fault(kind.value[1], wrong, _DURATION_REMEDY)]
    spans, faults = [], []
    for part in parts:
        span_ns, wrong = _duration(kind, part.strip())
        spans.append(span_ns)
        if wrong:
            faults.append(_fault(kind.value[1], wrong, _duration_remedy(parts)))
    return spans * count if len(parts) == 1 else spans, faults


def _duration_remedy(parts: Sequence[str]) -> str:
    """The whole value to write instead, if it is evident what was meant."""
    if len(parts) == 1 and is_unitless(parts[0]):
        return add_unit(parts[0].strip())
    meant = [meant_duration(part) for part in parts]
    if all(text is not None and SHORTEST <= parse_duration(text) <= LONGEST for text in meant):
        return f'write "{SEPARATOR.join(filter(None, meant))}"'
    return _DURATION_REMEDY


def _duration(kind: ScheduleKind, text: str) -> tuple[int, str]:
    try:
        span_ns = parse_duration(text)
    except DurationError as error:
        return DEFAULT_DURATION, f"{error}; it counts as 1h"
    if span_ns > LONGEST and kind is ScheduleKind.BLOCK:
        return LONGEST, f"{shown(text)} is longer than 7 days; it counts as 7 days"
    if not SHORTEST <= span_ns <= LONGEST:
        return DEFAULT_DURATION, f"{shown(text)} is not between 1 minute and 7 days; it counts as 1h"
    return span_ns, ""


def _fault(annotation: str, message: str, remedy: str) -> AnnotationFault:
    return AnnotationFault(names.EventReason.INVALID_DISRUPTION_SCHEDULE, annotation, message, remedy)


def _no_schedule_left(kind: ScheduleKind, wrong: str, remedy: str) -> AnnotationFault:
    outcome = "the pod can be disrupted at any time" if kind is ScheduleKind.ALLOW else "it blocks nothing"
    return _fault(kind.value[0], f"{wrong}; {outcome}", remedy)


def disruption_schedule(pod: PodRecord, now: datetime) -> Verdict:
    """The pod is protected outside its windows (R7–R11)."""
    if _is_unread(pod, ScheduleKind.ALLOW):
        return allow(Rule.DISRUPTION_SCHEDULE, pod.object, _unread(pod.settings), remark=Remark.NOT_IN_FORCE)
    schedule = read_schedule(ScheduleKind.ALLOW, pod.annotations)
    if schedule.window is None or not pod.active:
        return _not_in_force(Rule.DISRUPTION_SCHEDULE, pod, schedule, "no schedule")
    message = _opening(schedule.window, now, "disruption window", opens="opens", never_closes="")
    instants = schedule.window.instants
    return judge(Rule.DISRUPTION_SCHEDULE, pod.object, instants, now, allowed=message, blocked=message)


def disruption_block_schedule(pod: PodRecord, now: datetime) -> Verdict:
    """The pod is protected inside its block windows (R7)."""
    if _is_unread(pod, ScheduleKind.BLOCK):
        return allow(Rule.DISRUPTION_BLOCK_SCHEDULE, pod.object, _unread(pod.settings), remark=Remark.NOT_IN_FORCE)
    schedule = read_schedule(ScheduleKind.BLOCK, pod.annotations)
    if schedule.window is None or not pod.active:
        return _not_in_force(Rule.DISRUPTION_BLOCK_SCHEDULE, pod, schedule, "no block schedule")
    message = _opening(schedule.window, now, "block window", opens="begins", never_closes=", which never ends")
    instants = complement(schedule.window.instants)
    return judge(Rule.DISRUPTION_BLOCK_SCHEDULE, pod.object, instants, now, allowed=message, blocked=message)


_THE_DRAIN: Final = "Karpenter's drain"
_BESIDE: Final = "dovetail guard, drive or run"
_HOLDING: Final = "--hold-pods"


def _not_read(settings: RuleSettings) -> str:
    reader, needed = (_THE_DRAIN, _HOLDING) if settings.is_in_drain else ("Karpenter", _BESIDE)
    return f"{reader} does not read it; it needs {needed}"


def _unread(settings: RuleSettings) -> str:
    return f"not in force: {_not_read(settings)}"


def _is_unread(pod: PodRecord, kind: ScheduleKind) -> bool:
    """Whether it has a schedule that whoever decides does not read."""
    return not pod.settings.schedules and not pod.annotations.keys().isdisjoint(kind.value)


def _not_in_force(rule: Rule, pod: PodRecord, schedule: PodSchedule, absent: str) -> Verdict:
    if schedule.window is not None:
        return allow(rule, pod.object, _GONE)
    if schedule.faults:
        return allow(rule, pod.object, schedule.faults[-1].message, remark=Remark.MISTAKE)
    return allow(rule, pod.object, absent)


def _opening(window: Window, now: datetime, name: str, *, opens: str, never_closes: str) -> str:
    opening = window.at(now)
    if opening.open:
        return f"inside its {name}{never_closes if opening.until is None else f', until {spoken_time(opening.until)}'}"
    if opening.opens_at is None:
        return f"outside its {name}, which never {opens}{'' if window.never else ' within five years'}"
    return f"outside its {name}; next {opens} {spoken_time(opening.opens_at)}{_run_length(window, opening.opens_at)}"


def _run_length(window: Window, opens_at: datetime) -> str:
    closes_at = window.instants.until(opens_at)
    if closes_at is None:
        return ""
    microseconds = round((closes_at - opens_at).total_seconds() * 1_000_000)
    return f" for {short_duration(microseconds * MICROSECOND)}"


# -- all rules --------------------------------------------------------------------------------------------------------


class PodRule(NamedTuple):
    """A rule by which a pod protects itself, with what its readers need."""

    rule: Rule
    judge: Callable[[PodRecord, datetime], Verdict]
    applies: Callable[[PodRecord], bool]
    """Whether the pod has this protection, also if it has no effect now."""
    label: str
    """The label of metrics."""
    faults: Callable[[Mapping[str, str]], Sequence[AnnotationFault]] = lambda _: ()
    """The faults of the annotations that the rule reads."""
    other_input: Callable[[PodRecord], Hashable] | None = None
    """What the verdict depends on besides the annotations."""
    without_annotation: bool = False
    """Whether it applies to pods that have none of `names.PROTECTION_ANNOTATIONS`."""


def _do_not_disrupt_faults(annotations: Mapping[str, str]) -> list[AnnotationFault]:
    value = annotations.get(names.DO_NOT_DISRUPT)
    fault = None if value is None or own_hold(annotations) is not None else read_do_not_disrupt(value).fault
    return [] if fault is None else [fault]


def _counted_from(pod: PodRecord) -> datetime | None:
    """The instant from which a pod is protected for a span."""
    value = pod.annotations.get(names.DO_NOT_DISRUPT)
    return None if value is None or read_do_not_disrupt(value).span_ns is None else pod.protected_from


def _has_schedule(kind: ScheduleKind, pod: PodRecord) -> bool:
    schedule = read_schedule(kind, pod.annotations)
    return schedule.window is not None or bool(schedule.faults)


# In the order of R5.
POD_RULES: Final = (
    PodRule(
        Rule.DO_NOT_DISRUPT,
        do_not_disrupt,
        lambda pod: names.DO_NOT_DISRUPT in pod.annotations,
        "do-not-disrupt",
        faults=_do_not_disrupt_faults,
        other_input=_counted_from,
    ),
    PodRule(
        Rule.DISRUPTION_SCHEDULE,
        disruption_schedule,
        partial(_has_schedule, ScheduleKind.ALLOW),
        "schedule",
        faults=lambda annotations: read_schedule(ScheduleKind.ALLOW, annotations).faults,
    ),
    PodRule(
        Rule.DISRUPTION_BLOCK_SCHEDULE,
        disruption_block_schedule,
        partial(_has_schedule, ScheduleKind.BLOCK),
        "block-schedule",
        faults=lambda annotations: read_schedule(ScheduleKind.BLOCK, annotations).faults,
    ),
)
_JUDGES: Final = tuple(rule.judge for rule in POD_RULES)
_OTHER_INPUTS: Final = tuple(rule.other_input for rule in POD_RULES if rule.other_input is not None)
_WITHOUT_ANNOTATION: Final = tuple(rule.applies for rule in POD_RULES if rule.without_annotation)


def protection(pod: PodRecord, now: datetime) -> tuple[Verdict, ...]:
    """The verdict of every rule of the table, in its order."""
    return tuple([judge(pod, now) for judge in _JUDGES])


def may_be_protected(pod: PodRecord) -> bool:
    """Whether `protection` may block the pod. Most pods need no further check."""
    return bool(pod.annotations) or (bool(_WITHOUT_ANNOTATION) and any(applies(pod) for applies in _WITHOUT_ANNOTATION))


def other_inputs(pod: PodRecord) -> Hashable:
    """What the rules read besides the annotations. Pods that are equal in both get equal verdicts."""
    return tuple([read(pod) for read in _OTHER_INPUTS])


def annotation_faults(
    annotations: Mapping[str, str], settings: RuleSettings = DEFAULT_SETTINGS
) -> list[AnnotationFault]:
    """The faults of the annotations of a pod or pod template, and what whoever decides does not read."""
    if not settings.reads_protections:
        return list(_as_karpenter_reads(annotations, settings))
    return [fault for rule in POD_RULES for fault in rule.faults(annotations)]


def _as_karpenter_reads(annotations: Mapping[str, str], settings: RuleSettings) -> Iterator[AnnotationFault]:
    value = annotations.get(names.DO_NOT_DISRUPT)
    if value is not None and own_hold(annotations) is None:
        meaning = read_by(settings, value)
        if meaning.fault is not None:
            yield meaning.fault
        elif meaning.span_ns is not None and not settings.reads_durations:
            yield AnnotationFault(
                NOT_IN_FORCE,
                names.DO_NOT_DISRUPT,
                f"nothing protects the pod: {_ignored_duration(settings.decider)}",
                f'use Karpenter {_DURATIONS_SINCE} or later, dovetail guard, drive or run, or "true"',
            )
    for kind in ScheduleKind:
        key = next((key for key in kind.value if key in annotations), None)
        if key is not None:
            protected = value is not None and read_do_not_disrupt(value, unreadable_protects=False).protects
            yield AnnotationFault(
                NOT_IN_FORCE,
                key,
                _not_read(settings) if protected else f"it does not protect the pod: {_not_read(settings)}",
                f"use {_HOLDING if settings.is_in_drain else _BESIDE}"
                + ("" if protected else f', or protect the pod by {names.DO_NOT_DISRUPT}: "true"'),
            )

    for rule in POD_RULES:
        if rule.rule not in _READ_DIFFERENTLY:
            yield from rule.faults(annotations)


NOT_IN_FORCE: Final = "NotInForce"
_READ_DIFFERENTLY = frozenset({Rule.DO_NOT_DISRUPT, Rule.DISRUPTION_SCHEDULE, Rule.DISRUPTION_BLOCK_SCHEDULE})


def pod_problems(pod: PodRecord) -> list[Finding]:
    """The faults as problems of this pod."""
    return [
        Finding(
            severity=fault.severity,
            rule=fault.rule,
            object=pod.object,
            field=f"metadata.annotations[{fault.annotation}]",
            message=fault.message,
            remedy=fault.remedy,
        )
        for fault in annotation_faults(pod.annotations, pod.settings)
    ]
