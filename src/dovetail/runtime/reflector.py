"""Keeps a store of the objects of one kind up to date: lists them, then watches them.

A reflector lists again when the server no longer knows the version at which the watch stopped. The difference between
the two lists shows what happened in the gap, so no deletion is missed. `keep` says what is kept of each object.

Changes go into a `Store`. Its subscribers are callbacks and not queues: they run in the same turn of the event loop as
the change, so the contents always agree with the changes that subscribers have seen, and a slow subscriber drops
nothing. They must be quick (add a key to a work queue, update an index) and must not raise. An error of one is logged
and counted, or raised where failures are not tolerated; the other subscribers still get the change. Only the first list
is published over several turns, because it is long; nobody relies on the store before it is synced.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from random import Random
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from dovetail.ports import (
    ApiError,
    Clock,
    EventType,
    Gone,
    KubeApi,
    Page,
    Resource,
    TooManyRequests,
    Unavailable,
    WatchEvent,
)
from dovetail.runtime.failures import Failures
from dovetail.runtime.pace import Backoff
from dovetail.runtime.tasks import unless_idle, within
from dovetail.state.store import (
    Added,
    Change,
    Deleted,
    Key,
    KubernetesObject,
    Store,
    StoredValue,
    Synced,
    UndecodableObject,
    Updated,
    take_in,
)

log = logging.getLogger(__name__)


T = TypeVar("T", bound=KubernetesObject)
V = TypeVar("V")

# After this many failed watches the server may reject the version itself.
WATCHES_BEFORE_RELIST: Final = 5
# Two million objects; a longer list does not end.
PAGES_AT_MOST: Final = 4_000
# A burst of changes must not keep other tasks from running (R45). This many pods take some 8 ms.
EVENTS_IN_A_ROW: Final = 256


class ReflectorTimings(msgspec.Struct, frozen=True, kw_only=True):
    page_seconds: float = 60.0  # for one page of a list
    watch_seconds: int = 300  # the server ends a watch after this to twice this, so that watches do not end together
    # Servers send a bookmark about once a minute: silence for longer than this means that the connection is dead.
    idle_seconds: float = 150.0
    early_seconds: float = 1.0  # a watch that ends sooner, without an event, has failed
    backoff: Backoff = Backoff(first_seconds=0.8, cap_seconds=30.0, jitter=0.5)


# -- states -----------------------------------------------------------------------------------------------------------


class Listing(msgspec.Struct, Generic[V], frozen=True):
    """Reads a list page by page. Changes are published after the last page, so that snapshots are consistent."""

    initial: bool = False
    failures: int = 0
    pages: tuple[Mapping[Key, StoredValue[V]], ...] = ()
    unread: tuple[UndecodableObject, ...] = ()
    unnamed: int = 0  # undecodable objects without a readable name
    resource_version: str = ""
    continue_: str = ""


class Watching(msgspec.Struct, frozen=True):
    """Reads changes after this version, which is that of the list or of the last event, never an object's own."""

    resource_version: str
    failures: int = 0  # of any request since the last event: decides the back-off
    failed_watches: int = 0  # from this version: decides when to list again


class InBackoff(msgspec.Struct, Generic[V], frozen=True):
    """Waits before `then`."""

    then: Listing[V] | Watching
    failures: int
    at_least_seconds: float = 0.0


ReflectorState: TypeAlias = Listing[V] | Watching | InBackoff[V]


# -- inputs -----------------------------------------------------------------------------------------------------------


class WatchEnded(msgspec.Struct, frozen=True):
    """The watch has ended without an error. `in_vain`: at once and without an event, or after a long silence."""

    in_vain: bool = False


class WaitOver(msgspec.Struct, frozen=True):
    """The back-off is over."""


ReflectorInput: TypeAlias = Page[T] | WatchEvent[T] | WatchEnded | ApiError | WaitOver
ReflectorStep: TypeAlias = tuple[Iterable[Change[V]], ReflectorState[V]]


def step(
    state: ReflectorState[V], seen: ReflectorInput[T], stored: Mapping[Key, StoredValue[V]], keep: Callable[[T], V]
) -> ReflectorStep[V]:
    """The changes, and the next state. This is the whole protocol; the reflector only sends requests and waits.

    The changes of a list are computed as they are read: `stored` must not change before.
    """
    match state, seen:
        case Listing(), Page():
            return _paged(state, seen, stored, keep)
        case Watching(), WatchEvent():
            return _told(state, seen, stored, keep)
        case Watching(), WatchEnded(in_vain=False):
            return [], Watching(state.resource_version)
        case Watching(), WatchEnded():
            return [], _retry_watch(state, 0.0)
        case Listing() | Watching(), Gone():
            return [], _list_again(state.failures + 1, initial=isinstance(state, Listing) and state.initial)
        case Listing(), ApiError():
            failures = state.failures + 1
            anew: Listing[V] = Listing(initial=state.initial, failures=failures)
            return [], InBackoff(anew, failures, _asked_to_wait(seen))
        case Watching(), ApiError():
            return [], _retry_watch(state, _asked_to_wait(seen))
        case InBackoff(then=then), WaitOver():
            return [], then
    raise AssertionError(f"{type(state).__name__} cannot meet {type(seen).__name__}")


def _list_again(failures: int, *, initial: bool = False) -> ReflectorState[V]:
    """An expired version is normal once; one that expires again and again must not make us list in a loop."""
    again: Listing[V] = Listing(initial=initial, failures=failures)
    return again if failures <= 1 else InBackoff(again, failures)


def _retry_watch(state: Watching, at_least_seconds: float) -> InBackoff[V]:
    failures = state.failures + 1
    then: Listing[V] | Watching = Watching(state.resource_version, failures, state.failed_watches + 1)
    if state.failed_watches + 1 >= WATCHES_BEFORE_RELIST:
        then = Listing(failures=failures)
    return InBackoff(then, failures, at_least_seconds)


def _asked_to_wait(error: ApiError) -> float:
    return error.retry_after if isinstance(error, TooManyRequests) else 0.0


def _paged(
    state: Listing[V], page: Page[T], stored: Mapping[Key, StoredValue[V]], keep: Callable[[T], V]
) -> ReflectorStep[V]:
    items: dict[Key, StoredValue[V]] = {}
    unread = [*state.unread, *page.unread]
    for item in page.items:
        kept = _kept(item, keep)
        if isinstance(kept, UndecodableObject):
            unread.append(kept)
        else:
            items[_key(item)] = kept
    now = Listing(
        initial=state.initial,
        failures=state.failures,
        pages=(*state.pages, items),
        unread=tuple(unread),
        unnamed=state.unnamed + max(0, page.undecodable - len(page.unread)),
        # All pages have one version. If they did not, the watch would have to start from the oldest.
        resource_version=state.resource_version or page.resource_version,
        continue_=page.continue_,
    )
    if now.continue_ and len(now.pages) < PAGES_AT_MOST:
        return [], now
    if now.continue_:
        return step(state, ApiError(f"the list has more than {PAGES_AT_MOST} pages"), stored, keep)
    # The failures count until the first event: a list alone does not show that its version can be watched.
    return _differences(now, stored), Watching(now.resource_version, now.failures)


def _differences(listed: Listing[V], stored: Mapping[Key, StoredValue[V]]) -> Iterator[Change[V]]:
    """Unreadable objects, then deletions in the order of `stored`, then the rest in the order of the list."""
    yield from listed.unread
    if listed.unnamed:
        yield UndecodableObject(f"{listed.unnamed} objects could not be decoded, nor their names")
    items = {key: new for page in listed.pages for key, new in page.items()}
    unread = {(unread.namespace, unread.name) for unread in listed.unread}
    for key, old in stored.items():
        # An unreadable object is not gone. If its name is unreadable too, it may be any object that is absent.
        if key not in items and key not in unread and not listed.unnamed:
            yield Deleted(key, old)
    for key, new in items.items():
        yield from _arrival(key, new, stored)
    yield Synced()


def _told(
    state: Watching, event: WatchEvent[T], stored: Mapping[Key, StoredValue[V]], keep: Callable[[T], V]
) -> ReflectorStep[V]:
    # Without a readable version the watch goes on from the last one; the event comes again, which does no harm.
    now = Watching(event.resource_version or state.resource_version)
    if event.type is EventType.BOOKMARK:
        return [], now
    if event.object is None:
        return _told_unreadable(state, now, event, stored)
    key = _key(event.object)
    if event.type is EventType.DELETED:
        old = stored.get(key)
        gone = old is not None and old.uid == event.object.metadata.uid
        return ([Deleted(key, old)] if old is not None and gone else []), now
    new = _kept(event.object, keep)
    if isinstance(new, UndecodableObject):
        return [new], now
    return list(_arrival(key, new, stored)), now


def _told_unreadable(
    state: Watching, now: Watching, event: WatchEvent[T], stored: Mapping[Key, StoredValue[V]]
) -> ReflectorStep[V]:
    """The stored object stays, unless it is deleted. Without a name, only a list shows which object was deleted."""
    unread = event.unread or UndecodableObject(event.problem)
    if event.type is not EventType.DELETED:
        return [unread], now
    if event.unread is None:
        return [unread], _list_again(state.failures + 1)
    key = (event.unread.namespace, event.unread.name)
    return [unread, *([Deleted(key, stored[key])] if key in stored else [])], now


def _arrival(key: Key, new: StoredValue[V], stored: Mapping[Key, StoredValue[V]]) -> Iterator[Change[V]]:
    old = stored.get(key)
    if old is None:
        yield Added(key, new)
    elif old.uid != new.uid:
        yield Deleted(key, old)
        yield Added(key, new)
    elif old.resource_version != new.resource_version:
        yield Updated(key, old, new)


def _key(item: KubernetesObject) -> Key:
    return item.metadata.namespace, item.metadata.name


def _kept(item: T, keep: Callable[[T], V]) -> StoredValue[V] | UndecodableObject:
    meta = item.metadata
    try:
        return StoredValue(meta.uid, meta.resource_version, keep(item))
    except ValueError as error:
        return UndecodableObject(str(error), meta.namespace, meta.name)


# -- reflector --------------------------------------------------------------------------------------------------------


class Reflector(Generic[T, V]):
    """Follows the objects of one kind. `run` ends only when it is cancelled."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        resource: Resource[T],
        keep: Callable[[T], V],
        *,
        seed: int = 0,
        timings: ReflectorTimings = ReflectorTimings(),  # noqa: B008  frozen
        failures: Failures | None = None,
        store: Store[V] | None = None,
    ) -> None:
        self.name = resource.plural
        self.relists = 0
        self.failures = 0
        self._api = api
        self._clock = clock
        self._resource = resource
        self._kept_of = keep
        self._failures = failures or Failures()
        self.store: Store[V] = Store(self.name, self._failures.take) if store is None else store
        self._chance = Random(seed)
        self._timings = timings
        self._synced = asyncio.Event()

    @property
    def undecodable(self) -> int:
        """The number of objects that could not be decoded, for the metrics."""
        return self.store.undecodable

    @property
    def synced(self) -> bool:
        """Whether the store holds a whole list."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    async def run(self) -> None:
        state: ReflectorState[V] = Listing(initial=not self.synced)
        while True:
            state = await self._turn(state)

    async def _turn(self, state: ReflectorState[V]) -> ReflectorState[V]:
        match state:
            case Watching():
                return await self._watch(state)
            case Listing():
                return await self._take_in(state, await self._list(state))
        chosen = self._timings.backoff.seconds(state.failures, self._chance)
        await self._clock.sleep(max(chosen, min(state.at_least_seconds, self._timings.backoff.cap_seconds)))
        return self._advance(state, WaitOver())

    async def _list(self, state: Listing[V]) -> ReflectorInput[T]:
        request = self._api.list(self._resource, continue_=state.continue_)
        try:
            return await within(self._clock, self._timings.page_seconds, request)
        except ApiError as error:
            return error
        except TimeoutError:
            return Unavailable("the list was not answered in time")

    async def _watch(self, state: Watching) -> ReflectorState[V]:
        started_at = self._clock.monotonic()
        now: ReflectorState[V] = state
        events_read = 0

        async def read(heard: Callable[[], None]) -> None:
            nonlocal now, events_read
            seconds = round(self._timings.watch_seconds * (1 + self._chance.random()))
            watch = self._api.watch(self._resource, resource_version=state.resource_version, timeout_seconds=seconds)
            async with aclosing(watch) as events:
                async for event in events:
                    heard()
                    events_read += 1
                    now = self._advance(now, event)
                    if not isinstance(now, Watching):
                        return
                    await self._give_way(events_read)

        seen: ReflectorInput[T]
        try:
            await unless_idle(self._clock, self._timings.idle_seconds, read)
            seen = WatchEnded(
                in_vain=not events_read and self._clock.monotonic() - started_at < self._timings.early_seconds
            )
        except ApiError as error:
            seen = error
        except TimeoutError:
            log.warning("watch is idle", extra={"resource": self.name, "seconds": self._timings.idle_seconds})
            seen = WatchEnded(in_vain=True)
        return self._advance(now, seen) if isinstance(now, Watching) else now

    async def _take_in(self, state: Listing[V], seen: ReflectorInput[T]) -> ReflectorState[V]:
        """Like `_advance`, but gives other tasks a turn in between.

        The changes of the first list are published over several turns, after the store has all of it and before it is
        synced. Those of a later list are few, and nobody may see a part of them: they are published in one turn.
        """
        changes, then = self._step(state, seen)
        if not isinstance(then, Watching):
            return then
        if state.pages:  # reading the last of several pages was enough for one turn
            await self._clock.sleep(0)
        items, published = self.store.copy(), list[Change[V]]()
        for change in changes:
            take_in(change, items)
            published.append(change)
            await self._give_way(len(published))
        self.store.replace(items, then.resource_version)
        for number, change in enumerate(published, 1):
            self._note(change)
            self.store.notify(change)
            if state.initial:
                await self._give_way(number)
        return then

    async def _give_way(self, done: int) -> None:
        if done % EVENTS_IN_A_ROW == 0:
            await self._clock.sleep(0)

    def _advance(self, state: ReflectorState[V], seen: ReflectorInput[T]) -> ReflectorState[V]:
        computed, then = self._step(state, seen)
        changes = list(computed)
        for change in changes:
            self._note(change)
        self.store.apply(*changes, version=then.resource_version if isinstance(then, Watching) else None)
        return then

    def _step(self, state: ReflectorState[V], seen: ReflectorInput[T]) -> ReflectorStep[V]:
        if isinstance(seen, ApiError):
            self.failures += 1
            log.warning("list or watch failed", extra={"resource": self.name, "error": str(seen)})
        return step(state, seen, self.store.items, self._keep)

    def _note(self, change: Change[V]) -> None:
        if isinstance(change, Synced):
            self.relists += self.synced
            self._synced.set()
        elif isinstance(change, UndecodableObject):
            object_ = f"{change.namespace}/{change.name}"
            log.warning("unreadable object", extra={"resource": self.name, "object": object_, "error": change.problem})

    def _keep(self, item: T) -> V:
        """Raises ValueError: the object cannot be read."""
        try:
            return self._kept_of(item)
        except ValueError:
            raise
        except Exception as error:
            meta = item.metadata
            self._failures.take(self.name, error, doing=f"{meta.namespace}/{meta.name}")
            raise ValueError(repr(error)) from error
