"""Turns validation errors of msgspec into messages with the exact field."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.api.yaml_events import join

OUT_OF_RANGE = "number is out of range"

_TYPES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "a mapping",
    "datetime": "a time",
}
_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_AT = re.compile(r"(.*) - at `\$([^`]*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `([^`]*)`")


def explain_refusal(error: msgspec.ValidationError) -> tuple[str, str]:
    """The field and the words of msgspec's message: `Expected ... - at `$.spec.containers[3].name``."""
    # From the right: the message itself may quote the text.
    match = _AT.fullmatch(str(error))
    message, field = (match[1], match[2].removeprefix(".")) if match else (str(error), "")
    if match := _EXPECTED.fullmatch(message):
        wanted = " or ".join(_TYPES.get(word, word) for word in match[1].split(" | ") if word != "null")
        message = f"expected {wanted}, got {_TYPES.get(match[2], match[2])}"
    elif match := _MISSING.fullmatch(message):
        field = join(field, match[1])
        message = "is required"
    elif message.endswith("out of range"):
        message = OUT_OF_RANGE
    return field, message


_A_KEY = "[...]"
_STEP = re.compile(r"\[([0-9]+)\]|\.?([^.\[]+)")


def with_keys(field: str, root: Any, type_: type[Any]) -> str:
    """The field with the keys of mappings, where msgspec writes `matchLabels[...]`. Changes `root`."""
    path, holder = "", root
    *before, last = field.split(_A_KEY)
    for part in before:
        for index, name in _STEP.findall(part):
            holder = holder[name or int(index)]
        key = _first_refused(holder, lambda: _refused_field(root, type_) == field)
        path, holder = join(path + part, key), holder[key]
    return path + last


def _first_refused(mapping: dict[str, Any], still_refused: Callable[[], bool]) -> str:
    """The first key with an invalid value, by bisection: there may be many keys."""
    items = list(mapping.items())
    low, high = 0, len(items) - 1
    while low < high:
        middle = (low + high) // 2
        _refill(mapping, items[: middle + 1])
        low, high = (low, middle) if still_refused() else (middle + 1, high)
    _refill(mapping, items[: low + 1])  # what follows may be refused too, at a path that looks the same
    return items[low][0]


def _refill(mapping: dict[str, Any], items: list[tuple[str, Any]]) -> None:
    mapping.clear()
    mapping.update(items)


def _refused_field(value: object, type_: type[Any]) -> str | None:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        return explain_refusal(error)[0]
    return None
