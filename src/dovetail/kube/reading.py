"""Decodes answers of the API server as tolerantly as files.

A list is decoded as a whole. If that fails, items are decoded one by one, so that a bad one does not hide the others.
"""

from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from dovetail.api.documents import Document, InputError, decode
from dovetail.ports import ApiError, EventType, Page, Resource, WatchEvent
from dovetail.state.store import UndecodableObject

T = TypeVar("T")


class UnreadableAnswer(Exception):
    """The bytes cannot be decoded. The message is one short line."""


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, Generic[T], frozen=True, gc=False):
    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class _ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The name of an object. Fields have any type, so that a bad one does not hide the others."""

    name: Any = None
    namespace: Any = None
    resource_version: Any = None


class _Object(msgspec.Struct, frozen=True, gc=False):
    metadata: _ObjectMeta | None = None


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class ErrorEvent(Exception):
    """The ERROR event of a watch; `status` is the encoded Status object."""

    def __init__(self, status: bytes) -> None:
        super().__init__("the watch ended with an error")
        self.status = status


# msgspec raises RecursionError for deep nesting.
_MALFORMED = (msgspec.MsgspecError, RecursionError)
_EVENT = msgspec.json.Decoder(_Event)
_OBJECT = msgspec.json.Decoder(_Object)


def read(data: bytes | msgspec.Raw, type_: type[T]) -> T:
    """The object as `type_`. Raises Unreadable."""
    raw = data if isinstance(data, msgspec.Raw) else msgspec.Raw(data)
    try:
        return decode(Document("", 1, None, None, "", "", raw), type_)
    except InputError as error:
        raise UnreadableAnswer(f"{error.field}: {error.message}" if error.field else error.message) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # no JSON at all, which files are checked for before
        raise UnreadableAnswer(str(error)) from None


def read_page(data: bytes, resource: Resource[T]) -> Page[T]:
    """A page of a list without undecodable items, which are counted. Raises Unreadable if it is not a list."""
    try:
        whole = _list_decoder(cast(Any, resource.struct)).decode(data)
        return Page(whole.items or [], whole.metadata.resource_version, whole.metadata.continue_)
    except _MALFORMED:
        return _read_page_by_item(data, resource)


def _read_page_by_item(data: bytes, resource: Resource[T]) -> Page[T]:
    head: _List[msgspec.Raw] = read(data, cast(Any, _List[msgspec.Raw]))
    items: list[T] = []
    undecodable = 0
    unread: list[UndecodableObject] = []
    for raw in head.items or []:
        try:
            items.append(read(raw, resource.struct))
        except UnreadableAnswer as error:
            undecodable += 1
            if named := _unread(_metadata(raw), str(error)):
                unread.append(named)
    return Page(items, head.metadata.resource_version, head.metadata.continue_, undecodable, tuple(unread))


def read_event(line: bytes, resource: Resource[T]) -> WatchEvent[T]:
    """One line of a watch. Raises ErrorEvent for an error, Unreadable if the line is not an event."""
    try:
        event = _EVENT.decode(line)
    except _MALFORMED as error:
        raise UnreadableAnswer(f"no watch event: {error}") from None
    if event.type == "ERROR":
        raise ErrorEvent(bytes(event.object))
    if event.type not in EventType.__members__:
        raise UnreadableAnswer(f"no watch event: type {event.type[:40]!r}")
    type_ = EventType(event.type)
    metadata = _metadata(event.object)
    version = _text(metadata.resource_version)
    if type_ is EventType.BOOKMARK:
        return WatchEvent(type_, version, None)
    try:
        return WatchEvent(type_, version, read(event.object, resource.struct))
    except UnreadableAnswer as error:
        return WatchEvent(type_, version, None, str(error), _unread(metadata, str(error)))


def read_object(data: bytes, resource: Resource[T]) -> T:
    """The requested or written object. Raises ApiError if it cannot be decoded."""
    try:
        return read(data, resource.struct)
    except UnreadableAnswer as error:
        raise ApiError(f"{resource.kind} in the answer is unreadable: {error}", reason="Unreadable") from None


def _metadata(raw: msgspec.Raw) -> _ObjectMeta:
    try:
        return _OBJECT.decode(raw).metadata or _ObjectMeta()
    except _MALFORMED:
        return _ObjectMeta()


def _unread(metadata: _ObjectMeta, problem: str) -> UndecodableObject | None:
    name = _text(metadata.name)
    return UndecodableObject(problem, _text(metadata.namespace), name) if name else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


@lru_cache(maxsize=64)
def _list_decoder(struct: Any) -> msgspec.json.Decoder[_List[Any]]:
    decoder: msgspec.json.Decoder[_List[Any]] = msgspec.json.Decoder(cast(Any, _List[struct]))
    return decoder
