"""NodeRegistrationHealthy, on the simulated API server (01 §5.1)."""

from typing import Any

import pytest

from dovetail.api import objects
from dovetail.controllers.nodepool.registration_health import RegistrationHealth
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, NODEPOOLS, Conflict, Delete, OutcomeUnknown, Unavailable
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.server.faults import Fault
from tests.harness.claims import (
    condition,
    condition_of,
    node_claim,
    node_class,
    node_pool,
    put_status,
    status_of,
)
from tests.harness.running import Program, run_controllers
from tests.harness.stage import gives, stage

HEALTHY = "NodeRegistrationHealthy"


class Health:
    """The controller of the program that runs now, and claims to report to it."""

    def __init__(self) -> None:
        self.controller: RegistrationHealth
        self._claims = 0

    def controllers(self, program: Program) -> list[Controller]:
        self.controller = RegistrationHealth(program.cluster)
        return [self.controller]

    async def report(self, sim: SimCluster, outcomes: str, *, pool: str = "default", owner: str = "") -> None:
        """Claims of the pool that register (`+`) or fail to (`-`), one after the other."""
        for outcome in outcomes:
            self._claims += 1
            claim = await self.claim(sim, f"c{self._claims}", pool=pool, owner=owner)
            (self.controller.registered if outcome == "+" else self.controller.failed)(claim)
            await sim.run_for("1s")

    async def claim(self, sim: SimCluster, name: str, *, pool: str = "default", owner: str = "") -> objects.NodeClaim:
        found = sim.object(NODEPOOLS, pool)
        uid = owner or (found["metadata"]["uid"] if found is not None else "gone")
        await sim.apply(node_claim(name, pool=pool, pool_uid=uid, finalizers=True))
        return await sim.api.get(NODECLAIMS, name)


@gives("sim", "program", "health")
def run(scenario: Any) -> None:
    health = Health()
    run_controllers(lambda sim, program: scenario(sim, program, health), health.controllers)


pytestmark = stage(run)


def told(sim: SimCluster, pool: str = "default") -> str:
    return str(condition_of(sim, NODEPOOLS, pool, HEALTHY).get("status", ""))


async def begin(sim: SimCluster) -> None:
    await sim.apply(node_class(), node_pool())
    await sim.run_for("1s")
    assert told(sim) == "Unknown"
    assert status_of(sim, NODEPOOLS, "default")["nodeClassObservedGeneration"] == 1


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [("+", "True"), ("-", "Unknown"), ("--", "False"), ("+-", "True"), ("--+", "False"), ("--+++", "True")],
)
async def test_the_last_four_decide(sim: SimCluster, health: Health, outcomes: str, status: str) -> None:
    await begin(sim)
    await health.report(sim, outcomes)
    assert told(sim) == status


async def test_it_is_no_part_of_ready_and_says_why_launches_fail(sim: SimCluster, health: Health) -> None:
    await begin(sim)
    ready = condition_of(sim, NODEPOOLS, "default", "Ready")
    await health.report(sim, "-")
    claim = await health.claim(sim, "unlaunched")
    failed = condition("Launched", "Unknown", reason="LaunchFailed", message="no such type")
    await put_status(sim, NODECLAIMS, "unlaunched", {"conditions": [failed]})
    claim = await sim.api.get(NODECLAIMS, "unlaunched")
    health.controller.failed(claim)
    await sim.run_for("1s")
    found = condition_of(sim, NODEPOOLS, "default", HEALTHY)
    assert (found["status"], found["reason"], found["message"]) == ("False", "LaunchFailed", "no such type")
    assert condition_of(sim, NODEPOOLS, "default", "Ready") == ready


async def test_one_claim_that_is_given_up_again_and_again_counts_once(sim: SimCluster, health: Health) -> None:
    await begin(sim)
    claim = await health.claim(sim, "c")
    for _ in range(5):
        health.controller.failed(claim)
        await sim.run_for("1s")
    assert told(sim) == "Unknown"


async def test_claims_of_a_deleted_pool_say_nothing(sim: SimCluster, health: Health) -> None:
    await begin(sim)
    pool = sim.object(NODEPOOLS, "default")
    assert pool is not None
    await sim.api.write(Delete(NODEPOOLS, "default"))
    await health.report(sim, "--", owner=pool["metadata"]["uid"])
    await sim.apply(node_pool())
    await sim.run_for("1s")
    await health.report(sim, "--", owner=pool["metadata"]["uid"])
    assert told(sim) == "Unknown"
    await health.report(sim, "--", pool="nowhere")


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [("+", "-", "True"), ("+", "--", "False"), ("--", "+", "False"), ("--", "+++", "True"), ("-", "-", "Unknown")],
)
async def test_a_restart_goes_on_from_the_condition(
    sim: SimCluster, program: Program, health: Health, *, before: str, after: str, status: str
) -> None:
    await begin(sim)
    await health.report(sim, before)
    await program.restart()
    await health.report(sim, after)
    assert told(sim) == status


async def test_another_generation_of_the_pool_or_its_class_starts_over(sim: SimCluster, health: Health) -> None:
    await begin(sim)
    await health.report(sim, "--")
    await sim.apply(node_pool(weight=3))
    await sim.run_for("1s")
    assert told(sim) == "Unknown"
    await health.report(sim, "-")
    assert told(sim) == "Unknown"  # the two of before are forgotten
    await health.report(sim, "-")
    assert told(sim) == "False"
    await sim.apply(node_class(spec={"nodeRegistrationDelay": "5s"}))
    await sim.run_for("1s")
    assert told(sim) == "Unknown"
    assert status_of(sim, NODEPOOLS, "default")["nodeClassObservedGeneration"] == 2
    await health.report(sim, "+")
    assert told(sim) == "True"


async def test_what_is_forgotten_stays_forgotten_if_the_answer_is_lost(sim: SimCluster, health: Health) -> None:
    await begin(sim)
    await health.report(sim, "--")
    sim.server.faults.add(Fault(error=OutcomeUnknown("lost"), after=True), verb="patch", client="dovetail")
    await sim.apply(node_pool(weight=3))
    await sim.run_for("10s")
    await health.report(sim, "-")
    assert told(sim) == "Unknown"


async def test_a_change_while_nobody_looks_is_noticed_at_the_start(
    sim: SimCluster, program: Program, health: Health
) -> None:
    await begin(sim)
    await health.report(sim, "+")
    await program.kill()
    await sim.apply(node_pool(weight=3))
    await program.start()
    await sim.run_for("1s")
    assert told(sim) == "Unknown"


async def test_without_a_node_class_only_the_pool_is_observed(
    sim: SimCluster, program: Program, health: Health
) -> None:
    await sim.apply(node_pool())
    await sim.run_for("1s")
    assert told(sim) == "Unknown"
    assert "nodeClassObservedGeneration" not in status_of(sim, NODEPOOLS, "default")
    await health.report(sim, "+")
    assert told(sim) == "True"
    await sim.apply(node_class())
    await sim.run_for("1s")
    assert told(sim) == "Unknown"
    await health.report(sim, "+")
    await sim.api.write(Delete(KWOK_NODECLASSES, "default"))
    before = program.requests("patch")
    await sim.run_for("2h")
    assert (told(sim), program.requests("patch")) == ("True", before)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(error=Conflict("changed")),
        Fault(error=Unavailable("down")),
        Fault(error=OutcomeUnknown("lost")),
        Fault(error=OutcomeUnknown("lost"), after=True),
    ],
)
async def test_what_could_not_be_written_is_not_lost_and_not_counted_twice(
    sim: SimCluster, health: Health, fault: Fault
) -> None:
    await begin(sim)
    sim.server.faults.add(fault, verb="patch", client="dovetail", times=2)
    await health.report(sim, "+")
    await sim.run_for("30s")
    assert told(sim) == "True"
    await health.report(sim, "-")
    assert told(sim) == "True"
    sim.server.faults.add(fault, verb="patch", client="dovetail", times=2)
    await health.report(sim, "-")
    await sim.run_for("30s")
    assert told(sim) == "False"
    await health.report(sim, "++")
    assert told(sim) == "False"
    await health.report(sim, "+")
    assert told(sim) == "True"
