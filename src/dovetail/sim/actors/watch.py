"""Caches of the actors: one for each kind, filled by list and watch, and shared by all actors.

The writes of an actor enter the cache with the server's answer, before the watch delivers them, so that an actor never
decides on a state older than its last write.
"""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from dovetail.ports import ApiError, Clock, EventType, Gone, KubeApi
from dovetail.sim.actors.wire import Kind, Raw, key_of, uid_of

Handler = Callable[[Raw | None, Raw | None], None]

_WATCH_SECONDS = 3600
_RETRY_SECONDS = 1.0
_NOTHING: Mapping[str, Raw] = {}


class WatchCache:
    """The objects of one kind by key, with indexes and with handlers that receive each change in order."""

    def __init__(self) -> None:
        self.items: dict[str, Raw] = {}
        self._handlers: list[Handler] = []
        self._indexes: dict[str, tuple[Callable[[Raw], str], dict[str, dict[str, Raw]]]] = {}
        self._seen_version = 0
        self._buried: set[str] = set()  # UIDs of deleted objects whose deletion the watch has not delivered

    def on_change(self, handler: Handler) -> None:
        """Call the handler with (old, new) of each change; old is None on creation, new on deletion."""
        self._handlers.append(handler)

    def index(self, name: str, by: Callable[[Raw], str]) -> None:
        """Index the objects by the value of a function; objects with an empty value are left out."""
        if name not in self._indexes:
            assert not self.items, "declare an index before the store is filled"
            self._indexes[name] = (by, {})

    def under(self, name: str, value: str) -> Mapping[str, Raw]:
        """The objects with this value in the index, by key, in order of arrival."""
        return self._indexes[name][1].get(value, _NOTHING)

    def get(self, key: str) -> Raw | None:
        return self.items.get(key)

    def observe(self, obj: Raw) -> None:
        """Store the object, unless the cache holds a newer version."""
        key = key_of(obj)
        old = self.items.get(key)
        # An unknown object of a version that the watch has passed has been deleted since.
        if _version(obj) > (self._seen_version if old is None else _version(old)):
            self._put(key, old, obj)

    def observe_watched(self, obj: Raw) -> None:
        """Store an object that the watch delivers; its versions only increase."""
        key, version = key_of(obj), _version(obj)
        self._seen_version = max(self._seen_version, version)
        if uid_of(obj) in self._buried:
            return
        old = self.items.get(key)
        if old is None or version > _version(old):
            self._put(key, old, obj)

    def bury(self, obj: Raw) -> None:
        """Remove an object that a request has deleted; later events of the watch about it are stale."""
        key, uid = key_of(obj), uid_of(obj)
        old = self.items.get(key)
        if old is not None and uid_of(old) == uid:
            self._buried.add(uid)
            self._put(key, old, None)

    def forget(self, obj: Raw, version: int) -> None:
        """Remove an object that the watch reports as deleted at the version."""
        key = key_of(obj)
        self._seen_version = max(self._seen_version, version)
        self._buried.discard(uid_of(obj))
        old = self.items.get(key)
        if old is not None and _version(old) <= version:
            self._put(key, old, None)

    def replace(self, objects: list[dict[str, Any]], version: int) -> None:
        """Replace the content by that of a list."""
        listed = {key_of(obj) for obj in objects}
        for obj in [obj for key, obj in self.items.items() if key not in listed]:
            self.forget(obj, version)
        self._buried.clear()
        for obj in objects:
            self.observe_watched(obj)
        self._seen_version = max(self._seen_version, version)

    def _put(self, key: str, old: Raw | None, new: Raw | None) -> None:
        for by, index in self._indexes.values():
            before, after = "" if old is None else by(old), "" if new is None else by(new)
            if before and before != after:
                del index[before][key]
                if not index[before]:
                    del index[before]
            if after and new is not None:
                index.setdefault(after, {})[key] = new
        if new is None:
            del self.items[key]
        else:
            self.items[key] = new
        for handler in self._handlers:
            handler(old, new)


def _version(obj: Raw) -> int:
    return int(obj["metadata"]["resourceVersion"])


async def follow(api: KubeApi, clock: Clock, kind: Kind, store: WatchCache, on_synced: Callable[[], None]) -> None:
    """Keep the store up to date until cancelled: resume dropped watches, and list again if a version is too old."""
    version = ""
    while True:
        try:
            if not version:
                version = await _list(api, kind, store)
                on_synced()
            async with aclosing(api.watch(kind, resource_version=version, timeout_seconds=_WATCH_SECONDS)) as events:
                async for event in events:
                    version = event.resource_version
                    if event.object is None:
                        continue
                    if event.type is EventType.DELETED:
                        store.forget(event.object, int(version))
                    else:
                        store.observe_watched(event.object)
        except Gone:
            version = ""
        except ApiError:
            await clock.sleep(_RETRY_SECONDS)


async def _list(api: KubeApi, kind: Kind, store: WatchCache) -> str:
    page = await api.list(kind)
    items = list(page.items)
    while page.continue_:
        page = await api.list(kind, continue_=page.continue_)
        items += page.items
    store.replace(items, int(page.resource_version))
    return page.resource_version
