"""Controllers that run one pass over the whole cluster after the other, each when it is due."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import datetime

from dovetail.observe.logs import about
from dovetail.runtime.manager import Context
from dovetail.runtime.tasks import within


class PassController(ABC):
    """Runs one pass at a time. Call `wake` after a change of what `due` returns."""

    name: str

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self.context: Context | None = None  # while it runs

    @abstractmethod
    def begin(self, context: Context) -> None:
        """Called before the first pass, to pick up what happened before."""

    @abstractmethod
    def due(self, now: datetime) -> datetime | None:
        """When the next pass is due; None: no pass is needed."""

    @abstractmethod
    async def make_pass(self, context: Context, now: datetime) -> None:
        """Runs one pass."""

    def wake(self) -> None:
        self._wake.set()

    async def run(self, context: Context) -> None:
        """Runs until `context.stopping` is set, which cancels the current pass."""
        self.context = context
        self.begin(context)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work(context), name=f"{self.name} work")
                await context.stopping.wait()
                self._wake.set()
        finally:
            self.context = None

    async def _work(self, context: Context) -> None:
        while not context.stopping.is_set():
            self._wake.clear()
            now = context.clock.now()
            due = self.due(now)
            if due is not None and due <= now:
                with about(controller=self.name):
                    await self.make_pass(context, now)
            elif due is None:
                await self._wake.wait()
            else:
                with suppress(TimeoutError):
                    await within(context.clock, (due - now).total_seconds(), self._wake.wait())
