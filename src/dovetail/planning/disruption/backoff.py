"""Backs off workloads whose consolidation saved nothing.

kube-scheduler places evicted pods, and it may fill the planned node with smaller ones first. A larger pod then needs a
new node, which is soon underutilized, and the circle starts again. After such a command the workload is not moved for a
while; the delay doubles each time. The state is only in memory: after a restart the worst case is one more attempt.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import msgspec

from dovetail.model.pod_records import PodRecord
from dovetail.model.refs import Redactable, Sentence
from dovetail.planning.disruption.board import Candidate
from dovetail.planning.disruption.commands import Command
from dovetail.rules.nodes import CONSOLIDATION
from dovetail.scheduling.placement import PodInfo
from dovetail.values.timestamp import spoken_time

FIRST_PAUSE: Final = timedelta(seconds=20)  # doubles each time
LONGEST_PAUSE: Final = timedelta(days=1)
# Replacements start, and pods are evicted and placed, within this time.
WATCHED: Final = timedelta(minutes=15)
# Another failure within this time plus twice the pause after its end doubles the pause.
REMEMBERED: Final = timedelta(minutes=30)

# Pods from one template: the pod that replaces an evicted one has another name.
WorkloadKey: TypeAlias = tuple[str, frozenset[tuple[str, str]]]


class BackoffEntry(msgspec.Struct, frozen=True):
    """A back-off. After `again_after` it is forgotten."""

    times: int
    until: datetime
    again_after: datetime


def workload_key(pod: PodInfo | PodRecord) -> WorkloadKey:
    return pod.namespace, frozenset(pod.labels.items())


class ConsolidationBackoff:
    def __init__(self) -> None:
        self._watched: dict[
            WorkloadKey, datetime
        ] = {}  # the end of the time in which a pending pod counts as a failure
        self._left_alone: dict[WorkloadKey, BackoffEntry] = {}

    def on_command_started(self, command: Command, now: datetime) -> None:
        """Watches the pods of a consolidation command from now on."""
        self._watched = {kind: until for kind, until in self._watched.items() if until > now}
        self._left_alone = {kind: left for kind, left in self._left_alone.items() if left.again_after > now}
        if command.reason in CONSOLIDATION:
            self._watched |= {
                workload_key(pod): now + WATCHED for candidate in command.candidates for pod in candidate.pods
            }

    def on_pod_changed(self, pod: PodRecord, now: datetime) -> None:
        """A pending pod of a watched workload starts its back-off."""
        if not (self._watched and pod.provisionable):
            return
        kind = workload_key(pod)
        if self._watched.pop(kind, now) <= now:
            return
        before = self._left_alone.get(kind)
        times = 1 if before is None or before.again_after <= now else before.times + 1
        pause = min(FIRST_PAUSE * 2 ** min(times - 1, 20), LONGEST_PAUSE)
        self._left_alone[kind] = BackoffEntry(times, now + pause, now + 3 * pause + REMEMBERED)

    def active(self, now: datetime) -> dict[WorkloadKey, datetime]:
        """The workloads in back-off, and when it ends."""
        return {kind: left.until for kind, left in self._left_alone.items() if left.until > now}


def left_alone(candidate: Candidate, undone: Mapping[WorkloadKey, datetime]) -> Candidate:
    """Makes a candidate with pods in back-off unmovable."""
    pods = [
        (until, pod.ref.path, pod.ref) for pod in candidate.pods if (until := undone.get(workload_key(pod))) is not None
    ]
    if not pods:
        return candidate
    until, path, ref = max(pods, key=lambda entry: entry[:2])
    vain = f" were moved in vain, because they needed a new node; it stays until {spoken_time(until)}"
    why = Sentence("pods like ", Redactable(ref, path), vain)
    return msgspec.structs.replace(candidate, unmovable=(*candidate.unmovable, why))
