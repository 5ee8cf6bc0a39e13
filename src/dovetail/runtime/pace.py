"""How fast may something be done, and how long does one wait after a failure?"""

from random import Random

import msgspec


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Waits that double from `first_seconds` to `cap_seconds`; up to the share `jitter` of each is left to chance."""

    first_seconds: float
    cap_seconds: float
    jitter: float = 0.0

    def __post_init__(self) -> None:
        assert 0 < self.first_seconds <= self.cap_seconds, self
        assert 0 <= self.jitter < 1, self

    def seconds(self, failures: int, chance: Random) -> float:
        """How long to wait after so many failures in a row; never more than the cap."""
        assert failures >= 1, failures
        longest = min(self.cap_seconds, self.first_seconds * 2.0 ** min(failures - 1, 60))
        return longest * (1 - self.jitter * chance.random())


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """So many a second in the long run, and `burst` at once."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        assert self.per_second > 0, self
        assert self.burst >= 1, self


class TokenBucket:
    """Holds to a rate. It keeps no time of its own: the caller says when it is."""

    def __init__(self, rate: Rate, *, at: float) -> None:
        self._rate = rate
        self._tokens = float(rate.burst)
        self._at = at

    def take(self, at: float) -> bool:
        """Take a token if there is one."""
        self._fill(at)
        # Sums of fractions may come to a hair less than one.
        if self._tokens < 1 - 1e-9:
            return False
        self._tokens -= 1
        return True

    def wait_seconds(self, at: float) -> float:
        """How long until there is a token; 0 if there is one."""
        self._fill(at)
        return max(0.0, (1 - self._tokens) / self._rate.per_second)

    def _fill(self, at: float) -> None:
        assert at >= self._at, (at, self._at)
        self._tokens = min(float(self._rate.burst), self._tokens + (at - self._at) * self._rate.per_second)
        self._at = at
