"""A live cluster, followed by list and watch, for those who show it as it changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from dovetail.cli.common.failing import fail
from dovetail.cli.common.options import Source as Place
from dovetail.cli.common.output import working
from dovetail.kube import KubeConfigError, connect
from dovetail.ports import NODES, ApiError
from dovetail.runtime.clock import SystemClock
from dovetail.web.sources import LiveSource

FIRST_LISTS_SECONDS: Final = 15.0


@asynccontextmanager
async def followed(place: Place, asking: str) -> AsyncIterator[LiveSource]:
    """`asking`: options with which other commands see the same cluster. Ends the program if there is none."""
    try:
        async with connect(kubeconfig=place.kubeconfig, context=place.context) as api:
            with working("reading …"):
                try:
                    await api.list(NODES, limit=1)
                except ApiError as error:
                    fail(f"the cluster cannot be reached or shows no nodes: {error}", code=3)
            source = LiveSource(api, SystemClock(), title=place.context or "live cluster", asking=asking)
            async with asyncio.TaskGroup() as following:
                tasks = [following.create_task(each.run(), name=each.name) for each in source.reflectors]
                with working("reading …"):
                    await source.wait_synced(FIRST_LISTS_SECONDS)
                try:
                    yield source
                finally:
                    for task in tasks:
                        task.cancel()
    except KubeConfigError as error:
        fail(f"{error}; give -f FILE to show a dump instead")
