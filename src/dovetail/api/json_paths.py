"""Finds duplicate keys and out-of-range numbers in JSON text, for messages that name the field.

The text must be well-formed. Deeply nested text raises RecursionError.
"""

import json
from collections.abc import Iterable, Iterator
from math import isfinite

from dovetail.api.yaml_events import join, shorten


class _Duplicate(Exception):
    pass


class _Pairs(list[tuple[str, object]]):
    """The keys and values of an object, as written."""


class _OversizedNumber:
    """A number that neither an int nor a float can hold."""


def _unique(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _Duplicate


def _integer(text: str) -> object:
    try:
        return int(text)
    except ValueError:  # too many digits
        return _OversizedNumber()


def _float(text: str) -> object:
    value = float(text)
    return value if isfinite(value) else _OversizedNumber()


_CHECK = json.JSONDecoder(object_pairs_hook=_unique, parse_int=len, parse_float=len)  # the numbers do not matter
_AS_WRITTEN = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=_integer, parse_float=_float)


def duplicate_key(text: str) -> tuple[str, str] | None:
    """The path of the first object with a repeated key, and the key."""
    try:
        _CHECK.decode(text)
    except _Duplicate:
        for path, value in _nodes(text):
            seen: set[str] = set()
            for key, _ in value if isinstance(value, _Pairs) else ():
                if key in seen:
                    return path, key
                seen.add(key)
    return None


def absurd_number(text: str) -> str | None:
    """The path of the first number that is out of range."""
    return next((path for path, value in _nodes(text) if isinstance(value, _OversizedNumber)), None)


def _nodes(text: str) -> Iterator[tuple[str, object]]:
    """All objects, lists and absurd numbers with their paths, in their order."""
    pending: list[tuple[str, object]] = [("", _AS_WRITTEN.decode(text))]
    while pending:
        path, value = pending.pop()
        yield path, value
        children: Iterable[tuple[str | int, object]] = (
            value if isinstance(value, _Pairs) else enumerate(value) if isinstance(value, list) else ()
        )
        inner = [(key, child) for key, child in children if isinstance(child, list | _OversizedNumber)]
        pending += [(shorten(join(path, key), 300), child) for key, child in reversed(inner)]
