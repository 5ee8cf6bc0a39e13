"""Back-off after failures."""

from random import Random

import msgspec


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Delays that double from `first_seconds` to `cap_seconds`. A random part, up to `jitter`, is taken off each."""

    first_seconds: float
    cap_seconds: float
    jitter: float = 0.0

    def __post_init__(self) -> None:
        assert 0 < self.first_seconds <= self.cap_seconds, self
        assert 0 <= self.jitter < 1, self

    def seconds(self, failures: int, chance: Random) -> float:
        """The delay after this many failures in a row."""
        assert failures >= 1, failures
        longest = min(self.cap_seconds, self.first_seconds * 2.0 ** min(failures - 1, 60))
        return longest * (1 - self.jitter * chance.random())
