"""Instance types and prices: the built-in ones, or those of a file or table (07 §3)."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from math import isfinite
from typing import Any, Final, NoReturn

import msgspec

from dovetail.api import names
from dovetail.api.decode_errors import explain_refusal
from dovetail.api.json_paths import duplicate_key
from dovetail.api.objects import NodeSelectorRequirement, Quantities
from dovetail.model.field_errors import OPERATORS, value_flaw
from dovetail.model.instance_types import InstanceType, Offering, guessed_price
from dovetail.model.type_table import NVIDIA_GPU, TableError, TypeRow, read_table
from dovetail.values.duration import shown
from dovetail.values.quantity import Quantity, QuantityError, parse_quantity

ZONES: Final = ("test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d")
EVERY_ZONE: Final = "every-zone"  # of a table that names no zone
OVERHEAD: Final = {"cpu": "100m", "memory": "10Mi"}  # reserved by the kubelet
DEFAULT_PODS: Final = "110"
NO_LABELS: Final[Mapping[str, str]] = {}

_CPUS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
_FAMILIES = {2: "c", 4: "s", 8: "m"}  # by GiB of memory for each cpu
_PODS_PER_CPU, _PODS_AT_MOST = 16, 1024
_SIZED = re.compile(r"\w+\.(nano|micro|small|medium|large|\d*xlarge|metal)", re.ASCII)
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class CatalogueError(ValueError):
    """The file is not a catalogue; the message names the file, the item and the field."""


@cache
def built_in() -> tuple[InstanceType, ...]:
    """144 types with 8 offerings each."""
    machines = product(_CPUS, _FAMILIES, ("linux", "windows"), ("amd64", "arm64"))
    return tuple(_built_in(cpu, factor, system, arch) for cpu, factor, system, arch in machines)


def _built_in(cpu: int, factor: int, system: str, arch: str) -> InstanceType:
    memory_bytes = cpu * factor * 2**30
    prices = {
        names.CapacityType.SPOT: guessed_price(cpu, memory_bytes, spot=True),
        names.CapacityType.ON_DEMAND: guessed_price(cpu, memory_bytes),
    }
    return _type(
        f"{_FAMILIES[factor]}-{cpu}x-{arch}-{system}",
        arch=arch,
        systems=[system],
        capacity={
            "cpu": str(cpu),
            "memory": str(parse_quantity(f"{cpu * factor}Gi")),
            "pods": str(min(_PODS_PER_CPU * cpu, _PODS_AT_MOST)),
            "ephemeral-storage": "20Gi",
        },
        offerings=[
            Offering(requirements=(_in(names.CAPACITY_TYPE_LABEL, [kind]), _in(names.ZONE_LABEL, [zone])), price=cost)
            for zone in ZONES
            for kind, cost in prices.items()
        ],
    )


def _type(
    name: str,
    *,
    arch: str,
    systems: Sequence[str],
    capacity: dict[str, str],
    offerings: Sequence[Offering],
    overhead: Mapping[str, str] = OVERHEAD,
    labels: Mapping[str, str] = NO_LABELS,
) -> InstanceType:
    sized = _SIZED.fullmatch(name)
    requirements = (
        _in(names.INSTANCE_TYPE_LABEL, [name]),
        _in(names.ARCH_LABEL, [arch]),
        _in(names.OS_LABEL, systems),
        _in(names.ZONE_LABEL, _offered(offerings, names.ZONE_LABEL)),
        _in(names.CAPACITY_TYPE_LABEL, _offered(offerings, names.CAPACITY_TYPE_LABEL)),
        _in(names.KWOK_INSTANCE_SIZE_LABEL, [sized[1] if sized else capacity["cpu"]]),
        _in(names.KWOK_INSTANCE_FAMILY_LABEL, [_family(name)]),
        _in(names.KWOK_INSTANCE_CPU_LABEL, [capacity["cpu"]]),
        _in(names.KWOK_INSTANCE_MEMORY_LABEL, [capacity["memory"]]),
        *(_in(key, [value]) for key, value in sorted(labels.items())),
    )
    return InstanceType(
        name=name, requirements=requirements, offerings=tuple(offerings), capacity=capacity, overhead=overhead
    )


def _in(key: str, values: Iterable[str]) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator="In", values=[str(value) for value in values])


def _offered(offerings: Iterable[Offering], key: str) -> list[str]:
    """The different values of the key in all offerings, in order."""
    values = (
        value
        for offering in offerings
        for requirement in offering.requirements
        if requirement.key == key
        for value in requirement.values
    )
    return list(dict.fromkeys(values))


def _family(name: str) -> str:
    family = re.split(r"[.-]", name, maxsplit=1)[0]
    return name[0] if family == name else family


def allocatable(type_: InstanceType) -> dict[str, str]:
    amounts = {}
    for resource, text in type_.capacity.items():
        has, keeps = parse_quantity(text), parse_quantity(type_.overhead.get(resource, "0"))
        amounts[resource] = str(Quantity(max(0, has.nano - keeps.nano), has.format))
    return amounts


def _folded_name(name: str) -> str:
    return name.replace("_", "")


class _RequirementItem(msgspec.Struct, frozen=True):
    key: str
    operator: str
    values: list[str] = []


class _OfferingItem(msgspec.Struct, frozen=True, rename=_folded_name):
    """An offering with requirements, or in the older form with zone and capacity type."""

    price: float
    available: bool = True
    reservation_capacity: int = 0
    requirements: list[_RequirementItem] = []
    capacity_type: str | None = None
    zone: str | None = None


class _TypeItem(msgspec.Struct, frozen=True, rename=_folded_name):
    name: str
    architecture: str
    operating_systems: list[str]
    resources: Quantities
    offerings: list[_OfferingItem]


class _ItemError(Exception):
    """A mistake in a field of an item."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(words)
        self.field = field


def read_catalogue(data: bytes, file: str) -> tuple[InstanceType, ...]:
    """The types of a JSON file, or of a table in CSV or JSON. `file`: its name, for messages. Raises CatalogueError."""
    try:
        rows = read_table(data)
    except TableError as error:
        raise CatalogueError(f"{file}: {error}") from None
    return _read_items(data, file) if rows is None else types_of_table(rows)


def types_of_table(rows: Iterable[TypeRow]) -> tuple[InstanceType, ...]:
    """The types in the order of the table. A type without a zone is offered in all zones of the table."""
    by_type: dict[str, list[TypeRow]] = defaultdict(list)
    for row in rows:
        by_type[row.type].append(row)
    zones = sorted({row.zone for machine in by_type.values() for row in machine if row.zone}) or [EVERY_ZONE]
    return tuple(_type_of_rows(name, machine, zones) for name, machine in by_type.items())


def _type_of_rows(name: str, rows: Sequence[TypeRow], zones: Sequence[str]) -> InstanceType:
    row = rows[0]
    capacity = {"cpu": row.cpu, "memory": row.memory, "pods": row.pods or DEFAULT_PODS}
    if row.gpu and parse_quantity(row.gpu).nano:
        capacity[row.gpu_resource or NVIDIA_GPU] = row.gpu
    usable = {"cpu": row.allocatable_cpu, "memory": row.allocatable_memory}
    overhead = {
        resource: _difference(capacity[resource], amount) if amount else OVERHEAD[resource]
        for resource, amount in usable.items()
    }
    named = {(each.zone, each.capacity_type) for each in rows}
    return _type(
        name,
        arch=row.arch,
        systems=[row.os],
        capacity=capacity,
        overhead=overhead,
        labels=row.node_labels,
        offerings=[
            _offering_of(each, zone)
            for each in rows
            for zone in ([each.zone] if each.zone else zones)
            if each.zone or (zone, each.capacity_type) not in named
        ],
    )


def _difference(whole: str, part: str) -> str:
    rest, amount = parse_quantity(whole), parse_quantity(part)
    return str(Quantity(max(0, rest.nano - amount.nano), rest.format))


def _offering_of(row: TypeRow, zone: str) -> Offering:
    price = row.price
    if price is None:
        cpu, memory = (parse_quantity(text).nano / 1e9 for text in (row.cpu, row.memory))
        price = guessed_price(cpu, memory, spot=row.capacity_type == names.CapacityType.SPOT)
    requirements = (_in(names.CAPACITY_TYPE_LABEL, [row.capacity_type]), _in(names.ZONE_LABEL, [zone]))
    return Offering(requirements=requirements, price=price, guessed=row.price is None)


def _read_items(data: bytes, file: str) -> tuple[InstanceType, ...]:
    try:
        items = msgspec.convert(_parsed(data, file), list[_TypeItem])
    except msgspec.ValidationError as error:
        field, words = explain_refusal(error)
        raise CatalogueError(f"{file}: {field or 'the catalogue'}: {words}") from None
    if not items:
        raise CatalogueError(f"{file}: there is no instance type in it")
    by_name: dict[str, InstanceType] = {}
    for index, item in enumerate(items):
        try:
            if item.name in by_name:
                raise _ItemError("name", f"there is another type of this name, [{list(by_name).index(item.name)}]")
            by_name[item.name] = _read_type(item)
        except _ItemError as refused:
            raise CatalogueError(f"{file}: [{index}] {shown(item.name)}: {refused.field}: {refused}") from None
    return tuple(by_name.values())


def _parsed(data: bytes, file: str) -> Any:
    try:
        text = data.decode("utf-8-sig")
        parsed = json.loads(text, parse_constant=_no_constant)
        if twice := duplicate_key(text):
            raise CatalogueError(f"{file}: {twice[0] or 'the catalogue'}: {shown(twice[1])} is given twice")
        return _folded(parsed, file)
    except json.JSONDecodeError as error:
        raise CatalogueError(f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise CatalogueError(f"{file}: nested too deeply") from None
    except CatalogueError:
        raise
    except ValueError as error:  # not UTF-8, a number without end, NaN
        raise CatalogueError(f"{file}: not JSON: {error}") from None


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _folded(value: Any, file: str) -> Any:
    """All keys in lower case, except those of resources, which are names."""
    if isinstance(value, list):
        return [_folded(item, file) for item in value]
    if not isinstance(value, dict):
        return value
    folded = {key.lower(): item if key.lower() == "resources" else _folded(item, file) for key, item in value.items()}
    if len(folded) != len(value):
        raise CatalogueError(f"{file}: one of {', '.join(map(shown, value))} is given twice, in capitals and without")
    return folded


def _read_type(item: _TypeItem) -> InstanceType:
    _check_label_value("name", item.name)
    _check_label_value("architecture", item.architecture)
    if not item.operating_systems:
        raise _ItemError("operatingSystems", "wants at least one")
    for index, system in enumerate(item.operating_systems):
        _check_label_value(f"operatingSystems[{index}]", system)
    amounts = {resource: _read_amount(f"resources.{resource}", value) for resource, value in item.resources.items()}
    for needed in ("cpu", "memory"):
        if needed not in amounts:
            raise _ItemError(f"resources.{needed}", "is required")
    return _type(
        item.name,
        arch=item.architecture,
        systems=item.operating_systems,
        capacity={"pods": DEFAULT_PODS, **amounts},
        offerings=[_read_offering(f"offerings[{index}]", offering) for index, offering in enumerate(item.offerings)],
    )


def _read_amount(field: str, value: str | int | float) -> str:
    try:
        quantity = parse_quantity(str(value))
    except QuantityError as error:
        raise _ItemError(field, str(error)) from None
    if quantity.nano < 0:
        raise _ItemError(field, f"{shown(str(value))} is negative")
    return str(quantity)


def _read_offering(field: str, item: _OfferingItem) -> Offering:
    if not isfinite(item.price) or item.price < 0:
        raise _ItemError(f"{field}.price", f"{item.price} is negative or without bounds")
    if item.reservation_capacity < 0:
        raise _ItemError(f"{field}.reservationCapacity", f"{item.reservation_capacity} is negative")
    flat = {names.CAPACITY_TYPE_LABEL: item.capacity_type, names.ZONE_LABEL: item.zone}
    requirements = [_in(key, [value]) for key, value in flat.items() if value is not None]
    requirements += [
        _read_requirement(f"{field}.requirements[{index}]", requirement)
        for index, requirement in enumerate(item.requirements)
    ]
    for key in (names.CAPACITY_TYPE_LABEL, names.ZONE_LABEL):
        _check_definite(field, key, [requirement for requirement in requirements if requirement.key == key])
    kind = next(requirement.values[0] for requirement in requirements if requirement.key == names.CAPACITY_TYPE_LABEL)
    if kind not in list(names.CapacityType):
        raise _ItemError(
            f"{field}: {names.CAPACITY_TYPE_LABEL}", f"{shown(kind)} is none of {', '.join(names.CapacityType)}"
        )
    return Offering(
        requirements=tuple(requirements),
        price=item.price,
        available=item.available,
        reservation_capacity=item.reservation_capacity,
    )


def _check_definite(field: str, key: str, requirements: Sequence[NodeSelectorRequirement]) -> None:
    """An offering has one zone and one capacity type, because the Node gets them as labels."""
    if len(requirements) != 1 or requirements[0].operator != "In" or len(requirements[0].values) != 1:
        raise _ItemError(f"{field}: {key}", "wants to be given once, by In with one value")
    _check_label_value(f"{field}: {key}", requirements[0].values[0])


def _read_requirement(field: str, item: _RequirementItem) -> NodeSelectorRequirement:
    if not item.key:
        raise _ItemError(f"{field}.key", "is empty")
    if item.operator not in OPERATORS:
        raise _ItemError(f"{field}.operator", f"{shown(item.operator)} is none of {', '.join(OPERATORS)}")
    if flaw := value_flaw(item.operator, item.values, None):
        raise _ItemError(f"{field}.values", flaw.message)
    for index, value in enumerate(item.values):
        _check_label_value(f"{field}.values[{index}]", value)
    return NodeSelectorRequirement(
        key=names.NORMALISED_LABELS.get(item.key, item.key), operator=item.operator, values=item.values
    )


def _check_label_value(field: str, text: str) -> None:
    if not _LABEL_VALUE.fullmatch(text):
        raise _ItemError(field, f"{shown(text)} cannot be the value of a label: want 1 to 63 of A-Z a-z 0-9 - _ .")
