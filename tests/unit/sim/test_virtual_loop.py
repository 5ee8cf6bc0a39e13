"""Does virtual time pass as it should, in which order do things happen, and what is said when they do not?"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.sim.loop.virtual_loop import (
    Deadlock,
    InlineCompute,
    Livelock,
    UnhandledErrors,
    VirtualClock,
    VirtualLoop,
    new_loop,
    simulate,
)
from tests.harness.stage import PARAMETER, gives, stage

START = datetime(2026, 3, 1, tzinfo=UTC)
Main = Callable[[VirtualClock], Coroutine[Any, Any, Any]]


@gives("clock")
def run(main: Main, seed: int | None = None, **options: Any) -> Any:
    return simulate(main, start=START, seed=seed, **options)


pytestmark = stage(run)


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_year_passes_at_once() -> None:
    async def main(clock: VirtualClock) -> tuple[datetime, float]:
        await clock.sleep(365 * 86400)
        return clock.now(), clock.monotonic()

    before = time.perf_counter()
    assert run(main) == (datetime(2027, 3, 1, tzinfo=UTC), 365 * 86400.0)
    assert time.perf_counter() - before < 1


async def test_time_stands_still_while_anything_can_run(clock: VirtualClock) -> None:
    for _ in range(1000):
        await asyncio.sleep(0)
    assert clock.now() == START


def test_timers_fire_in_the_order_of_their_times() -> None:
    async def main(clock: VirtualClock) -> list[str]:
        order: list[str] = []

        async def wait(seconds: float) -> None:
            await clock.sleep(seconds)
            order.append(f"{seconds} at {clock.monotonic()}")

        async with asyncio.TaskGroup() as group:
            for seconds in (3.0, 1.0, 2.0):
                group.create_task(wait(seconds))
        return order

    expected = ["1.0 at 1.0", "2.0 at 2.0", "3.0 at 3.0"]
    assert run(main) == run(main, seed=7) == expected


async def test_sleeping_until_an_instant_ends_exactly_then(clock: VirtualClock) -> None:
    """Float seconds must not leave a task a nanosecond early, where it would spin or miss a deadline."""
    for number in range(1, 2000):
        due = START + number * timedelta(microseconds=333_333_377)
        await clock.sleep((due - clock.now()).total_seconds())
        assert clock.now() == due


async def test_cancelled_timers_hold_nothing_up_and_are_swept(clock: VirtualClock) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(5000):
        loop.call_later(10, pytest.fail, "cancelled").cancel()
    assert isinstance(loop, VirtualLoop)
    assert len(loop._timers) <= 2001
    await clock.sleep(1)
    assert clock.now() == START + timedelta(seconds=1)


async def test_a_timer_in_the_past_fires_now(clock: VirtualClock) -> None:
    await clock.sleep(5)
    fired = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_at(1.0, lambda: fired.set_result(clock.monotonic()))
    result: float = await fired
    assert result == 5.0


# -- asyncio ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, *range(5)])
@stage(seed=PARAMETER)
async def test_what_asyncio_offers_works(clock: VirtualClock) -> None:
    seen: list[Any] = []
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
    ready = asyncio.Event()

    async def produce() -> None:
        await ready.wait()
        for number in range(3):
            await queue.put(number)

    async def consume() -> None:
        while len(seen) < 3:
            seen.append(await queue.get())

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        group.create_task(consume())
        await clock.sleep(1)
        ready.set()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.Event().wait()
    seen.append(clock.monotonic())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 2)
    done, pending = await asyncio.wait([asyncio.create_task(clock.sleep(9))], timeout=1)
    for task in pending:
        task.cancel()
    assert [*seen, clock.monotonic(), len(done)] == [0, 1, 2, 6.0, 9.0, 0]


def test_a_failing_group_cancels_the_others() -> None:
    async def main(clock: VirtualClock) -> None:
        async def fail() -> None:
            raise ValueError("no")

        async with asyncio.TaskGroup() as group:
            group.create_task(clock.sleep(1000))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        run(main)
    assert caught.group_contains(ValueError, match="no")


def test_a_dropped_generator_is_closed() -> None:
    closed = []

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    async def main(clock: VirtualClock) -> None:
        async for _ in numbers():
            break
        await clock.sleep(1)

    run(main)
    assert closed == [True]


async def test_threads_are_refused() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(NotImplementedError, match="Compute port"):
        await loop.run_in_executor(None, lambda: 1)
    with pytest.raises(NotImplementedError, match="no threads"):
        loop.call_soon_threadsafe(lambda: None)
    with pytest.raises(NotImplementedError):
        await asyncio.open_connection("localhost", 1)


async def test_computing_inline_answers_later() -> None:
    order: list[str] = []

    def work(name: str, *, mark: str) -> str:
        order.append("computed")
        return name + mark

    asyncio.get_running_loop().call_soon(order.append, "meanwhile")
    order.append(await InlineCompute().run(work, "done", mark="!"))
    assert order == ["computed", "meanwhile", "done!"]


# -- until ------------------------------------------------------------------------------------------------------------


def test_a_run_can_stop_at_an_instant_and_go_on() -> None:
    loop = new_loop(start=START)
    ticks: list[datetime] = []

    async def main() -> str:
        for _ in range(3):
            await asyncio.sleep(60)
            ticks.append(loop.now())
        return "done"

    task = loop.create_task(main())
    assert loop.run_until(task, until=START + timedelta(seconds=90)) is None
    assert (len(ticks), loop.now()) == (1, START + timedelta(seconds=90))
    assert loop.run_until(task, until=START + timedelta(seconds=120)) is None
    assert len(ticks) == 2  # what is due at the instant still happens
    assert loop.run_until(task) == "done"
    assert loop.now() == START + timedelta(seconds=180)
    loop.close()


def test_until_ends_what_would_wait_for_ever() -> None:
    async def main(_clock: VirtualClock) -> None:
        await asyncio.Event().wait()

    assert run(main, until=START + timedelta(days=1)) is None


def test_what_is_left_behind_is_cancelled_in_order() -> None:
    ended: list[str] = []

    async def main(clock: VirtualClock) -> str:
        async def linger(name: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await clock.sleep(1)
                ended.append(name)

        for name in "abc":
            asyncio.get_running_loop().create_task(linger(name))
        await clock.sleep(0)
        return "result"

    assert run(main) == "result"
    assert ended == ["a", "b", "c"]


# -- when things go wrong ----------------------------------------------------------------------------------------------


def test_a_deadlock_names_who_waits_and_where() -> None:
    async def main(_clock: VirtualClock) -> None:
        async def wait_for_nothing() -> None:
            await asyncio.Queue[int]().get()

        async with asyncio.TaskGroup() as group:
            group.create_task(wait_for_nothing(), name="reader")
            group.create_task(asyncio.Event().wait(), name="bare")

    with pytest.raises(Deadlock) as caught:
        run(main)
    text = str(caught.value)
    assert "at 2026-03-01T00:00:00+00:00" in text
    assert "main at test_virtual_loop.py:" in text
    assert "reader at test_virtual_loop.py:" in text
    assert "in wait_for_nothing" in text
    assert "bare at locks.py:" in text


def test_a_deadlock_tells_what_failed_before() -> None:
    async def main(_clock: VirtualClock) -> None:
        async def fail() -> None:
            raise ValueError("the cause")

        done = asyncio.Event()
        asyncio.get_running_loop().create_task(fail())
        await done.wait()

    with pytest.raises(Deadlock) as caught:
        run(main)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "the cause" in caught.value.__notes__[0]


def test_a_livelock_names_who_is_busy() -> None:
    async def main(clock: VirtualClock) -> None:
        async def spin() -> None:
            while True:
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(spin(), name="spinner")
            group.create_task(clock.sleep(1), name="patient")

    with pytest.raises(Livelock) as caught:
        run(main, max_idle_steps=1000)
    assert "1000 steps without time passing" in str(caught.value)
    assert "spinner at test_virtual_loop.py:" in str(caught.value)
    assert "patient" not in str(caught.value)


def test_a_failure_that_nobody_sees_surfaces() -> None:
    async def main(clock: VirtualClock) -> None:
        async def fail() -> None:
            raise ValueError("unseen")

        asyncio.get_running_loop().create_task(fail())
        await clock.sleep(1)

    with pytest.raises(UnhandledErrors, match="unseen"):
        run(main)


def test_a_failing_callback_surfaces() -> None:
    async def main(clock: VirtualClock) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await clock.sleep(1)

    with pytest.raises(UnhandledErrors, match="ZeroDivisionError"):
        run(main)


async def test_a_failure_that_somebody_sees_is_theirs(clock: VirtualClock) -> None:
    async def fail() -> None:
        raise ValueError("seen")

    task = asyncio.get_running_loop().create_task(fail())
    await clock.sleep(1)
    assert str(task.exception()) == "seen"


# -- seeds ------------------------------------------------------------------------------------------------------------


def order_of(seed: int | None) -> list[int]:
    async def main(_clock: VirtualClock) -> list[int]:
        order: list[int] = []

        async def note(number: int) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            order.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(note(number))
        return order

    result: list[int] = run(main, seed)
    return result


def test_without_a_seed_the_order_is_first_in_first_out() -> None:
    assert order_of(None) == [0, 1, 2, 3, 4]


def test_a_seed_gives_one_order_and_seeds_give_many() -> None:
    assert [order_of(seed) for seed in range(20)] == [order_of(seed) for seed in range(20)]
    assert len({tuple(order_of(seed)) for seed in range(20)}) > 10
