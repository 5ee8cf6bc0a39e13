"""May one more be done now, and if not, in how many seconds?

A bucket keeps no time of its own: the caller says when it is, by a clock that never goes back.
"""

from dataclasses import dataclass

_HAIR = 1e-9  # sums of fractions may come to so much less than a whole token


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many a second in the long run, and `burst` at once."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        assert self.per_second > 0, self
        assert self.burst >= 1, self


class TokenBucket:
    """Holds to a rate: filled up to the burst, and emptied by a token each time.

    Who finds no token either leaves it at that (`take`) or has the next one laid by for him (`reserve`).
    """

    def __init__(self, rate: Rate, *, at: float) -> None:
        self._rate = rate
        self._tokens = float(rate.burst)  # below zero: so many are laid by
        self._at = at

    def take(self, at: float) -> bool:
        """Take a token if there is one."""
        self._fill(at)
        if self._tokens < 1 - _HAIR:
            return False
        self._tokens -= 1
        return True

    def wait_seconds(self, at: float) -> float:
        """How long until there is a token; 0 if there is one."""
        self._fill(at)
        return max(0.0, (1 - self._tokens) / self._rate.per_second)

    def reserve(self, at: float) -> float:
        """Take a token, perhaps one that is yet to come; returns the seconds until it is there."""
        seconds = self.wait_seconds(at)
        self._tokens -= 1
        return seconds

    def give_back(self) -> None:
        """Return a token that was reserved and not used."""
        self._tokens += 1

    def _fill(self, at: float) -> None:
        assert at >= self._at, (at, self._at)
        self._tokens = min(float(self._rate.burst), self._tokens + (at - self._at) * self._rate.per_second)
        self._at = at
