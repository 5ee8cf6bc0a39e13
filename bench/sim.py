"""How long does a simulated cluster take to come up, to stand still for a virtual day, and to move?

`python -m bench.sim` prints it; `print_sim` does so for `make bench`.
"""

import resource
import time
from typing import NamedTuple

from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.actors.wire import DEPLOYMENTS
from tests.harness import manifests

_ZONES = ("zone-a", "zone-b", "zone-c")
_REPLICAS = 50


class Row(NamedTuple):
    """One phase of a run."""

    what: str
    seconds: float
    writes: int


def rows(nodes: int = 500, pods: int = 5_000) -> list[Row]:
    """Build a cluster, let it stand for a day, roll all its workloads."""
    return run(lambda cluster: _measure(cluster, nodes, pods), seed=1)


async def _measure(cluster: SimCluster, nodes: int, pods: int) -> list[Row]:
    rows: list[Row] = []
    apps = [f"app-{number:04}" for number in range(pods // _REPLICAS)]
    started, before = time.perf_counter(), 0

    def done(what: str) -> None:
        nonlocal started, before
        now, writes = time.perf_counter(), len(cluster.trace)
        rows.append(Row(what, now - started, writes - before))
        started, before = now, writes

    for number in range(nodes):
        await cluster.apply(manifests.node(f"node-{number:05}", zone=_ZONES[number % len(_ZONES)]))
    await cluster.run_for("10s")
    done(f"{nodes} nodes join")
    for app in apps:
        await cluster.apply(manifests.deployment(app, replicas=_REPLICAS), manifests.pdb(app, maxUnavailable="10%"))
    await cluster.run_for("1m")
    ready = sum((deployment.get("status") or {}).get("readyReplicas", 0) for deployment in cluster.objects(DEPLOYMENTS))
    assert ready == len(apps) * _REPLICAS, f"{ready} pods are ready"
    done(f"{ready} pods come up")
    await cluster.run_for("24h")
    done("a day without a change")
    for app in apps[:10]:
        await cluster.apply(manifests.deployment(app, replicas=_REPLICAS, cpu="110m"))
    await cluster.run_for("10m")
    done(f"{10 * _REPLICAS} pods are rolled over")
    return rows


def print_sim() -> None:
    """The table."""
    print("a simulated cluster of 500 nodes and 5,000 pods, with all actors")
    print(f"{'':<28} {'time':>9} {'writes':>8}")
    for row in rows():
        print(f"{row.what:<28} {row.seconds:>7.2f} s {row.writes:>8}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB\n")


if __name__ == "__main__":
    print_sim()
