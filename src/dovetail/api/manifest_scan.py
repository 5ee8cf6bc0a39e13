"""Finds the kinds of the documents in a YAML text without parsing it.

Most files of a repository are no manifests, and most manifests are of kinds that a reader does not need: a parser
would spend nearly all its time on them. The scan knows only keys at the beginning of a line. Where that is not enough,
such as for flow mappings, the answer is `unsure`.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

_SEPARATOR = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
# Without a second group where the value is something else than a word, such as a tag or an anchor before it.
_HEAD = re.compile(
    rb"^(apiVersion|kind)[ \t]*:(?:[ \t]+[\"']?([A-Za-z0-9./-]+)[\"']?[ \t]*(?:#.*)?\r?$)?", re.MULTILINE
)
# A line of a block mapping or block list, after blank lines, comments and directives.
_PLAIN_START = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\r?\n|%[^\n]*\n)*+(?:[A-Za-z0-9_.$/-]|\Z)")


class ScannedDocument(NamedTuple):
    """A document of a text: its place, and its version and kind, which are empty if it has none."""

    start: int
    end: int
    api_version: str
    kind: str
    unsure: bool


def scan(data: bytes) -> Iterator[ScannedDocument]:
    """The documents of a YAML text."""
    start = 0
    for separator in (*_SEPARATOR.finditer(data), None):
        end = len(data) if separator is None else separator.start()
        if separator is None or end > 0:
            yield _scanned(data, start, end)
        start = end if separator is None else separator.end()


def _scanned(data: bytes, start: int, end: int) -> ScannedDocument:
    head = {match[1]: (match[2] or b"").decode() for match in _HEAD.finditer(data, start, end)}
    version, kind = head.get(b"apiVersion", ""), head.get(b"kind", "")
    one_line = data.find(b"\n", start, end) < 0 <= data.find(b"\r", start, end)  # lines may end with \r alone
    first_line = start
    if start and data[start : start + 1] not in (b"\n", b"\r"):  # `--- # comment` or `--- {`
        newline = data.find(b"\n", start, end)
        first_line = end if newline < 0 else newline + 1
        if data[start:first_line].partition(b"#")[0].strip():
            return ScannedDocument(start, end, version, kind, unsure=True)
    plain = _PLAIN_START.match(data, first_line, end) is not None
    odd = one_line or not plain or bool(version) != bool(kind) or not all(head.values())
    return ScannedDocument(start, end, version, kind, unsure=odd)


def without(data: bytes, documents: list[ScannedDocument], keep: Callable[[ScannedDocument], bool]) -> bytes:
    """The text with empty lines in place of the other documents: numbers of documents and lines stay right."""
    parts, at = [], 0
    for document in documents:
        if not keep(document):
            # Without a separator before it, only a value makes a document.
            nothing = b"" if document.start else b"~"
            lines = b"\n" * data.count(b"\n", document.start, document.end)
            parts += [data[at : document.start], nothing, lines]
            at = document.end
    return b"".join([*parts, data[at:]])
