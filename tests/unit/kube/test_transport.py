"""What does the client make of odd answers? A real server on loopback gives them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec
import pytest
from aiohttp import web

import dovetail
from dovetail.kube import NO_PATIENCE, RealApi, RetryPolicy, connect
from dovetail.ports import (
    NODECLAIMS,
    NODES,
    PODS,
    ApiError,
    Create,
    Delete,
    EventType,
    Evict,
    Forbidden,
    Gone,
    InternalError,
    NotFound,
    OutcomeUnknown,
    Patch,
    PatchType,
    Propagation,
    TooManyRequests,
    Unavailable,
    WatchEvent,
)
from tests.harness.stage import real_time, stage

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

pytestmark = stage(real_time)

QUICK = RetryPolicy(first_seconds=0.001, longest_seconds=0.001)
NODE = {"metadata": {"name": "a", "resourceVersion": "5"}}


class Server:
    """Answers each request with the next answer, the last one again and again; remembers what came."""

    def __init__(self, *answers: Handler) -> None:
        self.answers = answers
        self.requests: list[web.Request] = []
        self.bodies: list[Any] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        body = await request.read()
        self.bodies.append(msgspec.json.decode(body) if body else None)
        return await self.answers[min(len(self.requests), len(self.answers)) - 1](request)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield
        finally:
            await runner.cleanup()


def kubeconfig(folder: Path, url: str, *, proxy: str | None = None, **user: Any) -> str:
    config: dict[str, Any] = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
    }
    if proxy:
        config["clusters"][0]["cluster"]["proxy-url"] = proxy
    file = folder / "kubeconfig"
    file.write_bytes(msgspec.json.encode(config))
    return str(file)


@asynccontextmanager
async def connected(
    server: Server, folder: Path, *, user: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[RealApi]:
    async with server.serving():
        file = kubeconfig(folder, server.url, **(user or {}))
        async with connect(kubeconfig=file, **{"patience": QUICK, "random": Random(1), **options}) as api:
            yield api


def run(server: Server, folder: Path, use: Callable[[RealApi], Coroutine[Any, Any, T]], **options: Any) -> T:
    async def within() -> T:
        async with connected(server, folder, **options) as api:
            return await use(api)

    return asyncio.run(within())


def answer(body: Any, code: int = 200, headers: dict[str, str] | None = None) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return web.Response(body=data, status=code, headers=headers, content_type="application/json")

    return handler


def status(code: int, reason: str = "", **headers: str) -> Handler:
    return answer({"kind": "Status", "code": code, "reason": reason, "message": f"says {code}"}, code, headers)


async def cut(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def silence(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def stream(*chunks: bytes, then_cut: bool = False) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then_cut:
            assert request.transport is not None
            request.transport.close()
        return response

    return handler


def event(type_: str, object_: Any) -> bytes:
    return msgspec.json.encode({"type": type_, "object": object_}) + b"\n"


async def get(api: RealApi) -> Any:
    return await api.get(NODES, "a")


async def patch(api: RealApi) -> Any:
    return await api.write(Patch(NODES, "a", {}))


async def delete(api: RealApi) -> Any:
    return await api.write(Delete(NODES, "a"))


async def evict(api: RealApi) -> Any:
    return await api.write(Evict("a", namespace="n"))


# -- what is sent -----------------------------------------------------------------------------------------------------


async def test_requests(tmp_path: Path) -> None:
    server = Server(answer(NODE))
    async with connected(server, tmp_path, user={"token": "secret", "as": "me", "as-groups": ["g", "h"]}) as api:
        await api.list(PODS, labels="a=b,c in (d)", fields="spec.nodeName=x&y", limit=7, continue_="a+/=")
        await api.list(PODS, namespace="n")
        await api.get(NODECLAIMS, "n/../a b%2f")
        await api.write(Create(PODS, {"metadata": {"name": "p"}}, namespace="n"))
        await api.write(Patch(NODES, "a", {"spec": None}, type_=PatchType.STRATEGIC))
        await api.write(Patch(NODES, "a", {}, subresource="status"))
        await api.write(Delete(NODES, "a"))
        await api.write(
            Delete(NODES, "a", uid="u", resource_version="3", grace_seconds=0, propagation=Propagation.BACKGROUND)
        )
        await api.write(Evict("p", namespace="n", uid="u", grace_seconds=5))
    assert [f"{request.method} {request.raw_path}" for request in server.requests] == [
        "GET /api/v1/pods?labelSelector=a%3Db%2Cc+in+%28d%29&fieldSelector=spec.nodeName%3Dx%26y&limit=7"
        "&continue=a%2B%2F%3D",
        "GET /api/v1/namespaces/n/pods?limit=500",
        "GET /apis/karpenter.sh/v1/nodeclaims/n%2F..%2Fa%20b%252f",
        "POST /api/v1/namespaces/n/pods?fieldManager=dovetail",
        "PATCH /api/v1/nodes/a?fieldManager=dovetail",
        "PATCH /api/v1/nodes/a/status?fieldManager=dovetail",
        "DELETE /api/v1/nodes/a",
        "DELETE /api/v1/nodes/a",
        "POST /api/v1/namespaces/n/pods/p/eviction",
    ]
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert server.bodies == [
        None,
        None,
        None,
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}},
        {"spec": None},
        {},
        options,
        options
        | {
            "preconditions": {"uid": "u", "resourceVersion": "3"},
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Background",
        },
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "p", "namespace": "n"},
            "deleteOptions": options | {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 5},
        },
    ]
    types = [request.headers.get("Content-Type") for request in server.requests]
    assert types[:6] == [None] * 3 + [
        "application/json",
        "application/strategic-merge-patch+json",
        "application/merge-patch+json",
    ]
    for request in server.requests:
        assert request.headers["User-Agent"] == f"dovetail/{dovetail.__version__}"
        assert request.headers["Authorization"] == "Bearer secret"
        assert request.headers["Impersonate-User"] == "me"
        assert request.headers.getall("Impersonate-Group") == ["g", "h"]


async def test_a_proxy_is_used(tmp_path: Path) -> None:
    server = Server(answer(NODE))
    async with server.serving():
        file = kubeconfig(tmp_path, "http://kubernetes.invalid:1234", proxy=server.url)
        async with connect(kubeconfig=file) as api:
            await get(api)
    assert [request.headers["Host"] for request in server.requests] == ["kubernetes.invalid:1234"]


# -- what comes back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", [patch, delete])
async def test_a_connection_cut_after_a_write_leaves_it_unknown_and_is_not_repeated(
    tmp_path: Path, use: Callable[[RealApi], Coroutine[Any, Any, Any]]
) -> None:
    server = Server(answer(NODE), cut)
    async with connected(server, tmp_path) as api:
        await get(api)
        with pytest.raises(OutcomeUnknown):
            await use(api)
    assert len(server.requests) == 2


def test_a_read_is_repeated_after_a_cut(tmp_path: Path) -> None:
    server = Server(cut, cut, answer(NODE))
    assert run(server, tmp_path, get).metadata.name == "a"
    assert len(server.requests) == 3


def test_reads_are_repeated_so_often_only(tmp_path: Path) -> None:
    server = Server(cut)
    with pytest.raises(Unavailable):
        run(server, tmp_path, get)
    assert len(server.requests) == QUICK.attempts


@pytest.mark.parametrize(("use", "kind"), [(get, Unavailable), (patch, OutcomeUnknown)])
def test_a_cut_within_the_body(tmp_path: Path, use: Callable[[RealApi], Any], kind: type[ApiError]) -> None:
    with pytest.raises(kind):
        run(Server(stream(b'{"metadata": {', then_cut=True)), tmp_path, use)


@pytest.mark.parametrize(("use", "kind"), [(get, Unavailable), (patch, OutcomeUnknown)])
def test_a_server_that_does_not_answer(tmp_path: Path, use: Callable[[RealApi], Any], kind: type[ApiError]) -> None:
    server = Server(silence)
    with pytest.raises(kind):
        run(server, tmp_path, use, timeout_seconds=0.5, patience=NO_PATIENCE)


@pytest.mark.parametrize("use", [get, patch, delete, evict])
async def test_without_a_connection_nothing_was_done(tmp_path: Path, use: Callable[[RealApi], Any]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        file = kubeconfig(tmp_path, f"http://127.0.0.1:{unused.getsockname()[1]}")
        async with connect(kubeconfig=file, patience=QUICK) as api:
            with pytest.raises(Unavailable, match="Cannot connect to host"):
                await use(api)


@pytest.mark.parametrize(
    ("use", "code", "kind", "requests"),
    [
        (get, 503, Unavailable, QUICK.attempts),
        (get, 500, InternalError, QUICK.attempts),
        (get, 404, NotFound, 1),
        (patch, 503, Unavailable, QUICK.attempts),
        (patch, 504, OutcomeUnknown, 1),
        (patch, 500, InternalError, 1),
        (patch, 302, ApiError, 1),
        (evict, 429, TooManyRequests, 1),
        (evict, 500, InternalError, 1),
    ],
)
def test_refusals(
    tmp_path: Path, use: Callable[[RealApi], Any], code: int, kind: type[ApiError], requests: int
) -> None:
    server = Server(status(code, Location="http://127.0.0.1:1/"))
    with pytest.raises(kind, match=f"says {code}"):
        run(server, tmp_path, use)
    assert len(server.requests) == requests


async def test_retry_after_is_kept(tmp_path: Path) -> None:
    server = Server(status(429, **{"Retry-After": "1"}), answer(NODE))
    async with connected(server, tmp_path) as api:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        await patch(api)
        assert loop.time() - began_at >= 1.0
    assert len(server.requests) == 2


def test_retry_after_beyond_our_patience_is_for_the_caller(tmp_path: Path) -> None:
    server = Server(status(429, **{"Retry-After": "60"}))
    with pytest.raises(TooManyRequests) as caught:
        run(server, tmp_path, get)
    assert caught.value.retry_after == 60.0
    assert len(server.requests) == 1


async def test_requests_keep_to_the_rate(tmp_path: Path) -> None:
    async with connected(Server(answer(NODE)), tmp_path, qps=20.0, burst=2) as api:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        async with asyncio.TaskGroup() as group:
            for _ in range(6):
                group.create_task(get(api))
        assert loop.time() - began_at >= 0.2


# -- credentials ------------------------------------------------------------------------------------------------------


def knows(token: str) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        known = request.headers.get("Authorization") == f"Bearer {token}"
        return await (answer(NODE) if known else status(401, "Unauthorized"))(request)

    return handler


@pytest.mark.parametrize("use", [get, patch, evict])
async def test_a_rotated_token_is_read_anew(tmp_path: Path, use: Callable[[RealApi], Any]) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    server = Server(knows("old"), knows("new"))
    async with connected(server, tmp_path, user={"tokenFile": "token"}) as api:
        await use(api)
        file.write_text("new\n")
        await use(api)
    assert len(server.requests) == 3


def plugin(folder: Path, **status: str) -> dict[str, Any]:
    """A user whose plugin gives these credentials, and notes each of its runs."""
    version = "client.authentication.k8s.io/v1"
    answer = msgspec.json.encode({"apiVersion": version, "kind": "ExecCredential", "status": status}).decode()
    file = folder / "plugin"
    file.write_text(f"#!/bin/sh\necho run >> {folder}/runs\necho '{answer}'\n")
    file.chmod(0o755)
    return {"exec": {"apiVersion": version, "command": "./plugin", "interactiveMode": "Never"}}


async def test_concurrent_refusals_renew_once_and_lasting_ones_do_not_hammer(tmp_path: Path) -> None:
    async with connected(Server(knows("other")), tmp_path, user=plugin(tmp_path, token="x")) as api:
        found = await asyncio.gather(*(get(api) for _ in range(5)), return_exceptions=True)
        found += await asyncio.gather(*(get(api) for _ in range(5)), return_exceptions=True)
        assert [type(each) for each in found] == [Forbidden] * 10
    assert (tmp_path / "runs").read_text() == "run\n" * 2


async def test_credentials_are_renewed_when_they_expire_and_kept_if_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.kube.access.SHORTEST_SECONDS", 0.0)
    user = plugin(tmp_path, token="t", expirationTimestamp="2000-01-01T00:00:00Z")
    async with connected(Server(knows("t")), tmp_path, user=user) as api:
        await get(api)
        assert (tmp_path / "runs").read_text() == "run\n" * 2
        (tmp_path / "plugin").unlink()
        await get(api)
        await get(api)


async def test_credentials_that_cannot_be_renewed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    async with connected(Server(knows("new")), tmp_path, user={"tokenFile": "token"}) as api:
        file.unlink()
        with pytest.raises(
            Forbidden, match=r"says 401; .*/kubeconfig: user 'u': tokenFile .*/token: No such file"
        ) as caught:
            await get(api)
        assert (caught.value.code, caught.value.reason) == (401, "Unauthorized")


# -- watches ----------------------------------------------------------------------------------------------------------


async def events(api: RealApi) -> list[WatchEvent[Any]]:
    async with aclosing(api.watch(PODS, resource_version="1", timeout_seconds=5)) as watch:
        return [each async for each in watch]


def test_a_watch(tmp_path: Path) -> None:
    big = {"metadata": {"name": "big", "resourceVersion": "2", "annotations": {"a": "x" * 3_500_000}}}
    lines = b"".join(
        [
            event("ADDED", big),
            event("MODIFIED", {"metadata": {"name": "b", "resourceVersion": "3", "labels": None}, "spec": None}),
            event("MODIFIED", {"metadata": {"name": "b", "resourceVersion": "4"}, "spec": {"nodeName": []}}),
            event("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
        ]
    )
    server = Server(stream(*(lines[start : start + 100_001] for start in range(0, len(lines), 100_001))))
    found = run(server, tmp_path, events)
    assert [(each.type, each.resource_version, bool(each.problem)) for each in found] == [
        (EventType.ADDED, "2", False),
        (EventType.MODIFIED, "3", False),
        (EventType.MODIFIED, "4", True),
        (EventType.BOOKMARK, "9", False),
    ]
    assert found[0].object is not None
    assert len(found[0].object.metadata.annotations["a"]) == 3_500_000
    assert dict(server.requests[0].query) == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "1",
        "timeoutSeconds": "5",
    }


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (status(410, "Expired"), Gone),
        (status(403, "Forbidden"), Forbidden),
        (status(503), Unavailable),
        (cut, Unavailable),
    ],
)
def test_a_watch_that_does_not_begin(tmp_path: Path, handler: Handler, kind: type[ApiError]) -> None:
    server = Server(handler)
    with pytest.raises(kind):
        run(server, tmp_path, events)
    assert len(server.requests) == 1


def test_a_watch_must_begin_soon(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="timed out"):
        run(Server(silence), tmp_path, events, timeout_seconds=0.2)


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (stream(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})), Gone),
        (stream(event("ERROR", {"kind": "Status", "code": 500})), InternalError),
        (stream(event("ADDED", NODE), then_cut=True), Unavailable),
        (stream(event("ADDED", NODE)[:-5]), Unavailable),
        (stream(b"<html>\n"), Unavailable),
    ],
)
def test_a_watch_that_breaks(tmp_path: Path, handler: Handler, kind: type[ApiError]) -> None:
    with pytest.raises(kind):
        run(Server(handler), tmp_path, events)


def endless(left: asyncio.Event) -> Handler:
    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(event("ADDED", NODE))
                await asyncio.sleep(0.01)
        finally:
            left.set()

    return respond


async def test_a_watch_that_is_closed_closes_its_connection(tmp_path: Path) -> None:
    left = asyncio.Event()
    async with connected(Server(endless(left)), tmp_path) as api:
        async with aclosing(api.watch(PODS, resource_version="1")) as watch:
            assert (await anext(watch)).type is EventType.ADDED
        with pytest.raises(StopAsyncIteration):
            await anext(watch)
        async with asyncio.timeout(5):
            await left.wait()


async def test_a_watch_that_is_left_open_is_warned_of_at_once(tmp_path: Path) -> None:
    """Not in a later test, where its connection would be found."""
    left = asyncio.Event()
    async with connected(Server(endless(left)), tmp_path) as api:
        with pytest.warns(ResourceWarning, match="a watch was left open"):
            assert (await anext(api.watch(PODS, resource_version="1"))).type is EventType.ADDED
    assert left.is_set()


async def test_a_watch_that_was_never_begun_holds_nothing(tmp_path: Path) -> None:
    server = Server(silence)
    async with connected(server, tmp_path) as api:
        api.watch(PODS, resource_version="1")
    assert server.requests == []


async def test_a_list_in_pages(tmp_path: Path) -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [NODE, {"metadata": {"labels": None}}]}
    second = {"metadata": {"resourceVersion": "9"}, "items": [{"spec": {"taints": 5}}]}
    async with connected(Server(answer(first), answer(second)), tmp_path) as api:
        pages = [await api.list(NODES, limit=2)]
        pages.append(await api.list(NODES, limit=2, continue_=pages[0].continue_))
        assert [(len(page.items), page.resource_version, page.continue_, page.undecodable) for page in pages] == [
            (2, "9", "more", 0),
            (0, "9", "", 1),
        ]


async def test_a_write_is_asked_for_again_right_before_each_attempt(tmp_path: Path) -> None:
    """The lease may be lost while the client waits to try again."""
    found = answer({"metadata": {"name": "a"}})
    server = Server(found, status(503, "ServiceUnavailable"), found)
    asked = 0

    def fence() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise Forbidden("lost", reason="LeaseLost")

    async with connected(server, tmp_path, before_write=fence) as api:
        await api.get(NODES, "a")  # reads are not asked about
        with pytest.raises(Forbidden, match="lost"):
            await api.write(Patch(NODES, "a", {"metadata": {"labels": {"b": "c"}}}))
    assert (asked, [request.method for request in server.requests]) == (2, ["GET", "PATCH"])


async def test_requests_are_counted_by_code_method_and_host(tmp_path: Path) -> None:
    server = Server(answer(NODE), status(404, "NotFound"), cut, answer(NODE))
    async with connected(server, tmp_path) as api:
        await get(api)
        with pytest.raises(NotFound):
            await patch(api)
        await get(api)  # it is cut off, and repeated
        found = dict(api.requests)
    host = server.url.removeprefix("http://")
    assert found == {("200", "GET", host): 2, ("404", "PATCH", host): 1, ("<error>", "GET", host): 1}


async def test_a_watch_counts_when_it_begins(tmp_path: Path) -> None:
    server = Server(stream(event("ADDED", NODE)))
    async with connected(server, tmp_path) as api:
        await events(api)
        assert dict(api.requests) == {("200", "GET", server.url.removeprefix("http://")): 1}
