"""What do the DaemonSets of the cluster run on nodes (05 §8.1), told by their templates and their newest pods?"""

import logging
from datetime import UTC, datetime
from typing import Final

from dovetail.api.objects import ObjectMeta
from dovetail.api.pod_specs import DaemonSet, SchedulingPod
from dovetail.model.records import PodRecord
from dovetail.model.spec_limits import within_limits
from dovetail.runtime.reflector import Added, Change, Deleted, Key, Updated
from dovetail.scheduling.daemons import Daemon, read_daemon
from dovetail.scheduling.requirements import RequirementError
from dovetail.scheduling.resources import ResourceError
from dovetail.state.cluster import Cluster

log = logging.getLogger(__name__)

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class PlacingDaemons:
    """Make it before the caches run."""

    def __init__(self, cluster: Cluster) -> None:
        self._pods: dict[str, dict[Key, PodRecord]] = {}  # by UID of the DaemonSet
        self._newest: dict[str, PodRecord] = {}
        self._sets: dict[str, DaemonSet] = {}  # by UID
        self._dirty: set[str] = set()
        self._daemons: dict[str, Daemon] = {}
        self._flaws: dict[str, str] = {}
        self._told: tuple[Daemon, ...] = ()
        cluster.daemon_sets.subscribe(self._set_changed)
        cluster.pods.subscribe(self._pod_changed)

    def daemons(self) -> tuple[Daemon, ...]:
        """By name; the same object unless something has changed. One that cannot be read is left out, and told."""
        if not self._dirty:
            return self._told
        before = dict(self._daemons)
        for uid in self._dirty:
            self._read(uid)
        self._dirty.clear()
        if self._daemons != before:
            self._told = tuple(sorted(self._daemons.values(), key=lambda daemon: daemon.name))
        return self._told

    def _read(self, uid: str) -> None:
        known, found = self._daemons.pop(uid, None), self._sets.get(uid)
        flaw, newest = "", self._newest.get(uid)
        if found is not None:
            name = f"{found.metadata.namespace}/{found.metadata.name}"
            _, wrong = within_limits(found.spec.template.spec)
            try:
                if not wrong:
                    read = read_daemon(name, found.spec.template, () if newest is None else (_whole(newest),))
                    self._daemons[uid] = known if known == read else read
            except (RequirementError, ResourceError) as error:
                wrong = str(error)
            flaw = f"DaemonSet {name} counts as if it were not there: {wrong}" if wrong else ""
        if flaw and self._flaws.get(uid) != flaw:
            log.warning("%s", flaw)
        self._flaws[uid] = flaw
        if not flaw:
            del self._flaws[uid]

    # -- what changed -------------------------------------------------------------------------------------------------

    def _set_changed(self, change: Change[DaemonSet]) -> None:
        match change:
            case Added(new=new) | Updated(new=new):
                self._sets[new.uid] = new.value
                self._dirty.add(new.uid)
            case Deleted(old=old):
                self._sets.pop(old.uid, None)
                self._dirty.add(old.uid)

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
            self._dirty.add(uid)
        elif self._newest[uid].uid == pod.uid:
            self._lead(uid, max(left.values(), key=_age_key))

    def _lead(self, uid: str, pod: PodRecord) -> None:
        """Thousands of pods come and go, most of them the same to us."""
        known = self._newest.get(uid)
        self._newest[uid] = pod
        if known is None or known.scheduling is not pod.scheduling:
            self._dirty.add(uid)


def _daemon_set(pod: PodRecord) -> str:
    return "" if pod.scheduling is None else pod.scheduling.daemon_set


def _age_key(pod: PodRecord) -> tuple[datetime, str]:
    return (pod.created_at or _LONG_AGO, pod.uid)


def _whole(pod: PodRecord) -> SchedulingPod:
    assert pod.scheduling is not None
    return SchedulingPod(ObjectMeta(name=pod.name, namespace=pod.namespace), pod.scheduling.spec, pod.scheduling.status)
