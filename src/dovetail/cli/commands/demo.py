"""`dovetail demo`: plays a week of a simulated cluster, in the terminal and on the dashboard."""

import asyncio
import signal
import sys
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib.resources import files
from typing import Final

import click

from dovetail.api.documents import read_documents
from dovetail.cli.common.files import one_line_errors
from dovetail.cli.common.options import CommonOptions, common_options
from dovetail.cli.common.output import Times, be_silent, print_answer, progress_bar
from dovetail.cli.common.process import allow_all_handles, ends_at_once
from dovetail.cli.text.simulate import report_lines
from dovetail.sim.scenarios.player import play_through
from dovetail.sim.scenarios.reading import Scenario, read_scenario
from dovetail.views.simulation.report import SimulationReport

SPEED: Final = 600.0  # ten minutes a second: a week in seventeen minutes
FILE: Final = "week.yaml"


@click.command("demo")
@common_options(
    reads=False,
    ahead="How long to play.  [default: 7d]",
    quiet="At the end, print only figures.",
    verbose="At the end, print the whole timeline.",
    live=False,
    asks=False,
)
@click.option("--headless", is_flag=True, help="Play to the end as fast as possible, and print what happened.")
@click.option(
    "--speed",
    type=click.FloatRange(1, 1_000_000),
    default=SPEED,
    show_default=True,
    help="Simulated seconds per second.",
)
@click.option("--seed", type=int, help="The seed of the simulation.")
@click.option("--dashboard/--no-dashboard", default=True, help="Whether to serve the dashboard too.  [default: serve]")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="The port of the dashboard.  [default: a free one]"
)
def command(
    *, common: CommonOptions, headless: bool, speed: float, seed: int | None, dashboard: bool, port: int
) -> None:
    """Watch a week of a cluster of about forty nodes: training that must not be disturbed, web services with opening
    hours, test runs, an upgrade, machines that vanish. Needs no cluster and no network, and writes nothing.

    Keys: space pauses, + and - change the speed, n jumps to the next event, q ends; and those of `dovetail top`.
    """
    be_silent()
    with one_line_errors():
        span = None if common.end is None else common.end - common.at
        scenario = read_scenario(
            read_documents(files("dovetail.sim.scenarios").joinpath(FILE).read_bytes(), FILE),
            now=common.at,
            span=span,
            seed=seed,
        )
        if headless or not (sys.stdin.isatty() and sys.stdout.isatty()):
            with ends_at_once(), progress_bar("playing") as progress:
                report = play_through(scenario, None, progress)
        else:
            allow_all_handles()
            report = asyncio.run(_watch(scenario, common, speed=speed, port=port if dashboard else None))
    times = Times(report.end, common.zone)
    lines = partial(report_lines, report, times, verbose=common.verbose, quiet=common.quiet)
    print_answer(report, common.output, lines)


async def _watch(scenario: Scenario, common: CommonOptions, *, speed: float, port: int | None) -> SimulationReport:
    """Play on a thread at a visible pace, until the end, `q` or Ctrl-C."""
    from dovetail.cli.demo.pace import Pace  # noqa: PLC0415  (aiohttp and rich take long to import)
    from dovetail.cli.demo.player import Player  # noqa: PLC0415
    from dovetail.cli.top.keys import ViewState  # noqa: PLC0415
    from dovetail.cli.top.live import LiveScreen  # noqa: PLC0415
    from dovetail.runtime.compute import ThreadCompute  # noqa: PLC0415
    from dovetail.web.app import board_served  # noqa: PLC0415
    from dovetail.web.stream import Stream  # noqa: PLC0415

    pace = Pace(speed)
    player = Player(scenario, pace, common.zone)
    stream = Stream(player.source, ThreadCompute())
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        if port is not None:
            with suppress(OSError):  # the demo goes on without the dashboard
                served = await stack.enter_async_context(board_served(stream, port=port))
                player.address = f"http://127.0.0.1:{served}/"
        show = LiveScreen(stream, ViewState(), zone=common.zone, tick_seconds=0.25, on_key=pace.press)
        show.status, show.happened = player.status, lambda: player.happened
        playing = loop.create_task(asyncio.to_thread(player.play))
        playing.add_done_callback(lambda _: show.end())
        loop.add_signal_handler(signal.SIGINT, show.end)
        try:
            await show.run()
        finally:
            loop.remove_signal_handler(signal.SIGINT)  # a second Ctrl-C ends the program at once
            pace.ended = True
        return await playing
