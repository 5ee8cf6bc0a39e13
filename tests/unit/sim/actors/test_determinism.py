"""The same seed gives the same day, byte for byte; time without changes costs nothing."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.ports import Delete
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.actors.wire import NODES
from dovetail.sim.server.kinds import NAMESPACES
from tests.harness import manifests
from tests.harness.soak import examples
from tests.harness.stage import PARAMETER, stage


async def a_day(cluster: SimCluster) -> str:
    """All kinds of workloads, a rollout, preemption, faults, a vanished node and a vanished namespace."""
    await cluster.apply(*(manifests.node(f"n{number}", zone="abc"[number % 3]) for number in range(6)))
    await cluster.apply(
        manifests.deployment("web", replicas=7),
        manifests.workload("StatefulSet", "db", fields={"replicas": 3}),
        manifests.workload("DaemonSet", "agent"),
        manifests.workload("Job", "work", fields={"completions": 4, "parallelism": 2}),
        manifests.pdb("web", maxUnavailable="30%"),
        manifests.pdb("db", minAvailable=2),
    )
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    await cluster.apply(team, manifests.priority_class("high", 1000))
    await cluster.apply(
        manifests.deployment("side", replicas=4), manifests.pdb("side", minAvailable=1), namespace="team"
    )
    await cluster.run_for("1h")
    await cluster.apply(manifests.deployment("web", replicas=9, cpu="200m"))
    await cluster.apply(manifests.deployment("big", replicas=3, cpu="3700m", priorityClassName="high"))
    await cluster.run_for("1h")
    await cluster.api.write(Delete(NAMESPACES, "team"))
    cluster.kill_kubelet("n1")
    cluster.set_node_ready("n2", ready=False)
    await cluster.run_for("1h")
    cluster.revive_kubelet("n1")
    await cluster.api.write(Delete(NODES, "n3"))
    cluster.server.drop_watches()
    await cluster.run_for("21h")
    return "\n".join(cluster.trace)


def digest(seed: int, *, shuffle: bool) -> str:
    return hashlib.sha256(run(a_day, seed=seed, shuffle=shuffle).encode()).hexdigest()


def elsewhere(hash_seed: str, *, shuffle: bool) -> str:
    """The digest from a process of its own, under another order of hashes."""
    code = f"import test_determinism as t; print(t.digest(7, shuffle={shuffle}))"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parent)}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return result.stdout.strip()


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_same_seed_gives_the_same_day(shuffle: bool) -> None:
    here = digest(7, shuffle=shuffle)
    assert here == digest(7, shuffle=shuffle)
    assert here == elsewhere("1", shuffle=shuffle)
    assert here != digest(8, shuffle=shuffle)


# With a way to the server and back, others come in between more often.
@pytest.mark.parametrize(
    ("seed", "latency_seconds"), [(0, 0.0), (1, 0.005), (2, 0.0), (3, 0.005), (4, 0.0)][: examples(5, quick=2)]
)
@stage(run, seed=PARAMETER, shuffle=True, latency_seconds=PARAMETER, gives=("cluster",))
async def test_whatever_the_order_the_cluster_comes_to_rest(cluster: SimCluster) -> None:
    await a_day(cluster)
    before = len(cluster.trace)
    assert len(cluster.pods(app="web", ready=True)) == 9
    assert len(cluster.pods(app="db", ready=True)) == 3
    assert len(cluster.pods(app="big", ready=True)) == 3
    assert cluster.pods(app="side") == []
    await cluster.run_for("24h")
    assert len(cluster.trace) == before, "a cluster at rest writes nothing"
