"""Draws a span of time as a row of characters, with labels for hours or days."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from itertools import groupby, pairwise

import click

from dovetail.views.forecast.data import ForecastEvent, ForecastEventType, NodeSpan, SpanKind

CELLS = {SpanKind.FREE: "·", SpanKind.BLOCKED: "█", SpanKind.DRAINING: "▒", SpanKind.GONE: " "}
_COLOURS = {SpanKind.FREE: "green", SpanKind.BLOCKED: "red", SpanKind.DRAINING: "yellow", SpanKind.GONE: None}
# Where several fall into one cell, the first of these is shown.
MARKS = {
    ForecastEventType.FORCED: "F",
    ForecastEventType.DEADLINE: "F",
    ForecastEventType.EXPIRES: "E",
    ForecastEventType.GRACEFULLY_EXPIRES: "G",
    ForecastEventType.DISRUPTS: "D",
}
LEGEND = "· free  █ blocked  ▒ draining  E expires  G graceful expiry  D may go  F forced"
_QUARTER = timedelta(minutes=15)
_DAY = timedelta(days=1)
_STEPS = (1, 2, 3, 6, 12)  # hours
_DAYS = (1, 2, 7, 14, 28, 91, 182, 365)
_BETWEEN = 2  # columns between two labels, at least


class TimeScale:
    """Cells of equal length from one instant to another."""

    def __init__(self, at: datetime, end: datetime, width: int, zone: tzinfo) -> None:
        self.at = at
        self.end = end
        self.width = width
        self._zone = zone

    def cell(self, at: datetime) -> int:
        """The cell of the instant."""
        return min(self.width - 1, int((at - self.at) / (self.end - self.at) * self.width))

    def bar(self, spans: Sequence[NodeSpan], events: Sequence[ForecastEvent]) -> str:
        """The state of the node in the middle of each cell, and its events."""
        length = (self.end - self.at) / self.width
        starts = [span.start for span in spans]
        middles = (self.at + length * (cell + 0.5) for cell in range(self.width))
        kinds = [spans[max(0, bisect_right(starts, middle) - 1)].kind for middle in middles]
        cells: list[SpanKind | ForecastEventType] = list(kinds)
        for type_ in reversed(MARKS):
            for event in events:
                if event.type is type_:
                    cells[self.cell(event.at)] = type_
        return "".join(_drawn(what, len(list(run))) for what, run in groupby(cells))

    def labels(self) -> str:
        """Hours of the day, or days, in the zone; each label starts at its instant."""
        row = [" "] * self.width
        for cell, label in self._ticks():
            if cell + len(label) <= self.width:
                row[cell : cell + len(label)] = label
        return "".join(row).rstrip()

    def _ticks(self) -> list[tuple[int, str]]:
        """The labels of the finest division that do not touch."""
        labels: list[tuple[int, str]] = []
        for ticks in self._divisions():
            labels = [(self.cell(at), label) for at, label in ticks]
            gaps = (right - left - len(label) for (left, label), (right, _) in pairwise(labels))
            if all(gap >= _BETWEEN for gap in gaps):
                return labels
        return labels[:1]

    def _divisions(self) -> Iterator[list[tuple[datetime, str]]]:
        if self.end - self.at <= 14 * _DAY:
            for hours in _STEPS:
                yield [(at, f"{at.astimezone(self._zone):%H:%M}") for at in self._hours(hours)]
        midnights = list(self._midnights())
        for days in _DAYS:
            yield [(at, f"{at.astimezone(self._zone):%m-%d}") for at in midnights[::days]]

    def _hours(self, step: int) -> Iterator[datetime]:
        """The full hours of the zone, which may be half hours in UTC; without skipped hours."""
        at = self.at - (self.at - datetime.min.replace(tzinfo=UTC)) % _QUARTER
        while at < self.end:
            local = at.astimezone(self._zone)
            if at >= self.at and local.minute == 0 and local.hour % step == 0:
                yield at
            at += _QUARTER

    def _midnights(self) -> Iterator[datetime]:
        day = self.at.astimezone(self._zone).date()
        while True:
            midnight = datetime.combine(day, time(), self._zone).astimezone(UTC)
            if midnight >= self.end:
                return
            if midnight >= self.at:
                yield midnight
            day += _DAY


def _drawn(what: SpanKind | ForecastEventType, length: int) -> str:
    if isinstance(what, ForecastEventType):
        return click.style(MARKS[what] * length, bold=True)
    return click.style(CELLS[what] * length, fg=_COLOURS[what])
