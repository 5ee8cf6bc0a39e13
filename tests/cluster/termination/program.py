"""All controllers, in this process, on a real control plane.

async with running(plane) as program:
    ...
    await program.kill()   # as a crash would
    await program.start()  # another one: what was in memory is gone

Nodes are made for pods, and taken gracefully, if `provisioning` and `disrupting` say how.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from uuid import uuid4

from prometheus_client import CollectorRegistry

from dovetail.controllers.assembly import FeatureGates, all_controllers
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.provisioning.provisioner import ProvisioningOptions
from dovetail.kube.client import connect
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.providers.kwok.bundle import kwok_controllers
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.manager import Controller, Manager
from dovetail.runtime.reflector import ReflectorTimings
from dovetail.runtime.tasks import root_cause
from tests.cluster.access import Cluster as Server

# R44. The net under refused evictions stays as slow as it is: a budget's own change must be what is acted upon.
SHORT: Final = Timings(least_drain_seconds=1.0, instance_poll_seconds=0.5, garbage_collection_seconds=10.0)
SYNC_SECONDS: Final = 60  # far more than it takes; a busy machine is no failure


class Program:
    """One process after another, each without a lease: there is no other replica."""

    cluster: WatchedCluster
    metrics: Metrics
    controllers: Sequence[Controller]

    def __init__(
        self,
        server: Server,
        group: asyncio.TaskGroup,
        *,
        timings: Timings,
        reflecting: ReflectorTimings,
        provisioning: ProvisioningOptions | None,
        disrupting: bool,
    ) -> None:
        self._server = server
        self._group = group
        self._timings = timings
        self._reflecting = reflecting
        self._provisioning = provisioning
        self._disrupting = disrupting
        self._connection = AsyncExitStack()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when all caches are synced."""
        assert self._task is None, "it is running"
        clock, connecting = SystemClock(), connect(kubeconfig=str(self._server.kubeconfig))
        api = await self._connection.enter_async_context(connecting)
        provider = KwokProvider(api)
        self.cluster = WatchedCluster(api, clock, provider.node_classes, timings=self._reflecting)
        self.metrics = Metrics(CollectorRegistry())
        self._stopping = asyncio.Event()
        self.controllers = controllers = all_controllers(
            self.cluster,
            provider,
            self.metrics,
            self._timings,
            FeatureGates(),
            provisioning=self._provisioning,
            disrupting=self._disrupting,
            of_provider=kwok_controllers(provider, self.cluster),
        )
        manager = Manager(
            api,
            clock,
            election=None,
            recorder=EventRecorder(api, clock, instance=f"test-{uuid4()}"),
            reflectors=self.cluster.reflectors,
            controllers=controllers,
        )
        self._task = self._group.create_task(manager.run(self._stopping), name="manager")
        async with asyncio.timeout(SYNC_SECONDS):
            for reflector in self.cluster.reflectors:
                await reflector.wait_synced()

    async def stop(self) -> None:
        """As on SIGTERM: what is being done is finished. One that does not run is fine."""
        self._stopping.set()
        await self._end()

    async def kill(self) -> None:
        """As on SIGKILL: requests under way may or may not take effect. One that does not run is fine."""
        if self._task is not None:
            self._task.cancel()
        await self._end()

    async def _end(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])
            self._task = None
        await self._connection.aclose()


@asynccontextmanager
async def running(
    server: Server,
    *,
    timings: Timings = SHORT,
    reflecting: ReflectorTimings = ReflectorTimings(),  # noqa: B008  frozen
    provisioning: ProvisioningOptions | None = None,
    disrupting: bool = False,
) -> AsyncIterator[Program]:
    """The program, started; should it fail by itself, so does the block, with its error."""
    try:
        async with asyncio.TaskGroup() as group:
            program = Program(
                server,
                group,
                timings=timings,
                reflecting=reflecting,
                provisioning=provisioning,
                disrupting=disrupting,
            )
            try:
                await program.start()
                yield program
                await program.stop()
            finally:
                await program.kill()
    except BaseExceptionGroup as errors:
        raise root_cause(errors) from None
