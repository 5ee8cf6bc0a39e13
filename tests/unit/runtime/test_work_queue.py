"""Keys are handed out in order, once at a time, not too early, and none is lost."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.ports import Conflict, TooManyRequests
from dovetail.runtime.pace import Backoff
from dovetail.runtime.tasks import within
from dovetail.runtime.work_queue import Done, Outcome, QueueClosed, QueueFull, Retry, TerminalFailure, WorkQueue, work
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.values.rate import Rate
from tests.harness.builders import at
from tests.harness.stage import PARAMETER, gives, stage

START = at("2026-03-01T00:00:00Z")

Scene = Callable[[VirtualClock, WorkQueue[str]], Coroutine[Any, Any, None]]


@gives("clock", "queue")
def play(scene: Scene, *, seed: int | None = None, **options: Any) -> None:
    """Run a scene with a queue that is running."""

    async def main(clock: VirtualClock) -> None:
        queue: WorkQueue[str] = WorkQueue(clock, **options)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(queue.run())
            await scene(clock, queue)
            running.cancel()

    simulate(main, start=START, seed=seed)


pytestmark = stage(play)


async def nothing_comes(clock: VirtualClock, queue: WorkQueue[str]) -> None:
    with pytest.raises(TimeoutError):
        await within(clock, 3600, queue.get())


async def test_keys_come_in_order_and_once(clock: VirtualClock, queue: WorkQueue[str]) -> None:
    for key in ("b", "a", "b", "c", "a"):
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == ["b", "a", "c"]
    await nothing_comes(clock, queue)


async def test_a_key_in_work_comes_once_more_afterwards(clock: VirtualClock, queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    await nothing_comes(clock, queue)
    queue.add("b")
    queue.done("a")
    assert [await queue.get(), await queue.get()] == ["b", "a"]
    queue.done("a")
    await nothing_comes(clock, queue)


async def test_the_earliest_delay_counts(clock: VirtualClock, queue: WorkQueue[str]) -> None:
    queue.add_after("a", 30)
    queue.add_after("a", 10)
    queue.add_after("a", 20)
    queue.add_after("b", 15)
    assert len(queue) == 2
    assert (await queue.get(), clock.monotonic()) == ("a", 10)
    queue.done("a")
    assert (await queue.get(), clock.monotonic()) == ("b", 15)
    await nothing_comes(clock, queue)


async def test_adding_at_once_ends_a_delay(clock: VirtualClock, queue: WorkQueue[str]) -> None:
    queue.add_after("a", 30)
    queue.add("a")
    queue.add_after("a", 30)
    assert (await queue.get(), clock.monotonic()) == ("a", 0)
    queue.done("a")
    await nothing_comes(clock, queue)


async def test_a_delay_that_ends_while_the_key_is_in_work(clock: VirtualClock, queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add_after("a", 5)
    await clock.sleep(10)
    queue.done("a")
    assert (await queue.get(), clock.monotonic()) == ("a", 10)


async def test_a_delay_adds_nothing_to_a_key_that_comes_sooner_anyway(
    clock: VirtualClock, queue: WorkQueue[str]
) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add_after("a", 5)
    queue.done("a")
    assert (await queue.get(), clock.monotonic()) == ("a", 0)
    queue.done("a")
    await nothing_comes(clock, queue)


async def test_delays_that_no_longer_count_are_swept(clock: VirtualClock, queue: WorkQueue[str]) -> None:
    for seconds in range(10_000, 10, -1):
        queue.add_after("a", seconds)
    assert len(queue._due) < 50
    assert (await queue.get(), clock.monotonic()) == ("a", 11)
    queue.done("a")
    await nothing_comes(clock, queue)


@stage(backoff=Backoff(first_seconds=1, cap_seconds=5))
async def test_failures_back_off_and_success_resets(clock: VirtualClock, queue: WorkQueue[str]) -> None:
    async def wait() -> float:
        began_at = clock.monotonic()
        queue.add_failed("a")
        queue.done(await queue.get())
        return round(clock.monotonic() - began_at, 6)

    assert [await wait() for _ in range(5)] == [1, 2, 4, 5, 5]
    queue.forget("a")
    assert await wait() == 1


@stage(rate=Rate(per_second=2, burst=2))
async def test_the_rate_holds_for_all_keys_together(clock: VirtualClock, queue: WorkQueue[str]) -> None:
    for number in range(6):
        queue.add(str(number))
    times = []
    for _ in range(6):
        await queue.get()
        times.append(round(clock.monotonic(), 2))
    assert times == [0, 0, 0.5, 1, 1.5, 2]


@stage(keys_at_most=2)
async def test_a_full_queue_refuses_new_keys_only(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.add_after("b", 5)
    queue.add("a")
    queue.add("b")
    with pytest.raises(QueueFull, match="it has 2 keys, so 'c' is refused"):
        queue.add("c")
    with pytest.raises(QueueFull):
        queue.add_after("c", 5)


@pytest.mark.parametrize(("drain", "left"), [(True, ["b", "c"]), (False, [])])
@stage(simulate, start=START, gives=("clock",))
async def test_closing(clock: VirtualClock, drain: bool, left: list[str]) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)
    got = []

    async def take() -> None:
        try:
            while True:
                got.append(await queue.get())
        except QueueClosed:
            return

    async with asyncio.TaskGroup() as group:
        running = group.create_task(queue.run())
        queue.add("a")
        assert await queue.get() == "a"
        for key in ("b", "c"):
            queue.add(key)
        queue.add("a")
        queue.add_after("d", 5)
        queue.close(drain=drain)
        queue.add("e")
        queue.done("a")
        group.create_task(take())
        await running
    assert got == left
    assert clock.monotonic() == 0


@pytest.mark.parametrize("seed", range(30))
@stage(seed=PARAMETER)
async def test_a_cancelled_worker_loses_no_key(clock: VirtualClock, queue: WorkQueue[str], seed: int) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(queue.get())
        await clock.sleep(0)
        queue.add("a")
        for _ in range(seed % 5):
            await clock.sleep(0)
        first.cancel()
    if not first.cancelled():
        queue.done(first.result(), again=True)
    assert await within(clock, 10, queue.get()) == "a"


@settings(max_examples=150)
@given(
    seed=st.integers(0, 1_000_000),
    workers=st.integers(1, 4),
    rate=st.sampled_from([None, Rate(per_second=20, burst=3)]),
    adds=st.lists(
        st.tuples(
            st.sampled_from("abcde"),
            st.sampled_from([0.0, 0.0, 0.1, 1 / 3, 2.5]),  # pause before
            st.sampled_from([0.0, 0.0, 0.7, 3.3]),  # delay
        ),
        max_size=40,
    ),
    work_seconds=st.lists(st.sampled_from([0.0, 0.05, 1.0]), min_size=1, max_size=5),
)
def test_no_key_is_lost_shared_or_early(
    seed: int,
    workers: int,
    rate: Rate | None,
    adds: list[tuple[str, float, float]],
    work_seconds: list[float],
) -> None:
    """After the last add of a key there is a hand-out that is not before its time, and never two at once."""
    owed: dict[str, list[tuple[float, float]]] = {}  # for each key, the adds not served yet: when due, when added
    maybe_again: set[str] = set()  # added in the instant of a hand-out: perhaps just after it
    in_work: Counter[str] = Counter()
    served = 0

    async def main(clock: VirtualClock) -> None:
        queue: WorkQueue[str] = WorkQueue(clock, rate=rate)

        async def reconcile(key: str) -> Outcome:
            nonlocal served
            in_work[key] += 1
            assert in_work[key] == 1
            now = clock.monotonic()
            adds = owed.get(key, [])
            if any(due_at <= now for due_at, _ in adds):
                # The earliest delay wins and stands for the later ones.
                del owed[key]
                if any(added_at == now for _, added_at in adds):
                    maybe_again.add(key)
            else:
                assert key in maybe_again, "handed out though nothing was due"
                # It stands for what was added since, unless that came just after it; then there is one more.
                if owed.pop(key, None) is None:
                    maybe_again.remove(key)
            await clock.sleep(work_seconds[served % len(work_seconds)])
            served += 1
            in_work[key] -= 1
            return Done()

        async def add() -> None:
            for key, pause, delay in adds:
                await clock.sleep(pause)
                owed.setdefault(key, []).append((clock.monotonic() + delay, clock.monotonic()))
                queue.add_after(key, delay)
            await clock.sleep(60)
            assert owed == {}, "keys were lost"
            assert len(queue) == 0
            queue.close(drain=True)

        async with asyncio.TaskGroup() as group:
            group.create_task(add())
            group.create_task(work(queue, reconcile, workers=workers))

    simulate(main, start=START, seed=seed)


@stage(simulate, start=START, gives=("clock",))
async def test_outcomes_become_requeues(clock: VirtualClock) -> None:
    outcomes: dict[str, list[Outcome | Exception]] = {
        "done": [Done()],
        "later": [Done(7), Done()],
        "retried": [Retry("not yet"), Retry("not yet"), Done()],
        "hopeless": [TerminalFailure("bad value")],
        "conflict": [Conflict("changed"), Done()],
        "told to wait": [TooManyRequests("later", retry_after=30), Done()],
    }
    seen: list[tuple[str, float]] = []
    queue: WorkQueue[str] = WorkQueue(clock, backoff=Backoff(first_seconds=1, cap_seconds=60))

    async def reconcile(key: str) -> Outcome:
        seen.append((key, clock.monotonic()))
        outcome = outcomes[key].pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async with asyncio.TaskGroup() as group:
        group.create_task(work(queue, reconcile, workers=1))
        for key in outcomes:
            queue.add(key)
        await clock.sleep(600)
        queue.close(drain=True)
    assert [key for key, _ in seen[:6]] == list(outcomes)
    assert sorted(seen[6:], key=lambda entry: entry[1]) == [
        ("retried", 1),
        ("conflict", 1),
        ("retried", 3),
        ("later", 7),
        ("told to wait", 30),
    ]


@stage(simulate, start=START, gives=("clock",))
async def test_a_programming_error_ends_the_work(clock: VirtualClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)

    async def reconcile(_key: str) -> Outcome:
        raise ZeroDivisionError

    queue.add("a")
    with pytest.raises(ExceptionGroup) as caught:
        await work(queue, reconcile, workers=3)
    assert caught.group_contains(ZeroDivisionError)
