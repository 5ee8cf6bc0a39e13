"""Pacing and retries of requests.

A failed request is sent again only if that is safe: reads always, writes only if they have certainly not taken effect.
The caller handles the rest: it knows whether to read the object first or to try later.
"""

import asyncio

import msgspec

from dovetail.ports import ApiError, InternalError, TooManyRequests, Unavailable
from dovetail.values.rate import TokenBucket


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    attempts: int = 5
    total_seconds: float = 20.0
    first_seconds: float = 0.1
    longest_seconds: float = 5.0


NO_PATIENCE = RetryPolicy(attempts=1)


def wait_before_retry(
    error: ApiError, *, write: bool, attempt: int, spent_seconds: float, chance: float, patience: RetryPolicy
) -> float | None:
    """The seconds before the next attempt; None: do not retry.

    `attempt` is the number of the failed attempt, from 1; `chance` in [0, 1) chooses within the back-off.
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


async def take(bucket: TokenBucket) -> None:
    """Wait for a token of the rate limit. Callers get theirs in order."""
    wait_seconds = bucket.reserve(asyncio.get_running_loop().time())
    if wait_seconds <= 0:
        return
    try:
        await asyncio.sleep(wait_seconds)
    except asyncio.CancelledError:
        bucket.give_back()
        raise
