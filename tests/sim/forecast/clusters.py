"""Random small clusters in which from some instant on nothing but time changes.

async def scenario(setting: Setting) -> None:
    await build(setting, Random(7))

play(scenario)
"""

from random import Random
from typing import Any

from dovetail.api import names
from dovetail.ports import NODES
from tests.harness import manifests
from tests.harness.claims import Manifest
from tests.harness.disruption import drift, pool
from tests.harness.provisioning import OF_FOUR, Setting

NEVER = "Never"
_BUDGETS: list[list[Manifest]] = [
    [{"nodes": "100%"}],
    [{"nodes": "1"}],
    [{"nodes": "50%"}],
    [{"nodes": "0"}],
    [{"nodes": "0", "schedule": "0 1 * * *", "duration": "1h"}, {"nodes": "2"}],
    [{"nodes": "0", "reasons": ["Drifted"], "schedule": "30 0 * * *", "duration": "50m"}, {"nodes": "100%"}],
    [{"nodes": "0", "schedule": "CRON_TZ=Europe/Berlin 0 2 * * *", "duration": "40m"}, {"nodes": "100%"}],
]
_PROTECTIONS: list[dict[str, str]] = [
    {names.DO_NOT_DISRUPT: "true"},
    {names.DO_NOT_DISRUPT: "45m"},
    {names.DO_NOT_DISRUPT: "1h40m"},
    {names.DISRUPTION_SCHEDULE: "0 1 * * *", names.DISRUPTION_SCHEDULE_DURATION: "40m"},
    {names.DISRUPTION_SCHEDULE: "30 0 * * *;0 2 * * *", names.DISRUPTION_SCHEDULE_DURATION: "20m"},
    {names.DISRUPTION_BLOCK_SCHEDULE: "0 0 * * *", names.DISRUPTION_BLOCK_DURATION: "2h"},
    {names.DISRUPTION_SCHEDULE: "CRON_TZ=America/New_York 15 20 * * *", names.DISRUPTION_SCHEDULE_DURATION: "30m"},
]


async def build(setting: Setting, chance: Random) -> None:
    """Pools, nodes with pods of their own, perhaps a workload that fits between them; and some go already."""
    pools = ["default", "other"][: chance.choice((1, 1, 2))]
    await setting.begin(*(_pool(name, chance) for name in pools))
    claims = [f"c{number}" for number in range(chance.randint(1, 4))]
    for claim in claims:
        await _launch(setting, claim, chance.choice(pools), chance)
    if chance.random() < 0.4:
        await _workload(setting, chance)
    drifted = [claim for claim in claims if chance.random() < 0.3]
    if drifted:
        await drift(setting, *drifted)
    if chance.random() < 0.3 and setting.claim(claims[0]) is not None:
        await setting.delete_claim(claims[0])
    await setting.sim.run_for(f"{chance.randint(40, 400)}s")


def _pool(name: str, chance: Random) -> Manifest:
    told: dict[str, Any] = {"budgets": chance.choice(_BUDGETS)}
    told["consolidateAfter"] = chance.choice((NEVER, NEVER, NEVER, "20m", "30m"))
    told["consolidationPolicy"] = chance.choice(("WhenEmpty", "WhenEmpty", "WhenEmptyOrUnderutilized"))
    if chance.random() < 0.3:
        told["gracefulExpireAfter"] = chance.choice(("50m", "70m", "90m"))
    return pool(name, **told)


async def _launch(setting: Setting, claim: str, of: str, chance: Random) -> None:
    spec: dict[str, Any] = {"requirements": [OF_FOUR], "pool": of}
    spec["expireAfter"] = chance.choice((NEVER, "40m", "1h", "75m", "100m"))
    if chance.random() < 0.6:
        spec["terminationGracePeriod"] = chance.choice(("5m", "20m", "1h"))
    pods = [_pod(f"{claim}-{number}", chance) for number in range(chance.choice((0, 1, 1, 2, 3)))]
    node = await setting.launch(claim, pods=pods, **spec)
    if chance.random() < 0.15:
        await setting.annotate(NODES, node, {names.DO_NOT_DISRUPT: chance.choice(("true", "1h"))})


def _pod(name: str, chance: Random) -> Manifest:
    annotations = chance.choice(_PROTECTIONS) if chance.random() < 0.6 else {}
    spec: dict[str, Any] = {"cpu": "100m", "terminationGracePeriodSeconds": chance.choice((0, 30, 30, 600))}
    if chance.random() < 0.1:
        spec["priorityClassName"] = "system-cluster-critical"
    return manifests.pod(name, annotations=annotations, **spec)


async def _workload(setting: Setting, chance: Random) -> None:
    replicas = chance.randint(1, 3)
    annotations = chance.choice(_PROTECTIONS) if chance.random() < 0.4 else {}
    await setting.sim.apply(manifests.deployment("web", replicas=replicas, cpu="500m", annotations=annotations))
    if chance.random() < 0.5:
        await setting.sim.apply(
            manifests.pdb("web", **chance.choice(({"maxUnavailable": 1}, {"minAvailable": "100%"})))
        )
    await setting.runs_all("web", replicas)
