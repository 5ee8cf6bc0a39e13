"""Sets of days by date, month and weekday, with one bit per day since the epoch.

One operation covers thousands of days.
"""

from datetime import date, timedelta
from functools import lru_cache
from typing import NamedTuple

FIRST_MONTH, LAST_MONTH = 12, 9999 * 12 + 11  # months are numbered year * 12 + month - 1
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH_WEEKDAY = 4  # a Thursday; Sunday is 0
LAST_DAY = date.max.toordinal() - _EPOCH_DAY


class Month(NamedTuple):
    start: int  # day
    length: int
    weekday: int  # of the first day; Sunday is 0


@lru_cache(maxsize=4096)
def month_of(index: int) -> Month:
    year, zero_based = divmod(index, 12)
    first = date(year, zero_based + 1, 1)
    length = (date(year, 12, 31) if zero_based == 11 else date(year, zero_based + 2, 1) - timedelta(days=1)).day
    return Month(first.toordinal() - _EPOCH_DAY, length, first.isoweekday() % 7)


@lru_cache(maxsize=4096)
def month_of_day(day: int) -> int:
    """The number of the day's month, clamped to years 1..9999."""
    inside = date.fromordinal(min(max(day + _EPOCH_DAY, 1), date.max.toordinal()))
    return inside.year * 12 + inside.month - 1


class Stretch:
    """Days [first, first + length), with some days before and after; bit i is day `base` + i. Create it with
    `stretch_of`.
    """

    __slots__ = ("base", "bits", "dates", "every", "first", "length", "months", "visible", "weekdays")

    BACK = 12  # days: windows of a week that began before the stretch reach into it, in any zone
    AHEAD = 4  # days: the local day may be later, and some days after a change of the clock are needed

    def __init__(self, first: int, length: int) -> None:
        self.first, self.length = first, length
        self.base, self.bits = first - self.BACK, self.BACK + length + self.AHEAD
        self.every = (1 << self.bits) - 1
        self.visible = (1 << length) - 1  # bit 0 is the first day
        starts = [0, 0, 0, 0]  # of months with 28, 29, 30, 31 days
        months = [0] * 12
        room = 31  # for the month in which the stretch begins
        for index in range(month_of_day(self.base), month_of_day(self.base + self.bits) + 1):
            start, days, _ = month_of(index)
            if (at := start - self.base + room) >= 0:
                starts[days - 28] |= 1 << at
                months[index % 12] |= ((1 << days) - 1) << at
        self.months = tuple([days >> room & self.every for days in months])
        having = [sum(starts)] * 28 + [sum(starts[1:]), sum(starts[2:]), starts[3]]
        self.dates = tuple([starts << date >> room & self.every for date, starts in enumerate(having)])
        weekly = ((1 << 7 * (self.bits // 7 + 1)) - 1) // 0x7F
        self.weekdays = tuple(
            [weekly << (weekday - self.base - _EPOCH_WEEKDAY) % 7 & self.every for weekday in range(7)]
        )


@lru_cache(maxsize=256)  # the longest have some 15 KB
def stretch_of(first: int, length: int) -> Stretch:
    """One object for equal arguments."""
    return Stretch(first, length)


def chosen(sets: tuple[int, ...], which: int) -> int:
    """The union of the sets whose bits are set in `which`."""
    union = 0
    for index in _members(which):
        union |= sets[index]
    return union


@lru_cache(maxsize=4096)
def _members(which: int) -> tuple[int, ...]:
    return tuple([index for index in range(which.bit_length()) if which >> index & 1])
