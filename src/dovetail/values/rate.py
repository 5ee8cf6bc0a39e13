"""A token bucket. The caller passes the time, from a clock that never goes back."""

from dataclasses import dataclass

_HAIR = 1e-9  # rounding error of sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A limit of `per_second` on average, and `burst` at once."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        assert self.per_second > 0, self
        assert self.burst >= 1, self


class TokenBucket:
    """A caller that finds no token gives up (`take`) or gets the next one later (`reserve`)."""

    def __init__(self, rate: Rate, *, at: float) -> None:
        self._rate = rate
        self._tokens = float(rate.burst)  # below zero: the number of reserved tokens
        self._at = at

    def take(self, at: float) -> bool:
        self._fill(at)
        if self._tokens < 1 - _HAIR:
            return False
        self._tokens -= 1
        return True

    def wait_seconds(self, at: float) -> float:
        """The seconds until the next token; 0 if there is one."""
        self._fill(at)
        return max(0.0, (1 - self._tokens) / self._rate.per_second)

    def reserve(self, at: float) -> float:
        """Take a token, perhaps a future one. Returns the seconds until then."""
        seconds = self.wait_seconds(at)
        self._tokens -= 1
        return seconds

    def give_back(self) -> None:
        self._tokens += 1

    def _fill(self, at: float) -> None:
        assert at >= self._at, (at, self._at)
        self._tokens = min(float(self._rate.burst), self._tokens + (at - self._at) * self._rate.per_second)
        self._at = at
