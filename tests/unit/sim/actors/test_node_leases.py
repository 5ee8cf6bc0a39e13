"""The leases of nodes are written only so that somebody sees it."""

import asyncio
from datetime import timedelta
from typing import Any

from dovetail.ports import LEASES, Delete, EventType
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.actors.wire import NODES
from dovetail.sim.server.kinds import NAMESPACES
from tests.harness import manifests
from tests.harness.stage import stage

pytestmark = stage(run, gives=("cluster",))

SPACE = "kube-node-lease"
RAW = LEASES.read_as(dict[str, Any])


async def follow(cluster: SimCluster, told: list[tuple[str, str, float]], namespace: str | None = SPACE) -> None:
    """What a watch tells, and when."""
    since = (await cluster.api.list(RAW, namespace=namespace)).resource_version
    began = cluster.clock.now()
    async for event in cluster.api.watch(RAW, resource_version=since, namespace=namespace, timeout_seconds=3600):
        if event.object is not None:
            at = (cluster.clock.now() - began).total_seconds()
            told.append((event.type.value, event.object["metadata"]["name"], round(at, 3)))


def lines(cluster: SimCluster) -> int:
    return sum(f" {SPACE}/" in line for line in cluster.trace)


async def test_nothing_is_written_while_nobody_looks(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"), manifests.node("n2"))
    await cluster.run_for("1h")
    assert lines(cluster) == 0
    await cluster.api.list(RAW, namespace=SPACE)
    assert lines(cluster) == 2
    await cluster.api.list(RAW)
    await cluster.api.get(RAW, "n1", namespace=SPACE)
    assert lines(cluster) == 2  # they are as fresh as can be
    # The leases of others are no reason to renew those of nodes.
    watch = asyncio.create_task(follow(cluster, [], "default"))
    await cluster.run_for("1h")
    assert lines(cluster) == 2
    watch.cancel()
    await cluster.api.get(RAW, "n1", namespace=SPACE)
    assert lines(cluster) == 3  # of one alone


async def test_while_somebody_watches_each_renewal_comes_in_time(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"))
    await cluster.run_for("4s")
    await cluster.apply(manifests.node("n2"))
    await cluster.run_for("1s")
    told: list[tuple[str, str, float]] = []
    watch = asyncio.create_task(follow(cluster, told))
    await cluster.run_for("12s")
    await cluster.apply(manifests.node("n3"))
    await cluster.run_for("1s")
    cluster.kill_kubelet("n1")
    await cluster.api.write(Delete(NODES, "n2"))
    await cluster.run_for("11s")
    assert told == [
        ("MODIFIED", "n1", 5),
        ("MODIFIED", "n2", 9),
        ("ADDED", "n3", 12),
        ("DELETED", "n2", 13),
        ("MODIFIED", "n3", 22),
    ]
    told.clear()
    cluster.revive_kubelet("n1")  # after 24 s
    await cluster.run_for("11s")
    assert told == [("MODIFIED", "n1", 24), ("MODIFIED", "n3", 32), ("MODIFIED", "n1", 34)]
    watch.cancel()
    await cluster.run_for("1m")
    before = lines(cluster)
    await cluster.run_for("1h")
    assert lines(cluster) == before


async def test_a_watch_of_all_namespaces_and_one_from_long_ago(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"))
    since = (await cluster.api.list(RAW, namespace=SPACE)).resource_version
    await cluster.apply(manifests.node("n2"))
    await cluster.run_for("1m")
    events = cluster.api.watch(RAW, resource_version=since, timeout_seconds=60)
    found = [await anext(events) for _ in range(2)]
    told = {(event.type, event.object["metadata"]["name"]) for event in found if event.object is not None}
    assert told == {(EventType.MODIFIED, "n1"), (EventType.ADDED, "n2")}
    await events.aclose()


async def uids_of_two_pods(cluster: SimCluster) -> list[str]:
    await cluster.apply(manifests.node("n1"), manifests.deployment("web", replicas=2))
    await cluster.run_for("1m")
    return [pod["metadata"]["uid"] for pod in cluster.pods()]


async def uids_while_renewals_are_watched(cluster: SimCluster) -> list[str]:
    watch = asyncio.create_task(follow(cluster, []))
    uids = await uids_of_two_pods(cluster)
    watch.cancel()
    return uids


def test_renewals_change_nothing_else() -> None:
    assert run(uids_while_renewals_are_watched) == run(uids_of_two_pods)


async def test_without_their_namespace_there_are_no_leases(cluster: SimCluster) -> None:
    await cluster.apply(manifests.node("n1"))
    assert len((await cluster.api.list(RAW, namespace=SPACE)).items) == 1
    await cluster.api.write(Delete(NAMESPACES, SPACE))
    await cluster.run_for("1m")
    assert (await cluster.api.list(RAW, namespace=SPACE)).items == []
    assert cluster.object(NAMESPACES, SPACE) is None


async def test_a_lease_is_not_older_than_its_node(cluster: SimCluster) -> None:
    await cluster.run_for("7s")
    await cluster.apply(manifests.node("n1"))
    made = cluster.clock.now()
    lease = await cluster.api.get(LEASES, "n1", namespace=SPACE)
    assert lease.spec.renew_time == made
    await cluster.run_for("25s")
    lease = await cluster.api.get(LEASES, "n1", namespace=SPACE)
    assert lease.spec.renew_time == made + timedelta(seconds=20)
