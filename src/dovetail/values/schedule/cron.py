"""Cron expressions: their syntax (R9), and their hits as sets of UTC minutes (R10).

Hits are not enumerated. A stretch of time is an int with one bit per minute, so that days of hits take one AND and a
few shifts, however often the expression fires.
"""

import re
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dovetail.values import limits
from dovetail.values.schedule.almanac import FIRST_MONTH, LAST_MONTH, Stretch, chosen, month_of, month_of_day
from dovetail.values.schedule.zone import DAY, ZoneError, load_zone, spell_at, spells

_MAX_DIGITS = 18
_FAR = 16 * 60  # minutes; no zone has ever been further from UTC
_RECENT = 10 * DAY
# The longest silence of an expression that fires: February 29 from 2096 to 2104.
_LONGEST_SILENCE_MONTHS = 8 * 12 + 2

_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# White space of Go's strings.Fields. Python's str.split also splits at U+001C..U+001F.
_SPACE = "\t\n\v\f\r \u0085\u00a0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_FIELDS = re.compile(f"[^{_SPACE}]+")


class CronError(ValueError):
    """The text is not a cron expression; the message says where, and what is expected."""


class _Field(NamedTuple):
    name: str
    low: int
    high: int  # also the end of `N/step`
    names: tuple[str, ...] = ()  # of low, low + 1, …
    top: int = 0  # the greatest number that may be written, if greater than `high`

    @property
    def accepted(self) -> str:
        low, high = (self.names[0], self.names[-1]) if self.names else ("", "")
        words = f" or {low}-{high}" if self.names else ""
        return f"{self.low}-{max(self.high, self.top)}{words}, *, ranges a-b, steps /n and lists"


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY_OF_MONTH = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, _MONTHS)
_DAY_OF_WEEK = _Field("day of week", 0, 6, _WEEKDAYS, top=7)


class Shape(NamedTuple):
    """The offsets of a clock in a stretch of time, relative to its start. With the same matching days, equal shapes
    have equal hits.
    """

    minutes: int  # the length of the stretch
    days: int  # how many local days it may be in
    day_zero: int  # where the first of them starts on the local clock, relative to the start of the stretch
    spells: tuple[tuple[int, int, int], ...]  # (start, stop, offset), reaching a day back


class Fields(NamedTuple):
    """The five fields as masks: minutes and hours from 0, days and months from 1, weekdays from Sunday."""

    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    any_day: bool  # the day of month is unrestricted
    any_weekday: bool


class Cron:
    """A parsed expression; equal if it means the same. Create it with `parse_cron`."""

    __slots__ = ("_any_hour", "_either", "_hash", "_key", "_week", "day", "fields", "never", "text", "zone")

    def __init__(self, text: str, zone: ZoneInfo, fields: Fields) -> None:
        self.text = text
        self.zone = zone
        self.fields = fields
        # R10 asks whether the hour is `*`. A list of all 24 hours counts as `*`: otherwise it would leave a hole in
        # the repeated hour.
        self._any_hour = fields.hours == (1 << 24) - 1
        self._either = not (fields.any_day or fields.any_weekday)
        self.day = sum(fields.minutes << 60 * hour for hour in range(24) if fields.hours >> hour & 1)
        self._week = sum(fields.weekdays << 7 * week for week in range(6))
        # Only a day of the month can be impossible; every day of the week occurs.
        self.never = fields.any_weekday and not any(
            fields.months >> month & 1 and fields.days & (1 << length) - 1
            for month, length in enumerate((31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))
        )
        self._key = (zone.key, fields)
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Cron) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Cron({self.text!r})"

    @property
    def weekly(self) -> bool:
        """Whether all weeks are alike, apart from changes of the zone's offset."""
        return self.fields.months == (1 << 12) - 1 and self.fields.days == (1 << 31) - 1

    @property
    def week(self) -> int:
        """The hits that every week has, in local time from Sunday 00:00."""
        return sum(self.day << DAY * day for day in range(7) if self._every_week >> day & 1)

    @property
    def hits_a_week(self) -> int:
        """The number of these hits."""
        return self.day.bit_count() * self._every_week.bit_count()

    @property
    def _every_week(self) -> int:
        """The weekdays on which it fires every week."""
        every_day = self.fields.days == (1 << 31) - 1
        if self.fields.months != (1 << 12) - 1 or not (every_day or self._either):
            return 0
        return (1 << 7) - 1 if every_day and self._either else self.fields.weekdays

    @property
    def minutely(self) -> bool:
        """Whether it fires every minute in any zone."""
        return self.weekly and self.hits_a_week == 7 * DAY

    def hits(self, start: int, stop: int) -> int:
        """The hits in the UTC minutes [start, stop): bit i is minute start + i."""
        first, shape = shape_of(self.zone, start, stop)
        return self.hits_of(shape, self._matching_days(first, first + shape.days))

    def hits_of(self, shape: Shape, days: int) -> int:
        """The hits in a stretch of this shape, on the matching local days."""
        if not days:
            return 0
        local = self._local(days)
        hits, cleared, before = 0, 0, None
        for begin, end, offset in shape.spells:
            if before is not None:
                shift = offset - before
                if shift > 0 and begin >= 0:
                    # Skipped hits fire at the first instant after the gap (R10).
                    skipped = local >> begin + before - shape.day_zero & (1 << shift) - 1
                    hits |= bool(skipped) << begin
                elif shift < 0 and not self._any_hour:
                    # Repeated hits fire the first time only (R10).
                    repeat = (1 << -shift) - 1
                    cleared |= repeat << begin if begin >= 0 else repeat >> -begin
            before = offset
            begin = max(begin, 0)  # noqa: PLW2901
            if begin < end:
                hits |= (local >> begin + offset - shape.day_zero & (1 << end - begin) - 1) << begin
        return hits & ~cleared & (1 << shape.minutes) - 1

    def last_hit(self, minute: int, since: int | None = None) -> int | None:
        """The latest hit at or before a UTC minute; None if there is none since `since` or year 1."""
        if self.never:
            return None
        steady = spell_at(self.zone, minute)
        # From a day after a change of the clock on, no hit is skipped, repeated or moved.
        plain = max(steady.start + DAY, minute - _RECENT)
        earliest = plain if since is None else max(since, plain)
        local = self._last_local(minute + steady.offset, earliest + steady.offset)
        if local is not None:
            return local - steady.offset
        day = (minute + _FAR) // DAY
        while (since is None or since < plain) and (matching := self._matching_day(day, step=-1)) is not None:
            start = matching * DAY - _FAR
            stop = min(start + DAY + 2 * _FAR, minute + 1)
            if start < stop and (hits := self.hits(start, stop)):
                hit = start + hits.bit_length() - 1
                return hit if since is None or hit >= since else None
            if since is not None and start < since:
                break
            day = matching - 1
        return None

    def fires(self, minute: int) -> bool:
        """Whether it fires in a UTC minute."""
        steady = spell_at(self.zone, minute)
        if minute < steady.start + DAY:
            return bool(self.hits(minute, minute + 1))
        day, of_day = divmod(minute + steady.offset, DAY)
        return bool(self.day >> of_day & 1 and self._matching_days(day, day + 1))

    def _last_local(self, minute: int, earliest: int) -> int | None:
        """The latest match between two local minutes some days apart, ignoring changes of the clock."""
        first, (day, of_day) = earliest // DAY, divmod(minute, DAY)
        if first > day:
            return None
        days = self._matching_days(first, day + 1)
        today = 1 << day - first
        if days & today and (earlier := self.day & (2 << of_day) - 1):
            hit = day * DAY + earlier.bit_length() - 1
        elif days := days & today - 1:
            hit = (first + days.bit_length() - 1) * DAY + self.day.bit_length() - 1
        else:
            return None
        return hit if hit >= earliest else None

    def next_hit(self, minute: int) -> int | None:
        """The earliest hit at or after a UTC minute; None if there is none until year 9999."""
        if self.never:
            return None
        day = (minute - _FAR) // DAY
        while (matching := self._matching_day(day, step=1)) is not None:
            stop = matching * DAY + DAY + _FAR
            start = max(stop - DAY - 2 * _FAR, minute)
            if start < stop and (hits := self.hits(start, stop)):
                return start + (hits & -hits).bit_length() - 1
            day = matching + 1
        return None

    def _local(self, days: int) -> int:
        """The local minutes that match on these days, ignoring changes of the clock."""
        day, none = self.day.to_bytes(DAY // 8, "little"), bytes(DAY // 8)
        return int.from_bytes(b"".join([day if days >> i & 1 else none for i in range(days.bit_length())]), "little")

    def _matching_days(self, first: int, stop: int) -> int:
        """The matching local days in [first, stop): bit i is day first + i."""
        mask, month = 0, month_of_day(first)
        while month <= LAST_MONTH:
            start = month_of(month).start
            if start >= stop:
                break
            matching = self._days_of_month(month)
            mask |= matching << start - first if start >= first else matching >> first - start
            month += 1
        return mask & (1 << stop - first) - 1

    def _matching_day(self, day: int, *, step: int) -> int | None:
        """The nearest matching local day, at or before (step -1) or at or after (step 1) a day."""
        month, months = month_of_day(day), self.fields.months
        for index in range(month, month + step * _LONGEST_SILENCE_MONTHS, step):
            if not months >> index % 12 & 1:
                continue
            if not FIRST_MONTH <= index <= LAST_MONTH:
                return None
            start, days = month_of(index).start, self._days_of_month(index)
            if index == month:
                days &= -1 << max(day - start, 0) if step > 0 else (1 << max(day - start + 1, 0)) - 1
            if days:
                return start + ((days & -days) if step > 0 else days).bit_length() - 1
        return None

    def days_in(self, stretch: Stretch) -> int:
        dates, weekdays = chosen(stretch.dates, self.fields.days), chosen(stretch.weekdays, self.fields.weekdays)
        return self._on(dates, weekdays) & chosen(stretch.months, self.fields.months)

    def _days_of_month(self, month: int) -> int:
        """The matching days of a month; bit 0 is the first."""
        fields = self.fields
        if not fields.months >> month % 12 & 1:
            return 0
        _, length, weekday = month_of(month)
        return self._on(fields.days, self._week >> weekday) & (1 << length) - 1

    def _on(self, dates: int, weekdays: int) -> int:
        """If both day of month and day of week are restricted, either suffices (R9)."""
        return dates | weekdays if self._either else dates & weekdays


@lru_cache(maxsize=2048)
def shape_of(zone: ZoneInfo, start: int, stop: int) -> tuple[int, Shape]:
    """The first local day that the UTC minutes [start, stop) may be in, and their shape."""
    first, last = (start - _FAR) // DAY, (stop + _FAR) // DAY
    # A day early, because repeated minutes after a change may reach into the stretch.
    around = [(begin - start, end - start, offset) for begin, end, offset in spells(zone, start - DAY, stop)]
    return first, Shape(stop - start, last + 1 - first, first * DAY - start, tuple(around))


def parse_cron(text: str) -> Cron:
    """Parse an expression (R9). Raises CronError."""
    if len(text) > limits.SCHEDULE:
        raise CronError(f"a cron expression may have at most {limits.SCHEDULE} characters")
    return _parse(text)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Cron:
    rest, zone = text.strip(_SPACE), load_zone("UTC")
    if rest.startswith(("TZ=", "CRON_TZ=")):
        prefix, _, rest = rest.partition(" ")
        try:
            zone = load_zone(prefix.partition("=")[2])
        except ZoneError as error:
            raise CronError(str(error)) from None
        rest = rest.strip(_SPACE)
    if rest.startswith("@"):
        if rest not in _DESCRIPTORS:
            why = "@every has no fixed times" if rest.startswith("@every") else f"unknown descriptor {_shown(rest)}"
            raise CronError(f"{why}: expected one of {', '.join(_DESCRIPTORS)}, or five fields")
        rest = _DESCRIPTORS[rest]
    fields = _FIELDS.findall(rest)
    if len(fields) != 5:
        expected = "five fields (minute, hour, day of month, month, day of week)"
        raise CronError(f"expected {expected}, found {len(fields)}: {_shown(rest)}")
    minutes, _ = _read(_MINUTE, fields[0])
    hours, _ = _read(_HOUR, fields[1])
    days, any_day = _read(_DAY_OF_MONTH, fields[2])
    months, _ = _read(_MONTH, fields[3])
    weekdays, any_weekday = _read(_DAY_OF_WEEK, fields[4])
    weekdays = (weekdays | weekdays >> 7) & (1 << 7) - 1  # R9: Sunday is 0 or 7
    return Cron(text, zone, Fields(minutes, hours, days >> 1, months >> 1, weekdays, any_day, any_weekday))


def _read(field: _Field, text: str) -> tuple[int, bool]:
    """The values of a field as a mask, and whether the field is unrestricted (R9: `*`, `?` or `*/1` in its list)."""
    mask, unrestricted = 0, False
    for item in dict.fromkeys(text.split(",")):  # without repetitions: 4 KiB have room for many
        span, slash, step_text = item.partition("/")
        step = _number(field, step_text, item) if slash else 1
        if step == 0:
            raise _refusal(field, item, "the step must not be zero")
        if span in ("*", "?"):
            low, high = field.low, field.high
            unrestricted |= step == 1
        else:
            first, hyphen, second = span.partition("-")
            low = _value(field, first, item)
            last = field.high if slash else low
            high = _value(field, second, item) if hyphen else last
            if low > high and field is _HOUR:
                raise CronError(
                    f"hours {_shown(item)} cross midnight, which cron cannot say: start at {low} and set the duration"
                )
            if low > high:
                raise _refusal(field, item, f"the range ends before it starts, at {high}")
        for value in range(low, high + 1, step):
            mask |= 1 << value
    return mask, unrestricted


def _value(field: _Field, text: str, item: str) -> int:
    if text.upper() in field.names and text.isascii():
        return field.low + field.names.index(text.upper())
    value = _number(field, text, item)
    if not field.low <= value <= max(field.high, field.top):
        raise _refusal(field, item, f"{value} is out of range")
    return value


def _number(field: _Field, text: str, item: str) -> int:
    # isdigit alone accepts the digits of every script.
    if not (text.isascii() and text.isdigit()):
        raise _refusal(field, item, "an empty place" if not text else f"{_shown(text)} is not understood")
    if len(text) > _MAX_DIGITS:
        raise _refusal(field, item, f"a number has more than {_MAX_DIGITS} digits")
    return int(text)


def _refusal(field: _Field, item: str, why: str) -> CronError:
    return CronError(f"{field.name} {_shown(item)}: {why}; expected {field.accepted}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
