"""What does a pass decide (02 §2, §7)? Docstrings cite 02 §14."""

from datetime import timedelta
from itertools import permutations

import pytest

from dovetail.api import objects
from dovetail.api.names import Reason
from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import REASONS, DisruptionBoard, Method, PoolFacts, RemainingBudgets
from dovetail.planning.disruption.commands import PodDestination, command_id
from dovetail.planning.disruption.methods import _METHODS, Decision, _Pass, decide_pass
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.rules.budgets import PoolCounts, allowance, read_budgets
from dovetail.scheduling.placement import MachineType, Origin
from tests.unit.planning.disruption.boards import (
    AT,
    DRIFTED,
    EMPTY,
    EXPIRED,
    UNDERUTILIZED,
    board,
    later,
    pod,
    room,
    used,
)
from tests.unit.scheduling.problems import machine, pool


def passed(on: DisruptionBoard) -> Decision:
    return decide_pass(on, ConsolidationOptions())


def by_method(on: DisruptionBoard, method: Method) -> Decision:
    return dict(_METHODS)[method](_Pass(on, ConsolidationOptions(), lambda: True), method)


def nodes(decision: Decision) -> list[list[str]]:
    return [command.nodes for command in decision.commands]


def methods(decision: Decision) -> set[Method]:
    return {command.method for command in decision.commands}


# -- budgets -----------------------------------------------------------------------------------------------------------


def test_what_is_used_up_twice_over_leaves_nothing_and_not_less() -> None:
    """02 §14.16."""
    on = board(allowed={"default": 0})
    left = RemainingBudgets(on, EMPTY)
    one = used("a").candidate
    assert not left.take(one)
    assert left.left("default") == 0


def test_a_pool_that_nobody_has_spoken_of_allows_nothing() -> None:
    assert RemainingBudgets(board(), EMPTY).left("unheard of") == 0
    assert not RemainingBudgets(board(), EMPTY).take(used("a", pool="unheard of").candidate)


@pytest.mark.parametrize(("budget", "gone"), [("0", 0), ("1", 1), ("50%", 2), ("34%", 2), ("100%", 3)])
def test_a_budget_limits_how_many_of_three_empty_nodes_go(budget: str, gone: int) -> None:
    """02 §14.17: R27: percentages round up."""
    three = [used(name, pool="default") for name in "abc"]
    rules = read_budgets(one_budget(budget))
    allowed = allowance(rules, reason=EMPTY, now=AT, counts=PoolCounts(nodes=3))
    on = later(board(*three, reasons={EMPTY: three}), allowances={("default", EMPTY): allowed})
    decision = passed(on)
    assert sum(map(len, nodes(decision))) == gone
    assert decision.standing == frozenset("abc")


def one_budget(nodes_: str) -> list[objects.Budget]:
    return [objects.Budget(nodes=nodes_)]


def test_budgets_of_one_reason_say_nothing_about_another() -> None:
    """R25, as far as it is used here."""
    going = used("a", cpu=4)
    on = board(going, reasons={EMPTY: [going], DRIFTED: [going]})
    none = {key: each for key, each in on.allowances.items() if key != ("default", EMPTY)}
    decision = passed(later(on, allowances=none))
    assert methods(decision) == {Method.DRIFT}


def test_a_pool_whose_replacements_failed_gives_only_nodes_that_need_none() -> None:
    """R23."""
    bare, full = used("a"), used("b", pod("p"))
    on = later(
        board(bare, full, room("z", 4), reasons={DRIFTED: [bare, full]}), pools_in_backoff=frozenset(("default",))
    )
    assert nodes(passed(on)) == [["a"]]
    waiting = passed(later(on, candidates={DRIFTED: (full.candidate,), UNDERUTILIZED: (full.candidate,)}))
    assert waiting.commands == ()


def test_a_command_says_what_it_takes_of_which_budget() -> None:
    some = [used("a", pool="x"), used("b", pool="x"), used("c", pool="y")]
    on = board(*some, reasons={EMPTY: some}, allowed={"x": 2, "y": 5}, pools=[pool("x"), pool("y")])
    used_up = passed(on).commands[0].budgets
    assert {name: (each.limit, each.allowed, each.takes) for name, each in used_up.items()} == {
        "x": (2, 2, 2),
        "y": (5, 5, 1),
    }


# -- §7.2: emptiness ---------------------------------------------------------------------------------------------------


def test_one_command_for_all_empty_nodes_within_the_budget_of_each_pool() -> None:
    """02 §14.21."""
    some = [used(f"{name}{number}", pool=name, cpu=number) for name in "xyz" for number in (1, 2, 3)]
    pools = [pool(name) for name in "xyz"]
    on = board(*some, reasons={EMPTY: some}, allowed={"x": 2, "y": 0, "z": 50}, pools=pools)
    decision = passed(on)
    assert nodes(decision) == [["x3", "z3", "x2", "z2", "z1"]]  # what saves most first
    assert decision.commands[0].reason is EMPTY
    assert decision.commands[0].decision == "delete"
    assert decision.commands[0].savings == 3 + 3 + 2 + 2 + 1
    assert decision.validated_first
    assert decision.standing == frozenset(each.node.name for each in some)


def test_consolidation_is_decided_besides_empty_nodes_and_counts_on_none_of_them() -> None:
    empty, small, other = used("a", cpu=8), used("b", pod("p", "1"), cpu=8), room("z", 1)
    on = board(empty, small, other, reasons={EMPTY: [empty], UNDERUTILIZED: [small]})
    decision = passed(on)
    assert [(command.method, command.nodes) for command in decision.commands] == [
        (Method.EMPTINESS, ["a"]),
        (Method.SINGLE_NODE, ["b"]),
    ]
    assert decision.validated_first
    assert decision.commands[1].landing == {"p": PodDestination(node="z")}


def test_what_empty_nodes_take_of_the_budget_is_gone_for_consolidation() -> None:
    empty, small = used("a", cpu=8), used("b", pod("p", "1"), cpu=8)
    on = board(empty, small, room("z", 1), reasons={EMPTY: [empty], UNDERUTILIZED: [small]}, allowed=1)
    decision = passed(on)
    assert nodes(decision) == [["a"]]


def test_drift_is_not_begun_besides_empty_nodes_and_comes_before_consolidation() -> None:
    empty, old, small = used("a", cpu=8), used("b", pod("p", "1")), used("c", pod("q", "1"))
    on = board(empty, old, small, room("z", 2), reasons={EMPTY: [empty], DRIFTED: [old], UNDERUTILIZED: [small]})
    decision = passed(on)
    assert nodes(decision) == [["a"]]
    assert decision.standing == {"a", "b"}
    without_empty = board(old, small, room("z", 2), reasons={DRIFTED: [old], UNDERUTILIZED: [small]})
    assert nodes(passed(without_empty)) == [["b"]]


def test_what_is_saved_is_not_known_where_a_price_is_not() -> None:
    some = [used("a"), used("b", price=None)]
    assert passed(board(*some, reasons={EMPTY: some})).commands[0].savings is None


def test_an_empty_node_that_has_drifted_goes_as_empty_and_else_as_drifted() -> None:
    """02 §14.28."""
    going = used("a")
    both = passed(board(going, reasons={EMPTY: [going], DRIFTED: [going]}))
    assert [command.reason for command in both.commands] == [EMPTY]
    never = passed(board(going, reasons={DRIFTED: [going]}))
    assert [command.reason for command in never.commands] == [DRIFTED]
    assert never.commands[0].decision == "delete"


def test_a_node_whose_pods_cost_nothing_to_move_goes_if_they_have_a_place() -> None:
    """02 §14.54: R51: the budget is that of Empty, but no node is bought for the pods."""
    free = used("a", pod("p1", "3"), cost=1.0)
    on = board(free, reasons={EMPTY: [free]}, types=[machine("four", 4)])
    assert passed(on).commands == ()
    assert passed(on).refused == {"a": Sentence("its pods would need a new node")}
    on = board(free, room("b", 4), reasons={EMPTY: [free]})
    (command,) = passed(on).commands
    assert (command.method, command.decision) == (Method.EMPTINESS, "delete")
    assert command.landing == {"p1": PodDestination(node="b")}


def test_nodes_whose_pods_cost_nothing_share_the_room_that_there_is_and_the_budget_of_empty() -> None:
    free = [used(name, pod(f"p-{name}", "3"), cost=1.0) for name in ("a", "b", "c")]
    found = passed(board(*free, room("d", 4), room("e", 4), reasons={EMPTY: free}, types=[machine("four", 4)]))
    assert nodes(found) == [["a"], ["b"]]
    assert found.refused == {"c": Sentence("its pods would need a new node")}
    short = board(*free, room("d", 4), room("e", 4), reasons={EMPTY: free}, allowed=1)
    assert nodes(passed(short)) == [["a"]]
    assert passed(short).standing == {"a", "b", "c"}


def test_empty_nodes_go_first_and_take_no_pods_of_others() -> None:
    bare, free = used("a"), used("b", pod("p1", "3"), cost=1.0)
    found = passed(board(bare, free, reasons={EMPTY: [bare, free]}))
    assert nodes(found) == [["a"]]
    found = passed(board(bare, free, room("c", 4), reasons={EMPTY: [bare, free]}))
    assert nodes(found) == [["a"], ["b"]]
    assert [command.landing for command in found.commands] == [{}, {"p1": PodDestination(node="c")}]


def test_pods_that_wait_do_not_stop_emptiness() -> None:
    going = used("a", cpu=64)
    on = board(going, reasons={EMPTY: [going]}, owed=[pod("huge", "32", origin=Origin.PENDING)])
    assert nodes(passed(on)) == [["a"]]


# -- §7.3: static drift ------------------------------------------------------------------------------------------------


def static(name: str = "fixed", **fields: int | None) -> PoolFacts:
    return PoolFacts(name=name, **{"replicas": 3, "claims": 3, **fields})  # type: ignore[arg-type]


def fixed_board(facts: PoolFacts, allowed: int = 100, count: int = 3) -> DisruptionBoard:
    some = [used(f"n{number}", pod(f"p{number}", "2"), pool="fixed") for number in range(count)]
    return board(*some, reasons={DRIFTED: some}, facts=[facts], pools=[pool("fixed")], allowed={"fixed": allowed})


def test_each_drifted_node_of_a_static_pool_has_a_command_of_its_own_with_one_from_the_template() -> None:
    decision = passed(fixed_board(static()))
    assert nodes(decision) == [["n0"], ["n1"], ["n2"]]
    assert methods(decision) == {Method.STATIC_DRIFT}
    for command in decision.commands:
        assert [(claim.pool, claim.pods, claim.types) for claim in command.replacements] == [("fixed", (), ())]
    assert not decision.validated_first
    assert decision.standing == frozenset()  # all of them are started


@pytest.mark.parametrize(
    ("facts", "allowed", "gone"),
    [
        (static(), 0, 0),
        (static(), 1, 1),
        (static(claims=4), 100, 0),  # scaling down comes first
        (static(claims=2), 100, 3),
        (static(free_claims=0), 100, 0),
        (static(free_claims=2), 100, 2),
        (static(free_claims=2), 1, 1),
        (static(free_claims=-1), 100, 0),
    ],
)
def test_static_drift_is_bound_by_budget_number_and_limit(facts: PoolFacts, allowed: int, gone: int) -> None:
    decision = passed(fixed_board(facts, allowed))
    assert len(decision.commands) == gone
    assert len(decision.standing) == 3 - gone


def test_what_the_limit_leaves_is_not_taken_off_the_budget() -> None:
    """Two static pools: what one cannot use for its limit does not change what the other may."""
    x, y = used("x", pool="x"), used("y", pool="y")
    facts = [static("x", free_claims=0), static("y")]
    on = board(x, y, reasons={DRIFTED: [x, y]}, facts=facts, allowed={"x": 1, "y": 1}, pools=[pool("x"), pool("y")])
    assert nodes(passed(on)) == [["y"]]


def test_a_static_node_without_pods_is_replaced_before_one_with_pods() -> None:
    early = used("early", pod("p1"), pool="fixed", since=AT - timedelta(hours=1))
    bare = used("late", pool="fixed", since=AT)
    facts, pools, reasons = [static()], [pool("fixed")], {DRIFTED: [early, bare]}
    assert nodes(passed(board(early, bare, reasons=reasons, facts=facts, pools=pools, allowed=1))) == [["late"]]


def test_a_static_node_is_only_replaced_never_by_the_general_method() -> None:
    """02 §14.29."""
    decision = passed(fixed_board(static(claims=4)))  # static drift must wait
    assert decision.commands == ()
    later_methods = by_method(fixed_board(static()), Method.DRIFT)
    assert later_methods.commands == ()


# -- §7.4: drift, and what expires gracefully --------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [DRIFTED, EXPIRED])
def test_nodes_without_pods_first_then_those_that_drifted_first(reason: Reason) -> None:
    """02 §14.24."""
    late, early = (
        used("late", pod("p1"), since=AT),
        used("early", pod("p2"), since=AT - timedelta(hours=1)),
    )
    bare = [used("bare1", since=AT + timedelta(hours=1)), used("bare2", since=AT)]
    on = board(late, early, *bare, room("b", 8), reasons={reason: [late, early, *bare]})
    decision = passed(on)
    assert nodes(decision) == [["bare2"], ["bare1"]]  # they need no place, so one need not wait for the other
    assert {command.reason for command in decision.commands} == {reason}
    assert not decision.validated_first
    assert decision.standing == frozenset(("late", "early"))
    rest = passed(board(late, early, room("b", 8), reasons={reason: [late, early]}))
    assert nodes(rest) == [["early"], ["late"]]


def test_equals_go_by_name_and_what_has_no_time_goes_last() -> None:
    some = [used(name, pod(name), since=since) for name, since in (("c", AT), ("b", AT), ("a", None))]
    assert nodes(passed(board(*some, room("z", 8), reasons={DRIFTED: some}))) == [["b"], ["c"], ["a"]]


def test_each_is_exchanged_for_its_own_and_pods_are_not_put_where_they_would_have_to_go_again() -> None:
    some = [used(name, pod(f"p{name}"), since=AT) for name in "abc"]  # each would have room for all
    types = [machine("two", 2, price=100)]
    decision = passed(board(*some, types=types, reasons={DRIFTED: some}))
    assert nodes(decision) == [["a"], ["b"], ["c"]]
    assert [dict(each.landing) for each in decision.commands] == [
        {f"p{name}": PodDestination(replacement=1)} for name in "abc"
    ]


def test_where_nothing_new_can_be_had_one_of_them_takes_the_pods_of_the_others() -> None:
    some = [used(name, pod(f"p{name}"), since=AT) for name in "abc"]
    decision = passed(board(*some, reasons={DRIFTED: some}))
    assert [dict(each.landing) for each in decision.commands] == [
        {"pa": PodDestination(node="b")},
        {"pc": PodDestination(node="b")},
    ]
    assert decision.standing == {"b"}


def test_a_place_is_given_once() -> None:
    some = [used(name, pod(f"p{name}", "3"), since=AT) for name in "ab"]
    decision = passed(board(*some, room("z", 4), types=[machine("four", 4, price=100)], reasons={DRIFTED: some}))
    assert [dict(each.landing) for each in decision.commands] == [
        {"pa": PodDestination(node="z")},
        {"pb": PodDestination(replacement=1)},
    ]


def test_whoever_moves_at_the_same_time_is_not_crowded_out() -> None:
    small, large = used("a", pod("p1", "1"), since=AT - timedelta(hours=1)), used("b", pod("p2", "4"), since=AT)
    types = [machine("one", 1, price=100)]
    decision = passed(board(small, large, room("z", 4), types=types, reasons={DRIFTED: [small, large]}))
    assert nodes(decision) == [["a"]]
    assert decision.refused == {"b": Sentence("shop/p1 moves at the same time, and would lose its place")}


def test_a_node_that_is_coming_up_for_others_is_not_waited_for() -> None:
    owed = pod("owed", "3", origin=Origin.DELETING)
    going, coming = used("a", pod("p1", "1")), used("new", initialized=False)
    types = [machine("two", 2, price=100)]
    decision = passed(board(going, coming, types=types, owed=[owed], reasons={DRIFTED: [going]}))
    assert [dict(each.landing) for each in decision.commands] == [{"p1": PodDestination(replacement=1)}]


def test_a_node_whose_pods_have_no_place_does_not_keep_the_next_one_waiting() -> None:
    """02 §14.25."""
    stuck = used("stuck", pod("p1", "4"), since=AT - timedelta(days=1))
    fine = used("fine", pod("p2", "1"), since=AT)
    decision = passed(board(stuck, fine, room("b", 2), reasons={DRIFTED: [stuck, fine]}))
    assert nodes(decision) == [["fine"]]
    assert list(decision.refused) == ["stuck"]  # somebody has to be told
    assert "shop/p1" in str(decision.refused["stuck"])
    assert decision.standing == frozenset()


def test_where_nobody_has_a_place_everybody_is_told() -> None:
    """02 §14.25."""
    some = [used(name, pod(name, "3"), cpu=3) for name in "ab"]
    decision = passed(board(*some, reasons={DRIFTED: some}))
    assert decision.commands == ()
    assert sorted(decision.refused) == ["a", "b"]
    assert decision.standing == frozenset()


def test_drift_may_need_several_new_nodes_and_asks_for_no_price() -> None:
    """02 §14.26."""
    going = used("a", pod("p1", "2"), pod("p2", "2"), price=0)
    decision = passed(board(going, types=[machine("two", 2, price=100)], reasons={DRIFTED: [going]}))
    (command,) = decision.commands
    assert command.decision == "replace"
    assert len(command.replacements) == 2
    assert sorted(command.landing.items()) == [
        ("p1", PodDestination(replacement=1)),
        ("p2", PodDestination(replacement=2)),
    ]
    assert command.savings is None


def test_a_drifted_node_without_budget_waits_and_one_of_another_pool_goes() -> None:
    first, second = used("a", pod("p1"), pool="x", since=AT), used("b", pod("p2"), pool="y")
    on = board(
        first,
        second,
        room("z", 4),
        reasons={DRIFTED: [first, second]},
        allowed={"x": 0, "y": 1},
        pools=[pool("x"), pool("y")],
    )
    decision = passed(on)
    assert nodes(decision) == [["b"]]
    assert decision.standing == frozenset("a")


def test_a_bare_node_without_budget_does_not_keep_another_with_pods_waiting() -> None:
    bare, full = used("a", pool="x"), used("b", pod("p2"), pool="y")
    on = board(
        bare,
        full,
        room("z", 4),
        reasons={DRIFTED: [bare, full]},
        allowed={"x": 0, "y": 1},
        pools=[pool("x"), pool("y")],
    )
    assert nodes(passed(on)) == [["b"]]


def test_a_node_with_pods_that_can_be_placed_nowhere_is_not_bare() -> None:
    odd = used("a", unmovable=(Sentence("shop/odd: its request cannot be read"),), since=AT - timedelta(days=1))
    fine = used("b", pod("p1"), since=AT)
    decision = passed(board(odd, fine, room("z", 4), reasons={DRIFTED: [odd, fine]}))
    assert nodes(decision) == [["b"]]
    assert decision.refused == {"a": Sentence("shop/odd: its request cannot be read")}


def test_time_that_runs_out_is_told() -> None:
    some = [used(name, pod(name)) for name in "ab"]
    on = board(*some, room("z", 4), reasons={DRIFTED: some})
    decision = decide_pass(on, ConsolidationOptions(), go_on=lambda: False)
    assert decision.commands == ()
    assert not decision.complete


# -- the order of methods ----------------------------------------------------------------------------------------------


def test_the_first_method_that_has_something_to_do_decides() -> None:
    empty, drifted, spare = used("e"), used("d", pod("p1")), used("s", pod("p2"))
    reasons = {EMPTY: [empty], DRIFTED: [drifted], EXPIRED: [drifted], UNDERUTILIZED: [drifted, spare]}
    for wanted in (Method.EMPTINESS, Method.DRIFT, Method.EXPIRATION, Method.MULTI_NODE):
        assert methods(passed(board(empty, drifted, spare, room("z", 8), reasons=reasons))) == {wanted}
        del reasons[REASONS[wanted]]
    assert not reasons


def test_when_a_set_is_rejected_the_same_pass_goes_on_with_single_nodes() -> None:
    """02 §14.47."""
    spare = [used(name, pod(name)) for name in "ab"]
    on = board(*spare, room("z", 8))
    assert nodes(passed(on)) == [["a", "b"]]
    alone = by_method(on, Method.SINGLE_NODE)
    assert nodes(alone) == [["a"]]
    assert methods(alone) == {Method.SINGLE_NODE}


def test_what_only_a_budget_has_kept_is_tried_again() -> None:
    """02 §14.22."""
    one = used("a", pod("p1"))
    assert passed(board(one, room("z", 8), allowed=0)).standing == frozenset("a")


def test_a_set_that_a_budget_has_kept_from_being_found_is_tried_again() -> None:
    """02 §14.22: Neither of the two can go alone; together, they could."""
    pair = [used(name, pod(name, "2"), cpu=2, type_="two") for name in "ab"]
    types = [machine("four", 4, price=3)]
    assert nodes(passed(board(*pair, types=types))) == [["a", "b"]]
    kept = passed(board(*pair, types=types, allowed=1))
    assert kept.commands == ()


def test_a_search_for_sets_that_was_cut_short_is_told() -> None:
    pair = [used(name, pod(name, "2"), cpu=2) for name in "ab"]
    assert not decide_pass(board(*pair), ConsolidationOptions(), go_on=lambda: False).complete
    assert passed(board(*pair)).complete


def test_what_waits_to_be_validated_is_standing_and_what_is_started_is_not() -> None:
    spare, stuck = [used(name, pod(name)) for name in "ab"], used("c", pod("p3", "64"), cpu=64)
    decision = passed(board(*spare, stuck, room("z", 2)))
    assert decision.validated_first
    assert decision.standing == frozenset("ab")
    assert set(decision.refused) == {"c"}


def test_the_best_single_node_within_budgets_is_taken() -> None:
    best, next_ = used("a", pod("p1"), cpu=16, pool="x"), used("b", pod("p2", "3"), cpu=8, pool="y")
    pools = [pool("x"), pool("y")]
    on = board(best, next_, room("z", 3), allowed={"x": 0, "y": 1}, pools=pools)
    decision = by_method(on, Method.SINGLE_NODE)
    assert nodes(decision) == [["b"]]
    assert decision.standing == frozenset("ab")


def test_the_same_decision_has_the_same_name() -> None:
    spare = [used(name, pod(name)) for name in "ab"]
    first, again = (passed(board(*spare, room("z", 8))).commands[0].id for _ in range(2))
    assert first == again
    names = {command_id(AT, Method.MULTI_NODE, order) for order in permutations(each.candidate for each in spare)}
    assert len(names) == 1
    assert by_method(board(*spare, room("z", 8)), Method.SINGLE_NODE).commands[0].id != first
    assert passed(later(board(*spare, room("z", 8)), at=AT + timedelta(seconds=1))).commands[0].id != first


def test_pods_are_said_to_land_on_the_replacement_that_the_command_has() -> None:
    """A new node for pods that wait comes first in the solution, and is not one of them."""
    waiting = pod("waits", "8", origin=Origin.PENDING)
    going = used("a", pod("p1", "2"), pod("p2", "1"), cpu=12)
    types = [machine("eight", 8), machine("two", 2)]
    on = board(going, room("b", 1), owed=[waiting], types=types, reasons={DRIFTED: [going]})
    (command,) = passed(on).commands
    assert len(command.replacements) == 1
    assert command.landing == {"p1": PodDestination(replacement=1), "p2": PodDestination(node="b")}


# -- waves of drift and expiration -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [DRIFTED, EXPIRED])
def test_a_replaced_node_has_waves_if_its_pods_go_to_different_nodes(reason: Reason) -> None:
    going = used("a", pod("large", "3"), pod("small", "1"), cpu=8)
    on = board(going, room("z", 1), reasons={reason: [going]}, types=[machine("three", 3)])
    (command,) = passed(on).commands
    assert len(command.replacements) == 1
    assert command.waves == (("large",),)


def test_a_replaced_node_has_no_waves_if_one_new_node_takes_all_its_pods() -> None:
    going = used("a", pod("large", "3"), pod("small", "1"), cpu=8)
    (command,) = passed(board(going, reasons={DRIFTED: [going]}, types=[machine("four", 4)])).commands
    assert (len(command.replacements), command.waves) == (1, ())


def test_a_drifted_node_that_needs_no_replacement_has_no_waves() -> None:
    going = used("a", pod("large", "3"), pod("small", "1"), cpu=8)
    (command,) = passed(board(going, room("y", 3), room("z", 1), reasons={DRIFTED: [going]})).commands
    assert (command.replacements, command.waves) == ((), ())


def test_a_drifted_node_goes_also_if_no_waves_help() -> None:
    """Whichever of the two goes first, the others may take the room of the last one."""
    going = used("a", *(pod(f"p{number}", "2") for number in range(4)), pod("odd", "3"), pod("small", "1"), cpu=16)
    on = board(going, room("y", 3), room("z", 4), reasons={DRIFTED: [going]}, types=[machine("five", 5)])
    (command,) = passed(on).commands
    assert command.replacements


def drifted_at_once(*types: MachineType) -> Decision:
    """A pass for drains without waves, over a node whose pods fit only if `large` arrives before `small`."""
    going = used("a", pod("large", "3"), pod("small", "1"), cpu=8)
    on = board(going, room("z", 1), reasons={DRIFTED: [going]}, types=list(types))
    return decide_pass(on, ConsolidationOptions(in_waves=False))


def test_without_waves_all_pods_of_a_drifted_node_go_to_one_new_node() -> None:
    (command,) = drifted_at_once(machine("three", 3), machine("four", 4)).commands
    (replacement,) = command.replacements
    assert set(replacement.pods) == {"large", "small"}
    assert command.waves == ()


def test_without_waves_a_drifted_node_stays_if_no_new_node_takes_all_its_pods() -> None:
    decision = drifted_at_once(machine("three", 3))
    assert not decision.commands
    expected = "shop/large would find no room once the others have landed: all pods of the node are evicted at once"
    assert str(decision.refused["a"]) == expected


def test_only_the_first_of_many_drifted_nodes_are_checked_for_waves() -> None:
    going = [used(f"a{number:02}", pod(f"l{number}", "3"), pod(f"s{number}", "1"), cpu=4) for number in range(30)]
    rooms = [room(f"z{number:02}", 1) for number in range(30)]
    on = board(*going, *rooms, reasons={DRIFTED: going}, types=[machine("three", 3)])
    commands = passed(on).commands
    assert len(commands) == 30
    assert [bool(each.waves) for each in commands] == [True] * 20 + [False] * 10
