"""What is decided and carried out, with all controllers running: the edge cases 21–36 and 45–47 of 02 §14.

What stands elsewhere under another name is in `test_checklist.py`.
"""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.model.instance_types import TypeCatalogue
from dovetail.ports import NODECLAIMS, PODS, Patch, Resource
from dovetail.rules.states import NodeState
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from dovetail.sim.server.store import Change
from tests.harness import manifests
from tests.harness.claims import condition, put_status
from tests.harness.disruption import (
    Most,
    disrupted,
    drift,
    edit_pool,
    empty,
    found,
    hold,
    is_marked,
    is_true,
    node_of,
    others,
    play,
    pool,
    stand,
    state,
    touched,
)
from tests.harness.provisioning import BIG, OF_FOUR, Setting, pool_of_four
from tests.harness.stage import stage
from tests.harness.termination import GUARDED, annotation, is_deleting

pytestmark = stage(play)

FREE = {names.DO_NOT_DISRUPT: None}
OF_MANY = {**OF_FOUR, "values": [f"s-{cpus}x-amd64-linux" for cpus in (2, 4, 8)]}
OF_EIGHT = {**OF_FOUR, "values": ["s-8x-amd64-linux"]}
ON_DEMAND = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]}


def rejected(setting: Setting, claim: str) -> list[str]:
    return setting.notes(EventReason.CONSOLIDATION_REJECTED, claim)


async def release(setting: Setting, *claims: str) -> None:
    for claim in claims:
        await setting.annotate(PODS, f"p-{claim}", FREE)


# -- budgets -----------------------------------------------------------------------------------------------------------


async def test_a_consolidation_that_only_the_budget_held_back_begins_when_the_budget_opens(setting: Setting) -> None:
    """02 §14.22: By the clock alone: nothing else changes."""
    closed = {"nodes": "0", "schedule": "0 0 * * *", "duration": "2h"}
    await setting.begin(pool(budgets=[closed]))
    await hold(setting, "a", "b")
    opens_at = setting.now().replace(hour=2, minute=0, second=0, microsecond=0)
    await setting.run_until(opens_at)
    assert touched(setting) == []
    assert is_marked(setting, "a")
    assert await setting.seconds_until(lambda: len(touched(setting)) == 1) <= 17


async def test_what_is_on_its_way_counts_and_nothing_new_begins(setting: Setting) -> None:
    """02 §14.23."""
    await setting.begin(pool(budgets=[{"nodes": "3"}], consolidateAfter="Never"))
    old = ["a", "b", "c", "d", "e", "f"]
    await hold(setting, *old, pods={"cpu": BIG})
    setting.cloud.next_launches(Launch(ready=False), times=3)
    most = Most(setting)
    await drift(setting, *old)
    await setting.sim.wait_until(lambda: len(touched(setting)) == 3, timeout="1m")
    began = sorted(touched(setting))
    await setting.sim.run_for("8m")
    assert sorted(touched(setting)) == began
    assert all(state(setting, claim) is NodeState.DISRUPTING for claim in began)
    for new in others(setting, *old):
        setting.sim.set_node_ready(node_of(setting, new), ready=True)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, *old), timeout="30m")
    assert most.of == {"default": 3}


# -- drift -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["False", "Unknown"])
async def test_drifted_that_is_not_true_is_no_reason(setting: Setting, status: str) -> None:
    """02 §14.27."""
    await setting.begin(pool(consolidateAfter="Never"))
    await hold(setting, "a", "b")
    there = found(setting, "a")["status"]["conditions"]
    await put_status(setting.sim, NODECLAIMS, "a", {"conditions": [*there, condition(ConditionType.DRIFTED, status)]})
    await setting.sim.run_for("10m")
    assert touched(setting) == []
    assert not is_marked(setting, "a")


@pytest.mark.parametrize(("after", "reason"), [("0s", "empty"), ("Never", "drifted")])
async def test_an_empty_node_that_has_drifted_goes_as_empty_unless_that_is_no_reason(
    setting: Setting, after: str, reason: str
) -> None:
    """02 §14.28."""
    await setting.begin(pool(consolidateAfter=after))
    await hold(setting, "a", pods={"annotations": GUARDED})
    await drift(setting, "a")
    await empty(setting, "a")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))
    went = {each: disrupted(setting, each) for each in ("empty", "drifted", "underutilized")}
    assert went == {"empty": 0, "drifted": 0, "underutilized": 0, reason: 1}
    assert setting.claims() == []


async def test_nodes_of_a_static_pool_only_drift(setting: Setting) -> None:
    """02 §14.29: Neither empty nor underused ones go, with another pool beside in which both do."""
    told = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    await setting.begin(pool(), pool_of_four("static", replicas=3, disruption=told))

    def up() -> list[str]:
        return [each for each in others(setting, pool="static") if is_true(setting, each, ConditionType.INITIALIZED)]

    await setting.sim.wait_until(lambda: len(up()) == 3)
    first, second, third = up()
    for claim in (first, second):
        await setting.bind(node_of(setting, claim), manifests.pod(f"p-{claim}"))
    await hold(setting, "dynamic")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "dynamic"), timeout="2m")
    await setting.sim.run_for("30m")
    assert sorted(others(setting)) == sorted([first, second, third])
    assert touched(setting) == []
    await drift(setting, first, third)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, first, third))
    await setting.sim.run_for("10m")
    assert len(up()) == len(setting.claims()) == 3
    assert second in up()
    assert disrupted(setting, "drifted") == 2


# -- commands ----------------------------------------------------------------------------------------------------------


async def test_a_replacement_that_the_watch_does_not_show_is_waited_for(setting: Setting) -> None:
    """02 §14.31."""
    (old,) = await stand(setting, pool())
    faults = setting.sim.server.faults
    faults.add(Fault(delay_seconds=45), verb="watch", resource=NODECLAIMS, client=names.COMPONENT)

    def break_watch(kind: Resource[Any], change: Change) -> None:
        if (kind.plural, change.type) == (NODECLAIMS.plural, "ADDED"):
            faults.drop_watches(NODECLAIMS)

    setting.sim.server.registry.store.observers.append(break_watch)
    await drift(setting, old)
    await setting.sim.wait_until(lambda: len(setting.claims()) == 2, timeout="10s")
    (new,) = others(setting, old)
    await setting.sim.run_for("40s")
    kept = setting.program.cluster.claims.get(("", new))
    assert kept is not None
    assert kept.value.status.conditions == [], "the watch has told nothing of it"
    assert sorted(others(setting)) == sorted([old, new])
    assert touched(setting) == [old]
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old))
    assert others(setting) == [new]
    await setting.runs_all("web", 1)


async def test_a_node_that_gets_a_second_reason_stays_in_its_command(setting: Setting) -> None:
    """02 §14.36."""
    await setting.begin(pool())
    await hold(setting, "a", pods={"cpu": BIG})
    setting.cloud.next_launches(Launch(ready=False))
    await drift(setting, "a")
    await setting.sim.wait_until(lambda: touched(setting) == ["a"])
    command = annotation(setting.claim("a"), names.DISRUPTION_COMMAND)
    assert command is not None
    await empty(setting, "a")
    await setting.sim.run_for("5m")
    assert annotation(setting.claim("a"), names.DISRUPTION_COMMAND) == command
    assert state(setting, "a") is NodeState.DISRUPTING
    (new,) = others(setting, "a")
    setting.sim.set_node_ready(node_of(setting, new), ready=True)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))
    assert len(setting.requests("delete", NODECLAIMS, "a")) == 1
    assert disrupted(setting, "drifted") == 1


# -- the 15 s before it begins -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["protected", "budgeted", "nominated"])
async def test_a_change_within_15_seconds_calls_a_consolidation_off(setting: Setting, change: str) -> None:
    """02 §14.45: A new pod that is protected, or that a PodDisruptionBudget keeps, or one that is on its way there."""
    await setting.begin(pool())
    await setting.sim.apply(manifests.pdb("new", minAvailable=1))
    await hold(setting, "a", pods={"annotations": GUARDED})
    await hold(setting, "b", pods={"annotations": GUARDED, "cpu": "3500m"})
    await setting.sim.run_for("20s")
    await release(setting, "a")
    await setting.sim.run_for("5s")
    assert is_marked(setting, "a")
    node = node_of(setting, "a")
    if change == "nominated":  # another scheduler has not yet put it where it will go
        await setting.sim.apply(manifests.pod("new", schedulerName="slow", cpu="1"))
        unschedulable = condition("PodScheduled", "False", reason="Unschedulable")
        body: dict[str, Any] = {"status": {"conditions": [unschedulable]}}
        raw = PODS.read_as(dict[str, Any])
        await setting.sim.api.write(Patch(raw, "new", body, namespace="default", subresource="status"))
        state = setting.provisioner.state
        await setting.sim.wait_until(lambda: "a" in state.nominations(setting.now()), timeout="9s")
    else:
        told = GUARDED if change == "protected" else {}
        await setting.bind(node, manifests.pod("new", annotations=told))
    await setting.sim.run_for("15s")
    assert touched(setting) == []
    (note,) = rejected(setting, "a")
    assert note.startswith("churn")
    await setting.sim.run_for("10m")
    if change != "nominated":
        assert touched(setting) == []


async def test_another_list_of_types_calls_a_consolidation_off(setting: Setting) -> None:
    """02 §14.45: Of the types that were planned one is no longer there; what is left is planned anew."""
    await setting.begin(pool(template={"requirements": [OF_MANY]}))
    await hold(setting, "a", pods={"annotations": GUARDED}, requirements=[OF_EIGHT, ON_DEMAND])
    await setting.sim.run_for("20s")
    await release(setting, "a")
    await setting.sim.run_for("5s")
    usual = setting.cloud.instance_types

    async def fewer(asked: Any) -> Any:
        types = (await usual(asked)).types
        return TypeCatalogue(1, [each for each in types if each.name != "s-2x-amd64-linux"])

    setting.cloud.instance_types = fewer  # type: ignore[assignment, method-assign]
    await edit_pool(setting, budgets=[{"nodes": "99%"}])  # it is asked for its types anew
    await setting.sim.run_for("13s")
    assert touched(setting) == []
    (note,) = rejected(setting, "a")
    assert note == "scheduling: some of the planned instance types would not do any more"
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))
    (new,) = setting.claims()
    assert new["metadata"]["labels"][names.INSTANCE_TYPE_LABEL] == "s-4x-amd64-linux"


async def test_of_empty_nodes_those_go_that_still_are(setting: Setting) -> None:
    """02 §14.46."""
    await setting.begin(pool())
    await hold(setting, "a", "b", "c", pods={"annotations": GUARDED})
    await setting.sim.run_for("20s")
    for claim in ("a", "b", "c"):
        await empty(setting, claim)
    await setting.sim.run_for("5s")
    await setting.bind(node_of(setting, "b"), manifests.pod("new", annotations=GUARDED))
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("a")) and is_deleting(setting.claim("c")))
    await setting.sim.run_for("30m")
    assert others(setting) == ["b"]
    assert touched(setting) == []
    (note,) = rejected(setting, "b")
    assert note.startswith("churn")


async def test_of_a_set_none_goes_and_a_single_one_does_at_the_next_look(setting: Setting) -> None:
    """02 §14.46–47.

    Two of three could go. One no longer may, so both stay; and the other one goes alone, though nothing changes."""
    await setting.begin(pool())
    await hold(setting, "a", "b", "c", pods={"annotations": GUARDED})
    await setting.sim.run_for("20s")
    began_at = setting.now()
    await release(setting, "a", "b")
    await setting.sim.run_for("5s")
    assert is_marked(setting, "a")
    assert is_marked(setting, "b")
    await setting.bind(node_of(setting, "b"), manifests.pod("new", annotations=GUARDED))
    await setting.sim.wait_until(lambda: bool(rejected(setting, "a") and rejected(setting, "b")), timeout="20s")
    assert touched(setting) == []
    assert (setting.now() - began_at).total_seconds() <= 20
    assert await setting.seconds_until(lambda: touched(setting) == ["a"]) <= 18
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))
    await setting.sim.run_for("10m")
    assert sorted(others(setting)) == ["b", "c"]
