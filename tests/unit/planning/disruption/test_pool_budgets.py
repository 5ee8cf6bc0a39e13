"""Which nodes use the budgets of a pool."""

from dovetail.planning.disruption.pool_budgets import count_with
from dovetail.rules.budgets import counts_of
from dovetail.rules.states import state_of
from tests.harness import builders


def test_a_node_in_a_command_uses_the_budget_once() -> None:
    """One node is counted already, because it is not Ready; the other one does not show its command yet."""
    members = [
        builders.member(builders.claim(f"claim-{name}"), builders.node(name, ready=ready))
        for name, ready in (("new", "True"), ("shown", "False"), ("other", "True"))
    ]
    known = [(member, state_of(member)) for member in members]
    counts = count_with(counts_of(known), known, {"claim-new", "claim-shown"}.__contains__)
    assert sorted(consumer.node for consumer in counts.consumers) == ["new", "shown"]
