"""The machine's clock, as the port Clock."""

import asyncio
import time
from datetime import UTC, datetime

from dovetail.ports import Clock

# Linux's ordinary monotonic clock stops while the machine is suspended, but other machines' leases go on.
_clock_id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock(Clock):
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(_clock_id)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
