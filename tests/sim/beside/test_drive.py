"""Does drive decide, and Karpenter only carry out: launch, drain and end?"""

from datetime import timedelta
from math import ceil
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionReason, ConditionType, EventReason
from dovetail.cli.cleanup.cleaner import clean
from dovetail.cli.commands.roll import roll
from dovetail.controllers.beside.gate import SETTLES
from dovetail.ports import LEASES, NODECLAIMS, NODEPOOLS, NODES, PODS, Delete, Forbidden
from dovetail.sim.actors.wire import SHUTDOWN, Raw
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.disruption import (
    Most,
    Taken,
    drift,
    edit_pool,
    edit_template,
    is_true,
    node_of,
    others,
    pool,
    scale,
    stand,
)
from tests.harness.driving import Driven, drive
from tests.harness.provisioning import OF_FOUR
from tests.harness.stage import stage
from tests.harness.termination import GUARDED
from tests.sim.beside.test_cleaned import picture

pytestmark = stage(drive)

NEVER_UP = Launch(registers=False)
FOR_EVER = 10_000
ON_DEMAND = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]}
# What 10 §I.6 allows drive to write.
RIGHTS = {
    ("patch", "nodes"),
    ("patch", "nodeclaims"),
    ("patch", "nodeclaims/status"),
    ("create", "nodeclaims"),
    ("delete", "nodeclaims"),
}


def of_cpus(*cpus: int) -> Raw:
    return {**OF_FOUR, "values": [f"s-{number}x-amd64-linux" for number in cpus]}


async def new_edition(setting: Driven, edition: str = "2") -> None:
    """Let all nodes of the pool drift."""
    await edit_template(setting, metadata={"labels": {"edition": edition}})


async def in_s3(setting: Driven, claim: str) -> None:
    node = node_of(setting, claim)
    await setting.sim.wait_until(lambda: setting.tainted() == [node] and len(setting.claims()) > 1, timeout="5m")


# -- the reasons -------------------------------------------------------------------------------------------------------


async def test_an_empty_node_goes(setting: Driven) -> None:
    old = await stand(setting, pool(), replicas=2)
    assert all(setting.held().values())
    await scale(setting, 1)
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1, timeout="5m")
    (gone,) = set(old) - {each["metadata"]["name"] for each in setting.claims()}
    assert "Draining: Empty" in setting.notes(EventReason.DISRUPTION_TERMINATING, gone)[0]
    assert set(setting.writes()) <= RIGHTS


async def test_a_drifted_node_gets_a_replacement_first(setting: Driven) -> None:
    (old,) = await stand(setting, pool())
    await new_edition(setting)
    await setting.sim.wait_until(lambda: len(setting.claims()) == 2, timeout="3m")
    (name,) = others(setting, old)
    new, now_pool = setting.claim(name), setting.sim.object(NODEPOOLS, "default")
    assert new is not None
    assert now_pool is not None
    assert setting.tainted() == [node_of(setting, old)]
    assert not setting.condition(ConditionType.DISRUPTION_REASON, old)
    (types,) = [each for each in new["spec"]["requirements"] if each["key"] == names.INSTANCE_TYPE_LABEL]
    assert types == {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["s-4x-amd64-linux"]}  # the pool's
    assert new["spec"]["resources"]["requests"]["cpu"] == "3"
    for key in (names.NODEPOOL_HASH, names.NODEPOOL_HASH_VERSION):
        assert new["metadata"]["annotations"][key] == now_pool["metadata"]["annotations"][key]
    (owner,) = new["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["blockOwnerDeletion"]) == (now_pool["metadata"]["uid"], True)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="5m")
    await setting.runs_all("web", 1)
    await setting.sim.run_for("30m")
    assert [each["metadata"]["name"] for each in setting.claims()] == [name]
    assert set(setting.writes()) <= RIGHTS


async def test_an_old_node_expires_gracefully(setting: Driven) -> None:
    """Karpenter's CRD knows neither the field nor the reason in budgets."""
    budgets = '[{"nodes": "0"}, {"nodes": "1", "reasons": ["Expired"]}]'
    told = {names.GRACEFUL_EXPIRE_AFTER: "1h", names.OWN_BUDGETS: budgets}
    of_two_hours = pool()
    of_two_hours["metadata"]["annotations"] = told
    old = await stand(setting, of_two_hours, replicas=2)
    most = Most(setting)
    await setting.sim.run_for("50m")
    assert not others(setting, *old)
    await setting.sim.run_for("30m")
    assert setting.gone(NODECLAIMS, *old)
    assert most.of == {"default": 1}
    await setting.runs_all("web", 2)


async def test_pods_that_fit_elsewhere_are_moved_and_nothing_is_bought(setting: Driven) -> None:
    await setting.begin(pool())
    for app in ("a", "b"):
        await setting.sim.apply(manifests.deployment(app, replicas=3, cpu="1200m"))
        await setting.runs_all(app, 3)
    assert len(setting.claims()) == 2
    for app in ("a", "b"):
        await scale(setting, 1, app)
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1, timeout="10m")
    await setting.runs_all("a", 1)
    await setting.runs_all("b", 1)
    assert ("create", "nodeclaims") not in setting.writes()


# -- drains without waves ----------------------------------------------------------------------------------------------


async def prepare(setting: Driven, *taken: str) -> None:
    """Have `large` and `small` on the node `old`, of 16 cpus, and other nodes, of 4 cpus, with so much of each taken.

    The successor of `small` comes first, and goes to the emptiest node.
    """
    template = {"requirements": [of_cpus(4, 16), ON_DEMAND]}
    await setting.begin(pool(template=template, consolidateAfter="Never"))
    await setting.launch("old", requirements=[of_cpus(16), ON_DEMAND])
    slow: dict[str, Any] = {"cpu": "3", "terminationGracePeriodSeconds": 30, "annotations": {SHUTDOWN: "30s"}}
    large = manifests.workload("StatefulSet", "large", fields={"replicas": 1}, **slow)
    await setting.sim.apply(large, manifests.deployment("small", cpu="1"))
    for app in ("large", "small"):
        await setting.runs_all(app, 1)
    for number, cpu in enumerate(taken):
        guarded = manifests.pod(f"guarded-{number}", cpu=cpu, annotations=GUARDED)
        await setting.launch(f"room-{number}", pods=[guarded], requirements=[of_cpus(4), ON_DEMAND])


async def test_a_node_whose_pods_have_room_only_in_waves_is_not_consolidated(setting: Driven) -> None:
    """Karpenter evicts all pods of a node at once. `small` would take the room of `large`, which would need a node."""
    await prepare(setting, "400m", "2700m")
    await edit_pool(setting, consolidateAfter="0s")
    await setting.sim.run_for("30m")
    assert len(setting.cloud.machines) == 3
    assert not setting.gone(NODECLAIMS, "old")


async def test_a_drifted_node_whose_pods_have_room_only_in_waves_gets_one_node_for_all_of_them(setting: Driven) -> None:
    """`small` has room elsewhere, but would take that of `large` on the replacement."""
    await prepare(setting, "2700m")
    await drift(setting, "old")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "old"), timeout="10m")
    for app in ("large", "small"):
        await setting.runs_all(app, 1)
    (new,) = others(setting, "room-0")
    replacement = setting.claim(new)
    assert replacement is not None
    assert replacement["spec"]["resources"]["requests"]["cpu"] == "4"
    assert len(setting.cloud.machines) == 3


@pytest.mark.parametrize("nodes", [2, 3])
async def test_replacements_that_start_together_do_not_wait_for_each_other(setting: Driven, nodes: int) -> None:
    """In some orders of arrival a large pod finds no room on them, because two small ones share one."""
    await setting.begin(pool(budgets=[{"nodes": "100%"}]))
    for app, cpu in (("large", "3"), ("small", "700m")):
        await setting.sim.apply(manifests.deployment(app, replicas=nodes, cpu=cpu))
        await setting.runs_all(app, nodes)
    old = [each["metadata"]["name"] for each in setting.claims()]
    assert len(old) == nodes
    await new_edition(setting)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, *old), timeout="30m")
    for app in ("large", "small"):
        await setting.runs_all(app, nodes)
    assert len(setting.cloud.machines) <= 2 * nodes


# -- the gate ----------------------------------------------------------------------------------------------------------


async def test_no_command_begins_before_all_nodes_are_held_and_half_a_minute_after(setting: Driven) -> None:
    await setting.program.stop()
    await stand(setting, pool(budgets=[{"nodes": "0"}]), replicas=2)
    await new_edition(setting)
    await setting.sim.run_for("1m")
    began_at, taken = setting.now(), Taken(setting)
    await setting.program.start()
    await edit_pool(setting, budgets=[{"nodes": "100%"}])
    await setting.sim.run_for("1s")
    assert all(setting.held().values())
    await setting.sim.wait_until(lambda: bool(setting.tainted()), timeout="2m")
    assert setting.now() >= began_at + SETTLES
    assert not taken.at
    assert not any(each for each in setting.sim.objects(NODES) if "karpenter.sh/disrupted" in str(each["spec"]))


async def test_what_karpenter_has_begun_uses_up_the_budget(setting: Driven) -> None:
    await setting.program.stop()
    old = await stand(setting, pool(budgets=[{"nodes": "1"}]), replicas=3)
    setting.cloud.next_launches(NEVER_UP, times=FOR_EVER)
    await new_edition(setting)
    await setting.sim.wait_until(
        lambda: any(is_true(setting, each, ConditionType.DISRUPTION_REASON) for each in old), timeout="1m"
    )
    (taken,) = [each for each in old if is_true(setting, each, ConditionType.DISRUPTION_REASON)]
    await setting.program.start()
    await setting.sim.run_for("5m")
    assert not setting.tainted()
    assert is_true(setting, taken, ConditionType.DISRUPTION_REASON)


async def test_without_a_karpenter_no_command_begins(setting: Driven) -> None:
    (old,) = await stand(setting, pool(budgets=[{"nodes": "0"}]))
    await setting.karpenter.kill()
    await setting.sim.run_for("1m")
    await edit_pool(setting, budgets=[{"nodes": "100%"}])
    await setting.annotate(NODECLAIMS, old, {})
    await scale(setting, 0)
    await setting.sim.run_for("5m")
    assert not setting.gone(NODECLAIMS, old)
    assert not setting.tainted()
    await setting.karpenter.start()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="5m")


async def test_without_the_right_to_see_karpenter_no_command_begins(setting: Driven) -> None:
    await setting.program.stop()
    (old,) = await stand(setting, pool(budgets=[{"nodes": "0"}]))
    mine = Fault(error=Forbidden("no right"))
    setting.sim.server.faults.add(mine, verb="list", resource=LEASES, client=names.COMPONENT, times=FOR_EVER)
    await setting.program.start()
    await edit_pool(setting, budgets=[{"nodes": "100%"}])
    await new_edition(setting)
    await setting.sim.run_for("5m")
    assert all(setting.held().values())
    assert not setting.tainted()
    setting.sim.server.faults.clear()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="5m")


async def test_a_command_of_before_waits_until_karpenter_is_seen(setting: Driven) -> None:
    """Both die, and drive comes back first: the Lease looks live for a while."""
    (old,) = await stand(setting, pool())
    await new_edition(setting)
    await in_s3(setting, old)
    await setting.program.kill()
    await setting.sim.wait_until(
        lambda: all(is_true(setting, each["metadata"]["name"], ConditionType.INITIALIZED) for each in setting.claims()),
        timeout="2m",
    )
    await setting.karpenter.kill()
    await setting.program.start()
    await setting.sim.run_for("3m")
    found = setting.claim(old)
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]
    await setting.karpenter.start()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="6m")


async def test_a_karpenter_that_dies_in_the_middle_is_waited_for(setting: Driven) -> None:
    (old,) = await stand(setting, pool())
    await new_edition(setting)
    await in_s3(setting, old)
    await setting.karpenter.kill()
    await setting.sim.run_for("3m")
    assert not setting.gone(NODECLAIMS, old)
    await setting.karpenter.start()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="6m")
    await setting.runs_all("web", 1)


# -- budgets and windows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", ["0", "1", "50%"])
async def test_budgets_hold(setting: Driven, nodes: str) -> None:
    old = await stand(setting, pool(budgets=[{"nodes": nodes}]), replicas=4)
    seen: set[int] = set()
    await new_edition(setting)
    for _ in range(600):
        await setting.sim.run_for("2s")
        gone = sum(setting.gone(NODECLAIMS, each) for each in old)
        deleting = [
            each
            for each in setting.claims()
            if "deletionTimestamp" in each["metadata"] and each["metadata"]["name"] in old
        ]
        going = {each["status"]["nodeName"] for each in deleting} | set(setting.tainted())
        seen.add(len(going))
        assert len(going) <= (ceil(len(setting.claims()) / 2) if nodes == "50%" else int(nodes))
        if gone == len(old):
            break
    assert max(seen) >= {"0": 0, "1": 1, "50%": 2}[nodes]
    assert setting.gone(NODECLAIMS, *old) == (nodes != "0")


async def test_a_node_is_taken_inside_the_window_of_its_pods(setting: Driven) -> None:
    window = {names.DISRUPTION_SCHEDULE: "0 2 * * *", names.DISRUPTION_SCHEDULE_DURATION: "1h"}
    (old,) = await stand(setting, pool(), annotations=window)
    opens_at = setting.now().replace(hour=2, minute=0, second=0)
    taken = Taken(setting)
    await new_edition(setting)
    await setting.run_until(opens_at - timedelta(seconds=1))
    assert not taken.at
    assert not setting.tainted()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="1h")
    assert opens_at <= taken.at[old] < opens_at + timedelta(minutes=10)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gentle", [True, False])
async def test_a_restart_carries_on(setting: Driven, gentle: bool) -> None:
    (old,) = await stand(setting, pool())
    await new_edition(setting)
    await in_s3(setting, old)
    (new,) = others(setting, old)
    await (setting.program.stop() if gentle else setting.program.kill())
    record = setting.claim(old)
    assert record is not None
    assert names.DISRUPTION_COMMAND in record["metadata"]["annotations"]
    await setting.sim.run_for("10s")
    await setting.program.start()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="5m")
    assert others(setting) == [new]
    await setting.runs_all("web", 1)


async def test_a_replacement_that_never_comes_is_rolled_back(setting: Driven) -> None:
    (old,) = await stand(setting, pool())
    setting.cloud.next_launches(NEVER_UP, times=FOR_EVER)
    await new_edition(setting)
    await in_s3(setting, old)
    await setting.sim.run_for("11m")
    assert setting.notes(EventReason.DISRUPTION_ROLLED_BACK, old)
    assert not setting.tainted()
    assert setting.notes(EventReason.REPLACEMENT_FAILED, "default")
    record = setting.claim(old)
    assert record is not None
    assert names.DISRUPTION_COMMAND not in record["metadata"]["annotations"]
    assert all(setting.held().values())


async def test_a_replacement_that_vanishes_is_a_failed_one(setting: Driven) -> None:
    """As Karpenter does with a NodeClaim for which there is no capacity."""
    (old,) = await stand(setting, pool())
    setting.cloud.next_launches(NEVER_UP, times=FOR_EVER)
    await new_edition(setting)
    await in_s3(setting, old)
    (new,) = others(setting, old)
    await setting.delete_claim(new)
    await setting.sim.run_for("1m")
    assert setting.notes(EventReason.DISRUPTION_ROLLED_BACK, old)
    assert not setting.tainted()


async def test_room_that_others_have_taken_is_waited_for(setting: Driven) -> None:
    """Karpenter may place other pods on the replacement before its own arrive."""
    (old,) = await stand(setting, pool())
    await new_edition(setting)
    await in_s3(setting, old)
    (new,) = others(setting, old)
    await setting.program.stop()
    await setting.sim.wait_until(lambda: is_true(setting, new, ConditionType.INITIALIZED), timeout="5m")
    await setting.bind(node_of(setting, new), manifests.pod("intruder", cpu="2"))
    await setting.program.start()
    await setting.sim.run_for("2m")
    assert setting.tainted() == [node_of(setting, old)]
    await setting.sim.api.write(Delete(PODS, "intruder", namespace="default"))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old), timeout="3m")
    await setting.runs_all("web", 1)


# -- what is the user's ------------------------------------------------------------------------------------------------


async def test_a_users_annotation_is_respected_and_never_touched(setting: Driven) -> None:
    first, second = await stand(setting, pool(), replicas=2)
    node = node_of(setting, first)
    await setting.annotate(NODES, node, {names.HELD: None, names.DO_NOT_DISRUPT: None})
    await setting.annotate(NODES, node, {names.DO_NOT_DISRUPT: "true", names.HELD: None})
    await setting.sim.run_for("1m")
    before = setting.node(node)
    assert before is not None
    await new_edition(setting)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, second), timeout="10m")
    await setting.sim.run_for("30m")
    after = setting.node(node)
    assert after is not None
    assert after["metadata"]["annotations"].get(names.DO_NOT_DISRUPT) == "true"
    assert not setting.gone(NODECLAIMS, first)


async def test_a_pool_that_is_opted_out_stays_with_karpenter(setting: Driven) -> None:
    given = pool(budgets=[{"nodes": "0"}])
    given["metadata"]["annotations"] = {names.BESIDE: "off"}
    await stand(setting, given)
    assert not any(setting.held().values())
    assert not setting.writes()
    await setting.annotate(NODEPOOLS, "default", {names.BESIDE: None})
    await setting.sim.run_for("10s")
    assert all(setting.held().values())
    await setting.annotate(NODEPOOLS, "default", {names.BESIDE: "off"})
    await setting.sim.run_for("10s")
    assert not any(setting.held().values())


async def test_a_pool_that_is_opted_out_in_the_middle_of_a_command_keeps_no_mark(setting: Driven) -> None:
    (old,) = await stand(setting, pool())
    await new_edition(setting)
    await in_s3(setting, old)
    await edit_pool(setting, budgets=[{"nodes": "0"}])
    await setting.annotate(NODEPOOLS, "default", {names.BESIDE: "off"})
    await setting.sim.run_for("1m")
    found = setting.claim(old)
    assert found is not None
    assert names.DISRUPTION_COMMAND not in found["metadata"]["annotations"]
    assert not setting.tainted()
    assert not any(setting.held().values())


async def test_a_roll_replaces_a_node_and_can_be_taken_back(setting: Driven) -> None:
    first, second = await stand(setting, pool(budgets=[{"nodes": "0"}]), replicas=2)
    user = setting.sim.server.client("user")
    before = setting.claim(second)
    assert before is not None
    await roll(user, ["nodepool/default"])
    await setting.sim.run_for("5m")
    for each in (first, second):
        assert setting.condition(ConditionType.DRIFTED, each)["reason"] == ConditionReason.NODEPOOL_DRIFTED
    await roll(user, [f"nodeclaim/{second}"], undo=True)
    await setting.sim.run_for("10s")
    after = setting.claim(second)
    assert after is not None
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert not is_true(setting, second, ConditionType.DRIFTED)
    await edit_pool(setting, budgets=[{"nodes": "100%"}])
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, first), timeout="5m")
    await setting.sim.run_for("20m")
    assert not setting.gone(NODECLAIMS, second)


async def test_cleanup_leaves_objects_as_they_were(setting: Driven) -> None:
    """Holds, conditions, the stamp of a roll and candidates are gone; what Karpenter and users wrote stays."""
    await setting.program.stop()
    first, _ = await stand(setting, pool(budgets=[{"nodes": "0"}]), replicas=2)
    await scale(setting, 1)
    await setting.annotate(NODES, node_of(setting, first), {names.DO_NOT_DISRUPT: "true"})
    await setting.sim.run_for("1m")
    before = picture(setting.sim)
    await setting.program.start()
    await roll(setting.sim.server.client("user"), ["nodepool/default"])
    await setting.sim.run_for("2m")
    assert picture(setting.sim) != before
    await setting.program.stop()
    await clean(setting.sim.server.client("cleanup"), karpenter=True)
    await setting.sim.run_for("10s")  # Karpenter finds that the claims have not drifted after all
    assert picture(setting.sim) == before


async def test_a_quiet_cluster_costs_no_write(setting: Driven) -> None:
    await stand(setting, pool(), replicas=3)
    await setting.sim.run_for("5m")
    before = len(setting.writes())
    await setting.sim.run_for("6h")
    assert len(setting.writes()) == before
