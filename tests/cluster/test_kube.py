"""Does our client do on a real API server what the port KubeApi promises?"""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import pytest

from dovetail.api.objects import Node, NodeClaim, Pod
from dovetail.kube import RealApi, RetryPolicy, connect
from dovetail.ports import (
    EVENTS,
    LEASES,
    NODECLAIMS,
    NODES,
    PDBS,
    PODS,
    AlreadyExists,
    ApiError,
    Conflict,
    Create,
    Delete,
    EventType,
    Evict,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    NotFound,
    OutcomeUnknown,
    Patch,
    PatchType,
    Propagation,
    Resource,
    TooManyRequests,
    Unavailable,
    Watch,
    WatchEvent,
)
from tests.cluster.access import Cluster, condition
from tests.cluster.plane import ControlPlane
from tests.harness.stage import real_time, stage

Namer = Callable[[str], str]
Object = dict[str, Any]

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", dict[str, Any], namespaced=True)
OTHER_UID: Final = "11111111-2222-3333-4444-555555555555"


pytestmark = stage(real_time)


@asynccontextmanager
async def connected(cluster: Cluster, **options: Any) -> AsyncIterator[RealApi]:
    async with asyncio.timeout(60), connect(**{"kubeconfig": str(cluster.kubeconfig), **options}) as api:
        yield api


async def drain(watch: Watch[Any]) -> None:
    """Read it to its end, whatever it tells."""
    async with aclosing(watch) as events:
        async for _ in events:
            pass


def config_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name, "labels": {"test": "kube"}}, "data": data}


def pod(name: str, **labels: str) -> Object:
    # On a node that does not exist, so that nothing but the test changes it.
    spec = {"nodeName": "none", "containers": [{"name": "c", "image": "none"}], "terminationGracePeriodSeconds": 5}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def budget(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}


# -- reading ----------------------------------------------------------------------------------------------------------


async def test_lists_come_in_pages(control_plane: Cluster, namespace: str) -> None:
    wanted = {f"m{index}" for index in range(7)}
    async with connected(control_plane) as api:
        for name in wanted:
            await api.write(Create(CONFIG_MAPS, config_map(name), namespace=namespace))
        pages = [await api.list(CONFIG_MAPS, namespace=namespace, labels="test=kube", limit=3)]
        while pages[-1].continue_:
            more = pages[-1].continue_
            pages.append(await api.list(CONFIG_MAPS, namespace=namespace, labels="test=kube", limit=3, continue_=more))
        assert [len(page.items) for page in pages] == [3, 3, 1]
        assert {item["metadata"]["name"] for page in pages for item in page.items} == wanted
        assert len({page.resource_version for page in pages}) == 1
        everywhere = await api.list(CONFIG_MAPS, fields=f"metadata.name=m3,metadata.namespace={namespace}")
        assert [item["metadata"]["name"] for item in everywhere.items] == ["m3"]
        with pytest.raises(Invalid):
            await api.list(CONFIG_MAPS, labels="a=b=c")
        with pytest.raises(Invalid):
            await api.list(CONFIG_MAPS, continue_="nonsense")


async def test_an_empty_list(control_plane: Cluster, namespace: str) -> None:
    async with connected(control_plane) as api:
        page = await api.list(PODS, namespace=namespace)
    assert (list(page.items), page.continue_) == ([], "")
    assert int(page.resource_version) > 0


async def test_a_watch_tells_changes_and_resumes(control_plane: Cluster, namespace: str) -> None:
    async with connected(control_plane) as api:

        async def next_events(version: str, count: int) -> list[WatchEvent[Object]]:
            found: list[WatchEvent[Object]] = []
            async with aclosing(
                api.watch(CONFIG_MAPS, resource_version=version, namespace=namespace, labels="test=kube")
            ) as events:
                async for event in events:
                    found.append(event)
                    if len(found) == count:
                        break
            return found

        start = (await api.list(CONFIG_MAPS, namespace=namespace)).resource_version
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(next_events(start, 2))
            await api.write(Create(CONFIG_MAPS, config_map("a"), namespace=namespace))
            await api.write(Patch(CONFIG_MAPS, "a", {"data": {"x": "y"}}, namespace=namespace))
        first = watching.result()
        await api.write(Delete(CONFIG_MAPS, "a", namespace=namespace))
        rest = await next_events(first[0].resource_version, 2)
        assert [event.type for event in first] == [EventType.ADDED, EventType.MODIFIED]
        assert [event.type for event in rest] == [EventType.MODIFIED, EventType.DELETED]
        assert rest[0] == first[1]
        versions = [int(event.resource_version) for event in [*first, rest[1]]]
        assert versions == sorted(set(versions))
        assert int(start) < versions[0]


async def test_a_watch_ends_at_its_time_and_bookmarks_what_it_passed_over(
    control_plane: Cluster, namespace: str
) -> None:
    async with connected(control_plane) as api:
        start = (await api.list(CONFIG_MAPS, namespace=namespace)).resource_version
        await api.write(Create(CONFIG_MAPS, config_map("a"), namespace=namespace))
        watch = api.watch(
            CONFIG_MAPS, resource_version=start, namespace=namespace, labels="test=kube", timeout_seconds=4
        )
        async with aclosing(watch) as events:
            assert (await anext(events)).type is EventType.ADDED
            # Without a change after the watch began the server sends no bookmark.
            passed_over = await api.write(Create(CONFIG_MAPS, {"metadata": {"name": "b"}}, namespace=namespace))
            rest = [event async for event in events]
        assert {(event.type, event.problem) for event in rest} == {(EventType.BOOKMARK, "")}
        assert all(event.object is None for event in rest)
        assert int(rest[-1].resource_version) >= int(passed_over["metadata"]["resourceVersion"])


async def test_a_watch_from_a_version_too_old(cluster_with_crds: Cluster) -> None:
    async with connected(cluster_with_crds) as api:
        with pytest.raises(Gone):  # our kinds came later than the first version
            await drain(api.watch(NODECLAIMS, resource_version="1", timeout_seconds=5))


async def test_what_is_not_there(control_plane: Cluster, namespace: str) -> None:
    async with connected(control_plane) as api:
        with pytest.raises(NotFound) as caught:
            await api.get(PODS, "none", namespace=namespace)
        assert (caught.value.code, caught.value.reason) == (404, "NotFound")
        with pytest.raises(NotFound):
            await api.list(Resource("none.test", "v1", "nones", "None", dict[str, Any]))
        with pytest.raises(NotFound):
            await api.write(Patch(PODS, "none", {}, namespace=namespace))
        with pytest.raises(NotFound):
            await api.write(Delete(PODS, "none", namespace=namespace, uid=OTHER_UID))
        with pytest.raises(NotFound):
            await api.write(Evict("none", namespace=namespace))


# -- writing ----------------------------------------------------------------------------------------------------------


async def test_create(control_plane: Cluster, namespace: str) -> None:
    async with connected(control_plane) as api:
        created = await api.write(Create(PODS, pod("a", app="x"), namespace=namespace))
        assert isinstance(created, Pod)
        assert created == await api.get(PODS, "a", namespace=namespace)
        assert (created.metadata.labels, created.spec.termination_grace_period_seconds) == ({"app": "x"}, 5)
        with pytest.raises(AlreadyExists):
            await api.write(Create(PODS, pod("a"), namespace=namespace))
        with pytest.raises(Invalid, match=r"metadata\.name"):
            await api.write(Create(PODS, pod("NOT A NAME"), namespace=namespace))
        with pytest.raises(Invalid):
            await api.write(Create(PODS, {"spec": []}, namespace=namespace))
        found = await api.get(PODS.read_as(dict[str, Any]), "a", namespace=namespace)
        assert {entry["manager"] for entry in found["metadata"]["managedFields"]} == {"dovetail"}
        event = {
            "metadata": {"name": "e"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "dovetail",
            "reportingInstance": "d",
            "action": "a",
            "reason": "r",
            "type": "Normal",
            "regarding": {"kind": "Pod", "namespace": namespace, "name": "a"},
        }
        assert (await api.write(Create(EVENTS, event, namespace=namespace)))["reason"] == "r"
        lease = await api.write(Create(LEASES, {"metadata": {"name": "l"}, "spec": {}}, namespace=namespace))
        assert lease.spec.holder_identity is None


async def test_merge_patch_with_preconditions(control_plane: Cluster, namespace: str) -> None:
    async with connected(control_plane) as api:
        created = await api.write(Create(PODS, pod("a"), namespace=namespace))
        seen = created.metadata.resource_version

        async def annotate(value: str | None, **precondition: str) -> Pod:
            body = {"metadata": {"annotations": {"k": value}, **precondition}}
            return await api.write(Patch(PODS, "a", body, namespace=namespace))

        changed = await annotate("1", resourceVersion=seen)
        assert changed.metadata.annotations == {"k": "1"}
        with pytest.raises(Conflict):
            await annotate("2", resourceVersion=seen)
        with pytest.raises(Conflict):
            await annotate("2", uid=OTHER_UID)
        assert (await annotate(None, uid=created.metadata.uid)).metadata.annotations == {}


async def test_preconditions_on_our_own_kinds(cluster_with_crds: Cluster, unique_name: Namer) -> None:
    name = unique_name("claim")
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    body = {"metadata": {"name": name}, "spec": {"nodeClassRef": reference, "requirements": []}}
    async with connected(cluster_with_crds) as api:
        created = await api.write(Create(NODECLAIMS, body))
        assert isinstance(created, NodeClaim)
        seen = created.metadata.resource_version
        condition_ = {
            "type": "Drifted",
            "status": "True",
            "reason": "Drifted",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"metadata": {"resourceVersion": seen}, "status": {"conditions": [condition_]}}
        plain = await api.write(Patch(NODECLAIMS, name, {"status": status["status"]}))
        assert plain.status.conditions == []  # only the subresource writes the status
        patched = await api.write(Patch(NODECLAIMS, name, status, subresource="status"))
        assert [(each.type, each.status) for each in patched.status.conditions] == [("Drifted", "True")]
        with pytest.raises(Conflict):
            await api.write(Patch(NODECLAIMS, name, status, subresource="status"))
        with pytest.raises(Conflict):
            await api.write(Patch(NODECLAIMS, name, {"metadata": {"uid": OTHER_UID, "labels": {"a": "b"}}}))
        with pytest.raises(Invalid):
            await api.write(Patch(NODECLAIMS, name, {"spec": {"expireAfter": "1 fortnight"}}))
        with pytest.raises(Invalid):  # strategic merge needs built-in types
            await api.write(Patch(NODECLAIMS, name, {}, type_=PatchType.STRATEGIC))
        with pytest.raises(Conflict):
            await api.write(Delete(NODECLAIMS, name, uid=OTHER_UID))
        await api.write(Delete(NODECLAIMS, name, uid=created.metadata.uid))


async def test_strategic_merge_keeps_what_it_does_not_name(control_plane: Cluster, unique_name: Namer) -> None:
    name = unique_name("node")
    conditions = [{"type": type_, "status": "True", "reason": "r"} for type_ in ("One", "Two")]
    async with connected(control_plane) as api:
        created = await api.write(Create(NODES, {"metadata": {"name": name}}))
        assert isinstance(created, Node)

        async def patch(body: Object, type_: PatchType) -> set[str]:
            node = await api.write(Patch(NODES, name, {"status": body}, type_=type_, subresource="status"))
            return {each.type for each in node.status.conditions} & {"One", "Two"}

        assert await patch({"conditions": conditions[:1]}, PatchType.STRATEGIC) == {"One"}
        assert await patch({"conditions": conditions[1:]}, PatchType.STRATEGIC) == {"One", "Two"}
        without = [{"$patch": "delete", "type": "One"}]
        assert await patch({"conditions": without}, PatchType.STRATEGIC) == {"Two"}
        assert await patch({"conditions": conditions[:1]}, PatchType.MERGE) == {"One"}
        await api.write(Delete(NODES, name, uid=created.metadata.uid))


async def test_taints_are_replaced_as_a_whole_whatever_the_patch(control_plane: Cluster, unique_name: Namer) -> None:
    name = unique_name("node")
    one, two = ({"key": key, "effect": "NoSchedule"} for key in ("one", "two"))
    async with connected(control_plane) as api:
        created = await api.write(Create(NODES, {"metadata": {"name": name}, "spec": {"taints": [one]}}))
        for type_ in (PatchType.MERGE, PatchType.STRATEGIC):
            patched = await api.write(Patch(NODES, name, {"spec": {"taints": [two]}}, type_=type_))
            assert "one" not in {taint.key for taint in patched.spec.taints}
            await api.write(Patch(NODES, name, {"spec": {"taints": [one]}}))
        await api.write(Delete(NODES, name, uid=created.metadata.uid))


async def test_delete(control_plane: Cluster, namespace: str) -> None:
    async with connected(control_plane) as api:
        created = await api.write(Create(PODS, pod("a"), namespace=namespace))
        uid, seen = created.metadata.uid, created.metadata.resource_version
        await api.write(Patch(PODS, "a", {"metadata": {"labels": {"a": "b"}}}, namespace=namespace))
        with pytest.raises(Conflict):
            await api.write(Delete(PODS, "a", namespace=namespace, uid=OTHER_UID))
        with pytest.raises(Conflict):
            await api.write(Delete(PODS, "a", namespace=namespace, uid=uid, resource_version=seen))
        await api.write(Delete(PODS, "a", namespace=namespace, uid=uid, grace_seconds=60))
        leaving = await api.get(PODS, "a", namespace=namespace)
        assert leaving.metadata.deletion_timestamp is not None
        await api.write(
            Delete(PODS, "a", namespace=namespace, uid=uid, grace_seconds=0, propagation=Propagation.BACKGROUND)
        )
        with pytest.raises(NotFound):
            await api.get(PODS, "a", namespace=namespace)


# -- evictions --------------------------------------------------------------------------------------------------------


def running(control_plane: Cluster, namespace: str, name: str) -> None:
    """Have the pod be Running and Ready, which is what budgets count."""
    ready = {"type": "Ready", "status": "True"}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
    control_plane.patch(path, {"status": {"phase": "Running", "conditions": [ready]}})


async def test_evictions(control_plane: Cluster, namespace: str) -> None:
    pdbs = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"

    def observed(found: Object) -> bool:
        return condition(found, "DisruptionAllowed") is not None and found["status"]["expectedPods"] == 1

    async with connected(control_plane) as api:
        for name in ("free", "one", "two"):
            await api.write(Create(PODS, pod(name, app=name), namespace=namespace))
            await asyncio.to_thread(running, control_plane, namespace, name)
        await api.write(Create(PDBS, budget("keep", app="one"), namespace=namespace))
        await api.write(Create(PDBS, budget("first", app="two"), namespace=namespace))
        await api.write(Create(PDBS, budget("second", app="two"), namespace=namespace))
        for name in ("keep", "first", "second"):
            await asyncio.to_thread(control_plane.wait, f"{pdbs}/{name}", observed)

        with pytest.raises(Conflict):
            await api.write(Evict("free", namespace=namespace, uid=OTHER_UID))
        uid = (await api.get(PODS, "free", namespace=namespace)).metadata.uid
        await api.write(Evict("free", namespace=namespace, uid=uid, grace_seconds=7))
        evicted = await api.get(PODS.read_as(dict[str, Any]), "free", namespace=namespace)
        assert evicted["metadata"]["deletionGracePeriodSeconds"] == 7

        with pytest.raises(TooManyRequests, match="violate the pod's disruption budget") as refused:
            await api.write(Evict("one", namespace=namespace))
        assert "The disruption budget keep needs 1 healthy pods and has 1 currently" in refused.value.message
        with pytest.raises(InternalError, match="more than one PodDisruptionBudget"):
            await api.write(Evict("two", namespace=namespace))


# -- credentials ------------------------------------------------------------------------------------------------------


def kubeconfig(folder: Path, cluster: Cluster, user: Object) -> str:
    config = msgspec.json.decode(cluster.kubeconfig.read_bytes())
    config["users"][0]["user"] = user
    file = folder / "kubeconfig"
    file.write_bytes(msgspec.json.encode(config))
    return str(file)


async def test_a_token_file_that_rotates(control_plane: Cluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(control_plane.token)
    config = kubeconfig(tmp_path, control_plane, {"tokenFile": "token"})
    async with connected(control_plane, kubeconfig=config) as api:
        await api.list(NODES)
        token.write_text("revoked")
        await api.list(NODES)  # not asked for anew while the old one does
    async with connected(control_plane, kubeconfig=config) as api:
        token.write_text(f"{control_plane.token}\n")
        await api.list(NODES)


async def refusal(cluster: Cluster, config: str) -> ApiError:
    async with connected(cluster, kubeconfig=config) as api:
        with pytest.raises(Forbidden) as caught:
            await api.list(NODES)
        with pytest.raises(Forbidden):
            await drain(api.watch(NODES, resource_version="0"))
    return caught.value


async def test_without_rights(control_plane: Cluster, tmp_path: Path) -> None:
    refused = await refusal(control_plane, str(control_plane.kubeconfig_of("somebody")))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert 'User "somebody" cannot list resource "nodes"' in refused.message
    unknown = await refusal(control_plane, kubeconfig(tmp_path, control_plane, {"token": "unknown"}))
    assert (unknown.code, unknown.reason) == (401, "Unauthorized")
    other = {"token": control_plane.token, "as": "nobody"}
    refused = await refusal(control_plane, kubeconfig(tmp_path, control_plane, other))
    assert 'User "nobody" cannot list resource "nodes"' in refused.message


async def test_an_unknown_authority_is_not_trusted(control_plane: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    config = msgspec.json.decode(control_plane.kubeconfig.read_bytes())
    cluster = config["clusters"][0]["cluster"]
    del cluster["certificate-authority-data"]
    file.write_bytes(msgspec.json.encode(config))
    async with connected(control_plane, kubeconfig=str(file), patience=RetryPolicy(attempts=1)) as api:
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await api.list(NODES, limit=1)
    cluster["insecure-skip-tls-verify"] = True
    file.write_bytes(msgspec.json.encode(config))
    async with connected(control_plane, kubeconfig=str(file)) as api:
        await api.list(NODES, limit=1)


async def test_the_service_account_of_a_pod(
    control_plane: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = urlsplit(control_plane.url)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(place.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(place.port))
    monkeypatch.setattr("dovetail.kube.access.SERVICE_ACCOUNT", tmp_path)
    shutil.copy(control_plane.ca_file, tmp_path / "ca.crt")
    (tmp_path / "token").write_text("not yet")
    async with connected(control_plane, kubeconfig=None) as api:
        (tmp_path / "token").write_text(control_plane.token)
        await api.list(NODES, limit=1)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
async def test_client_certificates_and_their_renewal(tmp_path: Path) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True)

    new_key = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    subject = ("-subj", "/O=system:masters/CN=me")
    openssl(*new_key, "-x509", "-subj", "/CN=clients", "-keyout", "clients.key", "-out", "clients.crt")
    openssl(*new_key, *subject, "-keyout", "new.key", "-out", "new.csr")
    openssl("x509", "-req", "-in", "new.csr", "-CA", "clients.crt", "-CAkey", "clients.key", "-out", "new.crt")
    openssl(*new_key, *subject, "-x509", "-keyout", "me.key", "-out", "me.crt")
    flags = {"kube-apiserver": [f"--client-ca-file={tmp_path / 'clients.crt'}"]}
    with ControlPlane(tmp_path / "plane", flags=flags) as plane:
        file = kubeconfig(tmp_path, plane, {"client-certificate": "me.crt", "client-key": "me.key"})
        async with connected(plane, kubeconfig=file) as api:
            with pytest.raises(Forbidden):
                await api.list(NODES, limit=1)
        async with connected(plane, kubeconfig=file) as api:
            for kind in ("key", "crt"):
                (tmp_path / f"new.{kind}").replace(tmp_path / f"me.{kind}")
            await api.list(NODES, limit=1)


# -- a server in trouble ----------------------------------------------------------------------------------------------


async def test_a_server_that_hangs_dies_and_comes_back(private_plane: ControlPlane) -> None:
    async with connected(private_plane, timeout_seconds=2.0, patience=RetryPolicy(attempts=1)) as api:
        start = (await api.list(CONFIG_MAPS)).resource_version
        private_plane.pause("kube-apiserver")
        with pytest.raises(OutcomeUnknown):
            await api.write(Create(CONFIG_MAPS, config_map("perhaps"), namespace="default"))
        with pytest.raises(Unavailable):
            await drain(api.watch(CONFIG_MAPS, resource_version=start))
        private_plane.resume("kube-apiserver")
        await api.write(Create(CONFIG_MAPS, config_map("surely"), namespace="default"))
        async with aclosing(api.watch(CONFIG_MAPS, resource_version=start, labels="test=kube")) as events:
            assert (await anext(events)).type is EventType.ADDED
            await asyncio.to_thread(private_plane.kill, "kube-apiserver")
            with pytest.raises(Unavailable):
                await drain(events)
        with pytest.raises(Unavailable, match="Cannot connect"):
            await api.write(Create(CONFIG_MAPS, config_map("not"), namespace="default"))
        await asyncio.to_thread(private_plane.start, "kube-apiserver")
        found = await api.list(CONFIG_MAPS, labels="test=kube")
        assert {item["metadata"]["name"] for item in found.items} - {"perhaps"} == {"surely"}
