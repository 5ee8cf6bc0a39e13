"""How fast does a half-empty cluster shrink, to what cost, how often are pods moved for it, and does it come to rest?

All controllers and all actors of the simulated cluster, in virtual time, in which requests and decisions take none:
what is seen is what is decided, and how long things wait for each other. `python -m bench.shrinking` prints the table,
`python -m bench.shrinking 200` the row of that size, `python -m bench.shrinking 200 commands` each command as well.
"""

import logging
import sys
import time
from typing import Final

from bench import half_empty
from bench.half_empty import HEAD, LARGE, PAUSE_SECONDS, POOL, REST_SECONDS, Course, Started, figures, print_rows
from dovetail.controllers.disruption.reporter import log as decisions
from dovetail.ports import NODEPOOLS, NODES, PODS, Delete, EventType, Patch, Resource
from dovetail.sim.actors.wire import DEPLOYMENTS
from dovetail.sim.server.store import Change
from tests.harness.provisioning import Setting, play

_SIZES: Final = (10,)  # larger ones take minutes
_LONGEST_SECONDS: Final = 7_200  # should it never come near its end
_LOOKS_EVERY: Final = "1s"


class _Listening(logging.Handler):
    """Keeps the commands that the log tells of."""

    def __init__(self, setting: Setting, course: Course, since: float) -> None:
        super().__init__()
        self._clock, self._course, self._since = setting.sim.clock, course, since

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "disrupted-nodes"):
            self._course.commands.append(Started.read(self._clock.monotonic() - self._since, vars(record)))


async def _filled(setting: Setting, number: int) -> None:
    """Until all run; then the large ones are gone."""
    sim = setting.sim
    await sim.apply(*half_empty.pool())
    await sim.run_for("2s")
    await sim.apply(*half_empty.workloads(number))
    await _pods_run(setting, number * half_empty.PODS_EACH)
    await sim.api.write(Delete(DEPLOYMENTS, LARGE, namespace="default"))
    await sim.run_for(f"{PAUSE_SECONDS}s")
    await _pods_run(setting, number * (half_empty.PODS_EACH - 1))


async def _pods_run(setting: Setting, count: int) -> None:
    for _ in range(_LONGEST_SECONDS):
        if len(setting.sim.pods(ready=True)) == len(setting.sim.pods()) == count:
            return
        await setting.sim.run_for(_LOOKS_EVERY)
    raise SystemExit(f"{len(setting.sim.pods(ready=True))} pods are ready, not {count}")


async def _watched(setting: Setting, course: Course) -> None:
    """From the change of the pool until half an hour after the cost was near its lowest."""
    sim, moved = setting.sim, 0
    since = sim.clock.monotonic()

    def count(resource: Resource[object], change: Change) -> None:
        nonlocal moved
        moved += resource.plural == PODS.plural and change.type is EventType.ADDED

    listening = _Listening(setting, course, since)
    decisions.addHandler(listening)
    sim.server.registry.store.observers.append(count)
    try:
        course.add(0.0, (node["metadata"]["labels"] for node in sim.objects(NODES)), 0)
        await sim.api.write(Patch(NODEPOOLS, POOL, half_empty.set_free()))
        while course.moments[-1].at < min(course.near.at + REST_SECONDS, _LONGEST_SECONDS):
            await sim.run_for(_LOOKS_EVERY)
            course.add(
                sim.clock.monotonic() - since, (node["metadata"]["labels"] for node in sim.objects(NODES)), moved
            )
    finally:
        decisions.removeHandler(listening)


def shrunk(number: int) -> Course:
    course = Course()

    async def scenario(setting: Setting) -> None:
        await _filled(setting, number)
        await _watched(setting, course)

    level = decisions.level
    decisions.setLevel(logging.INFO)
    try:
        play(scenario, kwok=True, disrupting=True)
    finally:
        decisions.setLevel(level)
    return course


def print_commands(course: Course) -> None:
    for command in course.commands:
        print(f"{command.at:>12.1f} s  {command.method:<8} {command.nodes:>4} nodes → {command.replacements}")


def print_shrinking(*sizes: int, commands: bool = False) -> None:
    print("a half-empty cluster shrinks: in virtual time, the peer on a real control plane")
    print(HEAD)
    for number in sizes or _SIZES:
        started = time.perf_counter()
        course = shrunk(number)
        print_rows(number, figures(number, course))
        if commands:
            print_commands(course)
        if course.moments[-1].at >= _LONGEST_SECONDS:
            print(f"  cut off after {_LONGEST_SECONDS} s: the lowest cost may not be the final one")
        seconds = time.perf_counter() - started
        print(f"  nodes came or went for the last time after {course.changed_at():.0f} s; took {seconds:.0f} s")
    print()


if __name__ == "__main__":
    print_shrinking(*(int(word) for word in sys.argv[1:] if word.isdecimal()), commands="commands" in sys.argv)
