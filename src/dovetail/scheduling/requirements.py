"""Sets of allowed label values, and their intersections (05 §2).

A requirement is exact: a set of values, finite or all but some, and whether the label may be missing. So a node meets
the intersection of two requirements if and only if it meets both. In two cases no single operator says the same:
contradictory requirements allow nothing, not even a missing label, as a bare DoesNotExist would; and a label that must
exist with any value but x is shown as NotIn, which would allow a missing label.

Label values have no sign, so bounds below 0 allow everything or nothing.
"""

import re
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from enum import StrEnum
from itertools import count
from typing import Final

import msgspec

from dovetail.api import objects
from dovetail.scheduling.labels import likely_meant, normalised
from dovetail.values.duration import shown

MAX_INTEGER: Final = 2**63 - 1

_WHOLE = re.compile("[0-9]{1,63}")  # a label has no more characters
_BOUND = re.compile("[+-]?[0-9]{1,63}")
_NONE: Final[frozenset[str]] = frozenset()
_VALUES_SHOWN = 5


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"
    GTE = "Gte"
    LTE = "Lte"


class RequirementError(ValueError):
    """The requirement cannot be read; the message is for people."""


class Requirement(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The allowed values of one label: these, or with `complement` all others within the bounds.

    By default every value is allowed. With a bound, only whole numbers are allowed. `optional`: the label may be
    missing.
    """

    key: str
    complement: bool = True
    values: frozenset[str] = _NONE
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        assert self.complement or not self.bounded, "a finite set has no bounds, only values"
        assert not self.optional or not (self.bounded or (self.values and not self.complement)), "one is asked for"

    @property
    def bounded(self) -> bool:
        return self.gte is not None or self.lte is not None

    @property
    def operator(self) -> Operator:
        """The operator to show, without bounds."""
        if self.complement:
            return Operator.NOT_IN if self.values else Operator.EXISTS
        return Operator.IN if self.values else Operator.DOES_NOT_EXIST

    @property
    def impossible(self) -> bool:
        """Whether it allows no value and no missing label."""
        return not self.optional and self.any_value() is None

    def has(self, value: str | None) -> bool:
        """Whether it allows the value; None: a missing label."""
        if value is None:
            return self.optional
        return (value in self.values) != self.complement and _within(value, self.gte, self.lte)

    def __and__(self, other: "Requirement") -> "Requirement":
        assert self.key == other.key, f"{self.key} and {other.key} have nothing to do with each other"
        gte, lte = _tighter(max, self.gte, other.gte), _tighter(min, self.lte, other.lte)
        min_values = _tighter(max, self.min_values, other.min_values)
        if gte is not None and lte is not None and gte > lte:
            return Requirement(self.key, complement=False, min_values=min_values)
        complement = self.complement and other.complement
        if complement:
            values = self.values | other.values
        elif self.complement or other.complement:
            concrete, excluding = (other, self) if self.complement else (self, other)
            values = concrete.values - excluding.values
        else:
            values = self.values & other.values
        if gte is not None or lte is not None:
            values = frozenset(value for value in values if _within(value, gte, lte))
        optional = self.optional and other.optional
        if complement:
            return Requirement(self.key, complement, values, gte, lte, min_values, optional)
        return Requirement(self.key, complement, values, min_values=min_values, optional=optional)

    def overlaps(self, other: "Requirement") -> bool:
        if self.complement and other.complement:
            return (self & other).any_value() is not None
        concrete, against = (self, other) if other.complement else (other, self)
        return any(map(against.has, concrete.values))

    def agrees(self, other: "Requirement") -> bool:
        """Whether both allow some value, or a missing label."""
        return (self.optional and other.optional) or self.overlaps(other)

    def any_value(self) -> str | None:
        """The smallest allowed value, a number if possible; None if there is none."""
        if not self.complement:
            return min(self.values, default=None)
        numbers = count(self.gte or 0) if self.lte is None else range(self.gte or 0, self.lte + 1)
        return next((str(number) for number in numbers if str(number) not in self.values), None)

    def entries(self) -> list[objects.NodeSelectorRequirement]:
        """As in a NodeClaim; several entries where one operator is not enough (R34)."""
        written: list[tuple[Operator, list[str]]] = []
        if self.gte is not None:
            written.append((Operator.GTE, [str(self.gte)]))
        if self.lte is not None:
            written.append((Operator.LTE, [str(self.lte)]))
        if self.complement and self.optional:
            written.append((Operator.NOT_IN, sorted(self.values)))
        elif self.values or not written:
            written.append((self.operator, sorted(self.values)))
            if not (self.optional or self.bounded) and self.operator in (Operator.NOT_IN, Operator.DOES_NOT_EXIST):
                written.append((Operator.EXISTS, []))
        return [
            objects.NodeSelectorRequirement(self.key, operator, values, self.min_values) for operator, values in written
        ]

    def __str__(self) -> str:
        return " and ".join(f"{self.key} {_text(entry)}" for entry in self.entries())


def _tighter(of: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return of(one, other)


def _text(entry: objects.NodeSelectorRequirement) -> str:
    if not entry.values:
        return entry.operator
    listed = ", ".join(entry.values[:_VALUES_SHOWN])
    more = len(entry.values) - _VALUES_SHOWN
    return f"{entry.operator} [{listed}{f' and {more} more' if more > 0 else ''}]"


def _within(value: str, gte: int | None, lte: int | None) -> bool:
    if gte is None and lte is None:
        return True
    number = int(value) if _WHOLE.fullmatch(value) else MAX_INTEGER + 1
    return (0 if gte is None else gte) <= number <= (MAX_INTEGER if lte is None else lte)


def one_of(key: str, values: Iterable[str], min_values: int | None = None) -> Requirement:
    """One of these values; without values, nothing is allowed."""
    return Requirement(key, complement=False, values=frozenset(values), min_values=min_values)


def read_requirement(entry: objects.NodeSelectorRequirement) -> Requirement:
    """Read an entry of a pod, NodePool, NodeClaim, instance type or volume. Raises RequirementError."""
    key, values, fewest = normalised(entry.key), frozenset(entry.values), entry.min_values
    match entry.operator:
        case Operator.IN:
            return one_of(key, values, fewest)
        case Operator.NOT_IN:
            return Requirement(key, values=values, min_values=fewest, optional=True)
        case Operator.EXISTS:
            return Requirement(key, min_values=fewest)
        case Operator.DOES_NOT_EXIST:
            return Requirement(key, complement=False, min_values=fewest, optional=True)
        case Operator.GT:
            return _between(key, _bound(entry) + 1, None, fewest)
        case Operator.GTE:
            return _between(key, _bound(entry), None, fewest)
        case Operator.LT:
            return _between(key, None, _bound(entry) - 1, fewest)
        case Operator.LTE:
            return _between(key, None, _bound(entry), fewest)
    raise RequirementError(f"label {shown(entry.key)}: {shown(entry.operator)} is no operator")


def _between(key: str, low: int | None, high: int | None, min_values: int | None) -> Requirement:
    if (low is not None and low > MAX_INTEGER) or (high is not None and high < 0):
        return one_of(key, (), min_values)
    return Requirement(key, gte=None if low is None else max(0, low), lte=high, min_values=min_values)


def _bound(entry: objects.NodeSelectorRequirement) -> int:
    if len(entry.values) == 1 and _BOUND.fullmatch(entry.values[0]):
        number = int(entry.values[0])
        if -MAX_INTEGER - 1 <= number <= MAX_INTEGER:
            return number
    raise RequirementError(f"label {shown(entry.key)}: operator {entry.operator} wants one whole number of 64 bits")


class Incompatibility(msgspec.Struct, frozen=True, gc=False):
    """The first label, by name, that cannot be as wanted. `meant` is a label that it may be a misspelling of."""

    key: str
    wanted: Requirement
    had: Requirement | None = None
    undefined: bool = False  # the label has no known values
    meant: str | None = None

    def __str__(self) -> str:
        if self.undefined:
            hint = f" (is {shown(self.meant)} meant?)" if self.meant else ""
            return f"label {shown(self.key)} does not have known values{hint}"
        return f"{self.wanted} cannot be met" + (f": there is {self.had}" if self.had else "")


class Requirements:
    """At most one requirement per label, by name. Immutable, and equal by content."""

    __slots__ = ("_by_key", "_hash")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        by_key: dict[str, Requirement] = {}
        for requirement in requirements:
            known = by_key.get(requirement.key)
            by_key[requirement.key] = requirement if known is None else known & requirement
        self._by_key: Mapping[str, Requirement] = {key: by_key[key] for key in sorted(by_key)}
        self._hash = hash(tuple(self._by_key.values()))

    def __and__(self, other: "Requirements") -> "Requirements":
        if not self._by_key or not other._by_key:
            return self if self._by_key else other
        return Requirements((*self, *other))

    def add(self, *requirements: Requirement) -> "Requirements":
        return Requirements((*self, *requirements))

    def without(self, *keys: str) -> "Requirements":
        return Requirements(requirement for requirement in self if requirement.key not in keys)

    def get(self, key: str) -> Requirement:
        """The requirement of a label; without one, everything is allowed."""
        requirement = self._by_key.get(key)
        return Requirement(key, optional=True) if requirement is None else requirement

    def keys(self) -> KeysView[str]:
        return self._by_key.keys()

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[Requirement]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Requirements) and self._by_key == other._by_key)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return ", ".join(map(str, self)) or "no requirements"

    def __repr__(self) -> str:
        return f"<{self}>"

    @property
    def impossible(self) -> bool:
        """Whether a requirement allows nothing."""
        return any(requirement.impossible for requirement in self)

    def intersects(self, other: "Requirements") -> bool:
        """Whether the labels that both name can have common values (05 §2.7)."""
        few, many = (self._by_key, other._by_key) if len(self) <= len(other) else (other._by_key, self._by_key)
        return all(key not in many or requirement.agrees(many[key]) for key, requirement in few.items())

    def compatible(self, want: "Requirements", allow_undefined: frozenset[str] = _NONE) -> bool:
        """Whether a node like this can meet `want`. Labels that it does not name are missing (05 §2.6)."""
        return self._first_unmet(want, allow_undefined) is None

    def incompatibility(self, want: "Requirements", allow_undefined: frozenset[str] = _NONE) -> Incompatibility | None:
        wanted = self._first_unmet(want, allow_undefined)
        if wanted is None:
            return None
        had = self._by_key.get(wanted.key)
        if had is not None or wanted.impossible:
            return Incompatibility(wanted.key, wanted, had)
        meant = likely_meant(wanted.key, {*allow_undefined, *self.keys()})
        return Incompatibility(wanted.key, wanted, undefined=True, meant=meant)

    def _first_unmet(self, want: "Requirements", allow_undefined: frozenset[str]) -> Requirement | None:
        for key, wanted in want._by_key.items():
            had = self._by_key.get(key)
            if had is not None:
                if not had.agrees(wanted):
                    return wanted
            elif not wanted.optional and (key not in allow_undefined or wanted.impossible):
                return wanted
        return None

    def entries(self) -> list[objects.NodeSelectorRequirement]:
        return [entry for requirement in self for entry in requirement.entries()]


NO_REQUIREMENTS: Final = Requirements()


def read_requirements(entries: Iterable[objects.NodeSelectorRequirement]) -> Requirements:
    """Read entries that all apply. Raises RequirementError."""
    return Requirements(map(read_requirement, entries))


def of_labels(labels: Mapping[str, str]) -> Requirements:
    """Exactly these labels, as a node has them."""
    return Requirements(one_of(key, (value,)) for key, value in labels.items())


def selecting(labels: Mapping[str, str]) -> Requirements:
    """These labels under their current names, as a node selector asks for them."""
    return Requirements(one_of(normalised(key), (value,)) for key, value in labels.items())
