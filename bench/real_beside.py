"""The real Karpenter alone, and under drive, on the same half-empty cluster: only moves without replacement.

The pool has one instance type, so that no cheaper node can replace another. All processes share the cores of the
machine. `python -m bench.real_beside 200` prints both, for that size.
"""

import asyncio
import sys
from contextlib import AsyncExitStack
from functools import partial
from subprocess import Popen
from typing import Any, Final

from bench.beside_shrinking import AT_ONCE, HEAD, NAMES, row
from bench.half_empty import POOL, Course
from bench.real_shrinking import Watcher, cpu_seconds, fill, watch
from dovetail.kube import connect
from dovetail.ports import NODEPOOLS, Patch
from tests.cluster import folders
from tests.cluster.access import Cluster
from tests.cluster.build import is_built
from tests.cluster.plane import PATIENT, ControlPlane
from tests.cluster.run_process import RunProcess
from tests.peer.process import PeerProcess, load_crds

SIZE: Final = 200
_QUIET_SECONDS: Final = 300.0  # passes over hundreds of nodes take long on a busy machine


def _used(processes: list[Popen[Any]]) -> float:
    assert all(process.poll() is None for process in processes), "one of the controllers has ended"
    return sum(cpu_seconds(process.pid) for process in processes)


async def _shrunk(plane: Cluster, number: int, processes: list[Popen[Any]]) -> tuple[Course, float]:
    """How it went, and the CPU seconds of the processes meanwhile."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(connect(kubeconfig=str(plane.kubeconfig), qps=None))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        watcher = Watcher(api)
        following = [group.create_task(reflector.run()) for reflector in (watcher.pods, watcher.nodes)]
        await fill(plane, api, watcher, number)
        await api.write(Patch(NODEPOOLS.read_as(dict[str, Any]), POOL, AT_ONCE))
        course, used = await watch(watcher, partial(_used, processes), quiet_seconds=_QUIET_SECONDS)
        for task in following:
            task.cancel()
    return course, used[-1] - used[0]


def measure(number: int, *, under_drive: bool) -> tuple[Course, float]:
    """On a control plane of its own."""
    folder = folders.new()
    try:
        with ControlPlane(folder, flags=PATIENT) as plane:
            plane.install_crds(load_crds())  # a Karpenter that starts without them drains nothing
            # One that leads would end when a busy machine keeps it from renewing its Lease.
            with PeerProcess(plane) as karpenter:
                karpenter.wait_ready()
                if not under_drive:
                    return asyncio.run(_shrunk(plane, number, [karpenter.process]))
                alone = ("--karpenter-version=1.15", "--disable-leader-election=true")
                with RunProcess(plane, *alone, mode="drive") as drive:
                    drive.wait_ready()
                    return asyncio.run(_shrunk(plane, number, [karpenter.process, drive.process]))
    finally:
        folders.remove(folder)


def print_real_beside(number: int) -> None:
    if not is_built():
        print("skipped: the control plane is not built; `make test` does that first")
        return
    print(f"{number} of each, half empty; nodes are only removed; the real Karpenter on a real control plane")
    print(HEAD, flush=True)
    for under_drive, name in NAMES.items():
        print(row(name, *measure(number, under_drive=under_drive)), flush=True)


if __name__ == "__main__":
    print_real_beside(int(sys.argv[1]) if len(sys.argv) > 1 else SIZE)
