"""What the records of all kinds share: their base, and how fields are read.

A bad value is replaced here if it has one safe meaning (an unreadable duration is none); otherwise it stays text for
the rule.
"""

from datetime import UTC, datetime
from sys import intern

import msgspec

from dovetail.api import objects
from dovetail.values import limits
from dovetail.values.duration import DurationError, parse_nillable, parse_simple


class Record(msgspec.Struct, frozen=True, gc=False):
    """Base of all records. They have no cycles, so the garbage collector can ignore them."""


def finalizers(meta: objects.ObjectMeta) -> tuple[str, ...]:
    """What holds the deletion up."""
    return () if meta.deletion_timestamp is None else tuple(map(intern, meta.finalizers))


def cut(text: str | None) -> str | None:
    """A long text stays unreadable without using memory."""
    return None if text is None else text[: limits.VALUE + 1]


def utc(at: datetime | None) -> datetime | None:
    if at is None or at.tzinfo is UTC:
        return at
    try:
        return at.astimezone(UTC)
    except OverflowError:  # the first or last hours of the calendar, in another zone
        return at.replace(tzinfo=UTC)


def nillable_ns(text: str) -> int | None:
    """An unreadable duration disables, so that no mistake expires or consolidates a node; `lint` reports it."""
    try:
        return parse_nillable(text)
    except DurationError:
        return None


def simple_ns(text: str | None) -> int | None:
    """An unreadable grace period counts as none, so that no mistake forces a drain; `lint` reports it."""
    try:
        return None if text is None else parse_simple(text)
    except DurationError:
        return None
