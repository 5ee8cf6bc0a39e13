"""A pod's own protection: do-not-disrupt (R2–R6) and disruption schedules (R7–R14)."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.api.names import (
    DISRUPTION_BLOCK_DURATION,
    DISRUPTION_BLOCK_SCHEDULE,
    DISRUPTION_SCHEDULE,
    DISRUPTION_SCHEDULE_DURATION,
    DO_NOT_DISRUPT,
)
from dovetail.model.pod_records import PodRecord
from dovetail.rules.protection import (
    ScheduleKind,
    annotation_faults,
    disruption_block_schedule,
    disruption_schedule,
    do_not_disrupt,
    may_be_protected,
    node_do_not_disrupt,
    pod_problems,
    protection,
    read_do_not_disrupt,
    read_schedule,
)
from dovetail.rules.verdict import Rule
from dovetail.values.duration import DAY, HOUR, MINUTE, SECOND
from dovetail.values.schedule.instants import ALWAYS
from tests.harness.builders import at, node, pod

TICK = timedelta(microseconds=1)
MEBIBYTE = 1024 * 1024


# -- do-not-disrupt: the table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "span_ns"),
    [
        ("4h", 4 * HOUR),
        ("30m", 30 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("90s", 90 * SECOND),
        ("24h", DAY),
        ("1.5h", 90 * MINUTE),
        (".5h", 30 * MINUTE),
        ("+4h", 4 * HOUR),
        ("1ns", 1),
        ("100us", 100_000),
        ("100µs", 100_000),
    ],
)
def test_positive_go_duration_protects_for_that_span(value: str, span_ns: int) -> None:
    meaning = read_do_not_disrupt(value)
    assert (meaning.protects, meaning.span_ns, meaning.fault) == (True, span_ns, None)


@pytest.mark.parametrize(("value", "protects"), [("true", True), ("false", False)])
def test_true_protects_for_good_and_false_not_at_all(value: str, protects: bool) -> None:
    meaning = read_do_not_disrupt(value)
    assert (meaning.protects, meaning.span_ns, meaning.fault) == (protects, None, None)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        pytest.param("4hours", '\'4hours\' is neither "true", "false" nor a duration', id="4hours"),
        pytest.param("0", "'0' is not a positive duration", id="zero"),
        pytest.param("0s", "'0s' is not a positive duration", id="zero seconds"),
        pytest.param("-1h", "'-1h' is not a positive duration", id="negative"),
        pytest.param("", '\'\' is neither "true", "false" nor a duration', id="empty"),
        pytest.param("1d", '\'1d\' is neither "true", "false" nor a duration', id="days"),
        pytest.param("4", '\'4\' is neither "true", "false" nor a duration', id="no unit"),
        pytest.param(" 4h", '\' 4h\' is neither "true", "false" nor a duration', id="leading blank"),
        pytest.param("4h ", '\'4h \' is neither "true", "false" nor a duration', id="trailing blank"),
        pytest.param("4h\n", '\'4h\\n\' is neither "true", "false" nor a duration', id="trailing newline"),
        pytest.param("True", '\'True\' is neither "true", "false" nor a duration', id="True"),
        pytest.param("TRUE", '\'TRUE\' is neither "true", "false" nor a duration', id="TRUE"),
        pytest.param("False", '\'False\' is neither "true", "false" nor a duration', id="False"),
        pytest.param("yes", '\'yes\' is neither "true", "false" nor a duration', id="yes"),
        pytest.param("\u0664h", '\'\u0664h\' is neither "true", "false" nor a duration', id="Arabic-Indic digit"),
        pytest.param("\uff14h", '\'\uff14h\' is neither "true", "false" nor a duration', id="full-width digit"),
        pytest.param("2562048h", "'2562048h' is too long a duration", id="293 years"),
    ],
)
def test_any_other_value_protects_for_good_and_is_a_fault(value: str, wrong: str) -> None:
    meaning = read_do_not_disrupt(value)
    assert (meaning.protects, meaning.span_ns) == (True, None)
    assert meaning.fault is not None
    assert (meaning.fault.rule, meaning.fault.annotation) == ("InvalidDoNotDisrupt", DO_NOT_DISRUPT)
    assert meaning.fault.message.startswith(wrong)
    assert meaning.fault.message.endswith("; the pod is protected indefinitely")
    assert meaning.fault.remedy

    verdict = do_not_disrupt(pod(do_not_disrupt=value), at("2099-01-01T00:00:00Z"))
    assert (verdict.allowed, verdict.until, verdict.message) == (False, None, meaning.fault.message)


@pytest.mark.parametrize("value", ["9" * MEBIBYTE + "h", "h" * MEBIBYTE, "true" * (MEBIBYTE // 4)], ids=len)
def test_a_mebibyte_of_text_protects_and_is_not_repeated_to_people(value: str) -> None:
    verdict = do_not_disrupt(pod(do_not_disrupt=value), at("2026-03-07T02:00:00Z"))
    assert (verdict.allowed, verdict.until) == (False, None)
    assert len(verdict.message) < 200


def test_64_characters_of_a_duration_are_read_and_more_protect_for_good() -> None:
    meaning = read_do_not_disrupt("4h".rjust(64, "0"))
    assert (meaning.span_ns, meaning.fault) == (4 * HOUR, None)
    meaning = read_do_not_disrupt("4h".rjust(65, "0"))
    assert (meaning.protects, meaning.span_ns) == (True, None)
    assert meaning.fault is not None
    assert "has more than 64 characters; the pod is protected indefinitely" in meaning.fault.message


# -- do-not-disrupt: verdicts -----------------------------------------------------------------------------------------

CREATED = "2026-03-07T10:00:00Z"
END = at("2026-03-07T14:00:00Z")


@pytest.mark.parametrize(
    ("now", "allowed", "until"),
    [
        pytest.param(at(CREATED) - timedelta(hours=1), False, END, id="before creation (skewed clock)"),
        pytest.param(at(CREATED), False, END, id="at creation"),
        pytest.param(END - TICK, False, END, id="the last protected instant"),
        pytest.param(END, True, None, id="at the end"),
        pytest.param(END + TICK, True, None, id="after the end"),
    ],
)
def test_protection_is_half_open_from_creation(now: datetime, allowed: bool, until: datetime | None) -> None:
    verdict = do_not_disrupt(pod(do_not_disrupt="4h", created=CREATED), now)
    assert (verdict.rule, str(verdict.object)) == (Rule.DO_NOT_DISRUPT, "Pod/default/web-1")
    assert (verdict.allowed, verdict.until) == (allowed, until)
    message = (
        "its protection of 4h from creation ended 2026-03-07T14:00:00Z"
        if allowed
        else "protected for 4h from creation, until 2026-03-07T14:00:00Z"
    )
    assert verdict.message == message


def test_a_fraction_of_a_microsecond_never_ends_early() -> None:
    guarded = pod(do_not_disrupt="1ns", created=CREATED)
    assert not do_not_disrupt(guarded, at(CREATED)).allowed
    assert do_not_disrupt(guarded, at(CREATED) + TICK).allowed


def test_elapsed_protection_counts_elapsed_time_over_a_leap_day() -> None:
    guarded = pod(do_not_disrupt="24h", created="2028-02-28T12:00:00Z")
    assert do_not_disrupt(guarded, at("2028-02-28T12:00:00Z")).until == at("2028-02-29T12:00:00Z")


def test_true_is_for_good() -> None:
    verdict = do_not_disrupt(pod(do_not_disrupt="true"), at("2099-01-01T00:00:00Z"))
    assert (verdict.allowed, verdict.until) == (False, None)
    assert verdict.message == "protected until the annotation is removed"


def test_false_allows() -> None:
    verdict = do_not_disrupt(pod(do_not_disrupt="false"), at("2026-03-07T02:00:00Z"))
    assert (verdict.allowed, verdict.until, verdict.message) == (True, None, 'annotated "false"')


def test_absent_allows() -> None:
    verdict = do_not_disrupt(pod(), at("2026-03-07T02:00:00Z"))
    assert (verdict.allowed, verdict.until, verdict.message) == (True, None, "not annotated")


def test_without_creation_timestamp_the_clock_has_not_started() -> None:
    verdict = do_not_disrupt(pod(do_not_disrupt="4h", created=None), at("2099-01-01T00:00:00Z"))
    assert (verdict.allowed, verdict.until) == (False, None)
    assert verdict.message == "protected for 4h from its creation, which is still to come"


def test_an_end_beyond_the_calendar_is_never() -> None:
    verdict = do_not_disrupt(pod(do_not_disrupt="2562047h", created="9999-01-01T00:00:00Z"), END)
    assert (verdict.allowed, verdict.until) == (False, None)
    assert verdict.message.endswith("beyond the end of the calendar")


def test_an_end_decades_ahead_is_told() -> None:
    # 20 years of 365 days, five of them leap years.
    verdict = do_not_disrupt(pod(do_not_disrupt="175200h", created="2026-03-07T10:00:00Z"), END)
    assert (verdict.allowed, verdict.until) == (False, at("2046-03-02T10:00:00Z"))


GONE = [
    pytest.param("Succeeded", None, id="succeeded"),
    pytest.param("Failed", None, id="failed"),
    pytest.param("Running", "2026-03-07T12:00:00Z", id="terminating"),
]


@pytest.mark.parametrize(("phase", "deleted"), GONE)
def test_a_finished_or_terminating_pod_never_protects(phase: str, deleted: str | None) -> None:
    gone = pod(
        do_not_disrupt="true",
        schedule="0 2 * * 6",
        block_schedule="* * * * *",
        phase=phase,
        deleted=deleted,
    )
    verdicts = protection(gone, at("2026-03-04T12:00:00Z"))
    assert [verdict.allowed for verdict in verdicts] == [True, True, True]
    assert {verdict.message for verdict in verdicts} == {"the pod is finished or terminating"}


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", ""])
def test_a_pod_in_any_other_phase_protects(phase: str) -> None:
    assert not do_not_disrupt(pod(do_not_disrupt="true", phase=phase), END).allowed


@pytest.mark.parametrize("owner", ["DaemonSet", "Node", "StatefulSet", "ReplicaSet", "Job", None])
def test_every_kind_of_pod_is_treated_alike(owner: str | None) -> None:
    guarded = pod(do_not_disrupt="4h", created=CREATED, owner=owner)
    assert not do_not_disrupt(guarded, END - TICK).allowed
    assert do_not_disrupt(guarded, END).allowed


# -- do-not-disrupt on a Node (R6) ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "now", "allowed", "until"),
    [
        pytest.param("true", END, False, None, id="true"),
        pytest.param("4h", END - TICK, False, END, id="duration, before"),
        pytest.param("4h", END, True, None, id="duration, at its end"),
        pytest.param("4h", END + TICK, True, None, id="duration, after"),
        pytest.param("false", END, True, None, id="false"),
        pytest.param("4hours", at(CREATED), True, None, id="nonsense"),
        pytest.param("", at(CREATED), True, None, id="empty"),
        pytest.param("0", at(CREATED), True, None, id="zero"),
        pytest.param("-4h", at(CREATED), True, None, id="negative"),
        pytest.param("True", at(CREATED), True, None, id="capital True"),
        pytest.param(None, END, True, None, id="absent"),
    ],
)
def test_node_annotation(value: str | None, now: datetime, allowed: bool, until: datetime | None) -> None:
    verdict = node_do_not_disrupt(node(do_not_disrupt=value, created=CREATED), now)
    assert (verdict.rule, str(verdict.object)) == (Rule.NODE_DO_NOT_DISRUPT, "Node/node-1")
    assert (verdict.allowed, verdict.until) == (allowed, until)


def test_node_annotation_that_blocks_nothing_says_so() -> None:
    assert node_do_not_disrupt(node(do_not_disrupt="4hours"), END).message == "'4hours' on a Node blocks nothing"
    assert node_do_not_disrupt(node(do_not_disrupt="false"), END).message == "'false' on a Node blocks nothing"


def test_node_annotation_without_creation_timestamp_protects() -> None:
    verdict = node_do_not_disrupt(node(do_not_disrupt="4h", created=None), END)
    assert (verdict.allowed, verdict.until) == (False, None)


# -- schedules: reading (R7–R11) --------------------------------------------------------------------------------------

ALLOW, BLOCK = ScheduleKind.ALLOW, ScheduleKind.BLOCK
KINDS = pytest.mark.parametrize("kind", [ALLOW, BLOCK], ids=["allow", "block"])


def texts(kind: ScheduleKind, schedule: str | None, duration: str | None = None) -> dict[str, str]:
    pairs = zip(kind.value, (schedule, duration), strict=True)
    return {key: text for key, text in pairs if text is not None}


def spans(kind: ScheduleKind, schedule: str | None, duration: str | None = None) -> list[int]:
    return [span_ns for _, span_ns in read_schedule(kind, texts(kind, schedule, duration)).expressions]


def faults(kind: ScheduleKind, schedule: str | None, duration: str | None = None) -> list[tuple[str, str]]:
    return [(fault.annotation, fault.message) for fault in read_schedule(kind, texts(kind, schedule, duration)).faults]


def test_the_annotations_are_those_of_the_seed() -> None:
    assert ALLOW.value == ("karpenter.sh/disruption-schedule", "karpenter.sh/disruption-schedule-duration")
    assert BLOCK.value == ("karpenter.sh/disruption-block-schedule", "karpenter.sh/disruption-block-duration")


@KINDS
@pytest.mark.parametrize(
    ("schedule", "duration", "expected"),
    [
        pytest.param("0 2 * * 6", "4h", [4 * HOUR], id="one of each"),
        pytest.param("0 2 * * 6;0 3 * * 0", "4h", [4 * HOUR, 4 * HOUR], id="one duration for all"),
        pytest.param("0 2 * * 6;0 3 * * 0", "4h;2h", [4 * HOUR, 2 * HOUR], id="one duration each"),
        pytest.param(" 0 2 * * 6 ; 0 3 * * 0 ", " 4h ; 2h ", [4 * HOUR, 2 * HOUR], id="blanks around"),
        pytest.param("0 2 * * 6", None, [HOUR], id="no duration"),
        pytest.param("0 2 * * 6", "", [HOUR], id="empty duration"),
        pytest.param("0 2 * * 6;0 3 * * 0", None, [HOUR, HOUR], id="no duration for two"),
        pytest.param("@daily", "1m", [MINUTE], id="shortest"),
        pytest.param("@daily", "168h", [7 * DAY], id="longest"),
    ],
)
def test_good_schedules(kind: ScheduleKind, schedule: str, duration: str | None, expected: list[int]) -> None:
    assert spans(kind, schedule, duration) == expected
    assert faults(kind, schedule, duration) == []


@pytest.mark.parametrize(
    ("kind", "duration", "span_ns"),
    [
        pytest.param(ALLOW, "59.999999999s", HOUR, id="allow, just below a minute"),
        pytest.param(BLOCK, "59.999999999s", HOUR, id="block, just below a minute"),
        pytest.param(ALLOW, "0", HOUR, id="allow, zero"),
        pytest.param(BLOCK, "-1h", HOUR, id="block, negative"),
        pytest.param(ALLOW, "168h0m0.000000001s", HOUR, id="allow, just above 7 days"),
        pytest.param(BLOCK, "168h0m0.000000001s", 7 * DAY, id="block, just above 7 days"),
        pytest.param(ALLOW, "8760h", HOUR, id="allow, a year"),
        pytest.param(BLOCK, "8760h", 7 * DAY, id="block, a year"),
        pytest.param(ALLOW, "1d", HOUR, id="allow, days"),
        pytest.param(BLOCK, "4hours", HOUR, id="block, nonsense"),
        pytest.param(ALLOW, "true", HOUR, id="allow, true"),
        pytest.param(ALLOW, "\u0664h", HOUR, id="allow, Arabic-Indic digit"),
    ],
)
def test_bad_durations(kind: ScheduleKind, duration: str, span_ns: int) -> None:
    assert spans(kind, "0 2 * * 6", duration) == [span_ns]
    [(annotation, message)] = faults(kind, "0 2 * * 6", duration)
    assert annotation == kind.value[1]
    assert message.endswith("it counts as 7 days" if span_ns == 7 * DAY else "it counts as 1h")


def test_only_the_bad_duration_among_several_becomes_an_hour() -> None:
    assert spans(ALLOW, "0 2 * * 6;0 3 * * 0;@daily", "4h;30s;2h") == [4 * HOUR, HOUR, 2 * HOUR]
    assert faults(ALLOW, "0 2 * * 6;0 3 * * 0;@daily", "4h;30s;2h") == [
        (DISRUPTION_SCHEDULE_DURATION, "'30s' is not between 1 minute and 7 days; it counts as 1h")
    ]


@KINDS
@pytest.mark.parametrize(
    ("schedule", "duration", "count"),
    [
        pytest.param("0 2 * * 6;0 3 * * 0;@daily", "4h;2h", 3, id="two for three"),
        pytest.param("0 2 * * 6;0 3 * * 0", "4h;2h;1h", 2, id="three for two"),
        pytest.param("0 2 * * 6", "4h;2h", 1, id="two for one"),
        pytest.param("0 2 * * 6;@daily", "4h;2h;", 2, id="trailing separator"),
    ],
)
def test_a_wrong_number_of_durations_makes_each_an_hour(
    kind: ScheduleKind, schedule: str, duration: str, count: int
) -> None:
    assert spans(kind, schedule, duration) == [HOUR] * count
    given = duration.count(";") + 1
    assert faults(kind, schedule, duration) == [
        (kind.value[1], f"{given} durations for {count} expressions; each counts as 1h")
    ]


def test_as_many_durations_as_expressions_even_if_one_expression_is_bad() -> None:
    # The second duration goes with the bad expression, not with the third.
    assert spans(ALLOW, "0 2 * * 6;nonsense;@daily", "4h;2h;30m") == [4 * HOUR, 30 * MINUTE]


@KINDS
def test_one_bad_expression_among_several_is_dropped(kind: ScheduleKind) -> None:
    assert spans(kind, "0 2 * * 6;0 2 * * 8;@daily", "4h") == [4 * HOUR, 4 * HOUR]
    [(annotation, message)] = faults(kind, "0 2 * * 6;0 2 * * 8;@daily", "4h")
    assert annotation == kind.value[0]
    assert message.endswith("; this expression is dropped")


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        pytest.param(ALLOW, "the pod can be disrupted at any time", id="allow"),
        pytest.param(BLOCK, "it blocks nothing", id="block"),
    ],
)
@pytest.mark.parametrize(
    "schedule",
    [
        "nonsense",
        "0 2 * *",
        "0 0 2 * * 6",
        "0 22-6 * * *",
        "0 0 * * FRI-SUN",
        "0 0 L * *",
        "0 0 15W * *",
        "0 0 * * 1#2",
        "*/0 * * * *",
        "@every 1h",
        "@reboot",
        "CRON_TZ=Mars/Olympus 0 2 * * 6",
        "CRON_TZ=Europe/Berlin",
        "0 24 * * *",
        "60 2 * * *",
        "0 2 0 * *",
        "0 2 * 13 *",
        "0 2 * * 8",
        " ",
        ";",
        "nonsense;0 2 * * 8",
    ],
)
def test_without_a_valid_expression_there_is_no_schedule(kind: ScheduleKind, outcome: str, schedule: str) -> None:
    read = read_schedule(kind, texts(kind, schedule, "4h"))
    assert read.window is None
    # A single expression's fault says all; of several, each has its own and then the whole.
    several = schedule.count(";")
    assert len(read.faults) == (several + 2 if several else 1)
    assert {(fault.rule, fault.annotation) for fault in read.faults} == {("InvalidDisruptionSchedule", kind.value[0])}
    assert read.faults[-1].message.endswith(f"; {outcome}")
    if several:
        assert all(fault.message.endswith("; this expression is dropped") for fault in read.faults[:-1])
        assert read.faults[-1].message == f"no valid expression is left; {outcome}"


def test_a_bad_duration_is_told_even_if_the_expression_is_bad_too() -> None:
    assert [annotation for annotation, _ in faults(ALLOW, "nonsense", "1d")] == [
        DISRUPTION_SCHEDULE_DURATION,
        DISRUPTION_SCHEDULE,
    ]


@KINDS
def test_64_expressions_are_read_and_65_are_too_many(kind: ScheduleKind) -> None:
    expressions = [f"{minute} 2 * * *" for minute in range(60)] + [f"{minute} 3 * * *" for minute in range(5)]
    assert spans(kind, ";".join(expressions[:64]), "4h") == [4 * HOUR] * 64
    assert spans(kind, ";".join(expressions[:64]), ";".join(["4h"] * 64)) == [4 * HOUR] * 64
    assert faults(kind, ";".join(expressions[:64]), ";".join(["4h"] * 64)) == []
    read = read_schedule(kind, texts(kind, ";".join(expressions)))
    assert read.window is None
    assert [fault.message.split(";")[0] for fault in read.faults] == ["the schedule has more than 64 expressions"]


@KINDS
def test_4_kib_of_text_are_read_and_more_is_too_much(kind: ScheduleKind) -> None:
    longest = "0 02 * * 6" + ",6" * (2 * 1024 - 5)
    assert len(longest) == 4 * 1024
    assert spans(kind, longest) == [HOUR]
    read = read_schedule(kind, texts(kind, longest + " "))
    assert read.window is None
    assert [fault.message.split(";")[0] for fault in read.faults] == ["the schedule has more than 4096 characters"]


@KINDS
def test_4_kib_of_durations_are_read_and_more_is_too_much(kind: ScheduleKind) -> None:
    longest = "2h".ljust(4096)
    assert spans(kind, "0 2 * * 6", longest) == [2 * HOUR]
    assert spans(kind, "0 2 * * 6", longest + " ") == [HOUR]
    [(annotation, message)] = faults(kind, "0 2 * * 6", longest + " ")
    assert (annotation, message) == (kind.value[1], "more than 4096 characters; each counts as 1h")


def test_many_blanks_are_read() -> None:
    assert spans(ALLOW, "0 2 * * " + " " * 4000 + "6") == [HOUR]


@KINDS
@pytest.mark.parametrize("letter", [";", "0", "*", "h"])
def test_a_mebibyte_of_anything_is_a_fault(kind: ScheduleKind, letter: str) -> None:
    text = letter * MEBIBYTE
    assert read_schedule(kind, texts(kind, text)).window is None
    assert all(len(message) < 300 for _, message in faults(kind, text, text))
    assert spans(kind, "0 2 * * 6", text) == [HOUR]
    [(annotation, message)] = faults(kind, "0 2 * * 6", text)
    assert annotation == kind.value[1]
    assert len(message) < 300


@KINDS
@pytest.mark.parametrize("schedule", [None, ""], ids=["absent", "empty"])
def test_a_duration_without_a_schedule_is_ignored_with_a_fault(kind: ScheduleKind, schedule: str | None) -> None:
    assert read_schedule(kind, texts(kind, schedule, "4h")).window is None
    assert faults(kind, schedule, "4h") == [(kind.value[1], "a duration without a schedule is ignored")]


@KINDS
@pytest.mark.parametrize(
    ("schedule", "duration"), [(None, None), ("", None), (None, ""), ("", "")], ids=["absent", "", "d", "both"]
)
def test_nothing_written_is_no_schedule_and_no_fault(
    kind: ScheduleKind, schedule: str | None, duration: str | None
) -> None:
    read = read_schedule(kind, texts(kind, schedule, duration))
    assert (read.window, read.faults) == (None, ())


def test_each_kind_reads_only_its_own_annotations() -> None:
    both = {DISRUPTION_SCHEDULE: "0 2 * * 6", DISRUPTION_BLOCK_DURATION: "4h"}
    assert [span_ns for _, span_ns in read_schedule(ALLOW, both).expressions] == [HOUR]
    assert read_schedule(BLOCK, both).window is None


# -- schedules: verdicts ----------------------------------------------------------------------------------------------

# 2026-03-07 is a Saturday.
SATURDAY = pod(schedule="0 2 * * 6", duration="6h")


@pytest.mark.parametrize(
    ("now", "allowed", "until", "message"),
    [
        pytest.param(
            "2026-03-07T01:59:59.999999Z",
            False,
            "2026-03-07T02:00:00Z",
            "outside its disruption window; next opens 2026-03-07T02:00:00Z for 6h",
            id="the last instant before",
        ),
        pytest.param(
            "2026-03-07T02:00:00Z",
            True,
            "2026-03-07T08:00:00Z",
            "inside its disruption window, until 2026-03-07T08:00:00Z",
            id="as it opens",
        ),
        pytest.param(
            "2026-03-07T07:59:59.999999Z",
            True,
            "2026-03-07T08:00:00Z",
            "inside its disruption window, until 2026-03-07T08:00:00Z",
            id="the last instant inside",
        ),
        pytest.param(
            "2026-03-07T08:00:00Z",
            False,
            "2026-03-14T02:00:00Z",
            "outside its disruption window; next opens 2026-03-14T02:00:00Z for 6h",
            id="as it closes",
        ),
        pytest.param(
            "2026-03-02T12:00:00Z",
            False,
            "2026-03-07T02:00:00Z",
            "outside its disruption window; next opens 2026-03-07T02:00:00Z for 6h",
            id="the Monday before",
        ),
    ],
)
def test_allow_window(now: str, allowed: bool, until: str, message: str) -> None:
    verdict = disruption_schedule(SATURDAY, at(now))
    assert (verdict.rule, str(verdict.object)) == (Rule.DISRUPTION_SCHEDULE, "Pod/default/web-1")
    assert (verdict.allowed, verdict.until, verdict.message) == (allowed, at(until), message)


BUSINESS = pod(block_schedule="0 9 * * 1-5", block_duration="8h")


@pytest.mark.parametrize(
    ("now", "allowed", "until", "message"),
    [
        pytest.param(
            "2026-03-09T08:59:59.999999Z",
            True,
            "2026-03-09T09:00:00Z",
            "outside its block window; next begins 2026-03-09T09:00:00Z for 8h",
            id="the last instant before",
        ),
        pytest.param(
            "2026-03-09T09:00:00Z",
            False,
            "2026-03-09T17:00:00Z",
            "inside its block window, until 2026-03-09T17:00:00Z",
            id="as it begins",
        ),
        pytest.param(
            "2026-03-09T16:59:59.999999Z",
            False,
            "2026-03-09T17:00:00Z",
            "inside its block window, until 2026-03-09T17:00:00Z",
            id="the last instant inside",
        ),
        pytest.param(
            "2026-03-13T17:00:00Z",
            True,
            "2026-03-16T09:00:00Z",
            "outside its block window; next begins 2026-03-16T09:00:00Z for 8h",
            id="Friday as it ends",
        ),
    ],
)
def test_block_window(now: str, allowed: bool, until: str, message: str) -> None:
    verdict = disruption_block_schedule(BUSINESS, at(now))
    assert (verdict.rule, str(verdict.object)) == (Rule.DISRUPTION_BLOCK_SCHEDULE, "Pod/default/web-1")
    assert (verdict.allowed, verdict.until, verdict.message) == (allowed, at(until), message)


NOW = at("2026-03-04T12:00:00Z")  # a Wednesday


@pytest.mark.parametrize(
    ("subject", "allowed", "message"),
    [
        pytest.param(pod(), True, "no schedule", id="none"),
        pytest.param(pod(schedule=""), True, "no schedule", id="empty"),
        pytest.param(pod(duration="4h"), True, "a duration without a schedule is ignored", id="duration only"),
        pytest.param(
            pod(schedule="0 2 * * 8;0 2 * * 9"),
            True,
            "no valid expression is left; the pod can be disrupted at any time",
            id="bad cron fails open",
        ),
        pytest.param(
            pod(schedule="0 0 31 2 *", duration="4h"),
            False,
            "outside its disruption window, which never opens",
            id="February 31 protects for good",
        ),
        pytest.param(
            pod(schedule="0 0 * * *", duration="24h"), True, "inside its disruption window", id="24h every 24h"
        ),
        pytest.param(
            pod(schedule="0 0 * * *;0 12 * * *", duration="12h"), True, "inside its disruption window", id="two halves"
        ),
    ],
)
def test_allow_schedules_that_no_clock_changes(subject: PodRecord, allowed: bool, message: str) -> None:
    verdict = disruption_schedule(subject, NOW)
    assert (verdict.allowed, verdict.until, verdict.message) == (allowed, None, message)


@pytest.mark.parametrize(
    ("subject", "allowed", "message"),
    [
        pytest.param(pod(), True, "no block schedule", id="none"),
        pytest.param(pod(block_duration="4h"), True, "a duration without a schedule is ignored", id="duration only"),
        pytest.param(
            pod(block_schedule="0 2 * * 8;nonsense"),
            True,
            "no valid expression is left; it blocks nothing",
            id="bad cron",
        ),
        pytest.param(
            pod(block_schedule="0 0 31 2 *", block_duration="4h"),
            True,
            "outside its block window, which never begins",
            id="February 31",
        ),
        pytest.param(
            pod(block_schedule="@weekly", block_duration="8760h"),
            False,
            "inside its block window, which never ends",
            id="clamped to 7 days of 7",
        ),
    ],
)
def test_block_schedules_that_no_clock_changes(subject: PodRecord, allowed: bool, message: str) -> None:
    verdict = disruption_block_schedule(subject, NOW)
    assert (verdict.allowed, verdict.until, verdict.message) == (allowed, None, message)


def test_a_block_window_above_7_days_blocks_for_7_days() -> None:
    monthly = pod(block_schedule="@monthly", block_duration="10000h")
    assert disruption_block_schedule(monthly, at("2026-03-01T00:00:00Z")).until == at("2026-03-08T00:00:00Z")
    assert not disruption_block_schedule(monthly, at("2026-03-07T23:59:59.999999Z")).allowed
    assert disruption_block_schedule(monthly, at("2026-03-08T00:00:00Z")).allowed


def test_an_allow_window_above_7_days_is_an_hour() -> None:
    monthly = pod(schedule="@monthly", duration="10000h")
    assert disruption_schedule(monthly, at("2026-03-01T00:00:00Z")).until == at("2026-03-01T01:00:00Z")


@pytest.mark.parametrize(
    ("now", "allowed", "until"),
    [
        # Saturday 02:00 for 4h and Saturday 05:00 for 2h are one run; Sunday 12:00 for 2h another.
        pytest.param("2026-03-07T01:00:00Z", False, "2026-03-07T02:00:00Z", id="before both"),
        pytest.param("2026-03-07T02:00:00Z", True, "2026-03-07T07:00:00Z", id="merged run ends at its true end"),
        pytest.param("2026-03-07T06:30:00Z", True, "2026-03-07T07:00:00Z", id="only the second open"),
        pytest.param("2026-03-07T07:00:00Z", False, "2026-03-08T12:00:00Z", id="between the runs"),
        pytest.param("2026-03-08T13:59:59Z", True, "2026-03-08T14:00:00Z", id="in the third"),
        pytest.param("2026-03-08T14:00:00Z", False, "2026-03-14T02:00:00Z", id="until next week"),
    ],
)
def test_several_windows(now: str, allowed: bool, until: str) -> None:
    several = pod(schedule="0 2 * * 6;0 5 * * 6;0 12 * * 0", duration="4h;2h;2h")
    verdict = disruption_schedule(several, at(now))
    assert (verdict.allowed, verdict.until) == (allowed, at(until))


def test_the_message_speaks_of_the_merged_run() -> None:
    several = pod(schedule="0 2 * * 6;0 5 * * 6", duration="4h;2h")
    message = disruption_schedule(several, at("2026-03-07T01:00:00Z")).message
    assert message == "outside its disruption window; next opens 2026-03-07T02:00:00Z for 5h"


@pytest.mark.parametrize(
    ("schedule", "duration", "now", "allowed", "until"),
    [
        pytest.param(
            "0 22 * * *", "8h", "2026-12-31T23:30:00Z", True, "2027-01-01T06:00:00Z", id="over the end of the year"
        ),
        pytest.param("@yearly", "1h", "2026-12-31T23:59:59Z", False, "2027-01-01T00:00:00Z", id="New Year"),
        pytest.param("0 0 29 2 *", "24h", "2026-03-04T12:00:00Z", False, "2028-02-29T00:00:00Z", id="next leap day"),
        pytest.param("0 0 29 2 *", "24h", "2028-02-29T23:59:59Z", True, "2028-03-01T00:00:00Z", id="leap day's end"),
        pytest.param("0 0 29 2 *", "24h", "2028-03-01T00:00:00Z", False, "2032-02-29T00:00:00Z", id="four years on"),
        pytest.param("0 0 29 2 *", "24h", "2096-03-01T00:00:00Z", False, None, id="no leap day in 2100"),
        pytest.param("0 0 28 2 *", "48h", "2028-02-29T12:00:00Z", True, "2028-03-01T00:00:00Z", id="into the leap day"),
        pytest.param("0 0 28 2 *", "48h", "2027-03-01T12:00:00Z", True, "2027-03-02T00:00:00Z", id="without leap day"),
        pytest.param("0 0 31 * *", "1h", "2026-03-31T01:00:00Z", False, "2026-05-31T00:00:00Z", id="April has 30"),
        pytest.param("0 0 13 * 5", "1h", "2026-03-04T12:00:00Z", False, "2026-03-06T00:00:00Z", id="13th or Friday"),
        pytest.param("0 0 * * 7", "1h", "2026-03-04T12:00:00Z", False, "2026-03-08T00:00:00Z", id="Sunday is 7"),
        pytest.param("0 0 ? * SUN", "1h", "2026-03-04T12:00:00Z", False, "2026-03-08T00:00:00Z", id="question mark"),
    ],
)
def test_calendar(schedule: str, duration: str, now: str, allowed: bool, until: str | None) -> None:
    verdict = disruption_schedule(pod(schedule=schedule, duration=duration), at(now))
    assert (verdict.allowed, verdict.until) == (allowed, None if until is None else at(until))


def test_a_window_that_the_calendar_ends_in_has_no_length() -> None:
    last = pod(schedule="0 0 31 12 *", duration="168h")
    message = disruption_schedule(last, at("9999-12-30T00:00:00Z")).message
    assert message == "outside its disruption window; next opens 9999-12-31T00:00:00Z"
    assert disruption_schedule(last, at("9999-12-31T12:00:00Z")).until is None


@pytest.mark.parametrize(
    ("schedule", "duration", "now", "allowed", "until"),
    [
        pytest.param(
            "CRON_TZ=Europe/Berlin 0 2 * * 6", "4h", "2026-03-07T00:59:59Z", False, "2026-03-07T01:00:00Z", id="winter"
        ),
        pytest.param(
            "TZ=Europe/Berlin 0 2 * * 6", "4h", "2026-07-04T00:00:00Z", True, "2026-07-04T04:00:00Z", id="summer, TZ="
        ),
        pytest.param(
            # 02:30 does not exist on 2026-03-29: it fires at 03:00 CEST, which is 01:00Z, for one elapsed hour.
            "CRON_TZ=Europe/Berlin 30 2 29 3 *",
            "1h",
            "2026-03-29T00:59:59Z",
            False,
            "2026-03-29T01:00:00Z",
            id="in the skipped hour",
        ),
        pytest.param(
            "CRON_TZ=Europe/Berlin 30 2 29 3 *",
            "1h",
            "2026-03-29T01:00:00Z",
            True,
            "2026-03-29T02:00:00Z",
            id="after the gap for one hour",
        ),
        pytest.param(
            # 02:30 comes twice on 2026-10-25, at 00:30Z and 01:30Z: a restricted hour fires the first time only.
            "CRON_TZ=Europe/Berlin 30 2 25 10 *",
            "30m",
            "2026-10-25T00:30:00Z",
            True,
            "2026-10-25T01:00:00Z",
            id="the first of the repeated hour",
        ),
        pytest.param(
            "CRON_TZ=Europe/Berlin 30 2 25 10 *",
            "30m",
            "2026-10-25T01:30:00Z",
            False,
            "2027-10-25T00:30:00Z",
            id="not the second",
        ),
        pytest.param(
            "CRON_TZ=Europe/Berlin 30 * 25 10 *",
            "30m",
            "2026-10-25T01:30:00Z",
            True,
            "2026-10-25T02:00:00Z",
            id="both if the hour is free",
        ),
        pytest.param(
            # Saturday 22:00 CET to Sunday: eight elapsed hours end at 07:00 CEST, 05:00Z.
            "CRON_TZ=Europe/Berlin 0 22 * * 6",
            "8h",
            "2026-03-29T04:59:59Z",
            True,
            "2026-03-29T05:00:00Z",
            id="elapsed time over the gap",
        ),
        pytest.param(
            "CRON_TZ=America/New_York 0 2 * * 6;CRON_TZ=Asia/Kolkata 0 2 * * 6",
            "1h",
            "2026-03-06T20:30:00Z",
            True,
            "2026-03-06T21:30:00Z",
            id="each expression has its zone",
        ),
        pytest.param(
            "CRON_TZ=Pacific/Kiritimati 0 0 * * 6",
            "1h",
            "2026-03-06T10:00:00Z",
            True,
            "2026-03-06T11:00:00Z",
            id="14 hours ahead, still Friday in UTC",
        ),
    ],
)
def test_time_zones(schedule: str, duration: str, now: str, allowed: bool, until: str) -> None:
    verdict = disruption_schedule(pod(schedule=schedule, duration=duration), at(now))
    assert (verdict.allowed, verdict.until) == (allowed, at(until))


# -- all of them together (R5, R7, R12) -------------------------------------------------------------------------------


def test_the_order_is_do_not_disrupt_then_schedules() -> None:
    assert [verdict.rule for verdict in protection(pod(), NOW)] == [
        Rule.DO_NOT_DISRUPT,
        Rule.DISRUPTION_SCHEDULE,
        Rule.DISRUPTION_BLOCK_SCHEDULE,
    ]


def allowed_by(subject: PodRecord, now: str) -> list[bool]:
    return [verdict.allowed for verdict in protection(subject, at(now))]


def test_active_do_not_disrupt_wins_over_an_open_window() -> None:
    guarded = pod(do_not_disrupt="true", schedule="0 2 * * 6", duration="6h")
    assert allowed_by(guarded, "2026-03-07T03:00:00Z") == [False, True, True]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param("2026-03-07T03:59:59.999999Z", [False, True, True], id="protected, inside its window"),
        pytest.param("2026-03-07T04:00:00Z", [True, True, True], id="elapsed, inside its window"),
        pytest.param("2026-03-07T08:00:00Z", [True, False, True], id="elapsed, the window has closed"),
        pytest.param("2026-03-14T02:00:00Z", [True, True, True], id="elapsed, the next window"),
    ],
)
def test_when_do_not_disrupt_has_elapsed_the_schedule_governs(now: str, expected: list[bool]) -> None:
    guarded = pod(do_not_disrupt="4h", schedule="0 2 * * 6", duration="6h", created="2026-03-07T00:00:00Z")
    assert allowed_by(guarded, now) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param("2026-03-07T01:00:00Z", [True, False, True], id="outside both"),
        pytest.param("2026-03-07T02:00:00Z", [True, True, True], id="inside the allow window only"),
        pytest.param("2026-03-07T04:00:00Z", [True, True, False], id="inside both"),
        pytest.param("2026-03-07T05:00:00Z", [True, True, True], id="the block window has ended"),
        pytest.param("2026-03-08T04:00:00Z", [True, False, False], id="inside the block window only"),
    ],
)
def test_with_both_schedules_both_must_allow(now: str, expected: list[bool]) -> None:
    both = pod(schedule="0 2 * * 6", duration="6h", block_schedule="0 4 * * *", block_duration="1h")
    assert allowed_by(both, now) == expected


# -- what is wrong ----------------------------------------------------------------------------------------------------


def test_all_faults_of_a_pod_are_problems_with_their_fields() -> None:
    wrong = pod(do_not_disrupt="4hours", schedule="0 2 * * 8;0 2 * * 6", duration="1d", block_duration="4h")
    found = [(problem.rule, str(problem.object), problem.field) for problem in pod_problems(wrong)]
    assert found == [
        ("InvalidDoNotDisrupt", "Pod/default/web-1", f"metadata.annotations[{DO_NOT_DISRUPT}]"),
        ("InvalidDisruptionSchedule", "Pod/default/web-1", f"metadata.annotations[{DISRUPTION_SCHEDULE_DURATION}]"),
        ("InvalidDisruptionSchedule", "Pod/default/web-1", f"metadata.annotations[{DISRUPTION_SCHEDULE}]"),
        ("InvalidDisruptionSchedule", "Pod/default/web-1", f"metadata.annotations[{DISRUPTION_BLOCK_DURATION}]"),
    ]
    assert all(problem.severity == "error" and problem.remedy for problem in pod_problems(wrong))


def test_good_annotations_have_no_faults() -> None:
    good = {
        DO_NOT_DISRUPT: "4h",
        DISRUPTION_SCHEDULE: "0 2 * * 6",
        DISRUPTION_SCHEDULE_DURATION: "6h",
        DISRUPTION_BLOCK_SCHEDULE: "0 9 * * 1-5",
        DISRUPTION_BLOCK_DURATION: "8h",
    }
    assert annotation_faults(good) == []
    assert annotation_faults({}) == []
    assert [fault.annotation for fault in annotation_faults({**good, DO_NOT_DISRUPT: "0"})] == [DO_NOT_DISRUPT]


@pytest.mark.parametrize("options", [{}, {"created": "2026-03-01T00:00:01Z"}, {"owner": "Job"}, {"labels": {"a": "b"}}])
def test_pods_that_are_not_asked_are_never_protected(options: dict[str, Any]) -> None:
    """Many pods are skipped because of this; a new rule must keep it true."""
    unprotected = pod(**options)
    assert not may_be_protected(unprotected)
    assert all(verdict.when is ALWAYS for verdict in protection(unprotected, at("2026-03-01T00:00:02Z")))
