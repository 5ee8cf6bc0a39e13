"""How fast does a drain go on a real API server, what does it cost there, and is nothing done while nothing can be?

`python -m bench.draining` prints the tables.
"""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from prometheus_client import CollectorRegistry

from bench.real_ingest import _create
from dovetail.api import names
from dovetail.controllers.assembly import FeatureGates, all_controllers
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.kube import connect
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, PDBS, PODS, Create, Delete, KubeApi, Patch, Resource
from dovetail.providers.kwok.bundle import kwok_controllers
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.manager import Manager
from tests.cluster import folders
from tests.cluster.build import is_built
from tests.cluster.plane import PATIENT, ControlPlane

_PODS_PER_NODE: Final = 10
_DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", dict[str, Any], namespaced=True)
_SECONDS: Final = 900
_IDLE_SECONDS: Final = 60
WRITES: Final = ("create", "patch", "delete", "evict")


class CountingApi:
    """Passes everything on, and counts it."""

    def __init__(self, api: KubeApi, counts: Counter[str]) -> None:
        self._api = api
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._api, name)

        def call(*args: Any, **options: Any) -> Any:
            plural = args[0].plural if isinstance(args[0], Resource) else "pods"
            self._counts[f"{name} {plural}"] += 1
            return inner(*args, **options)

        return call


class Program:
    """All controllers in this process, on the server, as a leader would run them."""

    def __init__(self, api: KubeApi) -> None:
        self.counts: Counter[str] = Counter()
        counting: Any = CountingApi(api, self.counts)
        clock = SystemClock()
        provider = KwokProvider(counting)
        self.cluster = WatchedCluster(counting, clock, provider.node_classes)
        controllers = all_controllers(
            self.cluster,
            provider,
            Metrics(CollectorRegistry()),
            Timings(),
            FeatureGates(),
            of_provider=kwok_controllers(provider, self.cluster),
        )
        self._manager = Manager(
            counting,
            clock,
            election=None,
            recorder=EventRecorder(counting, clock, instance="bench"),
            reflectors=self.cluster.reflectors,
            controllers=controllers,
        )
        self._stop = asyncio.Event()

    async def __aenter__(self) -> "Program":
        self._task = asyncio.create_task(self._manager.run(self._stop))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await self._task

    def count(self, *verbs: str) -> int:
        return sum(count for what, count in self.counts.items() if what.split()[0] in verbs)


def _claim(number: int, **spec: Any) -> dict[str, Any]:
    type_ = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["c-16x-amd64-linux"]}
    reference = {"group": names.KWOK_GROUP, "kind": names.KWOK_NODECLASS_KIND, "name": "default"}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODECLAIM_KIND,
        "metadata": {"name": f"bench-{number:04}"},
        "spec": {
            "nodeClassRef": reference,
            "requirements": [type_],
            "expireAfter": "Never",
            "resources": {"requests": {"cpu": "15"}},
            **spec,
        },
    }


def _deployment(name: str, replicas: int, annotations: dict[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1500m"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
            },
        },
    }


async def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {_SECONDS} s: {what}")
        await asyncio.sleep(0.05)


async def _bring_up(api: KubeApi, program: Program, nodes: int, annotations: dict[str, str]) -> float:
    """Nodes full of pods; the seconds that the nodes took."""
    cluster, started = program.cluster, time.perf_counter()
    node_class = {
        "apiVersion": names.KWOK_API_VERSION,
        "kind": names.KWOK_NODECLASS_KIND,
        "metadata": {"name": "default"},
    }
    await api.write(Create(KWOK_NODECLASSES, node_class))
    await _create(api, NODECLAIMS, iter([_claim(number) for number in range(nodes)]))
    await _until(
        lambda: (
            sum(node.metadata.labels.get(names.INITIALIZED_LABEL) == "true" for node in cluster.nodes.values()) == nodes
        ),
        "all nodes initialized",
    )
    seconds = time.perf_counter() - started
    each = nodes * _PODS_PER_NODE // 20
    for number in range(20):
        await api.write(Create(_DEPLOYMENTS, _deployment(f"app-{number:02}", each, annotations), namespace="default"))
    wanted = 20 * each
    await _until(lambda: sum(pod.ready is True for pod in cluster.pods.values()) == wanted, "all pods ready")
    return seconds


async def drain(kubeconfig: str, nodes: int) -> None:
    """All nodes deleted at once."""
    async with (
        connect(kubeconfig=kubeconfig, qps=None) as admin,
        connect(kubeconfig=kubeconfig) as api,
        Program(api) as program,
    ):
        up_seconds = await _bring_up(admin, program, nodes, {})
        pods = nodes * _PODS_PER_NODE
        program.counts.clear()
        started, cpu = time.perf_counter(), time.process_time()
        claims = [claim.metadata.name for claim in program.cluster.claims.values()]
        await _each(claims, lambda name: admin.write(Delete(NODECLAIMS, name)))
        await _until(lambda: program.counts["evict pods"] >= pods, "all pods evicted")
        evicted = time.perf_counter() - started
        await _until(lambda: not any(True for _ in program.cluster.claims.values()), "all claims gone")
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        writes, reads = program.count(*WRITES), program.count("list", "get")
        await asyncio.sleep(1)  # the last events
    print(
        f"{nodes:>8} {pods:>8} {up_seconds:>8.1f} s {seconds:>7.1f} s {pods / evicted:>9.0f}/s {writes / pods:>10.2f} "
        f"{reads / nodes:>10.2f} {cpu:>6.1f} s"
    )
    for what, count in sorted(program.counts.items()):
        print(f"{'':>10}{what}: {count}")


async def idle(kubeconfig: str, nodes: int) -> None:
    """All nodes draining, and every pod protected: half of them by a budget."""
    async with (
        connect(kubeconfig=kubeconfig, qps=None) as admin,
        connect(kubeconfig=kubeconfig) as api,
        Program(api) as program,
    ):
        await _bring_up(admin, program, nodes, {})
        pods = list(program.cluster.pods.values())
        for number in range(20):
            budget = {
                "metadata": {"name": f"app-{number:02}", "namespace": "default"},
                "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": f"app-{number:02}"}}},
            }
            if number % 2:
                await admin.write(Create(PDBS, budget, namespace="default"))
        guarded = [pod for pod in pods if not int(pod.labels["app"][-2:]) % 2]
        patch = {"metadata": {"annotations": {names.DO_NOT_DISRUPT: "true"}}}
        await _each(guarded, lambda pod: admin.write(Patch(PODS, pod.name, patch, namespace=pod.namespace)))
        await asyncio.sleep(5)
        claims = [claim.metadata.name for claim in program.cluster.claims.values()]
        await _each(claims, lambda name: admin.write(Delete(NODECLAIMS, name)))
        await _until(
            lambda: all(node.metadata.deletion_timestamp is not None for node in program.cluster.nodes.values()),
            "all nodes deleting",
        )
        await asyncio.sleep(60)  # events and states are written
        program.counts.clear()
        cpu = time.process_time()
        await asyncio.sleep(_IDLE_SECONDS)
        share = (time.process_time() - cpu) / _IDLE_SECONDS
        writes, reads = program.count(*WRITES), program.count("list", "get")
        print(f"{nodes:>8} {len(pods):>8} {share:>12.1%} {writes:>8} {reads:>8}")


async def _each(items: list[Any], act: Callable[[Any], Awaitable[Any]]) -> None:
    todo = iter(items)

    async def worker() -> None:
        for item in todo:
            await act(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(32):
            group.create_task(worker())


def print_draining() -> None:
    """Both tables, each on a control plane of its own."""
    if not is_built():
        print("draining: skipped, the control plane is not built; `make test` does that first\n")
        return
    print("draining on a real API server: all nodes deleted at once, 200 requests a second allowed")
    heads = (
        ("nodes", 8),
        ("pods", 8),
        ("up", 10),
        ("drained", 9),
        ("evicted", 11),
        ("writes/pod", 10),
        ("reads/node", 10),
    )
    print(*(f"{head:>{width}}" for head, width in heads), f"{'CPU':>8}")
    _on_a_plane("drain", 200)
    print("\ndraining and blocked: one minute in which nothing can be done")
    print(f"{'nodes':>8} {'pods':>8} {'of a core':>12} {'writes':>8} {'reads':>8}")
    _on_a_plane("idle", 1_000)
    print()


def _on_a_plane(what: str, nodes: int) -> None:
    folder = folders.new()
    try:
        with ControlPlane(folder, flags=PATIENT) as plane:
            plane.install_crds()
            command = [sys.executable, "-m", "bench.draining", what, str(plane.kubeconfig), str(nodes)]
            subprocess.run(command, check=True)
    finally:
        folders.remove(folder)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["drain", kubeconfig, nodes]:
            asyncio.run(drain(kubeconfig, int(nodes)))
        case ["idle", kubeconfig, nodes]:
            asyncio.run(idle(kubeconfig, int(nodes)))
        case ["drain" | "idle" as what, nodes]:
            _on_a_plane(what, int(nodes))
        case _:
            print_draining()
