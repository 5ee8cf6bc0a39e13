"""RFC 3339 times, and times for people."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from dovetail.values import limits
from dovetail.values.duration import DAY, HOUR, MICROSECOND, MINUTE, SECOND, short_duration, shown

# Laxer than RFC 3339, as Go is: a one-digit hour, a comma before the fraction, offsets up to +24:60.
_FORM = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]++))?"
    r"(?:Z|([+-])([01][0-9]|2[0-4]):([0-5][0-9]|60))"
)

_NOW = "now"


class TimeError(ValueError):
    """The text is not an RFC 3339 time, or a datetime cannot hold it; the message is for people."""


@lru_cache(maxsize=4096)  # many objects are created within the same second
def parse_time(text: str) -> datetime:
    """The time in UTC, as Go's time.Parse(time.RFC3339) reads it, cut to microseconds."""
    match = _FORM.fullmatch(text) if len(text) <= limits.VALUE else None
    if not match:
        raise TimeError(f"{shown(text)} is not a time: want RFC 3339, such as 2026-03-07T02:00:00Z")
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    fraction, sign, hours, minutes = match.group(7, 8, 9, 10)
    microsecond = int(fraction[:6].ljust(6, "0")) if fraction else 0
    offset = timedelta(hours=int(hours), minutes=int(minutes)) if sign else timedelta()
    try:
        local = datetime(year, month, day, hour, minute, second, microsecond, UTC)
        return local + offset if sign == "-" else local - offset
    except (ValueError, OverflowError):
        raise TimeError(f"{shown(text)} is not a time: no such date or time of day") from None


def format_time(at: datetime, zone: tzinfo = UTC) -> str:
    """RFC 3339 in the zone, with a fraction only if there is one: 2026-03-07T02:00:00Z."""
    try:
        text = at.astimezone(zone).isoformat()
    except OverflowError:  # the first or last hours of the calendar have no time in every zone
        text = at.isoformat()
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def spoken_time(at: datetime, zone: tzinfo = UTC) -> str:
    """The same for people, who need no fractions of seconds."""
    return format_time(at.replace(microsecond=0), zone)


def relative(at: datetime, now: datetime) -> str:
    """How far away the moment is: in 2h13m, 3d4h ago, now (less than a second)."""
    text = time_between(at, now)
    if text == _NOW:
        return text
    return f"in {text}" if at > now else f"{text} ago"


def time_between(at: datetime, now: datetime) -> str:
    """The same without the direction, in the two largest units: 2h13m, 3d4h, now."""
    far = abs(at - now) // timedelta(microseconds=1) * MICROSECOND
    if far < SECOND:
        return _NOW
    days, rest = divmod(far, DAY)
    if days < 2:  # "36h" reads better than "1d12h" next to a configured "24h"
        return short_duration(far - far % (MINUTE if far >= HOUR else SECOND))
    return f"{days}d" + (short_duration(rest - rest % HOUR) if rest >= HOUR else "")
