"""When may the next request go out, so that we stay within a rate and a burst?"""

import asyncio

from dovetail.values.rate import TokenBucket


async def take(bucket: TokenBucket) -> None:
    """Wait for a token, in the order of asking, by the clock of the running loop."""
    wait_seconds = bucket.reserve(asyncio.get_running_loop().time())
    if wait_seconds <= 0:
        return
    try:
        await asyncio.sleep(wait_seconds)
    except asyncio.CancelledError:
        bucket.give_back()
        raise
