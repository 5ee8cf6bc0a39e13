"""Which interruptions are still to be told (R41)?"""

import asyncio
from collections.abc import AsyncGenerator

from dovetail.ports import Interruption


class Notices:
    """Interruptions that nobody has dealt with; at most one for each key, the latest.

    A notice counts as dealt with when its listener asks for the next one: one that fails before is told again.
    """

    def __init__(self) -> None:
        self._pending: dict[str, Interruption] = {}
        self._changed = asyncio.Event()

    def add(self, key: str, notice: Interruption) -> None:
        self._pending[key] = notice
        self._changed.set()

    def drop(self, key: str) -> None:
        """What was to be told is no longer so."""
        self._pending.pop(key, None)

    async def listen(self) -> AsyncGenerator[Interruption, None]:
        """Notices as they come, oldest first."""
        while True:
            self._changed.clear()
            while self._pending:
                key, notice = next(iter(self._pending.items()))
                yield notice
                if self._pending.get(key) is notice:
                    del self._pending[key]
            await self._changed.wait()
