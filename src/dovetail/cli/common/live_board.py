"""The source of `top` and `dashboard` for a live cluster, which is followed by list and watch."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from dovetail.cli.common.contexts import cluster_title
from dovetail.cli.common.evidence import evidence
from dovetail.cli.common.options import ClusterSource
from dovetail.cli.common.output import working
from dovetail.cli.common.process import fail
from dovetail.cli.common.refusals import why_no_answer
from dovetail.kube import KubeConfigError, connect
from dovetail.model.decider import Decider
from dovetail.model.rule_settings import settings_of
from dovetail.ports import NODES, ApiError, Clock, KubeApi
from dovetail.runtime.clock import SystemClock
from dovetail.views.deciding import who_decides
from dovetail.web.sources import LiveSource

FIRST_LISTS_SECONDS: Final = 15.0
LEASES_SECONDS: Final = 20.0  # from one look at the Leases of controllers to the next


@asynccontextmanager
async def followed(source: ClusterSource) -> AsyncIterator[LiveSource]:
    """The live cluster. Ends the program if it cannot be reached."""
    try:
        async with connect(kubeconfig=source.kubeconfig, context=source.context) as api:
            with working("reading …"):
                try:
                    await api.list(NODES, limit=1)
                except ApiError as error:
                    fail(why_no_answer(error), code=3)
            clock = SystemClock()
            shown = await evidence(api, clock)
            decider = source.decider or who_decides(shown.documents, shown.at)
            settings = settings_of(decider, source.budgets)
            live = LiveSource(api, clock, title=cluster_title(source), asking=source.asking(), settings=settings)
            live.tell_missing(shown.missing(decider))
            async with asyncio.TaskGroup() as following:
                tasks = [following.create_task(reflector.run(), name=reflector.name) for reflector in live.reflectors]
                tasks.append(following.create_task(_follow_leases(live, api, clock, decider), name="leases"))
                with working("reading …"):
                    await live.wait_synced(FIRST_LISTS_SECONDS)
                try:
                    yield live
                finally:
                    for task in tasks:
                        task.cancel()
    except KubeConfigError as error:
        fail(f"{error}; give -f FILE to show a dump instead")


async def _follow_leases(live: LiveSource, api: KubeApi, clock: Clock, decider: Decider) -> None:
    """Say when the controller stops, and when one runs again. A watch would be told of each renewal."""
    while True:
        await clock.sleep(LEASES_SECONDS)
        shown = await evidence(api, clock)
        if shown.judged:
            live.tell_missing(shown.missing(decider))
