"""Sets of instants known for all time: does one hold now, and until exactly when does that answer stand?

Every rule that depends on the clock says "until when" by combining such sets. Nothing is found by walking from one hit
to the next, so no expression can be slow. Time is cut into months, and a month into minute cells. Within a cell a set
changes only at a few *phases* (windows open on the minute, and close a fixed time into one), so a month at one phase is
a bitset of its cells, sets combine by AND, OR and NOT, and the first change is the lowest set bit: exact, with nothing
to try out. Months of the same *shape* have the same bitsets and are looked at once.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, final

from dovetail.values.cron import Cron, Shape
from dovetail.values.zone import spells

HORIZON = timedelta(days=5 * 365 + 2)
"""What does not change within five years is said not to change (R10)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MINUTE_US = 60_000_000
_SEARCHED_MONTHS = 63  # five years, begun months, and some to spare so that an answer serves for a while
_FURTHER = HORIZON + timedelta(days=60)  # within the searched months, so that an answer serves for a while
_KEPT_RUNS = 4
_FEW = 16
_STEPS = 8
_WEEK_MINUTES = 7 * 1440
_ALL_WEEK = (1 << _WEEK_MINUTES) - 1
_EPOCH_IN_WEEK = 4 * 1440  # a Thursday


class _Month(NamedTuple):
    start: int  # UTC minute
    minutes: int
    full: int  # a set bit for each minute


class _Run(NamedTuple):
    """A stretch [start, stop) with one answer."""

    start: datetime
    stop: datetime
    holds: bool
    ends: bool  # whether the answer changes at `stop`, or is only not known beyond


class Instants(ABC):
    """A set of instants. Instants are timezone-aware."""

    __slots__ = ()

    @abstractmethod
    def contains(self, at: datetime) -> bool:
        """Whether the set holds at an instant."""

    @abstractmethod
    def until(self, at: datetime) -> datetime | None:
        """The first instant after `at` with the other answer; None: the same for five years."""

    def first(self, at: datetime) -> datetime | None:
        """The first instant from `at` on that is in the set; None: none for five years."""
        return at if self.contains(at) else self.until(at)

    @abstractmethod
    def _cells(self, month: _Month, phase: int) -> int:
        """Bit i: the set holds that many microseconds after the start of the month's minute i."""

    @abstractmethod
    def _leaves(self) -> Iterable["_Since | Recurring"]:
        """The sets this one is made of, in the end."""


@final
class _Constant(Instants):
    __slots__ = ("_holds",)

    def __init__(self, *, holds: bool) -> None:
        self._holds = holds

    def __repr__(self) -> str:
        return "ALWAYS" if self._holds else "NEVER"

    def contains(self, at: datetime) -> bool:  # noqa: ARG002
        return self._holds

    def until(self, at: datetime) -> datetime | None:  # noqa: ARG002
        return None

    def _cells(self, month: _Month, phase: int) -> int:  # noqa: ARG002
        return month.full if self._holds else 0

    def _leaves(self) -> Iterable["_Since | Recurring"]:
        return ()


ALWAYS: Instants = _Constant(holds=True)
NEVER: Instants = _Constant(holds=False)


@final
class _Since(Instants):
    """[at, ∞)."""

    __slots__ = ("at",)

    def __init__(self, at: datetime) -> None:
        self.at = at

    def __repr__(self) -> str:
        return f"since({self.at.isoformat()})"

    def contains(self, at: datetime) -> bool:
        return at >= self.at

    def until(self, at: datetime) -> datetime | None:
        return self.at if at < self.at else None  # known for ever: no search, so no horizon

    def _cells(self, month: _Month, phase: int) -> int:
        minute, rest = divmod(_microseconds(self.at), _MINUTE_US)
        before = min(max(minute + (phase < rest) - month.start, 0), month.minutes)
        return month.full >> before << before

    def _leaves(self) -> Iterable["_Since | Recurring"]:
        return (self,)

    def phase(self, month: _Month) -> int:
        """Where in a minute the answer changes in this month; 0 if nowhere but on the minute."""
        minute, rest = divmod(_microseconds(self.at), _MINUTE_US)
        return rest if month.start <= minute < month.start + month.minutes else 0

    def shape(self, month: _Month) -> Hashable:
        """Equal for months with equal cells."""
        position = _microseconds(self.at) - month.start * _MINUTE_US
        return max(position, 0) if position < month.minutes * _MINUTE_US else None


class _Searched(Instants):
    """A set whose changes are found in bitsets; remembers the last few runs."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: tuple[_Run, ...] = ()

    @abstractmethod
    def _holds(self, at: datetime) -> bool: ...

    @abstractmethod
    def _find_run(self, at: datetime, *, holds: bool) -> _Run: ...

    def contains(self, at: datetime) -> bool:
        for run in self._runs:
            if run.start <= at < run.stop:
                return run.holds
        return self._holds(at)

    def until(self, at: datetime) -> datetime | None:
        run = self._run(at)
        return run.stop if run.ends and run.stop - at <= HORIZON else None

    def _run(self, at: datetime) -> _Run:
        known = self._runs
        for run in known:
            if run.start <= at < run.stop and (run.ends or run.stop - at > HORIZON or run.stop == _LAST):
                return run
        found = self._find_run(at, holds=self.contains(at))
        # A run met again from an earlier instant, or searched further, replaces what was known of it.
        kept = [run for run in known if run.stop <= found.start or run.start >= found.stop]
        self._runs = (found, *kept[: _KEPT_RUNS - 1])
        return found

    def _search(self, at: datetime, start: datetime, *, holds: bool) -> _Run:
        """The run from `at` on, which is known to last up to and including `start`."""
        leaves = tuple(dict.fromkeys(self._leaves()))
        regular = {leaf.phase for leaf in leaves if isinstance(leaf, Recurring)}
        minute, phase = divmod(_microseconds(start), _MINUTE_US)
        first = _month_index(start)
        unchanged: set[Hashable] = set()
        month = _month(first)
        for index in range(first, min(first + _SEARCHED_MONTHS, 10_000 * 12)):
            month = _month(index)
            # With many sets the shapes take longer than they save.
            shape = tuple([leaf.shape(month) for leaf in leaves]) if len(leaves) <= _FEW else None
            if shape in unchanged:
                continue
            phases = {0} | regular | {leaf.phase(month) for leaf in leaves if isinstance(leaf, _Since)}
            changes = []
            for at_phase in phases:
                # Only what comes after `start` counts: in its own month skip the cells up to it.
                skip = minute - month.start + (at_phase <= phase) if index == first else 0
                cells = self._cells(month, at_phase)
                other = (cells ^ month.full if holds else cells) >> skip
                if other:
                    cell = skip + (other & -other).bit_length() - 1
                    changes.append((month.start + cell) * _MINUTE_US + at_phase)
            if changes:
                return _Run(at, _instant(min(changes)), holds, ends=True)
            if index > first and shape is not None:
                unchanged.add(shape)
        return _Run(at, _instant((month.start + month.minutes) * _MINUTE_US), holds, ends=False)


@final
class Recurring(_Searched):
    """Open for a fixed elapsed time from each hit of a cron expression on: [hit, hit + duration) (R10)."""

    __slots__ = ("_last_shape", "_minutes", "cron", "duration_ns", "phase")

    def __init__(self, cron: Cron, duration_ns: int) -> None:
        assert duration_ns >= 0
        super().__init__()
        self.cron = cron
        self.duration_ns = duration_ns
        # Instants have microseconds: the end is rounded up. `phase` is where in a minute it closes.
        self._minutes, self.phase = divmod(-(-duration_ns // 1000), _MINUTE_US)
        self._last_shape: tuple[_Month, tuple[Shape, int]] | None = None

    def __repr__(self) -> str:
        return f"Recurring({self.cron.text!r}, {self.duration_ns / 1e9:g}s)"

    @property
    def never(self) -> bool:
        """Whether it never opens."""
        return self.cron.never or self.duration_ns == 0

    def _holds(self, at: datetime) -> bool:
        if self.never:
            return False
        now = _microseconds(at)
        hit = self.cron.last_hit(now // _MINUTE_US)
        return hit is not None and now < (hit + self._minutes) * _MINUTE_US + self.phase

    def _find_run(self, at: datetime, *, holds: bool) -> _Run:
        if holds and self._covers_every_gap(at):
            return _Run(at, min(at, _LAST - _FURTHER) + _FURTHER, holds=True, ends=False)
        if holds:
            return self._search(at, at, holds=True)
        # What is closed opens at the next hit, were it years away.
        hit = None if self.never else self.cron.next_hit(_microseconds(at) // _MINUTE_US + 1)
        if hit is None:
            return _Run(at, _LAST, holds=False, ends=False)
        return _Run(at, _instant(hit * _MINUTE_US), holds=False, ends=True)

    def _leaves(self) -> Iterable["_Since | Recurring"]:
        return (self,)

    def shape(self, month: _Month) -> tuple[Hashable, int]:
        """What decides the cells of a month: where in the week it starts, or its hits and how long ago the last was."""
        steady = self._start_in_week(month)
        return self._irregular(month) if steady is None else (month.minutes, steady)

    def _start_in_week(self, month: _Month) -> int | None:
        """For a month in which every week is like the last: at which minute of the local week it starts."""
        if not self.cron.weekly:
            return None
        # There is a hit every week, and only the latest before the month matters.
        calm = spells(self.cron.zone, month.start - _WEEK_MINUTES - 1440, month.start + month.minutes)
        return (month.start + calm[0].offset + _EPOCH_IN_WEEK) % _WEEK_MINUTES if len(calm) == 1 else None

    def _irregular(self, month: _Month) -> tuple[Shape, int]:
        if self._last_shape is not None and self._last_shape[0] is month:
            return self._last_shape[1]
        hit = None if self.never else self.cron.last_hit(month.start - 1)
        # Only the latest hit matters, all windows being equally long; what has closed before is all the same.
        longest = self._minutes + 1
        ago = longest if hit is None else min(month.start - hit, longest)
        if longest - ago > month.minutes:
            ago = longest - month.minutes - 1
        shape = (self.cron.shape(month.start, month.start + month.minutes), ago)
        self._last_shape = (month, shape)
        return shape

    def _cells(self, month: _Month, phase: int) -> int:
        minutes = self._minutes + (phase < self.phase)
        steady = self._start_in_week(month)
        if steady is not None:
            return _open_weeks(self.cron, min(minutes, _WEEK_MINUTES)) >> steady & month.full
        hits, ago = self._irregular(month)
        return _open_cells(self.cron, hits, ago, minutes) & month.full

    def week(self) -> int:
        """Cells that are open throughout in every week from Sunday 00:00 UTC, whatever a zone does; 0: no telling."""
        if self.cron.zone.key != "UTC" and not self.cron.minutely:
            return 0
        return _open_week(self.cron, min(self._minutes, _WEEK_MINUTES))

    def _covers_every_gap(self, at: datetime) -> bool:
        """Whether each hit of the weeks to come falls into the window before, however the clock is changed."""
        to_spare = min(self._minutes - self._longest_repeat(at), _WEEK_MINUTES)
        return to_spare > 0 and _open_week(self.cron, to_spare) == _ALL_WEEK

    def _longest_repeat(self, at: datetime) -> int:
        """By how many minutes a change of the clock may part two hits, from the last week to the horizon."""
        now = _microseconds(at) // _MINUTE_US
        coming = spells(self.cron.zone, now - _WEEK_MINUTES, now + _SEARCHED_MONTHS * 31 * 1440)
        repeats = [before.offset - after.offset for before, after in itertools.pairwise(coming)]
        longest = max(repeats, default=0)
        # R10: an expression for every hour of every day fires in the repeated hour as in any other.
        return 0 if longest <= 0 or (self.cron.hourly and all(repeat % 60 == 0 for repeat in repeats)) else longest


@lru_cache(maxsize=512)  # some 1.3 KB each
def _open_week(cron: Cron, minutes: int) -> int:
    """The cells of any week within so many minutes of a hit in this or the last week."""
    cells = smear(cron.week, minutes)
    return (cells | cells >> _WEEK_MINUTES) & _ALL_WEEK


@lru_cache(maxsize=256)  # some 8 KB each
def _open_weeks(cron: Cron, minutes: int) -> int:
    """Six such weeks: a month, wherever in a week it starts."""
    week = _open_week(cron, minutes).to_bytes(_WEEK_MINUTES // 8, "little")
    return int.from_bytes(week * 6, "little")


@lru_cache(maxsize=256)  # some 6 KB each
def _open_cells(cron: Cron, shape: Shape, ago: int, minutes: int) -> int:
    """The cells within so many minutes of a hit; may reach beyond the stretch."""
    carried = (1 << max(minutes - ago, 0)) - 1
    return smear(cron.hits_of(shape), min(minutes, shape.minutes)) | carried


def smear(bits: int, width: int) -> int:
    """Every set bit becomes `width` bits, itself the lowest."""
    if width == 0:
        return 0
    done = 1
    while done < width:
        step = min(done, width - done)
        bits |= bits << step
        done += step
    return bits


@final
class _Not(Instants):
    __slots__ = ("inner",)

    def __init__(self, inner: Instants) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"complement({self.inner!r})"

    def contains(self, at: datetime) -> bool:
        return not self.inner.contains(at)

    def until(self, at: datetime) -> datetime | None:
        return self.inner.until(at)

    def _cells(self, month: _Month, phase: int) -> int:
        return self.inner._cells(month, phase) ^ month.full

    def _leaves(self) -> Iterable["_Since | Recurring"]:
        return self.inner._leaves()


@final
class _Combined(_Searched):
    """All of several sets (`quantifier` is all), or any of them."""

    __slots__ = ("parts", "quantifier")

    def __init__(self, quantifier: Callable[[Iterable[object]], bool], parts: Sequence[Instants]) -> None:
        assert len(parts) > 1
        super().__init__()
        self.quantifier = quantifier
        self.parts = tuple(parts)

    def __repr__(self) -> str:
        return f"{self.quantifier.__name__}_of({', '.join(map(repr, self.parts))})"

    def _holds(self, at: datetime) -> bool:
        return self.quantifier(part.contains(at) for part in self.parts)

    def _find_run(self, at: datetime, *, holds: bool) -> _Run:
        # The parts are often shared and know their runs, so leap from one of their changes to the next first. Mere
        # windows are faster searched together.
        stop = at
        if not all(isinstance(part, Recurring) for part in self.parts):
            for _ in range(_STEPS):
                following = self._leap(stop, holds=holds)
                if following is None:
                    return _Run(at, min(stop, _LAST - HORIZON) + HORIZON, holds, ends=False)
                stop = following
                if self._holds(stop) != holds:
                    return _Run(at, stop, holds, ends=True)
        return self._search(at, stop, holds=holds)

    def _leap(self, at: datetime, *, holds: bool) -> datetime | None:
        """An instant up to which the answer stands, by what the parts say; None: for five years from `at`."""
        if (self.quantifier is all) is holds:
            # Every part agrees with the answer: the first to change changes it.
            return min((until for part in self.parts if (until := part.until(at)) is not None), default=None)
        latest = at
        for part in self.parts:
            if part.contains(at) is holds:
                # Each part that agrees with the answer has to change before it does.
                until = part.until(at)
                if until is None:
                    return None
                latest = max(latest, until)
        return latest

    def _cells(self, month: _Month, phase: int) -> int:
        cells = self.parts[0]._cells(month, phase)
        decided = 0 if self.quantifier is all else month.full
        for part in self.parts[1:]:
            if cells == decided:
                break  # the others cannot change it, and there may be thousands
            if self.quantifier is all:
                cells &= part._cells(month, phase)
            else:
                cells |= part._cells(month, phase)
        return cells

    def _leaves(self) -> Iterable["_Since | Recurring"]:
        return (leaf for part in self.parts for leaf in part._leaves())


def since(at: datetime) -> Instants:
    """[at, ∞)."""
    return _Since(at)


@lru_cache(maxsize=4096)
def recurring(cron: Cron, duration_ns: int) -> Instants:
    """[hit, hit + duration) for every hit: one object for equal arguments, so that all share what it remembers."""
    windows = Recurring(cron, duration_ns)
    if windows.never:
        return NEVER
    return ALWAYS if windows.week() == _ALL_WEEK else windows


def complement(instants: Instants) -> Instants:
    """Every instant that is not in the set."""
    if instants is ALWAYS:
        return NEVER
    if instants is NEVER:
        return ALWAYS
    return instants.inner if type(instants) is _Not else _complement(instants)


@lru_cache(maxsize=4096)
def _complement(instants: Instants) -> Instants:
    """One object for one set, so that combinations with it can be shared."""
    return _Not(instants)


def all_of(parts: Iterable[Instants]) -> Instants:
    """The instants in every one of the sets; ALWAYS if there are none."""
    kept: dict[Instants, None] = {}
    latest: _Since | None = None
    for part in _flat(all, parts):
        if part is NEVER:
            return NEVER
        # Not isinstance: for an abstract base class that is slow, and this is asked for every pod.
        if type(part) is _Since:
            latest = part if latest is None or part.at > latest.at else latest
        elif part is not ALWAYS:
            kept[part] = None
    return _combined(all, latest, kept) or ALWAYS


def any_of(parts: Iterable[Instants]) -> Instants:
    """The instants in at least one of the sets; NEVER if there are none."""
    kept: dict[Instants, None] = {}
    earliest: _Since | None = None
    for part in _flat(any, parts):
        if part is ALWAYS:
            return ALWAYS
        if type(part) is _Since:
            earliest = part if earliest is None or part.at < earliest.at else earliest
        elif part is not NEVER:
            kept[part] = None
    week = 0
    for part in kept:
        if type(part) is Recurring:
            week |= part.week()
    if week == _ALL_WEEK:
        return ALWAYS  # R10: the windows leave no gap
    return _combined(any, earliest, kept) or NEVER


def _combined(
    quantifier: Callable[[Iterable[object]], bool], since_: _Since | None, others: Iterable[Instants]
) -> Instants | None:
    """What is left after simplifying. The sets that many nodes have in common are one object, and remember for all."""
    sets = tuple(others)
    shared = sets[0] if len(sets) == 1 else _shared(quantifier, _Unordered(sets)) if sets else None
    if since_ is None or shared is None:
        return since_ or shared
    return _Combined(quantifier, (since_, shared))


class _Unordered:
    """The same sets in another order mean the same."""

    __slots__ = ("key", "sets")

    def __init__(self, sets: tuple[Instants, ...]) -> None:
        self.sets = sets
        self.key = frozenset(sets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unordered) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=4096)
def _shared(quantifier: Callable[[Iterable[object]], bool], parts: _Unordered) -> Instants:
    return _Combined(quantifier, parts.sets)


def _flat(quantifier: Callable[[Iterable[object]], bool], parts: Iterable[Instants]) -> Iterable[Instants]:
    """The parts, with those of nested sets of the same kind in their place."""
    for part in parts:
        if type(part) is _Combined and part.quantifier is quantifier:
            yield from _flat(quantifier, part.parts)
        else:
            yield part


@lru_cache(maxsize=512)
def _month(index: int) -> _Month:
    """The month number year * 12 + month - 1."""
    start = _month_start(index)
    minutes = _month_start(index + 1) - start
    return _Month(start, minutes, _full(minutes))


def _month_index(at: datetime) -> int:
    utc = at.astimezone(UTC)
    return utc.year * 12 + utc.month - 1


def _month_start(index: int) -> int:
    year, month = divmod(index, 12)
    if year > 9999:
        return _month_start(index - 1) + 31 * 1440
    return (datetime(year, month + 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(minutes=1)


@lru_cache(maxsize=4)
def _full(minutes: int) -> int:
    return (1 << minutes) - 1


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _instant(microseconds: int) -> datetime:
    # Beyond year 9999 is never.
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST
