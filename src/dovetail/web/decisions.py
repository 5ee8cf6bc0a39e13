"""What has been decided lately, and why is each other node left alone? For people and scripts, as JSON."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from aiohttp import web

from dovetail.controllers.disruption import Disruption, Past
from dovetail.controllers.disruption_telling import described, one_line
from dovetail.values.timestamp import format_time
from dovetail.web.readers import Readers
from dovetail.web.stream import Sight

HIDDEN: Final = "only told to those who may list pods in all namespaces"
# Parts of a command that hold names of nodes and pools, and counts.
_WITHOUT_PODS: Final = frozenset(
    {
        "at",
        "command",
        "command-id",
        "decision",
        "reason",
        "method",
        "disrupted-node-count",
        "replacement-node-count",
        "pod-count",
        "disrupted-nodes",
        "replacement-nodes",
        "savings",
        "budgets",
    }
)


def decisions_route(readers: Readers, disruption: Disruption) -> web.RouteDef:
    """`/debug/decisions`."""

    async def answer(_: web.Request, sight: Sight) -> web.Response:
        body = msgspec.json.encode(decisions(disruption, sight))
        return web.Response(body=body, content_type="application/json", headers={"Cache-Control": "private, no-store"})

    return readers.get("/debug/decisions", answer)


def decisions(disruption: Disruption, sight: Sight) -> dict[str, Any]:
    """Commands, the latest first, and the nodes that have a reason to go and stay."""
    commands = [_command(past) for past in reversed(disruption.history)]
    left_alone = dict(sorted(disruption.left_alone.items()))
    if sight.namespaces is not None:
        return _without_pods(commands, left_alone)
    return {"commands": commands, "leftAlone": left_alone}


def _command(past: Past) -> dict[str, Any]:
    found: dict[str, Any] = {"at": format_time(past.command.at), "command": one_line(past.command)}
    if past.rejected is not None:
        found["rejected"] = {"cause": past.rejected.cause, "message": past.rejected.message}
    return found | described(past.command)


def _without_pods(commands: Iterable[dict[str, Any]], left_alone: Iterable[str]) -> dict[str, Any]:
    """Without pods, and without sentences: any of them may name a pod that the reader may not list (R49)."""
    return {
        "restricted": True,
        "commands": [
            {key: value for key, value in command.items() if key in _WITHOUT_PODS}
            | ({"rejected": {"cause": command["rejected"]["cause"]}} if "rejected" in command else {})
            for command in commands
        ],
        "leftAlone": dict.fromkeys(left_alone, HIDDEN),
    }
