"""Parsing and printing of durations.

Durations are signed 64-bit nanoseconds, as in Go. There are four grammars: full Go text for annotations, and three
narrower ones that the CRDs enforce by pattern.
"""

import re
from datetime import UTC, datetime, timedelta

from dovetail.values import limits

NANOSECOND = 1
MICROSECOND = 1000 * NANOSECOND
MILLISECOND = 1000 * MICROSECOND
SECOND = 1000 * MILLISECOND
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

MAX = 2**63 - 1
MIN = -(2**63)

_UNITS = {
    "ns": NANOSECOND,
    "us": MICROSECOND,
    "\u00b5s": MICROSECOND,  # micro sign
    "\u03bcs": MICROSECOND,  # Greek mu
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}

# The lookahead requires a digit in the number.
_PART = re.compile("(?=\\.?[0-9])([0-9]*+)(?:\\.([0-9]*+))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_SIMPLE = re.compile("(?:[0-9]++[smh])++")
_BUDGET = re.compile("(?:[0-9]++[hm]|[0-9]++h[0-9]++m)(?:0s)?")

_GO_FORM = "want numbers with units ns, us, ms, s, m or h, such as 1h30m or 90s"
_SIMPLE_FORM = "want whole numbers with units s, m or h, such as 1h30m or 90s"
_NILLABLE_FORM = f"{_SIMPLE_FORM}, or Never"
_BUDGET_FORM = "want whole hours and minutes, such as 8h, 30m or 1h30m"


class DurationError(ValueError):
    """The text is not a duration of the wanted form, or too long; the message is for people."""


class DurationTooLong(DurationError):
    """The text, or the time, is longer than the limit."""


def shown(text: str) -> str:
    """The text quoted for a message: shortened if long, and without control characters."""
    return repr(text if len(text) <= 40 else text[:39] + "…")


def parse_duration(text: str) -> int:
    """Nanoseconds of a Go duration, as time.ParseDuration reads it."""
    return _parse(text, _GO_FORM)


def parse_nillable(text: str) -> int | None:
    """Nanoseconds of expireAfter or consolidateAfter; None means Never."""
    return None if text == "Never" else _parse(text, _NILLABLE_FORM, _SIMPLE)


def parse_simple(text: str) -> int:
    """Nanoseconds of terminationGracePeriod and the like: whole hours, minutes and seconds."""
    return _parse(text, _SIMPLE_FORM, _SIMPLE)


def parse_budget_duration(text: str) -> int:
    """Nanoseconds of a budget's duration: whole hours and minutes."""
    return _parse(text, _BUDGET_FORM, _BUDGET)


def format_duration(ns: int) -> str:
    """The duration as Go prints it: 24h0m0s, 1m30s, 1.5ms, 0s."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    if ns < SECOND:
        return sign + _seconds(ns)
    minutes, rest = divmod(ns, MINUTE)
    hours, minutes = divmod(minutes, 60)
    text = _seconds(rest, SECOND)
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else sign + text


def short_duration(ns: int) -> str:
    """The duration for people, exact and without zero parts: 30s, 1h30m, 72h."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    if ns < SECOND:
        return sign + _seconds(ns)
    hours, minutes = ns // HOUR, ns % HOUR // MINUTE
    seconds = _seconds(ns % MINUTE, SECOND) if ns % MINUTE else ""
    return sign + (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "") + seconds


def add(at: datetime, ns: int) -> datetime | None:
    """`at` plus `ns`, in UTC; None if a datetime cannot hold it.

    Rounded up to the microsecond, so that a wait never ends early.
    """
    if at.tzinfo is None:
        raise ValueError("add wants an aware datetime")
    try:
        # To UTC first: arithmetic in a zone with daylight saving counts wall-clock time.
        return at.astimezone(UTC) + timedelta(microseconds=-(-ns // MICROSECOND))
    except OverflowError:
        return None


def _parse(text: str, form: str, grammar: re.Pattern[str] | None = None) -> int:
    if len(text) > limits.DURATION:
        raise DurationTooLong(f"{shown(text)} is not a duration: it has more than {limits.DURATION} characters")
    if grammar is not None and not grammar.fullmatch(text):
        raise _malformed(text, form)
    negative = text.startswith("-")
    at = 1 if text.startswith(("-", "+")) else 0
    if text[at:] == "0":  # the only number that needs no unit
        return 0
    if at == len(text):
        raise _malformed(text, form)
    total = 0
    while at < len(text):
        part = _PART.match(text, at)
        if not part:
            raise _malformed(text, form)
        whole, fraction, unit = part.groups()
        digits = whole.lstrip("0")
        if len(digits) > 19:
            raise _too_long(text)
        total += int(digits or "0") * _UNITS[unit] + (_fraction(fraction, _UNITS[unit]) if fraction else 0)
        if total > -MIN:
            raise _too_long(text)
        at = part.end()
    if total > MAX and not negative:
        raise _too_long(text)
    return -total if negative else total


def _fraction(digits: str, unit: int) -> int:
    """Whole nanoseconds of 0.digits units, in floats as in Go: the last nanosecond depends on it."""
    # Below 1e-31 of an hour nothing is left; Go also ignores the digits that no longer fit into 63 bits.
    value, scale = 0, 1.0
    for digit in digits[:40]:
        longer = value * 10 + int(digit)
        if longer > -MIN:
            break
        value, scale = longer, scale * 10
    return int(value * (unit / scale))


def _seconds(ns: int, unit: int | None = None) -> str:
    """The time in one unit, by default the largest that fits, without trailing zeros."""
    if unit is None:
        unit = MILLISECOND if ns >= MILLISECOND else MICROSECOND if ns >= MICROSECOND else NANOSECOND
        if ns == 0:
            unit = SECOND  # Go prints 0s
    name = {NANOSECOND: "ns", MICROSECOND: "µs", MILLISECOND: "ms", SECOND: "s"}[unit]
    whole, rest = divmod(ns, unit)
    fraction = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{fraction}{name}" if fraction else f"{whole}{name}"


def _malformed(text: str, form: str) -> DurationError:
    return DurationError(f"{shown(text)} is not a duration: {form}")


def _too_long(text: str) -> DurationError:
    return DurationTooLong(f"{shown(text)} is too long a duration: the most is about 292 years")


_SPAN = re.compile(r"(?:([0-9]{1,9})d)?((?:[0-9]+[hms])*)")


def parse_span(text: str) -> int | None:
    """Nanoseconds of a simple duration that may begin with days: `36h`, `7d`, `1d12h`; None: it has another form.

    Raises DurationError if it is too long.
    """
    match = _SPAN.fullmatch(text)
    if match is None or not text:
        return None
    return int(match[1] or 0) * DAY + (parse_simple(match[2]) if match[2] else 0)
