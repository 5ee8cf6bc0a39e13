"""Shows a forecast as lines: herds, a bar for each node, events, budgets and problems."""

import sys
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import click

from dovetail.cli.common.output import (
    Times,
    count,
    cut_middle,
    fitting_names,
    pools_shown,
    problem_lines,
    sections,
    table,
)
from dovetail.cli.text.forecast_bars import LEGEND, TimeScale
from dovetail.rules.states import IN_DISRUPTION
from dovetail.values.foreign_text import plain
from dovetail.views.explain.standings import LEAVING, NEVER, NOW, NodeStanding, free_word, standing_word
from dovetail.views.forecast.data import (
    BudgetSpan,
    Burst,
    Certainty,
    Forecast,
    ForecastEvent,
    ForecastEventType,
    NodeForecast,
    PoolForecast,
    SpanKind,
)

# Shown of each, unless verbose.
_MOST_NODES = 25
_MOST_EVENTS = 20
_MOST_HERDS = 10
_MOST_CHANGES = 4
_WIDEST = 24
_GAP = 3  # columns, in tables
_NARROWEST_BAR = 24
_WIDEST_BAR = 96
_FILE_WIDTH = 80
_ROOMY = 160  # columns: room for the machine
# Events that the bars show already.
_BY_THE_WAY = frozenset(
    {ForecastEventType.FREE, ForecastEventType.BLOCKED, ForecastEventType.WINDOW_OPENS, ForecastEventType.WINDOW_CLOSES}
)
_RANKS = (
    ForecastEventType.FORCED,
    ForecastEventType.EXPIRES,
    ForecastEventType.DEADLINE,
    ForecastEventType.GRACEFULLY_EXPIRES,
    ForecastEventType.DISRUPTS,
)


def forecast_lines(forecast: Forecast, times: Times, *, width: int | None, verbose: bool, quiet: bool) -> list[str]:
    """The whole forecast. Verbose shows everything, quiet only nodes with events. `width` None: names are not cut."""
    text = _ForecastText(forecast, times, width=width, verbose=verbose, quiet=quiet)
    bodies = {
        "Many at once": text.herds(forecast.herds),
        "Nodes": text.nodes(forecast.nodes),
        "Events": text.events(forecast.nodes),
        "Budgets": text.pools(forecast.nodepools),
        "Problems": [] if quiet else problem_lines(forecast.problems, times, below_head=True),
    }
    lines = text.heading()
    return lines + sections(bodies)


class _ForecastText:
    def __init__(self, forecast: Forecast, times: Times, *, width: int | None, verbose: bool, quiet: bool) -> None:
        self.forecast = forecast
        self.times = times
        self.width = width
        self.verbose = verbose
        self.quiet = quiet

    def heading(self) -> list[str]:
        forecast, times = self.forecast, self.times
        lines = [f"From {times.stamp(forecast.at)} to {times.stamp(forecast.end)}, if {forecast.assumption}"]
        if not (forecast.nodes or forecast.nodepools):
            return [*lines, "There is no Node, NodeClaim or NodePool, so there is nothing to forecast."]
        if forecast.exact_until >= forecast.end:
            return [*lines, "Nothing moves within this time, so everything here is exact."]
        if forecast.exact_until > forecast.at:
            lines.append(f"Everything until {times.full(forecast.exact_until)} is exact: nothing moves before.")
        return [*lines, "Entries marked ~ assume that nothing else moves pods or removes nodes before."]

    # -- herds ---------------------------------------------------------------------------------------------------------

    def herds(self, herds: Sequence[Burst]) -> list[str]:
        """Expirations first, then what only may happen."""
        ranked = sorted(herds, key=lambda herd: (herd.type not in _RANKS[:4], herd.start))
        shown = ranked if self.verbose else ranked[:_MOST_HERDS]
        lines = [self.times.localised(plain(herd.message)) + f" ({self.times.distance(herd.start)})" for herd in shown]
        return [*lines, *_left_out(len(herds) - len(shown), "herds")]

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def nodes(self, nodes: Sequence[NodeForecast]) -> list[str]:
        others = [] if self.verbose else [node for node in nodes if not node.managed]
        nodes = [node for node in nodes if self.verbose or node.managed]
        ranked = sorted((node for node in nodes if not self.quiet or _happens(node)), key=_interest)
        shown = ranked if self.verbose else ranked[:_MOST_NODES]
        if not shown:
            return ["Nothing happens to any node."] if nodes else []
        roomy = self.verbose or (self.width or 0) >= _ROOMY
        names = fitting_names((node.name for node in shown), _WIDEST if self.width is not None else sys.maxsize)
        cells = [
            [self._name(names[node.name], node if roomy else None), self._pool(node.nodepool or "-"), self._next(node)]
            for node in shown
        ]
        used = sum(max(map(len, column)) + _GAP for column in zip(["NODE", "POOL", "NEXT"], *cells, strict=True))
        width = max(_NARROWEST_BAR, min(_WIDEST_BAR, (_FILE_WIDTH if self.width is None else self.width) - used))
        scale = TimeScale(self.forecast.at, self.forecast.end, width, self.times.zone)
        rows = [["NODE", "POOL", scale.labels(), "NEXT"]]
        rows += [
            [name, pool, scale.bar(node.spans, node.events), following]
            for node, (name, pool, following) in zip(shown, cells, strict=True)
        ]
        lines = [*table(rows), LEGEND]
        lines += _left_out(len(nodes) - len(shown), "nodes")
        return [*lines, *([f"… and {count(len(others), 'node')} without a NodePool; -v shows all"] if others else [])]

    def _name(self, name: str, node: NodeForecast | None) -> str:
        """With the machine, if there is room."""
        machine = (node.instance_type, node.capacity_type, node.zone) if node is not None else ()
        return " ".join([name, *map(plain, filter(None, machine))])

    def _pool(self, name: str) -> str:
        """A file gets the whole name."""
        return plain(name) if self.width is None else cut_middle(plain(name), _WIDEST)

    def _next(self, node: NodeForecast) -> str:
        """The most important event of the node."""
        for type_ in _RANKS[:3]:
            for event in node.events:
                if event.type is type_:
                    word = {
                        ForecastEventType.FORCED: "forced",
                        ForecastEventType.EXPIRES: "expires",
                        ForecastEventType.DEADLINE: "gone",
                    }[type_]
                    return f"{'~' if event.certainty is Certainty.ASSUMED else ''}{word} {self.times.clock(event.at)}"
        word = standing_word(node.standing, node.state)
        if word == LEAVING and node.deadline is not None:
            return f"by {self.times.clock(node.deadline)}"
        free = free_word(word, node.free_at, self.forecast.at, undated=node.undated, managed=node.managed)
        if not free and node.free_at is not None:
            free = f"free {self.times.clock(node.free_at)}"
        free = {NOW: "free", NEVER: "never free"}.get(free, free)
        return ", ".join([free, *(badge.kind.value for badge in node.badges if badge.kind.value != word)])

    # -- events --------------------------------------------------------------------------------------------------------

    def events(self, nodes: Sequence[NodeForecast]) -> list[str]:
        """In the order of time, without the events of herds."""
        crowded = {(herd.type, name) for herd in self.forecast.herds for name in herd.nodes}
        events = sorted(
            (
                (event, node)
                for node in nodes
                for event in node.events
                if self.verbose or (_is_shown(event, node) and (event.type, node.name) not in crowded)
            ),
            key=lambda pair: (pair[0].at, pair[1].name),
        )
        shown = events if self.verbose else events[:_MOST_EVENTS]
        lines = [self._event(event, node) for event, node in shown]
        return [*lines, *_left_out(len(events) - len(shown), "events")]

    def _event(self, event: ForecastEvent, node: NodeForecast) -> str:
        mark = " " if event.certainty is Certainty.EXACT else "~"
        object_ = plain(str(event.object))
        where = object_ if not event.object.namespace else f"{object_} on {plain(node.name)}"
        return f"{mark} {self.times.full(event.at)}  {where}: {self.times.localised(event.message)}"

    # -- budgets -------------------------------------------------------------------------------------------------------

    def pools(self, pools: Sequence[PoolForecast]) -> list[str]:
        """Reasons with the same budgets share a line."""
        lines = []
        shown, left_out = pools_shown(pools, every=self.verbose)
        for pool in shown:
            alike: dict[str, list[str]] = defaultdict(list)
            for reason in pool.reasons:
                budget = "budgets do not apply" if reason.forceful else self._budget(reason.spans)
                alike[budget].append(reason.reason)
            name = click.style(plain(pool.name), bold=True)
            lines += [f"{name} ({count(pool.nodes, 'node')}) {', '.join(alike[budget])}: {budget}" for budget in alike]
        return [*lines, *left_out]

    def _budget(self, spans: Sequence[BudgetSpan]) -> str:
        parts = [f"{_left(spans[0])}{' left' if spans[0].limit else ''} now"]
        stamp = self.times.full if self.verbose else self.times.clock
        parts += [f"{_left(span)} from {stamp(span.start)}" for span in spans[1:]]
        most = len(parts) if self.verbose else _MOST_CHANGES
        more = [f"and {len(parts) - most} more changes"] if len(parts) > most else []
        return "; ".join([*parts[:most], *more])


def _left(span: BudgetSpan) -> str:
    if not span.limit:
        return click.style("none allowed", fg="red")
    return click.style(f"{span.allowed} of {span.limit}", fg="green" if span.allowed else "red")


def _is_shown(event: ForecastEvent, node: NodeForecast) -> bool:
    """Evictions are shown only for a drain under way: every drain evicts pods."""
    return event.type not in _BY_THE_WAY and (
        event.type is not ForecastEventType.POD_EVICTED or node.state in IN_DISRUPTION
    )


def _happens(node: NodeForecast) -> bool:
    windows = (ForecastEventType.WINDOW_OPENS, ForecastEventType.WINDOW_CLOSES)
    if len(node.spans) > 1 or node.state in IN_DISRUPTION or node.standing == NodeStanding.STUCK:
        return True
    return any(event.type not in windows for event in node.events)


def _interest(node: NodeForecast) -> tuple[int, datetime, str]:
    """Nodes that are forced out or expire first, then those that change, never free ones, and always free ones."""
    ranked = [(_RANKS.index(event.type), event.at) for event in node.events if event.type in _RANKS]
    if ranked:
        rank, at = min(ranked)
        return rank, at, node.name
    if node.state in IN_DISRUPTION or node.standing == NodeStanding.STUCK:
        return len(_RANKS), node.spans[0].start, node.name
    if len(node.spans) > 1:
        return len(_RANKS) + 1, node.spans[1].start, node.name
    return len(_RANKS) + 2 + (node.spans[0].kind is SpanKind.FREE), node.spans[0].start, node.name


def _left_out(number: int, what: str) -> list[str]:
    return [f"… and {number} more {what}; -v shows all"] if number > 0 else []
