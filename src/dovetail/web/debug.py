"""Serves `/debug/*`: the latest decisions and why other nodes stay, a profile, and the tasks.

Each reader sees decisions about what it may list. The profile and the tasks name functions and no pods.
"""

import asyncio
import cProfile
import io
import pstats
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from dovetail.controllers.disruption.accounts import account_fields
from dovetail.controllers.disruption.engine import DisruptionController, PastDecision
from dovetail.controllers.disruption.reporter import described, one_line
from dovetail.model.refs import Sentence
from dovetail.planning.disruption.accounts import CommandAccount
from dovetail.values.timestamp import format_time
from dovetail.web.readers import Readers
from dovetail.web.stream import Visibility

SECONDS_AT_MOST: Final = 60.0
LINES: Final = 60
# Parts of a command that name no pods: nodes, pools, counts, and sentences without hidden names.
_WITHOUT_PODS: Final = frozenset(
    (
        *("at", "command", "account", "rejected", "command-id", "decision", "reason", "method", "savings", "budgets"),
        *("disrupted-node-count", "replacement-node-count", "pod-count", "disrupted-nodes", "replacement-nodes"),
    )
)


def decisions_route(readers: Readers, disruption: DisruptionController) -> web.RouteDef:
    """`/debug/decisions`."""

    async def answer(_: web.Request, sight: Visibility) -> web.Response:
        view = decisions(disruption.history, disruption.left_alone, sight, disruption.accounts.closed)
        body = msgspec.json.encode(view)
        return web.Response(body=body, content_type="application/json", headers={"Cache-Control": "private, no-store"})

    return readers.get("/debug/decisions", answer)


def decisions(
    history: Sequence[PastDecision],
    left_alone: Mapping[str, Sentence],
    sight: Visibility,
    closed: Iterable[CommandAccount] = (),
) -> dict[str, Any]:
    """Commands, the latest first, and the nodes that stay although they have a reason to go.

    `closed`: accounts, which show what came of commands.
    """
    restricted = sight.namespaces is not None
    accounts = {account.id: account_fields(account) for account in closed}

    def shown(sentence: Sentence) -> str:
        return str(sentence.redacted(sight.may_see) if restricted else sentence)

    commands = []
    for past in reversed(history):
        shown_command: dict[str, Any] = {"at": format_time(past.command.at), "command": one_line(past.command)}
        if past.rejected is not None:
            shown_command["rejected"] = {"cause": past.rejected.cause, "message": shown(past.rejected.message)}
        shown_command |= described(past.command)
        if past.rejected is None and past.command.id in accounts:
            shown_command["account"] = accounts[past.command.id]
        visible = {key: shown_command[key] for key in shown_command if key in _WITHOUT_PODS or not restricted}
        commands.append(visible)
    stays = {node: shown(why) for node, why in sorted(left_alone.items())}
    return {**({"restricted": True} if restricted else {}), "commands": commands, "leftAlone": stays}


def profiling_routes(readers: Readers) -> list[web.RouteDef]:
    """Profiling, below the path that Go programs use."""
    return [readers.get("/debug/pprof/profile", profile), readers.get("/debug/pprof/tasks", tasks)]


async def profile(request: web.Request, _: Visibility) -> web.Response:
    """A profile of the event loop over `?seconds=10`, the slowest functions first."""
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
        return web.Response(status=409, text="another profile is running\n")
    try:
        await asyncio.sleep(seconds)
    finally:
        profiler.disable()
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(LINES)
    return web.Response(text=text.getvalue())


async def tasks(_: web.Request, __: Visibility) -> web.Response:
    """Every task and its stack."""
    text = io.StringIO()
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        text.write(f"{task.get_name()}\n")
        task.print_stack(file=text)
    return web.Response(text=text.getvalue())
