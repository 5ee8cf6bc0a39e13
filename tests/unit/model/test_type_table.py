"""The table of instance types and prices: what is read, what is refused, and that what is written is read again."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import names
from dovetail.model.instance_types import guessed_price
from dovetail.model.type_table import TableError, TypeRow, read_table, written_csv, written_json
from dovetail.providers.catalogue import CatalogueError, allocatable, read_catalogue
from tests.unit.providers.claims import labels_of

HEAD = "type,cpu,memory,zone,capacityType,price\n"


def read(text: str) -> tuple[TypeRow, ...]:
    rows = read_table(text.encode())
    assert rows is not None
    return rows


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_columns_can_be_named_and_separated_freely(mark: str) -> None:
    text = mark.join(["Capacity Type", "Memory", "CPU", "type", "note"]) + "\n"
    text += "# a comment\n\n" + mark.join(["spot", "8Gi", "2", "m5.large", "mine"]) + "\n"
    assert read(text) == (TypeRow(type="m5.large", cpu="2", memory="8Gi", capacity_type="spot"),)


def test_json_is_read_too() -> None:
    assert read('[{"type": "a", "cpu": 2, "memory": "4Gi", "price": 0.5, "zone": null}]') == (
        TypeRow(type="a", cpu="2", memory="4Gi", price=0.5),
    )


@pytest.mark.parametrize("text", ['[{"name": "a", "offerings": []}]', "{}", "[]", "[1]", "[{"])
def test_json_of_another_form_is_left_to_its_reader(text: str) -> None:
    assert read_table(text.encode()) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no instance type in it"),
        (HEAD, "there is no instance type in it"),
        ("type,cpu\na,1\n", "line 2: memory: is required; the columns are type, cpu, memory, allocatableCpu"),
        ("type,type\n", "line 1: the column 'type' is given twice"),
        (HEAD + "a,1,1Gi,z,spot,1,2\n", "line 2: it has 7 cells, the head has 6"),
        (HEAD + "a,one,1Gi,z,spot,1\n", "line 2: cpu: 'one' "),
        (HEAD + "a,0,1Gi,z,spot,1\n", "line 2: cpu: '0' is not positive"),
        (HEAD + "a,1,-1Gi,z,spot,1\n", "line 2: memory: '-1Gi' is not positive"),
        (HEAD + "a b,1,1Gi,z,spot,1\n", "line 2: type: 'a b' cannot be the value of a label"),
        (HEAD + "a,1,1Gi,z,cheap,1\n", "line 2: capacityType: 'cheap' is none of "),
        (HEAD + "a,1,1Gi,z,spot,$1\n", "line 2: price: '$1' is not a number such as 0.096"),
        (HEAD + "a,1,1Gi,z,spot,-1\n", "line 2: price: -1 is negative or without bounds"),
        (HEAD + "a,1,1Gi,z,spot,nan\n", "line 2: price: nan is negative or without bounds"),
        (HEAD + "a,1,1Gi,z,spot,1\na,1,1Gi,z,spot,2\n", "line 3: 'a', spot in zone z is given twice"),
        (HEAD + "a,1,1Gi,z,spot,1\na,2,1Gi,y,spot,2\n", "line 3: cpu: '2' is not the '1' of 'a' in line 2"),
        ("type,cpu,memory,labels\na,1,1Gi,family\n", "line 2: labels: 'family' is no label such as "),
        ("type,cpu,memory,gpuResource\na,1,1Gi,gpu\n", "line 2: gpuResource: 'gpu' is no resource such as "),
        ('[{"type": "a", "cpu": 1}]', "[0]: memory: is required"),
    ],
)
def test_a_mistake_names_its_place_and_column(text: str, message: str) -> None:
    with pytest.raises(TableError) as refused:
        read_table(text.encode())
    assert str(refused.value).startswith(message)
    with pytest.raises(CatalogueError) as named:
        read_catalogue(text.encode(), "types.csv")
    assert str(named.value) == f"types.csv: {refused.value}"


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(TableError, match="not UTF-8"):
        read_table(b"\xff\xfe\x00")


@dataclass(frozen=True)
class Offered:
    price: float
    guessed: bool


def offers(text: str) -> dict[tuple[str, str, str], Offered]:
    found = {}
    for type_ in read_catalogue(text.encode(), "types.csv"):
        for offering in type_.offerings:
            labels = labels_of(offering.requirements)
            (zone,), (kind,) = labels[names.ZONE_LABEL], labels[names.CAPACITY_TYPE_LABEL]
            found[type_.name, zone, kind] = Offered(offering.price, offering.guessed)
    return found


def test_a_type_without_a_zone_is_offered_in_all_zones_of_the_table_but_its_own_price_wins() -> None:
    text = HEAD + "a,1,1Gi,x,on-demand,1\na,1,1Gi,,on-demand,3\nb,1,1Gi,y,spot,2\n"
    assert offers(text) == {
        ("a", "x", "on-demand"): Offered(1, guessed=False),
        ("a", "y", "on-demand"): Offered(3, guessed=False),
        ("b", "y", "spot"): Offered(2, guessed=False),
    }


def test_a_price_that_is_not_known_is_guessed_and_says_so() -> None:
    found = offers(HEAD + "a,4,16Gi,x,spot,\n")
    assert found == {("a", "x", "spot"): Offered(guessed_price(4, 16 * 2**30, spot=True), guessed=True)}


def test_what_pods_can_use_is_what_the_table_says() -> None:
    text = (
        "type,cpu,memory,allocatableCpu,allocatableMemory,pods,gpu,labels\na,4,16Gi,3920m,14Gi,58,1,example.com/b=c\n"
    )
    (type_,) = read_catalogue(text.encode(), "types.csv")
    usable = allocatable(type_)
    assert usable == {"cpu": "3920m", "memory": "14Gi", "pods": "58", "nvidia.com/gpu": "1"}
    assert labels_of(type_.requirements)["example.com/b"] == ["c"]
    (plain,) = read_catalogue(b"type,cpu,memory\na,4,16Gi\n", "types.csv")
    assert allocatable(plain) == {"cpu": "3900m", "memory": "16374Mi", "pods": "110"}


WORD = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,8}[a-z0-9])?", fullmatch=True)
MACHINES = st.fixed_dictionaries(
    {
        "cpu": st.integers(1, 64).map(str),
        "memory": st.integers(1, 512).map("{}Gi".format),
        "pods": st.sampled_from(["", "58"]),
        "gpu": st.sampled_from(["", "2"]),
        "arch": st.sampled_from(["amd64", "arm64"]),
        "labels": st.sampled_from(["", "example.com/a=b", "example.com/a=b;example.com/c=d"]),
    }
)
OFFERS = st.dictionaries(
    st.tuples(st.sampled_from(["", "x", "y"]), st.sampled_from(["spot", "on-demand", "reserved"])),
    st.none() | st.integers(0, 10**6).map(lambda number: number / 10**5),
    min_size=1,
    max_size=4,
)


@given(st.dictionaries(WORD, st.tuples(MACHINES, OFFERS), min_size=1, max_size=5))
def test_what_is_written_is_read_again(
    types: dict[str, tuple[dict[str, str], dict[tuple[str, str], float | None]]],
) -> None:
    rows = tuple(
        TypeRow(type=name, zone=zone, capacity_type=kind, price=price, **machine)
        for name, (machine, offered) in types.items()
        for (zone, kind), price in offered.items()
    )
    assert read_table(written_csv(rows).encode()) == rows
    assert read_table(written_json(rows).encode()) == rows
