"""Guard holds nodes in time, releases them in time, and touches nothing that is not its own (10 §I.3)."""

from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest

from dovetail.api import names
from dovetail.controllers.beside.assembly import GuardOptions
from dovetail.model.beside import OFF, BesideMode, Hold, written_mark
from dovetail.ports import NODEPOOLS, NODES, PODS, Delete, Page, Patch, Resource, Write
from dovetail.runtime.read_through import ReadThroughApi
from dovetail.sim.actors.cluster import SimCluster
from dovetail.state.store import UndecodableObject
from dovetail.values.selector import make_selector
from dovetail.values.timestamp import parse_time
from tests.harness.guarding import (
    BesideProgram,
    annotate_node,
    annotations_of,
    bind,
    hold_on,
    pod_annotations,
    pool,
    run_beside,
    stand,
)
from tests.harness.stage import stage

T = TypeVar("T")

pytestmark = stage(run_beside)

EACH_HOUR = {"disruption_schedule": "0 * * * *", "disruption_schedule_duration": "30m"}


async def until(sim: SimCluster, text: str) -> None:
    """Sleeps until this time of the day, today or tomorrow."""
    now = sim.clock.now()
    at = now.replace(hour=int(text[:2]), minute=int(text[3:5]), second=int(text[6:] or 0), microsecond=0)
    await sim.clock.sleep((at - now) % timedelta(days=1) / timedelta(seconds=1))


def held_until(sim: SimCluster, node: str = "n1") -> datetime | None:
    hold = hold_on(sim, node)
    assert hold is not None
    return hold.until


async def test_a_node_is_held_outside_the_window_of_its_pod_and_ten_minutes_before(
    sim: SimCluster, program: BesideProgram
) -> None:
    await sim.apply(pool())
    await stand(sim, "n1", "n2")
    await bind(sim, "n1", "web", **EACH_HOUR)
    await until(sim, "05:45:00")
    hold = hold_on(sim, "n1")
    assert hold is not None
    assert hold.by is BesideMode.GUARD
    assert hold.why == "disruption-schedule"
    assert hold.until is not None
    assert hold.until.strftime("%H:%M:%S") == "06:00:00"
    assert hold_on(sim, "n2") is None
    before = program.writes()
    await until(sim, "06:00:01")
    assert annotations_of(sim, "n1") == {}
    await until(sim, "06:19:59")
    assert hold_on(sim, "n1") is None
    await until(sim, "06:20:01")
    assert held_until(sim) == parse_time(sim.clock.now().strftime("%Y-%m-%dT07:00:00Z"))
    await until(sim, "06:59:59")
    assert program.writes() == before + 2
    assert program.count("dovetail_beside_writes_total", what="release") >= 1
    assert program.events("Released")[-1]["regarding"]["name"] == "n1"


async def test_a_node_does_not_tell_which_pod_holds_it_and_the_pod_does(
    sim: SimCluster, program: BesideProgram
) -> None:
    """Who may read Nodes, and the events about them, may not list the pods of all namespaces (R49)."""
    await sim.apply(pool())
    await stand(sim, "n1")
    await bind(sim, "n1", "payroll", **EACH_HOUR)
    await until(sim, "05:45:00")
    held = {event["regarding"]["kind"]: event for event in program.events("Held")}
    assert held["Pod"]["regarding"]["name"] == "payroll"
    assert "kept off node n1 for this pod, until 2026-03-02T06:00:00Z: disruption-schedule: " in held["Pod"]["note"]
    assert "until 2026-03-02T06:00:00Z: disruption-schedule: " in held["Node"]["note"]
    await until(sim, "06:00:01")
    on_node = [event for event in program.events("") if event["regarding"]["kind"] == "Node"]
    assert {event["reason"] for event in on_node} == {"Held", "Released"}
    assert "payroll" not in str([*sim.objects(NODES), *on_node])


async def test_a_pod_that_is_bound_is_judged_at_once(sim: SimCluster) -> None:
    await sim.apply(pool())
    await stand(sim, "n1")
    await sim.run_for("1m")
    await bind(sim, "n1", "job", do_not_disrupt="4h")
    await sim.run_for("1s")
    assert hold_on(sim, "n1") is not None
    await sim.run_for("3h59m58s")
    assert hold_on(sim, "n1") is not None
    await sim.run_for("3s")
    assert annotations_of(sim, "n1") == {}


async def test_a_pod_that_is_gone_or_changes_its_mind_holds_no_longer(sim: SimCluster) -> None:
    await sim.apply(pool())
    await stand(sim, "n1", "n2")
    await bind(sim, "n1", "one", do_not_disrupt="4h")
    await bind(sim, "n2", "two", do_not_disrupt="4h")
    await sim.run_for("1s")
    await sim.api.write(Delete(PODS, "one", namespace="default", grace_seconds=0))
    no_more = {"metadata": {"annotations": {names.DO_NOT_DISRUPT: None}}}
    await sim.api.write(Patch(PODS, "two", no_more, namespace="default"))
    await sim.run_for("1s")
    assert annotations_of(sim, "n1") == annotations_of(sim, "n2") == {}


async def test_true_needs_no_hold_and_what_karpenter_ignores_is_held_without_end(
    sim: SimCluster, program: BesideProgram
) -> None:
    await sim.apply(pool())
    await stand(sim, "n1", "n2")
    await bind(sim, "n1", "one", do_not_disrupt="true")
    await bind(sim, "n2", "two", do_not_disrupt="yes")
    await sim.run_for("2s")
    assert annotations_of(sim, "n1") == {}
    assert held_until(sim, "n2") is None
    assert program.events("InvalidDoNotDisrupt")[0]["regarding"]["name"] == "two"


@pytest.mark.parametrize("value", ["true", "false", "4h", ""])
async def test_a_users_annotation_is_never_touched(sim: SimCluster, program: BesideProgram, value: str) -> None:
    await sim.apply(pool())
    await stand(sim, "n1")
    await annotate_node(sim, "n1", do_not_disrupt=value)
    await bind(sim, "n1", "web", **EACH_HOUR)
    await sim.run_for("5h")
    assert annotations_of(sim, "n1") == {names.DO_NOT_DISRUPT: value}
    assert program.writes() == 0
    assert bool(program.events("CannotHold")) is (value != "true")


async def test_a_value_that_a_user_puts_in_place_of_ours_stays_and_the_mark_goes(sim: SimCluster) -> None:
    await sim.apply(pool())
    await stand(sim, "n1")
    await bind(sim, "n1", "job", do_not_disrupt="4h")
    await sim.run_for("1s")
    await annotate_node(sim, "n1", do_not_disrupt="8h")
    await sim.run_for("1s")
    assert annotations_of(sim, "n1") == {names.DO_NOT_DISRUPT: "8h"}


@pytest.mark.parametrize("mark", ["garbage", "{}", '{"by": "me"}', "x" * 300])
async def test_a_mark_that_cannot_be_read_is_told_and_counts_as_a_users(
    sim: SimCluster, program: BesideProgram, mark: str
) -> None:
    await sim.apply(pool())
    await stand(sim, "n1")
    await annotate_node(sim, "n1", do_not_disrupt="true", held=mark)
    await sim.run_for("1h")
    assert annotations_of(sim, "n1") == {names.DO_NOT_DISRUPT: "true", names.HELD: mark}
    assert program.writes() == 0
    (event,) = program.events("InvalidMark")
    assert event["regarding"]["name"] == "n1"


async def test_only_nodes_of_pools_that_are_there_and_not_opted_out(sim: SimCluster, program: BesideProgram) -> None:
    await sim.apply(pool(), pool("off", annotations={names.BESIDE: OFF}))
    for name, of in (("n1", "default"), ("n2", "off"), ("n3", "missing")):
        await stand(sim, name, pool=of)
        await bind(sim, name, f"web-{name}", do_not_disrupt="4h")
    await sim.run_for("2s")
    assert [name for name in ("n1", "n2", "n3") if hold_on(sim, name)] == ["n1"]
    # The pool is opted out, and the other opted in.
    for name, value in (("default", OFF), ("off", None)):
        await sim.api.write(Patch(NODEPOOLS, name, {"metadata": {"annotations": {names.BESIDE: value}}}))
    await sim.run_for("2s")
    assert [name for name in ("n1", "n2", "n3") if hold_on(sim, name)] == ["n2"]
    assert program.count("dovetail_beside_writes_total", what="release") == 1


@stage(run_beside, GuardOptions(pools=make_selector({"team": "a"})))
async def test_a_selector_narrows_the_pools(sim: SimCluster) -> None:
    chosen = pool("a")
    chosen["metadata"]["labels"] = {"team": "a"}
    await sim.apply(chosen, pool("b"))
    for name in ("a", "b"):
        await stand(sim, name, pool=name)
        await bind(sim, name, f"web-{name}", do_not_disrupt="4h")
    await sim.run_for("2s")
    assert hold_on(sim, "a") is not None
    assert hold_on(sim, "b") is None


async def test_two_hundred_windows_that_close_at_once_cost_one_write_a_node(
    sim: SimCluster, program: BesideProgram
) -> None:
    nodes = [f"n{number:03}" for number in range(200)]
    await sim.apply(pool())
    await stand(sim, *nodes)
    await until(sim, "05:00:00")
    for name in nodes:
        await bind(sim, name, f"web-{name}", **EACH_HOUR)
    await sim.run_for("1m")
    assert program.writes() == 0
    await until(sim, "05:19:59")
    assert program.writes() == 0
    await until(sim, "05:20:17")
    assert all(hold_on(sim, name) for name in nodes)
    assert program.writes() == len(nodes)
    await until(sim, "05:59:59")
    assert program.writes() == len(nodes)


async def test_holds_go_before_releases(sim: SimCluster, program: BesideProgram) -> None:
    nodes = [f"n{number:03}" for number in range(160)]
    await sim.apply(pool())
    await stand(sim, *nodes)
    for name in nodes[:80]:
        await bind(sim, name, f"web-{name}", disruption_block_schedule="0 5 * * *", disruption_block_duration="1h")
    for name in nodes[80:]:
        await bind(sim, name, f"web-{name}", disruption_block_schedule="10 6 * * *", disruption_block_duration="1h")
    await until(sim, "06:00:01")  # the first are released while the others are held
    await sim.run_for("1m")
    order = [request.split()[2] for request in program.api.requests if request.startswith("patch nodes ")]
    assert sorted(order[80:160]) == nodes[80:]
    assert sorted(order[160:]) == nodes[:80]


@stage(run_beside, started=False)
async def test_after_a_start_nothing_is_released_before_all_is_seen(sim: SimCluster, program: BesideProgram) -> None:
    await sim.apply(pool())
    await stand(sim, "n1", "n2", "n3")
    await bind(sim, "n1", "job", do_not_disrupt="4h")
    mark = written_mark(Hold(by=BesideMode.DRIVE))
    for name in ("n1", "n2"):
        await annotate_node(sim, name, do_not_disrupt="true", held=mark)
    await bind(sim, "n3", "other", do_not_disrupt="4h")
    await program.start()
    await sim.run_for("5s")
    hold = hold_on(sim, "n1")
    assert hold is not None
    assert hold.by is BesideMode.GUARD
    assert annotations_of(sim, "n2") == {}
    assert hold_on(sim, "n3") is not None
    order = [request.split()[2] for request in program.api.requests if request.startswith("patch nodes ")]
    assert order[-1] == "n2"
    assert len(order) == 3


class OtherFieldsApi(ReadThroughApi):
    """The API of a cluster whose NodePools have fields of other types than ours."""

    async def write(self, write: Write[T]) -> T:
        return await self._api.write(write)

    async def list(self, resource: Resource[Any], *args: Any, **options: Any) -> Page[Any]:
        page = await super().list(resource, *args, **options)
        if resource.plural != NODEPOOLS.plural:
            return page
        unread = [UndecodableObject("Expected `str`, got `int`", "", pool.metadata.name) for pool in page.items]
        return Page([], page.resource_version, undecodable=len(unread), unread=unread)


@stage(run_beside, GuardOptions(hold_pods=True))
async def test_nothing_is_released_while_nodepools_cannot_be_read(sim: SimCluster, program: BesideProgram) -> None:
    """After an upgrade of the CRDs the old process still knows the NodePools, but a new one does not."""
    await sim.apply(pool())
    await stand(sim, "n1")
    await bind(sim, "n1", "web", **EACH_HOUR)
    await until(sim, "05:45:00")
    before = annotations_of(sim, "n1"), pod_annotations(sim, "web")
    assert names.HELD in before[0]
    assert names.POD_HOLD in before[1]
    await program.kill()
    program.through = OtherFieldsApi
    await program.start()
    await sim.run_for("3h")
    assert (annotations_of(sim, "n1"), pod_annotations(sim, "web")) == before
    program.through = lambda api: api
    await program.restart()
    await until(sim, "10:00:01")
    assert (annotations_of(sim, "n1"), names.POD_HOLD in pod_annotations(sim, "web")) == ({}, False)


async def test_a_node_without_change_is_not_written(sim: SimCluster, program: BesideProgram) -> None:
    await sim.apply(pool())
    await stand(sim, "n1")
    await bind(sim, "n1", "web", disruption_schedule="0 2 * * *", disruption_schedule_duration="2h")
    await bind(sim, "n1", "job", do_not_disrupt="24h")
    await sim.run_for("72h")
    # Held at once; then each night held anew, and released once the other pod is free as well.
    node = sim.object(NODES, "n1")
    assert node is not None
    writes = program.count("dovetail_beside_writes_total", what="hold") + program.count(
        "dovetail_beside_writes_total", what="release"
    )
    assert program.writes() == writes
    assert writes <= 7
