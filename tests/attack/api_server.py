"""A small HTTP server on loopback that stands for the API server: empty lists, quiet watches, Leases, token reviews."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

LEASES: Final = "/apis/coordination.k8s.io/v1/leases"
NAMESPACED_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class ApiServer:
    """Answers token reviews only once `answering` is set. Counts what it is asked.

    The user of a known token has its name, and may list what `may_list(user, resource, namespace)` says: everything.
    """

    def __init__(self, *, closes_lease_connections: bool = False) -> None:
        self.url = ""
        self.known_tokens: set[str] = set()
        self.may_list: Callable[[str, str, str], bool] = lambda *_: True
        self.answering = asyncio.Event()
        self.renewed = asyncio.Condition()
        self.renewals = 0
        self.reviews = 0
        self.reviews_now = 0
        self.most_reviews = 0
        self._closes_lease_connections = closes_lease_connections
        self._lease: dict[str, Any] | None = None
        self._ending = asyncio.Event()

    def kubeconfig(self, folder: Path) -> Path:
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {}}],
        }
        file = folder / "kubeconfig"
        file.write_bytes(msgspec.json.encode(config))
        return file

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.add_routes(
            [
                web.get(LEASES, self._list_leases),
                web.post(NAMESPACED_LEASES, self._create_lease),
                web.get(f"{NAMESPACED_LEASES}/{{name}}", self._get_lease),
                web.patch(f"{NAMESPACED_LEASES}/{{name}}", self._patch_lease),
                web.post(TOKEN_REVIEWS, self._review_token),
                web.post(ACCESS_REVIEWS, self._review_access),
                web.get("/{path:.*}", self._list_or_watch),
                web.post("/{path:.*}", self._echo),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield
        finally:
            self._ending.set()
            self.answering.set()
            await runner.cleanup()

    async def wait_for_renewals(self, number: int) -> None:
        """Until the Lease has been renewed so many times from now on."""
        wanted = self.renewals + number
        async with self.renewed:
            await self.renewed.wait_for(lambda: self.renewals >= wanted)

    # -- Leases ---------------------------------------------------------------------------------------------------

    async def _list_leases(self, _: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [self._lease] if self._lease else []})

    async def _create_lease(self, request: web.Request) -> web.Response:
        return self._kept(await request.json())

    async def _get_lease(self, _: web.Request) -> web.Response:
        if self._lease is None:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        return self._kept(self._lease)

    async def _patch_lease(self, request: web.Request) -> web.Response:
        assert self._lease is not None
        self._lease["spec"] |= (await request.json())["spec"]
        async with self.renewed:
            self.renewals += 1
            self.renewed.notify_all()
        return self._kept(self._lease)

    def _kept(self, lease: dict[str, Any]) -> web.Response:
        version = str(self.renewals + 1)
        self._lease = lease | {"metadata": lease["metadata"] | {"uid": "u", "resourceVersion": version}}
        response = web.json_response(self._lease)
        if self._closes_lease_connections:
            response.force_close()
        return response

    # -- reviews --------------------------------------------------------------------------------------------------

    async def _review_token(self, request: web.Request) -> web.Response:
        token = (await request.json())["spec"]["token"]
        self.reviews += 1
        self.reviews_now += 1
        self.most_reviews = max(self.most_reviews, self.reviews_now)
        try:
            await self.answering.wait()
        finally:
            self.reviews_now -= 1
        return web.json_response({"status": {"authenticated": token in self.known_tokens, "user": {"username": token}}})

    async def _review_access(self, request: web.Request) -> web.Response:
        spec = (await request.json())["spec"]
        asked = spec["resourceAttributes"]
        allowed = self.may_list(spec["user"], asked["resource"], asked["namespace"])
        return web.json_response({"status": {"allowed": allowed}})

    # -- everything else ------------------------------------------------------------------------------------------

    async def _list_or_watch(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        response = web.StreamResponse()
        await response.prepare(request)
        await self._ending.wait()
        return response

    async def _echo(self, request: web.Request) -> web.Response:
        return web.json_response(await request.json())
