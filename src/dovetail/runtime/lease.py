"""Leader election with a Lease, and the fence that stops the writes of a process that has lost it.

The process named in the Lease leads. Two rules keep two processes from acting at once, without trusting any wall clock:
a leader stops `renew_deadline_seconds` after it *began* its last successful renewal, and a candidate takes over no
sooner than `duration_seconds` after it *saw* that renewal. The time between the two is for requests that are already
sent. Every write of a leader goes through a FencedApi, which checks the lease right before it sends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from dovetail.api.objects import Lease
from dovetail.ports import (
    LEASES,
    AlreadyExists,
    ApiError,
    Clock,
    Conflict,
    Create,
    Forbidden,
    KubeApi,
    NotFound,
    Patch,
    Unavailable,
    Write,
)
from dovetail.runtime.read_through import ReadThroughApi
from dovetail.runtime.tasks import SHORTEST_WAIT_SECONDS, root_cause, within
from dovetail.values.timestamp import spoken_time

log = logging.getLogger(__name__)

T = TypeVar("T")

# A repeated error is logged at once, and then ever more rarely.
TOLD_AGAIN_SECONDS: Final = 10.0
TOLD_AGAIN_SECONDS_AT_MOST: Final = 600.0
# Between two attempts while the namespace of the Lease does not exist.
NAMESPACE_SECONDS: Final = 10.0
# Leases of one name fit on one page; no cluster has this many pages of namespaces.
PAGES_AT_MOST: Final = 1_000


class LeaseTimings(msgspec.Struct, frozen=True, kw_only=True):
    """`duration_seconds` minus `renew_deadline_seconds` is the margin for clock drift and requests under way."""

    duration_seconds: int = 15
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        assert 0 < self.retry_seconds * 2 <= self.renew_deadline_seconds < self.duration_seconds, self

    @property
    def attempt_seconds(self) -> float:
        """The timeout of one request: after a request that hangs there must be time for another attempt."""
        return self.renew_deadline_seconds / 2

    @property
    def look_seconds(self) -> float:
        """Candidates read the Lease twice as often as leaders renew it, so that they take over soon."""
        return self.retry_seconds / 2


class LeaseLost(Exception):
    """The lease was not renewed in time, or another process holds it: this process must not act."""


# -- fence ------------------------------------------------------------------------------------------------------------


class Fence:
    """Says until when this process may write, by its own monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._safe_until = float("-inf")
        self.epoch = -1  # the lease's transitions: grows with every new holder

    @property
    def seconds_left(self) -> float:
        return self._safe_until - self._clock.monotonic()

    @property
    def is_open(self) -> bool:
        return self.seconds_left > 0

    def open(self, *, until: float, epoch: int) -> None:
        self._safe_until = until
        self.epoch = epoch

    def shut(self) -> None:
        self._safe_until = float("-inf")

    def check(self) -> None:
        """Raises Forbidden unless the lease is held."""
        if not self.is_open:
            raise Forbidden("not sent: this process does not hold the lease (any more)", reason="LeaseLost")


class FencedApi(ReadThroughApi):
    """The API for a leader: refuses writes when the lease may be lost.

    Nothing may wait between the check and the request: give the real client `before_write=fence.check` as well, which
    it calls after its rate limit, retries and credentials.
    """

    def __init__(self, api: KubeApi, fence: Fence) -> None:
        super().__init__(api)
        self._fence = fence

    async def write(self, write: Write[T]) -> T:
        self._fence.check()
        return await self._api.write(write)


# -- observed leases --------------------------------------------------------------------------------------------------


class ObservedLease(msgspec.Struct, frozen=True):
    """A lease, and when this process first saw it in this version, by its own clock."""

    lease: Lease
    changed_at: float

    @property
    def live_until(self) -> float:
        """Until when its holder may act; in the past if it has no holder."""
        if not self.lease.spec.holder_identity:
            return float("-inf")
        return self.changed_at + max(1, self.lease.spec.lease_duration_seconds or 1)


def sighted(before: ObservedLease | None, lease: Lease, *, at: float) -> ObservedLease:
    """Any new version counts as a renewal. The times in the lease are those of another machine's clock."""
    new = lease.metadata
    if before is not None:
        old = before.lease.metadata
        if (old.uid, old.resource_version) == (new.uid, new.resource_version):
            return before
    return ObservedLease(lease, at)


def micro_time(at: datetime) -> str:
    """Kubernetes' MicroTime: always UTC, always six digits."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# -- election ---------------------------------------------------------------------------------------------------------


class Election:
    """Acquires, renews and releases one Lease for one process. `identity` must be unique to the process.

    `api` must not be fenced, and must not share its rate limit with other work.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        identity: str,
        timings: LeaseTimings = LeaseTimings(),  # noqa: B008  frozen
    ) -> None:
        assert identity, "a holder needs a name"
        self.fence = Fence(clock)
        self.identity = identity
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._timings = timings
        self._seen: ObservedLease | None = None
        self.problem = ""  # why there can be no leader until an administrator acts
        self._complaint = _Complaint(clock)
        self._told_holder = ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run `lead` while renewing it, and release it when `lead` returns.

        When the lease is lost, `lead` is cancelled and LeaseLost is raised; errors of `lead` are raised as they are. In
        both cases, and when cancelled, the lease runs out by itself: an interrupted request may still be under way.
        """
        await self.acquire()
        try:
            async with asyncio.TaskGroup() as group:
                keeper = group.create_task(self.keep(), name="lease")
                await lead()
                keeper.cancel()
        except BaseExceptionGroup as errors:
            cause = root_cause(errors)
            raise cause from cause.__cause__
        finally:
            self.fence.shut()
        await self.release()

    async def acquire(self) -> None:
        """Return when this process holds the lease. Errors of the API are logged and retried."""
        while True:
            began_at = self._clock.monotonic()
            try:
                mine = await within(self._clock, self._timings.attempt_seconds, self._try_to_take())
                self.problem = ""
            except (ApiError, TimeoutError) as error:
                if self._complaint.is_due(_text(error)):
                    self._log(logging.WARNING, "failed to acquire lease", error=_text(error))
                mine = None
            if mine is not None:
                self._held(mine, began_at)
                # The answer may have come too late.
                if self.fence.is_open:
                    self._log(logging.INFO, "acquired lease", epoch=self.fence.epoch)
                    return
            self._tell_holder()
            await self._clock.sleep(NAMESPACE_SECONDS if self.problem else self._seconds_to_next_look())

    async def keep(self) -> None:
        """Renew the lease until it is lost. Raises LeaseLost."""
        try:
            while True:
                await self._clock.sleep(max(0.0, min(self._timings.retry_seconds, self.fence.seconds_left)))
                left = self.fence.seconds_left
                if left <= SHORTEST_WAIT_SECONDS:
                    raise LeaseLost(f"not renewed within {self._timings.renew_deadline_seconds} s")
                began_at = self._clock.monotonic()
                try:
                    renewed = await within(self._clock, min(left, self._timings.attempt_seconds), self._renew())
                except (ApiError, TimeoutError) as error:
                    self._log(logging.WARNING, "failed to renew lease", error=_text(error))
                else:
                    self._held(renewed, began_at)
        except LeaseLost as lost:
            self.fence.shut()
            self._log(logging.ERROR, "lost lease", error=str(lost))
            raise

    async def release(self) -> None:
        """Let another process take over at once. Call it when all work has ended."""
        self.fence.shut()
        seen = self._seen
        if seen is None or seen.lease.spec.holder_identity != self.identity:
            return
        now = micro_time(self._clock.now())
        spec = {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
        try:
            await within(self._clock, self._timings.attempt_seconds, self._patch(seen.lease, spec))
        except (ApiError, TimeoutError) as error:
            self._log(logging.WARNING, "failed to release lease", error=_text(error))

    async def _try_to_take(self) -> Lease | None:
        """The lease if this process holds it now, else None."""
        lease = await self._look()
        mine = lease is not None and lease.spec.holder_identity == self.identity
        # If the Lease was deleted, its holder may not know yet.
        if not mine and self._seen and self._clock.monotonic() < self._seen.live_until:
            return None
        if lease is None:
            return await self._create()
        try:
            return await self._patch(lease, self._spec((lease.spec.lease_transitions or 0) + (not mine)))
        except Conflict:
            return None

    async def _renew(self) -> Lease:
        """The renewed lease. Raises LeaseLost if another process holds it or it is gone."""
        assert self._seen is not None
        with suppress(Conflict, NotFound):
            return await self._patch(self._seen.lease, self._spec())
        # Somebody changed the Lease, or an earlier renewal has taken effect after all.
        lease = await self._look()
        if lease is None:
            raise LeaseLost("the lease was deleted")
        if lease.spec.holder_identity != self.identity:
            raise LeaseLost(f"it is held by {lease.spec.holder_identity or 'nobody'}")
        try:
            return await self._patch(lease, self._spec())
        except NotFound:
            raise LeaseLost("the lease was deleted") from None

    def _spec(self, transitions: int | None = None) -> dict[str, Any]:
        """The spec of a Lease that this process renews or, with the number of transitions, acquires."""
        now = micro_time(self._clock.now())
        renewal = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._timings.duration_seconds,
            "renewTime": now,
        }
        return renewal if transitions is None else {**renewal, "acquireTime": now, "leaseTransitions": transitions}

    async def _look(self) -> Lease | None:
        try:
            lease = await self._api.get(LEASES, self._name, namespace=self._namespace)
        except NotFound:
            return None
        # The time of the answer and not of the request: the renewal may have come in between.
        self._seen = sighted(self._seen, lease, at=self._clock.monotonic())
        return lease

    async def _create(self) -> Lease | None:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            # The number of transitions serves as the epoch: it grows even if somebody deleted the Lease.
            "spec": self._spec((self._seen.lease.spec.lease_transitions or 0) + 1 if self._seen else 0),
        }
        try:
            return await self._api.write(Create(LEASES, body, namespace=self._namespace))
        except AlreadyExists:
            return None
        except NotFound as error:  # not the lease, which is being created
            self.problem = (
                f"namespace {self._namespace} does not exist, so there can be no Lease, and nothing is done: create it "
                f"(kubectl create namespace {self._namespace}), or name another by --leader-election-namespace"
            )
            raise NotFound(self.problem, code=error.code, reason=error.reason) from None

    async def _patch(self, lease: Lease, spec: Mapping[str, Any]) -> Lease:
        lock = {"uid": lease.metadata.uid, "resourceVersion": lease.metadata.resource_version}
        body = {"metadata": lock, "spec": spec}
        return await self._api.write(Patch(LEASES, self._name, body, namespace=self._namespace))

    def _log(self, level: int, message: str, **values: object) -> None:
        log.log(level, message, extra={"Lease": f"{self._namespace}/{self._name}", **values})

    def _tell_holder(self) -> None:
        """Log for whom this process waits: once, and when another one holds the Lease."""
        spec = None if self._seen is None else self._seen.lease.spec
        holder = "" if spec is None else spec.holder_identity or ""
        if spec is not None and holder not in ("", self.identity, self._told_holder):
            self._told_holder = holder
            since = {} if spec.acquire_time is None else {"since": spoken_time(spec.acquire_time)}
            self._log(logging.INFO, "waiting for the lease, which another process holds", holder=holder, **since)

    def _held(self, lease: Lease, began_at: float) -> None:
        self._seen = ObservedLease(lease, self._clock.monotonic())
        self.fence.open(until=began_at + self._timings.renew_deadline_seconds, epoch=lease.spec.lease_transitions or 0)

    def _seconds_to_next_look(self) -> float:
        """The usual time, or until the lease runs out if that is sooner."""
        usual = self._timings.look_seconds
        left = self._seen.live_until - self._clock.monotonic() if self._seen else usual
        return max(SHORTEST_WAIT_SECONDS, min(usual, left)) if left > 0 else usual


class _Complaint:
    """Logs a repeated error after ever longer pauses: each is twice as long as the last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._text = ""
        self._due_at = 0.0
        self._pause_seconds = TOLD_AGAIN_SECONDS

    def is_due(self, text: str) -> bool:
        now = self._clock.monotonic()
        if text != self._text:
            self._text, self._pause_seconds = text, TOLD_AGAIN_SECONDS
        elif now < self._due_at:
            return False
        self._due_at = now + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, TOLD_AGAIN_SECONDS_AT_MOST)
        return True


# -- Leases of the same name (R38) ------------------------------------------------------------------------------------


async def wait_until_alone(
    api: KubeApi,
    clock: Clock,
    *,
    namespace: str,
    name: str,
    tell: Callable[[str], None] = log.error,
    timings: LeaseTimings = LeaseTimings(),  # noqa: B008  frozen
) -> None:
    """Return once no Lease of this name in another namespace is live; until then `tell` why, whenever that changes.

    A Lease with a holder counts as live until it has not changed for its whole duration: its times come from another
    machine's clock. Errors of the API other than Unavailable are raised: without the right to list Leases, this process
    must not act.
    """
    seen: dict[str, ObservedLease] = {}
    reported = ""
    while True:
        try:
            leases = await within(clock, timings.attempt_seconds, _leases_named(api, name))
        except (Unavailable, TimeoutError) as error:
            log.warning("failed to list leases", extra={"Lease": name, "error": _text(error)})
            await clock.sleep(timings.retry_seconds)
            continue
        now = clock.monotonic()
        others = {lease.metadata.namespace: lease for lease in leases if lease.metadata.namespace != namespace}
        seen = {space: sighted(seen.get(space), lease, at=now) for space, lease in others.items()}
        rivals = [sighting.lease for sighting in seen.values() if sighting.live_until > now]
        if not rivals:
            return
        if (reason := _why_not_alone(rivals)) != reported:
            tell(reason)
            reported = reason
        await clock.sleep(timings.retry_seconds)


def _why_not_alone(rivals: Sequence[Lease]) -> str:
    leases = [f"{rival.metadata.namespace}/{rival.metadata.name} by {rival.spec.holder_identity}" for rival in rivals]
    held = ", ".join(sorted(leases))
    return (
        f"refusing to act: another controller is or may be active on this cluster (Lease held: {held}). "
        "Two would undo each other's work: stop the other one, or run this one in the same namespace"
    )


async def _leases_named(api: KubeApi, name: str) -> list[Lease]:
    leases: list[Lease] = []
    continue_ = ""
    for _ in range(PAGES_AT_MOST):
        page = await api.list(LEASES, fields=f"metadata.name={name}", continue_=continue_)
        leases += [lease for lease in page.items if lease.metadata.name == name]
        continue_ = page.continue_
        if not continue_:
            return leases
    raise ApiError(f"the list of leases named {name} does not end")


def _text(error: Exception) -> str:
    return str(error) or "no answer in time"
