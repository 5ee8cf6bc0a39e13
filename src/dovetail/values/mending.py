"""Finds the duration or schedule that a text was evidently meant to be, for remedies.

Where a text can mean two things, the answer is None: a wrong remedy is worse than none.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from dovetail.values.duration import HOUR, MAX, MINUTE, SECOND, DurationError, parse_duration, short_duration
from dovetail.values.schedule.cron import CronError, parse_cron
from dovetail.values.schedule.zone import zone_names
from dovetail.values.spelling import meant_word

_MAX_TEXT = 80  # longer texts are not typing errors

# -- durations --------------------------------------------------------------------------------------------------------

_WORD_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), HOUR),
    **dict.fromkeys(("d", "day", "days"), 24 * HOUR),
    **dict.fromkeys(("w", "wk", "week", "weeks"), 7 * 24 * HOUR),
}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([a-z]+)(?:,| and)? ?")
_ISO = re.compile(r"p(?:([0-9]{1,9})d)?(?:t(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?)?")
_MINUTES_OR_MONTHS = re.compile(r"[0-9.]+ ?M")


def meant_duration(text: str) -> str | None:
    """The positive Go duration that the text was meant to be, or None. A number without a unit has no answer."""
    words = " ".join(text.split())
    if not words or len(words) > _MAX_TEXT or _MINUTES_OR_MONTHS.fullmatch(words):
        return None
    words = words.lower()
    total, at = 0, 0
    while at < len(words):
        part = _PART.match(words, at)
        if part is None or part[2] not in _WORD_UNITS:
            return _iso(words) or _go(words)
        total += round(float(part[1]) * _WORD_UNITS[part[2]])
        at = part.end()
    return _written(total)


def is_unitless(text: str) -> bool:
    """Whether the text is a number above one without a unit: hours, minutes and seconds are all possible."""
    digits = text.strip()
    return digits.isascii() and digits.isdigit() and len(digits) <= 9 and int(digits) > 1


def _written(ns: int) -> str | None:
    return short_duration(ns) if SECOND <= ns <= MAX and ns % SECOND == 0 else None


def _iso(words: str) -> str | None:
    parts = _ISO.fullmatch(words)
    if parts is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return _written((days * 24 + hours) * HOUR + minutes * MINUTE + seconds * SECOND)


def _go(words: str) -> str | None:
    try:
        return _written(parse_duration(words))
    except DurationError:
        return None


# -- schedules --------------------------------------------------------------------------------------------------------

_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_HOURS, _DAYS, _MONTHS, _WEEKDAYS = 1, 2, 3, 4
_NAMES = {
    _MONTHS: ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
    _WEEKDAYS: ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
}
_LONG_NAMES = {
    name: name[:3].upper()
    for name in (
        *("january", "february", "march", "april", "june", "july", "august", "september", "october", "november"),
        *("december", "sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"),
    )
}
_DESCRIPTORS = frozenset({"hourly", "daily", "midnight", "weekly", "monthly", "yearly", "annually"})
_ZONE_PREFIX = re.compile(r"(?:(?:cron[_-]?)?tz|time[_-]?zone|zone)\s*[=:]?\s*(?=[a-z])", re.IGNORECASE)


class MeantSchedule(NamedTuple):
    """A valid expression that a text was meant to be."""

    text: str
    span_ns: int | None = None
    """The hours of the text cross midnight, as in `0 22-6 * * *`: the length of such a window."""
    hours: str = ""
    """The same for people: `22:00 to 06:00`."""


def is_length_of(span_ns: int | None, schedule: MeantSchedule) -> bool:
    """Whether the hours over midnight are this long. An hour could also be the length of a window in each hour."""
    return schedule.span_ns is None or (span_ns == schedule.span_ns and span_ns > HOUR)


def over_midnight(schedule: MeantSchedule, duration_field: str, quote: str = "") -> str:
    """How to write a window over midnight: as its start and its length."""
    span = short_duration(schedule.span_ns or 0)
    return f'for {schedule.hours} write "{schedule.text}", and {duration_field}: {quote}{span}{quote}'


@lru_cache(maxsize=1024)  # it searches 600 zones, and many workloads have the same schedule
def meant_schedule(text: str) -> MeantSchedule | None:
    """The cron expression of R9's dialect that the text was evidently meant to be, or None."""
    words = text.strip().strip("\"'").split()
    if not words or len(text) > 2 * _MAX_TEXT:
        return None
    split = _split_zone(words)
    if split is None:
        return None
    zone, words = split
    if len(words) == 1 and words[0].lower().removeprefix("@") in _DESCRIPTORS:
        words = [f"@{words[0].lower().removeprefix('@')}"]
    meant = [(_mended(zone, fields), exact) for fields, exact in _five_fields(words)]
    possible = [(schedule, exact) for schedule, exact in meant if schedule is not None]
    return possible[0][0] if len(possible) == 1 and possible[0][1] else None


def surplus_advice(texts: Iterable[str]) -> str:
    """The beginning of a remedy for expressions that have more than five fields; empty for others."""
    for text in texts:
        zone = _split_zone(text.split()) if text.strip() and len(text) <= 2 * _MAX_TEXT else None
        if zone is not None and len(zone[1]) in (6, 7):
            return "leave out the seconds or the year: "
    return ""


def _split_zone(words: list[str]) -> tuple[list[str], list[str]] | None:
    """The prefix for the zone, if the text names one, and the other words; None if the zone is unknown."""
    text = " ".join(words)
    prefix = _ZONE_PREFIX.match(text)
    if prefix is not None:
        words = text[prefix.end() :].split()
        for length in (1, 2) if words[1:] and words[1][0].isalpha() else (1,):  # America/New York
            name = _zone("_".join(words[:length]))
            if name is not None:
                written = "TZ=" if prefix[0] == "TZ=" else "CRON_TZ="
                return [written + name], words[length:]
        return None
    for name, others in ((words[0], words[1:]), (words[-1].strip("()"), words[:-1])):
        if name[:1].isalpha() and ("/" in name or name in {"UTC", "GMT"}):
            zone = _zone(name)
            return None if zone is None else ([f"CRON_TZ={zone}"], others)
    return [], words


@lru_cache(maxsize=1024)
def _zone(name: str) -> str | None:
    if name in zone_names():
        return name
    # Two typing errors lead from Munich to Zurich, and one from PST to EST.
    return meant_word(name, zone_names(), most_errors=1) if "/" in name else None


def _five_fields(words: list[str]) -> Iterator[tuple[list[str], bool]]:
    """The possible five fields of an expression, which may have seconds in front or a year at the end.

    Each with whether it means the same: another second than 0, or a certain year, would be lost.
    """
    if len(words) <= 5:
        yield words, True
        return
    for first, last in ((1, 0), (0, 1)) if len(words) == 6 else ((1, 1),) if len(words) == 7 else ():
        fields = words[first : len(words) - last]
        if any(field == "?" for place, field in enumerate(fields) if place not in (_DAYS, _WEEKDAYS)):
            continue
        if last and words[-1] not in ("*", "?") and not re.fullmatch(r"20[0-9]{2}(?:-20[0-9]{2})?", words[-1]):
            continue
        exact = (not first or words[0] == "0") and (not last or words[-1] in ("*", "?"))
        # Quartz, which writes ?, counts weekdays from 1.
        yield fields, exact and not ("?" in words and any(letter.isdigit() for letter in fields[_WEEKDAYS]))


def _mended(zone: list[str], fields: list[str]) -> MeantSchedule | None:
    span_ns, hours = None, ""
    if len(fields) == 5:
        fields = [_with_short_names(field, place) for place, field in enumerate(fields)]
        fields = [_unwrapped(field, place) for place, field in enumerate(fields)]
        start, hyphen, end = fields[_HOURS].partition("-")
        low, high = _position(start, _HOURS), _position(end, _HOURS)
        if hyphen and low is not None and high is not None and high < low <= 23:
            minute = _position(fields[0], 0)
            if fields[0] == "*":
                minute = 0
            if minute is None:
                return None
            span_ns, hours = (high + 24 - low) * HOUR, f"{low:02}:{minute:02} to {high:02}:{minute:02}"
            fields = [str(minute), str(low), *fields[2:]]
    candidate = " ".join(zone + fields)
    try:
        parse_cron(candidate)
    except CronError:
        return None
    return MeantSchedule(candidate, span_ns, hours)


def _with_short_names(field: str, place: int) -> str:
    """`saturday-sunday` as `SAT-SUN`."""
    if place not in _NAMES:
        return field
    return re.sub(r"[A-Za-z]+", lambda word: _LONG_NAMES.get(word[0].lower(), word[0]), field)


def _unwrapped(field: str, place: int) -> str:
    """A field of days or months whose ranges that run past the end are cut in two: FRI-SUN becomes 5-6,0."""
    return field if place < _DAYS else ",".join(_unwrapped_item(item, place) for item in field.split(","))


def _unwrapped_item(item: str, place: int) -> str:
    first, hyphen, second = item.partition("-")
    low, high = _position(first, place), _position(second, place)
    bottom, top = _RANGES[place]
    if not hyphen or low is None or high is None or low <= high:
        return item
    ends = [f"{low}-{top}" if low < top else str(low), f"{bottom}-{high}" if bottom < high else str(bottom)]
    return ",".join(ends)


def _position(text: str, place: int) -> int | None:
    named = _NAMES.get(place, ())
    if text.upper() in named:
        return _RANGES[place][0] + named.index(text.upper())
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 2 else None
