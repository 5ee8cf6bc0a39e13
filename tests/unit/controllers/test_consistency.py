"""ConsistentStateFound, on the simulated API server (02 §11)."""

from typing import Any

from dovetail.controllers.nodeclaim.consistency import Consistency
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, NODES, Delete, Patch
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from tests.harness.claims import condition_of, launched, node, node_claim
from tests.harness.running import Program, run_controllers
from tests.harness.stage import stage

FOUND, FAILED = "ConsistentStateFound", "FailedConsistencyCheck"
INITIALIZED = ("Launched", "Registered", "Initialized")


def controllers(program: Program) -> list[Controller]:
    return [Consistency(program.cluster, Timings())]


pytestmark = stage(run_controllers, controllers)


def told(sim: SimCluster) -> tuple[str, str]:
    found = condition_of(sim, NODECLAIMS, "c1", FOUND)
    return found.get("status", ""), found.get("reason", "")


async def begin(sim: SimCluster, *, cpu: str, **fields: Any) -> None:
    """A claim that was promised 4 CPUs, and its node."""
    await sim.apply(node_claim("c1", resources={"requests": {"cpu": "1"}}, **fields), node("n1", cpu=cpu))
    await launched(sim, "c1", node="n1", true=INITIALIZED, capacity={"cpu": "4", "memory": "64Gi"})


async def set_cpu(sim: SimCluster, cpu: str) -> None:
    await sim.api.write(Patch(NODES, "n1", {"status": {"capacity": {"cpu": cpu}}}, subresource="status"))


async def test_a_node_as_promised(sim: SimCluster, program: Program) -> None:
    await begin(sim, cpu="3600m")
    await sim.run_for("1s")
    assert told(sim) == ("True", FOUND)
    await sim.run_for("2h")
    assert program.requests("patch nodeclaims") == 1
    assert program.events() == []


async def test_a_node_that_is_too_small(sim: SimCluster, program: Program) -> None:
    await begin(sim, cpu="2")
    await sim.run_for("1s")
    assert told(sim) == ("False", "ConsistencyCheckFailed")
    note = "expected 4 of resource cpu, but found 2 (50.0% of expected)"
    assert condition_of(sim, NODECLAIMS, "c1", FOUND)["message"] == note
    (event,) = program.events(FAILED)
    assert (event["type"], event["regarding"]["name"], event["note"]) == ("Warning", "c1", note)
    await sim.run_for("30m")
    (event,) = program.events(FAILED)
    assert event["series"]["count"] == 4  # it is told again, so that it stays to be seen
    assert program.requests("patch nodeclaims") == 1


async def test_a_claim_is_looked_at_once_in_ten_minutes(sim: SimCluster) -> None:
    await begin(sim, cpu="4")
    await sim.run_for("1m")
    await set_cpu(sim, "1")
    await sim.run_for("8m")
    assert told(sim) == ("True", FOUND)
    await sim.run_for("2m")
    assert told(sim) == ("False", "ConsistencyCheckFailed")
    await set_cpu(sim, "4")
    await sim.run_for("10m")
    assert told(sim) == ("True", FOUND)


async def test_a_change_after_a_long_rest_is_seen_at_once(sim: SimCluster) -> None:
    await begin(sim, cpu="4")
    await sim.run_for("1h")
    await set_cpu(sim, "1")
    await sim.run_for("1s")
    assert told(sim) == ("False", "ConsistencyCheckFailed")


async def test_only_initialized_claims_that_stay(sim: SimCluster) -> None:
    await begin(sim, cpu="2", finalizers=True)
    await launched(sim, "c1", node="n1", true=("Launched", "Registered"))
    await sim.run_for("20m")
    assert told(sim) == ("", "")
    await launched(sim, "c1", node="n1", true=INITIALIZED)
    await sim.run_for("1s")
    assert told(sim)[0] == "False"
    await sim.api.write(Delete(NODECLAIMS, "c1"))
    await set_cpu(sim, "4")
    await sim.run_for("1h")
    assert told(sim)[0] == "False"


async def test_claims_of_others_are_left_alone(sim: SimCluster) -> None:
    await begin(sim, cpu="2", nodeClassRef={"group": "example.com", "kind": "Other", "name": "x"})
    await sim.run_for("20m")
    assert told(sim) == ("", "")
