"""Durations: Go's answers for Go's grammar, the CRD grammars, and forms for people."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from dovetail.values import limits
from dovetail.values.duration import (
    DAY,
    HOUR,
    MAX,
    MICROSECOND,
    MILLISECOND,
    MIN,
    MINUTE,
    SECOND,
    DurationError,
    add,
    format_duration,
    parse_budget_duration,
    parse_duration,
    parse_nillable,
    parse_simple,
    short_duration,
    shown,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "duration.json"
MIB = 1 << 20


def test_every_text_means_what_go_says() -> None:
    rows = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert len(rows) > 1400
    wrong = []
    for text, want in rows:
        if len(text) > limits.DURATION:
            continue
        try:
            ns = parse_duration(text)
            got = [ns, format_duration(ns)]
        except DurationError:
            got = None
        if got != want:
            wrong.append((text, want, got))
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("-0", 0),
        ("1h30m", 90 * MINUTE),
        ("-1.5h", -90 * MINUTE),
        ("5s5s", 10 * SECOND),
        (".5h", 30 * MINUTE),
        ("1.h", HOUR),
        ("1us1\u00b5s1\u03bcs", 3 * MICROSECOND),
        ("-9223372036854775808ns", MIN),
        ("9223372036854775807ns", MAX),
    ],
)
def test_go_text(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "1",
        ".",
        ".s",
        "1d",
        "2w",
        " 1s",
        "1s ",
        "1s\n",
        "1 s",
        "+-1s",
        "1s-1s",
        "1,5s",
        "1e3s",
        "\u0661s",
        "Never",
    ],
)
def test_refusals_name_the_value_and_the_form(text: str) -> None:
    with pytest.raises(DurationError) as caught:
        parse_duration(text)
    assert str(caught.value).startswith(f"{text!r} is not a duration: want numbers with units ")


@pytest.mark.parametrize("text", ["9223372036854775808ns", "-9223372036854775809ns", "2562048h", "2562047h48m"])
def test_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(DurationError, match="too long a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0" * 63 + "s", "1." + "0" * 61 + "s", "." + "0" * 61 + "1h", "1ns" * 21])
def test_64_characters_are_read_and_more_are_too_many(text: str) -> None:
    assert parse_duration(text.rjust(64, "0")) >= 0
    with pytest.raises(DurationError, match="has more than 64 characters"):
        parse_duration(text.rjust(65, "0"))


def test_a_megabyte_is_answered_and_not_repeated() -> None:
    for text in ("9" * MIB + "s", "9" * MIB, "1s" * (MIB // 2) + "x", "." * MIB, "1." + "9" * MIB):
        for parse in (parse_duration, parse_nillable, parse_simple, parse_budget_duration):
            with pytest.raises(DurationError, match="has more than 64 characters") as caught:
                parse(text)
            assert len(str(caught.value)) < 200


def test_messages_shorten_and_escape() -> None:
    assert shown("a" * 40) == repr("a" * 40)
    assert shown("a" * 41) == repr("a" * 39 + "…")
    assert shown("\x1b[31m\u202e") == r"'\x1b[31m\u202e'"


@pytest.mark.parametrize(
    ("text", "nillable", "budget"),
    [
        ("90s", True, False),
        ("1h30m", True, True),
        ("5s5s", True, False),
        ("3m2h", True, False),
        ("1h1h", True, False),
        ("24h0m0s", True, True),
        ("8h0s", True, True),
        ("30m0s", True, True),
        ("8h1s", True, False),
        ("8h00s", True, False),
        ("8h0s0s", True, False),
        ("0s", True, False),
        ("", False, False),
        ("0", False, False),
        ("-1h", False, False),
        ("+1h", False, False),
        ("1.5h", False, False),
        ("1d", False, False),
        ("500ms", False, False),
        ("1h\n", False, False),
        ("1h\n1h", False, False),
        (" 1h", False, False),
        ("\u0661h", False, False),
        ("never", False, False),
        ("NeverNever", False, False),
        ("1hNever", False, False),
    ],
)
def test_crd_grammars(text: str, nillable: bool, budget: bool) -> None:
    if nillable:
        assert parse_nillable(text) == parse_simple(text) == parse_duration(text)
    else:
        with pytest.raises(DurationError, match=r"want whole numbers with units s, m or h.*, or Never$"):
            parse_nillable(text)
        with pytest.raises(DurationError, match=r"want whole numbers with units s, m or h, such as 1h30m or 90s$"):
            parse_simple(text)
    if budget:
        assert parse_budget_duration(text) == parse_duration(text)
    else:
        with pytest.raises(DurationError, match="want whole hours and minutes"):
            parse_budget_duration(text)


def test_never_is_for_nillable_fields_alone() -> None:
    assert parse_nillable("Never") is None
    for parse in (parse_duration, parse_simple, parse_budget_duration):
        with pytest.raises(DurationError):
            parse("Never")


def test_crd_grammars_refuse_overflow() -> None:
    for parse in (parse_nillable, parse_simple, parse_budget_duration):
        with pytest.raises(DurationError, match="too long a duration"):
            parse("2562048h")
        with pytest.raises(DurationError, match="too long a duration"):
            parse("9" * 63 + "h")


@pytest.mark.parametrize(
    ("ns", "go", "short"),
    [
        (0, "0s", "0s"),
        (1, "1ns", "1ns"),
        (2 * MICROSECOND, "2µs", "2µs"),
        (1500 * MICROSECOND, "1.5ms", "1.5ms"),
        (SECOND - 1, "999.999999ms", "999.999999ms"),
        (30 * SECOND, "30s", "30s"),
        (1500 * MILLISECOND, "1.5s", "1.5s"),
        (90 * SECOND, "1m30s", "1m30s"),
        (4 * HOUR, "4h0m0s", "4h"),
        (90 * MINUTE, "1h30m0s", "1h30m"),
        (HOUR + SECOND, "1h0m1s", "1h1s"),
        (36 * HOUR, "36h0m0s", "36h"),
        (2 * DAY - SECOND, "47h59m59s", "47h59m59s"),
        (2 * DAY, "48h0m0s", "48h"),
        (76 * HOUR, "76h0m0s", "76h"),
        (30 * DAY + MINUTE, "720h1m0s", "720h1m"),
        (-90 * MINUTE, "-1h30m0s", "-1h30m"),
        (-1, "-1ns", "-1ns"),
        (MIN, "-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
    ],
)
def test_printing(ns: int, go: str, short: str) -> None:
    assert (format_duration(ns), short_duration(ns)) == (go, short)


def test_add_rounds_up_to_the_microsecond() -> None:
    at = datetime(2026, 3, 7, 2, tzinfo=UTC)
    step = timedelta(microseconds=1)
    assert add(at, 0) == at
    assert add(at, 1) == at + step
    assert add(at, 1000) == at + step
    assert add(at, 1001) == at + 2 * step
    assert add(at, -1) == at
    assert add(at, -1000) == at - step


def test_add_ends_where_datetime_does() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    first = datetime.min.replace(tzinfo=UTC)
    assert add(last, 0) == last
    assert add(last, 1) is None
    assert add(first, 0) == first
    assert add(first, -1000) is None
    assert add(first, 10**40) is None


def test_add_counts_elapsed_time_across_a_clock_change() -> None:
    evening = datetime(2026, 3, 28, 20, tzinfo=ZoneInfo("Europe/Berlin"))
    assert add(evening, 12 * HOUR) == datetime(2026, 3, 29, 7, tzinfo=UTC)
    moved = add(evening, 0)
    assert moved is not None
    assert moved.tzinfo is UTC
    with pytest.raises(ValueError, match="aware"):
        add(datetime(2026, 3, 28), 0)  # noqa: DTZ001
