"""How does each of many timelines end that run beside each other, under one program on one control plane?"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tests.cluster.disruption.program import acting
from tests.cluster.disruption.setting import Setting
from tests.cluster.plane import ControlPlane

TIMELINE_SECONDS = 500  # far more than any takes

Timeline = Callable[[Setting], Coroutine[Any, Any, None]]
Endings = dict[str, BaseException | None]  # None is well


def name_of(timeline: Timeline) -> str:
    return str(getattr(timeline, "__name__", timeline))


def named(name: str, timeline: Timeline) -> Timeline:
    """One of several that a function makes."""
    timeline.__name__ = name
    return timeline


async def play(plane: ControlPlane, timelines: Sequence[Timeline]) -> Endings:
    """By name of the timeline."""
    async with acting(plane) as stage:

        async def one(number: int, timeline: Timeline) -> None:
            setting = Setting(stage, f"timeline-{number}")
            try:
                async with asyncio.timeout(TIMELINE_SECONDS):
                    await timeline(setting)
            finally:
                await setting.clear()

        ended = await asyncio.gather(*map(one, range(len(timelines)), timelines), return_exceptions=True)
        return {name_of(timeline): error for timeline, error in zip(timelines, ended, strict=True)}
    raise AssertionError("the program ended before the timelines")


def judge(timeline: Timeline, endings: Endings) -> None:
    error = endings[name_of(timeline)]
    if error is not None:
        raise error
