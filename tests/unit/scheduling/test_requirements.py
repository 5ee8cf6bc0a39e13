"""What requirements allow, together and against what is there. Docstrings cite 05 §13."""

import pytest

from dovetail.api import names
from dovetail.scheduling.requirements import (
    MAX_INTEGER,
    Operator,
    Requirement,
    RequirementError,
    Requirements,
    of_labels,
    one_of,
    read_requirement,
    read_requirements,
    selecting,
)
from tests.unit.scheduling.wire import allof, entry, required

GPUS = "example.com/gpus"
TEAM = "example.com/team"
NO_LABELS = of_labels({})


# -- the cases of 05 §13 -----------------------------------------------------------------------------------------------


def test_gt_on_a_missing_custom_label_does_not_match() -> None:
    """05 §13.1."""
    assert not NO_LABELS.compatible(allof(required(GPUS, "Gt", "5")))


def test_not_in_on_a_missing_label_matches() -> None:
    """05 §13.2."""
    assert NO_LABELS.compatible(allof(required(TEAM, "NotIn", "red")))


def test_does_not_exist_matches_a_missing_label_and_no_other() -> None:
    """05 §13.3."""
    absent = allof(required(TEAM, "DoesNotExist"))
    assert NO_LABELS.compatible(absent)
    assert not of_labels({TEAM: "red"}).compatible(absent)


def test_exists_beside_in_keeps_the_values() -> None:
    """05 §13.4."""
    assert required(TEAM, "Exists") & required(TEAM, "In", "red") == required(TEAM, "In", "red")


def test_greater_than_5_and_less_than_6_is_nothing() -> None:
    """05 §13.5."""
    between = required(GPUS, "Gt", "5") & required(GPUS, "Lt", "6")
    assert between.operator is Operator.DOES_NOT_EXIST
    assert between.impossible
    assert not any(map(between.has, [None, "5", "6", "5.5"]))


def test_greater_than_the_largest_integer_matches_nothing() -> None:
    """05 §13.6."""
    beyond = required(GPUS, "Gt", str(MAX_INTEGER))
    assert beyond.operator is Operator.DOES_NOT_EXIST
    assert not any(map(beyond.has, [None, "0", str(MAX_INTEGER), str(MAX_INTEGER + 1)]))
    assert not NO_LABELS.compatible(allof(beyond))


@pytest.mark.parametrize("value", ["many", "", "5.5", "6Gi", "-7", "+7", "0x7", " 7", "٧", "9223372036854775808"])
def test_what_is_no_integer_is_not_greater(value: str) -> None:
    """05 §13.7."""
    assert not required(GPUS, "Gt", "5").has(value)
    assert not of_labels({GPUS: value}).compatible(allof(required(GPUS, "Gt", "5")))


def test_gte_5_is_gt_4_and_the_tighter_bound_wins() -> None:
    """05 §13.8."""
    assert required(GPUS, "Gte", "5") == required(GPUS, "Gt", "4")
    assert required(GPUS, "Lte", "5") == required(GPUS, "Lt", "6")
    assert required(GPUS, "Gte", "5") & required(GPUS, "Gt", "7") == required(GPUS, "Gte", "8")
    assert required(GPUS, "Lte", "5") & required(GPUS, "Lt", "4") == required(GPUS, "Lte", "3")


def test_of_two_min_values_the_larger() -> None:
    """05 §13.9."""
    two, three = (required(TEAM, "In", "a", "b", "c", min_values=number) for number in (2, 3))
    assert (two & three).min_values == 3
    assert (two & required(TEAM, "Exists")).min_values == 2
    assert (required(GPUS, "Gt", "5", min_values=4) & required(GPUS, "Lt", "5")).min_values == 4


def test_a_beta_zone_label_is_the_stable_one() -> None:
    """05 §13.10."""
    old = selecting({"failure-domain.beta.kubernetes.io/zone": "a"})
    assert old == selecting({names.ZONE_LABEL: "a"})
    assert of_labels({names.ZONE_LABEL: "a"}).compatible(old)
    assert not of_labels({names.ZONE_LABEL: "b"}).compatible(old)


def test_undefined_keys_are_fine_on_a_pool_if_well_known_and_never_on_a_node() -> None:
    """05 §13.11."""
    custom, zone = allof(required(TEAM, "In", "red")), allof(required(names.ZONE_LABEL, "In", "a"))
    assert not NO_LABELS.compatible(custom, names.WELL_KNOWN_LABELS)
    assert NO_LABELS.compatible(zone, names.WELL_KNOWN_LABELS)
    assert not NO_LABELS.compatible(zone)


# -- one requirement ---------------------------------------------------------------------------------------------------

TRIED = [None, "", "3", "4", "5", "05", "6", "red"]


@pytest.mark.parametrize(
    ("operator", "values", "allowed"),
    [
        ("In", ["5", "red"], ["5", "red"]),
        ("In", [], []),
        ("NotIn", ["5", "red"], [None, "", "3", "4", "05", "6"]),
        ("NotIn", [], TRIED),
        ("Exists", [], TRIED[1:]),
        ("DoesNotExist", [], [None]),
        ("Gt", ["4"], ["5", "05", "6"]),
        ("Gte", ["4"], ["4", "5", "05", "6"]),
        ("Lt", ["5"], ["3", "4"]),
        ("Lte", ["5"], ["3", "4", "5", "05"]),
        ("Gt", ["-1"], ["3", "4", "5", "05", "6"]),
        ("Gte", ["-7"], ["3", "4", "5", "05", "6"]),
        ("Lt", ["0"], []),
        ("Lte", ["-1"], []),
        ("Lte", [str(MAX_INTEGER)], ["3", "4", "5", "05", "6"]),
    ],
)
def test_what_an_operator_allows(operator: str, values: list[str], allowed: list[str | None]) -> None:
    asked = required("key", operator, *values)
    assert [value for value in TRIED if asked.has(value)] == allowed


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("Near", ["5"]),
        ("", []),
        ("in", ["a"]),
        ("Gt", []),
        ("Gt", ["4", "5"]),
        ("Gt", ["four"]),
        ("Lt", ["4.0"]),
        ("Gte", [str(MAX_INTEGER + 1)]),
        ("Lte", ["9" * 5000]),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(operator: str, values: list[str]) -> None:
    with pytest.raises(RequirementError, match="label 'key'"):
        required("key", operator, *values)


@pytest.mark.parametrize(
    ("requirement", "operator"),
    [
        (required("key", "In", "a"), Operator.IN),
        (required("key", "NotIn", "a"), Operator.NOT_IN),
        (required("key", "Exists"), Operator.EXISTS),
        (required("key", "DoesNotExist"), Operator.DOES_NOT_EXIST),
        (required("key", "Gt", "4"), Operator.EXISTS),  # bounds do not show
        (required("key", "Gt", "4") & required("key", "NotIn", "7"), Operator.NOT_IN),
        (required("key", "Gt", "4") & required("key", "NotIn", "3"), Operator.EXISTS),  # it is out of bounds anyway
        (Requirements().get("key"), Operator.EXISTS),
    ],
)
def test_the_operator_that_is_shown(requirement: Requirement, operator: Operator) -> None:
    assert requirement.operator is operator


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (required("key", "In", "a", "b"), required("key", "In", "b", "c"), required("key", "In", "b")),
        (required("key", "In", "a", "b"), required("key", "NotIn", "b"), required("key", "In", "a")),
        (required("key", "NotIn", "a"), required("key", "NotIn", "b"), required("key", "NotIn", "a", "b")),
        (required("key", "NotIn", "a"), required("key", "DoesNotExist"), required("key", "DoesNotExist")),
        (required("key", "In", "4", "5", "x"), required("key", "Gte", "5"), required("key", "In", "5")),
    ],
)
def test_what_two_allow_together(one: Requirement, other: Requirement, both: Requirement) -> None:
    assert one & other == both
    assert other & one == both


def test_no_label_is_below_zero() -> None:
    assert required(GPUS, "Lt", "0") == required(GPUS, "Lte", "-5") == one_of(GPUS, ())
    assert required(GPUS, "Gt", "-5") == required(GPUS, "Gte", "0")


def test_a_label_that_has_to_be_there_is_not_missing_whatever_else_is_said_of_it() -> None:
    there_but_not_red = required(TEAM, "Exists") & required(TEAM, "NotIn", "red")
    assert there_but_not_red.operator is Operator.NOT_IN
    assert not NO_LABELS.compatible(allof(there_but_not_red))
    assert of_labels({TEAM: "blue"}).compatible(allof(there_but_not_red))
    bounded = required(GPUS, "Gt", "4") & required(GPUS, "NotIn", "7")
    assert not NO_LABELS.compatible(allof(bounded))


def test_what_contradicts_itself_matches_no_node_not_even_one_without_the_label() -> None:
    torn = allof(required(TEAM, "In", "red"), required(TEAM, "In", "blue"))
    assert torn.impossible
    assert not NO_LABELS.compatible(torn)
    assert not NO_LABELS.compatible(torn, allow_undefined=frozenset({TEAM}))
    assert not torn.intersects(allof(required(TEAM, "NotIn", "green")))
    assert not allof(required(TEAM, "DoesNotExist")).impossible


@pytest.mark.parametrize(
    ("requirement", "value"),
    [
        (required("key", "In", "b", "a"), "a"),
        (required("key", "Exists"), "0"),
        (required("key", "NotIn", "0", "1", "3"), "2"),
        (required("key", "Gt", "4"), "5"),
        (required("key", "Lt", "4"), "0"),
        (required("key", "Gte", "4") & required("key", "Lte", "6") & required("key", "NotIn", "4", "5"), "6"),
        (required("key", "Gte", "4") & required("key", "Lte", "5") & required("key", "NotIn", "4", "5"), None),
        (required("key", "DoesNotExist"), None),
        (required("key", "Lt", "0"), None),
    ],
)
def test_any_value_is_the_smallest(requirement: Requirement, value: str | None) -> None:
    assert requirement.any_value() == value


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ("DoesNotExist", "DoesNotExist", True),
        ("DoesNotExist", "NotIn", True),
        ("NotIn", "NotIn", True),
        ("DoesNotExist", "In", False),
        ("DoesNotExist", "Exists", False),
        ("Exists", "In", True),
        ("NotIn", "In", False),
        ("NotIn", "Exists", True),
    ],
)
def test_which_operators_agree_on_one_value(one: str, other: str, agree: bool) -> None:
    first, second = (
        allof(required(TEAM, operator, *(["red"] if "In" in operator else []))) for operator in (one, other)
    )
    assert first.intersects(second) is second.intersects(first) is agree
    assert first.compatible(second) is second.compatible(first) is agree


# -- writing -----------------------------------------------------------------------------------------------------------


def test_one_entry_for_what_one_can_say() -> None:
    for written in (
        entry("key", "In", "a", "b"),
        entry("key", "NotIn", "a", "b", min_values=2),
        entry("key", "NotIn"),
        entry("key", "Exists"),
        entry("key", "DoesNotExist"),
        entry("key", "Gte", "5"),
        entry("key", "Lte", "5"),
    ):
        assert read_requirement(written).entries() == [written]


def test_both_bounds_are_written_and_so_is_what_is_excluded_between_them() -> None:
    between = required(GPUS, "Gt", "4", min_values=2) & required(GPUS, "Lt", "10") & required(GPUS, "NotIn", "7", "20")
    assert between.entries() == [
        entry(GPUS, "Gte", "5", min_values=2),
        entry(GPUS, "Lte", "9", min_values=2),
        entry(GPUS, "NotIn", "7", min_values=2),
    ]


def test_values_are_sorted_and_keys_too() -> None:
    written = read_requirements([entry("b", "In", "y", "x"), entry("a", "Exists"), entry("b", "In", "x", "y", "z")])
    assert written.entries() == [entry("a", "Exists"), entry("b", "In", "x", "y")]


# -- sets --------------------------------------------------------------------------------------------------------------


def test_sets_are_equal_by_content_and_can_be_keys() -> None:
    first = read_requirements([entry("a", "In", "x"), entry("b", "Exists")])
    second = read_requirements([entry("b", "Exists"), entry("a", "NotIn", "y"), entry("a", "In", "x", "y")])
    assert first == second
    assert hash(first) == hash(second)
    assert {first: 1}[second] == 1
    assert first != first.add(one_of("c", "x"))
    assert first.without("b") == allof(required("a", "In", "x"))
    assert list(first.keys()) == ["a", "b"]


def test_where_nothing_is_said_everything_is_allowed() -> None:
    unsaid = Requirements().get("key")
    assert all(map(unsaid.has, [None, "a", "5"]))
    for operator in ("Exists", "DoesNotExist"):
        assert unsaid & required("key", operator) == required("key", operator)


def test_adding_does_not_change_what_is_there() -> None:
    first = allof(required("a", "In", "x", "y"))
    second = first & allof(required("a", "In", "y"), required("b", "Exists"))
    assert first.entries() == [entry("a", "In", "x", "y")]
    assert second.entries() == [entry("a", "In", "y"), entry("b", "Exists")]


# -- why not -----------------------------------------------------------------------------------------------------------


def test_an_undefined_label_is_named_with_what_may_be_meant() -> None:
    found = NO_LABELS.incompatibility(allof(required("zone", "In", "a")), names.WELL_KNOWN_LABELS)
    assert found is not None
    assert (found.key, found.undefined, found.meant) == ("zone", True, names.ZONE_LABEL)
    assert str(found) == f"label 'zone' does not have known values (is '{names.ZONE_LABEL}' meant?)"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("topology.kubernetes.io/zones", None),
        ("topology.kubernetes.io/arch", names.ARCH_LABEL),  # the part after the slash
        ("karpenter.sh/capacity", names.CAPACITY_TYPE_LABEL),  # contained
        ("example.com/color", None),
        ("my.org/team", TEAM),  # what the node itself has is known, too
    ],
)
def test_what_may_be_meant(key: str, meant: str | None) -> None:
    have = of_labels({TEAM: "red"})
    found = have.incompatibility(allof(required(key, "Exists")), names.WELL_KNOWN_LABELS)
    assert found is not None
    assert found.meant == meant


def test_a_conflict_names_both_sides() -> None:
    have = of_labels({names.ZONE_LABEL: "a"})
    found = have.incompatibility(allof(required(names.ZONE_LABEL, "In", *"bcdefgh")))
    assert found is not None
    assert not found.undefined
    assert str(found) == (
        f"{names.ZONE_LABEL} In [b, c, d, e, f and 2 more] cannot be met: there is {names.ZONE_LABEL} In [a]"
    )
    assert have.incompatibility(allof(required(names.ZONE_LABEL, "In", "a"))) is None
