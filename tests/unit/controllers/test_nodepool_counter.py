"""What a NodePool's status counts, on the simulated API server (01 §5.1)."""

from collections.abc import Mapping
from typing import Any

from dovetail.api import names
from dovetail.controllers.nodepool.counter import NodePoolCounter
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, Delete, Patch
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from tests.harness.claims import (
    condition,
    launched,
    node,
    node_claim,
    node_pool,
    put_status,
    status_of,
)
from tests.harness.running import Program, run_controllers
from tests.harness.stage import stage

NONE = {"cpu": "0", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "0"}
ONE = {**NONE, "cpu": "4", "memory": "16Gi", "pods": "110", "nodes": "1"}
TWO = {**NONE, "cpu": "8", "memory": "32Gi", "pods": "220", "nodes": "2"}


def controllers(program: Program) -> list[Controller]:
    return [NodePoolCounter(program.cluster, Timings())]


pytestmark = stage(run_controllers, controllers)


def counted(sim: SimCluster, pool: str = "default") -> tuple[int | None, Mapping[str, Any]]:
    status = status_of(sim, NODEPOOLS, pool)
    return status.get("nodes"), status.get("resources", {})


async def grow(sim: SimCluster, *numbers: int) -> None:
    """Claims with their nodes, each of 4 CPUs and 16Gi."""
    for number in numbers:
        await sim.apply(node_claim(f"c{number}", finalizers=True), node(f"n{number}"))
        await launched(sim, f"c{number}", node=f"n{number}", true=("Launched", "Registered", "Initialized"))


async def test_an_empty_pool_says_so(sim: SimCluster) -> None:
    await sim.apply(node_pool())
    await sim.run_for("6s")
    assert counted(sim) == (0, NONE)


async def test_nodes_come_and_go(sim: SimCluster) -> None:
    await sim.apply(node_pool(), node_pool("other"))
    await grow(sim, 1, 2)
    await sim.run_for("6s")
    assert counted(sim) == (2, TWO)
    assert counted(sim, "other") == (0, NONE)
    await sim.api.write(Delete(NODECLAIMS, "c1"))  # it is still there, but no longer counted
    await sim.run_for("6s")
    assert counted(sim) == (1, ONE)
    await sim.api.write(Delete(NODES, "n2"))
    await sim.run_for("6s")
    assert counted(sim) == (1, {**NONE, "nodes": "1"})  # the claim promised nothing


async def test_a_claim_counts_once_it_is_launched_and_as_promised_until_its_node_is_initialized(
    sim: SimCluster,
) -> None:
    await sim.apply(node_pool(), node_claim("c1"))
    await sim.run_for("20s")
    assert counted(sim) == (0, NONE)
    await launched(sim, "c1", node="n1", capacity={"cpu": "8", "memory": "16Gi", "example.com/gpu": "2"})
    await sim.run_for("20s")
    assert counted(sim) == (1, {**NONE, "cpu": "8", "memory": "16Gi", "example.com/gpu": "2", "nodes": "1"})
    await sim.apply(node("n1", initialized=False, pool="", memory="0"))
    await sim.run_for("20s")
    assert counted(sim) == (1, {**ONE, "example.com/gpu": "2"})
    await sim.api.write(Patch(NODES, "n1", {"metadata": {"labels": {names.INITIALIZED_LABEL: "true"}}}))
    await sim.run_for("20s")
    assert counted(sim) == (1, {**ONE, "memory": "0"})  # what is no longer there is no longer told


async def test_a_node_that_is_being_replaced_is_not_counted(sim: SimCluster) -> None:
    await sim.apply(node_pool())
    await grow(sim, 1, 2)
    steady = [condition(type_) for type_ in ("Launched", "Registered", "Initialized")]
    disrupting = [*steady, condition("DisruptionReason", reason="Drifted")]
    await put_status(sim, NODECLAIMS, "c1", {"conditions": disrupting})
    taints = [{"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"}]
    await sim.api.write(Patch(NODES, "n1", {"spec": {"taints": taints}}))
    await sim.run_for("6s")
    assert counted(sim) == (1, ONE)


async def test_a_node_that_has_lost_its_claim_counts_and_one_instance_counts_once(sim: SimCluster) -> None:
    await sim.apply(node_pool(), node("lost"))
    await grow(sim, 1)
    await sim.apply(node_claim("double"))
    await launched(sim, "double", node="n1")
    unmanaged = node("unmanaged")
    del unmanaged["metadata"]["labels"][names.KWOK_NODECLASS_LABEL]
    await sim.apply(unmanaged)
    await sim.run_for("6s")
    assert counted(sim) == (2, TWO)
    await sim.api.write(Patch(NODES, "lost", {"metadata": {"finalizers": [names.TERMINATION_FINALIZER]}}))
    await sim.api.write(Delete(NODES, "lost"))
    await sim.run_for("6s")
    assert counted(sim) == (1, ONE)


async def test_many_changes_are_counted_together_and_none_are_not_counted_at_all(
    sim: SimCluster, program: Program
) -> None:
    await sim.apply(node_pool())
    for number in range(20):
        await grow(sim, number)
        await sim.run_for("500ms")
    await sim.run_for("10s")
    assert counted(sim)[0] == 20
    assert program.requests("patch nodepools") <= 4  # 10 s of changes, every 5 s, and the empty pool
    before = program.requests("patch")
    await sim.run_for("2h")
    assert program.requests("patch") == before
    await program.restart()
    await sim.run_for("1h")
    assert program.requests("patch") == 0
