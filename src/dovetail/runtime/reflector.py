"""What objects of one kind are there, and what has changed about them?

A reflector lists, then watches, and lists anew when the server no longer knows the version it stopped at. What happened
in the gap shows as the difference between the two lists, so no deletion is missed. Of each object only what `keep`
returns is kept.

What it learns goes into a `Store`, whose subscribers are plain callbacks and not queues: they run in the same turn of
the loop as the change, so that they never see contents that disagree with the changes they were told of, and nothing is
dropped when one is slow. They must be quick (add a key to a work queue, move a record in an index) and must not raise.
An error of one is logged and counted, or raised where failures are not tolerated; the other subscribers are told all
the same. Only the first list is told in several turns, for it is long; nobody relies on it before the last of them, in
which the store is synced.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, Final, Generic, TypeAlias, TypeVar

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

# After so many watches that failed the version itself may be what the server does not like.
WATCHES_BEFORE_RELIST: Final = 5
# Two million objects; a list that goes on longer does not end.
PAGES_AT_MOST: Final = 4_000
# A flood of changes must not keep the other tasks from running (R45): of pods they take some 8 ms.
EVENTS_IN_A_ROW: Final = 256


class ReflectorTimings(msgspec.Struct, frozen=True, kw_only=True):
    """How long a reflector waits for what."""

    page_seconds: float = 60.0  # for one page of a list
    watch_seconds: int = 300  # the server ends a watch after this to twice this, so that watches do not end together
    # Servers send a bookmark about once a minute: silence for longer than this means that the connection is dead.
    idle_seconds: float = 150.0
    early_seconds: float = 1.0  # a watch that tells nothing and ends sooner was in vain
    backoff: Backoff = Backoff(first_seconds=0.8, cap_seconds=30.0, jitter=0.5)


# -- the states -------------------------------------------------------------------------------------------------------


class Listing(msgspec.Struct, Generic[V], frozen=True):
    """Reading a list page by page. Nothing is shown before the last page, so that snapshots are consistent."""

    initial: bool = False
    failures: int = 0
    pages: tuple[Mapping[Key, StoredValue[V]], ...] = ()
    unread: tuple[UndecodableObject, ...] = ()
    unnamed: int = 0  # undecodable objects of which not even the name is known
    resource_version: str = ""
    continue_: str = ""


class Watching(msgspec.Struct, frozen=True):
    """Told of changes after this version, which is never an object's own but the list's or the last event's."""

    resource_version: str
    failures: int = 0  # of any request since something was last told: how long to wait
    failed_watches: int = 0  # from this version: whether to go on trying with it


class VersionExpired(msgspec.Struct, frozen=True):
    """The server no longer knows the version, or something was told that only a list can tell."""

    initial: bool = False
    failures: int = 0


class InBackoff(msgspec.Struct, Generic[V], frozen=True):
    """Waiting before `then` is tried again."""

    then: Listing[V] | Watching
    failures: int
    at_least_seconds: float = 0.0


ReflectorState: TypeAlias = Listing[V] | Watching | VersionExpired | InBackoff[V]


# -- what a state meets -----------------------------------------------------------------------------------------------


class PageReceived(msgspec.Struct, Generic[T], frozen=True):
    """The server answered with a page of the list."""

    page: Page[T]


class EventReceived(msgspec.Struct, Generic[T], frozen=True):
    """The watch told of something."""

    event: WatchEvent[T]


class WatchEnded(msgspec.Struct, frozen=True):
    """The watch has ended without an error. `in_vain`: at once and without a word, or it fell silent."""

    in_vain: bool = False


class RequestFailed(msgspec.Struct, frozen=True):
    """The request failed."""

    error: ApiError


class WaitOver(msgspec.Struct, frozen=True):
    """The wait is over; also what a state meets that waits for nothing."""


ReflectorInput: TypeAlias = PageReceived[T] | EventReceived[T] | WatchEnded | RequestFailed | WaitOver
ReflectorStep: TypeAlias = tuple[Iterable[Change[V]], ReflectorState[V]]


def step(
    state: ReflectorState[V], seen: ReflectorInput[T], known: Mapping[Key, StoredValue[V]], keep: Callable[[T], V]
) -> ReflectorStep[V]:
    """What has changed, and the next state. This is the whole of the protocol; the reflector only asks and waits.

    What a list has changed is found as it is read: until then `known` has to stay as it is.
    """
    match state, seen:
        case Listing(), PageReceived(page=page):
            return _paged(state, page, known, keep)
        case Watching(), EventReceived(event=event):
            return _told(state, event, known, keep)
        case Watching(), WatchEnded(in_vain=False):
            return [], Watching(state.resource_version)
        case Watching(), WatchEnded():
            return [], _retry_watch(state, 0.0)
        case Listing() | Watching(), RequestFailed(error=Gone()):
            return [], VersionExpired(initial=isinstance(state, Listing) and state.initial, failures=state.failures + 1)
        case Listing(), RequestFailed(error=error):
            failures = state.failures + 1
            anew: Listing[V] = Listing(initial=state.initial, failures=failures)
            return [], InBackoff(anew, failures, _asked_to_wait(error))
        case Watching(), RequestFailed(error=error):
            return [], _retry_watch(state, _asked_to_wait(error))
        case VersionExpired(failures=failures), WaitOver():
            again: Listing[V] = Listing(initial=state.initial, failures=failures)
            # The first time is ordinary life; a version that expires again and again must not make us list in a loop.
            return [], again if failures <= 1 else InBackoff(again, failures)
        case InBackoff(then=then), WaitOver():
            return [], then
    raise AssertionError(f"{type(state).__name__} cannot meet {type(seen).__name__}")


def _retry_watch(state: Watching, at_least_seconds: float) -> InBackoff[V]:
    failures = state.failures + 1
    then: Listing[V] | Watching = Watching(state.resource_version, failures, state.failed_watches + 1)
    if state.failed_watches + 1 >= WATCHES_BEFORE_RELIST:
        then = Listing(failures=failures)
    return InBackoff(then, failures, at_least_seconds)


def _asked_to_wait(error: ApiError) -> float:
    return error.retry_after if isinstance(error, TooManyRequests) else 0.0


def _paged(
    state: Listing[V], page: Page[T], known: Mapping[Key, StoredValue[V]], keep: Callable[[T], V]
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
        # All pages are of one version; were they not, the oldest would be the one to go on from.
        resource_version=state.resource_version or page.resource_version,
        continue_=page.continue_,
    )
    if now.continue_ and len(now.pages) < PAGES_AT_MOST:
        return [], now
    if now.continue_:
        return step(state, RequestFailed(ApiError(f"the list has more than {PAGES_AT_MOST} pages")), known, keep)
    # The failures stay until the watch tells something: a list alone does not show that its version can be watched.
    return _differences(now, known), Watching(now.resource_version, now.failures)


def _differences(listed: Listing[V], known: Mapping[Key, StoredValue[V]]) -> Iterator[Change[V]]:
    """What cannot be read, then deletions, in the order known, then the rest in the order listed."""
    yield from listed.unread
    if listed.unnamed:
        yield UndecodableObject(f"{listed.unnamed} objects could not be decoded, nor their names")
    items = {key: new for page in listed.pages for key, new in page.items()}
    unread = {(unread.namespace, unread.name) for unread in listed.unread}
    for key, old in known.items():
        # What cannot be read is not gone. Where not even names are known, any absent object may be the one.
        if key not in items and key not in unread and not listed.unnamed:
            yield Deleted(key, old)
    for key, new in items.items():
        yield from _arrival(key, new, known, initial=listed.initial)
    yield Synced(listed.resource_version)


def _told(
    state: Watching, event: WatchEvent[T], known: Mapping[Key, StoredValue[V]], keep: Callable[[T], V]
) -> ReflectorStep[V]:
    # A version that could not be read leaves us where we were: the event is told again, which does no harm.
    now = Watching(event.resource_version or state.resource_version)
    if event.type is EventType.BOOKMARK:
        return [], now
    if event.object is None:
        return _told_unreadable(state, now, event, known)
    key = _key(event.object)
    if event.type is EventType.DELETED:
        old = known.get(key)
        gone = old is not None and old.uid == event.object.metadata.uid
        return ([Deleted(key, old)] if old is not None and gone else []), now
    new = _kept(event.object, keep)
    if isinstance(new, UndecodableObject):
        return [new], now
    return list(_arrival(key, new, known)), now


def _told_unreadable(
    state: Watching, now: Watching, event: WatchEvent[T], known: Mapping[Key, StoredValue[V]]
) -> ReflectorStep[V]:
    """What was known of the object stays, unless it is deleted. Without its name only a list can tell which one was."""
    unread = event.unread or UndecodableObject(event.problem)
    if event.type is not EventType.DELETED:
        return [unread], now
    if event.unread is None:
        return [unread], VersionExpired(failures=state.failures + 1)
    key = (event.unread.namespace, event.unread.name)
    return [unread, *([Deleted(key, known[key])] if key in known else [])], now


def _arrival(
    key: Key, new: StoredValue[V], known: Mapping[Key, StoredValue[V]], *, initial: bool = False
) -> Iterator[Change[V]]:
    old = known.get(key)
    if old is None:
        yield Added(key, new, initial)
    elif old.uid != new.uid:
        yield Deleted(key, old)
        yield Added(key, new, initial)
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


# -- the loop ---------------------------------------------------------------------------------------------------------


class Reflector(Generic[T, V]):
    """Follows the objects of one kind. `run` it in a TaskGroup; it ends only when cancelled."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        resource: Resource[T],
        keep: Callable[[T], V],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
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
        self._where: dict[str, Any] = {"namespace": namespace, "labels": labels, "fields": fields}
        self._chance = Random(seed)
        self._timings = timings
        self._synced = asyncio.Event()

    @property
    def undecodable(self) -> int:
        """How often something could not be read, for the metrics."""
        return self.store.undecodable

    @property
    def synced(self) -> bool:
        """Whether a whole list has ever been taken in."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Until a whole list has been taken in."""
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
            case InBackoff():
                chosen = self._timings.backoff.seconds(state.failures, self._chance)
                await self._clock.sleep(max(chosen, min(state.at_least_seconds, self._timings.backoff.cap_seconds)))
        return self._advance(state, WaitOver())

    async def _list(self, state: Listing[V]) -> ReflectorInput[T]:
        asking = self._api.list(self._resource, continue_=state.continue_, **self._where)
        try:
            return PageReceived(await within(self._clock, self._timings.page_seconds, asking))
        except ApiError as error:
            return RequestFailed(error)
        except TimeoutError:
            return RequestFailed(Unavailable("the list was not answered in time"))

    async def _watch(self, state: Watching) -> ReflectorState[V]:
        started_at = self._clock.monotonic()
        now: ReflectorState[V] = state
        told = 0

        async def read(heard: Callable[[], None]) -> None:
            nonlocal now, told
            seconds = round(self._timings.watch_seconds * (1 + self._chance.random()))
            watch = self._api.watch(
                self._resource, resource_version=state.resource_version, timeout_seconds=seconds, **self._where
            )
            async with aclosing(watch) as events:
                async for event in events:
                    heard()
                    told += 1
                    now = self._advance(now, EventReceived(event))
                    if not isinstance(now, Watching):
                        return
                    await self._give_way(told)

        seen: ReflectorInput[T]
        try:
            await unless_idle(self._clock, self._timings.idle_seconds, read)
            seen = WatchEnded(in_vain=not told and self._clock.monotonic() - started_at < self._timings.early_seconds)
        except ApiError as error:
            seen = RequestFailed(error)
        except TimeoutError:
            log.warning("%s: nothing heard for %s s, watching anew", self.name, self._timings.idle_seconds)
            seen = WatchEnded(in_vain=True)
        return self._advance(now, seen) if isinstance(now, Watching) else now

    async def _take_in(self, state: Listing[V], seen: ReflectorInput[T]) -> ReflectorState[V]:
        """As `_advance`, but in turns that are short, as far as nobody can tell.

        What the first list tells is told in turns too, but all of it after the list is there, and before it is synced.
        Of a later one little is new, and who relies on the cache must not meet a part of it: that is one turn.
        """
        changes, then = self._step(state, seen)
        if not isinstance(then, Watching):
            return then
        if state.pages:  # reading the last of several was enough for a turn
            await self._clock.sleep(0)
        items, found = self.store.copy(), list[Change[V]]()
        for change in changes:
            take_in(change, items)
            found.append(change)
            await self._give_way(len(found))
        self.store.replace(items, then.resource_version)
        for number, change in enumerate(found, 1):
            self._note(change)
            self.store.notify(change)
            if state.initial:
                await self._give_way(number)
        return then

    async def _give_way(self, done: int) -> None:
        if done % EVENTS_IN_A_ROW == 0:
            await self._clock.sleep(0)

    def _advance(self, state: ReflectorState[V], seen: ReflectorInput[T]) -> ReflectorState[V]:
        changes, then = self._step(state, seen)
        found = list(changes)
        for change in found:
            self._note(change)
        self.store.apply(*found, version=then.resource_version if isinstance(then, Watching) else None)
        return then

    def _step(self, state: ReflectorState[V], seen: ReflectorInput[T]) -> ReflectorStep[V]:
        if isinstance(seen, RequestFailed):
            self.failures += 1
            log.warning("%s: %s", self.name, seen.error)
        return step(state, seen, self.store.items, self._keep)

    def _note(self, change: Change[V]) -> None:
        if isinstance(change, Synced):
            self.relists += self.synced
            self._synced.set()
        elif isinstance(change, UndecodableObject):
            log.warning("%s: unreadable object %s/%s: %s", self.name, change.namespace, change.name, change.problem)

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
