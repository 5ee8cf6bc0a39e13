"""Whoever dies before or after any write of a command leaves nodes that go in the end, and none that goes too early."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.api.names import REPLACEMENT_OF
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.observe.metrics import Metrics
from dovetail.planning.disruption.board import Candidate, Method
from dovetail.planning.disruption.commands import Command, command_id
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, NODES, EventType, Patch, Resource
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.manager import Context, Manager, ManagerTimings
from dovetail.scheduling.placement import NewClaim, read_pool
from dovetail.scheduling.resources import NOTHING
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.cloud.machines import Launch, SimCloud
from dovetail.sim.server.store import Change
from tests.conftest import CRASH_POINTS
from tests.harness import manifests
from tests.harness.claims import node_claim, node_class
from tests.harness.provisioning import BIG, OF_FOUR, pool_of_four
from tests.harness.running import under_checkers
from tests.sim.crash.flows import initialized
from tests.sim.crash.mortal import DOWN_SECONDS, CrashPoint, Life, MortalApi, MortalCloud, crash_points
from tests.sim.disruption_commands.setting import DECISIONS, OWN, UNLIMITED, Parts, parts

Account = Mapping[str, Any]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done: claims of these names go, for so many others."""

    claims: tuple[str, ...]
    replacements: int
    method: Method
    launches: tuple[Launch, ...] = ()  # how the first ones go

    def __str__(self) -> str:
        bad = f" after {len(self.launches)} bad launches" if self.launches else ""
        return f"{len(self.claims)} to {self.replacements}{bad}"


class Decider:
    """Decides the same as long as it is not done, as the engine would."""

    name = "decider"

    def __init__(self, cluster: WatchedCluster, made: Parts, shape: Shape, begun: asyncio.Event) -> None:
        self._cluster = cluster
        self._made = made
        self._shape = shape
        self._begun = begun

    async def run(self, context: Context) -> None:
        await self._begun.wait()
        while any(self._cluster.claims.get(("", name)) for name in self._shape.claims):
            await self._decide(context)
            await context.clock.sleep(5)
        await context.stopping.wait()

    async def _decide(self, context: Context) -> None:
        now, commands = context.clock.now(), self._made.commands
        kept = [self._cluster.claims.get(("", name)) for name in self._shape.claims]
        there = [each.value for each in kept if each and each.value.metadata.deletion_timestamp is None]
        held = commands.backoff_until("default", now) is not None or any(
            commands.owns_claim(c.metadata.name) for c in there
        )
        if not there or held or self._made.state.unsynced(now) is not None:
            return
        await self._made.refresh()
        candidates = [
            Candidate(node=c.status.node_name, claim=c.metadata.name, claim_uid=c.metadata.uid, pool="default")
            for c in there
        ]
        pools = {pool.metadata.name: pool for pool in self._cluster.pools.values()}
        new = NewClaim(
            pool="default",
            pods=(),
            requirements=read_pool(pools["default"]).requirements.without(*OWN),
            types=("s-4x-amd64-linux",),
            requests=NOTHING,
        )
        method = self._shape.method
        command = Command(
            id=command_id(now, method, candidates),
            at=now,
            method=method,
            candidates=tuple(candidates),
            replacements=(new,) * self._shape.replacements,
        )
        await commands.start(context, command, pools)


class Witness:
    """Sees what must never be, at every change."""

    def __init__(self, sim: SimCluster, shape: Shape) -> None:
        self.wrong: list[str] = []
        self._sim = sim
        self._shape = shape
        sim.server.registry.store.observers.append(self._look)

    def _look(self, resource: Resource[Any], change: Change) -> None:
        old, new = None if change.old is None else change.old.body, change.new.body
        if change.type is not EventType.MODIFIED or old is None:
            return
        was_going, is_going = (bool(each["metadata"].get("deletionTimestamp")) for each in (old, new))
        if resource.plural == NODES.plural and was_going and _tainted(old) and not _tainted(new):
            self.wrong.append("a node that goes was untainted")
        leaves = resource.plural == NODECLAIMS.plural and is_going and not was_going
        if leaves and new["metadata"]["name"] in self._shape.claims:
            up = [each for each in self._sim.objects(NODECLAIMS) if each["metadata"]["name"] in initialized(self._sim)]
            if sum(REPLACEMENT_OF in each["metadata"]["annotations"] for each in up) < self._shape.replacements:
                self.wrong.append("a node went before its replacement was there")


def _tainted(node: Mapping[str, Any]) -> bool:
    return any(taint["key"] == names.DISRUPTED_TAINT for taint in node["spec"].get("taints") or ())


class Ending(msgspec.Struct, frozen=True):
    account: Account
    writes: list[str]


def live_through(shape: Shape, crash: CrashPoint | None) -> Ending:
    """Once with a crash, if any, and a fresh process after it."""

    async def main(sim: SimCluster) -> Ending:
        async with SimCloud(sim) as cloud, asyncio.TaskGroup() as group:
            lives: list[Life] = []
            begun = asyncio.Event()
            living = group.create_task(_live(sim, cloud, shape, lives, crash=crash, begun=begun))
            await sim.apply(node_class(), pool_of_four(disruption=UNLIMITED), *map(_claim, shape.claims))
            await sim.apply(manifests.deployment("web", replicas=len(shape.claims), cpu=BIG))
            await sim.wait_until(lambda: initialized(sim) >= set(shape.claims))
            await sim.wait_until(lambda: len(sim.pods(app="web", ready=True)) == len(shape.claims))
            if not shape.replacements:
                await sim.apply(manifests.deployment("web", replicas=0))
            else:
                for name in shape.claims:
                    await _drift(sim, cloud, name)
            await sim.run_for("10s")
            witness = Witness(sim, shape)
            for launch in shape.launches:
                cloud.next_launches(launch)
            lives[0].begun = True
            begun.set()
            await sim.wait_until(
                lambda: all(sim.object(NODECLAIMS, name) is None for name in shape.claims), timeout="2h"
            )
            await sim.run_for("5m")  # in which anything too much would show
            living.cancel()
            return Ending(_account(sim, cloud, witness), lives[0].writes)
        raise AssertionError("the controllers ended before the flow")

    return run(under_checkers(main, except_for=DECISIONS), seed=1)


async def _drift(sim: SimCluster, cloud: SimCloud, claim: str) -> None:
    found = sim.object(NODECLAIMS, claim)
    assert found is not None
    cloud.drift[found["status"]["providerID"]] = "ImageDrift"
    look = {"metadata": {"annotations": {"example.com/look": "1"}}}
    await sim.api.write(Patch(NODECLAIMS, claim, look))


def _claim(name: str) -> dict[str, Any]:
    return node_claim(name, requirements=[OF_FOUR], resources={"requests": {"cpu": "3"}})


def _account(sim: SimCluster, cloud: SimCloud, witness: Witness) -> Account:
    now = sim.clock.now()
    return {
        "wrong": witness.wrong,
        "claims": sorted(
            sorted((each["type"], each["status"], each["reason"]) for each in claim["status"]["conditions"])
            for claim in sim.objects(NODECLAIMS)
        ),
        "records": [c for c in sim.objects(NODECLAIMS) if names.DISRUPTION_COMMAND in c["metadata"]["annotations"]],
        "taints": Counter(_tainted(node) for node in sim.objects(NODES)),
        "running machines": sum(not machine.gone(now) for machine in cloud.machines.values()),
        "ready": len(sim.pods(app="web", ready=True)),
    }


async def _live(
    sim: SimCluster, cloud: SimCloud, shape: Shape, lives: list[Life], *, crash: CrashPoint | None, begun: asyncio.Event
) -> None:
    while True:
        life = Life(crash if not lives else None)
        lives.append(life)
        task = asyncio.create_task(_process(sim, cloud, shape, life, begun))
        died = asyncio.create_task(life.died.wait())
        try:
            await asyncio.wait((task, died), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
                raise AssertionError("the controllers ended by themselves")
        finally:
            task.cancel()
            died.cancel()
            await asyncio.wait((task,))
        await sim.clock.sleep(DOWN_SECONDS)


async def _process(sim: SimCluster, cloud: SimCloud, shape: Shape, life: Life, begun: asyncio.Event) -> None:
    api = MortalApi(sim.server.client(names.COMPONENT), life)
    provider = MortalCloud(cloud, life)
    cluster = WatchedCluster(api, sim.clock, provider.node_classes)
    made = parts(cluster, provider, Metrics(CollectorRegistry()), Timings())
    manager = Manager(
        api,
        sim.clock,
        election=None,
        recorder=EventRecorder(api, sim.clock, instance="test"),
        reflectors=cluster.reflectors,
        controllers=[*made.controllers, Decider(cluster, made, shape, begun)],
        timings=ManagerTimings(heartbeat_seconds=3600.0),
    )
    await manager.run(asyncio.Event())


SHAPES: Sequence[Shape] = (
    Shape(claims=("a",), replacements=1, method=Method.DRIFT),
    Shape(claims=("a", "b"), replacements=2, method=Method.DRIFT),
    Shape(claims=("a", "b"), replacements=0, method=Method.EMPTINESS),
    Shape(claims=("a",), replacements=1, method=Method.DRIFT, launches=(Launch(registers=False),)),
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_crash_point(shape: Shape, record_property: Callable[[str, object], None]) -> None:
    undisturbed = live_through(shape, None)
    assert undisturbed.account["wrong"] == []
    assert undisturbed.account["running machines"] == shape.replacements
    ends = [f"delete nodeclaims {name}" for name in shape.claims]  # what comes after is the drain's matter
    last = max(number for number, write in enumerate(undisturbed.writes, 1) if write in ends)
    points = crash_points(last)
    different = {}
    for point in points:
        ending = live_through(shape, point)
        if ending.account != undisturbed.account:
            different[f"{point}: {ending.writes[point.write - 1]}"] = ending.account
    record_property(CRASH_POINTS, len(points))
    assert not different, (undisturbed.account, different)
