"""What the comparison of controllers draws and counts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench.churn import ClusterObserver, Script
from dovetail.api import names
from dovetail.ports import NODES, Delete, Evict
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.actors.wire import name_of
from tests.harness import manifests
from tests.harness.stage import stage

pytestmark = stage(run, gives=("cluster",))

_PRICED = {
    names.INSTANCE_TYPE_LABEL: "c-4x-amd64-linux",
    names.CAPACITY_TYPE_LABEL: "on-demand",
}


@asynccontextmanager
async def observed(cluster: SimCluster) -> AsyncIterator[ClusterObserver]:
    observer = ClusterObserver(cluster.api, cluster.clock)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(task) for task in observer.tasks()]
        yield observer
        for task in tasks:
            task.cancel()


def node(name: str) -> manifests.Manifest:
    return manifests.node(name, zone="test-zone-a", labels=_PRICED)


async def test_evicted_pods_are_moved_and_pods_of_a_smaller_workload_are_not(cluster: SimCluster) -> None:
    await cluster.apply(node("one"))
    async with observed(cluster) as observer:
        await cluster.apply(manifests.deployment("app", replicas=5))
        await cluster.run_for("1m")
        assert observer.running() == 5
        await cluster.api.write(Evict(name_of(cluster.pods()[0]), namespace="default"))
        await cluster.run_for("2m")
        await cluster.apply(manifests.deployment("app", replicas=2))
        await cluster.run_for("2m")
        assert (observer.running(), observer.moved) == (2, 1)


async def test_cost_and_waiting_are_integrated_over_time(cluster: SimCluster) -> None:
    async with observed(cluster) as observer:
        await cluster.apply(manifests.deployment("app", replicas=3))
        await cluster.run_for("60s")
        assert observer.pending_seconds == pytest.approx(180, abs=6)
        await cluster.apply(node("one"))
        await cluster.run_for("1h")
        assert (observer.launched, observer.nodes) == (1, 1)
        assert observer.dollars == pytest.approx(observer.rate, rel=0.01)
        changed_at = observer.changed_at
        await cluster.api.write(Delete(NODES, "one"))
        await cluster.run_for("1m")
        assert observer.rate == 0
        assert observer.changed_at >= changed_at + 3600


def test_a_seed_draws_the_same_edits_however_many_there_are() -> None:
    short, long = Script.draw(1, 3), Script.draw(1, 12)
    assert (short.objects, short.edits) == (long.objects, long.edits[:3])
    assert short.objects != Script.draw(2, 3).objects
