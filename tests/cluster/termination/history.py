"""What happened on a real control plane, and when? Watched beside the program under test, and independently of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from dovetail.api.objects import Instant, ObjectMeta, Wire
from dovetail.ports import EVENTS, NODECLAIMS, NODES, PDBS, PODS, KubeApi, Resource
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.pace import Backoff
from dovetail.runtime.reflector import Reflector, ReflectorTimings
from dovetail.runtime.tasks import root_cause
from dovetail.state.store import Added, Change, Deleted, Updated

SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount", dict[str, Any], namespaced=True)
FOLLOWED: Final = (PODS, NODES, NODECLAIMS, PDBS, EVENTS, SERVICE_ACCOUNTS)
PATIENCE_SECONDS: Final = 120.0  # far more than anything takes; a busy machine is no failure
TIMINGS: Final = ReflectorTimings(backoff=Backoff(first_seconds=0.2, cap_seconds=2.0, jitter=0.5))


class Metadata(ObjectMeta, frozen=True):
    deletion_grace_period_seconds: int | None = None


class Thing(Wire, frozen=True):
    """Any object. The fields of its own that only events have are empty on others."""

    metadata: Metadata = Metadata()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)
    reason: str = ""
    note: str = ""
    event_time: Instant | None = None
    regarding: dict[str, str] = msgspec.field(default_factory=dict)
    reporting_controller: str = ""

    def condition(self, type_: str) -> str | None:
        """The status of one of its conditions."""
        conditions = self.status.get("conditions") or ()
        return next((str(each["status"]) for each in conditions if each["type"] == type_), None)


class Version(msgspec.Struct, frozen=True):
    """An object as it became, or None when it went, and when we were told. `number` counts versions of its kind."""

    number: int
    at: datetime
    thing: Thing | None


class Asked(msgspec.Struct, frozen=True):
    """A pod was asked to go: at which whole second by the server's clock, with which grace, in which version."""

    at: datetime
    grace_seconds: int
    number: int


Key = tuple[str, str, str]  # plural, namespace, name


class History:
    """Every version of pods, Nodes, NodeClaims, PDBs and events that a watch told of."""

    def __init__(self, api: KubeApi) -> None:
        self._clock = SystemClock()
        self._versions: dict[Key, list[Version]] = {}
        self._told: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._reflectors = [self._followed(api, kind) for kind in FOLLOWED]

    def _followed(self, api: KubeApi, kind: Resource[Any]) -> Reflector[Thing, Thing]:
        reflector = Reflector(api, self._clock, kind.read_as(Thing), lambda thing: thing, timings=TIMINGS)
        reflector.store.subscribe(lambda change: self._note(kind.plural, change))
        return reflector

    def _note(self, plural: str, change: Change[Thing]) -> None:
        match change:
            case Added(key=key, new=new) | Updated(key=key, new=new):
                thing: Thing | None = new.value
            case Deleted(key=key):
                thing = None
            case _:
                return
        self._told[plural] = number = self._told.get(plural, 0) + 1
        self._versions.setdefault((plural, *key), []).append(Version(number, self._clock.now(), thing))
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"history of {reflector.name}")

    async def wait_synced(self) -> None:
        for reflector in self._reflectors:
            await reflector.wait_synced()

    # -- looking ------------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return self._clock.now()

    def versions(self, kind: Resource[Any], name: str, namespace: str = "") -> list[Version]:
        return self._versions.get((kind.plural, namespace, name), [])

    def get(self, kind: Resource[Any], name: str, namespace: str = "") -> Thing | None:
        """The object as it is now, if it is there."""
        versions = self.versions(kind, name, namespace)
        return versions[-1].thing if versions else None

    def all(self, kind: Resource[Any], namespace: str = "") -> list[Thing]:
        """Those of a namespace that are there now."""
        found = (
            versions[-1].thing
            for (plural, place, _), versions in self._versions.items()
            if (plural, place) == (kind.plural, namespace)
        )
        return [thing for thing in found if thing is not None]

    def gone(self, kind: Resource[Any], name: str, namespace: str = "") -> Version | None:
        """The end of an object that was there and is no longer."""
        versions = self.versions(kind, name, namespace)
        return versions[-1] if versions and versions[-1].thing is None else None

    def asked(self, name: str, namespace: str) -> list[Asked]:
        """Each time that a pod was asked to go; asking again counts if it changed when it ends.

        Without any grace is how its kubelet says that it has ended.
        """
        found: list[Asked] = []
        ends_at: datetime | None = None
        for version in self.versions(PODS, name, namespace):
            meta = None if version.thing is None else version.thing.metadata
            if meta is None or meta.deletion_timestamp is None or meta.deletion_timestamp == ends_at:
                continue
            ends_at, grace = meta.deletion_timestamp, meta.deletion_grace_period_seconds
            if grace:
                found.append(Asked(ends_at - timedelta(seconds=grace), grace, version.number))
        return found

    def events(self, reason: str, about: str, namespace: str = "default") -> list[Thing]:
        """The events about an object of this name, oldest first; what has no namespace has its events in `default`."""
        found = (
            version.thing
            for (plural, place, _), versions in self._versions.items()
            if (plural, place) == (EVENTS.plural, namespace)
            for version in versions[:1]
        )
        return [
            event
            for event in found
            if event is not None and (event.reason, event.regarding.get("name")) == (reason, about)
        ]

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def until(self, is_so: Callable[[], Any], what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Asks after each change until it is so; raises TimeoutError that says what was waited for."""
        try:
            async with asyncio.timeout(seconds):
                while not is_so():
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"not within {seconds} s: {what}") from None

    async def reaches(self, instant: datetime) -> None:
        """Lets time pass up to an instant of the timeline."""
        while (left := (instant - self.now()).total_seconds()) > 0:
            await asyncio.sleep(left)


@asynccontextmanager
async def recording(api: KubeApi) -> AsyncIterator[History]:
    """The history from now on."""
    history = History(api)
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(history.run(), name="history")
            try:
                await history.wait_synced()
                yield history
            finally:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise root_cause(errors) from None
