"""How to wait for something no longer than the clock allows, without leaving a task behind.

asyncio.timeout would ask the event loop for the time; only the Clock may be asked, so that a simulated process can be
paused as a whole.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from dovetail.ports import Clock

R = TypeVar("R")

# A loop that waits for an instant must wait at least so long a time: sums of fractions may leave a rest so small that
# waiting for it does not move the clock.
SHORTEST_WAIT_SECONDS: Final = 0.001


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, R]) -> R:
    """The work's result; it is cancelled, and TimeoutError raised, when it takes longer."""
    return await _race(work, clock.sleep(max(0.0, seconds)))


async def unless_idle(clock: Clock, seconds: float, work: Callable[[Callable[[], None]], Coroutine[Any, Any, R]]) -> R:
    """The work's result; TimeoutError when it has not called the function it was given for so long."""
    heard_at = clock.monotonic()

    def heard() -> None:
        nonlocal heard_at
        heard_at = clock.monotonic()

    async def alarm() -> None:
        while (left := heard_at + seconds - clock.monotonic()) > 0:
            await clock.sleep(max(SHORTEST_WAIT_SECONDS, left))

    return await _race(work(heard), alarm())


def root_cause(error: BaseException) -> BaseException:
    """The first plain error of a group: one failure ends everything, and what follows from it is noise."""
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
        work.close()  # if we were cancelled before it began
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
    """Wait for it, but no longer, by the wall clock.

    `asyncio.wait_for` of Python 3.11 loses a cancellation, and so a Ctrl-C, that comes in the same turn as the event.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
