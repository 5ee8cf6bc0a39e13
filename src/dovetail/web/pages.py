"""Serves the files of the page, and the headers that isolate it."""

import hashlib
from importlib import resources
from typing import Final

from aiohttp import web

_TYPES: Final = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
}
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _StaticFile:
    """A file of the package, read once."""

    def __init__(self, name: str, body: bytes) -> None:
        self.body = body
        self.tag = hashlib.sha256(body).hexdigest()[:20]
        self.type = _TYPES[name.rpartition(".")[2]]


def page_routes() -> list[web.RouteDef]:
    """`/`, and the files below `/static`."""
    files = {
        entry.name: _StaticFile(entry.name, entry.read_bytes())
        for entry in (resources.files("dovetail.web") / "static").iterdir()
        if entry.name.rpartition(".")[2] in _TYPES
    }

    async def index(request: web.Request) -> web.Response:
        return _answer(request, files["index.html"])

    async def static(request: web.Request) -> web.Response:
        file = files.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound
        return _answer(request, file)

    return [web.get("/", index), web.get("/static/{name}", static)]


def _answer(request: web.Request, file: _StaticFile) -> web.Response:
    if is_known(request, f'"{file.tag}"'):
        return web.Response(status=304, headers={"ETag": f'"{file.tag}"'})
    response = web.Response(body=file.body, content_type=file.type, charset="utf-8")
    response.headers["ETag"] = f'"{file.tag}"'
    response.headers["Cache-Control"] = "no-cache"
    return response


def is_known(request: web.Request, tag: str) -> bool:
    """Whether the reader has this version. A proxy that compresses makes the tag weak."""
    return any(tag == part.strip().removeprefix("W/") for part in request.headers.get("If-None-Match", "").split(","))
