"""What the terminal shows of the demo: nodes by pool with their states, what comes next, decisions, budgets, cost."""

from collections import Counter
from datetime import datetime, tzinfo
from types import TracebackType
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dovetail.cli.demo.pace import Pace
from dovetail.rules.states import MEANING, NodeState
from dovetail.sim.scenarios.player import Play
from dovetail.values.foreign_text import plain
from dovetail.values.timestamp import relative
from dovetail.views.assessment import assess
from dovetail.views.explain.verdicts import Explanation, NodeView, explain

_STATE_STYLES: Final = {
    "S1": "green",
    "S2": "yellow",
    "S3": "bold yellow",
    "S4": "magenta",
    "S5": "red",
    "S6": "dim",
}
_JUDGED_EVERY_FRAMES: Final = 5
_DECISIONS: Final = 14
_ENTRY_STYLES: Final = {"forced": "red", "lost": "red", "fault": "magenta", "scenario": "cyan", "disrupted": "yellow"}


class DemoScreen:
    """The whole terminal, given back at the end."""

    def __init__(self) -> None:
        self._live = Live(console=Console(), screen=True, auto_refresh=False)

    def __enter__(self) -> "DemoScreen":
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, drawn: RenderableType) -> None:
        self._live.update(drawn, refresh=True)


class DemoView:
    """Draws the play as it is now."""

    def __init__(self, play: Play, *, zone: tzinfo, address: str) -> None:
        self._play = play
        self._zone = zone
        self._address = address
        self._frames = 0
        self._judged: Explanation | None = None

    def drawn(self, pace: Pace) -> RenderableType:
        """One frame. What rules say is asked anew every few frames only."""
        if self._judged is None or self._frames % _JUDGED_EVERY_FRAMES == 0:
            self._judged = explain(assess(self._play.cluster.records()(), self._play.now))
        self._frames += 1
        layout = Layout()
        layout.split_column(
            Layout(self._head(pace), size=4), Layout(name="middle"), Layout(self._decisions(), size=_DECISIONS + 2)
        )
        layout["middle"].split_row(
            Layout(Panel(self._nodes(self._judged), title="Nodes"), ratio=3),
            Layout(Panel(self._pools(self._judged), title="Budgets"), ratio=2),
        )
        return layout

    def _head(self, pace: Pace) -> RenderableType:
        play = self._play
        share = (play.now - play.scenario.start) / play.scenario.span
        going = "paused" if pace.paused else "jumping …" if pace.jumping else f"×{pace.speed:g}"
        clock = play.now.astimezone(self._zone).strftime("%A %d %B %H:%M:%S")
        line = Text.assemble((clock, "bold"), f"   {share:.0%} of the week   ", (going, "cyan"))
        line.append(f"   {len(play.cluster.claims.snapshot().items)} nodes")
        line.append(f"   {play.ledger.cost_per_hour:.2f} an hour", style="green")
        help_ = Text("space pause   + - speed   n next event   q end", style="dim")
        if self._address:
            help_.append(f"   dashboard: {self._address}", style="cyan")
        return Panel(Group(line, help_), title="dovetail demo")

    def _nodes(self, judged: Explanation) -> RenderableType:
        table = Table(box=None, expand=True, pad_edge=False)
        for name in ("POOL", "NODE", "STATE", "PODS", "NEXT"):
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        order = {state.value: -rank for rank, state in enumerate(NodeState)}
        for node in sorted(judged.nodes, key=lambda node: (order.get(node.state, 0), node.nodepool or "", node.name)):
            state = Text(f"{node.state} {MEANING[NodeState(node.state)]}", style=_STATE_STYLES.get(node.state, ""))
            name = plain(node.node_claim or node.name)
            table.add_row(plain(node.nodepool or ""), name, state, str(node.pods), self._next(node))
        return table

    def _next(self, node: NodeView) -> str:
        """The next instant at which something changes for the node, if nothing else happens."""
        now = self._play.now
        if node.deadline is not None and node.deadline > now:
            return f"must be gone {relative(node.deadline, now)}"
        ahead: list[tuple[datetime, str]] = []
        if node.free_at is not None and node.free_at > now:
            ahead.append((node.free_at, "free"))
        for at, what in ((node.gracefully_expires_at, "to be replaced"), (node.expires_at, "expires")):
            if at is not None and at > now:
                ahead.append((at, what))
        if not ahead:
            return "never free by itself" if node.free_at is None else ""
        at, what = min(ahead)
        return f"{what} {relative(at, now)}"

    def _pools(self, judged: Explanation) -> RenderableType:
        table = Table(box=None, expand=True, pad_edge=False)
        for name in ("POOL", "REASON", "USED", "UNTIL"):
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        for pool in judged.nodepools:
            for budget in pool.budgets:
                used, limit = budget.disrupting + budget.unhealthy, budget.limit
                until = "" if budget.until is None else relative(budget.until, self._play.now)
                style = "red" if limit == 0 else "yellow" if used >= limit else ""
                table.add_row(plain(pool.name), budget.reason, Text(f"{used} of {limit}", style=style), until)
        counts = Counter(node.state for node in judged.nodes)
        told = "  ".join(f"{state.value} {counts[state.value]}" for state in NodeState if counts[state.value])
        return Group(table, Text(f"\n{told}", style="dim"))

    def _decisions(self) -> RenderableType:
        table = Table(box=None, expand=True, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True, min_width=len("Mon 00:00:00"))
        table.add_column(no_wrap=True, min_width=len("rolled-back"))
        table.add_column(no_wrap=True, overflow="ellipsis")
        for entry in self._play.ledger.timeline(_DECISIONS):
            stamp = entry.at.astimezone(self._zone).strftime("%a %H:%M:%S")
            text = f"{plain(entry.object)}  {plain(entry.message)}"
            table.add_row(stamp, Text(entry.type, style=_ENTRY_STYLES.get(entry.type, "")), text)
        return Panel(table, title="What happened last")
