"""Which values can no cluster hold, in whichever field they stand?

A real API server would have refused them, and those who play a cluster take it for granted that they are not there:
integers of more than 64 bits, and times that cannot be read or lie beyond every calendar. A null is a field that is
not there, as Go reads it.
"""

import re
from typing import Any, Final

import msgspec

from dovetail.api.decode_errors import OUT_OF_RANGE
from dovetail.api.yaml_events import join
from dovetail.values.duration import shown
from dovetail.values.timestamp import TimeError, parse_time

_LARGEST: Final = 2**63 - 1
_LAST_YEAR: Final = 2999  # with room for every duration behind it, before the calendar ends
_TIMES: Final = (
    *("creationTimestamp", "deletionTimestamp", "lastTransitionTime", "lastPodEventTime", "startTime"),
    *("completionTime", "finishedAt", "timeAdded", "nextChange"),
)
# What no usual object has, so that only the others are walked through.
_LONG: Final = re.compile(rb"[:,\[]-?[0-9]{19}")
_USUAL: Final = rb'"2[0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z"'
_UNUSUAL: Final = re.compile(rb'"(?:' + "|".join(_TIMES).encode() + rb')":(?!' + _USUAL + rb")")
_STRINGS: Final = frozenset(("labels", "annotations"))


class InvalidValue(Exception):
    """A value that no cluster holds."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field = field
        self.message = message


def sound(body: dict[str, Any], *, patch: bool = False) -> dict[str, Any]:
    """The object without nulls; itself, if it has none. In a `patch` nulls take fields away. Raises Unsound."""
    try:
        text = msgspec.json.encode(body)
        if b"null" not in text and not _LONG.search(text) and not _UNUSUAL.search(text):
            return body
    except (OverflowError, TypeError, ValueError, RecursionError):  # which says nothing of where
        pass
    copied: dict[str, Any] = _sound(body, "", "", nulls=patch)
    return copied


def _sound(value: Any, name: str, path: str, *, nulls: bool) -> Any:
    if isinstance(value, dict):
        if name in _STRINGS:  # of people: whatever they write, and null is an empty string
            return value
        return {
            key: _sound(child, key, join(path, key), nulls=nulls)
            for key, child in value.items()
            if nulls or child is not None
        }
    if isinstance(value, list):  # which a patch replaces as a whole
        return [_sound(child, "", join(path, index), nulls=False) for index, child in enumerate(value)]
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        raise InvalidValue(path, OUT_OF_RANGE)
    if name in _TIMES and isinstance(value, str):
        _check_time(value, path)
    return value


def _check_time(text: str, path: str) -> None:
    try:
        far = parse_time(text).year > _LAST_YEAR
    except TimeError as error:
        raise InvalidValue(path, str(error)) from None
    if far:
        raise InvalidValue(path, f"{shown(text)} is too far away to be played: the last year is {_LAST_YEAR}")
