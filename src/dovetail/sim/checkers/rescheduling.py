"""Checks that every pod that consolidation evicts finds a node again, if nothing else happens since the decision.

Writes of others, new pods, faults and failing nodes make the check not apply.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.api.names import Reason
from dovetail.ports import NODECLAIMS, NODES, PODS, EventType
from dovetail.sim.actors import wire
from dovetail.sim.actors.wire import Raw
from dovetail.sim.checkers.checked_cluster import CheckedCluster, begins_to_go
from dovetail.sim.checkers.records import CommandTracker, record_on
from dovetail.sim.server.store import Change

RULE: Final = "rescheduled"
# Clients whose writes do not disturb the check.
_ACTORS: Final = frozenset({names.COMPONENT, "kube-controller-manager", "kube-scheduler", "kubelet", "cloud"})
_RETURNING: Final = frozenset({"ReplicaSet", "StatefulSet"})
# The longest wait of a pod for a node: the grace period of another pod, and the next pass of the scheduler.
_SETTLED: Final = timedelta(minutes=5)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class _EvictedPod(msgspec.Struct, frozen=True):
    """An evicted pod that its owner recreates."""

    pod: str
    owner: str  # UID
    at: datetime
    decided_at: datetime
    look_at: datetime


class ReschedulingChecker:
    """Checks pods some minutes after each eviction, and at the end of the run.

    The pods of one owner are interchangeable, so the check is how long each of them has waited.
    """

    def __init__(self, scene: CheckedCluster, commands: CommandTracker, faults_met: Callable[[], int]) -> None:
        self._scene = scene
        self._commands = commands
        self._faults_met = faults_met
        self._faults_known = 0
        self._disturbed_at: datetime | None = None
        self._evicted: list[_EvictedPod] = []
        self._next_look_at = _NEVER
        self._reported: set[str] = set()  # UIDs of pods
        self._owners: set[str] = set()  # of all pods that the program has taken off

    def changed(self, plural: str, change: Change) -> None:
        """Follow every write."""
        now = self._scene.now()
        if now > self._next_look_at:
            self._look([pod for pod in self._evicted if now > pod.look_at])
        if self._faults_met() != self._faults_known:
            self._faults_known, self._disturbed_at = self._faults_met(), now
        if plural == PODS.plural and self._scene.by_us and begins_to_go(change):
            self._note(change.new.body)
        elif self._disturbs(plural, change):
            self._disturbed_at = now

    def _disturbs(self, plural: str, change: Change) -> bool:
        asked, old, new = self._scene.asked, change.old, change.new.body
        if asked is not None and asked.request.client not in _ACTORS:
            return True
        if plural == PODS.plural:
            owner = wire.controller_of(new)
            if change.type is EventType.ADDED:
                return owner is None or (owner["uid"] not in self._owners and owner["kind"] != "DaemonSet")
            return begins_to_go(change)  # preempted, scaled down or finished: that frees or takes room
        if old is None:
            return False
        if plural == NODES.plural:
            return _is_ready(old.body) and not _is_ready(new) and not wire.deleting(new)
        if plural == NODECLAIMS.plural:
            record = record_on(old.body)
            return begins_to_go(change) if record is None else record_on(new) is None
        return False

    def _note(self, pod: Raw) -> None:
        owner = wire.controller_of(pod)
        if owner is None:
            return
        self._owners.add(str(owner["uid"]))
        if owner["kind"] not in _RETURNING:
            return
        node = self._scene.node(wire.node_of(pod))
        claim = None if node is None else self._scene.member_of_node(node).claim
        record = None if claim is None else record_on(claim)
        if record is None or record.reason != Reason.UNDERUTILIZED or record.id not in self._commands.begun:
            return
        began_at = self._commands.begun[record.id].began_at
        now = self._scene.now()
        self._evicted.append(_EvictedPod(f"Pod/{wire.key_of(pod)}", str(owner["uid"]), now, began_at, now + _SETTLED))
        self._next_look_at = min(self._next_look_at, now + _SETTLED)

    def ended(self) -> None:
        """Check the end of the run."""
        self._look(list(self._evicted))
        self._scene.not_applied[RULE] += len(self._evicted)  # the run has ended too early
        self._evicted = []

    def _look(self, due: list[_EvictedPod]) -> None:
        undisturbed = [pod for pod in due if self._disturbed_at is None or self._disturbed_at < pod.decided_at]
        self._scene.not_applied[RULE] += len(due) - len(undisturbed)
        waiting = self._waiting({pod.owner for pod in undisturbed})
        again = []
        for evicted in undisturbed:
            pods = [
                pod
                for pod in waiting.get(evicted.owner, ())
                if wire.created_at(pod) >= evicted.at.replace(microsecond=0)
            ]
            late = [pod for pod in pods if self._scene.now() - wire.created_at(pod) > _SETTLED]
            if pods and not late:
                again.append(msgspec.structs.replace(evicted, look_at=min(map(wire.created_at, pods)) + _SETTLED))
                continue
            self._scene.applied[RULE] += 1
            for pod in late:
                if wire.uid_of(pod) not in self._reported:
                    self._reported.add(wire.uid_of(pod))
                    since = wire.created_at(pod).isoformat()
                    message = f"has no node since {since}, after consolidation evicted {evicted.pod}"
                    self._scene.report(RULE, pod, message)
        looked = set(map(id, due))
        self._evicted = [*(pod for pod in self._evicted if id(pod) not in looked), *again]
        self._next_look_at = min((pod.look_at for pod in self._evicted), default=_NEVER)

    def _waiting(self, owners: set[str]) -> dict[str, list[Raw]]:
        """The pods of the owners that have no node, by owner."""
        pods: dict[str, list[Raw]] = {}
        for pod in self._scene.bodies(PODS) if owners else ():
            if (owner := wire.controller_uid(pod)) in owners and wire.active(pod) and not wire.node_of(pod):
                pods.setdefault(owner, []).append(pod)
        return pods


def _is_ready(node: Raw) -> bool:
    return wire.condition_status(node, "Ready") == "True"
