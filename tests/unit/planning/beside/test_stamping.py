"""Which claims are stamped, in which order, and how many."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.model.beside import Roll, RollCause, written_mark
from dovetail.model.pool_records import PoolRecord
from dovetail.planning.beside.stamping import GuardedNode, StampPlan, stamp_plan
from tests.harness import builders
from tests.harness.builders import at, budget, member

NOW = at("2026-03-10T00:00:00Z")
ASKED = written_mark(Roll(why=RollCause.ASKED, at=NOW))


def guarded(
    number: int,
    *,
    held: bool = False,
    rolled: str | None = None,
    stamped: bool = False,
    hashed: bool = True,
    pods: tuple[Any, ...] = (),
    node: dict[str, Any] | None = None,
    **claim: Any,
) -> GuardedNode:
    name = f"n{number}"
    record = builders.claim(name, provider_id=f"kwok://{name}", **{"created": f"2026-03-0{number}T00:00:00Z", **claim})
    record = type(record)(**{**as_dict(record), "rolled": rolled, "stamped": stamped, "hashed": hashed})
    return GuardedNode(member(record, builders.node(name, **(node or {})), pods), held)


def as_dict(record: Any) -> dict[str, Any]:
    return {field: getattr(record, field) for field in record.__struct_fields__}


def pool(after: str = "24h", **fields: Any) -> PoolRecord:
    return builders.pool(graceful_expire_after=after, **{"budgets": [budget("100%")], **fields})


def plan_of(*nodes: GuardedNode, of: PoolRecord | None = None) -> StampPlan:
    return stamp_plan(of or pool(), nodes, NOW)


def claims(plan: StampPlan) -> list[str]:
    return [order.claim for order in plan.stamps]


def test_the_oldest_go_first_as_far_as_the_budget_allows() -> None:
    nodes = [guarded(3), guarded(1), guarded(2)]
    assert claims(plan_of(*nodes, of=pool(budgets=[budget(2)]))) == ["n1", "n2"]
    assert claims(plan_of(*nodes, of=pool(budgets=[budget(0)]))) == []
    assert claims(plan_of(*nodes, of=pool(budgets=[]))) == ["n1", "n2", "n3"]


def test_the_budget_of_expired_counts_and_other_budgets_do_not() -> None:
    budgets = [budget(2), budget(0, ["Drifted"])]
    assert claims(plan_of(guarded(1), guarded(2), guarded(3), of=pool(budgets=budgets))) == ["n1", "n2"]


def test_claims_that_are_stamped_or_leaving_use_up_the_budget_once() -> None:
    two = pool(budgets=[budget(2)])
    assert claims(plan_of(guarded(1, stamped=True), guarded(2), guarded(3), of=two)) == ["n2"]
    leaving = guarded(1, stamped=True, deleted="2026-03-09T00:00:00Z")
    assert claims(plan_of(leaving, guarded(2), guarded(3), of=two)) == ["n2"]
    unready = guarded(1, node={"ready": "False"})
    assert claims(plan_of(unready, guarded(2), guarded(3), of=pool(budgets=[budget(1)]))) == []


@pytest.mark.parametrize(
    "why_not",
    [
        {"held": True},
        {"true": ["Drifted"]},
        {"statuses": {"Launched": "True", "Registered": "True"}},
        {"deleted": "2026-03-09T00:00:00Z"},
        {"true": ["DisruptionReason"]},
        {"node": {"do_not_disrupt": "true"}},
        {"node": {"do_not_disrupt": "2000h"}},
        {"pods": (builders.pod(do_not_disrupt="true"),)},
        {"created": "2026-03-09T12:00:00Z"},
        {"hashed": False},
    ],
)
def test_who_is_not_stamped(why_not: dict[str, Any]) -> None:
    assert claims(plan_of(guarded(1, **why_not))) == []
    assert claims(plan_of(guarded(1))) == ["n1"]


def test_with_a_grace_period_karpenter_takes_the_node_from_a_pod_that_is_protected_for_good() -> None:
    pods = (builders.pod(do_not_disrupt="true"),)
    assert claims(plan_of(guarded(1, pods=pods, grace_period="1h"))) == ["n1"]


def test_who_asked_goes_before_those_that_have_expired() -> None:
    plan = plan_of(guarded(1), guarded(2, rolled=ASKED), of=pool(budgets=[budget(1)]))
    assert [(order.claim, order.why) for order in plan.stamps] == [("n2", RollCause.ASKED)]
    assert claims(plan_of(guarded(2, rolled=ASKED), of=pool(after="Never"))) == ["n2"]


def test_who_asks_goes_under_the_budget_of_drifted() -> None:
    of = pool(after="Never", budgets=[budget(0, ["Drifted"]), budget("100%")])
    assert claims(plan_of(guarded(2, rolled=ASKED), of=of)) == []


@pytest.mark.parametrize(
    ("fields", "undone"),
    [
        ({"held": True}, True),
        ({"created": "2026-03-09T12:00:00Z"}, True),  # the pool was told to keep them longer
        ({}, False),
        ({"held": True, "true": ["DisruptionReason"]}, False),  # too late
        ({"held": True, "deleted": "2026-03-09T00:00:00Z"}, False),
    ],
)
def test_when_a_stamp_is_taken_back(fields: dict[str, Any], undone: bool) -> None:
    assert plan_of(guarded(1, stamped=True, **fields)).undo == (("n1",) if undone else ())


def test_a_stamp_that_is_taken_back_frees_its_budget() -> None:
    plan = plan_of(guarded(1, stamped=True, held=True), guarded(2), of=pool(budgets=[budget(1)]))
    assert (plan.undo, claims(plan)) == (("n1",), ["n2"])


def test_the_next_look_is_when_a_claim_expires_or_a_budget_changes() -> None:
    young = guarded(1, created="2026-03-09T12:00:00Z")
    assert plan_of(young).until == at("2026-03-10T12:00:00Z")
    closed = pool(budgets=[budget(0, schedule="0 0 * * *", duration="6h"), budget("100%", ["Drifted"])])
    assert plan_of(guarded(1), of=closed).until == at("2026-03-10T06:00:00Z")
    assert names.STAMP_PREFIX == "dovetail-expired-"
