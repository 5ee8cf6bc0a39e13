"""Decides who may read at a listener.

With `access`, each reader sends a bearer token. Without it, everybody who reaches the listener may read everything. So
its address must be a loopback address, and requests to a name of another machine are refused: a page elsewhere could
read by DNS rebinding.
"""

from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from dovetail.web.access import RETRY_SECONDS, AccessDenied, Authorizer
from dovetail.web.stream import EVERYTHING, Visibility

ReaderHandler: TypeAlias = Callable[[web.Request, Visibility], Awaitable[web.StreamResponse]]

_LOCAL_NAMES: Final = frozenset({"localhost", "ip6-localhost"})


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address in _LOCAL_NAMES


class Readers:
    """The readers of one listener. `namespaces`: the namespaces that have pods."""

    def __init__(self, access: Authorizer | None, namespaces: Callable[[], Awaitable[frozenset[str]]]) -> None:
        self._access = access
        self._namespaces = namespaces

    def get(self, path: str, handler: ReaderHandler) -> web.RouteDef:
        """A route for readers only. The handler gets what the reader may see."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            return await handler(request, await self._sight(request))

        return web.get(path, guarded)

    def check_host(self, request: web.Request) -> None:
        """Raises HTTPForbidden if no token is required and the request names another machine."""
        if self._access is None and not _is_local(request.host):
            raise web.HTTPForbidden(text="this host is not served here; use 127.0.0.1 or localhost\n")

    async def _sight(self, request: web.Request) -> Visibility:
        """Raises HTTPException."""
        self.check_host(request)
        if request.headers.get("Sec-Fetch-Site") == "cross-site":
            raise web.HTTPForbidden(text="requests from other sites are refused\n")
        if self._access is None:
            return EVERYTHING
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            return await self._access.sight(token if scheme.lower() == "bearer" else "", self._namespaces)
        except AccessDenied as refused:
            headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": str(RETRY_SECONDS)}}
            raise failure(refused.code, str(refused), headers.get(refused.code)) from None


def _is_local(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)


def failure(code: int, message: str, headers: dict[str, str] | None = None) -> web.HTTPException:
    """An error for pages and scripts: JSON with a `message`."""
    kinds: dict[int, type[web.HTTPException]] = {
        401: web.HTTPUnauthorized,
        403: web.HTTPForbidden,
        404: web.HTTPNotFound,
        503: web.HTTPServiceUnavailable,
    }
    text = msgspec.json.encode({"message": message}).decode()
    return kinds[code](text=text, content_type="application/json", headers=headers)
