"""For how long does one turn of the event loop last while the controllers look at a large cluster (R45)?

`python -m bench.holdups` prints the tables, `python -m bench.holdups lateness 5000` measures one size. The cluster is
in memory, behind an API that tells what it is told to and takes no writes; all else is what `dovetail run` runs. Each
size is measured in a process of its own.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple, TypeVar

import aiohttp
import msgspec
from prometheus_client import CollectorRegistry

from bench.cluster import objects as cluster_objects
from dovetail.api import names
from dovetail.controllers.assembly import FeatureGates, all_controllers
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.controllers.metrics.cluster import ClusterMetrics
from dovetail.controllers.metrics.pool_costs import PoolCosts
from dovetail.controllers.provisioning.provisioner import ProvisioningOptions
from dovetail.observe.metrics import Metrics, rendered
from dovetail.planning.disruption.assessment import DisruptionInputs, DisruptionPlanner
from dovetail.planning.timings import Timings
from dovetail.ports import (
    KWOK_NODECLASSES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PODS,
    EventType,
    NotFound,
    Page,
    Resource,
    WatchEvent,
)
from dovetail.providers.kwok.bundle import kwok_controllers
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.compute import ThreadCompute, space_collections, spare_collections
from dovetail.runtime.dry_run import DryRunApi
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.manager import Manager
from dovetail.scheduling.placement import SchedulingOptions
from dovetail.state.scheduling import SchedulingState
from dovetail.web.probes import metrics_route, probe_routes, serving

T = TypeVar("T")

_SIZES: Final = (500, 1_000, 5_000)
_KINDS: Final = {kind.kind: kind for kind in (PODS, NODES, PDBS, NODEPOOLS, NODECLAIMS, KWOK_NODECLASSES)}
_TYPE: Final = "s-8x-amd64-linux"
_CAPACITY: Final = {"cpu": "8", "memory": "32Gi", "pods": "128"}
_ALLOCATABLE: Final = {"cpu": "7900m", "memory": "32Gi", "pods": "128"}
_POD_CPU: Final = "390m"  # twenty of them leave no room for another
_EVENTS: Final = 8
_EVERY_SECONDS: Final = 0.005


# -- the cluster -------------------------------------------------------------------------------------------------------


def raw_objects(nodes: int) -> Iterator[dict[str, Any]]:
    """As `bench.cluster`, but full nodes of kwok that could be consolidated and never expire."""
    bought = {
        names.KWOK_NODECLASS_LABEL: "default",
        names.INSTANCE_TYPE_LABEL: _TYPE,
        names.CAPACITY_TYPE_LABEL: "on-demand",
    }
    for number, one in enumerate(cluster_objects(nodes)):
        kind, meta, spec = one["kind"], one["metadata"], one.get("spec", {})
        meta["resourceVersion"] = str(number + 1)
        if kind == names.NODEPOOL_KIND:
            one["status"] = {"conditions": [_true("Ready")]}
        elif kind == names.NODECLAIM_KIND:
            spec["expireAfter"] = "Never"
            meta["labels"] |= {**bought, names.ZONE_LABEL: "test-zone-a"}
            one["status"] |= {"capacity": _CAPACITY, "allocatable": _ALLOCATABLE}
            one["status"]["conditions"].append(_true("Consolidatable"))
        elif kind == "Node":
            meta["labels"] |= bought
            one["status"] |= {"capacity": _CAPACITY, "allocatable": _ALLOCATABLE}
        elif kind == "Pod":
            spec["containers"][0]["resources"]["requests"]["cpu"] = _POD_CPU
        yield one


def _true(type_: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "reason": type_, "lastTransitionTime": "2026-03-01T08:00:00Z"}


class MemoryApi(DryRunApi):
    """Lists what it was given, and tells what it is told to; nothing is written."""

    def __init__(self, objects: Iterator[dict[str, Any]]) -> None:
        super().__init__(self)
        self._bodies: dict[str, list[bytes]] = {}
        self._queues: dict[str, asyncio.Queue[tuple[EventType, bytes]]] = {}
        self._version = 10_000_000
        for one in objects:
            self._bodies.setdefault(_KINDS[one["kind"]].plural, []).append(msgspec.json.encode(one))

    async def list(self, resource: Resource[T], *, limit: int = 500, continue_: str = "", **_: Any) -> Page[T]:
        bodies, start = self._bodies.get(resource.plural, []), int(continue_ or 0)
        items = [msgspec.json.decode(body, type=resource.struct) for body in bodies[start : start + limit]]
        await asyncio.sleep(0)
        more = str(start + limit) if start + limit < len(bodies) else ""
        return Page(items=items, resource_version=str(self._version), continue_=more)

    async def watch(self, resource: Resource[T], **_: Any) -> AsyncIterator[WatchEvent[T]]:  # type: ignore[override]
        queue = self._queues.setdefault(resource.plural, asyncio.Queue())
        while True:
            type_, body = await queue.get()
            item = msgspec.json.decode(body, type=resource.struct)
            yield WatchEvent(type_, item.metadata.resource_version, item)  # type: ignore[attr-defined]

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        raise NotFound(f"{resource.plural} {namespace}/{name}")

    def tell(self, kind: Resource[Any], number: int, **status: Any) -> None:
        """That the status of one of them has changed."""
        self._version += 1
        body = json.loads(self._bodies[kind.plural][number])
        body["metadata"]["resourceVersion"] = str(self._version)
        body["status"] |= status
        self._bodies[kind.plural][number] = encoded = msgspec.json.encode(body)
        self._queues.setdefault(kind.plural, asyncio.Queue()).put_nowait((EventType.MODIFIED, encoded))

    def end_pod(self, number: int) -> None:
        """Its node has room from now on, and looks otherwise to everybody."""
        self.tell(PODS, number, phase="Succeeded")


# -- single stretches --------------------------------------------------------------------------------------------------


async def stretches(nodes: int) -> dict[str, float]:
    """Milliseconds of processor time of what is done in one turn: at first, and after a pod has ended."""
    api, clock = MemoryApi(raw_objects(nodes)), SystemClock()
    provider = KwokProvider(api)
    cluster = WatchedCluster(api, clock, provider.node_classes)
    state = SchedulingState(cluster)
    types = InstanceTypeSource(cluster, provider, keep_seconds=Timings().instance_types_seconds)
    planner = DisruptionPlanner(options=SchedulingOptions())

    def inputs() -> DisruptionInputs:
        return DisruptionInputs(snapshot=state.snapshot(clock.now()))

    metrics = Metrics(CollectorRegistry())
    metrics.registry.register(ClusterMetrics(cluster, clock, leads=lambda: True))
    taken_ms: dict[str, float] = {}

    def measured(name: str, action: Callable[[], object]) -> None:
        began = time.thread_time()
        action()
        taken = (time.thread_time() - began) * 1000
        taken_ms[name] = min(taken, taken_ms.get(name, taken))

    async with _running(cluster):
        spare_collections()
        await types.refresh(state.usable_pools())
        await cluster.settled()
        for number, when in enumerate(("first", *["again"] * _EVENTS)):
            measured(f"places {when}", state.places)
            measured(f"pods to place {when}", lambda: (state.pending(), state.leaving(clock.now())))
            measured(f"note for a pass {when}", inputs)
            measured(f"note for a scrape {when}", lambda: list(metrics.registry.collect()))
            measured(f"picture, aside {when}", lambda: planner.assess(inputs()))
            measured(f"scrape, aside {when}", lambda: b"".join(rendered(metrics.registry.collect())))
            api.end_pod(number * 997 % (nodes * 20))
            await asyncio.sleep(0.05)
    return taken_ms


@asynccontextmanager
async def _running(cluster: WatchedCluster) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(cache.run()) for cache in cluster.reflectors]
        for cache in cluster.reflectors:
            await cache.wait_synced()
        yield
        for task in tasks:
            task.cancel()


# -- the whole program -------------------------------------------------------------------------------------------------


class Program:
    """What `dovetail run --dry-run` runs, on this API."""

    def __init__(self, api: MemoryApi) -> None:
        self.api, clock = api, SystemClock()
        self.metrics = Metrics(CollectorRegistry())
        provider = KwokProvider(api)
        self.cluster = WatchedCluster(api, clock, provider.node_classes)
        types = InstanceTypeSource(self.cluster, provider, keep_seconds=Timings().instance_types_seconds)
        prices = PoolCosts(self.cluster, types, self.metrics)
        controllers = all_controllers(
            self.cluster,
            provider,
            self.metrics,
            Timings(disruption_idle_seconds=0.2),
            FeatureGates(),
            provisioning=ProvisioningOptions(compute=ThreadCompute()),
            disrupting=True,
            types=types,
            of_provider=kwok_controllers(provider, self.cluster),
        )
        (self.disruption,) = (controller for controller in controllers if isinstance(controller, DisruptionController))
        self.manager = Manager(
            api,
            clock,
            election=None,
            recorder=EventRecorder(api, clock, instance="bench"),
            reflectors=self.cluster.reflectors,
            controllers=[*controllers, prices],
        )
        collector = ClusterMetrics(self.cluster, clock, leads=lambda: True, prices=prices)
        self.metrics.registry.register(collector)

    async def passed(self) -> None:
        """Returns when one more pass is over."""
        before = self.disruption.left_alone
        while self.disruption.left_alone is before:
            await asyncio.sleep(_EVERY_SECONDS)


class Found(NamedTuple):
    """The worst since last asked, in taken_ms."""

    busy: float  # processor time of the event loop's thread between two rings of the timer: a turn, at most two
    late: float  # the timer
    slow: float  # the answer to the probe


class Lateness:
    """A timer that rings every five taken_ms, and a probe that is asked as often."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._timer: asyncio.TimerHandle
        self._busiest = self._worst = self._slowest = 0.0

    async def watch_timer(self) -> None:
        """By callbacks: a task is woken only in the turn after that of its timer."""
        loop = asyncio.get_running_loop()
        due, busy = time.perf_counter(), time.thread_time()

        def ring() -> None:
            nonlocal due, busy
            self._worst = max(self._worst, time.perf_counter() - due)
            self._busiest = max(self._busiest, time.thread_time() - busy)
            due, busy = time.perf_counter() + _EVERY_SECONDS, time.thread_time()
            self._timer = loop.call_later(_EVERY_SECONDS, ring)

        ring()
        try:
            await loop.create_future()
        finally:
            self._timer.cancel()

    async def watch_probe(self) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                began = time.perf_counter()
                async with session.get(self._url) as answer:
                    await answer.read()
                self._slowest = max(self._slowest, time.perf_counter() - began)
                await asyncio.sleep(_EVERY_SECONDS)

    def taken(self) -> Found:
        """What was found since last asked."""
        found = Found(self._busiest * 1000, self._worst * 1000, self._slowest * 1000)
        self._busiest = self._worst = self._slowest = 0.0
        return found


async def lateness(nodes: int) -> dict[str, Found]:
    """What holds up others while each of these happens."""
    space_collections()
    program = Program(MemoryApi(raw_objects(nodes)))
    probes = probe_routes("healthz", {"healthz": program.manager.liveness})
    worst: dict[str, Found] = {}
    async with serving([*probes, metrics_route(program.metrics.registry)], address="127.0.0.1", port=0) as port:
        url = f"http://127.0.0.1:{port}"
        late = Lateness(f"{url}/healthz")
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(late.watch_timer()), group.create_task(late.watch_probe())]
            running = group.create_task(program.manager.run(stop))
            for cache in program.cluster.reflectors:
                await cache.wait_synced()
            spare_collections()
            await asyncio.sleep(0.05)
            worst["the lists are read"] = late.taken()
            await program.passed()
            worst["the first pass"] = late.taken()
            await _rest(late)
            for number in range(_EVENTS):
                program.api.end_pod(number * 997 % (nodes * 10))
                await program.passed()
            worst["a pass after a pod has ended"] = late.taken()
            for what in ("the first scrape", "a scrape"):
                await _rest(late)
                for _ in range(1 if "first" in what else 3):
                    await _scrape(f"{url}/metrics")
                    worst[what] = (
                        late.taken() if "first" in what else max(late.taken(), worst.get(what, Found(0, 0, 0)))
                    )
            stop.set()
            for task in watching:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await running
    return worst


async def _rest(late: Lateness) -> None:
    await asyncio.sleep(0.5)
    late.taken()


async def _scrape(url: str) -> None:
    """In a process of its own: whoever reads megabytes in this one would hold it up."""
    code = f"import urllib.request; urllib.request.urlopen({url!r}).read()"
    scraping = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    await scraping.wait()


# -- printing ----------------------------------------------------------------------------------------------------------


def print_holdups() -> None:
    """The tables."""
    print("what is done in one turn of the event loop, 20 pods a node")
    print(f"{'nodes':>8} {'':<18} {'first':>10} {'after one pod event':>22}")
    for nodes in _SIZES:
        taken_ms = _measured("stretches", nodes)
        for what in [name.removesuffix(" first") for name in taken_ms if name.endswith(" first")]:
            print(f"{nodes:>8} {what:<18} {taken_ms[f'{what} first']:>7.1f} ms {taken_ms[f'{what} again']:>19.1f} ms")
    print("\nall controllers at work: the busiest turn, the latest timer, and the slowest probe, while …")
    print(f"{'nodes':>8} {'':<30} {'turn':>10} {'timer':>10} {'/healthz':>10}")
    for nodes in _SIZES:
        for what, figures in _measured("lateness", nodes).items():
            print(f"{nodes:>8} {what:<30} {''.join(f'{figure:>8.1f} ms' for figure in figures)}")
    print()


def _measured(what: str, nodes: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.holdups", what, str(nodes)]
    figures: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return figures


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print_holdups()
    else:
        print(json.dumps(asyncio.run({"stretches": stretches, "lateness": lateness}[sys.argv[1]](int(sys.argv[2])))))
