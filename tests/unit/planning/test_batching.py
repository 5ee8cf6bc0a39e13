"""When a window of triggers closes (06 §3, §12.1)."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from dovetail.planning.provisioning.batching import Batch

START = datetime(2026, 3, 2, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def batch(*triggers: tuple[str, float], idle: float = 1, longest: float = 10) -> Batch:
    made = Batch(idle=timedelta(seconds=idle), longest=timedelta(seconds=longest))
    for uid, seconds in triggers:
        made.add(uid, at(seconds))
    return made


def test_without_a_trigger_there_is_no_window() -> None:
    assert batch().closes_at is None


def test_one_trigger_closes_it_after_the_idle_time() -> None:
    assert batch(("a", 0)).closes_at == at(1)


def test_the_same_pod_again_does_not_extend_it() -> None:
    assert batch(("a", 0), ("a", 0.9)).closes_at == at(1)


def test_a_new_pod_extends_it() -> None:
    assert batch(("a", 0), ("b", 0.9)).closes_at == at(1.9)


def test_it_is_never_open_for_longer_than_the_longest_time() -> None:
    triggers = [(str(number), number * 0.9) for number in range(12)]
    assert batch(*triggers).closes_at == at(10)


def test_an_idle_time_above_the_longest_does_not_count() -> None:
    assert batch(("a", 0), idle=30, longest=10).closes_at == at(10)


def test_after_closing_it_begins_anew_with_the_same_pods() -> None:
    made = batch(("a", 0), ("b", 0.5))
    assert made.close() == 2
    assert (made.closes_at, len(made)) == (None, 0)
    made.add("a", at(7))
    assert made.closes_at == at(8)


def test_it_grows_as_long_as_new_pods_come() -> None:
    """A window that is closed while it grows is not the last one."""
    growing = batch(*((str(number), number * 0.9) for number in range(12)))
    assert growing.is_growing(at(10))
    assert not batch(("a", 0)).is_growing(at(1))
    assert not batch().is_growing(at(0))


def test_a_window_of_its_longest_time_is_no_sign_of_more() -> None:
    assert not batch(("a", 0), idle=30, longest=10).is_growing(at(10))


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 3)), min_size=1, max_size=40),
    st.floats(0.1, 5),
    st.floats(0.1, 20),
)
def test_it_closes_between_idle_and_longest_and_by_new_pods_alone(
    steps: list[tuple[str, float]], idle: float, longest: float
) -> None:
    made = batch(idle=idle, longest=longest)
    now, first, seen = START, START, set[str]()
    for uid, wait in steps:
        now += timedelta(seconds=wait)
        before = made.closes_at
        made.add(uid, now)
        first = first if seen else now
        assert made.closes_at is not None
        assert made.closes_at <= first + timedelta(seconds=longest)
        if uid in seen:
            assert made.closes_at == before
        else:
            assert made.closes_at == min(now + timedelta(seconds=idle), first + timedelta(seconds=longest))
        seen.add(uid)
