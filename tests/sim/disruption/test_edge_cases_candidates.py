"""Which nodes may be taken, with all controllers running: the edge cases 1–14 of 02 §14."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.api.objects import NodePool
from dovetail.model.instance_types import TypeCatalogue
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PDBS, PODS, Delete, Patch
from dovetail.sim.actors.wire import READY, RUN_FOR, created_at
from dovetail.sim.cloud.machines import Launch
from tests.harness import manifests
from tests.harness.claims import Manifest, condition_of, status_of
from tests.harness.disruption import (
    allowed,
    disrupted,
    drift,
    edit_pool,
    empty,
    found,
    hold,
    is_true,
    node_of,
    others,
    play,
    pool,
    stand,
    touched,
)
from tests.harness.provisioning import BIG, OF_FOUR, Setting, pool_of_four
from tests.harness.stage import stage
from tests.harness.termination import GUARDED, is_deleting

pytestmark = stage(play)

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
HELD = ["example.com/hold"]
NEVER: dict[str, Any] = {"consolidateAfter": "Never"}


async def stays(setting: Setting, *claims: str, lasting: str = "10m") -> None:
    await setting.sim.run_for(lasting)
    assert not set(touched(setting)) & set(claims)
    assert all(setting.claim(claim) is not None for claim in claims)


async def goes(setting: Setting, *claims: str, timeout: str = "1m") -> None:
    """Into S3 or, without it, into S4, which may be over already."""

    def going() -> bool:
        return all(setting.claim(claim) is None or claim in touched(setting) for claim in claims)

    await setting.sim.wait_until(going, timeout=timeout)


def mirror(name: str, node: Manifest, annotations: Manifest | None = None) -> Manifest:
    """A static pod as the API shows it."""
    made = manifests.pod(name, annotations={names.STATIC_POD_MIRROR: "0123", **(annotations or {})})
    owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return made


async def put(setting: Setting, claim: str, kind: str, annotations: Manifest | None = None) -> None:
    """A pod `odd` of a kind that keeps no node from being empty."""
    node = setting.node(node_of(setting, claim))
    assert node is not None
    if kind == "daemon":
        await setting.sim.apply(manifests.workload("DaemonSet", "odd", annotations=annotations))
        await setting.runs_all("odd", len(setting.claims()))
    elif kind == "mirror":
        await setting.bind(node_of(setting, claim), mirror("odd", dict(node), annotations))
    elif kind == "terminal":
        told = {**(annotations or {}), RUN_FOR: "1s"}
        await setting.bind(node_of(setting, claim), manifests.pod("odd", annotations=told, restartPolicy="Never"))
        await setting.sim.wait_until(lambda: phase(setting, "odd") == "Succeeded")
    else:
        made = manifests.pod("odd", annotations=annotations)
        made["metadata"]["finalizers"] = HELD
        await setting.bind(node_of(setting, claim), made)
        await setting.sim.api.write(Delete(PODS, "odd", namespace="default"))


def phase(setting: Setting, pod: str) -> str:
    there = setting.pod(pod)
    assert there is not None
    return str(there["status"]["phase"])


def blocked(setting: Setting, about: str) -> str:
    """All that was told of why the object is left alone."""
    return "\n".join(setting.notes(EventReason.DISRUPTION_BLOCKED, about))


# -- pods --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["drifted", "underutilized"])
async def test_of_two_protected_pods_the_longer_one_counts(setting: Setting, reason: str) -> None:
    """02 §14.1."""
    await setting.begin(pool(**(NEVER if reason == "drifted" else {})))
    (node,) = await hold(setting, "a", pods={"annotations": {names.DO_NOT_DISRUPT: "1h"}})
    await setting.bind(node, manifests.pod("long", annotations={names.DO_NOT_DISRUPT: "2h"}))
    long = setting.pod("long")
    assert long is not None
    await hold(setting, "b", pods={"annotations": GUARDED})
    if reason == "drifted":
        await drift(setting, "a")
    await setting.run_until(created_at(long) + 2 * HOUR - SECOND)
    assert touched(setting) == []
    await setting.run_until(created_at(long) + 2 * HOUR + 17 * SECOND)  # consolidation is validated first
    assert setting.claim("a") is None or touched(setting) == ["a"]
    assert disrupted(setting, reason) == 1


@pytest.mark.parametrize("kind", ["daemon", "mirror"])
async def test_a_protected_daemon_or_mirror_pod_keeps_its_node(setting: Setting, kind: str) -> None:
    """02 §14.2."""
    await setting.begin(pool())
    await hold(setting, "a", pods={"annotations": GUARDED})
    await put(setting, "a", kind, GUARDED)
    await setting.sim.run_for("3m")  # why it stays is told every 2 min at most
    await _delete(setting, "p-a")
    await stays(setting, "a", lasting="30m")
    assert "odd" in blocked(setting, "a")
    await drift(setting, "a")
    await stays(setting, "a", lasting="30m")


@pytest.mark.parametrize("kind", ["terminal", "terminating"])
async def test_a_protected_pod_that_has_ended_or_is_ending_does_not_keep_its_node(setting: Setting, kind: str) -> None:
    """02 §14.2."""
    await setting.begin(pool())
    await hold(setting, "a", pods={"annotations": GUARDED})
    await put(setting, "a", kind, GUARDED)
    await stays(setting, "a", lasting="1m")
    await _delete(setting, "p-a")
    await goes(setting, "a")
    assert setting.pod("odd") is not None


def _node(setting: Setting, claim: str) -> Manifest:
    there = setting.node(node_of(setting, claim))
    assert there is not None
    return dict(there)


async def _delete(setting: Setting, pod: str) -> None:
    await setting.sim.api.write(Delete(PODS, pod, namespace="default"))
    await setting.sim.wait_until(lambda: setting.pod(pod) is None)


@pytest.mark.parametrize(
    ("kind", "kept"), [("daemon", True), ("mirror", False), ("terminal", False), ("terminating", False)]
)
async def test_a_disruption_budget_counts_for_daemons_but_not_for_what_is_never_evicted(
    setting: Setting, kind: str, kept: bool
) -> None:
    """02 §14.3."""
    await setting.begin(pool())
    await hold(setting, "a", pods={"annotations": GUARDED})
    await setting.sim.apply(manifests.pdb("odd", maxUnavailable=0))
    await put(setting, "a", kind)
    await setting.sim.run_for("3m")
    await _delete(setting, "p-a")
    if kept:
        await stays(setting, "a", lasting="30m")
        assert "Pod/default/odd" in blocked(setting, "a")
        await setting.sim.api.write(Delete(PDBS, "odd", namespace="default"))
    await goes(setting, "a")


async def test_a_disruption_budget_of_another_namespace_keeps_nobody(setting: Setting) -> None:
    """02 §14.4."""
    await setting.begin(pool(**NEVER))
    await hold(setting, "a", "b")
    space: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    await setting.sim.apply(space)
    await setting.sim.apply(manifests.pdb("p-a", maxUnavailable=0), namespace="shop")
    await setting.sim.apply(manifests.pdb("p-b", maxUnavailable=0))
    await setting.sim.run_for("5s")
    await drift(setting, "a", "b")
    await goes(setting, "a")
    await stays(setting, "b")


async def test_two_disruption_budgets_for_one_pod_keep_its_node_whatever_they_allow(setting: Setting) -> None:
    """02 §14.5."""
    await setting.begin(pool(**NEVER))
    await hold(setting, "a")
    second = manifests.pdb("second", minAvailable=0)
    second["spec"]["selector"] = {"matchLabels": {"app": "p-a"}}
    await setting.sim.apply(manifests.pdb("p-a", minAvailable=0), second)
    await setting.sim.run_for("5s")
    assert [each["status"]["disruptionsAllowed"] for each in setting.sim.objects(PDBS)] == [1, 1]
    await drift(setting, "a")
    await stays(setting, "a")
    await setting.sim.api.write(Delete(PDBS, "second", namespace="default"))
    await goes(setting, "a", timeout="5s")


@pytest.mark.parametrize(("policy", "kept"), [("AlwaysAllow", False), ("IfHealthyBudget", True)])
async def test_always_allow_lets_a_pod_go_that_is_not_ready(setting: Setting, policy: str, kept: bool) -> None:
    """02 §14.6."""
    await setting.begin(pool(**NEVER))
    (node,) = await hold(setting, "a", pods={"annotations": {READY: "false"}})
    await setting.sim.apply(manifests.pdb("p-a", minAvailable=1, unhealthyPodEvictionPolicy=policy))
    await setting.sim.run_for("5s")
    (budget,) = setting.sim.objects(PDBS)
    assert budget["status"]["disruptionsAllowed"] == 0
    await drift(setting, "a")
    if kept:
        await stays(setting, "a")
    else:
        await goes(setting, "a", timeout="5s")
        await setting.sim.wait_until(lambda: setting.gone(NODES, node))


async def test_consolidation_never_takes_a_protected_pod_even_if_the_drain_is_limited(setting: Setting) -> None:
    """02 §14.7."""
    await setting.begin(pool())
    await hold(setting, "a", "b", pods={"annotations": GUARDED}, terminationGracePeriod="1h")
    await hold(setting, "bare", pods={"annotations": GUARDED}, terminationGracePeriod="1h")
    agent = mirror("agent", _node(setting, "bare"), GUARDED)
    await setting.bind(node_of(setting, "bare"), agent)
    await _delete(setting, "p-bare")
    await stays(setting, "a", "b", "bare", lasting="1h")
    assert is_true(setting, "bare", ConditionType.CONSOLIDATABLE)


async def test_drift_takes_a_protected_pod_if_the_drain_of_the_claim_itself_is_limited(setting: Setting) -> None:
    """02 §14.7."""
    await setting.begin(pool(template={"terminationGracePeriod": "1h"}, **NEVER))
    await hold(setting, "limited", pods={"annotations": GUARDED}, terminationGracePeriod="1h")
    await hold(setting, "for-ever", pods={"annotations": GUARDED})
    await drift(setting, "limited", "for-ever")
    await goes(setting, "limited", timeout="3s")
    await stays(setting, "for-ever", lasting="30m")


async def test_drift_in_static_pools_leaves_protected_pods(setting: Setting) -> None:
    """02 §14.7."""
    await setting.begin(pool_of_four(replicas=2, disruption={"budgets": [{"nodes": "100%"}]}))
    await setting.sim.wait_until(lambda: len(_initialized(setting)) == 2)
    a, b = _initialized(setting)
    await setting.bind(node_of(setting, a), manifests.pod("p", annotations=GUARDED))
    await drift(setting, a)
    await stays(setting, a, lasting="30m")
    assert len(setting.claims()) == 2
    await drift(setting, b)
    await goes(setting, b, timeout="3s")


async def test_drift_in_static_pools_takes_protected_pods_if_the_drain_is_limited(setting: Setting) -> None:
    """02 §14.7."""
    template = {"terminationGracePeriod": "1h"}
    await setting.begin(pool_of_four(replicas=1, template=template, disruption={"budgets": [{"nodes": "100%"}]}))
    await setting.sim.wait_until(lambda: len(_initialized(setting)) == 1)
    (a,) = _initialized(setting)
    await setting.bind(node_of(setting, a), manifests.pod("p", annotations=GUARDED))
    await drift(setting, a)
    await goes(setting, a, timeout="3s")


async def test_a_static_pool_that_is_being_deleted_replaces_nothing(setting: Setting) -> None:
    """It creates no claims, so each command would fail and the next one would follow (02 §7.3)."""
    await setting.begin(pool_of_four(replicas=1, disruption={"budgets": [{"nodes": "100%"}]}))
    await setting.sim.wait_until(lambda: len(_initialized(setting)) == 1)
    (name,) = _initialized(setting)
    finalizers = {"metadata": {"finalizers": HELD}}
    await setting.sim.api.write(Patch(NODEPOOLS, "default", finalizers))
    await setting.sim.api.write(Delete(NODEPOOLS, "default"))
    await drift(setting, name)
    before = len(setting.sent)
    await setting.sim.run_for("2h")
    assert [each for each in setting.sent[before:] if each.request.name == name] == []


def _initialized(setting: Setting) -> list[str]:
    return [name for name in others(setting) if is_true(setting, name, ConditionType.INITIALIZED)]


async def test_a_drifted_node_goes_and_no_capacity_is_made_for_its_protected_pod(setting: Setting) -> None:
    """02 §14.8: The other pod has to have a place first."""
    await setting.begin(pool(**NEVER))
    (alone,) = await hold(setting, "alone", pods={"annotations": GUARDED, "cpu": BIG}, terminationGracePeriod="1h")
    await drift(setting, "alone")
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("alone")), timeout="3s")
    await setting.sim.run_for("30m")
    assert others(setting) == ["alone"]
    assert setting.runs("p-alone")
    await setting.sim.wait_until(lambda: setting.gone(NODES, alone), timeout="40m")
    (node,) = await hold(setting, "both", pods={"annotations": GUARDED, "cpu": "2500m"}, terminationGracePeriod="1h")
    await setting.bind(node, manifests.pod("free", cpu="1"))
    await drift(setting, "both")
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("both")), timeout="2m")
    (new,) = others(setting, "both")
    assert found(setting, new)["spec"]["resources"]["requests"]["cpu"] == "1"


# -- nodes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["true", "4h"])
@pytest.mark.parametrize("reason", ["drifted", "empty", "underutilized", "static"])
async def test_do_not_disrupt_on_a_node_holds_back_what_is_graceful(setting: Setting, value: str, reason: str) -> None:
    """02 §14.9: R6 has durations hold back as well, from the creation of the Node on."""
    if reason == "static":
        await setting.begin(pool_of_four(replicas=1, disruption={"budgets": [{"nodes": "100%"}]}))
        await setting.sim.wait_until(lambda: len(_initialized(setting)) == 1)
        (claim,) = _initialized(setting)
    else:
        claim = "a"
        await setting.begin(pool(**(NEVER if reason == "drifted" else {})))
        await hold(setting, "b", pods={"annotations": GUARDED})
        await hold(setting, claim, pods={"annotations": GUARDED})
    node = node_of(setting, claim)
    await setting.annotate(NODES, node, {names.DO_NOT_DISRUPT: value})
    if reason == "empty":
        await empty(setting, claim)
    elif reason != "static":
        await setting.annotate(PODS, "p-a", {names.DO_NOT_DISRUPT: None})
    if reason in ("drifted", "static"):
        await drift(setting, claim)
    await stays(setting, claim, lasting="3h")
    if value == "true":
        assert f"Node/{node}: protected" in blocked(setting, node)
        await setting.annotate(NODES, node, {names.DO_NOT_DISRUPT: "false"})
    else:
        await setting.run_until(created_at(_node(setting, claim)) + 4 * HOUR - SECOND)
        assert touched(setting) == []
    await goes(setting, claim, timeout="20s")


@pytest.mark.parametrize("value", ["false", "yes", "0s", "-1h", ""])
async def test_any_other_value_on_a_node_holds_back_nothing(setting: Setting, value: str) -> None:
    """02 §14.9."""
    await setting.begin(pool(**NEVER))
    (node,) = await hold(setting, "a")
    await setting.annotate(NODES, node, {names.DO_NOT_DISRUPT: value})
    await drift(setting, "a")
    await goes(setting, "a", timeout="3s")


async def test_do_not_disrupt_on_a_node_does_not_hold_back_expiry_repair_or_people(setting: Setting) -> None:
    """02 §14.9."""
    await setting.begin(pool(**NEVER))
    nodes = await hold(setting, "ill", "deleted", "steady-0", "steady-1", "steady-2")
    nodes += await hold(setting, "old", expireAfter="1h")
    for node in nodes:
        await setting.annotate(NODES, node, GUARDED)
    setting.sim.set_node_ready(nodes[0], ready=False)
    await setting.delete_claim("deleted")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "ill", "deleted", "old"), timeout="2h")
    await stays(setting, "steady-0", "steady-1", "steady-2")
    assert (disrupted(setting, "unhealthy"), disrupted(setting, "expired")) == (1, 1)


async def test_the_annotation_of_a_template_is_on_its_nodes_and_holds_them(setting: Setting) -> None:
    """02 §14.10."""
    told = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    (claim,) = await stand(setting, pool_of_four(annotations=GUARDED, disruption=told))
    node = node_of(setting, claim)
    assert _node(setting, claim)["metadata"]["annotations"][names.DO_NOT_DISRUPT] == "true"
    await drift(setting, claim)
    await stays(setting, claim, lasting="30m")
    await setting.annotate(NODES, node, {names.DO_NOT_DISRUPT: None})
    await goes(setting, claim)


async def test_a_node_without_claim_and_a_claim_without_node_are_left_alone(setting: Setting) -> None:
    """02 §14.11."""
    await setting.begin(pool())
    await setting.add_node("alone")
    setting.cloud.next_launches(Launch(registers=False))
    await setting.want("c1", requirements=[OF_FOUR])
    await setting.sim.wait_until(lambda: is_true(setting, "c1", ConditionType.LAUNCHED))
    await drift(setting, "c1")
    await stays(setting, "c1")
    assert setting.taints("alone") == []
    assert not is_deleting(setting.node("alone"))
    assert allowed(setting)["Drifted"] == (0, 0, 0)


async def test_nodes_of_a_pool_that_nobody_knows_stay_and_it_is_said_why(setting: Setting) -> None:
    """02 §14.12."""
    await setting.begin(pool(), pool("other", **NEVER))
    (node,) = await hold(setting, "drifted", pool="other")
    (bare,) = await hold(setting, "bare", pods={"annotations": GUARDED})
    await setting.sim.run_for("3m")
    assert is_true(setting, "bare", ConditionType.CONSOLIDATABLE)
    await edit_pool(setting, name="other", budgets=[{"nodes": "0"}])
    await drift(setting, "drifted")
    for name in ("default", "other"):
        await setting.sim.api.write(Delete(NODEPOOLS, name))
    await setting.sim.wait_until(lambda: setting.gone(NODEPOOLS, "default", "other"))
    await setting.sim.run_for("3m")
    await empty(setting, "bare")
    await stays(setting, "drifted", "bare", lasting="30m")
    for about in (node, "drifted"):
        assert "NodePool other was not found" in blocked(setting, about)
    assert "NodePool default was not found" in blocked(setting, bare)


async def test_nodes_of_a_pool_without_instance_types_stay(setting: Setting) -> None:
    """02 §14.12."""
    await setting.begin(pool(budgets=[{"nodes": "0"}], **NEVER))
    (node,) = await hold(setting, "a")
    await drift(setting, "a")
    usual = setting.cloud.instance_types

    async def nothing(pool: NodePool) -> TypeCatalogue:
        return TypeCatalogue((await usual(pool)).version + 1, ())

    setting.cloud.instance_types = nothing  # type: ignore[method-assign]
    await edit_pool(setting, budgets=[{"nodes": "100%"}])  # it is asked for its types anew
    await stays(setting, "a", lasting="30m")
    for about in (node, "a"):
        assert "the provider has no instance types" in blocked(setting, about)
    setting.cloud.instance_types = usual  # type: ignore[method-assign]
    await goes(setting, "a", timeout="5m1s")


@pytest.mark.parametrize("label", [names.INSTANCE_TYPE_LABEL, names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL])
@pytest.mark.parametrize("reason", ["drifted", "empty", "underutilized"])
async def test_a_node_of_a_type_that_nobody_knows_is_not_consolidated_but_drifts_and_empties(
    setting: Setting, label: str, reason: str
) -> None:
    """02 §14.13."""
    await setting.begin(pool(**(NEVER if reason == "drifted" else {})))
    await hold(setting, "b", pods={"annotations": GUARDED})
    (node,) = await hold(setting, "a", pods={"annotations": GUARDED})
    value = "x-4x-none" if label == names.INSTANCE_TYPE_LABEL else None
    raw = NODES.read_as(dict[str, Any])
    await setting.sim.api.write(Patch(raw, node, {"metadata": {"labels": {label: value}}}))
    if reason == "drifted":
        await drift(setting, "a")
    if reason == "empty":
        await empty(setting, "a")
    else:
        await setting.annotate(PODS, "p-a", {names.DO_NOT_DISRUPT: None})
    if reason == "underutilized":
        await stays(setting, "a", lasting="30m")
        assert setting.notes(EventReason.UNCONSOLIDATABLE, node)
        assert setting.notes(EventReason.UNCONSOLIDATABLE, "a")
    else:
        await goes(setting, "a")


async def test_nodes_that_are_not_initialized_or_not_managed_count_for_nothing(setting: Setting) -> None:
    """02 §14.14."""
    await setting.begin(pool(budgets=[{"nodes": "50%"}], **NEVER))
    await hold(setting, "a", "b")
    setting.cloud.next_launches(Launch(ready=False))
    await setting.want("coming", requirements=[OF_FOUR])
    await setting.sim.wait_until(lambda: is_true(setting, "coming", ConditionType.REGISTERED))
    await setting.sim.apply(manifests.node("foreign", labels={names.NODEPOOL_LABEL: "default"}))
    await setting.sim.run_for("10s")
    setting.sim.set_node_ready("foreign", ready=False)
    await setting.sim.run_for("2m")
    assert condition_of(setting.sim, NODES, "foreign", "Ready")["status"] != "True"
    assert allowed(setting)["Drifted"] == (1, 0, 1)
    await drift(setting, "a", "b")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a", "b"))
    assert status_of(setting.sim, NODEPOOLS, "default")["disruptions"]
