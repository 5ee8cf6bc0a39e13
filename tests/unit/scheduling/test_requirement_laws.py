"""Laws of the algebra: it is that of sets of labels, and nothing is lost on the way."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import objects
from dovetail.scheduling.requirements import Requirement, Requirements, of_labels, read_requirement, read_requirements
from tests.unit.scheduling.wire import entry

VALUES = ["0", "1", "2", "3", "4", "7", "04", "x", "y"]
BOUNDS = ["-1", "0", "1", "2", "3", "4", "7"]


def listing(*sizes: int) -> st.SearchStrategy[objects.NodeSelectorRequirement]:
    """In or NotIn so many values."""
    return st.sampled_from(
        [
            entry("key", operator, *values, min_values=fewest)
            for operator in ("In", "NotIn")
            for size in sizes
            for values in combinations(VALUES, size)
            for fewest in (None, 1 + len({"0", "1"}.intersection(values)))
        ]
    )


WRITTEN = st.one_of(
    st.sampled_from([entry("key", operator) for operator in ("Exists", "DoesNotExist")]),
    st.sampled_from([entry("key", operator, bound) for operator in ("Gt", "Lt", "Gte", "Lte") for bound in BOUNDS]),
    listing(0),
    listing(1, 2),
    listing(5),
)
SIMPLE = WRITTEN.map(read_requirement)
# What several together leave: bounds on both sides, with holes in between.
REQUIREMENTS = st.lists(SIMPLE, min_size=1, max_size=4).map(lambda each: Requirements(each).get("key"))
# Every set that can be made of these differs from every other in one of these: beyond 7 all numbers are alike.
TEXTS = ["x", "y", "z", "04", "007", *map(str, range(12))]
LABELS = [None, *TEXTS]


@given(REQUIREMENTS, REQUIREMENTS)
def test_the_common_part_allows_what_both_allow(one: Requirement, other: Requirement) -> None:
    both = one & other
    assert [both.has(label) for label in LABELS] == [one.has(label) and other.has(label) for label in LABELS]


@given(REQUIREMENTS, REQUIREMENTS)
def test_it_is_commutative(one: Requirement, other: Requirement) -> None:
    assert one & other == other & one
    assert hash(one & other) == hash(other & one)


@given(REQUIREMENTS, REQUIREMENTS, REQUIREMENTS)
def test_it_is_associative(one: Requirement, other: Requirement, third: Requirement) -> None:
    assert (one & other) & third == one & (other & third)


@given(REQUIREMENTS)
def test_it_is_idempotent(requirement: Requirement) -> None:
    assert requirement & requirement == requirement
    assert requirement & Requirements().get("key") == requirement


# Numbers without leading zeros: where all of those between two bounds are excluded, their other spellings do not count.
PLAIN = [text for text in TEXTS if text == "0" or not text.startswith("0")]


def named(*requirements: Requirement) -> list[str]:
    """The values to try: what is listed counts, however it is spelled."""
    return [*PLAIN, *(value for each in requirements if not each.complement for value in each.values)]


@given(REQUIREMENTS, REQUIREMENTS)
def test_they_overlap_if_and_only_if_some_value_passes_both(one: Requirement, other: Requirement) -> None:
    assert one.overlaps(other) == any(one.has(text) and other.has(text) for text in named(one, other))
    assert one.overlaps(other) == other.overlaps(one)


@given(REQUIREMENTS)
def test_any_value_is_allowed_and_there_is_none_only_if_nothing_is(requirement: Requirement) -> None:
    value = requirement.any_value()
    if value is None:
        assert not any(map(requirement.has, PLAIN))
    else:
        assert requirement.has(value)
    assert requirement.impossible == (value is None and not requirement.optional)


@given(REQUIREMENTS)
def test_what_is_written_reads_as_the_same_set(requirement: Requirement) -> None:
    assert read_requirements(requirement.entries()).get("key") == requirement
    for written in requirement.entries():
        assert written.min_values == requirement.min_values
        assert written.values == sorted(written.values)


@given(REQUIREMENTS, st.sampled_from(LABELS))
def test_a_node_is_compatible_if_and_only_if_its_label_is_allowed(wanted: Requirement, label: str | None) -> None:
    node = of_labels({} if label is None else {"key": label})
    want = Requirements([wanted])
    assert node.compatible(want) == wanted.has(label)
    assert (node.incompatibility(want) is None) == wanted.has(label)


@given(REQUIREMENTS, REQUIREMENTS)
def test_compatible_means_that_some_label_suits_both(had: Requirement, wanted: Requirement) -> None:
    have, want = Requirements([had]), Requirements([wanted])
    agree = any(had.has(label) and wanted.has(label) for label in [None, *named(had, wanted)])
    assert have.compatible(want) == have.intersects(want) == agree
    assert (have & want).impossible == (not agree)


@given(st.lists(WRITTEN, max_size=6), st.integers(0, 6))
def test_sets_can_be_put_together_in_any_parts(entries: list[objects.NodeSelectorRequirement], cut: int) -> None:
    assert read_requirements(entries[:cut]) & read_requirements(entries[cut:]) == read_requirements(entries)
