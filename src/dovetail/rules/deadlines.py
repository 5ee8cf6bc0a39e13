"""Expiration of nodes, deadlines of drains, and deletion of pods for these deadlines (R15–R20)."""

from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from dovetail.model.node_records import ClaimRecord
from dovetail.model.pod_records import PodRecord
from dovetail.model.pool_records import PoolRecord
from dovetail.rules.verdict import Verdict, judge
from dovetail.values.duration import add
from dovetail.values.schedule.instants import ALWAYS, any_of, since
from dovetail.values.timestamp import TimeError, parse_time, spoken_time

# A pod object must not vanish before its process (R17).
LEAST_GRACE_SECONDS = 1


def expires_at(claim: ClaimRecord) -> datetime | None:
    """When the claim is deleted, whatever budgets say (R19). None: never, or not created yet."""
    if claim.created_at is None or claim.expire_after_ns is None:
        return None
    return add(claim.created_at, claim.expire_after_ns)


def gracefully_expires_at(claim: ClaimRecord, pool: PoolRecord | None) -> datetime | None:
    """When the claim becomes a candidate with reason Expired, under budgets (R20)."""
    if claim.created_at is None or pool is None or pool.graceful_expire_after_ns is None:
        return None
    return add(claim.created_at, pool.graceful_expire_after_ns)


def node_deadline(claim: ClaimRecord) -> datetime | None:
    """When a drain is forced to its end (R15).

    The recorded timestamp wins over the computed one, unless it cannot be read (03 §10.13).
    """
    if claim.deleted_at is None:
        return None
    if claim.termination_timestamp is not None:
        with suppress(TimeError):
            return parse_time(claim.termination_timestamp)
    return None if claim.grace_period_ns is None else add(claim.deleted_at, claim.grace_period_ns)


class ForcedDeletion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When a remaining pod is deleted for its node's deadline, and with which grace."""

    pod: PodRecord
    at: datetime
    grace_seconds: int
    deadline: datetime


def forced_deletion(pod: PodRecord, deadline: datetime, now: datetime) -> ForcedDeletion | None:
    """At the deadline minus the pod's own grace, or now if that has passed (R17).

    None for a pod that will be gone by the deadline anyway. A terminating pod is deleted again only if its grace ends
    after the deadline and the second deletion shortens it.
    """
    if pod.terminal:
        return None
    if pod.deleted_at is not None:
        if pod.deleted_at <= deadline or pod.deleted_at - now <= timedelta(seconds=LEAST_GRACE_SECONDS):
            return None
        return _deletion(pod, now, deadline)
    try:
        at = max(now, deadline - timedelta(seconds=pod.grace_seconds))
    except OverflowError:  # a grace of centuries
        at = now
    return _deletion(pod, at, deadline)


def _deletion(pod: PodRecord, at: datetime, deadline: datetime) -> ForcedDeletion:
    grace_seconds = deletion_grace_seconds(pod, deadline, at)
    return ForcedDeletion(pod=pod, at=at, grace_seconds=grace_seconds, deadline=deadline)


def until_forced(verdict: Verdict, forced: ForcedDeletion, now: datetime) -> Verdict:
    """No protection counts once the pod is deleted for its node's deadline (R13, R17)."""
    if verdict.when is ALWAYS:
        return verdict
    end = f"{verdict.message}; honoured until {spoken_time(forced.at)}, when the deadline of its node overrides it"
    when = any_of([verdict.when, since(forced.at)])
    return judge(verdict.rule, verdict.object, when, now, allowed=end, blocked=end)


def deletion_grace_seconds(pod: PodRecord, deadline: datetime, at: datetime) -> int:
    """The pod's own grace, limited to the whole seconds left, at least 1 (R17)."""
    left = (deadline - at) // timedelta(seconds=1)
    return max(LEAST_GRACE_SECONDS, min(left, pod.grace_seconds))
