"""S1 to S6 can be seen on the claim, in their order (R21)."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.controllers.nodeclaim.state import StateReporter
from dovetail.ports import NODECLAIMS, NODES, Conflict, Patch
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.claims import (
    condition,
    condition_of,
    launched,
    node,
    node_claim,
    node_class,
    node_pool,
    put_status,
)
from tests.harness.running import Program, run_controllers
from tests.harness.stage import PARAMETER, gives, stage
from tests.harness.termination import GUARDED, Setting, play
from tests.sim.termination.past import Past

CANDIDATE = {"key": names.CANDIDATE_TAINT, "effect": "PreferNoSchedule"}
DISRUPTED = {"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"}
READY = ("Launched", "Registered", "Initialized")


async def taint(sim: SimCluster, name: str, *taints: dict[str, str]) -> None:
    await sim.api.write(Patch(NODES, name, {"spec": {"taints": list(taints)}}))


async def set_condition(sim: SimCluster, type_: str, status: str | None) -> None:
    """Set a condition of claim c1 beside those there are, or take it off."""
    found = sim.object(NODECLAIMS, "c1")
    assert found is not None
    others = [entry for entry in found["status"]["conditions"] if entry["type"] != type_]
    added = [] if status is None else [condition(type_, status, observedGeneration=1)]
    await put_status(sim, NODECLAIMS, "c1", {"conditions": [*others, *added]})


# -- with all controllers ---------------------------------------------------------------------------------------------


@stage(play, cloud=True)
async def test_all_six_in_order(setting: Setting) -> None:
    await setting.sim.apply(node_class(), node_pool(disruption={"gracefulExpireAfter": "1h", "consolidateAfter": "0s"}))
    past = Past(setting.sim, NODECLAIMS, "c1")
    found = await setting.launch(pods=[manifests.pod("web", annotations=GUARDED)], terminationGracePeriod="1h")
    await setting.sim.run_for("2s")
    assert past.reasons(ConditionType.DISRUPTION_STATE) == ["S1"]
    await setting.sim.run_for("1h")  # it has expired, and waits to be replaced
    assert past.reasons(ConditionType.DISRUPTION_STATE) == ["S1", "S2"]
    await set_condition(setting.sim, ConditionType.DISRUPTION_REASON, "True")
    await taint(setting.sim, found, DISRUPTED)
    await setting.sim.run_for("2s")
    assert past.reasons(ConditionType.DISRUPTION_STATE) == ["S1", "S2", "S3"]
    await setting.delete_claim()
    await setting.sim.run_for("50m")
    assert past.reasons(ConditionType.DISRUPTION_STATE) == ["S1", "S2", "S3", "S4"]
    setting.cloud.delete_seconds = 60
    await setting.sim.run_for("10m1s")
    assert past.reasons(ConditionType.DISRUPTION_STATE) == ["S1", "S2", "S3", "S4", "S5"]
    # Somebody lets the Node go before its machine is gone.
    await setting.sim.api.write(Patch(NODES, found, {"metadata": {"finalizers": None}}))
    await setting.sim.wait_until(lambda: setting.gone(NODES, found) and setting.gone(NODECLAIMS, "c1"), timeout="1h")
    assert past.reasons(ConditionType.DISRUPTION_STATE) == ["S1", "S2", "S3", "S4", "S5", "S6"]
    messages = {entry["reason"]: entry["message"] for entry in past.conditions(ConditionType.DISRUPTION_STATE)}
    assert messages == {
        "S1": "steady",
        "S2": "candidate",
        "S3": "disrupting",
        "S4": "draining",
        "S5": "instance terminating",
        "S6": "cleanup",
    }
    # It is no news each time, and no event: it is always True.
    assert past.statuses(ConditionType.DISRUPTION_STATE) == ["True"]
    assert setting.program.events(ConditionType.DISRUPTION_STATE) == []


@pytest.mark.parametrize("cloud", [False, True])
@pytest.mark.parametrize("first", ["claim", "node"])
@stage(play, cloud=PARAMETER)
async def test_what_is_deleted_goes_from_the_first_to_the_fourth(setting: Setting, first: str) -> None:
    past = Past(setting.sim, NODECLAIMS, "c1")
    found = await setting.launch(pods=[manifests.pod("web")])
    await (setting.delete_claim() if first == "claim" else setting.delete_node(found))
    await setting.sim.wait_until(lambda: setting.gone(NODES, found) and setting.gone(NODECLAIMS, "c1"))
    # The last takes no time at all, and shows all the same.
    assert past.reasons(ConditionType.DISRUPTION_STATE) == ["S1", "S4", "S5", "S6"]


@stage(play, cloud=True)
async def test_a_claim_that_never_registered_is_steady_until_it_goes(setting: Setting) -> None:
    past = Past(setting.sim, NODECLAIMS, "c1")
    setting.cloud.next_launches(Launch(registers=False))
    await setting.want()
    await setting.sim.run_for("5m")
    assert past.reasons(ConditionType.DISRUPTION_STATE) == ["S1"]
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"))
    # There is no Node to be drained, so the instance goes at once.
    assert past.reasons(ConditionType.DISRUPTION_STATE) == ["S1", "S6"]


@stage(play)
async def test_a_blocked_drain_is_the_fourth_for_as_long_as_it_takes(setting: Setting) -> None:
    await setting.launch(pods=[manifests.pod("web", annotations=GUARDED)])
    await setting.delete_claim()
    await setting.sim.run_for("2s")
    writes = len(setting.requests("patch", NODECLAIMS))
    await setting.sim.run_for("10h")
    assert setting.condition(ConditionType.DISRUPTION_STATE)["reason"] == "S4"
    assert len(setting.requests("patch", NODECLAIMS)) == writes


# -- the controller alone ---------------------------------------------------------------------------------------------


@gives("sim", "program")
def run(scenario: Any, **options: Any) -> None:
    run_controllers(scenario, lambda program: [StateReporter(program.cluster)], **options)


pytestmark = stage(run)


def state(sim: SimCluster) -> str:
    return str(condition_of(sim, NODECLAIMS, "c1", ConditionType.DISRUPTION_STATE).get("reason", ""))


async def begin(sim: SimCluster) -> None:
    await sim.apply(node("n1"), node_claim("c1", finalizers=True))
    await launched(sim, "c1", node="n1", true=READY)
    await sim.run_for("10s")
    assert state(sim) == "S1"


async def test_what_goes_back_is_shown_going_back(sim: SimCluster) -> None:
    await begin(sim)
    past = Past(sim, NODECLAIMS, "c1")
    for taints, reason, expected in (
        ([CANDIDATE], None, "S2"),
        ([CANDIDATE, DISRUPTED], "True", "S3"),
        ([CANDIDATE], None, "S2"),
        ([], None, "S1"),
    ):
        await taint(sim, "n1", *taints)
        await set_condition(sim, ConditionType.DISRUPTION_REASON, reason)
        await sim.run_for("5s")
        assert state(sim) == expected
    assert past.reasons(ConditionType.DISRUPTION_STATE) == ["S2", "S3", "S2", "S1"]


@pytest.mark.parametrize("type_", [ConditionType.DRIFTED, ConditionType.EXPIRED])
async def test_a_standing_reason_makes_a_candidate(sim: SimCluster, type_: ConditionType) -> None:
    await begin(sim)
    await set_condition(sim, type_, "True")
    await sim.run_for("2s")
    assert state(sim) == "S2"
    await set_condition(sim, type_, None)
    await sim.run_for("2s")
    assert state(sim) == "S1"


async def test_several_changes_within_a_second_are_one_write(sim: SimCluster, program: Program) -> None:
    await begin(sim)
    before = program.requests("patch nodeclaims")
    for number in range(5):
        await taint(sim, "n1", CANDIDATE, {"key": f"example.com/{number}", "effect": "NoSchedule"})
        await sim.run_for("100ms")
    assert state(sim) == "S1"
    await sim.run_for("1h")
    assert state(sim) == "S2"
    assert program.requests("patch nodeclaims") == before + 1


async def test_nothing_is_written_on_claims_that_nobody_has_written_on_or_that_are_others(
    sim: SimCluster, program: Program
) -> None:
    theirs = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    await sim.apply(node_claim("new"), node_claim("c1", nodeClassRef=theirs))
    await launched(sim, "c1", node="n1", true=READY)
    await sim.run_for("1m")
    assert program.requests("patch") == 0


async def test_it_shows_after_a_restart_and_after_a_conflict(sim: SimCluster, program: Program) -> None:
    await begin(sim)
    await program.kill()
    await taint(sim, "n1", CANDIDATE)
    conflict = Fault(error=Conflict("changed meanwhile"))
    sim.server.faults.add(conflict, verb="patch", resource=NODECLAIMS, client=names.COMPONENT, times=2)
    await program.start()
    await sim.run_for("2s")
    assert state(sim) == "S2"
