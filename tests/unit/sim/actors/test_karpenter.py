"""The simulated Karpenter, row by row of what is known of the real one (10 §1). tests/peer tries more, on both."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.ports import Patch
from dovetail.sim.actors.wire import Raw, deleting
from dovetail.sim.cloud.machines import Launch
from dovetail.values.timestamp import parse_time
from tests.contract.backends import condition
from tests.contract.bodies import LEASES, NODECLAIMS, PDBS
from tests.harness.beside import NO_BUDGET, BesideKarpenter, SimulatedBeside


@pytest.fixture
def world() -> SimulatedBeside:
    return SimulatedBeside()


@pytest.fixture
def beside(world: SimulatedBeside) -> BesideKarpenter:
    return BesideKarpenter(world)


def since(obj: Raw, type_: ConditionType) -> Any:
    return parse_time(condition(obj, type_)["lastTransitionTime"])


async def test_it_drifts_at_once_and_acts_with_the_next_look(beside: BesideKarpenter) -> None:
    pool = await beside.pool()
    await beside.run(pool)
    (old,) = await beside.claims(pool)
    stamped_at = beside.cluster.now()
    await beside.stamp(old)
    await beside.until(old, ConditionType.DRIFTED, timeout=1)
    await beside.until(old, ConditionType.DISRUPTION_REASON, timeout=11)
    assert beside.cluster.now() - stamped_at <= timedelta(seconds=11)


async def test_empty_nodes_go_after_a_second_look(beside: BesideKarpenter) -> None:
    pool = await beside.pool(consolidateAfter="0s")
    app = await beside.run(pool)
    (claim,) = await beside.claims(pool)
    await beside.remove(app)
    await beside.until(claim, ConditionType.CONSOLIDATABLE, timeout=20)
    found = await beside.claim(claim)
    assert found is not None
    empty_since = since(found, ConditionType.CONSOLIDATABLE)
    await beside.until_going(claim, timeout=30)
    assert timedelta(seconds=15) <= beside.cluster.now() - empty_since <= timedelta(seconds=27)


async def test_a_command_ends_with_its_time_when_no_replacement_comes(
    beside: BesideKarpenter, world: SimulatedBeside
) -> None:
    """After 10 minutes it is taken back."""
    pool = await beside.pool()
    await beside.run(pool)
    (old,) = await beside.claims(pool)
    world.cloud.next_launches(Launch(registers=False), times=10)
    await beside.stamp(old)
    await beside.until(old, ConditionType.DISRUPTION_REASON, timeout=11)
    began_at = beside.cluster.now()
    await beside.until(old, ConditionType.DISRUPTION_REASON, timeout=700, status="")
    assert timedelta(minutes=9) < beside.cluster.now() - began_at < timedelta(minutes=11)
    await beside.until_untainted(old, names.DISRUPTED_TAINT, timeout=3)


async def test_a_restart_forgets_its_commands(beside: BesideKarpenter, world: SimulatedBeside) -> None:
    pool = await beside.pool(boots="1m", budgets=[{"nodes": "1"}])
    await beside.run(pool)
    (old,) = await beside.claims(pool)
    await beside.stamp(old)
    await beside.until(old, ConditionType.DISRUPTION_REASON, timeout=11)
    await world.karpenter.kill()
    await beside.annotate_node(old, "true")
    await world.karpenter.start()
    await beside.until(old, ConditionType.DISRUPTION_REASON, timeout=30, status="")
    await beside.until_untainted(old, names.DISRUPTED_TAINT, timeout=3)
    await beside.untouched(old, seconds=60)


async def test_it_removes_its_taint_from_other_nodes_within_3_seconds(beside: BesideKarpenter) -> None:
    pool = await beside.pool()
    await beside.run(pool)
    (claim,) = await beside.claims(pool)
    await beside.taint(claim, names.DISRUPTED_TAINT)
    await beside.until_untainted(claim, names.DISRUPTED_TAINT, timeout=3)


async def test_a_hash_that_is_put_back_clears_drift_within_3_seconds(beside: BesideKarpenter) -> None:
    pool = await beside.pool(budgets=[NO_BUDGET])
    await beside.run(pool)
    (claim,) = await beside.claims(pool)
    await beside.stamp(claim)
    await beside.until(claim, ConditionType.DRIFTED, timeout=1)
    await beside.stamp(claim, claim["metadata"]["annotations"][names.NODEPOOL_HASH])
    await beside.until(claim, ConditionType.DRIFTED, timeout=3, status="")


async def test_expiry_asks_neither_the_node_nor_a_budget(beside: BesideKarpenter) -> None:
    pool = await beside.pool(budgets=[NO_BUDGET], template={"expireAfter": "5m"})
    await beside.run(pool)
    (claim,) = await beside.claims(pool)
    await beside.annotate_node(claim, "true")
    await beside.untouched(claim, seconds=240)
    await beside.until_going(claim, timeout=60)


async def test_schedules_of_pods_mean_nothing_to_it(beside: BesideKarpenter) -> None:
    pool = await beside.pool()
    never = {names.DISRUPTION_SCHEDULE: "0 0 31 2 *", names.POD_HOLD: "what is ours"}
    app = await beside.run(pool, annotations=never)
    (claim,) = await beside.claims(pool)
    (pod,) = await beside.pods(app)
    await beside.stamp(claim)
    await beside.until_going(claim, timeout=60)
    await beside.until_pod_goes(pod, timeout=2)


async def test_our_hold_on_a_node_holds_it(beside: BesideKarpenter) -> None:
    """Dovetail does not take its own hold for a user's; Karpenter does not know whose it is."""
    pool = await beside.pool()
    await beside.run(pool)
    (claim,) = await beside.claims(pool)
    await beside.annotate_node(claim, "true")
    await beside.annotate_node(claim, '{"by":"guard","until":null,"why":""}', key=names.HELD)
    await beside.stamp(claim)
    await beside.untouched(claim, seconds=60)


async def test_a_node_with_a_protected_pod_is_left_alone(beside: BesideKarpenter) -> None:
    pool = await beside.pool()
    await beside.run(pool, annotations={names.DO_NOT_DISRUPT: "2m"})
    (claim,) = await beside.claims(pool)
    await beside.stamp(claim)
    await beside.untouched(claim, seconds=60)
    await beside.until(claim, ConditionType.DISRUPTION_REASON, timeout=75)


async def test_an_old_version_reads_no_durations(beside: BesideKarpenter, world: SimulatedBeside) -> None:
    await world.karpenter.kill()
    world.karpenter.durations = False
    await world.karpenter.start()
    pool = await beside.pool()
    await beside.run(pool, annotations={names.DO_NOT_DISRUPT: "2h"})
    (claim,) = await beside.claims(pool)
    await beside.stamp(claim)
    await beside.until_going(claim, timeout=60)


async def test_a_drain_waits_for_budgets_of_pods_and_ends_at_its_deadline(beside: BesideKarpenter) -> None:
    pool = await beside.pool(template={"terminationGracePeriod": "2m"})
    app = await beside.run(pool)
    body = {"metadata": {"name": app}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}}
    await beside.create(PDBS, body)
    (claim,) = await beside.claims(pool)
    (pod,) = await beside.pods(app)
    await beside.delete_claim(claim)
    await beside.cluster.settle(100)
    assert not await beside.pod_goes(pod)
    await beside.until_pod_goes(pod, timeout=21)


async def test_a_budget_bounds_how_many_nodes_go_at_once(beside: BesideKarpenter) -> None:
    pool = await beside.pool(boots="20s", budgets=[{"nodes": "1"}])
    await beside.run(pool, 3)
    claims = await beside.claims(pool)
    for each in claims:
        await beside.stamp(each)
    most = 0
    for _ in range(300):
        await beside.cluster.settle(1)
        found = await beside.claims(pool)
        going = [each for each in found if deleting(each) or condition(each, ConditionType.DISRUPTION_REASON)]
        most = max(most, len(going))
    assert most == 1
    left = {each["metadata"]["uid"] for each in await beside.claims(pool)}
    assert left.isdisjoint(each["metadata"]["uid"] for each in claims)


async def test_our_conditions_mean_nothing_to_it_and_stay(beside: BesideKarpenter) -> None:
    pool = await beside.pool()
    await beside.run(pool)
    (claim,) = await beside.claims(pool)
    ours = {"type": "Expired", "status": "True", "reason": "Expired", "message": ""}
    ours["lastTransitionTime"] = "2026-03-02T00:00:00Z"
    status = {"conditions": [*claim["status"]["conditions"], ours]}
    await beside.cluster.api.write(
        Patch(NODECLAIMS, claim["metadata"]["name"], {"status": status}, subresource="status")
    )
    await beside.untouched(claim, seconds=30)
    await beside.stamp(claim)
    await beside.until(claim, ConditionType.DRIFTED, timeout=2)
    after = await beside.claim(claim)
    assert after is not None and condition(after, ConditionType.EXPIRED) == ours  # noqa: PT018
    assert not condition(after, ConditionType.DISRUPTION_STATE), "Karpenter does not write what it does not know"


async def test_it_renews_its_lease(beside: BesideKarpenter, world: SimulatedBeside) -> None:
    async def renewed() -> Any:
        lease = await beside.cluster.api.get(LEASES, names.LEADER_ELECTION_LEASE, namespace="kube-system")
        return parse_time(lease["spec"]["renewTime"])

    await beside.cluster.settle(60)
    assert beside.cluster.now() - await renewed() < timedelta(seconds=5)
    await world.karpenter.kill()
    last = await renewed()
    await beside.cluster.settle(60)
    assert await renewed() == last


async def test_machines_take_different_times_to_boot(beside: BesideKarpenter, world: SimulatedBeside) -> None:
    world.cloud.register_seconds, world.cloud.register_spread_seconds = 20.0, 70.0
    pool = await beside.pool()
    await beside.run(pool, 4)
    took = []
    for claim in await beside.claims(pool):
        node = await beside.node(claim)
        assert node is not None
        seconds = parse_time(node["metadata"]["creationTimestamp"]) - parse_time(claim["metadata"]["creationTimestamp"])
        took.append(seconds.total_seconds())
    assert len(set(took)) == 4
    assert all(20 <= seconds <= 95 for seconds in took)
