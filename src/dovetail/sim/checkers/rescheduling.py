"""Does every pod that consolidation evicts find a node again, if nothing else happens since the decision?

Only quiet stretches tell: whatever others write, new pods, faults, and nodes that fail make the check not apply.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.api.names import Reason
from dovetail.ports import NODECLAIMS, NODES, PODS, EventType
from dovetail.sim.actors.wire import Raw, active, condition_status, controller_of, created_at, deleting, node_of
from dovetail.sim.checkers.checked_cluster import CheckedCluster, begins_to_go
from dovetail.sim.checkers.records import CommandTracker, record_on
from dovetail.sim.server.store import Change

RULE: Final = "rescheduled"
# Those who keep a cluster running, beside the program and the server itself.
_ACTORS: Final = frozenset({names.COMPONENT, "kube-controller-manager", "kube-scheduler", "kubelet", "cloud"})
_RETURNING: Final = frozenset({"ReplicaSet", "StatefulSet"})
# So long may a pod wait for a node: another pod's grace, and the scheduler's next look.
_SETTLED: Final = timedelta(minutes=5)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class _EvictedPod(msgspec.Struct, frozen=True):
    """A pod whose owner is to make another one."""

    pod: str
    owner: str  # UID
    at: datetime
    decided_at: datetime
    look_at: datetime


class ReschedulingChecker:
    """Looked at some minutes after each eviction, and at the end of the run.

    Pods of one owner are alike, so nobody can tell which of them takes the place of which. What counts is how long each
    of them has waited by itself.
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
        """Any write."""
        now = self._scene.now()
        if now > self._next_look_at:
            self._look([each for each in self._evicted if now > each.look_at])
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
            owner = controller_of(new)
            if change.type is EventType.ADDED:
                return owner is None or (owner["uid"] not in self._owners and owner["kind"] != "DaemonSet")
            return begins_to_go(change)  # pre-empted, scaled down, at its end: others get room, or need it
        if old is None:
            return False
        if plural == NODES.plural:
            return _is_ready(old.body) and not _is_ready(new) and not deleting(new)
        if plural == NODECLAIMS.plural:
            record = record_on(old.body)
            return begins_to_go(change) if record is None else record_on(new) is None
        return False

    def _note(self, pod: Raw) -> None:
        owner = controller_of(pod)
        if owner is None:
            return
        self._owners.add(str(owner["uid"]))
        if owner["kind"] not in _RETURNING:
            return
        node = self._scene.node(node_of(pod))
        claim = None if node is None else self._scene.member_of_node(node).claim
        record = None if claim is None else record_on(claim)
        if record is None or record.reason != Reason.UNDERUTILIZED or record.id not in self._commands.begun:
            return
        began_at = self._commands.begun[record.id].began_at
        name = f"Pod/{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        now = self._scene.now()
        self._evicted.append(_EvictedPod(name, str(owner["uid"]), now, began_at, now + _SETTLED))
        self._next_look_at = min(self._next_look_at, now + _SETTLED)

    def ended(self) -> None:
        """The run is over."""
        self._look(list(self._evicted))
        self._scene.not_applied[RULE] += len(self._evicted)  # it has ended too early to tell
        self._evicted = []

    def _look(self, due: list[_EvictedPod]) -> None:
        told = [each for each in due if self._disturbed_at is None or self._disturbed_at < each.decided_at]
        self._scene.not_applied[RULE] += len(due) - len(told)
        waiting = self._waiting({each.owner for each in told})
        again = []
        for each in told:
            pods = [pod for pod in waiting.get(each.owner, ()) if created_at(pod) >= each.at.replace(microsecond=0)]
            late = [pod for pod in pods if self._scene.now() - created_at(pod) > _SETTLED]
            if pods and not late:
                again.append(msgspec.structs.replace(each, look_at=min(map(created_at, pods)) + _SETTLED))
                continue
            self._scene.applied[RULE] += 1
            for pod in late:
                self._report(pod, each)
        looked = set(map(id, due))
        self._evicted = [*(each for each in self._evicted if id(each) not in looked), *again]
        self._next_look_at = min((each.look_at for each in self._evicted), default=_NEVER)

    def _waiting(self, owners: set[str]) -> dict[str, list[Raw]]:
        """Their pods that have no node, by owner."""
        found: dict[str, list[Raw]] = {}
        for pod in self._scene.pods() if owners else ():
            owner = controller_of(pod)
            if owner is not None and str(owner["uid"]) in owners and active(pod) and not node_of(pod):
                found.setdefault(str(owner["uid"]), []).append(pod)
        return found

    def _report(self, pod: Raw, evicted: _EvictedPod) -> None:
        meta = pod["metadata"]
        if meta["uid"] not in self._reported:
            self._reported.add(meta["uid"])
            message = f"has no node since {created_at(pod).isoformat()}, after consolidation evicted {evicted.pod}"
            self._scene.report(RULE, f"Pod/{meta['namespace']}/{meta['name']}", message)


def _is_ready(node: Raw) -> bool:
    return condition_status(node, "Ready") == "True"
