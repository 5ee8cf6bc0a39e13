"""Who leads, on virtual time: pauses, outages, lost answers and wrong clocks; and never do two write."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby, pairwise
from random import Random
from typing import Any, Final, TypeVar

import pytest

from dovetail.api.objects import Lease, LeaseSpec, ObjectMeta
from dovetail.ports import (
    LEASES,
    NODES,
    ApiError,
    Clock,
    Create,
    Delete,
    Evict,
    Forbidden,
    KubeApi,
    OutcomeUnknown,
    Patch,
    Resource,
    Unavailable,
    Write,
)
from dovetail.runtime.lease import (
    Election,
    Fence,
    FencedApi,
    LeaseLost,
    LeaseTimings,
    ObservedLease,
    micro_time,
    sighted,
    wait_until_alone,
)
from dovetail.runtime.tasks import within
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer, Client
from dovetail.sim.server.faults import Fault
from dovetail.sim.server.kinds import NAMESPACES
from dovetail.sim.server.store import Change
from tests.harness.builders import at
from tests.harness.soak import examples
from tests.harness.stage import PARAMETER, gives, stage

START = at("2026-03-01T00:00:00Z")
TIMINGS: Final = LeaseTimings()
NAME: Final = "karpenter-leader-election"
T = TypeVar("T")

Object = dict[str, Any]
RAW_NODES: Final = NODES.read_as(Object)
RAW_LEASES: Final = LEASES.read_as(Object)


# -- a process that can be paused -------------------------------------------------------------------------------------


class PausedClock(Clock):
    """A process's view of the time: its wall clock may be wrong, and no sleep of a paused process ends."""

    def __init__(self, clock: VirtualClock, running: asyncio.Event, skew: timedelta) -> None:
        self._clock = clock
        self._running = running
        self._skew = skew

    def now(self) -> datetime:
        return self._clock.now() + self._skew

    def monotonic(self) -> float:
        # Every process counts from a moment of its own.
        return self._clock.monotonic() + self._skew.total_seconds() % 1000

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self._running.wait()


class PausedApi(Client):
    """A process's connection: what it has sent goes its way, but a paused process reads no answer."""

    def __init__(self, server: ApiServer, name: str, running: asyncio.Event) -> None:
        super().__init__(server, name)
        self._running = running

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        return await self._answered(super().get(resource, name, namespace=namespace))

    async def write(self, write: Write[T]) -> T:
        return await self._answered(super().write(write))

    async def _answered(self, request: Coroutine[Any, Any, T]) -> T:
        try:
            return await request
        finally:
            await self._running.wait()


class Process:
    """A candidate that writes to one object whenever it may."""

    def __init__(self, server: ApiServer, clock: VirtualClock, name: str, *, skew_seconds: float = 0.0) -> None:
        self.name = name
        self.running = asyncio.Event()
        self.running.set()
        self.clock = PausedClock(clock, self.running, timedelta(seconds=skew_seconds))
        api = PausedApi(server, name, self.running)
        self.election = Election(api, self.clock, namespace="default", name=NAME, identity=name)
        self.api: KubeApi = FencedApi(api, self.election.fence)
        self.stop = asyncio.Event()
        self.led: list[int] = []
        self.refused = 0
        self.tries = 0

    async def live(self) -> None:
        """Lead whenever possible; a process that loses the lease is started anew, as Kubernetes does."""
        while not self.stop.is_set():
            try:
                await self.election.run(self._lead)
            except LeaseLost:
                await self.clock.sleep(1)

    async def _lead(self) -> None:
        self.led.append(self.election.fence.epoch)
        while not self.stop.is_set():
            self.tries += 1  # without a number of its own a write would change nothing, and not be one
            written = {"epoch": str(self.election.fence.epoch), "holder": self.name, "number": str(self.tries)}
            body = {"metadata": {"annotations": written}}
            try:
                await self.api.write(Patch(RAW_NODES, "fenced", body))
            except Forbidden:
                self.refused += 1
            except ApiError:
                pass
            await self.clock.sleep(0.25)


class World:
    """A server, the processes, and a checker of what they write."""

    def __init__(self, clock: VirtualClock, *, seed: int = 0, latency_seconds: float = 0.01) -> None:
        self.clock = clock
        self.server = ApiServer(clock, seed=seed, latency_seconds=latency_seconds)
        self.writes: list[tuple[float, int, str]] = []
        self.server.registry.store.observers.append(self._observe)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        annotations = change.new.body["metadata"].get("annotations", {})
        if resource.plural == "nodes" and "epoch" in annotations:
            self.writes.append((self.clock.monotonic(), int(annotations["epoch"]), annotations["holder"]))

    def process(self, name: str, *, skew_seconds: float = 0.0) -> Process:
        return Process(self.server, self.clock, name, skew_seconds=skew_seconds)

    def lease(self) -> Object:
        body: Object = self.server.registry.get(LEASES, NAME, "default").body
        return body

    def check(self) -> list[str]:
        """Writers take turns, and the epoch grows with each turn; the holders in order."""
        turns = [turn for turn, _ in groupby((epoch, holder) for _, epoch, holder in self.writes)]
        assert all(before < after for (before, _), (after, _) in pairwise(turns)), turns
        return [holder for _, holder in turns]

    def longest_silence(self) -> float:
        return max(after - before for (before, *_), (after, *_) in pairwise(self.writes))


async def _play_in_group(scene: Callable[[World, asyncio.TaskGroup], Coroutine[Any, Any, None]], world: World) -> None:
    """Processes live for ever: end them with the scene."""
    with suppress(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            await scene(world, group)
            raise asyncio.CancelledError


@gives("world", "group")
def play(
    scene: Callable[[World, asyncio.TaskGroup], Coroutine[Any, Any, None]], *, seed: int | None = None, **options: Any
) -> None:
    async def main(clock: VirtualClock) -> None:
        world = World(clock, seed=seed or 0, **options)
        await world.server.write(Create(NODES, {"metadata": {"name": "fenced"}}))
        await _play_in_group(scene, world)

    simulate(main, start=START, seed=seed)


pytestmark = stage(play)


# -- one candidate ----------------------------------------------------------------------------------------------------


async def test_the_lease_is_created_kept_and_given_back(world: World, group: asyncio.TaskGroup) -> None:
    only = world.process("only")
    task = group.create_task(only.live())
    await world.clock.sleep(1)
    spec = world.lease()["spec"]
    assert spec == {
        "holderIdentity": "only",
        "leaseDurationSeconds": 15,
        "acquireTime": spec["acquireTime"],
        "renewTime": spec["renewTime"],
        "leaseTransitions": 0,
    }
    await world.clock.sleep(59)
    later = world.lease()["spec"]
    assert later["acquireTime"] == spec["acquireTime"]
    assert at(later["renewTime"]) >= START + timedelta(seconds=57)
    only.stop.set()
    await task
    assert "holderIdentity" not in world.lease()["spec"]
    assert world.lease()["spec"]["leaseDurationSeconds"] == 1
    assert world.check() == ["only"]


def test_times_are_written_in_utc_with_six_digits() -> None:
    assert micro_time(at("2026-03-01T12:00:00+02:00")) == "2026-03-01T10:00:00.000000Z"


async def test_an_error_of_the_leader_comes_out_and_the_lease_runs_out_by_itself(world: World) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    only = world.process("only")
    with pytest.raises(ZeroDivisionError):
        await only.election.run(fail)
    assert world.lease()["spec"]["holderIdentity"] == "only"
    assert not only.election.fence.is_open


# -- two candidates ---------------------------------------------------------------------------------------------------


async def test_the_second_waits_and_takes_over_when_the_first_stops(world: World, group: asyncio.TaskGroup) -> None:
    first, second = world.process("first"), world.process("second")
    group.create_task(first.live())
    await world.clock.sleep(1)
    group.create_task(second.live())
    await world.clock.sleep(100)
    assert second.led == []
    first.stop.set()
    await world.clock.sleep(2)
    assert second.led == [1]
    assert world.check() == ["first", "second"]
    assert world.longest_silence() < 1.5


@pytest.mark.parametrize("pause_seconds", [1, 9.9, 10.1, 14, 15, 16, 40])
@pytest.mark.parametrize("seed", range(3))
@stage(seed=PARAMETER)
async def test_a_paused_leader(world: World, group: asyncio.TaskGroup, pause_seconds: float, seed: int) -> None:
    first, second = world.process("first"), world.process("second")
    group.create_task(first.live())
    await world.clock.sleep(1)
    group.create_task(second.live())
    await world.clock.sleep(30 + seed / 3)
    first.running.clear()
    await world.clock.sleep(pause_seconds)
    first.running.set()
    await world.clock.sleep(60)
    holders = world.check()
    assert holders[0] == "first"
    if pause_seconds < 7:
        assert holders == ["first"]
    if pause_seconds > 17:
        assert holders == ["first", "second"]
    assert world.longest_silence() < 17
    assert world.writes[-1][0] > world.clock.monotonic() - 1


async def a_leader_wakes(world: World, group: asyncio.TaskGroup, refused: set[int]) -> None:
    """Notes how often it is refused before it knows that another one leads."""
    first, second = world.process("first"), world.process("second")
    group.create_task(first.live())
    await world.clock.sleep(5)
    group.create_task(second.live())
    await world.clock.sleep(5)
    first.running.clear()
    await world.clock.sleep(30)
    first.running.set()
    await world.clock.sleep(0.5)
    refused.add(first.refused)
    assert world.check() == ["first", "second"]


def test_a_paused_leader_that_wakes_is_refused_before_it_knows() -> None:
    refused: set[int] = set()
    for seed in range(10):
        play(partial(a_leader_wakes, refused=refused), seed=seed)
    # Whether the writer or the keeper wakes first is chance.
    assert {0, 1} <= refused


async def test_an_outage_ends_the_leader_before_anybody_can_follow(world: World, group: asyncio.TaskGroup) -> None:
    first, second = world.process("first"), world.process("second")
    group.create_task(first.live())
    await world.clock.sleep(5)
    group.create_task(second.live())
    await world.clock.sleep(5)
    down_at = world.clock.monotonic()
    world.server.faults.add(Fault(error=Unavailable("down")), resource=LEASES, times=1_000_000)
    await world.clock.sleep(11)
    # It could still write, but must not.
    last_at = world.writes[-1][0]
    assert down_at + 7.5 < last_at < down_at + 10.1
    assert not first.election.fence.is_open
    world.server.faults.clear()
    await world.clock.sleep(20)
    world.check()
    assert world.writes[-1][0] > world.clock.monotonic() - 1


async def test_requests_that_hang_do_not_keep_the_leader_leading(world: World, group: asyncio.TaskGroup) -> None:
    first, second = world.process("first"), world.process("second")
    group.create_task(first.live())
    await world.clock.sleep(5)
    group.create_task(second.live())
    await world.clock.sleep(5)
    world.server.faults.add(Fault(delay_seconds=1e6), resource=LEASES, client="first", times=1_000_000)
    await world.clock.sleep(30)
    assert world.check() == ["first", "second"]
    assert world.longest_silence() < 17


async def test_one_request_that_hangs_costs_nothing(world: World, group: asyncio.TaskGroup) -> None:
    first = world.process("first")
    group.create_task(first.live())
    await world.clock.sleep(5)
    world.server.faults.add(Fault(delay_seconds=1e6), resource=LEASES, times=1)
    await world.clock.sleep(30)
    assert first.led == [0]
    assert world.longest_silence() < 1


@pytest.mark.parametrize("after", [True, False])
async def test_a_lost_answer_to_a_renewal(world: World, group: asyncio.TaskGroup, after: bool) -> None:
    first, second = world.process("first"), world.process("second")
    group.create_task(first.live())
    group.create_task(second.live())
    await world.clock.sleep(5)
    fault = Fault(error=OutcomeUnknown("timeout"), after=after)
    world.server.faults.add(fault, verb="patch", resource=LEASES, times=3)
    await world.clock.sleep(60)
    assert len(first.led) + len(second.led) == 1
    assert len(world.check()) == 1


async def test_a_lost_answer_to_the_taking_of_the_lease(world: World, group: asyncio.TaskGroup) -> None:
    first = world.process("first")
    world.server.faults.add(Fault(error=OutcomeUnknown("timeout"), after=True), verb="create", resource=LEASES)
    group.create_task(first.live())
    await world.clock.sleep(5)
    assert first.led == [0]
    assert world.check() == ["first"]


async def test_somebody_else_edits_the_lease(world: World, group: asyncio.TaskGroup) -> None:
    first = world.process("first")
    group.create_task(first.live())
    for number in range(20):
        await world.clock.sleep(3.3)
        edit = {"metadata": {"annotations": {"edited": str(number)}}}
        await world.server.write(Patch(LEASES, NAME, edit, namespace="default"))
    assert first.led == [0]


async def test_a_stolen_lease_shuts_the_fence_at_once(world: World) -> None:
    only = world.process("only")
    refused = False

    async def lead() -> None:
        nonlocal refused
        try:
            await only.clock.sleep(2.9)
            theft = {"spec": {"holderIdentity": "thief"}}
            await world.server.write(Patch(LEASES, NAME, theft, namespace="default"))
            await only.clock.sleep(1e6)
        finally:
            # By its own clock it might still write for some seconds.
            refused = not only.election.fence.is_open

    with pytest.raises(LeaseLost, match="it is held by thief"):
        await only.election.run(lead)
    assert refused
    assert world.clock.monotonic() < 5
    assert world.lease()["spec"]["holderIdentity"] == "thief"


@pytest.mark.parametrize("phase_seconds", [0, 0.5, 1, 1.5])
async def test_the_lease_is_deleted_under_the_leader(
    world: World, group: asyncio.TaskGroup, phase_seconds: float
) -> None:
    first, second = world.process("first"), world.process("second")
    group.create_task(first.live())
    await world.clock.sleep(5)
    group.create_task(second.live())
    await world.clock.sleep(5 + phase_seconds)
    await world.server.write(Delete(LEASES, NAME, namespace="default"))
    await world.clock.sleep(60)
    # Whoever follows waits as if it were still there, and goes on counting.
    assert len(world.check()) == 2
    assert world.lease()["spec"]["leaseTransitions"] == 1


@pytest.mark.parametrize("skew_seconds", [-86400, -20, 20, 86400])
async def test_wrong_clocks_do_not_matter(world: World, group: asyncio.TaskGroup, skew_seconds: float) -> None:
    first, second = world.process("first"), world.process("second", skew_seconds=skew_seconds)
    group.create_task(first.live())
    await world.clock.sleep(5)
    group.create_task(second.live())
    await world.clock.sleep(120)
    assert world.check() == ["first"]
    first.running.clear()
    await world.clock.sleep(60)
    assert world.check() == ["first", "second"]
    assert world.longest_silence() < 17


@pytest.mark.parametrize("seed", range(examples(20, quick=6)))
@stage(seed=PARAMETER)
async def test_never_do_two_write(world: World, group: asyncio.TaskGroup, seed: int) -> None:
    """Three candidates with wrong clocks; pauses, outages, lost and late answers, in any order."""
    chance = Random(seed)
    processes = [world.process(name, skew_seconds=chance.uniform(-1000, 1000)) for name in ("a", "b", "c")]
    for process in processes:
        group.create_task(process.live())
    errors = [Unavailable("down"), OutcomeUnknown("timeout"), Forbidden("no")]
    for _ in range(60):
        await world.clock.sleep(chance.choice([0.3, 2.0, 7.0, 20.0]))
        leading = [each for each in processes if each.election.fence.is_open]
        process = chance.choice(leading or processes)
        match chance.randrange(5):
            case 0 | 1:
                process.running.clear()
            case 2:
                for each in processes:
                    each.running.set()
            case 3:
                fault = Fault(error=chance.choice(errors), after=chance.random() < 0.5)
                verb = chance.choice([None, "patch", "get"])
                client = chance.choice([None, process.name])
                world.server.faults.add(fault, verb=verb, resource=LEASES, client=client, times=chance.randrange(1, 30))
            case 4:
                # A write on its way for less than the time between deadline and expiry.
                fault = Fault(delay_seconds=chance.uniform(0, 4))
                resources: list[Resource[Any]] = [LEASES, NODES]
                resource = chance.choice(resources)
                world.server.faults.add(fault, verb="patch", resource=resource, times=chance.randrange(1, 4))
    world.server.faults.clear()
    for process in processes:
        process.running.set()
    await world.clock.sleep(40)
    assert len(world.check()) > 1
    assert world.writes[-1][0] > world.clock.monotonic() - 1


# -- the fence --------------------------------------------------------------------------------------------------------


@stage(simulate, start=START, gives=("clock",))
async def test_the_fence_refuses_whatever_changes_something(clock: VirtualClock) -> None:
    server = ApiServer(clock)
    fence = Fence(clock)
    api = FencedApi(server, fence)

    async def attempts() -> list[str]:
        refused = []
        requests: dict[str, Coroutine[Any, Any, Any]] = {
            "create": api.write(Create(NODES, {"metadata": {"name": "a"}})),
            "patch": api.write(Patch(NODES, "a", {"metadata": {"labels": {"x": "y"}}})),
            "evict": api.write(Evict("p", namespace="default")),
            "delete": api.write(Delete(NODES, "a")),
        }
        for name, request in requests.items():
            try:
                await request
            except ApiError as error:
                if error.reason == "LeaseLost":
                    refused.append(name)
        return refused

    everything = ["create", "patch", "evict", "delete"]
    assert await attempts() == everything
    fence.open(until=clock.monotonic() + 10, epoch=1)
    assert await attempts() == []
    await clock.sleep(10)
    assert await attempts() == everything
    fence.open(until=clock.monotonic() + 10, epoch=1)
    fence.shut()
    assert await attempts() == everything
    assert (await api.list(NODES)).items == []
    with pytest.raises(ApiError, match="not found"):
        await api.get(NODES, "a")


def test_timings_that_are_not_safe_are_refused() -> None:
    with pytest.raises(AssertionError):
        LeaseTimings(duration_seconds=10, renew_deadline_seconds=10)
    with pytest.raises(AssertionError):
        LeaseTimings(renew_deadline_seconds=3, retry_seconds=2)


def lease(version: str, holder: str | None, *, uid: str = "u", seconds: int | None = 15) -> Lease:
    meta = ObjectMeta(name=NAME, uid=uid, resource_version=version)
    return Lease(meta, LeaseSpec(holder_identity=holder, lease_duration_seconds=seconds))


def test_a_lease_lives_from_when_it_was_seen_to_change() -> None:
    first = sighted(None, lease("1", "x"), at=100.0)
    assert (first.changed_at, first.live_until) == (100.0, 115.0)
    assert sighted(first, lease("1", "x"), at=107.0) is first
    assert sighted(first, lease("2", "x"), at=107.0).live_until == 122.0
    assert sighted(first, lease("1", "x", uid="v"), at=107.0).live_until == 122.0
    assert ObservedLease(lease("1", "x", seconds=None), 100.0).live_until == 101.0
    assert ObservedLease(lease("1", None), 100.0).live_until < 0
    assert ObservedLease(lease("1", ""), 100.0).live_until < 0


# -- others of the same name (R38) ------------------------------------------------------------------------------------


async def make_lease(server: ApiServer, namespace: str, name: str, holder: str | None) -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15} if holder else {}
    await server.write(Create(RAW_LEASES, {"metadata": {"name": name}, "spec": spec}, namespace=namespace))


@stage(simulate, start=START, gives=("clock",))
async def test_alone_if_there_is_no_other_or_nobody_holds_it(clock: VirtualClock) -> None:
    server = ApiServer(clock)
    await make_lease(server, "default", NAME, "us")
    await make_lease(server, "kube-system", NAME, None)
    await make_lease(server, "kube-system", "kube-scheduler", "somebody")
    told: list[str] = []
    await wait_until_alone(server, clock, namespace="default", name=NAME, tell=told.append)
    assert told == []
    assert clock.monotonic() == 0


@stage(simulate, start=START, gives=("clock",))
async def test_a_dead_lease_elsewhere_is_watched_for_its_whole_duration(clock: VirtualClock) -> None:
    server = ApiServer(clock)
    await make_lease(server, "kube-system", NAME, "karpenter-1")
    told: list[str] = []
    await wait_until_alone(server, clock, namespace="default", name=NAME, tell=told.append)
    assert 15 <= clock.monotonic() < 18
    assert told == [
        "refusing to act: another controller is or may be active on this cluster "
        f"(Lease held: kube-system/{NAME} by karpenter-1). "
        "Two would undo each other's work: stop the other one, or run this one in the same namespace"
    ]


@stage(simulate, start=START, gives=("clock",))
async def test_a_live_lease_elsewhere_keeps_us_from_acting(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    server = ApiServer(clock)
    other = Election(server.client("karpenter"), clock, namespace="kube-system", name=NAME, identity="karpenter-1")
    async with asyncio.TaskGroup() as group:
        leading = group.create_task(other.run(lambda: clock.sleep(300)))
        await clock.sleep(1)
        with pytest.raises(TimeoutError):
            await within(clock, 200, wait_until_alone(server, clock, namespace="default", name=NAME))
        await wait_until_alone(server, clock, namespace="default", name=NAME)
        assert clock.monotonic() < 304
        await leading
    assert "kube-system/karpenter-leader-election by karpenter-1" in caplog.text


@stage(simulate, start=START, gives=("clock",))
async def test_who_may_not_look_does_not_act(clock: VirtualClock) -> None:
    server = ApiServer(clock)
    server.faults.add(Fault(error=Unavailable("down")), verb="list", times=3)
    server.faults.add(Fault(error=Forbidden("leases is forbidden")), verb="list")
    with pytest.raises(Forbidden, match="leases is forbidden"):
        await wait_until_alone(server, clock, namespace="default", name=NAME)


# -- a namespace that is not there -------------------------------------------------------------------------------------


@stage(simulate, start=START, gives=("clock",))
async def test_a_namespace_that_is_not_there_is_said_ever_more_rarely_with_what_to_do(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = ApiServer(clock)
    asked = Client(server, "us")
    election = Election(asked, clock, namespace="nonexist", name=NAME, identity="us")
    task = asyncio.create_task(election.acquire())
    await clock.sleep(1)
    assert "kubectl create namespace nonexist" in election.problem
    assert "--leader-election-namespace" in election.problem
    await clock.sleep(3600)
    said = [record for record in caplog.records if election.problem in vars(record).get("error", "")]
    assert 5 <= len(said) <= 15
    await server.write(Create(NAMESPACES, {"metadata": {"name": "nonexist"}}))
    await clock.sleep(11)
    assert task.done()
    assert election.fence.is_open
    assert election.problem == ""
    caplog.set_level(logging.WARNING)


@stage(simulate, start=START, gives=("clock",))
async def test_a_standby_says_whom_it_waits_for_once_and_when_that_changes(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = ApiServer(clock)
    first, standby = (Election(server, clock, namespace="default", name=NAME, identity=name) for name in ("a", "c"))
    await first.acquire()
    task = asyncio.create_task(standby.acquire())
    await clock.sleep(10)
    taken = {"spec": {"holderIdentity": "b", "acquireTime": micro_time(clock.now())}}
    await server.write(Patch(LEASES, NAME, taken, namespace="default"))
    await clock.sleep(20)
    assert task.done()
    told = [vars(record) for record in caplog.records if record.message.startswith("waiting for the lease")]
    assert [(line["holder"], line["Lease"]) for line in told] == [("a", f"default/{NAME}"), ("b", f"default/{NAME}")]
    assert [line["since"] for line in told] == ["2026-03-01T00:00:00Z", "2026-03-01T00:00:10Z"]
    caplog.set_level(logging.WARNING)


@stage(simulate, start=START, gives=("clock",))
async def test_the_same_trouble_is_said_rarely_and_another_at_once(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = ApiServer(clock)
    election = Election(server, clock, namespace="default", name=NAME, identity="us")
    server.faults.add(Fault(error=Unavailable("down")), resource=LEASES, times=30)
    task = asyncio.create_task(election.acquire())
    await clock.sleep(29.5)
    server.faults.clear()
    server.faults.add(Fault(error=Forbidden("no right")), resource=LEASES, times=1)
    await clock.sleep(5)
    assert task.done()
    said = [vars(record)["error"] for record in caplog.records if record.message == "failed to acquire lease"]
    assert said == ["down", "down", "no right"]
    assert election.problem == ""
    caplog.set_level(logging.WARNING)
