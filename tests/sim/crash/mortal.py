"""Kills the controllers before or after one of their writes, starts them anew, and sees how it ends.

A write is a create, patch, delete or eviction at the API server, or a create or delete at the cloud. Events do not
count: they are told once, and losing one loses nothing else.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from dovetail.api import names, objects
from dovetail.controllers.assembly import FeatureGates, all_controllers
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.provisioning.provisioner import ProvisioningOptions
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import (
    EVENTS,
    Instance,
    Interruption,
    KubeApi,
    OutcomeUnknown,
    Write,
)
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.manager import Manager, ManagerTimings
from dovetail.runtime.read_through import PassThroughCloud, ReadThroughApi
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.cloud.machines import SimCloud
from tests.harness.running import under_checkers
from tests.harness.soak import SOAK

T = TypeVar("T")
R = TypeVar("R")
DOWN_SECONDS = 3.0  # from the crash to the next leader


class CrashPoint(msgspec.Struct, frozen=True):
    """The controllers die at this write, and it has taken effect or not. With `lives` they only miss the answer."""

    write: int
    after: bool
    lives: bool = False

    def __str__(self) -> str:
        what = "no answer " if self.lives else ""
        return f"{what}{'after' if self.after else 'before'} write {self.write}"


def crash_points(writes: int, *, lives: bool = False) -> list[CrashPoint]:
    """Before and after each write in long campaigns; otherwise every ninth of these points, before and after in turn.

    Most points are alike: a crash before a write leaves what a crash after the previous one leaves.
    """
    points = [CrashPoint(write, after, lives) for write in range(1, writes + 1) for after in (False, True)]
    return points if SOAK else points[::9]


class Life:
    """One process: counts its writes, and ends at the crash point, if it comes to it."""

    def __init__(self, crash: CrashPoint | None) -> None:
        self.writes: list[str] = []  # since the flow has begun
        self.begun = False
        self.died = asyncio.Event()
        self._crash = crash

    async def write(self, what: str, perform: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Perform it, unless the process dies first. A dead process asks for nothing any more."""
        await self._unless_dead()
        if not self.begun:
            return await perform()
        self.writes.append(what)
        fatal = self._crash is not None and self._crash.write == len(self.writes)
        if not fatal:
            return await perform()
        assert self._crash is not None
        if self._crash.after:
            await perform()
        if self._crash.lives:
            raise OutcomeUnknown("no answer")
        self.died.set()
        await self._unless_dead()
        raise AssertionError("a dead process came back")

    async def _unless_dead(self) -> None:
        if self.died.is_set():
            await asyncio.get_running_loop().create_future()


class MortalApi(ReadThroughApi):
    """The API as a process sees it that may die at each write."""

    def __init__(self, api: KubeApi, life: Life) -> None:
        super().__init__(api)
        self._life = life

    async def write(self, write: Write[T]) -> T:
        if write.resource.plural == EVENTS.plural:
            return await self._api.write(write)
        what = f"{write.verb} {write.resource.plural} {write.name} {write.subresource}".rstrip()
        return await self._life.write(what, lambda: self._api.write(write))


class MortalCloud(PassThroughCloud):
    """The cloud as such a process sees it."""

    def __init__(self, cloud: SimCloud, life: Life) -> None:
        super().__init__(cloud)
        self._life = life

    async def create(self, claim: objects.NodeClaim) -> Instance:
        return await self._life.write("cloud create", lambda: self._cloud.create(claim))

    async def delete(self, claim: objects.NodeClaim) -> None:
        return await self._life.write("cloud delete", lambda: self._cloud.delete(claim))

    def dealt_with(self, notice: Interruption) -> None:
        if not self._life.died.is_set():
            super().dealt_with(notice)


class World(msgspec.Struct, frozen=True):
    """What a flow is given."""

    sim: SimCluster
    cloud: SimCloud
    begin: Callable[[], None]  # from here on each write is a crash point: what came before is another flow's matter


Flow = Callable[[World], Coroutine[Any, Any, R]]


class Ending(msgspec.Struct, frozen=True):
    """What a run came to: the flow's own account, and what the controllers wrote."""

    account: Any
    writes: list[str]


def live_through(flow: Flow[R], crash: CrashPoint | None, *, provisioning: ProvisioningOptions | None = None) -> Ending:
    """Run the flow to its end, with the crash, if any, and a fresh process after it."""

    async def main(sim: SimCluster) -> Ending:
        async with SimCloud(sim) as cloud, asyncio.TaskGroup() as group:
            lives: list[Life] = []
            living = group.create_task(_live(sim, cloud, lives, crash, provisioning), name="lives")
            account = await flow(World(sim, cloud, lambda: setattr(lives[0], "begun", True)))
            living.cancel()
            return Ending(account, lives[0].writes)
        raise AssertionError("the controllers ended before the flow")

    return run(under_checkers(main), seed=1)


async def _live(
    sim: SimCluster,
    cloud: SimCloud,
    lives: list[Life],
    crash: CrashPoint | None,
    provisioning: ProvisioningOptions | None,
) -> None:
    while True:
        life = Life(crash if not lives else None)
        lives.append(life)
        task = asyncio.create_task(_process(sim, cloud, life, provisioning))
        try:
            died = asyncio.create_task(life.died.wait())
            await asyncio.wait((task, died), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
                raise AssertionError("the controllers ended by themselves")
        finally:
            task.cancel()
            died.cancel()
            await asyncio.wait((task,))
        await sim.clock.sleep(DOWN_SECONDS)


async def _process(sim: SimCluster, cloud: SimCloud, life: Life, provisioning: ProvisioningOptions | None) -> None:
    api = MortalApi(sim.server.client(names.COMPONENT), life)
    provider = MortalCloud(cloud, life)
    cluster = WatchedCluster(api, sim.clock, provider.node_classes)
    metrics = Metrics(CollectorRegistry())
    controllers = all_controllers(cluster, provider, metrics, Timings(), FeatureGates(), provisioning=provisioning)
    recorder = EventRecorder(api, sim.clock, instance="test")
    manager = Manager(
        api,
        sim.clock,
        election=None,
        recorder=recorder,
        reflectors=cluster.reflectors,
        controllers=controllers,
        timings=ManagerTimings(heartbeat_seconds=3600.0),  # no flow looks at it, and a beat each second is slow
    )
    await manager.run(asyncio.Event())
