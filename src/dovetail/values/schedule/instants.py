"""Sets of instants for all time, which answer whether they hold and until exactly when.

Rules that depend on time combine such sets. No hits are enumerated, so no expression is slow: a set covers years at
once, with one bit per minute and one per day; sets combine by AND, OR and NOT, and the first change is the lowest set
bit.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, final

from dovetail.values.schedule.almanac import Stretch, stretch_of
from dovetail.values.schedule.cells import WHOLE_DAY, Cells, held_for, on, smear
from dovetail.values.schedule.cron import Cron
from dovetail.values.schedule.openings import openings
from dovetail.values.schedule.search import MINUTE_US as _MINUTE_US
from dovetail.values.schedule.search import Inverse, Joint, Leaf, Searchable, next_change
from dovetail.values.schedule.zone import DAY

HORIZON = timedelta(days=5 * 365 + 2)
"""What does not change within five years is said not to change (R10)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MINUTE = timedelta(minutes=1)
_KEPT_RUNS = 4
_LEAPS = 4
_FEW = 16
_WEEK_MINUTES = 7 * 1440
_ALL_WEEK = (1 << _WEEK_MINUTES) - 1


class _Run(NamedTuple):
    """A stretch [start, stop) with one answer."""

    start: datetime
    stop: datetime
    holds: bool
    ends: bool  # whether the answer changes at `stop`; otherwise it is unknown beyond


class Instants(Searchable):
    """A set of instants. Instants are timezone-aware."""

    __slots__ = ()

    @abstractmethod
    def contains(self, at: datetime) -> bool:
        """Whether the set contains the instant."""

    @abstractmethod
    def until(self, at: datetime) -> datetime | None:
        """The first instant after `at` at which `contains` changes; None: not for five years."""

    def first(self, at: datetime) -> datetime | None:
        """The first instant in the set from `at` on; None: none for five years."""
        return at if self.contains(at) else self.until(at)


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

    def cells(self, stretch: Stretch, days: int, early: int, late: int) -> Cells:  # noqa: ARG002
        return {WHOLE_DAY if self._holds else 0: days}


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
        return self.at if at < self.at else None  # no search, so no horizon

    def cells(self, stretch: Stretch, days: int, early: int, late: int) -> Cells:  # noqa: ARG002
        minute, phase = divmod(_microseconds(self.at), _MINUTE_US)
        day, of_day = divmod(minute + (late < phase), DAY)
        before = (1 << min(max(day - stretch.first, 0), stretch.length)) - 1
        on_day = before + 1 if stretch.first <= day else 0
        cells_ = {0: days & before, WHOLE_DAY >> of_day << of_day: days & on_day}
        cells_[WHOLE_DAY] = cells_.get(WHOLE_DAY, 0) | days & ~before & ~on_day
        return {cells: on for cells, on in cells_.items() if on}

    def leaves(self) -> Iterable[Leaf]:
        return (self,)

    @property
    def phase(self) -> int:
        """Where in a minute the answer changes."""
        return _microseconds(self.at) % _MINUTE_US

    def turns_in(self, minute: int) -> bool:
        return _microseconds(self.at) // _MINUTE_US == minute


class _SearchedInstants(Instants):
    """A set whose changes are found in bitsets; remembers the last few runs."""

    __slots__ = ()  # subclasses have one for `_runs`: only one of their bases can have slots
    _runs: tuple[_Run, ...]

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
        runs = self._runs
        for run in runs:
            if run.start <= at < run.stop and (run.ends or run.stop - at > HORIZON or run.stop == _LAST):
                return run
        new = self._find_run(at, holds=self.contains(at))
        # A run that begins earlier or reaches further replaces the old one.
        kept = [run for run in runs if run.stop <= new.start or run.start >= new.stop]
        self._runs = (new, *kept[: _KEPT_RUNS - 1])  # type: ignore[misc]  # each subclass has the slot
        return new

    def _search(self, at: datetime, start: datetime, *, holds: bool) -> _Run:
        """The run from `at` on, which is known to last at least until `start`."""
        change = next_change(self, _microseconds(start), holds=holds, holds_at=lambda us: self._holds(_instant(us)))
        return _Run(at, _instant(change.at), holds, ends=change.changes)


@final
class RecurringWindow(_SearchedInstants):
    """Open for a fixed time after each hit of a cron expression: [hit, hit + duration) (R10)."""

    __slots__ = ("_minutes", "_runs", "cron", "duration_ns", "phase")

    def __init__(self, cron: Cron, duration_ns: int) -> None:
        assert duration_ns >= 0
        self._runs = ()
        self.cron = cron
        self.duration_ns = duration_ns
        # Instants have microseconds: the end is rounded up. `phase` is where in a minute it closes.
        self._minutes, self.phase = divmod(-(-duration_ns // 1000), _MINUTE_US)

    def __repr__(self) -> str:
        return f"Recurring({self.cron.text!r}, {self.duration_ns / 1e9:g}s)"

    @property
    def never(self) -> bool:
        return self.cron.never or self.duration_ns == 0

    def _holds(self, at: datetime) -> bool:
        if self.never:
            return False
        now = _microseconds(at)
        minute = now // _MINUTE_US
        hit = self.cron.last_hit(minute, minute - self._minutes)
        return hit is not None and now < (hit + self._minutes) * _MINUTE_US + self.phase

    def _find_run(self, at: datetime, *, holds: bool) -> _Run:
        if holds:
            return self._search(at, at, holds=True)
        # A closed window opens at the next hit, even years away.
        hit = None if self.never else self.cron.next_hit(_microseconds(at) // _MINUTE_US + 1)
        if hit is None:
            return _Run(at, _LAST, holds=False, ends=False)
        return _Run(at, _instant(hit * _MINUTE_US), holds=False, ends=True)

    def turns_in(self, minute: int) -> bool:
        return self.phase > 0 and self.cron.fires(minute - self._minutes)

    def leaves(self) -> Iterable[Leaf]:
        return (self,)

    def cells(self, stretch: Stretch, days: int, early: int, late: int) -> Cells:  # noqa: ARG002
        return on(days, openings(self.cron, self._minutes + (early < self.phase), stretch))

    @property
    def reach(self) -> int:
        """An upper bound of the minutes of each week that are open in any zone."""
        if self.cron.zone.key != "UTC" and not self.cron.minutely:
            return 0
        return self.cron.hits_a_week * self._minutes

    def week(self) -> int:
        """These minutes, from Sunday 00:00 UTC."""
        return _open_week(self.cron, min(self._minutes, _WEEK_MINUTES)) if self.reach else 0


@lru_cache(maxsize=512)  # some 1.3 KB each
def _open_week(cron: Cron, minutes: int) -> int:
    """The minutes of a week within `minutes` after a hit in this week or the last."""
    cells = smear(cron.week, minutes)
    return (cells | cells >> _WEEK_MINUTES) & _ALL_WEEK


@final
class _Not(Inverse, Instants):
    __slots__ = ()
    inner: Instants

    def __repr__(self) -> str:
        return f"complement({self.inner!r})"

    def contains(self, at: datetime) -> bool:
        return not self.inner.contains(at)

    def until(self, at: datetime) -> datetime | None:
        return self.inner.until(at)


@final
class _CombinedInstants(Joint, _SearchedInstants):
    """All of several sets (`quantifier` is all), or any of them."""

    __slots__ = ("_runs", "quantifier")
    parts: Sequence[Instants]

    def __init__(self, quantifier: Callable[[Iterable[object]], bool], parts: Sequence[Instants]) -> None:
        assert len(parts) > 1
        super().__init__(tuple(parts), conjunction=quantifier is all)
        self._runs = ()
        self.quantifier = quantifier

    def __repr__(self) -> str:
        return f"{self.quantifier.__name__}_of({', '.join(map(repr, self.parts))})"

    def _holds(self, at: datetime) -> bool:
        return self.quantifier(part.contains(at) for part in self.parts)

    def _find_run(self, at: datetime, *, holds: bool) -> _Run:
        # Shared parts often know their runs, which may be enough. Windows alone are searched together.
        if all(isinstance(part, RecurringWindow) for part in self.parts):
            return self._search(at, at, holds=holds)
        searched_to = at
        # Windows are quick to search. For `_LastingInstants` parts it is quicker to ask the parts a few times.
        for _ in range(_LEAPS if self._has_lasting() else 1):
            stop = self._leap(searched_to, holds=holds)
            if stop is None:
                return _Run(at, min(searched_to, _LAST - HORIZON) + HORIZON, holds, ends=False)
            if self._holds(stop) != holds:
                return _Run(at, stop, holds, ends=True)
            searched_to = stop
        return self._search(at, searched_to, holds=holds)

    def _has_lasting(self) -> bool:
        return any(
            type(part) is _LastingInstants or (type(part) is _CombinedInstants and part._has_lasting())
            for part in self.parts
        )

    def _leap(self, at: datetime, *, holds: bool) -> datetime | None:
        """An instant up to which the answer holds, according to the parts; None: for five years from `at`."""
        if (self.quantifier is all) is holds:
            # Every part agrees with the answer: the first change changes it.
            return min((until for part in self.parts if (until := part.until(at)) is not None), default=None)
        latest = at
        for part in self.parts:
            if part.contains(at) is holds:
                # Every part that agrees with the answer has to change first.
                until = part.until(at)
                if until is None:
                    return None
                latest = max(latest, until)
        return latest


@final
class _LastingInstants(_SearchedInstants):
    """The minutes from which on a set holds for `minutes`."""

    __slots__ = ("_runs", "inner", "minutes")

    def __init__(self, inner: Instants, minutes: int) -> None:
        self._runs = ()
        self.inner = inner
        self.minutes = minutes

    def __repr__(self) -> str:
        return f"with_time_left({self.inner!r}, {self.minutes}m)"

    def _holds(self, at: datetime) -> bool:
        start = _minute_of(at)
        stop = self.inner.until(start) if self.inner.contains(start) else start
        return stop is None or stop - start >= self.minutes * _MINUTE

    def _find_run(self, at: datetime, *, holds: bool) -> _Run:
        # The inner set is often shared and knows its runs, which may be enough.
        span, minute = self.minutes * _MINUTE, _minute_of(at)
        for _ in range(_LEAPS):
            stop = self.inner.until(minute)
            if stop is None:
                break
            if stop - minute >= span and self.inner.contains(minute):
                return _Run(at, _minute_of(stop - span) + _MINUTE if holds else minute, holds, ends=True)
            minute = _minute_from(stop)
        return self._search(at, at, holds=holds)

    def cells(self, stretch: Stretch, days: int, early: int, late: int) -> Cells:  # noqa: ARG002
        """It changes on the minute, so the phase does not matter."""
        latest = max((leaf.phase for leaf in self.inner.leaves()), default=0)
        ahead = stretch_of(stretch.first + stretch.length, -(-self.minutes // DAY))
        whole = [self.inner.cells(part, part.visible, latest, 0) for part in (stretch, ahead)]
        return on(days, held_for(whole, (stretch.length, ahead.length), self.minutes))


def since(at: datetime) -> Instants:
    """[at, ∞)."""
    return _Since(at)


@lru_cache(maxsize=4096)
def recurring(cron: Cron, duration_ns: int) -> Instants:
    """[hit, hit + duration) for every hit. Equal arguments share one object and its memory."""
    windows = RecurringWindow(cron, duration_ns)
    if windows.never:
        return NEVER
    return ALWAYS if windows.reach >= _WEEK_MINUTES and windows.week() == _ALL_WEEK else windows


def complement(instants: Instants) -> Instants:
    if instants is ALWAYS:
        return NEVER
    if instants is NEVER:
        return ALWAYS
    return instants.inner if type(instants) is _Not else _complement(instants)


@lru_cache(maxsize=4096)
def _complement(instants: Instants) -> Instants:
    """Cached, so that combinations can be shared."""
    return _Not(instants)


def all_of(parts: Iterable[Instants]) -> Instants:
    """The instants in every one of the sets; ALWAYS if there are none."""
    kept: dict[Instants, None] = {}
    latest: _Since | None = None
    for part in _flat(all, parts):
        if part is NEVER:
            return NEVER
        # isinstance is slow for an abstract base class, and this runs for every pod.
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
    if _fill_the_week([part for part in kept if type(part) is RecurringWindow]):
        return ALWAYS
    return _combined(any, earliest, kept) or NEVER


def _fill_the_week(windows: list[RecurringWindow]) -> bool:
    """Whether the windows leave no gap in any week (R10)."""
    if sum([part.reach for part in windows]) < _WEEK_MINUTES:
        return False
    week = 0
    for part in windows:
        week |= part.week()
    return week == _ALL_WEEK


def _combined(
    quantifier: Callable[[Iterable[object]], bool], since_: _Since | None, others: Iterable[Instants]
) -> Instants | None:
    """The simplified set. Sets that many nodes have in common share one object and its memory."""
    sets = tuple(others)
    shared = sets[0] if len(sets) == 1 else _shared(quantifier, _UnorderedParts(sets)) if sets else None
    if since_ is None or shared is None:
        return since_ or shared
    return _CombinedInstants(quantifier, (since_, shared))


class _UnorderedParts:
    """A key that ignores the order of the sets."""

    __slots__ = ("key", "sets")

    def __init__(self, sets: tuple[Instants, ...]) -> None:
        self.sets = sets
        self.key = frozenset(sets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _UnorderedParts) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=4096)
def _shared(quantifier: Callable[[Iterable[object]], bool], parts: _UnorderedParts) -> Instants:
    return _CombinedInstants(quantifier, parts.sets)


def with_time_left(instants: Instants, span: timedelta) -> Instants:
    """The instants from whose minute on the set holds for `span`, rounded up to minutes.

    An intersection holds throughout a span if each part does, so the parts are handled one by one. A set that holds for
    good from some instant on always has time left; windows that last until then still count as closing there.
    """
    if type(instants) is _Constant or type(instants) is _Since:
        return instants
    if type(instants) is _CombinedInstants and instants.quantifier is all:
        return all_of([with_time_left(part, span) for part in instants.parts])
    if type(instants) is _CombinedInstants and any(type(part) is _Since for part in instants.parts):
        lasting = [part for part in instants.parts if type(part) is _Since]
        windows = any_of([part for part in instants.parts if type(part) is not _Since])
        return any_of([*lasting, with_time_left(windows, span)])
    return _lasting(instants, max(1, -(-span // _MINUTE)))


@lru_cache(maxsize=4096)
def _lasting(instants: Instants, minutes: int) -> Instants:
    return _LastingInstants(instants, minutes)


def _flat(quantifier: Callable[[Iterable[object]], bool], parts: Iterable[Instants]) -> Iterable[Instants]:
    """The parts, with nested sets of the same kind flattened, unless these are large.

    The set of all pods of a node, for example, is asked for every reason and remembers the answer.
    """
    for part in parts:
        if type(part) is _CombinedInstants and part.quantifier is quantifier and len(part.parts) <= _FEW:
            yield from _flat(quantifier, part.parts)
        else:
            yield part


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _minute_of(at: datetime) -> datetime:
    return _instant(_microseconds(at) // _MINUTE_US * _MINUTE_US)


def _minute_from(at: datetime) -> datetime:
    """The first minute that begins at the instant or later."""
    return _instant(-(-_microseconds(at) // _MINUTE_US) * _MINUTE_US)


def _instant(microseconds: int) -> datetime:
    # Beyond year 9999 means never.
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST
