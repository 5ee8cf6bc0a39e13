"""A dry run on the simulated API server: everything is read, nothing is written, and what would be is told."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from dovetail.ports import NODES, PODS, Create, Delete, Evict, KubeApi, Patch
from dovetail.runtime.dry_run import DryRunApi, WouldWrite
from dovetail.runtime.events import Event, EventRecorder, ObjectReference
from dovetail.runtime.work_queue import Done, Outcome, WorkQueue, work
from dovetail.sim.actors.cluster import SimCluster, run
from tests.harness import manifests
from tests.harness.stage import stage

pytestmark = stage(run, gives=("sim",))

WRITES: list[tuple[str, Callable[[KubeApi], Awaitable[object]]]] = [
    ("would create Node n2", lambda api: api.write(Create(NODES, manifests.node("n2")))),
    ("would patch Node n1", lambda api: api.write(Patch(NODES, "n1", {"metadata": {"labels": {"a": "b"}}}))),
    ("would patch status Node n1", lambda api: api.write(Patch(NODES, "n1", {"status": {}}, subresource="status"))),
    ("would delete Node n1", lambda api: api.write(Delete(NODES, "n1"))),
    ("would evict Pod default/p", lambda api: api.write(Evict("p", namespace="default"))),
]


@pytest.mark.parametrize(("words", "write"), WRITES)
async def test_what_would_be_written_is_told_once(
    sim: SimCluster, words: str, write: Callable[[KubeApi], Awaitable[object]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dovetail.runtime.dry_run")
    await sim.apply(manifests.node("n1"), manifests.pod("p"))
    await sim.run_for("10s")
    api = DryRunApi(sim.api)
    before = list(sim.trace)
    for _ in range(2):
        with pytest.raises(WouldWrite):
            await write(api)
    assert list(sim.trace) == before
    assert [record.getMessage() for record in caplog.records if "would" in record.getMessage()] == [words]


async def test_another_version_of_the_object_is_not_another_request(
    sim: SimCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dovetail.runtime.dry_run")
    api = DryRunApi(sim.api)
    for version in ("1", "2"):
        with pytest.raises(WouldWrite):
            await api.write(Patch(NODES, "n1", {"metadata": {"resourceVersion": version}, "spec": {"taints": []}}))
    assert len(caplog.records) == 1


async def test_reading_is_as_ever(sim: SimCluster) -> None:
    await sim.apply(manifests.node("n1"))
    api = DryRunApi(sim.api)
    assert (await api.get(NODES, "n1")).metadata.name == "n1"
    page = await api.list(NODES)
    assert len(page.items) == 1
    watch = api.watch(NODES, resource_version=page.resource_version)
    await sim.apply(manifests.node("n2"))
    event = await watch.__anext__()
    assert event.object is not None
    assert event.object.metadata.name == "n2"
    await watch.aclose()
    assert not (await api.list(PODS)).items


async def test_events_are_told_and_not_sent(sim: SimCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dovetail.runtime.dry_run")
    before = list(sim.trace)
    recorder = EventRecorder(DryRunApi(sim.api), sim.clock, instance="test")
    about = ObjectReference("v1", "Node", "n1", "uid")
    for _ in range(2):
        recorder.publish(Event(regarding=about, reason="Drained", note="all gone"))
    recorder.close()
    await recorder.run()
    assert recorder.counts.failed == 0
    assert list(sim.trace) == before
    (record,) = caplog.records
    assert record.getMessage() == "would publish Event default/Drained"
    assert record.__dict__["body"]["note"] == "all gone"


async def test_a_controller_waits_until_the_object_changes(sim: SimCluster) -> None:
    api = DryRunApi(sim.api)
    tried: list[str] = []

    async def reconcile(key: str) -> Outcome:
        tried.append(key)
        await api.write(Delete(NODES, key))
        return Done()

    queue: WorkQueue[str] = WorkQueue(sim.clock)
    async with asyncio.TaskGroup() as group:
        group.create_task(work(queue, reconcile, workers=1))
        queue.add("n1")
        await sim.run_for("1h")
        queue.add("n1")
        await sim.run_for("1h")
        queue.close(drain=False)
    assert tried == ["n1", "n1"]
