"""How is a command written down on its NodeClaims, so that a new leader carries it on (R24)?"""

from datetime import datetime
from typing import Annotated

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import Reason
from dovetail.planning.disruption.board import Method
from dovetail.planning.disruption.commands import Command
from dovetail.planning.provisioning import claim_name


class Recorded(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The value of the annotation. Nodes go when all replacements, by name, are initialized; not after the deadline."""

    id: Annotated[str, msgspec.Meta(min_length=1)]
    reason: Reason
    method: Method
    deadline: objects.Instant
    replacements: tuple[str, ...] = ()


def record_of(command: Command, deadline: datetime) -> Recorded:
    """With the names that the replacements are going to have."""
    names = (
        claim_name(claim.pool, command.id, str(number)) for number, claim in enumerate(command.replacements, start=1)
    )
    return Recorded(
        id=command.id, reason=command.reason, method=command.method, deadline=deadline, replacements=tuple(names)
    )


def written(recorded: Recorded) -> str:
    return msgspec.json.encode(recorded, order="deterministic").decode()


def read_record(text: str) -> Recorded | None:
    """None: somebody has written something else there, and there is no command to carry on."""
    try:
        return msgspec.json.decode(text, type=Recorded)
    except (msgspec.MsgspecError, RecursionError):
        return None


def record_on(claim: objects.NodeClaim) -> Recorded | None:
    """The command that the claim is in; None: in none, or in none that can be read."""
    text = claim.metadata.annotations.get(names.DISRUPTION_COMMAND)
    return None if text is None else read_record(text)
