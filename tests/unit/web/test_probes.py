"""Probes and metrics over HTTP, asked by a real client."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from dovetail.runtime.manager import HealthStatus
from dovetail.web.debug import profiling_routes
from dovetail.web.probes import always_well, metrics_route, probe_routes, serving
from dovetail.web.readers import Readers
from tests.harness.stage import real_time, stage

Get = Callable[[str], Coroutine[Any, Any, tuple[int, str]]]


pytestmark = stage(real_time)


@asynccontextmanager
async def served(routes: list[web.RouteDef]) -> AsyncIterator[Get]:
    async with serving(routes, address="127.0.0.1", port=0) as port, aiohttp.ClientSession() as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status, await response.text()

        yield get


async def test_a_probe_is_as_well_as_its_checks() -> None:
    problems: list[str] = ["pods is not synced", "nodes is not synced"]
    checks = {"readyz": always_well, "manager": lambda: HealthStatus(not problems, tuple(problems))}
    async with served(probe_routes("readyz", checks)) as get:
        failed = "[+]readyz ok\n[-]manager failed: pods is not synced; nodes is not synced\nreadyz check failed\n"
        assert await get("/readyz") == (500, failed)
        assert await get("/readyz/readyz") == (200, "ok")
        assert (await get("/readyz/manager"))[0] == 500
        problems.clear()
        assert await get("/readyz") == (200, "ok")
        assert await get("/readyz?verbose") == (200, "[+]readyz ok\n[+]manager ok\nreadyz check passed\n")
        assert await get("/readyz/manager") == (200, "ok")
        status, text = await get("/readyz/other")
        assert (status, text) == (404, "there is no check other; there are readyz, manager\n")
        assert (await get("/healthz"))[0] == 404


async def test_metrics_are_served_as_text() -> None:
    registry = CollectorRegistry()
    Counter("things_total", "Things.", registry=registry).inc(3)
    async with served([metrics_route(registry)]) as get:
        assert await get("/metrics") == (
            200,
            "# HELP things_total Things.\n# TYPE things_total counter\nthings_total 3\n",
        )


async def test_a_taken_port_is_an_error() -> None:
    async with serving([], address="127.0.0.1", port=0) as port:
        with pytest.raises(OSError, match="address already in use"):
            async with serving([], address="127.0.0.1", port=port):
                pass


async def test_profiles() -> None:
    async def no_namespaces() -> frozenset[str]:
        return frozenset()

    async with served(profiling_routes(Readers(None, no_namespaces))) as get:
        status, text = await get("/debug/pprof/profile?seconds=0.01")
        assert status == 200
        assert "function calls" in text
        assert (await get("/debug/pprof/profile?seconds=100"))[0] == 400
        assert (await get("/debug/pprof/profile?seconds=soon"))[0] == 400
        status, text = await get("/debug/pprof/tasks")
        assert status == 200
        assert "Stack for" in text
