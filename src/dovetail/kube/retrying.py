"""Should a failed request be sent again, and when?

Only if that is safe: reads always, writes only if they have certainly not taken effect. What remains is for the caller,
who knows more: whether the object should be looked at first, or the work be put off.
"""

import msgspec

from dovetail.ports import ApiError, InternalError, TooManyRequests, Unavailable


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long to try."""

    attempts: int = 5
    total_seconds: float = 20.0
    first_seconds: float = 0.1
    longest_seconds: float = 5.0


NO_PATIENCE = RetryPolicy(attempts=1)


def wait_before_retry(
    error: ApiError, *, write: bool, attempt: int, spent_seconds: float, chance: float, patience: RetryPolicy
) -> float | None:
    """Seconds to wait before the next attempt; None if there should be none.

    `attempt` is the number of the failed one, from 1; `chance` lies in [0, 1) and chooses within the back-off.
    """
    if attempt >= patience.attempts or not _safe(error, write=write):
        return None
    back_off = min(patience.longest_seconds, patience.first_seconds * 2.0 ** (attempt - 1))
    wait = chance * back_off
    if isinstance(error, TooManyRequests):
        wait += error.retry_after
    return wait if spent_seconds + wait <= patience.total_seconds else None


def _safe(error: ApiError, *, write: bool) -> bool:
    if isinstance(error, Unavailable | TooManyRequests):
        return True
    return not write and isinstance(error, InternalError)
