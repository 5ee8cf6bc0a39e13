"""Measures how long pods take from their creation until they are bound, and until they run (04 §3.5).

Only the leader measures, as the watch reports changes.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

from prometheus_client import Histogram
from prometheus_client.core import Metric

from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.pod_records import PodRecord
from dovetail.observe.metrics import DURATION_BUCKETS, Summary
from dovetail.ports import Clock
from dovetail.state.store import Change, Updated


class PodTimes:
    """The histograms of these times. Create it before the reflectors run."""

    def __init__(self, cluster: WatchedCluster, clock: Clock, *, leads: Callable[[], bool]) -> None:
        self._clock = clock
        self._leads = leads
        self._bound = Histogram(
            "karpenter_pods_bound_duration_seconds",
            "From a pod's creation to its being bound to a node.",
            buckets=DURATION_BUCKETS,
            registry=None,
        )
        self._started = Summary("karpenter_pods_startup_duration_seconds", "From a pod's creation to its running.")
        cluster.pods.subscribe(self._follow)

    def collect(self) -> Iterator[Metric]:
        yield from self._bound.collect()
        yield from self._started.collect()

    def _follow(self, change: Change[PodRecord]) -> None:
        if not isinstance(change, Updated) or not self._leads():
            return
        old, new = change.old.value, change.new.value
        if new.created_at is None:
            return
        if new.node_name and not old.node_name:
            self._bound.observe(self._seconds_since(new.created_at))
        if old.phase == "Pending" and new.phase == "Running":
            self._started.labels().observe(self._seconds_since(new.created_at))

    def _seconds_since(self, at: datetime) -> float:
        return max(0.0, (self._clock.now() - at).total_seconds())
