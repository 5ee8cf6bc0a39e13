"""`dovetail top`: shows the board in the terminal, live; without a terminal, prints it once."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from dovetail.cli.common.dump_age import old_dump
from dovetail.cli.common.files import one_line_errors
from dovetail.cli.common.options import CommonOptions, common_options
from dovetail.cli.common.output import be_silent, output_width, print_data, without_cycle_search, working
from dovetail.cli.common.process import fail
from dovetail.cli.common.replacements import assessed
from dovetail.cli.common.sources import ClusterInput, read_cluster
from dovetail.views.forecast.assembly import forecast

if TYPE_CHECKING:
    from dovetail.cli.top.keys import ViewState
    from dovetail.web.sources import BoardSource, FileSource

DAYS: Final = 7  # as far as the board looks ahead


@click.command("top")
@common_options(
    ahead="How far the bars reach, at most 7d.  [default: 24h]",
    namespace="Only nodes that pods of this namespace block, now or later: the filter ns:NAMESPACE.",
    verbose="Show details: of the selected node on a terminal, else of every node.",
)
@click.option("--once", is_flag=True, help="Print once and exit. The default if the output is not a terminal.")
@click.option("--filter", "filter_", default="", metavar="WORDS", help="Only nodes that match, such as is:stuck.")
def command(*, common: CommonOptions, once: bool, filter_: str) -> None:
    """Show in the terminal when each node is free, who blocks it, and what budgets allow, from now on.

    \b
      dovetail top                                     # the cluster of your kubeconfig
      dovetail top -f cluster.yaml --at 2026-03-06T16:20:00Z

    It only reads, and needs the rights to get, list and watch. With --at, time stands still. -o json and -o yaml print
    what `forecast` prints, once.

    Keys: arrows or j and k move, Enter shows every rule about the node, / filters, s sorts, g groups, 1 and 7 choose a
    day or a week, q quits.
    """
    from dovetail.cli.top.keys import ViewState  # noqa: PLC0415  (what draws takes long to import, `--help` should not)

    frozen = click.get_current_context().get_parameter_source("at") is not ParameterSource.DEFAULT
    ahead = ViewState().ahead if common.end is None else int((common.end - common.at).total_seconds())
    if ahead > DAYS * ViewState().ahead:
        fail(f"--for: the board looks at most {DAYS}d ahead; `dovetail forecast` looks further")
    words = [f'ns:"{common.namespace}"'] if common.namespace else []
    view = ViewState(ahead=max(1, ahead), filter=" ".join([*words, filter_]).strip(), details=common.verbose)
    if common.output != "table":
        _print_data(common, ahead)
    elif once or not _has_screen():
        dump = _dumped(common, common.at)
        with without_cycle_search():
            asyncio.run(_print(dump, common, view))
    elif frozen and not common.paths:
        fail("--at is for files or --once: time cannot stand still in a live cluster")
    else:
        source = _dumped(common, common.at if frozen else None) if common.paths else None
        asyncio.run(_show(source, common, view))


def _has_screen() -> bool:
    """Whether there are a keyboard and a screen."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _read(common: CommonOptions) -> ClusterInput:
    with one_line_errors(), working("reading …"), without_cycle_search():
        return read_cluster(common.source)


def _print_data(common: CommonOptions, ahead: int) -> None:
    read = _read(common)
    end = common.at + timedelta(seconds=ahead)
    assessment = assessed(read, common.source, common.at)
    old = old_dump(read.snapshot, common.at) if common.paths else ()
    outlook = forecast(assessment, end, problems=[*read.problems, *old])
    print_data(outlook, common.output)


def _dumped(common: CommonOptions, at: datetime | None) -> "FileSource":
    from dovetail.cli.common.board_sources import dumped  # noqa: PLC0415  (see above)

    read = _read(common)
    with working("judging …"), without_cycle_search():
        return dumped(common.source, read, at)


async def _print(source: "FileSource", common: CommonOptions, view: "ViewState") -> None:
    from rich.console import Console  # noqa: PLC0415  (see above)
    from rich.text import Text  # noqa: PLC0415

    from dovetail.cli.top.screen import ScreenContent, printed  # noqa: PLC0415
    from dovetail.runtime.compute import ThreadCompute  # noqa: PLC0415
    from dovetail.web.stream import EVERYTHING, Stream  # noqa: PLC0415

    stream = Stream(source, ThreadCompute())
    await stream.refresh()
    scene = ScreenContent(title=source.title, now=common.at, zone=common.zone, board=stream.board)
    asked = stream.board.rows if view.details else ()
    details = {row.key: await stream.details(row.key, EVERYTHING) for row in asked}
    console = Console()
    lines = printed(scene, view, output_width(), details)
    if console.is_terminal:
        console.print(Text("\n").join(lines), soft_wrap=True)
    else:
        click.echo("\n".join(line.plain for line in lines))


async def _show(source: "BoardSource | None", common: CommonOptions, view: "ViewState") -> None:
    from dovetail.cli.common.live_board import followed  # noqa: PLC0415  (see above)
    from dovetail.cli.top.live import LiveScreen  # noqa: PLC0415
    from dovetail.runtime.compute import ThreadCompute  # noqa: PLC0415
    from dovetail.web.stream import Stream  # noqa: PLC0415

    be_silent()
    async with AsyncExitStack() as stack:
        if source is None:
            source = await stack.enter_async_context(followed(common.source))
        await LiveScreen(Stream(source, ThreadCompute()), view, zone=common.zone).run()
