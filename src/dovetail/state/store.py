"""The objects of one kind as they were last told, and who is told of their changes.

Nothing here waits or asks: whoever follows a watch, or reads a dump, applies changes. Subscribers are plain callbacks
that run when a change is told. All changes that belong together are in the store before the first of them is told, so
that a subscriber who looks never sees a part of them.

A store also knows which of our own writes it has not been told of yet. Until then what it holds is out of date, and
acting on it would do things twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from dovetail.api.objects import ObjectMeta
from dovetail.model.records import PodRecord

K = TypeVar("K")
V = TypeVar("V")

Key: TypeAlias = tuple[str, str]  # namespace (empty for what has none) and name


class KubernetesObject(Protocol):
    """Any object of Kubernetes."""

    @property
    def metadata(self) -> ObjectMeta: ...


class InFlight(Exception):
    """An own write is not reflected yet; whoever asks is asked again when it is."""


# -- changes ----------------------------------------------------------------------------------------------------------


class UndecodableObject(msgspec.Struct, frozen=True):
    """An object that could not be decoded, named as far as that is possible: it must not be taken for a deleted one."""

    problem: str
    namespace: str = ""
    name: str = ""


class StoredValue(msgspec.Struct, Generic[V], frozen=True):
    """What is kept of an object. The version tells whether an own write is reflected; it has no order."""

    uid: str
    resource_version: str
    value: V


class Added(msgspec.Struct, Generic[V], frozen=True):
    """An object is there. `initial`: it was in the first list, so it may have been there for long (R24)."""

    key: Key
    new: StoredValue[V]
    initial: bool = False


class Updated(msgspec.Struct, Generic[V], frozen=True):
    """The same object (by UID) has changed."""

    key: Key
    old: StoredValue[V]
    new: StoredValue[V]


class Deleted(msgspec.Struct, Generic[V], frozen=True):
    """An object is gone; `old` is what was last known of it."""

    key: Key
    old: StoredValue[V]


class Synced(msgspec.Struct, frozen=True):
    """A whole list has been taken in: the store holds the server's state at this version."""

    resource_version: str


Change: TypeAlias = Added[V] | Updated[V] | Deleted[V] | Synced | UndecodableObject


def values_of(change: Change[V]) -> tuple[V, ...]:
    """The object that has changed, as it was and as it is."""
    match change:
        case Added(new=new):
            return (new.value,)
        case Updated(old=old, new=new):
            return old.value, new.value
        case Deleted(old=old):
            return (old.value,)
    return ()


# -- the store --------------------------------------------------------------------------------------------------------


class Contents(msgspec.Struct, Generic[V], frozen=True):
    """All objects as they were together at one version; later changes do not touch it."""

    resource_version: str
    items: Mapping[Key, StoredValue[V]]


def _raise(name: str, error: Exception) -> None:  # noqa: ARG001
    raise error


class Store(Generic[V]):
    """The objects of one kind. `failed` is called with the error of a subscriber; the others are told all the same."""

    def __init__(self, name: str, failed: Callable[[str, Exception], object] = _raise) -> None:
        self.name = name
        self.synced = False  # whether a whole list has ever been taken in
        self.undecodable = 0  # how often something could not be read
        self._failed = failed
        self._items: dict[Key, StoredValue[V]] = {}
        self._version = ""
        self._contents: Contents[V] | None = None
        self._subscribers: list[Callable[[Change[V]], None]] = []
        self._written: dict[Key, int] = {}  # the version of our last write, while the watch is behind it
        self._doomed: dict[Key, str] = {}  # the UID of what we deleted, while the watch does not show it

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, key: Key) -> StoredValue[V] | None:
        """What is known of one object, as of the last change applied."""
        return self._items.get(key)

    def value(self, name: str, namespace: str = "") -> V | None:
        """The object, or None if there is none."""
        kept = self._items.get((namespace, name))
        return None if kept is None else kept.value

    def values(self) -> Iterable[V]:
        return (kept.value for kept in self.snapshot().items.values())

    def snapshot(self) -> Contents[V]:
        """Everything, as of the last change applied; made only once between two changes."""
        if self._contents is None:
            self._contents = Contents(self._version, MappingProxyType(self._items.copy()))
        return self._contents

    def subscribe(self, subscriber: Callable[[Change[V]], None]) -> None:
        """Tell it of every change from now on."""
        self._subscribers.append(subscriber)

    def subscribe_values(self, subscriber: Callable[[V], object]) -> None:
        """Tell it of every object that changes, as it was and as it is."""

        def told(change: Change[V]) -> None:
            for value in values_of(change):
                subscriber(value)

        self.subscribe(told)

    # -- changing -----------------------------------------------------------------------------------------------------

    def apply(self, *changes: Change[V], version: str | None = None) -> None:
        """Take these changes in, and then tell of each. `version`: up to which everything has been told now."""
        items = self._items
        for change in changes:
            take_in(change, items)
        if changes or version is not None:
            self.replace(items, self._version if version is None else version)
        for change in changes:
            self.tell(change)

    def replace(self, items: dict[Key, StoredValue[V]], version: str) -> None:
        """These are the objects from now on. Whoever calls this tells of the changes."""
        self._items, self._version, self._contents = items, version, None

    @property
    def items(self) -> Mapping[Key, StoredValue[V]]:
        """As they are now; they change with the store."""
        return self._items

    def copy(self) -> dict[Key, StoredValue[V]]:
        return self._items.copy()

    def tell(self, change: Change[V]) -> None:
        """Tell the subscribers of a change that has been taken in."""
        self._note_told(change)
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

    def wrote(self, written: KubernetesObject) -> None:
        """What we wrote, as the server answered; the watch may have been faster, and the object even be gone."""
        version = _number(written.metadata.resource_version)
        if version > self._reached:
            self._written[written.metadata.namespace, written.metadata.name] = version

    def doomed(self, name: str, uid: str, namespace: str = "") -> None:
        """We have deleted or evicted it."""
        known = self.get((namespace, name))
        if known is not None and known.uid == uid and not _is_deleting(known.value):
            self._doomed[namespace, name] = uid

    def current(self, name: str, namespace: str = "") -> V | None:
        """The object, or None if there is none. Raises InFlight."""
        key = (namespace, name)
        if self._written.get(key, 0) > self._reached or key in self._doomed:
            raise InFlight(f"{self.name} {name}")
        return self.value(name, namespace)

    def unseen(self) -> list[str]:
        """Names of what we made and the watch has not told of yet."""
        written = ((key, version) for key, version in self._written.items() if version > self._reached)
        return sorted(key[1] for key, _ in written if self.get(key) is None)

    @property
    def _reached(self) -> int:
        """The version up to which the watch has told everything."""
        return _number(self._version)

    def _note_told(self, change: Change[V]) -> None:
        match change:
            case Added(key=key, new=new) | Updated(key=key, new=new):
                self._forget_written(key)
                if self._doomed and (self._doomed.get(key) != new.uid or _is_deleting(new.value)):
                    self._doomed.pop(key, None)
            case Deleted(key=key):
                self._forget_written(key)
                self._doomed.pop(key, None)
            case Synced():
                self._doomed.clear()
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
    """Versions of one resource are numbers that grow; anything else is taken for reflected at once."""
    return int(version) if version.isdecimal() else 0


# -- other ways to look at it -----------------------------------------------------------------------------------------


class Index(Generic[V]):
    """The objects of a store by some text of theirs; those without one are left out."""

    def __init__(self, store: Store[V], text_of: Callable[[V], str]) -> None:
        self._text_of = text_of
        self._groups: dict[str, dict[Key, V]] = {}
        store.subscribe(self._follow)

    def __getitem__(self, text: str) -> list[V]:
        """Sorted by name, so that the same state gives the same order."""
        group = self._groups.get(text) if text else None
        if group is None:
            return []
        return list(group.values()) if len(group) == 1 else [group[key] for key in sorted(group)]

    def values(self) -> Iterator[V]:
        """All that have a text, by text."""
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
    """The objects of a store as they are at the time of asking, each by what `key_of` makes of the key asked for."""

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
    """The objects of a kind that has no namespaces."""
    return Values(store, lambda name: ("", name), lambda key: key[1])


def by_key(store: Store[V]) -> Values[Key, V]:
    return Values(store, lambda key: key, lambda key: key)
