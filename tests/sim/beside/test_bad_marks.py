"""A `dovetail.dev/*` value that cannot be read, as users' hands may write it, is reported once and never acted upon."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from dovetail.api import names
from dovetail.controllers.beside.assembly import GuardOptions
from dovetail.controllers.beside.driving import DriveOptions
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PODS, Patch, Resource
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import Raw
from dovetail.sim.loop.virtual_loop import InlineCompute
from tests.harness.disruption import edit_pool, edit_template, node_of, pods_of, pool, stand
from tests.harness.driving import Driven, drive
from tests.harness.guarding import BesideProgram, run_beside
from tests.harness.stage import stage
from tests.sim.beside.test_stamps import claims, prepare, stamped

BAD = ("garbage", "{}", '{"why": "me", "at": "soon"}', "x" * 5000)


class Mark(NamedTuple):
    """An annotation that guard and drive read, and what goes with it on the object."""

    kind: Resource[Any]
    key: str
    beside: Mapping[str, str] = {}

    def __str__(self) -> str:
        return self.key


USERS = {names.DO_NOT_DISRUPT: "true"}
MARKS = (
    Mark(NODES, names.HELD, USERS),
    Mark(PODS, names.POD_HOLD, USERS),
    Mark(NODECLAIMS, names.ROLLED),
    Mark(NODEPOOLS, names.GRACEFUL_EXPIRE_AFTER),
    Mark(NODEPOOLS, names.OWN_BUDGETS),
    Mark(NODEPOOLS, names.BESIDE),
)


async def write(sim: SimCluster, mark: Mark, value: str, objects: Mapping[str, str]) -> str:
    """Returns the name of the object."""
    name = objects[mark.kind.plural]
    body = {"metadata": {"annotations": {**mark.beside, mark.key: value}}}
    namespace = "default" if mark.kind.namespaced else None
    await sim.api.write(Patch(mark.kind.read_as(dict[str, Any]), name, body, namespace=namespace))
    return name


def annotations_of(sim: SimCluster, mark: Mark, name: str) -> dict[str, str]:
    """Those that anybody beside Karpenter may write."""
    found = sim.object(mark.kind, name)
    assert found is not None
    given: Raw = found["metadata"].get("annotations") or {}
    return {key: value for key, value in given.items() if key in (mark.key, names.DO_NOT_DISRUPT)}


@pytest.mark.parametrize("value", BAD, ids=lambda value: value[:10])
@pytest.mark.parametrize("mark", MARKS, ids=str)
@stage(run_beside, GuardOptions(hold_pods=True), karpenter=True)
async def test_guard_reports_it(sim: SimCluster, program: BesideProgram, mark: Mark, value: str) -> None:
    await prepare(sim, 1, after=None)
    (claim,) = claims(sim)
    (pod,) = sim.pods(app="web")
    objects = {"nodeclaims": claim, "nodes": claims(sim)[claim]["status"]["nodeName"], "nodepools": "default"}
    name = await write(sim, mark, value, {**objects, "pods": pod["metadata"]["name"]})
    await sim.run_for("3h")
    assert annotations_of(sim, mark, name) == {**mark.beside, mark.key: value}
    assert list(claims(sim)) == [claim]
    assert stamped(sim) == set()
    assert program.writes("patch") == 0
    (event,) = program.events("InvalidMark")
    assert event["regarding"]["name"] == name


@pytest.mark.parametrize("value", BAD[:2])
@pytest.mark.parametrize("mark", MARKS, ids=str)
@stage(drive, options=DriveOptions(compute=InlineCompute(), hold_pods=True))
async def test_drive_reports_it(setting: Driven, mark: Mark, value: str) -> None:
    """A user's annotation protects, as always; nothing else keeps the drifted node."""
    (old,) = await stand(setting, pool(budgets=[{"nodes": "0"}]))
    (pod,) = pods_of(setting, old)
    objects = {"nodeclaims": old, "nodes": node_of(setting, old), "nodepools": "default"}
    if mark.kind is NODES:
        await setting.annotate(NODES, objects["nodes"], {names.HELD: None, names.DO_NOT_DISRUPT: None})
    name = await write(setting.sim, mark, value, {**objects, "pods": pod["metadata"]["name"]})
    await setting.sim.run_for("2h")
    assert annotations_of(setting.sim, mark, name) == {**mark.beside, mark.key: value}
    assert [each["metadata"]["name"] for each in setting.claims()] == [old]
    (event,) = setting.program.events("InvalidMark")
    assert event["regarding"]["name"] == name
    await edit_template(setting, metadata={"labels": {"edition": "2"}})
    await edit_pool(setting, budgets=[{"nodes": "1"}])
    await setting.sim.run_for("20m")
    assert setting.gone(NODECLAIMS, old) == (not mark.beside)
