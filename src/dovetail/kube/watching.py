"""Watches over HTTP: lines of a stream, read as events.

A watch sends one JSON object per line. Objects may be megabytes long, more than the line readers of HTTP libraries
allow.
"""

import warnings
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Self, TypeVar

from dovetail.kube.failures import failure_of_event
from dovetail.kube.reading import ErrorEvent, UnreadableAnswer, read_event
from dovetail.ports import Resource, Unavailable, Watch, WatchEvent

T = TypeVar("T")

LONGEST_LINE = 64 * 1024 * 1024


class LineTooLong(Exception):
    """A line exceeds the limit."""


class LineSplitter:
    """Splits chunks into lines, without blank ones."""

    def __init__(self, *, limit: int = LONGEST_LINE) -> None:
        self._limit = limit
        self._rest = bytearray()

    @property
    def partial(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._rest)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk. Raises LineTooLong."""
        pieces = chunk.split(b"\n")
        lines = []
        for piece in pieces[:-1]:
            self._extend(piece)
            if self._rest:
                lines.append(bytes(self._rest))
                self._rest.clear()
        self._extend(pieces[-1])
        return lines

    def _extend(self, piece: bytes) -> None:
        if len(self._rest) + len(piece) > self._limit:
            raise LineTooLong(f"a line is longer than {self._limit} bytes")
        self._rest += piece


class RealWatch(Watch[T]):
    """A watch over HTTP. Warns if it is left open, as files do."""

    def __init__(self, lines: AsyncGenerator[bytes, None], resource: Resource[T], secrets: Sequence[str] = ()) -> None:
        self._events = _events(lines, resource, secrets)
        self._open = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent[T]:
        self._open = True
        try:
            return await anext(self._events)
        except BaseException:
            self._open = False  # the end, an error or a cancellation closes the connection
            raise

    async def aclose(self) -> None:
        self._open = False
        await self._events.aclose()

    def __del__(self) -> None:
        if self._open:
            warnings.warn("a watch was left open", ResourceWarning, stacklevel=2, source=self)


async def _events(
    lines: AsyncGenerator[bytes, None], resource: Resource[T], secrets: Sequence[str]
) -> AsyncGenerator[WatchEvent[T], None]:
    async with aclosing(lines):
        async for line in lines:
            try:
                event = read_event(line, resource)
            except ErrorEvent as error:
                raise failure_of_event(error.status, secrets) from None
            except UnreadableAnswer as error:
                raise Unavailable(f"watch of {resource.plural} is unreadable: {error}") from None
            yield event
