"""What runs, from when, and how it ends."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from dovetail.ports import LEASES, NODES, ApiError, Create, Forbidden, Unavailable
from dovetail.runtime.events import Event, EventRecorder, ObjectReference
from dovetail.runtime.lease import Election, FencedApi, LeaseLost, wait_until_alone
from dovetail.runtime.manager import Context, Manager, NotStopped, PartFailed
from dovetail.runtime.reflector import Reflector
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.faults import Fault
from tests.harness.builders import at
from tests.harness.stage import gives, stage

START = at("2026-03-01T00:00:00Z")
NAME = "karpenter-leader-election"


class Part:
    """A controller made of a function."""

    def __init__(self, name: str, run: Callable[[Context], Awaitable[None]]) -> None:
        self.name = name
        self._run = run

    async def run(self, context: Context) -> None:
        await self._run(context)


async def idle(context: Context) -> None:
    await context.stopping.wait()


class World:
    """A program with one reflector and the controllers given."""

    def __init__(self, clock: VirtualClock, *, server: ApiServer | None = None, identity: str = "us") -> None:
        self.clock = clock
        self.server = server or ApiServer(clock)
        self.election = Election(self.server, clock, namespace="default", name=NAME, identity=identity)
        self.reflector = Reflector(self.server, clock, NODES, lambda node: node.metadata.name)
        self.recorder = EventRecorder(FencedApi(self.server, self.election.fence), clock, instance=identity)
        self.stop = asyncio.Event()
        self.log: list[tuple[float, str]] = []

    def manager(
        self, *controllers: Part, elects: bool = True, clearance: Callable[[], Awaitable[None]] | None = None
    ) -> Manager:
        return Manager(
            self.server,
            self.clock,
            election=self.election if elects else None,
            recorder=self.recorder,
            reflectors=[self.reflector],
            controllers=controllers,
            clearance=clearance,
        )

    def part(self, name: str, *, stops_after_seconds: float = 0.0) -> Part:
        async def run(context: Context) -> None:
            self.say(f"{name} begins")
            await context.stopping.wait()
            await self.clock.sleep(stops_after_seconds)
            self.say(f"{name} ends")

        return Part(name, run)

    def say(self, words: str) -> None:
        self.log.append((self.clock.monotonic(), words))

    def holder(self) -> str | None:
        holder: str | None = self.server.registry.get(LEASES, NAME, "default").body["spec"].get("holderIdentity")
        return holder

    async def stop_after(self, seconds: float) -> None:
        await self.clock.sleep(seconds)
        self.stop.set()


@gives("world")
def play(scene: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        await scene(World(clock))

    simulate(main, start=START)


pytestmark = stage(play)


async def run_for(world: World, manager: Manager, seconds: float) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(world.stop_after(seconds))
        await manager.run(world.stop)


async def test_controllers_begin_when_synced_and_end_in_order(world: World) -> None:
    world.server.faults.add(Fault(delay_seconds=20), verb="list")

    async def talk(context: Context) -> None:
        await context.stopping.wait()
        await context.clock.sleep(5)
        context.recorder.publish(
            Event(regarding=ObjectReference("v1", "Node", "a", "u"), reason="R", note="last words")
        )

    manager = world.manager(world.part("one", stops_after_seconds=3), world.part("two"), Part("talks", talk))
    assert manager.readiness().problems == ("nodes is not synced",)
    await run_for(world, manager, 50)
    assert world.log == [(20, "one begins"), (20, "two begins"), (50, "two ends"), (53, "one ends")]
    assert manager.readiness().ok
    assert world.recorder.counts.sent == 1
    assert world.holder() is None
    assert not manager.is_leader
    last = [line.split()[1:3] for line in world.server.trace[-2:]]
    assert last == [["create", "events.events.k8s.io"], ["patch", "leases.coordination.k8s.io"]]


async def test_one_failure_ends_everything_with_its_error(world: World) -> None:
    async def fail(context: Context) -> None:
        await context.clock.sleep(30)
        raise ZeroDivisionError("oops")

    with pytest.raises(PartFailed, match=r"bad has failed: ZeroDivisionError\('oops'\)") as caught:
        await world.manager(world.part("good"), Part("bad", fail)).run(world.stop)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert world.clock.monotonic() == 30
    # Cut off in the middle: the lease is not given back, but runs out.
    assert world.holder() == "us"
    assert [other for other in asyncio.all_tasks() if other is not asyncio.current_task()] == []


async def test_a_controller_that_ends_by_itself_is_a_failure(world: World) -> None:
    async def end(_context: Context) -> None:
        return

    with pytest.raises(PartFailed, match="brief has ended without being asked to"):
        await world.manager(world.part("good"), Part("brief", end)).run(world.stop)


async def test_a_failing_reflector_ends_everything(world: World) -> None:
    def fail(_change: object) -> None:
        raise ZeroDivisionError

    world.reflector.store.subscribe(fail)
    with pytest.raises(PartFailed, match="nodes has failed"):
        await world.manager(Part("idle", idle)).run(world.stop)


async def test_losing_the_lease_ends_everything(world: World) -> None:
    ended_at: list[float] = []

    async def stubborn(context: Context) -> None:
        try:
            await context.clock.sleep(1e6)
        finally:
            ended_at.append(context.clock.monotonic())
            with pytest.raises(Forbidden):
                await context.api.write(Create(NODES, {"metadata": {"name": "late"}}))

    world.server.faults.add(Fault(error=Unavailable("down")), resource=LEASES, verb="patch", times=1_000_000)
    with pytest.raises(LeaseLost, match=r"not renewed within 10.0 s"):
        await world.manager(Part("stubborn", stubborn)).run(world.stop)
    assert 9.9 < ended_at[0] < 10.1


async def test_who_does_not_stop_is_cancelled_and_named(world: World) -> None:
    async def deaf(context: Context) -> None:
        await context.clock.sleep(1e6)

    manager = world.manager(world.part("good"), Part("deaf", deaf))
    with pytest.raises(ExceptionGroup) as caught:
        await run_for(world, manager, 10)
    assert caught.group_contains(NotStopped, match=r"did not stop within 20.0 s: deaf$")
    assert world.clock.monotonic() == 30
    assert world.holder() == "us"


async def test_events_that_cannot_be_sent_do_not_hold_up_the_end(world: World) -> None:
    async def talk(context: Context) -> None:
        await context.stopping.wait()
        context.recorder.publish(Event(regarding=ObjectReference("v1", "Node", "a", "u"), reason="R", note="n"))

    world.server.faults.add(
        Fault(delay_seconds=1e6),
        verb="create",
        times=1000,
        name=None,
        when=lambda request: request.resource.plural == "events",
    )
    await run_for(world, world.manager(Part("talks", talk)), 10)
    assert world.clock.monotonic() <= 31
    assert world.holder() is None


async def test_a_candidate_that_is_stopped_just_ends(world: World) -> None:
    other = World(world.clock, server=world.server, identity="other")
    async with asyncio.TaskGroup() as group:
        group.create_task(run_for(other, other.manager(other.part("theirs")), 100))
        await world.clock.sleep(1)
        manager = world.manager(world.part("ours"))
        group.create_task(run_for(world, manager, 50))
        await world.clock.sleep(30)
        # Ready, though it does not lead.
        assert manager.readiness().ok
        assert not manager.is_leader
    assert world.log == []
    assert world.clock.monotonic() == 100


async def test_without_clearance_nobody_stands_for_election(world: World) -> None:
    async def other() -> None:
        rival = Election(world.server, world.clock, namespace="kube-system", name=NAME, identity="karpenter-1")
        await rival.run(lambda: world.clock.sleep(100))

    manager = world.manager(
        world.part("ours"),
        clearance=lambda: wait_until_alone(world.server, world.clock, namespace="default", name=NAME),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(other())
        await world.clock.sleep(1)
        group.create_task(run_for(world, manager, 200))
        await world.clock.sleep(90)
        assert manager.readiness().ok
        assert world.log == []
    assert [words for _, words in world.log] == ["ours begins", "ours ends"]
    assert 100 < world.log[0][0] < 105


async def test_stopping_before_anything_is_synced(world: World) -> None:
    world.server.faults.add(Fault(error=Unavailable("down")), verb="list", times=1_000_000)
    await run_for(world, world.manager(world.part("one")), 100)
    assert world.log == []
    assert world.clock.monotonic() == 100


async def test_being_unsynced_for_long_is_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.server.faults.add(Fault(error=Unavailable("down")), verb="list", times=1_000_000)
    await run_for(world, world.manager(world.part("one")), 55)
    said = [record for record in caplog.records if "nothing is done yet: nodes is not synced" in record.getMessage()]
    assert len(said) == 3


async def test_without_an_election_there_is_no_fence(world: World) -> None:
    async def write(context: Context) -> None:
        await context.api.write(Create(NODES, {"metadata": {"name": "a"}}))
        await context.stopping.wait()

    manager = world.manager(Part("writes", write), elects=False)
    assert manager.is_leader
    await run_for(world, manager, 5)
    assert (await world.server.get(NODES, "a")).metadata.name == "a"
    with pytest.raises(ApiError):
        await world.server.get(LEASES, NAME, namespace="default")


@stage(simulate, start=START, gives=("clock",))
async def test_a_stuck_loop_is_not_alive(clock: VirtualClock) -> None:
    class JumpingClock(VirtualClock):
        jump = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.jump

    jumping = JumpingClock(asyncio.get_running_loop())  # type: ignore[arg-type]
    del clock
    world = World(jumping)
    manager = world.manager(world.part("one"), elects=False)
    async with asyncio.TaskGroup() as group:
        group.create_task(run_for(world, manager, 100))
        await jumping.sleep(10.5)
        assert manager.liveness().ok
        # As if something had computed for that long without a pause.
        jumping.jump = 45
        assert manager.liveness().problems == ("the event loop has been stuck for 46 s",)
        await jumping.sleep(2)
        assert manager.liveness().ok
        assert 44 < manager.slowest_beat_seconds < 46


@stage(simulate, start=START, gives=("clock",))
async def test_who_has_no_namespace_for_the_lease_is_not_ready_and_stops_when_told(clock: VirtualClock) -> None:
    world = World(clock)
    world.election = Election(world.server, clock, namespace="nonexist", name=NAME, identity="us")
    manager = world.manager(world.part("a"))
    task = asyncio.create_task(manager.run(world.stop))
    await clock.sleep(60)
    health = manager.readiness()
    assert not health.ok
    assert "namespace nonexist does not exist" in health.problems[0]
    assert world.log == []
    world.stop.set()
    await task
