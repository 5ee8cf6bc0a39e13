"""Shows a simulated run as lines: figures, a histogram, violations, and the most important events."""

from collections.abc import Sequence
from datetime import timedelta

import click

from dovetail.cli.common.output import Times, count, problem_lines, table
from dovetail.cli.text.plan import prices_text
from dovetail.model.finding import Finding, Severity
from dovetail.values.duration import MICROSECOND, short_duration
from dovetail.values.foreign_text import plain
from dovetail.views.simulation.report import (
    Comparison,
    ProtectionCounts,
    SimulationReport,
    by_hour_of_day,
    figure_text,
    most_important,
)

SECOND = timedelta(seconds=1)
_SHOWN = 20
_BARS = " ▁▂▃▄▅▆▇█"
_COLOURS = {
    "violation": "red",
    "forced": "red",
    "lost": "red",
    "failed": "red",
    "unheeded": "red",
    "fault": "magenta",
    "scenario": "magenta",
    "disrupted": "yellow",
    "rolled-back": "yellow",
    "launched": "green",
    "ready": "green",
}


def report_lines(report: SimulationReport, times: Times, *, verbose: bool, quiet: bool) -> list[str]:
    """The whole report; `verbose` shows the whole timeline, `quiet` only figures."""
    lines = [_heading(report, times), "", *_figures(report), "", *_histogram(report, times)]
    lines += _violations(report, times)
    if not quiet:
        entries = report.timeline if verbose else most_important(report.timeline, _SHOWN)
        left = len(report.timeline) - len(entries)
        title = "What happened" + (f" (the most important of {len(report.timeline)}; -v shows all)" if left else "")
        lines += ["", click.style(title, bold=True)]
        lines += table(
            [
                ("AT", "WHAT", "OBJECT", ""),
                *(
                    (
                        times.stamp(entry.at),
                        click.style(entry.type, fg=_COLOURS.get(entry.type)),
                        plain(entry.object),
                        times.localised(plain(entry.message)),
                    )
                    for entry in entries
                ),
            ]
        )
        problems = [one for one in report.problems if verbose or one.severity is not Severity.INFO]
        hidden = len(report.problems) - len(problems)
        if report.problems:
            lines += ["", _problem_title(report.problems), *problem_lines(problems, times)]
            if hidden:
                lines.append(f"{hidden} more for information; -v shows them")
    return lines


def _heading(report: SimulationReport, times: Times) -> str:
    return f"{_span(report, times)}\n{plain(report.decider.sentence)}"


def _span(report: SimulationReport, times: Times) -> str:
    simulated = click.style(f"Simulated {span_text(report.end - report.start)}", bold=True)
    return f"{simulated} from {times.stamp(report.start)} to {times.stamp(report.end)}, seed {report.seed}"


def span_text(span: timedelta) -> str:
    """`7d`, `36h`, `1d12h`: whole seconds."""
    days, rest = divmod(span // SECOND * SECOND, timedelta(days=1))
    tail = short_duration(rest // timedelta(microseconds=1) * MICROSECOND) if rest else ""
    return f"{days}d{tail}" if days else tail or "0s"


def _figures(report: SimulationReport) -> list[str]:
    nodes, pods, cost, saved = report.nodes, report.pods, report.cost, report.consolidation
    gone = ", ".join(f"{plain(reason)} {count}" for reason, count in nodes.terminated.items())
    rows = [
        (
            "Nodes",
            f"{nodes.at_start} → {nodes.at_end}, launched {nodes.launched}, terminated "
            f"{sum(nodes.terminated.values())}{f' ({gone})' if gone else ''}",
        ),
        (
            "Pods",
            f"evicted {pods.evicted}, forced {_bad(pods.forced)}, lost {_bad(pods.lost)}, preempted "
            f"{pods.preempted}, pending at the end {pods.pending}",
        ),
        ("Cost", f"${cost.total:,.2f} in total; hourly ${cost.per_hour_start:.3f} → ${cost.per_hour_end:.3f}"),
    ]
    if prices := prices_text(cost.prices, cost.known_share):
        rows.append(("Prices", prices))
    if kept := _kept(report.protection):
        rows.append(("Kept", kept))
    if saved is not None and (saved.promised or saved.moved):
        again, vain, unplanned = map(_bad, (saved.moved_again, saved.moved_in_vain, saved.unplanned))
        rows += [
            (
                "Saved",
                f"{saved.realised:.3f} of the promised {saved.promised:.3f} per hour, by "
                f"{count(saved.commands, 'consolidation')}; {saved.given_up} given up",
            ),
            (
                "Moved",
                f"{saved.moved} pods for that, {saved.moved_per_day:g} a day, {again} again within an hour, {vain} in "
                f"vain; unplanned nodes {unplanned}",
            ),
        ]
    return [f"{click.style(f'{name:<7}', bold=True)}{text}" for name, text in rows]


def _kept(kept: ProtectionCounts) -> str:
    """What became of what the annotations of pods ask for."""
    if kept.late is None and not kept.evicted + kept.forced:
        return ""
    pods, late = "pod" if kept.evicted == 1 else "pods", "node" if kept.late == 1 else "nodes"
    gone = f"{_bad(kept.evicted)} {pods} evicted and {_bad(kept.forced)} forced despite their annotations"
    if kept.late is None:
        return gone
    held = f"; {count(kept.held_nodes, 'node')} held, {kept.held_hours:g} h in all" if kept.held_nodes else ""
    return f"{gone}; {_bad(kept.late)} {late} taken too early{held}"


def _bad(count: int) -> str:
    return click.style(str(count), fg="red") if count else "0"


def bars(counts: Sequence[int], *, most: int = 0) -> str:
    """One character for each number."""
    top = max([most, *counts], default=0)
    return "".join(_BARS[0 if not count else max(1, round(count / top * 8))] for count in counts)


def _histogram(report: SimulationReport, times: Times) -> list[str]:
    counts = by_hour_of_day(report, times.zone)
    zone = plain(str(times.zone))
    return [
        click.style("Disruptions by hour of the day", bold=True) + f" ({zone})",
        f"  {bars(counts)}  {sum(counts)} in total, {max(counts)} in the busiest hour of the day",
        "  0     6     12    18   ",
    ]


def _violations(report: SimulationReport, times: Times) -> list[str]:
    if not report.checked:
        return ["", click.style("Violations", bold=True) + "  not checked: the rules are those of dovetail run"]
    if not report.violations:
        return ["", click.style("Violations", bold=True) + "  none"]
    rows = [
        (times.stamp(wrong.at), plain(wrong.rule), plain(wrong.object), times.localised(plain(wrong.message)))
        for wrong in report.violations
    ]
    title = click.style(f"Violations: {len(rows)}", fg="red", bold=True)
    return ["", title, *table([("AT", "RULE", "OBJECT", ""), *rows])]


def comparison_lines(comparison: Comparison, times: Times, *, verbose: bool) -> list[str]:
    """Two runs side by side; equal rows only if verbose."""
    first, second = comparison.reports
    modes = first.decider != second.decider
    rows = [("", *map(plain, comparison.labels), "CHANGE")]
    shown = [
        row
        for row in comparison.differences
        if verbose or row.first != row.second or row.always or (modes and row.of_modes)
    ]
    rows += [
        (row.title, figure_text(row.first), figure_text(row.second), _change(row.first, row.second)) for row in shown
    ]
    equal = len(comparison.differences) - len(shown)
    hours_of_both = [by_hour_of_day(report, times.zone) for report in (first, second)]
    most = max(max(hours) for hours in hours_of_both)
    width = max(len(click.unstyle(label)) for label in comparison.labels)
    left_out = [f"{count(equal, 'figure')} equal in both; -v shows all"] if equal else []
    heading = _heading(first, times)
    if modes:
        deciders = zip(comparison.labels, comparison.reports, strict=True)
        heading = "\n".join(
            [_span(first, times), *(f"{plain(of)}: {plain(run.decider.sentence)}" for of, run in deciders)]
        )
    lines = [heading, "", *table(rows), *left_out, ""]
    lines.append(click.style("Disruptions by hour of the day", bold=True) + f" ({plain(str(times.zone))})")
    lines += [
        f"  {plain(label):<{width}}  {bars(hours, most=most)}  at most {max(hours)}"
        for label, hours in zip(comparison.labels, hours_of_both, strict=True)
    ]
    lines.append(f"  {'':<{width}}  0     6     12    18")
    for label, report in zip(comparison.labels, (first, second), strict=True):
        if report.violations:
            lines += [f"{plain(label)}:", *_violations(report, times)]
    problems = [one for one in second.problems if verbose or one.severity is not Severity.INFO]
    if problems:
        lines += ["", _problem_title(problems), *problem_lines(problems, times)]
    return lines


def _problem_title(problems: Sequence[Finding]) -> str:
    """INFO problems are assumptions; worse ones mean that something is missing."""
    mild = all(problem.severity is Severity.INFO for problem in problems)
    return click.style("Assumed" if mild else "Missing or assumed", bold=True)


def _change(first: float, second: float) -> str:
    if first == second:
        return "="
    sign = "+" if second > first else "−"
    share = f" ({(second - first) / first:+.0%})" if first else ""
    return f"{sign}{figure_text(abs(second - first))}{share}"
