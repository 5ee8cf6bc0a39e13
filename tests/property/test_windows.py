"""Windows and sets of instants against an oracle that walks every minute of the days around changes of the clock."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

from hypothesis import assume, given
from hypothesis import strategies as st

from dovetail.values.schedule.almanac import stretch_of
from dovetail.values.schedule.cells import smear
from dovetail.values.schedule.cron import parse_cron
from dovetail.values.schedule.instants import (
    HORIZON,
    Instants,
    RecurringWindow,
    all_of,
    any_of,
    complement,
    recurring,
    since,
    with_time_left,
)
from dovetail.values.schedule.openings import openings
from dovetail.values.schedule.window import Window
from dovetail.values.schedule.zone import load_zone

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
DAY = timedelta(days=1)


def utc(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)  # type: ignore[arg-type,misc]  # the fields are integers


# An instant of interest in each zone; tests look at the days around it.
EDGES = (
    ("UTC", utc(2027, 12, 31, 23, 59)),
    ("UTC", utc(2028, 2, 29, 12, 0)),
    ("Europe/Berlin", utc(2026, 3, 29, 1, 0)),
    ("Europe/Berlin", utc(2026, 10, 25, 1, 0)),
    ("America/New_York", utc(2026, 3, 8, 7, 0)),
    ("America/New_York", utc(2026, 11, 1, 6, 0)),  # the repeated hour is the first of a month
    ("Australia/Lord_Howe", utc(2026, 4, 4, 15, 0)),
    ("Australia/Lord_Howe", utc(2026, 10, 3, 15, 30)),
    ("Pacific/Apia", utc(2011, 12, 30, 10, 0)),  # December 30 does not exist
    ("Pacific/Apia", utc(2021, 4, 3, 14, 0)),
    ("Africa/Cairo", utc(2026, 4, 23, 22, 0)),  # the gap is at midnight
    ("Africa/Cairo", utc(2026, 10, 29, 21, 0)),
)
BEFORE, AFTER = timedelta(hours=54), timedelta(hours=36)


class Wall(NamedTuple):
    """What a wall clock with a calendar shows."""

    day: date
    hour: int
    minute: int


class Step(NamedTuple):
    """One UTC minute, and the local minutes on the clock's way to it."""

    at: datetime
    wall: Wall
    repeated: bool
    skipped: list[Wall]


@cache
def walk(zone: str, edge: datetime) -> list[Step]:
    """Every minute around an edge as somebody watching a wall clock sees it."""
    info = load_zone(zone)
    steps: list[Step] = []
    at, expected = edge - BEFORE, None
    while at < edge + AFTER:
        local = at.astimezone(info)
        naive = local.replace(tzinfo=None, fold=0)
        skipped = []
        while expected is not None and expected < naive:
            skipped.append(Wall(expected.date(), expected.hour, expected.minute))
            expected += MINUTE
        steps.append(Step(at, Wall(naive.date(), naive.hour, naive.minute), local.fold == 1, skipped))
        at, expected = at + MINUTE, naive + MINUTE
    return steps


class Expression(NamedTuple):
    """An expression as text, and what it means as plain sets."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None  # None: unrestricted
    months: frozenset[int]
    weekdays: frozenset[int] | None

    def on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day = self.days is None or day.day in self.days
        by_weekday = self.weekdays is None or day.isoweekday() % 7 in self.weekdays
        if self.days is not None and self.weekdays is not None:
            return by_day or by_weekday
        return by_day and by_weekday

    def hits(self, zone: str, edge: datetime) -> list[datetime]:
        """R10, minute by minute: the skipped fires after the gap, the repeated once unless every hour counts."""
        steps = walk(zone, edge)
        days = [edge.date() + i * DAY for i in range(-5, 5)]
        matching = {Wall(day, hour, m) for day in days if self.on(day) for hour in self.hours for m in self.minutes}
        any_hour = len(self.hours) == 24
        return [
            step.at
            for step in steps
            if (step.wall in matching and (any_hour or not step.repeated)) or not matching.isdisjoint(step.skipped)
        ]


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> tuple[str, frozenset[int] | None]:
    """A field as text and as values; None: unrestricted."""
    kind = draw(st.sampled_from(["star", "star", "number", "range", "step", "from", "list"]))
    a, b = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    step = draw(st.integers(1, 20))
    match kind:
        case "star":
            return draw(st.sampled_from(["*", "?", "*/1"])), None
        case "number":
            return str(a), frozenset({a})
        case "range":
            return f"{a}-{b}/{step}", frozenset(range(a, b + 1, step))
        case "step":
            return f"*/{step + 1}", frozenset(range(low, high + 1, step + 1))
        case "from":
            return f"{a}/{step}", frozenset(range(a, high + 1, step))
    return f"{b},{a}", frozenset({a, b})


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    minute, minutes = draw(fields(0, 59))
    hour, hours = draw(fields(0, 23))
    day, days = draw(fields(1, 31))
    month, months = draw(st.one_of(st.just(("*", None)), fields(1, 12)))
    weekday, weekdays = draw(fields(0, 6))
    every = [frozenset(range(60)), frozenset(range(24)), frozenset(range(1, 13))]
    return Expression(
        f"{minute} {hour} {day} {month} {weekday}",
        minutes or every[0],
        hours or every[1],
        days,
        months or every[2],
        weekdays,
    )


durations = st.one_of(
    st.sampled_from([MINUTE, timedelta(minutes=2), timedelta(minutes=30), timedelta(hours=1), DAY, DAY + SECOND]),
    st.integers(1, 26 * 3600).map(lambda seconds: timedelta(seconds=seconds)),
    st.integers(1, 200_000_000).map(lambda us: timedelta(microseconds=us)),
)
edges = st.sampled_from(EDGES)
moments = st.one_of(
    st.integers(-86400, 86400).map(lambda seconds: timedelta(seconds=seconds)),
    st.integers(-240, 240).map(lambda minutes: timedelta(minutes=minutes)),
    st.integers(-(10**10), 10**10).map(lambda us: timedelta(microseconds=us)),
)

Spans = list[tuple[datetime, datetime]]


def windows(expression: Expression, zone: str, edge: datetime, duration: timedelta) -> Spans:
    return [(hit, hit + duration) for hit in expression.hits(zone, edge)]


def merged(spans: Spans) -> Spans:
    joined: Spans = []
    for start, stop in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def within(spans: Spans, at: datetime) -> bool:
    return any(start <= at < stop for start, stop in spans)


def nanoseconds(duration: timedelta) -> int:
    return duration // TICK * 1000


def prefixed(zone: str, expression: Expression) -> str:
    return expression.text if zone == "UTC" else f"CRON_TZ={zone} {expression.text}"


@given(edge=edges, expression=expressions())
def test_hits(edge: tuple[str, datetime], expression: Expression) -> None:
    zone, instant = edge
    cron = parse_cron(prefixed(zone, expression))
    start = (instant - BEFORE - utc(1970, 1, 1)) // MINUTE
    minutes = (BEFORE + AFTER) // MINUTE
    expected = expression.hits(zone, instant)
    # The oracle has not seen the clock before its first minute.
    bits = cron.hits(start, start + minutes)
    assert [utc(1970, 1, 1) + (start + i) * MINUTE for i in range(minutes) if bits >> i & 1] == expected
    for minute in range(start + 1440, start + minutes, 397):
        last = cron.last_hit(minute)
        following = cron.next_hit(minute)
        at = utc(1970, 1, 1) + minute * MINUTE
        earlier = [hit for hit in expected if hit <= at]
        later = [hit for hit in expected if hit >= at]
        if earlier:
            assert last == (earlier[-1] - utc(1970, 1, 1)) // MINUTE
        else:
            assert last is None or last < start
        if later:
            assert following == (later[0] - utc(1970, 1, 1)) // MINUTE
        else:
            assert following is None or following >= start + minutes


@given(
    edge=edges,
    parts=st.lists(st.tuples(expressions(), durations), min_size=1, max_size=4),
    moments=st.lists(moments, min_size=1, max_size=6),
)
def test_windows(
    edge: tuple[str, datetime], parts: list[tuple[Expression, timedelta]], moments: list[timedelta]
) -> None:
    zone, instant = edge
    window = Window([(parse_cron(prefixed(zone, expression)), nanoseconds(duration)) for expression, duration in parts])
    runs = merged([span for expression, duration in parts for span in windows(expression, zone, instant, duration)])
    end = instant + AFTER
    for moment in moments:
        at = instant + moment
        seen = window.at(at)
        run = next(((start, stop) for start, stop in runs if start <= at < stop), None)
        opening = next((start for start, _ in runs if start > at), None)
        assert seen.open == (run is not None) == window.instants.contains(at)
        change = opening if run is None else run[1]
        if change is not None and change < end:
            assert seen.until == change
        else:
            assert seen.until is None or seen.until >= end
        if opening is not None:
            assert seen.opens_at == opening
        else:
            assert seen.opens_at is None or seen.opens_at >= end
        assert window.instants.first(at) == (at if run else seen.until)


@given(
    edge=edges,
    expression=expressions(),
    minutes=st.one_of(st.integers(0, 3000), st.integers(0, 20_000), st.integers(0, 600_000)),
    before=st.integers(0, 20),
    length=st.sampled_from([1, 16, 40]),
)
def test_openings(edge: tuple[str, datetime], expression: Expression, minutes: int, before: int, length: int) -> None:
    """Days at once are open in the same minutes as those that follow each single hit."""
    zone, instant = edge
    cron = parse_cron(prefixed(zone, expression))
    first = (instant - utc(1970, 1, 1)).days - before
    found: dict[int, int] = {}
    for cells, days in openings(cron, minutes, stretch_of(first, length)).items():
        for day in range(length):
            if days >> day & 1:
                assert found.setdefault(day, cells) is cells
    start, stop = first * 1440 - minutes, (first + length) * 1440
    expected = smear(cron.hits(start, stop), minutes) >> minutes
    assert [found[day] for day in range(length)] == [expected >> 1440 * day & (1 << 1440) - 1 for day in range(length)]


class Leaf(NamedTuple):
    instants: Instants
    holds: Callable[[datetime], bool]
    changes: Sequence[datetime]


Tree = tuple[str, list["Tree"]] | int


def trees(leaves: int) -> st.SearchStrategy[Tree]:
    return st.recursive(
        st.integers(0, leaves - 1),
        lambda inner: st.tuples(st.sampled_from(["all", "any", "not"]), st.lists(inner, min_size=1, max_size=3)),
        max_leaves=8,
    )


def built(tree: Tree, leaves: Sequence[Leaf]) -> tuple[Instants, Callable[[datetime], bool]]:
    if isinstance(tree, int):
        return leaves[tree].instants, leaves[tree].holds
    operator, branches = tree
    made = [built(branch, leaves) for branch in branches]
    sets, tests = [instants for instants, _ in made], [holds for _, holds in made]
    if operator == "all":
        return all_of(sets), lambda at: all(holds(at) for holds in tests)
    if operator == "any":
        return any_of(sets), lambda at: any(holds(at) for holds in tests)
    return complement(sets[0]), lambda at: not tests[0](at)


@given(
    edge=edges,
    parts=st.lists(st.tuples(expressions(), durations), min_size=1, max_size=4),
    starts=st.lists(moments, min_size=2, max_size=2),
    tree=trees(6),
    moments=st.lists(moments, min_size=1, max_size=6),
)
def test_logic(
    edge: tuple[str, datetime],
    parts: list[tuple[Expression, timedelta]],
    starts: list[timedelta],
    tree: Tree,
    moments: list[timedelta],
) -> None:
    zone, instant = edge
    end = instant + AFTER
    leaves = [Leaf(since(start), start.__le__, [start]) for start in (instant + start for start in starts)]
    for expression, duration in parts:
        runs = merged(windows(expression, zone, instant, duration))
        made = recurring(parse_cron(prefixed(zone, expression)), nanoseconds(duration))
        leaves.append(Leaf(made, partial(within, runs), [change for run in runs for change in run]))
    leaves = (leaves * 3)[:6]
    instants, holds = built(tree, leaves)
    changes = sorted({change for leaf in leaves for change in leaf.changes if change < end})
    for moment in moments:
        at = instant + moment
        now = holds(at)
        assert instants.contains(at) == now
        expected = next((change for change in changes if change > at and holds(change) != now), None)
        until = instants.until(at)
        if expected is not None:
            assert until == expected
        else:
            assert until is None or until >= end
        if until is not None:
            assert instants.contains(until) != instants.contains(until - TICK)


@given(
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Apia"]),
    expression=expressions(),
    days=st.integers(-3650, 36500),
    duration=durations,
)
def test_far_changes(zone: str, expression: Expression, days: int, duration: timedelta) -> None:
    """Between changes years apart nothing is missed: the hits say when windows open and close."""
    cron = parse_cron(prefixed(zone, expression))
    # Two of the same are searched for, where one alone would ask the expression for its next hit.
    windows = any_of([RecurringWindow(cron, nanoseconds(duration)), RecurringWindow(cron, nanoseconds(duration))])
    at = utc(2026, 1, 31) + days * DAY
    until = windows.until(at)
    if not windows.contains(at):
        hit = cron.next_hit((at - utc(1970, 1, 1)) // MINUTE + 1)
        following = None if hit is None else utc(1970, 1, 1) + hit * MINUTE
        assert until == (following if following is not None and following - at <= HORIZON else None)
        return
    assume(until is not None)
    assert until is not None
    last = cron.last_hit((until - TICK - utc(1970, 1, 1)) // MINUTE)
    assert last is not None
    assert utc(1970, 1, 1) + last * MINUTE + duration == until
    # No window closed before that: each hit of the run comes before the one before it closes.
    start = cron.last_hit((at - utc(1970, 1, 1)) // MINUTE)
    assert start is not None
    if last - start < 100_000:
        bits = cron.hits(start, last + 1)
        hits = [i for i in range(last - start + 1) if bits >> i & 1]
        assert all((b - a) * MINUTE <= duration for a, b in pairwise(hits))


# -- time left ---------------------------------------------------------------------------------------------------------

SOME_CRONS = (
    "*/7 * * * *",
    "0 2 * * *",
    "30 23 * * 1-5",
    "0 */3 * * *",
    "CRON_TZ=Europe/Berlin 0 2 * * 0",
    "59 23 31 12 *",
)
SOME_SECONDS = (60, 90, 119, 600, 3600, 86_400)
SPANS = (1, 59, 60, 61, 105, 300, 3_700, 90_000)


def has_time_left(instants: Instants, at: datetime, span: timedelta) -> bool:
    """From the minute of the instant on, minute by minute."""
    start = at.replace(second=0, microsecond=0)
    stop = instants.until(start) if instants.contains(start) else start
    return stop is None or stop - start >= -(-span // MINUTE) * MINUTE


@given(
    st.lists(st.tuples(st.sampled_from(SOME_CRONS), st.sampled_from(SOME_SECONDS)), min_size=1, max_size=3),
    st.sampled_from(SPANS),
    st.booleans(),
    st.integers(0, 10**6),
    st.lists(st.integers(0, 10**9), max_size=10),
)
def test_time_left_is_what_each_minute_says(
    windows: list[tuple[str, int]], seconds: int, inverse: bool, offset: int, looks: list[int]
) -> None:
    instants = any_of([recurring(parse_cron(text), long * 10**9) for text, long in windows])
    instants = complement(instants) if inverse else instants
    span, at = timedelta(seconds=seconds), utc(2026, 3, 27) + offset * SECOND
    lasting = with_time_left(instants, span)
    holds, until = lasting.contains(at), lasting.until(at)
    assert holds == has_time_left(instants, at, span)
    if until is not None:
        assert has_time_left(instants, until, span) != holds
        assert has_time_left(instants, until - TICK, span) == holds
    end = at + HORIZON - DAY if until is None else until
    for look in looks:
        assert has_time_left(instants, at + (end - at) * (look / 10**9 * 0.999), span) == holds


@given(st.sampled_from(SPANS), st.integers(0, 10**6))
def test_time_left_of_several_sets_is_that_of_each(seconds: int, offset: int) -> None:
    span, at = timedelta(seconds=seconds), utc(2026, 3, 27) + offset * SECOND
    window, free = recurring(parse_cron("0 2 * * *"), 3600 * 10**9), since(utc(2026, 3, 28, 2, 30, 30))
    assert with_time_left(free, span) is free
    both = with_time_left(all_of([window, free]), span)
    assert both.contains(at) == (free.contains(at) and has_time_left(window, at, span))
