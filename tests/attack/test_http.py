"""Do listeners, token reviews and the Lease hold against clients that open connections and do not get on?

Raw sockets against our own listeners, on loopback.
"""

import asyncio
import json
import resource
import socket
import sys
import threading
import traceback
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dovetail.cli.run.assembly import program, serving_all
from dovetail.kube import connect
from dovetail.model.snapshot import Snapshot
from dovetail.observe.metrics import DeferredMetrics
from dovetail.runtime.clock import SystemClock
from dovetail.web.access import REVIEWS_AT_ONCE, TOKENS_KEPT, AccessDenied, ReviewAuthorizer
from dovetail.web.app import board_served
from dovetail.web.listener import ListenerLimits
from dovetail.web.probes import SCRAPES_AT_ONCE, always_well, metrics_route, probe_routes, serving
from dovetail.web.sources import PushedSource
from tests.attack.api_server import ApiServer
from tests.harness.ports import free_port
from tests.harness.stage import PARAMETER, gives, real_time, stage
from tests.unit.cli.test_run import told

PATIENCE_SECONDS: Final = 8.0
HALF_SENT: Final = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "

Connection = tuple[StreamReader, StreamWriter]


pytestmark = stage(real_time)


@asynccontextmanager
async def connections(port: int, number: int, *, sending: Callable[[int], bytes]) -> AsyncIterator[list[Connection]]:
    """So many, each of which has sent its bytes."""
    opened: list[Connection] = []
    try:
        for index in range(number):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.append((reader, writer))
            writer.write(sending(index))
        yield opened
    finally:
        for _, writer in opened:
            writer.transport.abort()


def _same(sent: bytes, _index: int) -> bytes:
    return sent


def request(path: str, *, token: str = "") -> bytes:
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{bearer}\r\n".encode()


async def answer(connection: Connection) -> bytes:
    """All that is sent until the connection is closed; empty if it is closed without an answer."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await connection[0].read()
    except ConnectionError:
        return b""


async def get(port: int, path: str, *, token: str = "") -> bytes:
    async with connections(port, 1, sending=lambda _: request(path, token=token)) as (connection,):
        return await answer(connection)


@asynccontextmanager
async def probes(limits: ListenerLimits, *more: web.RouteDef) -> AsyncIterator[int]:
    routes = [*probe_routes("healthz", {"healthz": always_well}), *more]
    async with serving(routes, address="127.0.0.1", port=0, limits=limits) as port:
        yield port


@asynccontextmanager
async def dashboard(limits: ListenerLimits) -> AsyncIterator[int]:
    source = PushedSource(title="test", pace=0.0)
    source.push(datetime(2026, 3, 6, tzinfo=UTC), Snapshot())
    async with board_served(source, limits=limits) as port:
        yield port


async def is_well(port: int) -> bool:
    return (await get(port, "/healthz")).endswith(b"\r\n\r\nok")


# -- connections that do not get on -----------------------------------------------------------------------------------

QUICK: Final = ListenerLimits(header_seconds=0.2, idle_seconds=0.2)


@pytest.mark.parametrize("listener", [probes, dashboard])
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET /heal", id="half a line"),
        pytest.param(HALF_SENT, id="half a header"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf", id="half a body"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5", id="half a chunk"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", id="idle after an answer"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + HALF_SENT, id="half a second request"),
    ],
)
async def test_a_connection_that_does_not_get_on_is_closed(listener: Any, sent: bytes) -> None:
    async with listener(QUICK) as port, connections(port, 1, sending=lambda _: sent) as (connection,):
        await answer(connection)  # fails unless the connection is closed


async def test_a_request_that_trickles_in_is_closed() -> None:
    limits = ListenerLimits(header_seconds=0.2)
    async with probes(limits) as port, connections(port, 1, sending=lambda _: HALF_SENT) as ((reader, writer),):
        closed = asyncio.create_task(answer((reader, writer)))
        while not closed.done():  # each byte comes sooner than the timeout
            writer.write(b"x")
            await asyncio.wait([closed], timeout=0.02)
        assert closed.result() == b""


@pytest.mark.parametrize("listener", [probes, dashboard])
async def test_a_request_that_is_too_long_is_cut_off(listener: Any) -> None:
    """Headers, bodies, and requests that wait behind one that is answered slowly."""
    limits = ListenerLimits(request_bytes=10_000)
    async with listener(limits) as port:
        for sent in (
            b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 500) for n in range(40)),
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 20_000,
            b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 1_000,
        ):
            async with connections(port, 1, sending=partial(_same, sent)) as (connection,):
                await answer(connection)


@pytest.mark.parametrize("sent", [b"", HALF_SENT, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
async def test_connections_that_wait_make_room_for_new_ones(sent: bytes) -> None:
    async with (
        probes(ListenerLimits(connections=4)) as port,
        connections(port, 20, sending=lambda _: sent) as opened,
    ):
        assert await is_well(port)
        for connection in opened[:16]:
            await answer(connection)  # closed, though its time is not over
        assert await is_well(port)
        assert not any(reader.at_eof() for reader, _ in opened[-3:])


async def test_when_all_connections_are_busy_further_ones_are_refused_until_one_is_free() -> None:
    busy, release = asyncio.Semaphore(0), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        busy.release()
        await release.wait()
        return web.Response(text="done")

    async with (
        probes(ListenerLimits(connections=3, header_seconds=0.1, idle_seconds=0.1), web.get("/slow", slow)) as port,
        connections(port, 3, sending=lambda _: request("/slow")) as opened,
    ):
        for _ in opened:
            await busy.acquire()
        assert await get(port, "/healthz") == b""
        release.set()
        assert [(await answer(connection)).endswith(b"done") for connection in opened] == [True] * 3
        assert await is_well(port)


async def test_readers_that_do_not_read_are_cut_off() -> None:
    """A large answer, and an endless one."""

    async def large(_: web.Request) -> web.Response:
        return web.Response(body=bytes(16_000_000))

    ended = asyncio.Semaphore(0)

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(100_000))
        finally:
            ended.release()

    limits = ListenerLimits(connections=2, header_seconds=1.0, reader_bytes_per_second=1_000_000_000)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(probes(limits, web.get("/large", large), web.get("/endless", endless)))
        for path in ("/large", "/endless"):
            reader = stack.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", port))
            reader.sendall(request(path))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ended.acquire()
            while not await is_well(port):
                pass


async def test_a_large_answer_takes_longer_than_the_timeout_of_a_header() -> None:
    async def large(_: web.Request) -> web.Response:
        return web.Response(body=bytes(8_000_000))

    limits = ListenerLimits(header_seconds=0.1, idle_seconds=0.1, reader_bytes_per_second=1_000_000)
    async with probes(limits, web.get("/large", large)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=10_000)
        writer.write(request("/large"))
        size = 0
        while part := await reader.read(10_000):
            size += len(part)
        assert size > 8_000_000
        writer.close()


async def test_scrapes_do_not_pile_up() -> None:
    proceed = threading.Event()

    def families() -> list[Metric]:
        proceed.wait(PATIENCE_SECONDS)
        return []

    class Slow(Collector):
        def collect(self) -> list[Metric]:
            return [DeferredMetrics(families)]

    registry = CollectorRegistry()
    registry.register(Slow())
    async with (
        probes(ListenerLimits(), metrics_route(registry)) as port,
        connections(port, 30, sending=lambda _: request("/metrics")) as opened,
    ):
        answers = [asyncio.create_task(answer(connection)) for connection in opened]
        while sum(each.done() for each in answers) < 30 - SCRAPES_AT_ONCE:
            await asyncio.wait([each for each in answers if not each.done()], return_when="FIRST_COMPLETED")
        assert await is_well(port)
        proceed.set()
        codes = Counter(text[9:12] for text in await asyncio.gather(*answers))
        assert codes == {b"200": SCRAPES_AT_ONCE, b"503": 30 - SCRAPES_AT_ONCE}


# -- token reviews ----------------------------------------------------------------------------------------------------


async def test_slow_token_reviews_do_not_hold_up_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, port = ApiServer(), free_port()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server.serving())
        # As in a pod, so that the dashboard asks for tokens on a loopback address, too.
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        options = told(
            "--metrics-bind-address=127.0.0.1",
            "--metrics-port=0",
            "--health-probe-port=0",
            f"--dashboard-port={port}",
        )
        made = await stack.enter_async_context(program(options))
        await stack.enter_async_context(serving_all(options, made))
        managing = asyncio.create_task(made.manager.run(asyncio.Event()))
        await server.wait_for_renewals(1)
        sending = lambda index: request("/api/board", token=f"unknown-{index}")  # noqa: E731
        async with connections(port, 220, sending=sending) as opened:
            answers = [asyncio.create_task(answer(connection)) for connection in opened]
            async with asyncio.timeout(PATIENCE_SECONDS):
                await server.wait_for_renewals(1)
            assert not managing.done()
            assert 1 <= server.reviews_now <= server.most_reviews <= 8
            # Those who cannot be asked about are told so, and when to come again.
            while sum(each.done() for each in answers) < len(answers) - 8:
                await asyncio.wait([each for each in answers if not each.done()], return_when="FIRST_COMPLETED")
            told_so = [each.result() for each in answers if each.done()]
            assert any(text.startswith(b"HTTP/1.1 503 ") and b"\r\nRetry-After: " in text for text in told_so)
            assert all(text.startswith(b"HTTP/1.1 503 ") or not text for text in told_so)
            server.answering.set()
            found = await asyncio.gather(*answers)
        assert sum(text.startswith(b"HTTP/1.1 401 ") for text in found) == 8
        assert (await get(port, "/api/board", token="unknown-again")).startswith(b"HTTP/1.1 401 ")
        managing.cancel()
        await asyncio.gather(managing, return_exceptions=True)


Asked = Callable[[ReviewAuthorizer, ApiServer], Coroutine[Any, Any, None]]


@gives("access", "server")
def asked_about(questions: Asked, *, tmp_path: Path) -> None:
    """With an API server that answers at once, and knows one token."""

    async def main() -> None:
        server = ApiServer()
        server.answering.set()
        server.known_tokens.add("known")
        async with server.serving(), connect(kubeconfig=str(server.kubeconfig(tmp_path)), qps=None) as api:
            await questions(ReviewAuthorizer(api, SystemClock()), server)

    asyncio.run(main())


async def no_namespaces() -> frozenset[str]:
    return frozenset()


async def refusal(access: ReviewAuthorizer, token: str) -> AccessDenied:
    with pytest.raises(AccessDenied) as refused:
        await access.sight(token, no_namespaces)
    return refused.value


@stage(asked_about, tmp_path=PARAMETER)
async def test_unknown_tokens_do_not_push_out_those_that_are_known(access: ReviewAuthorizer, server: ApiServer) -> None:
    await access.sight("known", no_namespaces)
    for number in range(TOKENS_KEPT + 1):
        assert (await refusal(access, f"unknown-{number}")).code == 401
    reviews = server.reviews
    await access.sight("known", no_namespaces)
    assert server.reviews == reviews


@stage(asked_about, tmp_path=PARAMETER)
async def test_one_token_from_many_connections_is_asked_about_a_few_times(
    access: ReviewAuthorizer, server: ApiServer
) -> None:
    found = await asyncio.gather(*(refusal(access, "unknown") for _ in range(60)))
    assert [each.code for each in found] == [401] * 60
    assert server.reviews <= REVIEWS_AT_ONCE


@stage(asked_about, tmp_path=PARAMETER)
async def test_refusals_do_not_keep_what_led_to_them(access: ReviewAuthorizer) -> None:
    depths = [len(traceback.extract_tb((await refusal(access, "unknown")).__traceback__)) for _ in range(20)]
    assert depths[-1] == depths[1]


# -- file handles -----------------------------------------------------------------------------------------------------


class Process:
    """`dovetail run` with no more file handles than `ulimit -n` is told; its ports, and what it logs."""

    def __init__(self, process: asyncio.subprocess.Process, ports: dict[str, int]) -> None:
        self.process = process
        self.ports = ports
        self.said: list[str] = []

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.said.append(line.decode())


@asynccontextmanager
async def running(server: ApiServer, folder: Path, *, limit: str) -> AsyncIterator[Process]:
    program = str(Path(sys.executable).with_name("dovetail"))
    options = ["--kubeconfig", str(server.kubeconfig(folder)), "--metrics-port=0", "--health-probe-port=0"]
    made = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'{limit} && exec "$@"', "sh", program, "run", *options), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert made.stdout is not None
        ports: dict[str, int] = {}
        while len(ports) < 2:
            line = json.loads(await made.stdout.readline())
            if line["message"] == "serving":
                ports[line["what"]] = line["port"]
        process = Process(made, ports)
        async with asyncio.TaskGroup() as group:
            group.create_task(process.read())
            try:
                yield process
            finally:
                if made.returncode is None:
                    made.kill()
    finally:
        if made.returncode is None:
            made.kill()
        await made.wait()


async def test_half_sent_requests_that_use_up_all_file_handles_end_neither_probes_nor_the_lease(tmp_path: Path) -> None:
    # Each renewal needs a new connection, and so a handle.
    server = ApiServer(closes_lease_connections=True)
    async with (
        asyncio.timeout(60),
        server.serving(),
        running(server, tmp_path, limit="ulimit -S -n 80 && ulimit -H -n 160") as process,
    ):
        assert resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE) == (160, 160)
        await server.wait_for_renewals(1)
        async with (
            connections(process.ports["metrics"], 200, sending=lambda _: HALF_SENT),
            connections(process.ports["probes"], 200, sending=lambda _: HALF_SENT),
        ):
            for _ in range(3):
                await server.wait_for_renewals(1)
                assert (await get(process.ports["probes"], "/healthz")).endswith(b"\r\n\r\nok")
        assert process.process.returncode is None, process.said


async def test_the_lease_is_renewed_while_no_file_handle_can_be_had(tmp_path: Path) -> None:
    server = ApiServer(closes_lease_connections=True)
    async with (
        asyncio.timeout(60),
        server.serving(),
        running(server, tmp_path, limit="true") as process,
    ):
        await server.wait_for_renewals(1)
        assert await is_well(process.ports["probes"])
        pid = process.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
        lowest_free = next(number for number in count() if number not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
        async with connections(process.ports["probes"], 1, sending=lambda _: request("/healthz")) as (waiting,):
            await server.wait_for_renewals(3)
            assert process.process.returncode is None, process.said
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            assert (await answer(waiting)).endswith(b"\r\n\r\nok")
