"""What does a watch of the simulated API server tell, in which order, and how does it end?"""

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.ports import NODES, PODS, Create, Delete, EventType, Gone, InternalError, Invalid, Patch, Unavailable
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.faults import Fault
from tests.harness.stage import PARAMETER, stage
from tests.unit.sim.test_api_server import CONFIGMAPS, NOW, RAW_PODS, START, pod, run

pytestmark = stage(run)

BOOKMARK = EventType.BOOKMARK


async def collected(server: ApiServer, version: str, **options: Any) -> list[tuple[str, str]]:
    """All events of a watch until it ends, bookmarks left out."""
    events = []
    async for event in server.watch(RAW_PODS, resource_version=version, **options):
        if event.object is not None:
            events.append((str(event.type), event.object["metadata"]["name"]))
            assert event.object["metadata"]["resourceVersion"] == event.resource_version
    return events


async def version_of(server: ApiServer) -> str:
    return (await server.list(PODS)).resource_version


async def label(server: ApiServer, name: str, value: str | None) -> None:
    await server.write(Patch(PODS, name, {"metadata": {"labels": {"tier": value}}}, namespace="default"))


@pytest.mark.parametrize("seed", [None, 4])
@stage(seed=PARAMETER)
async def test_changes_after_the_version_are_told_in_order(server: ApiServer) -> None:
    await server.write(Create(PODS, pod("old"), namespace="default"))
    version = await version_of(server)
    watching = asyncio.create_task(collected(server, version, timeout_seconds=10))
    await server.write(Create(PODS, pod("a"), namespace="default"))
    await label(server, "a", "web")
    await label(server, "a", "web")  # changes nothing
    await server.write(Delete(PODS, "a", namespace="default"))
    told = [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert await watching == told


async def test_a_watch_can_be_resumed_anywhere_in_the_window(server: ApiServer) -> None:
    versions = [await version_of(server)]
    for name in "abc":
        await server.write(Create(PODS, pod(name), namespace="default"))
        versions.append(await version_of(server))
    for number, version in enumerate(versions):
        told = await collected(server, version, timeout_seconds=5)
        assert [name for _, name in told] == list("abc")[number:]


async def test_without_a_version_what_is_there_comes_first(server: ApiServer) -> None:
    for name in "ba":
        await server.write(Create(PODS, pod(name), namespace="default"))
    watching = asyncio.create_task(collected(server, "0", timeout_seconds=5))
    await asyncio.sleep(1)
    await server.write(Create(PODS, pod("c"), namespace="default"))
    assert await watching == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


async def test_a_selecting_watch_sees_objects_come_and_go(server: ApiServer) -> None:
    version = await version_of(server)
    web = asyncio.create_task(collected(server, version, labels="tier=web", timeout_seconds=9))
    other = asyncio.create_task(collected(server, version, fields="metadata.name=b", timeout_seconds=9))
    await server.write(Create(PODS, pod("a"), namespace="default"))
    await server.write(Create(PODS, pod("b"), namespace="default"))
    for value in ("web", "web2", "web", None):
        await label(server, "a", value)
    await label(server, "b", "web")
    await server.write(Delete(PODS, "b", namespace="default"))
    assert await web == [
        *[("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a"), ("DELETED", "a")],
        *[("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")],
    ]
    assert await other == [("ADDED", "b"), ("MODIFIED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]


async def test_an_object_that_stops_matching_is_shown_as_it_was(server: ApiServer) -> None:
    await server.write(Create(PODS, pod("a", labels={"tier": "web"}), namespace="default"))
    watch = server.watch(RAW_PODS, resource_version=await version_of(server), labels="tier=web")
    await label(server, "a", "db")
    event = await anext(watch)
    assert event.object is not None
    assert (event.type, event.object["metadata"]["labels"]) == (EventType.DELETED, {"tier": "web"})
    await watch.aclose()


async def test_a_deleted_object_is_shown_at_the_version_of_its_deletion(server: ApiServer) -> None:
    await server.write(Create(NODES, {"metadata": {"name": "n"}}))
    before = int((await server.list(NODES)).resource_version)
    watch = server.watch(NODES, resource_version=str(before))
    await server.write(Delete(NODES, "n"))
    event = await anext(watch)
    assert event.object is not None
    assert (event.type, event.object.metadata.resource_version) == (EventType.DELETED, str(before + 1))


async def test_bookmarks_come_each_minute_and_before_the_end(server: ApiServer, clock: VirtualClock) -> None:
    watch = server.watch(PODS, resource_version=await version_of(server), timeout_seconds=150)
    await server.write(Create(NODES, {"metadata": {"name": "n"}}))
    now = await version_of(server)
    told = [(event.type, event.resource_version, clock.monotonic()) async for event in watch]
    assert told == [(BOOKMARK, now, 60.0), (BOOKMARK, now, 120.0), (BOOKMARK, now, 148.0)]
    assert clock.monotonic() == 150.0


@stage(simulate, start=START, gives=("clock",))
async def test_a_long_simulation_can_do_with_fewer_bookmarks(clock: VirtualClock) -> None:
    server = ApiServer(clock, bookmark_seconds=3600)
    watch = server.watch(PODS, resource_version="0", timeout_seconds=4000)
    assert [clock.monotonic() async for _ in watch] == [3600.0, 3998.0]


async def test_a_version_too_old_is_gone(server: ApiServer) -> None:
    old = await version_of(server)
    await server.write(Create(PODS, pod("a"), namespace="default"))
    await server.write(Create(PODS, pod("b"), namespace="default"))
    server.compact()
    with pytest.raises(Gone, match="too old resource version") as caught:
        await anext(server.watch(PODS, resource_version=old))
    assert caught.value.code == 410
    assert await collected(server, await version_of(server), timeout_seconds=1) == []


async def test_the_log_is_bounded(server: ApiServer) -> None:
    server.registry.store._max_log = 10
    old = await version_of(server)
    for number in range(30):
        await server.write(Create(PODS, pod(f"p{number}"), namespace="default"))
    assert len(server.registry.store.collection(PODS).log) <= 10
    with pytest.raises(Gone):
        await anext(server.watch(PODS, resource_version=old))


async def test_a_watch_that_falls_behind_is_ended_and_must_list_anew(server: ApiServer) -> None:
    version = await version_of(server)
    watch = server.watch(PODS, resource_version=version)
    await server.write(Create(PODS, pod("a"), namespace="default"))
    seen = await anext(watch)
    await server.write(Create(PODS, pod("b"), namespace="default"))
    server.compact()
    with pytest.raises(StopAsyncIteration):
        await anext(watch)
    with pytest.raises(Gone):
        await anext(server.watch(PODS, resource_version=seen.resource_version))


async def test_a_patient_watch_outlives_compaction(server: ApiServer) -> None:
    watching = asyncio.create_task(collected(server, await version_of(server), labels="tier=web", timeout_seconds=9))
    await asyncio.sleep(1)
    for number in range(5):
        await server.write(Create(PODS, pod(f"p{number}"), namespace="default"))
    server.compact()
    await label(server, "p3", "web")
    assert await watching == [("ADDED", "p3")]


async def test_a_version_to_come_is_waited_for(server: ApiServer) -> None:
    version = str(int(await version_of(server)) + 2)
    watching = asyncio.create_task(collected(server, version, timeout_seconds=2))
    for name in "abc":
        await server.write(Create(PODS, pod(name), namespace="default"))
    assert await watching == [("ADDED", "c")]


async def test_a_version_that_cannot_be(server: ApiServer) -> None:
    with pytest.raises(InternalError, match='resourceVersion: Invalid value: "abc"'):
        await anext(server.watch(PODS, resource_version="abc"))


async def test_a_selector_that_the_server_refuses(server: ApiServer) -> None:
    with pytest.raises(Invalid, match="field label not supported"):
        await anext(server.watch(PODS, resource_version="0", fields="spec.priority=1"))


async def test_an_undecodable_object_does_not_end_the_watch(server: ApiServer) -> None:
    class Strict(msgspec.Struct):
        data: dict[str, int]

    watch = server.watch(CONFIGMAPS.read_as(Strict), resource_version="0")
    for name, value in (("a", "text"), ("b", 1)):
        body = {"metadata": {"name": name}, "data": {"x": value}}
        await server.write(Create(CONFIGMAPS, body, namespace="default"))
    first, second = await anext(watch), await anext(watch)
    assert (first.type, first.object) == (EventType.ADDED, None)
    assert first.problem == "data.x: expected an integer, got a string"
    assert (first.unread.namespace, first.unread.name) == ("default", "a") if first.unread else False
    assert second.object == Strict({"x": 1})


async def test_a_cancelled_watch_leaves_nothing_behind(server: ApiServer) -> None:
    tasks = [asyncio.create_task(collected(server, "0")) for _ in range(5)]
    await asyncio.sleep(1)
    assert len(server.open_watches) == 5
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert not server.open_watches
    assert not server.registry.store.collection(PODS).listeners


async def test_watches_can_be_dropped_or_refused(server: ApiServer, clock: VirtualClock) -> None:
    version = await version_of(server)
    watching = asyncio.create_task(collected(server, version))
    await clock.sleep(1)
    await server.write(Create(PODS, pod("a"), namespace="default"))
    server.drop_watches(NODES)
    server.drop_watches(PODS)
    assert await watching == [("ADDED", "a")]  # what happened before is still told
    assert clock.monotonic() == 1.0
    broken = asyncio.create_task(collected(server, version))
    await clock.sleep(1)
    server.drop_watches(error=Unavailable("connection lost"))
    with pytest.raises(Unavailable):
        await broken
    server.faults.add(Fault(error=Gone("too old")), verb="watch", resource=PODS)
    with pytest.raises(Gone):
        await collected(server, version)
    assert await collected(server, version, timeout_seconds=5) == [("ADDED", "a")]


async def test_times_are_those_of_the_clock(server: ApiServer, clock: VirtualClock) -> None:
    await clock.sleep(3600.7)
    await server.write(Create(PODS, pod(), namespace="default"))
    event = await anext(server.watch(RAW_PODS, resource_version="0"))
    assert event.object is not None
    assert event.object["metadata"]["creationTimestamp"] == NOW.replace("12:00:00", "13:00:01")
