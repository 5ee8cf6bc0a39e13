"""Guard beside the simulated Karpenter over random hours: crashes at writes, lost replies, edits by users (10 §I.8)."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

import msgspec
import pytest

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, EventReason
from dovetail.cli.cleanup.cleaner import clean
from dovetail.controllers.beside.assembly import GuardOptions
from dovetail.kube.reading import read
from dovetail.model.beside import Roll, RollCause, at_second, read_hold, written_mark
from dovetail.model.pod_records import PodInterner
from dovetail.planning.beside.holding import free_instants
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
from dovetail.sim.actors.wire import Raw, deleting
from dovetail.sim.server.faults import Fault
from dovetail.sim.server.store import Change
from tests.contract.backends import condition
from tests.contract.bodies import DEPLOYMENTS
from tests.harness import manifests
from tests.harness.claims import node_class, node_pool
from tests.harness.guarding import BesideProgram, KarpenterWorld, run_beside
from tests.harness.provisioning import BIG, OF_FOUR
from tests.harness.soak import SOAK
from tests.harness.stage import PARAMETER, stage
from tests.sim.crash.mortal import CrashPoint, Life, MortalApi

HOURS: Final = 3
DOWN: Final = timedelta(seconds=20)  # around a crash nobody can have told or held anything
# Karpenter may have looked just before the hold appeared.
NARROW: Final = timedelta(seconds=2)
PROTECTIONS: Final[tuple[Mapping[str, str], ...]] = (
    {},
    {names.DO_NOT_DISRUPT: "true"},
    {names.DO_NOT_DISRUPT: "40m"},
    {names.DO_NOT_DISRUPT: "2h"},
    {names.DISRUPTION_SCHEDULE: "*/30 * * * *", names.DISRUPTION_SCHEDULE_DURATION: "12m"},
    {names.DISRUPTION_SCHEDULE: "10 * * * *", names.DISRUPTION_SCHEDULE_DURATION: "25m"},
    {names.DISRUPTION_BLOCK_SCHEDULE: "*/20 * * * *", names.DISRUPTION_BLOCK_DURATION: "8m"},
)


class GuardChecker:
    """Looks at every write, and says what must not have happened."""

    def __init__(self, sim: SimCluster) -> None:
        self.violations: list[str] = []
        self.users: dict[str, str] = {}  # by Node: the value that a user has written
        self.held_since: dict[str, datetime] = {}
        self.taken_at: dict[str, datetime] = {}  # by Node
        self.told: set[str] = set()  # pods that were told by an event
        self.late: list[tuple[str, datetime]] = []  # pods that were evicted while blocked
        self.down: list[datetime] = []
        self.seen: set[str] = set()
        self._sim = sim
        self._pods = PodInterner()
        sim.server.registry.store.observers.append(self._observe)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        new, now = change.new.body, self._sim.clock.now()
        old: Raw = {} if change.old is None else change.old.body
        if resource.plural == NODES.plural:
            self._node(old, new, now)
        elif resource.plural == NODECLAIMS.plural:
            self._claim(new, now)
        elif resource.plural == PODS.plural and deleting(new) and old and not deleting(old):
            self._pod(old, now)
        elif resource.plural == EVENTS.plural and new.get("reason") == EventReason.TAKEN_WHILE_BLOCKED:
            self.told.add(new["regarding"]["name"])

    def _node(self, old: Raw, new: Raw, now: datetime) -> None:
        name, annotations = new["metadata"]["name"], new["metadata"].get("annotations", {})
        value, held = annotations.get(names.DO_NOT_DISRUPT), read_hold(annotations.get(names.HELD, ""))
        if name in self.users and value != self.users[name]:
            self.violations.append(f"{now}: {name}: the user's {self.users[name]!r} became {value!r}")
        if held is not None and value == "true":
            self.held_since.setdefault(name, now)
            self.seen.add("held")
        else:
            self.held_since.pop(name, None)
        if old and not value and old["metadata"].get("annotations", {}).get(names.HELD):
            self.seen.add("released")

    def _claim(self, new: Raw, now: datetime) -> None:
        node = new.get("status", {}).get("nodeName", "")
        if condition(new, ConditionType.DISRUPTION_REASON).get("status") != "True":
            self.taken_at.pop(node, None)
        elif node and node not in self.taken_at:
            self.taken_at[node] = now
            self.seen.add("taken")
            since = self.held_since.get(node)
            if since is not None and now - since > NARROW:
                self.violations.append(f"{now}: {node} was taken, and is held since {since}")

    def _pod(self, old: Raw, now: datetime) -> None:
        pod = self._pods.pod(read(msgspec.json.encode(old), objects.Pod))
        taken_at, since = self.taken_at.get(pod.node_name), self.held_since.get(pod.node_name)
        if taken_at is None or free_instants(pod).contains(now):
            return
        self.late.append((pod.name, now))
        self.seen.add("late")
        if since is not None and taken_at - since > NARROW:
            self.violations.append(f"{now}: {pod.name} was evicted while blocked, and its node was held in time")

    def finish(self) -> None:
        for name, at in self.late:
            if name not in self.told and not any(abs(at - down) < DOWN for down in self.down):
                self.violations.append(f"{at}: {name} was evicted while blocked, and nobody was told")
        assert not self.violations, "\n".join(self.violations)


async def user_acts(sim: SimCluster, checker: GuardChecker, chance: Random, number: int) -> None:
    """One thing that people do."""
    nodes, claims = sim.objects(NODES), sim.objects(NODECLAIMS)
    what = chance.choice(("drift", "ask", "ask", "annotate", "annotate", "clear", "garbage", "nothing"))
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
            checker.users.pop(name, None)
            both = {names.DO_NOT_DISRUPT: value, **({names.HELD: "{garbage"} if what == "garbage" else {})}
            await sim.api.write(Patch(NODES, name, {"metadata": {"annotations": both}}))
            checker.users[name] = value
        elif what == "clear" and checker.users:
            name = chance.choice(sorted(checker.users))
            del checker.users[name]
            none = dict.fromkeys((names.DO_NOT_DISRUPT, names.HELD))
            await sim.api.write(Patch(NODES, name, {"metadata": {"annotations": none}}))


async def live_and_die(program: BesideProgram, checker: GuardChecker, chance: Random, over: asyncio.Event) -> None:
    """Guard runs until it dies at one of its writes, before or after, and starts anew."""
    while not over.is_set():
        life = Life(CrashPoint(chance.randint(1, 25), after=chance.random() < 0.5))
        life.begun = True
        program.through = lambda api, life=life: MortalApi(api, life)  # type: ignore[misc]
        await program.start()
        ends = [asyncio.create_task(life.died.wait()), asyncio.create_task(over.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for each in ends:
            each.cancel()
        if life.died.is_set():
            checker.down.append(program.sim.clock.now())
        await program.kill()
        await program.sim.clock.sleep(chance.choice((0.5, 3.0, 8.0)))


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
    for number in range(6):
        protection = dict(chance.choice(PROTECTIONS))
        await sim.apply(manifests.deployment(f"app-{number}", replicas=1, cpu=BIG, annotations=protection))
    await sim.wait_until(lambda: len(sim.pods(ready=True)) == 6)


@pytest.mark.parametrize("seed", range(40 if SOAK else 3))
@stage(run_beside, GuardOptions(), started=False, karpenter=True, seed=PARAMETER, latency_seconds=0.02)
async def test_what_must_hold_holds(sim: SimCluster, program: BesideProgram, world: KarpenterWorld, seed: int) -> None:
    chance, over = Random(seed), asyncio.Event()
    checker = GuardChecker(sim)
    await prepare(sim, chance)
    running = asyncio.create_task(live_and_die(program, checker, chance, over))
    for number in range(HOURS * 12):
        await user_acts(sim, checker, chance, number)
        if chance.random() < 0.3:
            lost = Fault(error=OutcomeUnknown("no answer"), after=chance.random() < 0.5)
            sim.server.faults.add(lost, verb="patch", client=names.COMPONENT, times=2)
        if chance.random() < 0.05:
            await world.karpenter.kill()
            await sim.run_for("30s")
            await world.karpenter.start()
        await sim.run_for("5m")
    over.set()
    await running
    sim.server.faults.clear()
    # Every hold ends: all pods go, and what users have put in the way.
    program.through = lambda api: api
    await program.start()
    for each in sim.objects(NODES):
        if each["metadata"]["name"] in checker.users:
            del checker.users[each["metadata"]["name"]]
            none = dict.fromkeys((names.DO_NOT_DISRUPT, names.HELD))
            await sim.api.write(Patch(NODES, each["metadata"]["name"], {"metadata": {"annotations": none}}))
    for number in range(6):
        await sim.api.write(Delete(DEPLOYMENTS, f"app-{number}", namespace="default"))
    await sim.run_for("1m")
    assert not [mark for mark in marks_left(sim) if mark.endswith(names.HELD)]
    await program.kill()
    await clean(sim.api, karpenter=True)
    assert marks_left(sim) == []
    checker.finish()
    assert {"held", "released", "taken"} <= checker.seen
