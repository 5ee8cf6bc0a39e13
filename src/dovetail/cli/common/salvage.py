"""Reads the undamaged parts of a dump.

Dumps are truncated when a disk fills or a connection breaks, and contain messages of kubectl if stderr was redirected
too. Whole objects are read; everything that is missing becomes a problem.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from dovetail.api.documents import Document, InputError, read_documents, whole_json
from dovetail.cli.common.files import TruncatedInput, files_of, label_of, read_file
from dovetail.cli.common.output import count
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref

TRIES: Final = 3  # items to drop from the end of a YAML list until the rest can be read
SHOWN: Final = 5  # of kubectl's messages

_MESSAGE: Final = re.compile(
    rb"^(?:error: |Error from server|Unable to connect to the server: |The connection to the server |Warning: "
    rb"|No resources found|[EWIF]\d{4} \d\d:\d\d:\d\d\.).*$",
    re.MULTILINE,
)
_INITIALS: Final = b"eEUTWNIF"  # no line of an object starts so, and this search takes a tenth of the time
_SUSPECT: Final = re.compile(rb"\n(?=[" + _INITIALS + rb"])")
_ITEMS: Final = re.compile(r'"items"\s*:\s*\[')
_BETWEEN: Final = re.compile(r"[\s,]*")
_DOCUMENT: Final = re.compile(rb"^---", re.MULTILINE)
_HAS_KIND: Final = re.compile(rb"^kind:", re.MULTILINE)


def salvaged_documents(paths: Sequence[str], problems: list[Finding]) -> Iterator[Document]:
    """The whole documents of all files. Raises InputError if nothing of a file can be read."""
    for path in paths:
        for file in files_of(path):
            yield from _salvaged(file, problems)


def _salvaged(file: str, problems: list[Finding]) -> Iterator[Document]:
    name, cut = label_of(file), None
    try:
        data = read_file(file)
    except TruncatedInput as error:
        data, cut = error.data, error
    whole = whole_json(data)  # no line of one JSON value is a message
    data, messages = _without_messages(data) if whole is None else (data, [])
    if messages:
        problems.append(_kubectl_said(messages, name))
    number = 0
    try:
        for document in read_documents(data, name, whole):
            number += 1
            yield document
    except InputError as error:
        rest = () if number else _whole_items(data, name)
        if not rest and not (number and _is_at_the_end(error, data)):
            raise
        problems.append(_cut_off(error, number + len(rest), name))
        yield from rest
    else:
        if cut is not None:
            problems.append(_cut_off(cut, number, name))


# -- truncated dumps ---------------------------------------------------------------------------------------------------


def _whole_items(data: bytes, name: str) -> Sequence[Document]:
    """The whole items of a truncated List; none if the text is damaged in another way."""
    for text in _mended_json(data) if data.lstrip()[:1] in (b"{", b"[") else _mended_yaml(data):
        try:
            return list(read_documents(text, name))
        except InputError:
            continue
    return ()


def _is_at_the_end(error: InputError, data: bytes) -> bool:
    """Whether the last document is damaged, and not one in the middle, which would be a mistake."""
    if data.lstrip()[:1] in (b"{", b"["):
        return error.ends_early
    lines = data.split(b"\n")
    return not any(line.startswith(b"---") for line in lines[error.line or 0 :])


def _mended_json(data: bytes) -> Iterator[bytes]:
    text = data.decode(errors="replace")
    begin = _ITEMS.search(text)
    if begin is None:
        return
    decoder, end = json.JSONDecoder(), begin.end()
    while (at := _after_separators(text, end)) < len(text):
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
    else:
        at = len(text)
    if text[at : at + 1] == "]":
        return  # all items are whole: something else is wrong
    kind = "" if '"kind"' in text[: begin.start()] else ', "kind": "List"'
    yield f"{text[:end]}]{kind}}}".encode()


def _mended_yaml(data: bytes) -> Iterator[bytes]:
    """Without the last items, at least one of which is truncated. kubectl writes the kind after the items."""
    if _DOCUMENT.search(data, 4) or _HAS_KIND.search(data):
        return
    items = re.search(rb"^items:[ ]*\n( *)- ", data, re.MULTILINE)
    if items is None:
        return
    starts = [match.start() for match in re.finditer(rb"^" + items[1] + rb"- ", data, re.MULTILINE)]
    for start in reversed(starts[-TRIES:]):
        yield data[:start] + b"kind: List\n"


def _after_separators(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    return match.end() if match else at


def _cut_off(error: InputError, objects: int, name: str) -> Finding:
    at = f"line {error.line}: " if (error.line or 1) > 1 else ""  # line 1 says nothing about the end
    words = at + " ".join(filter(None, (error.field, error.message)))
    return Finding(
        severity=Severity.ERROR,
        rule="CutOff",
        object=Ref("List"),
        field="items",
        message=f"the text cannot be read to its end ({words}): {count(objects, 'object')} before that are used, and "
        "everything after that is missing",
        remedy="make a new dump",
        file=name,
    )


# -- messages of kubectl -----------------------------------------------------------------------------------------------


def _without_messages(data: bytes) -> tuple[bytes, list[str]]:
    """The messages, and the data with empty lines in their place, so that line numbers stay right."""
    if data[:1] not in _INITIALS and not _SUSPECT.search(data):
        return data, []
    messages = [match[0].decode(errors="replace").strip() for match in _MESSAGE.finditer(data)]
    return (_MESSAGE.sub(b"", data), messages) if messages else (data, [])


def _kubectl_said(messages: Sequence[str], name: str) -> Finding:
    shown = [message[:300] for message in dict.fromkeys(messages)]
    more = f"; and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return Finding(
        severity=Severity.WARNING,
        rule="MessageInDump",
        object=Ref("List"),
        field="items",
        message=f"the dump contains messages of kubectl, so objects may be missing: {'; '.join(shown[:SHOWN])}{more}",
        remedy="make a new dump, of kinds that the cluster has and this user may list",
        file=name,
    )
