"""Pod events of a node, and whether the last one is long enough ago for consolidation (02 §10)."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from dovetail.api.names import ConditionType
from dovetail.model.node_records import ClaimRecord
from dovetail.model.pod_records import Owner, PodRecord
from dovetail.model.pool_records import PoolRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.timings import Timings
from dovetail.rules.nodes import consolidate_after
from dovetail.values.duration import SECOND, add


class ConsolidatableStatus(msgspec.Struct, frozen=True):
    """Whether the condition is True (else it is removed), and when time alone changes that; None: never."""

    holds: bool
    until: datetime | None


def consolidatable(
    claim: ClaimRecord, pool: PoolRecord, now: datetime, *, event_at: datetime | None = None
) -> ConsolidatableStatus | None:
    """`event_at`: a pod event that is not recorded yet. Returns None for claims of pools with replicas."""
    if pool.replicas is not None:
        return None
    if not claim.is_true(ConditionType.INITIALIZED):
        return ConsolidatableStatus(holds=False, until=None)
    if event_at is not None:
        claim = msgspec.structs.replace(claim, last_pod_event_at=event_at)
    verdict = consolidate_after(ClusterNode(claim=claim, node=None), pool, now)
    return ConsolidatableStatus(holds=verdict.allowed, until=verdict.until)


# -- pod events --------------------------------------------------------------------------------------------------------


def is_pod_event(old: PodRecord | None, new: PodRecord) -> bool:
    """Whether the pod was bound, became terminal or began to terminate. `old` None: seen for the first time.

    The deletion of the object is no event: the pod was terminal or terminating before.
    """
    if not new.node_name or _is_daemon(new):
        return False
    if old is None or not old.node_name:
        return True
    return (new.terminal and not old.terminal) or (new.deleted_at is not None and old.deleted_at is None)


def unrecorded_event(
    claim: ClaimRecord, pods: Iterable[PodRecord], seen_at: datetime | None, now: datetime
) -> datetime | None:
    """The last pod event, to the second, if it is later than the recorded one.

    `seen_at`: when the controller last saw an event. Of events that it missed only bindings are known: they count if
    they are later than the last event or the initialization (R24). Times in the future do not count.
    """
    recorded_at = claim.last_pod_event_at
    quiet_since = recorded_at or claim.true_since(ConditionType.INITIALIZED)
    came = [at for pod in pods if not _is_daemon(pod) and (at := bound_at(pod)) is not None and at <= now]
    events = [at for at in came if quiet_since is None or at > quiet_since]
    if seen_at is not None:
        events.append(seen_at)
    last_at = max(events, default=None)
    if last_at is None:
        return None
    last_at = last_at.replace(microsecond=0)  # the resolution of the field
    return last_at if recorded_at is None or last_at > recorded_at else None


def recordable_at(claim: ClaimRecord, wrote_at: datetime | None, timings: Timings) -> datetime | None:
    """When the next event may be recorded; None: now. `wrote_at`: when the last one was."""
    last_at = max((at for at in (claim.last_pod_event_at, wrote_at) if at is not None), default=None)
    return None if last_at is None else add(last_at, round(timings.pod_event_seconds * SECOND))


def bound_at(pod: PodRecord) -> datetime | None:
    """When the pod was bound, or else when it was created."""
    return pod.scheduled_at or pod.created_at


def _is_daemon(pod: PodRecord) -> bool:
    return bool(pod.owner & Owner.DAEMONSET)
