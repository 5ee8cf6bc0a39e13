"""Does a bucket keep to its rate and its burst, whether one leaves when it is empty or waits?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.values.rate import Rate, TokenBucket

RATES = st.builds(Rate, per_second=st.sampled_from([0.1, 0.5, 1.0, 3.0, 5.0, 7.0, 50.0]), burst=st.integers(1, 10))
GAPS = st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.3, 1.0, 60.0]) | st.floats(0, 2), max_size=60)


@pytest.mark.parametrize(("per_second", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_what_is_no_rate(per_second: float, burst: int) -> None:
    with pytest.raises(AssertionError):
        Rate(per_second=per_second, burst=burst)


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(Rate(per_second=5, burst=10), at=0.0)
    assert [bucket.take(0.0) for _ in range(11)] == [True] * 10 + [False]
    assert bucket.wait_seconds(0.0) == pytest.approx(0.2)
    assert not bucket.take(0.1)
    assert bucket.take(0.2)
    assert not bucket.take(0.2)


def test_who_reserves_is_told_how_long_to_wait() -> None:
    bucket = TokenBucket(Rate(per_second=10, burst=3), at=100.0)
    assert [bucket.reserve(100.0) for _ in range(6)] == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])
    assert not bucket.take(100.3)
    assert bucket.wait_seconds(100.3) == pytest.approx(0.1)
    assert bucket.take(100.4)


def test_it_fills_up_to_the_burst_only() -> None:
    bucket = TokenBucket(Rate(per_second=10, burst=2), at=0.0)
    for _ in range(2):
        bucket.reserve(0.0)
    assert bucket.reserve(0.05) == pytest.approx(0.05)
    assert [bucket.reserve(1000.0) for _ in range(3)] == pytest.approx([0, 0, 0.1])


def test_what_is_given_back_is_there_for_the_next() -> None:
    bucket = TokenBucket(Rate(per_second=1, burst=1), at=0.0)
    assert [bucket.reserve(0.0), bucket.reserve(0.0)] == [0, 1]
    bucket.give_back()
    assert bucket.reserve(0.0) == 1
    bucket.give_back()
    bucket.give_back()
    assert bucket.take(60.0)
    assert not bucket.take(60.0)


def test_time_does_not_go_back() -> None:
    bucket = TokenBucket(Rate(per_second=1, burst=1), at=5.0)
    with pytest.raises(AssertionError):
        bucket.take(4.9)


@given(rate=RATES, gaps=GAPS)
def test_no_more_are_taken_than_the_burst_and_the_rate(rate: Rate, gaps: list[float]) -> None:
    bucket = TokenBucket(rate, at=0.0)
    at, taken = 0.0, 0
    for gap in gaps:
        at += gap
        taken += bucket.take(at)
        assert taken <= rate.burst + at * rate.per_second + 1e-6


@given(rate=RATES, gaps=GAPS)
def test_no_span_holds_more_reservations_than_its_share(rate: Rate, gaps: list[float]) -> None:
    bucket = TokenBucket(rate, at=0.0)
    at, starts = 0.0, []
    for gap in gaps:
        at += gap
        starts.append(at + bucket.reserve(at))
    for first, start in enumerate(starts):
        for last in range(first, len(starts)):
            assert last - first + 1 <= rate.burst + (starts[last] - start) * rate.per_second + 1e-6


def test_waiting_as_told_is_enough() -> None:
    bucket = TokenBucket(Rate(per_second=3, burst=1), at=0.0)
    at = 0.0
    for _ in range(100):
        assert bucket.take(at)
        at += bucket.wait_seconds(at)
