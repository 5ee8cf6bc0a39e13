"""The dashboard of the demo: served on a thread of its own, for the simulation has its own time."""

import asyncio
import threading
from types import TracebackType
from typing import Final

from dovetail.cli.common.process import allow_all_handles
from dovetail.sim.scenarios.player import Play
from dovetail.views.forecast.assembly import machine_of
from dovetail.web.app import board_served
from dovetail.web.sources import PushedSource, decided

_START_SECONDS: Final = 20.0
_EVERY_FRAMES: Final = 5
_DECISIONS: Final = 50


class DemoDashboard:
    """Serves from when it is entered; `address` is empty if nothing could be served."""

    def __init__(self, port: int) -> None:
        self.address = ""
        self._port = port
        self._source = PushedSource(title="dovetail demo")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="dashboard", daemon=True)
        self._frames = 0

    def __enter__(self) -> "DemoDashboard":
        allow_all_handles()
        self._thread.start()
        self._ready.wait(_START_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5.0)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with board_served(self._source, port=self._port) as port:
                self.address = f"http://127.0.0.1:{port}/"
                self._ready.set()
                await self._stop.wait()
        except OSError:
            self._ready.set()  # the demo goes on without it

    def show(self, play: Play, pace: float) -> None:
        """What the cluster is like now; not every frame, for that would keep the page busy."""
        self._frames += 1
        if self._frames % _EVERY_FRAMES != 1:
            return
        history = list(play.disruption.history)[-_DECISIONS:]
        self._source.push(
            play.now,
            play.cluster.records()(),
            decisions=[decided(past) for past in reversed(history)],
            left_alone=dict(play.disruption.left_alone),
            machines={node.metadata.name: machine_of(node) for node in play.cluster.nodes.values()},
            pace=pace,
        )
