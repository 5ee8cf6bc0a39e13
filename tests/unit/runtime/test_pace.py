"""Waits after failures."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.runtime.pace import Backoff


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (6, 30.0), (10_000, 30.0)])
def test_waits_double_up_to_the_cap(failures: int, seconds: float) -> None:
    assert Backoff(first_seconds=1, cap_seconds=30).seconds(failures, Random(0)) == seconds


@given(failures=st.integers(1, 200), seed=st.integers(0, 9), jitter=st.floats(0, 0.99))
def test_jitter_only_shortens(failures: int, seed: int, jitter: float) -> None:
    longest = Backoff(first_seconds=1, cap_seconds=30).seconds(failures, Random(0))
    wait = Backoff(first_seconds=1, cap_seconds=30, jitter=jitter).seconds(failures, Random(seed))
    assert longest * (1 - jitter) <= wait <= longest
