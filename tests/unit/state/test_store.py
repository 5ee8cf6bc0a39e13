"""The objects of one kind: what is told, in which order, and which own writes are not told of yet."""

from typing import Any

import pytest

from dovetail.api import objects
from dovetail.api.objects import Node, NodeSpec, ObjectMeta
from dovetail.state.store import (
    Added,
    Change,
    Deleted,
    Index,
    InFlight,
    Store,
    StoredValue,
    Synced,
    UndecodableObject,
    Updated,
)
from tests.harness.builders import at

A, B = ("", "a"), ("", "b")


def kept(
    name: str, instance: str = "", *, version: str = "1", uid: str = "", deleted: bool = False
) -> StoredValue[Node]:
    deletion = at("2026-03-01T00:00:00Z") if deleted else None
    meta = ObjectMeta(name=name, uid=uid or name, resource_version=version, deletion_timestamp=deletion)
    return StoredValue(meta.uid, version, Node(meta, NodeSpec(provider_id=instance)))


def followed(store: Store[Any]) -> list[Change[Any]]:
    heard: list[Change[Any]] = []
    store.subscribe(heard.append)
    return heard


# -- telling ----------------------------------------------------------------------------------------------------------


def test_all_changes_are_in_before_the_first_is_told() -> None:
    store: Store[Node] = Store("nodes")
    seen: list[list[str]] = []
    store.subscribe(lambda _: seen.append([name for _, name in store.snapshot().items]))
    store.apply(Added(A, kept("a")), Added(B, kept("b")))
    assert seen == [["a", "b"], ["a", "b"]]


def test_a_snapshot_is_the_same_until_something_is_applied_and_stays_as_it_was() -> None:
    store: Store[Node] = Store("nodes")
    store.apply(Added(A, kept("a")))
    first = store.snapshot()
    assert store.snapshot() is first
    store.apply()
    assert store.snapshot() is first
    store.apply(Deleted(A, kept("a")))
    assert not store.snapshot().items
    assert list(first.items) == [A]


def test_unread_and_synced_change_no_object() -> None:
    store: Store[Node] = Store("nodes")
    heard = followed(store)
    store.apply(Added(A, kept("a")))
    assert (store.synced, store.undecodable) == (False, 0)
    changes: list[Change[Node]] = [UndecodableObject("no JSON", name="a"), Synced()]
    store.apply(*changes)
    assert (store.synced, store.undecodable) == (True, 1)
    assert heard[1:] == changes
    assert store.value("a") is not None


def test_a_subscriber_that_fails_keeps_nothing_from_the_others() -> None:
    failures: list[tuple[str, str]] = []
    store: Store[Node] = Store("nodes", lambda name, error: failures.append((name, str(error))))

    def fails(_: Change[Node]) -> None:
        raise ValueError("broken")

    store.subscribe(fails)
    heard = followed(store)
    store.apply(Added(A, kept("a")), Added(B, kept("b")))
    assert len(heard) == 2
    assert failures == [("nodes", "broken")] * 2


def test_without_anybody_to_take_it_the_error_of_a_subscriber_is_raised() -> None:
    store: Store[Node] = Store("nodes")
    store.subscribe_values(lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        store.apply(Added(A, kept("a")))
    assert store.value("a") is not None


def test_subscribers_of_values_hear_an_update_as_it_was_and_as_it_is() -> None:
    store: Store[Node] = Store("nodes")
    heard: list[str] = []
    store.subscribe_values(lambda node: heard.append(node.spec.provider_id))
    old, new = kept("a", "i"), kept("a", "j")
    store.apply(Added(A, old))
    store.apply(Updated(A, old, new))
    store.apply(Deleted(A, new), Synced())
    assert heard == ["i", "i", "j", "j"]


# -- indexes ----------------------------------------------------------------------------------------------------------


def test_an_index_follows_objects_that_move() -> None:
    store: Store[Node] = Store("nodes")
    index = Index(store, lambda node: node.spec.provider_id)
    first, second = kept("a", "i"), kept("b", "i")
    store.apply(Added(B, second), Added(A, first))
    assert [node.metadata.name for node in index["i"]] == ["a", "b"]
    moved = kept("a", "j")
    store.apply(Updated(A, first, moved))
    assert index["i"] == [second.value]
    assert index["j"] == [moved.value]
    gone = kept("a")
    store.apply(Updated(A, moved, gone))
    assert index["j"] == index[""] == []
    store.apply(Deleted(A, gone), Deleted(B, second))
    assert not list(index.values())
    assert not index._groups


# -- own writes -------------------------------------------------------------------------------------------------------


def written(name: str, version: str) -> objects.Node:
    return kept(name, version=version).value


def test_an_own_write_is_in_flight_until_the_watch_is_as_far() -> None:
    store: Store[Node] = Store("nodes")
    store.apply(Added(A, kept("a")), version="1")
    store.note_write(written("a", "3"))
    store.apply(Updated(A, kept("a"), kept("a", version="2")), version="2")
    with pytest.raises(InFlight, match="nodes a"):
        store.get_consistent("a")
    store.apply(version="3")  # a bookmark
    assert store.get_consistent("a") is not None


def test_a_write_that_the_watch_told_before_its_answer_is_not_in_flight() -> None:
    store: Store[Node] = Store("nodes")
    store.apply(Added(A, kept("a", version="3")), version="3")
    store.note_write(written("a", "3"))
    assert store.get_consistent("a") is not None
    assert not store._written


def test_what_was_created_is_unseen_until_it_is_told() -> None:
    store: Store[Node] = Store("nodes")
    store.apply(version="1")
    store.note_write(written("b", "2"))
    store.note_write(written("a", "3"))
    assert store.unseen_creates() == ["a", "b"]
    store.apply(Added(B, kept("b", version="2")), version="2")
    assert store.unseen_creates() == ["a"]
    store.apply(version="3")  # it was deleted before we could see it
    assert store.unseen_creates() == []


def test_what_was_deleted_is_in_flight_until_its_deletion_is_told() -> None:
    store: Store[Node] = Store("nodes")
    store.apply(Added(A, kept("a")), Added(B, kept("b")))
    store.note_delete("a", "a")
    store.note_delete("b", "another one")
    assert store.get_consistent("b") is not None
    store.apply(Updated(A, kept("a"), kept("a", version="2")))
    with pytest.raises(InFlight):
        store.get_consistent("a")
    store.apply(Updated(A, kept("a"), kept("a", deleted=True)))
    assert store.get_consistent("a") is not None
    store.note_delete("a", "a")  # it is on its way already
    assert store.get_consistent("a") is not None


@pytest.mark.parametrize(
    "change",
    [Deleted(A, kept("a")), Added(A, kept("a", uid="another one")), Synced()],
    ids=lambda each: type(each).__name__,
)
def test_a_deletion_is_no_longer_in_flight_after(change: Change[Node]) -> None:
    store: Store[Node] = Store("nodes")
    store.apply(Added(A, kept("a")))
    store.note_delete("a", "a")
    store.apply(change)
    store.get_consistent("a")
    assert not store._deleted


def test_a_version_that_is_no_number_is_never_waited_for() -> None:
    store: Store[Node] = Store("nodes")
    store.note_write(written("a", "abc"))
    assert store.get_consistent("a") is None
