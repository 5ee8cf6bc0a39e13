"""Shows a plan as lines."""

from collections import Counter
from collections.abc import Sequence

import click

from dovetail.cli.common.instance_types import BUILT_IN
from dovetail.cli.common.output import Times, count, pending_lines, problem_lines, sections, table
from dovetail.values.foreign_text import plain
from dovetail.views.plan import CommandView, MoveView, NewNodeView, NodeOutcome, NodeOutcomeView, PlanView, RemovalView

_COLOURS = {
    NodeOutcome.GOES: "yellow",
    NodeOutcome.WAITS: "cyan",
    NodeOutcome.STUCK: "red",
    NodeOutcome.LEAVING: "yellow",
    NodeOutcome.STAYS: "green",
}
_PODS_NAMED = 8


def plan_lines(plan: PlanView, times: Times, *, verbose: bool, quiet: bool) -> list[str]:
    """Quiet leaves out nodes that stay, and problems; verbose names every pod."""
    text = _PlanText(times, verbose=verbose)
    lines = [
        f"At {times.stamp(plan.at)}{text.summary(plan)}",
        *pending_lines(plan.pending),
        *([f"Prices: {prices}"] if (prices := prices_text(plan.prices.source, plan.prices.known_share)) else []),
    ]
    for removal in plan.removals:
        lines += ["", *text.removal(removal)]
    for command in plan.commands:
        lines += ["", *text.command(command)]
    others = [
        node
        for node in plan.nodes
        if node.fate is not NodeOutcome.GOES and not (quiet and node.fate is NodeOutcome.STAYS)
    ]
    bodies = {
        "Other nodes": text.nodes(others),
        "Problems": [] if quiet else problem_lines(plan.problems, times, below_head=True),
    }
    return lines + sections(bodies)


def prices_text(source: str, known_share: float | None) -> str:
    """The source of the prices, if it is not the built-in catalogue or does not know all of them."""
    if known_share is None or (known_share == 1 and source in ("", BUILT_IN)):
        return ""
    if known_share == 1:
        return plain(source)
    guess = "guessed from cpu and memory, so costs can only be compared"
    if not known_share:
        return guess
    return f"{plain(source)} for {int(100 * known_share)}% of the cost; the others are {guess}"


class _PlanText:
    def __init__(self, times: Times, *, verbose: bool) -> None:
        self._times = times
        self._verbose = verbose

    def summary(self, plan: PlanView) -> str:
        if plan.removals:
            return ""
        fates = Counter(node.fate for node in plan.nodes)
        named = {
            NodeOutcome.STUCK: ("is stuck", "are stuck"),
            NodeOutcome.WAITS: ("waits", "wait"),
            NodeOutcome.LEAVING: ("is leaving already", "are leaving already"),
            NodeOutcome.STAYS: ("stays", "stay"),
        }
        counted = [(fates[fate], words[fates[fate] > 1]) for fate, words in named.items() if fates[fate]]
        others = ", ".join(f"{number} {words}" for number, words in counted)
        if not plan.commands:
            others = others.replace(" ", " node " if counted[0][0] == 1 else " nodes ", 1) if counted else ""
            return f" nothing would be disrupted{others and f': {others}'}"
        rest = f"; of the other nodes {others}" if others else ""
        nodes = sum(len(command.nodes) for command in plan.commands)
        saved = sum(command.savings_per_hour or 0.0 for command in plan.commands)
        saving = f", saving {_price(saved)}{_guessed(plan.prices.known_share)}" if saved else ""
        pods = sum(len(command.pods) for command in plan.commands)
        moved = f" with {count(pods, 'pod')}" if pods else ""
        return f" {count(len(plan.commands), 'command')} would start, for {count(nodes, 'node')}{moved}{saving}{rest}"

    def command(self, command: CommandView) -> list[str]:
        new = len(command.replacements)
        what = f"{count(len(command.nodes), 'node')} {'for ' + str(new) + ' new' if new else 'without replacement'}"
        saved = "" if command.savings_per_hour is None else f", saves {_price(command.savings_per_hour)}"
        title = click.style(f"{command.reason}: {what}{saved}", bold=True)
        later = command.confirmed_after_seconds
        note = "" if later is None else f", starts within {later:g} s if it is still valid"
        lines = [f"{title} ({command.method}, {command.id}{note})"]
        rows = [["NODE", "POOL", "TYPE", "PRICE", "PODS"]]
        for node in command.nodes:
            type_ = " ".join(filter(None, (node.instance_type, node.capacity_type, node.zone)))
            price = "unknown" if node.price_per_hour is None else _price(node.price_per_hour)
            rows.append([plain(node.name), plain(node.nodepool), plain(type_), price, str(node.pods)])
        lines += table(rows, "  ")
        lines += [f"  new {_new_node(node, number)}" for number, node in enumerate(command.replacements, 1)]
        lines += self._moves(command.pods)
        lines += [
            f"  budget of {plain(use.nodepool)}: uses {use.takes} of {use.allowed} left, limit {use.limit}"
            for use in command.budgets
        ]
        return lines

    def _moves(self, pods: Sequence[MoveView]) -> list[str]:
        shown = pods if self._verbose else pods[:_PODS_NAMED]
        lines = [f"  {plain(move.pod)}: {plain(move.source)} → {_target(move)}" for move in shown]
        if len(shown) < len(pods):
            lines.append(f"  … and {len(pods) - len(shown)} more pods (-v shows all)")
        return lines

    def removal(self, removal: RemovalView) -> list[str]:
        homeless = sum(move.to is None for move in removal.pods)
        number = count(len(removal.pods), "pod")
        pods = f"its {number}" if homeless in (0, len(removal.pods)) else f"{homeless} of its {number}"
        verdict = f"{pods} would have {'no' if homeless else 'a'} place"
        title = click.style(f"If {plain(removal.node)} were drained: {verdict}", bold=True)
        lines = [click.style(title, fg="green" if removal.possible else "red")]
        lines += [f"  new {_new_node(node, index)}" for index, node in enumerate(removal.new_nodes, 1)]
        if removal.cost_change_per_hour is not None and removal.possible:
            change = removal.cost_change_per_hour
            lines.append(
                f"  costs {_price(abs(change))} {'more' if change > 0 else 'less'}" if change else "  costs the same"
            )
        lines += self._moves(sorted(removal.pods, key=lambda move: move.to is not None))
        if removal.blockers:
            lines.append("  the drain would wait for:")
            lines += [f"    {self._times.localised(plain(blocker))}" for blocker in removal.blockers]
        return lines

    def nodes(self, nodes: Sequence[NodeOutcomeView]) -> list[str]:
        if not nodes:
            return []
        rows = [["NODE", "POOL", "", "WHY"]]
        for node in sorted(nodes, key=lambda view: (view.fate is NodeOutcome.STAYS, view.nodepool, view.name)):
            fate = click.style(node.fate.value, fg=_COLOURS[node.fate])
            first, *more = (self._times.localised(plain(why)) for why in node.why)
            rows.append([plain(node.name), plain(node.nodepool or "-"), fate, first])
            rows += [["", "", "", why] for why in more]
        return table(rows, spare=("POOL",))


def _new_node(node: NewNodeView, number: int) -> str:
    more = node.types - 1
    dearer = f" or one of {count(more, 'other type')}" if more > 0 else ""
    type_ = node.instance_types[0] if node.instance_types else "from the template"
    return f"{number}: {plain(node.nodepool)}, {plain(type_)}{dearer}, from {_price(node.price_per_hour)}"


def _target(move: MoveView) -> str:
    if move.to is None:
        return click.style(f"nowhere: {plain(move.why)}", fg="red") if move.why else "wherever the scheduler puts it"
    return plain(move.to)


def _guessed(known_share: float | None) -> str:
    """Marks a sum of prices that are not all known."""
    if known_share is None or known_share == 1:
        return ""
    return " (partly guessed)" if known_share else " (guessed)"


def _price(dollars: float) -> str:
    return f"${dollars:.4f}/h"
