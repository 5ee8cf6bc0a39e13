"""Seed 000, do-not-disrupt grace period: its examples and its timeline."""

from datetime import timedelta

import pytest

from dovetail.api import objects
from dovetail.api.names import Reason
from dovetail.model.pod_records import PodRecord
from dovetail.model.pool_records import PoolRecord
from dovetail.rules.budgets import PoolCounts, allowance, read_budgets
from dovetail.rules.deadlines import forced_deletion, node_deadline
from dovetail.rules.nodes import ReasonVerdict, judge_reason, pods_standing
from dovetail.rules.pdb import PdbIndex
from dovetail.rules.protection import do_not_disrupt, protection
from tests.harness.builders import at, claim, member, node, pdb, pod
from tests.seeds.documents import SEED_000_API, SEED_000_CRITICAL, SEED_000_JOB, SEED_000_TRAINING
from tests.seeds.reading import annotated_pod, read, read_pod, read_pool, templated_pod

TICK = timedelta(microseconds=1)
CREATED = "2024-01-01T10:00:00Z"


SHORT_TASK = """
    apiVersion: v1
    kind: Pod
    metadata:
      name: quick-task
      annotations:
        karpenter.sh/do-not-disrupt: "30m"
    spec:
      containers:
      - name: task
        image: task-runner:latest
    """


def batch_job() -> PodRecord:
    return templated_pod(read(SEED_000_JOB, objects.Workload).spec.template, CREATED)


@pytest.mark.parametrize(
    ("subject", "end"),
    [
        pytest.param(read_pod(SEED_000_API, CREATED), "2024-01-01T14:00:00Z", id="4h, time calculation"),
        pytest.param(batch_job(), "2024-01-01T12:00:00Z", id="example 1, 2h batch job"),
        pytest.param(read_pod(SEED_000_TRAINING, CREATED), "2024-01-02T10:00:00Z", id="example 2, 24h training"),
        pytest.param(read_pod(SHORT_TASK, CREATED), "2024-01-01T10:30:00Z", id="example 4, 30m task"),
    ],
)
def test_protected_for_the_duration_from_creation(subject: PodRecord, end: str) -> None:
    for now in (at(CREATED), at(end) - TICK):
        verdict = do_not_disrupt(subject, now)
        assert (verdict.allowed, verdict.until) == (False, at(end))
    verdict = do_not_disrupt(subject, at(end))
    assert (verdict.allowed, verdict.until) == (True, None)


def test_example_3_critical_service_is_protected_indefinitely() -> None:
    for now in (CREATED, "2034-01-01T10:00:00Z"):
        verdict = do_not_disrupt(read_pod(SEED_000_CRITICAL, CREATED), at(now))
        assert (verdict.allowed, verdict.until) == (False, None)


@pytest.mark.parametrize("value", ["4hours", "0", "0s", "-4h", "1d", ""])
def test_parsing_logic_invalid_zero_and_negative_are_indefinite(value: str) -> None:
    subject = annotated_pod(f"metadata:\n  annotations:\n    karpenter.sh/do-not-disrupt: {value!r}\n", CREATED)
    verdict = do_not_disrupt(subject, at("2034-01-01T10:00:00Z"))
    assert (verdict.allowed, verdict.until) == (False, None)


# -- interaction with PodDisruptionBudget -----------------------------------------------------------------------------


def test_expired_protection_does_not_circumvent_the_pdb() -> None:
    subject = read_pod(SEED_000_API, CREATED)
    blocked, free = PdbIndex([pdb(allowed=0)], [subject]), PdbIndex([pdb(allowed=1)], [subject])
    after = at("2024-01-01T14:00:00Z")
    assert do_not_disrupt(subject, after).allowed
    assert not blocked.verdict(subject).allowed
    assert free.verdict(subject).allowed
    assert not do_not_disrupt(subject, after - TICK).allowed


# -- the scenario: 72 hours to terminate, 4 hours of protection -------------------------------------------------------

POOL = """
    # NodePool with 72-hour eventual disruption
    apiVersion: karpenter.sh/v1
    kind: NodePool
    spec:
      disruption:
        consolidationPolicy: WhenEmpty
      template:
        spec:
          terminationGracePeriod: 72h
    """
POD = """
    # Pod with 4-hour protection
    metadata:
      annotations:
        karpenter.sh/do-not-disrupt: "4h"
    """
START = "2026-03-04T00:00:00Z"
HOUR_4, HOUR_72 = at("2026-03-04T04:00:00Z"), at("2026-03-07T00:00:00Z")


def judged(reason: Reason, hours: float, pool: PoolRecord) -> ReasonVerdict:
    now = at(START) + timedelta(hours=hours)
    subject = annotated_pod(POD, START)
    counts = PoolCounts(nodes=10)
    return judge_reason(
        member(claim(grace_period="72h", created=START, initialized_since=START), node(created=START), [subject]),
        pool,
        reason,
        now,
        pods=pods_standing(protection(subject, now), 1),
        allowance=allowance(read_budgets(pool.budgets), reason=reason, now=now, counts=counts),
    )


def scenario_pool() -> PoolRecord:
    return read_pool(POOL)


def test_scenario_pool_is_read() -> None:
    assert (scenario_pool().consolidation_policy, scenario_pool().grace_period_ns) == ("WhenEmpty", 72 * 3600 * 10**9)


@pytest.mark.parametrize(
    ("hours", "allowed"), [(0, False), (3.999, False), (4, True), (71, True)], ids=["0", "just before 4", "4", "71"]
)
def test_timeline_hours_0_to_4_no_consolidation_touches_the_node(hours: float, allowed: bool) -> None:
    found = judged(Reason.EMPTY, hours, scenario_pool())
    assert found.allowed is allowed
    assert found.until == (None if allowed else HOUR_4)


@pytest.mark.parametrize("hours", [0, 3.999, 4, 71])
def test_timeline_drift_may_start_at_any_hour(hours: float) -> None:
    assert judged(Reason.DRIFTED, hours, scenario_pool()).allowed


def test_timeline_the_pod_of_a_draining_node_stays_until_hour_4() -> None:
    subject = annotated_pod(POD, START)
    assert not do_not_disrupt(subject, HOUR_4 - TICK).allowed
    assert do_not_disrupt(subject, HOUR_4).allowed


def test_timeline_after_72_hours_of_draining_it_is_forced() -> None:
    deadline = node_deadline(claim(grace_period="72h", created=START, deleted=START))
    assert deadline == HOUR_72
    forced = forced_deletion(annotated_pod(POD, START), HOUR_72, at(START))
    assert forced is not None
    assert (forced.at, forced.grace_seconds) == (HOUR_72 - timedelta(seconds=30), 30)


# -- testing: several pods on one node --------------------------------------------------------------------------------


def test_several_pods_with_different_grace_periods_on_one_node() -> None:
    pods = [pod("one", do_not_disrupt="1h", created=START), pod("two", do_not_disrupt="2h", created=START)]
    now = at(START)
    found = pods_standing([verdict for each in pods for verdict in protection(each, now)], 2)
    assert found.when.until(now) == at("2026-03-04T02:00:00Z")
