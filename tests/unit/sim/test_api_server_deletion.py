"""What becomes of an object that is deleted: its grace, its finalizers, and what it owns?"""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.ports import (
    NODECLAIMS,
    NODES,
    PODS,
    Conflict,
    Create,
    Delete,
    Invalid,
    NotFound,
    Patch,
    Propagation,
    Resource,
)
from dovetail.sim.loop.virtual_loop import VirtualClock
from dovetail.sim.server.api_server import ApiServer
from dovetail.values.timestamp import format_time
from tests.harness.stage import PARAMETER, stage
from tests.unit.sim.test_api_server import (
    CLAIM,
    CONFIGMAPS,
    NOW,
    RAW,
    RAW_CLAIMS,
    RAW_NODES,
    RAW_PODS,
    START,
    pod,
    run,
    running_pod,
)

pytestmark = stage(run)

JOBS = Resource("batch", "v1", "jobs", "Job", RAW, namespaced=True)
FINALIZER = "karpenter.sh/termination"
JOB = {"metadata": {"name": "j"}, "spec": {"template": {"spec": {**pod()["spec"], "restartPolicy": "Never"}}}}


def at(seconds: int) -> str:
    return format_time((START + timedelta(seconds=seconds)).replace(microsecond=0))


async def gone(server: ApiServer, resource: Resource[Any], name: str, namespace: str | None = None) -> bool:
    try:
        await server.get(resource, name, namespace=namespace)
    except NotFound:
        return True
    return False


async def deletion_of(server: ApiServer, name: str = "web-1") -> tuple[Any, Any]:
    meta = (await server.get(RAW_PODS, name, namespace="default"))["metadata"]
    return meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")


# -- finalizers and preconditions -------------------------------------------------------------------------------------


async def test_without_finalizers_an_object_goes_at_once(server: ApiServer) -> None:
    await server.write(Create(NODES, {"metadata": {"name": "n"}}))
    await server.write(Delete(NODES, "n"))
    assert await gone(server, NODES, "n")
    with pytest.raises(NotFound):
        await server.write(Delete(NODES, "n"))


async def test_finalizers_hold_an_object_until_the_last_is_removed(server: ApiServer, clock: VirtualClock) -> None:
    await server.write(
        Create(NODECLAIMS, CLAIM | {"metadata": {"name": "c", "finalizers": [FINALIZER, "example.com/x"]}})
    )
    await server.write(Delete(NODECLAIMS, "c"))
    meta = (await server.get(RAW_CLAIMS, "c"))["metadata"]
    assert (meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"], meta["generation"]) == (NOW, 0, 2)
    await clock.sleep(60)
    await server.write(Delete(NODECLAIMS, "c"))  # again: nothing changes
    assert (await server.get(RAW_CLAIMS, "c"))["metadata"] == meta
    await server.write(Patch(NODECLAIMS, "c", {"metadata": {"deletionTimestamp": None, "finalizers": [FINALIZER]}}))
    assert (await server.get(RAW_CLAIMS, "c"))["metadata"]["deletionTimestamp"] == NOW
    last = await server.write(Patch(RAW_CLAIMS, "c", {"metadata": {"finalizers": []}}))
    assert "finalizers" not in last["metadata"]
    assert await gone(server, NODECLAIMS, "c")


async def test_a_deleting_object_takes_no_new_finalizer(server: ApiServer) -> None:
    await server.write(Create(NODES, {"metadata": {"name": "n", "finalizers": ["example.com/x"]}}))
    await server.write(Delete(NODES, "n"))
    with pytest.raises(Invalid, match="no new finalizers can be added if the object is being deleted"):
        await server.write(Patch(NODES, "n", {"metadata": {"finalizers": ["example.com/x", FINALIZER]}}))


async def test_removing_finalizers_of_a_living_object_does_not_delete_it(server: ApiServer) -> None:
    await server.write(Create(NODES, {"metadata": {"name": "n", "finalizers": ["example.com/x"]}}))
    node = await server.write(Patch(RAW_NODES, "n", {"metadata": {"finalizers": None}}))
    assert "finalizers" not in node["metadata"]


async def test_preconditions(server: ApiServer) -> None:
    made = await server.write(Create(NODES, {"metadata": {"name": "n"}}))
    with pytest.raises(Conflict, match=r"the UID in the precondition \(other\) does not match") as caught:
        await server.write(Delete(NODES, "n", uid="other"))
    assert caught.value.code == 409
    await server.write(Patch(NODES, "n", {"metadata": {"labels": {"a": "b"}}}))
    with pytest.raises(Conflict, match="the ResourceVersion in the precondition"):
        await server.write(Delete(NODES, "n", resource_version=made.metadata.resource_version))
    await server.write(Delete(NODES, "n", uid=made.metadata.uid))
    assert await gone(server, NODES, "n")


# -- pods -------------------------------------------------------------------------------------------------------------


async def test_a_running_pod_has_its_grace(server: ApiServer) -> None:
    before = await running_pod(server)
    await server.write(Delete(PODS, "web-1", namespace="default"))
    assert await deletion_of(server) == (at(30), 30)
    after = await server.get(RAW_PODS, "web-1", namespace="default")
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    await server.write(Delete(PODS, "web-1", namespace="default", grace_seconds=0))
    assert await gone(server, PODS, "web-1", "default")


async def test_a_second_delete_may_only_shorten(server: ApiServer, clock: VirtualClock) -> None:
    await running_pod(server)
    await server.write(Delete(PODS, "web-1", namespace="default", grace_seconds=60))
    assert await deletion_of(server) == (at(60), 60)
    await clock.sleep(10)
    for grace in (None, 60, 300):
        await server.write(Delete(PODS, "web-1", namespace="default", grace_seconds=grace))
        assert await deletion_of(server) == (at(60), 60)
    await server.write(Delete(PODS, "web-1", namespace="default", grace_seconds=25))
    assert await deletion_of(server) == (at(25), 25)  # counted from the first delete
    await server.write(Delete(PODS, "web-1", namespace="default", grace_seconds=5))
    assert await deletion_of(server) == (at(10), 1)  # would lie in the past: now, and one second to act


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_pod_goes_at_once(server: ApiServer, phase: str) -> None:
    await running_pod(server)
    await server.write(Patch(PODS, "web-1", {"status": {"phase": phase}}, namespace="default", subresource="status"))
    await server.write(Delete(PODS, "web-1", namespace="default", grace_seconds=60))
    assert await gone(server, PODS, "web-1", "default")


async def test_a_pod_without_a_node_goes_at_once(server: ApiServer) -> None:
    await server.write(Create(PODS, pod(), namespace="default"))
    await server.write(Delete(PODS, "web-1", namespace="default"))
    assert await gone(server, PODS, "web-1", "default")


async def test_a_negative_grace_is_one_second(server: ApiServer) -> None:
    await running_pod(server)
    await server.write(Delete(PODS, "web-1", namespace="default", grace_seconds=-5))
    assert await deletion_of(server) == (at(1), 1)


async def test_a_finalizer_holds_a_pod_beyond_its_grace(server: ApiServer) -> None:
    await running_pod(server, finalizers=["example.com/x"])
    await server.write(Delete(PODS, "web-1", namespace="default"))
    await server.write(Delete(PODS, "web-1", namespace="default", grace_seconds=0))
    assert await deletion_of(server) == (at(0), 0)
    await server.write(Patch(PODS, "web-1", {"metadata": {"finalizers": None}}, namespace="default"))
    assert await gone(server, PODS, "web-1", "default")


async def test_losing_its_finalizer_does_not_cut_a_pods_grace_short(server: ApiServer) -> None:
    await running_pod(server, finalizers=["example.com/x"])
    await server.write(Delete(PODS, "web-1", namespace="default"))
    await server.write(Patch(PODS, "web-1", {"metadata": {"finalizers": None}}, namespace="default"))
    assert await deletion_of(server) == (at(30), 30)


# -- garbage collection -----------------------------------------------------------------------------------------------


def owner(body: Any, kind: str = "ConfigMap", *, blocks: bool = True) -> dict[str, Any]:
    meta = body["metadata"]
    reference = {"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return {**reference, "blockOwnerDeletion": blocks}


async def made(server: ApiServer, name: str, *owners: dict[str, Any], **metadata: Any) -> Any:
    body = {"metadata": {"name": name, "ownerReferences": list(owners), **metadata}}
    return await server.write(Create(CONFIGMAPS, body, namespace="default"))


async def left(server: ApiServer, clock: VirtualClock) -> list[str]:
    await clock.sleep(1)
    return [item["metadata"]["name"] for item in (await server.list(CONFIGMAPS)).items]


async def delete(server: ApiServer, name: str, propagation: Propagation | None = None) -> None:
    await server.write(Delete(CONFIGMAPS, name, namespace="default", propagation=propagation))


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@stage(seed=PARAMETER)
async def test_dependents_go_with_their_owner(server: ApiServer, clock: VirtualClock) -> None:
    top = await made(server, "top")
    middle = await made(server, "middle", owner(top))
    await made(server, "bottom", owner(middle))
    await made(server, "other")
    await delete(server, "top")
    assert await left(server, clock) == ["other"]


async def test_one_owner_left_keeps_the_dependent(server: ApiServer, clock: VirtualClock) -> None:
    one, two = await made(server, "one"), await made(server, "two")
    await made(server, "child", owner(one), owner(two))
    await delete(server, "one")
    assert await left(server, clock) == ["child", "two"]
    child = await server.get(CONFIGMAPS, "child", namespace="default")
    assert [reference["name"] for reference in child["metadata"]["ownerReferences"]] == ["two"]
    await delete(server, "two")
    assert await left(server, clock) == []


async def test_a_dependent_of_nobody_goes(server: ApiServer, clock: VirtualClock) -> None:
    await made(server, "child", {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "no-such"})
    assert await left(server, clock) == []


async def test_foreground_waits_for_dependents_that_block(server: ApiServer, clock: VirtualClock) -> None:
    top = await made(server, "top")
    await made(server, "blocking", owner(top), finalizers=["example.com/x"])
    await made(server, "not-blocking", owner(top, blocks=False), finalizers=["example.com/x"])
    await made(server, "free", owner(top))
    await delete(server, "top", Propagation.FOREGROUND)
    held = await server.get(CONFIGMAPS, "top", namespace="default")
    assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert await left(server, clock) == ["blocking", "not-blocking", "top"]
    await server.write(Patch(CONFIGMAPS, "blocking", {"metadata": {"finalizers": None}}, namespace="default"))
    assert await left(server, clock) == ["not-blocking"]


async def test_foreground_reaches_down(server: ApiServer, clock: VirtualClock) -> None:
    top = await made(server, "top")
    middle = await made(server, "middle", owner(top))
    await made(server, "bottom", owner(middle), finalizers=["example.com/x"])
    await delete(server, "top", Propagation.FOREGROUND)
    assert await left(server, clock) == ["bottom", "middle", "top"]
    await server.write(Patch(CONFIGMAPS, "bottom", {"metadata": {"finalizers": None}}, namespace="default"))
    assert await left(server, clock) == []


async def test_orphans_stay_without_their_reference(server: ApiServer, clock: VirtualClock) -> None:
    top = await made(server, "top")
    await made(server, "child", owner(top))
    await delete(server, "top", Propagation.ORPHAN)
    assert await left(server, clock) == ["child"]
    child = await server.get(CONFIGMAPS, "child", namespace="default")
    assert "ownerReferences" not in child["metadata"]


async def test_a_job_deleted_without_a_policy_orphans_its_pods(server: ApiServer, clock: VirtualClock) -> None:
    job = await server.write(Create(JOBS, JOB, namespace="default"))
    await running_pod(server, ownerReferences=[{**owner(job, "Job"), "apiVersion": "batch/v1"}])
    await server.write(Delete(JOBS, "j", namespace="default"))
    await clock.sleep(1)
    assert await gone(server, JOBS, "j", "default")
    assert not await gone(server, PODS, "web-1", "default")


async def test_collected_pods_have_their_grace(server: ApiServer, clock: VirtualClock) -> None:
    top = await made(server, "top")
    await running_pod(server, ownerReferences=[owner(top)])
    await delete(server, "top")
    await clock.sleep(1)
    assert await deletion_of(server) == (at(30), 30)
