"""Who may act, until when by the own clock, and what stops everybody else?

One process leads: the one named in the Lease. Two facts keep two from ever acting at once, without trusting anybody's
wall clock: a leader stops at `renew_deadline_seconds` after it *began* its last successful renewal, and a candidate
takes over no sooner than `duration_seconds` after it *saw* that renewal. What lies between the two is the time that a
request already sent may still take. Every write of a leader goes through a FencedApi, which asks right before sending.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
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

log = logging.getLogger(__name__)

T = TypeVar("T")

# What keeps a candidate from the lease is said at once, and then ever more rarely.
TOLD_AGAIN_SECONDS: Final = 10.0
TOLD_AGAIN_SECONDS_AT_MOST: Final = 600.0
# A namespace that is not there may come, but nobody waits for it by the second.
NAMESPACE_SECONDS: Final = 10.0

# A list of Leases of one name has one page; so many are more than any cluster has namespaces.
PAGES_AT_MOST: Final = 1_000


class LeaseTimings(msgspec.Struct, frozen=True, kw_only=True):
    """The times of an election. `duration` less `renew_deadline` is what clocks may drift and requests may take."""

    duration_seconds: int = 15
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        assert 0 < self.retry_seconds * 2 <= self.renew_deadline_seconds < self.duration_seconds, self

    @property
    def attempt_seconds(self) -> float:
        """For one request: one that hangs must leave time for another try."""
        return self.renew_deadline_seconds / 2

    @property
    def look_seconds(self) -> float:
        """Candidates look twice as often as leaders renew: what they notice late, they take over late."""
        return self.retry_seconds / 2


class LeaseLost(Exception):
    """The lease could not be renewed in time, or somebody else has it: nothing may be done any more."""


# -- the fence --------------------------------------------------------------------------------------------------------


class Fence:
    """Until when this process may write, by its own clock."""

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
        """Writing is safe until then (monotonic)."""
        self._safe_until = until
        self.epoch = epoch

    def shut(self) -> None:
        self._safe_until = float("-inf")

    def check(self) -> None:
        """Raises Forbidden unless the lease is held."""
        if not self.is_open:
            raise Forbidden("not sent: this process does not hold the lease (any more)", reason="LeaseLost")


class FencedApi(ReadThroughApi):
    """The API for a leader: reads pass, and whatever changes something is refused once the lease is not surely held.

    Nothing that waits may lie between the check and the wire: give the real client `before_write=fence.check` too. It
    calls that after its rate limit, retries and credentials.
    """

    def __init__(self, api: KubeApi, fence: Fence) -> None:
        super().__init__(api)
        self._fence = fence

    async def write(self, write: Write[T]) -> T:
        self._fence.check()
        return await self._api.write(write)


# -- what is seen of a lease ------------------------------------------------------------------------------------------


class ObservedLease(msgspec.Struct, frozen=True):
    """A lease as it was last seen to change, and when that was by the own clock."""

    lease: Lease
    changed_at: float

    @property
    def live_until(self) -> float:
        """Until when its holder may believe to hold it; the past if nobody does."""
        if not self.lease.spec.holder_identity:
            return float("-inf")
        return self.changed_at + max(1, self.lease.spec.lease_duration_seconds or 1)


def sighted(before: ObservedLease | None, lease: Lease, *, at: float) -> ObservedLease:
    """Any new version counts as a renewal. What the lease says about the time is some other machine's opinion."""
    same = (
        before is not None
        and before.lease.metadata.uid == lease.metadata.uid
        and before.lease.metadata.resource_version == lease.metadata.resource_version
    )
    return before if same and before is not None else ObservedLease(lease, at)


def micro_time(at: datetime) -> str:
    """As Kubernetes reads and writes MicroTime: always UTC, always six digits."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# -- the election -----------------------------------------------------------------------------------------------------


class Election:
    """Takes, keeps and gives back one Lease for one process. `identity` must be unique to the process.

    `api` must not be fenced, nor rate-limited together with other work.
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
        assert identity, "a lease without a holder is nobody's"
        self.fence = Fence(clock)
        self.identity = identity
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._timings = timings
        self._seen: ObservedLease | None = None
        self._problem = ""
        self._complaint = _Complaint(clock)

    @property
    def problem(self) -> str:
        """What only somebody else can mend before there can be a leader, and how; empty if there is nothing."""
        return self._problem

    @property
    def holder(self) -> str:
        """Who held the lease when we last looked."""
        return (self._seen.lease.spec.holder_identity or "") if self._seen else ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, lead while keeping it, and give it back when `lead` returns.

        When the lease is lost, `lead` is cancelled and LeaseLost raised; what `lead` raises comes out as it is. In both
        cases, and when cancelled, the lease is left to run out: a request that was cut off may still be on its way.
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
        """Return when the lease is ours. Errors of the API are logged, and it is tried again."""
        while True:
            began_at = self._clock.monotonic()
            try:
                mine = await within(self._clock, self._timings.attempt_seconds, self._try_to_take())
                self._problem = ""
            except (ApiError, TimeoutError) as error:
                if self._complaint.is_due(_text(error)):
                    log.warning("lease %s/%s: cannot take it: %s", self._namespace, self._name, _text(error))
                mine = None
            if mine is not None:
                self._held(mine, began_at)
                # The answer may have come too late to be of use.
                if self.fence.is_open:
                    log.info("lease %s/%s: leading, epoch %d", self._namespace, self._name, self.fence.epoch)
                    return
            await self._clock.sleep(NAMESPACE_SECONDS if self._problem else self._seconds_to_next_look())

    async def keep(self) -> None:
        """Renew until the lease is lost, which is raised; cancel it to stop."""
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
                    log.warning("lease %s/%s: cannot renew: %s", self._namespace, self._name, _text(error))
                else:
                    self._held(renewed, began_at)
        except LeaseLost as lost:
            self.fence.shut()
            log.error("lease %s/%s: lost: %s", self._namespace, self._name, lost)
            raise

    async def release(self) -> None:
        """Let the next one take over at once. Only when all work has ended; failing, the lease runs out by itself."""
        self.fence.shut()
        seen = self._seen
        if seen is None or seen.lease.spec.holder_identity != self.identity:
            return
        now = micro_time(self._clock.now())
        spec = {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
        try:
            await within(self._clock, self._timings.attempt_seconds, self._patch(seen.lease, spec))
        except (ApiError, TimeoutError) as error:
            log.warning("lease %s/%s: cannot give it back: %s", self._namespace, self._name, _text(error))

    # -- requests -------------------------------------------------------------------------------------------------

    async def _try_to_take(self) -> Lease | None:
        """The lease if it is ours now, else None."""
        lease = await self._look()
        if lease is None:
            # Deleted under its holder's hands: the holder does not know yet.
            if self._seen and self._clock.monotonic() < self._seen.live_until:
                return None
            return await self._create()
        seen = self._seen
        assert seen is not None
        mine = lease.spec.holder_identity == self.identity
        if not mine and self._clock.monotonic() < seen.live_until:
            return None
        now = micro_time(self._clock.now())
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._timings.duration_seconds,
            "renewTime": now,
            "acquireTime": now,
            "leaseTransitions": (lease.spec.lease_transitions or 0) + (not mine),
        }
        try:
            return await self._patch(lease, spec)
        except Conflict:
            return None

    async def _renew(self) -> Lease:
        """The lease, renewed; raises LeaseLost if it is another's or gone."""
        assert self._seen is not None
        try:
            return await self._patch(self._seen.lease, self._renewal())
        except (Conflict, NotFound):
            pass
        # Somebody changed it, or an earlier renewal has taken effect after all.
        lease = await self._look()
        if lease is None:
            raise LeaseLost("the lease was deleted")
        if lease.spec.holder_identity != self.identity:
            raise LeaseLost(f"it is held by {lease.spec.holder_identity or 'nobody'}")
        try:
            return await self._patch(lease, self._renewal())
        except NotFound:
            raise LeaseLost("the lease was deleted") from None

    def _renewal(self) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._timings.duration_seconds,
            "renewTime": micro_time(self._clock.now()),
        }

    async def _look(self) -> Lease | None:
        try:
            lease = await self._api.get(LEASES, self._name, namespace=self._namespace)
        except NotFound:
            return None
        # Not when the request began: the renewal that the answer shows may be later than that.
        self._seen = sighted(self._seen, lease, at=self._clock.monotonic())
        return lease

    async def _create(self) -> Lease | None:
        now = micro_time(self._clock.now())
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self._timings.duration_seconds,
                "renewTime": now,
                "acquireTime": now,
                # Goes on counting if somebody deleted the lease: it serves as the epoch.
                "leaseTransitions": (self._seen.lease.spec.lease_transitions or 0) + 1 if self._seen else 0,
            },
        }
        try:
            return await self._api.write(Create(LEASES, body, namespace=self._namespace))
        except AlreadyExists:
            return None
        except NotFound as error:  # not the lease, which is being created
            self._problem = (
                f"namespace {self._namespace} does not exist, so there can be no Lease, and nothing is done: create it "
                f"(kubectl create namespace {self._namespace}), or name another by --leader-election-namespace"
            )
            raise NotFound(self._problem, code=error.code, reason=error.reason) from None

    async def _patch(self, lease: Lease, spec: Mapping[str, Any]) -> Lease:
        lock = {"uid": lease.metadata.uid, "resourceVersion": lease.metadata.resource_version}
        body = {"metadata": lock, "spec": spec}
        return await self._api.write(Patch(LEASES, self._name, body, namespace=self._namespace))

    # -- time -----------------------------------------------------------------------------------------------------

    def _held(self, lease: Lease, began_at: float) -> None:
        self._seen = ObservedLease(lease, self._clock.monotonic())
        self.fence.open(until=began_at + self._timings.renew_deadline_seconds, epoch=lease.spec.lease_transitions or 0)

    def _seconds_to_next_look(self) -> float:
        """The usual time, but no longer than until the lease runs out."""
        usual = self._timings.look_seconds
        left = self._seen.live_until - self._clock.monotonic() if self._seen else usual
        return max(SHORTEST_WAIT_SECONDS, min(usual, left)) if left > 0 else usual


class _Complaint:
    """What was said last, and when it may be said again: after twice as long each time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._text = ""
        self._due_at = 0.0
        self._pause_seconds = TOLD_AGAIN_SECONDS

    def is_due(self, text: str) -> bool:
        """Whether to say it now."""
        now = self._clock.monotonic()
        if text != self._text:
            self._text, self._pause_seconds = text, TOLD_AGAIN_SECONDS
        elif now < self._due_at:
            return False
        self._due_at = now + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, TOLD_AGAIN_SECONDS_AT_MOST)
        return True


# -- others of the same name (R38) ------------------------------------------------------------------------------------


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

    A Lease with a holder counts as live until it has been watched for its whole duration without a renewal: its times
    are another machine's, and cannot be compared with ours. Errors of the API but Unavailable come out: who may not
    look cannot know, and must not act.
    """
    seen: dict[tuple[str, str], ObservedLease] = {}
    told = ""
    while True:
        try:
            leases = await within(clock, timings.attempt_seconds, _leases_named(api, name))
        except (Unavailable, TimeoutError) as error:
            log.warning("cannot look for other leases named %s: %s", name, _text(error))
            await clock.sleep(timings.retry_seconds)
            continue
        now = clock.monotonic()
        seen = {
            (lease.metadata.namespace, lease.metadata.name): sighted(
                seen.get((lease.metadata.namespace, lease.metadata.name)), lease, at=now
            )
            for lease in leases
            if lease.metadata.namespace != namespace
        }
        rivals = [sighting.lease for sighting in seen.values() if sighting.live_until > now]
        if not rivals:
            return
        if (reason := why_not_alone(rivals)) != told:
            tell(reason)
            told = reason
        await clock.sleep(timings.retry_seconds)


def why_not_alone(rivals: Sequence[Lease]) -> str:
    """Why we do not act, and what to do about it."""
    leases = [f"{rival.metadata.namespace}/{rival.metadata.name} by {rival.spec.holder_identity}" for rival in rivals]
    held = ", ".join(sorted(leases))
    return (
        f"refusing to act: another controller is or may be active on this cluster (Lease held: {held}). "
        "Two would undo each other's work: stop the other one, or run this one in the same namespace"
    )


async def _leases_named(api: KubeApi, name: str) -> list[Lease]:
    found: list[Lease] = []
    continue_ = ""
    for _ in range(PAGES_AT_MOST):
        page = await api.list(LEASES, fields=f"metadata.name={name}", continue_=continue_)
        found += [lease for lease in page.items if lease.metadata.name == name]
        continue_ = page.continue_
        if not continue_:
            return found
    raise ApiError(f"the list of leases named {name} does not end")


def _text(error: Exception) -> str:
    return str(error) or "no answer in time"
