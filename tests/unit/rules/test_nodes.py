"""May a node be disrupted for a reason: every rule asked, every blocker kept (02 §3, R6, R16, R19, R20)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.names import CANDIDATE_TAINT, DISRUPTED_TAINT, Reason
from dovetail.api.objects import Budget
from dovetail.model.pod_records import PodRecord
from dovetail.model.pool_records import PoolRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.budgets import BUDGETED, BudgetConsumer, PoolCounts, allowance, read_budgets
from dovetail.rules.nodes import (
    LONGEST_BOOT,
    LONGEST_SCALE_OUT,
    PodsVerdict,
    ReasonVerdict,
    StartingNodes,
    budget_rule,
    consolidate_after,
    consolidation_reason,
    is_empty,
    is_wanted,
    judge_reason,
    pods_standing,
    starting_nodes,
    time_taken,
    when_forced,
    when_free,
)
from dovetail.rules.protection import protection
from dovetail.rules.states import NodeState
from dovetail.rules.verdict import Rule, Verdict
from tests.harness.builders import at, budget, claim, member, node, pod, pool

EMPTY, DRIFTED, UNDERUTILIZED, EXPIRED = BUDGETED
GRACEFUL = (EMPTY, DRIFTED, UNDERUTILIZED)
NOW = at("2026-03-04T12:00:00Z")  # a Wednesday
TICK = timedelta(microseconds=1)
DELETED = "2026-03-04T11:00:00Z"
CANDIDATE = (CANDIDATE_TAINT, "PreferNoSchedule")
DISRUPTED = (DISRUPTED_TAINT, "NoSchedule")
OPEN = [budget("100%")]


def standing(pods: Sequence[PodRecord], now: datetime = NOW) -> PodsVerdict:
    return pods_standing([verdict for each in pods for verdict in protection(each, now)], len(pods))


def ask(
    subject: ClusterNode,
    reason: Reason = DRIFTED,
    now: datetime = NOW,
    *,
    pool_: PoolRecord | None = None,
    budgets: Sequence[Budget] = OPEN,
    known: bool = True,
    starting: StartingNodes | None = None,
) -> ReasonVerdict:
    """The verdict in a pool of ten nodes, none of them busy."""
    left = allowance(read_budgets(budgets), reason=reason, now=now, counts=PoolCounts(nodes=10))
    return judge_reason(
        subject,
        (pool_ or pool()) if known else None,
        reason,
        now,
        pods=standing(subject.pods, now),
        allowance=left if known else None,
        starting=starting,
    )


def blocking(found: ReasonVerdict) -> list[Rule]:
    return [verdict.rule for verdict in found.verdicts if not verdict.allowed]


def of(found: ReasonVerdict, rule: Rule) -> Verdict:
    [verdict] = [verdict for verdict in found.verdicts if verdict.rule is rule]
    return verdict


# -- aggregation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", BUDGETED)
def test_a_quiet_node_may_be_disrupted_for_every_reason(reason: Reason) -> None:
    found = ask(member(claim(), node(), [pod()]), reason)
    assert (found.reason, found.allowed, found.until, blocking(found)) == (reason, True, None, [])


STANDING_RULES = [Rule.NODE_DO_NOT_DISRUPT, Rule.INITIALIZED, Rule.DELETING, Rule.NODEPOOL]


@pytest.mark.parametrize(
    ("reason", "rules"),
    [
        pytest.param(EMPTY, [*STANDING_RULES, Rule.CONSOLIDATE_AFTER, Rule.PODS, Rule.BUDGET], id="Empty"),
        pytest.param(UNDERUTILIZED, [*STANDING_RULES, Rule.CONSOLIDATE_AFTER, Rule.PODS, Rule.BUDGET], id="Underused"),
        pytest.param(DRIFTED, [*STANDING_RULES, Rule.PODS, Rule.BUDGET], id="Drifted"),
        pytest.param(EXPIRED, [*STANDING_RULES, Rule.PODS, Rule.BUDGET], id="Expired, forceful"),
    ],
)
def test_every_rule_answers_in_the_order_of_the_enum(reason: Reason, rules: list[Rule]) -> None:
    found = ask(member(claim(), node(), [pod()]), reason)
    assert [verdict.rule for verdict in found.verdicts] == rules
    assert rules == sorted(rules, key=list(Rule).index)
    assert {str(verdict.object) for verdict in found.verdicts} == {"Node/node-1"}


def test_graceful_expiry_asks_what_drift_asks() -> None:
    found = ask(member(claim(), node(), [pod()]), EXPIRED, pool_=pool(graceful_expire_after="480h"))
    assert [verdict.rule for verdict in found.verdicts] == [*STANDING_RULES, Rule.PODS, Rule.BUDGET]
    assert of(found, Rule.BUDGET).message == "10 of 10 left for Expired by budgets[0]"


def test_every_blocker_is_kept() -> None:
    subject = member(
        claim(last_pod_event="2026-03-04T11:59:00Z"),
        node(do_not_disrupt="true", initialized=False),
        [pod("a", do_not_disrupt="true"), pod("b", schedule="0 2 * * 6"), pod("c")],
    )
    found = ask(subject, UNDERUTILIZED, pool_=pool(consolidate_after="5m"), budgets=[budget("0")])
    assert not found.allowed
    assert found.until is None
    assert blocking(found) == [
        Rule.NODE_DO_NOT_DISRUPT,
        Rule.INITIALIZED,
        Rule.CONSOLIDATE_AFTER,
        Rule.PODS,
        Rule.BUDGET,
    ]
    pods = of(found, Rule.PODS)
    assert pods.message == "2 of its 3 pods are protected"
    assert [(str(verdict.object), verdict.rule) for verdict in pods.blockers] == [
        ("Pod/default/a", Rule.DO_NOT_DISRUPT),
        ("Pod/default/b", Rule.DISRUPTION_SCHEDULE),
    ]


def test_a_pod_that_two_rules_protect_counts_once_but_keeps_both_verdicts() -> None:
    found = ask(member(claim(), node(), [pod("a", do_not_disrupt="true", schedule="0 2 * * 6")]))
    pods = of(found, Rule.PODS)
    assert pods.message == "its only pod is protected"
    assert [verdict.rule for verdict in pods.blockers] == [Rule.DO_NOT_DISRUPT, Rule.DISRUPTION_SCHEDULE]


@pytest.mark.parametrize(
    ("subject", "rule", "message"),
    [
        pytest.param(member(claim()), Rule.INITIALIZED, "the NodeClaim has no Node", id="no Node"),
        pytest.param(
            member(claim(), node(initialized=False)), Rule.INITIALIZED, "the node is not initialized yet", id="new"
        ),
        pytest.param(
            member(claim(true=["DisruptionReason"]), node(taints=[DISRUPTED])),
            Rule.DELETING,
            "already on its way out: S3 disrupting",
            id="S3",
        ),
        pytest.param(
            member(claim(deleted=DELETED), node()),
            Rule.DELETING,
            "already on its way out: S4 draining",
            id="S4, claim deleted",
        ),
        pytest.param(
            member(claim(), node(deleted=DELETED)),
            Rule.DELETING,
            "already on its way out: S4 draining",
            id="S4, Node deleted",
        ),
        pytest.param(
            member(claim(true=["InstanceTerminating"]), node()),
            Rule.DELETING,
            "already on its way out: S5 instance terminating",
            id="S5",
        ),
        pytest.param(
            member(claim(pool=""), node(pool="")),
            Rule.NODEPOOL,
            "not managed: it has no karpenter.sh/nodepool label",
            id="unmanaged",
        ),
        pytest.param(member(None, node()), Rule.NODEPOOL, "no NodeClaim has its provider ID", id="no claim"),
        pytest.param(
            member(claim(), node(do_not_disrupt="true")),
            Rule.NODE_DO_NOT_DISRUPT,
            "protected until the annotation is removed",
            id="node annotation",
        ),
    ],
)
def test_one_blocker(subject: ClusterNode, rule: Rule, message: str) -> None:
    found = ask(subject)
    assert blocking(found) == [rule]
    assert (of(found, rule).message, found.allowed, found.until) == (message, False, None)


def test_an_unknown_pool_blocks() -> None:
    found = ask(member(claim(), node()), known=False)
    assert [(verdict.rule, verdict.message) for verdict in found.verdicts if not verdict.allowed] == [
        (Rule.NODEPOOL, "NodePool default was not found"),
        (Rule.BUDGET, "no NodePool, so no budget"),
    ]


def test_an_unknown_pool_also_blocks_consolidation_by_its_clock() -> None:
    assert Rule.CONSOLIDATE_AFTER in blocking(ask(member(claim(), node()), EMPTY, known=False))


@pytest.mark.parametrize("reason", GRACEFUL)
@pytest.mark.parametrize(
    ("value", "allowed"), [("true", False), ("1h", True), ("1000h", False), ("false", True), ("nonsense", True)]
)
def test_the_node_annotation_holds_back_graceful_reasons(reason: Reason, value: str, allowed: bool) -> None:
    assert ask(member(claim(), node(do_not_disrupt=value)), reason).allowed is allowed


def test_a_node_annotation_with_a_duration_is_an_until() -> None:
    # Created 2026-03-01T00:00:00Z.
    end = at("2026-03-05T04:00:00Z")
    subject = member(claim(), node(do_not_disrupt="100h"))
    assert (ask(subject).allowed, ask(subject).until) == (False, end)
    assert not ask(subject, now=end - TICK).allowed
    assert ask(subject, now=end).allowed


# -- pools ------------------------------------------------------------------------------------------------------------


def deleted(pool_: PoolRecord) -> PoolRecord:
    return msgspec.structs.replace(pool_, deleted_at=NOW)


@pytest.mark.parametrize(
    ("pool_", "allowed"),
    [
        pytest.param(pool(), {"Empty", "Drifted", "Underutilized", "Expired"}, id="ordinary"),
        pytest.param(pool(policy="WhenEmpty"), {"Empty", "Drifted", "Expired"}, id="WhenEmpty"),
        pytest.param(pool(policy="Balanced"), {"Empty", "Drifted", "Underutilized", "Expired"}, id="Balanced"),
        pytest.param(pool(replicas=3), {"Drifted", "Expired"}, id="static"),
        pytest.param(pool(replicas=0), {"Drifted", "Expired"}, id="static with none"),
        pytest.param(deleted(pool(replicas=3)), {"Expired"}, id="static and being deleted"),
        pytest.param(deleted(pool()), {"Empty", "Drifted", "Underutilized", "Expired"}, id="being deleted"),
        pytest.param(pool(consolidate_after="Never"), {"Drifted", "Expired"}, id="consolidateAfter Never"),
    ],
)
def test_what_a_pool_lets_happen(pool_: PoolRecord, allowed: set[str]) -> None:
    subject = member(claim(), node(), [pod()])
    assert {reason.value for reason in BUDGETED if ask(subject, reason, pool_=pool_).allowed} == allowed


def test_pool_messages() -> None:
    subject = member(claim(), node())
    fixed = of(ask(subject, EMPTY, pool_=pool(replicas=3)), Rule.NODEPOOL)
    assert fixed.message == "NodePool default has a fixed number of replicas and never consolidates"
    empty = of(ask(subject, UNDERUTILIZED, pool_=pool(policy="WhenEmpty")), Rule.NODEPOOL)
    assert empty.message == "NodePool default consolidates only when empty"
    going = of(ask(subject, DRIFTED, pool_=deleted(pool(replicas=3))), Rule.NODEPOOL)
    assert going.message == "NodePool default is being deleted and creates no replacements"


# -- consolidateAfter -------------------------------------------------------------------------------------------------

QUIET = at("2026-03-04T12:05:00Z")


@pytest.mark.parametrize(
    ("now", "allowed", "until"),
    [
        pytest.param(QUIET - TICK, False, QUIET, id="the last instant before"),
        pytest.param(QUIET, True, None, id="as it ends"),
        pytest.param(QUIET + TICK, True, None, id="after"),
    ],
)
@pytest.mark.parametrize("reason", [EMPTY, UNDERUTILIZED])
def test_consolidate_after(reason: Reason, now: datetime, allowed: bool, until: datetime | None) -> None:
    subject = member(claim(last_pod_event="2026-03-04T12:00:00Z"), node())
    found = ask(subject, reason, now, pool_=pool(consolidate_after="5m"))
    assert (found.allowed, found.until) == (allowed, until)
    assert of(found, Rule.CONSOLIDATE_AFTER).message == (
        "consolidateAfter 5m since pods last changed 2026-03-04T12:00:00Z "
        + ("has passed" if allowed else "is not over")
    )


def test_consolidate_after_does_not_hold_back_drift() -> None:
    subject = member(claim(last_pod_event="2026-03-04T12:00:00Z"), node())
    assert ask(subject, DRIFTED, pool_=pool(consolidate_after="5m")).allowed
    assert ask(subject, DRIFTED, pool_=pool(consolidate_after="Never")).allowed


def test_without_pod_events_the_clock_starts_at_initialization() -> None:
    subject = member(claim(initialized_since="2026-03-04T11:58:00Z"), node())
    verdict = consolidate_after(subject, pool(consolidate_after="5m"), NOW)
    assert (verdict.allowed, verdict.until) == (False, at("2026-03-04T12:03:00Z"))


def test_the_last_pod_event_stands_over_initialization() -> None:
    subject = member(claim(initialized_since="2026-03-04T11:58:00Z", last_pod_event="2026-03-04T11:50:00Z"), node())
    assert consolidate_after(subject, pool(consolidate_after="5m"), NOW).allowed


@pytest.mark.parametrize(
    ("subject", "pool_", "message"),
    [
        pytest.param(
            member(claim(), node()),
            pool(consolidate_after="Never"),
            "NodePool default never consolidates (consolidateAfter: Never)",
            id="Never",
        ),
        pytest.param(
            member(claim(), node()),
            pool(consolidate_after="soon"),
            "NodePool default never consolidates (consolidateAfter: Never)",
            id="unreadable",
        ),
        pytest.param(
            member(claim(initialized_since=None), node()),
            pool(),
            "the NodeClaim does not say since when it is initialized",
            id="no transition time",
        ),
        pytest.param(
            member(claim(statuses={"Initialized": "False"}), node()),
            pool(),
            "the NodeClaim does not say since when it is initialized",
            id="not initialized",
        ),
        pytest.param(
            member(claim(last_pod_event="9999-12-31T23:59:59Z"), node()),
            pool(consolidate_after="1h"),
            "consolidateAfter ends beyond the calendar",
            id="beyond the calendar",
        ),
        pytest.param(member(claim(), node()), None, "no NodePool and NodeClaim to tell", id="no pool"),
        pytest.param(member(None, node()), pool(), "no NodePool and NodeClaim to tell", id="no claim"),
    ],
)
def test_consolidate_after_that_no_clock_ends(subject: ClusterNode, pool_: PoolRecord | None, message: str) -> None:
    verdict = consolidate_after(subject, pool_, NOW)
    assert (verdict.rule, verdict.allowed, verdict.until, verdict.message) == (
        Rule.CONSOLIDATE_AFTER,
        False,
        None,
        message,
    )


def test_consolidate_after_of_nothing_allows_at_once() -> None:
    subject = member(claim(last_pod_event="2026-03-04T12:00:00Z"), node())
    assert ask(subject, EMPTY, pool_=pool(consolidate_after="0s")).allowed


# -- R16: eventual disruption -----------------------------------------------------------------------------------------

GUARDED = pod("guarded", do_not_disrupt="true")


@pytest.mark.parametrize(
    ("reason", "grace_period", "allowed"),
    [
        pytest.param(DRIFTED, "72h", True, id="Drifted with a limit"),
        pytest.param(DRIFTED, "0s", True, id="Drifted with no grace at all"),
        pytest.param(DRIFTED, None, False, id="Drifted without a limit"),
        pytest.param(DRIFTED, "3d", False, id="Drifted with an unreadable limit"),
        pytest.param(EXPIRED, "72h", True, id="graceful Expired with a limit"),
        pytest.param(EXPIRED, None, False, id="graceful Expired without a limit"),
        pytest.param(EMPTY, "72h", False, id="Empty never"),
        pytest.param(UNDERUTILIZED, "72h", False, id="Underutilized never"),
    ],
)
def test_protected_pods(reason: Reason, grace_period: str | None, allowed: bool) -> None:
    subject = member(claim(grace_period=grace_period), node(), [GUARDED, pod()])
    found = ask(subject, reason, pool_=pool(graceful_expire_after="1h"))
    assert (found.allowed, found.until) == (allowed, None)
    pods = of(found, Rule.PODS)
    assert [str(verdict.object) for verdict in pods.blockers] == ["Pod/default/guarded"]
    assert pods.message.startswith("1 of its 2 pods is protected")
    if grace_period == "72h" and allowed:
        assert pods.message.endswith(", but the drain is limited by terminationGracePeriod 72h")


def test_the_pools_grace_period_does_not_count_only_the_claims() -> None:
    assert not ask(member(claim(), node(), [GUARDED]), pool_=pool(grace_period="72h")).allowed
    assert ask(member(claim(grace_period="72h"), node(), [GUARDED]), pool_=pool()).allowed


def test_a_limited_drain_does_not_override_the_other_rules() -> None:
    subject = member(claim(grace_period="72h"), node(do_not_disrupt="true"), [GUARDED])
    assert blocking(ask(subject, budgets=[budget("0")])) == [Rule.NODE_DO_NOT_DISRUPT, Rule.BUDGET]


@pytest.mark.parametrize("reason", [DRIFTED, EXPIRED])
def test_with_a_limited_drain_no_pods_window_is_an_until(reason: Reason) -> None:
    # The closing of the window changes nothing: by R16 the answer is the same after it.
    subject = member(claim(grace_period="72h"), node(), [pod(schedule="0 12 * * *", duration="1h")])
    pool_ = pool(graceful_expire_after="1h")
    closes = at("2026-03-04T13:00:00Z")
    assert ask(subject, reason, NOW, pool_=pool_).allowed
    assert ask(subject, reason, closes, pool_=pool_).allowed
    assert ask(subject, reason, NOW, pool_=pool_).until is None


def test_without_a_limit_the_pods_window_is_an_until() -> None:
    subject = member(claim(), node(), [pod(schedule="0 12 * * *", duration="1h")])
    closes = at("2026-03-04T13:00:00Z")
    too_late = closes  # a grace of 30 s fits into every minute
    assert time_taken(subject, DRIFTED) == timedelta(seconds=30)
    assert (ask(subject).allowed, ask(subject).until) == (True, too_late)
    assert ask(subject, now=too_late - TICK).allowed
    assert (ask(subject, now=closes).allowed, ask(subject, now=closes).until) == (False, at("2026-03-05T12:00:00Z"))


def test_a_disruption_must_end_before_the_window_closes() -> None:
    subject = member(claim(), node(), [pod(schedule="0 12 * * *", duration="1h", grace=150)])
    too_late = at("2026-03-04T12:58:00Z")
    assert (ask(subject).allowed, ask(subject).until) == (True, too_late)
    blocked = ask(subject, now=too_late)
    assert (blocked.allowed, blocked.until) == (False, at("2026-03-05T12:00:00Z"))
    (verdict,) = (each for each in blocked.verdicts if each.rule is Rule.PODS)
    assert verdict.message == "the window of its pods closes at 2026-03-04T13:00:00Z, and a disruption takes 2m30s"


def test_windows_that_are_always_too_short_are_told() -> None:
    subject = member(claim(), node(), [pod(schedule="0 12 * * *", duration="2m", grace=150)])
    assert (ask(subject).allowed, ask(subject).until) == (False, None)
    (verdict,) = (each for each in ask(subject).verdicts if each.rule is Rule.PODS)
    assert "all windows of its pods are shorter than the 2m30s that a disruption takes" in verdict.message


def test_a_grace_period_of_any_length_only_blocks_its_own_node() -> None:
    subject = member(claim(), node(), [pod(schedule="0 12 * * *", duration="1h", grace=2**63 - 1)])
    assert (ask(subject).allowed, ask(subject).until) == (False, None)


# -- expiration -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "pool_", "forceful"),
    [
        pytest.param(EXPIRED, pool(), True, id="Expired by default"),
        pytest.param(EXPIRED, pool(graceful_expire_after="480h"), False, id="Expired with gracefulExpireAfter"),
        pytest.param(EXPIRED, pool(graceful_expire_after="0s"), False, id="even at once"),
        pytest.param(EXPIRED, None, True, id="Expired without a pool"),
        pytest.param(DRIFTED, pool(), False, id="Drifted"),
        pytest.param(EMPTY, pool(), False, id="Empty"),
    ],
)
def test_when_forced(reason: Reason, pool_: PoolRecord | None, forceful: bool) -> None:
    assert when_forced(member(claim(expire_after="Never"), node()), pool_, reason).contains(NOW) is forceful


@pytest.mark.parametrize("known", [True, False], ids=["pool known", "pool unknown"])
def test_forceful_expiry_ignores_budgets_annotation_and_pods(known: bool) -> None:
    subject = member(
        claim(expire_after="1h"), node(do_not_disrupt="true", initialized=False), [pod(do_not_disrupt="true")]
    )
    found = ask(subject, EXPIRED, budgets=[budget("0")], known=known)
    assert (found.allowed, found.until, found.wanted) == (True, None, True)
    assert of(found, Rule.BUDGET).message == "not checked: expireAfter ignores it"
    assert of(found, Rule.PODS).message == "protections hold while draining, until the node's deadline"


def test_forceful_expiry_does_not_wait_for_the_replacements_of_another_reason() -> None:
    # R19: "waiting for no replacement"; a node that is in S3 for drift at that instant is not being deleted yet.
    subject = member(claim(expire_after="1h", true=["DisruptionReason", "Drifted"]), node(taints=[DISRUPTED]))
    assert ask(subject, EXPIRED).allowed


def test_forceful_expiry_does_not_delete_twice() -> None:
    assert blocking(ask(member(claim(deleted=DELETED), node()), EXPIRED)) == [Rule.DELETING]


def test_graceful_expiry_asks_the_budget_and_the_annotation() -> None:
    subject = member(claim(), node(do_not_disrupt="true"))
    found = ask(subject, EXPIRED, pool_=pool(graceful_expire_after="1h"), budgets=[budget("0", ["expired"])])
    assert blocking(found) == [Rule.NODE_DO_NOT_DISRUPT, Rule.BUDGET]


def test_expire_after_stays_the_hard_limit_beside_graceful_expiry() -> None:
    # R20: "`expireAfter` stays the hard limit": what held back graceful expiry does not hold back this one (R19).
    subject = member(claim(expire_after="3h", created="2026-03-04T09:00:00Z"), node())
    pool_ = pool(graceful_expire_after="1h")
    before = ask(subject, EXPIRED, NOW - TICK, pool_=pool_, budgets=[budget("0")])
    assert (before.wanted, before.allowed, before.until) == (True, False, NOW)
    assert ask(subject, EXPIRED, NOW, pool_=pool_, budgets=[budget("0")]).allowed


# -- wanted -----------------------------------------------------------------------------------------------------------


def wanted(subject: ClusterNode, pool_: PoolRecord | None = None, now: datetime = NOW) -> set[str]:
    return {reason.value for reason in BUDGETED if is_wanted(subject, pool_ or pool(), reason, now)}


BUSY = [pod()]
CHEAP = [pod(deletion_cost="-2147483648")]


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        pytest.param(member(claim(), node(), BUSY), set(), id="busy and steady"),
        pytest.param(member(claim(), node()), {"Empty"}, id="empty"),
        pytest.param(member(claim(), node(initialized=False)), set(), id="empty but not initialized"),
        pytest.param(member(claim(true=["Drifted"]), node(), BUSY), {"Drifted"}, id="drifted"),
        pytest.param(member(claim(true=["Drifted"]), node()), {"Empty", "Drifted"}, id="empty and drifted"),
        pytest.param(member(claim(statuses={"Drifted": "False"}), node(), BUSY), set(), id="Drifted is False"),
        pytest.param(member(claim(true=["Expired"]), node(), BUSY), {"Expired"}, id="Expired condition"),
        pytest.param(member(claim(), node(taints=[CANDIDATE]), BUSY), {"Underutilized"}, id="candidate taint"),
        pytest.param(member(claim(), node(taints=[CANDIDATE])), {"Empty"}, id="candidate taint for emptiness"),
        pytest.param(member(claim(), node(), CHEAP), set(), id="pods that cost nothing"),
        pytest.param(member(claim(), node(taints=[CANDIDATE]), CHEAP), {"Empty"}, id="candidate taint, no cost"),
        pytest.param(
            member(claim(true=["Drifted"]), node(taints=[CANDIDATE]), BUSY), {"Drifted"}, id="candidate taint for drift"
        ),
        pytest.param(
            member(claim(true=["Expired"]), node(taints=[CANDIDATE]), BUSY), {"Expired"}, id="candidate taint, Expired"
        ),
        pytest.param(member(claim(true=["Drifted"])), set(), id="a claim alone is never a candidate"),
        pytest.param(member(None, node()), set(), id="a Node alone is never a candidate"),
        pytest.param(member(claim(true=["Drifted"], deleted=DELETED), node(), BUSY), {"Drifted"}, id="being deleted"),
    ],
)
def test_wanted(subject: ClusterNode, expected: set[str]) -> None:
    assert wanted(subject) == expected


@pytest.mark.parametrize("pool_", [pool(consolidate_after="Never"), pool(replicas=2)])
def test_an_empty_node_has_no_reason_to_go_if_its_pool_never_consolidates(pool_: PoolRecord) -> None:
    assert wanted(member(claim(), node()), pool_) == set()
    assert wanted(member(claim(true=["Drifted"]), node()), pool_) == {"Drifted"}


@pytest.mark.parametrize(
    ("expire_after", "graceful", "at_"),
    [
        pytest.param("3h", "Never", "2026-03-04T12:00:00Z", id="forceful"),
        pytest.param("720h", "3h", "2026-03-04T12:00:00Z", id="graceful before forceful"),
        pytest.param("Never", "3h", "2026-03-04T12:00:00Z", id="graceful only"),
    ],
)
def test_wanted_expired(expire_after: str, graceful: str, at_: str) -> None:
    subject = member(claim(expire_after=expire_after, created="2026-03-04T09:00:00Z"), node(), BUSY)
    pool_ = pool(graceful_expire_after=graceful)
    assert wanted(subject, pool_, at(at_) - TICK) == set()
    assert wanted(subject, pool_, at(at_)) == {"Expired"}
    assert wanted(subject, pool_, at(at_) + TICK) == {"Expired"}


def test_wanted_expired_at_the_hard_limit_although_graceful_expiry_comes_later() -> None:
    # Seed 003 itself writes expireAfter 10d beside gracefulExpireAfter 20d; after ten days it is expired.
    subject = member(claim(expire_after="3h", created="2026-03-04T09:00:00Z"), node(), BUSY)
    assert wanted(subject, pool(graceful_expire_after="6h"), NOW) == {"Expired"}


@pytest.mark.parametrize("reason", [Reason.UNHEALTHY, Reason.INTERRUPTED])
def test_the_candidate_taint_says_nothing_of_forceful_reasons(reason: Reason) -> None:
    # The taint stands for graceful reasons only (R22).
    assert not is_wanted(member(claim(), node(taints=[CANDIDATE]), BUSY), pool(), reason, NOW)


def test_never_expires_without_creation() -> None:
    assert wanted(member(claim(expire_after="0s", created=None), node(), BUSY)) == set()


# -- emptiness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "empty", "reason"),
    [
        pytest.param([], True, EMPTY, id="no pods"),
        pytest.param([pod()], False, UNDERUTILIZED, id="an ordinary pod"),
        pytest.param([pod(owner=None)], False, UNDERUTILIZED, id="a bare pod"),
        pytest.param([pod(owner="DaemonSet")], True, EMPTY, id="a DaemonSet's pod"),
        pytest.param([pod(owner="Node")], True, EMPTY, id="a mirror pod"),
        pytest.param([pod(phase="Succeeded"), pod(phase="Failed")], True, EMPTY, id="finished pods"),
        pytest.param([pod(deleted=DELETED)], True, EMPTY, id="a terminating pod"),
        pytest.param(
            [pod(owner="StatefulSet", deleted=DELETED)],
            False,
            UNDERUTILIZED,
            id="a StatefulSet's terminating pod returns",
        ),
        pytest.param([pod(owner="StatefulSet")], False, UNDERUTILIZED, id="a StatefulSet's pod"),
        pytest.param([pod(owner="StatefulSet", phase="Failed")], True, EMPTY, id="a StatefulSet's finished pod"),
        # The cost is 1 + deletion cost / 2^27 + priority / 2^25; not positive means that moving it costs nothing.
        pytest.param([pod(deletion_cost="-134217728")], False, EMPTY, id="deletion cost makes it 0"),
        pytest.param([pod(deletion_cost="-134217727")], False, UNDERUTILIZED, id="deletion cost makes it just above 0"),
        pytest.param([pod(deletion_cost="-2147483648")], False, EMPTY, id="deletion cost makes it negative"),
        pytest.param([pod(priority=-33554432)], False, EMPTY, id="priority makes it 0"),
        pytest.param([pod(priority=-33554431)], False, UNDERUTILIZED, id="priority makes it just above 0"),
        pytest.param(
            [pod(deletion_cost="-134217728", priority=1)], False, UNDERUTILIZED, id="priority lifts it above 0"
        ),
        pytest.param([pod(deletion_cost="-inf")], False, EMPTY, id="minus infinity"),
        pytest.param([pod(deletion_cost="nan")], False, UNDERUTILIZED, id="not a number counts 0"),
        pytest.param([pod(deletion_cost="cheap")], False, UNDERUTILIZED, id="unreadable counts 0"),
        pytest.param(
            [pod(deletion_cost="-2147483648"), pod()], False, UNDERUTILIZED, id="a cheap one does not offset another"
        ),
    ],
)
def test_is_empty(pods: list[PodRecord], empty: bool, reason: Reason) -> None:
    """A pod that costs nothing to move keeps its node from being empty, but not from the budget of Empty (R51)."""
    subject = member(claim(), node(), pods)
    assert is_empty(subject) is empty
    assert consolidation_reason(subject) is reason


# -- groups of pods and budgets: until and freeAt ---------------------------------------------------------------------


def free_at(pods: Sequence[PodRecord], now: datetime = NOW, do_not_disrupt: str | None = None) -> datetime | None:
    subject = member(claim(), node(do_not_disrupt=do_not_disrupt), pods)
    return when_free(subject, pool(), standing(pods, now), now).first(now)


def test_the_longer_of_two_protections_counts() -> None:
    created = "2026-03-04T11:30:00Z"
    pods = [pod("a", do_not_disrupt="1h", created=created), pod("b", do_not_disrupt="2h", created=created)]
    end = at("2026-03-04T13:30:00Z")
    subject = member(claim(), node(), pods)
    assert (ask(subject).allowed, ask(subject).until, free_at(pods)) == (False, end, end)
    assert not ask(subject, now=end - TICK).allowed
    assert ask(subject, now=end).allowed
    between = ask(subject, now=at("2026-03-04T12:30:00Z"))
    assert [str(verdict.object) for verdict in of(between, Rule.PODS).blockers] == ["Pod/default/b"]


def test_windows_on_different_days_never_coincide() -> None:
    pods = [pod("a", schedule="0 2 * * 6", duration="4h"), pod("b", schedule="0 2 * * 0", duration="4h")]
    assert free_at(pods) is None
    found = ask(member(claim(), node(), pods))
    assert (found.allowed, found.until) == (False, None)


def test_windows_that_coincide_next_month() -> None:
    # The first of a month, and Wednesdays: 2026-04-01 is one.
    pods = [pod("a", schedule="0 2 1 * *", duration="4h"), pod("b", schedule="0 4 * * 3", duration="4h")]
    opens, closes = at("2026-04-01T04:00:00Z"), at("2026-04-01T06:00:00Z")
    assert free_at(pods) == opens
    subject = member(claim(), node(), pods)
    assert (ask(subject).allowed, ask(subject).until) == (False, opens)
    assert not ask(subject, now=opens - TICK).allowed
    assert (ask(subject, now=opens).allowed, ask(subject, now=opens).until) == (True, closes)
    assert not ask(subject, now=closes).allowed


def test_a_window_that_only_opens_after_another_pods_protection() -> None:
    # Saturday 02:00 to 06:00; the other pod is protected until Saturday 05:00.
    pods = [pod("a", schedule="0 2 * * 6", duration="4h"), pod("b", do_not_disrupt="149h")]
    assert free_at(pods) == at("2026-03-07T05:00:00Z")


def test_an_allow_and_a_block_window_that_leave_an_hour() -> None:
    pods = [
        pod("a", schedule="0 2 * * *", duration="4h"),
        pod("b", block_schedule="0 3 * * *", block_duration="24h"),
        pod("c", block_schedule="0 2 * * 1-6", block_duration="24h"),
    ]
    # b blocks all day and night: 24h from 03:00 to 03:00.
    assert free_at(pods) is None
    # Without b only Sunday 02:00 to 06:00 is left.
    assert free_at([pods[0], pods[2]]) == at("2026-03-08T02:00:00Z")


def test_budget_and_pod_window_must_both_be_open() -> None:
    pods = [pod("a", schedule="0 2 * * *", duration="4h")]
    weekdays = [budget("0", [], "0 0 * * 1-5", "24h"), budget("100%")]
    found = ask(member(claim(), node(), pods), budgets=weekdays)
    assert (found.allowed, found.until) == (False, at("2026-03-07T02:00:00Z"))
    # Budgets are the pool's matter, and not part of freeAt.
    assert free_at(pods) == at("2026-03-05T02:00:00Z")


def test_free_now_is_now() -> None:
    assert free_at([pod()]) == NOW
    assert free_at([]) == NOW


def test_free_at_asks_the_node_too() -> None:
    assert free_at([pod()], do_not_disrupt="true") is None
    assert free_at([pod()], do_not_disrupt="100h") == at("2026-03-05T04:00:00Z")


def test_free_at_is_not_for_nodes_that_may_not_be_disrupted_at_all() -> None:
    none = standing([])
    assert when_free(member(claim(), node(initialized=False)), pool(), none, NOW).first(NOW) is None
    assert when_free(member(claim(deleted=DELETED), node()), pool(), none, NOW).first(NOW) is None
    assert when_free(member(claim()), pool(), none, NOW).first(NOW) is None
    assert when_free(member(claim(), node()), None, none, NOW).first(NOW) is None


def test_free_at_knows_neither_consolidate_after_nor_a_limited_drain() -> None:
    busy = member(claim(last_pod_event="2026-03-04T12:00:00Z"), node())
    assert when_free(busy, pool(consolidate_after="Never"), standing([]), NOW).first(NOW) == NOW
    limited = member(claim(grace_period="72h"), node(), [GUARDED])
    assert when_free(limited, pool(), standing([GUARDED]), NOW).first(NOW) is None


# -- the budget rule --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budgets", "allowed", "message"),
    [
        pytest.param([], True, "10 of 10 left for Drifted", id="unlimited"),
        pytest.param([budget("2")], True, "2 of 2 left for Drifted by budgets[0]", id="some left"),
        pytest.param(
            [budget("2"), budget("0")],
            False,
            "budgets[1] of NodePool default allows 0 nodes for Drifted now",
            id="zero",
        ),
        pytest.param(
            [budget("x")],
            False,
            "budgets[0] of NodePool default is invalid and counts as 0: "
            "nodes 'x' is neither a count nor a percentage up to 100%",
            id="invalid",
        ),
    ],
)
def test_budget_rule(budgets: list[Budget], allowed: bool, message: str) -> None:
    left = allowance(read_budgets(budgets), reason=DRIFTED, now=NOW, counts=PoolCounts(nodes=10))
    verdict = budget_rule(member(claim(), node()), DRIFTED, left, NOW)
    assert (verdict.allowed, verdict.until, verdict.message) == (allowed, None, message)
    assert not verdict.transient


def test_a_budget_that_is_used_up_is_free_again_when_a_disruption_ends() -> None:
    counts = PoolCounts(nodes=10, consumers=(BudgetConsumer(node="a", state=NodeState.DRAINING, unhealthy=False),))
    left = allowance(read_budgets([budget("1")]), reason=DRIFTED, now=NOW, counts=counts)
    verdict = budget_rule(member(claim(), node()), DRIFTED, left, NOW)
    assert (verdict.allowed, verdict.transient) == (False, True)
    assert verdict.message == "0 of 1 left for Drifted by budgets[0]: 1 node uses it up"


def test_budget_window_is_an_until() -> None:
    found = ask(member(claim(), node()), budgets=[budget("0", ["Drifted"], "0 9 * * 1-5", "8h")])
    end = at("2026-03-04T17:00:00Z")
    assert (found.allowed, found.until, blocking(found)) == (False, end, [Rule.BUDGET])
    assert ask(member(claim(), node()), EMPTY, budgets=[budget("0", ["Drifted"], "0 9 * * 1-5", "8h")]).allowed


# -- the right moment --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ready", ["False", "Unknown", None])
def test_a_node_that_is_not_ready_is_not_consolidated_for_being_underutilized(ready: str | None) -> None:
    """Node repair is its method. As an empty node it may go."""
    subject = member(claim(), node(ready=ready), [pod()])
    found = ask(subject, UNDERUTILIZED)
    assert (found.allowed, found.until, blocking(found)) == (False, None, [Rule.READY])
    assert of(found, Rule.READY).message == "the node is NotReady; node repair replaces it, not consolidation"
    for reason in (EMPTY, DRIFTED, EXPIRED):
        assert Rule.READY not in blocking(ask(subject, reason))


def minutes(number: float) -> str:
    """So long before now."""
    return (NOW - timedelta(minutes=number)).isoformat()


def starting(name: str, created: float, **fields: Any) -> ClusterNode:
    made = claim(name, created=minutes(created), statuses={}, **fields)
    return member(made)


def started(name: str, created: float, up: float) -> ClusterNode:
    made = claim(name, created=minutes(created), initialized_since=minutes(up))
    return member(made, node(f"node-{name}"))


def test_new_nodes_hold_consolidation_back_until_they_are_up() -> None:
    until = NOW + LONGEST_BOOT - timedelta(minutes=1)
    found = starting_nodes([started("a", 60, 58), starting("c", 2), starting("b", 1), starting("late", 11)], NOW)
    assert found == StartingNodes(("b", "c"), until)
    asked = ask(member(claim(), node(), [pod()]), UNDERUTILIZED, starting=found)
    assert (asked.allowed, asked.until, blocking(asked)) == (False, until, [Rule.SCALE_OUT])
    assert "starting for pending pods: b, c" in of(asked, Rule.SCALE_OUT).message
    assert ask(member(claim(), node(), [pod()]), UNDERUTILIZED, until, starting=found).allowed
    for reason in (EMPTY, DRIFTED, EXPIRED):
        assert ask(member(claim(), node(), [pod()]), reason, starting=found).allowed


def test_only_some_claims_are_named() -> None:
    found = starting_nodes([starting(f"c{number}", 1) for number in range(5)], NOW)
    asked = ask(member(claim(), node(), [pod()]), UNDERUTILIZED, starting=found)
    assert of(asked, Rule.SCALE_OUT).message.endswith(": c0, c1, c2 and 2 more")


@pytest.mark.parametrize(
    "found",
    [
        starting("old", LONGEST_BOOT / timedelta(minutes=1)),
        starting("gone", 1, deleted=DELETED),
        starting("unlaunched", 1, provider_id=""),
        member(msgspec.structs.replace(claim("new", created=minutes(1), statuses={}), replacement=True)),
        member(msgspec.structs.replace(claim("new", statuses={}), created_at=None)),
        started("up", 2, 1),
        member(None, node("other", initialized=False)),
    ],
)
def test_what_holds_nothing_back(found: ClusterNode) -> None:
    """Nodes that take too long, leave, are not launched, replace others, or are up."""
    assert starting_nodes([found], NOW) is None


@pytest.mark.parametrize(("began", "left"), [(25, 5), (29, 1), (30, None), (40, None)])
def test_a_scale_out_without_a_break_holds_back_for_half_an_hour_at_most(began: int, left: int | None) -> None:
    assert timedelta(minutes=30) == LONGEST_SCALE_OUT
    chain = [started(f"n{age}", age + 2, age) for age in range(1, began - 1)]
    before = started("before", 90, began + 1)  # there was a break after it
    expected = None if left is None else StartingNodes(("last",), NOW + timedelta(minutes=left))
    assert starting_nodes([starting("last", 1), before, *chain], NOW) == expected
