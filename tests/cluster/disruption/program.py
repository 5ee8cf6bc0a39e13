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
from pathlib import Path
from typing import Final

import msgspec

from dovetail.controllers.provisioning.provisioner import ProvisioningOptions
from dovetail.kube.client import connect
from dovetail.planning.timings import Timings
from dovetail.ports import KubeApi
from dovetail.runtime.compute import ThreadCompute
from dovetail.runtime.tasks import root_cause
from tests.cluster.access import Cluster as Server
from tests.cluster.disruption.chronicle import Chronicle
from tests.cluster.termination.program import Program, running

# R44. Replacements may take as long as ever: a busy machine is no failure.
SHORT: Final = Timings(
    validation_seconds=1.0,
    disruption_idle_seconds=0.2,
    disruption_longest_seconds=1.0,
    disruption_unsynced_seconds=0.2,
    pod_event_seconds=0.5,
    pool_counter_seconds=2.0,
    least_drain_seconds=0.5,
    instance_poll_seconds=0.5,
)
PROVISIONING: Final = ProvisioningOptions(
    compute=ThreadCompute(), batch_idle=timedelta(seconds=0.2), batch_longest=timedelta(seconds=1)
)


class Stage(msgspec.Struct, frozen=True):
    """The program, somebody who may do everything, and who writes down what happens.

    `consolidating` is held by whose nodes may be consolidated: those of several pools would go in one command.
    """

    program: Program
    api: KubeApi
    chronicle: Chronicle
    consolidating: asyncio.Lock
    kubeconfig: Path  # of an administrator


@asynccontextmanager
async def acting(server: Server, timings: Timings = SHORT) -> AsyncIterator[Stage]:
    """All of them, begun; should one fail by itself, so does the block, with its error."""
    try:
        async with connect(kubeconfig=str(server.kubeconfig)) as api, asyncio.TaskGroup() as group:
            chronicle = Chronicle(api)
            writing = group.create_task(chronicle.run(), name="chronicle")
            try:
                await chronicle.wait_synced()
                async with running(server, timings=timings, provisioning=PROVISIONING, disrupting=True) as program:
                    yield Stage(program, api, chronicle, asyncio.Lock(), server.kubeconfig)
            finally:
                writing.cancel()
    except BaseExceptionGroup as errors:
        raise root_cause(errors) from None
