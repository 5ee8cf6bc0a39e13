"""Times: what Go's RFC 3339 accepts (Go was asked each text; it also takes years 0 and 10000), and forms for people."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from dovetail.values.timestamp import TimeError, format_time, parse_time, relative, spoken_time

NOW = datetime(2026, 3, 7, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("2026-03-07T02:00:00Z", "2026-03-07T02:00:00Z"),
        ("2026-03-07T2:00:00Z", "2026-03-07T02:00:00Z"),
        ("2026-03-07T02:00:00,5Z", "2026-03-07T02:00:00.500000Z"),
        ("2026-03-07T02:00:00.1234569999Z", "2026-03-07T02:00:00.123456Z"),
        ("2026-03-07T02:00:00." + "1" * 235 + "Z", "2026-03-07T02:00:00.111111Z"),
        ("2026-03-07T02:00:00+01:30", "2026-03-07T00:30:00Z"),
        ("2026-03-07T02:00:00-01:30", "2026-03-07T03:30:00Z"),
        ("2026-03-07T02:00:00-00:00", "2026-03-07T02:00:00Z"),
        ("2026-03-07T02:00:00+24:59", "2026-03-06T01:01:00Z"),
        ("2026-03-07T02:00:00+23:60", "2026-03-06T02:00:00Z"),
        ("2024-02-29T23:59:59Z", "2024-02-29T23:59:59Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_accepted(text: str, printed: str) -> None:
    at = parse_time(text)
    assert at.tzinfo is UTC
    assert format_time(at) == printed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-03-07",
        "2026-03-07T02:00:00",
        "2026-03-07T02:00Z",
        "2026-03-07t02:00:00Z",
        "2026-03-07T02:00:00z",
        "2026-03-07 02:00:00Z",
        "2026-03-07T02:0:00Z",
        "2026-03-07T02:00:0Z",
        "2026-3-7T02:00:00Z",
        "2026-03-07T02:00:00.Z",
        "2026-03-07T02:00:00+0100",
        "2026-03-07T02:00:00+01",
        "2026-03-07T02:00:00+1:00",
        "2026-03-07T02:00:00+25:00",
        "2026-03-07T02:00:00+23:61",
        "2026-03-07T02:00:00Z\n",
        " 2026-03-07T02:00:00Z",
        "\u06622026-03-07T02:00:00Z",
        "\u0662026-03-07T02:00:00Z",
        "20260307T020000Z",
        "2026-W10-6T02:00:00Z",
    ],
)
def test_refused_form(text: str) -> None:
    with pytest.raises(TimeError) as caught:
        parse_time(text)
    assert str(caught.value) == f"{text!r} is not a time: want RFC 3339, such as 2026-03-07T02:00:00Z"


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-29T02:00:00Z",
        "2026-00-07T02:00:00Z",
        "2026-13-07T02:00:00Z",
        "2026-03-00T02:00:00Z",
        "2026-03-07T24:00:00Z",
        "2026-03-07T02:60:00Z",
        "2026-03-07T02:00:60Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
    ],
)
def test_refused_date(text: str) -> None:
    with pytest.raises(TimeError, match="is not a time: no such date or time of day"):
        parse_time(text)


def test_long_texts_are_not_repeated() -> None:
    with pytest.raises(TimeError) as caught:
        parse_time("2026-03-07T02:00:00." + "1" * (1 << 20))
    assert len(str(caught.value)) < 200


def test_format_in_a_zone() -> None:
    assert format_time(NOW, ZoneInfo("Europe/Berlin")) == "2026-03-07T03:00:00+01:00"
    assert format_time(NOW, ZoneInfo("America/New_York")) == "2026-03-06T21:00:00-05:00"
    assert format_time(NOW, ZoneInfo("Europe/London")) == "2026-03-07T02:00:00Z"
    assert format_time(NOW.replace(microsecond=500), timezone(timedelta(hours=5, minutes=45))) == (
        "2026-03-07T07:45:00.000500+05:45"
    )
    assert format_time(NOW.astimezone(ZoneInfo("Asia/Tokyo"))) == "2026-03-07T02:00:00Z"
    assert spoken_time(NOW.replace(microsecond=123_456), ZoneInfo("Europe/London")) == "2026-03-07T02:00:00Z"


def test_an_instant_that_has_no_time_in_utc_is_written_with_its_own_offset() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-12)))
    first = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=12)))
    assert format_time(last) == "9999-12-31T23:59:59-12:00"
    assert format_time(first) == "0001-01-01T00:00:00+12:00"


@pytest.mark.parametrize(
    ("away", "text"),
    [
        (timedelta(seconds=1), "1s"),
        (timedelta(seconds=59, microseconds=999_999), "59s"),
        (timedelta(minutes=1, seconds=5), "1m5s"),
        (timedelta(hours=1), "1h"),
        (timedelta(hours=1, seconds=59), "1h"),
        (timedelta(hours=2, minutes=13, seconds=7), "2h13m"),
        (timedelta(hours=47, minutes=59, seconds=59), "47h59m"),
        (timedelta(hours=48), "2d"),
        (timedelta(days=3, hours=4, minutes=5), "3d4h"),
        (timedelta(days=3, minutes=59), "3d"),
    ],
)
def test_relative(away: timedelta, text: str) -> None:
    assert relative(NOW + away, NOW) == f"in {text}"
    assert relative(NOW - away, NOW) == f"{text} ago"


def test_less_than_a_second_is_now() -> None:
    for away in (timedelta(), timedelta(microseconds=999_999), -timedelta(microseconds=999_999)):
        assert relative(NOW + away, NOW) == "now"
