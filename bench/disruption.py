"""What does a pass over all nodes cost, when all is new and when one pod is: on the event loop, and aside (08 §4, §8)?

The way of the controller: the picture is made on the event loop, world and decision on a worker thread. All is
processor time of the thread that does it. `python -m bench.disruption` prints the table; `python -m bench.disruption
profile full 1000` says where the time goes.
"""

import asyncio
import cProfile
import gc
import json
import math
import pstats
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import aiohttp

from bench.many_nodes import KINDS, PODS_PER_NODE, types
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.kube import connect
from dovetail.planning.disruption.assessment import DisruptionInputs, DisruptionPlanner
from dovetail.planning.disruption.board import DisruptionBoard
from dovetail.planning.disruption.consolidation import single
from dovetail.planning.disruption.methods import Decision, decide_pass
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.planning.timings import Timings
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.compute import ThreadCompute
from dovetail.scheduling.placement import SchedulingOptions
from dovetail.state.scheduling import SchedulingState

P = ParamSpec("P")
R = TypeVar("R")

_SIZES: Final = (500, 1_000, 2_000, 5_000)
_COLD_RUNS: Final = 3
_EVENTS: Final = 5
_STRIDE: Final = 997  # of the pods that end: each of another node


class Pass(NamedTuple):
    """Seconds of processor time: of the event loop, and of the thread beside it for the world and to decide."""

    loop: float
    world: float
    decided: float

    @property
    def total(self) -> float:
        return sum(self)


class TimedThread(ThreadCompute):
    """Knows how long it has been at work."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        def timed() -> R:
            started = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - started

        return await super().run(timed)

    def taken(self) -> float:
        """Since it was last asked."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class Stand:
    """What the controller has, on this server."""

    def __init__(self, url: str, cluster: WatchedCluster, provider: KwokProvider) -> None:
        self._url = url
        self._cluster = cluster
        self._state = SchedulingState(cluster)
        self._types = InstanceTypeSource(cluster, provider, keep_seconds=Timings().instance_types_seconds)
        self._planner = DisruptionPlanner(options=SchedulingOptions())
        self._rules = ConsolidationOptions()
        self._thread = TimedThread()

    async def passed(self) -> tuple[Pass, Decision, DisruptionBoard]:
        """As the controller makes it; validation would follow."""
        started = time.thread_time()
        board = await self.board()
        world = self._thread.taken()
        decision = await self._thread.run(decide_pass, board, self._rules)
        return Pass(time.thread_time() - started, world, self._thread.taken()), decision, board

    async def board(self) -> DisruptionBoard:
        await self._types.refresh(self._state.usable_pools())
        await self._cluster.settled()
        inputs = DisruptionInputs(snapshot=self._state.snapshot(self._cluster.clock.now()))
        assessment = await self._thread.run(self._planner.assess, inputs)
        return await self._thread.run(self._planner.board, assessment)

    def single_seconds(self, board: DisruptionBoard) -> float:
        """Of each node by itself alone, which is a part of the decision."""
        started = time.thread_time()
        single(board, self._rules, lambda: True)
        return time.thread_time() - started

    async def end_pod(self, number: int) -> None:
        """Returns when the cache knows."""
        async with aiohttp.ClientSession() as session, session.post(f"{self._url}/end?number={number}") as answer:
            name = await answer.text()
        while self._cluster.pods.get(("default", name)) is not None:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def standing(url: str) -> AsyncIterator[Stand]:
    """With everything read."""
    with _kubeconfig(url) as file:
        async with connect(kubeconfig=str(file)) as api, asyncio.TaskGroup() as group:
            provider = KwokProvider(api, types=types())
            cluster = WatchedCluster(api, SystemClock(), provider.node_classes)
            stand = Stand(url, cluster, provider)
            following = [group.create_task(reflector.run()) for reflector in cluster.reflectors]
            for reflector in cluster.reflectors:
                await reflector.wait_synced()
            gc.collect()
            gc.freeze()  # as `dovetail run` does
            yield stand
            for task in following:
                task.cancel()


@contextmanager
def _kubeconfig(url: str) -> Iterator[Path]:
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kubeconfig")
        file.write_text(json.dumps(config))
        yield file


# -- figures -----------------------------------------------------------------------------------------------------------


async def measure(url: str, events: int) -> dict[str, Any]:
    """One pass when all is new, and one after each of so many pods has ended."""
    async with standing(url) as stand:
        first, decision, board = await stand.passed()
        alone, again = stand.single_seconds(board), []
        del board
        for event in range(events):
            await stand.end_pod(event * _STRIDE)
            again.append((await stand.passed())[0])
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    commands = [
        f"{command.method}: {len(command.nodes)} → {len(command.replacements)}" for command in decision.commands
    ]
    could = len(decision.standing)
    return {"first": first, "again": again, "single": alone, "peak_mb": peak_mb, "found": commands, "could": could}


@contextmanager
def _served(nodes: int, kind: str) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.many_nodes", str(nodes), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def _measured(nodes: int, kind: str) -> list[dict[str, Any]]:
    """Each run in a process of its own: what a pass learns stays. The first goes on with the events."""
    runs = []
    for number in range(_COLD_RUNS):
        with _served(nodes, kind) as url:
            command = [sys.executable, "-m", "bench.disruption", "measure", url, str(0 if number else _EVENTS)]
            runs.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    return runs


def _median(passes: list[list[float]]) -> Pass:
    return Pass(*(statistics.median(column) for column in zip(*passes, strict=True)))


def print_disruption(sizes: tuple[int, ...] = _SIZES) -> None:
    print(f"a pass over all nodes: {PODS_PER_NODE} pods a node, 100 types, four pools; medians of processor time")
    print(f"{'':<15}{'when all is new':^39}{'after one pod has ended':^37}")
    for_each = f"{'loop':>12}{'world':>9}{'decided':>9}"
    print(f"{'':<7}{'nodes':>8}{for_each}{'growth':>8}{for_each}{'growth':>8}{'of it single':>14}{'memory':>9}  found")
    for kind in KINDS:
        before: tuple[int, Pass, Pass] | None = None
        for nodes in sizes:
            runs = _measured(nodes, kind)
            first, again = (
                _median([run["first"] for run in runs]),
                _median([one for run in runs for one in run["again"]]),
            )
            growths = (
                ["", ""]
                if before is None
                else [
                    _growth(before[0], was.total, nodes, now.total)
                    for was, now in ((before[1], first), (before[2], again))
                ]
            )
            alone, peak = statistics.median(run["single"] for run in runs), max(run["peak_mb"] for run in runs)
            commands = "; ".join(runs[0]["found"]) or "nothing"
            print(
                f"{kind:<7}{nodes:>8}{_shown(first)}{growths[0]:>8}{_shown(again)}{growths[1]:>8}{alone:>12.2f} s"
                f"{peak:>6.0f} MB  {commands}; {runs[0]['could']} could go",
                flush=True,
            )
            before = (nodes, first, again)
    print()


def _shown(one: Pass) -> str:
    return f"{one.loop * 1e3:>9.0f} ms{one.world * 1e3:>6.0f} ms{one.decided:>7.2f} s"


def _growth(small: int, before: float, large: int, now: float) -> str:
    """The power of the size with which the time grew: 1 is linear."""
    return f"{math.log(now / before) / math.log(large / small):.2f}"


async def profile(url: str, most: int = 25) -> None:
    """Of a decision after one pod has ended."""
    async with standing(url) as stand:
        await stand.passed()
        await stand.end_pod(0)
        board, profiler = await stand.board(), cProfile.Profile()
        profiler.runcall(decide_pass, board, ConsolidationOptions())
        pstats.Stats(profiler).sort_stats("tottime").print_stats(most)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["measure", url, events]:
            print(json.dumps(asyncio.run(measure(url, int(events)))))
        case ["profile", kind, nodes]:
            with _served(int(nodes), kind) as url:
                asyncio.run(profile(url))
        case sizes:
            print_disruption(tuple(map(int, sizes)) or _SIZES)


if __name__ == "__main__":
    main(sys.argv[1:])
