"""The cron dialect (R9), its hits around changes of the clock (R10), and its agreement with robfig/cron."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail.values import limits
from dovetail.values.schedule.cron import Cron, CronError, parse_cron
from dovetail.values.schedule.zone import ZoneError, load_zone, offset_at, spell_at, spells, zone_names
from tests.harness.soak import examples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GOLDEN = Path(__file__).parents[2] / "golden" / "cron.json"


def minute(text: str) -> int:
    """The UTC minute of an RFC 3339 time, UTC if it does not say."""
    return (datetime.fromisoformat(text + ("" if text.endswith("Z") else "Z")) - EPOCH) // MINUTE


def hits(text: str, start: str, stop: str) -> list[str]:
    """The hits in [start, stop) as UTC times."""
    first, last = minute(start), minute(stop)
    bits = parse_cron(text).hits(first, last)
    assert bits.bit_length() <= last - first
    found = [i for i, bit in enumerate(f"{bits:b}"[::-1]) if bit == "1"]
    return [f"{EPOCH + (first + i) * MINUTE:%Y-%m-%dT%H:%M}" for i in found]


def on_day(text: str, day: str = "2026-05-13") -> list[str]:
    """The hits of a UTC day (a Wednesday unless told) as HH:MM."""
    following = (datetime.fromisoformat(day) + timedelta(days=1)).date().isoformat()
    return [hit[11:] for hit in hits(text, f"{day}T00:00", f"{following}T00:00")]


def days(text: str, month: str = "2026-05") -> list[int]:
    """The days of a month that have hits."""
    first = datetime.fromisoformat(f"{month}-01")
    following = (first + timedelta(days=32)).strftime("%Y-%m")
    return sorted({int(hit[8:10]) for hit in hits(text, f"{month}-01T00:00", f"{following}-01T00:00")})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 0 * * *", ["00:00"]),
        ("5,7 3 * * *", ["03:05", "03:07"]),
        ("58-59 23 * * *", ["23:58", "23:59"]),
        ("*/20 4 * * *", ["04:00", "04:20", "04:40"]),
        ("10-30/10 4 * * *", ["04:10", "04:20", "04:30"]),
        ("50/4 4 * * *", ["04:50", "04:54", "04:58"]),
        ("0 20/2 * * *", ["20:00", "22:00"]),
        ("*/70 4 * * *", ["04:00"]),
        ("59/70 4 * * *", ["04:59"]),
        ("7-7 4 * * *", ["04:07"]),
        ("007 04 * * *", ["04:07"]),
        ("0,30,0 4 ? * ?", ["04:00", "04:30"]),
        ("?/30 4 * * *", ["04:00", "04:30"]),
        ("@daily", ["00:00"]),
        ("@midnight", ["00:00"]),
        ("@hourly", [f"{hour:02}:00" for hour in range(24)]),
        ("  0\t4  * *\n* ", ["04:00"]),
        ("0\u00a04\u2003* * *", ["04:00"]),
        (" @daily ", ["00:00"]),
        ("TZ=Asia/Kolkata 30 5 * * *", ["00:00"]),
        ("CRON_TZ=Asia/Kolkata @daily", ["18:30"]),
        ("CRON_TZ=UTC   15 6 * * *", ["06:15"]),
        (" TZ=UTC 15 6 * * *", ["06:15"]),
    ],
)
def test_times_of_a_day(text: str, expected: list[str]) -> None:
    assert on_day(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # May 2026 starts on a Friday.
        ("0 0 * * SUN", [3, 10, 17, 24, 31]),
        ("0 0 * * 0", [3, 10, 17, 24, 31]),
        ("0 0 * * 7", [3, 10, 17, 24, 31]),
        ("0 0 * * fri-7", [1, 2, 3, 8, 9, 10, 15, 16, 17, 22, 23, 24, 29, 30, 31]),
        ("0 0 * * 5-7", [1, 2, 3, 8, 9, 10, 15, 16, 17, 22, 23, 24, 29, 30, 31]),
        ("0 0 * * 7-7", [3, 10, 17, 24, 31]),
        ("0 0 * * 1,7", [3, 4, 10, 11, 17, 18, 24, 25, 31]),
        ("0 0 * * 3-7/2", [1, 3, 6, 8, 10, 13, 15, 17, 20, 22, 24, 27, 29, 31]),
        ("0 0 * * 6/1", [2, 9, 16, 23, 30]),  # a step's range ends at 6
        ("0 0 * * */6", [2, 3, 9, 10, 16, 17, 23, 24, 30, 31]),
        ("0 0 * * Mon", [4, 11, 18, 25]),
        ("@weekly", [3, 10, 17, 24, 31]),
        ("@monthly", [1]),
        ("@yearly", []),
        ("0 0 1 may *", [1]),
        ("0 0 1 1-4,JUN-dec *", []),
        ("0 0 1 MAR/2 *", [1]),
        ("0 0 13 * 5", [1, 8, 13, 15, 22, 29]),  # both restricted: either
        ("0 0 13 * *", [13]),
        ("0 0 13 * ?", [13]),
        ("0 0 13 * */1", [13]),
        ("0 0 13 * *,1", [13]),
        ("0 0 1-7 * */2", [1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 14, 16, 17, 19, 21, 23, 24, 26, 28, 30, 31]),
        ("0 0 */1 * 5", [1, 8, 15, 22, 29]),
        ("0 0 ? * 5", [1, 8, 15, 22, 29]),
        ("0 0 1,* * 5", [1, 8, 15, 22, 29]),
        ("0 0 */10 * 4", [1, 7, 11, 14, 21, 28, 31]),  # */10 is restricted: either
        ("0 0 1-31 * 5", list(range(1, 32))),  # so is 1-31
        ("0 0 13 * 0-6", list(range(1, 32))),
        ("0 0 31 2 5", []),
    ],
)
def test_days_of_a_month(text: str, expected: list[int]) -> None:
    assert days(text) == expected


@pytest.mark.parametrize("name", ["@yearly", "@annually"])
def test_yearly(name: str) -> None:
    assert hits(name, "2026-01-01T00:00", "2027-12-31T00:00") == ["2026-01-01T00:00", "2027-01-01T00:00"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found 0"),
        (" \t ", "found 0"),
        ("* * * *", "found 4"),
        ("* * * * * *", "found 6"),
        ("0 22-6 * * *", "hours '22-6' cross midnight, which cron cannot say: start at 22 and set the duration"),
        ("0 0 * * FRI-SUN", "day of week 'FRI-SUN': the range ends before it starts"),
        ("0 0 * * 7-1", "day of week '7-1': the range ends before it starts"),
        ("0 0 * * 7/2", "day of week '7/2'"),
        ("0 0 L * *", "day of month 'L': 'L' is not understood"),
        ("0 0 15W * *", "day of month '15W'"),
        ("0 0 * * 5#3", "day of week '5#3'"),
        ("0 0 * FOO *", "month 'FOO'"),
        ("0 0 * MON *", "month 'MON'"),
        ("0 0 * * JAN", "day of week 'JAN'"),
        ("0 0 * * MONDAY", "day of week 'MONDAY'"),
        ("MON 0 * * *", "minute 'MON'"),
        ("*/0 * * * *", "minute '*/0': the step must not be zero"),
        ("1-5/0 * * * *", "the step must not be zero"),
        ("*/00 * * * *", "the step must not be zero"),
        ("1,,2 * * * *", "minute '': an empty place"),
        (",1 * * * *", "an empty place"),
        ("1, * * * *", "an empty place"),
        ("*/ * * * *", "minute '*/': an empty place"),
        ("/5 * * * *", "an empty place"),
        ("1- * * * *", "an empty place"),
        ("1-2-3 * * * *", "'2-3' is not understood"),
        ("1/2/3 * * * *", "'2/3' is not understood"),
        ("60 * * * *", "minute '60': 60 is out of range; expected 0-59"),
        ("0 24 * * *", "hour '24': 24 is out of range; expected 0-23"),
        ("0 0 0 * *", "day of month '0': 0 is out of range; expected 1-31"),
        ("0 0 32 * *", "32 is out of range"),
        ("0 0 * 0 *", "month '0': 0 is out of range; expected 1-12 or JAN-DEC"),
        ("0 0 * 13 *", "13 is out of range"),
        ("0 0 * * 8", "day of week '8': 8 is out of range; expected 0-7 or SUN-SAT"),
        ("0 0 1-32 * *", "32 is out of range"),
        ("+5 * * * *", "'+5' is not understood"),
        ("-5 * * * *", "an empty place"),
        ("*/+2 * * * *", "'+2' is not understood"),
        ("*/-2 * * * *", "'-2' is not understood"),
        ("*-5 * * * *", "'*' is not understood"),
        ("?-5 * * * *", "'?' is not understood"),
        ("** * * * *", "'**' is not understood"),
        ("1.5 * * * *", "'1.5' is not understood"),
        ("0x1 * * * *", "'0x1' is not understood"),
        ("1_0 * * * *", "'1_0' is not understood"),
        ("٣ * * * *", "is not understood"),
        ("１ * * * *", "is not understood"),
        ("² * * * *", "is not understood"),
        ("0 0 * ſep *", "is not understood"),  # upper-cases to SEP
        ("\0 * * * *", r"'\x00' is not understood"),
        ("1\x1c2 * * * *", "is not understood"),
        ("9" * 19 + " * * * *", "more than 18 digits"),
        ("*/" + "9" * 4000 + " * * * *", "more than 18 digits"),
        ("*/" + "9" * 5000 + " * * * *", "at most 4096 characters"),
        ("@every 5m", "@every has no fixed times"),
        ("@reboot", "unknown descriptor '@reboot': expected one of @yearly"),
        ("@Daily", "unknown descriptor"),
        ("@daily *", "unknown descriptor"),
        ("TZ=UTC", "found 0"),
        ("TZ= 0 0 * * *", "unknown time zone ''"),
        ("TZ=Nowhere/City 0 0 * * *", "unknown time zone 'Nowhere/City'"),
        ("TZ=europe/berlin 0 0 * * *", "unknown time zone"),
        ("TZ=../../etc/passwd 0 0 * * *", "unknown time zone"),
        ("TZ=Europe 0 0 * * *", "unknown time zone"),
        ("TZ=UTC\0 0 0 * * *", "unknown time zone"),
        ("TZ=Local 0 0 * * *", "unknown time zone"),
        ("TZ=UTC TZ=UTC 0 0 * * *", "found 6"),
        ("tz=UTC 0 0 * * *", "found 6"),
        ("TZ=Europe/Berlin\t0 0 * * *", "unknown time zone"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(CronError) as caught:
        parse_cron(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 250


def test_length_limit() -> None:
    longest = "0 * * * *".ljust(4096)
    assert len(longest) == limits.SCHEDULE
    assert parse_cron(longest) == parse_cron("0 * * * *")
    with pytest.raises(CronError, match="at most 4096 characters"):
        parse_cron(longest + " ")


def test_equal_if_it_means_the_same() -> None:
    assert parse_cron("@weekly") == parse_cron("0 0 ? * SUN") == parse_cron("00 0 */1 1-12 7")
    assert hash(parse_cron("@weekly")) == hash(parse_cron("0 0 * * 7"))
    assert parse_cron("@weekly") != parse_cron("TZ=Europe/Berlin @weekly")
    assert parse_cron("0 0 * * *") != parse_cron("0 0 1-31 * *")  # differs once the day of week is restricted
    assert parse_cron("@weekly").text == "@weekly"
    assert parse_cron("@weekly") is parse_cron("@weekly")
    assert repr(parse_cron("@weekly")) == "Cron('@weekly')"


@pytest.mark.parametrize(
    ("text", "never"),
    [
        ("0 0 31 2 *", True),
        ("0 0 30 2 *", True),
        ("0 0 31 2,4,6,9,11 *", True),
        ("0 0 29 2 *", False),
        ("0 0 31 2,3 *", False),
        ("0 0 31 2 1", False),  # or on a Monday
        ("* * * * *", False),
    ],
)
def test_never(text: str, never: bool) -> None:
    cron = parse_cron(text)
    assert cron.never is never
    assert (cron.next_hit(minute("2026-01-01T00:00")) is None) is never
    assert (cron.last_hit(minute("2026-01-01T00:00")) is None) is never


def nearest(cron: Cron, text: str) -> tuple[str | None, str | None]:
    """The last hit at or before, and the next at or after."""
    found = cron.last_hit(minute(text)), cron.next_hit(minute(text))
    last, following = (None if hit is None else f"{EPOCH + hit * MINUTE:%Y-%m-%dT%H:%M}" for hit in found)
    return last, following


def test_leap_days() -> None:
    leap = parse_cron("0 12 29 2 *")
    assert nearest(leap, "2024-02-29T12:00") == ("2024-02-29T12:00", "2024-02-29T12:00")
    assert nearest(leap, "2024-02-29T12:01") == ("2024-02-29T12:00", "2028-02-29T12:00")
    # 2100 is no leap year.
    assert nearest(leap, "2096-02-29T12:01") == ("2096-02-29T12:00", "2104-02-29T12:00")
    assert nearest(leap, "2104-02-29T11:59") == ("2096-02-29T12:00", "2104-02-29T12:00")
    assert nearest(leap, "2100-03-01T00:00") == ("2096-02-29T12:00", "2104-02-29T12:00")
    assert hits("0 0 28-29 2 *", "2099-01-01T00:00", "2101-01-01T00:00") == ["2099-02-28T00:00", "2100-02-28T00:00"]


def test_year_ends() -> None:
    assert hits("59 23 31 12 *", "2026-12-31T00:00", "2027-01-02T00:00") == ["2026-12-31T23:59"]
    assert nearest(parse_cron("@yearly"), "2026-12-31T23:59") == ("2026-01-01T00:00", "2027-01-01T00:00")
    berlin = parse_cron("TZ=Europe/Berlin @yearly")
    assert nearest(berlin, "2026-12-31T23:00") == ("2026-12-31T23:00", "2026-12-31T23:00")
    assert nearest(berlin, "2026-12-31T22:59") == ("2025-12-31T23:00", "2026-12-31T23:00")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Kiritimati", "Etc/GMT+12"])
def test_the_ends_of_time_do_not_overflow(zone: str) -> None:
    cron = parse_cron(f"TZ={zone} 0 0 * * *")
    first, last = minute("0001-01-01T00:00"), minute("9999-12-31T23:59")
    assert cron.last_hit(first - 10**6) is None
    assert cron.next_hit(last + 10**6) is None
    assert cron.next_hit(first - 10**6) is not None
    assert cron.last_hit(last + 10**6) is not None
    assert cron.hits(last - 100, last + 10_000) >= 0
    assert cron.hits(first - 10_000, first + 100) >= 0
    assert cron.hits(10**12, 10**12 + 10) == 0


def test_next_hit_is_at_or_after_a_minute() -> None:
    cron = parse_cron("30 * * * *")
    at = minute("2026-05-13T12:30")
    assert cron.next_hit(at) == at
    assert cron.next_hit(at - 1) == at
    assert cron.next_hit(at + 1) == at + 60


# By hand, in UTC. Berlin 2026: 01:00Z on March 29 is 02:00→03:00, 01:00Z on October 25 is 03:00→02:00.
@pytest.mark.parametrize(
    ("text", "start", "stop", "expected"),
    [
        # 02:30 does not exist on the 29th: it fires at 03:00, which is 01:00Z.
        ("Europe/Berlin 30 2 * * *", "2026-03-28", "2026-03-31", ["28T01:30", "29T01:00", "30T00:30"]),
        ("Europe/Berlin */20 2 29 3 *", "2026-03-28", "2026-03-31", ["29T01:00"]),
        ("Europe/Berlin 0 3 * * *", "2026-03-28", "2026-03-31", ["28T02:00", "29T01:00", "30T01:00"]),
        ("Europe/Berlin 59 1 * * *", "2026-03-29", "2026-03-30", ["29T00:59", "29T23:59"]),
        ("Europe/Berlin 30 * * * *", "2026-03-29", "2026-03-29T02:00", ["29T00:30", "29T01:00", "29T01:30"]),
        # 02:30 comes twice on the 25th, at 00:30Z and 01:30Z.
        ("Europe/Berlin 30 2 * * *", "2026-10-24", "2026-10-27", ["24T00:30", "25T00:30", "26T01:30"]),
        ("Europe/Berlin 30 * * * *", "2026-10-25T00:00", "2026-10-25T03:00", ["25T00:30", "25T01:30", "25T02:30"]),
        ("Europe/Berlin 30 0-23 * * *", "2026-10-25T00:00", "2026-10-25T03:00", ["25T00:30", "25T01:30", "25T02:30"]),
        ("Europe/Berlin 30 1-23 * * *", "2026-10-25T00:00", "2026-10-25T03:00", ["25T00:30", "25T02:30"]),
        ("Europe/Berlin 0 3 * * *", "2026-10-24", "2026-10-26", ["24T01:00", "25T02:00"]),
        # New York 2026: 07:00Z on March 8 is 02:00→03:00, 06:00Z on November 1 is 02:00→01:00.
        ("America/New_York 30 2 * * *", "2026-03-07", "2026-03-10", ["07T07:30", "08T07:00", "09T06:30"]),
        ("America/New_York 30 1 * * *", "2026-10-31", "2026-11-03", ["31T05:30", "01T05:30", "02T06:30"]),
        ("America/New_York 30 */1 * * *", "2026-11-01T05:00", "2026-11-01T08:00", ["01T05:30", "01T06:30", "01T07:30"]),
        # Lord Howe 2026: 15:00Z on April 4 is 02:00→01:30 (+11 to +10:30), 15:30Z on October 3 is 02:00→02:30.
        ("Australia/Lord_Howe 45 1 * * *", "2026-04-03", "2026-04-06", ["03T14:45", "04T14:45", "05T15:15"]),
        ("Australia/Lord_Howe 45 * * * *", "2026-04-04T14:30", "2026-04-04T17", ["04T14:45", "04T15:15", "04T16:15"]),
        ("Australia/Lord_Howe 15 2 * * *", "2026-10-02", "2026-10-05", ["02T15:45", "03T15:30", "04T15:15"]),
        ("Australia/Lord_Howe 45 2 * * *", "2026-10-02", "2026-10-05", ["02T16:15", "03T15:45", "04T15:45"]),
        # Apia left out December 30, 2011: at 10:00Z the 29th's midnight was the 31st's (-10 to +14).
        ("Pacific/Apia 0 12 * * *", "2011-12-29", "2012-01-01", ["29T22:00", "30T10:00", "30T22:00", "31T22:00"]),
        ("Pacific/Apia 0 12 30 12 *", "2011-12-29", "2012-01-01", ["30T10:00"]),
        ("Pacific/Apia 0 0 31 12 *", "2011-12-29", "2012-01-01", ["30T10:00"]),
        # Cairo 2026: 22:00Z on April 23 is 00:00→01:00 of the 24th, 21:00Z on October 29 is 24:00→23:00.
        ("Africa/Cairo @daily", "2026-04-22", "2026-04-25", ["22T22:00", "23T22:00", "24T21:00"]),
        ("Africa/Cairo 30 0 24 4 *", "2026-04-22", "2026-04-25", ["23T22:00"]),
        ("Africa/Cairo 30 23 * * *", "2026-10-28", "2026-10-31", ["28T20:30", "29T20:30", "30T21:30"]),
        ("Africa/Cairo @daily", "2026-10-28", "2026-10-31", ["28T21:00", "29T22:00", "30T22:00"]),
    ],
)  # fmt: skip
def test_changes_of_the_clock(text: str, start: str, stop: str, expected: list[str]) -> None:
    start, stop = (at if "T" in at else f"{at}T00:00" for at in (start, stop))
    found = hits(f"CRON_TZ={text}", start, stop)
    assert [hit[8:] for hit in found] == expected
    # Any cut through the stretch gives the same hits, also right after a change.
    for cut in range(minute(start) + 1, minute(stop), 7):
        cron = parse_cron(f"CRON_TZ={text}")
        before, after = cron.hits(minute(start), cut), cron.hits(cut, minute(stop))
        assert before | after << cut - minute(start) == cron.hits(minute(start), minute(stop))


def test_zones_come_from_the_pinned_package() -> None:
    assert {"UTC", "Europe/Berlin", "US/Eastern", "Etc/UTC"} <= zone_names()
    for name in zone_names():
        assert load_zone(name).key == name
    assert load_zone("Europe/Berlin") is load_zone("Europe/Berlin")
    with pytest.raises(ZoneError, match="unknown time zone 'localtime'"):
        load_zone("localtime")


def test_spells() -> None:
    berlin = load_zone("Europe/Berlin")
    start, stop = minute("2025-12-01T00:00"), minute("2027-01-01T00:00")
    summer, winter = minute("2026-03-29T01:00"), minute("2026-10-25T01:00")
    assert spells(berlin, start, stop) == [(start, summer, 60), (summer, winter, 120), (winter, stop, 60)]
    assert spell_at(berlin, summer)[::2] == (summer, 120)
    assert spell_at(berlin, summer - 1)[1:] == (summer, 60)
    assert spell_at(berlin, stop).start == stop - 11 * 1440  # New Year changes nothing
    assert spells(load_zone("UTC"), -5, 5) == [(-5, 5, 0)]
    # Before 1893 Berlin was 53 minutes 28 seconds ahead: floored.
    assert offset_at(berlin, minute("1800-01-01T00:00")) == 53


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Pacific/Apia", "Asia/Tokyo", "America/New_York"])
def test_spells_cover_all_time(zone: str) -> None:
    info = load_zone(zone)
    for start, stop in [(-(10**12), -(10**9)), (10**9 * 4, 10**12)]:
        found = spells(info, start, start + 10) + spells(info, stop - 10, stop)
        assert [(spell.start, spell.stop) for spell in found] == [(start, start + 10), (stop - 10, stop)]
    # Around every New Year, where the years are joined.
    for year in range(1972, 2060):
        middle = minute(f"{year}-01-01T00:00")
        for at in range(middle - 3000, middle + 3000, 250):
            assert [spell.offset for spell in spells(info, at, at + 1)] == [offset_at(info, at)]


@pytest.mark.parametrize(("first", "last"), [(2000, 2000), (2026, 2026), (2040, 2040)][: examples(3, quick=1)])
def test_no_change_of_any_clock_is_missed(first: int, last: int) -> None:
    """Day by day: the shortest spells are those of Brazil in 2000 and of Gaza in 2040."""
    start, stop = minute(f"{first}-01-01T00:00"), minute(f"{last + 1}-01-01T00:00")
    for name in sorted(zone_names()):
        zone = load_zone(name)
        found = iter(spells(zone, start, stop))
        spell = next(found)
        for day in range(start, stop, 1440):
            while day >= spell.stop:
                spell = next(found)
            assert spell.offset == offset_at(zone, day), (name, day)


@pytest.mark.parametrize(
    "text",
    ["*/7 */5 * * *", "30 2 * * *", "0 0 29 2 *", "15 1,2,3 25-31 3,10,11 0", "0 12 1 * *", "59 23 31 12 *"],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Africa/Cairo", "Australia/Lord_Howe", "Pacific/Apia"])
def test_the_ways_to_ask_for_hits_agree(zone: str, text: str) -> None:
    cron = parse_cron(f"TZ={zone} {text}")
    for day in ("2026-03-01", "2026-03-29", "2026-04-04", "2026-10-25", "2026-12-31", "2028-02-28", "2011-12-29"):
        middle = minute(f"{day}T00:00")
        for at in range(middle - 3 * 1440, middle + 4 * 1440, 163):
            assert cron.fires(at) == bool(cron.hits(at, at + 1))
            for back in (0, 60, 1440, 9 * 1440, 40 * 1440):
                seen = cron.hits(at - back, at + 1)
                assert cron.last_hit(at, at - back) == (at - back + seen.bit_length() - 1 if seen else None)
            if (hit := cron.last_hit(at)) is not None:
                assert cron.fires(hit)
                assert not cron.hits(hit + 1, at + 1)
    # Also where there is no calendar.
    assert not cron.fires(minute("0001-01-01T00:00") - 5000)
    assert not cron.fires(minute("9999-12-31T23:59") + 5000)


# --- Agreement with robfig/cron v3.0.1 (tests/golden/cron.md) ------------------------------------------------------

ROBFIG: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))


def difference(text: str) -> str | None:
    """Why we read an expression unlike robfig; None: we must agree."""
    fields = text.split()
    items = [item for field in fields for item in field.split(",")]
    if len(fields) < 5 and "@" not in text and "TZ=" not in text:
        return None
    if "@every " in text:
        return "R9: @every has no fixed times and is refused"
    if any(item == "" for item in items):
        return "R9: robfig ignores empty list items"
    if any(item.startswith(("*-", "?-")) for item in items):
        return "robfig reads `*-5` as `*`; we refuse what nobody can have meant"
    if any("+" in item for item in items) and "TZ=" not in text:
        return "R9: robfig takes the sign of Go's Atoi; only digits are numbers"
    if any(part.lstrip("0") == "7" for part in "".join(fields[-1:]).replace(",", "-").split("-")):
        return "R9: Sunday may be 7"
    if text.startswith(("TZ= ", "CRON_TZ= ", "TZ=Local ")):
        return "R9: robfig takes an empty zone for UTC, and Local for the host's"
    if text == "CRON_TZ=Australia/Lord_Howe 2,18/9,22/7 11 * OCT *":  # 2028-10-01
        return "robfig strays on days on which the clock changes by half an hour"
    if text.strip() in ("@daily", "TZ=UTC 0 0 * * *") and text != text.strip():
        return "robfig allows surrounding space around five fields only; we always do"
    return None


AGREED = [entry for entry in ROBFIG if difference(entry["text"]) is None]
DIFFERENT = [entry for entry in ROBFIG if difference(entry["text"]) is not None]


def ours(text: str, starts: list[str]) -> dict[str, list[str]]:
    cron = parse_cron(text)
    found: dict[str, list[str]] = {}
    for start in starts:
        hit: int | None = (datetime.fromisoformat(start) - EPOCH) // MINUTE
        found[start] = []
        for _ in range(5):
            assert hit is not None
            hit = cron.next_hit(hit + 1)
            if hit is None:
                break
            found[start].append(f"{EPOCH + hit * MINUTE:%Y-%m-%dT%H:%M:%SZ}")
    return found


def test_golden_file_is_what_it_should_be() -> None:
    assert len(ROBFIG) > 600
    assert sum("error" in entry for entry in AGREED) > 100
    assert sum("next" in entry for entry in AGREED) > 400


@pytest.mark.parametrize("entry", AGREED, ids=lambda entry: repr(entry["text"]))
def test_agrees_with_robfig(entry: dict[str, Any]) -> None:
    if "error" in entry:
        with pytest.raises(CronError):
            parse_cron(entry["text"])
        return
    expected = entry["next"]
    found = ours(entry["text"], list(expected))
    for start, hits in expected.items():
        # robfig gives up after five years, and has its own rules where the clock changes.
        assert found[start][: len(hits)] == hits
        if len(hits) < 5:
            late = [hit for hit in found[start][len(hits) :] if hit[:4] < str(int(start[:4]) + 5)]
            assert not late


@pytest.mark.parametrize("entry", DIFFERENT, ids=lambda entry: repr(entry["text"]))
def test_differs_from_robfig(entry: dict[str, Any]) -> None:
    """What is listed as a difference is one, so that the list stays honest."""
    try:
        found = ours(entry["text"], list(entry.get("next", {})))
    except CronError:
        assert "next" in entry
    else:
        assert "error" in entry or found != entry["next"]
