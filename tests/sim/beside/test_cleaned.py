"""After `cleanup` nothing of guard is left on any object, whatever state it was in."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.cli.cleanup.cleaner import CleanupOutcome, clean
from dovetail.model.beside import PodHold, Roll, RollCause, written_mark
from dovetail.ports import NODECLAIMS, NODES, PODS, OutcomeUnknown, Patch
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.server.faults import Fault
from tests.harness.guarding import (
    BesideProgram,
    annotate_node,
    annotations_of,
    bind,
    pod_annotations,
    pool,
    run_beside,
    stand,
)
from tests.harness.stage import stage

pytestmark = stage(run_beside, started=False)

VOLATILE = {"resourceVersion", "managedFields", "generation"}


def steady(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: steady(value) for key, value in part.items() if key not in VOLATILE}
    return [steady(each) for each in part] if isinstance(part, list) else part


def picture(sim: SimCluster) -> list[Any]:
    return [steady(each) for kind in (NODES, NODECLAIMS, PODS) for each in sim.objects(kind)]


async def prepare(sim: SimCluster) -> list[Any]:
    await sim.apply(pool())
    await stand(sim, "n1", "n2", "n3", "n4")
    for name in ("n1", "n2"):
        await bind(sim, name, f"web-{name}", do_not_disrupt="4h")
    await annotate_node(sim, "n3", do_not_disrupt="true")
    await annotate_node(sim, "n4", do_not_disrupt="4h")
    await sim.run_for("10s")
    return picture(sim)


async def test_holds_go_and_what_users_wrote_stays(sim: SimCluster, program: BesideProgram) -> None:
    before = await prepare(sim)
    await program.start()
    await sim.run_for("5s")
    assert set(annotations_of(sim, "n1")) == {names.DO_NOT_DISRUPT, names.HELD}
    await program.kill()
    would = await clean(sim.api, dry_run=True)
    assert {each.fate for each in would} == {CleanupOutcome.WOULD_CLEAN}
    assert picture(sim) != before
    done = await clean(sim.api, karpenter=True)
    assert [(each.object, each.fate) for each in done] == [
        ("Node/n1", CleanupOutcome.CLEANED),
        ("Node/n2", CleanupOutcome.CLEANED),
    ]
    assert picture(sim) == before
    assert await clean(sim.api) == ()


async def test_stamps_and_holds_of_pods_go(sim: SimCluster) -> None:
    before = await prepare(sim)
    now = sim.clock.now().replace(microsecond=0)
    stamp = {
        names.NODEPOOL_HASH: f"{names.STAMP_PREFIX}1",
        names.HASH_BEFORE: "1",
        names.ROLLED: written_mark(Roll(why=RollCause.EXPIRED, at=now)),
    }
    await sim.api.write(Patch(NODECLAIMS, "n1", {"metadata": {"annotations": stamp}}))
    await bind(sim, "n2", "ours")
    unheld = picture(sim)
    hold = {names.DO_NOT_DISRUPT: "79s", names.POD_HOLD: written_mark(PodHold(until=now, value="79s"))}
    await sim.api.write(Patch(PODS, "ours", {"metadata": {"annotations": hold}}, namespace="default"))
    await clean(sim.api, karpenter=True)
    assert pod_annotations(sim, "ours") == {}
    claim = sim.object(NODECLAIMS, "n1")
    assert claim is not None
    assert claim["metadata"]["annotations"][names.NODEPOOL_HASH] == "1"
    assert len(unheld) == len(before) + 1
    found = {(each["kind"], each["metadata"]["name"]): each for each in picture(sim)}
    assert [found.pop(key) for key in [(each["kind"], each["metadata"]["name"]) for each in before]] == before


@pytest.mark.parametrize("mark", ["garbage", ""])
async def test_a_mark_that_cannot_be_read_goes_alone(sim: SimCluster, mark: str) -> None:
    await prepare(sim)
    await annotate_node(sim, "n3", held=mark)
    await clean(sim.api)
    assert annotations_of(sim, "n3") == {names.DO_NOT_DISRUPT: "true"}


async def test_a_value_that_a_user_put_in_place_of_ours_stays(sim: SimCluster, program: BesideProgram) -> None:
    await prepare(sim)
    await program.start()
    await sim.run_for("5s")
    await program.kill()
    await annotate_node(sim, "n1", do_not_disrupt="8h")
    await clean(sim.api)
    assert annotations_of(sim, "n1") == {names.DO_NOT_DISRUPT: "8h"}


async def test_a_lost_reply_is_asked_again(sim: SimCluster, program: BesideProgram) -> None:
    before = await prepare(sim)
    await program.start()
    await sim.run_for("5s")
    await program.kill()
    sim.server.faults.add(Fault(error=OutcomeUnknown("timeout"), after=True), verb="patch", resource=NODES)
    sim.server.faults.add(Fault(error=OutcomeUnknown("timeout")), verb="patch", resource=NODES)
    await clean(sim.api)
    assert picture(sim) == before
