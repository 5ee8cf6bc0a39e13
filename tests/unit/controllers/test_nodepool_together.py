"""All controllers of NodePools and of claims' labels at once: they write the same objects, and come to rest."""

import pytest

from dovetail.api import names
from dovetail.controllers.nodeclaim.consistency import Consistency
from dovetail.controllers.nodeclaim.hydration import ClaimHydration, NodeHydration
from dovetail.controllers.nodepool.conditions import NodePoolReadiness, NodePoolValidation
from dovetail.controllers.nodepool.counter import NodePoolCounter
from dovetail.controllers.nodepool.hash import NodePoolHash
from dovetail.controllers.nodepool.registration_health import RegistrationHealth
from dovetail.planning.timings import Timings
from dovetail.ports import NODEPOOLS
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from tests.harness.claims import condition_of, launched, node, node_claim, node_class, node_pool, status_of
from tests.harness.running import Program, run_controllers
from tests.harness.stage import PARAMETER, stage

POOLS = ("a", "b", "c")


def controllers(program: Program) -> list[Controller]:
    cluster, timings = program.cluster, Timings()
    return [
        NodePoolHash(cluster),
        NodePoolValidation(cluster),
        NodePoolReadiness(cluster),
        NodePoolCounter(cluster, timings),
        RegistrationHealth(cluster),
        ClaimHydration(cluster),
        NodeHydration(cluster),
        Consistency(cluster, timings),
    ]


pytestmark = stage(run_controllers, controllers)


@pytest.mark.parametrize("seed", range(5))
@stage(seed=PARAMETER, shuffle=True, latency_seconds=0.01, started=False)
async def test_they_come_to_rest_whatever_the_order_and_however_often_they_are_killed(
    sim: SimCluster, program: Program
) -> None:
    await sim.apply(*map(node_pool, POOLS), node_class())
    for pool in POOLS:
        await sim.apply(node_claim(f"{pool}-1", pool=pool), node(f"{pool}-n1", pool=pool))
        await launched(sim, f"{pool}-1", node=f"{pool}-n1", true=("Launched", "Registered", "Initialized"))
    for milliseconds in (5, 15, 40, 120):
        await program.start()
        await sim.run_for(f"{milliseconds}ms")
        await program.kill()
    await program.start()
    await sim.run_for("1m")
    for pool in POOLS:
        assert condition_of(sim, NODEPOOLS, pool, "Ready")["status"] == "True"
        assert condition_of(sim, NODEPOOLS, pool, "NodeRegistrationHealthy")["status"] == "Unknown"
        assert status_of(sim, NODEPOOLS, pool)["nodes"] == 1
        found = sim.object(NODEPOOLS, pool)
        assert found is not None
        assert found["metadata"]["annotations"][names.NODEPOOL_HASH_VERSION] == "v3"
    before = program.requests("patch")
    assert before < 40  # 3 pools and claims, a handful of writers each, and some conflicts
    await sim.run_for("2h")
    assert program.requests("patch") == before
