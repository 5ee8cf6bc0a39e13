"""The states of seed 003 and the ways between them, with all controllers running: what goes where, when, and back."""

from datetime import timedelta

from dovetail.api import names
from dovetail.api.names import ConditionType, EventReason
from dovetail.ports import NODECLAIMS, NODES
from dovetail.rules.states import NodeState
from dovetail.sim.actors.wire import created_at
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.faults import Fault
from dovetail.values.timestamp import format_time
from tests.harness import manifests
from tests.harness.disruption import (
    CANDIDATE,
    DISRUPTED,
    Most,
    Taken,
    disrupted,
    drift,
    edit_pool,
    edit_template,
    empty,
    found,
    hold,
    is_marked,
    is_true,
    node_of,
    others,
    play,
    pool,
    scale,
    stand,
    state,
    touched,
)
from tests.harness.provisioning import OF_FOUR, Setting
from tests.harness.stage import stage
from tests.harness.termination import is_deleting

pytestmark = stage(play)

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
NOTHING = {"nodes": "0"}


# -- S1 → S2 → S1 ------------------------------------------------------------------------------------------------------


async def test_a_candidate_that_is_undrifted_is_none_any_more(setting: Setting) -> None:
    """Seed 003: "Candidate nodes get tainted as PreferNoSchedule … If a node is un-drifted or becomes utilized, the
    candidacy is removed (S2 → S1)"."""
    (claim,) = await stand(setting, pool(budgets=[NOTHING]))
    assert state(setting, claim) is NodeState.STEADY
    await drift(setting, claim)
    await setting.sim.run_for("3s")
    assert state(setting, claim) is NodeState.CANDIDATE
    assert is_marked(setting, claim)
    assert setting.condition(ConditionType.DISRUPTION_STATE, claim)["reason"] == "S2"
    await drift(setting, claim, drifted=False)
    await setting.sim.run_for("3s")
    assert state(setting, claim) is NodeState.STEADY
    assert setting.taints(node_of(setting, claim)) == []
    assert setting.condition(ConditionType.DISRUPTION_STATE, claim)["reason"] == "S1"
    assert touched(setting) == []


async def test_a_candidate_whose_pods_window_closes_is_none_any_more(setting: Setting) -> None:
    """Nothing but time changes, and nothing asks to look but the end of the window."""
    window = {names.DISRUPTION_SCHEDULE: "0 0 * * *", names.DISRUPTION_SCHEDULE_DURATION: "30m"}
    (claim,) = await stand(setting, pool(budgets=[NOTHING]), annotations=window)
    await drift(setting, claim)
    await setting.sim.run_for("3s")
    assert is_marked(setting, claim)
    await setting.sim.run_for("30m")
    assert setting.taints(node_of(setting, claim)) == []


async def test_an_empty_candidate_that_gets_a_pod_is_none_any_more(setting: Setting) -> None:
    """Seed 003: "If a node … becomes utilized, the candidacy is removed (S2 → S1)"."""
    (claim,) = await stand(setting, pool(budgets=[NOTHING]))
    await scale(setting, 0)
    await setting.sim.run_for("10s")
    assert is_marked(setting, claim)
    assert state(setting, claim) is NodeState.CANDIDATE
    await scale(setting, 1)
    await setting.runs_all("web", 1)
    await setting.sim.run_for("3s")
    assert state(setting, claim) is NodeState.STEADY
    assert not is_marked(setting, claim)
    assert len(setting.claims()) == 1, "the taint only asks the scheduler to prefer others, and there are none"


async def test_a_candidate_is_the_schedulers_last_choice(setting: Setting) -> None:
    """Seed 003: "Candidate nodes get tainted as PreferNoSchedule, so pods prioritize scheduling elsewhere"."""
    await setting.begin(pool(budgets=[NOTHING], consolidateAfter="Never"))
    first, second = await hold(setting, "a", "b")
    await drift(setting, "a")
    await setting.sim.run_for("3s")
    assert (CANDIDATE in setting.taints(first), CANDIDATE in setting.taints(second)) == (True, False)
    await setting.sim.apply(manifests.deployment("web", replicas=8, cpu="100m"))
    await setting.runs_all("web", 8)
    assert {pod["spec"]["nodeName"] for pod in setting.sim.pods(app="web")} == {second}


async def test_a_node_that_would_be_consolidated_is_marked_while_its_budget_is_nothing(setting: Setting) -> None:
    """R22: "Standing" for Underutilized means that the latest completed pass found a valid command with it."""
    await setting.begin(pool(budgets=[NOTHING]))
    await hold(setting, "a", "b")
    await setting.sim.run_for("5s")
    assert is_marked(setting, "a")
    assert is_marked(setting, "b")
    await setting.annotate(NODES, node_of(setting, "a"), {names.DO_NOT_DISRUPT: "true"})
    await setting.sim.run_for("5s")
    assert not is_marked(setting, "a"), "a rule other than a budget holds it"
    assert is_marked(setting, "b")
    await setting.annotate(NODES, node_of(setting, "a"), {names.DO_NOT_DISRUPT: None})
    await edit_pool(setting, consolidateAfter="Never")
    await setting.sim.run_for("5s")
    assert not is_marked(setting, "a")
    assert not is_marked(setting, "b")


# -- S2 → S3 → S2 ------------------------------------------------------------------------------------------------------


async def test_a_replacement_that_does_not_come_up_within_ten_minutes_brings_the_node_back(setting: Setting) -> None:
    """Seed 003: "… if necessary capacity for the pods doesn't initialize within 10 minutes, at which point the taint is
    removed, and the node goes back to being a Disruption Candidate (S3 → S2)". R23: tried again after 1, 2, 4 min."""
    (old,) = await stand(setting, pool())
    setting.cloud.next_launches(Launch(registers=False), times=4)
    taken = Taken(setting)
    await drift(setting, old)
    await setting.sim.wait_until(lambda: state(setting, old) is NodeState.DISRUPTING)
    for pause in (1, 2, 4):
        assert DISRUPTED in setting.taints(node_of(setting, old))
        (new,) = others(setting, old)
        gives_up_at = taken.at[old] + 10 * MINUTE
        await setting.run_until(gives_up_at - SECOND)
        assert state(setting, old) is NodeState.DISRUPTING
        await setting.run_until(gives_up_at + SECOND)
        assert state(setting, old) is NodeState.CANDIDATE
        assert DISRUPTED not in setting.taints(node_of(setting, old))
        assert setting.condition(ConditionType.DISRUPTION_REASON, old) == {}
        assert is_deleting(setting.claim(new)), "it never registered"
        assert setting.notes(EventReason.DISRUPTION_ROLLED_BACK, old)[-1].endswith(f"by {format_time(gives_up_at)}")
        await setting.run_until(gives_up_at + pause * MINUTE - SECOND)
        assert state(setting, old) is NodeState.CANDIDATE
        assert CANDIDATE in setting.taints(node_of(setting, old)), "the reason still stands"
        taken = Taken(setting)
        await setting.run_until(gives_up_at + pause * MINUTE + SECOND)
        assert state(setting, old) is NodeState.DISRUPTING
    assert len(setting.sim.pods(app="web", ready=True)) == 1


async def test_a_success_ends_the_pauses_of_a_pool(setting: Setting) -> None:
    """R23: back-off per NodePool, reset by a success."""
    first, second = await stand(setting, pool(budgets=[{"nodes": "1"}]), replicas=2)
    setting.cloud.next_launches(Launch(registers=False), times=2)
    await drift(setting, first)
    await setting.sim.run_for("21m30s")  # 10 and 10, with a minute between them: the next one is 2 min off
    assert state(setting, first) is NodeState.CANDIDATE
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, first))
    setting.cloud.next_launches(Launch(registers=False))
    await setting.sim.run_for("1m")
    await drift(setting, second)
    await setting.sim.wait_until(lambda: state(setting, second) is NodeState.DISRUPTING)
    await setting.sim.run_for("10m30s")
    assert state(setting, second) is NodeState.CANDIDATE
    await setting.sim.run_for("45s")
    assert state(setting, second) is NodeState.DISRUPTING, "after one minute, not four"


async def test_a_pool_that_has_to_wait_holds_back_no_other(setting: Setting) -> None:
    """R23: per NodePool."""
    pools = [pool("blue", team="blue"), pool("green", team="green")]
    (blue,) = await stand(setting, *pools, app="b", nodeSelector={"team": "blue"})
    setting.cloud.next_launches(Launch(registers=False))
    await drift(setting, blue)
    await setting.sim.run_for("10m15s")
    assert state(setting, blue) is NodeState.CANDIDATE
    await stand(setting, app="g", nodeSelector={"team": "green"})
    await setting.sim.wait_until(lambda: state(setting, blue) is NodeState.DISRUPTING)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, blue))
    (green,) = (each["metadata"]["name"] for each in setting.claims("green"))
    (blue,) = (each["metadata"]["name"] for each in setting.claims("blue"))
    setting.cloud.next_launches(Launch(registers=False))
    await drift(setting, blue)
    await setting.sim.run_for("10m15s")
    assert state(setting, blue) is NodeState.CANDIDATE
    await drift(setting, green)
    assert await setting.seconds_until(lambda: state(setting, green) is NodeState.DISRUPTING) <= 2
    assert state(setting, blue) is NodeState.CANDIDATE


async def test_a_replacement_that_registered_stays_and_serves_when_it_is_ready_at_last(setting: Setting) -> None:
    """R23: a registered replacement stays and is ordinary capacity."""
    (old,) = await stand(setting, pool(consolidateAfter="5m"))
    setting.cloud.next_launches(Launch(ready=False))
    await drift(setting, old)
    await setting.sim.run_for("10m10s")
    assert state(setting, old) is NodeState.CANDIDATE
    (new,) = others(setting, old)
    assert is_true(setting, new, ConditionType.REGISTERED)
    assert not is_deleting(setting.claim(new))
    setting.sim.set_node_ready(node_of(setting, new), ready=True)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old))
    await setting.runs_all("web", 1)
    assert [each["metadata"]["name"] for each in setting.claims()] == [new], "no further machine was needed"


# -- S3 → S4 -----------------------------------------------------------------------------------------------------------


async def test_a_node_goes_only_when_all_of_its_replacements_are_initialized(setting: Setting) -> None:
    """Seed 003: "Karpenter waits for necessary capacity in the cluster to be healthy and initialized. Once capacity is
    available, Karpenter will kubectl delete the node(s)"."""
    both = {**OF_FOUR, "values": ["s-4x-amd64-linux", "s-8x-amd64-linux"]}
    await setting.begin(pool(template={"requirements": [both]}, consolidationPolicy="WhenEmpty"))
    await setting.launch("old", requirements=[{**OF_FOUR, "values": ["s-8x-amd64-linux"]}])
    await setting.sim.apply(manifests.deployment("web", replicas=2, cpu="3"))
    await setting.runs_all("web", 2)
    assert [each["metadata"]["name"] for each in setting.claims()] == ["old"]
    setting.cloud.exhaust("s-8x-amd64-linux")
    setting.cloud.next_launches(Launch())
    setting.cloud.next_launches(Launch(ready=False))
    await edit_template(setting, spec={"requirements": [OF_FOUR]})
    await setting.sim.wait_until(lambda: len(setting.claims()) == 3)
    began_at = setting.now()
    await setting.run_until(began_at + 3 * MINUTE)
    ready = [each for each in others(setting, "old") if is_true(setting, each, ConditionType.INITIALIZED)]
    assert len(ready) == 1
    assert state(setting, "old") is NodeState.DISRUPTING
    assert len(setting.sim.pods(app="web", ready=True)) == 2
    (late,) = set(others(setting, "old")) - set(ready)
    setting.sim.set_node_ready(node_of(setting, late), ready=True)
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("old")))
    assert all(is_true(setting, each, ConditionType.INITIALIZED) for each in others(setting, "old"))
    assert len(others(setting, "old")) == 2
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "old"))
    await setting.runs_all("web", 2)


async def test_a_replacement_that_waits_for_another_is_empty_and_stays(setting: Setting) -> None:
    """Seed 003: "Karpenter waits for necessary capacity": what is there already is part of it, expected pods or not."""
    both = {**OF_FOUR, "values": ["s-4x-amd64-linux", "s-8x-amd64-linux"]}
    await setting.begin(pool(template={"requirements": [both]}, consolidationPolicy="WhenEmpty"))
    await setting.launch("old", requirements=[{**OF_FOUR, "values": ["s-8x-amd64-linux"]}])
    await setting.sim.apply(manifests.deployment("web", replicas=2, cpu="3"))
    await setting.runs_all("web", 2)
    setting.cloud.next_launches(Launch())
    setting.cloud.next_launches(Launch(seconds=250))
    await edit_template(setting, spec={"requirements": [OF_FOUR]})
    await setting.sim.wait_until(lambda: len(setting.claims()) == 3)
    new = others(setting, "old")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "old"))
    assert disrupted(setting, "empty") == 0
    assert sorted(others(setting)) == sorted(new), "the first ones, and none besides"
    await setting.runs_all("web", 2)


async def test_never_more_go_at_once_than_the_budget_says(setting: Setting) -> None:
    """Seed 003: "All nodes in S3 through S6 are counted against NDBs, limiting the number of nodes that are nominated
    (T2) for disruption"."""
    old = await stand(setting, pool(budgets=[{"nodes": "1"}]), replicas=4)
    most = Most(setting)
    await drift(setting, *old)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, *old), timeout="30m")
    await setting.runs_all("web", 4)
    assert most.of == {"default": 1}
    assert disrupted(setting, "drifted") == 4
    assert len(setting.claims()) == 4


async def test_pods_have_a_place_before_theirs_goes(setting: Setting) -> None:
    """T3 of seed 003, seen from the pods: nobody ever waits for a node."""
    old = await stand(setting, pool(budgets=[{"nodes": "50%"}]), replicas=4)
    waited: list[str] = []
    await drift(setting, *old)
    while not setting.gone(NODECLAIMS, *old):
        await setting.sim.run_for("1s")
        waited += [
            pod["metadata"]["name"]
            for pod in setting.sim.pods(app="web")
            if not pod["spec"].get("nodeName") and not is_deleting(pod)
        ]
    assert waited == []


# -- S1 → S4 -----------------------------------------------------------------------------------------------------------


async def test_expired_unhealthy_and_interrupted_nodes_go_at_once_and_use_up_the_budget_of_the_others(
    setting: Setting,
) -> None:
    """Seed 003: "Karpenter immediately begins gracefully terminating nodes that are interrupted, unhealthy, or expired
    as soon as they're detected, without waiting for replacement nodes", budget or not; and they count (R26)."""
    await setting.begin(pool(budgets=[{"nodes": "3"}], consolidateAfter="Never"))
    setting.cloud.delete_seconds = 3600
    await hold(setting, "expired", pods={"cpu": "3"}, expireAfter="30m")
    await hold(setting, "ill", "spot", "drifted", *(f"steady-{number}" for number in range(4)), pods={"cpu": "3"})
    began_at = setting.now()
    setting.sim.set_node_ready(node_of(setting, "ill"), ready=False)
    setting.cloud.interrupt(str(found(setting, "spot")["status"]["providerID"]))
    await setting.sim.run_for("1s")
    assert state(setting, "spot") is NodeState.DRAINING
    await setting.sim.run_for("10m")
    assert is_deleting(setting.claim("ill"))
    await setting.sim.wait_until(lambda: is_deleting(setting.claim("expired")), timeout="30m")
    assert sorted(touched(setting)) == ["expired", "ill", "spot"]
    assert len(setting.claims()) == 8, "nobody waits for replacements: their pods are nobody's"
    await drift(setting, "drifted")
    await setting.run_until(began_at + 60 * MINUTE)
    assert state(setting, "drifted") is NodeState.CANDIDATE, "3 of 3 are on their way"
    assert is_marked(setting, "drifted")
    await setting.sim.wait_until(lambda: state(setting, "drifted") is NodeState.DISRUPTING, timeout="30m")
    assert len(touched(setting)) == 3
    assert disrupted(setting, "expired") == disrupted(setting, "unhealthy") == disrupted(setting, "interrupted") == 1


async def test_a_budget_of_nothing_does_not_keep_an_expired_node(setting: Setting) -> None:
    """Seed 003: "Revert Expiration's semantic to be Forceful, bypassing past NDBs and do-not-disrupt"; R19."""
    told = pool(budgets=[NOTHING], template={"expireAfter": "1h"})
    (old,) = await stand(setting, told)
    await setting.annotate(NODES, node_of(setting, old), {names.DO_NOT_DISRUPT: "true"})
    expires_at = created_at(found(setting, old)) + 60 * MINUTE
    await setting.run_until(expires_at - SECOND)
    assert not is_deleting(setting.claim(old))
    await setting.run_past(expires_at)
    assert is_deleting(setting.claim(old))
    assert len(setting.claims()) == 1, "nothing was brought up first"
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old))
    await setting.runs_all("web", 1)


async def test_a_node_in_s3_that_is_interrupted_does_not_wait_for_its_replacement(setting: Setting) -> None:
    """T1b of seed 003 holds in every state before S4."""
    (old,) = await stand(setting, pool())
    setting.cloud.next_launches(Launch(seconds=120))
    await drift(setting, old)
    await setting.sim.wait_until(lambda: state(setting, old) is NodeState.DISRUPTING)
    setting.cloud.interrupt(str(found(setting, old)["status"]["providerID"]))
    await setting.sim.run_for("1s")
    assert state(setting, old) is NodeState.DRAINING
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old))
    await setting.runs_all("web", 1)
    await setting.sim.run_for("15m")
    assert len(setting.claims()) == 1
    assert touched(setting) == []


async def test_nodes_whose_reason_is_still_being_written_are_waited_for_and_go_together(setting: Setting) -> None:
    """A slow answer to one of the writes: nothing is decided before the other node is known to be empty, too."""
    await setting.begin(pool(consolidateAfter="Never"))
    await hold(setting, "one", "two")
    await empty(setting, "one")
    await empty(setting, "two")
    await setting.sim.run_for("1m")
    slow = Fault(delay_seconds=6)
    setting.sim.server.faults.add(slow, verb="patch", resource=NODECLAIMS, name="two", subresource="status")
    taken = Taken(setting)
    await edit_pool(setting, consolidateAfter="0s")
    await setting.sim.wait_until(lambda: not setting.claims(), timeout="5m")
    assert taken.at["one"] == taken.at["two"]


async def test_a_writer_that_takes_very_long_holds_nobody_up_for_long(setting: Setting) -> None:
    await setting.begin(pool(consolidateAfter="Never"))
    await hold(setting, "one", "two")
    await empty(setting, "one")
    await setting.sim.run_for("1m")
    stuck = Fault(delay_seconds=110)
    setting.sim.server.faults.add(stuck, verb="patch", resource=NODECLAIMS, name="two", subresource="status")
    await edit_pool(setting, consolidateAfter="0s")
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "one"), timeout="100s")
    assert not is_true(setting, "two", ConditionType.CONSOLIDATABLE)  # it is still being written
    await setting.sim.run_for("1m")
    assert is_true(setting, "two", ConditionType.CONSOLIDATABLE)
