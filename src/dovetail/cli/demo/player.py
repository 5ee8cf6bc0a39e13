"""Plays a scenario on a thread, and hands the cluster to the screen and the dashboard as it goes along."""

from collections.abc import Sequence
from datetime import timedelta, tzinfo
from typing import Final

from rich.text import Text

from dovetail.cli.demo.pace import Pace
from dovetail.model.snapshot import Snapshot
from dovetail.sim.scenarios.player import Play
from dovetail.sim.scenarios.reading import Scenario
from dovetail.values.foreign_text import plain
from dovetail.views.simulation.report import SimulationReport
from dovetail.web.sources import PushedSource, decided, saved

_DECISIONS: Final = 50
_HAPPENED: Final = 14
_STYLES: Final = {"forced": "red", "lost": "red", "fault": "magenta", "scenario": "cyan", "disrupted": "yellow"}


class Player:
    """A scenario that plays on a thread of its own. Everything but `play` is called on the event loop of the screen."""

    def __init__(self, scenario: Scenario, pace: Pace, zone: tzinfo) -> None:
        self.source = PushedSource(title="dovetail demo")
        self.source.push(scenario.start, Snapshot(), pace=0.0)
        self.address = ""
        self.happened: Sequence[Text] = ()
        self._scenario = scenario
        self._pace = pace
        self._zone = zone
        self._progress = "the cluster starts …"

    def play(self) -> SimulationReport:
        """Play to the end of the scenario, or until the pace says that it has ended."""
        with Play(self._scenario) as play:
            while play.now < self._scenario.end and not self._pace.ended:
                self._forward(play)
                if self._pace.frame_due():
                    self.show(play)
            return play.report()

    def _forward(self, play: Play) -> None:
        """Let as much virtual time pass as the pace asks for, one slice at a time."""
        if not self._pace.jumping:
            play.advance(min(self._scenario.end, play.now + self._pace.due()))
            return
        before = play.ledger.count
        play.advance(min(self._scenario.end, play.now + timedelta(minutes=1)))
        if play.ledger.count > before:
            self._pace.landed()

    def show(self, play: Play) -> None:
        """Show the cluster as it is now."""
        share = (play.now - self._scenario.start) / self._scenario.span
        savings = saved(play.disruption.accounts, play.now)
        self._progress = f"{share:.0%} of the time, ${play.ledger.cost_per_hour:.2f} an hour"
        if savings is not None:
            self._progress += f", saved ${savings.realised:.2f} of the promised ${savings.promised:.2f}"
        lines = []
        for entry in play.ledger.timeline(_HAPPENED):
            line = Text(f"{entry.at.astimezone(self._zone):%a %H:%M:%S}  ")
            line.append(f"{entry.type:<11}", style=_STYLES.get(entry.type, ""))
            lines.append(line.append(f"  {plain(entry.object)}  {plain(entry.message)}"))
        self.happened = lines
        self.source.push(
            play.now,
            play.cluster.snapshot(),
            decisions=[decided(past) for past in reversed(list(play.disruption.history)[-_DECISIONS:])],
            left_alone=dict(play.disruption.left_alone),
            replacements=play.disruption.not_replaced,
            savings=savings,
            pace=self._pace.speed_now,
        )

    def status(self) -> list[Text]:
        """The lines of the screen that only a demo has: how fast it goes, and its keys."""
        pace = self._pace
        speed = "paused" if pace.paused else "jumping …" if pace.jumping else f"×{pace.speed:g}"
        address = f"dashboard: {self.address}  " if self.address else ""  # first: a narrow terminal cuts the end
        keys = Text.assemble((address, "cyan"), ("space pause  + - speed  n next event", "dim"))
        return [Text.assemble((speed, "bold cyan"), f"  {self._progress}"), keys]
