"""A board served on a thread of its own, as a browser needs it: tests drive both."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Served:
    """Serves within `with`; `port` can be served again afterwards."""

    def __init__(self, made: Callable[[], AbstractAsyncContextManager[int]]) -> None:
        self._made = made
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self.port = 0
        self._thread = threading.Thread(target=self._run, name="served", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> "Served":
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the loop that serves."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            async with self._made() as self.port:
                self._started.set()
                await self._stop.wait()
        except OSError as error:
            self._failure = error
            self._started.set()
