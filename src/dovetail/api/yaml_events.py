"""Reads plain values from YAML text, with their lines.

The values are built from libyaml's events without recursion. No loader offers all that is needed: duplicate keys are
refused with their line, depth and alias expansion are bounded, and scalars are read as Kubernetes (sigs.k8s.io/yaml,
that is go-yaml 2) reads them: `yes`, `on` and `y` are booleans, `0o17`, `017` and `1_000` are integers, `1e3` is a
float, while timestamps and `22:30` stay strings.

Merge keys (`<<: *base`) are supported: a mapping's own keys win, then earlier sources. Keys become strings, as in
Kubernetes: `9090:` is `"9090"`, `on:` is `"true"`. Null, lists and mappings are no keys.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import yaml

MAX_DEPTH = 200
# In a whole text. Aliased values are shared, but each walk visits them again, so they count.
MAX_ALIASED_NODES = 1_000_000
MAX_NUMBER_LENGTH = 300
# How deep the lines of mappings in lists are remembered: root, items, item, items, item ...
LINES_DEPTH = 8

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NUMBER_STARTS = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|(0[0-7]+)|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DOTTED = re.compile(r"[A-Za-z_$][A-Za-z0-9_-]*")
_TAG = "tag:yaml.org,2002:"


class YamlError(Exception):
    """Why the text cannot be read. `number` is the document's, from 1."""

    def __init__(self, message: str, *, line: int | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.field = field
        self.number: int | None = None


class YamlDocument(NamedTuple):
    """One document; `lines` has the lines of its shallow mappings by their `id`, valid while `value` lives."""

    number: int
    line: int
    value: object
    lines: dict[int, int]


def parse(data: bytes) -> Iterator[YamlDocument]:
    """Yield the documents of valid UTF-8 text, or raise YamlError."""
    number = 0
    try:
        loader = yaml.CBaseLoader(data)
        keys: dict[str, str] = {}
        aliased = 0
        try:
            while (event := loader.get_event()) is not None:
                if type(event) is yaml.DocumentStartEvent:
                    number += 1
                    line = event.start_mark.line + 1 if event.start_mark else 1
                    value, lines, aliased = _build(loader.get_event, keys, aliased)
                    yield YamlDocument(number, line, value, lines)
        finally:
            loader.dispose()
    except YamlError as error:
        error.number = number
        raise
    except yaml.YAMLError as error:
        refusal = _refusal(error, data)
        refusal.number = number or None
        raise refusal from None


def join(path: str, key: str | int) -> str:
    """A field's path with one more step: `spec`, `containers`, 3 give `spec.containers[3]`."""
    if isinstance(key, int) or not _DOTTED.fullmatch(key):
        return f"{path}[{shorten(key) if isinstance(key, str) else key}]"
    return f"{path}.{shorten(key)}" if path else shorten(key)


def shorten(text: str, length: int = 100) -> str:
    """The text, or its beginning: a value in a file may be megabytes long."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _refusal(error: yaml.YAMLError, data: bytes) -> YamlError:
    if isinstance(error, yaml.reader.ReaderError):
        reason = f"{error.reason} (byte {error.position})"
        return YamlError(f"not valid YAML: {reason}", line=data.count(b"\n", 0, error.position) + 1)
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        words = ", ".join(part for part in (error.problem, error.context) if part)
        return YamlError(f"not valid YAML: {words}", line=mark.line + 1 if mark else None)
    return YamlError(f"not valid YAML: {error}")


def _number(text: str) -> object:
    """The value of an untagged plain scalar that begins like a number, which may still be a string."""
    plain = text.replace("_", "") if text[0] != "." else text
    value: object = text
    if len(plain) > MAX_NUMBER_LENGTH:
        return text  # no number anybody could hold: one absurd annotation must not spoil the whole dump
    if match := _INTEGER.fullmatch(plain):
        value = int(plain, 8) if match[1] else int(plain, 0)
    elif _FLOAT.fullmatch(plain):
        value = float(plain)
        if value in (float("inf"), float("-inf")):
            raise YamlError(f"number {shorten(text)} is out of range (quote it if it is a string)")
    elif _NOT_FINITE.fullmatch(text):
        raise YamlError(f"{text} is not a number that Kubernetes can hold")
    return value


def _tagged(tag: str, text: str) -> object:
    """The value of a scalar with an explicit tag."""
    name = tag.removeprefix(_TAG) if tag.startswith(_TAG) else None
    if name == "str":
        return text
    if name not in ("int", "float", "bool", "null"):
        raise _bad_tag(tag)
    value = _CONSTANTS[text] if text in _CONSTANTS else _number(text)
    if name == "float" and type(value) is int:
        return float(value)  # at most MAX_NUMBER_LENGTH digits: always in a float's range
    if type(value).__name__ != name and not (name == "null" and value is None):
        raise YamlError(f"{shorten(text)!r} is not a value of the tag !!{name}")
    return value


def _bad_tag(tag: str) -> YamlError:
    return YamlError(f"tag {shorten(tag.replace(_TAG, '!!'))} is not supported")


def _key_text(value: object) -> str:
    """A key that is no string, as the API machinery turns it into one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 2**63 else repr(value)
    raise YamlError(f"a key must be a string, not {'null' if value is None else 'a list or mapping'}")


def _merge(target: dict[str, object]) -> None:
    """Copy the keys of the merge sources that the mapping does not have."""
    merged = target.pop("<<")
    for source in merged if type(merged) is list else (merged,):
        if type(source) is not dict:
            raise YamlError("the merge key << needs a mapping or a list of mappings")
        for key, value in source.items():
            target.setdefault(key, value)


def _build(  # noqa: PLR0912, PLR0915
    get_event: Callable[[], Any], keys: dict[str, str], aliased: int
) -> tuple[object, dict[int, int], int]:
    """Build one document from the events up to its end: one flat loop, since this is where reading spends its time."""
    lines: dict[int, int] = {}
    anchors: dict[str, tuple[object, int] | None] = {}  # None while the anchored value is still open
    stack: list[tuple[Any, str | None, bool, str | None, int]] = []
    root: list[object] = []
    container: Any = root  # a list, or a dict, whose next value belongs to `key`, or is the key if that is None
    key: str | None = None
    is_map = merging = False
    scalar = yaml.ScalarEvent
    nodes = 0
    event: Any = None
    try:
        while True:
            event = get_event()
            kind = type(event)
            value: Any
            if kind is scalar:
                nodes += 1
                value = event.value
                if event.tag is not None:
                    value = _tagged(event.tag, value)
                elif event.implicit[0]:  # neither quoted nor a block
                    if value in _CONSTANTS:
                        value = _CONSTANTS[value]
                    elif value[0] in _NUMBER_STARTS:
                        value = _number(value)
                if event.anchor is not None:
                    anchors[event.anchor] = (value, 1)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                nodes += 1
                opens_map = kind is yaml.MappingStartEvent
                if event.tag is not None and event.tag != _TAG + ("map" if opens_map else "seq"):
                    raise _bad_tag(event.tag)
                if len(stack) >= MAX_DEPTH:
                    raise YamlError(f"nested deeper than {MAX_DEPTH} levels")
                value = {} if opens_map else []
                if not is_map:
                    container.append(value)
                    if opens_map and len(stack) < LINES_DEPTH:
                        lines[id(value)] = event.start_mark.line + 1
                elif key is None:
                    raise YamlError("a key must be a string, not a list or mapping")
                else:
                    container[key] = value
                if event.anchor is not None:
                    anchors[event.anchor] = None
                stack.append((container, key, merging, event.anchor, nodes))
                container, key, is_map, merging = value, None, opens_map, False
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                if merging:
                    _merge(container)
                value = container
                container, key, merging, anchor, before = stack.pop()
                is_map = type(container) is dict
                key = None
                if anchor is not None:
                    anchors[anchor] = (value, nodes - before + 1)
                continue
            elif kind is yaml.AliasEvent:
                if event.anchor not in anchors:
                    raise YamlError(f"alias *{shorten(event.anchor)} has no anchor before it")
                anchored = anchors[event.anchor]
                if anchored is None:
                    raise YamlError(f"alias *{shorten(event.anchor)} stands inside its own anchor")
                value, size = anchored
                nodes += size
                aliased += size
                if aliased > MAX_ALIASED_NODES:
                    raise YamlError(f"aliases expand to more than {MAX_ALIASED_NODES} values")
            else:  # the end of the document
                return root[0], lines, aliased
            if not is_map:
                container.append(value)
            elif key is not None:
                container[key] = value
                key = None
            else:
                if type(value) is not str:
                    value = _key_text(value)
                key = keys.setdefault(value, value)  # one string for the same key of 10,000 objects
                if key in container:
                    raise YamlError(f"duplicate key {shorten(value)!r}")
                if value == "<<" and kind is scalar and event.implicit[0]:
                    merging = True
    except YamlError as error:
        steps = [(frame[0], frame[1], 1) for frame in stack[1:]]  # stack[0] is the root list
        if stack:
            steps.append((container, key, 0))
        field = ""
        for holder, step, filled in steps:
            if type(holder) is list:
                field = join(field, len(holder) - filled)
            elif step is not None:
                field = join(field, step)
        error.field = shorten(field, 300) or None
        error.line = event.start_mark.line + 1
        raise
