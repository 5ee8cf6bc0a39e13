"""Runs controllers on the simulated cluster in virtual time, as the program would: Cluster, Manager, events.

async def test_it(sim: SimCluster, program: Program) -> None:
    await sim.apply(node_pool())
    await sim.wait_until(lambda: sim.object(NODEPOOLS, "default") ...)
    await program.restart()

pytestmark = stage(run_controllers, lambda program: [NodePoolHash(program.cluster)])
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.ports import EVENTS, KWOK_NODECLASSES, Clock, KubeApi
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.failures import Failures
from dovetail.runtime.manager import Controller, Manager, ManagerTimings
from dovetail.runtime.tasks import root_cause
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.actors.wire import Raw
from dovetail.sim.checkers.checkers import Checkers
from dovetail.sim.server.api_server import ApiServer, Client
from dovetail.sim.server.faults import ApiRequest
from tests.harness.stage import gives

# A decision may be the last of several whose requests go out one after the other.
TRIPS = 40

R = TypeVar("R")
ControllersOf = Callable[["Program"], Sequence[Controller]]
ClusterOf = Callable[[KubeApi, Clock, Failures | None], WatchedCluster]


class RecordingClient(Client):
    """A client that keeps what it asks for: `patch nodepools default`, or `… default/status`."""

    def __init__(self, server: ApiServer, name: str) -> None:
        super().__init__(server, name)
        self.requests: list[str] = []

    async def _call(self, request: ApiRequest, act: Callable[[], R]) -> R:
        path = "/".join(filter(None, (request.namespace, request.name, request.subresource)))
        self.requests.append(f"{request.verb} {request.resource.plural} {path}")
        return await super()._call(request, act)


def watched_by_run(api: KubeApi, clock: Clock, failures: Failures | None) -> WatchedCluster:
    """The cluster as `dovetail run` follows it."""
    return WatchedCluster(api, clock, KWOK_NODECLASSES.read_as(objects.NodeClass), failures=failures)


class ManagedProgram(ABC):
    """A program on the simulated cluster. After `kill` and `start` it is another process, which remembers nothing."""

    cluster: WatchedCluster
    api: RecordingClient
    recorder: EventRecorder
    controllers: Sequence[Controller] = ()

    def __init__(self, sim: SimCluster, group: asyncio.TaskGroup, failures: Failures | None = None) -> None:
        self.sim = sim
        self._group = group
        self._failures = failures
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self.through: Callable[[KubeApi], KubeApi] = lambda api: api  # what the next process sees of the API

    @abstractmethod
    def _watch(self, api: KubeApi) -> WatchedCluster:
        """The cluster as the program follows it."""

    @abstractmethod
    def _make_controllers(self) -> Sequence[Controller]: ...

    async def start(self) -> None:
        """Returns when all caches are synced."""
        assert self._task is None, "it is running"
        clock = self.sim.clock
        self.api = RecordingClient(self.sim.server, names.COMPONENT)
        api = self.through(self.api)
        self.cluster = self._watch(api)
        self.recorder = EventRecorder(api, clock, instance="test")
        self._stop = asyncio.Event()
        self.controllers = self._make_controllers()
        manager = Manager(
            api,
            clock,
            election=None,
            recorder=self.recorder,
            reflectors=self.cluster.reflectors,
            controllers=self.controllers,
            timings=ManagerTimings(heartbeat_seconds=3600.0),  # no test looks, and a beat a second makes days long
            failures=self._failures,
        )
        self._task = self._group.create_task(manager.run(self._stop), name="manager")
        for reflector in self.cluster.reflectors:
            await reflector.wait_synced()

    async def stop(self) -> None:
        """As on SIGTERM: what is being done is finished."""
        if self._task is not None:
            self._stop.set()
            await self._task
            self._task = None

    async def kill(self) -> None:
        """As on SIGKILL: requests under way may or may not take effect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def restart(self) -> None:
        await self.kill()
        await self.start()


class Program(ManagedProgram):
    """The program under test, and the checkers that look at what it does."""

    def __init__(
        self,
        sim: SimCluster,
        group: asyncio.TaskGroup,
        controllers_of: ControllersOf,
        checkers: Checkers,
        failures: Failures | None = None,
        *,
        cluster_of: ClusterOf = watched_by_run,
    ) -> None:
        super().__init__(sim, group, failures)
        self._cluster_of = cluster_of
        self._controllers_of = controllers_of
        self.checkers = checkers

    def _watch(self, api: KubeApi) -> WatchedCluster:
        return self._cluster_of(api, self.sim.clock, self._failures)

    def _make_controllers(self) -> Sequence[Controller]:
        return self._controllers_of(self)

    async def start(self) -> None:
        self.checkers.program_starts()
        await super().start()

    async def stop(self) -> None:
        if self._task is not None:
            self.checkers.program_stops()
        await super().stop()

    async def kill(self) -> None:
        if self._task is not None:
            self.checkers.program_stops()
        await super().kill()

    def requests(self, what: str) -> int:
        """How many requests since the start begin with this."""
        return sum(request.startswith(what) for request in self.api.requests)

    def events(self, reason: str = "") -> list[Raw]:
        """The events on the server, oldest first. The server drops them after an hour."""
        found = [event for event in self.sim.objects(EVENTS) if reason in ("", event["reason"])]
        return sorted(found, key=lambda event: str(event["eventTime"]))


@contextmanager
def checked(sim: SimCluster, **options: Any) -> Iterator[Checkers]:
    """Every action within is looked at by all checkers, and none may object. `options`: those of `Checkers`."""
    checkers = Checkers(sim, **options)
    try:
        yield checkers
    except BaseException as error:
        for violation in checkers.violations:
            error.add_note(str(violation))
        raise
    checkers.finish()
    assert not checkers.violations, "\n".join(map(str, checkers.violations))


def under_checkers(
    main: Callable[[SimCluster], Coroutine[Any, Any, R]], **options: Any
) -> Callable[[SimCluster], Coroutine[Any, Any, R]]:
    """The same for runs that start their controllers themselves: `run(under_checkers(main))`."""

    async def within(sim: SimCluster) -> R:
        with checked(sim, **options):
            return await main(sim)

    return within


@gives("sim", "program")
def run_controllers(
    scenario: Callable[[SimCluster, Program], Coroutine[Any, Any, R]],
    controllers_of: ControllersOf,
    *,
    seed: int = 0,
    shuffle: bool = False,
    latency_seconds: float = 0.0,
    computing_seconds: float = 0.0,
    started: bool = True,
    failures: Failures | None = None,
    cluster_of: ClusterOf = watched_by_run,
    **checking: Any,
) -> R:
    """Run the scenario with the controllers beside it. `started` False: the scenario starts the program itself.

    `failures` None: an unexpected error of a controller ends the run.

    Checkers look at all that is done; `checking` is for them, as `except_for=("budgets",)` for a run that breaks this
    rule's premise on purpose.
    """
    slack_seconds = TRIPS * latency_seconds + computing_seconds

    async def within(sim: SimCluster) -> list[R]:
        with checked(sim, slack_seconds=slack_seconds, **checking) as checkers:
            try:
                async with asyncio.TaskGroup() as group:
                    program = Program(sim, group, controllers_of, checkers, failures, cluster_of=cluster_of)
                    if started:
                        await program.start()
                    result = await scenario(sim, program)
                    await program.stop()
                    return [result]
            except BaseExceptionGroup as errors:
                cause = root_cause(errors)
                raise cause from cause.__cause__
        raise AssertionError("the program ended before the scenario")

    return run(within, seed=seed, shuffle=shuffle, latency_seconds=latency_seconds)[0]
