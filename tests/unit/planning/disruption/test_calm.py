"""A pool that was quiet is held back when its pods change: once, for `consolidateAfter`."""

from collections.abc import Collection
from datetime import datetime, timedelta

from dovetail.planning.disruption.calm import CalmPools, until_calm
from tests.unit.planning.disruption.boards import AT, used

MINUTE = timedelta(minutes=1)
POOLS = {"default": 5 * 60 * 10**9}
NOBODY: Collection[str] = ()
CHANGING = ("default",)


def held_at(calm: CalmPools, minute: float, changing: Collection[str], busy: Collection[str] = NOBODY) -> bool:
    return "default" in calm.held(POOLS, changing, busy, AT + minute * MINUTE)


def quiet() -> CalmPools:
    calm = CalmPools()
    assert not held_at(calm, 0, NOBODY)
    return calm


def test_the_first_change_holds_for_consolidate_after() -> None:
    calm = quiet()
    assert calm.held(POOLS, CHANGING, NOBODY, AT + MINUTE) == {"default": AT + 6 * MINUTE}
    assert held_at(calm, 5.9, CHANGING)
    assert not held_at(calm, 6, CHANGING)


def test_later_changes_do_not_hold_until_the_pool_was_quiet() -> None:
    calm = quiet()
    assert held_at(calm, 1, CHANGING)
    assert not any(held_at(calm, minute, CHANGING) for minute in range(6, 60))
    assert not held_at(calm, 60, NOBODY)
    assert held_at(calm, 61, CHANGING)


def test_a_pool_that_nobody_saw_quiet_is_not_held() -> None:
    """So it is after a restart, and for commands that read a cluster once."""
    assert not held_at(CalmPools(), 0, CHANGING)


def test_what_ends_before_is_not_held_any_longer() -> None:
    calm = quiet()
    assert held_at(calm, 1, CHANGING)
    assert not held_at(calm, 2, NOBODY)
    assert held_at(calm, 3, CHANGING)


def test_what_commands_change_does_not_hold() -> None:
    calm = quiet()
    assert not held_at(calm, 1, CHANGING, busy=CHANGING)
    assert not held_at(calm, 2, CHANGING)


def test_pools_that_are_gone_or_never_end_are_not_held() -> None:
    calm = quiet()
    assert held_at(calm, 1, CHANGING)
    assert calm.held({}, CHANGING, NOBODY, AT + 2 * MINUTE) == {}
    forever = CalmPools()
    assert forever.held({"default": 2**63}, NOBODY, NOBODY, datetime.max.replace(tzinfo=AT.tzinfo)) == {}
    assert forever.held({"default": 2**63}, CHANGING, NOBODY, datetime.max.replace(tzinfo=AT.tzinfo)) == {}


def test_a_node_of_a_held_pool_says_until_when() -> None:
    candidate = used("a").candidate
    (why,) = until_calm(candidate, {"default": AT}).unmovable
    assert str(why) == (
        "pods of NodePool default have changed, and the nodes that they left may be better to remove; "
        "again from 2026-03-06T12:00:00Z"
    )
    assert until_calm(candidate, {"other": AT}) is candidate
