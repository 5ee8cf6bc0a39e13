"""The open minutes of a cron expression's windows, by UTC day.

Most days are alike, so the answer for years has few parts: a set of minutes, and the days with exactly these. The days
on which the clock changes are alike as well.
"""

from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dovetail.values.schedule.almanac import Stretch
from dovetail.values.schedule.cells import WHOLE_DAY, Cells, join, smear
from dovetail.values.schedule.cron import Cron, Shape, shape_of
from dovetail.values.schedule.zone import DAY, spells

_LONG = (Stretch.BACK - 3) * DAY  # minutes; longer windows may have begun before the stretch


class _Piece(NamedTuple):
    """Open minutes of some days, counted from the day of the hits."""

    day: int
    days: int
    cells: int


class _Clock(NamedTuple):
    """A zone's clock in a stretch of days."""

    calm: tuple[tuple[int, int], ...]  # (offset, local days that begin and end with it)
    changes: tuple["_Change", ...]  # the changes in between


class _Change(NamedTuple):
    """Changes of the clock with the same shape."""

    shape: Shape  # of the UTC minutes between two calm days
    after: int  # how many minutes after midnight UTC these begin
    places: tuple[tuple[int, int], ...]  # (UTC day on which they begin, first local day)


@lru_cache(maxsize=1024)  # some 1 KB each, a few times that for years
def openings(cron: Cron, minutes: int, stretch: Stretch) -> Cells:
    """The days of the stretch by their open minutes, for windows of this length; bit 0 is the first day."""
    matching = cron.days_in(stretch) if minutes else 0
    clock = _clock(cron.zone, stretch)
    open_: Cells = {}
    for offset, calm in clock.calm:
        if local_days := matching & calm:
            shift, after = divmod(-offset, DAY)
            days = local_days >> -shift if shift < 0 else local_days
            _open(open_, days, _spread(cron.day, minutes, after), stretch)
    for change in clock.changes:
        for local_days, days in _matching_alike(matching, change).items():
            pieces = _spread_around_change(cron, change.shape, local_days, minutes, change.after)
            _open(open_, days, pieces, stretch)
    if minutes > _LONG and (hit := cron.last_hit(stretch.first * DAY - 1)) is not None:
        whole, rest = divmod(max(hit + minutes - stretch.first * DAY, 0), DAY)
        _open(open_, 1 << stretch.BACK, (_Piece(0, whole, WHOLE_DAY), _Piece(whole, 1, (1 << rest) - 1)), stretch)
    return _visible(open_, stretch)


def _open(opened: Cells, days: int, pieces: tuple[_Piece, ...], stretch: Stretch) -> None:
    """Add the windows that hits on these days open."""
    for day, count, cells in pieces:
        reached = smear(days << day, min(count, stretch.bits))
        opened[cells] = opened.get(cells, 0) | reached


def _visible(opened: Cells, stretch: Stretch) -> Cells:
    """The days of the stretch, with overlapping windows merged."""
    whole = opened.pop(WHOLE_DAY, 0) >> stretch.BACK & stretch.visible
    rest = stretch.visible ^ whole
    apart = {0: rest} if rest else {}
    for cells, days in opened.items():
        if visible_days := days >> stretch.BACK & rest:
            join(apart, {cells: visible_days}, conjunction=False)
    if whole:
        apart[WHOLE_DAY] = apart.get(WHOLE_DAY, 0) | whole
    return apart


@lru_cache(maxsize=512)
def _spread(hits: int, minutes: int, after: int) -> tuple[_Piece, ...]:
    """The windows of a day's hits, if the day begins `after` minutes after midnight UTC."""
    if not hits:
        return ()
    if minutes < DAY:
        cells = smear(hits, minutes) << after
        pieces = [_Piece(day, 1, cells >> DAY * day & WHOLE_DAY) for day in range(3)]
        return tuple([piece for piece in pieces if piece.cells])
    # Hits of one day are less than a day apart: there is no gap.
    day, first = divmod((hits & -hits).bit_length() - 1 + after, DAY)
    last, rest = divmod(hits.bit_length() - 1 + after + minutes, DAY)
    whole = (_Piece(day + 1, last - day - 1, WHOLE_DAY),) if last > day + 1 else ()
    return (_Piece(day, 1, WHOLE_DAY >> first << first), *whole, _Piece(last, 1, (1 << rest) - 1))


@lru_cache(maxsize=512)
def _spread_around_change(cron: Cron, shape: Shape, local_days: int, minutes: int, after: int) -> tuple[_Piece, ...]:
    """The same around a change of the clock, with these matching local days."""
    hits, pieces = cron.hits_of(shape, local_days), []
    for day in range(-(-shape.minutes // DAY)):
        spread = _spread(hits >> DAY * day & WHOLE_DAY, minutes, after)
        pieces += [_Piece(day + piece.day, piece.days, piece.cells) for piece in spread]
    return tuple(pieces)


def _matching_alike(matching: int, change: _Change) -> dict[int, int]:
    """The days on which the change begins, by the matching local days around it."""
    around, alike = (1 << change.shape.days) - 1, dict[int, int]()
    for day, first in change.places:
        if local_days := matching >> first & around:
            alike[local_days] = alike.get(local_days, 0) | 1 << day
    return alike


@lru_cache(maxsize=1024)
def _clock(zone: ZoneInfo, stretch: Stretch) -> _Clock:
    calm: dict[int, int] = {}
    changes: dict[tuple[Shape, int], list[tuple[int, int]]] = {}
    start, stop = stretch.base * DAY, (stretch.base + stretch.bits) * DAY
    reached, before = None, None
    for begin, end, offset in spells(zone, start, stop):
        # Skipped hits fire when the spell begins, repeated ones do not fire (R10): such days differ from others.
        plain = begin if before is None else begin + max(before - offset, 1)
        before = offset
        first, following = -(-(plain + offset) // DAY), (end + offset) // DAY
        if first >= following:
            continue
        if reached is not None:
            local_day, shape = shape_of(zone, reached, first * DAY - offset)
            places = changes.setdefault((shape, reached % DAY), [])
            places.append((reached // DAY - stretch.base, local_day - stretch.base))
        reached = following * DAY - offset
        days = (1 << following - first) - 1
        low = first - stretch.base
        calm[offset] = calm.get(offset, 0) | (days << low if low >= 0 else days >> -low) & stretch.every
    assert reached is not None
    assert reached >= (stretch.first + stretch.length) * DAY
    return _Clock(
        tuple(calm.items()), tuple([_Change(shape, after, tuple(places)) for (shape, after), places in changes.items()])
    )
