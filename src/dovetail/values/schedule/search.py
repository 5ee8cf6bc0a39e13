"""Finds the next change of a set of instants, within the coming years.

Time consists of UTC days and minutes. Within a minute a set changes only at a few *phases*: windows open on the minute
and close at a fixed time within one. Looking at each window at its earliest or latest phase shows, for thousands of
days at once, in which minutes the set may change. The first such minute is then checked exactly. After a few wrong
guesses the search tells the phases of all minutes apart.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from dovetail.values.schedule.almanac import LAST_DAY, Stretch, stretch_of
from dovetail.values.schedule.cells import WHOLE_DAY, Cells, first_minute, inverted, join, on
from dovetail.values.schedule.zone import DAY

MINUTE_US = 60_000_000
# (step, length) in days. Stretches begin at multiples of a step, so that they can be shared. Most changes are near.
# They reach three months beyond five years, so that an answer is valid for a while.
_STRETCHES = ((8, 16), (64, 128), (256, 2112))
_GUESSES = 4


class Leaf(Protocol):
    """A set that is not made of others: it changes on the minute and at one phase."""

    @property
    def phase(self) -> int:
        """The phase in microseconds."""

    def turns_in(self, minute: int) -> bool:
        """Whether it may change at its phase in this minute."""


class Searchable(ABC):
    """What the search reads of a set."""

    __slots__ = ()

    @abstractmethod
    def cells(self, stretch: Stretch, days: int, early: int, late: int) -> Cells:
        """These days of the stretch by the minutes in which the set holds.

        Ends are taken `early` microseconds into a minute, beginnings `late`. If `early` comes first, these are the
        minutes in which the set may hold at some phase in between; otherwise those in which it holds throughout.
        """

    def leaves(self) -> Iterable[Leaf]:
        return ()

    def narrowed(self, stretch: Stretch, cells: Cells, early: int, late: int) -> "Searchable":
        """An equivalent for these cells between the two phases, with everything that is constant there precomputed."""
        if any(early < leaf.phase <= late for leaf in self.leaves()):
            return self
        return _FixedCells(self.cells(stretch, sum(cells.values()), early, late))


class _FixedCells(Searchable):
    """Cells without changes within minutes."""

    __slots__ = ("fixed",)

    def __init__(self, cells: Cells) -> None:
        self.fixed = cells

    def cells(self, stretch: Stretch, days: int, early: int, late: int) -> Cells:  # noqa: ARG002
        return on(days, self.fixed)


class Inverse(Searchable):
    """The complement of a set."""

    __slots__ = ("inner",)

    def __init__(self, inner: Searchable) -> None:
        self.inner = inner

    def cells(self, stretch: Stretch, days: int, early: int, late: int) -> Cells:
        return inverted(self.inner.cells(stretch, days, late, early))

    def narrowed(self, stretch: Stretch, cells: Cells, early: int, late: int) -> Searchable:
        inner = self.inner.narrowed(stretch, cells, early, late)
        return _FixedCells(inverted(inner.fixed)) if isinstance(inner, _FixedCells) else Inverse(inner)

    def leaves(self) -> Iterable[Leaf]:
        return self.inner.leaves()


class Joint(Searchable):
    """The intersection (`conjunction`) or union of several sets."""

    __slots__ = ("conjunction", "parts")

    def __init__(self, parts: Sequence[Searchable], *, conjunction: bool) -> None:
        self.parts = parts
        self.conjunction = conjunction

    def cells(self, stretch: Stretch, days: int, early: int, late: int) -> Cells:
        neutral, decisive = (WHOLE_DAY, 0) if self.conjunction else (0, WHOLE_DAY)
        left = self.parts[0].cells(stretch, days, early, late)
        decided = left.pop(decisive, 0)
        for part in self.parts[1:]:
            if not left:
                break  # the other parts, perhaps thousands, cannot change it
            others = part.cells(stretch, days ^ decided, early, late)
            others.pop(neutral, None)
            join(left, others, conjunction=self.conjunction)
            decided |= left.pop(decisive, 0)
        return {**left, decisive: decided} if decided else left

    def narrowed(self, stretch: Stretch, cells: Cells, early: int, late: int) -> Searchable:
        parts = [part.narrowed(stretch, cells, early, late) for part in self.parts]
        constant = [part for part in parts if isinstance(part, _FixedCells)]
        if len(constant) > 1:
            together = Joint(constant, conjunction=self.conjunction).cells(stretch, sum(cells.values()), early, late)
            # Only in these cells: more days are alike then.
            masked = dict(cells)
            join(masked, together, conjunction=True)
            parts = [_FixedCells(masked), *[part for part in parts if not isinstance(part, _FixedCells)]]
        return parts[0] if len(parts) == 1 else Joint(parts, conjunction=self.conjunction)

    def leaves(self) -> Iterable[Leaf]:
        return (leaf for part in self.parts for leaf in part.leaves())


class SearchResult(NamedTuple):
    """The next change, or the end of the search."""

    at: int  # microseconds since the epoch
    changes: bool


def next_change(searched: Searchable, after: int, *, holds: bool, holds_at: Callable[[int], bool]) -> SearchResult:
    """The first change of an answer that holds at `after`; `holds_at` is the exact answer at any instant."""
    leaves = tuple(dict.fromkeys(searched.leaves()))
    phases = sorted({0, *[leaf.phase for leaf in leaves]})
    # If all windows close on the minute, nothing changes within the minute.
    minute = after // MINUTE_US - (len(phases) > 1)
    day = after // MINUTE_US // DAY
    for step, length in _STRETCHES:
        if day > LAST_DAY:
            break
        stretch = stretch_of(day // step * step, length)
        zero, stop = stretch.first * DAY, min(stretch.first + length, LAST_DAY + 1)
        days = (1 << stop - stretch.first) - (1 << day - stretch.first)
        day = stop
        cells = _other_cells(searched, stretch, days, phases, holds=holds)
        for _ in range(_GUESSES):
            following = first_minute(cells, minute + 1 - zero)
            if following is None:
                break
            minute = zero + following
            if len(phases) == 1:
                return SearchResult(minute * MINUTE_US, changes=True)
            for phase in sorted({0, *[leaf.phase for leaf in leaves if leaf.turns_in(minute)]}):
                at = minute * MINUTE_US + phase
                if at > after and holds_at(at) != holds:
                    return SearchResult(at, changes=True)
        else:
            change = _first_by_phase(searched, stretch, cells, phases, minute + 1 - zero, holds=holds)
            if change is not None:
                return SearchResult((zero + change[0]) * MINUTE_US + change[1], changes=True)
    return SearchResult(day * DAY * MINUTE_US, changes=False)


def _first_by_phase(
    searched: Searchable, stretch: Stretch, cells: Cells, phases: list[int], start: int, *, holds: bool
) -> tuple[int, int] | None:
    """The first minute from `start` on, and the phase, at which the answer changes."""
    following = first_minute(cells, start)
    if following is None or len(phases) == 1:
        return None if following is None else (following, phases[0])
    half, changes = len(phases) // 2, []
    for half_phases in (phases[:half], phases[half:]):
        narrowed = searched.narrowed(stretch, cells, half_phases[0], half_phases[-1])
        others = _other_cells(narrowed, stretch, sum(cells.values()), half_phases, holds=holds)
        fewer = on(sum(others.values()), cells)
        join(fewer, others, conjunction=True)
        fewer.pop(0, None)
        changes.append(_first_by_phase(narrowed, stretch, fewer, half_phases, start, holds=holds))
    return min([change for change in changes if change is not None], default=None)


def _other_cells(searched: Searchable, stretch: Stretch, days: int, phases: list[int], *, holds: bool) -> Cells:
    """The minutes in which the answer may differ at some of the phases."""
    early, late = phases[0], phases[-1]
    if holds:
        others = inverted(searched.cells(stretch, days, late, early))
    else:
        others = searched.cells(stretch, days, early, late)
    others.pop(0, None)
    return others
