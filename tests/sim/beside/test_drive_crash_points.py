"""Drive that dies before or after any of its writes, or misses the answer, ends as if nothing had happened."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from dovetail.api import names
from dovetail.cli.commands.roll import roll
from dovetail.controllers.beside.driving import DriveOptions
from dovetail.ports import NODECLAIMS, NODES
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.loop.virtual_loop import InlineCompute
from tests.conftest import CRASH_POINTS
from tests.harness import manifests
from tests.harness.disruption import edit_template, node_of, pool, scale, stand
from tests.harness.drive_witness import DrivePromises, left_after_cleanup
from tests.harness.driving import Driven, drive
from tests.sim.crash.mortal import DOWN_SECONDS, CrashPoint, Life, MortalApi, crash_points

BUDGET = [{"nodes": "1"}]
OPTIONS = DriveOptions(compute=InlineCompute())
Begin = Callable[[], Coroutine[Any, Any, None]]  # from here on each write is a crash point
Flow = Callable[[Driven, Begin], Coroutine[Any, Any, None]]


async def all_gone(setting: Driven, *claims: str) -> None:
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, *claims), timeout="3h")


# -- the flows ---------------------------------------------------------------------------------------------------------


async def closing_the_gate(setting: Driven, begin: Begin) -> None:
    """Nodes that nobody holds yet, and one that a user protects."""
    await setting.program.stop()
    first, *_ = await stand(setting, pool(budgets=BUDGET), replicas=3)
    await setting.annotate(NODES, node_of(setting, first), {names.DO_NOT_DISRUPT: "true"})
    await begin()
    await setting.sim.run_for("2m")


async def replacing_drifted_nodes(setting: Driven, begin: Begin) -> None:
    old = await stand(setting, pool(budgets=BUDGET), replicas=2)
    await begin()
    await edit_template(setting, metadata={"labels": {"edition": "2"}})
    await all_gone(setting, *old)


async def removing_empty_nodes(setting: Driven, begin: Begin) -> None:
    await stand(setting, pool(), replicas=3)
    await begin()
    await scale(setting, 1)
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1, timeout="30m")


async def removing_underutilized_nodes(setting: Driven, begin: Begin) -> None:
    await setting.begin(pool())
    for app in ("a", "b"):
        await setting.sim.apply(manifests.deployment(app, replicas=3, cpu="1200m"))
        await setting.runs_all(app, 3)
    await begin()
    for app in ("a", "b"):
        await scale(setting, 1, app)
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1, timeout="30m")


async def expiring_gracefully(setting: Driven, begin: Begin) -> None:
    of_an_hour = pool()
    of_an_hour["metadata"]["annotations"] = {names.GRACEFUL_EXPIRE_AFTER: "1h"}
    old = await stand(setting, of_an_hour)
    await begin()
    await all_gone(setting, *old)


async def replacing_what_somebody_asked_for(setting: Driven, begin: Begin) -> None:
    """Two nodes are asked for. One is taken back while the other is replaced."""
    claims = await stand(setting, pool(budgets=BUDGET), replicas=2)
    user = setting.sim.server.client("user")
    await begin()
    await roll(user, [f"nodeclaim/{claim}" for claim in claims])
    await setting.sim.wait_until(lambda: bool(setting.tainted()), timeout="5m")
    (first,) = (claim for claim in claims if node_of(setting, claim) in setting.tainted())
    (second,) = set(claims) - {first}
    await roll(user, [f"nodeclaim/{second}"], undo=True)
    await all_gone(setting, first)


async def rolling_back(setting: Driven, begin: Begin) -> None:
    """The first replacement never registers, the second one does."""
    (old,) = await stand(setting, pool())
    setting.cloud.next_launches(Launch(registers=False))
    await begin()
    await edit_template(setting, metadata={"labels": {"edition": "2"}})
    await all_gone(setting, old)


async def holding_pods(setting: Driven, begin: Begin) -> None:
    """Outside the window the pods are held; in it the node is replaced."""
    window = {names.DISRUPTION_SCHEDULE: "0 1 * * *", names.DISRUPTION_SCHEDULE_DURATION: "1h"}
    await begin()
    (old,) = await stand(setting, pool(), annotations=window)
    await edit_template(setting, metadata={"labels": {"edition": "2"}})
    await all_gone(setting, old)


class Case(NamedTuple):
    flow: Flow
    options: DriveOptions = OPTIONS


CASES = (
    Case(closing_the_gate),
    Case(replacing_drifted_nodes),
    Case(removing_empty_nodes),
    Case(removing_underutilized_nodes),
    Case(expiring_gracefully),
    Case(replacing_what_somebody_asked_for),
    Case(rolling_back),
    Case(holding_pods, msgspec.structs.replace(OPTIONS, hold_pods=True)),
)

# -- living through it -------------------------------------------------------------------------------------------------


class Ending(msgspec.Struct, frozen=True):
    account: Mapping[str, Any]
    writes: list[str]


def live_through(case: Case, crash: CrashPoint | None) -> Ending:
    """Once, with the crash, if any, and a fresh process after it."""
    endings: list[Ending] = []

    async def scenario(setting: Driven) -> None:
        life, promises = Life(crash), DrivePromises(setting, budget=3)

        async def begin() -> None:
            await setting.program.stop()
            setting.program.through = lambda api: MortalApi(api, life)
            life.begun = True
            await setting.program.start()

        async def revive() -> None:
            await life.died.wait()
            await setting.program.kill()
            await setting.sim.clock.sleep(DOWN_SECONDS)
            setting.program.through = lambda api: api
            await setting.program.start()

        reviving = asyncio.create_task(revive())
        await case.flow(setting, begin)
        await setting.sim.run_for("10m")  # in which anything too much would show
        reviving.cancel()
        account = {**account_of(setting), "broken": promises.broken}
        endings.append(Ending({**account, "left": await left_after_cleanup(setting)}, life.writes))

    drive(scenario, seed=1, options=case.options)
    return endings[0]


def account_of(setting: Driven) -> Mapping[str, Any]:
    """What there is, without names and times that chance has drawn."""
    now = setting.sim.clock.now()
    marks = [each["metadata"].get("annotations") or {} for each in setting.nodes()]
    return {
        "claims": sorted(
            sorted((each["type"], each["status"], each["reason"]) for each in claim["status"]["conditions"])
            for claim in setting.claims()
        ),
        "records": [c for c in setting.claims() if names.DISRUPTION_COMMAND in c["metadata"]["annotations"]],
        "tainted": setting.tainted(),
        "held": sorted((mark.get(names.DO_NOT_DISRUPT), names.HELD in mark) for mark in marks),
        "machines": len(setting.cloud.machines),
        "running machines": sum(not machine.gone(now) for machine in setting.cloud.machines.values()),
        "ready pods": Counter(pod["metadata"]["labels"]["app"] for pod in setting.sim.pods(ready=True)),
    }


@pytest.mark.parametrize("lives", [False, True], ids=["dies", "no answer"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.flow.__name__)
def test_every_crash_point(case: Case, lives: bool, record_property: Callable[[str, object], None]) -> None:
    undisturbed = live_through(case, None)
    assert undisturbed.account["broken"] == []
    assert undisturbed.account["left"] == []
    points = crash_points(len(undisturbed.writes), lives=lives)
    different = {}
    for point in points:
        ending = live_through(case, point)
        if ending.account != undisturbed.account:
            different[f"{point}: {ending.writes[point.write - 1]}"] = ending.account
    record_property(CRASH_POINTS, len(points))
    assert not different, (undisturbed.account, different)


def test_an_answer_that_is_lost_at_the_end_of_a_rollback_costs_no_other_machine() -> None:
    """The record is gone, so that nothing but memory could tell that the command has failed."""
    case = Case(rolling_back)
    undisturbed = live_through(case, None)
    deleted = next(number for number, write in enumerate(undisturbed.writes) if write.startswith("delete nodeclaims"))
    (old,) = {write.split()[2] for write in undisturbed.writes if write.startswith("patch nodeclaims")} - {
        write.split()[2] for write in undisturbed.writes if write.startswith("create nodeclaims")
    }
    last = undisturbed.writes.index(f"patch nodeclaims {old}", deleted) + 1
    assert live_through(case, CrashPoint(last, after=True, lives=True)).account == undisturbed.account
