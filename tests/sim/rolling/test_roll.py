"""Are nodes replaced because somebody asks, under budgets and windows, until all are gone?"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionReason, ConditionType
from dovetail.cli.commands.roll import roll
from dovetail.cli.roll.progress import RollProgress
from dovetail.cli.roll.roller import RolledNode
from dovetail.planning.rolling import RollOutcome
from dovetail.ports import NODECLAIMS, Forbidden, OutcomeUnknown
from dovetail.sim.server.faults import Fault
from dovetail.web.sources import LiveSource
from tests.harness import manifests
from tests.harness.disruption import EVER, Most, edit_pool, is_true, node_of, play, pods_of, pool, stand
from tests.harness.provisioning import Setting
from tests.harness.stage import stage

pytestmark = stage(play)

ASKED, BEGUN, UNDONE = RollOutcome.ASKED, RollOutcome.HAS_BEGUN, RollOutcome.UNDONE


async def rolled(setting: Setting, *objects: str, undo: bool = False, dry_run: bool = False) -> dict[str, RollOutcome]:
    found = await roll(setting.sim.server.client("user"), objects, undo=undo, dry_run=dry_run)
    return {each.node_claim: each.outcome for each in found}


@asynccontextmanager
async def followed(setting: Setting) -> AsyncIterator[LiveSource]:
    source = LiveSource(setting.sim.server.client("user"), setting.sim.clock, title="")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in source.reflectors]
        await source.wait_synced(5)
        yield source
        for task in tasks:
            task.cancel()


async def watch(setting: Setting, found: tuple[RolledNode, ...], lines: list[str]) -> bool:
    async with followed(setting) as source:
        return await RollProgress(source, found, lines.append).follow()


async def test_a_pool_is_replaced_node_by_node_and_nothing_else_is(setting: Setting) -> None:
    old = await stand(setting, pool(budgets=[{"nodes": "1"}]), replicas=3)
    most = Most(setting)
    lines: list[str] = []
    found = await roll(setting.sim.server.client("user"), ["nodepool/default"])
    assert {each.node_claim: each.outcome for each in found} == dict.fromkeys(old, ASKED)
    assert await watch(setting, found, lines)
    assert all(setting.gone(NODECLAIMS, each) for each in old)
    assert most.of == {"default": 1}
    assert lines[-1] == "3 of 3 nodes replaced"
    for each in found:
        said = [line for line in lines if line.startswith(each.node)]
        assert "gone after" in said[-1]
    assert any("S4 draining" in line for line in lines)
    new = [each["metadata"]["name"] for each in setting.claims()]
    await setting.sim.run_for("1h")
    assert [each["metadata"]["name"] for each in setting.claims()] == new


async def test_the_condition_says_why_and_ends_with_the_mark(setting: Setting) -> None:
    (old,) = await stand(setting, pool(budgets=[{"nodes": "0"}]))
    assert await rolled(setting, f"node/{node_of(setting, old)}") == {old: ASKED}
    await setting.sim.run_for("2s")
    assert setting.condition(ConditionType.DRIFTED, old)["reason"] == ConditionReason.ROLL_REQUESTED
    assert await rolled(setting, f"nodeclaim/{old}") == {old: RollOutcome.ALREADY_ASKED}
    assert await rolled(setting, f"nodeclaim/{old}", undo=True, dry_run=True) == {old: RollOutcome.WOULD_UNDO}
    assert await rolled(setting, f"nodeclaim/{old}", undo=True) == {old: UNDONE}
    await setting.sim.run_for("2s")
    assert not is_true(setting, old, ConditionType.DRIFTED)
    await edit_pool(setting, budgets=[EVER])
    await setting.sim.run_for("10m")
    assert not setting.gone(NODECLAIMS, old)
    assert await rolled(setting, f"nodeclaim/{old}", undo=True) == {old: RollOutcome.NOT_ASKED}


async def test_a_dry_run_writes_nothing(setting: Setting) -> None:
    (old,) = await stand(setting, pool())
    assert await rolled(setting, f"nodeclaim/{old}", dry_run=True) == {old: RollOutcome.WOULD_ASK}
    await setting.sim.run_for("10m")
    assert not setting.gone(NODECLAIMS, old)


async def test_it_waits_for_protected_pods_and_the_watch_says_so(setting: Setting) -> None:
    (old,) = await stand(setting, pool(), annotations={names.DO_NOT_DISRUPT: "30m"})
    (pod,) = pods_of(setting, old)
    lines: list[str] = []
    found = await roll(setting.sim.server.client("user"), [f"nodeclaim/{old}"])
    assert await watch(setting, found, lines)
    waits = next(line for line in lines if "waits" in line)
    assert pod["metadata"]["name"] in waits
    assert "until" in waits


async def test_what_has_begun_is_not_taken_back(setting: Setting) -> None:
    (old,) = await stand(setting, pool())
    await rolled(setting, f"nodeclaim/{old}")
    await setting.sim.wait_until(lambda: is_true(setting, old, ConditionType.DISRUPTION_REASON), timeout="1m")
    assert await rolled(setting, f"nodeclaim/{old}", undo=True) == {old: BEGUN}
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="10m")


async def test_the_watch_ends_when_somebody_takes_it_back(setting: Setting) -> None:
    (old,) = await stand(setting, pool(budgets=[{"nodes": "0"}]))
    lines: list[str] = []
    found = await roll(setting.sim.server.client("user"), [f"nodeclaim/{old}"])
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch(setting, found, lines))
        await setting.sim.run_for("1m")
        assert not watching.done()
        assert any("budget" in line for line in lines)
        await rolled(setting, f"nodeclaim/{old}", undo=True)
    assert not watching.result()
    assert "its mark was removed" in lines[-2]
    assert lines[-1] == "0 of 1 node replaced"


async def test_it_says_when_nobody_answers(setting: Setting) -> None:
    (old,) = await stand(setting, pool())
    await setting.program.stop()
    lines: list[str] = []
    found = await roll(setting.sim.server.client("user"), [f"nodeclaim/{old}"])
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch(setting, found, lines))
        await setting.sim.run_for("5m")
        assert [line for line in lines if "no controller has answered" in line]
        await setting.program.start()
    assert watching.result()


async def test_a_failure_affects_one_node(setting: Setting) -> None:
    old = await stand(setting, pool(budgets=[{"nodes": "0"}]), replicas=2)
    fault = Fault(error=Forbidden("not yours"))
    setting.sim.server.faults.add(fault, client="user", verb="patch", when=lambda request: request.name == old[0])
    assert await rolled(setting, "nodepool/default") == {old[0]: RollOutcome.FAILED, old[1]: ASKED}


async def test_a_lost_reply_and_other_writers_do_no_harm(setting: Setting) -> None:
    (old,) = await stand(setting, pool(budgets=[{"nodes": "0"}]))
    setting.sim.server.faults.add(Fault(error=OutcomeUnknown("lost"), after=True), client="user", verb="patch")
    assert await rolled(setting, f"nodeclaim/{old}") in ({old: ASKED}, {old: RollOutcome.ALREADY_ASKED})
    await setting.sim.run_for("2s")
    assert is_true(setting, old, ConditionType.DRIFTED)


@pytest.mark.parametrize("name", ["node/nope", "pod/default/web", "nope"])
async def test_an_object_that_is_not_there_ends_it(
    setting: Setting, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await stand(setting, pool())
    with pytest.raises(SystemExit) as ended:
        await rolled(setting, name)
    assert ended.value.code == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nodepool/empty", "NP/empty", "empty"])
async def test_a_pool_without_nodes_has_nothing_to_replace(setting: Setting, name: str) -> None:
    await stand(setting, pool())
    await setting.sim.apply(pool("empty"))
    assert await rolled(setting, name) == {}


async def test_a_node_without_a_nodeclaim_cannot_be_replaced(
    setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    await stand(setting, pool())
    await setting.sim.apply(manifests.node("foreign"))
    with pytest.raises(SystemExit) as ended:
        await rolled(setting, "foreign")
    assert ended.value.code == 2
    assert "foreign has no NodeClaim, so no controller can replace it" in capsys.readouterr().err
