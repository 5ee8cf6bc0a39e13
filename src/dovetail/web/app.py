"""The dashboard over HTTP: the page, the board, one node, and changes. It only reads.

| address | |
|---|---|
| `/` | the page; it and `/static/*` hold no data and need no token |
| `/api/board` | the whole board, compressed and with an ETag |
| `/api/node/{kind}/{name}` | everything about one node |
| `/api/stream` | server-sent events: `delta` (with an id), `tick`, `reset` (read the board again) |

To show a cluster, give a `BoardSource` (`dovetail.web.sources`):

    async with board_served(source, address="127.0.0.1", port=0) as port:
        ...                       # http://127.0.0.1:{port}/ shows it

A simulation on another loop or thread makes a `PushedSource`, serves it on an ordinary asyncio loop, and calls
`source.push(at, snapshot, decisions=…, pace=…)` a few times a second at most; with `pace=0` while it is paused.

Without `access` the address must be a loopback one: see `dovetail.web.readers`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from dovetail.runtime.compute import ThreadCompute
from dovetail.web.access import Authorizer
from dovetail.web.listener import ListenerLimits, listening
from dovetail.web.pages import HEADERS, is_known, page_routes
from dovetail.web.readers import Readers, failure, is_loopback
from dovetail.web.sources import BoardSource
from dovetail.web.stream import Stream, Visibility

log = logging.getLogger(__name__)

_JSON: Final = "application/json"


@asynccontextmanager
async def board_served(
    shown: BoardSource | Stream,
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    access: Authorizer | None = None,
    routes: Iterable[web.RouteDef] = (),
    beforehand: bool = True,
    limits: ListenerLimits = ListenerLimits(),  # noqa: B008  frozen
) -> AsyncIterator[int]:
    """Serve the board and these routes meanwhile; yields the port. Raises OSError if it is taken.

    `beforehand`: make the first board before the first reader asks for it.
    """
    stream = shown if isinstance(shown, Stream) else Stream(shown, ThreadCompute())
    if beforehand:
        await stream.refresh()
    if access is None and not is_loopback(address):
        raise ValueError(f"{address}: without access control only a loopback address may be served")
    readers = Readers(access, stream.namespaces)
    app = web.Application(middlewares=[_headers, _guard(readers)])
    app.add_routes([*page_routes(), *_Api(stream).routes(readers), *routes])
    async with listening(app, address=address, port=port, limits=limits, shutdown_seconds=0.5) as served:
        running = asyncio.create_task(stream.run(), name="dashboard")
        running.add_done_callback(_log_end)
        try:
            yield served
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _log_end(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        log.error("dashboard updates stopped", exc_info=error)


# -- middlewares -------------------------------------------------------------------------------------------------------


def _guard(readers: Readers) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        readers.check_host(request)
        return await handler(request)

    return guard


@web.middleware
async def _headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        response = await handler(request)
    except web.HTTPException as error:
        error.headers.update(HEADERS)
        raise
    if not response.prepared:
        response.headers.update(HEADERS)
    return response


# -- the data ----------------------------------------------------------------------------------------------------------


class _Api:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def routes(self, readers: Readers) -> list[web.RouteDef]:
        return [
            readers.get("/api/board", self.board),
            readers.get("/api/node/{kind}/{name:.+}", self.node),
            readers.get("/api/stream", self.stream),
        ]

    async def board(self, request: web.Request, sight: Visibility) -> web.Response:
        body, compressed, tag = await self._stream.whole(sight)
        headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization, Accept-Encoding"}
        headers["X-At"] = str(round(self._stream.source.look().at.timestamp()))  # the board itself may be older
        if is_known(request, tag):
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=compressed, content_type=_JSON, headers=headers | {"Content-Encoding": "gzip"})
        return web.Response(body=body, content_type=_JSON, headers=headers)

    async def node(self, request: web.Request, sight: Visibility) -> web.Response:
        key = f"{request.match_info['kind']}/{request.match_info['name']}"
        try:
            details = await self._stream.details(key, sight)
        except LookupError:
            raise failure(404, f"{key} does not exist") from None
        headers = {"Cache-Control": "private, no-store"}
        return web.Response(body=msgspec.json.encode(details, enc_hook=str), content_type=_JSON, headers=headers)

    async def stream(self, request: web.Request, sight: Visibility) -> web.StreamResponse:
        version = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        response = web.StreamResponse(
            headers=HEADERS
            | {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        await response.prepare(request)
        with suppress(ConnectionError):
            async with aclosing(self._stream.events(version, sight)) as events:
                async for event in events:
                    await response.write(event)
        return response
