"""Shows text of objects, API servers, plugins and kubeconfigs safely.

`plain` escapes control and invisible characters and removes what looks like a credential. JSON and YAML output keeps
the text and only needs escapes: see `json_escaped`.
"""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

REDACTED: Final = "REDACTED"
SHORTEST_SECRET: Final = 6  # a shorter one would occur in any text

# Invisible in Unicode (Default_Ignorable_Code_Point), but printable in Python.
_IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_NOT_ASCII: Final = re.compile(r"[^\x20-\x7e]")
_NOT_ASCII_LINES: Final = re.compile(r"[^\n\x20-\x7e]")

_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL
)
# Before a host. A password may contain a slash by mistake.
_USER_INFO: Final = re.compile(r"(?<=://)(?:[^\s/@:'\"]*:[^\s@'\"]*|[^\s/@'\"]+)@")
_SCHEME: Final = re.compile(r"\b((?:bearer|basic|negotiate)(?:\s+|%20))([\w.~+/=-]+)", re.IGNORECASE | re.ASCII)
_JSON_WEB_TOKEN: Final = re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]*)*", re.ASCII)
_NAMES: Final = re.compile("passw|pwd|secret|token|signature|credential|key")
_NAMED: Final = re.compile(
    r"((?:passw(?:or)?d|pwd|secret|token|signature|credential|(?:api|access|private)[-_]?key|client-key-data)"
    r"[\"']?\s*)([=:]\s*)(\"[^\"]+\"|'[^']+'|[^\s\"',;&<>]+)",
    re.IGNORECASE,
)
_LONG: Final = re.compile(r"[A-Za-z0-9+/_=-]{40,}")
_LONG_AT_LEAST: Final = 40


def plain(text: str, secrets: Iterable[str] = ()) -> str:
    """The text on one line, without control characters and credentials; `secrets` are those that were sent."""
    return printable(redacted(text, secrets))


def printable(text: str) -> str:
    """The text with control and invisible characters as Python's escapes: `\\x1b`, `\\u202e`."""
    if text.isprintable() and (text.isascii() or not _IGNORABLE.search(text)):
        return text
    return _NOT_ASCII.sub(
        lambda match: match[0] if _is_visible(match[0]) else match[0].encode("unicode_escape").decode(), text
    )


def json_escaped(text: str) -> str:
    """Equivalent JSON with control and invisible characters as JSON's escapes."""
    return _NOT_ASCII_LINES.sub(lambda match: match[0] if _is_visible(match[0]) else _json_escape(match[0]), text)


def is_printable(text: str) -> bool:
    return all(_is_visible(match[0]) for match in _NOT_ASCII_LINES.finditer(text))


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the given secrets and without what looks like a credential."""
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, REDACTED)
    # A quick check first: nearly always there is nothing to search for.
    if "PRIVATE KEY" in text:
        text = _PRIVATE_KEY.sub(REDACTED, text)
    if "://" in text and "@" in text:
        text = _USER_INFO.sub(f"{REDACTED}@", text)
    if "eyJ" in text:
        text = _JSON_WEB_TOKEN.sub(REDACTED, text)
    small = text.lower()
    if "bearer" in small or "basic" in small or "negotiate" in small:
        text = _SCHEME.sub(lambda match: match[1] + (REDACTED if _is_no_word(match[2]) else match[2]), text)
    if ("=" in small or ":" in small) and _NAMES.search(small):
        text = _NAMED.sub(_without_value, text)
    if len(text) >= _LONG_AT_LEAST and max(map(len, text.split()), default=0) >= _LONG_AT_LEAST:
        text = _LONG.sub(lambda match: REDACTED if _is_random(match[0]) else match[0], text)
    return text


def _is_visible(character: str) -> bool:
    return character.isprintable() and not _IGNORABLE.match(character)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _without_value(match: re.Match[str]) -> str:
    name, sign, value = match.groups()
    if value[0] not in "\"'" and not (
        _is_no_word(value) if sign[0] == ":" else value.partition(":")[0] not in ("true", "false")
    ):
        return match[0]
    return f"{name}{sign}{REDACTED}"


def _is_no_word(text: str) -> bool:
    """`authentication` and `Token,` are words; `abcDef` and `a1b2` are none."""
    text = text.rstrip(".,;:=)")
    return len(text) >= SHORTEST_SECRET and not re.fullmatch(r"[A-Za-z]?[a-z]*", text)


def _is_random(text: str) -> bool:
    """Whether capitals and other characters alternate as in encoded random bytes."""
    capitals = [character.isupper() for character in text]
    changes = sum(one != other for one, other in pairwise(capitals))
    return changes * 4 >= len(text) and any(character.isdigit() for character in text)
