"""Controllers that work on keys: a change of an object adds its key to a queue, and workers reconcile the keys."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from datetime import datetime
from typing import Final, Generic, TypeVar

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.observe.logs import about
from dovetail.observe.metrics import Metrics
from dovetail.ports import ApiError, Clock, CloudError, Conflict, KubeApi, NotFound
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.failures import Failures
from dovetail.runtime.manager import Context
from dovetail.runtime.pace import Backoff
from dovetail.runtime.work_queue import Done, Outcome, Retry, WorkQueue, work
from dovetail.state.store import Change, InFlight, KubernetesObject, Store, values_of

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# A fallback only: the watch event of our own write adds the key.
IN_FLIGHT_SECONDS: Final = 5.0
CONFLICT_SECONDS: Final = 0.05
LONGEST_RETRY_AFTER_SECONDS: Final = 300.0  # whatever a cloud says
ADDED_AT_ONCE: Final = 250  # keys in one iteration of the event loop: dozens of controllers start together


def retried(error: CloudError, what: str) -> Outcome:
    """When to ask the cloud again: after the time that it names, or after the key's back-off."""
    if error.retry_after > 0:
        return Done(min(error.retry_after, LONGEST_RETRY_AFTER_SECONDS))
    return Retry(f"{what}: {error}")


class KeyedController(ABC, Generic[K]):
    """A controller that works on keys. It subscribes at construction, and ignores changes while it does not run."""

    name: str
    workers: int = 10
    backoff: Backoff = Backoff(first_seconds=0.1, cap_seconds=10.0)

    def __init__(self) -> None:
        self._queue: WorkQueue[K] | None = None
        self._measured: Metrics | None = None
        self._owned: list[Callable[[], Iterable[K]]] = []
        self._in_work: dict[K, float] = {}  # the start of the attempt, on the monotonic clock
        self._failed: dict[K, int] = {}  # unexpected errors in a row
        self.api: KubeApi
        self.clock: Clock
        self.recorder: EventRecorder
        self._failures: Failures

    def keys(self) -> Iterable[K]:
        """Returns the keys to reconcile at the start, because the controller missed earlier changes."""
        return [key for keys in self._owned for key in keys()]

    @abstractmethod
    async def reconcile(self, key: K) -> Outcome:
        """Brings the object to its desired state. Raises ApiError, InFlight.

        Any other error is a bug: the key is retried after a back-off, and other keys are not affected.
        """

    def add(self, key: K) -> None:
        if self._queue is not None:
            self._queue.add(key)

    def add_after(self, key: K, seconds: float) -> None:
        if self._queue is not None:
            self._queue.add_after(key, seconds)

    @property
    def busy(self) -> bool:
        """Whether keys are being reconciled or ready to be. Keys with a delay do not count."""
        return self._queue is not None and self._queue.busy

    def measure(self, metrics: Metrics) -> None:
        """Records metrics from now on."""
        self._measured = metrics
        labels = (self.name, self.name)
        metrics.workqueue_depth.labels(*labels).set_function(lambda: 0 if self._queue is None else len(self._queue))
        metrics.workqueue_unfinished_seconds.labels(*labels).set_function(lambda: sum(self._working_seconds()))
        metrics.workqueue_longest_seconds.labels(*labels).set_function(lambda: max(self._working_seconds(), default=0))

    def follow(self, store: Store[V], keys_of: Callable[[V], Iterable[K]], *, after_seconds: float = 0.0) -> None:
        """Reconciles the keys of each object that changes: those of the old object and of the new one.

        A delay of `after_seconds` turns several changes into one piece of work.
        """

        def on_change(change: Change[V]) -> None:
            if self._queue is not None:
                for key in dict.fromkeys([key for value in values_of(change) for key in keys_of(value)]):
                    self._queue.add_after(key, after_seconds)

        store.subscribe(on_change)

    def own(self, store: Store[V], keys_of: Callable[[V], Iterable[K]], *, after_seconds: float = 0.0) -> None:
        """Like `follow`, and reconciles the keys of all objects at the start."""
        self._owned.append(lambda: (key for value in store.values() for key in keys_of(value)))
        self.follow(store, keys_of, after_seconds=after_seconds)

    async def run(self, context: Context) -> None:
        self.api, self.clock, self.recorder = context.api, context.clock, context.recorder
        self._failures = context.failures
        queue = self._queue = self._new_queue(context.clock)
        try:
            for number, key in enumerate(self.keys(), 1):
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
            except (Conflict, NotFound):  # the store was out of date; the next watch event brings the current object
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


class ClaimController(KeyedController[str]):
    """A controller of our NodeClaims. Keys are their names."""

    def __init__(self, cluster: WatchedCluster, *, after_seconds: float = 0.0) -> None:
        super().__init__()
        self.cluster = cluster
        self.own(cluster.claims, own_name, after_seconds=after_seconds)

    async def reconcile(self, key: str) -> Outcome:
        claim = self.cluster.claims.get_consistent(key)
        if claim is None or not self.cluster.manages_claim(claim):
            self.forget(key)
            return Done()
        return await self.reconcile_claim(claim)

    @abstractmethod
    async def reconcile_claim(self, claim: objects.NodeClaim) -> Outcome:
        """Brings the claim to its desired state. Raises ApiError, InFlight."""

    def forget(self, key: str) -> None:
        """Called for a claim that is gone or not ours."""


def own_name(item: KubernetesObject) -> tuple[str]:
    """The key of a controller whose keys are names of objects."""
    return (item.metadata.name,)


def seconds_until(at: datetime | None, now: datetime) -> float | None:
    """Returns None for an instant that never comes."""
    return None if at is None else max(0.0, (at - now).total_seconds())
