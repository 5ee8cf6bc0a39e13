"""Holds pods that their schedules protect, so that a drain which Karpenter has begun waits for them (10 §I.3)."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController, seconds_until
from dovetail.controllers.beside.holds import HoldPace
from dovetail.controllers.beside.scope import BesideScope
from dovetail.model.pod_records import PodRecord
from dovetail.observe.beside_metrics import BesideMetrics
from dovetail.planning.beside.pod_holding import pod_hold_annotations, pod_hold_change
from dovetail.ports import PODS, Patch
from dovetail.rules.protection import may_be_protected
from dovetail.runtime.dry_run import WouldWrite
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.store import Key, StoredValue

log = logging.getLogger(__name__)


class _StartedStatus(objects.Wire, frozen=True):
    start_time: objects.Instant | None = None


class _StartedPod(objects.ApiObject, frozen=True):
    status: _StartedStatus = _StartedStatus()


_STARTED: Final = PODS.read_as(_StartedPod)


class PodHolds(KeyedController[Key]):
    """The controller of holds on pods. Keys are pods. `durations`: whether Karpenter reads them now."""

    name = "beside.pod-holds"
    workers = 5

    def __init__(
        self, cluster: WatchedCluster, scope: BesideScope, metrics: BesideMetrics, durations: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._scope = scope
        self._metrics = metrics
        self._durations = durations
        self._pace = HoldPace()
        self.own(cluster.pods, _bound)
        self.follow(cluster.nodes, self._pods_on)
        self.follow(cluster.pools, self._pods_in)

    def _pods_on(self, node: objects.Node) -> list[Key]:
        return [key for pod in self._cluster.pods_on[node.metadata.name] for key in _bound(pod)]

    def _pods_in(self, pool: objects.NodePool) -> list[Key]:
        return [key for node in self._scope.nodes_in(pool.metadata.name) for key in self._pods_on(node)]

    async def reconcile(self, key: Key) -> Outcome:
        namespace, name = key
        self._cluster.pods.get_consistent(name, namespace)  # raises InFlight
        stored = self._cluster.pods.get(key)
        if stored is None:
            return Done()
        pod, now, durations = stored.value, self.clock.now(), self._durations()
        node = self._cluster.nodes.value(pod.node_name)
        if node is not None and self._scope.is_unsure(node):
            return Done()
        in_scope = node is not None and self._scope.has(node)
        change = pod_hold_change(pod, now, in_scope=in_scope, durations=durations)
        due = Done(seconds_until(change.due_at, now))
        if change.annotations is None and change.hold_until is None:
            return due
        while seconds := self._pace.wait_seconds(self.clock):
            await self.clock.sleep(seconds)
        try:
            if change.hold_until is not None:
                await self._hold(stored, change.hold_until, durations=durations)
            elif change.annotations is not None:
                await self._write(stored, dict(change.annotations), "pod-release")
        except WouldWrite:  # a dry run has told it
            return due
        return due

    async def _hold(self, kept: StoredValue[PodRecord], until: datetime, *, durations: bool) -> None:
        started_at = await self._started_at(kept) if durations else None
        annotations = pod_hold_annotations(until, started_at, durations=durations)
        await self._write(kept, dict(annotations), "pod-hold")

    async def _started_at(self, kept: StoredValue[PodRecord]) -> datetime | None:
        """Read when it is needed: records do not keep it."""
        pod = kept.value
        listed = await self.api.list(_STARTED, namespace=pod.namespace, fields=f"metadata.name={pod.name}")
        return next((each.status.start_time for each in listed.items if each.metadata.uid == pod.uid), None)

    async def _write(self, kept: StoredValue[PodRecord], annotations: dict[str, str | None], what: str) -> None:
        pod = kept.value
        body = {"metadata": {"resourceVersion": kept.resource_version, "uid": pod.uid, "annotations": annotations}}
        written = await self.api.write(Patch(PODS, pod.name, body, namespace=pod.namespace))
        self._cluster.pods.note_write(written)
        self._metrics.writes.labels(what).inc()
        value = annotations.get(names.DO_NOT_DISRUPT)
        extra = {"Pod": f"{pod.namespace}/{pod.name}", **({} if value is None else {"do-not-disrupt": value})}
        log.info("pod held" if value is not None else "pod released", extra=extra)


def _bound(pod: PodRecord) -> tuple[Key, ...]:
    return ((pod.namespace, pod.name),) if pod.node_name and may_be_protected(pod) else ()
