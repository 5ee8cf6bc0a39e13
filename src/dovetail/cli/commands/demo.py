"""`dovetail demo`: a week of a simulated cluster to watch, in the terminal and on the dashboard."""

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from importlib.resources import files
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from dovetail.api.documents import read_documents
from dovetail.cli.common.files import one_line_errors
from dovetail.cli.common.options import CommonOptions, common_options
from dovetail.cli.common.output import Times, be_silent, print_data, print_lines, progress_bar
from dovetail.cli.common.process import fail
from dovetail.cli.text.simulate import report_lines
from dovetail.controllers.assembly import DisruptionOptions
from dovetail.sim.scenarios.player import Play, play_through
from dovetail.sim.scenarios.reading import Scenario, read_scenario
from dovetail.views.simulation.report import SimulationReport

if TYPE_CHECKING:
    from dovetail.cli.demo.pace import Pace

SPEED: Final = 600.0  # ten minutes a second: a week in seventeen minutes
FILE: Final = "week.yaml"


@click.command("demo")
@common_options(
    ahead="How long to play.  [default: 7d]",
    quiet="At the end, only the figures.",
    verbose="At the end, the whole time line.",
    live=False,
)
@click.option("--headless", is_flag=True, help="Play to the end as fast as it goes, and print what happened.")
@click.option(
    "--speed",
    type=click.FloatRange(1, 1_000_000),
    default=SPEED,
    show_default=True,
    help="How many simulated seconds pass in a second.",
)
@click.option("--seed", type=int, help="Another week.")
@click.option("--dashboard/--no-dashboard", default=True, help="Whether to serve the dashboard too.  [default: serve]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of the dashboard.  [default: a free one]")
def command(
    *, common: CommonOptions, headless: bool, speed: float, seed: int | None, dashboard: bool, port: int
) -> None:
    """Watch a week of a cluster of about forty nodes: training that must not be disturbed, web services with opening
    hours, test runs, an upgrade, machines that vanish. Needs no cluster and no network, and writes nothing.

    Keys: space pauses, + and - change the speed, n jumps to the next thing that happens, q ends.
    """
    be_silent()
    if common.paths:
        fail("the demo has its own cluster; to play yours: dovetail simulate PATH")
    with one_line_errors():
        span = None if common.end is None else common.end - common.at
        scenario = read_scenario(
            read_documents(files("dovetail.sim.scenarios").joinpath(FILE).read_bytes(), FILE),
            now=common.at,
            span=span,
            seed=seed,
        )
        if headless or not (sys.stdin.isatty() and sys.stdout.isatty()):
            with progress_bar("playing") as tell:
                report = play_through(scenario, None, DisruptionOptions(), tell)
        else:
            report = _watched(scenario, common, speed=speed, port=port if dashboard else None)
    if common.output != "table":
        print_data(report, common.output)
    else:
        times = Times(report.end, common.zone)
        print_lines(report_lines(report, times, verbose=common.verbose, quiet=common.quiet))


def _watched(scenario: Scenario, common: CommonOptions, *, speed: float, port: int | None) -> SimulationReport:
    """At a visible pace, until the end or until somebody has seen enough."""
    from dovetail.cli.common.keys import key_by_key  # noqa: PLC0415
    from dovetail.cli.demo.board import DemoDashboard  # noqa: PLC0415  (aiohttp takes long to import)
    from dovetail.cli.demo.pace import Pace  # noqa: PLC0415
    from dovetail.cli.demo.view import DemoScreen, DemoView  # noqa: PLC0415  (and so does rich)

    pace = Pace(speed)
    with ExitStack() as stack:
        stack.enter_context(_signals(pace))
        board = None if port is None else stack.enter_context(DemoDashboard(port))
        play = stack.enter_context(Play(scenario))
        typed = stack.enter_context(key_by_key())
        screen = stack.enter_context(DemoScreen())
        view = DemoView(play, zone=common.zone, address="" if board is None else board.address)
        while play.now < scenario.end and not pace.ended:
            pace.press(typed())
            _forward(play, pace)
            if pace.frame_due():
                screen.show(view.drawn(pace))
                if board is not None:
                    board.show(play, pace.speed_now)
        return play.report()


@contextmanager
def _signals(pace: "Pace") -> Iterator[None]:
    """Ctrl-C means what q means: the simulation ends between two steps, and not in one. The second ends at once."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def end(_number: int, _frame: FrameType | None) -> None:
        restore()
        pace.press("q")

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        restore()


def _forward(play: "Play", pace: "Pace") -> None:
    """Let as much virtual time pass as the wall clock asks for, and no more than a slice at a time."""
    end = play.scenario.end
    if pace.jumping:
        before = play.ledger.count
        until = min(end, play.now + timedelta(minutes=1))
        play.advance(until)
        if play.ledger.count > before:
            pace.landed()
        return
    play.advance(min(end, play.now + pace.due()))
