"""Which nodes can be spared, alone or together (02 §7.8, §7.9; R36)?"""

import itertools

import msgspec

from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import DisruptionBoard
from dovetail.planning.disruption.consolidation import fair_order, in_order, multi, single
from dovetail.planning.disruption.replacing import ConsolidationOptions, Move
from tests.scheduling.inspection import fingerprint
from tests.unit.planning.disruption.boards import Used, board, pod, room, used
from tests.unit.scheduling.problems import HOST, machine, pool

TYPES = [machine("one", 1), machine("two", 2), machine("four", 4), machine("eight", 8)]


def always() -> bool:
    return True


def together(on: DisruptionBoard) -> Move:
    found = multi(on, ConsolidationOptions(), always)
    assert found is not None
    return found


def nodes(move: Move | None) -> set[str] | None:
    return None if move is None else {each.node for each in move.candidates}


def poison(name: str, number: int, **fields: object) -> Used:
    """A node that cannot go: its pod is at home there. And it is the first to be thought of."""
    at_home = pod(f"{name}-{number}", "4", nodeSelector={HOST: f"{name}{number:03}"})
    return used(f"{name}{number:03}", at_home, cpu=4, price=1000, **fields)  # type: ignore[arg-type]


# -- one by one --------------------------------------------------------------------------------------------------------


def test_the_order_is_by_what_is_saved_for_what_it_costs_to_move() -> None:
    some = [used("a", cost=2.0, price=10), used("b", cost=1.0, price=10), used("c", price=None), used("d", price=10)]
    assert [each.node for each in in_order(one.candidate for one in some)] == ["b", "d", "a", "c"]


def test_pools_take_turns() -> None:
    large = [used(f"x{number}", pool="x", price=100 - number) for number in range(3)]
    small = [used("y0", pool="y", price=1), used("z0", pool="z", price=2)]
    order = fair_order(one.candidate for one in (*large, *small))
    assert [each.node for each in order] == ["x0", "z0", "y0", "x1", "x2"]


def test_the_best_is_taken_and_not_the_first() -> None:
    """What is dear for its pods may save little."""
    first = used("a", pod("p1", "3"), cpu=8, price=8)  # must be replaced by one for 4
    second = used("b", pod("p2"), pod("p3"), cpu=2, price=9)  # can just go
    found = single(board(first, second, room("z", 2), types=TYPES), ConsolidationOptions(), always)
    assert [each.candidates[0].node for each in found.moves] == ["b", "a"]


def test_every_node_is_looked_at_and_has_an_answer() -> None:
    some = [
        *(poison("x", number) for number in range(5)),
        used("spare", pod("p")),
        used("odd", unmovable=(Sentence("odd"),)),
    ]
    found = single(board(*some, room("z", 1)), ConsolidationOptions(), always)
    answered = {each.candidates[0].node for each in found.moves} | set(found.refused)
    assert answered == {each.node.name for each in some}
    assert found.complete
    assert str(found.refused["odd"]) == "odd"
    assert "on no other node" in str(found.refused["x000"])


def test_what_shows_that_it_is_impossible_is_said_whether_looked_for_first_or_last() -> None:
    full = [used(f"n{number}", pod(f"p{number}", "4")) for number in range(3)]
    found = single(board(*full, types=[machine("same", 4)]), ConsolidationOptions(), always)
    assert [str(each).split(";")[1:] for each in found.refused.values()] == [
        [
            " it fits on no other node",
            " the cheapest new node for the rest (same, $0/h) is no cheaper than what it replaces ($0/h)",
        ]
    ] * 3
    assert [each.node for each in found.too_expensive] == ["n0", "n1", "n2"]


def test_without_a_price_nothing_is_said_to_be_dearer() -> None:
    found = single(board(used("a", pod("p", "4"), price=None), types=TYPES), ConsolidationOptions(), always)
    assert "the price of node a is not known" in str(found.refused["a"])


def test_when_time_runs_out_what_was_seen_is_kept_and_no_pool_was_left_out() -> None:
    large = [used(f"x{number}", pod(f"p{number}"), pool="x", price=100) for number in range(5)]
    small = used("y0", pod("q"), pool="y", price=1)
    on = board(*large, small, room("z", 8), pools=[pool("x"), pool("y")])
    answers = itertools.chain([True] * 2, itertools.repeat(False))
    found = single(on, ConsolidationOptions(), lambda: next(answers))
    assert {each.candidates[0].node for each in found.moves} == {"x0", "y0"}
    assert not found.complete


# -- several -----------------------------------------------------------------------------------------------------------


def test_as_many_go_as_there_is_room_for() -> None:
    spare = [used(f"n{number}", pod(f"p{number}")) for number in range(6)]
    assert len(together(board(*spare)).candidates) == 4  # two are enough for all six pods
    assert multi(board(*spare[:1], room("z", 8)), ConsolidationOptions(), always) is None  # one is no set


def test_a_node_that_cannot_go_early_in_the_order_does_not_hide_the_others() -> None:
    spare = [used(f"n{number}", pod(f"p{number}")) for number in range(2)]
    on = board(poison("x", 0), *spare, room("z", 2))
    assert nodes(together(on)) == {"n0", "n1"}


def test_a_node_that_cannot_go_does_not_use_up_the_budget_of_others() -> None:
    spare = [used(f"n{number}", pod(f"p{number}")) for number in range(3)]
    on = board(poison("x", 0), poison("x", 1), *spare, room("z", 3), allowed=2)
    assert len(together(on).candidates) == 2


def test_a_large_pool_of_nodes_that_cannot_go_does_not_hide_a_small_one() -> None:
    """They fill the first hundred places, which is all that upstream looks at."""
    large = [poison("x", number, pool="large") for number in range(120)]
    spare = [used(f"n{number}", pod(f"p{number}"), pool="small") for number in range(2)]
    on = board(*large, *spare, room("z", 2), pools=[pool("large"), pool("small")])
    assert nodes(together(on)) == {"n0", "n1"}


def test_two_that_are_worth_it_only_together_are_found_behind_one_that_cannot_go() -> None:
    """Each would need a new node as dear as itself; one for both is cheaper."""
    pair = [used(f"n{number}", pod(f"p{number}", "2"), cpu=2, price=2, type_="old") for number in range(2)]
    found = together(board(poison("x", 0), *pair, types=[machine("two", 2), machine("four", 4, price=3)]))
    assert nodes(found) == {"n0", "n1"}
    assert found.replacements[0].types == ("four",)
    assert found.savings == 1


def test_a_node_that_makes_the_set_save_less_is_left_out() -> None:
    """Each of the pair just goes; with the third, a new node would be needed that costs as much as it does."""
    pair = [used(f"n{number}", pod(f"p{number}"), cpu=4) for number in range(2)]
    third = used("t", pod("q", "8"), cpu=8, type_="x")
    assert nodes(together(board(*pair, third, room("z", 2), types=TYPES))) == {"n0", "n1"}


def test_sets_keep_within_the_budgets_of_all_their_pools() -> None:
    spare = [used(f"{name}{number}", pod(f"{name}{number}"), pool=name) for name in "xyz" for number in range(4)]
    pools = [pool(name) for name in "xyz"]
    found = together(board(*spare, room("free", 12), pools=pools, allowed={"x": 1, "y": 0, "z": 3}))
    assert sorted(each.pool for each in found.candidates) == ["x", "z", "z", "z"]


def test_without_prices_the_larger_set_is_taken() -> None:
    spare = [used(f"n{number}", pod(f"p{number}"), price=None) for number in range(4)]
    assert len(together(board(*spare, room("z", 3))).candidates) == 3


def test_time_that_runs_out_ends_the_search() -> None:
    spare = [used(f"n{number}", pod(f"p{number}")) for number in range(6)]
    assert multi(board(*spare, room("z", 8)), ConsolidationOptions(), lambda: False) is None


def test_nothing_is_changed_by_searching() -> None:
    spare = [used(f"n{number}", pod(f"p{number}", labels={"app": "web"})) for number in range(6)]
    on = board(*spare, room("z", 3), types=TYPES)
    before = fingerprint(on.world)
    assert together(on) == together(msgspec.structs.replace(on))
    single(on, ConsolidationOptions(), always)
    assert fingerprint(on.world) == before


def test_the_best_pair_is_found_behind_a_node_that_only_looks_better() -> None:
    """Alone it saves most, but it takes the room of the pair, which saves more."""
    first = used("a", pod("p", "4"), cpu=4, price=6)
    pair = [used(f"n{number}", pod(f"q{number}", "2"), cpu=2, price=5) for number in range(2)]
    assert nodes(together(board(first, *pair, room("z", 4)))) == {"n0", "n1"}
