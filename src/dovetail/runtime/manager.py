"""Starts and stops the parts of the program.

Every replica runs the reflectors and the heartbeat; only the leader runs the controllers, once all reflectors are
synced. A part that fails starts again after a back-off, from the state of the objects (R24); the other parts go on.
Where failures are not tolerated, as in tests, the error ends the program. The controllers stop first, then the
recorder, then the lease is released.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from dovetail.ports import Clock, KubeApi
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.failures import SOUND_SECONDS, Failures
from dovetail.runtime.lease import Election, FencedApi
from dovetail.runtime.reflector import Reflector
from dovetail.runtime.tasks import root_cause, within

log = logging.getLogger(__name__)


class ManagerTimings(msgspec.Struct, frozen=True, kw_only=True):
    grace_seconds: float = 20.0  # for the controllers to stop, and again for the recorder to send its events
    heartbeat_seconds: float = 1.0
    stuck_seconds: float = 30.0  # without a heartbeat for this long, the process is not alive
    unsynced_seconds: float = 30.0  # until the first log line about reflectors that are not synced
    unsynced_again_seconds: float = 10.0


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller works with. `api` refuses writes when the lease may be lost.

    `failures` takes the errors that concern a single object.
    """

    api: KubeApi
    clock: Clock
    recorder: EventRecorder
    stopping: asyncio.Event
    failures: Failures = msgspec.field(default_factory=Failures)


class Controller(Protocol):
    """A part of the program. `run` returns soon after `stopping` is set, and not before."""

    @property
    def name(self) -> str: ...

    async def run(self, context: Context) -> None: ...


class PartFailed(Exception):
    """A part of the program has failed, and failures are not tolerated. The cause is its error."""


class NotStopped(Exception):
    """Controllers did not stop within the grace period and were cancelled. The lease runs out by itself."""


class HealthStatus(msgspec.Struct, frozen=True):
    ok: bool
    problems: tuple[str, ...] = ()


_STUCK_PARTS_NAMED: Final = 10


class Manager:
    """Runs everything until `stop` is set. Without an `election` there is one replica, and writes are not fenced.

    `clearance` runs before this replica tries to lead: `wait_until_alone` of R38.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        election: Election | None,
        recorder: EventRecorder,
        reflectors: Sequence[Reflector[Any, Any]],
        controllers: Sequence[Controller],
        clearance: Callable[[], Awaitable[None]] | None = None,
        timings: ManagerTimings = ManagerTimings(),  # noqa: B008  frozen
        failures: Failures | None = None,
    ) -> None:
        assert len({controller.name for controller in controllers}) == len(controllers), "two controllers of one name"
        self._api = api if election is None else FencedApi(api, election.fence)
        self._clock = clock
        self._election = election
        self._recorder = recorder
        self._reflectors = reflectors
        self._controllers = controllers
        self._clearance = clearance
        self._timings = timings
        self._failures = failures or Failures()
        self._beat_at = clock.monotonic()
        self.slowest_beat_seconds = 0.0  # how late the heartbeat has been at worst, for the metrics

    @property
    def is_leader(self) -> bool:
        return self._election is None or self._election.fence.is_open

    def readiness(self) -> HealthStatus:
        """Whether all caches are synced and a leader can be elected. A replica that does not lead can be ready."""
        problems = [f"{reflector.name} is not synced" for reflector in self._reflectors if not reflector.synced]
        if self._election is not None and self._election.problem:
            problems.append(self._election.problem)
        return HealthStatus(not problems, tuple(problems))

    def liveness(self) -> HealthStatus:
        """Whether the event loop runs."""
        late = self._clock.monotonic() - self._beat_at
        stuck = late > self._timings.stuck_seconds
        return HealthStatus(not stuck, (f"the event loop has been stuck for {late:.0f} s",) if stuck else ())

    async def run(self, stop: asyncio.Event) -> None:
        """Raises PartFailed, LeaseLost or NotStopped; returns when stopped cleanly."""
        try:
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(self._beat(), name="heartbeat")]
                background += [
                    group.create_task(self._part(reflector.name, reflector.run), name=reflector.name)
                    for reflector in self._reflectors
                ]
                await self._lead_until(stop)
                for task in background:
                    task.cancel()
        except BaseExceptionGroup as errors:
            cause = root_cause(errors)
            raise cause from cause.__cause__

    async def _lead_until(self, stop: asyncio.Event) -> None:
        """Lead, or wait to lead, until `stop` is set."""
        leading = asyncio.Event()

        async def lead() -> None:
            leading.set()
            await self._lead(stop)

        async def stand() -> None:
            if self._clearance is not None:
                await self._clearance()
            await (self._election.run(lead) if self._election else lead())

        async with asyncio.TaskGroup() as group:
            task = group.create_task(stand(), name="leading")
            stopping = group.create_task(stop.wait(), name="stop")
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not leading.is_set():
                task.cancel()  # still a candidate: no controller runs

    async def _lead(self, stop: asyncio.Event) -> None:
        if not await self._wait_synced(stop):
            return
        context = Context(
            api=self._api, clock=self._clock, recorder=self._recorder, stopping=stop, failures=self._failures
        )
        async with asyncio.TaskGroup() as group:
            sender = group.create_task(self._part("recorder", self._recorder.run), name="recorder")
            await self._run_controllers(context)
            self._recorder.close()
            try:
                await within(self._clock, self._timings.grace_seconds, _ended(sender))
            except TimeoutError:
                log.warning("dropped events that were not sent in time")
                sender.cancel()

    async def _run_controllers(self, context: Context) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = []
            for controller in self._controllers:
                tasks.append(group.create_task(self._controller(controller, context), name=controller.name))
                await self._clock.sleep(0)  # each reads the whole cluster at its start: not all in one turn
            await context.stopping.wait()
            try:
                await within(self._clock, self._timings.grace_seconds, _ended(*tasks))
            except TimeoutError:
                late = [task.get_name() for task in tasks if not task.done()][:_STUCK_PARTS_NAMED]
                raise NotStopped(f"did not stop within {self._timings.grace_seconds} s: {', '.join(late)}") from None

    async def _controller(self, controller: Controller, context: Context) -> None:
        await self._part(controller.name, partial(controller.run, context), context.stopping)
        if not context.stopping.is_set():
            raise PartFailed(f"{controller.name} has ended without being asked to")

    async def _part(self, name: str, run: Callable[[], Awaitable[None]], stopping: asyncio.Event | None = None) -> None:
        """Run a part until it returns; run it again after each error."""
        failed = 0
        while True:
            began_at = self._clock.monotonic()
            try:
                return await run()
            except Exception as error:  # noqa: BLE001  whatever it is, the other parts go on
                if not self._failures.tolerated:
                    raise PartFailed(f"{name} has failed: {root_cause(error)!r}") from root_cause(error)
                self._failures.take(name, error)
            failed = 1 if self._clock.monotonic() - began_at >= SOUND_SECONDS else failed + 1
            pause_seconds = self._failures.restart_seconds(failed)
            if stopping is None:
                await self._clock.sleep(pause_seconds)
                continue
            with suppress(TimeoutError):
                await within(self._clock, pause_seconds, stopping.wait())
                return None

    async def _wait_synced(self, stop: asyncio.Event) -> bool:
        """Wait for the reflectors. False: `stop` was set before they were synced."""
        pause_seconds = self._timings.unsynced_seconds
        while not stop.is_set():
            try:
                await within(self._clock, pause_seconds, self._synced_or_stopped(stop))
            except TimeoutError:
                log.error("nothing is done yet: %s", "; ".join(self.readiness().problems))
                pause_seconds = self._timings.unsynced_again_seconds
            else:
                return not stop.is_set()
        return False

    async def _synced_or_stopped(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            synced = group.create_task(_all_synced(self._reflectors))
            stopping = group.create_task(stop.wait())
            await asyncio.wait((synced, stopping), return_when=asyncio.FIRST_COMPLETED)
            synced.cancel()
            stopping.cancel()

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep(self._timings.heartbeat_seconds)
            now = self._clock.monotonic()
            late_seconds = now - self._beat_at - self._timings.heartbeat_seconds
            self.slowest_beat_seconds = max(self.slowest_beat_seconds, late_seconds)
            self._beat_at = now


async def _all_synced(reflectors: Sequence[Reflector[Any, Any]]) -> None:
    for reflector in reflectors:
        await reflector.wait_synced()


async def _ended(*tasks: asyncio.Task[None]) -> None:
    if tasks:
        await asyncio.wait(tasks)
