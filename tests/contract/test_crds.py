"""Do our definitions accept, refuse, complete and prune the same on both?

The table is that of the unit tests: every case is created, or, if it says what was there before, patched into being.
"""

from typing import Any

import pytest

from dovetail.ports import Create, Invalid, Patch, Resource
from tests.contract.backends import Cluster
from tests.contract.bodies import CLASS_REF, NODECLAIMS, NODECLASSES, NODEPOOLS, Object, nodeclaim, nodepool
from tests.unit.api.crd_cases import CASES, Case

BY_KIND: dict[str, Resource[dict[str, Any]]] = {each.kind: each for each in (NODEPOOLS, NODECLAIMS, NODECLASSES)}


def difference(old: Object, new: Object) -> Object:
    """The merge patch that makes the one of the other."""
    patch: Object = dict.fromkeys(set(old) - set(new))
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            patch[key] = difference(before, value)
        elif value != before or key not in old:
            patch[key] = value
    return patch


async def write(cluster: Cluster, case: Case) -> None:
    """Bring about what the case says; the status goes its own way."""
    resource, name = BY_KIND[case.new["kind"]], cluster.unique("case")
    cluster.forget_later(resource, name)

    def body(of: Object) -> Object:
        return {**{key: value for key, value in of.items() if key != "status"}, "metadata": {"name": name}}

    before: Object = {}
    if case.old is None:
        await cluster.api.write(Create(resource, body(case.new)))
    else:
        before = case.old.get("status", {})
        await cluster.api.write(Create(resource, body(case.old)))
        if before:
            await cluster.api.write(Patch(resource, name, {"status": before}, subresource="status"))
        await cluster.api.write(Patch(resource, name, difference(body(case.old), body(case.new))))
    if status := case.new.get("status", {}):
        await cluster.api.write(Patch(resource, name, {"status": difference(before, status)}, subresource="status"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_table(cluster: Cluster, case: Case) -> None:
    if case.error is None:
        await write(cluster, case)
        return
    with pytest.raises(Invalid) as caught:
        await write(cluster, case)
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert case.error in caught.value.message


# -- what is filled in -------------------------------------------------------------------------------------------------


async def test_defaults_of_a_nodepool(cluster: Cluster) -> None:
    made = await cluster.make(NODEPOOLS, nodepool(cluster.unique("pool")))
    assert made["spec"]["template"]["spec"]["expireAfter"] == "720h"
    assert made["spec"]["disruption"] == {
        "budgets": [{"nodes": "10%"}],
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "gracefulExpireAfter": "Never",
    }


async def test_defaults_beside_what_is_said(cluster: Cluster) -> None:
    disruption = {"consolidateAfter": "1h", "budgets": [{"reasons": ["Empty"]}]}
    made = await cluster.make(NODEPOOLS, nodepool(cluster.unique("pool"), disruption=disruption))
    assert made["spec"]["disruption"] == {
        "budgets": [{"nodes": "10%", "reasons": ["Empty"]}],
        "consolidateAfter": "1h",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "gracefulExpireAfter": "Never",
    }


async def test_defaults_of_a_nodeclaim(cluster: Cluster) -> None:
    made = await cluster.make(NODECLAIMS, nodeclaim(cluster.unique("claim")))
    assert made["spec"] == {"nodeClassRef": CLASS_REF, "requirements": [], "expireAfter": "720h"}
    assert "status" not in made


async def test_a_default_comes_back_when_its_value_is_taken_away(cluster: Cluster) -> None:
    name = cluster.unique("pool")
    await cluster.make(NODEPOOLS, nodepool(name, disruption={"consolidateAfter": "1h"}))
    patched = await cluster.api.write(Patch(NODEPOOLS, name, {"spec": {"disruption": {"consolidateAfter": None}}}))
    assert patched["spec"]["disruption"]["consolidateAfter"] == "0s"
    patched = await cluster.api.write(Patch(NODEPOOLS, name, {"spec": {"disruption": None}}))
    assert patched["spec"]["disruption"]["budgets"] == [{"nodes": "10%"}]


async def test_a_class_is_ready_when_it_is_made(cluster: Cluster) -> None:
    made = await cluster.make(NODECLASSES, {"metadata": {"name": cluster.unique("class")}})
    assert "spec" not in made
    (said,) = made["status"]["conditions"]
    assert (said["type"], said["status"]) == ("Ready", "True")
    assert await cluster.api.get(NODECLASSES, made["metadata"]["name"]) == made


async def test_null_is_as_if_it_were_not_there(cluster: Cluster) -> None:
    body = nodepool(cluster.unique("pool"), disruption={"consolidateAfter": None}, weight=None)
    made = await cluster.make(NODEPOOLS, body)
    assert made["spec"]["disruption"]["consolidateAfter"] == "0s"


# -- what is left out --------------------------------------------------------------------------------------------------


async def test_unknown_fields_are_pruned(cluster: Cluster) -> None:
    body = nodepool(cluster.unique("pool"), unknown=1)
    body["spec"]["template"]["spec"]["unknown"] = {"a": 1}
    body["spec"]["disruption"] = {"budgets": [{"nodes": "1", "unknown": 1}]}
    body["unknown"] = 1
    made = await cluster.make(NODEPOOLS, body)
    assert "unknown" not in made
    assert "unknown" not in made["spec"]
    assert "unknown" not in made["spec"]["template"]["spec"]
    assert made["spec"]["disruption"]["budgets"] == [{"nodes": "1"}]


async def test_unknown_fields_of_a_patch_change_nothing(cluster: Cluster) -> None:
    name = cluster.unique("claim")
    made = await cluster.make(NODECLAIMS, nodeclaim(name))
    patched = await cluster.api.write(Patch(NODECLAIMS, name, {"spec": {"unknown": 1}}))
    assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    patched = await cluster.api.write(Patch(NODECLAIMS, name, {"status": {"unknown": 1}}, subresource="status"))
    assert "unknown" not in patched.get("status", {})


async def test_unknown_metadata_is_dropped(cluster: Cluster) -> None:
    made = await cluster.make(NODECLAIMS, nodeclaim(cluster.unique("claim"), unknown="x"))
    assert "unknown" not in made["metadata"]


# -- what does not change ----------------------------------------------------------------------------------------------


async def test_the_spec_of_a_claim_is_immutable(cluster: Cluster) -> None:
    name = cluster.unique("claim")
    made = await cluster.make(NODECLAIMS, nodeclaim(name))
    with pytest.raises(Invalid, match="spec is immutable"):
        await cluster.api.write(Patch(NODECLAIMS, name, {"spec": {"expireAfter": "1h"}}))
    assert await cluster.api.get(NODECLAIMS, name) == made


async def test_several_faults_are_told_at_once(cluster: Cluster) -> None:
    body = nodepool(cluster.unique("pool"), weight=0, disruption={"consolidateAfter": "soon"})
    with pytest.raises(Invalid) as caught:
        await cluster.make(NODEPOOLS, body)
    assert "spec.weight" in caught.value.message
    assert "spec.disruption.consolidateAfter" in caught.value.message


async def test_what_was_refused_is_not_there(cluster: Cluster) -> None:
    name = cluster.unique("pool")
    with pytest.raises(Invalid):
        await cluster.make(NODEPOOLS, nodepool(name, weight=0))
    assert await cluster.find(NODEPOOLS, name) is None


async def test_names_are_checked(cluster: Cluster) -> None:
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await cluster.api.write(Create(NODEPOOLS, nodepool("Not_A_Name")))


# -- the scale of a pool -----------------------------------------------------------------------------------------------


async def test_the_scale_of_a_pool(cluster: Cluster) -> None:
    name = cluster.unique("pool")
    await cluster.make(NODEPOOLS, nodepool(name, replicas=1))
    await cluster.api.write(Patch(NODEPOOLS, name, {"status": {"nodes": 1}}, subresource="status"))
    scale = await cluster.api.write(Patch(NODEPOOLS, name, {"spec": {"replicas": 3}}, subresource="scale"))
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 1})
    assert (await cluster.api.get(NODEPOOLS, name))["spec"]["replicas"] == 3


async def test_the_scale_of_a_pool_is_checked(cluster: Cluster) -> None:
    name = cluster.unique("pool")
    await cluster.make(NODEPOOLS, nodepool(name, replicas=1))
    with pytest.raises(Invalid):
        await cluster.api.write(Patch(NODEPOOLS, name, {"spec": {"replicas": -1}}, subresource="scale"))
