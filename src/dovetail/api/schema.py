"""Validates objects against their CustomResourceDefinition and fills in defaults.

Validation is structural, as the API server does it after defaulting: null means absent; fields that the schema does not
know are reported here and pruned there. CEL rules are not evaluated. The depth of the schema bounds the walk, and at
most MAX_VIOLATIONS are reported.
"""

import re
from collections.abc import Hashable, Iterator, Mapping
from copy import deepcopy
from functools import cache, lru_cache
from itertools import islice
from typing import Any, NamedTuple

from dovetail.api.crds import load_crds
from dovetail.api.yaml_events import join, shorten
from dovetail.values.duration import shown
from dovetail.values.timestamp import TimeError, parse_time

Schema = Mapping[str, Any]

MAX_VIOLATIONS = 100
# Python's re backtracks where Go's does not: `(.+)\s(.+)\s…` over many blanks would take for ever if a line break at
# the end spoils the match. No text that means anything in these fields is longer.
_MAX_MATCHED = 1024
_MAX_MATCHED_LINES = 40
_INT64 = range(-(2**63), 2**63)
_INT_OR_STRING = "x-kubernetes-int-or-string"
_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


class SchemaViolation(NamedTuple):
    """A mistake in a field.

    `unknown`: the schema has no such field, and the API server drops it. `missing`: the field is required.
    """

    field: str
    message: str
    unknown: bool = False
    missing: bool = False


@cache
def crd_schema(kind: str) -> Schema | None:
    """The schema of one of our kinds, or None. Callers must not change it."""
    for crd in load_crds():
        if crd["spec"]["names"]["kind"] == kind:
            schema: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            return schema
    return None


def violations(value: object, schema: Schema, path: str = "") -> list[SchemaViolation]:
    """Everything that the schema refuses or does not know, in the order of the value."""
    return list(islice(_check(value, schema, path), MAX_VIOLATIONS))


def defaulted(value: Any, schema: Schema) -> Any:
    """A copy as the API server stores it: without nulls, and with defaults."""
    if isinstance(value, dict):
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if properties is None and not isinstance(others, Mapping):
            return value  # metadata, or not described
        filled = {key: item for key, item in value.items() if item is not None or _nullable(_inner(schema, key))}
        for key, inner in (properties or {}).items():
            if "default" in inner and key not in filled:
                filled[key] = deepcopy(inner["default"])
        return {key: defaulted(item, _inner(schema, key) or {}) for key, item in filled.items()}
    if isinstance(value, list) and "items" in schema:
        return [defaulted(item, schema["items"]) for item in value]
    return value


def describe(value: object) -> str:
    """A short description of any value, for a message."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value in _INT64 else "a huge number"
    if value is None or isinstance(value, float):
        return "null" if value is None else str(value)
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else type(value).__name__


def _check(value: object, schema: Schema, path: str) -> Iterator[SchemaViolation]:
    wanted = "integer or string" if schema.get(_INT_OR_STRING) else schema.get("type")
    if value is None and _nullable(schema):
        return
    if not _has_type(value, wanted):
        words = "a whole number or a string" if schema.get(_INT_OR_STRING) else _TYPES.get(str(wanted), str(wanted))
        yield SchemaViolation(path, f"must be {words}, not {_kind_of(value)}")
    elif isinstance(value, dict):
        yield from _check_object(value, schema, path)
    elif isinstance(value, list):
        yield from _check_list(value, schema, path)
    else:
        yield from (SchemaViolation(path, message) for message in _scalar_faults(value, schema))


def _check_object(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[SchemaViolation]:
    if len(value) > schema.get("maxProperties", len(value)):
        yield SchemaViolation(path, f"has {len(value)} entries, at most {schema['maxProperties']} are allowed")
    if len(value) < schema.get("minProperties", 0):
        yield SchemaViolation(path, f"has {len(value)} entries, at least {schema['minProperties']} are needed")
    for name in schema.get("required", ()):
        if value.get(name) is None:
            yield SchemaViolation(join(path, name), "is required", missing=True)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        schema = {"additionalProperties": True} | dict(schema)
    elif "properties" not in schema and "additionalProperties" not in schema:
        return  # metadata, which the API server checks itself
    for name, item in value.items():
        inner = _inner(schema, name)
        if inner is None:
            yield SchemaViolation(shorten(join(path, name), 300), "is not a field of this kind", unknown=True)
        elif item is not None:
            yield from _check(item, inner, shorten(join(path, name), 300))


def _check_list(value: list[Any], schema: Schema, path: str) -> Iterator[SchemaViolation]:
    if len(value) > schema.get("maxItems", len(value)):
        yield SchemaViolation(path, f"has {len(value)} items, at most {schema['maxItems']} are allowed")
    if len(value) < schema.get("minItems", 0):
        yield SchemaViolation(path, f"has {len(value)} items, at least {schema['minItems']} are needed")
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys", ())
    seen: set[Hashable] = set()
    for index, item in enumerate(value):
        yield from _check(item, schema.get("items", {}), join(path, index))
        identity = _identity(item, keys) if kind in ("set", "map") else None
        if identity is not None and identity in seen:
            what = " and ".join(keys) if kind == "map" else "value"
            yield SchemaViolation(join(path, index), f"has the same {what} as an earlier item")
        seen.add(identity)


def _identity(item: object, keys: tuple[str, ...]) -> Hashable | None:
    """The key of an item in a set or map list; None if its type is wrong."""
    parts = tuple(item.get(key) for key in keys) if isinstance(item, dict) else (item,)
    scalar = all(isinstance(part, str | int | float | bool | None) for part in parts)
    return tuple((type(part), part) for part in parts) if scalar else None


def _scalar_faults(value: Any, schema: Schema) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{describe(value)} is not one of {', '.join(map(str, schema['enum']))}"
        return
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            yield f"has {len(value)} characters, at least {schema['minLength']} are needed"
        elif len(value) > schema.get("maxLength", len(value)):
            yield f"has {len(value)} characters, at most {schema['maxLength']} are allowed"
        elif "pattern" in schema and not matches(schema["pattern"], value):
            yield f"{shown(value)} does not match {schema['pattern']}"
        elif schema.get("format") == "date-time" and not _is_time(value):
            yield f"{shown(value)} is not a time such as 2026-03-07T01:30:00Z"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"{describe(value)} is less than {schema['minimum']}"
        elif value > schema.get("maximum", value) or (isinstance(value, int) and value not in _INT64):
            yield f"{describe(value)} is more than {schema.get('maximum', 'a 64-bit number can hold')}"


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern occurs in the text, as Go finds it."""
    if len(text) > (_MAX_MATCHED_LINES if "\n" in text else _MAX_MATCHED):
        return False
    return _compiled(pattern).search(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Go's `$` is the end of the text, where Python's would also match before a last line break.
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern), re.ASCII)


def _inner(schema: Schema, name: str) -> Schema | None:
    """The schema of a field; None if there is no such field."""
    field = schema.get("properties", {}).get(name)
    if field is None:
        others = schema.get("additionalProperties")
        field = others if isinstance(others, Mapping) else {} if others else None
    inner: Schema | None = field
    return inner


def _nullable(schema: Schema | None) -> bool:
    return schema is not None and schema.get("nullable") is True


def _has_type(value: object, wanted: object) -> bool:
    match wanted:
        case None:
            return True
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    if isinstance(value, str):
        return wanted == "integer or string"
    return wanted == "number" or isinstance(value, int) or value.is_integer()


def _kind_of(value: object) -> str:
    if isinstance(value, dict | list):
        return describe(value)
    return f"the string {describe(value)}" if isinstance(value, str) else describe(value)


def _is_time(text: str) -> bool:
    try:
        parse_time(text)
    except TimeError:
        return False
    return True
