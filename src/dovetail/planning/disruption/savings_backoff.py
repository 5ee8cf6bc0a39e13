"""Backs off pools whose consolidation does not save what it promises (ADR-0038).

If the last commands of a pool together realised less than half of what they promised, its pods are not consolidated for
an hour. The delay doubles each time, up to a day. After a change from outside of some size the
back-off ends: commands may come out differently. Empty nodes are removed all the same. The state is only in memory.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from dovetail.model.refs import Sentence
from dovetail.planning.disruption.backoff import WorkloadKey
from dovetail.planning.disruption.board import Candidate
from dovetail.scheduling.placement import price_text
from dovetail.values.timestamp import spoken_time

FIRST_DELAY: Final = timedelta(hours=1)  # doubles each time
LONGEST_DELAY: Final = timedelta(days=1)
JUDGED: Final = 3  # commands; fewer may fail by accident
# A change from outside of this share of the pool ends its back-off.
OUTSIDE_SHARE: Final = 0.1


class SavingsBackoff(msgspec.Struct, frozen=True, kw_only=True):
    """The back-off of a pool, and the savings of the commands that it is for together, in billionths per hour."""

    times: int
    until: datetime
    promised: int
    realised: int

    def __str__(self) -> str:
        saved = f"${price_text(self.realised)} of the promised ${price_text(self.promised)} an hour"
        then = f"no pods are moved before {spoken_time(self.until)}"
        return f"the last {JUDGED} consolidations that moved pods saved {saved}; {then}"


class _Outcome(NamedTuple):
    """The savings of one command."""

    promised: int
    realised: int


class _Watch(msgspec.Struct, eq=False):
    """A pool since its last back-off began. `size`: of its pods then. `changes`: from outside since then."""

    backoff: SavingsBackoff
    size: float
    changes: dict[WorkloadKey, float] = msgspec.field(default_factory=lambda: defaultdict(float))

    @property
    def changed(self) -> float:
        """The share of the pool that has changed. Pods that come and go again are no change."""
        return sum(map(abs, self.changes.values())) / max(self.size, 1.0)


class SavingsBackoffs:
    """The back-offs by pool."""

    def __init__(self) -> None:
        self._recent: dict[str, deque[_Outcome]] = {}
        self._watched: dict[str, _Watch] = {}

    def judge(
        self, pool: str, promised: int, realised: int, now: datetime, pool_size: Callable[[str], float]
    ) -> SavingsBackoff | None:
        """Adds the outcome of a command. Returns the back-off if one begins.

        During a back-off none begins: the command was started before.
        """
        recent = self._recent.setdefault(pool, deque(maxlen=JUDGED))
        recent.append(_Outcome(promised, realised))
        watch = self._watched.get(pool)
        if len(recent) < JUDGED or (watch is not None and now < watch.backoff.until):
            return None
        sums = _Outcome(sum(outcome.promised for outcome in recent), sum(outcome.realised for outcome in recent))
        if 2 * sums.realised >= sums.promised:
            self._watched.pop(pool, None)
            return None
        times = 1 if watch is None else watch.backoff.times + 1
        delay = min(FIRST_DELAY * 2 ** min(times - 1, 10), LONGEST_DELAY)
        backoff = SavingsBackoff(times=times, until=now + delay, promised=sums.promised, realised=sums.realised)
        self._watched[pool] = _Watch(backoff, pool_size(pool))
        return backoff

    def follows(self, pool: str) -> bool:
        """Whether changes from outside matter to the pool."""
        return pool in self._watched

    def outside_change(self, pool: str, kind: WorkloadKey, size: float) -> None:
        """Pods of a workload come to the pool, or leave it if the size is negative.

        If enough has changed, the pool starts afresh: its earlier commands do not count any more.
        """
        if (watched := self._watched.get(pool)) is None:
            return
        watched.changes[kind] += size
        if watched.changed >= OUTSIDE_SHARE:
            self.forget(pool)

    def forget(self, pool: str) -> None:
        self._watched.pop(pool, None)
        self._recent.pop(pool, None)

    def active(self, now: datetime) -> dict[str, SavingsBackoff]:
        return {pool: watch.backoff for pool, watch in self._watched.items() if now < watch.backoff.until}


def without_moves(candidate: Candidate, backoffs: Mapping[str, SavingsBackoff]) -> Candidate:
    """Makes a candidate with pods unmovable if its pool is in back-off. A node without pods may go."""
    backoff = backoffs.get(candidate.pool)
    if backoff is None or not candidate.pods:
        return candidate
    why = Sentence(f"NodePool {candidate.pool}: {backoff}")
    return msgspec.structs.replace(candidate, unmovable=(*candidate.unmovable, why))
