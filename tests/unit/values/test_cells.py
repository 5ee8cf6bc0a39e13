"""Sets of minutes over many days."""

import random

import pytest

from dovetail.values.schedule.cells import WHOLE_DAY, Cells, first_minute, inverted, join, on, smear

DAYS = 60


def rows(cells: Cells) -> dict[int, int]:
    """The minutes of each day; a day may be in one of the sets only."""
    found: dict[int, int] = {}
    for minutes, days in cells.items():
        assert days
        for day in range(DAYS):
            if days >> day & 1:
                assert day not in found
                found[day] = minutes
    return found


def table(chance: random.Random, kinds: int, days: range) -> Cells:
    """So many kinds of days."""
    minutes = [0, WHOLE_DAY, *[chance.getrandbits(1440) for _ in range(kinds)]]
    found: Cells = {}
    for day in days:
        one = chance.choice(minutes)
        found[one] = found.get(one, 0) | 1 << day
    return found


@pytest.mark.parametrize("conjunction", [True, False])
@pytest.mark.parametrize("kinds", [(1, 1), (3, 2), (3, 50), (50, 3), (50, 50)])
def test_join(kinds: tuple[int, int], conjunction: bool) -> None:
    chance = random.Random(sum(kinds))
    for _ in range(20):
        mine, others = table(chance, kinds[0], range(DAYS)), table(chance, kinds[1], range(7, 50))
        before, given = rows(mine), rows(others)
        join(mine, others, conjunction=conjunction)
        assert rows(mine) == {
            day: minutes if day not in given else minutes & given[day] if conjunction else minutes | given[day]
            for day, minutes in before.items()
        }
        assert rows(others) == given


def test_inverted_and_on() -> None:
    cells = {5: 0b011, 0: 0b100}
    assert inverted(cells) == {WHOLE_DAY ^ 5: 0b011, WHOLE_DAY: 0b100}
    assert inverted(inverted(cells)) == cells
    assert on(0b110, cells) == {5: 0b010, 0: 0b100}
    assert on(0b001, cells) == {5: 0b001}


@pytest.mark.parametrize(
    ("start", "first"),
    [(-9000, 1443), (0, 1443), (1443, 1443), (1444, 1447), (1448, 4323), (4324, 4330), (4331, None), (10**6, None)],
)
def test_first_minute(start: int, first: int | None) -> None:
    assert first_minute({0b10001000: 0b0010, 0: 0b0100, 0b10000001000: 0b1000}, start) == first


def test_smear() -> None:
    assert smear(0b1000001, 3) == 0b111000111
    assert smear(0b101, 1) == 0b101
    assert smear(0b101, 0) == 0
