"""An event loop on virtual time: a day passes in no time, and the same seed gives the same run.

Time stops while a callback can run, and jumps to the next timer when none can. Without a seed, callbacks run in the
order of asyncio; with a seed, in a random order, which reveals races.
"""

import asyncio
import heapq
import random
import sys
from asyncio import AbstractEventLoop, Future, Handle, Task, TimerHandle
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context
from datetime import datetime, timedelta
from types import FrameType
from typing import Any, NoReturn, ParamSpec, TypeVar, TypeVarTuple, Unpack

from dovetail.ports import Clock, Compute

R = TypeVar("R")
P = ParamSpec("P")
Args = TypeVarTuple("Args")

MAX_IDLE_STEPS = 1_000_000
_LIVELOCK_SAMPLE = 10_000
_REPORTED_TASKS = 50


class SimulationError(Exception):
    """The simulated program is stuck, or a task failed unnoticed."""


class Deadlock(SimulationError):
    """No callback can run, no timer is set, and the main task is not done."""


class Livelock(SimulationError):
    """Callbacks run without end while time does not pass."""


class UnhandledErrors(SimulationError):
    """Tasks or callbacks failed, and nothing handled their errors."""

    def __init__(self, message: str, errors: list[BaseException]) -> None:
        super().__init__(message)
        self.errors = errors


class _NumberedTask(Task[R]):
    """A task whose hash is its number: asyncio keeps tasks in sets, and cancels them in the order of the sets."""

    def __init__(self, coro: Coroutine[Any, Any, R] | Generator[Any, None, R], *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(AbstractEventLoop):
    """An event loop without threads, sockets, signals and subprocesses."""

    def __init__(self, *, start: datetime, seed: int | None = None, max_idle_steps: int = MAX_IDLE_STEPS) -> None:
        assert start.tzinfo is not None, "the start needs a time zone"
        self.start = start
        self._random = None if seed is None else random.Random(seed)
        self._max_idle_steps = max_idle_steps
        self._time = 0.0
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._timer_number = 0
        self._cancelled_timers = 0
        self._idle_steps = 0
        self._task_number = 0
        # In the order of creation. A failed task stays until its error is handled or reported.
        self._tasks: dict[Task[Any], None] = {}
        self._errors: list[BaseException] = []
        self._closed = False
        self._running = False

    # -- running ------------------------------------------------------------------------------------------------------

    def run_until(self, main: Coroutine[Any, Any, R] | Future[R], *, until: datetime | None = None) -> R | None:
        """Return the result of `main`, or None if it is not done at `until`; a call with the same task goes on from
        there. Raises Deadlock, Livelock, UnhandledErrors, and what `main` raises."""
        assert not self._closed
        assert not self._running, "the loop is running already"
        task = main if isinstance(main, Future) else self.create_task(main, name="main")
        end = None if until is None else round((until - self.start).total_seconds(), 6)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._finalize_generator)
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while not task.done() and self._step(end):
                pass
        except SimulationError as error:
            self._blame(error)
            raise
        finally:
            self._running = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
        result = task.result() if task.done() else None
        if errors := self._take_errors():
            raise UnhandledErrors("; ".join(map(repr, errors)), errors) from errors[0]
        return result

    def _step(self, end: float | None) -> bool:
        """Run one callback, after a jump to the next timer if none can run; False if the end comes first."""
        if not self._ready and not self._move_on(end):
            return False
        ready = self._ready
        if self._random is not None and len(ready) > 1:
            index = int(self._random.random() * len(ready))
            ready[index], ready[0] = ready[0], ready[index]
        handle = ready.popleft()
        if handle._cancelled:
            return True
        self._idle_steps += 1
        if self._idle_steps > self._max_idle_steps:
            ready.appendleft(handle)
            self._raise_livelock()
        handle._run()
        return True

    def _move_on(self, end: float | None) -> bool:
        """Jump to the next timer, and make all timers of that instant runnable."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
            self._cancelled_timers -= 1
        if end is not None and (not timers or timers[0][0] > end):
            self._time = max(self._time, end)
            return False
        if not timers:
            raise Deadlock(f"nothing can run and no timer is set at {self.now().isoformat()}; {self._waiting()}")
        if timers[0][0] > self._time:
            self._time = timers[0][0]
            self._idle_steps = 0
        while timers and timers[0][0] <= self._time:
            handle = heapq.heappop(timers)[2]
            if handle.cancelled():
                self._cancelled_timers -= 1
            else:
                self._ready.append(handle)
        return True

    # -- reports ------------------------------------------------------------------------------------------------------

    def _waiting(self) -> str:
        waiting = [f"{task.get_name()} at {where(task)}" for task in self._tasks if not task.done()]
        more = len(waiting) - _REPORTED_TASKS
        listed = waiting[:_REPORTED_TASKS] + ([f"and {more} more"] if more > 0 else [])
        return "waiting: " + ("; ".join(listed) or "no task")

    def _raise_livelock(self) -> NoReturn:
        """Count for a while which tasks run, and raise an error that names them."""
        busy: Counter[str] = Counter()
        for _ in range(_LIVELOCK_SAMPLE):
            if not self._ready:
                break
            handle = self._ready.popleft()
            owner = getattr(getattr(handle, "_callback", None), "__self__", None)
            busy[f"{owner.get_name()} at {where(owner)}" if isinstance(owner, Task) else repr(owner)] += 1
            if not handle._cancelled:
                handle._run()
        listed = "; ".join(f"{name} ({count} steps)" for name, count in busy.most_common(10))
        raise Livelock(f"{self._max_idle_steps} steps without time passing at {self.now().isoformat()}; busy: {listed}")

    def _blame(self, error: SimulationError) -> None:
        """Add the errors of failed tasks, which are often the reason why others wait."""
        if failed := self._take_errors():
            error.add_note("failed before: " + "; ".join(map(repr, failed)))
            error.__cause__ = failed[0]

    def _take_errors(self) -> list[BaseException]:
        unseen = [task for task in self._tasks if task.done() and _unseen(task)]
        errors = [*self._errors, *(error for task in unseen if (error := task.exception()) is not None)]
        for task in [task for task in self._tasks if task.done()]:
            del self._tasks[task]
        self._errors = []
        return errors

    # -- time ---------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._time

    def now(self) -> datetime:
        """The virtual instant."""
        return self.start + timedelta(seconds=self._time)

    # -- callbacks ----------------------------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[Unpack[Args]], object], *args: *Args, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Args]], object], *args: *Args, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Args]], object], *args: *Args, context: Context | None = None
    ) -> TimerHandle:
        # To the microsecond, as datetimes are: rounding errors must not separate timers of one instant.
        due = max(round(when, 6), self._time)
        handle = TimerHandle(due, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]
        self._timer_number += 1
        heapq.heappush(self._timers, (due, self._timer_number, handle))
        return handle

    def _timer_handle_cancelled(self, _handle: TimerHandle) -> None:
        """Asyncio calls this. Cancelled timers are removed when they are most of the heap."""
        self._cancelled_timers += 1
        if self._cancelled_timers > 1000 and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    # -- tasks --------------------------------------------------------------------------------------------------------

    def create_future(self) -> Future[Any]:
        return Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, R] | Generator[Any, None, R],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> Task[R]:
        assert not self._closed, "the loop is closed"
        self._task_number += 1
        # The loop numbers tasks, not the process, so that reports are the same in every run.
        name = name or f"task-{self._task_number}"
        task: Task[R] = _NumberedTask(coro, number=self._task_number, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: Task[Any]) -> None:
        if task.cancelled() or not _unseen(task):
            self._tasks.pop(task, None)

    def cancel_all(self) -> None:
        """Cancel all tasks in the order of creation, and run until they have ended; time may pass."""
        tasks = [task for task in self._tasks if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until(asyncio.wait(tasks))

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the error; the run raises it."""
        self._errors.append(context.get("exception") or RuntimeError(str(context.get("message"))))

    def _finalize_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._closed:
            self.create_task(generator.aclose())

    # -- what is refused ----------------------------------------------------------------------------------------------

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Args]], object], *args: *Args, context: Context | None = None
    ) -> Handle:
        del callback, args, context
        raise NotImplementedError("there are no threads on virtual time")

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Args]], R], *args: *Args) -> Any:
        del executor, func, args
        raise NotImplementedError("there are no threads on virtual time; give the work to the Compute port")


def new_loop(*, start: datetime, seed: int | None = None, max_idle_steps: int = MAX_IDLE_STEPS) -> VirtualLoop:
    """A loop. Methods of AbstractEventLoop that we lack raise NotImplementedError, which mypy calls abstract."""
    return VirtualLoop(start=start, seed=seed, max_idle_steps=max_idle_steps)  # type: ignore[abstract]


class VirtualClock(Clock):
    """The time of a virtual loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return self._loop.now()

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class InlineCompute(Compute):
    """Computes at once, but returns later, as a worker thread does: the cluster may change meanwhile."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        await asyncio.sleep(self._seconds)
        return result


def simulate(
    main: Callable[[VirtualClock], Coroutine[Any, Any, R]],
    *,
    start: datetime,
    seed: int | None = None,
    until: datetime | None = None,
    max_idle_steps: int = MAX_IDLE_STEPS,
) -> R | None:
    """Run `main` on a new loop to its end, or to `until` (then None), and cancel all remaining tasks."""
    loop = new_loop(start=start, seed=seed, max_idle_steps=max_idle_steps)
    try:
        result = loop.run_until(main(VirtualClock(loop)), until=until)
        loop.cancel_all()
        return result
    finally:
        loop.close()


def where(task: Task[Any]) -> str:
    """Where a suspended task waits: its innermost line outside asyncio."""
    frame: FrameType | None = None
    awaited: Any = task.get_coro()
    while awaited is not None:
        inner = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if inner is None:
            break
        if frame is None or "asyncio" not in inner.f_code.co_filename.split("/"):
            frame = inner
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    if frame is None:
        return "its end"
    file = frame.f_code.co_filename.rpartition("/")[2]
    return f"{file}:{frame.f_lineno} in {frame.f_code.co_name}"


def _unseen(task: Task[Any]) -> bool:
    """Whether the task failed and nothing has read its exception, which asyncio would log."""
    return not task.cancelled() and bool(task._log_traceback)
