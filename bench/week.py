"""How long does a week of a cluster take: 500 nodes, 5,000 pods, nodes that expire, days and nights, and an upgrade?

`python -m bench.week` prints a quiet week, in which nodes expire; with `days` ten workloads grow by half each morning
and shrink each night as well, and with `upgrade` all nodes are replaced once. With a number only so many days are
played, and with `profile` it says where the time goes.
"""

import cProfile
import pstats
import resource
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from dovetail.api.documents import Document
from dovetail.sim.scenarios.player import Play
from dovetail.sim.scenarios.reading import read_scenario
from dovetail.values.timestamp import format_time
from dovetail.views.simulation.report import SimulationReport

_START = datetime(2026, 3, 2, tzinfo=UTC)
_REPLICAS = 50
_ZONES = ("test-zone-a", "test-zone-b", "test-zone-c")
_TYPE = "s-16x-amd64-linux"
_CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


def documents(nodes: int = 500, pods: int = 5_000, *, daily: bool = False, upgrade: bool = False) -> list[Document]:
    """A cluster as a dump shows it, whose nodes are up to 30 days old, and what a week brings."""
    apps = pods // _REPLICAS
    objects = [_pool(), *(_app(number) for number in range(apps)), *(_pdb(number) for number in range(apps))]
    objects += [part for number in range(nodes) for part in _node(number, nodes)]
    objects += [_pod(number, apps, nodes) for number in range(pods)]
    objects.append(_scenario(daily=daily, upgrade=upgrade))
    return [
        Document("bench", index, None, None, body["apiVersion"], body["kind"], value=body)
        for index, body in enumerate(objects, 1)
    ]


def _pool() -> dict[str, Any]:
    requirements = [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [_TYPE]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ]
    template = {"spec": {"nodeClassRef": _CLASS, "requirements": requirements, "expireAfter": "720h"}}
    budgets = [
        {"nodes": "5%"},
        {"nodes": "0", "reasons": ["Drifted"], "schedule": "0 8 * * 1-5", "duration": "10h"},
        {"nodes": "10", "reasons": ["Drifted"]},
    ]
    disruption = {"consolidateAfter": "10m", "budgets": budgets}
    spec = {"template": template, "disruption": disruption}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": spec}


def _labels(app: int) -> dict[str, str]:
    return {"app": f"app-{app:03}"}


def _pod_spec() -> dict[str, Any]:
    requests = {"cpu": "1500m", "memory": "5Gi"}
    return {"containers": [{"name": "main", "image": "example", "resources": {"requests": requests}}]}


def _app(number: int) -> dict[str, Any]:
    meta = {"name": f"app-{number:03}", "namespace": "default", "uid": f"00000000-0000-4000-9000-{number:012}"}
    template = {"metadata": {"labels": _labels(number)}, "spec": _pod_spec()}
    spec = {"replicas": _REPLICAS, "selector": {"matchLabels": _labels(number)}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec}


def _pdb(number: int) -> dict[str, Any]:
    spec = {"maxUnavailable": "10%", "selector": {"matchLabels": _labels(number)}}
    meta = {"name": f"app-{number:03}", "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}


def _node(number: int, nodes: int) -> list[dict[str, Any]]:
    made = format_time(_START - timedelta(days=30) * (number + 1) / (nodes + 2))
    made = made.partition(".")[0].removesuffix("Z") + "Z"
    name = f"node-{number:05}"
    labels = {
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        "node.kubernetes.io/instance-type": _TYPE,
        "topology.kubernetes.io/zone": _ZONES[number % len(_ZONES)],
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
    }
    amounts = {"cpu": "15900m", "memory": "65526Mi", "pods": "256", "ephemeral-storage": "20Gi"}
    meta = {"name": name, "labels": labels, "creationTimestamp": made, "finalizers": ["karpenter.sh/termination"]}
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": made, "lastHeartbeatTime": made}]
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta,
        "spec": {"providerID": f"sim://{name}"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": ready},
    }
    spec = {"nodeClassRef": _CLASS, "requirements": [], "expireAfter": "720h"}
    status = {"providerID": f"sim://{name}", "nodeName": name, "capacity": amounts, "allocatable": amounts}
    claim_meta = {**meta, "name": f"default-{number:05}"}
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": claim_meta, "spec": spec}
    return [node, claim | {"status": status}]


def _pod(number: int, apps: int, nodes: int) -> dict[str, Any]:
    app, made = number % apps, format_time(_START - timedelta(hours=1 + number % 48))
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"app-{app:03}",
        "uid": f"00000000-0000-4000-9000-{app:012}",
        "controller": True,
    }
    meta = {
        "name": f"app-{app:03}-{number:05}",
        "namespace": "default",
        "labels": _labels(app),
        "creationTimestamp": made,
        "ownerReferences": [owner],
    }
    ready = [{"type": type_, "status": "True", "lastTransitionTime": made} for type_ in ("PodScheduled", "Ready")]
    status = {"phase": "Running", "startTime": made, "conditions": ready}
    spec = _pod_spec() | {"nodeName": f"node-{number % nodes:05}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def _scenario(*, daily: bool, upgrade: bool) -> dict[str, Any]:
    """Daily, by day ten workloads are half as large again; with an upgrade the pool's template changes on Wednesday."""

    def scaled(replicas: int) -> list[dict[str, Any]]:
        return [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": f"app-{app:03}"},
                "spec": {"replicas": replicas},
            }
            for app in range(10)
        ]

    events: list[dict[str, Any]] = []
    for day in range(7) if daily else ():
        events.append({"at": f"{day * 24 + 8}h", "apply": scaled(_REPLICAS * 3 // 2)})
        events.append({"at": f"{day * 24 + 20}h", "apply": scaled(_REPLICAS)})
    if upgrade:
        events.append({"at": "2d9h", "apply": _changed_pool()})
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Scenario",
        "start": format_time(_START),
        "for": "7d",
        "seed": 1,
        "events": events,
    }


def _changed_pool() -> dict[str, Any]:
    changed = {"spec": {"template": {"metadata": {"labels": {"example.com/image": "new"}}}}}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}}
    return {**pool, **changed}


def play(*, days: float = 7, daily: bool = False, upgrade: bool = False) -> SimulationReport:
    """The week, or the first days of it."""
    scenario = read_scenario(documents(daily=daily, upgrade=upgrade), now=_START, span=timedelta(days=days))
    with Play(scenario) as playing:
        playing.advance(scenario.end)
        return playing.report()


def print_week(days: float = 7, *, daily: bool = False, upgrade: bool = False) -> None:
    """The table."""
    began, used = time.perf_counter(), time.process_time()
    report = play(days=days, daily=daily, upgrade=upgrade)
    seconds, computed = time.perf_counter() - began, time.process_time() - used
    which = " with days and nights" * daily + " with an upgrade" * upgrade or ", quiet"
    print(f"{days:g} simulated days of 500 nodes and 5,000 pods{which}: {seconds:.1f} s ({computed:.1f} s of CPU)")
    gone = ", ".join(f"{count} {reason}" for reason, count in report.nodes.terminated.items())
    print(f"launched {report.nodes.launched}, gone {gone or 'none'}, {report.pods.evicted} pods evicted")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB\n", flush=True)


def main() -> None:
    """Print it; see the module for the words."""
    words = sys.argv[1:]
    days = next((float(word) for word in words if word not in ("profile", "upgrade", "days")), 7.0)
    if "profile" not in words:
        print_week(days, daily="days" in words, upgrade="upgrade" in words)
        return
    profile = cProfile.Profile()
    profile.runcall(print_week, days, daily="days" in words, upgrade="upgrade" in words)
    pstats.Stats(profile).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    main()
