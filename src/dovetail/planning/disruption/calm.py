"""Holds consolidation back for a while after pods of a quiet NodePool have changed (ADR-0037).

When a workload becomes smaller, the nodes that its pods leave are candidates only after `consolidateAfter`. Until then
other nodes would go, and their many pods would fill those few. So the first change after a quiet time holds the pool
back for `consolidateAfter`, once: a pool that is never quiet is not waited for. What the pool's own commands change
does not count.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

import msgspec

from dovetail.model.refs import Sentence
from dovetail.planning.disruption.board import Candidate
from dovetail.values.duration import add
from dovetail.values.timestamp import format_time


class CalmPools:
    """Remembers which pools were quiet. Used by one thread at a time."""

    def __init__(self) -> None:
        self._quiet: set[str] = set()
        self._held_until: dict[str, datetime] = {}

    def held(
        self, pools: Mapping[str, int], changing: Collection[str], busy: Collection[str], now: datetime
    ) -> dict[str, datetime]:
        """The pools that are held back now, and until when.

        `pools`: with their `consolidateAfter` in nanoseconds. `changing`: with nodes on which it runs. `busy`: with
        commands under way.
        """
        began = self._quiet.intersection(changing).difference(busy)
        self._quiet = pools.keys() - set(changing)
        ends = {name: add(now, pools[name]) for name in began if name in pools}
        self._held_until |= {name: end for name, end in ends.items() if end is not None}
        kept = {name: end for name, end in self._held_until.items() if now < end and name not in self._quiet}
        self._held_until = {name: end for name, end in kept.items() if name in pools}
        return dict(self._held_until)


def until_calm(candidate: Candidate, held: Mapping[str, datetime]) -> Candidate:
    """Makes a candidate unmovable while its pool is held back."""
    if (until := held.get(candidate.pool)) is None:
        return candidate
    changed = f"pods of NodePool {candidate.pool} have changed, and the nodes that they left may be better to remove"
    why = Sentence(f"{changed}; again from {format_time(until)}")
    return msgspec.structs.replace(candidate, unmovable=(*candidate.unmovable, why))
