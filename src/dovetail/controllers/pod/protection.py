"""Publishes events about the annotations of pods: invalid values (R11), and protections that have ended (R3)."""

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import TypeAlias

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController, seconds_until
from dovetail.controllers.base.writing import about_pod, publish, warn
from dovetail.model.pod_records import PodRecord
from dovetail.observe.metrics import Metrics
from dovetail.rules.protection import annotation_faults, do_not_disrupt, may_be_protected
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.store import Change, Deleted
from dovetail.values.timestamp import spoken_time

log = logging.getLogger(__name__)

PodName: TypeAlias = tuple[str, str]


class ProtectionEvents(KeyedController[PodName]):
    """The controller of these events. Keys are pods that may be protected."""

    name = "pod.protection"

    def __init__(self, cluster: WatchedCluster, metrics: Metrics) -> None:
        super().__init__()
        self._cluster = cluster
        self._metrics = metrics
        self._warned: dict[str, set[str]] = {}  # messages by pod UID: each is published once
        self._ends_at: dict[str, datetime] = {}  # by pod UID: only an end that passes while we run is published (R3)
        self.own(cluster.pods, _annotated)
        cluster.pods.subscribe(self._forget)

    async def reconcile(self, key: PodName) -> Outcome:
        stored = self._cluster.pods.get(key)
        if stored is None or not stored.value.active:
            return Done()
        pod, now = stored.value, self.clock.now()
        self._warn_faults(pod)
        return Done(seconds_until(self._publish_end(pod, now), now))

    def _warn_faults(self, pod: PodRecord) -> None:
        for fault in annotation_faults(pod.annotations):
            warned = self._warned.setdefault(pod.uid, set())
            if fault.message in warned:
                continue
            warned.add(fault.message)
            self._metrics.invalid_annotations.labels(fault.annotation).inc()
            note = f"annotation {fault.annotation}: {fault.message}; {fault.remedy}"
            warn(self.recorder, about_pod(pod), EventReason(fault.rule), note, pod.uid, fault.message)
            log.warning("bad annotation", extra={"Pod": f"{pod.namespace}/{pod.name}", "problem": fault.message})

    def _publish_end(self, pod: PodRecord, now: datetime) -> datetime | None:
        """Returns the instant at which the protection ends. Publishes an event once it has passed."""
        verdict = do_not_disrupt(pod, now)
        if not verdict.allowed and verdict.until is not None:
            self._ends_at[pod.uid] = verdict.until
            return verdict.until
        ended_at = self._ends_at.pop(pod.uid, None)
        if ended_at is not None and verdict.allowed and names.DO_NOT_DISRUPT in pod.annotations and ended_at <= now:
            note = f"Its {names.DO_NOT_DISRUPT} period ended {spoken_time(ended_at)}; it may be disrupted"
            publish(self.recorder, about_pod(pod), EventReason.DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED, note)
        return None

    def _forget(self, change: Change[PodRecord]) -> None:
        if isinstance(change, Deleted):
            self._ends_at.pop(change.old.uid, None)
            self._warned.pop(change.old.uid, None)


def _annotated(pod: PodRecord) -> Iterator[PodName]:
    if may_be_protected(pod):
        yield pod.namespace, pod.name
