"""Dates, months and weekdays as sets of days."""

from datetime import date

import pytest

from dovetail.values.schedule.almanac import LAST_DAY, Stretch, chosen, stretch_of

EPOCH = date(1970, 1, 1).toordinal()
FIRST_DAY = 1 - EPOCH


@pytest.mark.parametrize(
    "first", [FIRST_DAY, -1, 0, 20_500, 20_512, date(2100, 2, 27).toordinal() - EPOCH, LAST_DAY - 40]
)
@pytest.mark.parametrize("length", [1, 16, 400])
def test_every_day_is_on_its_date_in_its_month_and_on_its_weekday(first: int, length: int) -> None:
    stretch = stretch_of(first, length)
    for index in range(stretch.bits):
        ordinal = stretch.base + index + EPOCH
        on_dates = [i for i, days in enumerate(stretch.dates) if days >> index & 1]
        in_months = [i for i, days in enumerate(stretch.months) if days >> index & 1]
        on_weekdays = [i for i, days in enumerate(stretch.weekdays) if days >> index & 1]
        if not 1 <= ordinal <= date.max.toordinal():
            assert not in_months  # there is no such day
            continue
        day = date.fromordinal(ordinal)
        assert (on_dates, in_months, on_weekdays) == ([day.day - 1], [day.month - 1], [day.isoweekday() % 7])


def test_a_stretch_is_shared() -> None:
    assert stretch_of(20_512, 16) is stretch_of(20_512, 16)
    assert stretch_of(20_512, 16) is not stretch_of(20_512, 17)


def test_far_from_any_calendar() -> None:
    for first in (-(10**7), 10**8):
        stretch = Stretch(first, 16)
        assert not any(stretch.months)


def test_chosen() -> None:
    assert chosen((1, 2, 4, 8), 0b1010) == 10
    assert chosen((1, 2, 4, 8), 0) == 0
