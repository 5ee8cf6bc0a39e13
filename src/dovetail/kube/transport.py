"""Sends requests to the API server over HTTP and turns failures into errors of the port.

If the request has not reached the server, the error is Unavailable. If it may have, a read is Unavailable as well, but
a write is OutcomeUnknown, and only the caller can find out.
"""

import asyncio
import math
import socket
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from weakref import WeakSet

import aiohttp
import msgspec
from yarl import URL

from dovetail.kube.access import ClientConfig
from dovetail.kube.failures import failure_of
from dovetail.kube.kubeconfig import KubeConfigError
from dovetail.kube.reserve import HandleReserve
from dovetail.kube.retrying import RetryPolicy, take, wait_before_retry
from dovetail.kube.watching import LineSplitter, LineTooLong
from dovetail.ports import ApiError, Forbidden, OutcomeUnknown, Unavailable
from dovetail.values.foreign_text import redacted
from dovetail.values.rate import TokenBucket

NO_ANSWER = "<error>"  # in place of a code, as other clients count it
CONNECT_SECONDS = 10.0
CONNECTIONS = 200
READ_BUFFER_BYTES = 1024 * 1024
RENEWALS_APART_SECONDS = 5.0
_TURNS_TO_CLOSE = 10  # of the event loop, which closing a connection and its TLS takes
WATCH_MARGIN_SECONDS = 15.0  # the server ends a watch itself; this is for one that does not

# Raised before anything of the request is sent.
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `path` and `query` are already encoded."""

    method: str
    path: str
    query: str = ""
    body: bytes | None = None
    content_type: str = "application/json"
    timeout_seconds: float
    begin_seconds: float | None = None  # until a streamed answer must have begun

    @property
    def write(self) -> bool:
        return self.method != "GET"


class _ConnectionCut(aiohttp.ClientError):
    """The connection broke once the request may have been sent."""


class Transport:
    """A session with one API server. Close it in the loop it was made in."""

    def __init__(
        self,
        access: ClientConfig,
        *,
        reload: Callable[[], Awaitable[ClientConfig]],
        user_agent: str,
        bucket: TokenBucket | None,
        patience: RetryPolicy,
        random: Random,
        before_write: Callable[[], None] | None = None,
        connections: int = CONNECTIONS,
        reserve: HandleReserve | None = None,
    ) -> None:
        # The number of requests by status code, method and host.
        self.requests: Counter[tuple[str, ...]] = Counter()
        self._access = access
        self._before_write = before_write
        self._reload = reload
        self._bucket = bucket
        self._patience = patience
        self._random = random
        self._user_agent = user_agent
        self._connections = connections
        self._reserve = reserve
        self._session = self._new_session(access)
        self._retired: aiohttp.ClientSession | None = None
        self._renewing = asyncio.Lock()
        self._renew_at = asyncio.get_running_loop().time() + access.good_for_seconds
        self._refused_at = -math.inf
        self._open: set[aiohttp.ClientResponse] = set()
        self._long: WeakSet[asyncio.Transport] = WeakSet()  # connections of answers that go on

    @property
    def secrets(self) -> tuple[str, ...]:
        """The credentials that are sent, which the server may repeat in its answer."""
        return self._access.secrets

    async def close(self) -> None:
        """End all requests under way, including watches that nobody closed."""
        for response in tuple(self._open):
            response.close()
        # A connection that was closed in the middle of an answer would wait for the server.
        for transport in tuple(self._long):
            transport.abort()
        await self._session.close()
        if self._retired is not None:
            await self._retired.close()
        for _ in range(_TURNS_TO_CLOSE):
            await asyncio.sleep(0)
        if self._reserve is not None:
            self._reserve.close()

    async def call(self, request: HttpRequest, *, patience: RetryPolicy | None = None) -> bytes:
        """The body of the answer. Retries where that is safe. Raises ApiError."""
        patience = self._patience if patience is None else patience
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        for attempt in range(1, patience.attempts + 1):
            try:
                return await self._attempt(request)
            except ApiError as error:
                wait = wait_before_retry(
                    error,
                    write=request.write,
                    attempt=attempt,
                    spent_seconds=loop.time() - began_at,
                    chance=self._random.random(),
                    patience=patience,
                )
                if wait is None:
                    raise
            await asyncio.sleep(wait)
        raise AssertionError("unreachable: the last attempt is not repeated")

    async def lines(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        """The lines of a streamed answer, without retries. Raises ApiError."""
        splitter = LineSplitter()
        async with self._answer(request) as response:
            _probe(response)
            async for chunk in response.content.iter_any():
                for line in splitter.feed(chunk):
                    yield line
            if splitter.partial:
                raise Unavailable("the watch ended within a line")

    async def _attempt(self, request: HttpRequest) -> bytes:
        async with self._answer(request) as response:
            return await response.read()

    @asynccontextmanager
    async def _answer(self, request: HttpRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer whose body is not read yet. Failures, also within the block, raise ApiError."""
        if self._bucket is not None:
            await take(self._bucket)
        try:
            async with self._authenticated(request) as response:
                if response.status >= 300:
                    raise await self._refusal(response, request)
                yield response
        except _NOT_SENT as error:
            raise Unavailable(self._words(error)) from None
        except (aiohttp.ClientError, OSError, LineTooLong) as error:  # TimeoutError is an OSError
            kind = OutcomeUnknown if request.write else Unavailable
            raise kind(self._words(error)) from None

    @asynccontextmanager
    async def _authenticated(self, request: HttpRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer. On 401 the request is sent once more with reloaded credentials."""
        access = await self._fresh_access()
        async with self._send(access, request) as response:
            if response.status != 401:
                yield response
                return
            refusal = await self._refusal(response, request)
        renewed = await self._renewed_access(access, refusal)
        async with self._send(renewed, request) as response:
            yield response

    @asynccontextmanager
    async def _send(self, access: ClientConfig, request: HttpRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        query = f"?{request.query}" if request.query else ""
        headers = [("User-Agent", self._user_agent), ("Accept", "application/json"), *access.headers]
        if request.body is not None:
            headers.append(("Content-Type", request.content_type))
        if request.write and self._before_write is not None:
            self._before_write()  # here, because pacing, retries and credentials may take long
        url, code = URL(f"{access.url}{request.path}{query}", encoded=True), NO_ANSWER
        try:
            async with asyncio.timeout(request.begin_seconds):
                response = await self._session.request(
                    request.method,
                    url,
                    headers=headers,
                    data=request.body,
                    proxy=access.proxy,
                    server_hostname=access.server_name,
                    allow_redirects=False,  # our credentials are for this server only
                    timeout=aiohttp.ClientTimeout(
                        total=request.timeout_seconds, connect=CONNECT_SECONDS, sock_connect=CONNECT_SECONDS
                    ),
                )
            code = str(response.status)
        finally:
            self.requests[code, request.method, url.authority.rpartition("@")[2]] += 1
        self._open.add(response)
        if response.connection is not None and response.connection.transport is not None:
            self._long.add(response.connection.transport)
        try:
            async with response:
                yield response
        finally:
            self._open.discard(response)

    async def _refusal(self, response: aiohttp.ClientResponse, request: HttpRequest) -> ApiError:
        try:
            body = await response.read()
        except (aiohttp.ClientError, OSError):
            body = b""  # the status code is enough
        return failure_of(
            response.status,
            body,
            write=request.write,
            retry_after=response.headers.get("Retry-After", ""),
            secrets=self.secrets,
        )

    def _words(self, error: Exception) -> str:
        return redacted(_words(error), self.secrets)

    async def _fresh_access(self) -> ClientConfig:
        """The access, reloaded when it is due. If that fails, the old one, which may still work."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._renew_at:
            return self._access
        async with self._renewing:
            if loop.time() >= self._renew_at:
                try:
                    await self._renew()
                except KubeConfigError:
                    self._renew_at = loop.time() + RENEWALS_APART_SECONDS
        return self._access

    async def _renewed_access(self, refused: ClientConfig, refusal: ApiError) -> ClientConfig:
        """Another access than the refused one. Raises the refusal if there is none."""
        async with self._renewing:
            if self._access is refused:
                now = asyncio.get_running_loop().time()
                if now < self._refused_at + RENEWALS_APART_SECONDS:
                    raise refusal
                self._refused_at = now
                try:
                    await self._renew()
                except KubeConfigError as error:
                    raise Forbidden(f"{refusal.message}; {error}", code=refusal.code, reason=refusal.reason) from None
            return self._access

    async def _renew(self) -> None:
        access = await self._reload()
        if access.tls_digest != self._access.tls_digest:
            # Connections keep their certificate. Requests under way may end on the old session.
            if self._retired is not None:
                await self._retired.close()
            self._retired, self._session = self._session, self._new_session(access)
        self._access = access
        self._renew_at = asyncio.get_running_loop().time() + access.good_for_seconds

    def _new_session(self, access: ClientConfig) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=access.tls or True,
                limit=self._connections,
                socket_factory=None if self._reserve is None else self._reserve.socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
            middlewares=(_sent_once,),
        )


async def _sent_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Hides broken connections from aiohttp, which would send a DELETE again."""
    try:
        return await handler(request)
    except _NOT_SENT:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _ConnectionCut(_words(error)) from error


def _probe(response: aiohttp.ClientResponse) -> None:
    """Lets the kernel notice within a minute that the other side of a quiet watch is gone."""
    connection = response.connection
    sock = connection.transport.get_extra_info("socket") if connection and connection.transport else None
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _words(error: Exception) -> str:
    return str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)
