"""Sets of instants: what they contain, until when, and how they combine."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dovetail.values.schedule.almanac import stretch_of
from dovetail.values.schedule.cron import parse_cron
from dovetail.values.schedule.instants import (
    ALWAYS,
    HORIZON,
    NEVER,
    Instants,
    RecurringWindow,
    all_of,
    any_of,
    complement,
    recurring,
    since,
)
from dovetail.values.schedule.openings import openings
from dovetail.values.schedule.zone import zone_names

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
TICK = timedelta(microseconds=1)
NOW = datetime(2026, 5, 13, 12, 34, 56, 789, tzinfo=UTC)  # a Wednesday


def ns(duration: timedelta) -> int:
    return duration // TICK * 1000


def windows(text: str, duration: timedelta) -> Instants:
    return recurring(parse_cron(text), ns(duration))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text + "Z")


def test_constants() -> None:
    for instant in (NOW, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        assert ALWAYS.contains(instant)
        assert not NEVER.contains(instant)
        assert ALWAYS.until(instant) is NEVER.until(instant) is None
        assert ALWAYS.first(instant) == instant
        assert NEVER.first(instant) is None
    assert (repr(ALWAYS), repr(NEVER)) == ("ALWAYS", "NEVER")


def test_since() -> None:
    later = since(NOW)
    assert not later.contains(NOW - TICK)
    assert later.contains(NOW)
    assert later.until(NOW - TICK) == NOW == later.first(NOW - TICK)
    assert later.until(NOW) is None
    assert later.first(NOW + DAY) == NOW + DAY
    assert later.until(NOW - 3 * HORIZON) == NOW  # nothing to search, so no horizon


def test_a_recurring_window_is_half_open() -> None:
    night = windows("0 2 * * 6", 4 * HOUR)
    assert not night.contains(NOW)
    assert night.until(NOW) == night.first(NOW) == at("2026-05-16T02:00")
    assert not night.contains(at("2026-05-16T02:00") - TICK)
    assert night.contains(at("2026-05-16T02:00"))
    assert night.until(at("2026-05-16T02:00") - TICK) == at("2026-05-16T02:00")
    assert night.until(at("2026-05-16T02:00")) == at("2026-05-16T06:00")
    assert night.contains(at("2026-05-16T06:00") - TICK)
    assert night.until(at("2026-05-16T06:00") - TICK) == at("2026-05-16T06:00")
    assert not night.contains(at("2026-05-16T06:00"))
    assert night.until(at("2026-05-16T06:00")) == at("2026-05-23T02:00")
    # The text is that of the first expression with these instants that was parsed, so it is one of its own here.
    assert repr(windows("59 2 * 11 6", 4 * HOUR)) == "Recurring('59 2 * 11 6', 14400s)"


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    cron = parse_cron("*/17 3,15 1-20 * 1-5")
    asked = RecurringWindow(cron, 95_000_000_001)
    instants = [NOW + timedelta(seconds=7919 * i % 3_000_000) for i in range(300)]
    for instant in instants:
        fresh = RecurringWindow(cron, 95_000_000_001)
        assert asked.until(instant) == fresh.until(instant)
        assert asked.contains(instant) == RecurringWindow(cron, 95_000_000_001).contains(instant)


def test_another_zone_of_the_asking_instant_changes_nothing() -> None:
    night = RecurringWindow(parse_cron("0 0 1 * *"), ns(HOUR))
    instant = datetime(2026, 6, 1, 0, 30, tzinfo=timezone(timedelta(hours=2)))  # still May in UTC
    assert not night.contains(instant)
    assert night.until(instant) == at("2026-06-01T00:00")


def test_the_end_is_rounded_up_to_the_microsecond() -> None:
    for nanoseconds, micros in [(60_000_000_000, 0), (60_000_000_001, 1), (60_000_001_000, 1), (1, 1), (999, 1)]:
        brief = RecurringWindow(parse_cron("0 2 * * *"), nanoseconds)
        end = at("2026-05-14T02:00") + nanoseconds // 60_000_000_000 * MINUTE + micros * TICK
        assert brief.until(at("2026-05-14T02:00")) == end
        assert brief.contains(end - TICK)
        assert not brief.contains(end)


def test_no_duration_is_never_open() -> None:
    assert recurring(parse_cron("* * * * *"), 0) is NEVER
    empty = RecurringWindow(parse_cron("* * * * *"), 0)
    assert not empty.contains(at("2026-05-14T02:00"))
    assert empty.until(NOW) is None


def test_a_cron_that_never_fires_is_never_open() -> None:
    assert windows("0 0 31 2 *", HOUR) is NEVER
    silent = RecurringWindow(parse_cron("0 0 30 2 *"), ns(HOUR))
    assert not silent.contains(NOW)
    assert silent.until(NOW) is None


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("* * * * *", MINUTE),
        ("* * * * *", 168 * HOUR),
        ("0 0 * * *", 24 * HOUR),
        ("0 0 * * *", 48 * HOUR),
        ("0 * * * *", HOUR),
        ("0 0 * * 1", 168 * HOUR),
        ("0 0,8,22 * * *", 14 * HOUR),
        ("CRON_TZ=Europe/Berlin * * * * *", HOUR),
        ("TZ=Pacific/Apia * */1 * 1-12 *", MINUTE),
    ],
)
def test_known_at_once_to_be_always_open(text: str, duration: timedelta) -> None:
    assert windows(text, duration) is ALWAYS
    # The search says the same.
    assert RecurringWindow(parse_cron(text), ns(duration)).until(NOW) is None
    assert RecurringWindow(parse_cron(text), ns(duration)).contains(NOW)


@pytest.mark.parametrize(
    ("text", "duration", "until"),
    [
        ("0 0 * * *", 24 * HOUR - TICK, at("2026-05-14T00:00") - TICK),
        ("0 0,8,22 * * *", 14 * HOUR - TICK, at("2026-05-13T22:00") - TICK),
        ("0 0 1 * *", 31 * DAY, None),
        ("0 0 1 * *", 31 * DAY - MINUTE, at("2026-05-31T23:59")),
        ("@yearly", 366 * DAY, None),
        ("@yearly", 365 * DAY, at("2028-12-31T00:00")),  # the year with the leap day
        ("TZ=Europe/Berlin 0 * * * *", HOUR, None),
        ("TZ=Europe/Berlin 0 0-23/1 * * *", HOUR, None),
        # 02:00 comes at 00:00Z and again, without a hit, at 01:00Z; 04:00 is 03:00Z.
        ("TZ=Europe/Berlin 0 0-23/2 * * *", 2 * HOUR, at("2026-10-25T02:00")),
        ("TZ=Europe/Berlin @daily", 24 * HOUR, at("2026-10-25T22:00")),
        ("TZ=Europe/Berlin @daily", 25 * HOUR, None),
        # Half an hour is repeated at Lord Howe, so that hours are 90 minutes apart once.
        ("TZ=Australia/Lord_Howe 0 * * * *", HOUR, at("2027-04-03T15:00")),
    ],
)
def test_open_now_until(text: str, duration: timedelta, until: datetime | None) -> None:
    open_now = windows(text, duration)
    assert open_now.contains(NOW)
    assert open_now.until(NOW) == until


@pytest.mark.parametrize(
    ("text", "now", "until"),
    [
        ("0 0 29 2 *", "2026-05-13T12:34", "2028-02-29T00:00"),
        ("0 0 29 2 *", "2096-02-29T01:00", None),  # eight years
        ("0 0 29 2 *", "2099-02-26T23:59", None),  # five years are 1827 days
        ("0 0 29 2 *", "2099-02-27T00:00", "2104-02-29T00:00"),
        ("0 0 1 1 *", "2026-12-31T23:59", "2027-01-01T00:00"),
        ("0 0 * * *", "9999-12-31T00:30", None),
    ],
)
def test_closed_until(text: str, now: str, until: str | None) -> None:
    closed = windows(text, timedelta(minutes=1))
    assert not closed.contains(at(now))
    assert closed.until(at(now)) == (until and at(until))


def test_durations_up_to_292_years_do_not_overflow() -> None:
    longest = 2**63 - 1
    leap = RecurringWindow(parse_cron("0 0 29 2 *"), longest)
    assert leap.contains(NOW)
    assert leap.until(NOW) is None
    assert leap.contains(datetime.max.replace(tzinfo=UTC))
    assert leap.until(datetime.max.replace(tzinfo=UTC)) is None
    first = RecurringWindow(parse_cron("0 0 29 2 *"), longest)
    assert not first.contains(datetime.min.replace(tzinfo=UTC))
    assert first.until(at("0004-02-28T00:00")) == at("0004-02-29T00:00")
    assert RecurringWindow(parse_cron("0 0 * * *"), longest).until(at("9999-12-31T23:59")) is None
    for text in ("* * * * *", "0 0 31 12 *", "TZ=Europe/Berlin 0 0 * * *"):
        for instant in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
            RecurringWindow(parse_cron(text), ns(HOUR)).until(instant)


def test_an_answer_is_extended_as_time_goes_on() -> None:
    """A run known for five years from one instant is not taken for one known five years later."""
    yearly = RecurringWindow(parse_cron("@yearly"), ns(365 * DAY))
    assert yearly.until(at("2096-12-31T12:00")) == at("2097-01-01T00:00")
    instant = at("2097-01-01T00:00")
    assert yearly.until(instant) is None  # 2100 has no leap day: open until the end of 2104
    for days in range(0, 2922, 30):
        expected = at("2104-12-31T00:00")
        until = yearly.until(instant + days * DAY)
        assert until == (expected if expected - instant - days * DAY <= HORIZON else None)


def test_complement() -> None:
    night = windows("0 2 * * 6", 4 * HOUR)
    day = complement(night)
    assert day.contains(NOW)
    assert day.until(NOW) == night.until(NOW)
    assert complement(day) is night
    assert complement(ALWAYS) is NEVER
    assert complement(NEVER) is ALWAYS
    assert repr(complement(since(NOW))) == f"complement(since({NOW.isoformat()}))"


def test_simplification() -> None:
    night, noon = windows("0 2 * * 6", 4 * HOUR), windows("0 12 * * *", HOUR)
    early, late = since(NOW), since(NOW + DAY)
    assert all_of([]) is ALWAYS
    assert any_of([]) is NEVER
    assert all_of([night]) is night
    assert any_of([night, night]) is night
    assert all_of([ALWAYS, night, ALWAYS]) is night
    assert any_of([NEVER, night]) is night
    assert all_of([night, NEVER, noon]) is NEVER
    assert any_of([night, ALWAYS, noon]) is ALWAYS
    assert all_of([early, late, since(NOW)]) is late
    assert any_of([late, early]) is early
    nested = all_of([all_of([early, night]), all_of([noon, night, late])])
    assert repr(nested) == repr(all_of([late, night, noon]))
    assert repr(any_of([any_of([late, night]), any_of([early, noon])])) == repr(any_of([early, night, noon]))
    # Not the other kind.
    assert repr(all_of([any_of([early, night]), noon])) == f"all_of(any_of({early!r}, {night!r}), {noon!r})"


@pytest.mark.parametrize(
    "parts",
    [
        [(f"{minute} * * * *", MINUTE) for minute in range(60)],
        [("0 0-22/2 * * *", HOUR), ("0 1-23/2 * * *", HOUR)],
        [("* * * * 1-5", MINUTE), ("* * * * 0,6", MINUTE)],
        [("0 0 * * 1-5", DAY), ("0 0 * * 6", 2 * DAY)],
        [("0 0 * * 1-5", DAY), ("0 0 * * 0,6", DAY), ("TZ=Europe/Berlin 0 0 5 * *", HOUR)],
    ],
)
def test_unions_known_at_once_to_be_always_open(parts: list[tuple[str, timedelta]]) -> None:
    assert any_of([windows(text, duration) for text, duration in parts]) is ALWAYS
    assert any_of([windows(text, duration) for text, duration in parts[1:]]) is not ALWAYS


def test_unions_found_to_be_always_open() -> None:
    halves = any_of([windows("* * 1-15 * *", MINUTE), windows("* * 16-31 * *", MINUTE)])
    assert halves.contains(NOW)
    assert halves.until(NOW) is None
    without_the_31st = any_of([windows("* * 1-15 * *", MINUTE), windows("* * 16-30 * *", MINUTE)])
    assert without_the_31st.until(NOW) == at("2026-05-31T00:00")
    # Odd seconds: the first window's tail meets the second's start.
    tails = any_of([windows("0 * 1-31 * *", 30 * MINUTE), windows("*/30 * * * 1", 90 * timedelta(seconds=1))])
    assert tails.until(at("2026-05-11T00:30")) == at("2026-05-11T00:31:30")


def test_logic_of_a_pod() -> None:
    """Disruptable once a do-not-disrupt has elapsed, inside the allow window, outside the block window (R7, R12)."""
    allowed, blocked = windows("0 2 * * *", 4 * HOUR), windows("0 3 * * 1-5", HOUR)
    pod = all_of([since(at("2026-05-15T03:30")), allowed, complement(blocked)])
    assert not pod.contains(NOW)
    assert pod.until(NOW) == at("2026-05-15T04:00")
    assert pod.until(at("2026-05-15T04:00")) == at("2026-05-15T06:00")
    assert pod.until(at("2026-05-15T06:00")) == at("2026-05-16T02:00")
    assert pod.until(at("2026-05-16T02:30")) == at("2026-05-16T06:00")  # a Saturday


def test_many_changes_of_parts_before_the_whole_changes() -> None:
    rare = all_of(
        [windows("0 * * * *", MINUTE), complement(windows("0 * * * 0-4,6", HOUR)), windows("0 0 13 * ?", HOUR)]
    )
    assert rare.until(NOW) == at("2026-11-13T00:00")  # the next Friday the 13th
    both = all_of([windows("*/2 * * * *", MINUTE), windows("1-59/2 * * * *", MINUTE)])
    assert not both.contains(NOW)
    assert both.until(NOW) is None


def test_what_meets_inside_a_minute_is_told_apart() -> None:
    """Sets that agree on whole minutes but not inside them, and the other way round."""
    short, long = windows("*/2 * * * *", timedelta(seconds=90)), windows("*/2 * * * *", timedelta(seconds=100))
    between = all_of([long, complement(short)])
    assert between.until(at("2026-05-13T12:00")) == at("2026-05-13T12:01:30")
    assert between.until(at("2026-05-13T12:01:30")) == at("2026-05-13T12:01:40")
    nothing = all_of([short, complement(long)])
    assert nothing.until(NOW) is None
    same = RecurringWindow(parse_cron("*/2 * * * *"), 90_000_000_000)
    assert all_of([same, complement(short)]).until(NOW) is None
    assert any_of([same, complement(short)]).until(NOW) is None
    assert any_of([same, complement(short)]).contains(NOW)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_windows_that_close_in_the_same_minute_for_years(count: int) -> None:
    """Allowed where it is blocked a little longer, but for one day a year on which it is blocked a little shorter."""
    seconds = timedelta(seconds=1)
    allowed = [windows("*/2 * * * *", 90 * seconds + 3 * i * TICK) for i in range(count)]
    longer = [
        windows(f"*/2 * * {months} *", 100 * seconds + i * TICK) for i in range(count) for months in ("1-9", "11,12")
    ]
    shorter = [windows("*/2 * * 10 *", 80 * seconds)]
    blocked = any_of([*longer, *shorter])
    free = all_of([any_of(allowed), complement(blocked)])
    assert not free.contains(NOW)
    assert free.until(NOW) == at("2026-10-01T00:01:20")
    assert complement(free).until(NOW) == at("2026-10-01T00:01:20")
    assert free.until(at("2026-10-01T00:01:20")) == at("2026-10-01T00:01:30") + 3 * (count - 1) * TICK
    assert all_of([any_of(allowed), complement(any_of(longer))]).until(NOW) == at("2026-10-01T00:00")
    never = all_of([any_of(allowed), complement(any_of([*longer, windows("*/2 * * 10 *", 95 * seconds)]))])
    assert never.until(NOW) is None
    # The other way round: always, but for the moment between.
    assert any_of([complement(any_of(allowed)), blocked]).until(NOW) == at("2026-10-01T00:01:20")


def test_many_together_stay_together() -> None:
    """What many pods say is remembered for all who ask, and means the same as each of them would."""
    nights = [windows(f"{minute} 2 * * *", HOUR) for minute in range(40)]
    together, night = all_of(nights), windows("30 2 * * 6", HOUR)
    assert together.until(NOW) == at("2026-05-14T02:39")
    both = all_of([night, together, since(NOW + DAY)])
    assert both.until(NOW) == at("2026-05-16T02:39")
    assert both.until(at("2026-05-16T02:39")) == at("2026-05-16T03:00")
    assert repr(together) in repr(both)


HARD = [
    ["* * 1-15 * *;* * 16-31 * *", 60],
    ["* * 1-15 * *;* * 16-31 * *", 61],
    ["*/2 * * * *;1-59/2 * * * 1-6", 61],
    ["*/7 */5 * * *", 14_639.5],
    ["0 0 29 2 1", 60],
    ["0 0 29 2 *", 604_800],
    ["TZ=Europe/Berlin @daily", 90_000],
    ["TZ=Australia/Lord_Howe 0 * * * *", 3600],
    [";".join(f"TZ=Asia/Gaza {minute} * {day}-{day + 20} * *" for minute in range(6) for day in (1, 11)), 3607.123],
]


@pytest.mark.parametrize(("text", "seconds"), HARD)
def test_little_is_looked_at(text: str, seconds: float) -> None:
    """However long nothing changes and however often it does: a few stretches of days, in which most days are alike."""
    parts = [windows(one, timedelta(seconds=seconds)) for one in text.split(";")]
    either = any_of(parts)
    openings.cache_clear()
    until = either.until(NOW)
    if until is not None:
        either.until(until)
    assert openings.cache_info().misses <= 2 * 3 * len(parts)
    for one in text.split(";"):
        years = openings(parse_cron(one), int(seconds) // 60, stretch_of(20_480, 2112))
        assert sum(years.values()) == (1 << 2112) - 1
        assert len(years) <= 40


def test_every_zone_can_be_looked_at() -> None:
    """Between two changes of any clock there is a day like others."""
    for name in sorted(zone_names()):
        days = openings(parse_cron(f"TZ={name} 30 1 * * *"), 60, stretch_of(20_480, 2112))
        assert sum(days.values()) == (1 << 2112) - 1


def test_since_among_windows() -> None:
    nights = [windows(f"{minute} 2 * * 6", HOUR) for minute in range(60)]
    start = at("2026-05-16T02:30") + TICK
    assert any_of([*nights, since(start)]).until(at("2026-05-16T02:15")) is None
    for night in nights:
        assert all_of([night, since(start)]).until(NOW) == max(start, night.first(NOW) or start)


def test_since_inside_a_minute_after_many_changes_of_the_parts() -> None:
    even, odd = windows("*/2 * * * *", MINUTE), windows("1-59/2 * * * *", MINUTE)
    for start in (
        NOW + 90 * MINUTE,
        at("2026-05-31T23:59:59.999999"),
        at("2026-06-01T00:00"),
        at("2027-01-01T07:00:00.5"),
    ):
        either = all_of([any_of([since(start), even]), any_of([since(start), odd])])
        assert not either.contains(NOW)
        assert either.until(NOW) == start
        assert either.until(start) is None
