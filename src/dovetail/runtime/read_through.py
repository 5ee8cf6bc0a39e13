"""An API that passes reads on as they are: the base of those that only look at writes."""

from typing import TypeVar

from dovetail.ports import KubeApi, Page, Resource, Watch

T = TypeVar("T")


class ReadThroughApi(KubeApi):
    """Subclasses say what becomes of writes."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        continue_: str = "",
    ) -> Page[T]:
        return await self._api.list(
            resource, namespace=namespace, labels=labels, fields=fields, limit=limit, continue_=continue_
        )

    def watch(
        self,
        resource: Resource[T],
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        timeout_seconds: int = 300,
    ) -> Watch[T]:
        return self._api.watch(
            resource,
            resource_version=resource_version,
            namespace=namespace,
            labels=labels,
            fields=fields,
            timeout_seconds=timeout_seconds,
        )

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        return await self._api.get(resource, name, namespace=namespace)
