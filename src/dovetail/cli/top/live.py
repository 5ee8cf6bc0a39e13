"""Runs the screen of `dovetail top` and `dovetail demo` on a terminal: draws it, reads keys, restores the terminal."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import tzinfo
from typing import Final

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from dovetail.cli.common.keys import key_by_key, keys_in
from dovetail.cli.top.keys import ViewState, press
from dovetail.cli.top.screen import DrawnScreen, ScreenContent, draw
from dovetail.runtime.tasks import happens_within
from dovetail.views.board.details import NodeDetails
from dovetail.views.board.rows import Board
from dovetail.web.stream import EVERYTHING, GAP_FACTOR, NOTHING, Stream

TICK_SECONDS: Final = 1.0


class LiveScreen:
    """Asks the source at each tick whether it has changed. That is cheap: a live source learns it from watches. The
    board is made again only if it has, or if time alone changes it."""

    def __init__(
        self,
        stream: Stream,
        view: ViewState,
        *,
        zone: tzinfo,
        tick_seconds: float = TICK_SECONDS,
        on_key: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`on_key` handles keys of the caller's own, and returns False for others."""
        self.status: Callable[[], Sequence[Text]] = tuple
        """Lines below the title."""
        self.happened: Callable[[], Sequence[Text]] = tuple
        """Lines at the bottom."""
        self._stream = stream
        self._source = stream.source
        self._tick_seconds = tick_seconds
        self._on_key = on_key
        self._view = view
        self._zone = zone
        self._console = Console()
        self._details: NodeDetails | None = None
        self._details_of: tuple[Board, str] | None = None  # the board and the node of the details
        self._selected = ""
        self._typed = b""
        self._news = asyncio.Event()  # there is something to draw
        self._asked = asyncio.Event()  # the details of another node are needed

    async def run(self) -> None:
        """Until q."""
        with key_by_key(), self._attended(), Live(console=self._console, screen=True, auto_refresh=False) as live:
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow())
                while not self._view.ended:
                    drawn = self._draw()
                    live.update(Group(*drawn.lines), refresh=True)
                    self._news.clear()
                    await happens_within(self._tick_seconds, self._news)
                    self._press(drawn)
                following.cancel()

    def _draw(self) -> DrawnScreen:
        board = self._stream.board
        scene = ScreenContent(
            title=self._source.title,
            now=self._source.look().at,
            zone=self._zone,
            stands_still=self._source.pace == 0,
            board=None if board is NOTHING else board,
            details=self._details,
            status=self.status(),
            happened=self.happened(),
        )
        width, height = self._console.size
        drawn = draw(scene, self._view, width, height)
        if (
            self._view.details
            and drawn.selected
            and (self._details_of is None or self._details_of[1] != drawn.selected)
        ):
            self._asked.set()
        self._selected = drawn.selected
        return drawn

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self._stream.refresh()
            self._asked.clear()
            await self._ask()
            self._news.set()
            await happens_within(max(self._tick_seconds, GAP_FACTOR * (loop.time() - began)), self._asked)

    async def _ask(self) -> None:
        """Get the details of the selected node, if they are shown and not there yet."""
        asked = self._stream.board, self._selected
        if not self._view.details or not self._selected or asked == self._details_of:
            return
        try:
            self._details = await self._stream.details(self._selected, EVERYTHING)
        except LookupError:
            self._details = None  # the node is gone
        self._details_of = asked

    # -- the terminal --------------------------------------------------------------------------------------------------

    def _press(self, drawn: DrawnScreen) -> None:
        text, self._typed = self._typed.decode(errors="ignore"), b""
        for key in keys_in(text):
            if not self._on_key(key):
                self._view = press(self._view, key, drawn.reach)
            drawn = self._draw()

    def _read(self) -> None:
        try:
            typed = os.read(sys.stdin.fileno(), 1024)
        except OSError:  # the terminal is gone
            typed = b""
        self._typed += typed
        if typed:
            self._news.set()
        else:
            self.end()

    @contextmanager
    def _attended(self) -> Iterator[None]:
        """Handle keys and changes of the terminal's size; ignore Ctrl-Z, which would leave the screen behind."""
        loop = asyncio.get_running_loop()
        before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        loop.add_reader(sys.stdin.fileno(), self._read)
        loop.add_signal_handler(signal.SIGWINCH, self._news.set)
        loop.add_signal_handler(signal.SIGTERM, self.end)
        try:
            yield
        finally:
            loop.remove_reader(sys.stdin.fileno())
            loop.remove_signal_handler(signal.SIGWINCH)
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTSTP, before)

    def end(self) -> None:
        """Close the screen, as `q` does."""
        self._view = msgspec.structs.replace(self._view, ended=True)
        self._news.set()
