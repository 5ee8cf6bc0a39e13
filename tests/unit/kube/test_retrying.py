"""When is a failed request sent again?"""

import pytest

from dovetail.kube.retrying import NO_PATIENCE, RetryPolicy, wait_before_retry
from dovetail.ports import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    NotFound,
    OutcomeUnknown,
    TooManyRequests,
    Unavailable,
)

PATIENCE = RetryPolicy(attempts=4, total_seconds=10.0, first_seconds=1.0, longest_seconds=3.0)


def wait(
    error: ApiError,
    *,
    write: bool = False,
    attempt: int = 1,
    spent: float = 0.0,
    chance: float = 0.5,
    patience: RetryPolicy = PATIENCE,
) -> float | None:
    return wait_before_retry(error, write=write, attempt=attempt, spent_seconds=spent, chance=chance, patience=patience)


@pytest.mark.parametrize(
    ("error", "read", "write"),
    [
        (Unavailable("x"), True, True),
        (TooManyRequests("x"), True, True),
        (InternalError("x"), True, False),
        (OutcomeUnknown("x"), False, False),
        *((kind("x"), False, False) for kind in (ApiError, Conflict, Forbidden, Gone, Invalid, NotFound)),
    ],
)
def test_only_what_is_safe_is_repeated(error: ApiError, read: bool, write: bool) -> None:
    assert (wait(error) is not None, wait(error, write=True) is not None) == (read, write)


@pytest.mark.parametrize(
    ("attempt", "chance", "seconds"),
    [(1, 0.0, 0.0), (1, 0.5, 0.5), (2, 0.5, 1.0), (3, 0.5, 1.5), (3, 0.999, 2.997), (4, 0.5, None), (5, 0.5, None)],
)
def test_back_off_grows_to_a_limit_and_ends(attempt: int, chance: float, seconds: float | None) -> None:
    assert wait(Unavailable("x"), attempt=attempt, chance=chance) == seconds


def test_retry_after_comes_before_the_jitter() -> None:
    assert wait(TooManyRequests("x", retry_after=7.0)) == 7.5


@pytest.mark.parametrize(("spent", "again"), [(9.5, True), (9.6, False)])
def test_no_wait_beyond_the_time_there_is(spent: float, again: bool) -> None:
    assert (wait(Unavailable("x"), spent=spent) is not None) == again


def test_without_patience_nothing_is_repeated() -> None:
    assert wait(Unavailable("x"), patience=NO_PATIENCE) is None


def test_many_attempts_do_not_overflow() -> None:
    assert wait(Unavailable("x"), attempt=900, patience=RetryPolicy(attempts=1000, longest_seconds=3.0)) == 1.5
