"""Which objects are there, at which version, and what has changed since another version?

One counter gives every write its version. Bodies are never changed once stored: a write stores a new one, which shares
with the old what did not change. So the past costs little: the log of a collection holds old and new bodies, and a
snapshot for paging is a list of references.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from dovetail.api.documents import Document, InputError, decode
from dovetail.ports import EventType, Resource
from dovetail.sim.server.errors import expired, group_resource
from dovetail.state.store import UndecodableObject

Body = dict[str, Any]
Key = tuple[str, str]  # namespace (empty if cluster-wide) and name

MAX_LOG = 20_000
MAX_SNAPSHOTS = 100


class UnreadableObject(Exception):
    """The object is not what the type asks for; the message is one short line."""


class StoredObject:
    """An object at one version. The body is not to be changed; `read_as` gives what can be handed out."""

    __slots__ = ("_decoded", "body", "version")

    def __init__(self, body: Body, version: int) -> None:
        self.body = body
        self.version = version
        self._decoded: dict[Any, Any] = {}

    def read_as(self, type_: Any) -> Any:
        """The object as the type, read as tolerantly as by the real client; raises Unreadable.

        Structs are frozen, so readers share one.
        """
        if not _shares_nothing(type_):
            return self._converted(msgspec.to_builtins(self.body), type_)
        found = self._decoded.get(type_)
        if found is None:
            found = self._decoded[type_] = self._converted(self.body, type_)
        return found

    def _converted(self, body: Any, type_: Any) -> Any:
        try:
            return decode(Document("", 1, None, None, "", "", value=body), type_)
        except InputError as error:
            raise UnreadableObject(f"{error.field}: {error.message}" if error.field else error.message) from None

    def unread(self, problem: str) -> UndecodableObject:
        """What a client is told of it that cannot read it."""
        metadata = self.body["metadata"]
        return UndecodableObject(problem, metadata.get("namespace", ""), metadata["name"])


class Change(NamedTuple):
    """One write. After a deletion `new` is the last state, at the version of the deletion."""

    version: int
    type: EventType
    old: StoredObject | None
    new: StoredObject


class Collection:
    """The objects of one kind, and their changes as far back as they are kept."""

    def __init__(self, resource: Resource[Any], version: int) -> None:
        self.resource = resource
        self.objects: dict[Key, StoredObject] = {}
        self.log: list[Change] = []
        self.dropped = 0  # changes no longer in the log: a position in it is counted from the beginning of time
        self.oldest = version  # changes after this version are all in the log
        self.listeners: list[Callable[[Change], None]] = []

    @property
    def end(self) -> int:
        """The position after the last change."""
        return self.dropped + len(self.log)

    def position_after(self, version: int) -> int:
        """The position of the first change after the version. Raises Gone if it is no longer in the log."""
        if version < self.oldest:
            raise expired(f"too old resource version: {version} ({self.oldest})")
        low, high = 0, len(self.log)
        while low < high:
            middle = (low + high) // 2
            if self.log[middle].version <= version:
                low = middle + 1
            else:
                high = middle
        return self.dropped + low

    def sorted(self) -> list[tuple[Key, StoredObject]]:
        """All objects in the order of the API server's lists: by namespace and name."""
        return sorted(self.objects.items(), key=_by_key)

    def forget(self, count: int) -> None:
        """Drop the oldest changes of the log."""
        if count > 0:
            self.oldest = self.log[count - 1].version
            del self.log[:count]
            self.dropped += count


class VersionedStore:
    """All collections under one counter of versions."""

    def __init__(self, now: Callable[[], datetime], max_log: int = MAX_LOG) -> None:
        self.version = 1
        self.trace: list[str] = []
        self.observers: list[Callable[[Resource[Any], Change], None]] = []
        self._now = now
        self._max_log = max_log
        self._compacted = 0
        self._collections: dict[tuple[str, str], Collection] = {}
        self._snapshots: dict[tuple[str, int], list[tuple[Key, StoredObject]]] = {}

    def collection(self, resource: Resource[Any]) -> Collection:
        key = (resource.group, resource.plural)
        found = self._collections.get(key)
        if found is None:
            # Nothing of the kind has ever happened, so its log reaches back as far as any.
            found = self._collections[key] = Collection(resource, self._compacted)
        return found

    def __iter__(self) -> Iterator[Collection]:
        return iter(self._collections.values())

    def put(self, resource: Resource[Any], key: Key, body: Body, verb: str) -> StoredObject:
        """Store the body under the next version. Its outer levels are the caller's to give away."""
        collection = self.collection(resource)
        old = collection.objects.get(key)
        new = self._versioned(body)
        collection.objects[key] = new
        type_ = EventType.ADDED if old is None else EventType.MODIFIED
        self._record(collection, key, Change(new.version, type_, old, new), verb)
        return new

    def remove(self, resource: Resource[Any], key: Key, verb: str) -> StoredObject:
        """Take the object away; what is returned is its last state at the version of the deletion."""
        collection = self.collection(resource)
        old = collection.objects.pop(key)
        new = self._versioned(dict(old.body))
        self._record(collection, key, Change(new.version, EventType.DELETED, old, new), verb)
        return new

    def _versioned(self, body: Body) -> StoredObject:
        self.version += 1
        body["metadata"] = {**body["metadata"], "resourceVersion": str(self.version)}
        return StoredObject(body, self.version)

    def _record(self, collection: Collection, key: Key, change: Change, verb: str) -> None:
        name = f"{key[0]}/{key[1]}" if key[0] else key[1]
        at = self._now().isoformat()
        self.trace.append(f"{at} {verb} {group_resource(collection.resource)} {name} {change.version}")
        if len(collection.log) >= self._max_log:
            collection.forget(len(collection.log) // 2)
        collection.log.append(change)
        for listener in list(collection.listeners):
            listener(change)
        for observer in self.observers:
            observer(collection.resource, change)

    # -- the past -----------------------------------------------------------------------------------------------------

    def keep_snapshot(self, resource: Resource[Any], items: list[tuple[Key, StoredObject]]) -> int:
        """Remember the list as it is now, for its further pages; its version."""
        if len(self._snapshots) >= MAX_SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]
        self._snapshots[(group_resource(resource), self.version)] = items
        return self.version

    def snapshot(self, resource: Resource[Any], version: int) -> list[tuple[Key, StoredObject]]:
        """The list as it was at the version. Raises Gone if it is forgotten."""
        found = self._snapshots.get((group_resource(resource), version))
        if found is None:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter, or use the continue token in this response to retrieve the "
                "remainder of the results."
            )
        return found

    def compact(self) -> None:
        """Forget the past: open pages and watches that start at an earlier version get 410 Gone."""
        self._snapshots.clear()
        self._compacted = self.version
        for collection in self._collections.values():
            collection.forget(len(collection.log))
            collection.oldest = self.version


def _by_key(item: tuple[Key, StoredObject]) -> Key:
    return item[0]


_SHARING: dict[Any, bool] = {}


def _shares_nothing(type_: Any) -> bool:
    """Whether what is converted to this type holds no part of the stored body: it has no field of type Any."""
    found = _SHARING.get(type_)
    if found is None:
        text = repr(msgspec.inspect.type_info(type_))
        found = _SHARING[type_] = (
            isinstance(type_, type) and issubclass(type_, msgspec.Struct) and "AnyType(" not in text
        )
    return found
