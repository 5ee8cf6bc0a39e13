"""Errors that nobody expects: who is told, and what goes on."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from dovetail.ports import NODES, Create, Resource
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.failures import RESTARTS, SOUND_SECONDS, Failures
from dovetail.runtime.manager import Context, Manager
from dovetail.runtime.reflector import Reflector
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.watching import SimWatch
from dovetail.state.store import Added, Change
from tests.harness.builders import at
from tests.harness.stage import gives, stage
from tests.unit.runtime.test_manager import Part, idle

T = TypeVar("T")

START = at("2026-03-01T00:00:00Z")


def fail() -> None:
    raise KeyError("name")


def failed() -> Exception:
    try:
        fail()
    except KeyError as error:
        return error
    raise AssertionError


def test_an_error_is_raised_unless_errors_are_tolerated() -> None:
    error = failed()
    with pytest.raises(KeyError) as caught:
        Failures().take("disruption", error)
    assert caught.value is error


def test_an_error_is_counted_every_time_and_its_traceback_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures(tolerated=True)
    for part in ("disruption", "disruption", "provisioner"):
        failures.take(part, ExceptionGroup("tasks", [failed()]), doing="node-1")
    assert failures.counts == {"disruption": 2, "provisioner": 1}
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert [record.exc_info is not None for record in caplog.records] == [True, False, True]
    assert caplog.messages[1].startswith("disruption node-1 has failed at tests.unit.runtime.test_failures:")
    assert caplog.messages[1].endswith("and is tried again: KeyError('name')")


# -- parts of the program ----------------------------------------------------------------------------------------------


class World:
    """A program whose failures are tolerated."""

    def __init__(self, clock: VirtualClock, server: ApiServer) -> None:
        self.clock = clock
        self.server = server
        self.failures = Failures(tolerated=True)
        self.reflector = Reflector(
            self.server, clock, NODES, lambda node: node.metadata.labels["kept"], failures=self.failures
        )
        self.recorder = EventRecorder(self.server, clock, instance="us")
        self.stop = asyncio.Event()

    async def run(self, *controllers: Part, seconds: float) -> None:
        manager = Manager(
            self.server,
            self.clock,
            election=None,
            recorder=self.recorder,
            reflectors=[self.reflector],
            controllers=controllers,
            failures=self.failures,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run(self.stop))
            await self.clock.sleep(seconds)
            self.stop.set()


@gives("world")
def play(scene: Callable[[World], Coroutine[Any, Any, None]], server: type[ApiServer] = ApiServer) -> None:
    async def main(clock: VirtualClock) -> None:
        await scene(World(clock, server(clock)))

    simulate(main, start=START)


pytestmark = stage(play)


async def test_a_controller_that_fails_is_started_again_after_a_back_off_and_the_others_go_on(world: World) -> None:
    begun: list[float] = []
    beats: list[float] = []

    async def bad(context: Context) -> None:
        begun.append(context.clock.monotonic())
        fail()

    async def good(context: Context) -> None:
        while not context.stopping.is_set():
            beats.append(context.clock.monotonic())
            await context.clock.sleep(60)

    await world.run(Part("bad", bad), Part("good", good), seconds=600)
    pauses = [later - earlier for earlier, later in pairwise(begun)]
    for number, pause in enumerate(pauses, 1):
        longest = min(RESTARTS.cap_seconds, RESTARTS.first_seconds * 2 ** (number - 1))
        assert longest * (1 - RESTARTS.jitter) <= pause <= longest
    assert len(pauses) > 10
    assert len(beats) == 10
    assert world.failures.counts == {"bad": len(begun)}


async def test_the_back_off_is_short_again_after_a_long_time_without_an_error(world: World) -> None:
    begun: list[float] = []

    async def bad(context: Context) -> None:
        begun.append(context.clock.monotonic())
        if len(begun) == 8:
            await idle(context)
        else:
            await context.clock.sleep(SOUND_SECONDS if len(begun) > 5 else 0)
            fail()

    await world.run(Part("bad", bad), seconds=3 * SOUND_SECONDS)
    assert begun[4] - begun[3] > 4 * RESTARTS.first_seconds
    assert begun[7] - begun[6] - SOUND_SECONDS <= RESTARTS.first_seconds


async def test_a_controller_that_waits_to_be_started_again_does_not_hold_up_the_end(world: World) -> None:
    async def bad(_context: Context) -> None:
        fail()

    await world.run(Part("bad", bad), Part("idle", idle), seconds=300)
    assert world.clock.monotonic() == 300


async def test_a_subscriber_that_fails_keeps_nothing_from_the_others(world: World) -> None:
    told: list[str] = []

    def bad(_change: Change[str]) -> None:
        fail()

    def good(change: Change[str]) -> None:
        if isinstance(change, Added):
            told.append(change.new.value)

    world.reflector.store.subscribe(bad)
    world.reflector.store.subscribe(good)
    await put(world, "n1", kept="one")
    async with asyncio.TaskGroup() as group:
        group.create_task(world.run(Part("idle", idle), seconds=60))
        await world.clock.sleep(10)
        await put(world, "n2", kept="two")
    assert told == ["one", "two"]
    assert world.failures.counts["nodes"] == 3  # two Nodes, and that the list is complete


async def test_an_object_that_cannot_be_kept_is_left_out_and_the_others_are_not(world: World) -> None:
    await put(world, "n1")
    await put(world, "n2", kept="two")
    await world.run(Part("idle", idle), seconds=60)
    assert [kept.value for kept in world.reflector.store.snapshot().items.values()] == ["two"]
    assert (world.failures.counts["nodes"], world.reflector.undecodable) == (1, 1)


class FailsOnce(ApiServer):
    """Its first watch of Nodes fails in a way that no server does."""

    failed = False

    def watch(self, resource: Resource[T], **options: Any) -> SimWatch[T]:
        if not self.failed:
            self.failed = True
            fail()
        return super().watch(resource, **options)


@stage(play, FailsOnce)
async def test_a_reflector_that_fails_lists_again_and_says_nothing_twice(world: World) -> None:
    told: list[Change[str]] = []
    world.reflector.store.subscribe(told.append)
    await put(world, "n1", kept="one")
    async with asyncio.TaskGroup() as group:
        group.create_task(world.run(Part("idle", idle), seconds=60))
        await world.clock.sleep(30)
        await put(world, "n2", kept="two")
    assert [change.new.value for change in told if isinstance(change, Added)] == ["one", "two"]
    assert world.failures.counts == {"nodes": 1}


def put(world: World, name: str, **labels: str) -> Coroutine[Any, Any, Any]:
    return world.server.write(Create(NODES, {"metadata": {"name": name, "labels": labels}}))
