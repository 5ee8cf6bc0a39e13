"""What does the engine see of a cluster that stands still? The controllers' own picture of it, at one instant.

Nothing runs but the caches: nothing is scheduled, no condition is written, and no time passes.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import Cluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.disruption.board import BoardMaker, Picture
from dovetail.model.instance_types import InstanceType
from dovetail.model.problem import Problem
from dovetail.planning.disruption.board import Board
from dovetail.planning.timings import Timings
from dovetail.rules.budgets import Reading
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.manager import Context, Manager
from dovetail.scheduling.problem import Options, Origin, Pod
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.cloud.machines import SimCloud
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.scenarios.reading import Scenario
from dovetail.sim.scenarios.restoring import Prepared, prepare, put_in
from dovetail.state.instance_types import bought_as
from dovetail.state.refusals import Unplaceable
from dovetail.state.scheduling import PlacingState
from dovetail.views.plan import Drained


class Still(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is seen, and what was assumed to see it."""

    picture: Picture
    board: Board
    pools: Mapping[str, str]  # of nodes
    drained: tuple[Drained, ...]
    problems: tuple[Problem, ...]
    unsynced: str | None  # why the controller would wait before it decides anything


class _Look:
    """Runs beside nothing else, once."""

    name = "look"

    def __init__(self, state: PlacingState, types: InstanceTypeSource, maker: BoardMaker, stop: asyncio.Event) -> None:
        self._state = state
        self._types = types
        self._maker = maker
        self._stop = stop
        self.picture: Picture

    async def run(self, context: Context) -> None:
        await self._types.refresh(self._state.usable_pools())
        self.picture = self._maker.picture(context.clock.now())
        self._stop.set()
        await context.stopping.wait()


def look(
    scenario: Scenario,
    *,
    catalogue: Sequence[InstanceType] | None = None,
    reading: Reading = Reading.SEED,
    drained: Sequence[str] = (),
) -> Still:
    """At the scenario's start. `drained`: names of nodes that are asked about. Raises InputError."""
    prepared = prepare(scenario, catalogue)

    async def main(clock: VirtualClock) -> Still:
        return await _look(clock, prepared, reading, drained)

    found = simulate(main, start=scenario.start)
    assert found is not None
    return found


async def _look(clock: VirtualClock, prepared: Prepared, reading: Reading, drained: Sequence[str]) -> Still:
    sim = SimCluster(clock)
    node_classes = prepared.node_classes.read_as(objects.NodeClass)
    cloud = SimCloud(sim, types=prepared.machines.types, node_classes=node_classes)
    put_in(prepared, sim, cloud)
    api = sim.server.client(names.COMPONENT)
    cluster = Cluster(api, clock, cloud.node_classes)
    state = PlacingState(cluster)
    types = InstanceTypeSource(cluster, cloud, keep_seconds=Timings().instance_types_seconds)
    maker = BoardMaker(cluster, state, options=Options(), reading=reading)
    stop = asyncio.Event()
    look_ = _Look(state, types, maker, stop)
    manager = Manager(
        api,
        clock,
        election=None,
        recorder=EventRecorder(api, clock, instance="plan"),
        reflectors=cluster.reflectors,
        controllers=[look_],
    )
    await manager.run(stop)
    picture = look_.picture
    pools = {node.name: node.pool for node in picture.places.nodes if node.pool}
    return Still(
        picture=picture,
        board=maker.board(picture),
        pools=pools,
        drained=tuple(_drained(cluster, state, picture, name) for name in drained if name in pools),
        problems=prepared.problems,
        unsynced=state.unsynced(clock.now()),
    )


def _drained(cluster: Cluster, state: PlacingState, picture: Picture, name: str) -> Drained:
    read = state.read(state.place(name), tuple(cluster.pods_on[name]), Origin.CANDIDATE).read
    (node,) = (each for each in picture.places.nodes if each.name == name)
    prices = cluster.instance_types.of(node.pool).prices
    return Drained(
        node=name,
        price=prices.get(bought_as(node.labels)),
        pods=tuple(each for each in read if isinstance(each, Pod)),
        unplaceable={each.pod.path: str(each) for each in read if isinstance(each, Unplaceable)},
    )
