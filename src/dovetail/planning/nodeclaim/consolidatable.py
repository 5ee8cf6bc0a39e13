"""When did pods last come to a node or leave it, and has it been quiet for long enough to be consolidated (02 §10)?"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from dovetail.api.names import ConditionType
from dovetail.model.records import ClaimRecord, Owner, PodRecord, PoolRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.timings import Timings
from dovetail.rules.nodes import consolidate_after
from dovetail.values.duration import SECOND, add


class ConsolidatableStatus(msgspec.Struct, frozen=True):
    """Whether the condition is to be True (else it goes), and when time alone changes that; None: never."""

    holds: bool
    until: datetime | None


def consolidatable(
    claim: ClaimRecord, pool: PoolRecord, now: datetime, *, event_at: datetime | None = None
) -> ConsolidatableStatus | None:
    """`event_at`: a pod event that the claim does not record yet. None: the condition is not for such claims."""
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
    """Whether a pod has come to its node, or has begun or ended to leave it. `old` None: seen for the first time.

    That a pod's object is gone is none: it was terminal or terminating before.
    """
    if not new.node_name or _is_daemon(new):
        return False
    if old is None or not old.node_name:
        return True
    return (new.terminal and not old.terminal) or (new.deleted_at is not None and old.deleted_at is None)


def unrecorded_event(
    claim: ClaimRecord, pods: Iterable[PodRecord], seen_at: datetime | None, now: datetime
) -> datetime | None:
    """The last pod event, to the second, if it is later than what the claim records.

    `seen_at`: when one was last seen to happen. Of what nobody has seen only a pod's coming can be told: it counts if
    that is later than the last event, or than the initialization (R24). A time that is still to come says nothing.
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
    last_at = last_at.replace(microsecond=0)  # as coarse as the field
    return last_at if recorded_at is None or last_at > recorded_at else None


def recordable_at(claim: ClaimRecord, wrote_at: datetime | None, timings: Timings) -> datetime | None:
    """From when on the next event may be recorded; None: at once. `wrote_at`: when the last one was."""
    last_at = max((at for at in (claim.last_pod_event_at, wrote_at) if at is not None), default=None)
    return None if last_at is None else add(last_at, round(timings.pod_event_seconds * SECOND))


def bound_at(pod: PodRecord) -> datetime | None:
    """When the pod came to its node; for one that does not say, when it was made."""
    return pod.scheduled_at or pod.created_at


def _is_daemon(pod: PodRecord) -> bool:
    return bool(pod.owner & Owner.DAEMONSET)
