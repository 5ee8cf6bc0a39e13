"""Which Kubernetes objects does this text hold, and where does each stand?

Nothing in the text is trusted: `read_documents` and `decode` give objects or raise InputError, whatever the bytes.

JSON or YAML is decided by content alone. Text is JSON if it begins with `{"`, `{}` or `[` (blanks aside) and has no
line that begins with `---`; everything else is YAML. So `{kind: Pod}` is YAML, `{"kind": Pod}` is broken JSON.
JSON documents may follow one another in one text, YAML documents as well. Lists are flattened to their items.

Duplicate keys are refused, except in JSON of more than 16 MB, where the check would cost more than the reading.
"""

import codecs
import json
import re
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from dovetail.api.yaml_events import YamlError, join, parse, shorten

T = TypeVar("T")

DUPLICATES_CHECKED_UP_TO = 16 * 1024 * 1024
MAX_LIST_DEPTH = 3

_BLANK = re.compile(rb"[ \t\r\n]*")
_JSON_START = re.compile(rb'[ \t\r\n]*(?:\[|\{[ \t\r\n]*["}])')
_BYTE = re.compile(r" \(byte (\d+)\)$")
_UTF8_BOM = b"\xef\xbb\xbf"
_TOO_DEEP = "nested too deeply"


class InputError(Exception):
    """What is wrong with the text, and where; as a string, one printable line of bounded length."""

    def __init__(
        self,
        file: str,
        message: str,
        *,
        document: int | None = None,
        line: int | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(file, message)
        self.file = file
        self.document = document
        self.line = line
        self.field = field
        self.message = message

    def __str__(self) -> str:
        place = [f"document {self.document}"] if self.document is not None else []
        if self.line is not None:
            place.append(f"line {self.line}")
        parts = (_printable(self.file, 200), ", ".join(place), _printable(self.field or "", 300))
        return ": ".join([part for part in parts if part] + [_printable(self.message, 400)])


class Document(msgspec.Struct, eq=False, gc=False):
    """One object and where it stands; either `raw` (from JSON) or `value` (from YAML) is set."""

    file: str
    number: int
    """1-based, in the file."""
    item: int | None
    """Index in the items of the innermost List around the object."""
    line: int | None
    """Where the object begins; YAML only."""
    api_version: str
    kind: str
    raw: msgspec.Raw | None = None
    value: dict[str, Any] | None = None
    parent: str = ""
    """The path of that List in the document: empty, or `items[2]` for a List in a List."""
    coerced: tuple[tuple[str, object], ...] = ()
    """Labels and annotations that `decode` had to turn into strings: their paths and original values."""

    @property
    def path(self) -> str:
        """The object's path in its document: empty, or `items[17]`."""
        return "" if self.item is None else join(join(self.parent, "items"), self.item)

    @property
    def where(self) -> str:
        """For messages: `file: document 3`, `file: items[17]`, `file: document 3: items[17]`."""
        parts = [self.file]
        if self.item is None or self.number > 1:
            parts.append(f"document {self.number}")
        if self.item is not None:
            parts.append(self.path)
        return ": ".join(parts)


class _Head(msgspec.Struct, gc=False):
    kind: str | None = None
    apiVersion: str | None = None


class _JsonHead(_Head):
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET


class _YamlHead(_Head):
    items: list[Any] | msgspec.UnsetType | None = msgspec.UNSET


class _Place(msgspec.Struct):
    """Where reading is: a document, or the list in it whose items are read."""

    file: str
    number: int
    lines: dict[int, int] = {}
    line: int | None = None
    path: str = ""
    list_kind: str = "List"
    list_version: str | None = None
    depth: int = 0

    def error(self, message: str, item: int | None = None, field: str = "", line: int | None = None) -> InputError:
        path = self.path if item is None else join(join(self.path, "items"), item)
        if path and field:
            path += field if field.startswith("[") else f".{field}"
        return InputError(self.file, message, document=self.number, line=line or self.line, field=path or field or None)


_RAW = msgspec.json.Decoder(msgspec.Raw)
_HEAD = msgspec.json.Decoder(_Head)
_JSON_HEAD = msgspec.json.Decoder(_JsonHead)


def read_documents(data: bytes, file: str) -> Iterator[Document]:
    """Yield the objects of the text in their order; InputError comes when reading reaches what is wrong."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or 0 in data[:2]:
        raise InputError(file, "text is UTF-16 or UTF-32; UTF-8 is needed")
    if (at := data.find(b"\0")) >= 0:
        raise InputError(file, f"NUL byte (byte {at})", line=_line(data, at))
    _check_utf8(data, file)
    start = len(_UTF8_BOM) if data.startswith(_UTF8_BOM) else 0
    if _JSON_START.match(data, start) and b"\n---" not in data:
        yield from _read_json(data, start, file)
    else:
        yield from _read_yaml(data, file)


def decode(document: Document, type_: type[T]) -> T:
    """The object as `type_`, read as Go would: null is absent, labels and annotations are strings.

    What is well-formed goes straight through msgspec. Only what it refuses is turned into builtins and mended:
    `document.coerced` then lists the labels and annotations that were no strings.
    """
    try:
        try:
            if document.raw is not None:
                decoded: T = _decoder(cast(Hashable, type_)).decode(document.raw)
                return decoded
            return msgspec.convert(document.value, type_)
        except msgspec.ValidationError:
            value = msgspec.json.decode(document.raw) if document.raw is not None else document.value
            coerced: list[tuple[str, object]] = []
            mended = _mend(value, coerced)
            document.coerced = tuple(coerced)
            return msgspec.convert(mended, type_)
    except (msgspec.MsgspecError, RecursionError) as error:
        field, message = ("", _TOO_DEEP) if isinstance(error, RecursionError) else _explain(error)
        place = _Place(document.file, document.number, line=document.line, path=document.path)
        raise place.error(message, field=field) from None


def _read_json(data: bytes, start: int, file: str) -> Iterator[Document]:
    view = memoryview(data)
    checked = len(data) <= DUPLICATES_CHECKED_UP_TO
    number = 0
    while (start := _blank_end(data, start)) < len(data):
        number += 1
        place = _Place(file, number)
        try:
            raw, end = _one_json(data, view, start, place)
            if checked:
                _refuse_duplicates(str(view[start:end], "utf-8"), place)
            start = end
            yield from _objects(raw, place, None)
        except RecursionError:  # both msgspec and json count their depth against Python's limit
            raise place.error(_TOO_DEEP) from None


def _one_json(data: bytes, view: memoryview, start: int, place: _Place) -> tuple[msgspec.Raw, int]:
    """The JSON value at `start` and where it ends."""
    end = len(data)
    for _ in range(2):
        try:
            return _RAW.decode(view[start:end]), end
        except msgspec.DecodeError as error:
            message = str(error)
            match = _BYTE.search(message)
            at = start + int(match[1]) if match else end
            if "trailing characters" in message and end == len(data):
                end = at - 1  # msgspec names the byte after the first character that does not belong to the value
                continue
            words = _BYTE.sub("", message) if match else "JSON is malformed: the text ends too early"
            raise place.error(f"{words} (byte {at})", line=_line(data, at)) from None
    raise AssertionError("unreachable: the second round has no trailing characters")


def _read_yaml(data: bytes, file: str) -> Iterator[Document]:
    try:
        for parsed in parse(data):
            if parsed.value is not None:
                yield from _objects(parsed.value, _Place(file, parsed.number, parsed.lines, parsed.line), None)
    except YamlError as error:
        raise InputError(file, error.message, document=error.number, line=error.line, field=error.field) from None


def _objects(thing: object, place: _Place, item: int | None) -> Iterator[Document]:
    """The objects of one JSON text (msgspec.Raw) or YAML value: itself, or a List's items."""
    raw = thing if isinstance(thing, msgspec.Raw) else None
    line = place.lines.get(id(thing), place.line)
    try:
        head, items = _head(thing)
    except msgspec.ValidationError as error:
        field, message = _explain(error)
        raise place.error(message, item, field, line) from None
    kind = head.kind or place.list_kind.removesuffix("List")
    version = head.apiVersion or place.list_version
    if not kind:
        raise place.error("is required", item, "kind", line)
    if not version:
        raise place.error("is required", item, "apiVersion", line)
    if not kind.endswith("List") or (items is msgspec.UNSET and kind != "List"):  # not all that end in List are Lists
        value = thing if isinstance(thing, dict) else None
        yield Document(place.file, place.number, item, line, version, kind, raw, value, place.path)
        return
    if place.depth >= MAX_LIST_DEPTH:
        raise place.error(f"Lists in Lists deeper than {MAX_LIST_DEPTH} levels", item, line=line)
    path = place.path if item is None else join(join(place.path, "items"), item)
    own_version = None if kind == "List" else version  # v1 is the List's own, not its items'
    inner = _Place(place.file, place.number, place.lines, line, path, kind, own_version, place.depth + 1)
    for index, child in enumerate(items or ()):
        yield from _objects(child, inner, index)


def _head(thing: object) -> tuple[_Head, list[Any] | msgspec.UnsetType | None]:
    """What names the object, and its items, in one pass: for a file of 150 MB each pass counts."""
    try:
        head = _JSON_HEAD.decode(thing) if isinstance(thing, msgspec.Raw) else msgspec.convert(thing, _YamlHead)
    except msgspec.ValidationError:
        plain = _HEAD.decode(thing) if isinstance(thing, msgspec.Raw) else msgspec.convert(thing, _Head)
        if plain.kind is None or plain.kind.endswith("List"):
            raise
        return plain, msgspec.UNSET  # its `items` are something else
    return head, head.items


class _Duplicate(Exception):
    pass


def _unique(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _Duplicate


class _Pairs(list[tuple[str, object]]):
    """An object's keys and values as they stand, to look for a duplicate's path."""


# The numbers do not matter here, and Python's int would refuse to read very long ones.
_CHECK = json.JSONDecoder(object_pairs_hook=_unique, parse_int=len, parse_float=len)
_PAIRS = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=len, parse_float=len)


def _refuse_duplicates(text: str, place: _Place) -> None:
    """Refuse a repeated key; the path is sought only once there is one."""
    try:
        _CHECK.decode(text)
    except _Duplicate:
        path, key = _find_duplicate(_PAIRS.decode(text))
        raise place.error(f"duplicate key {shorten(key)!r}", field=join(path, key)) from None


def _find_duplicate(root: object) -> tuple[str, str]:
    """The path of the first object with a repeated key, and that key."""
    pending: list[tuple[str, object]] = [("", root)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, _Pairs):
            seen: set[str] = set()
            for key, _ in value:
                if key in seen:
                    return path, key
                seen.add(key)
            pending += [
                (shorten(join(path, key), 300), child) for key, child in reversed(value) if isinstance(child, list)
            ]
        elif isinstance(value, list):
            indexes = range(len(value) - 1, -1, -1)
            pending += [
                (shorten(join(path, index), 300), value[index]) for index in indexes if isinstance(value[index], list)
            ]
    raise AssertionError("unreachable: a duplicate was seen before")


@lru_cache(maxsize=256)
def _decoder(type_: Hashable) -> msgspec.json.Decoder[Any]:
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(cast(Any, type_))
    return decoder


_STRINGS = frozenset(("labels", "annotations"))


def _mend(root: object, coerced: list[tuple[str, object]]) -> object:
    """A copy without nulls in mappings, and with strings in all labels and annotations below a key `metadata`."""
    result: list[Any] = [root]
    # Paths are linked pairs, joined only where needed: the keys of an untrusted file may be long.
    pending: list[tuple[Any, int | str, Any, Any]] = [(result, 0, root, None)]
    while pending:
        holder, key, value, path = pending.pop()
        if isinstance(value, dict):
            strings = key in _STRINGS and path is not None and path[0] is not None and path[0][1] == "metadata"
            # Among labels and annotations null is a value: Go reads it as an empty string.
            new: dict[str, Any] = {name: child for name, child in value.items() if strings or child is not None}
            holder[key] = new
            if strings:
                _stringify(new, path, coerced)
            else:
                pending += [
                    (new, name, child, (path, name)) for name, child in new.items() if isinstance(child, dict | list)
                ]
        elif isinstance(value, list):
            copy = list(value)
            holder[key] = copy
            pending += [
                (copy, index, child, (path, index))
                for index, child in enumerate(copy)
                if isinstance(child, dict | list)
            ]
    return result[0]


def _stringify(strings: dict[str, Any], path: Any, coerced: list[tuple[str, object]]) -> None:
    odd = [key for key, value in strings.items() if not isinstance(value, str)]
    if not odd:
        return
    steps: list[str | int] = []
    while path is not None:
        path, step = path
        steps.append(step)
    field = ""
    for step in reversed(steps):
        field = shorten(join(field, step), 300)
    for key in odd:
        coerced.append((f"{field}[{shorten(key, 320)}]", strings[key]))
        strings[key] = "" if strings[key] is None else msgspec.json.encode(strings[key]).decode()


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


def _explain(error: Exception) -> tuple[str, str]:
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
    return field, message


def _check_utf8(data: bytes, file: str) -> None:
    """Refuse invalid UTF-8, in pieces: as one string the text could take four times its size."""
    if data.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    piece = 1 << 20
    for start in range(0, len(data), piece):
        try:
            decoder.decode(data[start : start + piece], start + piece >= len(data))
        except UnicodeDecodeError as error:
            line = _line(data, start + error.start)
            raise InputError(file, f"not valid UTF-8 ({error.reason})", line=line) from None


def _line(data: bytes, at: int) -> int:
    return data.count(b"\n", 0, at) + 1


def _blank_end(data: bytes, start: int) -> int:
    match = _BLANK.match(data, start)
    return match.end() if match else start


def _printable(text: str, length: int) -> str:
    text = shorten(text, length)
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
