"""What has been decided lately, and why is each other node left alone? For people and scripts, as JSON."""

from typing import Any, Final

import msgspec
from aiohttp import web

from dovetail.controllers.disruption import Disruption
from dovetail.controllers.disruption_telling import described, one_line
from dovetail.model.refs import Sentence
from dovetail.values.timestamp import format_time
from dovetail.web.readers import Readers
from dovetail.web.stream import Sight

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
        body = msgspec.json.encode(decisions(disruption, sight), enc_hook=str)
        return web.Response(body=body, content_type="application/json", headers={"Cache-Control": "private, no-store"})

    return readers.get("/debug/decisions", answer)


def decisions(disruption: Disruption, sight: Sight) -> dict[str, Any]:
    """Commands, the latest first, and the nodes that have a reason to go and stay."""
    restricted = sight.namespaces is not None

    def shown(sentence: Sentence) -> Sentence:
        return sentence.redacted(sight.may_see) if restricted else sentence

    commands = []
    for past in reversed(disruption.history):
        told = {"at": format_time(past.command.at), "command": one_line(past.command), **described(past.command)}
        if restricted:
            told = {key: value for key, value in told.items() if key in _WITHOUT_PODS}
        if past.rejected is not None:
            told["rejected"] = {"cause": past.rejected.cause, "message": shown(past.rejected.message)}
        commands.append(told)
    left_alone = {node: shown(why) for node, why in sorted(disruption.left_alone.items())}
    found = {"restricted": True} if restricted else {}
    return found | {"commands": commands, "leftAlone": left_alone}
