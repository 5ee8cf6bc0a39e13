"""What guard and drive lean on (10 §1), tried on the real Karpenter and on the simulated one."""

from dovetail.api import names
from dovetail.api.names import ConditionType
from tests.harness.beside import NO_BUDGET, STAMP, BesideKarpenter, at

NEXT_LOOK = 90  # seconds within which the loop has looked again, though it validates for other tests


async def test_a_stamped_claim_is_replaced_and_nothing_sets_the_hash_back(beside: BesideKarpenter) -> None:
    """E1."""
    pool = await beside.pool()
    await beside.run(pool)
    (old,) = await beside.claims(pool)
    await beside.stamp(old)
    drifted = await beside.until(old, ConditionType.DRIFTED, timeout=5)
    assert drifted["reason"] == "NodePoolDrifted"
    await beside.until_going(old, timeout=NEXT_LOOK)
    found = await beside.claim(old)
    assert found is None or found["metadata"]["annotations"][names.NODEPOOL_HASH] == STAMP
    (new,) = [each for each in await beside.claims(pool) if each["metadata"]["uid"] != old["metadata"]["uid"]]
    await beside.until(new, ConditionType.INITIALIZED, timeout=1)  # it came first
    await beside.until_gone(old, timeout=60)


async def test_an_annotated_node_stays_though_it_has_drifted(beside: BesideKarpenter) -> None:
    """E2."""
    pool = await beside.pool()
    await beside.run(pool)
    (old,) = await beside.claims(pool)
    await beside.annotate_node(old, "true")
    await beside.stamp(old)
    await beside.until(old, ConditionType.DRIFTED, timeout=5)
    await beside.untouched(old, seconds=25)
    await beside.annotate_node(old, None)
    await beside.until(old, ConditionType.DISRUPTION_REASON, timeout=NEXT_LOOK)


async def test_a_hold_comes_too_late_once_the_replacement_starts(beside: BesideKarpenter) -> None:
    """E3: drift has no second look."""
    pool = await beside.pool(boots="10s")
    await beside.run(pool)
    (old,) = await beside.claims(pool)
    await beside.stamp(old)
    await beside.until(old, ConditionType.DISRUPTION_REASON, timeout=NEXT_LOOK)
    await beside.annotate_node(old, "true")
    await beside.until_going(old, timeout=NEXT_LOOK)


async def test_a_hold_during_the_validation_drops_the_command(beside: BesideKarpenter) -> None:
    """E12: an empty node is looked at again after 15 s."""
    pool = await beside.pool(consolidateAfter="0s")
    app = await beside.run(pool)
    (node,) = await beside.claims(pool)
    await beside.remove(app)
    await beside.until(node, ConditionType.CONSOLIDATABLE, timeout=20)
    await beside.cluster.settle(12)  # the loop has looked by now, and has not looked again yet
    await beside.annotate_node(node, "true")
    await beside.untouched(node, seconds=25)
    await beside.annotate_node(node, None)
    await beside.until_going(node, timeout=NEXT_LOOK)


async def test_an_annotated_node_does_not_hold_a_drain(beside: BesideKarpenter) -> None:
    """E4a."""
    pool = await beside.pool()
    app = await beside.run(pool)
    (old,) = await beside.claims(pool)
    (pod,) = await beside.pods(app)
    await beside.annotate_node(old, "true")
    await beside.delete_claim(old)
    await beside.until_pod_goes(pod, timeout=15)


async def test_an_annotated_pod_holds_a_drain_and_nothing_replaces_it(beside: BesideKarpenter) -> None:
    """E4b."""
    pool = await beside.pool()
    app = await beside.run(pool)
    (old,) = await beside.claims(pool)
    (pod,) = await beside.pods(app)
    await beside.annotate_pod(pod, "true")
    await beside.delete_claim(old)
    await beside.cluster.settle(15)
    assert [each["metadata"]["uid"] for each in await beside.claims(pool)] == [old["metadata"]["uid"]]
    assert not await beside.pod_goes(pod)
    await beside.annotate_pod(pod, None)
    await beside.until_pod_goes(pod, timeout=15)


async def test_a_duration_on_a_pod_ends_by_itself(beside: BesideKarpenter) -> None:
    """E6: it counts from the start of the pod."""
    pool = await beside.pool()
    app = await beside.run(pool)
    (old,) = await beside.claims(pool)
    (pod,) = await beside.pods(app)
    started_at = at(pod["status"]["startTime"])
    seconds = int((beside.cluster.now() - started_at).total_seconds()) + 15
    await beside.annotate_pod(pod, f"{seconds}s")
    await beside.delete_claim(old)
    await beside.cluster.settle(10)
    assert not await beside.pod_goes(pod)
    await beside.until_pod_goes(pod, timeout=20)
    assert (beside.cluster.now() - started_at).total_seconds() >= seconds


async def test_values_that_karpenter_cannot_read_hold_nothing(beside: BesideKarpenter) -> None:
    """Neither on a Node, where durations are no values either (E14), nor on a pod in a drain."""
    pool = await beside.pool()
    app = await beside.run(pool, 2)
    first, second = await beside.claims(pool)
    await beside.annotate_node(first, "1h")
    await beside.annotate_node(second, "yes")
    for pod in await beside.pods(app):
        await beside.annotate_pod(pod, "yes")
    await beside.stamp(first)
    await beside.stamp(second)
    await beside.until_going(first, timeout=NEXT_LOOK)
    await beside.until_going(second, timeout=NEXT_LOOK)
    await beside.until_gone(first, timeout=60)
    await beside.until_gone(second, timeout=60)


async def test_a_claim_of_ours_takes_the_pods_of_the_one_that_we_delete(beside: BesideKarpenter) -> None:
    """E8: no third node comes, and a taint that is not Karpenter's stays."""
    pool = await beside.pool(budgets=[NO_BUDGET])
    app = await beside.run(pool)
    (old,) = await beside.claims(pool)
    await beside.taint(old, names.BESIDE_DISRUPTED_TAINT)
    new = await beside.make_twin(old, pool)
    await beside.until(new, ConditionType.INITIALIZED, timeout=60)
    node = await beside.node(old)
    assert node is not None
    assert names.BESIDE_DISRUPTED_TAINT in [taint["key"] for taint in node["spec"]["taints"]]
    await beside.delete_claim(old)
    await beside.until_gone(old, timeout=60)
    assert [each["metadata"]["name"] for each in await beside.claims(pool)] == [new["metadata"]["name"]]
    await beside.until_ready(app, 1)
    assert [each["metadata"]["name"] for each in await beside.claims(pool)] == [new["metadata"]["name"]]


async def test_a_pool_that_allows_nothing_still_gets_its_conditions(beside: BesideKarpenter) -> None:
    """E9 and E13."""
    pool = await beside.pool(budgets=[NO_BUDGET], consolidateAfter="2s")
    app = await beside.run(pool)
    (node,) = await beside.claims(pool)
    hash_before = node["metadata"]["annotations"][names.NODEPOOL_HASH]
    await beside.remove(app)
    await beside.until(node, ConditionType.CONSOLIDATABLE, timeout=30)
    await beside.stamp(node)
    await beside.until(node, ConditionType.DRIFTED, timeout=5)
    await beside.untouched(node, seconds=25)
    await beside.stamp(node, hash_before)
    await beside.until(node, ConditionType.DRIFTED, timeout=5, status="")


async def test_a_pool_of_annotated_nodes_is_left_to_us(beside: BesideKarpenter) -> None:
    """E15: it allows everything, and all of it has drifted."""
    pool = await beside.pool()
    await beside.run(pool, 3)
    claims = await beside.claims(pool)
    for each in claims:
        await beside.annotate_node(each, "true")
        await beside.stamp(each)
    for each in claims:
        await beside.until(each, ConditionType.DRIFTED, timeout=5)
    await beside.untouched(*claims, seconds=25)
    new = await beside.make_twin(claims[0], pool)
    await beside.until(new, ConditionType.INITIALIZED, timeout=60)
    await beside.delete_claim(claims[0])
    await beside.until_gone(claims[0], timeout=60)
    await beside.untouched(*claims[1:], seconds=5)


async def test_a_mark_of_disruption_by_somebody_else_is_removed(beside: BesideKarpenter) -> None:
    pool = await beside.pool()
    await beside.run(pool)
    (claim,) = await beside.claims(pool)
    await beside.taint(claim, names.DISRUPTED_TAINT)
    await beside.until_untainted(claim, names.DISRUPTED_TAINT, timeout=15)
