"""Pending interruption notices (R41)."""

import asyncio
from collections.abc import AsyncGenerator

from dovetail.ports import Interruption


class Notices:
    """Notices that nobody has dealt with; the latest for each key."""

    def __init__(self) -> None:
        self._pending: dict[str, Interruption] = {}
        self._changed = asyncio.Event()

    def add(self, key: str, notice: Interruption) -> None:
        self._pending[key] = notice
        self._changed.set()

    def drop(self, key: str) -> None:
        self._pending.pop(key, None)

    def dealt_with(self, notice: Interruption) -> None:
        """Forget this notice, but not a later one for the same key."""
        self._pending = {key: other for key, other in self._pending.items() if other is not notice}

    async def listen(self) -> AsyncGenerator[Interruption, None]:
        """All pending notices, oldest first, and then new ones; each once to this listener."""
        sent: dict[str, Interruption] = {}
        while True:
            self._changed.clear()
            for key, notice in list(self._pending.items()):
                if sent.get(key) is not notice and self._pending.get(key) is notice:
                    sent[key] = notice
                    yield notice
            sent = {key: notice for key, notice in sent.items() if key in self._pending}
            await self._changed.wait()
