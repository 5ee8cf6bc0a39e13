"""Waiting no longer than the clock allows."""

import asyncio
from collections.abc import Callable

import pytest

from dovetail.ports import NotFound
from dovetail.runtime.tasks import root_cause, unless_idle, within
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from tests.harness.builders import at
from tests.harness.stage import PARAMETER, stage

START = at("2026-03-01T00:00:00Z")

pytestmark = stage(simulate, start=START, gives=("clock",))


async def after(clock: VirtualClock, seconds: float, result: str) -> str:
    await clock.sleep(seconds)
    return result


async def test_what_is_in_time_comes_back_at_once(clock: VirtualClock) -> None:
    assert await within(clock, 10, after(clock, 3, "done")) == "done"
    assert clock.monotonic() == 3


async def test_what_is_late_is_cancelled(clock: VirtualClock) -> None:
    with pytest.raises(TimeoutError):
        await within(clock, 2, after(clock, 3, "done"))
    assert clock.monotonic() == 2


async def test_errors_come_out_plain(clock: VirtualClock) -> None:
    async def fail() -> None:
        raise NotFound("no such thing")

    with pytest.raises(NotFound, match="no such thing"):
        await within(clock, 2, fail())


@pytest.mark.parametrize("seed", range(20))
@stage(seed=PARAMETER)
async def test_being_cancelled_leaves_nothing_behind(clock: VirtualClock, seed: int) -> None:
    async def wait() -> str:
        return await within(clock, 5, after(clock, 5, "done"))

    task = asyncio.get_running_loop().create_task(wait())
    for _ in range(seed % 4):
        await clock.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [other for other in asyncio.all_tasks() if other is not asyncio.current_task()] == []


async def test_silence_ends_the_work_and_words_do_not(clock: VirtualClock) -> None:
    async def talk(heard: Callable[[], None]) -> None:
        for pause in (3, 4, 4, 9):
            await clock.sleep(pause)
            heard()

    with pytest.raises(TimeoutError):
        await unless_idle(clock, 5, talk)
    assert clock.monotonic() == 3 + 4 + 4 + 5


def test_root_cause() -> None:
    cause = ValueError("this")
    assert root_cause(BaseExceptionGroup("a", [ExceptionGroup("b", [cause]), asyncio.CancelledError()])) is cause
    assert root_cause(cause) is cause
