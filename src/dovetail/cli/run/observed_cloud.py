"""A provider with metrics, as `dovetail run` uses it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from dovetail.api import objects
from dovetail.observe.logs import said_about
from dovetail.observe.metrics import Metrics
from dovetail.ports import Clock, CloudError, CloudProvider, Instance, InstanceGone
from dovetail.runtime.dry_run import WouldWrite
from dovetail.runtime.read_through import PassThroughCloud


class ObservedCloud(PassThroughCloud):
    """Measures the duration and errors of each call, by controller."""

    def __init__(self, cloud: CloudProvider, clock: Clock, metrics: Metrics) -> None:
        super().__init__(cloud)
        self._clock = clock
        self._metrics = metrics

    async def create(self, claim: objects.NodeClaim) -> Instance:
        async with self._measured("Create"):
            return await super().create(claim)

    async def delete(self, claim: objects.NodeClaim) -> None:
        async with self._measured("Delete"):
            await super().delete(claim)

    async def get(self, provider_id: str) -> Instance:
        async with self._measured("Get"):
            return await super().get(provider_id)

    async def list(self) -> Sequence[Instance]:
        async with self._measured("List"):
            return await super().list()

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
