"""Serves probes and metrics (04 §6).

Every replica serves them, whether it leads or not. Probes answer as those of Kubernetes do: each check has a path below
the probe's, and `?verbose` lists all checks.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from dovetail.observe.metrics import CONTENT_TYPE, rendered
from dovetail.runtime.compute import ThreadCompute
from dovetail.runtime.manager import HealthStatus
from dovetail.web.listener import ListenerLimits, listening

SCRAPES_AT_ONCE: Final = 8  # each holds its text until it is read; abandoned ones count while they wait

Checks: TypeAlias = Mapping[str, Callable[[], HealthStatus]]


def always_well() -> HealthStatus:
    """A check that passes whenever the program answers."""
    return HealthStatus(ok=True)


def probe_routes(probe: str, checks: Checks) -> list[web.RouteDef]:
    """`/probe` runs all checks, `/probe/check` one of them."""

    async def all_of_them(request: web.Request) -> web.Response:
        return _answer(probe, checks, verbose="verbose" in request.query)

    async def one(request: web.Request) -> web.Response:
        name = request.match_info["check"]
        if name not in checks:
            return web.Response(status=404, text=f"there is no check {name}; there are {', '.join(checks)}\n")
        return _answer(name, {name: checks[name]}, verbose="verbose" in request.query)

    return [web.get(f"/{probe}", all_of_them), web.get(f"/{probe}/{{check}}", one)]


def _answer(probe: str, checks: Checks, *, verbose: bool) -> web.Response:
    results = {name: check() for name, check in checks.items()}
    well = all(health.ok for health in results.values())
    if well and not verbose:
        return web.Response(text="ok")
    lines = [
        f"[+]{name} ok" if health.ok else f"[-]{name} failed: {'; '.join(health.problems)}"
        for name, health in results.items()
    ]
    lines.append(f"{probe} check {'passed' if well else 'failed'}")
    return web.Response(status=200 if well else 500, text="\n".join([*lines, ""]))


def metrics_route(registry: CollectorRegistry) -> web.RouteDef:
    """`/metrics` for Prometheus. The text, megabytes in a large cluster, is made on a worker thread; one at a time."""
    compute, lock, scrapes = ThreadCompute(), asyncio.Lock(), asyncio.Semaphore(SCRAPES_AT_ONCE)

    async def metrics(request: web.Request) -> web.StreamResponse:
        if scrapes.locked():
            raise web.HTTPServiceUnavailable(text="too many scrapes at once\n", headers={"Retry-After": "1"})
        async with scrapes:
            return await scrape(request)

    async def scrape(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        async with lock:
            families: list[Metric] = []
            for family in registry.collect():  # thousands of samples: not in one iteration of the loop (R45)
                families.append(family)
                await asyncio.sleep(0)
            parts = await compute.run(lambda: list(rendered(families)))
        with suppress(ConnectionError):  # the client is gone
            await response.prepare(request)
            for part in parts:
                await response.write(part)
        return response

    return web.get("/metrics", metrics)


@asynccontextmanager
async def serving(
    routes: list[web.RouteDef],
    *,
    address: str | None,
    port: int,
    limits: ListenerLimits = ListenerLimits(),  # noqa: B008  frozen
) -> AsyncIterator[int]:
    """Serve these routes; yields the port. Port 0: a free one; no address: all addresses. Raises OSError."""
    app = web.Application()
    app.add_routes(routes)
    async with listening(app, address=address, port=port, limits=limits) as served:
        yield served
