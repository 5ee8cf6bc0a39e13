"""Recurring windows of schedules."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dovetail.values.duration import MINUTE
from dovetail.values.schedule.cells import smear
from dovetail.values.schedule.cron import Cron
from dovetail.values.schedule.instants import HORIZON, NEVER, Instants, any_of, recurring

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOOKED_AT = 62 * 24 * 60  # minutes


class Opening(NamedTuple):
    """A window at one instant."""

    open: bool
    until: datetime | None  # when that changes; None: not within five years
    opens_at: datetime | None  # the next opening later than the instant; None: none within five years


class Window:
    """The union of recurring windows: any number of cron expressions, each with its duration (R8, R10)."""

    __slots__ = ("instants", "parts")

    def __init__(self, parts: Iterable[tuple[Cron, int]]) -> None:
        """Durations are in nanoseconds."""
        self.parts = tuple(parts)
        self.instants: Instants = any_of(recurring(cron, duration_ns) for cron, duration_ns in self.parts)

    def __repr__(self) -> str:
        return f"Window({[(cron.text, duration_ns) for cron, duration_ns in self.parts]})"

    def stays_open(self, at: datetime) -> bool:
        """Whether it is open and never closes, such as 48h every 24h; for `lint`."""
        return self.instants.contains(at) and self.instants.until(at) is None

    def runs_together(self, at: datetime) -> bool:
        """Whether a window is still open at the next hit of its expression, within two months; for `lint`."""
        start = (at - _EPOCH) // timedelta(minutes=1)
        for cron, duration_ns in self.parts:
            longest_overlap = (duration_ns - 1) // MINUTE  # in minutes between two hits
            hits = cron.hits(start, start + _LOOKED_AT)
            if longest_overlap > 0 and hits & smear(hits << 1, min(longest_overlap, _LOOKED_AT)):
                return True
        return False

    @property
    def never(self) -> bool:
        """Whether it never opens, such as on February 31; for `lint` (R9)."""
        return self.instants is NEVER

    def at(self, at: datetime) -> Opening:
        """The window at an instant. Overlapping windows count as one (R10)."""
        instants = self.instants
        until = instants.until(at)
        if not instants.contains(at):
            return Opening(open=False, until=until, opens_at=until)
        opens_at = None if until is None else instants.until(until)
        if opens_at is not None and opens_at - at > HORIZON:
            opens_at = None
        return Opening(open=True, until=until, opens_at=opens_at)
