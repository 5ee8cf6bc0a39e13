"""A window as pods and budgets see it."""

from datetime import UTC, datetime, timedelta

import pytest

from dovetail.values.schedule.cron import parse_cron
from dovetail.values.schedule.window import Opening, Window

HOUR_NS = 3600 * 10**9
NOW = datetime(2026, 5, 13, 12, 34, 56, tzinfo=UTC)  # a Wednesday


def at(text: str) -> datetime:
    return datetime.fromisoformat(text + "Z")


def window(*parts: tuple[str, float]) -> Window:
    """Of expressions with their hours."""
    return Window([(parse_cron(text), int(hours * HOUR_NS)) for text, hours in parts])


def test_closed_and_open() -> None:
    night = window(("0 2 * * 6", 4))
    assert night.at(NOW) == Opening(open=False, until=at("2026-05-16T02:00"), opens_at=at("2026-05-16T02:00"))
    opened = Opening(open=True, until=at("2026-05-16T06:00"), opens_at=at("2026-05-23T02:00"))
    assert night.at(at("2026-05-16T02:00")) == night.at(at("2026-05-16T05:59")) == opened
    assert not night.at(at("2026-05-16T06:00")).open
    assert night.instants.contains(at("2026-05-16T05:59"))
    assert repr(night) == "Window([('0 2 * * 6', 14400000000000)])"


def test_overlapping_windows_are_one() -> None:
    """R10: `until` of a merged run is its true end."""
    assert window(("0,30 2-4 * * *", 1)).at(at("2026-05-14T02:10")).until == at("2026-05-14T05:30")
    several = window(("0 2 * * *", 1), ("0 3 * * *", 1.5), ("0 4 * * 4", 3), ("30 8 * * *", 1))
    assert several.at(at("2026-05-14T02:10")) == Opening(
        open=True, until=at("2026-05-14T07:00"), opens_at=at("2026-05-14T08:30")
    )
    assert several.at(at("2026-05-15T02:10")).until == at("2026-05-15T04:30")


def test_a_window_over_the_end_of_month_and_year() -> None:
    assert window(("0 22 31 12 *", 4)).at(at("2027-01-01T01:00")) == Opening(
        open=True, until=at("2027-01-01T02:00"), opens_at=at("2027-12-31T22:00")
    )
    long = window(("0 0 15 * *", 24 * 20))
    assert long.at(at("2026-03-01T00:00")).until == at("2026-03-07T00:00")


def test_elapsed_time_counts_when_the_clock_changes() -> None:
    spring = window(("TZ=Europe/Berlin 0 1 * * *", 4))
    assert spring.at(at("2026-03-29T00:30")).until == at("2026-03-29T04:00")  # 06:00 on the wall
    autumn = window(("TZ=Europe/Berlin 30 2 * * *", 0.25))
    assert autumn.at(at("2026-10-25T00:40")) == Opening(
        open=True, until=at("2026-10-25T00:45"), opens_at=at("2026-10-26T01:30")
    )


@pytest.mark.parametrize(
    "parts",
    [
        [("0 0 * * *", 48)],
        [("* * * * *", 168)],
        [("0 0 * * 1-5", 24), ("0 0 * * 6", 48)],
    ],
)
def test_always_open(parts: list[tuple[str, float]]) -> None:
    always = window(*parts)
    assert always.stays_open(NOW)
    assert not always.never
    assert always.at(NOW) == Opening(open=True, until=None, opens_at=None)


@pytest.mark.parametrize("parts", [[], [("0 0 31 2 *", 4)], [("* * * * *", 0)], [("0 0 31 2 *", 4), ("0 0 30 2 *", 4)]])
def test_never_open(parts: list[tuple[str, float]]) -> None:
    never = window(*parts)
    assert never.never
    assert not never.stays_open(NOW)
    assert never.at(NOW) == Opening(open=False, until=None, opens_at=None)


def test_open_for_five_years_is_not_always() -> None:
    rest = window(("* * 1-15 * *", 1), ("* * 16-31 * *", 1))
    assert rest.at(NOW) == Opening(open=True, until=None, opens_at=None)
    assert not rest.never


def test_the_next_opening_may_be_too_far_off() -> None:
    leap = window(("0 0 29 2 *", 24))
    assert leap.at(at("2096-02-29T12:00")) == Opening(open=True, until=at("2096-03-01T00:00"), opens_at=None)
    assert leap.at(at("2028-02-29T12:00")).opens_at == at("2032-02-29T00:00")
    # Closes in three years, and opens again four years after that.
    late = window(("0 0 29 2 *", 24 * 365 * 3))
    assert late.at(at("2028-02-29T12:00")) == Opening(
        open=True, until=at("2031-02-28T00:00"), opens_at=at("2032-02-29T00:00")
    )
    later = window(("0 0 29 2 *", 24 * 365 * 7))
    assert later.at(at("2096-03-01T00:00")) == Opening(open=True, until=None, opens_at=None)
    assert later.at(at("2098-06-01T00:00")) == Opening(open=True, until=at("2103-02-28T00:00"), opens_at=None)


def test_nearby_instants_agree() -> None:
    odd = window(("*/7 8-18 * * 1-5", 0.0333), ("3 */5 * * *", 0.5))
    for minutes in range(0, 3000, 11):
        now = NOW + timedelta(minutes=minutes, seconds=minutes)
        fresh = window(("*/7 8-18 * * 1-5", 0.0333), ("3 */5 * * *", 0.5))
        assert odd.at(now) == fresh.at(now)
