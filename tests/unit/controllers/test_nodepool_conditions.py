"""ValidationSucceeded, NodeClassReady and the Ready that follows from them, on the simulated API server (01 §5.1)."""

import pytest

from dovetail.controllers.nodepool.conditions import NodePoolReadiness, NodePoolValidation
from dovetail.ports import KWOK_NODECLASSES, NODEPOOLS, Conflict, Delete, OutcomeUnknown, Patch, Unavailable
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.server.faults import Fault
from tests.harness.claims import condition, condition_of, node_class, node_pool, put_status
from tests.harness.running import Program, run_controllers
from tests.harness.stage import PARAMETER, stage

VALID, CLASS, READY = "ValidationSucceeded", "NodeClassReady", "Ready"


def controllers(program: Program) -> list[Controller]:
    return [NodePoolValidation(program.cluster), NodePoolReadiness(program.cluster)]


pytestmark = stage(run_controllers, controllers)


def told(sim: SimCluster, type_: str, pool: str = "default") -> tuple[str, str]:
    found = condition_of(sim, NODEPOOLS, pool, type_)
    return found.get("status", ""), found.get("reason", "")


async def test_a_pool_becomes_ready_and_then_is_left_alone(sim: SimCluster, program: Program) -> None:
    await sim.apply(node_class(), node_pool())
    await sim.run_for("10s")
    assert told(sim, VALID) == ("True", VALID)
    assert told(sim, CLASS) == ("True", CLASS)
    assert told(sim, READY) == ("True", READY)
    before = program.requests("patch")
    await sim.run_for("2h")
    await program.restart()
    await sim.run_for("2h")
    assert (before <= 4, program.requests("patch")) == (True, 0)


async def test_everything_that_is_wrong_is_said_and_taken_back_when_it_is_mended(sim: SimCluster) -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    long = {"taints": [taint], "startupTaints": [taint], "expireAfter": "99999999999h"}
    await sim.apply(node_class(), node_pool(template=long))
    await sim.run_for("10s")
    assert told(sim, VALID) == ("False", "NodePoolValidationFailed")
    message = condition_of(sim, NODEPOOLS, "default", VALID)["message"]
    assert "more than once; expireAfter: " in message
    assert told(sim, READY) == ("False", "UnhealthyDependents")
    await sim.apply(node_pool(template={"taints": [taint], "startupTaints": []}))
    await sim.run_for("10s")
    assert told(sim, VALID) == ("True", VALID)
    assert condition_of(sim, NODEPOOLS, "default", VALID)["message"] == ""
    assert told(sim, READY) == ("True", READY)


async def test_a_change_of_the_pool_is_judged_anew(sim: SimCluster) -> None:
    await sim.apply(node_class(), node_pool())
    await sim.run_for("10s")
    since = condition_of(sim, NODEPOOLS, "default", VALID)["lastTransitionTime"]
    await sim.apply(node_pool(weight=5))
    await sim.run_for("10s")
    for type_ in (VALID, CLASS, READY):
        assert condition_of(sim, NODEPOOLS, "default", type_)["observedGeneration"] == 2
    assert condition_of(sim, NODEPOOLS, "default", VALID)["lastTransitionTime"] == since


async def test_the_node_class_comes_changes_and_goes(sim: SimCluster) -> None:
    await sim.apply(node_pool())
    await sim.run_for("10s")
    assert told(sim, CLASS) == ("False", "NodeClassNotFound")
    assert told(sim, READY) == ("False", "UnhealthyDependents")
    finalized = node_class()
    finalized["metadata"]["finalizers"] = ["example.com/keep"]
    await sim.apply(finalized)
    await sim.run_for("10s")
    assert told(sim, CLASS) == ("True", CLASS)
    broken = condition("Ready", "False", reason="NoImage", message="there is no image")
    await put_status(sim, KWOK_NODECLASSES, "default", {"conditions": [broken]})
    await sim.run_for("10s")
    assert told(sim, CLASS) == ("False", "NoImage")
    assert condition_of(sim, NODEPOOLS, "default", CLASS)["message"] == "there is no image"
    await put_status(sim, KWOK_NODECLASSES, "default", {"conditions": [condition("Ready", "Unknown")]})
    await sim.run_for("10s")
    assert told(sim, CLASS) == ("False", "NodeClassReadinessUnknown")
    await sim.api.write(Delete(KWOK_NODECLASSES, "default"))
    await sim.run_for("10s")
    assert told(sim, CLASS) == ("False", "NodeClassTerminating")
    await sim.api.write(Patch(KWOK_NODECLASSES, "default", {"metadata": {"finalizers": None}}))
    await sim.run_for("10s")
    assert told(sim, CLASS) == ("False", "NodeClassNotFound")


async def test_only_the_pools_of_the_class_and_only_ours(sim: SimCluster) -> None:
    foreign = {"nodeClassRef": {"group": "example.com", "kind": "KWOKNodeClass", "name": "default"}}
    other = {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "other"}}
    await sim.apply(node_class(), node_pool("foreign", template=foreign), node_pool("other", template=other))
    await sim.run_for("10s")
    assert told(sim, CLASS, "other") == ("False", "NodeClassNotFound")
    assert told(sim, CLASS, "foreign") == told(sim, VALID, "foreign") == ("", "")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [Conflict("changed"), Unavailable("down"), OutcomeUnknown("lost")])
@pytest.mark.parametrize("seed", range(3))
@stage(seed=PARAMETER, shuffle=True, latency_seconds=0.01)
async def test_whatever_happens_on_the_way_both_are_said_in_the_end(
    sim: SimCluster, error: Conflict | Unavailable | OutcomeUnknown, after: bool
) -> None:
    sim.server.faults.add(Fault(error=error, after=after), verb="patch", client="dovetail", times=3)
    await sim.apply(node_class(), node_pool())
    await sim.run_for("1m")
    assert told(sim, READY) == ("True", READY)


async def test_who_comes_late_does_not_undo_what_another_has_said(sim: SimCluster) -> None:
    statuses: list[str] = []
    watch = sim.server.registry.store.observers.append
    watch(lambda *_change: statuses.extend({condition_of(sim, NODEPOOLS, "default", CLASS).get("status", "")}))
    sim.server.faults.add(Fault(delay_seconds=1.0), verb="patch", client="dovetail")
    await sim.apply(node_class(), node_pool())
    await sim.run_for("1m")
    assert told(sim, READY) == ("True", READY)
    assert set(statuses[statuses.index("True") :]) == {"True"}


async def test_a_message_that_is_too_long_is_cut(sim: SimCluster) -> None:
    requirements = [{"key": "a", "operator": "NotIn", "values": [f"{'x' * 70}{n}" for n in range(2000)]}]
    await sim.apply(node_class(), node_pool(template={"requirements": requirements}))
    await sim.run_for("10s")
    assert told(sim, VALID) == ("False", "NodePoolValidationFailed")
