"""Guard beside a Karpenter, with chance for users, crashes and lost replies, in virtual time (10 §1).

What must hold, whatever happens, is in `tests/harness/hold_witness.py`; and every hold ends.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from random import Random
from typing import Any, Final

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.beside.assembly import GuardOptions, guard_controllers
from dovetail.observe.metrics import Metrics
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, ApiError, Delete, OutcomeUnknown, Patch
from dovetail.runtime.manager import Controller
from dovetail.runtime.tasks import root_cause
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.actors.karpenter import Karpenter
from dovetail.sim.actors.wire import DEPLOYMENTS
from dovetail.sim.cloud.machines import SimCloud
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.claims import node_class
from tests.harness.guarding import BesideProgram
from tests.harness.hold_witness import HoldWitness, looking_on
from tests.harness.provisioning import pool_of_four

HOURS: Final = 3
WORKLOADS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {},
    "windowed": {names.DISRUPTION_SCHEDULE: "*/20 * * * *", names.DISRUPTION_SCHEDULE_DURATION: "8m"},
    "blocked": {names.DISRUPTION_BLOCK_SCHEDULE: "0 * * * *", names.DISRUPTION_BLOCK_DURATION: "30m"},
    "short": {names.DO_NOT_DISRUPT: "15m"},
}


class Chance:
    """The users of the cluster, and what goes wrong in it."""

    def __init__(
        self, sim: SimCluster, guard: BesideProgram, karpenter: Karpenter, seen: HoldWitness, seed: int
    ) -> None:
        self._sim = sim
        self._guard = guard
        self._karpenter = karpenter
        self._seen = seen
        self._draw = Random(seed)
        self.counted = 0.0

    async def act(self) -> None:
        deed = self._draw.choice(
            (self.scale, self.edit_pool, self._annotate, self._delete_claim, self._crash, self._lose, self._restart)
        )
        with suppress(ApiError):  # it is gone by now
            await deed()

    async def scale(self) -> None:
        name = self._draw.choice(sorted(WORKLOADS))
        body = {"spec": {"replicas": self._draw.randint(0, 4)}}
        await self._sim.api.write(Patch(DEPLOYMENTS, name, body, namespace="default"))

    async def edit_pool(self) -> None:
        labels = {"version": str(self._draw.randint(0, 99))}
        body = {"spec": {"template": {"metadata": {"labels": labels}}}}
        await self._sim.api.write(Patch(NODEPOOLS.read_as(dict[str, Any]), "default", body))

    async def _annotate(self) -> None:
        """A user annotates a node, or takes the annotation back. Nobody annotates what is held: it would be ours."""
        nodes = [each["metadata"] for each in self._sim.objects(NODES)]
        free = [each["name"] for each in nodes if names.DO_NOT_DISRUPT not in (each.get("annotations") or {})]
        mine = sorted(self._seen.users)
        if mine and self._draw.random() < 0.6:
            name = self._draw.choice(mine)
            del self._seen.users[name]
            await self._write(name, None)
        elif free:
            name, value = self._draw.choice(free), self._draw.choice(("true", "2h", "false"))
            self._seen.user_wrote(await self._write(name, value), value)

    async def _write(self, node: str, value: str | None) -> objects.Node:
        body = {"metadata": {"annotations": {names.DO_NOT_DISRUPT: value}}}
        return await self._sim.api.write(Patch(NODES, node, body))

    async def _delete_claim(self) -> None:
        claims = [each["metadata"]["name"] for each in self._sim.objects(NODECLAIMS)]
        if claims and self._draw.random() < 0.3:
            await self._sim.api.write(Delete(NODECLAIMS, self._draw.choice(claims)))

    async def _crash(self) -> None:
        await self.end_guard()
        await self._sim.clock.sleep(self._draw.choice((0.0, 1.0, 20.0)))
        await self._guard.start()
        self._seen.guard_since = self._sim.clock.now()

    async def end_guard(self) -> None:
        self.counted += self._guard.count("dovetail_beside_late_total", nodepool="default")
        self._seen.guard_since = None
        await self._guard.kill()

    async def _lose(self) -> None:
        fault = Fault(error=OutcomeUnknown("lost"), after=self._draw.random() < 0.5)
        self._sim.server.faults.add(fault, verb="patch", client=names.COMPONENT, times=self._draw.randint(1, 3))
        if self._draw.random() < 0.3:
            self._sim.server.drop_watches()

    async def _restart(self) -> None:
        await self._karpenter.kill()
        await self._sim.clock.sleep(self._draw.choice((0.0, 5.0)))
        await self._karpenter.start()


async def _live(
    sim: SimCluster, guard: BesideProgram, karpenter: Karpenter, seen: HoldWitness, seed: int, *, quiet: bool
) -> None:
    seen.guard_since = sim.clock.now()
    chance = Chance(sim, guard, karpenter, seen, seed)
    disruption = {"consolidateAfter": "30s", "budgets": [{"nodes": "50%"}]}
    await sim.apply(node_class(), pool_of_four(disruption=disruption))
    for name, annotations in WORKLOADS.items():
        await sim.apply(manifests.deployment(name, replicas=2, cpu="1500m", annotations=annotations))
    draw = Random(f"{seed} pauses")
    ends_at = sim.clock.now() + timedelta(hours=HOURS)
    while sim.clock.now() < ends_at:
        await sim.clock.sleep(draw.uniform(5, 600))
        if quiet:
            await draw.choice((chance.scale, chance.edit_pool))()
        else:
            await chance.act()
    sim.server.faults.clear()
    await karpenter.kill()
    for name in WORKLOADS:
        await sim.api.write(Delete(DEPLOYMENTS, name, namespace="default"))
    await sim.run_for("2m")
    for node in sim.objects(NODES):
        assert names.HELD not in (node["metadata"].get("annotations") or {}), "a hold has not ended"
    await chance.end_guard()
    if quiet:  # else a guard may have ended before it could count
        assert chance.counted >= len(seen.late)


def _run(seed: int, *, quiet: bool = False) -> HoldWitness:
    def controllers_of(cluster: WatchedCluster, metrics: Metrics) -> Sequence[Controller]:
        return guard_controllers(cluster, metrics, GuardOptions())

    async def within(sim: SimCluster) -> HoldWitness:
        async with AsyncExitStack() as stack:
            cloud = SimCloud(sim, seed=seed, register_seconds=20.0, register_spread_seconds=70.0)
            await stack.enter_async_context(cloud)
            karpenter = await stack.enter_async_context(Karpenter(sim, cloud))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            guard = BesideProgram(sim, group, controllers_of)
            await guard.start()
            seen = await stack.enter_async_context(looking_on(sim.server.client("witness"), sim.clock))
            await _live(sim, guard, karpenter, seen, seed, quiet=quiet)
            return seen
        raise AssertionError("unreachable")

    async def told(sim: SimCluster) -> HoldWitness:
        try:
            return await within(sim)
        except BaseExceptionGroup as errors:
            raise root_cause(errors) from None

    return run(told, seed=seed, shuffle=True, latency_seconds=0.02)


def test_what_holds_whatever_happens() -> None:
    seen = _run(0)
    assert not seen.broken, "\n".join(seen.broken)
    assert len(seen.taken) >= 5, "Karpenter had too little to do"


def test_nothing_is_late_while_nothing_fails() -> None:
    """The lead covers the boot of a replacement."""
    seen = _run(0, quiet=True)
    assert not seen.broken, "\n".join(seen.broken)
    assert not seen.late
    assert len(seen.taken) >= 10, "Karpenter had too little to do"
