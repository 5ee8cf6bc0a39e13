"""Reads Kubernetes objects from JSON and YAML text, with their positions.

The text is not trusted: for any bytes, `read_documents` and `decode` return objects or raise InputError.

The content decides between JSON and YAML. Text is JSON if it begins with `{"`, `{}` or `[` (after blanks) and no line
begins with `---`; everything else is YAML. So `{kind: Pod}` is YAML, `{"kind": Pod}` is broken JSON. A text may contain
several documents. Lists are flattened to their items.

Duplicate keys are refused, except in JSON of more than 16 MB, where the check would take longer than reading.
"""

import codecs
import re
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from dovetail.api.decode_errors import OUT_OF_RANGE, explain_refusal, with_keys
from dovetail.api.json_paths import absurd_number, duplicate_key
from dovetail.api.yaml_events import YamlError, join, parse, shorten
from dovetail.values.foreign_text import plain

T = TypeVar("T")

DUPLICATES_CHECKED_UP_TO = 16 * 1024 * 1024
MAX_LIST_DEPTH = 3

_BLANK = re.compile(rb"[ \t\r\n]*")
_JSON_START = re.compile(rb'[ \t\r\n]*(?:\[|\{[ \t\r\n]*["}])')
_BYTE = re.compile(r" \(byte (\d+)\)$")
_UTF8_BOM = b"\xef\xbb\xbf"
_TOO_DEEP = "nested too deeply"


class InputError(Exception):
    """A mistake in the text, and its position; as a string, one printable line of bounded length."""

    def __init__(
        self, file: str, message: str, *, document: int | None = None, line: int | None = None, field: str | None = None
    ) -> None:
        super().__init__(file, message)
        self.file = file
        self.document = document
        self.line = line
        self.field = field
        self.message = message
        self.ends_early = False  # what is there has no mistake

    def __str__(self) -> str:
        place = [f"document {self.document}"] if self.document is not None else []
        if self.line is not None:
            place.append(f"line {self.line}")
        parts = (_printable(self.file, 200), ", ".join(place), _printable(self.field or "", 300))
        return ": ".join([part for part in parts if part] + [_printable(self.message, 400)])


def group_of(api_version: str) -> str:
    """`apps` of `apps/v1`; empty for the core group."""
    return api_version.rpartition("/")[0]


class Document(msgspec.Struct, eq=False, gc=False):
    """An object and its position; either `raw` (from JSON) or `value` (from YAML) is set."""

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
    converted_from: str = ""
    """The version that the object was written in, if it was converted."""

    @property
    def group(self) -> str:
        return group_of(self.api_version)

    @property
    def path(self) -> str:
        """The path of the object in its document: empty, or `items[17]`."""
        return "" if self.item is None else join(join(self.parent, "items"), self.item)

    def field_of(self, error: "InputError") -> str:
        """The field that the error names, as a path within the object."""
        return shorten((error.field or "").removeprefix(self.path).removeprefix("."), 300)

    @property
    def where(self) -> str:
        """For messages: `file: document 3`, `file: items[17]`, `file: document 3: items[17]`."""
        parts = [self.file]
        if self.item is None or self.number > 1:
            parts.append(f"document {self.number}")
        if self.item is not None:
            parts.append(self.path)
        return ": ".join(parts)

    def error(self, message: str, field: str = "") -> InputError:
        return _Position(self.file, self.number, line=self.line, path=self.path).error(message, field=field)


class _Head(msgspec.Struct, gc=False):
    kind: str | None = None
    apiVersion: str | None = None


class _JsonHead(_Head):
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET


class _YamlHead(_Head):
    items: list[Any] | msgspec.UnsetType | None = msgspec.UNSET


class _Position(msgspec.Struct):
    """The current position: a document, or the list whose items are read."""

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


# An item of a List as kubectl prints it, with its names in front: for those no pass to look for them is needed.
_TOLD = re.compile(rb'\{[ \t\r\n]*"apiVersion": ?"([A-Za-z0-9./-]+)",[ \t\r\n]*"kind": ?"([A-Za-z]+)(?<!List)"')
_RAW = msgspec.json.Decoder(msgspec.Raw)
_HEAD = msgspec.json.Decoder(_Head)
_JSON_HEAD = msgspec.json.Decoder(_JsonHead)


def read_documents(data: bytes, file: str, whole: "ParsedItem | None" = None) -> Iterator[Document]:
    """Yield the objects of the text, in order. Raises InputError at the first mistake.

    `whole` is the result of `whole_json`, if it is known.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or 0 in data[:2]:
        raise InputError(file, "text is UTF-16 or UTF-32; UTF-8 is needed")
    if (at := data.find(b"\0")) >= 0:
        raise InputError(file, f"NUL byte (byte {at})", line=_line(data, at))
    _check_utf8(data, file)
    start = len(_UTF8_BOM) if data.startswith(_UTF8_BOM) else 0
    whole = whole or whole_json(data)
    if whole is not None or (_JSON_START.match(data, start) and b"\n---" not in data):
        yield from _read_json(data, start, file, whole)
    else:
        yield from _read_yaml(data, file)


def decode(document: Document, type_: type[T]) -> T:
    """The object as `type_`, read as Go does: null is absent, labels and annotations are strings.

    Well-formed objects go straight through msgspec. Others are converted to builtins and repaired; `document.coerced`
    then lists the labels and annotations that were not strings.
    """
    try:
        try:
            if document.raw is not None:
                decoded: T = _decoder(cast(Hashable, type_)).decode(document.raw)
                return decoded
            return msgspec.convert(document.value, type_)
        except msgspec.ValidationError:
            coerced: list[tuple[str, object]] = []
            mended = _mend(plain_value(document), coerced)
            document.coerced = tuple(coerced)
            try:
                return msgspec.convert(mended, type_)
            except msgspec.ValidationError as error:
                field, message = explain_refusal(error)
                raise document.error(message, field=with_keys(field, mended, type_)) from None
    except RecursionError:
        raise document.error(_TOO_DEEP) from None


def decode_as_written(document: Document, type_: type[T]) -> T | None:
    """The object as `type_`; None if it is not JSON, or if `decode` would have to mend it."""
    try:
        return None if document.raw is None else cast(T, _decoder(cast(Hashable, type_)).decode(document.raw))
    except (msgspec.ValidationError, RecursionError):
        return None


def plain_value(document: Document) -> Any:
    """The object as dicts, lists and scalars, as written. Raises InputError."""
    if document.raw is None:
        return document.value
    try:
        try:
            return msgspec.json.decode(document.raw)
        except msgspec.ValidationError:  # where no type is wanted, only a number can be refused
            path = absurd_number(bytes(document.raw).decode())
            raise document.error(OUT_OF_RANGE, field=path or "") from None
    except RecursionError:
        raise document.error(_TOO_DEEP) from None


def whole_json(data: bytes) -> "ParsedItem | None":
    """The whole text as one JSON value, if it is one. Usually it is, and each pass over 300 MB takes long."""
    start = len(_UTF8_BOM) if data.startswith(_UTF8_BOM) else 0
    if not _JSON_START.match(data, start):
        return None
    try:
        return _named(msgspec.Raw(memoryview(data)[start:]))
    except (msgspec.DecodeError, RecursionError):
        return None


def _read_json(data: bytes, start: int, file: str, whole: "ParsedItem | None") -> Iterator[Document]:
    view = memoryview(data)
    checked = len(data) <= DUPLICATES_CHECKED_UP_TO
    number = 0
    while (start := _blank_end(data, start)) < len(data):
        number += 1
        place = _Position(file, number)
        try:
            named, end = _one_json(data, view, start, place) if whole is None else (whole, len(data))
            if checked and (repeated := duplicate_key(str(view[start:end], "utf-8"))) is not None:
                path, key = repeated
                raise place.error(f"duplicate key {shorten(key)!r}", field=join(path, key))
            start = end
            yield from _objects(named, place, None)
        except RecursionError:  # both msgspec and json count their depth against Python's limit
            raise place.error(_TOO_DEEP) from None


def _one_json(data: bytes, view: memoryview, start: int, place: _Position) -> tuple["ParsedItem", int]:
    """The JSON value at `start` and where it ends."""
    end = len(data)
    for _ in range(2):
        try:
            return _named_at(_RAW.decode(view[start:end]), place, None), end
        except msgspec.DecodeError as error:
            message = str(error)
            match = _BYTE.search(message)
            at = start + int(match[1]) if match else end
            if "trailing characters" in message and end == len(data):
                end = at - 1  # msgspec names the byte after the first character that does not belong to the value
                continue
            words = _BYTE.sub("", message) if match else "JSON is malformed: the text ends too early"
            damaged = place.error(f"{words} (byte {at})", line=_line(data, at))
            damaged.ends_early = match is None
            raise damaged from None
    raise AssertionError("unreachable: the second round has no trailing characters")


def _read_yaml(data: bytes, file: str) -> Iterator[Document]:
    try:
        for parsed in parse(data):
            if parsed.value is not None:
                place = _Position(file, parsed.number, parsed.lines, parsed.line)
                yield from _objects(_named_at(parsed.value, place, None), place, None)
    except YamlError as error:
        raise InputError(file, error.message, document=error.number, line=error.line, field=error.field) from None


class ParsedItem(NamedTuple):
    """A JSON text (msgspec.Raw) or YAML value with its kind and version."""

    thing: object
    head: _Head
    items: list[Any] | msgspec.UnsetType | None


def _objects(named: ParsedItem, place: _Position, item: int | None) -> Iterator[Document]:
    """The objects of a JSON text or YAML value: itself, or the items of a List."""
    thing, head, items = named
    line = place.lines.get(id(thing), place.line)
    kind = head.kind or place.list_kind.removesuffix("List")
    version = head.apiVersion or place.list_version
    if not kind:
        raise place.error("is required", item, "kind", line)
    if not version:
        raise place.error("is required", item, "apiVersion", line)
    if not kind.endswith("List") or (items is msgspec.UNSET and kind != "List"):  # not all that end in List are Lists
        raw, value = (thing, None) if isinstance(thing, msgspec.Raw) else (None, cast(dict[str, Any], thing))
        yield Document(place.file, place.number, item, line, version, kind, raw, value, place.path)
        return
    if place.depth >= MAX_LIST_DEPTH:
        raise place.error(f"Lists in Lists deeper than {MAX_LIST_DEPTH} levels", item, line=line)
    path = place.path if item is None else join(join(place.path, "items"), item)
    own_version = None if kind == "List" else version  # v1 is the List's own, not its items'
    inner = _Position(place.file, place.number, place.lines, line, path, kind, own_version, place.depth + 1)
    for index, child in enumerate(items or ()):
        match = _TOLD.match(child) if isinstance(child, msgspec.Raw) else None
        if match is not None:
            version, kind = str(match[1], "ascii"), str(match[2], "ascii")
            yield Document(place.file, place.number, index, None, version, kind, child, None, path)
        else:
            yield from _objects(_named_at(child, inner, index), inner, index)


def _named_at(thing: object, place: _Position, item: int | None) -> ParsedItem:
    try:
        return _named(thing)
    except msgspec.ValidationError as error:
        field, message = explain_refusal(error)
        raise place.error(message, item, field, place.lines.get(id(thing), place.line)) from None


def _named(thing: object) -> ParsedItem:
    """Decode kind, version and items in one pass. Raises the errors of msgspec."""
    try:
        head = _JSON_HEAD.decode(thing) if isinstance(thing, msgspec.Raw) else msgspec.convert(thing, _YamlHead)
    except msgspec.ValidationError:
        plain = _HEAD.decode(thing) if isinstance(thing, msgspec.Raw) else msgspec.convert(thing, _Head)
        if plain.kind is None or plain.kind.endswith("List"):
            raise
        return ParsedItem(thing, plain, msgspec.UNSET)  # its `items` are something else
    return ParsedItem(thing, head, head.items)


@lru_cache(maxsize=256)
def _decoder(type_: Hashable) -> msgspec.json.Decoder[Any]:
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(cast(Any, type_))
    return decoder


_STRINGS = frozenset(("labels", "annotations"))


def _mend(root: object, coerced: list[tuple[str, object]]) -> object:
    """A copy without nulls in mappings, and with strings in all labels and annotations below `metadata`."""
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
    return plain(shorten(text, length))
