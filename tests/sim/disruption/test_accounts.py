"""The accounts of consolidation commands in a running cluster, and the back-off that follows from them."""

from datetime import timedelta
from typing import Any

from dovetail.api import names
from dovetail.api.names import EventReason, Reason
from dovetail.controllers.disruption.accounts import DisruptionAccounts
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.planning.disruption.accounts import AccountTotals
from dovetail.planning.disruption.savings_backoff import JUDGED, SavingsBackoff
from dovetail.ports import NODEPOOLS, NODES, Delete, Patch
from dovetail.sim.cloud.machines import Launch
from dovetail.web.debug import decisions
from dovetail.web.sources import saved
from dovetail.web.stream import Visibility
from tests.harness import manifests
from tests.harness.disruption import disrupted, hold, nodes, play, pool, scale, stand
from tests.harness.provisioning import OF_FOUR, Setting
from tests.harness.stage import stage
from tests.harness.termination import is_deleting

pytestmark = stage(play)

ON_DEMAND = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]}
OF_SIXTEEN = {**OF_FOUR, "values": ["s-16x-amd64-linux"]}


def accounts(setting: Setting) -> DisruptionAccounts:
    (found,) = (each for each in setting.program.controllers if isinstance(each, DisruptionAccounts))
    return found


def metrics(setting: Setting) -> dict[str, float]:
    """Those of the accounts, of the pool `default`."""
    prefix = "dovetail_consolidation_"
    return {
        sample.name.removeprefix(prefix): sample.value
        for family in setting.metrics.registry.collect()
        for sample in family.samples
        if sample.name.startswith(prefix) and not sample.name.endswith("_created")
    }


async def prepare(setting: Setting) -> str:
    """Have a pod alone on its node, and a node with room for it, whose name is returned."""
    await setting.begin(pool())
    await setting.sim.apply(manifests.workload("StatefulSet", "db", cpu="1", terminationGracePeriodSeconds=60))
    await setting.runs_all("db", 1)
    protected = manifests.pod("p-room", cpu="2", annotations={names.DO_NOT_DISRUPT: "true"})
    return await setting.launch("room", pods=[protected], requirements=[OF_FOUR])


async def move_in_vain(setting: Setting, room: str) -> None:
    """Cordon the node with the room while the pod ends, so that its successor needs a node that nobody planned."""
    (pod,) = setting.sim.pods(app="db")
    await setting.sim.wait_until(lambda: all(map(is_deleting, setting.sim.pods(app="db"))), timeout="20m")
    await cordon(setting, room, on=True)
    await setting.sim.wait_until(
        lambda: any(
            each["metadata"]["uid"] != pod["metadata"]["uid"] for each in setting.sim.pods(app="db", ready=True)
        )
    )
    await cordon(setting, room, on=False)


async def cordon(setting: Setting, node: str, *, on: bool) -> None:
    await setting.sim.api.write(Patch(NODES.read_as(dict[str, Any]), node, {"spec": {"unschedulable": on}}))


async def back_off(setting: Setting) -> SavingsBackoff:
    room = await prepare(setting)
    for _ in range(JUDGED):
        await move_in_vain(setting, room)
    (backoff,) = accounts(setting).backoffs(setting.sim.clock.now()).values()
    return backoff


async def test_before_the_first_account_is_closed_nothing_is_shown(setting: Setting) -> None:
    await stand(setting, pool())
    assert saved(accounts(setting), setting.sim.clock.now()) is None


async def test_a_command_that_comes_out_as_planned_realises_its_promise(setting: Setting) -> None:
    await stand(setting, pool(), replicas=2, cpu="2500m")
    await stand(setting, replicas=2, cpu="500m", app="small")
    await scale(setting, 1)
    await setting.sim.run_for("30m")
    (account,) = accounts(setting).closed
    assert account.promised == account.realised > 0
    assert account.moved in (1, 2)
    told = metrics(setting)
    assert told["savings_realised"] == told["savings_promised"] == account.promised / 1e9
    assert told["pods_moved_total"] == account.moved
    assert told["pods_moved_in_vain_total"] == told["pods_moved_again_total"] == 0
    (note,) = setting.notes(EventReason.CONSOLIDATION_FINISHED, "default")
    assert note == f"Underutilized/{account.id} {account}"
    assert not accounts(setting).backoffs(setting.sim.clock.now())


async def test_removed_empty_nodes_realise_their_price(setting: Setting) -> None:
    await stand(setting, pool(), replicas=3)
    await scale(setting, 1)
    await setting.sim.run_for("30m")
    assert sum(account.nodes for account in accounts(setting).closed) == 2
    assert all(account.realised == account.promised > 0 for account in accounts(setting).closed)
    assert accounts(setting).totals.moved == 0


@stage(except_for=["rescheduled"])  # that a moved pod has no place for a while is what this is about
async def test_a_node_that_nobody_planned_is_charged_to_the_command(setting: Setting) -> None:
    room = await prepare(setting)
    await move_in_vain(setting, room)
    await setting.sim.wait_until(lambda: bool(accounts(setting).closed), timeout="20m")
    first = accounts(setting).closed[0]
    assert (first.realised, first.moved, first.moved_in_vain, len(first.unplanned)) == (0, 1, 1, 1)
    assert first.promised > 0
    told = metrics(setting)
    assert (told["unplanned_nodes_total"], told["pods_moved_in_vain_total"]) == (1, 1)
    notes = setting.notes(EventReason.CONSOLIDATION_FINISHED, "default")
    assert any(note.endswith("moved 1 pod; 1 node launched for them that nobody planned") for note in notes)


@stage(except_for=["rescheduled"])
async def test_a_pool_whose_commands_save_nothing_backs_off(setting: Setting) -> None:
    backoff = await back_off(setting)
    assert backoff.realised == 0
    assert metrics(setting)["backoff_end_timestamp_seconds"] == backoff.until.timestamp()
    (note,) = setting.notes(EventReason.CONSOLIDATION_BACKOFF, "default")
    assert note == f"No pods are moved for consolidation: {backoff}"
    moved = disrupted(setting, "underutilized")
    await setting.sim.clock.sleep((backoff.until - setting.sim.clock.now()).total_seconds())
    assert disrupted(setting, "underutilized") == moved == JUDGED
    notes = [note for node in nodes(setting) for note in setting.notes(EventReason.UNCONSOLIDATABLE, node)]
    assert any(str(backoff) in note for note in notes)
    assert accounts(setting).totals.moved_again == JUDGED - 1
    view = saved(accounts(setting), backoff.until - timedelta(seconds=1))
    assert view is not None
    assert view.backoffs == (("default", round(backoff.until.timestamp()), str(backoff)),)
    assert (view.realised, view.moved, view.moved_today) == (0, JUDGED, JUDGED)
    (engine,) = (each for each in setting.program.controllers if isinstance(each, DisruptionController))
    told = decisions(engine.history, {}, Visibility(frozenset()), accounts(setting).closed)["commands"]
    assert [each["account"]["realised"] for each in told] == ["0"] * JUDGED
    await setting.sim.run_for("10m")
    assert disrupted(setting, "underutilized") == moved + 1


@stage(except_for=["rescheduled"])
async def test_a_change_from_outside_ends_the_back_off_of_a_pool(setting: Setting) -> None:
    await back_off(setting)
    await setting.sim.apply(manifests.deployment("new", cpu="300m"))
    await setting.runs_all("new", 1)
    assert not accounts(setting).backoffs(setting.sim.clock.now())
    assert metrics(setting)["backoff_end_timestamp_seconds"] == 0


@stage(except_for=["rescheduled"])
async def test_a_small_change_from_outside_does_not(setting: Setting) -> None:
    await back_off(setting)
    await setting.sim.apply(manifests.deployment("new", cpu="100m"))
    await setting.runs_all("new", 1)
    assert accounts(setting).backoffs(setting.sim.clock.now())


@stage(except_for=["rescheduled"])
async def test_a_deleted_pool_has_neither_back_off_nor_savings(setting: Setting) -> None:
    await back_off(setting)
    await setting.sim.api.write(Delete(NODEPOOLS, "default"))
    await setting.sim.wait_until(lambda: setting.gone(NODEPOOLS, "default"), timeout="1h")
    assert not accounts(setting).backoffs(setting.sim.clock.now())
    assert "backoff_end_timestamp_seconds" not in metrics(setting)


async def test_a_command_from_before_a_restart_has_no_account(setting: Setting) -> None:
    await prepare(setting)
    await setting.sim.wait_until(lambda: all(map(is_deleting, setting.sim.pods(app="db"))), timeout="20m")
    await setting.program.kill()
    await setting.program.start()
    await setting.sim.run_for("1h")
    assert accounts(setting).totals == AccountTotals()
    assert disrupted(setting, "underutilized") == 0  # the new process has not begun another one


async def test_a_command_that_is_given_up_realises_nothing(setting: Setting) -> None:
    """Its replacement does not come up."""
    both = {**OF_FOUR, "values": [*OF_FOUR["values"], *OF_SIXTEEN["values"]]}
    await setting.begin(pool(template={"requirements": [both, ON_DEMAND]}))
    setting.cloud.next_launches(Launch())
    setting.cloud.next_launches(Launch(registers=False))
    await hold(setting, "a", requirements=[OF_SIXTEEN, ON_DEMAND])
    await setting.sim.run_for("30m")
    account = next(each for each in accounts(setting).closed if each.reason is Reason.UNDERUTILIZED)
    assert (account.realised, account.nodes, account.moved, account.unplanned) == (0, 0, 0, ())
    assert account.promised > 0
