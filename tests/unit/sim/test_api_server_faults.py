"""Do requests fail as they are told to, and do races show?"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dovetail.ports import (
    NODES,
    PODS,
    AlreadyExists,
    ApiError,
    Conflict,
    Create,
    Delete,
    EventType,
    NotFound,
    OutcomeUnknown,
    Patch,
    Resource,
    TooManyRequests,
    Unavailable,
)
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.faults import Fault
from dovetail.sim.server.store import Change
from tests.harness.stage import stage
from tests.unit.sim.test_api_server import CONFIGMAPS, START, pod, run

pytestmark = stage(run)


async def test_a_request_can_fail_before_it_takes_effect(server: ApiServer) -> None:
    server.faults.add(Fault(error=Unavailable("down")), verb="create", resource=PODS)
    await server.write(Create(NODES, {"metadata": {"name": "n"}}))  # another kind
    with pytest.raises(Unavailable):
        await server.write(Create(PODS, pod(), namespace="default"))
    with pytest.raises(NotFound):
        await server.get(PODS, "web-1", namespace="default")
    await server.write(Create(PODS, pod(), namespace="default"))  # only the next one


async def test_a_request_can_fail_after_it_took_effect(server: ApiServer) -> None:
    server.faults.add(Fault(error=OutcomeUnknown("timeout"), after=True), verb="create")
    with pytest.raises(OutcomeUnknown):
        await server.write(Create(PODS, pod(), namespace="default"))
    with pytest.raises(AlreadyExists):
        await server.write(Create(PODS, pod(), namespace="default"))


async def test_a_request_can_take_its_time(server: ApiServer, clock: VirtualClock) -> None:
    server.faults.add(Fault(delay_seconds=30), name="web-1", times=2)
    await server.write(Create(PODS, pod(), namespace="default"))
    await server.get(PODS, "web-1", namespace="default")
    assert clock.monotonic() == 60.0
    assert not server.faults.pending


async def test_faults_can_be_chosen_by_whatever_a_request_has(server: ApiServer) -> None:
    await server.write(Create(NODES, {"metadata": {"name": "n"}}))
    kubelet = server.client("kubelet")
    busy = TooManyRequests("busy", retry_after=1)
    server.faults.add(Fault(error=busy), client="kubelet", subresource="status", times=5)
    server.faults.add(Fault(error=busy), when=lambda request: request.name.startswith("x"))
    await kubelet.get(NODES, "n")
    await server.write(Patch(NODES, "n", {"status": {}}, subresource="status"))
    with pytest.raises(TooManyRequests):
        await kubelet.write(Patch(NODES, "n", {"status": {}}, subresource="status"))
    with pytest.raises(TooManyRequests):
        await server.get(NODES, "x-1")
    server.faults.clear()
    await kubelet.write(Patch(NODES, "n", {"status": {}}, subresource="status"))


async def test_a_cancelled_request_may_or_may_not_have_taken_effect(server: ApiServer) -> None:
    outcomes = []
    for steps in (1, 2):
        task = asyncio.create_task(server.write(Create(PODS, pod(f"p{steps}"), namespace="default")))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        outcomes.append(any(p.metadata.name == f"p{steps}" for p in (await server.list(PODS)).items))
    assert outcomes == [False, True]


@stage(simulate, start=START, gives=("clock",))
async def test_latency(clock: VirtualClock) -> None:
    server = ApiServer(clock, latency_seconds=0.01)
    await server.write(Create(PODS, pod(), namespace="default"))
    assert clock.monotonic() == 0.02


async def test_observers_see_every_write_at_once(server: ApiServer) -> None:
    seen: list[tuple[str, EventType]] = []

    def observe(resource: Resource[Any], change: Change) -> None:
        seen.append((resource.kind, change.type))

    server.registry.store.observers.append(observe)
    await server.write(Create(NODES, {"metadata": {"name": "n"}}))
    await server.write(Delete(NODES, "n"))
    assert seen == [("Node", EventType.ADDED), ("Node", EventType.DELETED)]


# -- races ------------------------------------------------------------------------------------------------------------

Increment = Callable[[ApiServer], Coroutine[Any, Any, None]]


async def increment_blindly(server: ApiServer) -> None:
    counter = await server.get(CONFIGMAPS, "counter", namespace="default")
    patch = {"data": {"value": counter["data"]["value"] + 1}}
    await server.write(Patch(CONFIGMAPS, "counter", patch, namespace="default"))


async def increment_with_a_lock(server: ApiServer) -> None:
    while True:
        counter = await server.get(CONFIGMAPS, "counter", namespace="default")
        version = counter["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "data": {"value": counter["data"]["value"] + 1}}
        try:
            await server.write(Patch(CONFIGMAPS, "counter", patch, namespace="default"))
        except Conflict:
            continue
        return


def lost_updates(increment: Increment, seed: int) -> int:
    """How many of two tasks' increments are lost."""

    async def main(server: ApiServer, clock: VirtualClock) -> int:
        body = {"metadata": {"name": "counter"}, "data": {"value": 0}}
        await server.write(Create(CONFIGMAPS, body, namespace="default"))

        async def work() -> None:
            for _ in range(3):
                await increment(server)
                await clock.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            group.create_task(work())
        value: int = (await server.get(CONFIGMAPS, "counter", namespace="default"))["data"]["value"]
        return 6 - value

    result: int = run(main, seed)
    return result


def test_some_seeds_find_the_lost_update() -> None:
    assert {lost_updates(increment_blindly, seed) for seed in range(30)} > {1, 2}


def test_no_seed_loses_an_update_under_a_lock() -> None:
    assert {lost_updates(increment_with_a_lock, seed) for seed in range(100)} == {0}


async def who_learns_first_of_a_new_pod(server: ApiServer, _clock: VirtualClock) -> str:
    watch = asyncio.create_task(anext(server.watch(PODS, resource_version="0")), name="watch")
    create = asyncio.create_task(server.write(Create(PODS, pod(), namespace="default")), name="create")
    done, _ = await asyncio.wait({watch, create}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({watch, create})
    return " and ".join(sorted(task.get_name() for task in done))


def test_a_watch_can_be_faster_than_the_answer() -> None:
    assert {run(who_learns_first_of_a_new_pod, seed) for seed in range(30)} >= {"watch", "create"}


def test_errors_of_the_server_are_api_errors() -> None:
    """Whatever a request meets, a caller that handles ApiError handles it."""
    assert all(issubclass(kind, ApiError) for kind in (NotFound, Conflict, Unavailable, OutcomeUnknown))
