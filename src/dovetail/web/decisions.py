"""What has been decided lately, and why is each other node left alone? For people and scripts, as JSON."""

import msgspec
from aiohttp import web

from dovetail.controllers.disruption import Disruption, Past
from dovetail.controllers.disruption_telling import described, one_line
from dovetail.values.timestamp import format_time


def decisions_route(disruption: Disruption) -> web.RouteDef:
    """`/debug/decisions`: commands, the latest first, and the nodes that have a reason to go and stay."""

    async def decisions(request: web.Request) -> web.Response:  # noqa: ARG001
        said = {
            "commands": [_told(past) for past in reversed(disruption.history)],
            "leftAlone": dict(sorted(disruption.left_alone.items())),
        }
        return web.Response(body=msgspec.json.encode(said), content_type="application/json")

    return web.get("/debug/decisions", decisions)


def _told(past: Past) -> dict[str, object]:
    found: dict[str, object] = {"at": format_time(past.command.at), "command": one_line(past.command)}
    if past.rejected is not None:
        found["rejected"] = {"cause": past.rejected.cause, "message": past.rejected.message}
    return found | described(past.command)
