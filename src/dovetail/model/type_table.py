"""A table of instance types and prices, in CSV or JSON: one row for each type, zone and capacity type."""

import csv
import io
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final

import msgspec

from dovetail.api.names import CapacityType
from dovetail.values.duration import shown
from dovetail.values.quantity import QuantityError, parse_quantity

NVIDIA_GPU: Final = "nvidia.com/gpu"
MOST_ROWS: Final = 200_000
_LONGEST_NAME: Final = 63
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class TypeRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A machine that can be bought, and its price per hour.

    `cpu` and `memory`: of the machine; `allocatable_…`: what pods can use of it, if that is known. An empty `zone`
    means every zone, and no `price` that it is not known. `labels`: other labels of its Nodes, as `key=value`, with
    semicolons between them.
    """

    type: str
    cpu: str
    memory: str
    allocatable_cpu: str = ""
    allocatable_memory: str = ""
    pods: str = ""
    gpu: str = ""
    gpu_resource: str = ""
    arch: str = "amd64"
    os: str = "linux"
    zone: str = ""
    capacity_type: str = CapacityType.ON_DEMAND.value
    price: float | None = None
    labels: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """No two rows have the same."""
        return self.type, self.zone, self.capacity_type

    @property
    def node_labels(self) -> dict[str, str]:
        """`labels`, by key."""
        pairs = (pair.partition("=") for pair in self.labels.split(";") if pair.strip())
        return {key.strip(): value.strip() for key, _, value in pairs}

    @property
    def machine(self) -> tuple[tuple[str, str], ...]:
        """What all rows of a type have in common, by column."""
        return tuple((column, getattr(self, field)) for field, column in _MACHINE)


class TableError(ValueError):
    """The table cannot be read; the message names the row and the column."""


COLUMNS: Final = TypeRow.__struct_encode_fields__
_FIELDS: Final = dict(zip(COLUMNS, TypeRow.__struct_fields__, strict=True))
_MACHINE: Final = [
    (field, column) for column, field in _FIELDS.items() if column not in ("type", "zone", "capacityType", "price")
]
_NEEDED: Final = ("type", "cpu", "memory")
_AMOUNTS: Final = ("cpu", "memory", "allocatableCpu", "allocatableMemory", "pods", "gpu")


# -- reading -----------------------------------------------------------------------------------------------------------


def read_table(data: bytes) -> tuple[TypeRow, ...] | None:
    """The rows, or None if the data are no such table: JSON of another form. Raises TableError."""
    if data.removeprefix(BOM_UTF8).lstrip()[:1] in (b"[", b"{"):
        return _read_json(data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"not UTF-8: {error}") from None
    return rows_of((f"line {line}", _named(cells)) for line, cells in csv_lines(text))


def csv_lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The number and the cells, by column, of each line of a CSV file with a head. Raises TableError.

    Columns are separated by commas, or by semicolons or tabs if the head has no comma.
    """
    lines = csv.reader(io.StringIO(text), delimiter=_delimiter(text))
    head: list[str] = []
    try:
        for cells in lines:
            if not any(map(str.strip, cells)) or cells[0].lstrip().startswith("#"):
                continue
            if not head:
                head = [cell.strip() for cell in cells]
                if twice := next((name for name in head if name and head.count(name) > 1), None):
                    raise TableError(f"line {lines.line_num}: the column {shown(twice)} is given twice")
                continue
            if len(cells) > len(head):
                raise TableError(f"line {lines.line_num}: it has {len(cells)} cells, the head has {len(head)}")
            yield lines.line_num, {name: cell.strip() for name, cell in zip(head, cells, strict=False) if name}
    except csv.Error as error:
        raise TableError(f"line {lines.line_num}: not CSV: {error}") from None


def _delimiter(text: str) -> str:
    head = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return next((mark for mark in ",;\t" if mark in head), ",")


def folded(name: str) -> str:
    """`Capacity Type`, `capacity_type` and `capacityType` are one column."""
    return re.sub(r"[\s_-]+", "", name).lower()


_BY_FOLDED: Final = {folded(column): column for column in COLUMNS}


def _named(cells: Mapping[str, Any]) -> dict[str, Any]:
    """The cells by the names of our columns; other columns stay as they are."""
    return {_BY_FOLDED.get(folded(name), name): cell for name, cell in cells.items()}


def _read_json(data: bytes) -> tuple[TypeRow, ...] | None:
    try:
        items = json.loads(data)
    except (ValueError, RecursionError):
        return None  # the reader of the other form says what is wrong
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return None
    if not any("type" in map(folded, item) for item in items):
        return None
    return rows_of((f"[{index}]", _named(item)) for index, item in enumerate(items))


def rows_of(cells: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[TypeRow, ...]:
    """The rows, from the place and the cells of each, by column. Raises TableError."""
    rows: dict[tuple[str, str, str], TypeRow] = {}
    machines: dict[str, tuple[str, TypeRow]] = {}
    for place, row_cells in cells:
        row = _row(place, row_cells)
        if row.key in rows:
            where = f"zone {row.zone}" if row.zone else "every zone"
            raise TableError(f"{place}: {shown(row.type)}, {row.capacity_type} in {where} is given twice")
        if len(rows) == MOST_ROWS:
            raise TableError(f"{place}: more than {MOST_ROWS} rows")
        rows[row.key] = row
        first_place, first = machines.setdefault(row.type, (place, row))
        for (column, value), (_, before) in zip(row.machine, first.machine, strict=True):
            if value != before:
                other = f"{shown(before)} of {shown(row.type)} in {first_place}"
                raise TableError(f"{place}: {column}: {shown(value)} is not the {other}")
    if not rows:
        raise TableError("there is no instance type in it")
    return tuple(rows.values())


def _row(place: str, cells: Mapping[str, Any]) -> TypeRow:
    texts = {column: "" if cells.get(column) is None else str(cells[column]).strip() for column in COLUMNS}
    if missing := next((column for column in _NEEDED if not texts[column]), None):
        raise TableError(f"{place}: {missing}: is required; the columns are {', '.join(COLUMNS)}")
    price = _price(place, texts.pop("price"))
    for column in _AMOUNTS:
        _check_amount(place, column, texts[column])
    for column in ("type", "arch", "os", "zone"):
        if texts[column] and (len(texts[column]) > _LONGEST_NAME or not _NAME.fullmatch(texts[column])):
            raise TableError(f"{place}: {column}: {shown(texts[column])} cannot be the value of a label")
    if texts["capacityType"] and texts["capacityType"] not in list(CapacityType):
        kinds = ", ".join(CapacityType)
        raise TableError(f"{place}: capacityType: {shown(texts['capacityType'])} is none of {kinds}")
    for pair in filter(str.strip, texts["labels"].split(";")):
        key, equals, value = map(str.strip, pair.partition("="))
        if not equals or not _RESOURCE.fullmatch(key) or len(value) > _LONGEST_NAME or not _NAME.fullmatch(value):
            raise TableError(f"{place}: labels: {shown(pair)} is no label such as example.com/family=m5")
    if texts["gpuResource"] and not _RESOURCE.fullmatch(texts["gpuResource"]):
        raise TableError(f"{place}: gpuResource: {shown(texts['gpuResource'])} is no resource such as {NVIDIA_GPU}")
    return TypeRow(price=price, **{_FIELDS[column]: text for column, text in texts.items() if text})


def _check_amount(place: str, column: str, text: str) -> None:
    if not text:
        return
    try:
        quantity = parse_quantity(text)
    except QuantityError as error:
        raise TableError(f"{place}: {column}: {error}") from None
    if quantity.nano < 0 or (column in ("cpu", "memory") and not quantity.nano):
        raise TableError(f"{place}: {column}: {shown(text)} is not positive")


def _price(place: str, text: str) -> float | None:
    if not text:
        return None
    try:
        price = float(text)
    except ValueError:
        raise TableError(f"{place}: price: {shown(text)} is not a number such as 0.096") from None
    if not isfinite(price) or price < 0:
        raise TableError(f"{place}: price: {text} is negative or without bounds")
    return price


# -- writing -----------------------------------------------------------------------------------------------------------


def written_csv(rows: Sequence[TypeRow]) -> str:
    """The table as text, without columns that are empty in all rows."""
    columns = [column for column in COLUMNS if column in _NEEDED or any(_cell(row, column) for row in rows)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row, column) for column in columns] for row in rows)
    return text.getvalue()


def written_json(rows: Sequence[TypeRow]) -> str:
    """The table as a JSON list with one row per line."""
    items = [
        {column: value for column in COLUMNS if (value := getattr(row, _FIELDS[column])) not in ("", None)}
        for row in rows
    ]
    return "[\n" + ",\n".join(map(json.dumps, items)) + "\n]\n"


def _cell(row: TypeRow, column: str) -> str:
    value = getattr(row, _FIELDS[column])
    if column == "price":
        return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")
    return str(value)
