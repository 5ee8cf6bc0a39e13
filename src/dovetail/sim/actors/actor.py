"""How does an actor work? It is told keys and brings each key's object to rest; only changes and timers wake it."""

import asyncio
import contextlib
import copy
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

from dovetail.ports import (
    AlreadyExists,
    ApiError,
    Clock,
    Conflict,
    Create,
    Delete,
    Forbidden,
    KubeApi,
    NotFound,
    Patch,
    Propagation,
)
from dovetail.sim.actors.watch import WatchCache, follow
from dovetail.sim.actors.wire import Kind, Raw, name_of, namespace_of

_FIRST_RETRY_SECONDS = 0.1
_LAST_RETRY_SECONDS = 10.0
_CONFLICTS_AT_ONCE = 5


class ActorContext:
    """What all actors share: the API, the time and the caches."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self.api = api
        self.clock = clock
        self._stores: dict[Kind, WatchCache] = {}
        self._unsynced: set[Kind] = set()
        self.synced = asyncio.Event()

    def store(self, kind: Kind) -> WatchCache:
        """The cache of the kind; all are asked for before the world is started."""
        if kind not in self._stores:
            self._stores[kind] = WatchCache()
            self._unsynced.add(kind)
        return self._stores[kind]

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Begin to follow every kind that was asked for."""
        return [
            group.create_task(
                follow(self.api, self.clock, kind, store, self._synced_of(kind)), name=f"follow {kind.plural}"
            )
            for kind, store in self._stores.items()
        ]

    def acting_as(self, api: KubeApi) -> "ActorContext":
        """The same world for another client of the API."""
        other = copy.copy(self)
        other.api = api
        return other

    def _synced_of(self, kind: Kind) -> Callable[[], None]:
        def done() -> None:
            self._unsynced.discard(kind)
            if not self._unsynced:
                self.synced.set()

        return done

    def now(self) -> datetime:
        return self.clock.now()

    # -- writes: their results enter the caches at once --------------------------------------------------------------

    async def create(self, kind: Kind, body: Raw) -> Raw | None:
        """Create the object; None if one of this name is there, or its namespace is going away."""
        try:
            made = await self.api.write(Create(kind, body, namespace=namespace_of(body) or None))
        except (AlreadyExists, Forbidden):
            return None
        self.store(kind).observe(made)
        return made

    async def patch(self, kind: Kind, obj: Raw, body: Mapping[str, Any], *, subresource: str = "") -> Raw | None:
        """Merge the body into the object as it was read; None if it is gone. Raises Conflict if it is another one."""
        preconditions = {"uid": obj["metadata"]["uid"], "resourceVersion": obj["metadata"]["resourceVersion"]}
        merged = {**body, "metadata": {**body.get("metadata", {}), **preconditions}}
        where = namespace_of(obj) or None
        try:
            made = await self.api.write(Patch(kind, name_of(obj), merged, where, subresource=subresource))
        except NotFound:
            return None
        except Conflict:
            await self.refresh(kind, obj)
            raise
        self.store(kind).observe(made)
        return made

    async def delete(
        self, kind: Kind, obj: Raw, *, grace_seconds: int | None = None, propagation: Propagation | None = None
    ) -> None:
        """Delete this very object; nothing happens if it is gone."""
        where, uid = namespace_of(obj) or None, obj["metadata"]["uid"]
        with contextlib.suppress(NotFound, Conflict):
            await self.api.write(
                Delete(kind, name_of(obj), where, uid, grace_seconds=grace_seconds, propagation=propagation)
            )
        await self.refresh(kind, obj)

    async def refresh(self, kind: Kind, obj: Raw) -> None:
        """See what has become of the object, before the watch tells."""
        try:
            found = await self.api.get(kind, name_of(obj), namespace=namespace_of(obj) or None)
        except NotFound:
            self.store(kind).bury(obj)
            return
        if found["metadata"]["uid"] != obj["metadata"]["uid"]:
            self.store(kind).bury(obj)
        self.store(kind).observe(found)


async def _quiet() -> None:
    """Until nothing else can run at this instant: a virtual loop turns to its timers only then."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    timer = loop.call_at(loop.time(), future.set_result, None)
    try:
        await future
    finally:
        timer.cancel()


class Actor:
    """One controller: a queue of keys, timers that fill it, and one task that empties it."""

    # A patient actor begins when nothing else can run at this instant, so that a burst of changes costs one look.
    patient: ClassVar[bool] = True

    def __init__(self, world: ActorContext) -> None:
        self.world = world
        self._queue: dict[str, None] = {}  # in order, each key once
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._wake = asyncio.Event()

    async def reconcile(self, key: str) -> None:
        """Bring what the key names to rest, as far as it can be done now."""
        raise NotImplementedError

    def enqueue(self, key: str) -> None:
        """Look at the key soon."""
        self._queue[key] = None
        self._wake.set()

    def enqueue_at(self, key: str, at: datetime) -> None:
        """Look at the key at the instant; an earlier timer stands."""
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, (at - self.world.now()).total_seconds())
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(when, self._fire, key)

    def _fire(self, key: str) -> None:
        del self._timers[key]
        self.enqueue(key)

    async def run(self) -> None:
        """Work for ever."""
        await self.world.synced.wait()
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self.patient:
                await _quiet()
            while self._queue:
                key = next(iter(self._queue))
                del self._queue[key]
                await self._attempt(key)

    async def _attempt(self, key: str) -> None:
        try:
            await self.reconcile(key)
        except ApiError as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            if isinstance(error, Conflict) and failures <= _CONFLICTS_AT_ONCE:
                self.enqueue(key)  # somebody was faster; what they wrote is known by now
                return
            delay = min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 16))
            self.enqueue_at(key, self.world.now() + timedelta(seconds=delay))
        else:
            self._failures.pop(key, None)
