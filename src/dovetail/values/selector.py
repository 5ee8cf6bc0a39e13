"""Kubernetes label selectors."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Generic, TypeVar

from dovetail.values.duration import shown

T = TypeVar("T")

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_KEY = r"[A-Za-z0-9][-A-Za-z0-9_./]*"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*([-A-Za-z0-9_.]*)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_COMMA_OUTSIDE = re.compile(r",(?![^(]*\))")
_WRITTEN = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn"}


class SelectorError(ValueError):
    """The selector is malformed; the message is for people."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked entry of matchExpressions."""

    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.operator == "In":
            return self.key in labels and labels[self.key] in self.values
        if self.operator == "NotIn":
            return self.key not in labels or labels[self.key] not in self.values
        return (self.key in labels) == (self.operator == "Exists")

    def __str__(self) -> str:
        if self.operator == "Exists":
            return self.key
        if self.operator == "DoesNotExist":
            return f"!{self.key}"
        return f"{self.key} {self.operator.lower()} ({','.join(sorted(self.values))})"


@dataclass(frozen=True, slots=True)
class Selector:
    """All labels and expressions must match; an empty selector matches everything.

    The meaning of a missing selector depends on the field, so the caller handles it.
    """

    labels: tuple[tuple[str, str], ...] = ()
    expressions: tuple[Expression, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        # A plain loop is faster than all(), and this runs for every pod and every budget.
        for key, value in self.labels:
            if labels.get(key) != value:
                return False
        for expression in self.expressions:  # noqa: SIM110
            if not expression.matches(labels):
                return False
        return True

    def __str__(self) -> str:
        """The form for kubectl --selector; empty for the selector that matches everything."""
        return ",".join([*(f"{key}={value}" for key, value in self.labels), *map(str, self.expressions)])


class SelectorIndex(Generic[T]):
    """Finds the matching ones of many selectors by a label that they require."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], list[tuple[int, Selector, T]]] = {}
        self._others: list[tuple[int, Selector, T]] = []
        self._size = 0

    def add(self, selector: Selector, item: T) -> None:
        entry = (self._size, selector, item)
        self._size += 1
        if selector.labels:
            self._by_label.setdefault(selector.labels[0], []).append(entry)
        else:
            self._others.append(entry)

    def matching(self, labels: Mapping[str, str]) -> tuple[T, ...]:
        """The items of the matching selectors, in the order of `add`."""
        candidates = [*self._others, *(entry for pair in labels.items() for entry in self._by_label.get(pair, ()))]
        return tuple(item for _, selector, item in sorted(candidates, key=itemgetter(0)) if selector.matches(labels))


def make_selector(
    match_labels: Mapping[str, str] | None = None, expressions: Iterable[tuple[str, str, Sequence[str]]] | None = None
) -> Selector:
    """The selector of matchLabels and of matchExpressions given as (key, operator, values)."""
    return Selector(
        tuple(sorted((match_labels or {}).items())),
        tuple(_expression(key, operator, values) for key, operator, values in expressions or ()),
    )


def parse_selector(text: str) -> Selector:
    """Reads the form of kubectl: `a=b,c!=d,e in (f,g),h notin (i),j,!k`. Raises SelectorError."""
    return make_selector(None, [_term(term.strip()) for term in _COMMA_OUTSIDE.split(text)])


def _term(term: str) -> tuple[str, str, list[str]]:
    if match := _SET.fullmatch(term):
        key, operator, values = match.groups()
        return key, _WRITTEN[operator], [value.strip() for value in values.split(",")]
    if match := _EQUAL.fullmatch(term):
        key, operator, value = match.groups()
        return key, _WRITTEN[operator], [value]
    if match := _EXISTS.fullmatch(term):
        return match[2], "DoesNotExist" if match[1] else "Exists", []
    raise SelectorError(f"unable to parse requirement: {term!r}")


def _expression(key: str, operator: str, values: Sequence[str]) -> Expression:
    if operator not in OPERATORS:
        raise SelectorError(f"unknown operator {shown(operator)} for key {shown(key)}: want {', '.join(OPERATORS)}")
    if operator in ("In", "NotIn") and not values:
        raise SelectorError(f"operator {operator} for key {shown(key)} needs values")
    if operator in ("Exists", "DoesNotExist") and values:
        raise SelectorError(f"operator {operator} for key {shown(key)} takes no values")
    return Expression(key, operator, frozenset(values))
