"""In a cluster, does each reader of the dashboard see what the API server says that they may list, and no more?"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import pytest

from dovetail.kube import connect
from dovetail.runtime.clock import SystemClock
from dovetail.web.access import ReviewAuthorizer
from dovetail.web.app import board_served
from dovetail.web.sources import LiveSource
from tests.cluster.access import Cluster, eventually
from tests.cluster.run_process import KEPT, RunProcess
from tests.harness.ports import free_port
from tests.harness.stage import PARAMETER, gives, stage

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
NODES_ONLY: Final = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    {"apiGroups": ["karpenter.sh"], "resources": ["nodeclaims", "nodepools"], "verbs": ["list"]},
]
PODS: Final = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
SYNC_SECONDS: Final = 30.0


class Setting(NamedTuple):
    """A node with a protected pod of each of two namespaces, and the tokens of readers."""

    plane: Cluster
    node: str
    open: str
    hidden: str
    tokens: dict[str, str]


def _reader(plane: Cluster, namespace: str, name: str, rules: list[dict[str, Any]]) -> str:
    """A service account with these rights in the whole cluster; its token."""
    plane.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    unique = f"{namespace}-{name}"
    plane.create(f"{RBAC}/clusterroles", {"metadata": {"name": unique}, "rules": rules})
    _bind(plane, f"{RBAC}/clusterrolebindings", unique, ("ClusterRole", unique), subject=(namespace, name))
    answer = plane.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", {"spec": {}})
    return str(answer["status"]["token"])


def _bind(plane: Cluster, path: str, name: str, role: tuple[str, str], *, subject: tuple[str, str]) -> None:
    plane.create(
        path,
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role[0], "name": role[1]},
            "subjects": [{"kind": "ServiceAccount", "namespace": subject[0], "name": subject[1]}],
        },
    )


def _pod(plane: Cluster, namespace: str, name: str, node: str) -> None:
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
    meta = {"name": name, "annotations": {"karpenter.sh/do-not-disrupt": "true"}}
    plane.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": meta, "spec": spec})


@pytest.fixture
def setting(cluster_with_crds: Cluster, namespace: str, unique_name: Callable[[str], str]) -> Iterator[Setting]:
    plane, node, hidden = cluster_with_crds, unique_name("node"), unique_name("hidden")
    plane.create("/api/v1/namespaces", {"metadata": {"name": hidden}})
    plane.wait(f"/api/v1/namespaces/{hidden}/serviceaccounts/default", lambda _: True)
    plane.create("/api/v1/nodes", {"metadata": {"name": node}, "spec": {"providerID": f"kwok://{node}"}})
    _pod(plane, namespace, "visible", node)
    _pod(plane, hidden, "secretive", node)
    tokens = {
        "all": _reader(plane, namespace, "all", [*NODES_ONLY, PODS]),
        "some": _reader(plane, namespace, "some", NODES_ONLY),
        "none": _reader(plane, namespace, "none", [PODS]),
    }
    roles = f"{RBAC}/namespaces/{namespace}"
    plane.create(f"{roles}/roles", {"metadata": {"name": "some"}, "rules": [PODS]})
    _bind(plane, f"{roles}/rolebindings", "some", ("Role", "some"), subject=(namespace, "some"))
    yield Setting(plane, node, namespace, hidden, tokens)
    plane.delete(f"/api/v1/nodes/{node}")
    plane.delete(f"/api/v1/namespaces/{hidden}")


@gives("session")
def asked(questions: Callable[[aiohttp.ClientSession], Awaitable[None]], *, setting: Setting) -> None:
    """With the board of the live cluster, served to whoever has a token."""

    async def main() -> None:
        clock = SystemClock()
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as following:
            api = await stack.enter_async_context(connect(kubeconfig=str(setting.plane.kubeconfig)))
            source = LiveSource(api, clock, title="live")
            tasks = [following.create_task(reflector.run()) for reflector in source.reflectors]
            await source.wait_synced(SYNC_SECONDS)
            serving = board_served(source, access=ReviewAuthorizer(api, clock))
            async with serving as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                await questions(session)
            for task in tasks:
                task.cancel()

    asyncio.run(main())


pytestmark = stage(asked, setting=PARAMETER)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def got(session: aiohttp.ClientSession, path: str, token: str = "") -> tuple[int, str]:
    async with session.get(path, headers=bearer(token) if token else {}) as response:
        return response.status, await response.text()


def row_of(board: str, node: str) -> dict[str, Any]:
    (row,) = (row for row in json.loads(board)["rows"] if row["name"] == node)
    return dict(row)


async def test_each_reader_sees_what_they_may_list(session: aiohttp.ClientSession, setting: Setting) -> None:
    # The page itself holds nothing, and any name may lead to it.
    assert (await got(session, "/"))[0] == 200
    for path in ("/api/board", f"/api/node/Node/{setting.node}", "/api/stream"):
        status, text = await got(session, path)
        assert (status, json.loads(text)) == (401, {"message": "a bearer token is required"})
        assert (await got(session, path, "no such token"))[0] == 401
    status, text = await got(session, "/api/board", setting.tokens["none"])
    assert status == 403
    assert json.loads(text)["message"].endswith("may not list nodes, nodeclaims, nodepools")

    status, text = await got(session, "/api/board", setting.tokens["all"])
    assert status == 200
    assert json.loads(text)["restricted"] is False
    objects = {cause[1] for cause in row_of(text, setting.node)["causes"]}
    assert {f"Pod/{setting.open}/visible", f"Pod/{setting.hidden}/secretive"} <= objects

    status, text = await got(session, "/api/board", setting.tokens["some"])
    assert (status, json.loads(text)["restricted"]) == (200, True)
    causes = row_of(text, setting.node)["causes"]
    assert f"Pod/{setting.open}/visible" in {cause[1] for cause in causes}
    assert ["do-not-disrupt", "Pod", "", 1] in causes
    assert setting.hidden not in text
    assert "secretive" not in text

    status, text = await got(session, f"/api/node/Node/{setting.node}", setting.tokens["some"])
    details = json.loads(text)
    assert ([pod["name"] for pod in details["pods"]], details["hiddenPods"]) == (["visible"], 1)
    assert setting.hidden not in text
    assert "secretive" not in text
    status, text = await got(session, f"/api/node/Node/{setting.node}", setting.tokens["all"])
    assert len(json.loads(text)["pods"]) == 2


async def test_the_stream_withholds_the_same(session: aiohttp.ClientSession, setting: Setting) -> None:
    version = json.loads((await got(session, "/api/board", setting.tokens["some"]))[1])["version"]
    headers = bearer(setting.tokens["some"]) | {"Last-Event-ID": version}
    async with session.get("/api/stream", headers=headers) as stream:
        await asyncio.to_thread(_pod, setting.plane, setting.hidden, "another-secret", setting.node)
        await asyncio.to_thread(_pod, setting.plane, setting.open, "newcomer", setting.node)
        told = b""
        while f"Pod/{setting.open}/newcomer".encode() not in told or b",2]" not in told:
            told += await asyncio.wait_for(stream.content.readuntil(b"\n\n"), SYNC_SECONDS)
    assert b"secret" not in told
    assert setting.hidden.encode() not in told
    # A version of another reader's stream is of no use.
    theirs = json.loads((await got(session, "/api/board", setting.tokens["all"]))[1])["version"]
    async with session.get("/api/stream", headers=headers | {"Last-Event-ID": theirs}) as stream:
        assert (await stream.content.readuntil(b"\n\n")).startswith(b"event: reset")


def _read(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_controller_shows_what_it_knows(setting: Setting) -> None:
    port = free_port()
    with RunProcess(setting.plane, "--dry-run", f"--dashboard-port={port}") as program:
        program.wait_for(lambda: any(line.get("what") == "dashboard" for line in program.lines))
        assert "Dovetail" in _read(port, "/")[1]
        program.wait_for(lambda: f"Pod/{setting.hidden}/secretive" in _read(port, "/api/board")[1])


def test_on_an_address_that_others_can_reach_the_controller_asks_for_a_token(setting: Setting) -> None:
    port = free_port()
    options = [f"--dashboard-port={port}", "--dashboard-address=0.0.0.0"]
    with RunProcess(setting.plane, "--dry-run", *options) as program:
        program.wait_for(lambda: any(line.get("what") == "dashboard" for line in program.lines))
        assert _read(port, "/api/board")[0] == 401
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/board", headers=bearer(setting.tokens["some"]))
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.loads(answer.read())["restricted"] is True


def test_the_command_follows_a_live_cluster_and_ends_when_asked_to(setting: Setting) -> None:
    arguments = ["dashboard", "--kubeconfig", str(setting.plane.kubeconfig), "--port", "0"]
    with subprocess.Popen(
        [Path(sys.executable).with_name("dovetail"), *arguments],
        env={key: os.environ[key] for key in KEPT if key in os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split("127.0.0.1:")[1].split("/")[0])
        assert f"Pod/{setting.hidden}/secretive" in _read(port, "/api/board")[1]
        _pod(setting.plane, setting.open, "late", setting.node)
        eventually(
            lambda: f"Pod/{setting.open}/late" in _read(port, "/api/board")[1], seconds=20, what=lambda: "no pod"
        )
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
