"""When may the next request go out, so that we stay within a rate and a burst?"""

import asyncio


class TokenBucket:
    """Holds up to `burst` tokens, refilled at `qps` a second; who finds none waits in the order of asking."""

    def __init__(self, qps: float, burst: int) -> None:
        assert qps > 0
        assert burst >= 1
        self._qps = qps
        self._burst = burst
        self._tokens = float(burst)
        self._filled_at: float | None = None

    def reserve(self, now: float) -> float:
        """Take a token, perhaps one that is not there yet; returns the seconds until it is."""
        if self._filled_at is not None:
            self._tokens = min(float(self._burst), self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._qps)

    def give_back(self) -> None:
        """Return a token that was not used."""
        self._tokens += 1.0

    async def take(self) -> None:
        """Wait for a token, by the clock of the running loop."""
        wait = self.reserve(asyncio.get_running_loop().time())
        if wait <= 0.0:
            return
        try:
            await asyncio.sleep(wait)
        except asyncio.CancelledError:
            self.give_back()
            raise
