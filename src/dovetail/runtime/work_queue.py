"""A work queue of keys, as in client-go.

A request is only a key; the worker reads the object when it gets the key. A key in work is not handed out a second
time; if it is added meanwhile, it is handed out again afterwards. Keys are handed out in the order in which they became
ready, so a key that keeps coming back cannot starve the others.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from random import Random
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from dovetail.ports import ApiError, Clock, TooManyRequests
from dovetail.runtime.dry_run import WouldWrite
from dovetail.runtime.pace import Backoff
from dovetail.runtime.tasks import SHORTEST_WAIT_SECONDS, within
from dovetail.values.rate import Rate, TokenBucket

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

KEYS_AT_MOST: Final = 200_000


class QueueFull(Exception):
    """The queue has reached its limit of keys."""


class QueueClosed(Exception):
    """The queue hands out no more keys."""


class WorkQueue(Generic[K]):
    """Keys that are ready, delayed or in work. It hands out keys while `run` is running."""

    def __init__(
        self,
        clock: Clock,
        *,
        backoff: Backoff = Backoff(first_seconds=0.005, cap_seconds=300.0),  # noqa: B008  frozen
        rate: Rate | None = None,
        keys_at_most: int = KEYS_AT_MOST,
        seed: int = 0,
        on_add: Callable[[], None] | None = None,
        on_hand_out: Callable[[float], None] | None = None,
    ) -> None:
        """For the metrics, `on_add` is called for each key that becomes ready, `on_hand_out` with its waiting time."""
        self._clock = clock
        self._on_add = on_add
        self._on_hand_out = on_hand_out
        self._backoff = backoff
        self._bucket = TokenBucket(rate, at=clock.monotonic()) if rate else None
        self._keys_at_most = keys_at_most
        self._chance = Random(seed)
        self._ready: dict[K, float] = {}  # in the order in which they became ready, with when that was
        self._due_at: dict[K, float] = {}  # the delayed ones
        self._due: list[tuple[float, int, K]] = []  # a heap of them; entries that differ from _due_at are void
        self._in_work: set[K] = set()
        self._again: dict[K, None] = {}  # in work, and to be handed out again
        self._failures: dict[K, int] = {}
        self._waiting: deque[asyncio.Future[K]] = deque()
        self._sequence = 0
        self._closed = False
        self._changed = asyncio.Event()

    # -- adding keys ----------------------------------------------------------------------------------------------

    def add(self, key: K) -> None:
        """Hand the key out as soon as possible. Raises QueueFull; does nothing once closed."""
        if self._closed:
            return
        self._check_room(key)
        self._due_at.pop(key, None)
        self._make_ready(key)
        self._changed.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Hand the key out after a delay; of several delays the earliest counts. Raises QueueFull."""
        if seconds <= 0:
            self.add(key)
            return
        due_at = self._clock.monotonic() + seconds
        sooner = key in self._ready or key in self._again or self._due_at.get(key, float("inf")) <= due_at
        if self._closed or sooner:
            return
        self._check_room(key)
        self._sequence += 1
        self._due_at[key] = due_at
        # Void entries are removed before they outnumber the others.
        if len(self._due) > 2 * len(self._due_at) + 16:
            self._due = [entry for entry in self._due if self._due_at.get(entry[2]) == entry[0]]
            heapq.heapify(self._due)
        heapq.heappush(self._due, (due_at, self._sequence, key))
        self._changed.set()

    def add_failed(self, key: K) -> None:
        """Hand the key out after its back-off, which doubles with each failure until `forget`."""
        self._failures[key] = self._failures.get(key, 0) + 1
        self.add_after(key, self._backoff.seconds(self._failures[key], self._chance))

    def forget(self, key: K) -> None:
        """Reset the key's back-off."""
        self._failures.pop(key, None)

    def __len__(self) -> int:
        """The number of keys to be handed out, including delayed ones and not those in work."""
        return len(self._ready.keys() | self._due_at.keys() | self._again.keys())

    @property
    def busy(self) -> bool:
        return bool(self._ready or self._in_work)

    # -- working on keys ------------------------------------------------------------------------------------------

    async def get(self) -> K:
        """The next key. The caller must call `done` afterwards. Raises QueueClosed."""
        if self._closed and not self._ready:
            raise QueueClosed
        place: asyncio.Future[K] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._changed.set()
        try:
            return await place
        except asyncio.CancelledError:
            # The key was handed out in the turn in which the worker was cancelled: another worker must get it.
            if place.done() and not place.cancelled() and place.exception() is None:
                self.done(place.result(), again=True)
            raise

    def done(self, key: K, *, again: bool = False) -> None:
        """The key is no longer in work. It is handed out again if it was added meanwhile or if `again` is set."""
        self._in_work.remove(key)
        again = again or key in self._again
        self._again.pop(key, None)
        if again and not self._closed:
            self._make_ready(key)
        self._changed.set()

    # -- running the queue ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Hand keys out when they are due and the rate allows. Returns when the queue is closed and empty."""
        while True:
            self._changed.clear()
            self._promote()
            pause_seconds = self._hand_out()
            if self._closed and not self._ready:
                break
            if pause_seconds is None:
                await self._changed.wait()
                continue
            with suppress(TimeoutError):
                await within(self._clock, pause_seconds, self._changed.wait())
        self._dismiss()

    def close(self, *, drain: bool) -> None:
        """Accept no more keys and drop the delayed ones. `drain`: hand out the ready ones."""
        self._closed = True
        self._due_at.clear()
        self._due.clear()
        self._again.clear()
        if not drain:
            self._ready.clear()
        self._changed.set()

    def _check_room(self, key: K) -> None:
        if key in self._due_at or key in self._ready or key in self._in_work:
            return
        if len(self._ready) + len(self._due_at) + len(self._in_work) >= self._keys_at_most:
            raise QueueFull(f"the work queue is full: it has {self._keys_at_most} keys, so {key!r} is refused")

    def _make_ready(self, key: K) -> None:
        if key in self._in_work:
            self._again[key] = None
        elif key not in self._ready:
            self._ready[key] = self._clock.monotonic()
            if self._on_add is not None:
                self._on_add()

    def _promote(self) -> None:
        now = self._clock.monotonic()
        while self._due and self._due[0][0] <= now:
            due_at, _, key = heapq.heappop(self._due)
            if self._due_at.get(key) == due_at:
                del self._due_at[key]
                self._make_ready(key)

    def _hand_out(self) -> float | None:
        """Give ready keys to waiting workers. Returns the seconds until more is due; None: until something changes."""
        now = self._clock.monotonic()
        while self._ready and self._next_worker():
            if self._bucket and not self._bucket.take(now):
                return max(SHORTEST_WAIT_SECONDS, self._bucket.wait_seconds(now))
            key = next(iter(self._ready))
            ready_at = self._ready.pop(key)
            if self._on_hand_out is not None:
                self._on_hand_out(now - ready_at)
            self._in_work.add(key)
            self._waiting.popleft().set_result(key)
        return max(SHORTEST_WAIT_SECONDS, self._due[0][0] - now) if self._due else None

    def _next_worker(self) -> bool:
        """Whether a worker waits. Drops those that were cancelled."""
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        return bool(self._waiting)

    def _dismiss(self) -> None:
        for place in self._waiting:
            if not place.done():
                place.set_exception(QueueClosed())
        self._waiting.clear()


# -- workers ----------------------------------------------------------------------------------------------------------


class Done(msgspec.Struct, frozen=True):
    """Nothing to do until something changes or, if time alone changes it, until `after_seconds` have passed (R1)."""

    after_seconds: float | None = None


class Retry(msgspec.Struct, frozen=True):
    """It failed; try again after the key's back-off."""

    reason: str


class TerminalFailure(msgspec.Struct, frozen=True):
    """It failed, and trying again cannot help until somebody changes the object."""

    reason: str


Outcome: TypeAlias = Done | Retry | TerminalFailure


def settle(queue: WorkQueue[K], key: K, outcome: Outcome) -> None:
    match outcome:
        case Done(after_seconds=after_seconds):
            queue.forget(key)
            if after_seconds is not None:
                queue.add_after(key, after_seconds)
        case Retry():
            log.info("retrying", extra={"key": str(key), "error": outcome.reason})
            queue.add_failed(key)
        case TerminalFailure():
            log.warning("giving up until the object changes", extra={"key": str(key), "error": outcome.reason})
            queue.forget(key)
    queue.done(key)


async def work(queue: WorkQueue[K], reconcile: Callable[[K], Awaitable[Outcome]], *, workers: int) -> None:
    """Work on keys until the queue is closed. An ApiError means trying again; any other error ends all of it."""
    assert workers >= 1, workers
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.run(), name="queue")
        for number in range(workers):
            group.create_task(_worker(queue, reconcile), name=f"worker {number}")


async def _worker(queue: WorkQueue[K], reconcile: Callable[[K], Awaitable[Outcome]]) -> None:
    while True:
        try:
            key = await queue.get()
        except QueueClosed:
            return
        settle(queue, key, await _outcome(reconcile, key))


async def _outcome(reconcile: Callable[[K], Awaitable[Outcome]], key: K) -> Outcome:
    try:
        return await reconcile(key)
    except TooManyRequests as error:
        return Done(error.retry_after) if error.retry_after > 0 else Retry(str(error))
    except WouldWrite:
        return Done()
    except ApiError as error:
        return Retry(str(error))
