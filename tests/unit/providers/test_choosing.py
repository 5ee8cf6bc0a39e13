"""Which offering a claim gets, and which requirements can hold together."""

from collections import Counter
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import names, objects
from dovetail.api.objects import NodeSelectorRequirement
from dovetail.model.instance_types import InstanceType, Offering
from dovetail.ports import CloudError, InsufficientCapacity
from dovetail.providers.catalogue import built_in
from dovetail.providers.choosing import accepts, by_key, choose, compatible
from tests.unit.providers.claims import OTHER, SMALL, claim, labels_of, requirement

BY_NAME = {type_.name: type_ for type_ in built_in()}


def place(offering: Offering) -> tuple[str, str]:
    labels = labels_of(offering.requirements)
    return labels[names.ZONE_LABEL][0], labels[names.CAPACITY_TYPE_LABEL][0]


# -- the choice --------------------------------------------------------------------------------------------------------


def test_create_picks_the_cheapest_and_is_zone_random_among_equals() -> None:
    drawn = Counter()  # type: Counter[tuple[str, str]]
    for number in range(400):
        type_, offering = choose(claim(uid=f"uid-{number}", types=(OTHER, SMALL)), BY_NAME, 0)
        assert type_.name == SMALL
        drawn[place(offering)] += 1
    assert drawn.keys() == {(f"test-zone-{zone}", "spot") for zone in "abcd"}
    assert min(drawn.values()) > 60  # of 100 each on average


@pytest.mark.parametrize(("seed", "zones"), [(0, "acababac"), (1, "acbdddbc")])
def test_the_draw_is_the_same_in_every_process(seed: int, zones: str) -> None:
    drawn = [choose(claim(uid=f"uid-{number}"), BY_NAME, seed)[1] for number in range(8)]
    assert "".join(place(offering)[0][-1] for offering in drawn) == zones


def test_most_clouds_look_at_requests_and_kwok_does_not() -> None:
    asked = claim(types=("c-1x-amd64-linux", "c-4x-amd64-linux"))
    requests = objects.ResourceRequirements(requests={"cpu": "950m"})  # 900m of one cpu are for pods
    asked = msgspec.structs.replace(asked, spec=msgspec.structs.replace(asked.spec, resources=requests))
    assert choose(asked, BY_NAME, 0)[0].name == "c-1x-amd64-linux"
    assert choose(asked, BY_NAME, 0, like_kwok=False)[0].name == "c-4x-amd64-linux"


def test_a_claim_pinned_to_zone_b_and_on_demand_gets_exactly_that() -> None:
    pinned = claim(
        "web-1",
        requirement(names.ZONE_LABEL, "In", "test-zone-b"),
        requirement(names.CAPACITY_TYPE_LABEL, "In", "on-demand"),
    )
    assert place(choose(pinned, BY_NAME, 0)[1]) == ("test-zone-b", "on-demand")


def test_old_names_of_labels_count() -> None:
    pinned = claim("web-1", requirement("failure-domain.beta.kubernetes.io/zone", "In", "test-zone-c"))
    assert place(choose(pinned, BY_NAME, 0)[1])[0] == "test-zone-c"


def test_on_equal_prices_the_first_type_in_the_list() -> None:
    listed = ("c-1x-arm64-linux", "c-1x-amd64-linux", "c-1x-amd64-windows")
    assert choose(claim(types=listed), BY_NAME, 0)[0].name == "c-1x-arm64-linux"
    assert choose(claim(types=listed[::-1]), BY_NAME, 0)[0].name == "c-1x-amd64-windows"


def test_a_listed_type_that_the_requirements_exclude_is_passed_over() -> None:
    wanted = claim("web-1", requirement(names.ARCH_LABEL, "In", "arm64"), types=(SMALL, "m-2x-arm64-linux"))
    assert choose(wanted, BY_NAME, 0)[0].name == "m-2x-arm64-linux"


def unavailable(type_: InstanceType) -> InstanceType:
    offerings = tuple(msgspec.structs.replace(each, available=False) for each in type_.offerings)
    return msgspec.structs.replace(type_, offerings=offerings)


def test_all_offerings_of_one_listed_type_unavailable_another_type_is_used() -> None:
    types = {**BY_NAME, SMALL: unavailable(BY_NAME[SMALL])}
    assert choose(claim(types=(SMALL, OTHER)), types, 0)[0].name == OTHER
    with pytest.raises(InsufficientCapacity, match=SMALL):
        choose(claim(types=(SMALL,)), types, 0)


@pytest.mark.parametrize(
    "wanted",
    [
        requirement(names.ZONE_LABEL, "In", "elsewhere"),
        requirement(names.CAPACITY_TYPE_LABEL, "DoesNotExist"),
        requirement(names.INSTANCE_TYPE_LABEL, "NotIn", SMALL),
    ],
)
def test_nothing_that_fits_is_insufficient_capacity(wanted: NodeSelectorRequirement) -> None:
    with pytest.raises(InsufficientCapacity, match="no available offering"):
        choose(claim("web-1", wanted), BY_NAME, 0)


def test_many_listed_types_are_named_shortly() -> None:
    wanted = claim("web-1", requirement(names.ZONE_LABEL, "In", "elsewhere"), types=tuple(BY_NAME))
    with pytest.raises(InsufficientCapacity, match="and 139 more"):
        choose(wanted, BY_NAME, 0)


@pytest.mark.parametrize("asked", [(), (requirement(names.INSTANCE_TYPE_LABEL, "Exists"),)])
def test_a_static_pool_without_instance_type_requirement_gets_a_clear_error(
    asked: tuple[NodeSelectorRequirement, ...],
) -> None:
    with pytest.raises(CloudError, match=r"instance type requirement not found.*static NodePool") as failed:
        choose(claim("web-1", *asked, types=()), BY_NAME, 0)
    assert type(failed.value) is CloudError  # neither given up nor taken for a lack of machines


def test_an_unknown_type_is_an_error() -> None:
    with pytest.raises(CloudError, match=r"'m\.huge' is not in the catalogue") as failed:
        choose(claim(types=(SMALL, "m.huge")), BY_NAME, 0)
    assert type(failed.value) is CloudError


# -- requirements ------------------------------------------------------------------------------------------------------


def names_matching(*wanted: NodeSelectorRequirement) -> set[str]:
    return {type_.name for type_ in built_in() if compatible(by_key(wanted), type_.requirements)}


def test_instance_size_below_32_works_and_instance_memory_above_4_matches_nothing() -> None:
    below = names_matching(requirement(names.KWOK_INSTANCE_SIZE_LABEL, "Lt", "32"))
    assert below == {name for name in BY_NAME if int(name.split("-")[1][:-1]) < 32}
    assert names_matching(requirement(names.KWOK_INSTANCE_MEMORY_LABEL, "Gt", "4")) == set()


@pytest.mark.parametrize(
    ("operator", "values", "accepted"),
    [
        ("In", ["5", "x"], ["5", "x"]),
        ("NotIn", ["5", "x"], [None, "4", "6", "5.5"]),
        ("Exists", [], ["4", "5", "6", "5.5", "x"]),
        ("DoesNotExist", [], [None]),
        ("Gt", ["5"], ["6"]),
        ("Gte", ["5"], ["5", "6"]),
        ("Lt", ["5"], ["4"]),
        ("Lte", ["5"], ["4", "5"]),
        ("Gt", ["x"], []),
        ("Gt", [], []),
        ("Near", ["5"], []),
    ],
)
def test_what_a_requirement_accepts(operator: str, values: list[str], accepted: list[str | None]) -> None:
    tried = [None, "4", "5", "6", "5.5", "x"]
    asked = requirement("key", operator, *values)
    assert [value for value in tried if accepts(asked, value)] == accepted


VALUES = st.sampled_from(["0", "1", "2", "3", "4", "7", "x", "y"])
BOUNDS = st.sampled_from(["0", "1", "2", "3", "4", "7"])
REQUIREMENTS = st.one_of(
    st.builds(requirement, st.just("key"), st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(requirement, st.just("key"), st.sampled_from(["Gt", "Lt", "Gte", "Lte"]), BOUNDS),
    st.lists(VALUES, min_size=1, max_size=4).flatmap(
        lambda values: st.sampled_from([requirement("key", operator, *values) for operator in ("In", "NotIn")])
    ),
)


@given(st.lists(REQUIREMENTS, min_size=1, max_size=3), st.lists(REQUIREMENTS, max_size=3))
def test_compatible_means_that_some_value_suits_everybody(
    offered: list[NodeSelectorRequirement], wanted: list[NodeSelectorRequirement]
) -> None:
    universe = [None, "x", "y", "z", *map(str, range(-3, 20))]
    expected = not wanted or any(all(accepts(each, value) for each in [*offered, *wanted]) for value in universe)
    assert compatible(by_key(wanted), offered) == expected


# -- against brute force -----------------------------------------------------------------------------------------------

ZONES, KINDS = ["a", "b"], ["spot", "on-demand"]


def made_type(name: str, arch: str, offers: list[tuple[str, str, int, bool]]) -> InstanceType:
    return InstanceType(
        name=name,
        requirements=(requirement(names.INSTANCE_TYPE_LABEL, "In", name), requirement(names.ARCH_LABEL, "In", arch)),
        offerings=tuple(
            Offering(
                requirements=(
                    requirement(names.ZONE_LABEL, "In", zone),
                    requirement(names.CAPACITY_TYPE_LABEL, "In", kind),
                ),
                price=price / 10,
                available=available,
            )
            for zone, kind, price, available in offers
        ),
        capacity={"cpu": "1", "memory": "1Gi"},
    )


OFFERS = st.lists(
    st.tuples(st.sampled_from(ZONES), st.sampled_from(KINDS), st.integers(1, 3), st.booleans()), max_size=4
)
TYPES = st.lists(st.tuples(st.sampled_from(["amd64", "arm64"]), OFFERS), min_size=1, max_size=4).map(
    lambda made: [made_type(f"t{index}", arch, offers) for index, (arch, offers) in enumerate(made)]
)
ALLOWED = st.tuples(
    st.sets(st.sampled_from(ZONES), min_size=1),
    st.sets(st.sampled_from(KINDS), min_size=1),
    st.sets(st.sampled_from(["amd64", "arm64"]), min_size=1),
)


@given(TYPES, ALLOWED, st.booleans(), st.integers(0, 3))
def test_choose_equals_a_brute_force_minimum(
    types: list[InstanceType], allowed: tuple[set[str], set[str], set[str]], negated: bool, seed: int
) -> None:
    zones, kinds, archs = allowed
    wanted = claim(
        "web-1",
        requirement(names.ZONE_LABEL, "NotIn", *(set(ZONES) - zones))
        if negated
        else requirement(names.ZONE_LABEL, "In", *zones),
        requirement(names.CAPACITY_TYPE_LABEL, "In", *kinds),
        requirement(names.ARCH_LABEL, "In", *archs),
        types=tuple(type_.name for type_ in types),
    )
    possible = [
        (offering.price, index)
        for index, type_ in enumerate(types)
        for offering, zone, kind in product(type_.offerings, zones, kinds)
        if offering.available
        and place(offering) == (zone, kind)
        and labels_of(type_.requirements)[names.ARCH_LABEL][0] in archs
    ]
    if not possible:
        with pytest.raises(InsufficientCapacity):
            choose(wanted, {type_.name: type_ for type_ in types}, seed)
        return
    type_, offering = choose(wanted, {type_.name: type_ for type_ in types}, seed)
    assert (offering.price, types.index(type_)) == min(possible)
    assert offering in type_.offerings
    assert offering.available
    assert place(offering)[0] in zones
    assert place(offering)[1] in kinds
