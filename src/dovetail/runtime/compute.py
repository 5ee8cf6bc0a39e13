"""Runs heavy passes on a thread, so that they do not delay probes, leases and watches (R45)."""

import asyncio
import gc
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from dovetail.ports import Compute

P = ParamSpec("P")
R = TypeVar("R")

# A full garbage collection of a large cluster's state stops every thread for tenths of a second and frees hardly
# anything. A collection of the young generations looks at 30,000 objects at most, which takes some 10 ms.
RARELY: Final = (5_000, 5, 4_000)


class ThreadCompute(Compute):
    """Runs on a worker thread. The interpreter switches threads, so the event loop runs every few milliseconds."""

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(function, *args, **kwargs)


class SerialCompute(Compute):
    """Runs one function at a time, for functions that share an object."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._lock = asyncio.Lock()

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        async with self._lock:
            return await self._compute.run(function, *args, **kwargs)


def space_collections() -> None:
    """Makes garbage collections short and full ones rare (08 §10.5). Call it before anything is read."""
    gc.set_threshold(*RARELY)


def spare_collections() -> None:
    """Exempts everything that exists now from garbage collection. Call it when the caches are synced."""
    gc.freeze()
