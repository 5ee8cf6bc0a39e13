"""What the table of reasons says."""

from dovetail.api.names import Reason
from dovetail.rules.reasons import DISRUPTION_REASONS, MARKED


def test_only_what_deletes_nodes_at_once_asks_no_budget() -> None:
    assert set(Reason) - DISRUPTION_REASONS.keys() == {Reason.UNHEALTHY, Reason.INTERRUPTED}


def test_a_condition_of_one_reason_has_the_name_of_the_reason() -> None:
    """The checkers of the simulated cluster, which read nothing of the rules, count on it."""
    assert [condition.value for condition in MARKED.values()] == [reason.value for reason in MARKED]
