"""Time zones, and their offsets from UTC over time.

Zones come from the pinned `tzdata` package and not from the host, so that windows open at the same instants on every
machine. Minutes are counted from the epoch in UTC.
"""

from datetime import date, datetime, timedelta
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

DAY = 1440
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  the arithmetic of this module is on UTC minutes
_EPOCH_DAY = _EPOCH.toordinal()
_MINUTE = timedelta(minutes=1)
# The step for finding changes of the clock. No spell in the database is shorter than six days and 23 hours (Brazil in
# 2000, Gaza in 2040).
_PROBED = 5 * DAY
_PROBED_TIME = timedelta(minutes=_PROBED)
_STEPS = tuple([(1 << power, timedelta(minutes=1 << power)) for power in reversed(range(_PROBED.bit_length()))])
_EVER = 1 << 62  # minutes; later than any int64 of nanoseconds can reach
# Two days inside the range of datetime, so that local times stay within years 1..9999.
_FIRST_MINUTE = (datetime(1, 1, 3) - _EPOCH) // _MINUTE  # noqa: DTZ001
_LAST_MINUTE = (datetime(9999, 12, 29) - _EPOCH) // _MINUTE  # noqa: DTZ001


class ZoneError(ValueError):
    """The name is not in the pinned database."""


class Spell(NamedTuple):
    """A stretch [start, stop) of UTC minutes with one offset: local minute = UTC minute + offset."""

    start: int
    stop: int
    offset: int


_ALL_TIME = Spell(-_EVER, _EVER, 0)


@cache
def zone_names() -> frozenset[str]:
    """Every name `load_zone` accepts; names are case-sensitive."""
    listed = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split()
    return frozenset(listed) | {"UTC"}


def load_zone(name: str) -> ZoneInfo:
    """The zone of that name from the pinned database; raises ZoneError."""
    # Only listed names reach the cache and a path, so neither can be abused.
    if name not in zone_names():
        shown = repr(name if len(name) <= 40 else name[:40] + "…")
        raise ZoneError(f"unknown time zone {shown}: expected a name such as UTC, Europe/Berlin or America/New_York")
    return _load(name)


@cache
def _load(name: str) -> ZoneInfo:
    with resources.files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def offset_at(zone: ZoneInfo, minute: int) -> int:
    """The minutes that local time is ahead of UTC; outside years 1..9999 as at their edge.

    Offsets with seconds (none since 1972) are rounded down to the minute.
    """
    inside = min(max(minute, _FIRST_MINUTE), _LAST_MINUTE)
    utc = _EPOCH + timedelta(minutes=inside)
    local = zone.fromutc(utc.replace(tzinfo=zone)).replace(tzinfo=None)
    return (local - utc) // _MINUTE


def spells(zone: ZoneInfo, start: int, stop: int) -> list[Spell]:
    """The stretches of constant offset in [start, stop)."""
    assert start < stop
    if zone.key == "UTC":
        return [Spell(start, stop, 0)]
    merged: list[Spell] = []
    for year in range(_year_of(start), _year_of(stop - 1) + 1):
        for spell in _spells_of_year(zone, year):
            begin, end = max(spell.start, start), min(spell.stop, stop)
            if begin >= end:
                continue
            if merged and merged[-1].offset == spell.offset:
                begin = merged.pop().start
            merged.append(Spell(begin, end, spell.offset))
    return merged


def spell_at(zone: ZoneInfo, minute: int) -> Spell:
    """The spell around a UTC minute, from at most eleven days before to the end of the UTC day."""
    if zone.key == "UTC":
        return _ALL_TIME
    *earlier, last = _spells_of_day(zone, minute // DAY)
    for spell in earlier:
        if minute < spell.stop:
            return spell
    return last


def _year_of(minute: int) -> int:
    return date.fromordinal(_EPOCH_DAY + min(max(minute, _FIRST_MINUTE), _LAST_MINUTE) // DAY).year


@lru_cache(maxsize=4096)
def _spells_of_day(zone: ZoneInfo, day: int) -> tuple[Spell, ...]:
    recent = spells(zone, (day - 11) * DAY, (day + 1) * DAY)
    return tuple([spell for spell in recent if spell.stop > day * DAY])


@lru_cache(maxsize=4096)
def _spells_of_year(zone: ZoneInfo, year: int) -> tuple[Spell, ...]:
    """The spells of a year. The first and last year also cover all time before and after."""
    first = max((datetime(year, 1, 1) - _EPOCH) // _MINUTE, _FIRST_MINUTE)  # noqa: DTZ001
    stop = (datetime(year, 12, 31) - _EPOCH) // _MINUTE + DAY  # noqa: DTZ001
    year_spells: list[Spell] = []
    begin = first if year > 1 else -_EVER
    utc = (_EPOCH + timedelta(minutes=first)).replace(tzinfo=zone)  # UTC fields, as fromutc wants them
    offset = zone.fromutc(utc).utcoffset()
    for minute in range(first, min(stop, _LAST_MINUTE - _PROBED), _PROBED):
        ahead = utc + _PROBED_TIME
        if zone.fromutc(ahead).utcoffset() != offset:
            if (change := _first_change(zone, minute, utc)) < stop:
                year_spells.append(Spell(begin, change, offset_at(zone, begin)))
                begin = change
            offset = zone.fromutc(ahead).utcoffset()
        utc = ahead
    if begin < stop:
        year_spells.append(Spell(begin, stop if year < 9999 else _EVER, offset_at(zone, begin)))
    return tuple(year_spells)


def _first_change(zone: ZoneInfo, minute: int, utc: datetime) -> int:
    """The first minute with another offset after `minute`, which is the same as `utc`."""
    offset = zone.fromutc(utc).utcoffset()
    for minutes, time in _STEPS:
        if zone.fromutc(utc + time).utcoffset() == offset:
            minute, utc = minute + minutes, utc + time
    return minute + 1
