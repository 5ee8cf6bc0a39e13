"""Finds the valid name, duration or cron expression nearest to a mistake, for the remedies of `lint`."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache

from dovetail.values.duration import HOUR, MAX, MINUTE, SECOND, DurationError, parse_duration, short_duration
from dovetail.values.schedule.cron import CronError, parse_cron
from dovetail.values.schedule.zone import zone_names

_MAX_TEXT = 80  # longer texts are not typing errors
_WORD_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), HOUR),
    **dict.fromkeys(("d", "day", "days"), 24 * HOUR),
    **dict.fromkeys(("w", "wk", "week", "weeks"), 7 * 24 * HOUR),
}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([a-z]+)(?:,| and)? ?")
_ISO = re.compile(r"p(?:([0-9]{1,9})d)?(?:t(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?)?")
_YES = frozenset({"true", "yes", "y", "on", "enabled", "always", "t", "never-disrupt"})
_NO = frozenset({"false", "no", "n", "off", "disabled", "none", "f", ""})
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_NAMES = (
    (),
    (),
    (),
    ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
    ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
)


def closest(word: str, known: Iterable[str], cutoff: float = 0.7) -> str | None:
    """The known word most like this one, or None; ignores case."""
    if len(word) > _MAX_TEXT:
        return None
    by_lower: dict[str, str] = {}
    for name in known:
        by_lower.setdefault(name.lower(), name)
    found = get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def nearest_duration(text: str) -> str | None:
    """The positive Go duration that the text was meant to be, or None."""
    words = " ".join(text.lower().split()).lstrip("+-")
    if not words or len(words) > _MAX_TEXT:
        return None
    if words.isascii() and words.isdigit():
        return _unitless(int(words[:18]))
    total, at = 0, 0
    while at < len(words):
        part = _PART.match(words, at)
        if part is None or part[2] not in _WORD_UNITS:
            return _iso(words) or _go(words)
        total += round(float(part[1]) * _WORD_UNITS[part[2]])
        at = part.end()
    return _written(total)


def _unitless(number: int) -> str | None:
    """People leave out the h. Only numbers too great for hours are taken as seconds."""
    return _written(number * (HOUR if number <= 168 else SECOND))


def _written(ns: int) -> str | None:
    return short_duration(ns - ns % SECOND) if SECOND <= ns <= MAX else None


def _iso(words: str) -> str | None:
    found = _ISO.fullmatch(words)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    total = (days * 24 + hours) * HOUR + minutes * MINUTE + seconds * SECOND
    return _written(total)


def _go(words: str) -> str | None:
    try:
        return _written(parse_duration(words))
    except DurationError:
        return None


def nearest_do_not_disrupt(text: str) -> str | None:
    """The valid do-not-disrupt value that was meant, or None."""
    word = text.strip().strip("\"'").lower()
    if word in _YES:
        return "true"
    if word in _NO or word in {"0", "-0", "+0", "0s", "0m", "0h"}:
        return "false"
    return nearest_duration(text)


@lru_cache(maxsize=1024)  # it searches 600 zones, and many workloads have the same schedule
def nearest_cron(text: str) -> str | None:
    """A valid expression of R9's dialect that the text was meant to be, or None."""
    if len(text) > 2 * _MAX_TEXT:
        return None
    words = text.strip().strip("\"'").split()
    zone: list[str] = []
    if words and words[0].startswith(("TZ=", "CRON_TZ=")):
        prefix, _, name = words.pop(0).partition("=")
        near = name if name in zone_names() else closest(name, zone_names())
        if near is None:
            return None
        zone = [f"{prefix}={near}"]
    if words and words[0].lower() == "@every":
        words = _every(words[1:])
    elif words and words[0].startswith("@"):
        words = [words[0].lower()]
    elif len(words) in (6, 7):  # with seconds first, and perhaps a year last
        words = words[1:6]
    if len(words) == 5:
        words = [_unwrapped(word, place) for place, word in enumerate(words)]
    candidate = " ".join(zone + words)
    try:
        parse_cron(candidate)
    except CronError:
        return None
    return candidate


def _every(words: list[str]) -> list[str]:
    ns = nearest_duration(" ".join(words)) or "0s"
    hours, rest = divmod(parse_duration(ns), HOUR)
    minutes = rest // MINUTE
    if hours and not rest and 24 % hours == 0:
        return ["0", f"*/{hours}" if hours > 1 else "*", "*", "*", "*"] if hours < 24 else ["@daily"]
    if not hours and minutes and 60 % minutes == 0:
        return [f"*/{minutes}" if minutes > 1 else "*", "*", "*", "*", "*"]
    return []


def _unwrapped(word: str, place: int) -> str:
    """A field whose ranges that run past the end are cut in two: 22-6 becomes 22-23,0-6."""
    return ",".join(_unwrapped_item(item, place) for item in word.split(","))


def _unwrapped_item(item: str, place: int) -> str:
    first, hyphen, second = item.partition("-")
    low, high = _position(first, place), _position(second, place)
    bottom, top = _RANGES[place]
    if not hyphen or low is None or high is None or low <= high:
        return item
    ends = [f"{low}-{top}" if low < top else str(low), f"{bottom}-{high}" if bottom < high else str(bottom)]
    return ",".join(ends)


def _position(text: str, place: int) -> int | None:
    if text.upper() in _NAMES[place]:
        return _RANGES[place][0] + _NAMES[place].index(text.upper())
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 2 else None
