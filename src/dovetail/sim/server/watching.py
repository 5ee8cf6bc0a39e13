"""What does a watch tell, and when? Changes as they come, bookmarks about every minute, and an end at its timeout.

A watch is a position in the log of its collection: however many watches there are, a write is stored once, and only
those that want it are woken. A watch that falls behind what the log keeps is ended, as a slow one is by the server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from dovetail.ports import ApiError, EventType, InternalError, Resource, WatchEvent
from dovetail.sim.server.faults import Fault
from dovetail.sim.server.selectors import Wanted
from dovetail.sim.server.store import Change, Collection, StoredObject, UnreadableObject, VersionedStore

T = TypeVar("T")

BOOKMARK_SECONDS = 60.0
_LAST_BOOKMARK_SECONDS = 2.0  # before the timeout


class SimWatch(AsyncIterator[WatchEvent[T]], Generic[T]):
    """The watch that a client iterates over; it begins with the first step."""

    def __init__(
        self,
        store: VersionedStore,
        resource: Resource[T],
        *,
        namespace: str | None,
        resource_version: str,
        on_begin: Callable[[], None],
        select: Callable[[], Wanted | None],
        timeout_seconds: int,
        bookmark_seconds: float,
        meet_fault: Callable[[], Fault | None],
        open_watches: dict["SimWatch[Any]", None],
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self._on_begin = on_begin
        self._store = store
        self._from = resource_version
        self._select = select
        self._timeout = float(timeout_seconds)
        self._bookmark_seconds = bookmark_seconds
        self._meet_fault = meet_fault
        self._open = open_watches
        self._collection: Collection | None = None  # while it is open
        self._wants: Wanted | None = None
        self._initial: list[StoredObject] = []
        self._position = 0
        self._after = 0  # a version that is yet to come is waited for
        self._woken: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._bookmark_due = False
        self._ended = False
        self._error: ApiError | None = None

    def __aiter__(self) -> "SimWatch[T]":
        return self

    async def __anext__(self) -> WatchEvent[T]:
        if self._collection is None:
            await self._begin()
        while True:
            event = self._next()
            if event is not None:
                return event
            if self._ended:
                self.close()
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._woken = asyncio.get_running_loop().create_future()
            try:
                await self._woken
            except BaseException:
                self.close()
                raise
            finally:
                self._woken = None

    # -- beginning and ending -----------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        if self._ended:
            raise StopAsyncIteration
        await asyncio.sleep(0)
        fault = self._meet_fault()
        if fault is not None and fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault is not None and fault.error is not None:
            raise fault.error
        self._wants = self._select()
        self._on_begin()
        collection = self._store.collection(self.resource)
        if self._from in ("", "0"):
            # Without a version the server tells what is there first.
            self._initial = [stored for _, stored in reversed(collection.sorted()) if self._matches(stored)]
            self._position = collection.end
        else:
            self._after = self._version()
            self._position = collection.position_after(self._after)
        self._collection = collection
        collection.listeners.append(self._notice)
        self._open[self] = None
        self._opened_at = asyncio.get_running_loop().time()
        self._set_timer()

    def _version(self) -> int:
        if not self._from.isdecimal():
            why = f'strconv.ParseUint: parsing "{self._from}": invalid syntax'
            raise InternalError(f'resourceVersion: Invalid value: "{self._from}": {why}', code=500)
        return int(self._from)

    def end(self, error: ApiError | None = None) -> None:
        """Let the client see the end of the watch, or an error, after what has happened so far."""
        self._ended = True
        self._error = error
        self._wake()

    def close(self) -> None:
        """Forget the watch; the client is gone."""
        self._ended = True
        if self._collection is not None:
            self._collection.listeners.remove(self._notice)
            self._collection = None
            del self._open[self]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def aclose(self) -> None:
        """As an async generator has it."""
        self.close()

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _notice(self, change: Change) -> None:
        """A write has happened; wake up if it is wanted."""
        if self._woken is None or self._woken.done():
            return  # not waiting: it will be found in the log
        if self._event_type(change) is None:
            self._position += 1
        else:
            self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _set_timer(self) -> None:
        loop = asyncio.get_running_loop()
        ends_at = self._opened_at + self._timeout
        last_at = ends_at - _LAST_BOOKMARK_SECONDS
        now = loop.time()
        next_at = min(now + self._bookmark_seconds, last_at) if now < last_at else ends_at
        self._timer = loop.call_at(next_at, self._tick)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._opened_at + self._timeout:
            self.end()
            return
        self._bookmark_due = True
        self._wake()
        self._set_timer()

    # -- telling ------------------------------------------------------------------------------------------------------

    def _next(self) -> WatchEvent[T] | None:
        collection = self._collection
        assert collection is not None
        if self._initial:
            stored = self._initial.pop()
            return self._told(EventType.ADDED, stored, stored.version)
        if self._position < collection.dropped:
            self._ended = True
            return None
        while self._position < collection.end:
            change = collection.log[self._position - collection.dropped]
            self._position += 1
            type_ = self._event_type(change)
            if type_ is not None:
                shown = change.new
                if type_ is EventType.DELETED and change.type is not EventType.DELETED and change.old is not None:
                    shown = change.old  # it no longer matches: the client sees what it knew, at the new version
                return self._told(type_, shown, change.version)
        if self._bookmark_due:
            self._bookmark_due = False
            return WatchEvent(EventType.BOOKMARK, str(self._store.version), None)
        return None

    def _event_type(self, change: Change) -> EventType | None:
        """What the change is to a client that sees only what it selects; None: nothing."""
        if change.version <= self._after:
            return None
        if self._wants is None:
            return change.type
        before = change.old is not None and self._matches(change.old)
        after = change.type is not EventType.DELETED and self._matches(change.new)
        if before and after:
            return EventType.MODIFIED
        return EventType.ADDED if after else EventType.DELETED if before else None

    def _matches(self, stored: StoredObject) -> bool:
        return self._wants is None or self._wants(stored.body)

    def _told(self, type_: EventType, stored: StoredObject, version: int) -> WatchEvent[T]:
        if stored.version != version:
            meta = {**stored.body["metadata"], "resourceVersion": str(version)}
            stored = StoredObject({**stored.body, "metadata": meta}, version)
        try:
            return WatchEvent(type_, str(version), stored.read_as(self.resource.struct))
        except UnreadableObject as error:
            return WatchEvent(type_, str(version), None, str(error), stored.unread(str(error)))
