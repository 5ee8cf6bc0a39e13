"""Karpenter alone, and Karpenter under drive, on the same half-empty cluster: only moves without replacement.

In virtual time, with the simulated Karpenter. `python -m bench.beside_shrinking 200` prints both, for that size.
"""

import sys
import time
from typing import Final

from bench import half_empty
from bench.half_empty import LARGE, PAUSE_SECONDS, PODS_EACH, POOL, Course
from dovetail.ports import NODEPOOLS, NODES, PODS, Delete, EventType, Patch, Resource
from dovetail.sim.actors.wire import DEPLOYMENTS
from dovetail.sim.server.store import Change
from tests.harness.driving import Driven, drive

HEAD: Final = f"{'':<26}{'nodes':>12}{'$/h':>16}{'within 1 % of its end':>24}{'pods moved':>12}{'CPU':>10}"
NAMES: Final = {False: "Karpenter alone", True: "Karpenter under drive"}
SIZE: Final = 20  # larger ones take minutes
_REST_SECONDS: Final = 600.0  # without a change
_LONGEST_SECONDS: Final = 7_200.0
_LOOKS_EVERY: Final = 5.0
AT_ONCE: Final = {"spec": {"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}}}


def shrunk(number: int, *, under_drive: bool) -> Course:
    course = Course()

    async def scenario(setting: Driven) -> None:
        if not under_drive:
            await setting.program.stop()
        await _filled(setting, number)
        await _watched(setting, course)

    drive(scenario)
    return course


async def _filled(setting: Driven, number: int) -> None:
    """Until all pods run; then the large ones go."""
    sim = setting.sim
    await sim.apply(*half_empty.pool())
    await sim.run_for("2s")
    await sim.apply(*half_empty.workloads(number))
    await sim.wait_until(lambda: len(sim.pods(ready=True)) == number * PODS_EACH, timeout="1h")
    await sim.api.write(Delete(DEPLOYMENTS, LARGE, namespace="default"))
    await sim.run_for(f"{PAUSE_SECONDS}s")
    await sim.wait_until(lambda: len(sim.pods()) == number * (PODS_EACH - 1), timeout="1h")


async def _watched(setting: Driven, course: Course) -> None:
    """From the change of the pool until nothing has changed for ten minutes."""
    sim, moved = setting.sim, 0
    since = sim.clock.monotonic()

    def count(resource: Resource[object], change: Change) -> None:
        nonlocal moved
        moved += resource.plural == PODS.plural and change.type is EventType.ADDED

    sim.server.registry.store.observers.append(count)
    await sim.api.write(Patch(NODEPOOLS, POOL, AT_ONCE))
    at = 0.0
    while at < min(course.changed_at() + _REST_SECONDS, _LONGEST_SECONDS) or not course.moments:
        labels = (node["metadata"]["labels"] for node in sim.objects(NODES))
        course.add(at, labels, moved)
        await sim.clock.sleep(_LOOKS_EVERY)
        at = sim.clock.monotonic() - since


def row(name: str, course: Course, seconds: float) -> str:
    """`seconds`: of CPU."""
    first, last, near = course.moments[0], course.moments[-1], course.near
    nodes, cost = f"{first.nodes} → {last.nodes}", f"{first.cost:.1f} → {last.cost:.1f}"
    return f"{name:<26}{nodes:>12}{cost:>16}{near.at:>22.0f} s{last.moved:>12}{seconds:>8.0f} s"


def print_beside(number: int) -> None:
    print(f"{number} of each, half empty; nodes are only removed; in virtual time")
    print(HEAD)
    for under_drive, name in NAMES.items():
        started = time.process_time()
        course = shrunk(number, under_drive=under_drive)
        print(row(name, course, time.process_time() - started), flush=True)


if __name__ == "__main__":
    print_beside(int(sys.argv[1]) if len(sys.argv) > 1 else SIZE)
