"""An HTTP listener that keeps answering whatever some of its clients do.

Every connection has a deadline unless a request on it is being handled. The number of connections is limited: at the
limit, or without a free file handle, the connection that has waited longest for a request is closed for a new one. So
clients that send nothing, or half a request, cannot stop probes from being answered.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Final, cast

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

log = logging.getLogger(__name__)

QUEUED_CONNECTIONS: Final = 128  # that the kernel keeps until they are accepted
PAUSE_SECONDS: Final = 1.0  # after an accept failed and no connection could be closed


class ListenerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits for the clients of one listener."""

    connections: int = 128
    header_seconds: float = 10.0
    """To send a request; and to read an answer, in addition to what `reader_bytes_per_second` allows."""
    idle_seconds: float = 75.0
    """Between two requests; longer than most proxies keep a connection, so that the proxy closes it."""
    request_bytes: int = 64 * 1024
    reader_bytes_per_second: int = 64 * 1024


@asynccontextmanager
async def listening(
    app: web.Application,
    *,
    address: str | None,
    port: int,
    limits: ListenerLimits = ListenerLimits(),  # noqa: B008  frozen
    shutdown_seconds: float = 1.0,
) -> AsyncIterator[int]:
    """Serve the app; yields the port. Port 0: a free one; no address: all addresses. Raises OSError."""
    listener = _Listener(limits)
    app.middlewares.insert(0, listener.middleware())
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=shutdown_seconds)
    await runner.setup()
    async with AsyncExitStack() as stack:
        stack.callback(listener.close_all)
        stack.push_async_callback(runner.cleanup)
        assert runner.server is not None
        sockets = [stack.enter_context(closing(sock)) for sock in await _bound(address, port)]
        for sock in sockets:
            sock.settimeout(0.0)
            sock.listen(QUEUED_CONNECTIONS)
        tasks = [asyncio.create_task(listener.accept(sock, runner.server), name="listener") for sock in sockets]
        stack.push_async_callback(_cancelled, tasks)
        yield sockets[0].getsockname()[1]


async def _bound(address: str | None, port: int) -> list[socket.socket]:
    """A socket for each address. asyncio binds them, but must not accept: it accepts a hundred at once."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, address, port, start_serving=False)
    try:
        return [sock.dup() for sock in server.sockets]
    finally:
        server.close()


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Listener:
    """Accepts connections up to the limit."""

    def __init__(self, limits: ListenerLimits) -> None:
        self._limits = limits
        self._connections: dict[web.RequestHandler, _ClientConnection] = {}  # the oldest first

    def middleware(self) -> Middleware:
        """A middleware that tells connections when a request on them is handled."""

        @web.middleware
        async def handled(request: web.Request, handler: Handler) -> web.StreamResponse:
            if connection := self._connections.get(request.protocol):
                connection.request_began()
            try:
                return await handler(request)
            finally:
                if connection := self._connections.get(request.protocol):
                    connection.request_ended()

        return handled

    async def accept(self, listening_socket: socket.socket, server: web.Server) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening_socket)
            except ConnectionAbortedError:
                continue
            except OSError as error:  # usually there is no free file handle
                if self._close_one():
                    await asyncio.sleep(0)
                else:
                    log.warning("cannot accept connections: %s", error.strerror)
                    await asyncio.sleep(PAUSE_SECONDS)
                continue
            if len(self._connections) >= self._limits.connections and not self._close_one():
                accepted.close()
                await asyncio.sleep(0)
                continue
            try:
                await loop.connect_accepted_socket(lambda: self._connection(server()), accepted)
            except OSError:
                accepted.close()

    def _connection(self, handler: web.RequestHandler) -> "_ClientConnection":
        self._connections[handler] = _ClientConnection(handler, self._limits, self._connections)
        return self._connections[handler]

    def _close_one(self) -> bool:
        """Close the oldest connection that waits for a request; whether there was one."""
        oldest = next((connection for connection in self._connections.values() if connection.is_waiting), None)
        if oldest is not None:
            oldest.close()
        return oldest is not None

    def close_all(self) -> None:
        for connection in list(self._connections.values()):
            connection.close()


class _ClientConnection(asyncio.Protocol):
    """Passes everything on to the handler of aiohttp, and closes the connection at its deadline."""

    def __init__(
        self,
        handler: web.RequestHandler,
        limits: ListenerLimits,
        connections: "dict[web.RequestHandler, _ClientConnection]",
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._handling = False
        self._idle = False
        self._writing = False  # the client has not read what was written
        self._received_bytes = 0  # since the last request began

    @property
    def is_waiting(self) -> bool:
        return self._transport is not None and not self._handling and not self._writing

    def request_began(self) -> None:
        self._handling, self._idle, self._received_bytes = True, False, 0
        if not self._writing:
            self._close_after(None)

    def request_ended(self) -> None:
        self._handling = False
        if not self._writing:
            self._wait_for_request()

    def close(self) -> None:
        """Close at once, and drop what is not sent yet."""
        self._connections.pop(self._handler, None)
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # pause_writing as soon as the client does not read
        self._close_after(self._limits.header_seconds)
        self._handler.connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._transport = None
        self._close_after(None)
        self._connections.pop(self._handler, None)
        self._handler.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        if self._received_bytes > self._limits.request_bytes:
            self.close()
            return
        if self._idle:
            self._idle = False
            self._close_after(self._limits.header_seconds)
        self._handler.data_received(data)

    def eof_received(self) -> None:
        self._handler.eof_received()

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._writing, self._idle = True, False
        size = self._transport.get_write_buffer_size()
        self._close_after(self._limits.header_seconds + size / self._limits.reader_bytes_per_second)
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._writing = False
        if self._handling:
            self._close_after(None)
        else:
            self._wait_for_request()
        self._handler.resume_writing()

    # -- deadlines ------------------------------------------------------------------------------------------------

    def _wait_for_request(self) -> None:
        self._idle = True
        self._close_after(self._limits.idle_seconds)

    def _close_after(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = None if seconds is None else loop.call_later(seconds, self.close)
