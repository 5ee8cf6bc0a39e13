"""The clusters that the board can show: files, a live cluster, the running controller, or a simulation."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.disruption.accounts import DisruptionAccounts
from dovetail.controllers.disruption.engine import DisruptionController, PastDecision
from dovetail.controllers.disruption.reporter import one_line
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref, Sentence
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings
from dovetail.model.snapshot import Snapshot
from dovetail.planning.disruption.replaceable import ReplacementVerdicts
from dovetail.ports import Clock, KubeApi
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.tasks import happens_within
from dovetail.state.instance_types import BILLION
from dovetail.views.assessment import Assessment
from dovetail.views.board.details import DecisionView
from dovetail.views.board.rows import SavingsView, seconds_of

LONGEST_WAIT: Final = timedelta(hours=1)


class ClusterAt(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The cluster at one moment. `take` may take a while, so it is called on a worker thread."""

    at: datetime
    version: int
    """Differs if anything but the time has changed."""
    take: Callable[[], Snapshot]
    problems: Sequence[Finding] = ()
    decisions: Sequence[DecisionView] = ()
    """The latest first."""
    left_alone: Mapping[str, Sentence] = {}
    """By node: why it stays although it has a reason to go."""
    replacements: ReplacementVerdicts = {}
    """By node and reason: whether it can be replaced, as far as that is known."""
    savings: SavingsView | None = None


class ChangeCounter:
    """A version that grows, and a way to wait for the next one."""

    def __init__(self) -> None:
        self.version = 0
        self._event = asyncio.Event()

    def notify(self, _change: object = None) -> None:
        self.version += 1
        self._event.set()

    async def wait(self, version: int, seconds: float | None) -> None:
        """Until there is a later version, but no longer than these seconds."""
        self._event.clear()
        if self.version == version:
            await happens_within(seconds, self._event)


def _until(until: datetime | None, now: datetime, pace: float) -> float | None:
    """How many of our seconds pass until an instant of the source."""
    if pace <= 0:
        return None
    span = LONGEST_WAIT if until is None else min(LONGEST_WAIT, max(timedelta(), until - now))
    return span.total_seconds() / pace


class BoardSource:
    """What the board shows. Everything is called on the event loop that serves the page."""

    def __init__(self, title: str, asking: str = "", clock: Clock | None = None, pace: float = 1.0) -> None:
        self.title = title
        """The name on the page."""
        self.asking = asking
        """The options with which `dovetail explain` reads the same cluster."""
        self.pace = pace
        """How many of its seconds pass in one of ours; 0: its time stands still."""
        self.clock = clock or SystemClock()
        self.news = ChangeCounter()
        self.assessed: Assessment | None = None
        """What the rules said of the cluster before somebody looked, if they were asked."""

    def look(self) -> ClusterAt:
        """The cluster now. Returns at once."""
        raise NotImplementedError

    async def changed(self, seen: ClusterAt, until: datetime | None) -> None:
        """Return when the cluster has changed since it was seen, or at that instant."""
        await self.news.wait(seen.version, _until(until, self.clock.now(), self.pace))


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
        problems: Sequence[Finding] = (),
        replacements: ReplacementVerdicts | None = None,
        assessed: Assessment | None = None,
    ) -> None:
        super().__init__(title, asking, clock, 1.0 if at is None else 0.0)
        self._at = at
        self.assessed = assessed
        self._seen = partial(
            ClusterAt,
            version=0,
            take=lambda: snapshot,
            problems=problems,
            replacements=replacements or {},
        )

    def look(self) -> ClusterAt:
        return self._seen(at=self.clock.now() if self._at is None else self._at)


class PushedSource(BoardSource):
    """Shows the snapshot it was last given, for example by a simulation on another loop or thread."""

    def __init__(self, *, title: str, asking: str = "", pace: float = 1.0) -> None:
        super().__init__(title, asking, pace=pace)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seen = ClusterAt(at=datetime.now(UTC), version=0, take=Snapshot)

    def push(
        self,
        at: datetime,
        snapshot: Snapshot,
        *,
        decisions: Sequence[DecisionView] = (),
        left_alone: Mapping[str, Sentence] | None = None,
        replacements: ReplacementVerdicts | None = None,
        savings: SavingsView | None = None,
        pace: float | None = None,
    ) -> None:
        """Show this from now on. May be called from any thread."""
        self._seen = ClusterAt(
            at=at,
            version=self._seen.version + 1,
            take=lambda: snapshot,
            decisions=decisions,
            left_alone=left_alone or {},
            replacements=replacements or {},
            savings=savings,
        )
        if pace is not None:
            self.pace = pace
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.news.notify)

    def look(self) -> ClusterAt:
        self._loop = asyncio.get_running_loop()
        return self._seen

    async def changed(self, seen: ClusterAt, until: datetime | None) -> None:  # noqa: ARG002  the time comes with each push
        self._loop = asyncio.get_running_loop()
        while self._seen.version == seen.version:
            await self.news.wait(self.news.version, None)


class WatchedSource(BoardSource):
    """A cluster whose state watches keep up to date."""

    def __init__(self, cluster: WatchedCluster, *, title: str, asking: str = "") -> None:
        super().__init__(title, asking, cluster.clock)
        self.cluster = cluster
        for store in (cluster.pods, cluster.nodes, cluster.claims, cluster.pools, cluster.pdbs):
            store.subscribe(self.news.notify)

    def look(self) -> ClusterAt:
        return ClusterAt(
            at=self.clock.now(),
            version=self.news.version,
            take=self.cluster.snapshot_later(),
        )

    async def changed(self, seen: ClusterAt, until: datetime | None) -> None:
        await super().changed(seen, until)
        await self.cluster.settled()


class LiveSource(WatchedSource):
    """A cluster, followed by list and watch. `run` the reflectors in a TaskGroup."""

    def __init__(
        self, api: KubeApi, clock: Clock, *, title: str, asking: str = "", settings: RuleSettings = DEFAULT_SETTINGS
    ) -> None:
        super().__init__(WatchedCluster(api, clock, settings=settings), title=title, asking=asking)
        self.reflectors = self.cluster.reflectors
        self._missing: Sequence[Finding] = ()

    def tell_missing(self, controllers: Sequence[Finding]) -> None:
        """Show these problems of controllers that do not run."""
        if controllers != self._missing:
            self._missing = controllers
            self.news.notify()

    async def wait_synced(self, seconds: float) -> None:
        """Wait until everything is listed once, or for these seconds: a kind may be impossible to list."""
        waiting = asyncio.gather(*(reflector.wait_synced() for reflector in self.reflectors))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await waiting
        await self.cluster.settled()

    def look(self) -> ClusterAt:
        unlisted = [_unlisted(reflector.name) for reflector in self.reflectors if not reflector.synced]
        return msgspec.structs.replace(super().look(), problems=[*self._missing, *unlisted])


def _unlisted(plural: str) -> Finding:
    return Finding(
        severity=Severity.ERROR,
        rule="NotListed",
        object=Ref(plural),
        field="kind",
        message=f"{plural} are not listed yet, so what depends on them is unknown",
        remedy=f"check that the cluster has {plural}, and that this user may get, list and watch them",
    )


class ControllerSource(WatchedSource):
    """The running controller: its caches, its decisions, and why other nodes stay."""

    def __init__(self, cluster: WatchedCluster, disruption: DisruptionController, *, title: str) -> None:
        super().__init__(cluster, title=title)
        self._disruption = disruption
        disruption.observers.append(self.news.notify)

    def look(self) -> ClusterAt:
        return msgspec.structs.replace(
            super().look(),
            decisions=[decided(past) for past in reversed(self._disruption.history)],
            left_alone=self._disruption.left_alone,
            replacements=self._disruption.not_replaced,
            savings=saved(self._disruption.accounts, self.clock.now()),
        )


def saved(accounts: DisruptionAccounts, now: datetime) -> SavingsView | None:
    """The accounts of the controller, as the board shows them."""
    totals, backoffs = accounts.totals, accounts.backoffs(now)
    if not (totals.commands or backoffs):
        return None
    return SavingsView(
        commands=totals.commands,
        promised=totals.promised / BILLION,
        realised=totals.realised / BILLION,
        moved=totals.moved,
        moved_today=accounts.moved_since(now - timedelta(days=1)),
        moved_again=totals.moved_again,
        moved_in_vain=totals.moved_in_vain,
        unplanned=totals.unplanned,
        backoffs=tuple((pool, seconds_of(backoff.until), str(backoff)) for pool, backoff in sorted(backoffs.items())),
    )


def decided(past: PastDecision) -> DecisionView:
    """A decision of the controller, as the board shows it."""
    why = Sentence() if past.rejected is None else Sentence(f"{past.rejected.cause}: ", past.rejected.message)
    return DecisionView(at=past.command.at, text=one_line(past.command), nodes=tuple(past.command.nodes), rejected=why)
