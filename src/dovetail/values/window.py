"""Is a schedule's window open, until when, and when does it open next?"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from dovetail.values.cron import Cron
from dovetail.values.instants import ALWAYS, HORIZON, NEVER, Instants, any_of, recurring


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

    @property
    def always(self) -> bool:
        """Whether it is known never to close, as 48h every 24h; for `lint`."""
        return self.instants is ALWAYS

    @property
    def never(self) -> bool:
        """Whether it never opens, as on February 31; for `lint` (R9)."""
        return self.instants is NEVER

    def at(self, at: datetime) -> Opening:
        """The window as seen at an instant; overlapping windows are one (R10)."""
        instants = self.instants
        until = instants.until(at)
        if not instants.contains(at):
            return Opening(open=False, until=until, opens_at=until)
        opens_at = None if until is None else instants.until(until)
        if opens_at is not None and opens_at - at > HORIZON:
            opens_at = None
        return Opening(open=True, until=until, opens_at=opens_at)
