"""The dashboard over HTTP: the page, the board, one node, and what changes. It only reads.

| address | |
|---|---|
| `/` | the page; it and `/static/*` hold no data and need no token |
| `/api/board` | the whole board, compressed and with an ETag |
| `/api/node/{kind}/{name}` | everything about one node |
| `/api/stream` | server-sent events: `delta` (with an id), `tick`, and `reset`, after which the board is read anew |

To show a cluster, give a `Source` (`dovetail.web.sources`):

    async with board_served(source, address="127.0.0.1", port=0) as port:
        ...                       # http://127.0.0.1:{port}/ shows it

A simulation on another loop or thread makes a `PushedSource`, has it served on an ordinary asyncio loop, and calls
`source.push(at, snapshot, decisions=…, pace=…)` as it goes along, a few times a second at most; while it stands still
it pushes once more with `pace=0`.

Without `access` everybody who reaches the port may look, so the address must be a loopback one; requests that were sent
to another name than this machine's own are refused, or a web page elsewhere could read along by DNS rebinding.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from dovetail.ports import Compute
from dovetail.rules.budgets import Reading
from dovetail.runtime.compute import ThreadCompute
from dovetail.web.access import RETRY_SECONDS, Access, Refused
from dovetail.web.listening import ListenerLimits, listening
from dovetail.web.pages import HEADERS, is_known, page_routes
from dovetail.web.sources import Source
from dovetail.web.stream import EVERYTHING, Sight, Stream

log = logging.getLogger(__name__)

_LOCAL_NAMES: Final = frozenset({"localhost", "ip6-localhost"})
_JSON: Final = "application/json"


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address in _LOCAL_NAMES


@asynccontextmanager
async def board_served(
    source: Source,
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    access: Access | None = None,
    compute: Compute | None = None,
    reading: Reading = Reading.SEED,
    beforehand: bool = True,
    limits: ListenerLimits = ListenerLimits(),  # noqa: B008  frozen
) -> AsyncIterator[int]:
    """Serve the board meanwhile; yields the port. Raises OSError if it is taken.

    `beforehand`: the first board is made at once, so that the first reader need not wait for it.
    """
    stream = Stream(source, compute or ThreadCompute(), reading=reading)
    if beforehand:
        await stream.refresh()
    async with stream_served(stream, address=address, port=port, access=access, limits=limits) as served:
        yield served


@asynccontextmanager
async def stream_served(
    stream: Stream,
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    access: Access | None = None,
    limits: ListenerLimits = ListenerLimits(),  # noqa: B008  frozen
) -> AsyncIterator[int]:
    """Serve what this stream tells; yields the port."""
    if access is None and not is_loopback(address):
        raise ValueError(f"{address}: without access control only a loopback address may be served")
    app = web.Application(middlewares=[_headers, _guard(local_only=access is None)])
    app.add_routes([*page_routes(), *_Api(stream, access).routes()])
    async with listening(app, address=address, port=port, limits=limits, shutdown_seconds=0.5) as served:
        running = asyncio.create_task(stream.run(), name="dashboard")
        running.add_done_callback(_tell_end)
        try:
            yield served
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _tell_end(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        log.error("the dashboard is no longer kept up to date", exc_info=error)


# -- what every answer goes through ------------------------------------------------------------------------------------


def _guard(*, local_only: bool) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if local_only and not _is_local(request.host):
            raise web.HTTPForbidden(text="this name is not served here; use 127.0.0.1 or localhost\n")
        if request.headers.get("Sec-Fetch-Site") == "cross-site" and request.path.startswith("/api/"):
            raise web.HTTPForbidden(text="not for other sites\n")
        return await handler(request)

    return guard


def _is_local(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)


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
    def __init__(self, stream: Stream, access: Access | None) -> None:
        self._stream = stream
        self._access = access

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/board", self.board),
            web.get("/api/node/{kind}/{name:.+}", self.node),
            web.get("/api/stream", self.stream),
        ]

    async def _sight(self, request: web.Request) -> Sight:
        if self._access is None:
            return EVERYTHING
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            return await self._access.sight(token if scheme.lower() == "bearer" else "", self._stream.namespaces)
        except Refused as refused:
            headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": str(RETRY_SECONDS)}}
            raise _failure(refused.code, str(refused), headers.get(refused.code)) from None

    async def board(self, request: web.Request) -> web.Response:
        body, compressed, tag = await self._stream.whole(await self._sight(request))
        headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization, Accept-Encoding"}
        headers["X-At"] = str(round(self._stream.source.look().at.timestamp()))  # the board itself may be older
        if is_known(request, tag):
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=compressed, content_type=_JSON, headers=headers | {"Content-Encoding": "gzip"})
        return web.Response(body=body, content_type=_JSON, headers=headers)

    async def node(self, request: web.Request) -> web.Response:
        key = f"{request.match_info['kind']}/{request.match_info['name']}"
        try:
            details = await self._stream.details(key, await self._sight(request))
        except LookupError:
            raise _failure(404, f"{key} is not there, or no longer") from None
        headers = {"Cache-Control": "private, no-store"}
        return web.Response(body=msgspec.json.encode(details), content_type=_JSON, headers=headers)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        sight = await self._sight(request)
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


def _failure(code: int, message: str, headers: dict[str, str] | None = None) -> web.HTTPException:
    kinds: dict[int, type[web.HTTPException]] = {
        401: web.HTTPUnauthorized,
        403: web.HTTPForbidden,
        404: web.HTTPNotFound,
        503: web.HTTPServiceUnavailable,
    }
    text = msgspec.json.encode({"message": message}).decode()
    return kinds[code](text=text, content_type=_JSON, headers=headers)
