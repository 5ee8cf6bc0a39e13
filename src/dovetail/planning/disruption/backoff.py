"""Which pods were moved to save a node, and then needed a new one after all?

Where an evicted pod goes is the scheduler's choice. It may put a small pod where a large one was planned, which then
gets a node of its own, and that node is soon spared again: so it would go round, and nothing would be saved. Pods whose
move came to nothing are therefore left where they are for a while, longer each time, until others have changed the
picture. Only memory knows: at worst a restart tries once more.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import msgspec

from dovetail.model.records import PodRecord
from dovetail.model.refs import Redactable, Sentence
from dovetail.planning.disruption.board import Candidate
from dovetail.planning.disruption.commands import Command
from dovetail.rules.nodes import CONSOLIDATION
from dovetail.scheduling.placement import PodInfo
from dovetail.values.timestamp import format_time

FIRST_PAUSE: Final = timedelta(seconds=20)  # it doubles each time
LONGEST_PAUSE: Final = timedelta(days=1)
# Replacements come up, and pods are evicted and placed, within this.
WATCHED: Final = timedelta(minutes=15)
# So long after the end of a pause, and as long as it was twice, another vain move is one more of the same.
REMEMBERED: Final = timedelta(minutes=30)

# Pods that their owner makes from one template are not told apart: the one that comes back has another name.
WorkloadKey: TypeAlias = tuple[str, frozenset[tuple[str, str]]]


class BackoffEntry(msgspec.Struct, frozen=True):
    """`again_after` it is forgotten that it was ever undone."""

    times: int
    until: datetime
    again_after: datetime


def _kind(pod: PodInfo | PodRecord) -> WorkloadKey:
    return pod.namespace, frozenset(pod.labels.items())


class ConsolidationBackoff:
    """See the module."""

    def __init__(self) -> None:
        self._watched: dict[WorkloadKey, datetime] = {}  # until when
        self._left_alone: dict[WorkloadKey, BackoffEntry] = {}

    def moved(self, command: Command, now: datetime) -> None:
        """From now on these pods are watched, if it is to save something that they move."""
        self._watched = {kind: until for kind, until in self._watched.items() if until > now}
        self._left_alone = {kind: left for kind, left in self._left_alone.items() if left.again_after > now}
        if command.reason in CONSOLIDATION:
            self._watched |= {_kind(pod): now + WATCHED for each in command.candidates for pod in each.pods}

    def saw(self, pod: PodRecord, now: datetime) -> None:
        """One that waits for a new node is one too many, if such pods have just been moved."""
        if not (self._watched and pod.provisionable):
            return
        kind = _kind(pod)
        if self._watched.pop(kind, now) <= now:
            return
        before = self._left_alone.get(kind)
        times = 1 if before is None or before.again_after <= now else before.times + 1
        pause = min(FIRST_PAUSE * 2 ** min(times - 1, 20), LONGEST_PAUSE)
        self._left_alone[kind] = BackoffEntry(times, now + pause, now + 3 * pause + REMEMBERED)

    def at(self, now: datetime) -> dict[WorkloadKey, datetime]:
        """Pods that are not to be moved now to save something, and until when."""
        return {kind: left.until for kind, left in self._left_alone.items() if left.until > now}


def left_alone(candidate: Candidate, undone: Mapping[WorkloadKey, datetime]) -> Candidate:
    """A node with such pods cannot be consolidated yet, and says so."""
    pods = [(until, pod.ref.path, pod.ref) for pod in candidate.pods if (until := undone.get(_kind(pod))) is not None]
    if not pods:
        return candidate
    until, path, ref = max(pods, key=lambda each: each[:2])
    vain = f" were moved in vain, as they needed a new node; again from {format_time(until)}"
    why = Sentence("pods like ", Redactable(ref, path), vain)
    return msgspec.structs.replace(candidate, unmovable=(*candidate.unmovable, why))
