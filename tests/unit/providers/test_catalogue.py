"""The built-in instance types to the last digit, and those of a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.api import names
from dovetail.model.instance_types import InstanceType
from dovetail.providers.catalogue import (
    CatalogueError,
    allocatable,
    built_in,
    read_catalogue,
)
from tests.unit.providers.claims import labels_of

BY_NAME = {type_.name: type_ for type_ in built_in()}
ON_DEMAND = "on-demand"
EXAMPLE = Path(__file__).parents[3] / "examples" / "instance-types.json"


def prices(type_: InstanceType, capacity_type: str) -> set[float]:
    return {
        offering.price
        for offering in type_.offerings
        if labels_of(offering.requirements)[names.CAPACITY_TYPE_LABEL] == [capacity_type]
    }


# -- built in ----------------------------------------------------------------------------------------------------------


def test_144_types_and_1152_offerings() -> None:
    assert len(built_in()) == len(BY_NAME) == 144
    assert sum(len(type_.offerings) for type_ in built_in()) == 1152
    assert all(offering.available for type_ in built_in() for offering in type_.offerings)


@pytest.mark.parametrize(
    ("name", "capacity_type", "price"),
    [
        ("c-1x-amd64-linux", ON_DEMAND, 0.027147483648),
        ("c-1x-arm64-windows", "spot", 0.019003238553599998),
        ("s-4x-arm64-linux", ON_DEMAND, 0.117179869184),
        ("m-256x-amd64-windows", ON_DEMAND, 8.599023255552),
    ],
)
def test_prices_are_exact_and_the_same_in_every_zone(name: str, capacity_type: str, price: float) -> None:
    assert prices(BY_NAME[name], capacity_type) == {price}


def test_types_come_in_the_documented_order() -> None:
    found = [type_.name for type_ in built_in()]
    assert found[:5] == [
        "c-1x-amd64-linux",
        "c-1x-arm64-linux",
        "c-1x-amd64-windows",
        "c-1x-arm64-windows",
        "s-1x-amd64-linux",
    ]
    assert found[-1] == "m-256x-arm64-windows"


def test_a_type_says_what_it_is() -> None:
    assert labels_of(BY_NAME["m-4x-arm64-linux"].requirements) == {
        names.INSTANCE_TYPE_LABEL: ["m-4x-arm64-linux"],
        names.ARCH_LABEL: ["arm64"],
        names.OS_LABEL: ["linux"],
        names.ZONE_LABEL: ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"],
        names.CAPACITY_TYPE_LABEL: ["spot", "on-demand"],
        names.KWOK_INSTANCE_SIZE_LABEL: ["4"],
        names.KWOK_INSTANCE_FAMILY_LABEL: ["m"],
        names.KWOK_INSTANCE_CPU_LABEL: ["4"],
        names.KWOK_INSTANCE_MEMORY_LABEL: ["32Gi"],
    }


@pytest.mark.parametrize(
    ("name", "cpu", "memory", "pods", "free"),
    [
        ("c-1x-amd64-linux", "1", "2Gi", "16", ("900m", "2038Mi")),
        ("s-48x-amd64-linux", "48", "192Gi", "768", ("47900m", "196598Mi")),
        ("m-96x-amd64-linux", "96", "768Gi", "1024", ("95900m", "786422Mi")),
    ],
)
def test_capacity_less_overhead_is_allocatable(
    name: str, cpu: str, memory: str, pods: str, free: tuple[str, str]
) -> None:
    type_ = BY_NAME[name]
    assert type_.capacity == {"cpu": cpu, "memory": memory, "pods": pods, "ephemeral-storage": "20Gi"}
    assert allocatable(type_) == {"cpu": free[0], "memory": free[1], "pods": pods, "ephemeral-storage": "20Gi"}


# -- a file ------------------------------------------------------------------------------------------------------------


def offering(**fields: Any) -> dict[str, Any]:
    requirements = [
        {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["spot"]},
        {"key": names.ZONE_LABEL, "operator": "In", "values": ["a"]},
    ]
    return {"Price": 0.117, "Available": True, "Requirements": requirements, **fields}


def item(**fields: Any) -> dict[str, Any]:
    return {
        "name": "m.large",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "4", "memory": "16Gi"},
        "offerings": [offering()],
        **fields,
    }


def read(*items: Any) -> tuple[InstanceType, ...]:
    return read_catalogue(json.dumps(items).encode(), "types.json")


def test_an_own_catalogue_has_110_pods_by_default_and_both_forms_of_offerings() -> None:
    flat = {"capacityType": "on-demand", "zone": "b", "price": 1.6}
    (type_,) = read(item(offerings=[offering(), flat]))
    assert type_.capacity == {"cpu": "4", "memory": "16Gi", "pods": "110"}
    assert [labels_of(each.requirements) for each in type_.offerings] == [
        {names.CAPACITY_TYPE_LABEL: ["spot"], names.ZONE_LABEL: ["a"]},
        {names.CAPACITY_TYPE_LABEL: ["on-demand"], names.ZONE_LABEL: ["b"]},
    ]
    assert [each.price for each in type_.offerings] == [0.117, 1.6]
    assert labels_of(type_.requirements)[names.ZONE_LABEL] == ["a", "b"]


def test_keys_match_whatever_their_case_but_not_those_of_resources() -> None:
    shouted = {key.upper(): value for key, value in item().items()}
    shouted["RESOURCES"] = {"cpu": 2, "memory": "1e9", "example.com/FPGA": 1}
    (type_,) = read(shouted)
    assert type_.name == "m.large"
    assert type_.capacity == {"cpu": "2", "memory": "1e9", "pods": "110", "example.com/FPGA": "1"}


def test_what_is_not_available_stays_so() -> None:
    (type_,) = read(item(offerings=[offering(Available=False, ReservationCapacity=3), offering()]))
    assert [(each.available, each.reservation_capacity) for each in type_.offerings] == [(False, 3), (True, 0)]


@pytest.mark.parametrize(
    ("name", "size", "family"),
    [
        ("m.large", "large", "m"),
        ("c6g.12xlarge", "12xlarge", "c6g"),
        ("c6g.metal", "metal", "c6g"),
        ("m5-large", "4", "m5"),
        ("m.huge", "4", "m"),
        ("standard", "4", "s"),
    ],
)
def test_size_and_family_are_read_off_the_name(name: str, size: str, family: str) -> None:
    (type_,) = read(item(name=name))
    labels = labels_of(type_.requirements)
    assert labels[names.KWOK_INSTANCE_SIZE_LABEL] == [size]
    assert labels[names.KWOK_INSTANCE_FAMILY_LABEL] == [family]


def test_a_key_of_an_offering_may_be_anybodys() -> None:
    requirements = [*offering()["Requirements"], {"key": "example.com/rack", "operator": "DoesNotExist"}]
    (type_,) = read(item(offerings=[offering(Requirements=requirements)]))
    keys = {each.key for found in type_.offerings for each in found.requirements}
    assert keys == {names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL, "example.com/rack"}


def test_the_example_is_a_catalogue() -> None:
    types = read_catalogue(EXAMPLE.read_bytes(), EXAMPLE.name)
    assert {offering.available for type_ in types for offering in type_.offerings} == {True, False}


def with_requirement(**fields: Any) -> dict[str, Any]:
    requirement = {"key": "example.com/rack", "operator": "In", "values": ["r1"], **fields}
    return item(offerings=[offering(Requirements=[*offering()["Requirements"], requirement])])


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([item(), item()], "types.json: [1] 'm.large': name: there is another type of this name, [0]"),
        ([], "types.json: there is no instance type in it"),
        ([item(name=7)], "types.json: [0].name: expected a string, got an integer"),
        ([item(name="no blanks")], "types.json: [0] 'no blanks': name: 'no blanks' cannot be the value of a label"),
        ([item(name="n" * 64)], "name: 'nnn"),
        ([{"name": "m.large"}], "types.json: [0].architecture: is required"),
        ([item(architecture="")], "[0] 'm.large': architecture: ''"),
        ([item(operatingSystems=[])], "[0] 'm.large': operatingSystems: wants at least one"),
        ([item(), item(name="n", operatingSystems=["a b"])], "[1] 'n': operatingSystems[0]: 'a b'"),
        ([item(resources={"cpu": "4"})], "[0] 'm.large': resources.memory: is required"),
        ([item(resources={"cpu": "4", "memory": "lots"})], "[0] 'm.large': resources.memory: 'lots' is not a quantity"),
        ([item(resources={"cpu": "-4", "memory": "1Gi"})], "[0] 'm.large': resources.cpu: '-4' is negative"),
        ([item(resources={"cpu": True, "memory": "1Gi"})], "[0].resources"),
        ([item(offerings=[offering(), offering(Price=-1)])], "[0] 'm.large': offerings[1].price: -1.0 is negative"),
        ([item(offerings=[offering(Price="1")])], "[0].offerings[0].price: expected a number, got a string"),
        ([item(offerings=[offering(Price=None)])], "[0].offerings[0].price: expected a number"),
        ([item(offerings=[{"zone": "a", "capacityType": "spot"}])], "[0].offerings[0].price: is required"),
        ([item(offerings=[offering(Available="yes")])], "[0].offerings[0].available: expected true or false"),
        ([item(offerings=[offering(ReservationCapacity=-1)])], "offerings[0].reservationCapacity: -1 is negative"),
        ([item(offerings=[{"price": 1, "zone": "a"}])], "offerings[0]: karpenter.sh/capacity-type: wants to be given"),
        ([item(offerings=[offering(zone="b")])], "offerings[0]: topology.kubernetes.io/zone: wants to be given once"),
        ([item(offerings=[{"price": 1, "zone": "a", "capacityType": "cheap"}])], "'cheap' is none of on-demand, spot"),
        ([item(offerings=[{"price": 1, "zone": "a b", "capacityType": "spot"}])], "zone: 'a b' cannot be the value"),
        ([with_requirement(operator="in")], "offerings[0].requirements[2].operator: 'in' is none of In, NotIn"),
        ([with_requirement(values=[])], "offerings[0].requirements[2].values: operator In needs at least one value"),
        (
            [with_requirement(operator="Gt")],
            "offerings[0].requirements[2].values: operator Gt needs exactly one value, a whole",
        ),
        ([with_requirement(key="")], "offerings[0].requirements[2].key: is empty"),
        ([with_requirement(values=["a b"])], "offerings[0].requirements[2].values[0]: 'a b'"),
        ([{**item(), "Name": "n"}], "is given twice, in capitals and without"),
    ],
)
def test_a_bad_item_is_refused_by_file_item_and_field(items: list[Any], words: str) -> None:
    with pytest.raises(CatalogueError) as refused:
        read(*items)
    assert str(refused.value).startswith("types.json: ")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "types.json: there is no instance type in it"),
        (b'[\n  {"name": }]', "types.json:2:12: not JSON: Expecting value"),
        (b'{"name": "m"}', "types.json: the catalogue: expected a list, got a mapping"),
        (b"[{}", "types.json:1:4: not JSON"),
        (b'["m"]', "types.json: [0]: expected a mapping, got a string"),
        (b'[{"name": "a", "name": "b"}]', "types.json: [0]: 'name' is given twice"),
        (b'[{"price": NaN}]', "types.json: not JSON: NaN is not a number"),
        (b"[" + b"9" * 5000 + b"]", "types.json: not JSON"),
        (b'[{"name": "\xff"}]', "types.json: not JSON"),
        (b"[" * 100_000, "types.json: nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(data: bytes, words: str) -> None:
    with pytest.raises(CatalogueError) as refused:
        read_catalogue(data, "types.json")
    assert words in str(refused.value)


def test_a_price_beyond_all_bounds_is_refused() -> None:
    text = json.dumps([item(offerings=[offering(Price=7)])]).replace('"Price": 7', '"Price": 1e999')
    with pytest.raises(CatalogueError, match=r"offerings\[0\].price"):
        read_catalogue(text.encode(), "types.json")
