"""What does a deletion do: finalizers, the grace of pods, preconditions, and what becomes of the owned?"""

from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.ports import (
    AlreadyExists,
    Conflict,
    Create,
    Delete,
    Evict,
    Forbidden,
    Invalid,
    NotFound,
    Patch,
    Propagation,
    Resource,
)
from dovetail.values.timestamp import parse_time
from tests.contract.backends import Cluster
from tests.contract.bodies import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    FINALIZER,
    JOBS,
    NAMESPACES,
    NODECLAIMS,
    NODES,
    OTHER_UID,
    PODS,
    REPLICASETS,
    config_map,
    ends_after,
    nodeclaim,
    owned_by,
    parked,
    pod,
    pod_spec,
    workload,
)


def close(found: str, expected: datetime, cluster: Cluster) -> bool:
    """Whether the time is as expected: to the second in virtual time, within a few in real time."""
    return abs(parse_time(found) - expected.replace(microsecond=0)) <= timedelta(seconds=0 if cluster.exact else 3)


# -- at once, and with preconditions -----------------------------------------------------------------------------------


async def test_what_nothing_holds_goes_at_once(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    await cluster.api.write(Delete(CONFIG_MAPS, "a", namespace=space))
    with pytest.raises(NotFound):
        await cluster.api.get(CONFIG_MAPS, "a", namespace=space)
    with pytest.raises(NotFound):
        await cluster.api.write(Delete(CONFIG_MAPS, "a", namespace=space))


async def test_the_same_name_is_another_object(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    first = await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    await cluster.api.write(Delete(CONFIG_MAPS, "a", namespace=space))
    second = await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_preconditions_of_a_deletion(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    uid, seen = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    await cluster.api.write(Patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace=space))
    with pytest.raises(Conflict, match="the UID in the precondition") as caught:
        await cluster.api.write(Delete(CONFIG_MAPS, "a", namespace=space, uid=OTHER_UID))
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    with pytest.raises(Conflict, match="the ResourceVersion in the precondition"):
        await cluster.api.write(Delete(CONFIG_MAPS, "a", namespace=space, uid=uid, resource_version=seen))
    now = (await cluster.api.get(CONFIG_MAPS, "a", namespace=space))["metadata"]["resourceVersion"]
    await cluster.api.write(Delete(CONFIG_MAPS, "a", namespace=space, uid=uid, resource_version=now))
    assert await cluster.find(CONFIG_MAPS, "a", namespace=space) is None


async def test_preconditions_of_a_pods_deletion(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    made = await cluster.api.write(Create(PODS, parked("a"), namespace=space))
    with pytest.raises(Conflict):
        await cluster.api.write(Delete(PODS, "a", namespace=space, uid=OTHER_UID))
    with pytest.raises(Conflict):
        await cluster.api.write(Delete(PODS, "a", namespace=space, uid=OTHER_UID, grace_seconds=0))
    assert "deletionTimestamp" not in (await cluster.api.get(PODS, "a", namespace=space))["metadata"]
    await cluster.api.write(Delete(PODS, "a", namespace=space, uid=made["metadata"]["uid"], grace_seconds=0))
    assert await cluster.find(PODS, "a", namespace=space) is None


# -- finalizers --------------------------------------------------------------------------------------------------------


async def held(cluster: Cluster, *more: str) -> str:
    """A NodeClaim that is being deleted and is held by finalizers."""
    name = cluster.unique("claim")
    await cluster.make(NODECLAIMS, nodeclaim(name, finalizers=[FINALIZER, *more]))
    await cluster.api.write(Delete(NODECLAIMS, name))
    return name


async def test_a_finalizer_keeps_the_object(cluster: Cluster) -> None:
    meta = (await cluster.api.get(NODECLAIMS, await held(cluster)))["metadata"]
    assert close(meta["deletionTimestamp"], cluster.now(), cluster)
    assert (meta["deletionGracePeriodSeconds"], meta["finalizers"], meta["generation"]) == (0, [FINALIZER], 2)


async def test_the_time_of_deletion_is_that_of_the_first(cluster: Cluster) -> None:
    name = await held(cluster)
    before = await cluster.api.get(NODECLAIMS, name)
    await cluster.settle(1.2)
    await cluster.api.write(Delete(NODECLAIMS, name))
    assert await cluster.api.get(NODECLAIMS, name) == before


async def test_without_its_last_finalizer_it_goes(cluster: Cluster) -> None:
    name = await held(cluster, "dovetail.dev/second")
    patched = await cluster.api.write(Patch(NODECLAIMS, name, {"metadata": {"finalizers": [FINALIZER]}}))
    assert patched["metadata"]["finalizers"] == [FINALIZER]
    last = await cluster.api.write(Patch(NODECLAIMS, name, {"metadata": {"finalizers": None}}))
    assert (last["metadata"]["name"], "finalizers" in last["metadata"]) == (name, False)
    assert await cluster.find(NODECLAIMS, name) is None


async def test_an_empty_list_of_finalizers_lets_it_go_too(cluster: Cluster) -> None:
    name = await held(cluster)
    await cluster.api.write(Patch(NODECLAIMS, name, {"metadata": {"finalizers": []}}))
    assert await cluster.find(NODECLAIMS, name) is None


async def test_no_finalizer_is_added_to_what_is_being_deleted(cluster: Cluster) -> None:
    name = await held(cluster)
    body = {"metadata": {"finalizers": [FINALIZER, "dovetail.dev/late"]}}
    with pytest.raises(Invalid, match=r"metadata\.finalizers: Forbidden: no new finalizers can be added"):
        await cluster.api.write(Patch(NODECLAIMS, name, body))


async def test_finalizers_removed_from_what_is_not_being_deleted(cluster: Cluster) -> None:
    name = cluster.unique("claim")
    await cluster.make(NODECLAIMS, nodeclaim(name, finalizers=[FINALIZER]))
    patched = await cluster.api.write(Patch(NODECLAIMS, name, {"metadata": {"finalizers": None}}))
    assert "finalizers" not in patched["metadata"]
    assert await cluster.find(NODECLAIMS, name) is not None


async def test_what_is_being_deleted_can_be_changed(cluster: Cluster) -> None:
    name = await held(cluster)
    patched = await cluster.api.write(Patch(NODECLAIMS, name, {"metadata": {"labels": {"a": "b"}}}))
    assert patched["metadata"]["labels"] == {"a": "b"}
    patched = await cluster.api.write(Patch(NODECLAIMS, name, {"status": {"nodeName": "x"}}, subresource="status"))
    assert patched["status"]["nodeName"] == "x"


async def test_what_is_being_deleted_holds_its_name(cluster: Cluster) -> None:
    name = await held(cluster)
    with pytest.raises(AlreadyExists, match=r"^object is being deleted: nodeclaims"):
        await cluster.api.write(Create(NODECLAIMS, nodeclaim(name)))


async def test_a_stale_removal_of_the_last_finalizer_is_a_conflict(cluster: Cluster) -> None:
    name = await held(cluster)
    seen = (await cluster.api.get(NODECLAIMS, name))["metadata"]["resourceVersion"]
    await cluster.api.write(Patch(NODECLAIMS, name, {"metadata": {"labels": {"a": "b"}}}))
    with pytest.raises(Conflict):
        await cluster.api.write(Patch(NODECLAIMS, name, {"metadata": {"finalizers": None, "resourceVersion": seen}}))
    assert await cluster.find(NODECLAIMS, name) is not None


async def test_the_status_removes_no_finalizer(cluster: Cluster) -> None:
    name = await held(cluster)
    body = {"metadata": {"finalizers": None}, "status": {"nodeName": "x"}}
    patched = await cluster.api.write(Patch(NODECLAIMS, name, body, subresource="status"))
    assert patched["metadata"]["finalizers"] == [FINALIZER]


# -- pods and their grace ----------------------------------------------------------------------------------------------


async def leaving(cluster: Cluster, space: str, name: str = "a", **options: Any) -> dict[str, Any]:
    await cluster.api.write(Delete(PODS, name, namespace=space, **options))
    return dict((await cluster.api.get(PODS, name, namespace=space))["metadata"])


async def test_a_deleted_pod_has_the_grace_of_its_spec(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(PODS, parked("a", grace=45), namespace=space))
    meta = await leaving(cluster, space)
    assert meta["deletionGracePeriodSeconds"] == 45
    assert close(meta["deletionTimestamp"], cluster.now() + timedelta(seconds=45), cluster)
    assert meta["generation"] == 2


async def test_a_deleted_pod_has_the_grace_asked_for(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(PODS, parked("a", grace=45), namespace=space))
    meta = await leaving(cluster, space, grace_seconds=90)
    assert meta["deletionGracePeriodSeconds"] == 90
    assert close(meta["deletionTimestamp"], cluster.now() + timedelta(seconds=90), cluster)


async def test_a_second_deletion_shortens_the_grace(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(PODS, parked("a", grace=45), namespace=space))
    first = await leaving(cluster, space)
    second = await leaving(cluster, space, grace_seconds=20)
    assert second["deletionGracePeriodSeconds"] == 20
    earlier = parse_time(first["deletionTimestamp"]) - parse_time(second["deletionTimestamp"])
    assert earlier == timedelta(seconds=25)
    assert second["generation"] == first["generation"]


@pytest.mark.parametrize("grace", [45, 46, 3600, None])
async def test_a_second_deletion_never_lengthens_the_grace(cluster: Cluster, grace: int | None) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(PODS, parked("a", grace=60), namespace=space))
    first = await leaving(cluster, space, grace_seconds=45)
    assert await leaving(cluster, space, grace_seconds=grace) == first


async def test_a_second_deletion_after_its_shorter_grace_has_passed(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(PODS, parked("a", grace=45), namespace=space))
    await leaving(cluster, space)
    await cluster.settle(3)
    second = await leaving(cluster, space, grace_seconds=1)
    assert second["deletionGracePeriodSeconds"] == 1
    assert close(second["deletionTimestamp"], cluster.now(), cluster)


async def test_no_grace_ends_a_pod_at_once(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for name in ("a", "b"):
        await cluster.api.write(Create(PODS, parked(name), namespace=space))
    await cluster.api.write(Delete(PODS, "a", namespace=space, grace_seconds=0))
    assert await cluster.find(PODS, "a", namespace=space) is None
    await leaving(cluster, space, "b")
    await cluster.api.write(Delete(PODS, "b", namespace=space, grace_seconds=0))
    assert await cluster.find(PODS, "b", namespace=space) is None


async def test_a_pod_of_no_node_ends_at_once(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(PODS, pod("a", "none-" + space), namespace=space))
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    assert await cluster.find(PODS, "a", namespace=space) is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_goes_at_once(cluster: Cluster, phase: str) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(PODS, parked("a"), namespace=space))
    await cluster.api.write(Patch(PODS, "a", {"status": {"phase": phase}}, namespace=space, subresource="status"))
    await cluster.api.write(Delete(PODS, "a", namespace=space))
    assert await cluster.find(PODS, "a", namespace=space) is None


async def test_a_negative_grace_is_one_second(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(PODS, parked("a"), namespace=space))
    assert (await leaving(cluster, space, grace_seconds=-1))["deletionGracePeriodSeconds"] == 1


async def test_a_finalizer_keeps_a_pod_after_its_grace(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    body = parked("a")
    body["metadata"]["finalizers"] = [FINALIZER]
    await cluster.api.write(Create(PODS, body, namespace=space))
    await leaving(cluster, space)
    meta = await leaving(cluster, space, grace_seconds=0)
    assert (meta["deletionGracePeriodSeconds"], meta["finalizers"]) == (0, [FINALIZER])
    await cluster.api.write(Patch(PODS, "a", {"metadata": {"finalizers": None}}, namespace=space))
    assert await cluster.find(PODS, "a", namespace=space) is None


async def test_a_pod_without_finalizers_still_has_its_grace(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    body = parked("a", grace=30)
    body["metadata"]["finalizers"] = [FINALIZER]
    await cluster.api.write(Create(PODS, body, namespace=space))
    await leaving(cluster, space)
    await cluster.api.write(Patch(PODS, "a", {"metadata": {"finalizers": None}}, namespace=space))
    assert await cluster.find(PODS, "a", namespace=space) is not None


# -- the owned ---------------------------------------------------------------------------------------------------------


async def owned(cluster: Cluster, space: str, **reference: Any) -> None:
    """`owner` owns `child`, which owns `grandchild`."""
    owner = await cluster.api.write(Create(CONFIG_MAPS, config_map("owner"), namespace=space))
    body = config_map("child")
    body["metadata"]["ownerReferences"] = [owned_by(owner, CONFIG_MAPS, **reference)]
    child = await cluster.api.write(Create(CONFIG_MAPS, body, namespace=space))
    body = config_map("grandchild")
    body["metadata"]["ownerReferences"] = [owned_by(child, CONFIG_MAPS)]
    await cluster.api.write(Create(CONFIG_MAPS, body, namespace=space))
    # The garbage collector sees things a little later.
    await cluster.settle(0.5)


async def test_what_is_owned_goes_after_its_owner(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await owned(cluster, space)
    await cluster.api.write(Delete(CONFIG_MAPS, "owner", namespace=space, propagation=Propagation.BACKGROUND))
    assert await cluster.find(CONFIG_MAPS, "owner", namespace=space) is None
    await cluster.wait_gone(CONFIG_MAPS, "child", namespace=space)
    await cluster.wait_gone(CONFIG_MAPS, "grandchild", namespace=space)


async def test_background_is_the_default(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await owned(cluster, space)
    await cluster.api.write(Delete(CONFIG_MAPS, "owner", namespace=space))
    await cluster.wait_gone(CONFIG_MAPS, "grandchild", namespace=space)


async def test_orphans_stay_and_forget_their_owner(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await owned(cluster, space)
    await cluster.api.write(Delete(CONFIG_MAPS, "owner", namespace=space, propagation=Propagation.ORPHAN))
    await cluster.wait_gone(CONFIG_MAPS, "owner", namespace=space)
    await cluster.settle(1)
    child = await cluster.api.get(CONFIG_MAPS, "child", namespace=space)
    assert "ownerReferences" not in child["metadata"]
    assert "deletionTimestamp" not in child["metadata"]


async def test_in_the_foreground_the_owner_waits_for_those_that_block_it(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await owned(cluster, space, blockOwnerDeletion=True)
    await cluster.api.write(Patch(CONFIG_MAPS, "child", {"metadata": {"finalizers": [FINALIZER]}}, namespace=space))
    await cluster.settle(0.5)
    await cluster.api.write(Delete(CONFIG_MAPS, "owner", namespace=space, propagation=Propagation.FOREGROUND))
    meta = (await cluster.api.get(CONFIG_MAPS, "owner", namespace=space))["metadata"]
    assert (meta["finalizers"], "deletionTimestamp" in meta) == (["foregroundDeletion"], True)
    await cluster.wait(CONFIG_MAPS, "child", lambda it: "deletionTimestamp" in it["metadata"], namespace=space)
    await cluster.settle(1)
    assert await cluster.find(CONFIG_MAPS, "owner", namespace=space) is not None
    await cluster.api.write(Patch(CONFIG_MAPS, "child", {"metadata": {"finalizers": None}}, namespace=space))
    await cluster.wait_gone(CONFIG_MAPS, "child", namespace=space)
    await cluster.wait_gone(CONFIG_MAPS, "owner", namespace=space)


async def test_in_the_foreground_others_are_not_waited_for(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await owned(cluster, space)
    await cluster.api.write(Patch(CONFIG_MAPS, "child", {"metadata": {"finalizers": [FINALIZER]}}, namespace=space))
    await cluster.settle(0.5)
    await cluster.api.write(Delete(CONFIG_MAPS, "owner", namespace=space, propagation=Propagation.FOREGROUND))
    await cluster.wait_gone(CONFIG_MAPS, "owner", namespace=space)
    await cluster.wait(CONFIG_MAPS, "child", lambda it: "deletionTimestamp" in it["metadata"], namespace=space)
    await cluster.api.write(Patch(CONFIG_MAPS, "child", {"metadata": {"finalizers": None}}, namespace=space))


async def test_what_never_had_its_owner_goes(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    gone = {"metadata": {"name": "none", "uid": OTHER_UID}}
    body = config_map("child")
    body["metadata"]["ownerReferences"] = [owned_by(gone, CONFIG_MAPS)]
    await cluster.api.write(Create(CONFIG_MAPS, body, namespace=space))
    await cluster.wait_gone(CONFIG_MAPS, "child", namespace=space)


async def test_one_of_two_owners_is_enough(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    owners = [
        await cluster.api.write(Create(CONFIG_MAPS, config_map(name), namespace=space)) for name in ("one", "two")
    ]
    body = config_map("child")
    body["metadata"]["ownerReferences"] = [owned_by(owner, CONFIG_MAPS) for owner in owners]
    await cluster.api.write(Create(CONFIG_MAPS, body, namespace=space))
    await cluster.settle(0.5)
    await cluster.api.write(Delete(CONFIG_MAPS, "one", namespace=space))
    left = await cluster.wait(
        CONFIG_MAPS, "child", lambda it: len(it["metadata"]["ownerReferences"]) == 1, namespace=space
    )
    assert left["metadata"]["ownerReferences"][0]["name"] == "two"
    await cluster.api.write(Delete(CONFIG_MAPS, "two", namespace=space))
    await cluster.wait_gone(CONFIG_MAPS, "child", namespace=space)


async def test_a_cluster_wide_owner_of_something_in_a_namespace(cluster: Cluster) -> None:
    space, name = await cluster.new_namespace(), cluster.unique("node")
    owner = await cluster.make(NODES, {"metadata": {"name": name}})
    body = config_map("child")
    body["metadata"]["ownerReferences"] = [owned_by(owner, NODES)]
    await cluster.api.write(Create(CONFIG_MAPS, body, namespace=space))
    await cluster.settle(1)
    assert await cluster.find(CONFIG_MAPS, "child", namespace=space) is not None
    await cluster.api.write(Delete(NODES, name))
    await cluster.wait_gone(CONFIG_MAPS, "child", namespace=space)


async def test_a_claim_takes_its_node_with_it(cluster: Cluster) -> None:
    name = cluster.unique("claim")
    owner = await cluster.make(NODECLAIMS, nodeclaim(name))
    body = {"metadata": {"name": name, "ownerReferences": [owned_by(owner, NODECLAIMS)], "finalizers": [FINALIZER]}}
    await cluster.make(NODES, body)
    await cluster.api.write(Delete(NODECLAIMS, name))
    # The garbage collector learns of our kinds some time after they are defined.
    await cluster.wait(NODES, name, lambda it: "deletionTimestamp" in it["metadata"], timeout=45)


async def listed(cluster: Cluster, resource: Resource[dict[str, Any]], space: str) -> list[dict[str, Any]]:
    return list((await cluster.api.list(resource, namespace=space)).items)


async def test_a_deleted_deployment_takes_everything_with_it(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(DEPLOYMENTS, workload("a", "none-" + space, replicas=2), namespace=space))
    await cluster.eventually(lambda: listed(cluster, PODS, space), lambda found: len(found) == 2)
    await cluster.api.write(Delete(DEPLOYMENTS, "a", namespace=space))
    await cluster.eventually(lambda: listed(cluster, REPLICASETS, space), lambda found: not found)
    await cluster.eventually(lambda: listed(cluster, PODS, space), lambda found: not found)


async def test_an_orphaning_deployment_leaves_its_replica_set(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(DEPLOYMENTS, workload("a", "none-" + space, replicas=1), namespace=space))
    await cluster.eventually(lambda: listed(cluster, PODS, space), lambda found: len(found) == 1)
    await cluster.settle(0.5)
    await cluster.api.write(Delete(DEPLOYMENTS, "a", namespace=space, propagation=Propagation.ORPHAN))
    await cluster.wait_gone(DEPLOYMENTS, "a", namespace=space)
    await cluster.settle(1)
    (left,) = await listed(cluster, REPLICASETS, space)
    assert "ownerReferences" not in left["metadata"]
    assert len(await listed(cluster, PODS, space)) == 1


async def test_a_deleted_job_leaves_its_pods(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    template = {"spec": pod_spec("none-" + space, restartPolicy="Never")}
    await cluster.api.write(Create(JOBS, {"metadata": {"name": "a"}, "spec": {"template": template}}, namespace=space))
    await cluster.eventually(lambda: listed(cluster, PODS, space), lambda found: len(found) == 1)
    await cluster.settle(0.5)
    await cluster.api.write(Delete(JOBS, "a", namespace=space))
    await cluster.wait_gone(JOBS, "a", namespace=space)
    await cluster.settle(1)
    (left,) = await listed(cluster, PODS, space)
    assert "ownerReferences" not in left["metadata"]


# -- namespaces --------------------------------------------------------------------------------------------------------


async def test_a_deleted_namespace_waits_for_what_is_in_it(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for name, held_by in (("a", []), ("b", [FINALIZER])):
        body = {"metadata": {"name": name, "finalizers": held_by}}
        await cluster.api.write(Create(CONFIG_MAPS, body, namespace=space))
    await cluster.api.write(Delete(NAMESPACES, space))
    found = await cluster.api.get(NAMESPACES, space)
    assert (found["status"]["phase"], "deletionTimestamp" in found["metadata"]) == ("Terminating", True)
    with pytest.raises(Forbidden, match="because it is being terminated"):
        await cluster.api.write(Create(CONFIG_MAPS, config_map("c"), namespace=space))
    await cluster.wait_gone(CONFIG_MAPS, "a", namespace=space)
    await cluster.wait(CONFIG_MAPS, "b", lambda it: "deletionTimestamp" in it["metadata"], namespace=space)
    await cluster.api.write(Patch(CONFIG_MAPS, "b", {"metadata": {"finalizers": None}}, namespace=space))
    await cluster.wait_gone(NAMESPACES, space, timeout=40)


async def test_nothing_new_comes_into_a_namespace_that_goes(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    await cluster.api.write(Create(PODS, parked("b"), namespace=space))
    await cluster.api.write(Delete(NAMESPACES, space))
    why = f"is forbidden: unable to create new content in namespace {space} because it is being terminated"
    with pytest.raises(Forbidden, match=f'configmaps "c" {why}') as caught:
        await cluster.api.write(Create(CONFIG_MAPS, config_map("c"), namespace=space))
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    with pytest.raises(Forbidden, match=f'pods "d-" {why}'):
        await cluster.api.write(Create(PODS, pod("") | {"metadata": {"generateName": "d-"}}, namespace=space))
    # Evictions and bindings are created too.
    with pytest.raises(Forbidden, match=f'pods "b" {why}'):
        await cluster.api.write(Evict("b", namespace=space))
    # What is there can still be changed, and the namespace be deleted once more, but not made anew.
    patched = await cluster.api.write(Patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace=space))
    assert patched["data"] == {"x": "1"}
    await cluster.api.write(Delete(NAMESPACES, space))
    with pytest.raises(AlreadyExists, match=f'^object is being deleted: namespaces "{space}" already exists$'):
        await cluster.api.write(Create(NAMESPACES, {"metadata": {"name": space}}))


async def test_the_pods_of_a_namespace_go_before_the_rest(cluster: Cluster) -> None:
    space, on = await cluster.new_namespace(), await cluster.add_node()
    await cluster.api.write(Create(CONFIG_MAPS, config_map("a"), namespace=space))
    body = pod("b", on, grace=3, annotations=ends_after("2s"))
    await cluster.api.write(Create(PODS, body, namespace=space))
    await cluster.api.write(Create(DEPLOYMENTS, workload("c", on, replicas=1), namespace=space))
    await cluster.wait(PODS, "b", lambda it: it["status"]["phase"] == "Running", namespace=space)
    await cluster.api.write(Delete(NAMESPACES, space))
    left = await cluster.wait(PODS, "b", lambda it: "deletionTimestamp" in it["metadata"], namespace=space)
    assert (left["metadata"]["deletionGracePeriodSeconds"], left["status"]["phase"]) == (3, "Running")
    assert "deletionTimestamp" not in (await cluster.api.get(CONFIG_MAPS, "a", namespace=space))["metadata"]
    await cluster.wait_gone(NAMESPACES, space, timeout=40)
    for resource in (PODS, CONFIG_MAPS, DEPLOYMENTS, REPLICASETS):
        assert await listed(cluster, resource, space) == []


async def test_a_namespace_with_a_finalizer_of_its_own(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await cluster.api.write(Patch(NAMESPACES, space, {"metadata": {"finalizers": [FINALIZER]}}))
    await cluster.api.write(Delete(NAMESPACES, space))
    found = await cluster.wait(NAMESPACES, space, lambda it: not it["spec"].get("finalizers"))
    assert (found["status"]["phase"], found["metadata"]["finalizers"]) == ("Terminating", [FINALIZER])
    await cluster.api.write(Patch(NAMESPACES, space, {"metadata": {"finalizers": None}}))
    assert await cluster.find(NAMESPACES, space) is None


@pytest.mark.parametrize("name", ["default", "kube-public", "kube-system"])
async def test_a_namespace_that_every_cluster_has_stays(cluster: Cluster, name: str) -> None:
    with pytest.raises(Forbidden, match=f'^namespaces "{name}" is forbidden: this namespace may not be deleted$'):
        await cluster.api.write(Delete(NAMESPACES, name))


async def test_a_namespace_is_active(cluster: Cluster) -> None:
    found = await cluster.api.get(NAMESPACES, await cluster.new_namespace())
    assert found["status"]["phase"] == "Active"
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": found["metadata"]["name"]}
