"""A node that Karpenter had taken before it was held is counted once, and its pods are told (10 §I.7)."""

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.ports import NODECLAIMS, NODEPOOLS, PODS, Delete, Patch
from dovetail.sim.actors.cluster import SimCluster
from tests.contract.backends import condition
from tests.harness.guarding import BesideProgram, KarpenterWorld, hold_on, run_beside
from tests.harness.stage import stage
from tests.sim.beside.test_stamps import claims, prepare

pytestmark = stage(run_beside, karpenter=True)

SHORT = {names.DISRUPTION_SCHEDULE: "0 * * * *", names.DISRUPTION_SCHEDULE_DURATION: "8m"}  # held from minute 4 on


async def until_minute(sim: SimCluster, minute: float) -> None:
    now = sim.clock.now()
    await sim.clock.sleep((minute * 60 - (now.minute * 60 + now.second)) % 3600)


async def drift(sim: SimCluster) -> None:
    other = {"spec": {"template": {"metadata": {"labels": {"new": "label"}}}}}
    await sim.api.write(Patch(NODEPOOLS, "default", other))


def is_taken(sim: SimCluster, claim: str) -> bool:
    found = claims(sim).get(claim, {})
    return condition(found, ConditionType.DISRUPTION_REASON).get("status") == "True"


async def test_a_command_that_outlasts_the_lead_is_counted(
    sim: SimCluster, program: BesideProgram, world: KarpenterWorld
) -> None:
    await prepare(sim, 1, after=None, annotations=SHORT)
    (old,) = claims(sim)
    (pod,) = sim.pods(app="web")
    world.cloud.register_seconds, world.cloud.register_spread_seconds = 400, 0
    await until_minute(sim, 3)
    await drift(sim)
    await until_minute(sim, 3.9)
    assert is_taken(sim, old)
    await until_minute(sim, 7.9)
    assert program.count("dovetail_beside_late_total", nodepool="default") == 0
    await until_minute(sim, 8.1)
    assert program.count("dovetail_beside_late_total", nodepool="default") == 1
    await sim.wait_until(lambda: old not in claims(sim), timeout="10m")
    assert sim.object(PODS, pod["metadata"]["name"]) is None
    assert program.count("dovetail_beside_late_total", nodepool="default") == 1
    (event,) = program.events("TakenWhileBlocked")
    assert event["regarding"]["name"] == pod["metadata"]["name"]
    assert event["type"] == "Warning"


async def test_a_hold_in_time_keeps_karpenter_away_and_nothing_is_counted(
    sim: SimCluster, program: BesideProgram
) -> None:
    await prepare(sim, 1, after=None, annotations=SHORT)
    (old,) = claims(sim)
    await until_minute(sim, 4.1)
    await drift(sim)
    await until_minute(sim, 59)
    assert not is_taken(sim, old)
    assert hold_on(sim, claims(sim)[old]["status"]["nodeName"]) is not None
    await until_minute(sim, 3.9)
    assert old not in claims(sim)
    assert program.count("dovetail_beside_late_total", nodepool="default") == 0


async def test_a_claim_that_somebody_deletes_is_not_counted(sim: SimCluster, program: BesideProgram) -> None:
    await prepare(sim, 1, after=None, annotations=SHORT)
    (old,) = claims(sim)
    await until_minute(sim, 20)
    await sim.api.write(Delete(NODECLAIMS, old))
    await sim.run_for("5m")
    assert program.count("dovetail_beside_late_total", nodepool="default") == 0
    assert program.events("TakenWhileBlocked") == []


async def test_a_claim_that_expires_is_not_counted(sim: SimCluster, program: BesideProgram) -> None:
    """Nobody can be late for that. The simulated Karpenter gives a reason for it, though the real one does not."""
    await prepare(sim, 1, after=None, annotations=SHORT, expireAfter="90m")
    (old,) = claims(sim)
    await sim.wait_until(
        lambda: old not in claims(sim) or "deletionTimestamp" in claims(sim)[old]["metadata"], timeout="2h"
    )
    assert is_taken(sim, old) or old not in claims(sim)
    await sim.run_for("10m")
    assert program.count("dovetail_beside_late_total", nodepool="default") == 0
