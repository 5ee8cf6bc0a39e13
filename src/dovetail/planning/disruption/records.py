"""The record of a command on its NodeClaims, from which a new leader continues it (R24).

Everybody who may edit NodeClaims can write such a record. It counts only if every claim that it names carries the
identical record (R54), and the nodes are drained only if the rules allow it (R50).
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, Reason
from dovetail.api.objects import is_true
from dovetail.planning.disruption.board import Method
from dovetail.planning.disruption.commands import Command
from dovetail.planning.provisioning.claims import claim_name
from dovetail.values import limits


class CommandRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The value of the annotation. The claims are deleted once all replacements are initialized by the deadline.

    `claims`: the names of the claims of the command, each of which carries the record.
    """

    id: Annotated[str, msgspec.Meta(min_length=1)]
    reason: Reason
    method: Method
    deadline: objects.Instant
    claims: tuple[str, ...] = ()
    replacements: tuple[str, ...] = ()
    waves: tuple[tuple[str, ...], ...] = ()  # UIDs of pods that are evicted before the others


def record_of(command: Command, deadline: datetime) -> CommandRecord:
    """Chooses the names of the replacements."""
    replacements = enumerate(command.replacements, start=1)
    return CommandRecord(
        id=command.id,
        reason=command.reason,
        method=command.method,
        deadline=deadline,
        claims=tuple(sorted(candidate.claim for candidate in command.candidates)),
        replacements=tuple(claim_name(claim.pool, command.id, str(number)) for number, claim in replacements),
        waves=command.waves,
    )


def written(recorded: CommandRecord) -> str:
    return msgspec.json.encode(recorded, order="deterministic").decode()


def read_record(text: str) -> CommandRecord | None:
    """Returns None for any other text."""
    if len(text) > limits.COMMAND:
        return None
    try:
        return msgspec.json.decode(text, type=CommandRecord)
    except (msgspec.MsgspecError, RecursionError):
        return None


def record_on(claim: objects.NodeClaim) -> CommandRecord | None:
    """The record on the claim, if it has one that can be read."""
    text = claim.metadata.annotations.get(names.DISRUPTION_COMMAND)
    return None if text is None else read_record(text)


def is_carried_by_all(record: CommandRecord, find: Callable[[str], objects.NodeClaim | None]) -> bool:
    """Whether all claims that the record names carry it. `find`: returns a claim by name.

    Claims that are gone or being deleted do not count; at least one must be left.
    """
    claims = [claim for claim in map(find, record.claims) if claim and claim.metadata.deletion_timestamp is None]
    return bool(claims) and all(record_on(claim) == record for claim in claims)


def is_replacement(claim: objects.NodeClaim, record: CommandRecord) -> bool:
    """Whether the claim was created for the command, by its annotation and its name.

    Names cannot be edited, so no edit turns another claim into a replacement.
    """
    pool = claim.metadata.labels.get(names.NODEPOOL_LABEL, "")
    numbers = range(1, len(record.replacements) + 1)
    is_named = claim.metadata.name in {claim_name(pool, record.id, str(number)) for number in numbers}
    return is_named and claim.metadata.annotations.get(names.REPLACEMENT_OF) == record.id


def uninitialized_replacement_of(claim: objects.NodeClaim) -> str:
    """The id of the command that an uninitialized claim was created for; empty if it is being deleted."""
    if claim.metadata.deletion_timestamp is not None or is_true(claim, ConditionType.INITIALIZED):
        return ""
    return claim.metadata.annotations.get(names.REPLACEMENT_OF, "")


def failed_replacements(claims: Iterable[objects.NodeClaim]) -> list[objects.NodeClaim]:
    """Uninitialized replacements of commands that are not under way (R52)."""
    every = list(claims)
    under_way = {record.id for claim in every if (record := record_on(claim)) is not None}
    return [claim for claim in every if (of := uninitialized_replacement_of(claim)) and of not in under_way]
