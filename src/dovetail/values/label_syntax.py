"""Syntax of label keys and values."""

import re
from typing import Final

NAME_LENGTH_AT_MOST: Final = 63
SUBDOMAIN_LENGTH_AT_MOST: Final = 253

_PART = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_PART}(?:\.{_PART})*")
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_subdomain(text: str) -> bool:
    """A DNS subdomain: the name of an object, or the domain of a key."""
    return len(text) <= SUBDOMAIN_LENGTH_AT_MOST and _SUBDOMAIN.fullmatch(text) is not None


def is_label_name(text: str) -> bool:
    """The part of a key after the `/`."""
    return len(text) <= NAME_LENGTH_AT_MOST and _NAME.fullmatch(text) is not None


def is_qualified(key: str) -> bool:
    """A name, or a domain, `/` and a name: `team`, `example.com/team`."""
    domain, slash, name = key.rpartition("/")
    return is_label_name(name) and (not slash or is_subdomain(domain))


def is_label_value(text: str) -> bool:
    return not text or is_label_name(text)
