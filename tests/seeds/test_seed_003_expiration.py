"""Seed 003, forceful expiration: states S1–S6, the transitions between them, and the options of expiry."""

from datetime import datetime

import pytest

from dovetail.api.names import Reason
from dovetail.api.objects import Budget
from dovetail.model.pool_records import PoolRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.budgets import PoolCounts, allowance, pool_counts, read_budgets
from dovetail.rules.deadlines import expires_at, gracefully_expires_at, node_deadline
from dovetail.rules.nodes import ReasonVerdict, judge_reason, pods_standing
from dovetail.rules.protection import do_not_disrupt, protection
from dovetail.rules.states import state_of
from tests.harness.builders import at, budget, claim, member, node, pod, pool

DISRUPTED = ("karpenter.sh/disrupted", "NoSchedule")
CANDIDATE = ("karpenter.sh/candidate", "PreferNoSchedule")
DELETED = "2026-03-04T12:00:00Z"
NOW = at(DELETED)

S1 = member(claim(), node())
S2_DRIFTED = member(claim(true=["Drifted"]), node(taints=[CANDIDATE]))
S2_UNDERUTILIZED = member(claim(), node(taints=[CANDIDATE]))
S3 = member(claim(true=["Drifted", "DisruptionReason"]), node(taints=[CANDIDATE, DISRUPTED]))
S4 = member(claim(true=["Drifted", "DisruptionReason"], deleted=DELETED, grace_period="1h"), node(taints=[DISRUPTED]))
S4_FORCEFUL = member(claim(deleted=DELETED), node(taints=[DISRUPTED]))
S5 = member(claim(deleted=DELETED, true=["Drained", "InstanceTerminating"]), node(taints=[DISRUPTED], deleted=DELETED))
S6 = member(claim(deleted=DELETED, true=["Drained", "InstanceTerminating"]))


@pytest.mark.parametrize(
    ("before", "after", "states"),
    [
        pytest.param(S1, S2_DRIFTED, ("S1", "S2"), id="T1a: marked as a candidate for drift"),
        pytest.param(S1, S2_UNDERUTILIZED, ("S1", "S2"), id="T1a: marked as a candidate for underutilization"),
        pytest.param(S2_DRIFTED, S1, ("S2", "S1"), id="un-drifted: the candidacy is removed"),
        pytest.param(S2_UNDERUTILIZED, S1, ("S2", "S1"), id="utilized again: the candidacy is removed"),
        pytest.param(S1, S4_FORCEFUL, ("S1", "S4"), id="T1b: interrupted, unhealthy or expired"),
        pytest.param(S2_DRIFTED, S3, ("S2", "S3"), id="T2: replacements are being made"),
        pytest.param(S3, S2_DRIFTED, ("S3", "S2"), id="no capacity within 10 minutes: the taint is removed"),
        pytest.param(S3, S4, ("S3", "S4"), id="T3: capacity is there, the node is deleted"),
        pytest.param(S4, S5, ("S4", "S5"), id="T4: drained or timed out, the instance goes"),
        pytest.param(S5, S6, ("S5", "S6"), id="T5: the node can be removed"),
    ],
)
def test_transition(before: ClusterNode, after: ClusterNode, states: tuple[str, str]) -> None:
    assert (state_of(before), state_of(after)) == states


def test_all_nodes_in_s3_through_s6_count_against_budgets() -> None:
    found = pool_counts([S1, S2_DRIFTED, S2_UNDERUTILIZED, S3, S4, S5, S6])
    assert (found.nodes, found.disrupting, found.unhealthy) == (7, 4, 0)


def test_s4_respects_do_not_disrupt_pods_within_the_grace_period() -> None:
    assert S4.claim is not None
    assert node_deadline(S4.claim) == at("2026-03-04T13:00:00Z")
    assert not do_not_disrupt(pod(do_not_disrupt="true"), NOW).allowed


# -- T2: what keeps a candidate from being disrupted ------------------------------------------------------------------


def ask(
    subject: ClusterNode, reason: Reason, pool_: PoolRecord, budgets: list[Budget], now: datetime = NOW
) -> ReasonVerdict:
    left = allowance(read_budgets(budgets), reason=reason, now=now, counts=PoolCounts(nodes=10))
    verdicts = [verdict for each in subject.pods for verdict in protection(each, now)]
    return judge_reason(subject, pool_, reason, now, pods=pods_standing(verdicts, len(subject.pods)), allowance=left)


@pytest.mark.parametrize(
    ("subject", "budgets", "allowed"),
    [
        pytest.param(member(claim(true=["Drifted"]), node()), [budget("1")], True, id="nothing blocks"),
        pytest.param(member(claim(true=["Drifted"]), node()), [budget("0")], False, id="blocking budget"),
        pytest.param(
            member(claim(true=["Drifted"]), node(do_not_disrupt="true")), [budget("1")], False, id="do-not-disrupt node"
        ),
        pytest.param(
            member(claim(true=["Drifted"]), node(), [pod(do_not_disrupt="true")]),
            [budget("1")],
            False,
            id="do-not-disrupt pod",
        ),
    ],
)
def test_t2_ignores_blocked_nodes(subject: ClusterNode, budgets: list[Budget], allowed: bool) -> None:
    assert ask(subject, Reason.DRIFTED, pool(), budgets).allowed is allowed


# -- option 1: forceful, the default ----------------------------------------------------------------------------------

HELD_BACK = member(
    claim(expire_after="84h"),  # created 2026-03-01T00:00:00Z: until 2026-03-04T12:00:00Z
    node(do_not_disrupt="true"),
    [pod(do_not_disrupt="true")],
)


def test_option_1_expiration_starts_whatever_the_safeguards_say() -> None:
    assert HELD_BACK.claim is not None
    assert expires_at(HELD_BACK.claim) == NOW
    found = ask(HELD_BACK, Reason.EXPIRED, pool(), [budget("0")])
    assert (found.wanted, found.allowed) == (True, True)


def test_option_1_still_respects_do_not_disrupt_pods_while_draining_until_the_timeout() -> None:
    [guarded] = HELD_BACK.pods
    assert not do_not_disrupt(guarded, NOW).allowed
    assert node_deadline(claim(deleted=DELETED, grace_period="1h")) == at("2026-03-04T13:00:00Z")
    assert node_deadline(claim(deleted=DELETED)) is None


# -- option 2: forceful and graceful ----------------------------------------------------------------------------------


def test_option_2_both_expirations_are_configured_beside_each_other() -> None:
    # The seed writes `expireAfter: 10d` and `gracefulExpireAfter: 20d`; durations have no days.
    subject = claim(expire_after="240h")
    assert expires_at(subject) == at("2026-03-11T00:00:00Z")
    assert gracefully_expires_at(subject, pool(graceful_expire_after="480h")) == at("2026-03-21T00:00:00Z")


def test_option_2_graceful_expiry_is_held_back_by_every_safeguard() -> None:
    found = ask(HELD_BACK, Reason.EXPIRED, pool(graceful_expire_after="24h"), [budget("0")], at("2026-03-04T11:59:59Z"))
    assert found.wanted
    assert [verdict.rule for verdict in found.verdicts if not verdict.allowed] == [
        "node-do-not-disrupt",
        "pods",
        "budget",
    ]


def test_option_2_graceful_only_is_never_beside_graceful_expire_after() -> None:
    subject = claim(expire_after="Never")
    assert expires_at(subject) is None
    assert gracefully_expires_at(subject, pool(graceful_expire_after="480h")) == at("2026-03-21T00:00:00Z")
    assert gracefully_expires_at(subject, pool()) is None
