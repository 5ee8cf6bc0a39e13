"""The screen of `dovetail top` on a terminal, kept up to date, moved by keys, and given back as it was."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import tzinfo
from typing import Final

import msgspec
from rich.console import Console, Group
from rich.live import Live

from dovetail.cli.common.keys import key_by_key, keys_in
from dovetail.cli.top.keys import ViewState, press
from dovetail.cli.top.screen import DrawnScreen, ScreenContent, draw
from dovetail.rules.budgets import BudgetSemantics
from dovetail.runtime.compute import ThreadCompute
from dovetail.runtime.tasks import happens_within
from dovetail.views.board.details import NodeDetails
from dovetail.views.board.rows import Board
from dovetail.web.sources import BoardSource
from dovetail.web.stream import EVERYTHING, GAP_FACTOR, NOTHING, Stream

TICK_SECONDS: Final = 1.0


class LiveScreen:
    """Asks the source every second what time it is there and whether it has changed, which costs it nothing: a live
    one is told by its watches. Only then, or if time alone changes the board, is the board made anew."""

    def __init__(self, source: BoardSource, view: ViewState, *, zone: tzinfo, reading: BudgetSemantics) -> None:
        self._source = source
        self._stream = Stream(source, ThreadCompute(), reading=reading)
        self._view = view
        self._zone = zone
        self._console = Console()
        self._details: NodeDetails | None = None
        self._told: tuple[Board, str] | None = None  # of which board and node the details are
        self._selected = ""
        self._typed = b""
        self._news = asyncio.Event()  # there is something to draw
        self._asked = asyncio.Event()  # another node's details are to be shown

    async def run(self) -> None:
        """Until q."""
        with key_by_key(), self._attended(), Live(console=self._console, screen=True, auto_refresh=False) as live:
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow())
                while not self._view.ended:
                    drawn = self._draw()
                    live.update(Group(*drawn.lines), refresh=True)
                    self._news.clear()
                    await happens_within(TICK_SECONDS, self._news)
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
        )
        width, height = self._console.size
        drawn = draw(scene, self._view, width, height)
        if self._view.details and drawn.selected and (self._told is None or self._told[1] != drawn.selected):
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
            await happens_within(max(TICK_SECONDS, GAP_FACTOR * (loop.time() - began)), self._asked)

    async def _ask(self) -> None:
        """Every rule about the selected node, if its details are looked at and not told yet."""
        asked = self._stream.board, self._selected
        if not self._view.details or not self._selected or asked == self._told:
            return
        try:
            self._details = await self._stream.details(self._selected, EVERYTHING)
        except LookupError:
            self._details = None  # it has gone
        self._told = asked

    # -- the terminal --------------------------------------------------------------------------------------------------

    def _press(self, drawn: DrawnScreen) -> None:
        text, self._typed = self._typed.decode(errors="ignore"), b""
        for key in keys_in(text):
            self._view = press(self._view, key, drawn.reach)
            drawn = self._draw()

    def _read(self) -> None:
        try:
            typed = os.read(sys.stdin.fileno(), 1024)
        except OSError:  # the terminal has gone
            typed = b""
        self._typed += typed
        if typed:
            self._news.set()
        else:
            self._end()

    @contextmanager
    def _attended(self) -> Iterator[None]:
        """Keys and the terminal's size are heeded; Ctrl-Z is not, for it would leave the screen behind."""
        loop = asyncio.get_running_loop()
        before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        loop.add_reader(sys.stdin.fileno(), self._read)
        loop.add_signal_handler(signal.SIGWINCH, self._news.set)
        loop.add_signal_handler(signal.SIGTERM, self._end)
        try:
            yield
        finally:
            loop.remove_reader(sys.stdin.fileno())
            loop.remove_signal_handler(signal.SIGWINCH)
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTSTP, before)

    def _end(self) -> None:
        self._view = msgspec.structs.replace(self._view, ended=True)
        self._news.set()
