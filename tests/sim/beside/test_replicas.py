"""Of two replicas one writes, also when the other loses its Lease in the middle (10 §I.8)."""

import asyncio
from typing import TypeVar

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.beside.assembly import GuardOptions, guard_controllers
from dovetail.controllers.beside.karpenter_watch import KarpenterWatch
from dovetail.observe.metrics import Metrics
from dovetail.ports import LEASES, NODES, Unavailable, Write
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.lease import Election, LeaseLost
from dovetail.runtime.manager import Manager, ManagerTimings
from dovetail.runtime.read_through import ReadThroughApi
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.server.faults import Fault
from tests.harness.guarding import bind, hold_on, pool, stand
from tests.harness.stage import gives, stage

T = TypeVar("T")


class CountingApi(ReadThroughApi):
    """Notes when which replica has written to a Node."""

    def __init__(self, sim: SimCluster, name: str, written: list[tuple[str, float]]) -> None:
        super().__init__(sim.server.client(name))
        self._sim, self._name, self._written = sim, name, written

    async def write(self, write: Write[T]) -> T:
        if write.resource.plural == NODES.plural:
            self._written.append((self._name, self._sim.clock.monotonic()))
        return await self._api.write(write)


async def replica(sim: SimCluster, name: str, written: list[tuple[str, float]]) -> None:
    """Starts again whenever it has lost the Lease."""
    while True:
        api = CountingApi(sim, name, written)
        cluster, metrics = WatchedCluster(api, sim.clock), Metrics(CollectorRegistry())
        election = Election(
            sim.server.client(f"{name}-lease"),
            sim.clock,
            namespace="kube-system",
            name=names.BESIDE_LEASE,
            identity=name,
        )
        manager = Manager(
            api,
            sim.clock,
            election=election,
            recorder=EventRecorder(api, sim.clock, instance=name),
            reflectors=cluster.reflectors,
            controllers=guard_controllers(cluster, metrics, KarpenterWatch("1.11"), GuardOptions()),
            timings=ManagerTimings(heartbeat_seconds=3600.0),
        )
        try:
            await manager.run(asyncio.Event())
        except LeaseLost:
            await sim.clock.sleep(1)


@gives("sim")
def play(scenario: object) -> None:
    run(scenario)  # type: ignore[arg-type]


@pytest.mark.parametrize("outage_seconds", [0, 40])
@stage(play)
async def test_never_both_write(sim: SimCluster, outage_seconds: int) -> None:
    written: list[tuple[str, float]] = []
    await sim.apply(pool())
    await stand(sim, *(f"n{number}" for number in range(20)))
    tasks = [asyncio.create_task(replica(sim, name, written)) for name in ("one", "two")]
    await sim.run_for("20s")
    for number in range(20):
        hourly = f"{number * 3} * * * *"
        await bind(sim, f"n{number}", f"web-{number}", disruption_schedule=hourly, disruption_schedule_duration="20m")
    await sim.run_for("30m")
    (lease,) = sim.objects(LEASES)
    leader = lease["spec"]["holderIdentity"]
    if outage_seconds:
        down = Fault(error=Unavailable("down"))
        sim.server.faults.add(down, client=f"{leader}-lease", times=10_000)
        await sim.run_for(f"{outage_seconds}s")
        sim.server.faults.clear()
    await sim.run_for("2h")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    writers = [name for name, _ in written]
    turns = [name for number, name in enumerate(writers) if number == 0 or writers[number - 1] != name]
    assert turns == ([leader] if not outage_seconds else [leader, "two" if leader == "one" else "one"])
    assert len(written) > 60
    assert any(hold_on(sim, f"n{number}") for number in range(20))
