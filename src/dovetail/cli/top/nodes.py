"""Draws a node as a line: state, when it is free, what blocks it, and a bar of its future."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rich.text import Text

from dovetail.cli.common.output import Times, fitting_names
from dovetail.cli.text.forecast_bars import TimeScale
from dovetail.cli.top.fitting import fit, instant, longest
from dovetail.cli.top.keys import ViewState
from dovetail.cli.top.rows import EXPIRING, FORCEFUL, KINDS, causes_at, comes, free_at, free_words, is_leaving, kind_at
from dovetail.model.refs import Ref
from dovetail.rules.states import MEANING, NodeState
from dovetail.rules.verdict import Rule
from dovetail.values.foreign_text import plain
from dovetail.values.timestamp import time_between
from dovetail.views.board.rows import NodeRow
from dovetail.views.forecast import data as ahead
from dovetail.views.forecast.data import ForecastEventType, SpanKind

WIDE: Final = 110  # columns: room for what comes next
WIDEST: Final = 140  # and for what the states are called
ROOMIEST: Final = 180  # and for the machine
_NARROWEST_BAR: Final = 8
ENDLESS: Final = 10_000  # columns of a file
_FILE_BAR: Final = 48
_NEXT: Final = 20  # `~expires 03-11 13:20`
_STYLES: Final = {SpanKind.FREE: "green", SpanKind.BLOCKED: "red", SpanKind.DRAINING: "yellow", SpanKind.GONE: "dim"}
_WORDS: Final = {
    ForecastEventType.FORCED: "forced",
    ForecastEventType.DEADLINE: "forced",
    ForecastEventType.EXPIRES: "expires",
    ForecastEventType.GRACEFULLY_EXPIRES: "expires",
    ForecastEventType.DISRUPTS: "may go",
}
_SHORT: Final[dict[str, str]] = {
    Rule.DISRUPTION_SCHEDULE: "window",
    Rule.DISRUPTION_BLOCK_SCHEDULE: "block window",
    Rule.POD_DISRUPTION_BUDGET: "PDB",
}


class NodeTable:
    """Draws rows with the same columns, whichever rows are visible."""

    def __init__(self, rows: Sequence[NodeRow], view: ViewState, times: Times, width: int | None) -> None:
        self._times = times
        self._seconds = int(times.now.timestamp())
        self._whole = width is None
        width = ENDLESS if width is None else width
        self._width = width
        self._wide = width >= WIDE
        self._widest = width >= WIDEST
        self._gap = "  " if self._wide else " "
        self._pooled = not view.grouped
        self._columns = {"NODE": min(longest("NODE", (row.name for row in rows)), max(12, width // 5))}
        self._names = fitting_names((row.name for row in rows), self._columns["NODE"])
        self._columns["NODE"] = longest("NODE", self._names.values())
        if self._pooled:
            self._columns["POOL"] = min(longest("POOL", (row.pool for row in rows)), max(6, width // 10))
        self._columns |= {
            "ST": longest("ST", map(self._state, rows)),
            **({"MACHINE": longest("MACHINE", map(_machine, rows))} if width >= ROOMIEST else {}),
            "PODS": 4,
            "FREE": 8,
            "BLOCKED BY": min(longest("BLOCKED BY", map(self._blocked_by, rows)), max(12, width // 5 + 4)),
        }
        rest = width - 2 - sum(self._columns.values()) - len(self._gap) * len(self._columns)
        rest -= _NEXT + len(self._gap) if self._wide else 0
        rest = min(rest, _FILE_BAR) if self._whole else rest
        end = times.now + timedelta(seconds=view.ahead)
        self._scale = TimeScale(times.now, end, rest, times.zone) if rest >= _NARROWEST_BAR else None
        self._bars: dict[tuple[object, ...], Text] = {}  # by spans and events

    def heading(self) -> Text:
        cells = [fit(name, width) for name, width in self._columns.items()]
        if self._scale is not None:
            cells.append(fit(self._scale.labels(), self._scale.width))
        return Text("  " + self._gap.join([*cells, *(["NEXT"] if self._wide else [])]), style="bold")

    def line(self, row: NodeRow, *, selected: bool) -> Text:
        cells = {
            "NODE": self._names[row.name],
            "POOL": row.pool,
            "ST": self._state(row),
            "MACHINE": _machine(row),
            "PODS": f"{row.pods:>4}",
            "FREE": self._free(row),
            "BLOCKED BY": self._blocked_by(row),
        }
        line = Text.assemble("▸" if selected else " ", (" " if row.stuck is None else "!", "bold red"))
        for column, width in self._columns.items():
            style = _STYLES[kind_at(row, self._seconds)] if column == "FREE" else ""
            line.append(fit(cells[column], width), style=style).append(self._gap)
        if self._scale is not None:
            line.append_text(self._bar(row, self._scale)).append(self._gap)
        if self._wide:
            line.append(self._next(row))
        if selected:
            line.append(" " * max(0, self._width - line.cell_len))
            line.stylize("reverse")
        else:
            line.rstrip()
        return line

    def _state(self, row: NodeRow) -> str:
        return f"{row.state} {MEANING[NodeState(row.state)]}" if self._widest else row.state

    def _free(self, row: NodeRow) -> str:
        at = free_at(row, self._seconds)
        word = free_words(row, self._seconds)
        return word if word or at is None else time_between(instant(at), instant(self._seconds))

    def _blocked_by(self, row: NodeRow) -> str:
        """`PDB data/postgres +2`; `NotReady 5h`; `budget (Drifted)`: it does not go for the reason that it has."""
        causes = causes_at(row, self._seconds) if row.managed else []
        badges = [f"{kind} {self._age(since)}".rstrip() for kind, since, _ in row.badges]
        if badges:
            rules = [_SHORT.get(rule, rule) for rule, *_ in causes if rule != Rule.INITIALIZED][:1]
            return plain(", ".join([*badges, *rules]))
        blocked = None if is_leaving(row) else row.stuck or row.waiting
        if blocked is not None and row.rule not in {rule for rule, *_ in causes}:
            return f"{_SHORT.get(row.rule, row.rule)} ({blocked[0]})"
        if not causes:
            return _SHORT.get(row.rule, row.rule)
        rule, ref, workload, _ = causes[0]
        who = f" {workload or ref.path}" if ref.kind == "Pod" else ""
        more = f" +{len(causes) - 1}" if len(causes) > 1 else ""
        return plain(f"{_SHORT.get(rule, rule)}{who}{more}")

    def _age(self, since: int | None) -> str:
        return "" if since is None else time_between(instant(since), instant(self._seconds))

    def _next(self, row: NodeRow) -> str:
        """When it ends, or may; `~`: only if nothing but time changes."""
        for types in ((*FORCEFUL, *EXPIRING), (ForecastEventType.DISRUPTS,)):
            at = comes(row, types, self._seconds)
            if at is not None:
                events = [event for event in row.events if event[1] in types and (event[0] or self._seconds) == at]
                word = _WORDS[ForecastEventType(events[0][1])]
                when = "now" if at == self._seconds else self._times.clock(instant(at))
                return f"{'' if events[0][3] else '~'}{word} {when}"
        return ""

    def _bar(self, row: NodeRow, scale: TimeScale) -> Text:
        """Most rows have the same bar as another one."""
        known = tuple([span[:2] for span in row.spans]), tuple([event[:2] for event in row.events])
        bar = self._bars.get(known)
        if bar is None:
            bar = self._bars[known] = self._drawn(row, scale)
        return bar

    def _drawn(self, row: NodeRow, scale: TimeScale) -> Text:
        spans = [ahead.NodeSpan(instant(span[0]), scale.end, KINDS[span[1]]) for span in row.spans]
        coming = [(event[0] or self._seconds, event[1]) for event in row.events]
        events = [
            ahead.ForecastEvent(
                max(instant(at), scale.at),
                ForecastEventType(type_),
                Ref("Node", "", row.name),
                "",
                ahead.Certainty.ASSUMED,
            )
            for at, type_ in coming
            if self._seconds <= at and instant(at) < scale.end
        ]
        return Text.from_ansi(scale.bar(spans, events))


def _machine(row: NodeRow) -> str:
    return plain(" ".join(filter(None, (row.type, row.capacity, row.zone))))
