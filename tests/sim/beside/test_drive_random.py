"""Does drive keep its promises whatever is lost, and whenever it or Karpenter dies?

Promises: an annotation of a user never changes; Karpenter takes no node that is held; budgets hold; all pods run again
in the end; and `cleanup` leaves no mark.
"""

from random import Random

import pytest

from dovetail.api import names
from dovetail.ports import NODES, OutcomeUnknown, Unavailable
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.disruption import edit_template, pool, scale, stand
from tests.harness.drive_witness import DrivePromises, left_after_cleanup
from tests.harness.driving import Driven, drive
from tests.harness.soak import SOAK
from tests.harness.stage import PARAMETER, stage

pytestmark = stage(drive, shuffle=True, seed=PARAMETER)

BUDGET = 2


async def trouble(setting: Driven, random: Random) -> None:
    """One of the things that may happen at any time."""
    match random.randrange(8):
        case 0:
            await setting.program.restart()
        case 1:
            await setting.program.stop()
            await setting.sim.run_for(f"{random.randrange(1, 90)}s")
            await setting.program.start()
        case 2:
            await setting.karpenter.kill()
            await setting.sim.run_for(f"{random.randrange(1, 90)}s")
            await setting.karpenter.start()
        case 3:
            await edit_template(setting, metadata={"labels": {"edition": str(random.randrange(10**6))}})
        case 4:
            await scale(setting, random.randrange(1, 6), "small")
        case 5 | 6:
            error = OutcomeUnknown("lost") if random.random() < 0.5 else Unavailable("away")
            after = isinstance(error, OutcomeUnknown) and random.random() < 0.7
            setting.sim.server.faults.add(
                Fault(error=error, after=after),
                client=names.COMPONENT,
                verb=random.choice(["patch", "create", "delete"]),
            )
        case 7:
            setting.sim.server.faults.drop_watches(None)


@pytest.mark.parametrize("seed", range(40 if SOAK else 4))
async def test_promises_hold_in_random_runs(setting: Driven, seed: int) -> None:
    random = Random(seed)
    promises = DrivePromises(setting, budget=BUDGET)
    old = await stand(setting, pool(budgets=[{"nodes": str(BUDGET)}]), replicas=3)
    await setting.sim.apply(manifests.deployment("small", replicas=4, cpu="700m"))
    await setting.runs_all("small", 4)
    guest = setting.claim(old[0])
    assert guest is not None
    node = guest["status"]["nodeName"]
    await setting.annotate(NODES, node, {names.HELD: None, names.DO_NOT_DISRUPT: None})
    await setting.annotate(NODES, node, {names.HELD: None, names.DO_NOT_DISRUPT: "true"})
    promises.protect(node)
    await edit_template(setting, metadata={"labels": {"edition": "first"}})
    for _ in range(12):
        await setting.sim.run_for(f"{random.randrange(1, 120)}s")
        await trouble(setting, random)
    await setting.sim.run_for("40m")
    assert not promises.broken, "\n".join(promises.broken)
    assert promises.begun
    assert setting.claim(old[0]) is not None
    await setting.runs_all("web", 3, timeout="30m")
    assert not await left_after_cleanup(setting)
    kept = [each for each in setting.sim.objects(NODES) if names.DO_NOT_DISRUPT in each["metadata"]["annotations"]]
    assert [each["metadata"]["name"] for each in kept] == [node]
