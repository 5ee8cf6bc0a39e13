"""How does a controller make one pass after the other over everything, when something is due and not before?"""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import datetime

from dovetail.observe.logs import about
from dovetail.runtime.manager import Context
from dovetail.runtime.tasks import within


class PassController(ABC):
    """One pass at a time. Whoever changes what `due` says calls `wake`."""

    name: str

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self.context: Context | None = None  # while it runs

    @abstractmethod
    def begin(self, context: Context) -> None:
        """It is about to run: what happened before is looked at here."""

    @abstractmethod
    def due(self, now: datetime) -> datetime | None:
        """When the next pass is to be made; None: nothing asks for one."""

    @abstractmethod
    async def make_pass(self, context: Context, now: datetime) -> None:
        """Make it."""

    def wake(self) -> None:
        self._wake.set()

    async def run(self, context: Context) -> None:
        """Until told to stop; a pass that is being made is then cut short."""
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
