"""Where do heavy passes run, so that probes, leases and watches are not held up meanwhile (R45)?"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dovetail.ports import Compute

P = ParamSpec("P")
R = TypeVar("R")


class ThreadCompute(Compute):
    """On a worker thread. The interpreter takes turns, so the event loop comes round every few milliseconds."""

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(function, *args, **kwargs)
