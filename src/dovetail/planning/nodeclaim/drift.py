"""Decides whether a NodeClaim has drifted, and when to check again (02 §10).

Checks, in this order: the hash of the pool's template, the pool's requirements, whether somebody has asked for a new
node, whether the instance type is still offered, and the provider. The first three depend on objects only.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final
from zlib import crc32

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import CapacityType, ConditionReason, ConditionType
from dovetail.model.beside import asked_roll
from dovetail.planning.timings import Timings
from dovetail.scheduling.requirements import RequirementError, Requirements, of_labels, one_of, read_requirements
from dovetail.values.duration import SECOND, add

_HASHES: Final = 2**32
_NEAR_SECONDS: Final = 1.0


class Drift(msgspec.Struct, frozen=True):
    """Why the claim has drifted (empty: it has not), and when to check again; None: only an edit changes it."""

    reason: str
    until: datetime | None = None


# -- checks of objects -------------------------------------------------------------------------------------------------


def drift_by_objects(claim: objects.NodeClaim, pool: objects.NodePool) -> Drift | None:
    """Returns None if the provider has to be asked."""
    if _true_reason(claim, ConditionType.LAUNCHED) is None:
        return Drift("")
    if _has_other_hash(claim, pool):
        return Drift(ConditionReason.NODEPOOL_DRIFTED)
    if _breaks_requirements(claim.metadata.labels, pool.spec.template.spec.requirements):
        return Drift(ConditionReason.REQUIREMENTS_DRIFTED)
    if asked_roll(claim.metadata.annotations.get(names.ROLLED)) is not None:
        return Drift(ConditionReason.ROLL_REQUESTED)
    return None


def _has_other_hash(claim: objects.NodeClaim, pool: objects.NodePool) -> bool:
    ours, theirs = _hash_of(claim.metadata), _hash_of(pool.metadata)
    if ours is None or theirs is None:
        return False
    if ours[0] != theirs[0]:
        # Hashes of different versions cannot be compared. The condition stays as it is until both have the same version
        # (02 §14.57).
        return _true_reason(claim, ConditionType.DRIFTED) == ConditionReason.NODEPOOL_DRIFTED
    return ours[1] != theirs[1]


def _hash_of(meta: objects.ObjectMeta) -> tuple[str, str] | None:
    version, hashed = (meta.annotations.get(key) for key in (names.NODEPOOL_HASH_VERSION, names.NODEPOOL_HASH))
    return None if version is None or hashed is None else (version, hashed)


def _breaks_requirements(labels: Mapping[str, str], entries: Iterable[objects.NodeSelectorRequirement]) -> bool:
    """A missing label breaks a requirement, also a well-known label."""
    try:
        wanted = read_requirements(entries)
    except RequirementError:  # ValidationSucceeded of the pool reports it; a mistake replaces nothing (R32)
        return False
    return not of_labels(labels).compatible(wanted)


def _true_reason(claim: objects.NodeClaim, condition: ConditionType) -> str | None:
    """The reason of the condition, if it is True."""
    return next(
        (entry.reason for entry in claim.status.conditions if (entry.type, entry.status) == (condition, "True")), None
    )


# -- checks of the provider --------------------------------------------------------------------------------------------


def drift_by_provider(
    claim: objects.NodeClaim, *, offered: bool, reason: str, now: datetime, timings: Timings
) -> Drift:
    """`reason`: why the provider considers the claim drifted; empty if it does not."""
    ahead = [_next_look_at(claim.metadata.uid, now, timings.drift_seconds), type_check_at(claim, None, timings)]
    until = min(at for at in ahead if at is not None and at > now)
    return Drift(reason if offered else ConditionReason.INSTANCE_TYPE_NOT_FOUND, until)


def type_check_at(claim: objects.NodeClaim, offered_at: datetime | None, timings: Timings) -> datetime | None:
    """When to check whether the instance type is still offered; `offered_at`: the last success. None: never."""
    created_at = claim.metadata.creation_timestamp
    old_at = None if created_at is None else add(created_at, round(timings.type_check_age_seconds * SECOND))
    if old_at is None or offered_at is None:
        return old_at
    return max(old_at, offered_at + timedelta(seconds=timings.type_check_seconds))


def is_offered(labels: Mapping[str, str], offerings: Iterable[Requirements]) -> bool:
    """Whether an offering of the type, available or not, matches the claim.

    A claim whose reservation has ended continues as on-demand.
    """
    had = of_labels(labels)
    if labels.get(names.CAPACITY_TYPE_LABEL) == CapacityType.RESERVED:
        either = one_of(names.CAPACITY_TYPE_LABEL, (CapacityType.RESERVED, CapacityType.ON_DEMAND))
        had = had.without(names.CAPACITY_TYPE_LABEL).add(either)
    return any(had.intersects(offering) for offering in offerings)


def _next_look_at(uid: str, now: datetime, every_seconds: float) -> datetime:
    """Each claim has its own moment within the period, so that checks are spread out."""
    moment_seconds = crc32(uid.encode()) / _HASHES * every_seconds
    ahead_seconds = every_seconds - (now.timestamp() - moment_seconds) % every_seconds
    # A moment that is so near is the one of this check.
    return now + timedelta(seconds=ahead_seconds if ahead_seconds >= _NEAR_SECONDS else ahead_seconds + every_seconds)
