"""How are the changes of a watch told, and its connection closed?"""

import warnings
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Self, TypeVar

from dovetail.kube.failures import failure_of_event
from dovetail.kube.reading import ErrorEvent, UnreadableAnswer, read_event
from dovetail.ports import Resource, Unavailable, Watch, WatchEvent

T = TypeVar("T")


class RealWatch(Watch[T]):
    """A watch over HTTP. Leaving it open is warned of as with files: its connection would go some time, or never."""

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
            self._open = False  # its end, an error, or we are cancelled: all close the connection
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
