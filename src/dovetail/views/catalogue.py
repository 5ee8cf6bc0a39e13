"""Makes a table of instance types and prices from what a cluster, a price list or Karpenter's metrics show."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Final, NamedTuple

import msgspec

from dovetail.api import names
from dovetail.api.names import CapacityType
from dovetail.api.objects import Node, NodeClaim, Quantities
from dovetail.model.instance_types import PER_NODE_LABELS
from dovetail.model.type_table import TableError, TypeRow, csv_lines, folded, rows_of

_EC2_NAME: Final = re.compile(r"([a-z]+(?:-[0-9]+tb)?)([0-9]+)?([a-z-]*)\.([a-z0-9-]+)")
_EC2_PREFIX: Final = "karpenter.k8s.aws/instance"
_NODE_GROUP_CAPACITY: Final = "eks.amazonaws.com/capacityType"
_GPUS: Final = re.compile(r"[a-z0-9.-]+/(gpu|neuron)")


# -- a cluster ---------------------------------------------------------------------------------------------------------


class _Machine(NamedTuple):
    labels: Mapping[str, str]
    capacity: Quantities
    allocatable: Quantities


def rows_of_cluster(nodes: Iterable[Node], claims: Iterable[NodeClaim]) -> list[TypeRow]:
    """The types of the Nodes of NodePools, and of the NodeClaims without a Node, as far as they say their size.

    The types of all Nodes if none belongs to a NodePool. The price is that of the Node's label, which only kwok sets.
    """
    nodes = list(nodes)
    managed = [node for node in nodes if names.NODEPOOL_LABEL in node.metadata.labels] or nodes
    machines = [_Machine(node.metadata.labels, node.status.capacity, node.status.allocatable) for node in managed]
    machines += [
        _Machine(claim.metadata.labels, claim.status.capacity, claim.status.allocatable)
        for claim in claims
        if not claim.status.node_name
    ]
    by_type: dict[str, list[_Machine]] = defaultdict(list)
    for machine in machines:
        if (type_ := machine.labels.get(names.INSTANCE_TYPE_LABEL)) and {"cpu", "memory"} <= machine.capacity.keys():
            by_type[type_].append(machine)
    return [row for type_, alike in sorted(by_type.items()) for row in _rows_of_type(type_, alike)]


def _rows_of_type(type_: str, machines: Sequence[_Machine]) -> list[TypeRow]:
    first = machines[0]
    capacity, allocatable = first.capacity, first.allocatable
    gpu = next((resource for resource in sorted(capacity) if _GPUS.fullmatch(resource)), "")
    shared = reduce(lambda one, other: one & other, (set(machine.labels.items()) for machine in machines))
    labels = {key: value for key, value in sorted(shared) if value and "/" in key and key not in _TOLD}
    row = TypeRow(
        type=type_,
        cpu=str(capacity["cpu"]),
        memory=str(capacity["memory"]),
        allocatable_cpu=str(allocatable.get("cpu", "")),
        allocatable_memory=str(allocatable.get("memory", "")),
        pods=str(capacity.get("pods", "")),
        gpu=str(capacity[gpu]) if gpu else "",
        gpu_resource=gpu,
        arch=first.labels.get(names.ARCH_LABEL, "amd64"),
        os=first.labels.get(names.OS_LABEL, "linux"),
        labels=";".join(f"{key}={value}" for key, value in labels.items()),
    )
    offered = {_where(machine.labels): _label_price(machine.labels) for machine in machines}
    return [
        msgspec.structs.replace(row, zone=zone, capacity_type=kind, price=price)
        for (zone, kind), price in sorted(offered.items())
    ]


_TOLD: Final = PER_NODE_LABELS | {names.INSTANCE_TYPE_LABEL, names.ARCH_LABEL, names.OS_LABEL, _NODE_GROUP_CAPACITY}


def _where(labels: Mapping[str, str]) -> tuple[str, str]:
    kind = labels.get(names.CAPACITY_TYPE_LABEL) or labels.get(_NODE_GROUP_CAPACITY, "")
    return labels.get(names.ZONE_LABEL, ""), _capacity_type(kind) or CapacityType.ON_DEMAND.value


def _label_price(labels: Mapping[str, str]) -> float | None:
    try:
        return float(labels.get(names.INSTANCE_PRICE_LABEL, ""))
    except ValueError:
        return None


# -- a price list ------------------------------------------------------------------------------------------------------


class ListedPrice(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a price list: what it says of the machine, and its price."""

    place: str
    cells: Mapping[str, str]
    """Columns of the table."""
    spot_price: str = ""


class PriceList(msgspec.Struct, frozen=True):
    """The rows with a price, and the number of those without one."""

    rows: tuple[ListedPrice, ...]
    unpriced: int


# What price lists call our columns, folded. The first that is there counts.
_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "type": ("type", "instancetype", "apiname", "machinetype", "vmsize", "sku", "instance", "name"),
    "cpu": ("cpu", "vcpu", "vcpus", "cpus", "cores"),
    "memory": ("memory", "ram", "instancememory", "memorygib", "memorygb", "memory(gib)", "ramgb"),
    "arch": ("arch", "architecture", "processorarchitecture"),
    "os": ("os", "operatingsystem"),
    "gpu": ("gpu", "gpus", "gpucount"),
    "zone": ("zone", "availabilityzone", "az"),
    "capacityType": ("capacitytype", "purchaseoption", "market"),
    "price": (
        "price",
        "ondemand",
        "linuxondemandcost",
        "ondemandcost",
        "hourlyprice",
        "priceperhour",
        "priceperunit",
        "hourly",
    ),
}
_SPOT_COLUMNS: Final = ("spotprice", "spot", "linuxspotaveragecost", "linuxspotminimumcost", "spotcost")
_ARCHS: Final = {"x86_64": "amd64", "x86-64": "amd64", "x64": "amd64", "aarch64": "arm64", "64-bit": "amd64"}
_NUMBER: Final = re.compile(r"[-+]?[0-9][0-9,]*(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SIZE: Final = re.compile(r"([0-9][0-9,]*(?:\.[0-9]+)?)\s*(GiB|GB|Gi|G|MiB|MB|Mi|M|TiB|TB|Ti)?\b.*", re.IGNORECASE)
_UNITS: Final = {
    "": "Gi",
    "gib": "Gi",
    "gb": "Gi",
    "gi": "Gi",
    "g": "Gi",
    "mib": "Mi",
    "mb": "Mi",
    "mi": "Mi",
    "m": "Mi",
    "tib": "Ti",
    "tb": "Ti",
    "ti": "Ti",
}


def read_price_list(text: str, columns: Mapping[str, str]) -> PriceList:
    """`columns`: what the list calls some of our columns, such as `{"price": "On Demand cost"}`. Raises TableError."""
    rows, unpriced = [], 0
    chosen: dict[str, str] = {}
    for line, cells in csv_lines(text):
        if not chosen:
            chosen = _chosen(list(cells), columns)
        named = {column: cells.get(name, "") for column, name in chosen.items()}
        price, spot = _amount(named.pop("price", "")), _amount(named.pop("spot", ""))
        if not price and not spot:
            unpriced += 1
            continue
        place = f"line {line}"
        rows.append(ListedPrice(place=place, cells={**_plain_cells(named), "price": price}, spot_price=spot))
    if not rows:
        raise TableError("there is no row with a price in it" if chosen else "there is no row in it")
    return PriceList(tuple(rows), unpriced)


def _chosen(head: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """The name in the list of each of our columns that it has, and of `spot`."""
    by_folded = {folded(name): name for name in reversed(head)}
    chosen = {
        column: by_folded[alias]
        for column, aliases in {**_ALIASES, "spot": _SPOT_COLUMNS}.items()
        if (alias := next((candidate for candidate in aliases if candidate in by_folded), None)) is not None
    }
    for column, name in columns.items():
        if folded(name) not in by_folded:
            raise TableError(f"there is no column {name!r}; the columns are {', '.join(head)}")
        chosen[column] = by_folded[folded(name)]
    for needed in ("type", "price"):
        if needed not in chosen and not (needed == "price" and "spot" in chosen):
            listed = ", ".join(head)
            raise TableError(f"no column is known as the {needed}; name it with --column {needed}=NAME, of: {listed}")
    return chosen


def _amount(text: str) -> str:
    """`0.096` of `$0.0960 hourly`; empty if there is no number above 0."""
    match = _NUMBER.search(text)
    number = match[0].replace(",", "") if match else ""
    return number if number and float(number) > 0 else ""


def _plain_cells(cells: Mapping[str, str]) -> dict[str, str]:
    """As the table wants them: `4` of `4 vCPUs`, `16Gi` of `16 GiB`, `amd64` of `x86_64`."""
    plain = dict(cells)
    for column in ("cpu", "gpu"):
        if cells.get(column):
            plain[column] = _amount(cells[column])
    if size := _SIZE.fullmatch(cells.get("memory", "").strip()):
        plain["memory"] = size[1].replace(",", "") + _UNITS[(size[2] or "").lower()]
    arch = cells.get("arch", "").lower()
    plain["arch"] = _ARCHS.get(arch, arch)
    plain["os"] = cells.get("os", "").lower()
    if "capacityType" in cells:
        plain["capacityType"] = _capacity_type(cells["capacityType"]) or cells["capacityType"]
    return plain


def _capacity_type(text: str) -> str:
    """Of `OnDemand`, `ON_DEMAND`, `Spot`; empty for others."""
    return {folded(kind): kind.value for kind in CapacityType}.get(folded(text), "")


def rows_of_prices(listed: Iterable[ListedPrice]) -> tuple[TypeRow, ...]:
    """The table of a price list that also says cpu and memory. Raises TableError."""
    return rows_of((price.place, _with_labels(cells)) for price in listed for cells in _priced(price))


def _priced(price: ListedPrice) -> list[dict[str, str]]:
    """The cells of each capacity type with a price."""
    spot = [{**price.cells, "capacityType": CapacityType.SPOT.value, "price": price.spot_price}]
    return [*([dict(price.cells)] if price.cells["price"] else []), *(spot if price.spot_price else [])]


def with_prices(rows: Iterable[TypeRow], listed: Iterable[ListedPrice]) -> list[TypeRow]:
    """The rows with the prices of the list: that of the zone, or that of the type for all zones. Raises TableError."""
    prices = {}
    for price in listed:
        for cells in _priced(price):
            kind = cells.get("capacityType") or CapacityType.ON_DEMAND.value
            prices[cells["type"], cells.get("zone", ""), kind] = float(cells["price"])

    def priced(row: TypeRow) -> TypeRow:
        new_price = prices.get(row.key, prices.get((row.type, "", row.capacity_type), row.price))
        return msgspec.structs.replace(row, price=new_price)

    return [priced(row) for row in rows]


# -- Karpenter's metrics -----------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """A sample of a metric."""

    name: str
    labels: Mapping[str, str]
    value: float


_PROVIDER: Final = "karpenter_cloudprovider_instance_type_"
_CPU, _MEMORY = f"{_PROVIDER}cpu_cores", f"{_PROVIDER}memory_bytes"
_PRICE: Final = f"{_PROVIDER}offering_price_estimate"
METRICS: Final = frozenset({_CPU, _MEMORY, _PRICE})


def rows_of_metrics(samples: Iterable[Sample]) -> tuple[TypeRow, ...]:
    """The types that a running Karpenter knows, with its price estimates. Raises TableError."""
    cpus, memories = dict[str, float](), dict[str, float]()
    prices: dict[tuple[str, str, str], float] = {}
    for sample in samples:
        type_ = sample.labels.get("instance_type", "")
        if sample.name == _CPU:
            cpus[type_] = sample.value
        elif sample.name == _MEMORY:
            memories[type_] = sample.value
        elif sample.name == _PRICE:
            prices[type_, sample.labels.get("zone", ""), sample.labels.get("capacity_type", "")] = sample.value
    if not prices:
        raise TableError(f"there is no metric {_PRICE}: not every provider of Karpenter has it")
    sizes = {
        type_: {"cpu": f"{cpus[type_]:g}", "memory": f"{int(memories[type_]) // 2**20}Mi"}
        for type_ in cpus.keys() & memories.keys()
    }
    return rows_of(
        (
            f"{type_} {kind} {zone}",
            _with_labels({**sizes[type_], "type": type_, "zone": zone, "capacityType": kind, "price": str(price)}),
        )
        for (type_, zone, kind), price in sorted(prices.items())
        if type_ in sizes
    )


# -- EC2 ---------------------------------------------------------------------------------------------------------------


def _with_labels(cells: Mapping[str, str]) -> dict[str, str]:
    """With what the name of an EC2 type tells: the architecture, and labels that NodePools ask for."""
    named = _EC2_NAME.fullmatch(cells.get("type", ""))
    if named is None:
        return dict(cells)
    letters, generation, attributes, size = named.groups()
    labels = {
        "category": letters,
        "family": f"{letters}{generation or ''}{attributes}",
        "generation": generation or "",
        "size": size,
        "cpu": cells.get("cpu", ""),
    }
    label_text = ";".join(f"{_EC2_PREFIX}-{key}={value}" for key, value in labels.items() if value)
    is_arm = "g" in attributes or cells["type"].startswith("a1.")
    return {
        "arch": "arm64" if is_arm else "amd64",
        "labels": label_text,
        **{key: cell for key, cell in cells.items() if cell},
    }
