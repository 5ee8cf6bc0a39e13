"""`dovetail dashboard`: serves the board of files or a live cluster as a web page."""

import asyncio
import signal
import webbrowser
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from dovetail.cli.common.files import one_line_errors
from dovetail.cli.common.options import CONTEXT, FILES, KUBECONFIG, ClusterSource, InstantParam, reading_options
from dovetail.cli.common.output import without_cycle_search, working
from dovetail.cli.common.process import allow_all_handles, fail
from dovetail.cli.common.sources import ClusterInput, read_cluster
from dovetail.model.decider import Decider
from dovetail.model.rule_settings import BudgetSemantics
from dovetail.values.foreign_text import plain

if TYPE_CHECKING:
    from dovetail.web.sources import BoardSource as Shown

PORT: Final = 8642


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """The values of all options."""

    paths: tuple[str, ...]
    at: datetime | None
    kubeconfig: str | None
    context: str | None
    address: str
    port: int
    open: bool
    in_cluster_auth: bool
    decider: Decider | None
    budgets: BudgetSemantics | None

    @property
    def source(self) -> ClusterSource:
        return ClusterSource(self.paths, self.kubeconfig, self.context, None, self.decider, self.budgets)


@click.command("dashboard")
@FILES
@click.option("--at", type=InstantParam(), metavar="RFC3339", help="With files: time stands still at this instant.")
@KUBECONFIG
@CONTEXT
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="The address to serve on. An address that others can reach needs --in-cluster-auth.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="The port; 0 for a free one."
)
@click.option("--open", "open_", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--in-cluster-auth", is_flag=True, help="Require a bearer token, and show each reader what they may list."
)
@reading_options
def command(*, open_: bool, **given: Any) -> None:
    """Serve a page that shows when each node is free, who blocks it, and what budgets allow, from now on.

    \b
      dovetail dashboard --open                        # the cluster of your kubeconfig
      dovetail dashboard -f cluster.yaml --open        # a dump

    It only reads, and needs the rights to get, list and watch. Ctrl-C ends it.
    """
    options = _Options(open=open_, **given)
    if options.paths and (options.kubeconfig or options.context or options.in_cluster_auth):
        fail("give either -f for files, or options for a live cluster, not both")
    if options.at is not None and not options.paths:
        fail("--at is for files: time cannot stand still in a live cluster")
    from dovetail.web.readers import is_loopback  # noqa: PLC0415  (aiohttp takes long to import, `--help` should not)

    if not options.in_cluster_auth and not is_loopback(options.address):
        fail(f"{options.address} can be reached by others: give --in-cluster-auth, or leave --address out")
    read = None
    if options.paths:
        with one_line_errors(), working("reading …"), without_cycle_search():
            read = read_cluster(options.source)
    allow_all_handles()
    asyncio.run(_serve(options, read))


async def _serve(options: _Options, read: ClusterInput | None) -> None:
    from dovetail.cli.common.board_sources import dumped  # noqa: PLC0415  (see above)
    from dovetail.cli.common.live_board import followed  # noqa: PLC0415
    from dovetail.kube import NO_PATIENCE, KubeConfigError, connect  # noqa: PLC0415
    from dovetail.web.access import REVIEWS_AT_ONCE, ReviewAuthorizer  # noqa: PLC0415
    from dovetail.web.app import board_served  # noqa: PLC0415

    from dovetail.runtime.clock import SystemClock  # noqa: PLC0415  isort: skip

    stop = asyncio.Event()
    # Ctrl-C cancels whatever waits here, also a server that does not answer.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with AsyncExitStack() as stack:
        access = None
        source: Shown
        if read is not None:
            source = dumped(options.source, read, options.at)
        else:
            source = await stack.enter_async_context(followed(options.source))
            if options.in_cluster_auth:
                reviewing = partial(connect, kubeconfig=options.kubeconfig, context=options.context)
                reviews = reviewing(patience=NO_PATIENCE, connections=REVIEWS_AT_ONCE)
                try:
                    access = ReviewAuthorizer(await stack.enter_async_context(reviews), SystemClock())
                except KubeConfigError as error:
                    fail(str(error))
        serving = board_served(source, address=options.address, port=options.port, access=access)
        try:
            port = await stack.enter_async_context(serving)
        except OSError as error:
            fail(f"cannot serve on {options.address}:{options.port}: {error.strerror}; give --port 0 for a free one")
        url = f"http://{f'[{options.address}]' if ':' in options.address else options.address}:{port}/"
        click.echo(f"{plain(source.title)}: {url}  (Ctrl-C ends it)")
        if options.open:
            webbrowser.open(url)
        await stop.wait()
