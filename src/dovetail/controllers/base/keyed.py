"""How does a controller go from changes to work: keys of objects in, an outcome each out?"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from datetime import datetime
from typing import Final, Generic, TypeVar

from dovetail.observe.logs import about
from dovetail.observe.metrics import Metrics
from dovetail.ports import ApiError, Clock, Conflict, KubeApi, NotFound
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.failures import Failures
from dovetail.runtime.manager import Context
from dovetail.runtime.pace import Backoff
from dovetail.runtime.work_queue import Done, Outcome, WorkQueue, work
from dovetail.state.store import Added, Change, Deleted, InFlight, Store, Updated

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# A net only: the watch tells when an own write is reflected.
IN_FLIGHT_SECONDS: Final = 5.0
CONFLICT_SECONDS: Final = 0.05
ADDED_AT_ONCE: Final = 250  # keys, when it starts; dozens of controllers start together


class KeyedController(ABC, Generic[K]):
    """A controller that works on keys. Subscriptions are made at construction; they count while it runs."""

    name: str
    workers: int = 10
    backoff: Backoff = Backoff(first_seconds=0.1, cap_seconds=10.0)

    def __init__(self) -> None:
        self._queue: WorkQueue[K] | None = None
        self._measured: Metrics | None = None
        self._in_work: dict[K, float] = {}  # since when
        self._failed: dict[K, int] = {}  # how often in a row, by an error that nobody expects
        self.api: KubeApi
        self.clock: Clock
        self.recorder: EventRecorder
        self._failures: Failures

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """All keys there are, when the controller starts: what happened before is not missed."""

    @abstractmethod
    async def reconcile(self, key: K) -> Outcome:
        """Look at the object as it is now, and do what is to be done. Raises ApiError, InFlight.

        Any other error is a bug: the key is worked on again after a back-off, and the other keys are not affected.
        """

    def add(self, key: K) -> None:
        """Work on the key soon."""
        if self._queue is not None:
            self._queue.add(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Work on the key after a while, if not before."""
        if self._queue is not None:
            self._queue.add_after(key, seconds)

    @property
    def busy(self) -> bool:
        """Whether there is work to do now; what waits for its time does not count."""
        return self._queue is not None and self._queue.busy

    def measure(self, metrics: Metrics) -> None:
        """Count from now on what comes of the work."""
        self._measured = metrics
        labels = (self.name, self.name)
        metrics.workqueue_depth.labels(*labels).set_function(lambda: 0 if self._queue is None else len(self._queue))
        metrics.workqueue_unfinished_seconds.labels(*labels).set_function(lambda: sum(self._working_seconds()))
        metrics.workqueue_longest_seconds.labels(*labels).set_function(lambda: max(self._working_seconds(), default=0))

    def follow(self, cache: Store[V], keys_of: Callable[[V], Iterable[K]], *, after_seconds: float = 0.0) -> None:
        """Work on the keys that a change of this kind concerns, those of the old object and of the new.

        `after_seconds`: not at once, so that several changes are one piece of work.
        """

        def told(change: Change[V]) -> None:
            if self._queue is None:
                return
            match change:
                case Added(new=new):
                    found = dict.fromkeys(keys_of(new.value))
                case Updated(old=old, new=new):
                    found = dict.fromkeys([*keys_of(old.value), *keys_of(new.value)])
                case Deleted(old=old):
                    found = dict.fromkeys(keys_of(old.value))
                case _:
                    return
            for key in found:
                self._queue.add_after(key, after_seconds)

        cache.subscribe(told)

    async def run(self, context: Context) -> None:
        """Work until told to stop."""
        self.api, self.clock, self.recorder = context.api, context.clock, context.recorder
        self._failures = context.failures
        queue = self._queue = self._new_queue(context.clock)
        try:
            for number, key in enumerate(list(self.keys()), 1):
                queue.add(key)
                if number % ADDED_AT_ONCE == 0:
                    await self.clock.sleep(0)
            async with asyncio.TaskGroup() as group:
                group.create_task(work(queue, self._attempt, workers=self.workers), name=f"{self.name} workers")
                await context.stopping.wait()
                queue.close(drain=False)
        finally:
            self._queue = None

    def _new_queue(self, clock: Clock) -> WorkQueue[K]:
        if self._measured is None:
            return WorkQueue(clock, backoff=self.backoff)
        labels = (self.name, self.name)
        return WorkQueue(
            clock,
            backoff=self.backoff,
            on_add=self._measured.workqueue_adds.labels(*labels).inc,
            on_hand_out=self._measured.workqueue_queue_seconds.labels(*labels).observe,
        )

    def _working_seconds(self) -> list[float]:
        return [self.clock.monotonic() - began_at for began_at in self._in_work.values()]

    async def _attempt(self, key: K) -> Outcome:
        self._in_work[key] = self.clock.monotonic()
        try:
            return await self._work_on(key)
        finally:
            del self._in_work[key]

    async def _work_on(self, key: K) -> Outcome:
        began_at = self.clock.monotonic()
        with about(controller=self.name, name=key):
            try:
                outcome = await self.reconcile(key)
            except InFlight:
                outcome = Done(IN_FLIGHT_SECONDS)
            except (Conflict, NotFound):  # we acted on what is no longer so, and are about to be told what is
                outcome = Done(CONFLICT_SECONDS)
            except ApiError:
                self._worked("error", began_at)
                raise
            except Exception as error:  # noqa: BLE001  it is logged and counted, or raised again
                self._worked("error", began_at)
                self._failures.take(self.name, error, doing=str(key))
                failed = self._failed[key] = self._failed.get(key, 0) + 1
                return Done(self._failures.restart_seconds(failed))
        self._failed.pop(key, None)
        again = isinstance(outcome, Done) and outcome.after_seconds is not None
        result = "requeue_after" if again else "success" if isinstance(outcome, Done) else "error"
        self._worked(result, began_at)
        return outcome

    def _worked(self, result: str, began_at: float) -> None:
        if self._measured is None:
            return
        self._measured.reconciles.labels(self.name, result).inc()
        seconds = self.clock.monotonic() - began_at
        self._measured.reconcile_seconds.labels(self.name).observe(seconds)
        self._measured.workqueue_work_seconds.labels(self.name, self.name).observe(seconds)
        if result == "error":
            self._measured.reconcile_errors.labels(self.name).inc()
            self._measured.workqueue_retries.labels(self.name, self.name).inc()


def seconds_until(at: datetime | None, now: datetime) -> float | None:
    """How long to wait for an instant; None for one that never comes."""
    return None if at is None else max(0.0, (at - now).total_seconds())
