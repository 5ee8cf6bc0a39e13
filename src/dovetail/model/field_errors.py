"""Mistakes in fields of objects, with remedies."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from dovetail.api.schema import describe

_BOUNDS: Final = ("Gt", "Lt", "Gte", "Lte")
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", *_BOUNDS)

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


class FieldError(msgspec.Struct, frozen=True):
    """A mistake in a field, and what to do about it."""

    field: str
    message: str
    remedy: str


def value_flaw(operator: object, values: Sequence[object], min_values: int | None) -> FieldError | None:
    """The mistake in the values of a requirement, if any (01 §4)."""
    count = len(values)
    if operator == "In" and not values:
        return FieldError("values", "operator In needs at least one value", "add a value")
    if operator == "In" and min_values is not None and count < min_values:
        message = f"operator In with minValues {describe(min_values)} needs at least as many values, not {count}"
        return FieldError("minValues", message, f"add values, or lower minValues to {count}")
    if operator in _BOUNDS and not (count == 1 and _is_whole(values[0])):
        message = f"operator {operator} needs exactly one value, a whole number of 0 or more"
        return FieldError("values", message, 'write one number in quotes, such as ["4"]')
    return None


def _is_whole(text: object) -> bool:
    return isinstance(text, str) and bool(_WHOLE.fullmatch(text)) and 0 <= int(text) < 2**63
