"""Is a move worth its disruption (02 §7.10; case 56; ADR-0037)?"""

import pytest

from dovetail.api.names import ConsolidationPolicy
from dovetail.planning.disruption.board import PoolFacts
from dovetail.planning.disruption.consolidation import single
from dovetail.planning.disruption.replacing import ConsolidationOptions, Move, NotConsolidatable
from dovetail.planning.disruption.worth import gain, most_gain, not_worth_it
from dovetail.scheduling.placement import Solution
from tests.unit.planning.disruption.boards import Used, board, pod, room, used


def balanced(name: str = "default", *, cost: int = 100, disruption: float = 100.0) -> PoolFacts:
    policy = ConsolidationPolicy.BALANCED
    return PoolFacts(name=name, policy=policy, total_cost=cost, total_disruption=disruption)


def move(savings: int, *going: Used) -> Move:
    return Move(candidates=tuple(each.candidate for each in going), solution=Solution(), savings=savings)


def wanted(savings: int, *going: Used, facts: PoolFacts) -> bool:
    return not_worth_it(move(savings, *going), {facts.name: facts}) is None


def test_half_as_much_of_the_cost_as_of_the_disruption_is_enough() -> None:
    one = used("a", cost=20.0, price=50)
    assert wanted(10, one, facts=balanced())
    assert not wanted(9, one, facts=balanced())
    assert wanted(50, one, facts=balanced())


def test_exactly_half_passes_whatever_the_numbers() -> None:
    """Not so if each part is divided first: then a third of something may be a little less than a third."""
    for savings in range(1, 40):
        for cost in range(1, 40):
            facts = balanced(cost=2 * 7 * savings, disruption=7.0 * cost)
            assert wanted(savings, used("a", cost=float(cost), price=10**6), facts=facts), (savings, cost)


@pytest.mark.parametrize("facts", [balanced(cost=0), balanced(disruption=0), balanced(cost=-1)])
def test_totals_that_are_missing_reject(facts: PoolFacts) -> None:
    assert not wanted(50, used("a", price=50), facts=facts)


def test_what_saves_nothing_is_rejected() -> None:
    assert not wanted(0, used("a", price=50), facts=balanced())
    assert not wanted(0, used("a", price=None), facts=balanced())


def test_other_policies_are_not_scored_without_prices() -> None:
    plain = PoolFacts(name="default", total_cost=0, total_disruption=0)
    assert wanted(0, used("a", cost=1000.0), facts=plain)


def test_other_policies_ask_for_a_quarter() -> None:
    """A fifth of the disruption for a twentieth of the cost."""
    plain = PoolFacts(name="default", total_cost=100, total_disruption=100.0)
    one = used("a", cost=20.0, price=50)
    assert wanted(5, one, facts=plain)
    assert not wanted(4, one, facts=plain)
    said = not_worth_it(move(4, one), {"default": plain})
    assert said is not None
    assert "in NodePool default, for each part of its disruption this saves 0.20 parts of its cost" in str(said)
    assert said.too_expensive


def test_the_gain_is_what_is_saved_beyond_the_least() -> None:
    """Moves are ordered by it: of two with the same savings the one that disrupts less comes first."""
    facts = {"default": PoolFacts(name="default", total_cost=100, total_disruption=100.0)}
    one, two = used("a", cost=20.0, price=50), used("b", cost=8.0, price=50)
    assert gain(move(10, one), facts) == 5
    assert gain(move(10, two), facts) == 8
    assert gain(move(10, one, two), facts) == 3
    assert gain(move(10, one), {"default": PoolFacts(name="default", total_cost=100)}) == 10


def test_no_move_gains_more_than_its_nodes_save_beyond_the_new_ones() -> None:
    facts = {"default": PoolFacts(name="default", total_cost=100, total_disruption=100.0)}
    one, two = used("a", cost=20.0, price=50), used("b", cost=5.0, price=50)
    assert most_gain([one.candidate, two.candidate], 90, facts) == gain(move(10, one, two), facts)
    assert most_gain([used("c", cost=5.0, price=None).candidate], 0, facts) == -1.25


def test_every_balanced_pool_of_a_move_must_want_it_for_its_own_share() -> None:
    """What is saved is split by what the nodes cost."""
    x, y = used("a", pool="x", cost=20.0, price=30), used("b", pool="y", cost=20.0, price=10)
    both = {"x": balanced("x"), "y": balanced("y")}
    assert not_worth_it(move(40, x, y), both) is None  # 30 and 10 of 100, each for 20 of 100
    said = not_worth_it(move(36, x, y), both)  # 27, and 9
    assert isinstance(said, NotConsolidatable)
    assert "NodePool y is Balanced" in str(said)
    assert "saves 0.45 parts of its cost, less than 0.5" in str(said)
    assert not_worth_it(move(36, x, y), {**both, "y": PoolFacts(name="y")}) is None


def test_a_well_packed_node_stays_and_a_nearly_empty_one_goes() -> None:
    packed, spare = used("a", *(pod(f"p{n}") for n in range(8)), cpu=8), used("b", pod("q"), cpu=8)
    facts = balanced(cost=24, disruption=14.0)  # a third of the cost each; 9 and 2 of 14
    found = single(board(packed, spare, room("z", 8), facts=[facts]), ConsolidationOptions(), lambda: True)
    assert [each.candidates[0].node for each in found.moves] == ["b", "a"]  # 1/3 for 9/14 is more than a half
    dearer = balanced(cost=48, disruption=14.0)
    found = single(board(packed, spare, room("z", 8), facts=[dearer]), ConsolidationOptions(), lambda: True)
    assert [each.candidates[0].node for each in found.moves] == ["b"]
    assert "is Balanced" in str(found.refused["a"])
