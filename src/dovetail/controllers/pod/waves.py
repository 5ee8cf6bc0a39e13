"""Evicts the pods of a command in waves: some find room only if they arrive before the others (R55).

The next wave begins when the successors of the last one are bound. The waves are in the record of the command, so a new
leader continues with them. Only memory has the number of pods of each workload: after a restart, pods that are gone
count as landed, and the successors of pods that are terminating are waited for. Waves end after some minutes in any
case, and never delay deletions for a deadline (R17). A node that is deleted before its replacements are there, as for
`expireAfter`, is drained without waves.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.api import objects
from dovetail.api.names import ConditionType
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.pod_records import Owner, PodRecord
from dovetail.planning.disruption.backoff import WorkloadKey, workload_key
from dovetail.planning.disruption.records import CommandRecord, record_on
from dovetail.planning.node.drain import NOT_HELD, EvictionTurn
from dovetail.state.store import Added, Change, Deleted, Updated

LONGEST: Final = timedelta(minutes=10)  # all waves of a command together
# A workload may have become smaller. Then not all pods have a successor, and the next wave begins so long after the end
# of the last pod.
WITHOUT_SUCCESSOR: Final = timedelta(seconds=60)


class _Progress(msgspec.Struct, kw_only=True):
    """How far the waves of a command have come."""

    record: CommandRecord
    ends_at: datetime
    kinds: dict[str, WorkloadKey]  # by pod UID
    expected: dict[WorkloadKey, int]  # bound pods before the first eviction
    turn: int = 0
    gone_at: datetime | None = None  # when the last pod of the wave was gone


class EvictionWaves:
    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self._commands: dict[str, _Progress] = {}
        self._bound: Counter[WorkloadKey] = Counter()  # of workloads in waves: bound pods that stay
        self._present: dict[str, bool] = {}  # by UID of a pod in waves: whether it is terminating
        cluster.pods.subscribe(self._changed)

    def of(self, claim: objects.NodeClaim | None, now: datetime) -> EvictionTurn:
        """The pods of the claim's node that have to wait."""
        record = None if claim is None else record_on(claim)
        if record is None or not record.waves or not all(map(self._is_initialized, record.replacements)):
            return NOT_HELD
        progress = self._commands.get(record.id) or self._begin(record, now)
        while progress.turn < len(record.waves) and self._is_over(progress, now):
            progress.turn, progress.gone_at = progress.turn + 1, None
        if progress.turn >= len(record.waves):
            return NOT_HELD
        until = progress.ends_at
        if progress.gone_at is not None:
            until = min(until, progress.gone_at + WITHOUT_SUCCESSOR)
        return EvictionTurn(frozenset(uid for wave in record.waves[: progress.turn + 1] for uid in wave), until)

    def _is_initialized(self, claim: str) -> bool:
        claim_object = self._cluster.claims.value(claim)
        return claim_object is not None and objects.is_true(claim_object, ConditionType.INITIALIZED)

    def nodes_waiting_for(self, pod: PodRecord) -> list[str]:
        """The nodes whose drains may continue because of the pod."""
        if not self._commands:
            return []
        kind = workload_key(pod)
        records = (progress.record for progress in self._commands.values() if kind in progress.expected)
        claims = (self._cluster.claims.value(name) for record in records for name in record.claims)
        return [node for claim in claims if claim is not None for node in self._cluster.node_names(claim)]

    def _begin(self, record: CommandRecord, now: datetime) -> _Progress:
        self._forget()
        listed = {uid for wave in record.waves for uid in wave}
        # A drain evicts critical pods last: nothing waits for a wave of theirs.
        pods = (pod for pod in self._pods_of(record) if pod.uid in listed and not pod.critical)
        kinds = {pod.uid: workload_key(pod) for pod in pods}
        new = set(kinds.values()) - self._bound.keys()
        self._bound.update(dict.fromkeys(new, 0))
        for pod in self._cluster.pods.values():
            if pod.uid in kinds:
                self._present[pod.uid] = pod.deleted_at is not None
            if new and _stays(pod) and (kind := workload_key(pod)) in new:
                self._bound[kind] += 1
        owed = self._owed(kinds)
        expected = {kind: self._bound[kind] + owed[kind] for kind in sorted(set(kinds.values()), key=str)}
        progress = _Progress(record=record, ends_at=now + LONGEST, kinds=kinds, expected=expected)
        self._commands[record.id] = progress
        return progress

    def _owed(self, kinds: Mapping[str, WorkloadKey]) -> Counter[WorkloadKey]:
        """After a restart: the successors of evicted pods that are not bound yet.

        That of a pod of a StatefulSet comes when the pod is gone; others are there, pending.
        """
        evicted = {kinds[uid] for uid in kinds if self._present[uid]}
        owed = Counter[WorkloadKey]()
        for pod in self._cluster.pods.values() if evicted else ():
            ends_first = bool(pod.owner & Owner.STATEFULSET) and self._present.get(pod.uid, False)
            pending = pod.active and not pod.node_name
            if (ends_first or pending) and (kind := workload_key(pod)) in evicted:
                owed[kind] += 1
        return owed

    def _pods_of(self, record: CommandRecord) -> Iterable[PodRecord]:
        claims = filter(None, map(self._cluster.claims.value, record.claims))
        nodes = (node for claim in claims for node in self._cluster.node_names(claim))
        return (pod for node in nodes for pod in self._cluster.pods_on[node])

    def _forget(self) -> None:
        """Forgets commands whose claims are gone."""
        claims = self._cluster.claims
        self._commands = {
            id_: progress for id_, progress in self._commands.items() if any(map(claims.value, progress.record.claims))
        }
        kinds = {kind for progress in self._commands.values() for kind in progress.expected}
        uids = {uid for progress in self._commands.values() for uid in progress.kinds}
        self._bound = Counter({kind: number for kind, number in self._bound.items() if kind in kinds})
        self._present = {uid: going for uid, going in self._present.items() if uid in uids}

    def _is_over(self, progress: _Progress, now: datetime) -> bool:
        wave = [uid for uid in progress.record.waves[progress.turn] if uid in progress.kinds]
        if now >= progress.ends_at:
            return True
        if any(self._present.get(uid) is False for uid in wave):  # not evicted yet
            return False
        if all(self._bound[kind] >= progress.expected[kind] for kind in {progress.kinds[uid] for uid in wave}):
            return True
        if any(uid in self._present for uid in wave):
            return False
        progress.gone_at = progress.gone_at or now
        return now >= progress.gone_at + WITHOUT_SUCCESSOR

    def _changed(self, change: Change[PodRecord]) -> None:
        if not self._commands:
            return
        match change:
            case Added(new=new):
                self._count(new.value, 1)
            case Updated(old=old, new=new):
                self._count(old.value, -1)
                self._count(new.value, 1)
            case Deleted(old=old):
                self._count(old.value, -1)
                self._present.pop(old.value.uid, None)
            case _:
                pass

    def _count(self, pod: PodRecord, number: int) -> None:
        if number > 0 and pod.uid in self._present:
            self._present[pod.uid] = pod.deleted_at is not None
        if _stays(pod) and (kind := workload_key(pod)) in self._bound:
            self._bound[kind] += number


def _stays(pod: PodRecord) -> bool:
    return bool(pod.node_name) and pod.active
