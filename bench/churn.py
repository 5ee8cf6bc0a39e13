"""Dovetail and Karpenter, one after the other, on a real control plane with the same workloads and the same edits.

`python -m bench churn` runs ten mixed workloads that are edited twelve times, 90 s apart, and then left alone for five
minutes: about 25 minutes for each controller and seed. `python -m bench churn --edits 3 --every 20 --calm 60
--controllers dovetail` is a short trial. `python -m bench scale-out` provisions about 100 mixed pods (three seeds) and
1,000 pods on an empty cluster, and looks at the cost again five minutes after the last pod runs.

Both controllers are watched in the same way, from outside, by reading pods and Nodes from the API server:

- cost: the price of all Nodes, by one table of prices, integrated over time;
- moved: pods that got the condition DisruptionTarget, which an eviction sets and a workload that shrinks does not;
- launched: Nodes that were created;
- pending: seconds for which pods wait, from their creation until they run, summed over all pods;
- rest: from the last edit until the last Node came or went or the last pod was moved.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, Final

import msgspec

from bench.half_empty import cost_of
from bench.plans import edit, pool, workload
from dovetail.api import objects
from dovetail.kube import connect
from dovetail.ports import NODEPOOLS, NODES, PODS, Clock, Create, KubeApi, Patch
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.reflector import Reflector
from dovetail.sim.actors.cluster import kind_of
from dovetail.state.store import Added, Change, Deleted, Updated
from tests.cluster import folders
from tests.cluster.access import Cluster, condition
from tests.cluster.plane import PATIENT, ControlPlane
from tests.cluster.provisioning import workloads as upstream
from tests.cluster.run_process import RunProcess
from tests.harness.claims import node_class
from tests.harness.manifests import Manifest
from tests.peer.process import NAME as PEER
from tests.peer.process import PeerProcess, load_crds

DOVETAIL: Final = "dovetail"
CONTROLLERS: Final = (DOVETAIL, PEER)
_CLOCK: Final = SystemClock()
_WORKLOADS: Final = 10
_SCALE_OUT_WORKLOADS: Final = 16  # about 100 pods
_PODS: Final = 1_000
_LOOKS_EVERY_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 900.0
_RESTLESS_SECONDS: Final = 60.0  # a change so soon before the end: it has not come to rest
_POOL_PATH: Final = f"/apis/{NODEPOOLS.group}/{NODEPOOLS.version}/{NODEPOOLS.plural}/default"


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


# -- what is put there -------------------------------------------------------------------------------------------------


def _consolidating(pool_: Manifest, after: str) -> Manifest:
    return pool_ | {"spec": pool_["spec"] | {"disruption": {"consolidateAfter": after, "budgets": [{"nodes": "20%"}]}}}


class Script(msgspec.Struct, frozen=True):
    """Workloads with their budgets, and the edits that follow: patches of workloads."""

    objects: list[Manifest]
    edits: list[list[Manifest]]

    @classmethod
    def draw(cls, seed: int, edits: int) -> "Script":
        """The first edits of a seed are the same, however many there are."""
        draw = random.Random(f"churn {seed}")
        parts = [workload(draw, number) for number in range(_WORKLOADS)]
        return cls(list(chain.from_iterable(parts)), [edit(draw, [part[0] for part in parts]) for _ in range(edits)])


def _mixed_pods(seed: int) -> list[Manifest]:
    draw = random.Random(f"scale-out {seed}")
    parts = [workload(draw, number, kinds=("Deployment",)) for number in range(_SCALE_OUT_WORKLOADS)]
    return list(chain.from_iterable(parts))


def _replicas(bodies: Iterable[Manifest]) -> int:
    return sum(body["spec"].get("replicas", 0) for body in bodies)


# -- what is seen ------------------------------------------------------------------------------------------------------


class SeenPod(msgspec.Struct, frozen=True):
    phase: str
    ending: bool
    evicted: bool

    @classmethod
    def of(cls, pod: objects.Pod) -> "SeenPod":
        evicted = any((entry.type, entry.status) == ("DisruptionTarget", "True") for entry in pod.status.conditions)
        return cls(pod.status.phase, pod.metadata.deletion_timestamp is not None, evicted)


class ClusterObserver:
    """Counts and integrates what the API server tells of pods and Nodes."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._clock = clock
        self._pods: Reflector[objects.Pod, SeenPod] = Reflector(api, clock, PODS, SeenPod.of)
        self._nodes: Reflector[objects.Node, dict[str, str]] = Reflector(
            api, clock, NODES, lambda node: dict(node.metadata.labels)
        )
        self._pods.store.subscribe(self._see_pod)
        self._nodes.store.subscribe(self._see_node)
        self._moved: set[str] = set()
        self.launched = 0
        self.dollars = 0.0
        self.pending_seconds = 0.0
        self.changed_at = self._clock.monotonic()

    @property
    def moved(self) -> int:
        return len(self._moved)

    @property
    def rate(self) -> float:
        """Dollars per hour."""
        return cost_of(kept.value for kept in self._nodes.store.snapshot().items.values())

    @property
    def nodes(self) -> int:
        return len(self._nodes.store.snapshot().items)

    def _staying(self) -> list[SeenPod]:
        return [kept.value for kept in self._pods.store.snapshot().items.values() if not kept.value.ending]

    def running(self) -> int:
        return sum(pod.phase == "Running" for pod in self._staying())

    def _see_pod(self, change: Change[SeenPod]) -> None:
        if isinstance(change, Added | Updated) and change.new.value.evicted and change.new.uid not in self._moved:
            self._moved.add(change.new.uid)
            self.changed_at = self._clock.monotonic()

    def _see_node(self, change: Change[dict[str, str]]) -> None:
        if isinstance(change, Added | Deleted):
            self.launched += isinstance(change, Added)
            self.changed_at = self._clock.monotonic()

    def tasks(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Run for ever."""
        return self._pods.run(), self._nodes.run(), self._integrate()

    async def _integrate(self) -> None:
        before = self._clock.monotonic()
        while True:
            await self._clock.sleep(_LOOKS_EVERY_SECONDS)
            now = self._clock.monotonic()
            self.dollars += self.rate * (now - before) / 3600
            self.pending_seconds += sum(pod.phase == "Pending" for pod in self._staying()) * (now - before)
            before = now


# -- one run -----------------------------------------------------------------------------------------------------------


class Bench:
    """A cluster with one controller, a ready pool, and an observer."""

    def __init__(self, api: KubeApi, observer: ClusterObserver, controller: RunProcess | PeerProcess) -> None:
        self._api = api
        self.observer = observer
        self._controller = controller

    async def create(self, *bodies: Manifest) -> None:
        for body in bodies:
            kind = kind_of(body)
            await self._api.write(Create(kind, body, namespace="default" if kind.namespaced else None))

    async def change(self, bodies: Iterable[Manifest]) -> None:
        for body in bodies:
            patch = {"spec": body["spec"]}
            await self._api.write(Patch(kind_of(body), body["metadata"]["name"], patch, namespace="default"))

    async def until(self, is_so: Callable[[], bool], *, seconds: float = _PATIENCE_SECONDS) -> bool:
        """Whether it came to be so in time; raises SystemExit if the controller has ended."""
        deadline = _CLOCK.monotonic() + seconds
        while not is_so() and _CLOCK.monotonic() < deadline:
            if self._controller.process.poll() is not None:
                code, said = self._controller.process.returncode, "\n".join(self._controller.said[-15:])
                raise SystemExit(f"the controller has ended with {code}:\n{said}")
            await _CLOCK.sleep(_LOOKS_EVERY_SECONDS)
        return is_so()

    async def wait(self, seconds: float) -> None:
        await self.until(lambda: False, seconds=seconds)


@asynccontextmanager
async def _observed(
    plane: Cluster, controller: RunProcess | PeerProcess, pool_: Sequence[Manifest]
) -> AsyncIterator[Bench]:
    async with connect(kubeconfig=str(plane.kubeconfig), qps=None) as api, asyncio.TaskGroup() as group:
        bench = Bench(api, ClusterObserver(api, _CLOCK), controller)
        await bench.create(*pool_)
        await asyncio.to_thread(plane.wait, _POOL_PATH, lambda pool: condition(pool, "Ready") == "True", seconds=60)
        following = [group.create_task(task) for task in bench.observer.tasks()]
        yield bench
        for task in following:
            task.cancel()


Row = dict[str, str]


def _on_plane(name: str, pool_: Sequence[Manifest], run: Callable[[Bench], Awaitable[Row]]) -> Row:
    """On a control plane of its own, which is removed in the end with everything in it."""

    async def observed() -> Row:
        async with _observed(plane, controller, pool_) as bench:
            return await run(bench)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # the `with` blocks end what they started
    folder = folders.new()
    try:
        with ControlPlane(folder, flags=PATIENT) as plane:
            plane.install_crds(load_crds() if name == PEER else ())
            with RunProcess(plane) if name == DOVETAIL else PeerProcess(plane) as controller:
                controller.wait_ready()
                return asyncio.run(observed()) | {"load": f"{os.getloadavg()[2]:.1f}"}
    finally:
        folders.remove(folder)


async def _churned(bench: Bench, script: Script, every: float, calm: float) -> Row:
    seen, started = bench.observer, _CLOCK.monotonic()
    await bench.create(*script.objects)
    for number, changes in enumerate(script.edits, 1):
        await bench.wait(started + number * every - _CLOCK.monotonic())
        names = ", ".join(
            f"{deployment['metadata']['name']} to {deployment['spec']['replicas']}" for deployment in changes
        )
        _say(
            f"edit {number}: {names}; until then {seen.nodes} nodes, ${seen.rate:.2f}/h, {seen.moved} pods moved, "
            f"{seen.launched} nodes launched, {seen.pending_seconds:.0f} s pending, {seen.running()} pods run"
        )
        await bench.change(changes)
    edited = _CLOCK.monotonic()
    await bench.wait(calm)
    resting = _CLOCK.monotonic() - seen.changed_at >= min(_RESTLESS_SECONDS, calm / 2)
    return {
        "cost": f"${seen.dollars:.4f}",
        "at the end": f"${seen.rate:.2f}/h",
        "nodes": str(seen.nodes),
        "moved": str(seen.moved),
        "launched": str(seen.launched),
        "pending": f"{seen.pending_seconds:.0f} s",
        "rest": f"{max(0.0, seen.changed_at - edited):.0f} s" if resting else "none",
    }


async def _scaled_out(bench: Bench, bodies: Sequence[Manifest], later: float) -> Row:
    seen, started, pods = bench.observer, _CLOCK.monotonic(), _replicas(bodies)
    await bench.create(*bodies)
    all_run = await bench.until(lambda: seen.running() == pods)
    row = {
        "pods": str(pods),
        "all run": f"{_CLOCK.monotonic() - started:.0f} s" if all_run else f"{seen.running()} of them",
        "pending": f"{seen.pending_seconds:.0f} s",
        "launched": str(seen.launched),
        "cost": f"${seen.rate:.2f}/h",
    }
    _say(f"{seen.running()} of {pods} pods run: {row}")
    await bench.wait(later)
    return row | {f"{later:g} s later": f"${seen.rate:.2f}/h", "nodes": str(seen.nodes), "moved": str(seen.moved)}


# -- the tables --------------------------------------------------------------------------------------------------------


def _print_row(title: str, name: str, row: Row, *, head: bool) -> None:
    if head:
        print(f"{'':<14}{'':<12}" + "".join(f"{column:>12}" for column in row))
    print(f"{title:<14}{name:<12}" + "".join(f"{value:>12}" for value in row.values()), flush=True)


def _parser(command: str, seeds: Sequence[int]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m bench {command}")
    parser.add_argument("--seeds", nargs="*", type=int, default=seeds)
    parser.add_argument("--controllers", nargs="+", choices=CONTROLLERS, default=CONTROLLERS)
    parser.add_argument("--consolidate-after", default="30s")
    return parser


def print_churn(arguments: Sequence[str]) -> None:
    """One row for each seed and controller."""
    parser = _parser("churn", (1,))
    parser.add_argument("--edits", type=int, default=12)
    parser.add_argument("--every", type=float, default=90.0, help="seconds between two edits")
    parser.add_argument("--calm", type=float, default=300.0, help="seconds after the last edit")
    options = parser.parse_args(arguments)
    print(f"ten mixed workloads, {options.edits} edits {options.every:g} s apart, then {options.calm:g} s of calm")
    first = True
    for seed in options.seeds:
        script = Script.draw(seed, options.edits)
        for name in options.controllers:
            _say(f"seed {seed}, {name}: {_replicas(script.objects)} pods")

            async def run(bench: Bench, script: Script = script) -> Row:
                return await _churned(bench, script, options.every, options.calm)

            row = _on_plane(name, (node_class(), _consolidating(pool(), options.consolidate_after)), run)
            _print_row(f"seed {seed}", name, row, head=first)
            first = False


def print_scale_out(arguments: Sequence[str]) -> None:
    """About 100 mixed pods of each seed, and 1,000 pods of two sizes."""
    parser = _parser("scale-out", (1, 2, 3))
    parser.add_argument("--no-thousand", action="store_true", help="only the seeds")
    parser.add_argument("--later", type=float, default=300.0, help="seconds until the cost is looked at again")
    options = parser.parse_args(arguments)
    print("pods on an empty cluster until the last one runs")
    cases: list[tuple[str, Manifest, list[Manifest]]] = [
        (f"seed {seed}", pool(), _mixed_pods(seed)) for seed in options.seeds
    ]
    if not options.no_thousand:
        cases.append(("two sizes", upstream.pool()[1], upstream.basic(_PODS // 2)))
    first = True
    for title, pool_, bodies in cases:
        for name in options.controllers:
            _say(f"{title}, {name}")

            async def run(bench: Bench, bodies: list[Manifest] = bodies) -> Row:
                return await _scaled_out(bench, bodies, options.later)

            row = _on_plane(name, (node_class(), _consolidating(pool_, options.consolidate_after)), run)
            _print_row(title, name, row, head=first)
            first = False
