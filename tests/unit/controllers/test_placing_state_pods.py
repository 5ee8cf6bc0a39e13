"""Which pods wait for a node, which have to leave theirs, and which are left out and why."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.ports import NODECLAIMS, NODES, PODS
from dovetail.scheduling.placement import Origin, PlacementRequest, Solution
from dovetail.scheduling.reference import solve
from tests.harness import manifests
from tests.harness.claims import condition
from tests.harness.placing import (
    UNSCHEDULABLE,
    Scene,
    a_claim,
    a_node,
    a_pod,
    a_pool,
    a_storage_class,
    a_stranger,
    a_volume,
    a_volume_claim,
    play,
    with_claim,
)
from tests.harness.stage import stage

pytestmark = stage(play)

HELD = ["example.com/hold"]
TERM = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
EXPRESSION, FIELDS = f"{TERM}.matchExpressions[0]", f"{TERM}.matchFields"


def required(*expressions: dict[str, Any], **term: Any) -> dict[str, Any]:
    """An affinity to nodes that are like all of these."""
    terms = [{"matchExpressions": list(expressions), **term}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def asks(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


# -- pods that wait (06 §1) --------------------------------------------------------------------------------------------


async def test_a_pod_that_the_scheduler_found_no_node_for_waits(world: Scene) -> None:
    await world.put(a_pod("p", cpu="2", labels={"app": "a"}))
    (pod,) = world.state.pending().pods
    assert (pod.namespace, pod.name, pod.labels) == ("default", "p", {"app": "a"})
    assert (pod.origin, pod.request["cpu"]) == (Origin.PENDING, 2000)
    assert pod.created is not None
    assert world.state.pending().pods[0] is pod
    await world.put(a_stranger("n"), {**a_pod("q"), "spec": a_pod("q", on="n")["spec"]})
    assert world.pending() == ["p"]


async def test_pods_are_in_the_order_in_which_kube_scheduler_tries_them_again(world: Scene) -> None:
    """The highest priority first, then the oldest; of those from one second, the one that it refused first."""
    await world.put(a_pod("z"), a_pod("c"), a_pod("urgent", priorityClassName="system-cluster-critical"), a_pod("a"))
    assert world.pending() == ["urgent", "z", "c", "a"]
    later = a_pod("b")
    await world.clock.sleep(2)
    await world.put(later)
    assert world.pending() == ["urgent", "z", "c", "a", "b"]


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [condition("PodScheduled", "False", reason="SchedulingGated")]},
        {**UNSCHEDULABLE, "nominatedNodeName": "n"},
        {},
        {**UNSCHEDULABLE, "phase": "Failed"},
    ],
    ids=["gated", "about to preempt", "new", "over"],
)
async def test_pods_that_do_not_wait_for_us(world: Scene, status: dict[str, Any]) -> None:
    await world.put({**a_pod("p"), "status": status})
    assert world.pending() == []
    assert world.heard == []


@pytest.mark.parametrize("owner", ["DaemonSet", "Node"])
async def test_pods_that_belong_to_a_node_do_not_wait(world: Scene, owner: str) -> None:
    await world.put(a_pod("p", owner=(owner, "o", "uid-o")))
    assert world.pending() == []


async def test_a_pod_that_is_deleted_while_it_waits_waits_no_longer(world: Scene) -> None:
    await world.put(a_pod("p", finalizers=HELD), a_pod("q"))
    await world.delete(PODS, "p")
    await world.delete(PODS, "q")
    assert world.pending() == []


async def test_whoever_asks_is_told_of_pods_that_begin_to_wait_and_nodes_that_turn_disrupted(world: Scene) -> None:
    await world.put({**a_pod("p"), "status": {}}, a_stranger("n"))
    assert world.heard == []
    await world.put(a_pod("p"))
    await world.put(a_pod("p", labels={"same": "pod"}))
    (pod,) = world.state.waiting()
    assert [each.uid for each in world.heard] == [pod.uid]
    taint = {"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"}
    await world.change(NODES, "n", {"spec": {"taints": [taint]}})
    await world.change(NODES, "n", {"metadata": {"labels": {"same": "node"}}})
    assert len(world.heard) == 2
    await world.change(PODS, "p", {"status": {"nominatedNodeName": "n"}}, subresource="status")
    await world.change(PODS, "p", {"status": {"nominatedNodeName": None}}, subresource="status")
    assert world.heard[2].uid == pod.uid


# -- pods that are left out (06 §2) ------------------------------------------------------------------------------------


async def test_a_pod_that_wants_no_managed_node_is_left_out_without_a_word(world: Scene) -> None:
    await world.put(a_pod("p", affinity=required(asks(names.NODEPOOL_LABEL, "DoesNotExist"))))
    (refused,) = world.state.pending().refused.values()
    assert refused.silent
    assert world.pending() == []


async def test_a_pod_that_also_accepts_a_managed_node_waits_for_one(world: Scene) -> None:
    affinity = required(asks(names.NODEPOOL_LABEL, "DoesNotExist"))
    required_terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    required_terms.append({"matchExpressions": [asks(names.NODEPOOL_LABEL, "In", "default")]})
    await world.put(a_pod("p", affinity=affinity))
    assert world.pending() == ["p"]


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        (
            {"nodeSelector": {names.HOSTNAME_LABEL: "n"}},
            f"spec.nodeSelector[{names.HOSTNAME_LABEL}]",
            "may not be asked",
        ),
        ({"nodeSelector": {"karpenter.sh/x": "y"}}, "spec.nodeSelector[karpenter.sh/x]", "may not be asked for"),
        ({"affinity": required(asks("a", "Near", "b"))}, EXPRESSION, "'Near' is no operator"),
        ({"affinity": required(asks("a", "In"))}, EXPRESSION, "at least one value"),
        (
            {"affinity": required(asks("a", "Gt", "-1"))},
            EXPRESSION,
            "a whole number of 0 or more",
        ),
        ({"affinity": required(asks("a", "Lt", "1", "2"))}, EXPRESSION, "exactly one value"),
        ({"affinity": required(asks("a b", "Exists"))}, EXPRESSION, "is no name of a label"),
        ({"affinity": required(asks("a", "In", "b c"))}, EXPRESSION, "is no value of a label"),
        (
            {"affinity": required(asks(names.CAPACITY_TYPE_LABEL, "In", "cheap"))},
            EXPRESSION,
            "none of the values is a capacity type",
        ),
        (
            {"affinity": required(matchFields=[asks("metadata.name", "In", "n")])},
            FIELDS,
            "by its name",
        ),
    ],
)
async def test_a_pod_that_asks_for_what_nobody_can_promise(
    world: Scene, spec: dict[str, Any], field: str, words: str
) -> None:
    await world.put(a_pod("bad", **spec), a_pod("good"))
    assert world.pending() == ["good"]
    reason = world.reasons()["bad"]
    assert reason.startswith(f"default/bad: {field}: ")
    assert words in reason
    assert "; " in reason  # and what to do


async def test_a_pod_that_asks_for_no_number(world: Scene) -> None:
    await world.put(a_pod("bad", cpu="much"), a_pod("good"), a_stranger("n"), a_pod("bound", on="n", cpu="much"))
    assert world.pending() == ["good"]
    assert world.reasons()["bad"].startswith("default/bad: spec.containers[].resources: ")
    assert world.node("n").requested["pods"] == 1


async def test_a_pod_of_another_namespace_with_the_same_spec_is_another_pod(world: Scene) -> None:
    await world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    await world.put(a_pod("p"), a_pod("p", namespace="team"))
    assert [(pod.namespace, pod.name) for pod in world.state.pending().pods] == [("default", "p"), ("team", "p")]


# -- volumes (06 §2.3) -------------------------------------------------------------------------------------------------


async def test_one_bad_claim_never_holds_back_others(world: Scene) -> None:
    await world.put(a_pod("p", volumes=with_claim("v")), a_pod("q"))
    assert world.pending() == ["q"]
    assert world.reasons()["p"] == (
        "default/p: spec.volumes: claim v does not exist; create the claim, or correct its name"
    )
    await world.put(a_volume_claim("v"))
    assert "no storage class" in world.reasons()["p"]


async def test_a_claim_that_is_put_right_lets_the_pod_go(world: Scene) -> None:
    await world.put(a_pod("p", volumes=with_claim("v")), a_volume_claim("v", class_="slow"))
    assert "storage class does not exist" in world.reasons()["p"]
    await world.put(a_storage_class("slow", provisioner="disks", mode="Immediate"))
    assert "binds volumes before" in world.reasons()["p"]
    await world.put(a_volume("pv", driver="disks", zone="z"), a_volume_claim("v", class_="slow", volume="pv"))
    (pod,) = world.state.pending().pods
    assert [str(place) for place in pod.volumes.alternatives] == [f"{names.ZONE_LABEL} In [z]"]
    assert world.state.pending().pods[0] is pod


# -- namespaces --------------------------------------------------------------------------------------------------------


async def test_rules_about_namespaces_follow_their_labels(world: Scene) -> None:
    term = {
        "topologyKey": names.HOSTNAME_LABEL,
        "labelSelector": {},
        "namespaceSelector": {"matchLabels": {"tier": "db"}},
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await world.put(a_stranger("n"), a_pod("bound", on="n", affinity=apart), a_pod("waits", affinity=apart))

    def seen() -> list[frozenset[str] | None]:
        bound, waits = world.node("n").pods[0], world.state.pending().pods[0]
        return [rule.namespaces for rule in (*bound.apart, *waits.rules)]

    assert seen() == [frozenset(), frozenset()]
    await world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": {"tier": "db"}}})
    assert seen() == [frozenset("a")] * 2
    before = world.state.places()
    await world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "b"}})
    assert world.state.places() is before
    await world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "b", "labels": {"tier": "db"}}})
    assert seen() == [frozenset("ab")] * 2


# -- pods that leave (05 §12.2, 06 §12.6) ------------------------------------------------------------------------------


async def on_a_leaving_node(world: Scene, *pods: dict[str, Any]) -> None:
    await world.put(a_claim("c", of="n", finalizers=True), a_node("n"), *pods)
    assert world.leaving() == []
    await world.delete(NODECLAIMS, "c")


async def test_pods_of_a_node_that_goes_leave(world: Scene) -> None:
    await on_a_leaving_node(
        world,
        a_pod("web", on="n"),
        a_pod("done", on="n", phase="Succeeded"),
        a_pod("daemon", on="n", owner=("DaemonSet", "d", "uid-d")),
        a_pod("static", on="n", owner=("Node", "n", "uid-n")),
        a_pod("ending", on="n", finalizers=HELD, owner=("ReplicaSet", "r", "uid-r")),
        a_pod("db-0", on="n", finalizers=HELD, owner=("StatefulSet", "db", "uid-s")),
    )
    await world.delete(PODS, "ending")
    await world.delete(PODS, "db-0")
    assert world.leaving() == ["db-0", "web"]
    assert {pod.origin for pod in world.state.leaving(world.clock.now()).pods} == {Origin.DELETING}


async def test_pods_that_a_budget_can_never_let_go_do_not_leave(world: Scene) -> None:
    await world.put(
        manifests.pdb("blocked", maxUnavailable="0%"),
        manifests.pdb("whole", minAvailable="100%"),
        manifests.pdb("many", minAvailable=100),
        manifests.pdb("two", maxUnavailable=1),
        {**manifests.pdb("two", maxUnavailable=1), "metadata": {"name": "two-again"}},
    )
    pods = [a_pod(name, on="n", labels={"app": name}) for name in ("blocked", "whole", "many", "two", "free")]
    await on_a_leaving_node(world, *pods)
    assert world.leaving() == ["free", "many"]


async def test_pods_that_are_protected_leave_when_they_no_longer_are(world: Scene) -> None:
    await on_a_leaving_node(
        world,
        a_pod("for-good", on="n", annotations={names.DO_NOT_DISRUPT: "true"}),
        a_pod("for-now", on="n", annotations={names.DO_NOT_DISRUPT: "1h"}),
    )
    assert world.leaving() == []
    await world.clock.sleep(3600)
    assert world.leaving() == ["for-now"]


async def test_pods_of_a_marked_node_leave(world: Scene) -> None:
    await world.put(a_claim("c", of="n"), a_node("n"), a_pod("p", on="n"))
    world.state.mark("c")
    assert world.leaving() == ["p"]


async def test_pods_that_share_a_new_claim_come_together(world: Scene) -> None:
    """06 §12.5, as far as the state is concerned: both kinds are read alike."""
    await world.put(a_pod("waits"))
    await on_a_leaving_node(world, a_pod("leaves", on="n"))
    (waits,), (leaves,) = world.state.pending().pods, world.state.leaving(world.clock.now()).pods
    assert waits.request is leaves.request or waits.request == leaves.request
    assert (waits.origin, leaves.origin) == (Origin.PENDING, Origin.DELETING)


async def test_pods_that_fit_on_what_is_being_made_need_nothing_new(world: Scene) -> None:
    """06 §12.4."""
    await world.put(a_pool(), a_claim("c", of="n"), *(a_pod(f"p{number}") for number in range(4)))
    places = await world.refreshed()

    def solved() -> Solution:
        return solve(
            PlacementRequest(
                pods=world.state.pending().pods,
                nodes=world.state.places().nodes,
                pools=places.pools,
                types=places.types,
            )
        )

    assert [len(pods) for pods in solved().existing.values()] == [3]  # of the four, on 3.9 cpu
    assert len(solved().new_claims) == 1
    await world.delete(PODS, "p3")
    assert solved().new_claims == ()
    world.state.mark("c")
    assert solved().existing == {}
