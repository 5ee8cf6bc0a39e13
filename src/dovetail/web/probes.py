"""Is the program alive and ready, and what are its metrics (04 §6)?

Served by every replica, whether it leads or not. Probes answer in the form of Kubernetes' own: each check has an
address below the probe's, and `?verbose` lists them all.
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

SCRAPES_AT_ONCE: Final = 8  # each holds its text until it is read; cut-off ones are still counted while they wait

Checks: TypeAlias = Mapping[str, Callable[[], HealthStatus]]


def always_well() -> HealthStatus:
    """That it answers at all is the check."""
    return HealthStatus(ok=True)


def probe_routes(probe: str, checks: Checks) -> list[web.RouteDef]:
    """`/probe` is well if all checks are; `/probe/check` asks one of them."""

    async def all_of_them(request: web.Request) -> web.Response:
        return _answer(probe, checks, verbose="verbose" in request.query)

    async def one(request: web.Request) -> web.Response:
        name = request.match_info["check"]
        if name not in checks:
            return web.Response(status=404, text=f"there is no check {name}; there are {', '.join(checks)}\n")
        return _answer(name, {name: checks[name]}, verbose="verbose" in request.query)

    return [web.get(f"/{probe}", all_of_them), web.get(f"/{probe}/{{check}}", one)]


def _answer(probe: str, checks: Checks, *, verbose: bool) -> web.Response:
    found = {name: check() for name, check in checks.items()}
    well = all(health.ok for health in found.values())
    if well and not verbose:
        return web.Response(text="ok")
    lines = [
        f"[+]{name} ok" if health.ok else f"[-]{name} failed: {'; '.join(health.problems)}"
        for name, health in found.items()
    ]
    lines.append(f"{probe} check {'passed' if well else 'failed'}")
    return web.Response(status=200 if well else 500, text="\n".join([*lines, ""]))


def metrics_route(registry: CollectorRegistry) -> web.RouteDef:
    """`/metrics`, as Prometheus reads it. The text, megabytes in a large cluster, is made aside; one at a time."""
    compute, one, scrapes = ThreadCompute(), asyncio.Lock(), asyncio.Semaphore(SCRAPES_AT_ONCE)

    async def metrics(request: web.Request) -> web.StreamResponse:
        if scrapes.locked():
            raise web.HTTPServiceUnavailable(text="too many scrapes at once\n", headers={"Retry-After": "1"})
        async with scrapes:
            return await scrape(request)

    async def scrape(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        async with one:
            families: list[Metric] = []
            for family in registry.collect():  # thousands of samples of our own: not in one turn (R45)
                families.append(family)
                await asyncio.sleep(0)
            parts = await compute.run(lambda: list(rendered(families)))
        with suppress(ConnectionError):  # whoever asked is gone
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
    """Serve these on the port, or on a free one for 0, which is yielded. No address: on all. Raises OSError."""
    app = web.Application()
    app.add_routes(routes)
    async with listening(app, address=address, port=port, limits=limits) as served:
        yield served
