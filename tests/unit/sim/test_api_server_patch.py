"""What do merge patches and strategic merge patches make of an object?"""

from typing import Any

import pytest

from dovetail.ports import NODECLAIMS, NODES, PDBS, PODS, Create, InternalError, Invalid, NotFound, Patch, PatchType
from dovetail.sim.server.api_server import ApiServer
from tests.harness.stage import stage
from tests.unit.sim.test_api_server import (
    CLAIM,
    CONFIGMAPS,
    RAW_NODES,
    RAW_PDBS,
    RAW_PODS,
    pod,
    run,
    running_pod,
)

pytestmark = stage(run)

STRATEGIC = PatchType.STRATEGIC


# -- JSON merge patch -------------------------------------------------------------------------------------------------


async def test_merging_replaces_lists_and_deletes_nulls(server: ApiServer) -> None:
    data = {"a": "1", "b": "2", "deep": {"x": 1, "y": 2}, "list": [1, 2]}
    await server.write(Create(CONFIGMAPS, {"metadata": {"name": "c"}, "data": data}, namespace="default"))
    patch = {"data": {"a": None, "c": "3", "deep": {"x": None, "z": 3}, "list": [3], "none": None}}
    changed = await server.write(Patch(CONFIGMAPS, "c", patch, namespace="default"))
    assert changed["data"] == {"b": "2", "c": "3", "deep": {"y": 2, "z": 3}, "list": [3]}
    with pytest.raises(NotFound):
        await server.write(Patch(CONFIGMAPS, "d", patch, namespace="default"))


async def test_taints_are_replaced_as_a_whole_by_both_kinds_of_patch(server: ApiServer) -> None:
    old = {"key": "a", "effect": "NoSchedule"}
    new = {"key": "b", "effect": "NoExecute"}
    for type_ in (PatchType.MERGE, STRATEGIC):
        name = f"n-{type_.name.lower()}"
        await server.write(Create(NODES, {"metadata": {"name": name}, "spec": {"taints": [old]}}))
        node = await server.write(Patch(RAW_NODES, name, {"spec": {"taints": [new]}}, type_=type_))
        assert node["spec"]["taints"] == [new]


async def test_empty_metadata_maps_are_dropped(server: ApiServer) -> None:
    await server.write(Create(PODS, pod(labels={"a": "b"}), namespace="default"))
    changed = await server.write(Patch(RAW_PODS, "web-1", {"metadata": {"labels": {"a": None}}}, namespace="default"))
    assert "labels" not in changed["metadata"]


# -- strategic merge patch --------------------------------------------------------------------------------------------


async def strategic_pod(server: ApiServer, patch: dict[str, Any], subresource: str = "") -> Any:
    return await server.write(
        Patch(RAW_PODS, "web-1", patch, namespace="default", type_=STRATEGIC, subresource=subresource)
    )


async def test_conditions_are_merged_by_type(server: ApiServer) -> None:
    await running_pod(server)
    patch = {"status": {"conditions": [{"type": "Ready", "reason": "Why"}, {"type": "New", "status": "True"}]}}
    conditions = (await strategic_pod(server, patch, "status"))["status"]["conditions"]
    assert [(c["type"], c["status"], c.get("reason")) for c in conditions] == [
        ("Ready", "True", "Why"),
        ("New", "True", None),
    ]
    patch = {"status": {"conditions": [{"type": "New", "$patch": "delete"}]}}
    assert len((await strategic_pod(server, patch, "status"))["status"]["conditions"]) == 1


async def test_finalizers_are_a_set_and_owners_are_merged_by_uid(server: ApiServer) -> None:
    top = await server.write(Create(CONFIGMAPS, {"metadata": {"name": "top"}}, namespace="default"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "top", "uid": top["metadata"]["uid"]}
    await server.write(
        Create(PODS, pod(finalizers=["example.com/a"], ownerReferences=[reference]), namespace="default")
    )
    meta = {
        "finalizers": ["example.com/a", "example.com/b"],
        "ownerReferences": [{**reference, "controller": True}],
    }
    changed = (await strategic_pod(server, {"metadata": meta}))["metadata"]
    assert changed["finalizers"] == ["example.com/a", "example.com/b"]
    assert changed["ownerReferences"] == [{**reference, "controller": True}]
    removal = {
        "$deleteFromPrimitiveList/finalizers": ["example.com/a"],
        "ownerReferences": [{"uid": top["metadata"]["uid"], "$patch": "delete"}],
    }
    changed = (await strategic_pod(server, {"metadata": removal}))["metadata"]
    assert changed["finalizers"] == ["example.com/b"]
    assert "ownerReferences" not in changed


async def test_containers_are_merged_by_name(server: ApiServer) -> None:
    await server.write(Create(PODS, pod(), namespace="default"))
    changed = await strategic_pod(server, {"spec": {"containers": [{"name": "main", "image": "web:2"}]}})
    assert [(c["name"], c["image"]) for c in changed["spec"]["containers"]] == [("main", "web:2")]
    assert changed["metadata"]["generation"] == 2


async def test_maps_can_be_replaced_and_selectors_are(server: ApiServer) -> None:
    await server.write(Create(PODS, pod(labels={"a": "1", "b": "2"}), namespace="default"))
    changed = await strategic_pod(server, {"metadata": {"labels": {"$patch": "replace", "c": "3"}}})
    assert changed["metadata"]["labels"] == {"c": "3"}
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"a": "1"}}}
    await server.write(Create(PDBS, {"metadata": {"name": "p"}, "spec": spec}, namespace="default"))
    patch = {"spec": {"selector": {"matchLabels": {"b": "2"}}}}
    pdb = await server.write(Patch(RAW_PDBS, "p", patch, namespace="default", type_=STRATEGIC))
    assert pdb["spec"]["selector"] == {"matchLabels": {"b": "2"}}


async def test_directives_of_strategic_patches(server: ApiServer) -> None:
    await running_pod(server, annotations={"a": "1", "b": "2"}, labels={"a": "1"})
    conditions = [{"$patch": "replace"}, {"type": "Only", "status": "True"}]
    patch = {"status": {"conditions": conditions, "$setElementOrder/conditions": [{"type": "Only"}]}}
    changed = await strategic_pod(server, patch, "status")
    assert [c["type"] for c in changed["status"]["conditions"]] == ["Only"]
    maps = {"labels": {"$patch": "delete"}, "annotations": {"$retainKeys": ["b", "c"], "c": "3"}}
    meta = (await strategic_pod(server, {"metadata": maps}))["metadata"]
    assert ("labels" in meta, meta["annotations"]) == (False, {"b": "2", "c": "3"})


async def test_an_item_without_its_merge_key(server: ApiServer) -> None:
    await running_pod(server)
    with pytest.raises(InternalError, match="does not contain declared merge key: type"):
        await strategic_pod(server, {"status": {"conditions": [{"status": "True"}]}}, "status")


async def test_custom_resources_have_no_strategic_merge(server: ApiServer) -> None:
    await server.write(Create(NODECLAIMS, CLAIM))
    with pytest.raises(Invalid) as caught:
        await server.write(Patch(NODECLAIMS, "claim-1", {"metadata": {"labels": {"a": "b"}}}, type_=STRATEGIC))
    assert caught.value.code == 415
