"""Asks the provider for the instance types of each NodePool, once for all readers."""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.instance_types import TypeCatalogue
from dovetail.ports import CloudError
from dovetail.runtime.tasks import within
from dovetail.state.instance_types import ProviderAnswer

ASKING_SECONDS: Final = 60.0


class TypeSupplier(Protocol):
    """Who knows the instance types; a provider is one."""

    async def instance_types(self, pool: objects.NodePool) -> TypeCatalogue:
        """The instance types for the pool. Raises CloudError."""


class InstanceTypeSource:
    """Writes the provider's answers into the state. An answer is kept for `keep_seconds`, unless it becomes stale."""

    def __init__(self, cluster: WatchedCluster, provider: TypeSupplier, *, keep_seconds: float) -> None:
        self._types = cluster.instance_types
        self._clock = cluster.clock
        self._provider = provider
        self._keep_seconds = keep_seconds
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by pool

    async def refresh(self, pools: Iterable[objects.NodePool]) -> None:
        """Asks the provider for the pools that are due. Does not raise CloudError."""
        async with asyncio.TaskGroup() as group:
            for pool in [pool for pool in pools if self._is_due(pool)]:
                group.create_task(self._ask(pool), name=f"instance types of {pool.metadata.name}")

    async def of(self, pool: objects.NodePool) -> ProviderAnswer:
        """The current or a recent answer. Raises CloudError."""
        if self._is_due(pool):
            await self._ask(pool)
        answer = self._types.said(pool.metadata.name)
        if not answer.source:
            raise CloudError(answer.flaw)
        return answer

    def _is_due(self, pool: objects.NodePool) -> bool:
        return self._types.is_due(pool, at=self._clock.monotonic(), keep_seconds=self._keep_seconds)

    async def _ask(self, pool: objects.NodePool) -> None:
        name = pool.metadata.name
        previous = self._types.said(name)
        async with self._asking.setdefault(name, asyncio.Lock()):
            answer = self._types.said(name)
            if not self._is_due(pool) or (answer.at != previous.at and answer.flaw):
                return  # another task has just asked; if it failed, not every waiting task runs into the timeout
            self._types.asking(pool)
            try:
                listed = await within(self._clock, ASKING_SECONDS, self._provider.instance_types(pool))
                at = self._clock.monotonic()
                self._types.answered(pool, listed.types, at=at, version=listed.version)
            except CloudError as error:
                self._types.failed(pool, f"cannot be looked up: {error}", at=self._clock.monotonic())
            except TimeoutError:
                why = f"cannot be looked up: no answer within {ASKING_SECONDS:.0f} s"
                self._types.failed(pool, why, at=self._clock.monotonic())
            except BaseException:
                self._types.given_up(pool)
                raise
