"""Ports that pass calls on unchanged: the bases of those that look at some of the calls."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from dovetail.api import objects
from dovetail.model.instance_types import TypeCatalogue
from dovetail.planning.node.health import RepairPolicy
from dovetail.ports import CloudProvider, Instance, Interruption, KubeApi, Page, Watch


class ReadThroughApi(KubeApi):
    """An API whose reads pass unchanged. Subclasses define `write`."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def list(self, *args: Any, **options: Any) -> Page[Any]:
        return await self._api.list(*args, **options)

    def watch(self, *args: Any, **options: Any) -> Watch[Any]:
        return self._api.watch(*args, **options)

    async def get(self, *args: Any, **options: Any) -> Any:
        return await self._api.get(*args, **options)


class PassThroughCloud(CloudProvider):
    """A cloud whose calls pass unchanged. Subclasses define those that they look at."""

    def __init__(self, cloud: CloudProvider) -> None:
        self.name = cloud.name
        self.node_classes = cloud.node_classes
        self._cloud = cloud

    async def create(self, claim: objects.NodeClaim) -> Instance:
        return await self._cloud.create(claim)

    async def delete(self, claim: objects.NodeClaim) -> None:
        await self._cloud.delete(claim)

    async def get(self, provider_id: str) -> Instance:
        return await self._cloud.get(provider_id)

    async def list(self) -> Sequence[Instance]:
        return await self._cloud.list()

    async def instance_types(self, pool: objects.NodePool) -> TypeCatalogue:
        return await self._cloud.instance_types(pool)

    async def drift_reason(self, claim: objects.NodeClaim) -> str:
        return await self._cloud.drift_reason(claim)

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return self._cloud.repair_policies()

    def interruptions(self) -> AsyncIterator[Interruption]:
        return self._cloud.interruptions()

    def dealt_with(self, notice: Interruption) -> None:
        self._cloud.dealt_with(notice)
