"""With --hold-pods a drain that Karpenter has begun waits for the windows of pods (10 §I.3)."""

from collections.abc import Sequence

import pytest

from dovetail.api import names
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.beside.assembly import GuardOptions, guard_controllers
from dovetail.controllers.beside.karpenter_watch import KarpenterWatch
from dovetail.observe.metrics import Metrics
from dovetail.ports import NODECLAIMS, PODS, Delete, Patch
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from tests.harness.guarding import BesideProgram, pod_annotations, run_beside
from tests.harness.stage import stage
from tests.sim.beside.test_stamps import claims, prepare

HOURLY = {names.DISRUPTION_SCHEDULE: "0 * * * *", names.DISRUPTION_SCHEDULE_DURATION: "30m"}
HOLDING = GuardOptions(hold_pods=True)

pytestmark = stage(run_beside, HOLDING, karpenter=True)


def hold_of(sim: SimCluster) -> dict[str, str]:
    (pod,) = sim.pods(app="web")
    found = pod_annotations(sim, pod["metadata"]["name"])
    return {key: found[key] for key in (names.DO_NOT_DISRUPT, names.POD_HOLD) if key in found}


def without_the_option(cluster: WatchedCluster, metrics: Metrics) -> Sequence[Controller]:
    return guard_controllers(cluster, metrics, KarpenterWatch("1.11"), GuardOptions())


async def until_minute(sim: SimCluster, minute: int) -> None:
    now = sim.clock.now()
    await sim.clock.sleep((minute * 60 - (now.minute * 60 + now.second)) % 3600)


async def test_a_pod_is_held_outside_its_window_and_released_within(sim: SimCluster, program: BesideProgram) -> None:
    await prepare(sim, 1, after=None, annotations=HOURLY)
    await until_minute(sim, 31)
    assert hold_of(sim)[names.DO_NOT_DISRUPT] == "true"  # nobody knows this Karpenter's version
    await until_minute(sim, 1)
    assert hold_of(sim) == {}
    writes = program.writes("patch pods")
    await until_minute(sim, 0)
    assert program.writes("patch pods") == writes + 1


async def test_a_claim_that_is_deleted_is_drained_in_the_window(sim: SimCluster) -> None:
    """As at expiry, which asks nobody (E4)."""
    await prepare(sim, 1, after=None, annotations=HOURLY)
    await until_minute(sim, 40)
    (old,) = claims(sim)
    (pod,) = sim.pods(app="web")
    await sim.api.write(Delete(NODECLAIMS, old))
    await sim.run_for("19m")
    assert sim.object(PODS, pod["metadata"]["name"]) is not None
    assert len(claims(sim)) == 1, "no replacement yet"
    await until_minute(sim, 2)
    assert sim.object(PODS, pod["metadata"]["name"]) is None
    await sim.wait_until(lambda: old not in claims(sim))


@stage(run_beside, HOLDING, karpenter=True, started=False)
async def test_a_hold_that_nobody_removes_is_told_once(sim: SimCluster, program: BesideProgram) -> None:
    """Guard runs without --hold-pods now, and may not write to pods."""
    await program.start()
    await prepare(sim, 1, after=None, annotations=HOURLY)
    await until_minute(sim, 40)
    assert hold_of(sim)[names.DO_NOT_DISRUPT] == "true"
    await program.kill()
    program.controllers_of = without_the_option
    await program.start()
    await until_minute(sim, 59)
    assert program.events("HoldLeft") == []
    await sim.run_for("40m")
    (event,) = program.events("HoldLeft")
    assert event["regarding"]["kind"] == "Pod"
    assert "until 2026-03-02T01:00:00Z" in event["note"]


async def test_a_user_writes_over_it(sim: SimCluster) -> None:
    await prepare(sim, 1, after=None, annotations=HOURLY)
    await until_minute(sim, 40)
    (pod,) = sim.pods(app="web")
    body = {"metadata": {"annotations": {names.DO_NOT_DISRUPT: "8h"}}}
    await sim.api.write(Patch(PODS, pod["metadata"]["name"], body, namespace="default"))
    await sim.run_for("1h")
    assert hold_of(sim) == {names.DO_NOT_DISRUPT: "8h"}


@stage(karpenter_version="1.15")
@pytest.mark.parametrize("dies", [False, True])
async def test_a_hold_of_a_duration_ends_alone(sim: SimCluster, program: BesideProgram, dies: bool) -> None:
    await prepare(sim, 1, after=None, annotations=HOURLY)
    await until_minute(sim, 40)
    value = hold_of(sim)[names.DO_NOT_DISRUPT]
    assert value.endswith("s")
    if dies:
        await program.kill()
    (old,) = claims(sim)
    (pod,) = sim.pods(app="web")
    await sim.api.write(Delete(NODECLAIMS, old))
    await until_minute(sim, 59)
    assert sim.object(PODS, pod["metadata"]["name"]) is not None
    await until_minute(sim, 2)
    assert sim.object(PODS, pod["metadata"]["name"]) is None
