"""How fast does a half-empty cluster shrink on a real control plane, to what cost, and what does that take of us?

`dovetail run` is a process of its own beside the control plane; what comes of it is watched from here. The machine's
cores are shared by all of them. `python -m bench shrinking 200` prints the table, which takes about ten minutes.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from bench import half_empty
from bench.half_empty import HEAD, LARGE, PAUSE_SECONDS, PODS_EACH, POOL, Course, Started, figures, print_rows
from dovetail.api import objects
from dovetail.kube import connect
from dovetail.ports import NODEPOOLS, NODES, PODS, Create, Delete, KubeApi, Patch
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.reflector import Reflector
from dovetail.sim.actors.cluster import kind_of
from dovetail.sim.actors.wire import DEPLOYMENTS
from dovetail.state.store import Added, Change
from dovetail.values.timestamp import parse_time
from tests.cluster import folders
from tests.cluster.access import Cluster, condition
from tests.cluster.build import is_built
from tests.cluster.plane import PATIENT, ControlPlane
from tests.cluster.run_process import RunProcess

T = TypeVar("T")

_SIZES: Final = (200,)
_PATIENCE_SECONDS: Final = 1_800.0
_QUIET_SECONDS: Final = 120.0  # without a node that comes or goes: it has come to rest
_LONGEST_SECONDS: Final = 900.0
_LOOKS_EVERY_SECONDS: Final = 0.5
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_POOL_PATH: Final = f"/apis/{NODEPOOLS.group}/{NODEPOOLS.version}/{NODEPOOLS.plural}/{POOL}"


class Watcher:
    """What the server tells: phases of pods, labels of Nodes, and how many pods were made."""

    def __init__(self, api: KubeApi) -> None:
        self.pods: Reflector[objects.Pod, str] = Reflector(api, SystemClock(), PODS, lambda pod: pod.status.phase)
        self.nodes: Reflector[objects.Node, dict[str, str]] = Reflector(
            api, SystemClock(), NODES, lambda node: dict(node.metadata.labels)
        )
        self.made = 0
        self.pods.store.subscribe(self._count)

    def _count(self, change: Change[str]) -> None:
        self.made += isinstance(change, Added)

    def all_run(self, count: int) -> bool:
        phases = [kept.value for kept in self.pods.store.snapshot().items.values()]
        return len(phases) == count and all(phase == "Running" for phase in phases)

    def labels(self) -> list[dict[str, str]]:
        return [kept.value for kept in self.nodes.store.snapshot().items.values()]


# -- the process -------------------------------------------------------------------------------------------------------


def cpu_seconds(pid: int, thread: int | None = None) -> float:
    stat = Path(f"/proc/{pid}/stat" if thread is None else f"/proc/{pid}/task/{thread}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS


def _peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in status if line.startswith("VmHWM"))


# -- the run -----------------------------------------------------------------------------------------------------------


async def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {_PATIENCE_SECONDS} s: {what}")
        await asyncio.sleep(_LOOKS_EVERY_SECONDS)


async def _apply(api: KubeApi, *bodies: dict[str, Any]) -> None:
    for body in bodies:
        kind = kind_of(body)
        await api.write(Create(kind, body, namespace="default" if kind.namespaced else None))


async def fill(plane: Cluster, api: KubeApi, watcher: Watcher, number: int) -> None:
    await _apply(api, *half_empty.pool())
    await asyncio.to_thread(plane.wait, _POOL_PATH, lambda pool: condition(pool, "Ready") == "True")
    started = time.perf_counter()
    await _apply(api, *half_empty.workloads(number))
    await _until(lambda: watcher.all_run(number * PODS_EACH), "all pods run")
    print(f"  {number * PODS_EACH} pods run after {time.perf_counter() - started:.0f} s", flush=True)
    await api.write(Delete(DEPLOYMENTS, LARGE, namespace="default"))
    await asyncio.sleep(PAUSE_SECONDS)


class Usage(msgspec.Struct, frozen=True):
    """Of the process: CPU seconds, those of its event loop, and the most memory so far."""

    cpu: float
    loop: float
    peak_mb: float

    @classmethod
    def of(cls, process: RunProcess) -> "Usage":
        pid = process.process.pid
        if process.process.poll() is not None:
            raise SystemExit(f"dovetail run has ended: {[*process.said, *process.lines[-5:]]}")
        return cls(cpu_seconds(pid), cpu_seconds(pid, pid), _peak_mb(pid))


async def _shrunk(plane: Cluster, process: RunProcess, number: int) -> None:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(connect(kubeconfig=str(plane.kubeconfig), qps=None))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        watcher = Watcher(api)
        following = [group.create_task(reflector.run()) for reflector in (watcher.pods, watcher.nodes)]
        await fill(plane, api, watcher, number)
        began_at, before = datetime.now(UTC), Usage.of(process)
        await api.write(Patch(NODEPOOLS, POOL, half_empty.set_free()))
        course, usages = await watch(watcher, partial(Usage.of, process))
        for task in following:
            task.cancel()
    _take_commands(course, process, began_at)
    if course.moments[-1].at >= _LONGEST_SECONDS:
        print(f"  cut off after {_LONGEST_SECONDS:.0f} s: the lowest cost may not be the final one")
    last, near = usages[-1], usages[course.moments.index(course.near)]
    print_rows(number, figures(number, course, cpu_seconds=last.cpu - before.cpu, peak_mb=last.peak_mb))
    print(
        f"  nodes came or went for the last time after {course.changed_at():.0f} s; of the CPU time "
        f"{near.cpu - before.cpu:.0f} s were spent until the cost was near its lowest, and of all of it "
        f"{last.loop - before.loop:.0f} s on the event loop; {before.cpu:.0f} s before"
    )
    for command in course.commands:
        print(f"{command.at:>12.1f} s  {command.method:<8} {command.nodes:>4} nodes → {command.replacements}")


async def watch(
    watcher: Watcher, use: Callable[[], T], *, quiet_seconds: float = _QUIET_SECONDS
) -> tuple[Course, list[T]]:
    """Until nodes have neither come nor gone for a while. `use`: what the processes have used so far."""
    course, usages, started, made = Course(), [use()], time.monotonic(), watcher.made
    course.add(0.0, watcher.labels(), 0)
    while course.moments[-1].at < min(course.changed_at() + quiet_seconds, _LONGEST_SECONDS):
        await asyncio.sleep(_LOOKS_EVERY_SECONDS)
        course.add(time.monotonic() - started, watcher.labels(), watcher.made - made)
        usages.append(use())
    return course, usages


def _take_commands(course: Course, process: RunProcess, began_at: datetime) -> None:
    for line in process.lines:
        if "disrupted-nodes" in line and (at := parse_time(line["time"])) >= began_at:
            course.commands.append(Started.read((at - began_at).total_seconds(), line))


def measure(number: int, folder: Path) -> None:
    """Beside a control plane that has been started there."""
    plane = Cluster(folder)
    with RunProcess(plane) as process:
        process.wait_ready()
        asyncio.run(_shrunk(plane, process, number))


def print_real_shrinking(*sizes: int) -> None:
    """Each on a control plane and in a process of its own."""
    if not is_built():
        print("shrinking: skipped, the control plane is not built; `make test` does that first\n")
        return
    print("a half-empty cluster shrinks: on a real control plane")
    print(HEAD, flush=True)
    for number in sizes or _SIZES:
        folder = folders.new()
        try:
            with ControlPlane(folder, flags=PATIENT) as plane:
                plane.install_crds()
                subprocess.run(
                    [sys.executable, "-m", "bench.real_shrinking", "on", str(number), str(folder)], check=True
                )
        finally:
            folders.remove(folder)
    print()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["on", number, folder]:
            measure(int(number), Path(folder))
        case sizes:
            print_real_shrinking(*map(int, sizes))
