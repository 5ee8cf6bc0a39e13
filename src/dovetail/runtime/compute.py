"""Where do heavy passes run, so that probes, leases and watches are not held up meanwhile (R45)?"""

import asyncio
import gc
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from dovetail.ports import Compute

P = ParamSpec("P")
R = TypeVar("R")

# Looking for cycles in all that a large cluster holds stops every thread for tenths of a second each time, and hardly
# any are found. One of what was made lately looks at 30,000 objects at most: some 10 ms.
RARELY: Final = (5_000, 5, 4_000)


class ThreadCompute(Compute):
    """On a worker thread. The interpreter takes turns, so the event loop comes round every few milliseconds."""

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(function, *args, **kwargs)


def space_collections() -> None:
    """Before anything is read: collections are to be short, and those of everything rare (08 §10.5)."""
    gc.set_threshold(*RARELY)


def spare_collections() -> None:
    """What was read at the start stays: the garbage collector need not look through it again and again."""
    gc.freeze()
