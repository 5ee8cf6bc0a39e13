"""Where do heavy passes run, so that probes, leases and watches are not held up meanwhile (R45)?"""

import asyncio
import gc
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from dovetail.ports import Compute

P = ParamSpec("P")
R = TypeVar("R")

# Looking for cycles in all that a large cluster holds takes tenths of a second each time, and there are hardly any.
RARELY: Final = (10_000, 10, 1_000)


class ThreadCompute(Compute):
    """On a worker thread. The interpreter takes turns, so the event loop comes round every few milliseconds."""

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(function, *args, **kwargs)


def spare_collections() -> None:
    """What was read at the start stays: the garbage collector need not look through it again and again (08 §10.5).

    Nor often through what is made of it later: a look at all of a large cluster stops every thread for some tenths of a
    second, and hardly anything here is a cycle that only such a look would find.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*RARELY)
