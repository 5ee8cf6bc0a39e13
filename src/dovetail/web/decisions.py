"""What has been decided lately, and why is each other node left alone? For people and scripts, as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from dovetail.controllers.disruption.engine import Disruption, Past
from dovetail.controllers.disruption.reporter import described, one_line
from dovetail.model.refs import Sentence
from dovetail.values.timestamp import format_time
from dovetail.web.readers import Readers
from dovetail.web.stream import Sight

# Parts of a command that hold names of nodes and pools, counts, and sentences without hidden names.
_WITHOUT_PODS: Final = frozenset(
    {
        "at",
        "command",
        "rejected",
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
        body = msgspec.json.encode(decisions(disruption.history, disruption.left_alone, sight))
        return web.Response(body=body, content_type="application/json", headers={"Cache-Control": "private, no-store"})

    return readers.get("/debug/decisions", answer)


def decisions(history: Sequence[Past], left_alone: Mapping[str, Sentence], sight: Sight) -> dict[str, Any]:
    """Commands, the latest first, and the nodes that have a reason to go and stay."""
    restricted = sight.namespaces is not None

    def shown(sentence: Sentence) -> str:
        return str(sentence.redacted(sight.may_see) if restricted else sentence)

    commands = []
    for past in reversed(history):
        told: dict[str, Any] = {"at": format_time(past.command.at), "command": one_line(past.command)}
        if past.rejected is not None:
            told["rejected"] = {"cause": past.rejected.cause, "message": shown(past.rejected.message)}
        told |= described(past.command)
        commands.append({key: told[key] for key in told if key in _WITHOUT_PODS} if restricted else told)
    stays = {node: shown(why) for node, why in sorted(left_alone.items())}
    return {**({"restricted": True} if restricted else {}), "commands": commands, "leftAlone": stays}
