"""The objects of one kind, with subscriptions to their changes.

A reflector or the reader of a dump applies changes. Subscribers are plain callbacks. All changes of a batch are in the
store before the first subscriber is called, so that no subscriber sees a part of them.

A store also knows which of our own writes the watch has not shown yet. Until then the object is out of date, and acting
on it would do things twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from dovetail.api.objects import ObjectMeta
from dovetail.model.pod_records import PodRecord

K = TypeVar("K")
V = TypeVar("V")

Key: TypeAlias = tuple[str, str]  # namespace (empty for what has none) and name


class KubernetesObject(Protocol):
    """Any object of Kubernetes."""

    @property
    def metadata(self) -> ObjectMeta: ...


class InFlight(Exception):
    """The watch does not show our last write yet. Its event triggers the next attempt."""


# -- changes ----------------------------------------------------------------------------------------------------------


class UndecodableObject(msgspec.Struct, frozen=True):
    """An object that could not be decoded, with its name if known. It does not count as deleted."""

    problem: str
    namespace: str = ""
    name: str = ""


class StoredValue(msgspec.Struct, Generic[V], frozen=True):
    """The stored value of an object, with its UID and version."""

    uid: str
    resource_version: str
    value: V


class Added(msgspec.Struct, Generic[V], frozen=True):
    """An object exists."""

    key: Key
    new: StoredValue[V]


class Updated(msgspec.Struct, Generic[V], frozen=True):
    """The same object (by UID) has changed."""

    key: Key
    old: StoredValue[V]
    new: StoredValue[V]


class Deleted(msgspec.Struct, Generic[V], frozen=True):
    """An object is gone; `old` is its last version."""

    key: Key
    old: StoredValue[V]


class Synced(msgspec.Struct, frozen=True):
    """A whole list has been applied."""


Change: TypeAlias = Added[V] | Updated[V] | Deleted[V] | Synced | UndecodableObject


def values_of(change: Change[V]) -> tuple[V, ...]:
    """The old and the new version of the object, as far as they exist."""
    match change:
        case Added(new=new):
            return (new.value,)
        case Updated(old=old, new=new):
            return old.value, new.value
        case Deleted(old=old):
            return (old.value,)
    return ()


def steps_of(change: Change[V]) -> tuple[tuple[V, int], ...]:
    """The change for a counter: the new version of the object counts 1, the old one -1."""
    match change:
        case Added(new=new):
            return ((new.value, 1),)
        case Updated(old=old, new=new):
            return (new.value, 1), (old.value, -1)
        case Deleted(old=old):
            return ((old.value, -1),)
    return ()


# -- the store --------------------------------------------------------------------------------------------------------


class Contents(msgspec.Struct, Generic[V], frozen=True):
    """All objects at one time. Later changes do not affect it."""

    items: Mapping[Key, StoredValue[V]]


def _raise(name: str, error: Exception) -> None:  # noqa: ARG001
    raise error


class Store(Generic[V]):
    """The objects of one kind. `failed` is called with the error of a subscriber; the others are still notified."""

    def __init__(self, name: str, failed: Callable[[str, Exception], object] = _raise) -> None:
        self.name = name
        self.synced = False  # whether a whole list has ever been applied
        self.undecodable = 0  # the number of objects that could not be decoded
        self._failed = failed
        self._items: dict[Key, StoredValue[V]] = {}
        self._version = ""
        self._contents: Contents[V] | None = None
        self._subscribers: list[Callable[[Change[V]], None]] = []
        self._written: dict[Key, int] = {}  # by key: the version of our last write, until the watch reaches it
        self._deleted: dict[Key, str] = {}  # by key: the UID of an object that we deleted, until the watch shows that

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, key: Key) -> StoredValue[V] | None:
        """The object with its UID and version, as of the last change."""
        return self._items.get(key)

    def value(self, name: str, namespace: str = "") -> V | None:
        """The object, or None if there is none."""
        kept = self._items.get((namespace, name))
        return None if kept is None else kept.value

    def values(self) -> Iterable[V]:
        return (kept.value for kept in self.snapshot().items.values())

    def snapshot(self) -> Contents[V]:
        """Everything as of the last change. The same object until the next change."""
        if self._contents is None:
            self._contents = Contents(MappingProxyType(self._items.copy()))
        return self._contents

    def subscribe(self, subscriber: Callable[[Change[V]], None]) -> None:
        """Calls it with every change from now on."""
        self._subscribers.append(subscriber)

    def subscribe_values(self, subscriber: Callable[[V], object]) -> None:
        """Calls it with the old and the new version of every object that changes."""

        def on_change(change: Change[V]) -> None:
            for value in values_of(change):
                subscriber(value)

        self.subscribe(on_change)

    # -- changing -----------------------------------------------------------------------------------------------------

    def apply(self, *changes: Change[V], version: str | None = None) -> None:
        """Applies the changes, then notifies of each. `version`: up to which the store is complete now."""
        items = self._items
        for change in changes:
            take_in(change, items)
        if changes or version is not None:
            self.replace(items, self._version if version is None else version)
        for change in changes:
            self.notify(change)

    def replace(self, items: dict[Key, StoredValue[V]], version: str) -> None:
        """Replaces all objects. The caller notifies of the changes."""
        self._items, self._version, self._contents = items, version, None

    @property
    def items(self) -> Mapping[Key, StoredValue[V]]:
        """The current objects; the mapping changes with the store."""
        return self._items

    def copy(self) -> dict[Key, StoredValue[V]]:
        return self._items.copy()

    def notify(self, change: Change[V]) -> None:
        """Calls the subscribers with a change that has been applied."""
        self._note_seen(change)
        match change:
            case Synced():
                self.synced = True
            case UndecodableObject():
                self.undecodable += 1
        for subscriber in self._subscribers:
            try:
                subscriber(change)
            except Exception as error:  # noqa: BLE001  `failed` logs and counts it, or raises it again
                self._failed(self.name, error)

    # -- own writes ---------------------------------------------------------------------------------------------------

    def note_write(self, written: KubernetesObject) -> None:
        """Notes our write. The watch may already show it, and the object may even be gone."""
        version = _number(written.metadata.resource_version)
        if version > self._reached:
            self._written[written.metadata.namespace, written.metadata.name] = version

    def note_delete(self, name: str, uid: str, namespace: str = "") -> None:
        """Notes that we have deleted or evicted the object."""
        stored = self.get((namespace, name))
        if stored is not None and stored.uid == uid and not _is_deleting(stored.value):
            self._deleted[namespace, name] = uid

    def get_consistent(self, name: str, namespace: str = "") -> V | None:
        """The object, or None if there is none. Raises InFlight while our last write to it does not show."""
        key = (namespace, name)
        if self._written.get(key, 0) > self._reached or key in self._deleted:
            raise InFlight(f"{self.name} {name}")
        return self.value(name, namespace)

    def unseen_creates(self) -> list[str]:
        """The names of objects that we created and the watch does not show yet."""
        written = ((key, version) for key, version in self._written.items() if version > self._reached)
        return sorted(key[1] for key, _ in written if self.get(key) is None)

    @property
    def _reached(self) -> int:
        """The version up to which the store is complete."""
        return _number(self._version)

    def _note_seen(self, change: Change[V]) -> None:
        match change:
            case Added(key=key, new=new) | Updated(key=key, new=new):
                self._forget_written(key)
                if self._deleted and (self._deleted.get(key) != new.uid or _is_deleting(new.value)):
                    self._deleted.pop(key, None)
            case Deleted(key=key):
                self._forget_written(key)
                self._deleted.pop(key, None)
            case Synced():
                self._deleted.clear()
                for key in list(self._written):
                    self._forget_written(key)

    def _forget_written(self, key: Key) -> None:
        if self._written and self._written.get(key, 0) <= self._reached:
            self._written.pop(key, None)


def take_in(change: Change[V], items: dict[Key, StoredValue[V]]) -> None:
    match change:
        case Added(key=key, new=new) | Updated(key=key, new=new):
            items[key] = new
        case Deleted(key=key):
            del items[key]


def _is_deleting(value: object) -> bool:
    if isinstance(value, PodRecord):
        return value.deleted_at is not None
    metadata: ObjectMeta | None = getattr(value, "metadata", None)
    return metadata is not None and metadata.deletion_timestamp is not None


def _number(version: str) -> int:
    """Resource versions are growing numbers. Any other version counts as shown at once."""
    return int(version) if version.isdecimal() else 0


# -- indexes ----------------------------------------------------------------------------------------------------------


class Index(Generic[V]):
    """The objects of a store by a text of each. Objects with an empty text are left out."""

    def __init__(self, store: Store[V], text_of: Callable[[V], str]) -> None:
        self._text_of = text_of
        self._groups: dict[str, dict[Key, V]] = {}
        store.subscribe(self._follow)

    def __getitem__(self, text: str) -> list[V]:
        """Sorted by name, so that the same state gives the same order."""
        group = self._groups.get(text)
        if group is None:
            return []
        return list(group.values()) if len(group) == 1 else [group[key] for key in sorted(group)]

    def repeated(self) -> list[str]:
        """The texts that several objects have."""
        return [text for text, group in self._groups.items() if len(group) > 1]

    def values(self) -> Iterator[V]:
        """All objects with a text, by text."""
        return (value for group in self._groups.values() for value in group.values())

    def _follow(self, change: Change[V]) -> None:
        match change:
            case Added(key=key, new=new):
                self._put(key, new)
            case Updated(key=key, old=old, new=new):
                if self._text_of(old.value) != self._text_of(new.value):
                    self._drop(key, old)
                self._put(key, new)
            case Deleted(key=key, old=old):
                self._drop(key, old)

    def _put(self, key: Key, kept: StoredValue[V]) -> None:
        if text := self._text_of(kept.value):
            self._groups.setdefault(text, {})[key] = kept.value

    def _drop(self, key: Key, kept: StoredValue[V]) -> None:
        text = self._text_of(kept.value)
        group = self._groups.get(text)
        if group is not None and group.pop(key, None) is not None and not group:
            del self._groups[text]


class Values(Mapping[K, V]):
    """A live view of the objects of a store, with keys of another type."""

    def __init__(self, store: Store[V], key_of: Callable[[K], Key], from_key: Callable[[Key], K]) -> None:
        self._store = store
        self._key_of = key_of
        self._from_key = from_key

    def __getitem__(self, key: K) -> V:
        kept = self._store.get(self._key_of(key))
        if kept is None:
            raise KeyError(key)
        return kept.value

    def __iter__(self) -> Iterator[K]:
        return map(self._from_key, self._store.snapshot().items)

    def __len__(self) -> int:
        return len(self._store.snapshot().items)


def by_name(store: Store[V]) -> Values[str, V]:
    """The objects of a kind without namespaces, by name."""
    return Values(store, lambda name: ("", name), lambda key: key[1])


def by_key(store: Store[V]) -> Values[Key, V]:
    return Values(store, lambda key: key, lambda key: key)
