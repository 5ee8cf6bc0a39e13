"""Warns of a dump that is much older than the instant that is asked about."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref
from dovetail.model.snapshot import Snapshot
from dovetail.values.timestamp import format_time

_OLD: Final = timedelta(days=7)


def old_dump(snapshot: Snapshot, at: datetime) -> Iterator[Finding]:
    """A problem if nothing in the dump happened within the last week. The remedy names the last known instant."""
    last_at = max((instant for instant in _instants(snapshot) if instant is not None), default=None)
    if last_at is None or at - last_at <= _OLD:
        return
    yield Finding(
        severity=Severity.WARNING,
        rule="OldDump",
        object=Ref("Node"),
        field="kind",
        message=f"nothing in the dump is younger than {format_time(last_at)}: what has happened since is not known",
        remedy=f"ask about the time at which it was taken: --at {format_time(last_at)}",
    )


def _instants(snapshot: Snapshot) -> Iterator[datetime | None]:
    for pod in snapshot.pods:
        yield pod.created_at
    for member in snapshot.nodes:
        for part in (member.node, member.claim):
            if part is not None:
                yield part.created_at
                yield part.deleted_at
        if member.claim is not None:
            yield member.claim.last_pod_event_at
            yield from (condition.last_transition_time for condition in member.claim.conditions.values())
