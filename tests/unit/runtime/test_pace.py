"""Rates and waits after failures."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.runtime.pace import Backoff, Rate, TokenBucket


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (6, 30.0), (10_000, 30.0)])
def test_waits_double_up_to_the_cap(failures: int, seconds: float) -> None:
    assert Backoff(first_seconds=1, cap_seconds=30).seconds(failures, Random(0)) == seconds


@given(failures=st.integers(1, 200), seed=st.integers(0, 9), jitter=st.floats(0, 0.99))
def test_jitter_only_shortens(failures: int, seed: int, jitter: float) -> None:
    longest = Backoff(first_seconds=1, cap_seconds=30).seconds(failures, Random(0))
    wait = Backoff(first_seconds=1, cap_seconds=30, jitter=jitter).seconds(failures, Random(seed))
    assert longest * (1 - jitter) <= wait <= longest


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(Rate(per_second=5, burst=10), at=0.0)
    assert [bucket.take(0.0) for _ in range(11)] == [True] * 10 + [False]
    assert bucket.wait_seconds(0.0) == pytest.approx(0.2)
    assert not bucket.take(0.1)
    assert bucket.take(0.2)
    assert not bucket.take(0.2)


@given(
    per_second=st.sampled_from([0.1, 1.0, 3.0, 5.0, 7.0]),
    burst=st.integers(1, 10),
    gaps=st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.3, 1.0, 60.0]), max_size=60),
)
def test_no_more_than_the_burst_and_the_rate(per_second: float, burst: int, gaps: list[float]) -> None:
    bucket = TokenBucket(Rate(per_second=per_second, burst=burst), at=0.0)
    at, taken = 0.0, 0
    for gap in gaps:
        at += gap
        taken += bucket.take(at)
        assert taken <= burst + at * per_second + 1e-6


def test_waiting_as_told_is_enough() -> None:
    bucket = TokenBucket(Rate(per_second=3, burst=1), at=0.0)
    at = 0.0
    for _ in range(100):
        assert bucket.take(at)
        at += bucket.wait_seconds(at)
