"""Timeouts that use the Clock and leave no task behind.

asyncio.timeout uses the time of the event loop. Only the Clock may be used, so that a simulated process can be paused.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from dovetail.ports import Clock

R = TypeVar("R")

# The shortest wait in a loop. Rounding may leave a rest so small that waiting for it does not move the clock.
SHORTEST_WAIT_SECONDS: Final = 0.001


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, R]) -> R:
    """The result of the work. Cancels it and raises TimeoutError when it takes longer."""
    return await _race(work, clock.sleep(max(0.0, seconds)))


async def unless_idle(clock: Clock, seconds: float, work: Callable[[Callable[[], None]], Coroutine[Any, Any, R]]) -> R:
    """The result of the work. Raises TimeoutError when it does not call its argument for this long."""
    heard_at = clock.monotonic()

    def heard() -> None:
        nonlocal heard_at
        heard_at = clock.monotonic()

    async def alarm() -> None:
        while (left := heard_at + seconds - clock.monotonic()) > 0:
            await clock.sleep(max(SHORTEST_WAIT_SECONDS, left))

    return await _race(work(heard), alarm())


def root_cause(error: BaseException) -> BaseException:
    """The first plain error of a group: the other errors only follow from it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _race(work: Coroutine[Any, Any, R], alarm: Coroutine[Any, Any, None]) -> R:
    try:
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(_outcome(work))
            timer = group.create_task(alarm)
            await asyncio.wait((worker, timer), return_when=asyncio.FIRST_COMPLETED)
            worker.cancel()
            timer.cancel()
    finally:
        work.close()  # in case of a cancellation before it began
    if worker.cancelled():
        raise TimeoutError
    result, error = worker.result()
    if error is not None:
        raise error
    return result[0]


async def _outcome(work: Coroutine[Any, Any, R]) -> tuple[list[R], Exception | None]:
    """The result or the error, as a value: a TaskGroup would wrap the error, and callers catch ApiError."""
    try:
        return [await work], None
    except Exception as error:  # noqa: BLE001  it is raised again, in the task that waits
        return [], error


async def happens_within(seconds: float | None, event: asyncio.Event) -> None:
    """Wait for the event, or until the time is over by the wall clock.

    `asyncio.wait_for` of Python 3.11 loses a cancellation, and so a Ctrl-C, that comes in the same turn as the event.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
