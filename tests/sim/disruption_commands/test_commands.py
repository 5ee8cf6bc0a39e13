"""Commands that come to their end: replacements first, then the nodes go (02 §9)."""

from datetime import timedelta

import msgspec
import pytest

from dovetail.api import names
from dovetail.api.names import REPLACEMENT_OF, ConditionType, EventReason
from dovetail.planning.disruption.board import Method
from dovetail.planning.disruption.commands import PodDestination
from dovetail.ports import NODECLAIMS, NODES, Conflict, Forbidden, OutcomeUnknown, Unavailable
from dovetail.rules.budgets import pool_counts
from dovetail.runtime.dry_run import DryRunApi, WouldWrite
from dovetail.scheduling.placement import PodInfo
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.claims import node_class
from tests.harness.provisioning import BIG, pool_of_four
from tests.harness.stage import PARAMETER, stage
from tests.harness.termination import annotation, counted, is_deleting
from tests.sim.disruption_commands.setting import TAINT, Setting, play

pytestmark = stage(play)

REASON = ConditionType.DISRUPTION_REASON


def initialized(setting: Setting, claim: str) -> bool:
    return setting.condition(ConditionType.INITIALIZED, claim).get("status") == "True"


# -- with replacements -------------------------------------------------------------------------------------------------


async def test_a_node_goes_when_its_replacement_is_initialized(setting: Setting) -> None:
    (node,) = await setting.stand("a")
    command = setting.command("a", replacements=1)
    began_at = setting.now()
    assert await setting.start(command)
    await setting.sim.wait_until(lambda: setting.is_disrupting("a"))
    record = setting.record("a")
    assert record is not None
    assert (record.id, record.reason, record.deadline - began_at) == (command.id, "Drifted", timedelta(minutes=10))
    assert setting.condition(REASON, "a")["reason"] == "Drifted"
    (new,) = setting.replacements()
    name = new["metadata"]["name"]
    assert record.replacements == (name,)
    assert annotation(new, REPLACEMENT_OF) == command.id
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("a")))
    assert initialized(setting, name)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a") and setting.gone(NODES, node))
    await setting.sim.run_for("20m")
    assert [each["metadata"]["name"] for each in setting.claims()] == [name]


async def test_everything_happens_in_its_order(setting: Setting) -> None:
    """02 §9; the claim says S3 only when there is a place for its pods: they would be given another one before."""
    (node,) = await setting.stand("a")
    setting.program.api.requests.clear()
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("a")))
    (new,) = (each["metadata"]["name"] for each in setting.replacements())
    about = {
        "patch nodeclaims a": "record",
        f"patch nodes {node}": "taint",
        f"create nodeclaims {new}": "create",
        "patch nodeclaims a/status": "S3",
        "delete nodeclaims a": "delete",
    }
    order = list(dict.fromkeys(about[each] for each in setting.program.api.requests if each in about))
    assert order == ["record", "taint", "create", "S3", "delete"]


async def test_people_are_told(setting: Setting) -> None:
    (node,) = await setting.stand("a")
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))
    (new,) = setting.replacements()
    name = new["metadata"]["name"]
    assert setting.notes(EventReason.DISRUPTION_LAUNCHING, name) == ["Launching NodeClaim: Drifted"]
    (waiting,) = setting.notes(EventReason.DISRUPTION_WAITING_READINESS, name)
    assert waiting == "Replacement for a: waiting until it is ready"
    for about in ("a", node):
        (note,) = setting.notes(EventReason.DISRUPTION_TERMINATING, about)
        assert note == f"Draining: Drifted; replacement {name} is ready"
    created = setting.metrics.nodeclaims_created
    assert counted(created, reason="drifted", nodepool="default") == 1
    gone = {"reason": "drifted", "nodepool": "default", "consolidation_policy": "", "termination_mode": "graceful"}
    assert counted(setting.metrics.nodeclaims_disrupted, **gone) == 1


async def test_all_replacements_are_waited_for_and_all_nodes_go(setting: Setting) -> None:
    await setting.stand("a", "b", "c")
    setting.cloud.register_seconds = 30
    await setting.start(setting.command("a", "b", replacements=2))
    await setting.sim.wait_until(lambda: setting.is_disrupting("a") and setting.is_disrupting("b"))
    assert len(setting.replacements()) == 2
    await setting.sim.wait_until(lambda: any(is_deleting(setting.claim(name)) for name in "ab"))
    assert all(initialized(setting, each["metadata"]["name"]) for each in setting.replacements())
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a", "b"))
    assert setting.is_untouched("c")


async def test_pods_move_and_get_no_second_node(setting: Setting) -> None:
    """The provisioner sees that the node goes, and that there is one coming for its pods."""
    await setting.begin()
    await setting.sim.apply(manifests.deployment("web", replicas=1, cpu=BIG))
    await setting.runs_all("web", 1)
    await setting.sim.run_for("3m")  # after which it is said again where the pod is to go
    (old,) = setting.claims()
    (pod,) = setting.sim.pods(app="web")
    moved = PodInfo(uid=pod["metadata"]["uid"], name=pod["metadata"]["name"])
    # Long enough for the provisioner to plan before the replacement is there, if it did.
    setting.sim.server.faults.add(Fault(delay_seconds=5), verb="create", resource=NODECLAIMS, client=names.COMPONENT)
    await setting.drift(old["metadata"]["name"])
    await setting.sim.run_for("1s")
    await setting.start(setting.command(old["metadata"]["name"], replacements=1, pods=[moved]))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old["metadata"]["name"]))
    await setting.runs_all("web", 1)
    await setting.sim.run_for("5m")
    assert len(setting.cloud.machines) == 2
    (new,) = setting.claims()
    assert f"nodeclaim/{new['metadata']['name']}" in setting.notes(EventReason.NOMINATED, pod["metadata"]["name"])[-1]


async def test_nothing_is_asked_while_it_is_waited(setting: Setting) -> None:
    await setting.stand("a")
    setting.cloud.register_seconds = 500
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.run_for("40s")
    before = len(setting.program.api.requests)
    await setting.sim.run_for("6m")
    asked = [each for each in setting.program.api.requests[before:] if "nodeclaims" in each or "nodes" in each]
    assert [each for each in asked if not each.startswith(("watch", "list"))] == []


async def test_two_commands_at_once(setting: Setting) -> None:
    await setting.stand("a", "b")
    first, second = setting.command("a", replacements=1), setting.command("b", replacements=1)
    assert await setting.start(first)
    assert await setting.start(second)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a", "b"))
    assert {annotation(each, REPLACEMENT_OF) for each in setting.replacements()} == {first.id, second.id}


async def test_a_node_is_in_one_command_only(setting: Setting) -> None:
    await setting.stand("a", "b")
    command = setting.command("a", replacements=1)
    assert await setting.start(command)
    assert setting.commands.owns_claim("a")
    assert not setting.commands.owns_claim("b")
    await setting.sim.run_for("1s")
    assert not await setting.start(setting.command("a", "b"))
    await setting.sim.run_for("1s")
    assert setting.is_untouched("b")
    found = setting.record("a")
    assert found is not None
    assert found.id == command.id


async def test_budgets_count_nodes_from_the_start_of_the_command_to_the_end_of_the_node(setting: Setting) -> None:
    (node,) = await setting.stand("a")

    def consumers() -> list[str]:
        cluster = setting.program.cluster
        counts = pool_counts([cluster.member(claim) for claim in cluster.claims.values()])
        return [each.node for each in counts.consumers]

    assert consumers() == []
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.run_for("100ms")
    assert consumers() == [node]
    while not setting.gone(NODECLAIMS, "a"):
        assert consumers() == [node]
        await setting.sim.run_for("5s")
    await setting.sim.run_for("1s")
    assert consumers() == []


# -- without -----------------------------------------------------------------------------------------------------------


async def test_nodes_that_need_no_replacement_go_at_once(setting: Setting) -> None:
    nodes = await setting.stand("a", "b", "c")
    await setting.start(setting.command("a", "b", method=Method.EMPTINESS))
    await setting.sim.run_for("1s")
    for name, node in zip("ab", nodes, strict=False):
        assert is_deleting(setting.claim(name))
        assert TAINT in setting.taints(node)
        assert setting.condition(REASON, name)["reason"] == "Empty"
    assert setting.is_untouched("c")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a", "b"))
    policy = {"reason": "empty", "consolidation_policy": "when_empty_or_underutilized"}
    assert counted(setting.metrics.nodeclaims_disrupted, **policy) == 2
    assert not setting.replacements()


async def test_one_node_that_cannot_be_written_does_not_hold_up_the_others(setting: Setting) -> None:
    nodes = await setting.stand("a", "b")
    setting.sim.server.faults.add(Fault(Forbidden("no")), verb="patch", resource=NODES, name=nodes[0], times=1000)
    await setting.start(setting.command("a", "b", method=Method.EMPTINESS))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "b"))
    assert setting.record("a") is not None
    await setting.sim.run_for("11m")
    assert setting.is_untouched("a")


async def test_pods_are_expected_where_they_were_planned(setting: Setting) -> None:
    _, there = await setting.stand("a", "b")
    pod = PodInfo(uid="u1", name="web")
    command = setting.command("a", method=Method.SINGLE_NODE, pods=[pod])
    await setting.start(msgspec.structs.replace(command, landing={"u1": PodDestination(node=there)}))
    await setting.sim.run_for("1s")
    await setting.sim.apply(manifests.pod("web", cpu="100"))  # nobody is expected unless a pod waits
    assert "b" in setting.parts.state.nominations(setting.now() + timedelta(seconds=18))
    assert "b" not in setting.parts.state.nominations(setting.now() + timedelta(seconds=20))


async def test_a_replacement_is_kept_for_its_pods_when_the_drain_begins(setting: Setting) -> None:
    """The command has kept it so far; an empty node that has been quiet for long would go at once (R46)."""
    await setting.stand("a")
    await setting.sim.apply(manifests.pod("web", cpu="100"))  # nobody is expected unless a pod waits
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("a")))
    (new,) = (each["metadata"]["name"] for each in setting.replacements())
    assert new in setting.parts.state.nominations(setting.now() + timedelta(seconds=18))


# -- what goes wrong at the start --------------------------------------------------------------------------------------


async def test_a_command_of_which_not_all_could_be_written_down_is_taken_back(setting: Setting) -> None:
    await setting.stand("a", "b")
    setting.sim.server.faults.add(Fault(Conflict("no")), verb="patch", resource=NODECLAIMS, name="b")
    assert not await setting.start(setting.command("a", "b", replacements=1))
    await setting.sim.run_for("1s")
    assert setting.is_untouched("a")
    assert setting.is_untouched("b")
    assert not setting.replacements()
    assert setting.held_for() is not None


async def test_if_nothing_is_replaced_the_others_go_all_the_same(setting: Setting) -> None:
    await setting.stand("a", "b")
    setting.sim.server.faults.add(Fault(Conflict("no")), verb="patch", resource=NODECLAIMS, name="b")
    assert await setting.start(setting.command("a", "b", method=Method.EMPTINESS))
    await setting.sim.run_for("1s")
    assert is_deleting(setting.claim("a"))
    assert setting.is_untouched("b")
    assert not setting.commands.owns_claim("b")


async def test_a_record_that_was_written_though_nobody_knew_is_taken_back(setting: Setting) -> None:
    await setting.stand("a")
    fault = Fault(OutcomeUnknown("lost"), after=True)
    setting.sim.server.faults.add(fault, verb="patch", resource=NODECLAIMS, name="a")
    assert not await setting.start(setting.command("a", method=Method.EMPTINESS))
    await setting.sim.run_for("1m")
    assert setting.is_untouched("a")
    assert not setting.commands.owns_claim("a")


async def test_a_claim_that_is_going_or_another_one_is_not_taken(setting: Setting) -> None:
    await setting.stand("a", "b")
    command = setting.command("a")
    await setting.delete_claim("a")
    await setting.sim.run_for("1s")
    assert not await setting.start(command)
    another = msgspec.structs.replace(setting.candidate("b"), claim_uid="another")
    stranger = msgspec.structs.replace(setting.command("b"), candidates=(another,))
    assert not await setting.start(stranger)
    await setting.sim.run_for("1s")
    assert setting.is_untouched("b")


async def test_a_dry_run_writes_nothing(setting: Setting) -> None:
    await setting.stand("a")
    await setting.parts.refresh()
    dry = msgspec.structs.replace(setting.context(), api=DryRunApi(setting.program.api))
    with pytest.raises(WouldWrite):
        await setting.commands.start(dry, setting.command("a", replacements=1), setting.pools())
    await setting.sim.run_for("1m")
    assert setting.is_untouched("a")
    assert not setting.commands.owns_claim("a")
    assert setting.held_for() is None


# -- creating ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
async def test_a_create_whose_outcome_is_not_known_makes_one_replacement(setting: Setting, after: bool) -> None:
    await setting.stand("a")
    fault = Fault(OutcomeUnknown("lost"), after=after)
    setting.sim.server.faults.add(fault, verb="create", resource=NODECLAIMS, times=5)
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))
    assert len(setting.cloud.machines) == 2


async def test_a_server_that_is_away_for_a_while_is_waited_for(setting: Setting) -> None:
    await setting.stand("a")
    setting.sim.server.faults.add(Fault(Unavailable("away")), verb="create", resource=NODECLAIMS, times=20)
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))


async def test_a_static_pool_does_not_take_the_replacement_for_one_too_many(setting: Setting) -> None:
    await setting.sim.apply(node_class(), pool_of_four(replicas=1))
    await setting.sim.wait_until(lambda: any(initialized(setting, c["metadata"]["name"]) for c in setting.claims()))
    (old,) = (each["metadata"]["name"] for each in setting.claims())
    await setting.drift(old)
    await setting.sim.run_for("5s")
    slow = Fault(delay_seconds=5)
    setting.sim.server.faults.add(slow, verb="patch", resource=NODECLAIMS, name=old, subresource="status")
    await setting.start(setting.command(old, replacements=1, method=Method.STATIC_DRIFT))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old))
    await setting.sim.run_for("5m")
    assert len(setting.claims()) == 1
    assert len(setting.cloud.machines) == 2


@pytest.mark.parametrize("seed", range(5))
@stage(latency_seconds=0.3, seed=PARAMETER, shuffle=True)
async def test_the_same_with_a_slow_server_and_in_any_order(setting: Setting) -> None:
    await setting.stand("a", "b")
    await setting.start(setting.command("a", "b", replacements=1))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a", "b"))
    assert len(setting.claims()) == 1
