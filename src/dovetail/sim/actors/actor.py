"""The base of all actors: a queue of keys that changes and timers fill, and one task that reconciles them."""

import asyncio
import contextlib
import copy
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from dovetail import ports
from dovetail.ports import ApiError, Clock, Conflict, KubeApi, NotFound, Propagation
from dovetail.sim.actors.watch import WatchCache, follow
from dovetail.sim.actors.wire import PODS, Kind, Raw, name_of, namespace_of, with_conditions

_FIRST_RETRY_SECONDS = 0.1
_LAST_RETRY_SECONDS = 10.0
_CONFLICTS_AT_ONCE = 5


class ActorContext:
    """The API client, clock and caches that all actors share."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self.api = api
        self.clock = clock
        self._stores: dict[Kind, WatchCache] = {}
        self._unsynced: set[Kind] = set()
        self.synced = asyncio.Event()

    def store(self, kind: Kind) -> WatchCache:
        """The cache of the kind. Actors ask for all caches before the world starts."""
        if kind not in self._stores:
            self._stores[kind] = WatchCache()
            self._unsynced.add(kind)
        return self._stores[kind]

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start to watch every kind that has a cache."""
        return [
            group.create_task(
                follow(self.api, self.clock, kind, store, partial(self._mark_synced, kind)),
                name=f"follow {kind.plural}",
            )
            for kind, store in self._stores.items()
        ]

    def acting_as(self, api: KubeApi) -> "ActorContext":
        """The same world with another API client."""
        other = copy.copy(self)
        other.api = api
        return other

    def _mark_synced(self, kind: Kind) -> None:
        self._unsynced.discard(kind)
        if not self._unsynced:
            self.synced.set()

    def now(self) -> datetime:
        return self.clock.now()

    # -- writes, whose results enter the caches at once ---------------------------------------------------------------

    async def create(self, kind: Kind, body: Raw) -> Raw | None:
        """Create the object; None if the name is taken or the namespace is being deleted."""
        try:
            made = await self.api.write(ports.Create(kind, body, namespace=namespace_of(body) or None))
        except (ports.AlreadyExists, ports.Forbidden):
            return None
        self.store(kind).observe(made)
        return made

    async def patch(self, kind: Kind, obj: Raw, body: Mapping[str, Any], *, subresource: str = "") -> Raw | None:
        """Merge the body into the object as read; None if it is gone. Raises Conflict if it has changed since."""
        preconditions = {"uid": obj["metadata"]["uid"], "resourceVersion": obj["metadata"]["resourceVersion"]}
        merged = {**body, "metadata": {**body.get("metadata", {}), **preconditions}}
        where = namespace_of(obj) or None
        try:
            made = await self.api.write(ports.Patch(kind, name_of(obj), merged, where, subresource=subresource))
        except NotFound:
            return None
        except Conflict:
            await self.refresh(kind, obj)
            raise
        self.store(kind).observe(made)
        return made

    async def patch_status(self, kind: Kind, obj: Raw, status: Mapping[str, Any]) -> Raw | None:
        return await self.patch(kind, obj, {"status": status}, subresource="status")

    async def set_conditions(self, kind: Kind, obj: Raw, changes: Iterable[Raw], **status: Any) -> Raw | None:
        """Set conditions, and other fields of the status."""
        return await self.patch_status(kind, obj, {"conditions": with_conditions(obj, changes, self.now()), **status})

    async def disrupt(self, pod: Raw, reason: str, message: str) -> None:
        """Delete the pod, and say why in its conditions."""
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
        if await self.set_conditions(PODS, pod, [condition]) is not None:
            await self.delete(PODS, pod)

    async def delete(
        self, kind: Kind, obj: Raw, *, grace_seconds: int | None = None, propagation: Propagation | None = None
    ) -> None:
        """Delete the object with this UID, if it still exists."""
        where, uid = namespace_of(obj) or None, obj["metadata"]["uid"]
        with contextlib.suppress(NotFound, Conflict):
            await self.api.write(
                ports.Delete(kind, name_of(obj), where, uid, grace_seconds=grace_seconds, propagation=propagation)
            )
        await self.refresh(kind, obj)

    async def refresh(self, kind: Kind, obj: Raw) -> None:
        """Read the object again, without waiting for the watch."""
        try:
            current = await self.api.get(kind, name_of(obj), namespace=namespace_of(obj) or None)
        except NotFound:
            self.store(kind).bury(obj)
            return
        if current["metadata"]["uid"] != obj["metadata"]["uid"]:
            self.store(kind).bury(obj)
        self.store(kind).observe(current)


async def _quiet() -> None:
    """Wait until nothing else can run at this instant: a virtual loop runs its timers only then."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    timer = loop.call_at(loop.time(), future.set_result, None)
    try:
        await future
    finally:
        timer.cancel()


class Actor:
    """A controller with one queue and one task."""

    # A patient actor starts when nothing else can run at this instant, so that a burst of changes costs one pass.
    patient: ClassVar[bool] = True

    def __init__(self, world: ActorContext) -> None:
        self.world = world
        self._queue: dict[str, None] = {}  # in order, each key once
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._wake = asyncio.Event()

    async def reconcile(self, key: str) -> None:
        """Bring the object of the key closer to its desired state."""
        raise NotImplementedError

    def enqueue(self, key: str) -> None:
        """Reconcile the key soon."""
        self._queue[key] = None
        self._wake.set()

    def enqueue_at(self, key: str, at: datetime) -> None:
        """Reconcile the key at the instant, or at that of an earlier timer."""
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
        """Reconcile until cancelled."""
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
                self.enqueue(key)  # the cache holds the other write by now
                return
            delay = min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 16))
            self.enqueue_at(key, self.world.now() + timedelta(seconds=delay))
        else:
            self._failures.pop(key, None)
