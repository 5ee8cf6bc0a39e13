"""Labels of the node class on claims and Nodes, on the simulated API server (03 §7.5)."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.controllers.nodeclaim.hydration import ClaimHydration, NodeHydration
from dovetail.ports import NODECLAIMS, NODES, Conflict, Delete, Resource, Unavailable
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.server.faults import Fault
from tests.harness.claims import Manifest, launched, node, node_claim
from tests.harness.running import Program, run_controllers
from tests.harness.stage import stage

CLASS = names.KWOK_NODECLASS_LABEL


def controllers(program: Program) -> list[Controller]:
    return [ClaimHydration(program.cluster), NodeHydration(program.cluster)]


pytestmark = stage(run_controllers, controllers)


def label(sim: SimCluster, kind: Resource[Any], name: str) -> str | None:
    found = sim.object(kind, name)
    assert found is not None
    value = (found["metadata"].get("labels") or {}).get(CLASS)
    return None if value is None else str(value)


def bare(name: str) -> Manifest:
    made = node(name)
    del made["metadata"]["labels"][CLASS]
    return made


async def test_claims_and_their_nodes_get_the_label(sim: SimCluster, program: Program) -> None:
    await sim.apply(node_claim("c1"), bare("n1"), bare("stray"))
    await sim.run_for("5m")
    assert label(sim, NODECLAIMS, "c1") == "default"
    assert label(sim, NODES, "n1") is None  # nobody knows yet whose it is
    await launched(sim, "c1", node="n1")
    await sim.run_for("2s")
    assert label(sim, NODES, "n1") == "default"
    assert label(sim, NODES, "stray") is None
    before = program.requests("patch")
    assert before == 2
    await sim.run_for("2h")
    assert program.requests("patch") == before


@stage(started=False)
async def test_what_was_there_before_the_start_and_what_is_being_deleted(sim: SimCluster, program: Program) -> None:
    claim, made = node_claim("c1", finalizers=True), bare("n1")
    made["metadata"]["finalizers"] = [names.TERMINATION_FINALIZER]
    await sim.apply(claim, made)
    await launched(sim, "c1", node="n1")
    await sim.api.write(Delete(NODECLAIMS, "c1"))
    await sim.api.write(Delete(NODES, "n1"))
    await program.start()
    await sim.run_for("1s")
    assert label(sim, NODECLAIMS, "c1") == label(sim, NODES, "n1") == "default"


async def test_claims_of_others_and_nodes_of_two_claims_are_left_alone(sim: SimCluster) -> None:
    foreign = node_claim("foreign", nodeClassRef={"group": "example.com", "kind": "Other", "name": "x"})
    await sim.apply(foreign, bare("n1"), node_claim("a"), node_claim("b"), bare("n2"))
    await launched(sim, "foreign", node="n1")
    await launched(sim, "a", node="n2")
    await launched(sim, "b", node="n2")
    await sim.run_for("1s")
    assert label(sim, NODECLAIMS, "foreign") is None
    assert label(sim, NODES, "n1") is None
    assert label(sim, NODECLAIMS, "a") == "default"


@pytest.mark.parametrize("error", [Conflict("changed"), Unavailable("down")])
async def test_failures_are_made_up_for(sim: SimCluster, error: Conflict | Unavailable) -> None:
    sim.server.faults.add(Fault(error=error), verb="patch", client="dovetail", times=3)
    await sim.apply(node_claim("c1"), bare("n1"))
    await launched(sim, "c1", node="n1")
    await sim.run_for("30s")
    assert label(sim, NODECLAIMS, "c1") == label(sim, NODES, "n1") == "default"
