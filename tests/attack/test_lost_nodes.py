"""Somebody removes the finalizer of a Node and deletes it, while its machine runs on and its NodeClaim stays."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, NODES, Delete, Patch
from dovetail.rules.states import NodeState
from dovetail.sim.actors.wire import Raw
from dovetail.sim.server.faults import Fault
from tests.harness.disruption import allowed, drift, found, is_true, node_of, others, play, pool, stand, state
from tests.harness.provisioning import Setting, pool_of_four
from tests.harness.stage import stage

pytestmark = stage(play)

KEPT = timedelta(seconds=Timings().lost_node_seconds)
RAW_NODES = NODES.read_as(dict[str, Any])


async def lose(setting: Setting, claim: str) -> Raw:
    """Make the Node vanish; how it was."""
    name = node_of(setting, claim)
    node = setting.node(name)
    assert node is not None
    await setting.sim.api.write(Patch(RAW_NODES, name, {"metadata": {"finalizers": None}}))
    await setting.sim.api.write(Delete(NODES, name))
    assert setting.node(name) is None
    return node


async def create_again(setting: Setting, node: Raw, *, labels: dict[str, str], taints: list[Raw]) -> None:
    """As a kubelet does that registers its Node anew."""
    meta = {"name": node["metadata"]["name"], "labels": labels}
    spec = {"providerID": node["spec"]["providerID"], "taints": taints}
    await setting.sim.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": node["status"]}
    )


async def test_its_pods_get_another_node_at_once(setting: Setting) -> None:
    (claim,) = await stand(setting, pool())
    await lose(setting, claim)
    assert await setting.seconds_until(lambda: len(others(setting, claim)) == 1) < 120
    await setting.runs_all("web", 1)


async def test_the_claim_is_ended_after_a_while_and_an_event_says_why(setting: Setting) -> None:
    (claim,) = await stand(setting, pool())
    machine = found(setting, claim)["status"]["providerID"]
    lost_at = setting.now()
    await lose(setting, claim)
    await setting.run_until(lost_at + KEPT - timedelta(seconds=1))
    assert state(setting, claim) is NodeState.STEADY
    assert is_true(setting, claim, ConditionType.NODE_LOST)
    await setting.sim.run_for("3s")
    assert found(setting, claim)["metadata"]["deletionTimestamp"]
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, claim))
    assert setting.cloud.machines[machine].gone(setting.now())
    assert {event["type"] for event in setting.events(EventReason.NODE_LOST, claim)} == {"Warning"}


async def test_a_restart_does_not_begin_the_time_anew(setting: Setting) -> None:
    (claim,) = await stand(setting, pool())
    lost_at = setting.now()
    await lose(setting, claim)
    for _ in range(3):
        await setting.sim.run_for("3m")
        await setting.program.restart()
    await setting.run_until(lost_at + KEPT + timedelta(seconds=2))
    assert setting.gone(NODECLAIMS, claim) or found(setting, claim)["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("after", ["0s", "5m"])
@pytest.mark.parametrize("is_new", [True, False])
async def test_a_node_that_comes_back_keeps_its_claim(setting: Setting, after: str, is_new: bool) -> None:
    """As it was, or new: with the labels of the cloud and the taint of a Node that is not registered."""
    (claim,) = await stand(setting, pool(consolidateAfter="Never"))
    node = await lose(setting, claim)
    await setting.sim.run_for(after)
    unregistered = {"key": names.UNREGISTERED_TAINT, "effect": "NoExecute"}
    labels = {"kubernetes.io/hostname": node["metadata"]["name"]} if is_new else node["metadata"]["labels"]
    await create_again(setting, node, labels=labels, taints=[unregistered] if is_new else [])
    await setting.sim.run_for("1m")
    assert not setting.condition(ConditionType.NODE_LOST, claim)
    assert is_true(setting, claim, ConditionType.INITIALIZED)
    back = setting.node(node["metadata"]["name"])
    assert back is not None
    assert back["metadata"]["labels"].items() >= found(setting, claim)["metadata"]["labels"].items()
    assert back["metadata"]["labels"][names.INITIALIZED_LABEL] == "true"
    assert names.TERMINATION_FINALIZER in back["metadata"]["finalizers"]
    assert not back["spec"].get("taints")
    await setting.sim.run_for("30m")
    assert claim in others(setting)
    await setting.runs_all("web", 1)


async def test_claims_that_are_listed_before_their_nodes_are_not_lost(setting: Setting) -> None:
    claims = await stand(setting, pool(), replicas=2)
    await setting.program.stop()
    slow = Fault(delay_seconds=120)
    setting.sim.server.faults.add(slow, verb="list", resource=NODES, client=names.COMPONENT, times=1)
    await setting.program.start()
    await setting.sim.run_for("5m")
    assert not any(setting.condition(ConditionType.NODE_LOST, claim) for claim in claims)
    assert not setting.events(EventReason.NODE_LOST)
    assert others(setting) == claims


async def test_a_lost_node_holds_a_slot_of_the_budget(setting: Setting) -> None:
    claims = await stand(setting, pool(budgets=[{"nodes": "1"}]), replicas=3)
    await lose(setting, claims[0])
    await drift(setting, claims[1])
    await setting.sim.run_for("5m")
    assert allowed(setting)["Drifted"] == (1, 1, 0)
    assert not found(setting, claims[1])["metadata"].get("deletionTimestamp")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, claims[1]), timeout="30m")


async def test_a_static_pool_has_all_its_nodes_again(setting: Setting) -> None:
    await setting.begin(pool_of_four("static", replicas=3))
    await setting.sim.wait_until(
        lambda: [is_true(setting, each, ConditionType.INITIALIZED) for each in others(setting)] == [True] * 3
    )
    lost = others(setting)[0]
    await lose(setting, lost)
    await setting.sim.run_for("20m")
    assert lost not in others(setting)
    assert [is_true(setting, each, ConditionType.INITIALIZED) for each in others(setting)] == [True] * 3
