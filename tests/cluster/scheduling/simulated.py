"""The filters of the simulated scheduler, asked about pods of the real one."""

from typing import Any

from dovetail import ports
from dovetail.ports import Resource
from dovetail.runtime.clock import SystemClock
from dovetail.sim.actors import wire
from dovetail.sim.actors.actor import ActorContext
from dovetail.sim.actors.scheduling.default_spread import SERVICES, DefaultSpreads
from dovetail.sim.actors.scheduling.fit import FITS
from dovetail.sim.actors.scheduling.placement import SchedulerCache, answer
from dovetail.sim.actors.wire import NODES, PODS, REPLICASETS, STATEFULSETS
from tests.cluster.scheduling.world import Named, World

NOT_SIMULATED = ports.REPLICATION_CONTROLLERS.kind


class SimulatedFilters:
    """`differences`: pods for which the simulated scheduler leaves other nodes."""

    def __init__(self, world: World, defaults: DefaultSpreads) -> None:
        self._world = world
        self._defaults = defaults
        self.differences: list[str] = []
        self.compared = 0

    async def compare(self, title: str, key: Named, others: set[Named], theirs: frozenset[str]) -> None:
        """Of a pod that came when the others had their nodes."""
        pods = {(wire.namespace_of(pod), wire.name_of(pod)): pod for pod in await self._list(PODS)}
        pod = {**pods[key], "spec": {**pods[key]["spec"], "nodeName": ""}}
        if (wire.controller_of(pod) or {}).get("kind") == NOT_SIMULATED:
            return
        cache = SchedulerCache()
        for node in await self._list(NODES):
            cache.node_changed(None, node)
        for other in others:
            cache.pod_changed(None, pods[other])
        demand = cache.demand(pod, self._defaults.of(pod))
        ours = {name for name, node in cache.nodes.items() if answer(demand, cache, node, ()) is FITS}
        self.compared += 1
        if ours != theirs:
            self.differences.append(f"{title}, {'/'.join(key)}: ours {sorted(ours)}, theirs {sorted(theirs)}")

    async def _list(self, kind: Resource[dict[str, Any]]) -> list[dict[str, Any]]:
        return list((await self._world.api.list(kind)).items)


async def simulated_filters(world: World) -> SimulatedFilters:
    assert world.profiles is not None
    context = ActorContext(world.api, SystemClock())
    defaults = DefaultSpreads(context, world.profiles)
    made = SimulatedFilters(world, defaults)
    for kind in (SERVICES, REPLICASETS, STATEFULSETS):
        for found in await made._list(kind):
            context.store(kind).observe(found)
    return made
