"""Watches: deliver changes as they come, bookmarks about every minute, and end at their timeout.

A watch is a position in the log of its collection, so a write is stored once for all watches, and wakes only those that
select it. A watch that falls behind the log ends, as a slow one does on the real server.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Generic, TypeVar

from dovetail.ports import ApiError, EventType, InternalError, Resource, WatchEvent
from dovetail.sim.server.faults import ApiRequest
from dovetail.sim.server.selectors import ObjectTest, wanted
from dovetail.sim.server.store import Change, Collection, StoredObject, UnreadableObject

if TYPE_CHECKING:
    from dovetail.sim.server.api_server import ApiServer

T = TypeVar("T")

BOOKMARK_SECONDS = 60.0
_LAST_BOOKMARK_SECONDS = 2.0  # before the timeout


class SimWatch(AsyncIterator[WatchEvent[T]], Generic[T]):
    """The watch that a client iterates over; it opens with the first step."""

    def __init__(
        self,
        server: "ApiServer",
        request: ApiRequest,
        resource: Resource[T],
        *,
        selectors: tuple[str, str],
        resource_version: str,
        timeout_seconds: int,
    ) -> None:
        self.resource = resource
        self.namespace = request.namespace
        self._server = server
        self._store = server.registry.store
        self._request = request
        self._selectors = selectors  # of labels and fields
        self._from = resource_version
        self._timeout = float(timeout_seconds)
        self._collection: Collection | None = None  # while it is open
        self._wants: ObjectTest | None = None
        self._initial: list[StoredObject] = []
        self._position = 0
        self._after = 0  # may be a version of the future
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
        fault = self._server.meet_fault(self._request)
        if fault is not None and fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault is not None and fault.error is not None:
            raise fault.error
        self._wants = wanted(self.resource, self.namespace, *self._selectors)
        self._server.watch_begins(self.resource, self.namespace)
        collection = self._store.collection(self.resource)
        if self._from in ("", "0"):
            # Without a version the server sends all existing objects first.
            self._initial = [stored for _, stored in reversed(collection.sorted()) if self._matches(stored)]
            self._position = collection.end
        else:
            self._after = self._version()
            self._position = collection.position_after(self._after)
        self._collection = collection
        collection.listeners.append(self._notice)
        self._server.open_watches[self] = None
        # Rounded as the virtual loop rounds its timers: else it could fire a moment before the end, again and again.
        self._ends_at = round(asyncio.get_running_loop().time() + self._timeout, 6)
        self._set_timer()

    def _version(self) -> int:
        if not self._from.isdecimal():
            why = f'strconv.ParseUint: parsing "{self._from}": invalid syntax'
            raise InternalError(f'resourceVersion: Invalid value: "{self._from}": {why}', code=500)
        return int(self._from)

    def end(self, error: ApiError | None = None) -> None:
        """End the watch for the client, with an error if given, after all changes so far."""
        self._ended = True
        self._error = error
        self._wake()

    def close(self) -> None:
        """Remove the watch: the client is gone."""
        self._ended = True
        if self._collection is not None:
            self._collection.listeners.remove(self._notice)
            self._collection = None
            del self._server.open_watches[self]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def aclose(self) -> None:
        """Close the watch as an async generator is closed."""
        self.close()

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _notice(self, change: Change) -> None:
        """Wake up for a write that the watch selects."""
        if self._woken is None or self._woken.done():
            return  # not waiting: the next step reads the log
        if self._event_type(change) is None:
            self._position += 1
        else:
            self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _set_timer(self) -> None:
        loop = asyncio.get_running_loop()
        last_at, now = round(self._ends_at - _LAST_BOOKMARK_SECONDS, 6), loop.time()
        next_at = min(now + self._server.bookmark_seconds, last_at) if now < last_at else self._ends_at
        self._timer = loop.call_at(next_at, self._tick)

    def _tick(self) -> None:
        if asyncio.get_running_loop().time() >= self._ends_at:
            self.end()
            return
        self._bookmark_due = True
        self._wake()
        self._set_timer()

    # -- events -------------------------------------------------------------------------------------------------------

    def _next(self) -> WatchEvent[T] | None:
        collection = self._collection
        assert collection is not None
        if self._initial:
            stored = self._initial.pop()
            return self._event(EventType.ADDED, stored, stored.version)
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
                    shown = change.old  # no longer selected: the client gets the old state at the new version
                return self._event(type_, shown, change.version)
        if self._bookmark_due:
            self._bookmark_due = False
            return WatchEvent(EventType.BOOKMARK, str(self._store.version), None)
        return None

    def _event_type(self, change: Change) -> EventType | None:
        """The type of the change for a client that sees only selected objects; None: the client sees nothing."""
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

    def _event(self, type_: EventType, stored: StoredObject, version: int) -> WatchEvent[T]:
        if stored.version != version:
            meta = {**stored.body["metadata"], "resourceVersion": str(version)}
            stored = StoredObject({**stored.body, "metadata": meta}, version)
        try:
            return WatchEvent(type_, str(version), stored.read_as(self.resource.struct))
        except UnreadableObject as error:
            return WatchEvent(type_, str(version), None, str(error), stored.unread(str(error)))
