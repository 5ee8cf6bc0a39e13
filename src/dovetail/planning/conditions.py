"""Sets and clears the conditions of an object (01 §5.3).

Timeouts and dashboards read `lastTransitionTime` and `observedGeneration`, so both follow upstream exactly.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from dovetail.api.names import ConditionReason, ConditionType
from dovetail.api.objects import Condition as Entry
from dovetail.api.objects import NodeClaim, NodePool
from dovetail.values.timestamp import format_time

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
ROOT = ConditionType.READY
_DEPENDENTS: dict[type[NodeClaim] | type[NodePool], tuple[ConditionType, ...]] = {
    NodeClaim: (ConditionType.LAUNCHED, ConditionType.REGISTERED, ConditionType.INITIALIZED),
    NodePool: (ConditionType.VALIDATION_SUCCEEDED, ConditionType.NODECLASS_READY),
}
_AWAITING = "object is awaiting reconciliation"


class Conditions:
    """The conditions of one NodeClaim or NodePool. They are written back as a whole."""

    def __init__(self, of: NodeClaim | NodePool, now: datetime) -> None:
        self._now = now.replace(microsecond=0)  # the resolution of the API
        self._created_at = of.metadata.creation_timestamp or self._now
        self._generation = of.metadata.generation
        self._deleting = of.metadata.deletion_timestamp is not None
        self._dependents = _DEPENDENTS[type(of)]
        self._stored = of.status.conditions
        self._entries = {entry.type: entry for entry in of.status.conditions}
        for missing in (name for name in self._dependents if name not in self._entries):
            self._entries[missing] = self._new(missing, UNKNOWN, ConditionReason.AWAITING_RECONCILIATION, _AWAITING)
        if ROOT not in self._entries:
            self._recompute_root()

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, name: ConditionType) -> Entry | None:
        return self._entries.get(name)

    def status(self, name: ConditionType) -> str:
        """Unknown if the condition is missing."""
        entry = self._entries.get(name)
        return UNKNOWN if entry is None else entry.status

    def is_true(self, name: ConditionType) -> bool:
        return self.status(name) == TRUE

    def since(self, name: ConditionType) -> datetime | None:
        """When its status last changed."""
        entry = self._entries.get(name)
        return None if entry is None else entry.last_transition_time

    # -- changing -----------------------------------------------------------------------------------------------------

    def set(self, name: ConditionType, status: str = TRUE, reason: str = "", message: str = "") -> None:
        """Sets a condition and updates the root. True needs no reason."""
        assert name != ROOT, "the root is derived"
        entry = self._new(name, status, reason or name, message)
        if entry != self._entries.get(name):
            self._entries[name] = entry
        if self._deleting:  # a deletion increments the generation, so that all others would look outdated (03 §2)
            self._refresh(self._entries)
        self._recompute_root()

    def clear(self, name: ConditionType) -> None:
        """Removes a condition that the root does not depend on."""
        assert name not in (ROOT, *self._dependents), name
        self._entries.pop(name, None)

    def set_or_clear(self, name: ConditionType, wanted: bool, reason: str = "", message: str = "") -> None:
        """Sets the condition to True if it is wanted, else removes it."""
        if wanted:
            self.set(name, TRUE, reason, message)
        else:
            self.clear(name)

    def refresh(self) -> None:
        """Marks the dependents as observed at the current generation (03 §7.3)."""
        self._refresh(self._dependents)
        self._recompute_root()

    def _refresh(self, which: Iterable[str]) -> None:
        for name in which:
            entry = self._entries[name]
            self._entries[name] = msgspec.structs.replace(entry, observed_generation=self._generation)

    def _new(self, name: ConditionType, status: str, reason: str, message: str) -> Entry:
        before = self._entries.get(name)
        if before is not None and before.status == status and before.last_transition_time is not None:
            since = before.last_transition_time
        elif before is None and name in self._dependents:
            since = self._created_at
        else:
            since = self._now
        return Entry(
            type=name,
            status=status,
            reason=reason,
            message=message,
            last_transition_time=since,
            observed_generation=self._generation,
        )

    def _recompute_root(self) -> None:
        entries = [self._entries[name] for name in self._dependents]
        current = [entry for entry in entries if entry.observed_generation == self._generation]
        if len(current) == len(entries) and all(entry.status == TRUE for entry in entries):
            self._entries[ROOT] = self._new(ROOT, TRUE, ROOT, "")
            return
        failed = [entry for entry in current if entry.status == FALSE]
        waiting = [entry for entry in entries if entry.status != TRUE or entry not in current]
        status, reason = UNKNOWN, ConditionReason.RECONCILING_DEPENDENTS
        if failed:
            status, reason = FALSE, ConditionReason.UNHEALTHY_DEPENDENTS
        newest_first = sorted(failed or waiting, key=_since, reverse=True)
        message = ", ".join(f"{entry.type}={entry.status}" for entry in newest_first)
        self._entries[ROOT] = self._new(ROOT, status, reason, message)

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Another order is no change: beside Karpenter, each would write its own for ever."""
        return sorted(self._stored, key=_type) != sorted(self._entries.values(), key=_type)

    def entries(self) -> list[Entry]:
        """Oldest transition first, the root last."""
        root = self._entries[ROOT]
        others = [entry for entry in self._entries.values() if entry is not root]
        return [*sorted(others, key=_since), root]

    def body(self) -> list[dict[str, Any]]:
        """For the API, with all fields: upstream's CRDs require reason and message."""
        return [
            {
                "type": entry.type,
                "status": entry.status,
                "reason": entry.reason,
                "message": entry.message,
                "lastTransitionTime": entry.last_transition_time and format_time(entry.last_transition_time),
                "observedGeneration": entry.observed_generation,
            }
            for entry in self.entries()
        ]


def _type(entry: Entry) -> str:
    return entry.type


def _since(entry: Entry) -> float:
    return entry.last_transition_time.timestamp() if entry.last_transition_time is not None else 0.0
