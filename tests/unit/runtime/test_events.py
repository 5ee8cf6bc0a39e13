"""Events: what is sent, what is a repetition, and that nothing ever waits for them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from dovetail.api.names import EventReason
from dovetail.ports import (
    EVENTS,
    AlreadyExists,
    ApiError,
    Conflict,
    Create,
    Delete,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from dovetail.runtime.events import WARNING, Event, EventRecorder, ObjectReference, cut, dedupe_key, event_body
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.faults import Fault
from dovetail.sim.server.kinds import NAMESPACES
from tests.harness.builders import at
from tests.harness.stage import gives, stage

START = at("2026-03-01T00:00:00Z")
NODE = ObjectReference("v1", "Node", "node-1", "uid-node")
POD = ObjectReference("v1", "Pod", "web-1", "uid-pod", "shop")

Object = dict[str, Any]


def event(regarding: ObjectReference = NODE, note: str = "why", **more: Any) -> Event:
    return Event(
        **{"regarding": regarding, "reason": "DisruptionBlocked", "note": note, "dedupe": ("uid-node",), **more}
    )


class Scene:
    def __init__(self, clock: VirtualClock, **options: Any) -> None:
        self.clock = clock
        self.server = ApiServer(clock)
        self.recorder = EventRecorder(self.server, clock, instance="dovetail-0", **options)

    def events(self) -> list[Object]:
        """Oldest first."""
        found = [stored.body for _, stored in self.server.registry.store.collection(EVENTS).sorted()]
        return sorted(found, key=lambda body: (body["eventTime"], int(body["metadata"]["resourceVersion"])))

    async def publish(self, *events: Event) -> None:
        """And give them time to be sent."""
        for each in events:
            self.recorder.publish(each)
        await self.clock.sleep(1)


@gives("world")
def play(scene: Callable[[Scene], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main(clock: VirtualClock) -> None:
        world = Scene(clock, **options)
        await world.server.write(Create(NAMESPACES, {"metadata": {"name": "shop"}}))
        async with asyncio.TaskGroup() as group:
            group.create_task(world.recorder.run())
            await scene(world)
            world.recorder.close()

    simulate(main, start=START)


pytestmark = stage(play)


# -- what is sent -----------------------------------------------------------------------------------------------------


async def test_an_event_as_the_server_gets_it(world: Scene) -> None:
    await world.publish(event(POD, "evicted", reason="Evicted", type=WARNING, dedupe=()))
    [found] = world.events()
    assert found["metadata"]["name"].startswith("web-1.")
    assert {key: value for key, value in found.items() if key != "metadata"} == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-03-01T00:00:00.000000Z",
        "reportingController": "dovetail",
        "reportingInstance": "dovetail-0",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": "uid-pod", "namespace": "shop"},
        "reason": "Evicted",
        "action": "Evicted",
        "type": "Warning",
        "note": "evicted",
    }


def test_events_of_what_has_no_namespace_live_in_default() -> None:
    body = event_body(event(NODE), at=START, instance="i")
    assert body["metadata"]["namespace"] == "default"
    assert "namespace" not in body["regarding"]
    assert event_body(event(POD), at=START, instance="i")["metadata"]["namespace"] == "shop"


def name_of(event_: Event) -> str:
    return str(event_body(event_, at=START, instance="i")["metadata"]["name"])


def test_names_are_made_of_what_is_said_and_not_too_long() -> None:
    long = ObjectReference("v1", "Node", "a" * 234 + ".-" + "b" * 17, "u")
    another = ObjectReference("v1", "Node", "node-1", "uid-another")
    events = [
        *(event(long, note=str(number)) for number in range(100)),
        *(event(), event(another), event(reason="Other"), event(type=WARNING), event(action="Other"), event(POD)),
    ]
    names = {name_of(each) for each in events}
    assert len(names) == len(events)
    assert all(len(name) <= 253 and ".-" not in name for name in names)
    assert name_of(event()) == name_of(event(dedupe=(), dedupe_seconds=1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a" * 10, "a" * 10), ("a" * 11, "a" * 7 + "…"), ("é" * 5, "é" * 5), ("é" * 6, "ééé…"), ("", "")],
)
def test_notes_are_cut_at_a_whole_character(text: str, expected: str) -> None:
    assert cut(text, 10) == expected
    assert len(cut(text, 10).encode()) <= 10


# -- repetitions ------------------------------------------------------------------------------------------------------


def test_the_key_ignores_the_text() -> None:
    assert dedupe_key(event(note="a")) == dedupe_key(event(note="b")) == "disruptionblocked-uid-node"
    assert dedupe_key(event(dedupe=("u", "Empty"))) == "disruptionblocked-u-Empty"
    assert dedupe_key(event(dedupe=())) == ""


async def test_repetitions_are_dropped_for_two_minutes(world: Scene) -> None:
    await world.publish(event(note="a"))
    await world.publish(event(note="b"))
    await world.publish(event(note="c", dedupe=("another",)))
    await world.clock.sleep(115)
    await world.publish(event(note="d"))
    await world.clock.sleep(2)
    await world.publish(event(note="e"))
    assert [found["note"] for found in world.events()] == ["a", "c", "e"]
    assert (world.recorder.counts.sent, world.recorder.counts.repeated) == (3, 2)


async def test_an_event_may_have_a_dedupe_time_of_its_own(world: Scene) -> None:
    for number in range(20):
        await world.publish(event(note=str(number), dedupe_seconds=900))
        await world.clock.sleep(59)
    assert [found["note"] for found in world.events()] == ["0", "15"]


async def test_later_repetitions_become_a_series(world: Scene) -> None:
    for _ in range(4):
        await world.publish(event())
        await world.clock.sleep(299)
    [found] = world.events()
    assert found["eventTime"] == "2026-03-01T00:00:00.000000Z"
    assert found["series"] == {"count": 4, "lastObservedTime": "2026-03-01T00:15:00.000000Z"}


async def test_without_values_nothing_is_dropped_but_counted_on_the_server(world: Scene) -> None:
    await world.publish(*[event(dedupe=())] * 5)
    [found] = world.events()
    assert found["series"]["count"] == 5


async def test_another_text_or_object_is_another_event(world: Scene) -> None:
    other = ObjectReference("v1", "Node", "node-1", "uid-another")
    await world.publish(event(dedupe=()), event(dedupe=(), note="other"), event(other, dedupe=()))
    assert len(world.events()) == 3
    assert not any("series" in found for found in world.events())


async def test_a_series_that_the_server_has_dropped_is_begun_anew(world: Scene) -> None:
    await world.publish(event())
    [found] = world.events()
    await world.server.write(Delete(EVENTS, found["metadata"]["name"], namespace="default"))
    await world.clock.sleep(300)
    await world.publish(event())
    [again] = world.events()
    assert again["metadata"]["uid"] != found["metadata"]["uid"]
    assert "series" not in again
    assert world.recorder.counts.sent == 2


async def test_a_series_goes_on_for_as_long_as_the_server_has_it(world: Scene) -> None:
    for _ in range(3):
        await world.publish(event())
        await world.clock.sleep(3000)
    assert [found["series"]["count"] for found in world.events()] == [3]


# -- another leader ---------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def another(world: Scene) -> AsyncIterator[EventRecorder]:
    """A process that knows nothing of what the first one has said."""
    recorder = EventRecorder(world.server, world.clock, instance="dovetail-1")
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run())
        yield recorder
        recorder.close()


async def test_another_leader_does_not_repeat_what_was_just_said(world: Scene) -> None:
    await world.publish(event())
    before = world.events()
    await world.clock.sleep(60)
    async with another(world) as recorder:
        recorder.publish(event())
        await world.clock.sleep(1)
        assert world.events() == before
        assert (recorder.counts.sent, recorder.counts.repeated) == (0, 1)


async def test_another_leader_goes_on_with_the_series(world: Scene) -> None:
    for _ in range(2):
        await world.publish(event(), event(POD, "once", dedupe=("pod",)))
        await world.clock.sleep(200)
    async with another(world) as recorder:
        for _ in range(2):
            recorder.publish(event())
            await world.clock.sleep(200)
        assert recorder.counts.sent == 2
    counts = {found["note"]: found["series"]["count"] for found in world.events()}
    assert counts == {"why": 4, "once": 2}


async def test_what_is_never_a_repetition_counts_for_another_leader_too(world: Scene) -> None:
    await world.publish(event(dedupe=()))
    async with another(world) as recorder:
        recorder.publish(event(dedupe=()))
        await world.clock.sleep(1)
    assert [found["series"]["count"] for found in world.events()] == [2]


@pytest.mark.parametrize("dedupe", [("uid-node",), ()])
async def test_a_lost_answer_does_not_count_twice_for_another_leader(world: Scene, dedupe: tuple[str, ...]) -> None:
    await world.publish(event(dedupe=dedupe))
    await world.clock.sleep(300)
    async with another(world) as recorder:
        lost = Fault(error=OutcomeUnknown("timeout"), after=True)
        world.server.faults.add(lost, verb="patch", times=3)
        recorder.publish(event(dedupe=dedupe))
        await world.clock.sleep(30)
    assert [found["series"]["count"] for found in world.events()] == [2]


async def test_one_that_goes_while_it_is_looked_at_is_left(world: Scene) -> None:
    world.server.faults.add(Fault(error=AlreadyExists("there")), verb="create")
    await world.publish(event())
    # It went between the two requests: what it was about is going.
    assert world.recorder.counts.ignored == 1


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_nominations_have_a_rate_and_others_have_not(world: Scene) -> None:
    for number in range(50):
        world.recorder.publish(event(reason=EventReason.NOMINATED, dedupe=(str(number),), note=str(number)))
        world.recorder.publish(event(dedupe=(str(number),), note=str(number)))
    await world.clock.sleep(1)
    assert world.recorder.counts.limited == 40
    assert world.recorder.counts.sent == 60
    # One that was over the rate is no repetition when it comes again.
    await world.publish(event(reason=EventReason.NOMINATED, dedupe=("49",), note="49"))
    assert world.recorder.counts.sent == 61


@stage(waiting_at_most=10)
async def test_too_many_are_dropped_and_counted(world: Scene) -> None:
    world.server.faults.add(Fault(delay_seconds=5), times=1)
    for number in range(20):
        world.recorder.publish(event(dedupe=(str(number),)))
    assert world.recorder.counts.dropped == 10
    await world.clock.sleep(60)
    assert world.recorder.counts.sent == 10


async def test_what_is_remembered_has_a_limit(world: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.runtime.events.REMEMBERED_AT_MOST", 10)
    for number in range(30):
        await world.publish(event(dedupe=(str(number),), note=str(number)))
    await world.publish(event(dedupe=("29",), note="other"), event(dedupe=("0",), note="other"))
    assert world.recorder.counts.repeated == 1
    assert world.recorder.counts.sent == 31


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        NotFound("no such namespace"),
        Conflict("going"),
        Forbidden("unable to create new content in namespace a because it is being terminated", reason="Forbidden"),
    ],
    ids=["gone", "changed", "its namespace"],
)
async def test_what_is_going_needs_no_event(world: Scene, error: ApiError) -> None:
    world.server.faults.add(Fault(error=error), verb="create")
    await world.publish(event(note="a"), event(note="b", dedupe=()))
    assert [found["note"] for found in world.events()] == ["b"]
    assert (world.recorder.counts.ignored, world.recorder.counts.failed) == (1, 0)


@pytest.mark.parametrize("after", [True, False])
async def test_a_lost_answer_does_not_make_two_events(world: Scene, after: bool) -> None:
    world.server.faults.add(Fault(error=OutcomeUnknown("timeout"), after=after), verb="create", times=2)
    await world.publish(event())
    await world.clock.sleep(20)
    assert len(world.events()) == 1
    world.server.faults.add(Fault(error=OutcomeUnknown("timeout"), after=after), verb="patch", times=2)
    await world.clock.sleep(300)
    await world.publish(event())
    await world.clock.sleep(20)
    assert [found["series"]["count"] for found in world.events()] == [2]
    assert world.recorder.counts.sent == 2


@pytest.mark.parametrize(("error", "attempts"), [(Unavailable("down"), 4), (Forbidden("no lease"), 1)])
async def test_failures_are_counted_and_the_next_one_is_sent(world: Scene, error: ApiError, attempts: int) -> None:
    world.server.faults.add(Fault(error=error), times=attempts)
    await world.publish(event(note="a"), event(note="b", dedupe=()))
    await world.clock.sleep(20)
    assert [found["note"] for found in world.events()] == ["b"]
    assert world.recorder.counts.failed == 1


async def test_a_request_that_hangs_is_given_up(world: Scene) -> None:
    world.server.faults.add(Fault(delay_seconds=1e6), times=1)
    await world.publish(event(note="a"))
    await world.clock.sleep(15)
    assert len(world.events()) == 1


@stage(simulate, start=START, gives=("clock",))
async def test_closing_sends_what_is_waiting_and_takes_no_more(clock: VirtualClock) -> None:
    world = Scene(clock)
    for number in range(5):
        world.recorder.publish(event(dedupe=(str(number),), note=str(number)))
    world.recorder.close()
    world.recorder.publish(event(dedupe=("late",)))
    await world.recorder.run()
    assert len(world.events()) == 5
    assert world.recorder.counts.dropped == 1
