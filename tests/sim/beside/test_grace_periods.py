"""Protected pods on a drifted node whose NodeClaim has a terminationGracePeriod, beside Karpenter.

Karpenter's drain does not know windows. With `--hold-pods` it leaves the pods alone until the window opens, or until
their own grace before the end of the terminationGracePeriod.
"""

from datetime import timedelta

import pytest

from dovetail.api import names
from dovetail.controllers.beside.assembly import GuardOptions
from dovetail.controllers.beside.driving import DriveOptions
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import deleting
from dovetail.sim.loop.virtual_loop import InlineCompute
from dovetail.values.timestamp import parse_time
from tests.harness.disruption import edit_template, pool, stand
from tests.harness.driving import Driven, drive
from tests.harness.guarding import BesideProgram, KarpenterWorld, run_beside
from tests.harness.stage import PARAMETER, stage
from tests.sim.beside.test_late import drift, is_taken, until_minute
from tests.sim.beside.test_stamps import claims, prepare

PERIOD = timedelta(minutes=20)
OWN_GRACE = timedelta(seconds=30)  # that the pod has to end
HOURLY = {names.DISRUPTION_SCHEDULE: "0 * * * *", names.DISRUPTION_SCHEDULE_DURATION: "8m"}
COMPUTE = InlineCompute()
WAYS = ["without --hold-pods", "with --hold-pods"]


async def evicted_after(sim: SimCluster, claim: str) -> timedelta:
    """From the deletion of the claim to that of its pod."""
    await sim.wait_until(lambda: deleting(claims(sim)[claim]), timeout="1h")
    deleted_at = parse_time(claims(sim)[claim]["metadata"]["deletionTimestamp"])
    node = claims(sim)[claim]["status"]["nodeName"]
    await sim.wait_until(lambda: all(map(deleting, sim.pods(app="web", node=node))), timeout="1h")
    return sim.clock.now() - deleted_at


def assert_waited(waited: timedelta, *, holds: bool) -> None:
    forced = PERIOD - OWN_GRACE
    assert forced <= waited < forced + timedelta(seconds=5) if holds else waited < timedelta(seconds=5)


@stage(run_beside, karpenter=True)
async def test_guard_keeps_the_node_whatever_the_period(sim: SimCluster, program: BesideProgram) -> None:
    """Karpenter takes a drifted node with a terminationGracePeriod from protected pods, but not one that is held."""
    await prepare(sim, 1, after=None, annotations=HOURLY, terminationGracePeriod="20m")
    (old,) = claims(sim)
    await until_minute(sim, 10)
    await drift(sim)
    await until_minute(sim, 59)
    assert not is_taken(sim, old)
    await until_minute(sim, 7)
    assert old not in claims(sim)
    assert program.count("dovetail_beside_late_total", nodepool="default") == 0


@pytest.mark.parametrize("options", [GuardOptions(hold_pods=holds) for holds in (False, True)], ids=WAYS)
@stage(run_beside, options=PARAMETER, karpenter=True)
async def test_a_pod_on_a_node_that_was_taken_too_late(
    sim: SimCluster, program: BesideProgram, world: KarpenterWorld, options: GuardOptions
) -> None:
    await prepare(sim, 1, after=None, annotations=HOURLY, terminationGracePeriod="20m")
    (old,) = claims(sim)
    world.cloud.register_seconds, world.cloud.register_spread_seconds = 400, 0
    await until_minute(sim, 3)
    await drift(sim)
    assert_waited(await evicted_after(sim, old), holds=options.hold_pods)
    assert program.count("dovetail_beside_late_total", nodepool="default") == 1


@pytest.mark.parametrize(
    "options", [DriveOptions(compute=COMPUTE, hold_pods=holds) for holds in (False, True)], ids=WAYS
)
@stage(drive, options=PARAMETER)
async def test_drive_takes_a_drifted_node_also_outside_the_window(setting: Driven, options: DriveOptions) -> None:
    (old,) = await stand(setting, pool(template={"terminationGracePeriod": "20m"}), annotations=HOURLY)
    await until_minute(setting.sim, 10)
    await edit_template(setting, metadata={"labels": {"edition": "2"}})
    assert_waited(await evicted_after(setting.sim, old), holds=options.hold_pods)
