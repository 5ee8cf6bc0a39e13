"""Do requests wait their turn, and take nothing if they give up?"""

import asyncio

import pytest

from dovetail.kube.retrying import take
from dovetail.values.rate import Rate, TokenBucket
from tests.harness.stage import real_time, stage


@stage(real_time)
async def test_who_stops_waiting_takes_nothing() -> None:
    loop = asyncio.get_running_loop()
    bucket = TokenBucket(Rate(per_second=0.01, burst=1), at=loop.time())
    await take(bucket)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await take(bucket)
    assert bucket.reserve(loop.time()) == pytest.approx(100.0, abs=1.0)
