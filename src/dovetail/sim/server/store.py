"""Stores the objects with their versions and a log of changes.

One counter gives every write its version. Stored bodies never change: a write stores a new body, which shares unchanged
parts with the old one. So history is cheap: the log of a collection holds old and new bodies, and a snapshot for paging
is a list of references.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import msgspec

from dovetail.api.documents import Document, InputError, decode
from dovetail.ports import EventType, Resource
from dovetail.sim.server.errors import expired, group_resource
from dovetail.sim.server.kinds import Body
from dovetail.state.store import Key, UndecodableObject

MAX_LOG = 20_000
MAX_SNAPSHOTS = 100


class UnreadableObject(Exception):
    """The object does not match the type; the message is one short line."""


class StoredObject:
    """An object at one version. The body must not be changed; `read_as` returns a value for clients."""

    __slots__ = ("_decoded", "body", "version")

    def __init__(self, body: Body, version: int) -> None:
        self.body = body
        self.version = version
        self._decoded: dict[Any, Any] = {}

    def read_as(self, type_: Any) -> Any:
        """Decode the object as tolerantly as the real client; raises Unreadable.

        Structs are frozen, so readers share one.
        """
        if not _shares_nothing(type_):
            return self._converted(msgspec.to_builtins(self.body), type_)
        decoded = self._decoded.get(type_)
        if decoded is None:
            decoded = self._decoded[type_] = self._converted(self.body, type_)
        return decoded

    def _converted(self, body: Any, type_: Any) -> Any:
        try:
            return decode(Document("", 1, None, None, "", "", value=body), type_)
        except InputError as error:
            raise UnreadableObject(f"{error.field}: {error.message}" if error.field else error.message) from None

    def unread(self, problem: str) -> UndecodableObject:
        """The name and problem of an object that a client cannot decode."""
        metadata = self.body["metadata"]
        return UndecodableObject(problem, metadata.get("namespace", ""), metadata["name"])


class Change(NamedTuple):
    """One write. In a deletion `new` is the last state, with the version of the deletion."""

    version: int
    type: EventType
    old: StoredObject | None
    new: StoredObject


class Collection:
    """The objects of one kind, and the log of their changes."""

    def __init__(self, resource: Resource[Any], version: int) -> None:
        self.resource = resource
        self.objects: dict[Key, StoredObject] = {}
        self.log: list[Change] = []
        self.dropped = 0  # changes that have left the log; positions count them, too
        self.oldest = version  # the log holds all changes after this version
        self.listeners: list[Callable[[Change], None]] = []

    @property
    def end(self) -> int:
        """The position after the last change."""
        return self.dropped + len(self.log)

    def position_after(self, version: int) -> int:
        """The position of the first change after the version. Raises Gone if it is no longer in the log."""
        if version < self.oldest:
            raise expired(f"too old resource version: {version} ({self.oldest})")
        return self.dropped + bisect_right(self.log, version, key=attrgetter("version"))

    def sorted(self) -> list[tuple[Key, StoredObject]]:
        """All objects in the order of the API server's lists: by namespace and name."""
        return sorted(self.objects.items(), key=itemgetter(0))

    def forget(self, count: int) -> None:
        """Drop the oldest changes from the log."""
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
        collection = self._collections.get(key)
        if collection is None:
            # The kind has no changes yet, so its log is complete since the last compaction.
            collection = self._collections[key] = Collection(resource, self._compacted)
        return collection

    def __iter__(self) -> Iterator[Collection]:
        return iter(self._collections.values())

    def put(self, resource: Resource[Any], key: Key, body: Body, verb: str) -> StoredObject:
        """Store the body under the next version. The caller gives the body away."""
        collection = self.collection(resource)
        old = collection.objects.get(key)
        new = self._versioned(body)
        collection.objects[key] = new
        type_ = EventType.ADDED if old is None else EventType.MODIFIED
        self._record(collection, key, Change(new.version, type_, old, new), verb)
        return new

    def remove(self, resource: Resource[Any], key: Key, verb: str) -> StoredObject:
        """Remove the object, and return its last state at the version of the deletion."""
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

    # -- history ------------------------------------------------------------------------------------------------------

    def keep_snapshot(self, resource: Resource[Any], items: list[tuple[Key, StoredObject]]) -> None:
        """Keep the list at the current version for its further pages."""
        if len(self._snapshots) >= MAX_SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]
        self._snapshots[(group_resource(resource), self.version)] = items

    def snapshot(self, resource: Resource[Any], version: int) -> list[tuple[Key, StoredObject]]:
        """The list at the version. Raises Gone if it is no longer kept."""
        items = self._snapshots.get((group_resource(resource), version))
        if items is None:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter, or use the continue token in this response to retrieve the "
                "remainder of the results."
            )
        return items

    def compact(self) -> None:
        """Drop the history: older pages and watches get 410 Gone."""
        self._snapshots.clear()
        self._compacted = self.version
        for collection in self._collections.values():
            collection.forget(len(collection.log))
            collection.oldest = self.version


@lru_cache(maxsize=256)
def _shares_nothing(type_: Any) -> bool:
    """Whether values of this type hold no part of the stored body: they have no field of type Any."""
    is_struct = isinstance(type_, type) and issubclass(type_, msgspec.Struct)
    return is_struct and "AnyType(" not in repr(msgspec.inspect.type_info(type_))
