"""A provider with metrics, as `dovetail run` uses it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from dovetail.api import objects
from dovetail.model.instance_types import TypeCatalogue
from dovetail.observe.logs import said_about
from dovetail.observe.metrics import Metrics
from dovetail.planning.node.health import RepairPolicy
from dovetail.ports import Clock, CloudError, CloudProvider, Instance, InstanceGone, Interruption
from dovetail.runtime.dry_run import WouldWrite


class ObservedCloud(CloudProvider):
    """Measures the duration and errors of each call, by controller."""

    def __init__(self, cloud: CloudProvider, clock: Clock, metrics: Metrics) -> None:
        self.name = cloud.name
        self.node_classes = cloud.node_classes
        self._cloud = cloud
        self._clock = clock
        self._metrics = metrics

    async def create(self, claim: objects.NodeClaim) -> Instance:
        async with self._measured("Create"):
            return await self._cloud.create(claim)

    async def delete(self, claim: objects.NodeClaim) -> None:
        async with self._measured("Delete"):
            await self._cloud.delete(claim)

    async def get(self, provider_id: str) -> Instance:
        async with self._measured("Get"):
            return await self._cloud.get(provider_id)

    async def list(self) -> Sequence[Instance]:
        async with self._measured("List"):
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

    @asynccontextmanager
    async def _measured(self, method: str) -> AsyncIterator[None]:
        labels = (str(said_about("controller")), method, self.name)
        began_at = self._clock.monotonic()
        try:
            yield
        except InstanceGone:  # not an error
            raise
        except CloudError as error:
            if isinstance(error.__cause__, WouldWrite):
                raise error.__cause__ from None
            self._metrics.cloudprovider_errors.labels(*labels, type(error).__name__).inc()
            raise
        finally:
            self._metrics.cloudprovider_seconds.labels(*labels).observe(self._clock.monotonic() - began_at)
