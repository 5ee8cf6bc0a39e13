"""Guard beside the simulated Karpenter over random hours: crashes at writes, lost replies, edits by users (10 §I.8).

What must hold, whatever happens, is in `tests/harness/hold_witness.py`; and every hold ends.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.cli.cleanup.cleaner import clean
from dovetail.controllers.beside.assembly import GuardOptions
from dovetail.model.beside import Roll, RollCause, at_second, written_mark
from dovetail.ports import (
    EVENTS,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PODS,
    Delete,
    NotFound,
    OutcomeUnknown,
    Patch,
    Resource,
)
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.server.faults import Fault
from dovetail.sim.server.store import Change
from tests.contract.bodies import DEPLOYMENTS
from tests.harness import manifests
from tests.harness.claims import node_class, node_pool
from tests.harness.guarding import BesideProgram, KarpenterWorld, run_beside
from tests.harness.hold_witness import HoldWitness, looking_on
from tests.harness.provisioning import BIG, OF_FOUR
from tests.harness.soak import SOAK
from tests.harness.stage import PARAMETER, stage
from tests.sim.crash.mortal import CrashPoint, Life, MortalApi

HOURS: Final = 3
DOWN: Final = timedelta(seconds=20)  # around a crash nobody can have told or held anything
APPS: Final = 6
PROTECTIONS: Final[tuple[Mapping[str, str], ...]] = (
    {},
    {names.DO_NOT_DISRUPT: "true"},
    {names.DO_NOT_DISRUPT: "40m"},
    {names.DO_NOT_DISRUPT: "2h"},
    {names.DISRUPTION_SCHEDULE: "*/30 * * * *", names.DISRUPTION_SCHEDULE_DURATION: "12m"},
    {names.DISRUPTION_SCHEDULE: "10 * * * *", names.DISRUPTION_SCHEDULE_DURATION: "25m"},
    {names.DISRUPTION_BLOCK_SCHEDULE: "*/20 * * * *", names.DISRUPTION_BLOCK_DURATION: "8m"},
)


class Told:
    """The pods that an event says were taken while blocked."""

    def __init__(self, sim: SimCluster) -> None:
        self.pods: set[str] = set()
        sim.server.registry.store.observers.append(self._observe)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        body = change.new.body
        if resource.plural == EVENTS.plural and body.get("reason") == EventReason.TAKEN_WHILE_BLOCKED:
            self.pods.add(body["regarding"]["name"])


async def user_acts(sim: SimCluster, witness: HoldWitness, chance: Random, number: int) -> None:
    """One thing that people do."""
    nodes, claims = sim.objects(NODES), sim.objects(NODECLAIMS)
    what = chance.choice(
        ("drift", "ask", "ask", "annotate", "annotate", "clear", "garbage", "scale", "delete", "nothing")
    )
    with suppress(NotFound):
        if what == "drift":
            labels = {"spec": {"template": {"metadata": {"labels": {"version": str(number)}}}}}
            await sim.api.write(Patch(NODEPOOLS, "default", labels))
        elif what == "ask" and claims:
            mark = written_mark(Roll(why=RollCause.ASKED, at=at_second(sim.clock.now())))
            asked = {"metadata": {"annotations": {names.ROLLED: mark}}}
            await sim.api.write(Patch(NODECLAIMS, chance.choice(claims)["metadata"]["name"], asked))
        elif what in ("annotate", "garbage") and nodes:
            name = chance.choice(nodes)["metadata"]["name"]
            value = chance.choice(("4h", "false", "always"))
            witness.users.pop(name, None)
            both = {names.DO_NOT_DISRUPT: value, **({names.HELD: "{garbage"} if what == "garbage" else {})}
            witness.user_wrote(await sim.api.write(Patch(NODES, name, {"metadata": {"annotations": both}})), value)
        elif what == "clear" and witness.users:
            await clear(sim, witness, chance.choice(sorted(witness.users)))
        elif what == "scale":
            replicas = {"spec": {"replicas": chance.randint(0, 2)}}
            await sim.api.write(Patch(DEPLOYMENTS, f"app-{chance.randrange(APPS)}", replicas, namespace="default"))
        elif what == "delete" and claims:
            await sim.api.write(Delete(NODECLAIMS, chance.choice(claims)["metadata"]["name"]))


async def clear(sim: SimCluster, witness: HoldWitness, node: str) -> None:
    """A user takes back what users wrote."""
    del witness.users[node]
    none = dict.fromkeys((names.DO_NOT_DISRUPT, names.HELD))
    await sim.api.write(Patch(NODES, node, {"metadata": {"annotations": none}}))


async def live_and_die(
    program: BesideProgram, witness: HoldWitness, chance: Random, over: asyncio.Event
) -> list[datetime]:
    """Guard runs until it dies at one of its writes, before or after, and starts anew. Returns when it died."""
    down = []
    while not over.is_set():
        life = Life(CrashPoint(chance.randint(1, 25), after=chance.random() < 0.5))
        life.begun = True
        program.through = lambda api, life=life: MortalApi(api, life)  # type: ignore[misc]
        await program.start()
        witness.guard_since = program.sim.clock.now()
        ends = [asyncio.create_task(life.died.wait()), asyncio.create_task(over.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for each in ends:
            each.cancel()
        if life.died.is_set():
            down.append(program.sim.clock.now())
        witness.guard_since = None
        await program.kill()
        await program.sim.clock.sleep(chance.choice((0.5, 3.0, 8.0)))
    return down


def marks_left(sim: SimCluster) -> list[str]:
    keys = (names.HELD, names.HASH_BEFORE, names.POD_HOLD)
    return [
        f"{each['kind']} {each['metadata']['name']}: {key}"
        for kind in (NODES, NODECLAIMS, PODS)
        for each in sim.objects(kind)
        for key in keys
        if key in each["metadata"].get("annotations", {})
    ]


async def prepare(sim: SimCluster, chance: Random) -> None:
    pool = node_pool(
        template={"requirements": [OF_FOUR]},
        disruption={
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": "1m",
            "budgets": [{"nodes": chance.choice(("1", "50%", "100%"))}],
        },
    )
    pool["metadata"]["annotations"] = {names.GRACEFUL_EXPIRE_AFTER: chance.choice(("Never", "90m", "3h"))}
    await sim.apply(node_class(), pool)
    for number in range(APPS):
        protection = dict(chance.choice(PROTECTIONS))
        await sim.apply(manifests.deployment(f"app-{number}", replicas=1, cpu=BIG, annotations=protection))
    await sim.wait_until(lambda: len(sim.pods(ready=True)) == APPS)


async def end(sim: SimCluster, program: BesideProgram, witness: HoldWitness) -> None:
    """Every hold ends: all pods go, and what users have put in the way. Cleanup leaves nothing."""
    for name in sorted(witness.users):
        await clear(sim, witness, name)
    for number in range(APPS):
        await sim.api.write(Delete(DEPLOYMENTS, f"app-{number}", namespace="default"))
    await sim.run_for("1m")
    assert not [mark for mark in marks_left(sim) if mark.endswith(names.HELD)]
    await program.kill()
    await clean(sim.api, karpenter=True)
    assert marks_left(sim) == []
    assert not witness.broken, "\n".join(witness.broken)


@pytest.mark.parametrize("seed", range(40 if SOAK else 3))
@stage(run_beside, GuardOptions(), started=False, karpenter=True, seed=PARAMETER, latency_seconds=0.02)
async def test_what_must_hold_holds(sim: SimCluster, program: BesideProgram, world: KarpenterWorld, seed: int) -> None:
    chance, over, told = Random(seed), asyncio.Event(), Told(sim)
    async with looking_on(sim.server.client("witness"), sim.clock) as witness:
        await prepare(sim, chance)
        living = asyncio.create_task(live_and_die(program, witness, chance, over))
        for number in range(HOURS * 12):
            await user_acts(sim, witness, chance, number)
            if chance.random() < 0.3:
                lost = Fault(error=OutcomeUnknown("no answer"), after=chance.random() < 0.5)
                sim.server.faults.add(lost, verb="patch", client=names.COMPONENT, times=2)
            if chance.random() < 0.05:
                await world.karpenter.kill()
                await sim.run_for("30s")
                await world.karpenter.start()
            await sim.run_for("5m")
        over.set()
        down = await living
        sim.server.faults.clear()
        program.through = lambda api: api
        await program.start()
        await end(sim, program, witness)
    assert len(witness.taken) >= 3, "Karpenter had too little to do"
    assert witness.held
    # Around a crash nobody can have told anything.
    silent = {pod for pod, at in witness.late_pods if not any(abs(at - died_at) < DOWN for died_at in down)}
    assert silent <= told.pods


@stage(run_beside, karpenter=True, latency_seconds=0.02)
async def test_nothing_is_late_while_nothing_fails(sim: SimCluster, program: BesideProgram) -> None:
    """The lead covers the boot of a replacement."""
    chance = Random(0)
    async with looking_on(sim.server.client("witness"), sim.clock) as witness:
        witness.guard_since = sim.clock.now()
        await prepare(sim, chance)
        for number in range(HOURS * 12):
            labels = {"spec": {"template": {"metadata": {"labels": {"version": str(number)}}}}}
            await sim.api.write(Patch(NODEPOOLS, "default", labels))
            await sim.run_for(f"{chance.randrange(5, 600)}s")
        await end(sim, program, witness)
    assert len(witness.taken) >= 10, "Karpenter had too little to do"
    assert not witness.late
