"""What do create, get, list and patch do, and what do they refuse?"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from dovetail import ports
from dovetail.api.objects import Pod
from dovetail.ports import (
    AlreadyExists,
    Conflict,
    Create,
    Delete,
    InternalError,
    Invalid,
    NotFound,
    Patch,
    PatchType,
    Resource,
)
from dovetail.values.timestamp import parse_time
from tests.contract.backends import Cluster
from tests.contract.bodies import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    LEASES,
    NODECLAIMS,
    NODES,
    OTHER_UID,
    PDBS,
    PODS,
    budget,
    config_map,
    nodeclaim,
    parked,
    pod,
    workload,
)

# -- creating ----------------------------------------------------------------------------------------------------------


async def test_create_fills_in_the_metadata(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    before = cluster.now().replace(microsecond=0)
    made = await cluster.api.write(Create(CONFIG_MAPS, config_map("a", x="1"), namespace=space))
    meta = made["metadata"]
    assert (meta["name"], meta["namespace"]) == ("a", space)
    assert before <= parse_time(meta["creationTimestamp"]) <= before + timedelta(seconds=0 if cluster.exact else 5)
    assert len(meta["uid"]) == 36
    assert int(meta["resourceVersion"]) > 0
    assert (made["apiVersion"], made["kind"], made["data"]) == ("v1", "ConfigMap", {"x": "1"})
    assert await cluster.api.get(CONFIG_MAPS, "a", namespace=space) == made


async def test_objects_are_read_into_structs(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await cluster.api.write(Create(ports.PODS, parked("a", grace=7), namespace=space))
    assert isinstance(made, Pod)
    assert (made.metadata.labels, made.spec.termination_grace_period_seconds) == ({"app": "a"}, 7)
    assert made == await cluster.api.get(ports.PODS, "a", namespace=space)


async def test_a_name_can_be_taken_once(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    with pytest.raises(AlreadyExists, match='configmaps "a" already exists') as caught:
        await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    assert (caught.value.code, caught.value.reason) == (409, "AlreadyExists")


async def test_a_name_is_taken_in_its_namespace_only(cluster: Cluster) -> None:
    one, two = await cluster.new_namespace(), await cluster.new_namespace()
    first = await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=one))
    second = await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=two))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_generated_names(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    body = {"metadata": {"generateName": "a-"}}
    names = [
        (await cluster.api.write(Create(CONFIG_MAPS, body, namespace=space)))["metadata"]["name"] for _ in range(5)
    ]
    assert len(set(names)) == 5
    for name in names:
        assert len(name) == 7
        assert name.startswith("a-")
        assert set(name[2:]) <= set("bcdfghjklmnpqrstvwxz2456789")


async def test_a_name_is_needed(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    with pytest.raises(Invalid, match="name or generateName is required"):
        await cluster.api.write(Create(CONFIG_MAPS, {"data": {}}, namespace=space))


async def test_no_object_in_a_namespace_that_does_not_exist(cluster: Cluster) -> None:
    space = cluster.unique("none")
    with pytest.raises(NotFound, match=f'namespaces "{space}" not found'):
        await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))


async def test_a_version_cannot_be_given_to_a_new_object(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    with pytest.raises(InternalError, match="resourceVersion should not be set on objects to be created"):
        await cluster.api.write(
            Create(CONFIG_MAPS, {"metadata": {"name": "a", "resourceVersion": "5"}}, namespace=space)
        )


async def test_system_metadata_of_a_new_object_is_not_taken_over(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    mine = {"name": "a", "uid": OTHER_UID, "creationTimestamp": "2020-01-01T00:00:00Z", "generation": 7}
    made = await cluster.api.write(Create(CONFIG_MAPS, {"metadata": mine}, namespace=space))
    assert made["metadata"]["uid"] != OTHER_UID
    assert not made["metadata"]["creationTimestamp"].startswith("2020")


@pytest.mark.parametrize(
    ("resource", "body", "path"),
    [
        (PODS, parked("A_B"), "metadata.name"),
        (CONFIG_MAPS, config_map("a", labels={"a b": "x"}), "metadata.labels"),
        (CONFIG_MAPS, config_map("a", labels={"a": "x y"}), "metadata.labels"),
        (CONFIG_MAPS, {"metadata": {"name": "a", "annotations": {"a b": "x"}}}, "metadata.annotations"),
        (CONFIG_MAPS, {"metadata": {"name": "a", "finalizers": ["mine"]}}, "metadata.finalizers[0]"),
        (
            CONFIG_MAPS,
            {"metadata": {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a"}]}},
            "metadata.ownerReferences.uid",
        ),
        (PODS, {"metadata": {"name": "a"}, "spec": {"containers": []}}, "spec.containers"),
        (PODS, {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}, "spec.containers[0].image"),
        (PDBS, budget("a", minAvailable=1, maxUnavailable=1), "spec"),
        (PDBS, budget("a", minAvailable="many"), "spec.minAvailable"),
        (PDBS, budget("a", maxUnavailable="101%"), "spec.maxUnavailable"),
        (PDBS, budget("a", minAvailable=-1), "spec.minAvailable"),
        (PDBS, budget("a", unhealthyPodEvictionPolicy="Never"), "spec.unhealthyPodEvictionPolicy"),
        (LEASES, {"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 0}}, "spec.leaseDurationSeconds"),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "plural", ""),
)
async def test_refusals_name_the_field(
    cluster: Cluster, resource: Resource[dict[str, Any]], body: dict[str, Any], path: str
) -> None:
    space = await cluster.new_namespace()
    with pytest.raises(Invalid) as caught:
        await cluster.api.write(Create(resource, body, namespace=space))
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert f"is invalid: {path}: " in caught.value.message or f"[{path}: " in caught.value.message


async def test_taints_are_checked(cluster: Cluster) -> None:
    taint = {"key": "a", "effect": "Sometimes"}
    with pytest.raises(Invalid, match=r"taints\[0\]\.effect: Unsupported value"):
        await cluster.make(NODES, {"metadata": {"name": cluster.unique("n")}, "spec": {"taints": [taint]}})
    twice = [{"key": "a", "effect": "NoSchedule"}] * 2
    with pytest.raises(Invalid, match=r"taints\[1\]: Duplicate value"):
        await cluster.make(NODES, {"metadata": {"name": cluster.unique("n")}, "spec": {"taints": twice}})


async def test_times_of_a_lease_have_six_digits(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    spec = {"renewTime": "2026-01-01T00:00:00.123456Z", "holderIdentity": "me", "leaseDurationSeconds": 15}
    made = await cluster.api.write(Create(LEASES, {"metadata": {"name": "a"}, "spec": spec}, namespace=space))
    assert made["spec"] == spec
    with pytest.raises(Invalid):
        await cluster.api.write(Patch(LEASES, "a", {"spec": {"renewTime": "2026-01-01T00:00:00Z"}}, namespace=space))


async def test_a_pod_is_given_its_defaults(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await cluster.api.write(Create(PODS, pod("a", "none-" + space), namespace=space))
    spec = made["spec"]
    assert {
        key: spec.get(key) for key in ("restartPolicy", "terminationGracePeriodSeconds", "schedulerName", "priority")
    } == {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
        "priority": 0,
    }
    assert made["status"]["phase"] == "Pending"
    assert made["metadata"]["generation"] == 1
    tolerated = {each["key"]: each for each in spec["tolerations"]}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        assert tolerated[key] == {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


# -- reading -----------------------------------------------------------------------------------------------------------


async def test_what_is_not_there(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    with pytest.raises(NotFound, match='pods "none" not found') as caught:
        await cluster.api.get(PODS, "none", namespace=space)
    assert (caught.value.code, caught.value.reason) == (404, "NotFound")
    with pytest.raises(NotFound, match=r'nodeclaims.karpenter.sh "none" not found'):
        await cluster.api.get(NODECLAIMS, "none")
    with pytest.raises(NotFound):
        await cluster.api.write(Patch(PODS, "none", {"metadata": {"labels": {"a": "b"}}}, namespace=space))
    with pytest.raises(NotFound):
        await cluster.api.write(Delete(PODS, "none", namespace=space))


async def test_an_empty_list_has_a_version(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    page = await cluster.api.list(PODS, namespace=space)
    assert (list(page.items), page.continue_, page.undecodable) == ([], "", 0)
    assert int(page.resource_version) > 0


async def test_a_list_of_a_namespace_that_does_not_exist_is_empty(cluster: Cluster) -> None:
    assert not (await cluster.api.list(PODS, namespace=cluster.unique("none"))).items


async def names(cluster: Cluster, resource: Resource[dict[str, Any]], space: str | None, **select: str) -> list[str]:
    page = await cluster.api.list(resource, namespace=space, **select)  # type: ignore[arg-type]
    return [item["metadata"]["name"] for item in page.items]


async def test_a_list_is_sorted_by_name(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for name in ("b", "c", "a", "a-b", "a.b"):
        await cluster.api.write(Create(LEASES, {"metadata": {"name": name}, "spec": {}}, namespace=space))
    assert await names(cluster, LEASES, space) == ["a", "a-b", "a.b", "b", "c"]


async def test_a_list_of_all_namespaces(cluster: Cluster) -> None:
    name = cluster.unique("a")
    spaces = sorted([await cluster.new_namespace(), await cluster.new_namespace()])
    for space in spaces:
        await cluster.api.write(Create(CONFIG_MAPS, config_map("x", labels={"own": name}), namespace=space))
    page = await cluster.api.list(CONFIG_MAPS, labels=f"own={name}")
    assert [item["metadata"]["namespace"] for item in page.items] == spaces


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("a", "one two"),
        ("!a", "three"),
        ("a=x", "one"),
        ("a==x", "one"),
        ("a!=x", "two three"),
        ("a in (x,y)", "one two"),
        ("a notin (x)", "two three"),
        ("b,a", "two"),
        ("a=x,b", ""),
        ("b=", "two"),
    ],
)
async def test_label_selectors(cluster: Cluster, labels: str, expected: str) -> None:
    space = await cluster.new_namespace()
    for name, given in (("one", {"a": "x"}), ("two", {"a": "y", "b": ""}), ("three", {"c": "z"})):
        await cluster.api.write(
            Create(LEASES, {"metadata": {"name": name, "labels": given}, "spec": {}}, namespace=space)
        )
    assert sorted(await names(cluster, LEASES, space, labels=labels)) == sorted(expected.split())


@pytest.mark.parametrize("labels", ["a=b=c", "a in x", "=a", "a b", "a in (x"])
async def test_label_selectors_that_cannot_be_read(cluster: Cluster, labels: str) -> None:
    with pytest.raises(Invalid) as caught:
        await cluster.api.list(CONFIG_MAPS, labels=labels)
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")


async def test_field_selectors(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(PODS, parked("a"), namespace=space))
    await cluster.api.write(Create(PODS, pod("b", "none-" + space), namespace=space))
    assert await names(cluster, PODS, space, fields="metadata.name=a") == ["a"]
    assert await names(cluster, PODS, space, fields="metadata.name!=a") == ["b"]
    assert await names(cluster, PODS, space, fields="spec.nodeName=nowhere") == ["a"]
    assert await names(cluster, PODS, space, fields="spec.nodeName=") == ["b"]
    assert await names(cluster, PODS, space, fields="status.phase=Pending") == ["a", "b"]
    assert await names(cluster, PODS, space, fields="status.phase!=Pending") == []
    assert await names(cluster, PODS, None, fields=f"metadata.namespace={space},metadata.name==b") == ["b"]


@pytest.mark.parametrize(
    ("resource", "fields"),
    [
        (PODS, "spec.priority=0"),
        (PODS, "metadata.uid=x"),
        (NODES, "spec.providerID=x"),
        (NODECLAIMS, "status.nodeName=x"),
        (PODS, "metadata.name"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.plural,
)
async def test_unknown_field_selectors_are_refused(
    cluster: Cluster, resource: Resource[dict[str, Any]], fields: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await cluster.api.list(resource, fields=fields)
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")


# -- changing ----------------------------------------------------------------------------------------------------------


async def test_a_merge_patch_sets_and_deletes(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await cluster.api.write(Create(CONFIG_MAPS, config_map("a", x="1", y="1"), namespace=space))
    patched = await cluster.api.write(
        Patch(CONFIG_MAPS, "a", {"data": {"x": "2", "y": None, "z": "3"}}, namespace=space)
    )
    assert patched["data"] == {"x": "2", "z": "3"}
    assert patched["metadata"]["uid"] == made["metadata"]["uid"]
    assert int(patched["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert await cluster.api.get(CONFIG_MAPS, "a", namespace=space) == patched


async def test_a_merge_patch_of_null_takes_all_away(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(CONFIG_MAPS, config_map("a", labels={"a": "b"}, x="1"), namespace=space))
    body = {"metadata": {"labels": None, "annotations": None}, "data": None}
    patched = await cluster.api.write(Patch(CONFIG_MAPS, "a", body, namespace=space))
    assert ("labels" in patched["metadata"], "data" in patched) == (False, False)


async def test_an_empty_map_is_as_if_it_were_not_there(cluster: Cluster) -> None:
    name = cluster.unique("c")
    made = await cluster.make(NODECLAIMS, nodeclaim(name, labels={}, annotations={}, finalizers=[]))
    assert not {"labels", "annotations", "finalizers"} & set(made["metadata"])


async def test_a_merge_patch_replaces_lists(cluster: Cluster) -> None:
    name = cluster.unique("n")
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("one", "two")]
    await cluster.make(NODES, {"metadata": {"name": name}, "spec": {"taints": taints[:1]}})
    patched = await cluster.api.write(Patch(NODES, name, {"spec": {"taints": taints[1:]}}))
    assert "one" not in {taint["key"] for taint in patched["spec"]["taints"]}


async def test_a_patch_that_changes_nothing_keeps_the_version(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await cluster.api.write(Create(CONFIG_MAPS, config_map("a", x="1"), namespace=space))
    for body in ({}, {"data": {"x": "1"}}, {"data": {"none": None}}):
        patched = await cluster.api.write(Patch(CONFIG_MAPS, "a", body, namespace=space))
        assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_an_old_version_is_a_conflict(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    seen = (await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space)))["metadata"][
        "resourceVersion"
    ]
    body = {"metadata": {"resourceVersion": seen}, "data": {"x": "1"}}
    await cluster.api.write(Patch(CONFIG_MAPS, "a", body, namespace=space))
    with pytest.raises(Conflict, match="the object has been modified; please apply your changes") as caught:
        await cluster.api.write(Patch(CONFIG_MAPS, "a", body | {"data": {"x": "2"}}, namespace=space))
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert (await cluster.api.get(CONFIG_MAPS, "a", namespace=space))["data"] == {"x": "1"}


async def test_an_old_version_is_a_conflict_even_if_nothing_would_change(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    seen = (await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space)))["metadata"][
        "resourceVersion"
    ]
    await cluster.api.write(Patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace=space))
    body = {"metadata": {"resourceVersion": seen}, "data": {"x": "1"}}
    with pytest.raises(Conflict):
        await cluster.api.write(Patch(CONFIG_MAPS, "a", body, namespace=space))


async def test_another_uid_is_a_conflict(cluster: Cluster) -> None:
    space, name = await cluster.new_namespace(), cluster.unique("c")
    await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    await cluster.make(NODECLAIMS, nodeclaim(name))
    body = {"metadata": {"uid": OTHER_UID, "labels": {"a": "b"}}}
    with pytest.raises(Conflict):
        await cluster.api.write(Patch(CONFIG_MAPS, "a", body, namespace=space))
    with pytest.raises(Conflict):
        await cluster.api.write(Patch(NODECLAIMS, name, body))
    assert "labels" not in (await cluster.api.get(NODECLAIMS, name))["metadata"]


async def test_the_right_uid_is_none(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    body = {"metadata": {"uid": made["metadata"]["uid"]}, "data": {"x": "1"}}
    assert (await cluster.api.write(Patch(CONFIG_MAPS, "a", body, namespace=space)))["data"] == {"x": "1"}


async def test_a_name_does_not_change(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    with pytest.raises(Invalid):
        await cluster.api.write(Patch(CONFIG_MAPS, "a", {"metadata": {"name": "b"}}, namespace=space))
    with pytest.raises(Invalid):
        await cluster.api.write(Patch(CONFIG_MAPS, "a", {"metadata": {"namespace": "default"}}, namespace=space))


async def test_the_creation_time_does_not_change(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    body = {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z", "labels": {"a": "b"}}}
    patched = await cluster.api.write(Patch(CONFIG_MAPS, "a", body, namespace=space))
    assert patched["metadata"]["labels"] == {"a": "b"}
    assert patched["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


async def test_a_deletion_time_cannot_be_patched_in(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    body = {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z", "labels": {"a": "b"}}}
    with pytest.raises(Invalid, match=r"metadata\.deletionTimestamp"):
        await cluster.api.write(Patch(CONFIG_MAPS, "a", body, namespace=space))


async def test_most_of_a_pod_does_not_change(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(PODS, parked("a"), namespace=space))
    for spec in ({"nodeName": "other"}, {"restartPolicy": "Never"}, {"terminationGracePeriodSeconds": 5}):
        with pytest.raises(Invalid, match="spec: Forbidden: pod updates may not change fields other than"):
            await cluster.api.write(Patch(PODS, "a", {"spec": spec}, namespace=space))
    image = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    changed = await cluster.api.write(Patch(PODS, "a", image, namespace=space, type_=PatchType.STRATEGIC))
    assert changed["spec"]["containers"][0]["image"] == "other"


async def test_a_provider_id_is_set_once(cluster: Cluster) -> None:
    name = cluster.unique("n")
    await cluster.make(NODES, {"metadata": {"name": name}})
    await cluster.api.write(Patch(NODES, name, {"spec": {"providerID": "one"}}))
    with pytest.raises(Invalid, match=r"spec\.providerID: Forbidden"):
        await cluster.api.write(Patch(NODES, name, {"spec": {"providerID": "two"}}))


async def test_a_wrong_type_is_refused(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    with pytest.raises(Invalid):
        await cluster.api.write(Patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"a": 1}}}, namespace=space))


# -- generation and status ---------------------------------------------------------------------------------------------


async def test_the_spec_moves_the_generation_on(cluster: Cluster) -> None:
    space = await cluster.new_namespace()

    async def generation(body: dict[str, Any], subresource: str = "") -> int:
        patched = await cluster.api.write(Patch(PDBS, "a", body, namespace=space, subresource=subresource))
        return int(patched["metadata"]["generation"])

    made = await cluster.api.write(Create(PDBS, budget("a", minAvailable=1), namespace=space))
    assert made["metadata"]["generation"] == 1
    assert await generation({"metadata": {"labels": {"a": "b"}}}) == 1
    assert await generation({"spec": {"minAvailable": 2}}) == 2
    assert await generation({"spec": {"minAvailable": 2}}) == 2
    assert await generation({"metadata": {"generation": 9}}) == 2


async def test_the_generation_of_our_kinds(cluster: Cluster) -> None:
    name = cluster.unique("c")
    assert (await cluster.make(NODECLAIMS, nodeclaim(name)))["metadata"]["generation"] == 1

    async def generation(body: dict[str, Any], subresource: str = "") -> int:
        return int(
            (await cluster.api.write(Patch(NODECLAIMS, name, body, subresource=subresource)))["metadata"]["generation"]
        )

    assert await generation({"metadata": {"labels": {"a": "b"}}}) == 1
    assert await generation({"status": {"nodeName": "x"}}, "status") == 1


async def test_nodes_have_no_generation(cluster: Cluster) -> None:
    name = cluster.unique("n")
    made = await cluster.make(NODES, {"metadata": {"name": name}})
    assert "generation" not in made["metadata"]


async def test_a_status_is_not_created(cluster: Cluster) -> None:
    name = cluster.unique("c")
    made = await cluster.make(NODECLAIMS, nodeclaim(name) | {"status": {"nodeName": "x"}})
    assert "nodeName" not in made.get("status", {})
    space = await cluster.new_namespace()
    pod_ = await cluster.api.write(Create(PODS, parked("a") | {"status": {"phase": "Running"}}, namespace=space))
    assert pod_["status"]["phase"] == "Pending"


async def test_the_status_of_a_new_node_is_kept(cluster: Cluster) -> None:
    name = cluster.unique("n")
    made = await cluster.make(NODES, {"metadata": {"name": name}, "status": {"capacity": {"cpu": "3"}}})
    assert made["status"]["capacity"] == {"cpu": "3"}


async def test_only_the_subresource_writes_the_status(cluster: Cluster) -> None:
    name = cluster.unique("c")
    made = await cluster.make(NODECLAIMS, nodeclaim(name))
    patched = await cluster.api.write(Patch(NODECLAIMS, name, {"status": {"nodeName": "x"}}))
    assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert "nodeName" not in patched.get("status", {})
    patched = await cluster.api.write(Patch(NODECLAIMS, name, {"status": {"nodeName": "x"}}, subresource="status"))
    assert patched["status"]["nodeName"] == "x"


async def test_the_subresource_writes_only_the_status(cluster: Cluster) -> None:
    name = cluster.unique("c")
    await cluster.make(NODECLAIMS, nodeclaim(name))
    body = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["dovetail.dev/x"]},
        "spec": {"expireAfter": "1h"},
        "status": {"nodeName": "x"},
    }
    patched = await cluster.api.write(Patch(NODECLAIMS, name, body, subresource="status"))
    assert patched["status"]["nodeName"] == "x"
    assert patched["spec"]["expireAfter"] == "720h"
    assert not {"labels", "annotations", "finalizers"} & set(patched["metadata"])


async def test_what_the_status_of_a_pod_writes(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await cluster.api.write(Create(PODS, parked("a"), namespace=space))
    body = {"metadata": {"annotations": {"a": "b"}}, "spec": {"nodeName": "other"}, "status": {"phase": "Running"}}
    patched = await cluster.api.write(Patch(PODS, "a", body, namespace=space, subresource="status"))
    assert (patched["status"]["phase"], patched["spec"]["nodeName"]) == ("Running", "nowhere")
    assert patched["metadata"]["generation"] == made["metadata"]["generation"]
    assert patched["metadata"]["annotations"] == {"a": "b"}  # the kubelet writes them this way


async def test_what_the_status_of_a_node_writes(cluster: Cluster) -> None:
    name = cluster.unique("n")
    await cluster.make(NODES, {"metadata": {"name": name}})
    body = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"providerID": "x", "unschedulable": True},
        "status": {"capacity": {"cpu": "2"}},
    }
    patched = await cluster.api.write(Patch(NODES, name, body, subresource="status"))
    assert (patched["metadata"]["labels"], patched["status"]["capacity"]) == ({"a": "b"}, {"cpu": "2"})
    # Its taints are another matter: whoever watches over nodes may have written them meanwhile.
    assert not patched["spec"].keys() & {"providerID", "unschedulable"}


async def test_a_node_itself_does_not_write_its_status(cluster: Cluster) -> None:
    name = cluster.unique("n")
    await cluster.make(NODES, {"metadata": {"name": name}, "status": {"capacity": {"cpu": "1"}}})
    patched = await cluster.api.write(Patch(NODES, name, {"status": {"capacity": {"cpu": "2"}}}))
    assert patched["status"]["capacity"] == {"cpu": "1"}


async def test_a_status_has_its_own_optimistic_lock(cluster: Cluster) -> None:
    name = cluster.unique("c")
    seen = (await cluster.make(NODECLAIMS, nodeclaim(name)))["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": seen}, "status": {"nodeName": "x"}}
    await cluster.api.write(Patch(NODECLAIMS, name, body, subresource="status"))
    with pytest.raises(Conflict):
        await cluster.api.write(Patch(NODECLAIMS, name, body | {"status": {"nodeName": "y"}}, subresource="status"))


async def test_a_subresource_that_does_not_exist(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    with pytest.raises(NotFound):
        await cluster.api.write(Patch(CONFIG_MAPS, "a", {"data": {}}, namespace=space, subresource="status"))


async def test_the_scale_of_a_deployment(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(DEPLOYMENTS, workload("a", "none-" + space, replicas=0), namespace=space))
    scale = await cluster.api.write(
        Patch(DEPLOYMENTS, "a", {"spec": {"replicas": 1}}, namespace=space, subresource="scale")
    )
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 1})
    assert (await cluster.api.get(DEPLOYMENTS, "a", namespace=space))["spec"]["replicas"] == 1


# -- strategic merge ---------------------------------------------------------------------------------------------------


async def test_a_strategic_merge_of_finalizers_adds(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))

    async def finalizers(body: dict[str, Any]) -> list[str]:
        patched = await cluster.api.write(
            Patch(CONFIG_MAPS, "a", {"metadata": body}, namespace=space, type_=PatchType.STRATEGIC)
        )
        return list(patched["metadata"].get("finalizers", []))

    assert await finalizers({"finalizers": ["test.dev/a"]}) == ["test.dev/a"]
    assert sorted(await finalizers({"finalizers": ["test.dev/b"]})) == ["test.dev/a", "test.dev/b"]
    assert await finalizers({"$deleteFromPrimitiveList/finalizers": ["test.dev/a"]}) == ["test.dev/b"]
    assert await finalizers({"finalizers": None}) == []


async def test_a_strategic_merge_of_conditions_goes_by_type(cluster: Cluster) -> None:
    name = cluster.unique("n")
    await cluster.make(NODES, {"metadata": {"name": name}})

    async def conditions(changes: list[dict[str, Any]], type_: PatchType = PatchType.STRATEGIC) -> dict[str, str]:
        body = {"status": {"conditions": changes}}
        patched = await cluster.api.write(Patch(NODES, name, body, type_=type_, subresource="status"))
        found = patched["status"].get("conditions", [])
        return {each["type"]: each["status"] for each in found if each["type"] in ("One", "Two")}

    assert await conditions([{"type": "One", "status": "True"}]) == {"One": "True"}
    assert await conditions([{"type": "Two", "status": "True"}]) == {"One": "True", "Two": "True"}
    assert await conditions([{"type": "One", "status": "False"}]) == {"One": "False", "Two": "True"}
    assert await conditions([{"type": "One", "$patch": "delete"}]) == {"Two": "True"}
    assert await conditions([{"type": "One", "status": "True"}], PatchType.MERGE) == {"One": "True"}


async def test_a_strategic_merge_replaces_taints(cluster: Cluster) -> None:
    name = cluster.unique("n")
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("one", "two")]
    await cluster.make(NODES, {"metadata": {"name": name}, "spec": {"taints": taints[:1]}})
    patched = await cluster.api.write(Patch(NODES, name, {"spec": {"taints": taints[1:]}}, type_=PatchType.STRATEGIC))
    assert "one" not in {taint["key"] for taint in patched["spec"]["taints"]}


async def test_our_kinds_know_no_strategic_merge(cluster: Cluster) -> None:
    name = cluster.unique("c")
    await cluster.make(NODECLAIMS, nodeclaim(name))
    with pytest.raises(Invalid) as caught:
        await cluster.api.write(
            Patch(NODECLAIMS, name, {"metadata": {"labels": {"a": "b"}}}, type_=PatchType.STRATEGIC)
        )
    assert (caught.value.code, caught.value.reason) == (415, "UnsupportedMediaType")


# -- events and leases -------------------------------------------------------------------------------------------------


def event(name: str, space: str, **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "dovetail.dev/contract",
        "reportingInstance": "one",
        "action": "Testing",
        "reason": "Tested",
        "type": "Normal",
        "note": "so it was",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": space, "name": name},
        **fields,
    }


async def test_events(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for name in ("a", "b"):
        await cluster.api.write(Create(ports.EVENTS, event(name, space), namespace=space))
    for fields in ("regarding.name=b", "regarding.kind=Pod,regarding.name=b", "metadata.name=b"):
        assert await names(cluster, ports.EVENTS, space, fields=fields) == ["b"]
    assert await names(cluster, ports.EVENTS, space, fields="reason=Other") == []
    assert await names(cluster, ports.EVENTS, space, fields="reportingController=dovetail.dev/contract") == ["a", "b"]


async def test_an_event_that_goes_on(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(ports.EVENTS, event("a", space), namespace=space))
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}
    patched = await cluster.api.write(Patch(ports.EVENTS, "a", {"series": series}, namespace=space))
    assert patched["series"] == series
    with pytest.raises(Invalid, match=r"message: .*field is immutable"):
        await cluster.api.write(Patch(ports.EVENTS, "a", {"note": "otherwise"}, namespace=space))


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"reason": ""}, "reason"),
        ({"action": ""}, "action"),
        ({"reportingController": ""}, "reportingController"),
        ({"reportingInstance": ""}, "reportingInstance"),
        ({"type": "Sad"}, "type"),
        ({"eventTime": None}, "eventTime"),
        ({"note": "x" * 1025}, "message"),
        ({"reason": "x" * 129}, "reason"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_events_are_checked(cluster: Cluster, fields: dict[str, Any], path: str) -> None:
    space = await cluster.new_namespace()
    with pytest.raises(Invalid) as caught:
        await cluster.api.write(Create(ports.EVENTS, event("a", space, **fields), namespace=space))
    assert f"{path}: " in caught.value.message


async def test_one_of_two_gets_the_lease(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    seen = await cluster.api.write(Create(LEASES, {"metadata": {"name": "a"}, "spec": {}}, namespace=space))

    async def take(who: str) -> str:
        body = {
            "metadata": {"resourceVersion": seen["metadata"]["resourceVersion"]},
            "spec": {"holderIdentity": who, "leaseDurationSeconds": 15},
        }
        try:
            await cluster.api.write(Patch(LEASES, "a", body, namespace=space))
        except Conflict:
            return ""
        return who

    takers = await asyncio.gather(take("one"), take("two"), take("three"))
    (winner,) = filter(None, takers)
    found = await cluster.api.get(LEASES, "a", namespace=space)
    assert found["spec"]["holderIdentity"] == winner
