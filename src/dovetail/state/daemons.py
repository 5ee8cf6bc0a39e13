"""The daemons that DaemonSets run on nodes, read from their templates and newest pods (05 §8.1)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from dovetail.api.objects import ObjectMeta
from dovetail.api.pod_specs import DaemonSet, SchedulingPod
from dovetail.model.pod_records import PodRecord
from dovetail.model.spec_limits import within_limits
from dovetail.scheduling.daemons import Daemon, read_daemon
from dovetail.scheduling.requirements import RequirementError
from dovetail.scheduling.resources import ResourceError
from dovetail.state.cluster import ClusterState
from dovetail.state.derived import Derived
from dovetail.state.store import Added, Change, Deleted, Key, Updated, values_of

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class SchedulingDaemons:
    """The index of daemons. Create it before changes are applied."""

    def __init__(self, cluster: ClusterState) -> None:
        self._warn = cluster.warn
        self._pods: dict[str, dict[Key, PodRecord]] = {}  # by UID of the DaemonSet
        self._newest: dict[str, PodRecord] = {}
        self._sets: dict[str, DaemonSet] = {}  # by UID
        self._daemons: Derived[str, Daemon] = Derived(self._read, cluster.failed)
        self._flaws: dict[str, str] = {}
        self._shown: Mapping[str, Daemon] = {}
        self._sorted: tuple[Daemon, ...] = ()
        cluster.daemon_sets.subscribe(self._set_changed)
        cluster.pods.subscribe(self._pod_changed)

    def daemons(self) -> tuple[Daemon, ...]:
        """By name. The same object until something changes. A DaemonSet that cannot be read is left out and logged."""
        daemons = self._daemons.all()
        if daemons is not self._shown:
            self._shown = daemons
            self._sorted = tuple(sorted(daemons.values(), key=lambda daemon: daemon.name))
        return self._sorted

    def _read(self, uid: str, previous: Daemon | None) -> Daemon | None:
        daemon_set, newest = self._sets.get(uid), self._newest.get(uid)
        if daemon_set is None:
            self._flaws.pop(uid, None)
            return None
        name, daemon = f"{daemon_set.metadata.namespace}/{daemon_set.metadata.name}", None
        _, wrong = within_limits(daemon_set.spec.template.spec)
        try:
            if not wrong:
                daemon = read_daemon(name, daemon_set.spec.template, () if newest is None else (_whole(newest),))
        except (RequirementError, ResourceError) as error:
            wrong = str(error)
        flaw = f"DaemonSet {name} counts as if it were not there: {wrong}" if wrong else ""
        if flaw and self._flaws.get(uid) != flaw:
            self._warn(flaw)
        self._flaws[uid] = flaw
        return previous if previous == daemon else daemon

    # -- what changed -------------------------------------------------------------------------------------------------

    def _set_changed(self, change: Change[DaemonSet]) -> None:
        for daemon_set in values_of(change):
            uid = daemon_set.metadata.uid
            self._sets[uid] = daemon_set
            if isinstance(change, Deleted):
                del self._sets[uid]
            self._daemons.touch(uid)

    def _pod_changed(self, change: Change[PodRecord]) -> None:
        match change:
            case Added(key=key, new=new):
                self._put(key, new.value)
            case Updated(key=key, old=old, new=new):
                if _daemon_set(old.value) != _daemon_set(new.value):
                    self._drop(key, old.value)
                self._put(key, new.value)
            case Deleted(key=key, old=old):
                self._drop(key, old.value)

    def _put(self, key: Key, pod: PodRecord) -> None:
        uid = _daemon_set(pod)
        if not uid:
            return
        self._pods.setdefault(uid, {})[key] = pod
        newest = self._newest.get(uid)
        if newest is None or _age_key(pod) >= _age_key(newest):
            self._lead(uid, pod)

    def _drop(self, key: Key, pod: PodRecord) -> None:
        uid = _daemon_set(pod)
        if not uid:
            return
        left = self._pods[uid]
        del left[key]
        if not left:
            del self._pods[uid], self._newest[uid]
            self._daemons.touch(uid)
        elif self._newest[uid].uid == pod.uid:
            self._lead(uid, max(left.values(), key=_age_key))

    def _lead(self, uid: str, pod: PodRecord) -> None:
        """Most of the thousands of pods of a DaemonSet have the same spec."""
        previous = self._newest.get(uid)
        self._newest[uid] = pod
        if previous is None or previous.scheduling is not pod.scheduling:
            self._daemons.touch(uid)


def _daemon_set(pod: PodRecord) -> str:
    return "" if pod.scheduling is None else pod.scheduling.daemon_set


def _age_key(pod: PodRecord) -> tuple[datetime, str]:
    return (pod.created_at or _LONG_AGO, pod.uid)


def _whole(pod: PodRecord) -> SchedulingPod:
    assert pod.scheduling is not None
    return SchedulingPod(ObjectMeta(name=pod.name, namespace=pod.namespace), pod.scheduling.spec, pod.scheduling.status)
