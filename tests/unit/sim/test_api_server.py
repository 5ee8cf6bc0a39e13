"""Does the simulated API server create, read, list and change objects as the real one does?"""

import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.api import objects
from dovetail.ports import (
    EVENTS,
    LEASES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PODS,
    AlreadyExists,
    ApiError,
    Conflict,
    Create,
    Delete,
    Gone,
    InternalError,
    Invalid,
    NotFound,
    Patch,
    Resource,
)
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.kinds import BINDINGS, NAMESPACES
from tests.harness.stage import gives, stage

START = datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC)
NOW = "2026-03-01T12:00:00Z"
RAW = dict[str, Any]
RAW_PODS, RAW_NODES, RAW_PDBS = PODS.read_as(RAW), NODES.read_as(RAW), PDBS.read_as(RAW)
RAW_POOLS, RAW_CLAIMS = NODEPOOLS.read_as(RAW), NODECLAIMS.read_as(RAW)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", RAW, namespaced=True)
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap", RAW, namespaced=True)
REF = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
POOL = {"metadata": {"name": "default"}, "spec": {"template": {"spec": {"nodeClassRef": REF, "requirements": []}}}}
CLAIM = {"metadata": {"name": "claim-1"}, "spec": {"nodeClassRef": REF, "requirements": []}}


@gives("server", "clock")
def run(main: Callable[[ApiServer, VirtualClock], Awaitable[Any]], seed: int | None = None) -> Any:
    """Run a test on a server of its own."""

    async def on(clock: VirtualClock) -> Any:
        return await main(ApiServer(clock), clock)

    return simulate(on, start=START, seed=seed)


pytestmark = stage(run)


def pod(name: str = "web-1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "main", "image": "web"}]}}


async def running_pod(server: ApiServer, name: str = "web-1", *, ready: bool = True, **metadata: Any) -> Any:
    """A pod that is bound to node-1 and runs."""
    await server.write(Create(RAW_PODS, pod(name, **metadata), namespace="default"))
    await server.write(
        Create(BINDINGS, {"metadata": {"name": name}, "target": {"name": "node-1"}}, namespace="default")
    )
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "conditions": conditions}
    return await server.write(Patch(RAW_PODS, name, {"status": status}, namespace="default", subresource="status"))


# -- creating ---------------------------------------------------------------------------------------------------------


async def test_what_the_server_fills_in(server: ApiServer) -> None:
    claim = await server.write(Create(RAW_CLAIMS, CLAIM))
    meta = claim["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", meta["uid"])
    assert (meta["creationTimestamp"], meta["generation"]) == (NOW, 1)
    assert meta["resourceVersion"].isdecimal()
    assert (claim["apiVersion"], claim["kind"]) == ("karpenter.sh/v1", "NodeClaim")
    assert claim["spec"]["expireAfter"] == "720h"


async def test_a_pod_starts_out_pending_with_defaults(server: ApiServer) -> None:
    asked = pod() | {"status": {"phase": "Running"}}
    made = await server.write(Create(RAW_PODS, asked, namespace="default"))
    assert made["status"] == {"phase": "Pending"}
    spec = made["spec"]
    assert (spec["terminationGracePeriodSeconds"], spec["restartPolicy"], spec["priority"]) == (30, "Always", 0)
    assert [(t["key"], t["tolerationSeconds"]) for t in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]
    assert made["metadata"]["generation"] == 1
    assert made["metadata"]["namespace"] == "default"


async def test_a_node_is_created_with_its_status_and_the_not_ready_taint(server: ApiServer) -> None:
    status = {"capacity": {"cpu": "4"}}
    node = await server.write(Create(RAW_NODES, {"metadata": {"name": "n"}, "status": status}))
    assert (node["status"]["capacity"], node["status"]["allocatable"]) == ({"cpu": "4"}, {"cpu": "4"})
    assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert "generation" not in node["metadata"]


async def test_the_status_of_a_new_custom_resource_is_dropped(server: ApiServer) -> None:
    assert "status" not in await server.write(Create(RAW_CLAIMS, CLAIM | {"status": {"nodeName": "n"}}))


async def fifty_generated_names(server: ApiServer, _clock: VirtualClock) -> list[str]:
    body = pod() | {"metadata": {"generateName": "web-"}}
    pods = [await server.write(Create(RAW_PODS, body, namespace="default")) for _ in range(50)]
    return [each["metadata"]["name"] for each in pods]


def test_generated_names_are_new_and_the_same_in_every_run() -> None:
    names = run(fifty_generated_names)
    assert all(re.fullmatch(r"web-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)
    assert len(set(names)) == 50
    assert names == run(fifty_generated_names)


async def test_a_long_generate_name_is_cut_to_63_characters(server: ApiServer) -> None:
    made = await server.write(Create(RAW_PODS, pod() | {"metadata": {"generateName": "x" * 80}}, namespace="default"))
    assert len(made["metadata"]["name"]) == 63


async def refused(action: Awaitable[Any], kind: type[ApiError]) -> ApiError:
    with pytest.raises(kind) as caught:
        await action
    return caught.value


async def test_refusals_speak_as_the_server_does(server: ApiServer) -> None:
    await server.write(Create(PODS, pod(), namespace="default"))
    error = await refused(server.write(Create(PODS, pod(), namespace="default")), AlreadyExists)
    assert (error.message, error.code, error.reason) == ('pods "web-1" already exists', 409, "AlreadyExists")
    error = await refused(server.get(NODECLAIMS, "x"), NotFound)
    assert (error.message, error.code) == ('nodeclaims.karpenter.sh "x" not found', 404)
    error = await refused(server.write(Create(PODS, pod(), namespace="nowhere")), NotFound)
    assert error.message == 'namespaces "nowhere" not found'
    error = await refused(server.write(Create(PODS, pod(namespace="other"), namespace="default")), Invalid)
    assert (error.code, "does not match the namespace" in error.message) == (400, True)
    error = await refused(server.write(Create(PODS, pod(resourceVersion="5"), namespace="default")), InternalError)
    assert error.message == "resourceVersion should not be set on objects to be created"
    error = await refused(server.write(Create(PODS, pod("Web_1"), namespace="default")), Invalid)
    assert error.code == 422
    assert error.message.startswith('Pod "Web_1" is invalid: metadata.name: Invalid value: "Web_1": a lowercase RFC')
    error = await refused(server.write(Create(PODS, {"spec": pod()["spec"]}, namespace="default")), Invalid)
    assert "metadata.name: Required value: name or generateName is required" in error.message
    error = await refused(server.write(Create(NODECLAIMS, CLAIM | {"kind": "NodePool"})), Invalid)
    assert (error.code, 'kind: Invalid value: "NodePool"' in error.message) == (422, True)
    error = await refused(server.write(Create(PODS, pod() | {"kind": "Node"}, namespace="default")), Invalid)
    assert error.code == 400


async def test_a_namespace_can_be_made(server: ApiServer) -> None:
    made = await server.write(Create(NAMESPACES, {"metadata": {"name": "team-a"}}))
    assert made["status"] == {"phase": "Active"}
    await server.write(Create(PODS, pod(), namespace="team-a"))
    assert (await server.get(PODS, "web-1", namespace="team-a")).metadata.namespace == "team-a"


async def test_unknown_kinds_are_stored_generically(server: ApiServer) -> None:
    widgets = Resource("example.com", "v1", "widgets", "Widget", RAW, namespaced=True)
    made = await server.write(
        Create(widgets, {"metadata": {"name": "w"}, "spec": {"a": {"b": [1]}}}, namespace="default")
    )
    assert (made["spec"], made["metadata"]["generation"]) == ({"a": {"b": [1]}}, 1)
    await server.write(Create(CONFIGMAPS, {"metadata": {"name": "c"}, "data": {"a": "b"}}, namespace="default"))
    assert (await server.get(CONFIGMAPS, "c", namespace="default"))["data"] == {"a": "b"}


# -- what is handed out is the reader's own ---------------------------------------------------------------------------


async def test_nothing_handed_out_or_taken_in_is_shared_with_the_store(server: ApiServer) -> None:
    body = pod(labels={"app": "web"})
    made = await server.write(Create(RAW_PODS, body, namespace="default"))
    body["spec"]["containers"][0]["image"] = made["metadata"]["labels"]["app"] = "changed"
    got = await server.get(RAW_PODS, "web-1", namespace="default")
    assert got["spec"]["containers"][0]["image"] == got["metadata"]["labels"]["app"] == "web"
    got["metadata"]["labels"].clear()
    (listed,) = (await server.list(RAW_PODS)).items
    assert listed["metadata"]["labels"] == {"app": "web"}


class HalfTyped(msgspec.Struct):
    metadata: dict[str, Any]


async def test_structs_with_untyped_parts_share_nothing_either(server: ApiServer) -> None:
    await server.write(Create(PODS, pod(labels={"app": "web"}), namespace="default"))
    half = PODS.read_as(HalfTyped)
    (await server.get(half, "web-1", namespace="default")).metadata["labels"].clear()
    assert (await server.get(PODS, "web-1", namespace="default")).metadata.labels == {"app": "web"}


async def test_typed_reads(server: ApiServer) -> None:
    made = await server.write(Create(PODS, pod(labels={"app": "web"}), namespace="default"))
    assert isinstance(made, objects.Pod)
    assert (made.metadata.name, made.status.phase) == ("web-1", "Pending")
    assert made.metadata.creation_timestamp == START.replace(microsecond=0)


# -- listing ----------------------------------------------------------------------------------------------------------


async def names(server: ApiServer, **options: Any) -> list[str]:
    return [item["metadata"]["name"] for item in (await server.list(RAW_PODS, **options)).items]


async def test_lists_are_sorted_and_selected(server: ApiServer) -> None:
    await server.write(Create(NAMESPACES, {"metadata": {"name": "a"}}))
    for name, tier in (("c", "web"), ("a", "db"), ("b", "web")):
        await server.write(Create(PODS, pod(name, labels={"tier": tier, "x": name}), namespace="default"))
    await server.write(Create(PODS, pod("z"), namespace="a"))
    assert await names(server) == ["z", "a", "b", "c"]
    assert await names(server, namespace="default") == ["a", "b", "c"]
    assert await names(server, labels="tier=web") == ["b", "c"]
    assert await names(server, labels="tier!=web") == ["z", "a"]
    assert await names(server, labels="tier in (web, db),x notin (c)") == ["a", "b"]
    assert await names(server, labels="!tier") == ["z"]
    assert await names(server, labels="tier,x==a") == ["a"]
    assert await names(server, fields="metadata.name=b") == ["b"]
    assert await names(server, fields="metadata.namespace!=default") == ["z"]
    assert await names(server, fields="spec.nodeName=,status.phase=Pending", labels="tier=db") == ["a"]


async def test_selectors_that_the_server_refuses(server: ApiServer) -> None:
    error = await refused(server.list(PODS, fields="spec.priority=1"), Invalid)
    assert (error.code, error.message) == (400, "field label not supported: spec.priority")
    for resource, fields in ((NODES, "spec.providerID=x"), (NODECLAIMS, "status.providerID=x")):
        assert (await refused(server.list(resource, fields=fields), Invalid)).code == 400
    assert (await refused(server.list(NODES, fields="metadata.namespace=x"), Invalid)).code == 400
    for labels in ("a=b=c", "a in b", "=x", "a,,b"):
        assert (await refused(server.list(PODS, labels=labels), Invalid)).code == 400


async def test_unschedulable_nodes_can_be_selected(server: ApiServer) -> None:
    await server.write(Create(NODES, {"metadata": {"name": "a"}}))
    await server.write(Create(NODES, {"metadata": {"name": "b"}, "spec": {"unschedulable": True}}))
    for value, name in (("false", "a"), ("true", "b")):
        page = await server.list(NODES, fields=f"spec.unschedulable={value}")
        assert [node.metadata.name for node in page.items] == [name]


async def test_pages_show_one_version(server: ApiServer) -> None:
    for number in range(5):
        await server.write(Create(PODS, pod(f"p{number}"), namespace="default"))
    first = await server.list(PODS, limit=2)
    await server.write(Delete(PODS, "p2", namespace="default"))
    await server.write(Create(PODS, pod("p9"), namespace="default"))
    second = await server.list(PODS, limit=2, continue_=first.continue_)
    third = await server.list(PODS, limit=2, continue_=second.continue_)
    pages = [[p.metadata.name for p in page.items] for page in (first, second, third)]
    assert pages == [["p0", "p1"], ["p2", "p3"], ["p4"]]
    assert len({page.resource_version for page in (first, second, third)}) == 1
    assert third.continue_ == ""


async def test_the_last_page_of_what_is_selected_may_be_empty(server: ApiServer) -> None:
    for name in ("a", "b", "c"):
        await server.write(Create(PODS, pod(name, labels={"x": "no" if name == "c" else "yes"}), namespace="default"))
    first = await server.list(PODS, limit=2, labels="x=yes", namespace="default")
    last = await server.list(PODS, limit=2, labels="x=yes", namespace="default", continue_=first.continue_)
    assert ([p.metadata.name for p in first.items], last.items, last.continue_) == (["a", "b"], [], "")


async def test_a_page_after_compaction_is_gone(server: ApiServer) -> None:
    for number in range(3):
        await server.write(Create(PODS, pod(f"p{number}"), namespace="default"))
    page = await server.list(PODS, limit=2)
    server.compact()
    error = await refused(server.list(PODS, limit=2, continue_=page.continue_), Gone)
    assert (error.code, error.reason) == (410, "Expired")
    assert (await refused(server.list(PODS, continue_="nonsense"), Invalid)).code == 400


async def test_undecodable_objects_are_counted(server: ApiServer) -> None:
    class Strict(msgspec.Struct):
        data: dict[str, int]

    for name, data in (("a", {"x": 1}), ("b", {"x": "text"})):
        await server.write(Create(CONFIGMAPS, {"metadata": {"name": name}, "data": data}, namespace="default"))
    page = await server.list(CONFIGMAPS.read_as(Strict))
    assert (len(page.items), page.undecodable) == (1, 1)


# -- changing ---------------------------------------------------------------------------------------------------------


async def test_generations_and_versions(server: ApiServer) -> None:
    async def change(body: dict[str, Any], subresource: str = "") -> tuple[int, bool]:
        before = await server.get(RAW_POOLS, "default")
        after = await server.write(Patch(RAW_POOLS, "default", body, subresource=subresource))
        moved = int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
        return after["metadata"]["generation"], moved

    await server.write(Create(NODEPOOLS, POOL))
    assert await change({"metadata": {"labels": {"a": "b"}}}) == (1, True)
    assert await change({"metadata": {"labels": {"a": "b"}}}) == (1, False)  # nothing changed, nothing written
    assert await change({"spec": {"weight": 5}}) == (2, True)
    assert await change({"spec": {"weight": 5}, "status": {"nodes": 7}}) == (2, False)  # status is ignored here
    assert await change({"status": {"nodes": 7}}, "status") == (2, True)
    assert await change({"spec": {"weight": 9}, "metadata": {"labels": {"c": "d"}}}, "status") == (2, False)
    assert await change({"metadata": {"generation": 99, "creationTimestamp": "2020-01-01T00:00:00Z"}}) == (2, False)


async def test_optimistic_locks(server: ApiServer) -> None:
    made = await server.write(Create(RAW_POOLS, POOL))
    version, uid = made["metadata"]["resourceVersion"], made["metadata"]["uid"]
    await server.write(Patch(NODEPOOLS, "default", {"metadata": {"resourceVersion": version}, "spec": {"weight": 1}}))
    stale = {"metadata": {"resourceVersion": version}, "spec": {"weight": 2}}
    error = await refused(server.write(Patch(NODEPOOLS, "default", stale)), Conflict)
    assert error.code == 409
    assert error.message == (
        'Operation cannot be fulfilled on nodepools.karpenter.sh "default": the object has been modified; please '
        "apply your changes to the latest version and try again"
    )
    assert (await refused(server.write(Patch(NODEPOOLS, "default", stale, subresource="status")), Conflict)).code == 409
    await server.write(Patch(NODEPOOLS, "default", {"metadata": {"uid": uid}, "spec": {"weight": 3}}))
    error = await refused(server.write(Patch(NODEPOOLS, "default", {"metadata": {"uid": "other"}})), Conflict)
    assert (error.code, "metadata.uid" in error.message) == (422, True)


async def test_the_status_of_a_custom_resource_takes_nothing_of_metadata_and_checks_no_uid(server: ApiServer) -> None:
    """The real server's quirk: it copies the stored metadata over the patched before it compares UIDs."""
    await server.write(Create(NODECLAIMS, CLAIM))
    patch = {"metadata": {"uid": "other", "labels": {"a": "b"}}, "status": {"nodeName": "n"}}
    changed = await server.write(Patch(RAW_CLAIMS, "claim-1", patch, subresource="status"))
    assert (changed["status"]["nodeName"], "labels" in changed["metadata"]) == ("n", False)


async def test_the_status_of_a_pod_takes_metadata_but_not_spec(server: ApiServer) -> None:
    await server.write(Create(PODS, pod(), namespace="default"))
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"priority": 9}, "status": {"phase": "Running"}}
    changed = await server.write(Patch(RAW_PODS, "web-1", patch, namespace="default", subresource="status"))
    assert changed["metadata"]["labels"] == {"a": "b"}
    assert (changed["spec"]["priority"], changed["status"]["phase"]) == (0, "Running")


async def test_names_and_identities_cannot_be_changed(server: ApiServer) -> None:
    await server.write(Create(PODS, pod(), namespace="default"))
    error = await refused(server.write(Patch(PODS, "web-1", {"metadata": {"name": "b"}}, namespace="default")), Invalid)
    assert (error.code, error.message) == (
        400,
        "the name of the object (b) does not match the name on the URL (web-1)",
    )


async def test_a_deletion_cannot_be_patched_in(server: ApiServer) -> None:
    await server.write(Create(PODS, pod(), namespace="default"))
    body = {"metadata": {"deletionTimestamp": NOW}}
    error = await refused(server.write(Patch(PODS, "web-1", body, namespace="default")), Invalid)
    assert "metadata.deletionTimestamp" in error.message
    assert "field is immutable" in error.message


async def test_subresources_that_are_not_there(server: ApiServer) -> None:
    await server.write(Create(NODECLAIMS, CLAIM))
    for resource, name, subresource in ((NODECLAIMS, "claim-1", "scale"), (NODECLAIMS, "claim-1", "nothing")):
        await refused(server.write(Patch(resource, name, {}, subresource=subresource)), NotFound)
    lease: dict[str, Any] = {"metadata": {"name": "l"}, "spec": {}}
    await server.write(Create(LEASES, lease, namespace="default"))
    await refused(server.write(Patch(LEASES, "l", {}, namespace="default", subresource="status")), NotFound)


async def test_scale(server: ApiServer) -> None:
    static = POOL | {"spec": {**POOL["spec"], "replicas": 3}}  # type: ignore[dict-item]
    await server.write(Create(NODEPOOLS, static))
    await server.write(Patch(NODEPOOLS, "default", {"status": {"nodes": 2}}, subresource="status"))
    scale = await server.write(Patch(RAW_POOLS, "default", {"spec": {"replicas": 5}}, subresource="scale"))
    assert (scale["kind"], scale["spec"], scale["status"]) == ("Scale", {"replicas": 5}, {"replicas": 2})
    stored = await server.get(RAW_POOLS, "default")
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (5, 2)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    await server.write(Create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, namespace="default"))
    patch = {"spec": {"replicas": 4, "ignored": 1}}
    await server.write(Patch(DEPLOYMENTS, "web", patch, namespace="default", subresource="scale"))
    spec = (await server.get(DEPLOYMENTS, "web", namespace="default"))["spec"]
    assert (spec["replicas"], "ignored" in spec) == (4, False)


async def test_binding_a_pod(server: ApiServer) -> None:
    made = await server.write(Create(RAW_PODS, pod(), namespace="default"))
    binding = {"metadata": {"name": "web-1", "uid": made["metadata"]["uid"]}, "target": {"name": "node-1"}}
    await server.write(Create(BINDINGS, binding, namespace="default"))
    bound = await server.get(RAW_PODS, "web-1", namespace="default")
    assert bound["spec"]["nodeName"] == "node-1"
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"] == NOW
    error = await refused(server.write(Create(BINDINGS, binding, namespace="default")), Conflict)
    assert 'already assigned to node "node-1"' in error.message
    await server.write(Delete(PODS, "web-1", namespace="default"))
    await server.write(Create(PODS, pod("web-2", finalizers=["example.com/x"]), namespace="default"))
    await server.write(Delete(PODS, "web-2", namespace="default"))
    late = {"metadata": {"name": "web-2"}, "target": {"name": "node-1"}}
    error = await refused(server.write(Create(BINDINGS, late, namespace="default")), Conflict)
    assert "is being deleted" in error.message


async def test_a_gated_pod_says_so_and_is_not_bound(server: ApiServer) -> None:
    body = pod()
    body["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]
    made = await server.write(Create(RAW_PODS, body, namespace="default"))
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )
    binding = {"metadata": {"name": "web-1"}, "target": {"name": "node-1"}}
    error = await refused(server.write(Create(BINDINGS, binding, namespace="default")), Conflict)
    assert "non-empty .spec.schedulingGates" in error.message


async def test_times_of_leases_need_microseconds(server: ApiServer) -> None:
    def lease(time: str) -> dict[str, Any]:
        return {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a", "renewTime": time}}

    assert (await refused(server.write(Create(LEASES, lease(NOW), namespace="default")), Invalid)).code == 400
    made = await server.write(Create(LEASES, lease("2026-03-01T12:00:00.000000Z"), namespace="default"))
    assert made.spec.renew_time == datetime(2026, 3, 1, 12, tzinfo=UTC)


async def test_events_go_after_an_hour(server: ApiServer, clock: VirtualClock) -> None:
    def event(name: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name},
            "eventTime": "2026-03-01T12:00:00.000000Z",
            "type": "Normal",
            "reason": "Evicted",
            "action": "Evict",
            "note": "",
            "reportingController": "dovetail",
            "reportingInstance": "one",
            "regarding": {"kind": "Node", "name": "n"},
        }

    for number, name in enumerate(("a", "b", "c")):
        await server.write(Create(EVENTS, event(name), namespace="default"))
        await clock.sleep(1200)
        await server.write(Patch(EVENTS, "a", {"series": {"count": number}}, namespace="default"))
    await clock.sleep(1300)
    await server.write(Create(EVENTS, event("d"), namespace="default"))
    await clock.sleep(1)
    with pytest.raises(Invalid, match="at most 1024"):
        await server.write(Create(EVENTS, event("e") | {"note": "x" * 1025}, namespace="default"))
    # a was written again, b has had its hour
    assert [each["metadata"]["name"] for each in (await server.list(EVENTS)).items] == ["a", "c", "d"]


# -- the trace --------------------------------------------------------------------------------------------------------


async def test_the_trace_has_a_line_for_each_write(server: ApiServer) -> None:
    before = len(server.trace)
    await server.write(Create(PODS, pod(), namespace="default"))
    await server.get(PODS, "web-1", namespace="default")
    await server.write(Patch(PODS, "web-1", {"status": {"phase": "Failed"}}, namespace="default", subresource="status"))
    await server.write(Delete(PODS, "web-1", namespace="default"))
    lines = [line.split(" ", 1)[1].rsplit(" ", 1)[0] for line in server.trace[before:]]
    assert lines == [
        "create pods default/web-1",
        "patch/status pods default/web-1",
        "delete pods default/web-1",  # the deletion time is set,
        "delete pods default/web-1",  # then the pod goes
    ]


SCENARIO = """
import asyncio
from datetime import UTC, datetime
from dovetail.ports import PODS, Create, Delete, Patch
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.loop.virtual_loop import simulate

async def main(clock):
    server = ApiServer(clock, seed=3)
    async def work(number):
        body = {"metadata": {"generateName": "p-", "labels": {"a": "b", "c": "d"}, "finalizers": ["x.y/z", "x.y/w"]},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}
        for _ in range(20):
            pod = await server.write(Create(PODS, body, namespace="default"))
            labels = {"metadata": {"labels": {"n": str(number)}}}
            await server.write(Patch(PODS, pod.metadata.name, labels, namespace="default"))
            await clock.sleep(0.1)
            await server.write(Delete(PODS, pod.metadata.name, namespace="default"))
            await server.write(Patch(PODS, pod.metadata.name, {"metadata": {"finalizers": None}}, namespace="default"))
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(work(number))
    print("\\n".join(server.trace))

simulate(main, start=datetime(2026, 3, 1, tzinfo=UTC), seed=11)
"""


def test_the_trace_does_not_depend_on_hashing() -> None:
    traces = [
        subprocess.run(
            [sys.executable, "-c", SCENARIO],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert traces[0].count(b"\n") > 400
    assert traces[0] == traces[1]
