"""How a namespace goes away."""

from typing import Any

import pytest

from dovetail.ports import Conflict, Create, Delete, Forbidden, Patch
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.cluster import run as run_cluster
from dovetail.sim.actors.wire import DEPLOYMENTS, JOBS, PODS, REPLICASETS, STATEFULSETS, deleting
from dovetail.sim.loop.virtual_loop import VirtualClock
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.kinds import BINDINGS, NAMESPACES
from tests.harness import manifests
from tests.harness.stage import stage
from tests.unit.sim.test_api_server import CONFIGMAPS, pod, run

pytestmark = stage(run)

TEAM = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}


async def there(server: ApiServer, name: str = "team") -> dict[str, Any] | None:
    stored = server.registry.store.collection(NAMESPACES).objects.get(("", name))
    return None if stored is None else stored.body


async def test_an_empty_one_goes_soon(server: ApiServer, clock: VirtualClock) -> None:
    await server.write(Create(NAMESPACES, TEAM))
    with pytest.raises(Conflict):
        await server.write(Delete(NAMESPACES, "team", uid="another"))
    await server.write(Delete(NAMESPACES, "team"))
    await clock.sleep(4)
    found = await there(server)
    assert found is not None
    assert (found["status"], found["spec"]) == ({"phase": "Terminating"}, {"finalizers": ["kubernetes"]})
    assert "deletionGracePeriodSeconds" not in found["metadata"]
    await clock.sleep(2)
    assert await there(server) is None
    await server.write(Create(NAMESPACES, TEAM))


async def test_a_change_does_not_end_it(server: ApiServer, clock: VirtualClock) -> None:
    await server.write(Create(NAMESPACES, TEAM))
    held = {"metadata": {"name": "a", "finalizers": ["example.com/held"]}}
    await server.write(Create(CONFIGMAPS, held, namespace="team"))
    await server.write(Delete(NAMESPACES, "team"))
    await server.write(Patch(NAMESPACES, "team", {"metadata": {"labels": {"a": "b"}}}))
    await clock.sleep(60)
    found = await there(server)
    assert found is not None
    assert found["metadata"]["labels"]["a"] == "b"
    await server.write(Patch(CONFIGMAPS, "a", {"metadata": {"finalizers": None}}, namespace="team"))
    await clock.sleep(1)
    assert await there(server) is None


async def test_nobody_is_bound_in_it(server: ApiServer) -> None:
    await server.write(Create(NAMESPACES, TEAM))
    await server.write(Create(PODS, pod("p"), namespace="team"))
    await server.write(Delete(NAMESPACES, "team"))
    with pytest.raises(Forbidden, match='bindings "p" is forbidden: unable to create new content in namespace team'):
        await server.write(Create(BINDINGS, {"metadata": {"name": "p"}, "target": {"name": "n"}}, namespace="team"))


@stage(run_cluster, gives=("cluster",))
async def test_workloads_do_not_fight_it(cluster: SimCluster) -> None:
    await cluster.apply(TEAM, *(manifests.node(f"n{number}") for number in range(3)))
    await cluster.apply(
        manifests.deployment("web", replicas=5, annotations={"dovetail.dev/shutdown": "20s"}),
        manifests.workload("StatefulSet", "db", fields={"replicas": 3}),
        manifests.workload("Job", "work", fields={"completions": 9, "parallelism": 3}),
        manifests.pdb("web", maxUnavailable=1),
        namespace="team",
    )
    await cluster.run_for("30s")
    before = len(cluster.trace)
    await cluster.api.write(Delete(NAMESPACES, "team"))
    await cluster.run_for("10s")
    leaving = [found for found in cluster.pods(app="web") if deleting(found)]
    assert len(leaving) == 5
    assert len(cluster.objects(DEPLOYMENTS)) == 1, "the rest waits for the pods"
    await cluster.run_for("30s")
    assert await there(cluster.server) is None
    for kind in (PODS, DEPLOYMENTS, REPLICASETS, STATEFULSETS, JOBS):
        assert cluster.objects(kind) == []
    assert len(cluster.trace) - before < 150
    at_rest = len(cluster.trace)
    await cluster.run_for("24h")
    assert len(cluster.trace) == at_rest
