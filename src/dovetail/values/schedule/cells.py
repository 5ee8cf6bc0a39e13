"""Sets of minutes over thousands of days, as ints.

A set of minutes has one bit per minute of a day, a set of days one bit per day. Cells map each set of minutes that
occurs to the days on which it occurs; there are few, because most days are alike.
"""

from collections.abc import Sequence

from dovetail.values.schedule.zone import DAY

WHOLE_DAY = (1 << DAY) - 1
_FEW = 16
_DAY_BYTES = DAY // 8

Cells = dict[int, int]
"""Sets of days by the minutes in which something is true on them. The days of different minutes are different."""


def inverted(cells: Cells) -> Cells:
    """The complement on the same days."""
    return {minutes ^ WHOLE_DAY: days for minutes, days in cells.items()}


def on(days: int, cells: Cells) -> Cells:
    """Only these days."""
    return {minutes: kept for minutes, those in cells.items() if (kept := those & days)}


def join(mine: Cells, others: Cells, *, conjunction: bool) -> None:
    """Intersect or unite `mine` with others. Days that the others lack stay as they are."""
    touched = sum(others.values())
    # If few days are alike, a lookup by day is faster.
    by_day = {day: minutes for minutes, days in others.items() for day in _each(days)} if len(others) > _FEW else None
    for minutes, days in list(mine.items()):
        if not (left := days & touched):
            continue
        # Days that were joined in the meantime stay.
        if rest := mine.pop(minutes) ^ left:
            mine[minutes] = rest
        for more, those in others.items() if by_day is None else [(by_day[day], 1 << day) for day in _each(left)]:
            if both := left & those:
                joint = minutes & more if conjunction else minutes | more
                mine[joint] = mine.get(joint, 0) | both
                left ^= both
                if not left:
                    break


def _each(days: int) -> list[int]:
    members = []
    while days:
        members.append(days.bit_length() - 1)
        days ^= 1 << members[-1]
    return members


def first_minute(cells: Cells, start: int) -> int | None:
    """The first minute in the set at or after `start`, counted from the first day."""
    day, of_day = divmod(max(start, 0), DAY)
    first = None
    for minutes, days in cells.items():
        later, candidate = days >> day, None
        if later & 1 and (rest := minutes >> of_day):
            candidate = day * DAY + of_day + _lowest(rest)
        elif minutes and (later := later >> 1):
            candidate = (day + 1 + _lowest(later)) * DAY + _lowest(minutes)
        if candidate is not None and (first is None or candidate < first):
            first = candidate
    return first


def smear(bits: int, width: int) -> int:
    """Every set bit becomes `width` bits, with itself as the lowest."""
    if width == 0:
        return 0
    done = 1
    while done < width:
        step = min(done, width - done)
        bits |= bits << step
        done += step
    return bits


def held_for(parts: Sequence[Cells], lengths: Sequence[int], minutes: int) -> Cells:
    """The first part, by the minutes from which on it holds for `minutes`, across the following parts."""
    days: list[bytes] = []
    for cells, length in zip(parts, lengths, strict=True):
        part_days = [bytes(_DAY_BYTES)] * length
        for held, those in cells.items():
            encoded = held.to_bytes(_DAY_BYTES, "little")
            for day in _each(those):
                part_days[day] = encoded
        days += part_days
    bits = int.from_bytes(b"".join(days), "little")
    done = 1
    while done < minutes:
        step = min(done, minutes - done)
        bits &= bits >> step
        done += step
    encoded = bits.to_bytes(len(days) * _DAY_BYTES, "little")
    days_by_minutes: dict[bytes, int] = {}
    for day in range(lengths[0]):
        each_day = encoded[day * _DAY_BYTES : (day + 1) * _DAY_BYTES]
        days_by_minutes[each_day] = days_by_minutes.get(each_day, 0) | 1 << day
    return {int.from_bytes(each_day, "little"): those for each_day, those in days_by_minutes.items()}


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
