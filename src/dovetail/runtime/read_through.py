"""An API that passes reads on unchanged: the base of the APIs that only look at writes."""

from typing import Any

from dovetail.ports import KubeApi, Page, Watch


class ReadThroughApi(KubeApi):
    """Subclasses define `write`."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def list(self, *args: Any, **options: Any) -> Page[Any]:
        return await self._api.list(*args, **options)

    def watch(self, *args: Any, **options: Any) -> Watch[Any]:
        return self._api.watch(*args, **options)

    async def get(self, *args: Any, **options: Any) -> Any:
        return await self._api.get(*args, **options)
