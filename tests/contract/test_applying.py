"""Who owns which fields when things are applied?"""

from typing import Any

import pytest

from dovetail.ports import Conflict, Invalid, PatchType
from tests.contract.backends import Cluster
from tests.contract.bodies import CONFIG_MAPS, NODECLAIMS, OTHER_UID, Object, config_map, nodeclaim


async def apply(cluster: Cluster, space: str, *, force: bool = False, **data: str) -> dict[str, str]:
    """The data after we have applied this."""
    applied = await cluster.api.patch(
        CONFIG_MAPS, "a", {"data": data}, namespace=space, type_=PatchType.APPLY, force=force
    )
    return dict(applied.get("data") or {})


async def other(cluster: Cluster, space: str, *, force: bool = False, **data: str) -> None:
    """Somebody else applies this."""
    await cluster.apply_as("other", CONFIG_MAPS, "a", {"data": data}, namespace=space, force=force)


async def test_apply_creates(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    assert await apply(cluster, space, x="1") == {"x": "1"}
    assert (await cluster.api.get(CONFIG_MAPS, "a", namespace=space))["data"] == {"x": "1"}


async def test_apply_changes(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await apply(cluster, space, x="1")
    assert await apply(cluster, space, x="2", y="1") == {"x": "2", "y": "1"}


async def test_what_is_no_longer_applied_goes(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await apply(cluster, space, x="1", y="1")
    assert await apply(cluster, space, x="1") == {"x": "1"}


async def test_the_same_again_writes_nothing(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await apply(cluster, space, x="1")
    before = await cluster.api.get(CONFIG_MAPS, "a", namespace=space)
    await cluster.settle(1.2)
    await apply(cluster, space, x="1")
    after = await cluster.api.get(CONFIG_MAPS, "a", namespace=space)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_what_others_have_applied_stays(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await apply(cluster, space, x="1", y="1")
    await other(cluster, space, z="1")
    assert await apply(cluster, space, x="1") == {"x": "1", "z": "1"}


async def test_what_others_own_is_a_conflict(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await other(cluster, space, x="1")
    with pytest.raises(Conflict, match=r'conflict with "other"') as caught:
        await apply(cluster, space, x="2")
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert ".data.x" in caught.value.message
    assert (await cluster.api.get(CONFIG_MAPS, "a", namespace=space))["data"] == {"x": "1"}


async def test_the_same_value_is_shared(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await other(cluster, space, x="1")
    assert await apply(cluster, space, x="1") == {"x": "1"}
    # What one of two owners gives up the other keeps.
    assert await apply(cluster, space, y="1") == {"x": "1", "y": "1"}


async def test_a_shared_field_is_a_conflict_to_both(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await other(cluster, space, x="1")
    await apply(cluster, space, x="1")
    with pytest.raises(Conflict):
        await other(cluster, space, x="2")
    with pytest.raises(Conflict):
        await apply(cluster, space, x="2")


async def test_force_takes_the_field_over(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await other(cluster, space, x="1")
    assert await apply(cluster, space, force=True, x="2") == {"x": "2"}
    with pytest.raises(Conflict, match=r'conflict with "dovetail"'):
        await other(cluster, space, x="3")
    await other(cluster, space, z="1")  # the other gives it up: it is ours alone
    assert await apply(cluster, space, y="1") == {"y": "1", "z": "1"}


async def test_our_own_patch_conflicts_with_others(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await other(cluster, space, x="1")
    await cluster.api.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}}, namespace=space)
    with pytest.raises(Conflict, match="dovetail"):
        await other(cluster, space, x="1")
    await other(cluster, space, force=True, x="1")
    assert (await cluster.api.get(CONFIG_MAPS, "a", namespace=space))["data"] == {"x": "1"}


async def test_what_was_created_is_not_taken_away_by_apply(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.create(CONFIG_MAPS, config_map("a", x="1"), namespace=space)
    assert await apply(cluster, space, y="1") == {"x": "1", "y": "1"}
    assert await apply(cluster, space, z="1") == {"x": "1", "z": "1"}


async def test_apply_with_another_uid(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    body = {"metadata": {"uid": OTHER_UID}, "data": {"x": "1"}}
    with pytest.raises(Conflict):  # it would have been an update
        await cluster.api.patch(CONFIG_MAPS, "a", body, namespace=space, type_=PatchType.APPLY)
    await apply(cluster, space, x="1")
    with pytest.raises(Conflict):
        await cluster.api.patch(CONFIG_MAPS, "a", body, namespace=space, type_=PatchType.APPLY)


async def test_apply_with_an_old_version(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await apply(cluster, space, x="1")
    seen = (await cluster.api.get(CONFIG_MAPS, "a", namespace=space))["metadata"]["resourceVersion"]
    await apply(cluster, space, x="2")
    body = {"metadata": {"resourceVersion": seen}, "data": {"x": "3"}}
    with pytest.raises(Conflict):
        await cluster.api.patch(CONFIG_MAPS, "a", body, namespace=space, type_=PatchType.APPLY)


# -- our kinds ---------------------------------------------------------------------------------------------------------


def conditions(found: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in found["status"]["conditions"]}


def said(type_: str, status: str = "True") -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": "Said",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


async def test_conditions_of_our_kinds_are_applied_by_type(cluster: Cluster) -> None:
    name = cluster.unique("claim")
    await cluster.make(NODECLAIMS, nodeclaim(name))
    await cluster.api.patch(NODECLAIMS, name, {"status": {"conditions": [said("Launched")]}}, subresource="status")

    async def applied(*given: Object) -> dict[str, str]:
        body = {"status": {"conditions": list(given)}}
        found = await cluster.api.patch(NODECLAIMS, name, body, type_=PatchType.APPLY, subresource="status", force=True)
        return conditions(found)

    assert await applied(said("Drifted")) == {"Launched": "True", "Drifted": "True"}
    assert await applied(said("Drifted", "False")) == {"Launched": "True", "Drifted": "False"}
    assert await applied(said("Ready")) == {"Launched": "True", "Ready": "True"}


async def test_apply_of_our_kinds_is_checked(cluster: Cluster) -> None:
    name = cluster.unique("claim")
    cluster.forget_later(NODECLAIMS, name)
    body = nodeclaim(name)
    created = await cluster.api.patch(NODECLAIMS, name, body, type_=PatchType.APPLY)
    assert created["spec"]["expireAfter"] == "720h"
    body["spec"]["expireAfter"] = "1 fortnight"
    with pytest.raises(Invalid, match=r"spec\.expireAfter"):
        await cluster.api.patch(NODECLAIMS, name, body, type_=PatchType.APPLY)
