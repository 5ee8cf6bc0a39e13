"""Do requests keep to a rate and a burst?"""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube.pacing import TokenBucket


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    bucket = TokenBucket(qps=10.0, burst=3)
    waits = [bucket.reserve(100.0) for _ in range(6)]
    assert waits == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


def test_it_refills_up_to_the_burst_only() -> None:
    bucket = TokenBucket(qps=10.0, burst=2)
    for _ in range(2):
        bucket.reserve(0.0)
    assert bucket.reserve(0.05) == pytest.approx(0.05)
    assert [bucket.reserve(1000.0) for _ in range(3)] == pytest.approx([0, 0, 0.1])


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60), st.floats(0.5, 50), st.integers(1, 10))
def test_no_span_holds_more_than_its_share(pauses: list[float], qps: float, burst: int) -> None:
    bucket = TokenBucket(qps=qps, burst=burst)
    now = 0.0
    starts = []
    for pause in pauses:
        now += pause
        starts.append(now + bucket.reserve(now))
    for first, start in enumerate(starts):
        for last in range(first, len(starts)):
            assert last - first + 1 <= burst + (starts[last] - start) * qps + 1e-6


def test_who_stops_waiting_takes_nothing() -> None:
    async def scenario() -> float:
        bucket = TokenBucket(qps=0.01, burst=1)
        await bucket.take()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await bucket.take()
        return bucket.reserve(asyncio.get_running_loop().time())

    assert asyncio.run(scenario()) == pytest.approx(100.0, abs=1.0)
