"""How is a command written down on its NodeClaims, so that a new leader carries it on (R24)?

Who may edit a NodeClaim can write such a record, too. So a record counts only if every claim that it names carries the
identical record (R54), and its nodes are drained only if the rules allow that then (R50).
"""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Final

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import Reason
from dovetail.planning.disruption.board import Method
from dovetail.planning.disruption.commands import Command
from dovetail.planning.provisioning.claims import claim_name

# Longer than one for a thousand claims, which is far more than a command has.
LONGEST_RECORD: Final = 128 * 1024


class CommandRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The value of the annotation. Nodes go when all replacements, by name, are initialized; not after the deadline.

    `claims`: the names of the NodeClaims that it is about, each of which carries it.
    """

    id: Annotated[str, msgspec.Meta(min_length=1)]
    reason: Reason
    method: Method
    deadline: objects.Instant
    claims: tuple[str, ...] = ()
    replacements: tuple[str, ...] = ()


def record_of(command: Command, deadline: datetime) -> CommandRecord:
    """With the names that the replacements are going to have."""
    names = (
        claim_name(claim.pool, command.id, str(number)) for number, claim in enumerate(command.replacements, start=1)
    )
    return CommandRecord(
        id=command.id,
        reason=command.reason,
        method=command.method,
        deadline=deadline,
        claims=tuple(sorted(each.claim for each in command.candidates)),
        replacements=tuple(names),
    )


def written(recorded: CommandRecord) -> str:
    return msgspec.json.encode(recorded, order="deterministic").decode()


def read_record(text: str) -> CommandRecord | None:
    """None: somebody has written something else there, and there is no command to carry on."""
    if len(text) > LONGEST_RECORD:
        return None
    try:
        return msgspec.json.decode(text, type=CommandRecord)
    except (msgspec.MsgspecError, RecursionError):
        return None


def record_on(claim: objects.NodeClaim) -> CommandRecord | None:
    """The command that the claim is in; None: in none, or in none that can be read."""
    text = claim.metadata.annotations.get(names.DISRUPTION_COMMAND)
    return None if text is None else read_record(text)


def is_carried_by_all(record: CommandRecord, find: Callable[[str], objects.NodeClaim | None]) -> bool:
    """Whether every claim that the record names carries it, and there is one. `find`: a claim by its name.

    Claims that are gone or being deleted count no more: their part of the command is done.
    """
    found = [claim for claim in map(find, record.claims) if claim and claim.metadata.deletion_timestamp is None]
    return bool(found) and all(record_on(claim) == record for claim in found)


def is_replacement(claim: objects.NodeClaim, record: CommandRecord) -> bool:
    """Whether the claim was made for the command: its annotation says so, and its name follows from the command's id.

    Annotations can be edited and names cannot, so no edit turns another claim into a replacement.
    """
    pool = claim.metadata.labels.get(names.NODEPOOL_LABEL, "")
    numbers = range(1, len(record.replacements) + 1)
    is_named = claim.metadata.name in {claim_name(pool, record.id, str(number)) for number in numbers}
    return is_named and claim.metadata.annotations.get(names.REPLACEMENT_OF) == record.id
