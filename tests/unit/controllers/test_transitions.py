"""Every condition that changes its status is told, and nothing else (04 §2.3)."""

from typing import Any

import pytest

from dovetail.api import objects
from dovetail.api.names import ConditionType
from dovetail.controllers.nodeclaim.transitions import Transitions, transitions
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES
from dovetail.sim.actors.cluster import SimCluster
from tests.harness import manifests
from tests.harness.claims import condition, node_claim, node_class, node_pool, put_status
from tests.harness.running import Program, run_controllers
from tests.harness.stage import gives, stage
from tests.harness.termination import Setting, play


def entry(type_: str, status: str, reason: str = "", message: str = "") -> objects.Condition:
    return objects.Condition(type=type_, status=status, reason=reason or type_, message=message)


# -- which are told ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param([], [entry("Launched", "True")], [], id="new"),
        pytest.param([entry("Launched", "True")], [], [], id="gone"),
        pytest.param([entry("Launched", "Unknown", "A")], [entry("Launched", "Unknown", "B")], [], id="other reason"),
        pytest.param(
            [entry("Drained", "Unknown", "Draining")],
            [entry("Drained", "True")],
            ["Status condition transitioned, Type: Drained, Status: Unknown -> True, Reason: Drained"],
            id="other status",
        ),
        pytest.param(
            [entry("Registered", "Unknown")],
            [entry("Registered", "False", "MultipleNodesFound", "2 Nodes")],
            [
                "Status condition transitioned, Type: Registered, Status: Unknown -> False, "
                "Reason: MultipleNodesFound, Message: 2 Nodes"
            ],
            id="with a message",
        ),
        pytest.param(
            [entry("DisruptionState", "False")], [entry("DisruptionState", "True")], [], id="our own is no news"
        ),
    ],
)
def test_which_are_told(old: list[objects.Condition], new: list[objects.Condition], expected: list[str]) -> None:
    assert [note for _, note in transitions(old, new)] == expected


def test_several_are_told_in_their_order() -> None:
    old = [entry("A", "Unknown"), entry("B", "Unknown"), entry("C", "True")]
    new = [entry("C", "True"), entry("B", "True"), entry("A", "False")]
    assert [type_ for type_, _ in transitions(old, new)] == ["B", "A"]


# -- the controller ---------------------------------------------------------------------------------------------------


@gives("sim", "program")
def run(scenario: Any) -> None:
    run_controllers(scenario, lambda program: [Transitions(program.cluster)])


pytestmark = stage(run)


def told(program: Program) -> list[tuple[str, str, str]]:
    """Kind, name and reason of each event, oldest first."""
    return [
        (event["regarding"]["kind"], event["regarding"]["name"], event["reason"])
        for event in sorted(program.events(), key=lambda event: int(event["metadata"]["resourceVersion"]))
    ]


async def say(sim: SimCluster, kind: Any, name: str, **statuses: str) -> None:
    await put_status(sim, kind, name, {"conditions": [condition(*each) for each in statuses.items()]})
    await sim.run_for("1s")


async def test_of_claims_and_pools(sim: SimCluster, program: Program) -> None:
    await sim.apply(node_pool(), node_claim("c1"))
    for kind, name in ((NODECLAIMS, "c1"), (NODEPOOLS, "default")):
        await say(sim, kind, name, Drifted="False", Ready="Unknown")
        await say(sim, kind, name, Drifted="True", Ready="Unknown")
        await say(sim, kind, name, Drifted="True", Ready="True")
    assert told(program) == [
        ("NodeClaim", "c1", "Drifted"),
        ("NodeClaim", "c1", "Ready"),
        ("NodePool", "default", "Drifted"),
        ("NodePool", "default", "Ready"),
    ]
    (event,) = (each for each in program.events("Drifted") if each["regarding"]["kind"] == "NodeClaim")
    assert event["type"] == "Normal"
    assert event["note"] == "Status condition transitioned, Type: Drifted, Status: False -> True, Reason: Drifted"


async def test_each_time_anew(sim: SimCluster, program: Program) -> None:
    await sim.apply(node_claim("c1"))
    for status in ("False", "True", "False", "True", "False"):
        await say(sim, NODECLAIMS, "c1", Drifted=status)
    # Twice each way: nothing is dropped as a repetition, though it may be told as a series.
    events = program.events("Drifted")
    assert sum(event.get("series", {}).get("count", 1) for event in events) == 4


async def test_what_has_changed_while_nobody_looked_is_not_told(sim: SimCluster, program: Program) -> None:
    await sim.apply(node_claim("c1"))
    await say(sim, NODECLAIMS, "c1", Drifted="False")
    await program.restart()
    await sim.run_for("1s")
    await program.stop()
    await say(sim, NODECLAIMS, "c1", Drifted="True")
    await program.start()
    await sim.run_for("1m")
    assert told(program) == []
    await say(sim, NODECLAIMS, "c1", Drifted="False")
    assert told(program) == [("NodeClaim", "c1", "Drifted")]


async def test_claims_and_pools_of_others_are_theirs_to_tell(sim: SimCluster, program: Program) -> None:
    theirs = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    await sim.apply(node_claim("c1", nodeClassRef=theirs), node_pool(template={"nodeClassRef": theirs}))
    for kind, name in ((NODECLAIMS, "c1"), (NODEPOOLS, "default")):
        for status in ("Unknown", "True"):
            await say(sim, kind, name, Ready=status)
    assert told(program) == []


# -- with all controllers ---------------------------------------------------------------------------------------------


@stage(play, cloud=True)
async def test_the_life_of_a_claim_and_a_pool(setting: Setting) -> None:
    await setting.sim.apply(node_pool())
    await setting.sim.run_for("10s")
    await setting.sim.apply(node_class())
    found = await setting.launch(pods=[manifests.pod("web")])
    await setting.sim.run_for("10s")
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.gone(NODES, found) and setting.gone(NODECLAIMS, "c1"))
    await setting.sim.run_for("10s")
    reasons = {str(each) for each in ConditionType}
    events = [each for each in told(setting.program) if each[2] in reasons]
    assert [reason for kind, name, reason in events if (kind, name) == ("NodeClaim", "c1")] == [
        "Registered",
        "Initialized",
        "Ready",
        "Drained",
    ]
    assert {("NodePool", "default", "NodeClassReady"), ("NodePool", "default", "Ready")} <= set(events)
