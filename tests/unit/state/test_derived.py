"""Values that are derived from stores: made once a change, and never from what was before."""

from collections.abc import Callable

import pytest

from dovetail.api import objects
from dovetail.state.cluster import ClusterState, NodeClassKind
from dovetail.state.derived import Derived


class Numbers:
    """A derived value of each number in `source`; all calls are noted."""

    def __init__(self, failed: Callable[[str, Exception], object] | None = None) -> None:
        self.source: dict[str, int] = {}
        self.calls: list[str] = []
        self.broken: set[str] = set()
        self.derived: Derived[str, tuple[int]] = Derived(self.make, failed)

    def make(self, key: str, known: tuple[int] | None) -> tuple[int] | None:
        self.calls.append(key)
        if key in self.broken:
            raise ValueError(key)
        value = self.source.get(key)
        if value is None:
            return None
        return known if known == (value,) else (value,)

    def put(self, **values: int) -> None:
        self.source.update(values)
        for key in values:
            self.derived.touch(key)


def test_each_key_is_made_once_for_all_changes_since_the_last_look() -> None:
    numbers = Numbers()
    numbers.put(a=1)
    numbers.put(a=2, b=3)
    assert numbers.derived.all() == {"a": (2,), "b": (3,)}
    assert numbers.calls == ["a", "b"]
    assert numbers.derived.get("a") == (2,)
    assert numbers.calls == ["a", "b"]


def test_all_is_the_same_object_until_a_value_changes() -> None:
    numbers = Numbers()
    numbers.put(a=1)
    first = numbers.derived.all()
    numbers.put(a=1)
    numbers.derived.touch("never there")
    assert numbers.derived.all() is first
    numbers.put(a=2)
    assert numbers.derived.all() == {"a": (2,)}
    assert first == {"a": (1,)}


def test_a_key_that_cannot_be_made_stays_touched() -> None:
    numbers = Numbers()
    numbers.put(a=1)
    assert numbers.derived.get("a") is not None
    numbers.put(a=2)
    numbers.broken.add("a")
    for look in (lambda: numbers.derived.get("a"), numbers.derived.settle, numbers.derived.all):
        with pytest.raises(ValueError, match="a"):
            look()
    numbers.broken.clear()
    assert numbers.derived.get("a") == (2,)
    assert not numbers.derived.settle()


def test_a_key_that_cannot_be_made_is_reported_once_and_does_not_block_the_others() -> None:
    errors: list[str] = []
    numbers = Numbers(lambda part, error: errors.append(f"{part}: {error}"))
    numbers.put(a=1, b=1)
    assert numbers.derived.all() == {"a": (1,), "b": (1,)}
    numbers.broken.add("a")
    numbers.put(a=2, b=2)
    assert not numbers.derived.settle()
    assert numbers.derived.all() == {"b": (2,)}  # no reader gets the outdated value
    assert numbers.derived.get("a") is None
    numbers.put(a=3, b=3)
    assert numbers.derived.all() == {"b": (3,)}
    assert errors == ["state: a"]
    numbers.broken.clear()
    numbers.put(a=4)
    assert numbers.derived.all() == {"a": (4,), "b": (3,)}
    numbers.broken.add("a")
    numbers.put(a=5)
    assert numbers.derived.get("a") is None
    assert errors == ["state: a", "state: a"]


def test_a_broken_value_does_not_keep_the_cluster_from_settling() -> None:
    errors: list[Exception] = []
    state = ClusterState(NodeClassKind("example.com", "Class", "classes"), failed=lambda _, error: errors.append(error))
    numbers = Numbers(state.failed)
    numbers.broken.add("a")
    state.settle_too(numbers.derived, cost=1)
    numbers.put(a=1, b=2)
    state.load("nodes", objects.Node(metadata=objects.ObjectMeta(name="n")))
    for _ in range(3):
        if not state.settle(1):
            break
    assert not state.settle(1)
    assert [node.name for node in state.managed.all().values()] == ["n"]
    assert numbers.derived.get("b") == (2,)
    assert len(errors) == 1


def test_settle_makes_no_more_than_it_is_told() -> None:
    numbers = Numbers()
    numbers.put(a=1, b=2, c=3)
    assert numbers.derived.settle(2)
    assert numbers.calls == ["a", "b"]
    assert not numbers.derived.settle(2)
    assert numbers.calls == ["a", "b", "c"]


def test_a_value_that_is_gone_is_forgotten() -> None:
    numbers = Numbers()
    numbers.put(a=1)
    assert numbers.derived.get("a") is not None
    del numbers.source["a"]
    numbers.derived.touch("a")
    assert numbers.derived.get("a") is None
    assert numbers.derived.all() == {}


def test_dependents_are_touched_too_and_see_the_new_value() -> None:
    numbers = Numbers()
    doubled: Derived[str, int] = Derived(lambda key, _: 2 * value[0] if (value := numbers.derived.get(key)) else None)
    numbers.derived.dependents.append(doubled)
    numbers.put(a=1, b=2)
    assert doubled.all() == {"a": 2, "b": 4}
    numbers.put(a=5)
    assert doubled.get("a") == 10
    numbers.derived.touch_all()
    assert doubled.settle(1)
    assert not doubled.settle(1)


def test_making_a_value_may_ask_for_another_one() -> None:
    """Each is made once, even if settling would come to it later."""
    calls: list[int] = []

    def make(key: int, _: int | None) -> int:
        calls.append(key)
        return 1 + (sums.get(key + 1) or 0)

    sums: Derived[int, int] = Derived(make)
    for key in range(3):
        sums.touch(key)
    assert not sums.settle()
    assert calls == [0, 1, 2]
    assert sums.all() == {0: 3, 1: 2, 2: 1}


def test_making_a_value_may_touch_others() -> None:
    """What was touched meanwhile is settled in the next round, and `all` goes on until there is none."""
    followed: list[int] = []

    def make(key: int, _: int | None) -> int:
        followed.append(key)
        if key < 3:
            chain.touch(key + 1)
        return key

    chain: Derived[int, int] = Derived(make)
    chain.touch(0)
    assert chain.settle()
    assert followed == [0]
    assert list(chain.all()) == [0, 1, 2, 3]
