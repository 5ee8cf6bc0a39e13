"""The reflector against the simulated API server: gaps, broken watches, compaction, and objects nobody can read."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import msgspec
import pytest

from dovetail.api.objects import Node, ObjectMeta
from dovetail.ports import NODES, ApiError, Create, Delete, Gone, InternalError, Patch, TooManyRequests, Unavailable
from dovetail.runtime.reflector import EVENTS_IN_A_ROW, Reflector, ReflectorTimings
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.faults import Fault
from dovetail.state.store import Added, Change, Deleted, Synced, Updated
from tests.harness.builders import at
from tests.harness.stage import PARAMETER, gives, stage

START = at("2026-03-01T00:00:00Z")
NODES_THERE = 2 * EVENTS_IN_A_ROW + 88


def keep(node: Node) -> str:
    return node.metadata.labels.get("v", "")


class Scene:
    """A server, a reflector of its nodes, and a subscriber that rebuilds the nodes from the changes alone."""

    def __init__(self, clock: VirtualClock, *, seed: int = 0, timings: ReflectorTimings | None = None) -> None:
        self.clock = clock
        self.server = ApiServer(clock, seed=seed)
        self.reflector: Reflector[Node, str] = Reflector(
            self.server, clock, NODES, keep, seed=seed, timings=timings or ReflectorTimings()
        )
        self.changes: list[Change[str]] = []
        self.rebuilt: dict[str, tuple[str, str]] = {}
        self.reflector.store.subscribe(self.notice)

    def notice(self, change: Change[str]) -> None:
        self.changes.append(change)
        match change:
            case Added(key=(_, name), new=new):
                assert name not in self.rebuilt
                self.rebuilt[name] = (new.uid, new.value)
            case Updated(key=(_, name), old=old, new=new):
                assert self.rebuilt[name] == (old.uid, old.value)
                self.rebuilt[name] = (new.uid, new.value)
            case Deleted(key=(_, name), old=old):
                assert self.rebuilt.pop(name) == (old.uid, old.value)

    async def add(self, name: str, value: str = "0") -> None:
        await self.server.write(Create(NODES, {"metadata": {"name": name, "labels": {"v": value}}}))

    async def change(self, name: str, value: str) -> None:
        await self.server.write(Patch(NODES, name, {"metadata": {"labels": {"v": value}}}))

    async def delete(self, name: str) -> None:
        await self.server.write(Delete(NODES, name))

    def truth(self) -> dict[str, tuple[str, str]]:
        stored = self.server.registry.store.collection(NODES).objects
        return {
            name: (each.body["metadata"]["uid"], each.body["metadata"]["labels"]["v"])
            for (_, name), each in stored.items()
        }

    def check(self) -> None:
        """What the reflector has, what it told, and what the server has are all the same."""
        had = {name: (kept.uid, kept.value) for (_, name), kept in self.reflector.store.snapshot().items.items()}
        assert had == self.truth()
        assert self.rebuilt == had

    def kinds_since(self, position: int) -> list[str]:
        return [type(change).__name__ for change in self.changes[position:]]


@gives("world")
def play(
    scene: Callable[[Scene], Coroutine[Any, Any, None]],
    *,
    seed: int | None = None,
    timings: ReflectorTimings | None = None,
) -> None:
    async def main(clock: VirtualClock) -> None:
        world = Scene(clock, seed=seed or 0, timings=timings)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(world.reflector.run())
            await scene(world)
            running.cancel()
        assert world.server.open_watches == {}

    simulate(main, start=START, seed=seed)


pytestmark = stage(play)


async def test_the_first_list_and_the_watch_after_it(world: Scene) -> None:
    await world.add("a")
    assert not world.reflector.synced
    await world.reflector.wait_synced()
    assert world.kinds_since(0) == ["Added", "Synced"]
    await world.add("b")
    await world.change("a", "1")
    await world.delete("b")
    await world.clock.sleep(1)
    assert world.kinds_since(2) == ["Added", "Updated", "Deleted"]
    world.check()
    # The reflector starts when the scene first waits, which is after the node is there.


async def test_many_pages_are_one_list(world: Scene) -> None:
    for number in range(1201):
        await world.add(f"n{number}")
    reader: Reflector[Node, str] = Reflector(world.server, world.clock, NODES, keep)
    seen: list[int] = []
    reader.store.subscribe(lambda _change: seen.append(len(reader.store.snapshot().items)))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(reader.run())
        await reader.wait_synced()
        running.cancel()
    # Whenever a subscriber looks, the list is whole.
    assert set(seen) == {1201}


async def test_the_first_list_is_told_in_turns_and_synced_in_the_last(world: Scene) -> None:
    for number in range(NODES_THERE):
        await world.add(f"n{number}")
    reader: Reflector[Node, str] = Reflector(world.server, world.clock, NODES, keep)
    told: list[Change[str]] = []
    seen: list[tuple[int, int, bool]] = []

    def look() -> None:
        seen.append((len(told), len(reader.store.snapshot().items), reader.synced))

    def notice(change: Change[str]) -> None:
        told.append(change)
        asyncio.get_running_loop().call_soon(look)  # when the reflector gives way

    reader.store.subscribe(notice)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(reader.run())
        await reader.wait_synced()
        await world.clock.sleep(1)
        running.cancel()
    # All are there before the first is told, and it is synced when the last is.
    slices = [(EVENTS_IN_A_ROW, NODES_THERE, False), (2 * EVENTS_IN_A_ROW, NODES_THERE, False)]
    assert sorted(set(seen)) == [*slices, (NODES_THERE + 1, NODES_THERE, True)]
    assert [type(change) for change in told] == [Added] * NODES_THERE + [Synced]


async def test_a_later_list_is_told_in_one_turn(world: Scene) -> None:
    """Whoever relies on the cache never meets a part of it."""
    for number in range(NODES_THERE):
        await world.add(f"n{number}")
    await world.clock.sleep(5)
    seen: set[int] = set()

    def notice(_change: Change[str]) -> None:
        asyncio.get_running_loop().call_soon(lambda: seen.add(len(world.rebuilt)))

    world.reflector.store.subscribe(notice)
    world.server.faults.add(Fault(error=Unavailable("down")), verb="watch", times=4)
    world.server.drop_watches(error=Unavailable("down"))
    for number in range(NODES_THERE):
        await world.delete(f"n{number}")
    for number in range(2 * NODES_THERE):
        await world.add(f"m{number}")
    world.server.compact()
    await world.clock.sleep(120)
    assert world.reflector.relists == 1
    assert seen == {2 * NODES_THERE}
    world.check()


async def test_deletions_in_a_gap_are_seen(world: Scene) -> None:
    for name in ("kept", "gone", "reborn", "changed"):
        await world.add(name)
    await world.clock.sleep(5)
    position = len(world.changes)
    world.server.faults.add(Fault(error=Unavailable("down")), verb="watch", times=4)
    world.server.drop_watches(error=Unavailable("down"))
    await world.delete("gone")
    await world.delete("reborn")
    await world.add("reborn", "new")
    await world.change("changed", "1")
    world.server.compact()
    await world.clock.sleep(120)
    assert sorted(world.kinds_since(position)) == ["Added", "Deleted", "Deleted", "Synced", "Updated"]
    world.check()


async def test_a_break_without_compaction_needs_no_list(world: Scene) -> None:
    await world.add("a")
    await world.clock.sleep(5)
    world.server.drop_watches(error=Unavailable("down"))
    await world.delete("a")
    await world.add("b")
    await world.clock.sleep(60)
    assert world.reflector.relists == 0
    world.check()


async def test_bookmarks_outlive_a_compaction(world: Scene) -> None:
    await world.reflector.wait_synced()
    # Other kinds move the version on; a bookmark takes the reflector along.
    for number in range(10):
        await world.server.write(
            Create(NODES.read_as(dict[str, Any]), {"metadata": {"name": f"x{number}", "labels": {"v": ""}}})
        )
    await world.clock.sleep(200)
    world.server.compact()
    world.server.drop_watches()
    await world.clock.sleep(10)
    assert world.reflector.relists == 0
    world.check()


@pytest.mark.parametrize(
    "error", [Unavailable("down"), InternalError("500"), TooManyRequests("busy", retry_after=3), Gone("too old")]
)
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_errors_are_waited_out(world: Scene, error: ApiError, verb: str) -> None:
    world.server.faults.add(Fault(error=error), verb=verb, times=12)
    await world.add("a")
    await world.clock.sleep(600)
    world.check()
    assert world.reflector.failures == 12
    # Not a hammer: the waits double to half a minute or so.
    assert world.reflector.synced


async def test_an_outage_is_not_answered_with_a_storm(world: Scene) -> None:
    await world.reflector.wait_synced()
    world.server.faults.add(Fault(error=Unavailable("down")), times=1_000_000)
    world.server.drop_watches(error=Unavailable("down"))
    await world.clock.sleep(3600)
    assert 100 < world.reflector.failures < 300
    world.server.faults.clear()
    await world.add("a")
    await world.clock.sleep(60)
    world.check()


async def test_a_silent_watch_is_given_up(world: Scene) -> None:
    await world.reflector.wait_synced()
    # The connection is there, but nothing comes over it.
    world.server.faults.add(Fault(delay_seconds=1e6), verb="watch", times=1)
    world.server.drop_watches()
    await world.clock.sleep(1)
    await world.add("a")
    await world.clock.sleep(160)
    world.check()


async def test_a_version_with_which_the_server_stays_silent_is_given_up_too(world: Scene) -> None:
    await world.reflector.wait_synced()
    world.server.faults.add(Fault(delay_seconds=1e6), verb="watch", times=5)
    world.server.drop_watches()
    await world.clock.sleep(5 * 180)
    assert world.reflector.relists == 1


async def test_the_server_is_given_the_time_it_asks_for(world: Scene) -> None:
    world.server.faults.add(Fault(error=TooManyRequests("busy", retry_after=25)), verb="list")
    await world.reflector.wait_synced()
    assert world.clock.monotonic() == 25


async def test_a_list_that_hangs_is_given_up(world: Scene) -> None:
    world.server.faults.add(Fault(delay_seconds=1e6), verb="list", times=1)
    await world.add("a")
    await world.clock.sleep(70)
    world.check()


async def test_watches_that_end_at_once_are_not_begun_in_a_loop(world: Scene) -> None:
    await world.reflector.wait_synced()
    began_at = world.clock.monotonic()
    ended = 0
    while world.clock.monotonic() < began_at + 600:
        ended += bool(world.server.open_watches)
        world.server.drop_watches()
        await world.clock.sleep(0.01)
    assert ended < 60


async def test_watches_end_by_their_timeout_and_nothing_is_missed(world: Scene) -> None:
    for number in range(50):
        await world.add(f"n{number}")
        await world.clock.sleep(97)
    world.check()
    assert world.reflector.relists == 0
    assert world.reflector.failures == 0


async def test_what_cannot_be_kept_is_counted_and_stops_nothing(world: Scene) -> None:
    def value(node: Node) -> int:
        return int(node.metadata.labels["v"])

    picky: Reflector[Node, int] = Reflector(world.server, world.clock, NODES, value)

    def values() -> dict[str, int]:
        return {name: kept.value for (_, name), kept in picky.store.snapshot().items.items()}

    await world.add("bad", "x")
    await world.add("good", "1")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(picky.run())
        await picky.wait_synced()
        assert values() == {"good": 1}
        assert picky.undecodable == 1
        await world.change("good", "y")
        await world.add("other", "2")
        await world.clock.sleep(1)
        # What was known of it stays.
        assert values() == {"good": 1, "other": 2}
        assert picky.undecodable == 2
        await world.delete("good")
        await world.clock.sleep(1)
        assert values() == {"other": 2}
        running.cancel()


class NumberedSpec(msgspec.Struct, frozen=True, rename="camel"):
    pod_cidr: int = msgspec.field(default=0, name="podCIDR")


class Numbered(msgspec.Struct, frozen=True):
    """A node as somebody might misread it: a node with a podCIDR cannot be decoded."""

    metadata: ObjectMeta
    spec: NumberedSpec = NumberedSpec()


async def test_what_cannot_be_decoded_is_not_taken_for_deleted(world: Scene) -> None:
    picky = Reflector(world.server, world.clock, NODES.read_as(Numbered), lambda node: node.metadata.name)

    def known() -> set[str]:
        return {kept.value for kept in picky.store.snapshot().items.values()}

    for name in ("a", "b", "c"):
        await world.add(name)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(picky.run())
        await picky.wait_synced()
        await world.server.write(Patch(NODES, "a", {"spec": {"podCIDR": "10.0.0.0/24"}}))
        await world.clock.sleep(1)
        assert (known(), picky.undecodable) == ({"a", "b", "c"}, 1)
        world.server.drop_watches(error=Gone("too old"))
        await world.delete("b")
        world.server.compact()
        await world.clock.sleep(10)
        assert picky.relists == 1
        assert "a" in known()
        # When it can be read again, or is deleted, everything is exact again.
        await world.delete("a")
        await world.clock.sleep(10)
        assert known() == {"c"}
        running.cancel()


async def test_snapshots_do_not_change(world: Scene) -> None:
    await world.add("a")
    await world.reflector.wait_synced()
    before = world.reflector.store.snapshot()
    assert world.reflector.store.snapshot() is before
    await world.change("a", "1")
    await world.delete("a")
    await world.clock.sleep(1)
    assert [kept.value for kept in before.items.values()] == ["0"]
    assert dict(world.reflector.store.snapshot().items) == {}


@stage(simulate, start=START, gives=("clock",))
async def test_an_error_of_a_subscriber_comes_out(clock: VirtualClock) -> None:
    world = Scene(clock)
    await world.add("a")

    def fail(_change: Change[str]) -> None:
        raise ZeroDivisionError

    world.reflector.store.subscribe(fail)
    with pytest.raises(ZeroDivisionError):
        await world.reflector.run()


@pytest.mark.parametrize("seed", range(40))
@stage(seed=PARAMETER)
async def test_whatever_breaks_it_ends_with_the_servers_state(world: Scene, seed: int) -> None:
    """Writes, broken watches, compactions and failures in any order; then peace."""
    chance = Random(seed)
    errors: list[ApiError] = [Unavailable("down"), Gone("too old"), InternalError("500"), ApiError("?")]
    for _ in range(300):
        name = f"n{chance.randrange(12)}"
        exists = name in world.truth()
        match chance.randrange(12):
            case 0 | 1 | 2 | 3 if not exists:
                await world.add(name, str(chance.random()))
            case 0 | 1 if exists:
                await world.delete(name)
            case 2 | 3 | 4 | 5 if exists:
                await world.change(name, str(chance.random()))
            case 6:
                world.server.drop_watches(error=chance.choice([None, *errors]))
            case 7:
                world.server.compact()
            case 8:
                fault = Fault(error=chance.choice(errors), delay_seconds=chance.choice([0, 0, 5, 100]))
                verb = chance.choice(["list", "watch"])
                world.server.faults.add(fault, verb=verb, times=chance.randrange(1, 4))
            case _:
                await world.clock.sleep(chance.choice([0.01, 0.3, 2, 30]))
        if chance.random() < 0.3:
            await world.clock.sleep(chance.choice([0, 0, 0.5, 10]))
    world.server.faults.clear()
    await world.clock.sleep(300)
    world.check()
    assert sum(isinstance(change, Synced) for change in world.changes) == world.reflector.relists + 1
