"""Where does the program spend its time, and what is each of its tasks waiting for?

Functions and tasks are named, and no pods: all readers are told the same.
"""

import asyncio
import cProfile
import io
import pstats
from typing import Final

from aiohttp import web

from dovetail.web.readers import Readers
from dovetail.web.stream import Sight

SECONDS_AT_MOST: Final = 60.0
LINES: Final = 60


def profiling_routes(readers: Readers) -> list[web.RouteDef]:
    """Below the address that Go programs use for theirs."""
    return [readers.get("/debug/pprof/profile", profile), readers.get("/debug/pprof/tasks", tasks)]


async def profile(request: web.Request, _: Sight) -> web.Response:
    """What takes the event loop's time for `?seconds=10`, functions that take the most first."""
    try:
        seconds = float(request.query.get("seconds", "10"))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= SECONDS_AT_MOST:
        return web.Response(status=400, text=f"seconds must be a number up to {SECONDS_AT_MOST:g}\n")
    profiler = cProfile.Profile()
    try:
        profiler.enable()
    except ValueError:
        return web.Response(status=409, text="somebody else is profiling\n")
    try:
        await asyncio.sleep(seconds)
    finally:
        profiler.disable()
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(LINES)
    return web.Response(text=text.getvalue())


async def tasks(_: web.Request, __: Sight) -> web.Response:
    """Every task and the lines it waits at."""
    text = io.StringIO()
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        text.write(f"{task.get_name()}\n")
        task.print_stack(file=text)
    return web.Response(text=text.getvalue())
