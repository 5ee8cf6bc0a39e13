"""May nodes go without a replacement, or for one that is cheaper (02 §7.5–§7.7)? Docstrings cite 02 §14."""

import msgspec
import pytest

from dovetail.api import names
from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import Candidate, DisruptionBoard
from dovetail.planning.disruption.replacing import (
    ConsolidationOptions,
    Move,
    NotConsolidatable,
    decide,
    launch_price,
    simulate,
    worst_price,
)
from dovetail.scheduling.placement import MachineType, Origin
from dovetail.scheduling.requirements import Requirement, Requirements, one_of
from tests.scheduling.inspection import fingerprint
from tests.unit.planning.disruption.boards import UNDERUTILIZED, Used, board, pod, room, still, used
from tests.unit.scheduling.problems import ZONE, affinity, app, machine, offer, pool, preferring, spread, term

SPOT_TO_SPOT = ConsolidationOptions(spot_to_spot=True)


def decided(
    on: DisruptionBoard,
    *going: Used,
    rules: ConsolidationOptions = ConsolidationOptions(),  # noqa: B008
) -> Move | NotConsolidatable:
    return decide(on, [each.candidate for each in going], rules)


def moved(on: DisruptionBoard, *going: Used, rules: ConsolidationOptions = ConsolidationOptions()) -> Move:  # noqa: B008  frozen
    found = decided(on, *going, rules=rules)
    assert isinstance(found, Move), found
    return found


def refused(
    on: DisruptionBoard,
    *going: Used,
    rules: ConsolidationOptions = ConsolidationOptions(),  # noqa: B008
) -> NotConsolidatable:
    found = decided(on, *going, rules=rules)
    assert isinstance(found, NotConsolidatable), found
    return found


# -- §7.6: delete, replace, or neither ---------------------------------------------------------------------------------


def test_pods_that_have_a_place_elsewhere_let_the_node_go() -> None:
    going = used("a", pod("p1"), cpu=4)
    found = moved(board(going, room("b", 2), types=[machine("small", 1)]), going)
    assert found.replacements == ()
    assert found.solution.existing == {"b": ("p1",)}
    assert found.savings == 4
    assert found.savings_per_cost == 4 / 2


def test_a_new_node_must_be_cheaper_and_keeps_only_types_that_are() -> None:
    going = used("a", pod("p1"), cpu=4)
    types = [machine("two", 2), machine("one", 1), machine("four", 4), machine("eight", 8)]
    found = moved(board(going, types=types), going)
    assert [claim.types for claim in found.replacements] == [("one", "two")]
    assert found.savings == 4 - 1


def test_the_same_price_is_not_cheaper() -> None:
    """02 §14.50."""
    going = used("a", pod("p1"), price=4)
    said = refused(board(going, types=[machine("same", 4), machine("dearer", 5)]), going)
    assert said.too_expensive
    assert str(said) == "the cheapest new node that would do costs 0, not less than 0"  # billionths


def test_a_new_node_must_save_at_least_a_twentieth() -> None:
    going = used("a", pod("p1"), price=20)
    assert moved(board(going, types=[machine("new", price=19)]), going).savings == 1
    going = used("a", pod("p1"), price=21)
    said = refused(board(going, types=[machine("new", price=20)]), going)
    assert said.too_expensive
    assert "less than a twentieth" in str(said)


def test_the_worst_that_a_launch_may_cost_counts_not_the_best() -> None:
    going = used("a", pod("p1"), price=4)
    uneven = machine("uneven", offers=(offer("a", 1), offer("b", 5)))
    assert refused(board(going, types=[uneven]), going).too_expensive
    assert moved(board(going, types=[uneven, machine("even", price=3)]), going).replacements[0].types == ("even",)


def test_consolidation_never_makes_two_nodes() -> None:
    """02 §14.26."""
    going = used("a", pod("p1", "2"), pod("p2", "2"), cpu=8)
    said = refused(board(going, types=[machine("small", 2)]), going)
    assert not said.too_expensive
    assert "more new nodes than 1" in str(said)


def test_a_pod_that_waits_anyway_does_not_stop_it_and_one_that_would_wait_does() -> None:
    """02 §14.39."""
    waiting = pod("huge", "64", origin=Origin.PENDING)
    going = used("a", pod("p1"))
    assert moved(board(going, room("b", 1), owed=[waiting]), going).replacements == ()
    stuck = used("c", pod("p2", "3"))
    said = refused(board(stuck, room("b", 1), owed=[waiting]), stuck)
    assert str(said) == "shop/p2 has no other place"


def test_pods_of_nodes_that_go_anyway_take_their_places_first() -> None:
    """02 §14.37: They are as large, and older."""
    leaving = pod("first", "1", origin=Origin.DELETING, created="2026-01-01T00:00:00Z")
    going = used("a", pod("p1", created="2026-02-01T00:00:00Z"))
    closed = msgspec.structs.replace(room("gone", 4), open=False, pods=(still(leaving),))
    assert isinstance(decided(board(going, room("b", 1), closed, owed=[leaving]), going), NotConsolidatable)
    assert isinstance(decided(board(going, room("b", 2), closed, owed=[leaving]), going), Move)


def test_what_is_owed_may_wait_for_a_node_that_is_coming_up() -> None:
    """02 §14.37."""
    leaving = pod("first", "1", origin=Origin.DELETING)
    going = used("a", pod("p1", "2"))
    coming = room("new", 1, initialized=False)
    assert moved(board(going, room("b", 2), coming, owed=[leaving]), going).solution.existing["new"] == ("first",)


def test_pods_of_a_candidate_must_not_rely_on_a_node_that_is_coming_up() -> None:
    """02 §14.38."""
    going = used("a", pod("p1"))
    said = refused(board(going, room("new", 4, initialized=False)), going)
    assert str(said) == "shop/p1 has no other place: node new is not initialized"


def test_a_new_node_for_pods_that_wait_is_no_replacement() -> None:
    waiting = pod("waits", "4", origin=Origin.PENDING)
    going = used("a", pod("p1", "2"))
    found = moved(board(going, room("b", 2), owed=[waiting], types=[machine("large", 4)]), going)
    assert len(found.solution.new_claims) == 1
    assert found.replacements == ()


def test_rules_between_pods_are_hard() -> None:
    """02 §14.42."""
    there = pod("other", labels=app("web"))
    apart = used("a", pod("p1", labels=app("web"), affinity=affinity(apart=[term("kubernetes.io/hostname", "web")])))
    full = used("b", there, cpu=8)
    assert isinstance(decided(board(apart, full), apart), NotConsolidatable)
    assert isinstance(decided(board(apart, full, room("c", 2)), apart), Move)
    rule = spread(ZONE, "db")
    spreading = used("d", pod("p2", labels=app("db"), topologySpreadConstraints=[rule]), zone="b")
    other = used("e", pod("p3", labels=app("db"), topologySpreadConstraints=[rule]), cpu=8, zone="a")
    assert isinstance(decided(board(spreading, other, room("f", 1, zone="b")), spreading), Move)
    blocked = board(spreading, other, msgspec.structs.replace(room("f", 0, zone="b"), pods=()))
    assert isinstance(decided(blocked, spreading), NotConsolidatable)


def test_what_is_only_preferred_is_given_up_before_the_node_is_kept() -> None:
    """02 §14.42."""
    apart = preferring("podAntiAffinity", term("kubernetes.io/hostname", "web"))
    going = used("a", pod("p1", labels=app("web"), affinity=apart))
    crowded = used("b", pod("p2", labels=app("web")), cpu=8)
    assert isinstance(decided(board(going, crowded), going), Move)
    # Where a new node could honour it, that is what is asked for first: and it has to be cheaper.
    assert isinstance(decided(board(going, crowded, types=[machine("same", 4)]), going), NotConsolidatable)
    ignoring = board(going, crowded, types=[machine("same", 4)], respect_preferences=False)
    assert isinstance(decided(ignoring, going), Move)


def test_a_node_that_has_just_got_pods_is_a_destination() -> None:
    """02 §14.43.

    R35: nothing about a node's own consolidateAfter keeps pods away from it, and no such thing is asked."""
    going, fresh = used("a", pod("p1")), used("b", pod("p2"), cpu=8)
    found = moved(board(going, fresh, reasons={UNDERUTILIZED: [going]}), going)
    assert found.solution.existing == {"b": ("p1",)}


def test_pods_that_can_be_placed_nowhere_keep_their_node() -> None:
    going = used("a", pod("p1"), unmovable=(Sentence("shop/odd: it asks for resource claims"),))
    assert str(refused(board(going, room("b", 4)), going)) == "shop/odd: it asks for resource claims"
    assert isinstance(simulate(board(going, room("b", 4)), [going.candidate]), NotConsolidatable)


# -- prices ------------------------------------------------------------------------------------------------------------


def test_an_unknown_price_poisons_no_sum() -> None:
    """02 §14.55."""
    known, unknown = used("a", pod("p1"), cpu=4), used("b", pod("p2"), price=None)
    found = moved(board(known, unknown, room("c", 2)), known, unknown)
    assert found.savings == 4
    said = refused(board(known, unknown, types=[machine("tiny", 2, price=1)]), known, unknown)
    assert str(said) == "the price of node b is not known, so nothing is known to be cheaper"


def test_a_new_node_that_may_be_spot_or_on_demand_is_made_spot() -> None:
    """02 §14.49."""
    both = machine("both", offers=(offer("a", 3), offer("a", 1, "spot")))
    only = machine("only", offers=(offer("a", 2),))
    going = used("a", pod("p1"), price=4)
    claim = moved(board(going, types=[both, only]), going).replacements[0]
    assert claim.types == ("both",)
    assert claim.requirements.get(names.CAPACITY_TYPE_LABEL).values == frozenset(("spot",))


def test_what_cannot_be_bought_on_spot_now_is_bought_on_demand() -> None:
    sold_out = machine("both", offers=(offer("a", 3), offer("a", 1, "spot", available=False)))
    going = used("a", pod("p1"), price=4)
    found = moved(board(going, types=[sold_out]), going)
    assert found.savings == 1
    assert found.replacements[0].requirements.get(names.CAPACITY_TYPE_LABEL).has("on-demand")


def test_a_dear_type_on_spot_does_not_keep_a_cheap_one_on_demand_away() -> None:
    going = used("a", pod("p1"), price=4)
    types = [machine("cheap", offers=(offer("a", 3),)), machine("dear", offers=(offer("a", 9), offer("a", 5, "spot")))]
    assert moved(board(going, types=types), going).replacements[0].types == ("cheap",)


def test_a_launch_takes_what_is_reserved_before_spot_before_on_demand() -> None:
    reserved, spot, demand = offer("a", 1, "reserved"), offer("a", 2, "spot"), offer("a", 9)
    assert worst_price([demand, spot, reserved]) == 1
    assert worst_price([demand, spot, offer("b", 7, "spot")]) == 7
    assert worst_price([demand]) == 9


def test_a_reservation_that_the_new_node_does_not_hold_makes_it_no_cheaper() -> None:
    """None is left of it, so that the launch would be on demand."""
    used_up = offer("a", 0, "reserved", reservation="r1", left=0)
    going = used("a", pod("p1"), price=4)
    said = refused(board(going, types=[machine("m", offers=(offer("a", 5), used_up))], strict_reserved=False), going)
    assert said.too_expensive
    free = msgspec.structs.replace(used_up, left=1)
    found = moved(board(going, types=[machine("m", offers=(offer("a", 5), free))]), going)
    assert found.replacements[0].reservations == ("r1",)
    assert found.savings == 4


def test_the_price_expected_is_that_of_the_cheapest_way() -> None:
    going = used("a", pod("p1"), price=9)
    on = board(going, types=[machine("m", offers=(offer("a", 5), offer("b", 3)))])
    assert launch_price(on.world.types, moved(on, going).replacements[0]) == 3


# -- §7.7: spot to spot ------------------------------------------------------------------------------------------------


def spot_types(*prices: int) -> list[MachineType]:
    return [machine(f"t{number:02}", offers=(offer("a", price, "spot"),)) for number, price in enumerate(prices)]


def test_spot_is_not_made_spot_unless_that_is_wanted() -> None:
    """02 §14.51."""
    going = used("a", pod("p1"), price=100, how="spot")
    on = board(going, types=spot_types(*range(1, 21)))
    assert "SpotToSpotConsolidation" in str(refused(on, going))
    assert isinstance(decided(on, going, rules=SPOT_TO_SPOT), Move)


def test_spot_needs_fifteen_cheaper_types_and_keeps_the_cheapest_fifteen() -> None:
    """02 §14.51."""
    going = used("a", pod("p1"), price=100, how="spot")
    few = refused(board(going, types=spot_types(*range(1, 15), 100, 101)), going, rules=SPOT_TO_SPOT)
    assert "and there are 14" in str(few)
    enough = moved(board(going, types=spot_types(*range(1, 16), 100)), going, rules=SPOT_TO_SPOT)
    assert len(enough.replacements[0].types) == 15
    found = moved(board(going, types=spot_types(*range(20, 0, -1))), going, rules=SPOT_TO_SPOT)
    assert found.replacements[0].types == tuple(f"t{number:02}" for number in range(19, 4, -1))


def test_the_cheapest_are_those_that_are_cheap_on_spot() -> None:
    """02 §14.51."""
    going = used("a", pod("p1"), price=100, how="spot")
    misleading = machine("m", offers=(offer("a", 1), offer("a", 90, "spot")))
    found = moved(board(going, types=[misleading, *spot_types(*range(2, 18))]), going, rules=SPOT_TO_SPOT)
    assert "m" not in found.replacements[0].types
    assert found.savings == 98


def test_as_many_types_stay_as_minimum_numbers_of_values_need() -> None:
    """02 §14.51."""
    going = used("a", pod("p1"), price=100, how="spot")
    many = pool(requirements=Requirements((Requirement(names.INSTANCE_TYPE_LABEL, min_values=17),)))
    found = moved(board(going, types=spot_types(*range(1, 21)), pools=[many]), going, rules=SPOT_TO_SPOT)
    assert len(found.replacements[0].types) == 17


def test_several_spot_nodes_need_no_fifteen_types_and_a_mixed_set_goes_the_ordinary_way() -> None:
    """02 §14.51."""
    one, two = used("a", pod("p1"), price=5, how="spot"), used("b", pod("p2"), price=5, how="spot")
    assert isinstance(decided(board(one, two, types=spot_types(6)), one, two, rules=SPOT_TO_SPOT), Move)
    assert isinstance(decided(board(one, two, types=spot_types(6)), one, two), NotConsolidatable)
    three = used("c", pod("p3"), price=5)
    assert isinstance(decided(board(one, three, types=spot_types(6)), one, three), Move)


# -- §7.8: several into one of a type that is among them ---------------------------------------------------------------


def test_two_nodes_do_not_become_one_of_their_own_type() -> None:
    """02 §14.48."""
    one, two = used("a", pod("p1"), type_="four"), used("b", pod("p2"), type_="four")
    assert isinstance(decided(board(one, two, types=[machine("four", 4)]), one, two), NotConsolidatable)
    assert moved(board(one, two, types=[machine("four", 4), machine("two", 2)]), one, two).replacements[0].types == (
        "two",
    )


def test_three_may_become_one_that_is_cheaper_than_the_cheapest_of_its_type() -> None:
    """02 §14.48."""
    three = [
        used("a", pod("p1"), type_="four", price=4),
        used("b", pod("p2"), type_="four", price=5),
        used("c", pod("p3"), type_="big", price=30),
    ]
    types = [machine("four", 4, price=4), machine("other", 4, price=3), machine("dear", 4, price=6)]
    assert moved(board(*three, types=types), *three).replacements[0].types == ("other",)
    without_fours = [*three[2:], used("d", pod("p4"), type_="new", price=1)]
    assert moved(board(*without_fours, types=types), *without_fours).replacements[0].types == ("other", "four", "dear")


# -- minimum numbers of values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [True, False])
def test_too_few_cheaper_types_for_the_minimum_is_no_move(strict: bool) -> None:
    """02 §14.52: Best effort does not give the minimum up for a saving."""
    going = used("a", pod("p1"), price=4)
    two = pool(requirements=Requirements((Requirement(names.INSTANCE_TYPE_LABEL, min_values=2),)))
    types = [machine("one", 1), machine("same", 4)]
    said = refused(board(going, types=types, pools=[two], strict_min_values=strict), going)
    assert said.too_expensive
    assert "too few different values of node.kubernetes.io/instance-type" in str(said)
    enough = board(going, types=[*types, machine("two", 2)], pools=[two], strict_min_values=strict)
    assert moved(enough, going).replacements[0].types == ("one", "two")


def test_the_minimum_holds_for_several_nodes_of_one_type_too() -> None:
    """02 §14.52."""
    one, two = used("a", pod("p1"), type_="four"), used("b", pod("p2"), type_="four")
    pair = pool(requirements=Requirements((Requirement(names.INSTANCE_TYPE_LABEL, min_values=2),)))
    types = [machine("four", 4), machine("two", 2)]
    assert isinstance(decided(board(one, two, types=types, pools=[pair]), one, two), NotConsolidatable)


def test_a_zone_that_pods_ask_for_decides_what_counts_as_cheap() -> None:
    going = used("a", pod("p1", nodeSelector={ZONE: "b"}), price=4, zone="b")
    uneven = machine("uneven", offers=(offer("a", 1), offer("b", 5)))
    assert isinstance(decided(board(going, types=[uneven]), going), NotConsolidatable)
    only_b = pool(requirements=Requirements((one_of(ZONE, ("b",)),)))
    free = used("a", pod("p1"), price=4, zone="b")
    assert isinstance(decided(board(free, types=[uneven], pools=[only_b]), free), NotConsolidatable)


def test_limits_of_a_pool_leave_room_for_what_a_candidate_gives_up() -> None:
    going = used("a", pod("p1"), cpu=4)
    limited = msgspec.structs.replace(pool(), limits={"cpu": 4000})
    assert isinstance(decided(board(going, types=[machine("two", 2)], pools=[limited]), going), Move)
    assert isinstance(decided(board(going, room("b", 3), types=[machine("two", 2)], pools=[limited]), going), Move)
    blocking = used("b", pod("p9", "3"), cpu=3)
    on = board(going, blocking, types=[machine("two", 2)], pools=[limited])
    assert isinstance(decided(on, going), NotConsolidatable)


def test_a_pod_that_is_owed_a_place_does_not_lose_the_room_that_there_is_for_it() -> None:
    going = used("a", pod("p1", "3"), cpu=4)
    owed = pod("waits", "2", origin=Origin.PENDING)
    for there, possible in ((4, False), (5, True), (1, True)):  # in the last case there is no room for it anyway
        found = decided(board(going, room("b", there), owed=[owed], types=[machine("three", 3)]), going)
        assert isinstance(found, Move) is possible, there
        if isinstance(found, NotConsolidatable):
            assert "waits needs a place too, and would lose the one that there is for it" in str(found)


def test_nothing_is_changed_by_asking() -> None:
    going = used("a", pod("p1"), cpu=4)
    on = board(going, room("b", 2), types=[machine("one", 1)])
    before = fingerprint(on.world)
    decided(on, going)
    assert fingerprint(on.world) == before


def test_a_node_is_bare_if_no_pod_needs_a_place_whatever_the_cost() -> None:
    each = Candidate(node="a", claim="a", claim_uid="a", pool="default")
    assert each.bare
    assert each.savings_ratio == 0
    assert msgspec.structs.replace(each, cost=1.5).bare
    assert not msgspec.structs.replace(each, pods=(pod("p1"),)).bare
    assert not msgspec.structs.replace(each, unmovable=("it must stay",)).bare
