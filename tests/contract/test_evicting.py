"""When is a pod evicted, and what do budgets say?"""

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api import objects
from dovetail.model.pdb_records import pdb_record
from dovetail.model.pod_records import PodInterner
from dovetail.ports import Conflict, Create, Delete, Evict, InternalError, NotFound, Patch, Resource, TooManyRequests
from dovetail.rules.pdb import PdbIndex
from dovetail.values.timestamp import parse_time
from tests.contract.backends import Cluster, condition
from tests.contract.bodies import (
    DEPLOYMENTS,
    OTHER_UID,
    PDBS,
    PODS,
    REPLICASETS,
    Object,
    budget,
    owned_by,
    parked,
    pod,
    workload,
)

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


async def running(cluster: Cluster, space: str, name: str, *, app: str = "", ready: bool = True, **spec: Any) -> Object:
    """A pod of a node that does not exist, said to be Running."""
    await cluster.api.write(Create(PODS, parked(name, app=app, **spec), namespace=space))
    said = {"type": "Ready", "status": "True" if ready else "False"}
    body = {"status": {"phase": "Running", "conditions": [said]}}
    return await cluster.api.write(Patch(PODS, name, body, namespace=space, subresource="status"))


async def observed(cluster: Cluster, space: str, name: str, **status: int) -> Object:
    """The budget, once its status says this."""
    found = await cluster.wait(
        PDBS,
        name,
        lambda it: (
            it["status"].get("observedGeneration") == it["metadata"]["generation"]
            and all(it["status"].get(key) == value for key, value in status.items())
        ),
        namespace=space,
    )
    return dict(found["status"])


async def get(cluster: Cluster, space: str, name: str) -> Object:
    return await cluster.api.get(PODS, name, namespace=space)


async def test_without_a_budget_a_pod_is_evicted(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await running(cluster, space, "a", grace=20)
    before = cluster.now().replace(microsecond=0)
    await cluster.api.write(Evict("a", namespace=space, uid=made["metadata"]["uid"]))
    found = await get(cluster, space, "a")
    assert found["metadata"]["deletionGracePeriodSeconds"] == 20
    due = parse_time(found["metadata"]["deletionTimestamp"])
    assert timedelta(seconds=0) <= due - before - timedelta(seconds=20) <= timedelta(seconds=0 if cluster.exact else 3)
    said = condition(found, "DisruptionTarget")
    assert (said["status"], said["reason"], said["message"]) == (
        "True",
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )


async def test_an_eviction_with_another_grace(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a", grace=20)
    await cluster.api.write(Evict("a", namespace=space, grace_seconds=7))
    assert (await get(cluster, space, "a"))["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_an_eviction_without_grace(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a")
    await cluster.api.write(Evict("a", namespace=space, grace_seconds=0))
    assert await cluster.find(PODS, "a", namespace=space) is None


async def test_an_evicted_pod_ends(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.api.write(Create(PODS, pod("a", on, grace=1), namespace=space))
    await cluster.wait(PODS, "a", lambda it: condition(it, "Ready").get("status") == "True", namespace=space)
    await cluster.api.write(Evict("a", namespace=space))
    await cluster.wait_gone(PODS, "a", namespace=space, timeout=10)


async def test_no_such_pod(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    with pytest.raises(NotFound, match='pods "none" not found') as caught:
        await cluster.api.write(Evict("none", namespace=space))
    assert (caught.value.code, caught.value.reason) == (404, "NotFound")


async def test_another_uid(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await running(cluster, space, "a")
    with pytest.raises(Conflict, match="the UID in the precondition") as caught:
        await cluster.api.write(Evict("a", namespace=space, uid=OTHER_UID))
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert await get(cluster, space, "a") == made


async def test_a_budget_that_allows(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for name in ("a", "b"):
        await running(cluster, space, name, app="x")
    await cluster.api.write(Create(PDBS, budget("x", minAvailable=1), namespace=space))
    await observed(cluster, space, "x", disruptionsAllowed=1)
    await cluster.api.write(Evict("a", namespace=space))
    assert "deletionTimestamp" in (await get(cluster, space, "a"))["metadata"]
    await observed(cluster, space, "x", disruptionsAllowed=0)
    with pytest.raises(TooManyRequests):
        await cluster.api.write(Evict("b", namespace=space))


async def test_an_eviction_counts_before_the_controller_has_seen_it(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for name in ("a", "b"):
        await running(cluster, space, name, app="x")
    await cluster.api.write(Create(PDBS, budget("x", minAvailable=1), namespace=space))
    await observed(cluster, space, "x", disruptionsAllowed=1)
    await cluster.api.write(Evict("a", namespace=space))
    with pytest.raises(TooManyRequests):  # without waiting for the disruption controller
        await cluster.api.write(Evict("b", namespace=space))


async def test_a_budget_that_refuses(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await running(cluster, space, "a")
    await cluster.api.write(Create(PDBS, budget("a", minAvailable=1), namespace=space))
    await observed(cluster, space, "a", disruptionsAllowed=0, expectedPods=1)
    with pytest.raises(TooManyRequests, match=REFUSED) as caught:
        await cluster.api.write(Evict("a", namespace=space))
    assert (caught.value.code, caught.value.reason, caught.value.retry_after) == (429, "TooManyRequests", 0.0)
    assert await get(cluster, space, "a") == made


async def test_the_refusal_names_the_budget(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a")
    await cluster.api.write(Create(PDBS, budget("a", minAvailable=1), namespace=space))
    await observed(cluster, space, "a", disruptionsAllowed=0, expectedPods=1)
    with pytest.raises(TooManyRequests) as caught:
        await cluster.api.write(Evict("a", namespace=space))
    assert "The disruption budget a needs 1 healthy pods and has 1 currently" in caught.value.message


async def test_the_uid_is_looked_at_after_the_budget(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a")
    await cluster.api.write(Create(PDBS, budget("a", minAvailable=1), namespace=space))
    await observed(cluster, space, "a", disruptionsAllowed=0, expectedPods=1)
    with pytest.raises(TooManyRequests):
        await cluster.api.write(Evict("a", namespace=space, uid=OTHER_UID))


async def test_two_budgets(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await running(cluster, space, "a")
    for name in ("one", "two"):
        await cluster.api.write(Create(PDBS, budget(name, app="a", minAvailable=0), namespace=space))
        await observed(cluster, space, name, disruptionsAllowed=1)
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    with pytest.raises(InternalError) as caught:
        await cluster.api.write(Evict("a", namespace=space))
    assert (caught.value.code, caught.value.message) == (500, text)
    assert await get(cluster, space, "a") == made


async def test_a_budget_of_others(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a")
    await running(cluster, space, "b")
    await cluster.api.write(Create(PDBS, budget("b", minAvailable=1), namespace=space))
    await observed(cluster, space, "b", disruptionsAllowed=0, expectedPods=1)
    await cluster.api.write(Evict("a", namespace=space))
    assert "deletionTimestamp" in (await get(cluster, space, "a"))["metadata"]


async def test_a_budget_of_an_empty_selector_covers_all(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a")
    body = {"metadata": {"name": "all"}, "spec": {"minAvailable": 1, "selector": {}}}
    await cluster.api.write(Create(PDBS, body, namespace=space))
    await observed(cluster, space, "all", disruptionsAllowed=0, expectedPods=1)
    with pytest.raises(TooManyRequests):
        await cluster.api.write(Evict("a", namespace=space))


async def test_a_budget_by_expressions(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for name in ("a", "b", "c"):
        await running(cluster, space, name)
    selector = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a", "b"]}]}
    await cluster.api.write(
        Create(PDBS, {"metadata": {"name": "x"}, "spec": {"minAvailable": 1, "selector": selector}}, namespace=space)
    )
    await observed(cluster, space, "x", expectedPods=1)
    await cluster.api.write(Evict("b", namespace=space))
    with pytest.raises(TooManyRequests):
        await cluster.api.write(Evict("c", namespace=space))


async def test_a_budget_without_a_selector_covers_nothing(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a")
    await cluster.api.write(Create(PDBS, {"metadata": {"name": "x"}, "spec": {"minAvailable": 1}}, namespace=space))
    await observed(cluster, space, "x", expectedPods=0)
    await cluster.api.write(Evict("a", namespace=space))


async def test_a_budget_that_wants_nothing_still_keeps_what_is_not_ready(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a", ready=False)
    await cluster.api.write(Create(PDBS, budget("a", minAvailable=0), namespace=space))
    await observed(cluster, space, "a", expectedPods=1, currentHealthy=0, disruptionsAllowed=0)
    with pytest.raises(TooManyRequests):
        await cluster.api.write(Evict("a", namespace=space))


async def test_what_is_evicted_counts_no_more(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for name in ("a", "b", "c"):
        await running(cluster, space, name, app="x")
    await cluster.api.write(Create(PDBS, budget("x", minAvailable=1), namespace=space))
    await observed(cluster, space, "x", disruptionsAllowed=2)
    await cluster.api.write(Evict("a", namespace=space))
    found = await cluster.wait(
        PDBS,
        "x",
        lambda it: it["status"]["currentHealthy"] == 2 and not it["status"].get("disruptedPods"),
        namespace=space,
    )
    assert (found["status"]["disruptionsAllowed"], found["status"]["expectedPods"]) == (1, 3)


async def test_a_pod_that_is_leaving_already(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a")
    await cluster.api.write(Create(PDBS, budget("a", minAvailable=1), namespace=space))
    await observed(cluster, space, "a", disruptionsAllowed=0, expectedPods=1)
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    before = (await get(cluster, space, "a"))["metadata"]
    await cluster.api.write(Evict("a", namespace=space))
    after = (await get(cluster, space, "a"))["metadata"]
    assert after["deletionTimestamp"] == before["deletionTimestamp"]


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_a_pod_that_does_not_run_needs_no_budget(cluster: Cluster, phase: str) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(PODS, parked("a"), namespace=space))
    await cluster.api.write(Patch(PODS, "a", {"status": {"phase": phase}}, namespace=space, subresource="status"))
    await cluster.api.write(Create(PDBS, budget("a", minAvailable=1), namespace=space))
    await observed(cluster, space, "a", disruptionsAllowed=0)
    await cluster.api.write(Evict("a", namespace=space))
    found = await cluster.find(PODS, "a", namespace=space)
    assert found is None if phase != "Pending" else found is not None and "deletionTimestamp" in found["metadata"]


async def test_a_pod_that_is_not_ready_needs_the_budget(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a", ready=False)
    await cluster.api.write(Create(PDBS, budget("a", minAvailable=1), namespace=space))
    await observed(cluster, space, "a", disruptionsAllowed=0, expectedPods=1, currentHealthy=0)
    with pytest.raises(TooManyRequests):
        await cluster.api.write(Evict("a", namespace=space))


async def test_a_pod_that_is_not_ready_goes_if_the_others_are_enough(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a", app="x", ready=False)
    await running(cluster, space, "b", app="x")
    await cluster.api.write(Create(PDBS, budget("x", minAvailable=1), namespace=space))
    await observed(cluster, space, "x", disruptionsAllowed=0, expectedPods=2, currentHealthy=1)
    await cluster.api.write(Evict("a", namespace=space))
    assert "deletionTimestamp" in (await get(cluster, space, "a"))["metadata"]


async def test_a_pod_that_is_not_ready_goes_with_always_allow(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a", ready=False)
    always = budget("a", minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow")
    await cluster.api.write(Create(PDBS, always, namespace=space))
    await observed(cluster, space, "a", disruptionsAllowed=0, expectedPods=1)
    await cluster.api.write(Evict("a", namespace=space))
    assert "deletionTimestamp" in (await get(cluster, space, "a"))["metadata"]


async def test_always_allow_is_for_those_that_are_not_ready(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a")
    always = budget("a", minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow")
    await cluster.api.write(Create(PDBS, always, namespace=space))
    await observed(cluster, space, "a", disruptionsAllowed=0, expectedPods=1)
    with pytest.raises(TooManyRequests):
        await cluster.api.write(Evict("a", namespace=space))


async def test_a_pod_that_has_not_started_takes_nothing_of_its_budget(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for name in ("a", "b"):
        await running(cluster, space, name, app="x")
    await cluster.api.write(Create(PODS, parked("c", app="x"), namespace=space))
    await cluster.api.write(Create(PDBS, budget("x", minAvailable=1), namespace=space))
    before = await observed(cluster, space, "x", disruptionsAllowed=1, expectedPods=3)
    await cluster.api.write(Evict("c", namespace=space))
    await cluster.api.write(Evict("a", namespace=space))
    after = (await cluster.api.get(PDBS, "x", namespace=space))["status"]
    assert (before["disruptionsAllowed"], after["disruptionsAllowed"]) == (1, 0)
    assert "c" not in (after.get("disruptedPods") or {})


# What the server does with pod "a", with the pod "b" beside it, by its phase and readiness and the spec of the budgets.
_ALWAYS = {"unhealthyPodEvictionPolicy": "AlwaysAllow"}
_EVICTIONS = [
    ("Running", "True", [{"minAvailable": 1}], True),
    ("Running", "True", [{"minAvailable": 2}], False),
    ("Running", "True", [{"minAvailable": 2, **_ALWAYS}], False),
    ("Running", "True", [{"minAvailable": 0}, {"minAvailable": 0}], False),
    *(
        case
        for ready in ("False", "Unknown", None)
        for case in (
            ("Running", ready, [{"minAvailable": 0}], True),  # the budget allows one, "b"
            ("Running", ready, [{"minAvailable": 1}], True),  # "b" is enough
            ("Running", ready, [{"minAvailable": 2}], False),
            ("Running", ready, [{"minAvailable": 2, **_ALWAYS}], True),
            ("Running", ready, [{"minAvailable": 2, **_ALWAYS}, {"minAvailable": 2, **_ALWAYS}], False),
            ("Unknown", ready, [{"minAvailable": 2}], False),
            ("Pending", ready, [{"minAvailable": 2}], True),
            ("Pending", ready, [{"minAvailable": 2}, {"minAvailable": 2}], True),
        )
    ),
]


@pytest.mark.parametrize(("phase", "ready", "budgets", "evicted"), _EVICTIONS, ids=str)
async def test_the_rule_says_what_the_server_does(
    cluster: Cluster, phase: str, ready: str | None, budgets: list[Object], evicted: bool
) -> None:
    space = await cluster.new_namespace()
    for name, said in (("a", (phase, ready)), ("b", ("Running", "True"))):
        await cluster.api.write(Create(PODS, parked(name, app="x"), namespace=space))
        conditions = [] if said[1] is None else [{"type": "Ready", "status": said[1]}]
        status = {"status": {"phase": said[0], "conditions": conditions}}
        await cluster.api.write(Patch(PODS, name, status, namespace=space, subresource="status"))
    healthy = 2 if (phase, ready) == ("Running", "True") else 1
    for number, spec in enumerate(budgets):
        await cluster.api.write(Create(PDBS, budget(f"x-{number}", app="x", **spec), namespace=space))
        await observed(cluster, space, f"x-{number}", expectedPods=2, currentHealthy=healthy)
    pdbs = [msgspec.convert(each, objects.PodDisruptionBudget) for each in (await _all(cluster, PDBS, space))]
    (pod_,) = [each for each in await _all(cluster, PODS, space) if each["metadata"]["name"] == "a"]
    verdict = PdbIndex(map(pdb_record, pdbs), ()).verdict(PodInterner().pod(msgspec.convert(pod_, objects.Pod)))
    with nullcontext() if evicted else pytest.raises((TooManyRequests, InternalError)):
        await cluster.api.write(Evict("a", namespace=space))
    assert verdict.allowed is evicted, verdict.message


async def _all(cluster: Cluster, kind: Resource[Object], space: str) -> list[Object]:
    return list((await cluster.api.list(kind, namespace=space)).items)


# -- what the disruption controller counts -----------------------------------------------------------------------------


async def test_the_status_of_a_budget(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for name in ("a", "b", "c"):
        await running(cluster, space, name, app="x", ready=name != "c")
    await cluster.api.write(Create(PDBS, budget("x", minAvailable=1), namespace=space))
    status = await observed(cluster, space, "x", expectedPods=3, currentHealthy=2)
    assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (1, 1)
    said = condition({"status": status}, "DisruptionAllowed")
    assert (said["status"], said["reason"]) == ("True", "SufficientPods")
    await cluster.api.write(Patch(PDBS, "x", {"spec": {"minAvailable": 2}}, namespace=space))
    status = await observed(cluster, space, "x", disruptionsAllowed=0)
    said = condition({"status": status}, "DisruptionAllowed")
    assert (said["status"], said["reason"]) == ("False", "InsufficientPods")


async def test_a_pod_that_leaves_is_not_healthy(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for name in ("a", "b"):
        await running(cluster, space, name, app="x")
    await cluster.api.write(Create(PDBS, budget("x", minAvailable=1), namespace=space))
    await observed(cluster, space, "x", currentHealthy=2)
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    await observed(cluster, space, "x", currentHealthy=1, disruptionsAllowed=0)


async def test_a_new_budget_allows_nothing_until_it_is_observed(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await cluster.api.write(Create(PDBS, budget("x", maxUnavailable=1), namespace=space))
    assert made["metadata"]["generation"] == 1
    assert (made["status"]["disruptionsAllowed"], made["status"].get("observedGeneration")) == (0, None)


async def test_a_budget_without_pods(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(PDBS, budget("x", minAvailable=1), namespace=space))
    status = await observed(cluster, space, "x")
    assert (status["expectedPods"], status["currentHealthy"], status["desiredHealthy"]) == (0, 0, 1)
    assert status["disruptionsAllowed"] == 0


@pytest.mark.parametrize(
    ("spec", "desired", "allowed"),
    [
        ({"maxUnavailable": 1}, 2, 1),
        ({"maxUnavailable": "50%"}, 1, 2),
        ({"minAvailable": "50%"}, 2, 1),
        ({"minAvailable": "100%"}, 3, 0),
        ({"maxUnavailable": 0}, 3, 0),
        ({"maxUnavailable": 5}, 0, 3),
        ({"maxUnavailable": "34%"}, 1, 2),
        ({"minAvailable": "34%"}, 2, 1),
        ({"minAvailable": 0}, 0, 3),
    ],
    ids=str,
)
async def test_shares_are_of_what_the_owner_wants(
    cluster: Cluster, spec: dict[str, Any], desired: int, allowed: int
) -> None:
    space = await cluster.new_namespace()
    template = workload("x", "none-" + space, replicas=3)
    await cluster.api.write(Create(REPLICASETS, template, namespace=space))
    pods = await cluster.eventually(lambda: cluster.api.list(PODS, namespace=space), lambda page: len(page.items) == 3)
    for each in pods.items:
        said = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        body = {"status": {"phase": "Running", "conditions": [said]}}
        await cluster.api.write(Patch(PODS, each["metadata"]["name"], body, namespace=space, subresource="status"))
    await cluster.api.write(Create(PDBS, budget("x", **spec), namespace=space))
    status = await observed(cluster, space, "x", expectedPods=3, currentHealthy=3, disruptionsAllowed=allowed)
    assert status["desiredHealthy"] == desired


async def test_a_condition_without_a_time(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(REPLICASETS, workload("x", "none-" + space, replicas=1), namespace=space))
    pods = await cluster.eventually(lambda: cluster.api.list(PODS, namespace=space), lambda page: page.items)
    body = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    name = pods.items[0]["metadata"]["name"]
    patched = await cluster.api.write(Patch(PODS, name, body, namespace=space, subresource="status"))
    assert condition(patched, "Ready")["lastTransitionTime"] is None
    await cluster.wait(REPLICASETS, "x", lambda it: it["status"].get("readyReplicas") == 1, namespace=space)


async def test_max_unavailable_of_pods_without_an_owner(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await running(cluster, space, "a")
    await cluster.api.write(Create(PDBS, budget("a", maxUnavailable=1), namespace=space))
    status = await observed(cluster, space, "a", currentHealthy=1)
    assert (status["expectedPods"], status["desiredHealthy"], status["disruptionsAllowed"]) == (0, 0, 0)
    with pytest.raises(TooManyRequests):
        await cluster.api.write(Evict("a", namespace=space))


async def test_a_deployment_replaces_an_evicted_pod(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.api.write(Create(DEPLOYMENTS, workload("x", on, replicas=2), namespace=space))
    await cluster.api.write(Create(PDBS, budget("x", maxUnavailable=1), namespace=space))
    await observed(cluster, space, "x", disruptionsAllowed=1, currentHealthy=2)
    first = {item["metadata"]["name"] for item in (await cluster.api.list(PODS, namespace=space)).items}
    victim = min(first)
    await cluster.api.write(Evict(victim, namespace=space))
    await cluster.wait_gone(PODS, victim, namespace=space)
    await observed(cluster, space, "x", disruptionsAllowed=1, currentHealthy=2)
    second = {item["metadata"]["name"] for item in (await cluster.api.list(PODS, namespace=space)).items}
    assert (len(second), len(second & first)) == (2, 1)


async def test_owners_of_a_deployments_pods(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await cluster.api.write(Create(DEPLOYMENTS, workload("x", "none-" + space, replicas=1), namespace=space))
    page = await cluster.eventually(lambda: cluster.api.list(PODS, namespace=space), lambda found: found.items)
    (set_,) = (await cluster.api.list(REPLICASETS, namespace=space)).items
    more = {"controller": True, "blockOwnerDeletion": True}
    assert set_["metadata"]["ownerReferences"] == [owned_by(made, DEPLOYMENTS, **more)]
    assert page.items[0]["metadata"]["ownerReferences"] == [owned_by(set_, REPLICASETS, **more)]
    assert page.items[0]["metadata"]["generateName"] == set_["metadata"]["name"] + "-"
