"""All controllers, those that make nodes and those that take them included, in this process on a real control plane.

async with acting(plane) as stage:
    ...
    await stage.program.kill()   # as a crash would
    await stage.program.start()  # another one: what was in memory is gone
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final
from uuid import uuid4

import msgspec
from prometheus_client import CollectorRegistry

from dovetail.controllers.all import Disrupting, Gates, all_controllers
from dovetail.controllers.cluster import Cluster
from dovetail.controllers.provisioner import Provisioning
from dovetail.kube.client import connect
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import KubeApi
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.compute import ThreadCompute
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.manager import Manager
from dovetail.runtime.reflector import ReflectorTimings
from dovetail.runtime.tasks import root_cause
from tests.cluster.access import Cluster as Server
from tests.cluster.disruption.chronicle import Chronicle
from tests.cluster.termination import program
from tests.cluster.termination.program import SYNC_SECONDS

# R44. Replacements may take as long as ever: a busy machine is no failure.
SHORT: Final = Timings(
    validation_seconds=1.0,
    disruption_idle_seconds=0.2,
    disruption_longest_seconds=1.0,
    disruption_unsynced_seconds=0.2,
    pod_event_seconds=0.5,
    least_drain_seconds=0.5,
    instance_poll_seconds=0.5,
)


class Program(program.Program):
    """With provisioning and disruption."""

    def full_passes(self) -> float:
        """How many came to the last method: those before it found nothing that may be done."""
        count = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count"
        labels = {"reason": "underutilized", "consolidation_type": "single"}
        return self.metrics.registry.get_sample_value(count, labels) or 0.0

    async def start(self) -> None:
        """Returns when all caches are synced."""
        assert self._task is None, "it is running"
        clock = SystemClock()
        api = await self._connection.enter_async_context(connect(kubeconfig=str(self._server.kubeconfig)))
        provider = KwokProvider(api)
        self.cluster = Cluster(api, clock, provider.node_classes, timings=self._reflecting)
        self.metrics = Metrics(CollectorRegistry())
        self._stopping = asyncio.Event()
        provisioning = Provisioning(
            compute=ThreadCompute(), batch_idle=timedelta(seconds=0.2), batch_longest=timedelta(seconds=1)
        )
        controllers = all_controllers(
            self.cluster,
            provider,
            self.metrics,
            self._timings,
            self._gates,
            provisioning=provisioning,
            disrupting=Disrupting(),
        )
        recorder = EventRecorder(api, clock, instance=f"test-{uuid4()}")
        manager = Manager(
            api,
            clock,
            election=None,
            recorder=recorder,
            reflectors=self.cluster.reflectors,
            controllers=controllers,
        )
        self._task = self._group.create_task(manager.run(self._stopping), name="manager")
        async with asyncio.timeout(SYNC_SECONDS):
            for reflector in self.cluster.reflectors:
                await reflector.wait_synced()


class Stage(msgspec.Struct, frozen=True):
    """The program, somebody who may do everything, and who writes down what happens.

    `consolidating` is held by whose nodes may be consolidated: those of several pools would go in one command.
    """

    program: Program
    api: KubeApi
    chronicle: Chronicle
    consolidating: asyncio.Lock


@asynccontextmanager
async def acting(server: Server, timings: Timings = SHORT) -> AsyncIterator[Stage]:
    """All of them, begun; should one fail by itself, so does the block, with its error."""
    try:
        async with connect(kubeconfig=str(server.kubeconfig)) as api, asyncio.TaskGroup() as group:
            chronicle = Chronicle(api)
            writing = group.create_task(chronicle.run(), name="chronicle")
            running = Program(server, group, timings, Gates(), ReflectorTimings())
            try:
                await chronicle.wait_synced()
                await running.start()
                yield Stage(running, api, chronicle, asyncio.Lock())
                await running.stop()
            finally:
                await running.kill()
                writing.cancel()
    except BaseExceptionGroup as errors:
        raise root_cause(errors) from None
