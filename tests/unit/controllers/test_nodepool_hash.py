"""The hash on pools and claims, on the simulated API server (01 §7)."""

import pytest

from dovetail.api import names
from dovetail.controllers.nodepool.hash import NodePoolHash
from dovetail.ports import NODECLAIMS, NODEPOOLS, Conflict, OutcomeUnknown, Unavailable
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.server.faults import Fault
from tests.harness.claims import condition, node_claim, node_pool, put_status
from tests.harness.running import Program, run_controllers
from tests.harness.stage import stage

NEVER, HOURS = "7428780003907761376", "12745407319442031341"  # of a pool of kwok nodes: expireAfter Never, and 720h


def controllers(program: Program) -> list[Controller]:
    return [NodePoolHash(program.cluster)]


pytestmark = stage(run_controllers, controllers)


def annotations(sim: SimCluster, name: str = "", pool: str = "default") -> dict[str, str]:
    """The hash annotations of a claim, or else of a pool."""
    found = sim.object(NODECLAIMS, name) if name else sim.object(NODEPOOLS, pool)
    assert found is not None
    texts = found["metadata"].get("annotations") or {}
    keys = {"hash": names.NODEPOOL_HASH, "version": names.NODEPOOL_HASH_VERSION}
    return {short: texts[key] for short, key in keys.items() if key in texts}


def hashed(value: str, version: str = "v3") -> dict[str, str]:
    return {"hash": value, "version": version}


def old(hash_: str = "1", version: str = "v2") -> dict[str, str]:
    return {names.NODEPOOL_HASH: hash_, names.NODEPOOL_HASH_VERSION: version}


async def test_a_pool_gets_its_hash_and_a_new_one_when_its_template_changes(sim: SimCluster) -> None:
    await sim.apply(node_pool())
    await sim.run_for("1s")
    assert annotations(sim) == hashed(NEVER)
    await sim.apply(node_pool(template={"expireAfter": "720h"}))
    await sim.run_for("1s")
    assert annotations(sim) == hashed(HOURS)


async def test_an_empty_list_is_not_an_absent_one(sim: SimCluster) -> None:
    await sim.apply(node_pool(), node_pool("empty", template={"taints": []}))
    await sim.run_for("1s")
    assert annotations(sim) != annotations(sim, pool="empty")


async def test_what_does_not_count_writes_nothing(sim: SimCluster, program: Program) -> None:
    await sim.apply(node_pool())
    await sim.run_for("1s")
    await sim.apply(node_pool(weight=10))
    await sim.run_for("1h")
    assert program.requests("patch") == 1


@stage(started=False)
async def test_claims_of_another_version_come_over_unless_they_may_be_drifted(
    sim: SimCluster, program: Program
) -> None:
    await sim.apply(node_pool(), node_pool("other"))
    await sim.apply(
        node_claim("plain", annotations=old()),
        node_claim("bare"),
        node_claim("drifted", annotations=old()),
        node_claim("current", annotations=old(version="v3")),
        node_claim("elsewhere", pool="elsewhere", annotations=old()),
        node_claim("foreign", annotations=old(), nodeClassRef={"group": "example.com", "kind": "X", "name": "x"}),
    )
    await put_status(sim, NODECLAIMS, "drifted", {"conditions": [condition("Drifted", "False")]})
    await program.start()
    await sim.run_for("1s")
    assert annotations(sim, "plain") == hashed(NEVER)
    assert annotations(sim, "bare") == hashed(NEVER)
    assert annotations(sim, "drifted") == hashed("1")
    assert annotations(sim, "current") == hashed("1")
    assert annotations(sim, "elsewhere") == annotations(sim, "foreign") == hashed("1", "v2")
    assert annotations(sim) == hashed(NEVER)


async def test_a_pool_of_this_version_leaves_its_claims_alone(sim: SimCluster) -> None:
    await sim.apply(node_pool())
    await sim.run_for("1s")
    await sim.apply(node_claim("late", annotations=old()))
    await sim.run_for("1m")
    assert annotations(sim, "late") == hashed("1", "v2")


@pytest.mark.parametrize("patches", [1, 2, 3])
@stage(started=False)
async def test_killed_in_the_midst_of_it_the_pool_is_the_last_to_be_written(
    sim: SimCluster, program: Program, patches: int
) -> None:
    await sim.apply(node_pool())
    await sim.apply(*(node_claim(f"c{number}", annotations=old()) for number in range(3)))
    for _ in range(patches - 1):
        sim.server.faults.add(Fault(), verb="patch", client="dovetail")
    sim.server.faults.add(Fault(delay_seconds=60.0), verb="patch", client="dovetail")
    await program.start()
    await sim.run_for("10s")
    assert annotations(sim) == {}
    done = [annotations(sim, f"c{number}") == hashed(NEVER) for number in range(3)]
    assert sum(done) == patches - 1
    await program.restart()
    await sim.run_for("10s")
    assert annotations(sim) == hashed(NEVER)
    assert all(annotations(sim, f"c{number}") == hashed(NEVER) for number in range(3))


@pytest.mark.parametrize(
    "fault",
    [
        Fault(error=Conflict("changed")),
        Fault(error=Unavailable("down")),
        Fault(error=OutcomeUnknown("lost")),
        Fault(error=OutcomeUnknown("lost"), after=True),
    ],
)
@stage(started=False)
async def test_requests_that_fail_are_made_up_for(sim: SimCluster, program: Program, fault: Fault) -> None:
    await sim.apply(node_pool())
    await sim.apply(node_claim("c", annotations=old()))
    sim.server.faults.add(fault, verb="patch", resource=NODECLAIMS, client="dovetail")
    sim.server.faults.add(fault, verb="patch", resource=NODEPOOLS, client="dovetail")
    await program.start()
    await sim.run_for("30s")
    assert annotations(sim, "c") == hashed(NEVER)
    assert annotations(sim) == hashed(NEVER)
    assert not sim.server.faults.pending


async def test_pools_of_others_and_pools_that_cannot_be_hashed_are_left_alone(sim: SimCluster) -> None:
    foreign = {"nodeClassRef": {"group": "example.com", "kind": "Other", "name": "x"}}
    await sim.apply(node_pool(template=foreign), node_pool("long", template={"expireAfter": "99999999999h"}))
    await sim.run_for("1m")
    assert annotations(sim) == annotations(sim, pool="long") == {}
