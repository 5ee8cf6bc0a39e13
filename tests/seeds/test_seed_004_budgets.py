"""Seed 004, disruption controls by reason: each example of a budget, with what the API needs added.

The seed writes `nodes: 10` (the API wants text) and a schedule without duration (both go together, R29).
"""

import pytest

from dovetail.api.names import Reason
from dovetail.model.rule_settings import BudgetSemantics
from dovetail.rules.budgets import BudgetConsumer, PoolCounts, read_budgets
from dovetail.rules.states import NodeState
from tests.seeds.documents import SEED_004_APPROACH_B
from tests.seeds.reading import NODES, allowed, limits, pool_with_budgets, read_pool

NOW = "2026-03-04T12:00:00Z"

# -- "How should Karpenter handle the default or undefined reason case?" ----------------------------------------------

DEFAULT_CASE = """
    budgets:
      - nodes: "10"
        reasons: [drifted, underutilized]
        schedule: "* * * * *"
        duration: 1m
      - nodes: "30"
        schedule: "* * * * *"
        duration: 1m
    """


def test_a_budget_without_reasons_holds_for_all_that_are_not_named() -> None:
    found = limits(pool_with_budgets(DEFAULT_CASE), NOW)
    assert found == {"Empty": 30, "Drifted": 10, "Underutilized": 10, "Expired": 30}


@pytest.mark.parametrize(("busy", "left"), [(29, 1), (30, 0)])
def test_disrupting_and_unhealthy_together_must_be_less_than_30(busy: int, left: int) -> None:
    consumers = [BudgetConsumer(node=f"n-{n}", state=NodeState.DRAINING, unhealthy=n % 2 == 0) for n in range(busy)]
    counts = PoolCounts(nodes=NODES, consumers=tuple(consumers))
    assert allowed(pool_with_budgets(DEFAULT_CASE), Reason.EMPTY, NOW, counts) == left


def test_as_it_stands_a_schedule_without_duration_allows_nothing() -> None:
    as_written = """
        budgets:
          - nodes: 10
            reasons: [drifted, underutilized]
            schedule: "* * * * *"
          - nodes: 30
            schedule: "* * * * *"
        """
    pool = pool_with_budgets(as_written)
    assert [rule.field for rule in read_budgets(pool.budgets)] == ["schedule", "schedule"]
    assert set(limits(pool, NOW).values()) == {0}


# -- "How should allowed disruptions be calculated in a multi-reason world?" ------------------------------------------

MULTI_REASON = """
    budgets:
      - nodes: "15"
        reasons: [drifted, underutilized]
        schedule: "* * * * *"
        duration: 1m
      - nodes: "10"
        reasons: [drifted]
        schedule: "* * * * *"
        duration: 1m
      - nodes: "5"
        schedule: "* * * * *"
        duration: 1m
    """
DISRUPTING = {"drifted": 3, "underutilized": 6, "expired": 3, "empty": 2}


def test_min_node_count_of_active_budget() -> None:
    found = limits(pool_with_budgets(MULTI_REASON), NOW)
    assert found == {"Drifted": 10, "Underutilized": 15, "Empty": 5, "Expired": 5}


def test_upstream_reads_the_same_budgets_as_5_for_all() -> None:
    assert set(limits(pool_with_budgets(MULTI_REASON), NOW, BudgetSemantics.UPSTREAM).values()) == {5}


@pytest.mark.parametrize(
    ("reason", "first", "second"),
    [
        pytest.param(Reason.DRIFTED, 10 - 3, 0, id="drifted: 10 - 14, none"),
        pytest.param(Reason.UNDERUTILIZED, 15 - 6, 1, id="underutilized: 15 - 14, one"),
        pytest.param(Reason.EMPTY, 0, 0, id="default: 5 - 14, none"),
        pytest.param(Reason.EXPIRED, 0, 0, id="default, expired: 5 - 14, none"),
    ],
)
def test_the_second_equation_is_ours(reason: Reason, first: int, second: int) -> None:
    total = sum(DISRUPTING.values())
    assert total == 14
    consumers = [BudgetConsumer(node=f"n-{n}", state=NodeState.DRAINING, unhealthy=False) for n in range(total)]
    counts = PoolCounts(nodes=NODES, consumers=tuple(consumers))
    found = allowed(pool_with_budgets(MULTI_REASON), reason, NOW, counts)
    assert found == second
    if reason in {Reason.DRIFTED, Reason.UNDERUTILIZED}:
        assert found != first


# -- "How should we handle an unspecified reason when others are specified?" ------------------------------------------

UNSPECIFIED = """
    budgets:
      - nodes: "10"
        reasons: [drifted, underutilized]
        schedule: "* * * * *"
        duration: 1m
      - nodes: "5"
        reasons: [empty]
        schedule: "* * * * *"
        duration: 1m
    """


def test_without_a_default_the_others_have_the_total_number_of_nodes() -> None:
    found = limits(pool_with_budgets(UNSPECIFIED), NOW)
    assert found == {"Empty": 5, "Drifted": 10, "Underutilized": 10, "Expired": NODES}


def test_as_it_stands_drift_is_no_reason_and_its_budget_allows_nothing() -> None:
    pool = pool_with_budgets(UNSPECIFIED.replace("[drifted,", "[drift,"))
    assert [rule.field for rule in read_budgets(pool.budgets)] == ["reasons", ""]
    assert limits(pool, NOW) == {"Empty": 5, "Drifted": 0, "Underutilized": 0, "Expired": NODES}


# -- API design -------------------------------------------------------------------------------------------------------

LIST_APPROACH = """
    apiVersion: karpenter.sh/v1beta1
    kind: NodePool
    metadata:
      name: default
    spec: # This is not a complete NodePool Spec.
      disruption:
        budgets:
        - schedule: "* * * * *"
          duration: 1m
          reasons: [drifted, underutilized]
          nodes: "10"
        # For all other reasons , only allow 5 nodes to be disrupted at a time
        - nodes: "5"
          schedule: "* * * * *"
          duration: 1m
    """


def test_list_approach() -> None:
    found = limits(read_pool(LIST_APPROACH), NOW)
    assert found == {"Empty": 5, "Drifted": 10, "Underutilized": 10, "Expired": 5}


def test_single_reason_approach_written_as_a_list() -> None:
    found = limits(read_pool(LIST_APPROACH.replace("[drifted, underutilized]", "[drifted]")), NOW)
    assert found == {"Empty": 5, "Drifted": 10, "Underutilized": 5, "Expired": 5}


@pytest.mark.parametrize("written", ["reason: [drifted, underutilized]", "reason: drifted"])
def test_as_it_stands_the_singular_is_no_field_and_the_budget_holds_for_all(written: str) -> None:
    found = limits(read_pool(LIST_APPROACH.replace("reasons: [drifted, underutilized]", written)), NOW)
    assert found == {"Empty": 5, "Drifted": 5, "Underutilized": 5, "Expired": 5}


def test_per_reason_controls_are_not_offered_and_leave_the_default_of_ten_percent() -> None:
    assert set(limits(read_pool(SEED_004_APPROACH_B), NOW).values()) == {10}


def test_the_budgets_of_per_reason_controls_written_with_reasons() -> None:
    budgets = """
        budgets:
          - nodes: 10%
            schedule: "0 0 1 * *"
            duration: 1h
          - nodes: "20%"
            reasons: [drifted]
            schedule: "0 0 1 * *"
            duration: "1h"
          - nodes: "10%"
            reasons: [drifted]
            schedule: "0 0 * * 0"
            duration: "2h"
          - nodes: "50%"
            reasons: [drifted]
            schedule: "@monthly"
            duration: 1h
        """
    pool = pool_with_budgets(budgets)
    # The first of March 2026 is a Sunday: all are active, then only Sunday's.
    assert limits(pool, "2026-03-01T00:59:59Z") == {"Empty": 10, "Drifted": 10, "Underutilized": 10, "Expired": 10}
    assert limits(pool, "2026-03-01T01:00:00Z") == {"Empty": 100, "Drifted": 10, "Underutilized": 100, "Expired": 100}
    assert limits(pool, "2026-03-01T02:00:00Z") == {"Empty": 100, "Drifted": 100, "Underutilized": 100, "Expired": 100}
    # The first of April is a Wednesday: 20% and 50% name Drifted.
    assert limits(pool, "2026-04-01T00:00:00Z") == {"Empty": 10, "Drifted": 20, "Underutilized": 10, "Expired": 10}


# -- user scenarios ---------------------------------------------------------------------------------------------------


def test_scenario_1_upgrades_only_in_business_hours_without_giving_up_consolidation() -> None:
    budgets = """
        budgets:
          - nodes: "0"
            reasons: [drifted]
            schedule: "0 17 * * 1-5"
            duration: 16h
          - nodes: "0"
            reasons: [drifted]
            schedule: "0 0 * * 0,6"
            duration: 33h
          - nodes: 20%
        """
    pool = pool_with_budgets(budgets)
    for now, drifted in {
        "2026-03-04T08:59:59Z": 0,
        "2026-03-04T09:00:00Z": 20,
        "2026-03-04T16:59:59Z": 20,
        "2026-03-04T17:00:00Z": 0,
        "2026-03-07T12:00:00Z": 0,
        "2026-03-08T12:00:00Z": 0,
        "2026-03-09T08:59:59Z": 0,
        "2026-03-09T09:00:00Z": 20,
    }.items():
        assert limits(pool, now) == {"Empty": 20, "Drifted": drifted, "Underutilized": 20, "Expired": 20}, now


def test_scenario_2_empty_nodes_all_day_the_rest_only_after_hours() -> None:
    budgets = """
        budgets:
          - nodes: "0"
            reasons: [drifted, underutilized]
            schedule: "0 9 * * 1-5"
            duration: 8h
          - nodes: 100%
            reasons: [empty]
        """
    pool = pool_with_budgets(budgets)
    for now, others in {
        "2026-03-04T08:59:59Z": NODES,
        "2026-03-04T09:00:00Z": 0,
        "2026-03-04T17:00:00Z": NODES,
    }.items():
        found = limits(pool, now)
        assert found == {"Empty": NODES, "Drifted": others, "Underutilized": others, "Expired": NODES}, now
