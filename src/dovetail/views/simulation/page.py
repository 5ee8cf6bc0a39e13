"""Shows a simulated run as one web page: drawings, each with a table of the same data; no script, no other files.

Everything that comes from objects is escaped: names and messages may contain markup.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, tzinfo
from html import escape
from typing import Final

from dovetail.model.finding import Finding, Severity
from dovetail.values.timestamp import spoken_time
from dovetail.views.simulation.report import (
    HOUR,
    Comparison,
    MachineLife,
    SimulationReport,
    by_hour_of_day,
    figure_text,
    most_important,
)

_WIDTH, _LEFT, _RIGHT, _ROW = 1100, 190, 10, 13
_MAX_TICKS: Final = 12
_TICK_ROOM: Final = 60  # for the name of the last one
_STEPS: Final = (
    *(timedelta(minutes=minutes) for minutes in (1, 5, 10, 30)),
    *(timedelta(hours=hours) for hours in (1, 2, 3, 6, 12, 24)),
)
_MAX_ROWS: Final = 400
_MAX_ENTRIES: Final = 2_000
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT[^ ]+$")  # is not broken into two lines
_REASONS: Final = ("Empty", "Underutilized", "Drifted", "Expired", "Unhealthy", "Interrupted", "Other")
_CSS: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;--back:#fff;--card:#f6f8fa;--life:#9ec5e8;
--boot:#d5e5f3;--Empty:#6a737d;--Underutilized:#8250df;--Drifted:#bf8700;--Expired:#0969da;--Unhealthy:#cf222e;
--Interrupted:#bc4c00;--Other:#1b7c83;--cost:#1a7f37}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--back:#0d1117;--card:#151b23;
--life:#30618f;--boot:#1d3a56;--Empty:#9198a1;--Underutilized:#ab7df8;--Drifted:#d29922;--Expired:#4493f8;
--Unhealthy:#f85149;--Interrupted:#db6d28;--Other:#39c5cf;--cost:#3fb950}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1180px;padding:24px 16px;color:var(--ink);background:var(--back);
font:15px/1.5 system-ui,sans-serif}h1{font-size:24px;margin:0 0 4px}
h1.run{margin-top:48px;padding-top:24px;border-top:1px solid var(--line)}h2{font-size:18px;margin:32px 0 8px}
p{margin:4px 0;color:var(--soft)}.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px;
margin:16px 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.tile b{display:block;font-size:22px;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
.bad b{color:var(--Unhealthy)}svg{display:block;width:100%;height:auto;background:var(--card);
border:1px solid var(--line);border-radius:8px}
svg text{fill:var(--ink);font:11px system-ui,sans-serif}svg .soft{fill:var(--soft)}
svg .pool{font-weight:bold}
.grid{stroke:var(--line);stroke-width:1}.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13px}
th,td{text-align:left;padding:3px 10px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
td.t{white-space:nowrap;font-variant-numeric:tabular-nums}.fit table{width:auto}
.fit th,.fit td{padding-right:32px}details{margin:8px 0}
summary{cursor:pointer;color:var(--soft)}
.key{display:inline-block;margin-right:14px;font-size:13px;color:var(--soft)}
.key i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:5px;vertical-align:-1px}
.two{display:grid;grid-template-columns:1fr 1fr;gap:20px}@media(max-width:800px){.two{grid-template-columns:1fr}}
"""


def report_page(report: SimulationReport, zone: tzinfo, scenario: str) -> str:
    """The page of one run of a scenario, which is named in the title."""
    body = "".join(_body(report, zone))
    return _page(_title(f"Simulation of {scenario}", report, zone), f"{_span(report, zone)}, seed {report.seed}", body)


def comparison_page(comparison: Comparison, zone: tzinfo, scenario: str) -> str:
    """The page of two runs: figures side by side, drawings one below the other."""
    first, second = comparison.labels
    rows = [
        [escape(row.title), _number(row.first), _number(row.second), _number(row.second - row.first, sign=True)]
        for row in comparison.differences
    ]
    figures = _table(["", escape(first), escape(second), "change"], rows, numbers=(1, 2, 3))
    parts = [f'<h2>Compared</h2><div class="fit">{figures}</div>']
    charts = [
        f"<div><p>{escape(label)}</p>{_histogram(report, zone)}</div>"
        for label, report in zip(comparison.labels, comparison.reports, strict=True)
    ]
    parts.append(f'<h2>Disruptions by hour of the day</h2><div class="two">{"".join(charts)}</div>')
    for label, report in zip(comparison.labels, comparison.reports, strict=True):
        parts.append(f'<h1 class="run">{escape(label)}</h1>')
        parts += _body(report, zone)
    report = comparison.reports[0]
    title = _title(f"Two simulations of {scenario}", report, zone)
    return _page(title, f"{_span(report, zone)}, seed {report.seed}", "".join(parts))


def _title(what: str, report: SimulationReport, zone: tzinfo) -> str:
    return f"{what}, from {report.start.astimezone(zone):%Y-%m-%d}"


def _page(title: str, subtitle: str, body: str) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>Dovetail: {escape(title)}</title><style>{_CSS}</style></head>"
        f"<body><h1>{escape(title)}</h1><p>{escape(subtitle)}</p>{body}</body></html>\n"
    )


def _span(report: SimulationReport, zone: tzinfo) -> str:
    return f"{spoken_time(report.start, zone)} to {spoken_time(report.end, zone)}"


def _body(report: SimulationReport, zone: tzinfo) -> Iterable[str]:
    yield _tiles(report)
    if report.violations:
        rows = [[_at(v.at, zone), escape(v.rule), escape(v.object), escape(v.message)] for v in report.violations]
        yield "<h2>Violations</h2>" + _table(["at", "rule", "object", ""], rows)
    bad = [problem for problem in report.problems if problem.severity is not Severity.INFO]
    if bad:
        yield "<h2>Missing or unusual</h2>" + _problems(bad)
    yield "<h2>Nodes over time</h2>" + _keys() + _lives(report, zone)
    yield "<h2>Nodes and cost, hour by hour</h2>" + _hours(report, zone)
    yield "<h2>Disruptions by hour of the day</h2>" + _histogram(report, zone)
    yield "<h2>What happened</h2>" + _timeline(report, zone)
    if len(bad) < len(report.problems):
        yield "<h2>Assumed</h2>" + _problems(p for p in report.problems if p.severity is Severity.INFO)


def _problems(problems: Iterable[Finding]) -> str:
    rows = [[escape(p.severity.value), escape(p.rule), escape(str(p.object)), escape(str(p.message))] for p in problems]
    return _table(["", "rule", "object", ""], rows)


def _tiles(report: SimulationReport) -> str:
    nodes, pods, saved, kept = report.nodes, report.pods, report.consolidation, report.protection
    gone = sum(nodes.terminated.values())
    tiles = [
        (f"{nodes.at_start} → {nodes.at_end}", "nodes", False),
        (str(nodes.launched), "launched", False),
        (str(gone), "terminated", False),
        (str(pods.evicted), "pods evicted", False),
        (str(pods.forced), "pods forced", pods.forced > 0),
        (str(pods.lost), "pods lost", pods.lost > 0),
        (str(pods.pending), "pods pending at the end", pods.pending > 0),
        (f"${report.cost.total:,.2f}", "total cost", False),
        (f"${report.cost.per_hour_start:.2f} → ${report.cost.per_hour_end:.2f}", "cost per hour", False),
        (str(kept.evicted), "pods evicted despite their annotations", kept.evicted > 0),
    ]
    if kept.late is not None:
        tiles += [
            (str(kept.late), "nodes that Karpenter took too early", kept.late > 0),
            (f"{kept.held_nodes}, {kept.held_hours:g} h", "nodes held", False),
        ]
    if saved is not None:
        tiles += [
            (f"${saved.realised:.3f} of ${saved.promised:.3f}", "promised savings per hour realised", False),
            (f"{saved.moved_per_day:g}", "pods moved by consolidation a day", False),
            (str(saved.moved_again), "pods moved again within an hour", saved.moved_again > 0),
            (str(saved.moved_in_vain), "pods moved in vain", saved.moved_in_vain > 0),
            (str(saved.unplanned), "nodes that nobody planned", saved.unplanned > 0),
        ]
    if report.checked:
        tiles.append((str(len(report.violations)), "violations", bool(report.violations)))
    made = "".join(
        f'<div class="tile{" bad" if bad else ""}"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name, bad in tiles
    )
    why = ", ".join(f"{count} {escape(reason)}" for reason, count in nodes.terminated.items())
    return f'<div class="tiles">{made}</div>' + (f"<p>Terminated: {why}</p>" if why else "")


# -- the life of every node --------------------------------------------------------------------------------------------


def _keys() -> str:
    entries = [("var(--boot)", "starting"), ("var(--life)", "ready")]
    entries += [(f"var(--{reason})", f"removed: {reason}") for reason in _REASONS]
    return (
        "<p>"
        + "".join(f'<span class="key"><i style="background:{c}"></i>{escape(t)}</span>' for c, t in entries)
        + "</p>"
    )


class _Axis:
    """The horizontal axis: time."""

    def __init__(self, start: datetime, end: datetime) -> None:
        self.start, self.end = start, end
        self._seconds = max(1.0, (end - start).total_seconds())

    def x(self, at: datetime) -> float:
        share = (min(max(at, self.start), self.end) - self.start).total_seconds() / self._seconds
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def ticks(self, zone: tzinfo) -> list[tuple[float, str]]:
        """At full minutes, hours or midnights of the zone, depending on the length of the run."""
        span = self.end - self.start
        step = next((step for step in _STEPS if span / step <= _MAX_TICKS), _STEPS[-1])
        while span / step > _MAX_TICKS:
            step *= 2
        midnight = self.start.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
        first = -((midnight - self.start) // step)
        instants = [midnight + step * number for number in range(first, first + _MAX_TICKS + 1)]
        form = "%a %d %b" if step >= timedelta(days=1) else "%a %H:%M"
        return [
            (self.x(at), at.strftime(form))
            for at in instants
            if self.start <= at <= self.end and self.x(at) <= _WIDTH - _TICK_ROOM
        ]

    def grid(self, zone: tzinfo, top: int, bottom: int, names_at: int) -> str:
        """A vertical line at each tick, with its name."""
        return "".join(
            f'<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>'
            f'<text class="soft" x="{x + 2}" y="{names_at}">{escape(t)}</text>'
            for x, t in self.ticks(zone)
        )


def _svg(label: str, height: int, body: str, *, width: int = _WIDTH, style: str = "") -> str:
    text = f"{label}; the table below says the same"
    return f'<svg viewBox="0 0 {width} {height}" {style}role="img" aria-label="{text}">{body}</svg>'


def _lives(report: SimulationReport, zone: tzinfo) -> str:
    axis = _Axis(report.start, report.end)
    lives = sorted(report.lives, key=lambda life: (life.nodepool, life.launched_at or report.start, life.node_claim))
    shown = lives[:_MAX_ROWS]
    rows: list[str] = []
    y, pool = 22, None
    for life in shown:
        if life.nodepool != pool:
            pool = life.nodepool
            y += 6
            rows.append(f'<text x="4" y="{y + 10}" class="pool">{escape(pool[:26])}</text>')
            y += _ROW + 2
        rows.append(_life(life, axis, y, zone))
        y += _ROW
    height = y + 8
    drawn = _svg("Life of every node", height, axis.grid(zone, 18, height, 13) + "".join(rows))
    left = len(lives) - len(shown)
    more = f"<p>{left} more nodes are only in the table.</p>" if left else ""
    return f'<div class="scroll">{drawn}</div>{more}{_life_table(lives, zone)}'


def _life(life: MachineLife, axis: _Axis, y: int, zone: tzinfo) -> str:
    begin, end = life.launched_at or axis.start, life.gone_at or axis.end
    ready = life.ready_at or (axis.start if life.launched_at is None else end)
    going = life.disrupted_at or end
    reason = life.reason if life.reason in _REASONS else "Other"
    spans = [(begin, min(ready, going), "var(--boot)"), (min(ready, going), going, "var(--life)")]
    spans.append((going, end, f"var(--{reason})"))
    title = f"{life.node_claim}: {life.instance_type} {life.capacity_type} {life.zone}"
    if life.gone_at is not None:
        title += f"; gone {spoken_time(life.gone_at, zone)}, {life.reason}"
    bars = "".join(
        f'<rect x="{axis.x(one)}" y="{y + 2}" width="{max(2.0, axis.x(other) - axis.x(one)):.1f}" height="9" '
        f'fill="{fill}"/>'
        for one, other, fill in spans
        if other > one
    )
    return f'<g><title>{escape(title)}</title><text x="10" y="{y + 10}">{escape(life.node_claim[:28])}</text>{bars}</g>'


def _life_table(lives: Sequence[MachineLife], zone: tzinfo) -> str:
    rows = [
        [
            escape(life.nodepool),
            escape(life.node_claim),
            escape(life.instance_type),
            escape(life.capacity_type),
            escape(life.zone),
            *(_at(at, zone) for at in (life.launched_at, life.ready_at, life.disrupted_at, life.gone_at)),
            escape(life.reason),
        ]
        for life in lives
    ]
    head = ["pool", "NodeClaim", "type", "capacity", "zone", "launched", "ready", "disrupted", "gone", "reason"]
    return _as_table(head, rows)


# -- charts ------------------------------------------------------------------------------------------------------------


def _hours(report: SimulationReport, zone: tzinfo) -> str:
    axis = _Axis(report.start, report.end)
    top_nodes = max(report.nodes.at_start, *(hour.nodes for hour in report.hours)) or 1
    top_cost = max((hour.cost for hour in report.hours), default=0.0) or 1.0
    height, base = 170, 150

    def points(values: Iterable[tuple[datetime, float]], top: float) -> str:
        return " ".join(f"{axis.x(at)},{base - value / top * 120:.1f}" for at, value in values)

    ends = ((hour.at + HOUR, float(hour.nodes)) for hour in report.hours)
    nodes = points([(report.start, float(report.nodes.at_start)), *ends], float(top_nodes))
    steps = ((hour.at + edge, hour.cost) for hour in report.hours for edge in (timedelta(), HOUR))
    cost = points(steps, top_cost)
    drawn = _svg(
        "Nodes and cost over time",
        height,
        axis.grid(zone, 20, base, base + 14)
        + f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{base}" y2="{base}"/>'
        f'<polyline points="{nodes}" fill="none" stroke="var(--Expired)" stroke-width="2"/>'
        f'<polyline points="{cost}" fill="none" stroke="var(--cost)" stroke-width="2" stroke-dasharray="5 3"/>'
        f'<text x="8" y="36" style="fill:var(--Expired)">— nodes, at most {top_nodes}</text>'
        f'<text x="8" y="54" style="fill:var(--cost)">- - cost per hour, at most ${top_cost:.2f}</text>',
    )
    rows = [
        [_at(h.at, zone), str(h.nodes), f"{h.cost:.3f}", str(h.disruptions), str(h.evicted), str(h.forced)]
        for h in report.hours
    ]
    head = ["hour", "nodes", "cost ($)", "disruptions", "evicted", "forced"]
    return f'<div class="scroll">{drawn}</div>{_as_table(head, rows, numbers=(1, 2, 3, 4, 5))}'


def _histogram(report: SimulationReport, zone: tzinfo) -> str:
    counts = by_hour_of_day(report, zone)
    top = max(counts) or 1
    bars = "".join(
        f"<g><title>{hour:02}:00: {count}</title>"
        f'<rect x="{20 + hour * 22}" y="{120 - count / top * 100:.1f}" width="18" '
        f'height="{count / top * 100:.1f}" fill="var(--Drifted)"/>'
        f'<text class="soft" x="{20 + hour * 22}" y="134">{hour:02}</text>'
        + (f'<text x="{20 + hour * 22}" y="{115 - count / top * 100:.1f}">{count}</text>' if count else "")
        + "</g>"
        for hour, count in enumerate(counts)
    )
    drawn = _svg("Disruptions by hour", 142, bars, width=560, style='style="max-width:620px" ')
    rows = [[f"{hour:02}:00", str(count)] for hour, count in enumerate(counts)]
    return f"<p>In {escape(str(zone))}</p>{drawn}{_as_table(['hour', 'disruptions'], rows, numbers=(1,))}"


def _timeline(report: SimulationReport, zone: tzinfo) -> str:
    entries = most_important(report.timeline, _MAX_ENTRIES)
    rows = [[_at(e.at, zone), escape(e.type), escape(e.object), escape(e.message)] for e in entries]
    events = len(report.timeline)
    log = f"the most important {len(entries)} of {events}" if len(entries) < events else f"{events}"
    table = _table(["at", "what", "object", ""], rows)
    return f"<details><summary>The log: {log} events</summary>{table}</details>"


def _at(at: datetime | None, zone: tzinfo) -> str:
    return "" if at is None else escape(spoken_time(at, zone))


def _as_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    return f"<details><summary>As a table</summary>{_table(head, rows, numbers=numbers)}</details>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """Cells are HTML already."""

    def row(cells: Sequence[str], tag: str) -> str:
        made = (
            f"<{tag}{' class=n' if index in numbers else ' class=t' if _INSTANT.match(cell) else ''}>{cell}</{tag}>"
            for index, cell in enumerate(cells)
        )
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f'<div class="scroll"><table><thead>{row(head, "th")}</thead><tbody>{body}</tbody></table></div>'


def _number(value: float, *, sign: bool = False) -> str:
    return f"+{figure_text(value)}" if sign and value > 0 else figure_text(value)
