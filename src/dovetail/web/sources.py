"""Where does the board get the cluster from: files, a live cluster, the running controller, or a simulated one?"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import msgspec

from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.disruption.engine import DisruptionController, PastDecision
from dovetail.controllers.disruption.reporter import one_line
from dovetail.model.finding import Finding, Severity
from dovetail.model.records import PodInterner, claim_record, node_record, pdb_record, pool_record
from dovetail.model.refs import Ref, Sentence
from dovetail.model.snapshot import Snapshot, take_snapshot
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PDBS, PODS, Clock, KubeApi
from dovetail.runtime.reflector import Reflector
from dovetail.runtime.tasks import happens_within
from dovetail.state.store import Change
from dovetail.views.board.details import DecisionView
from dovetail.views.forecast.assembly import machine_of
from dovetail.views.forecast.data import InstanceLabels

LONGEST_WAIT: Final = timedelta(hours=1)


class ClusterAt(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The cluster at one moment. `take` may need a while and is called on a worker thread."""

    at: datetime
    version: int
    """Another one, if anything but the time has changed."""
    take: Callable[[], Snapshot]
    machines: Mapping[str, InstanceLabels] = {}
    problems: Sequence[Finding] = ()
    decisions: Sequence[DecisionView] = ()
    """The latest first."""
    left_alone: Mapping[str, Sentence] = {}
    """By node: why it stays though it has a reason to go."""


class BoardSource(Protocol):
    """What is shown. Everything is called on the event loop that serves the page."""

    title: str
    """What the page calls it."""
    asking: str
    """The options with which `dovetail explain` reads the same cluster."""
    pace: float
    """How many of its seconds pass in one of ours; 0: its time stands still."""

    def look(self) -> ClusterAt:
        """The cluster now, at once."""

    async def changed(self, seen: ClusterAt, until: datetime | None) -> None:
        """Return when it is no longer as it was seen, or that instant has come."""


class ChangeCounter:
    """A number that grows, and a way to wait for it."""

    def __init__(self) -> None:
        self.version = 0
        self._event = asyncio.Event()

    def tell(self, _change: object = None) -> None:
        self.version += 1
        self._event.set()

    async def wait(self, version: int, seconds: float | None) -> None:
        """Until there is a later version, but no longer than these seconds."""
        self._event.clear()
        if self.version == version:
            await happens_within(seconds, self._event)


def _until(until: datetime | None, now: datetime, pace: float) -> float | None:
    """How many of our seconds to wait for an instant of the source."""
    if pace <= 0:
        return None
    span = LONGEST_WAIT if until is None else min(LONGEST_WAIT, max(timedelta(), until - now))
    return span.total_seconds() / pace


class FileSource(BoardSource):
    """Files do not change, but time passes; with `at` it stands still there."""

    def __init__(
        self,
        snapshot: Snapshot,
        clock: Clock,
        *,
        title: str,
        asking: str = "",
        at: datetime | None = None,
        machines: Mapping[str, InstanceLabels] | None = None,
        problems: Sequence[Finding] = (),
    ) -> None:
        self.title = title
        self.asking = asking
        self.pace = 1.0 if at is None else 0.0
        self._snapshot = snapshot
        self._clock = clock
        self._at = at
        self._machines = machines or {}
        self._problems = problems
        self._news = ChangeCounter()

    def look(self) -> ClusterAt:
        return ClusterAt(
            at=self._clock.now() if self._at is None else self._at,
            version=0,
            take=lambda: self._snapshot,
            machines=self._machines,
            problems=self._problems,
        )

    async def changed(self, seen: ClusterAt, until: datetime | None) -> None:
        await self._news.wait(seen.version, _until(until, self.look().at, self.pace))


class PushedSource(BoardSource):
    """Shows what it was last given, such as by a simulation that lives on a loop or thread of its own."""

    def __init__(self, *, title: str, asking: str = "", pace: float = 1.0) -> None:
        self.title = title
        self.asking = asking
        self.pace = pace
        self._news = ChangeCounter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seen = ClusterAt(at=datetime.now(UTC), version=0, take=Snapshot)

    def push(
        self,
        at: datetime,
        snapshot: Snapshot,
        *,
        decisions: Sequence[DecisionView] = (),
        left_alone: Mapping[str, Sentence] | None = None,
        machines: Mapping[str, InstanceLabels] | None = None,
        pace: float | None = None,
    ) -> None:
        """Show this from now on. May be called from any thread."""
        made = ClusterAt(
            at=at,
            version=self._seen.version + 1,
            take=lambda: snapshot,
            machines=machines or {},
            decisions=decisions,
            left_alone=left_alone or {},
        )
        self._seen = made
        if pace is not None:
            self.pace = pace
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.tell)

    def look(self) -> ClusterAt:
        self._loop = asyncio.get_running_loop()
        return self._seen

    async def changed(self, seen: ClusterAt, until: datetime | None) -> None:  # noqa: ARG002  whoever pushes tells the time
        self._loop = asyncio.get_running_loop()
        while self._seen.version == seen.version:
            await self._news.wait(self._news.version, None)


class LiveSource(BoardSource):
    """A cluster, followed by list and watch. `run` the reflectors in a TaskGroup."""

    def __init__(self, api: KubeApi, clock: Clock, *, title: str, asking: str = "", seed: int = 0) -> None:
        self.title = title
        self.asking = asking
        self.pace = 1.0
        self._clock = clock
        self._news = ChangeCounter()
        self._pods = Reflector(api, clock, PODS, PodInterner().pod, seed=seed)
        self._nodes = Reflector(api, clock, NODES, lambda node: (node_record(node), machine_of(node)), seed=seed)
        self._claims = Reflector(api, clock, NODECLAIMS, claim_record, seed=seed)
        self._pools = Reflector(api, clock, NODEPOOLS, pool_record, seed=seed)
        self._pdbs = Reflector(api, clock, PDBS, pdb_record, seed=seed)
        for reflector in self.reflectors:
            reflector.store.subscribe(self._news.tell)

    @property
    def reflectors(self) -> list[Reflector[Any, Any]]:
        return [self._pods, self._nodes, self._claims, self._pools, self._pdbs]

    async def wait_synced(self, seconds: float) -> None:
        """Until everything has been listed once; but what cannot be listed must not hold up the rest for longer."""
        waiting = asyncio.gather(*(reflector.wait_synced() for reflector in self.reflectors))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await waiting

    def look(self) -> ClusterAt:
        pods, nodes, claims, pools, pdbs = (reflector.store.snapshot().items.values() for reflector in self.reflectors)

        def take() -> Snapshot:
            return take_snapshot(
                pods=_values(pods),
                nodes=(kept.value[0] for kept in nodes),
                claims=_values(claims),
                pools=_values(pools),
                pdbs=_values(pdbs),
            )

        machines = {kept.value[0].name: kept.value[1] for kept in nodes}
        return ClusterAt(
            at=self._clock.now(),
            version=self._news.version,
            take=take,
            machines=machines,
            problems=[_unlisted(reflector.name) for reflector in self.reflectors if not reflector.synced],
        )

    async def changed(self, seen: ClusterAt, until: datetime | None) -> None:
        await self._news.wait(seen.version, _until(until, self._clock.now(), self.pace))


def _unlisted(plural: str) -> Finding:
    return Finding(
        severity=Severity.ERROR,
        rule="NotListed",
        object=Ref(plural),
        field="kind",
        message=f"{plural} could not be listed yet, so what depends on them is not known",
        remedy=f"see that the cluster has {plural}, and that this user may get, list and watch them",
    )


class ControllerSource(BoardSource):
    """The running controller: what it knows, what it decided, and why it leaves other nodes alone."""

    def __init__(
        self, cluster: WatchedCluster, disruption: DisruptionController, *, title: str, asking: str = ""
    ) -> None:
        self.title = title
        self.asking = asking
        self.pace = 1.0
        self._cluster = cluster
        self._disruption = disruption
        self._news = ChangeCounter()
        for cache in (cluster.pods, cluster.nodes, cluster.claims, cluster.pools, cluster.pdbs):
            cache.subscribe(self._told)

    def _told(self, _change: Change[Any]) -> None:
        self._news.tell()

    def look(self) -> ClusterAt:
        cluster = self._cluster
        return ClusterAt(
            at=cluster.clock.now(),
            version=self._news.version,
            take=cluster.records(),
            machines={node.metadata.name: machine_of(node) for node in cluster.nodes.values()},
            decisions=[decided(past) for past in reversed(self._disruption.history)],
            left_alone=self._disruption.left_alone,
        )

    async def changed(self, seen: ClusterAt, until: datetime | None) -> None:
        await self._news.wait(seen.version, _until(until, self._cluster.clock.now(), self.pace))


def decided(past: PastDecision) -> DecisionView:
    """A decision, for people."""
    why = Sentence() if past.rejected is None else Sentence(f"{past.rejected.cause}: ", past.rejected.message)
    return DecisionView(at=past.command.at, text=one_line(past.command), nodes=tuple(past.command.nodes), rejected=why)


def _values(kept: Iterable[Any]) -> Iterable[Any]:
    return (each.value for each in kept)
