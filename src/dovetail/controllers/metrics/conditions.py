"""Metrics of the conditions of NodeClaims, NodePools and Nodes: status, age, transitions (04 §3.6).

Gauges are rendered at the scrape, from text that is cached until the object changes. The leader counts transitions as
the watch reports them, also under the deprecated names without the kind, which older dashboards read.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from prometheus_client import Counter, Histogram
from prometheus_client.core import Metric

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.observe.metrics import RenderedMetric, labelled
from dovetail.ports import Clock
from dovetail.state.store import Change, Contents, Deleted, Store, Updated

ConditionedObject: TypeAlias = objects.NodeClaim | objects.NodePool | objects.Node

BUCKETS: Final = tuple(0.5 * 2**n for n in range(15))
DEPRECATED: Final = "operator"
COUNT: Final = "status_condition_count"
CURRENT: Final = "status_condition_current_status_seconds"
GOING: Final = "termination_current_time_seconds"


class _ConditionLines(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The cached text of an object. Lines with an age lack only the number."""

    of: object
    counts: tuple[str, ...]
    currents: tuple[tuple[str, int], ...]  # each with its start
    goings: tuple[tuple[str, int], ...]


class _ConditionCounts:
    """The counters with one prefix: `operator_nodeclaim`, or the deprecated `operator`."""

    def __init__(self, name: str, labels: Sequence[str]) -> None:
        self.transitions = Counter(
            f"{name}_status_condition_transitions_total",
            "Conditions that changed their status, by what it is now.",
            [*labels, "type", "status", "reason"],
            registry=None,
        )
        self.seconds = Histogram(
            f"{name}_status_condition_transition_seconds",
            "How long a condition had the status that it left.",
            [*labels, "type", "status"],
            buckets=BUCKETS,
            registry=None,
        )
        self.ends = Histogram(
            f"{name}_termination_duration_seconds",
            "From an object's deletion to its end.",
            labels,
            buckets=BUCKETS,
            registry=None,
        )

    def collect(self) -> Iterator[Metric]:
        for metric in (self.transitions, self.seconds, self.ends):
            yield from metric.collect()


class KindSnapshot(NamedTuple):
    """The objects of one kind at one instant, and their counters."""

    objects: Contents[Any]
    counts: tuple[Metric, ...]


class _KindMetrics:
    """Metrics of the objects of one kind that are ours."""

    def __init__(self, kind: str, cache: Store[Any], ours: Callable[[Any], bool], extra: Sequence[str]) -> None:
        self.name = f"{DEPRECATED}_{kind.lower()}"
        self.identity = (names.GROUP, kind)
        self.labels = [re.sub(r"[^a-zA-Z0-9_]", "_", label) for label in extra]
        self.counts = _ConditionCounts(self.name, self.labels)
        self._cache = cache
        self._ours = ours
        self._extra = extra
        self._lines: dict[str, _ConditionLines] = {}

    def count(self, others: Sequence[_ConditionCounts], clock: Clock, leads: Callable[[], bool]) -> None:
        """Counts changes from now on, here and under the deprecated names."""

        def on_change(change: Change[ConditionedObject]) -> None:
            if not isinstance(change, Updated | Deleted) or not self._ours(change.old.value) or not leads():
                return
            values = self._values(change.old.value)
            targets = [(self.counts, values), *((other, [*self.identity, *values]) for other in others)]
            if isinstance(change, Deleted):
                _count_end(targets, change.old.value.metadata, clock.now())
            else:
                _count_transitions(targets, change.old.value, change.new.value)

        self._cache.subscribe(on_change)

    def snapshot(self) -> KindSnapshot:
        return KindSnapshot(self._cache.snapshot(), tuple(self.counts.collect()))

    def lines(self, contents: Contents[Any]) -> Iterable[_ConditionLines]:
        """The lines of all objects; those of unchanged objects are cached."""
        current: dict[str, _ConditionLines] = {}
        for object_ in (stored.value for stored in contents.items.values()):
            lines = self._lines.get(object_.metadata.name)
            if lines is None or lines.of is not object_:
                if not self._ours(object_):
                    continue
                lines = self._lines_of(object_)
            current[object_.metadata.name] = lines
        self._lines = current
        return current.values()

    def _values(self, one: ConditionedObject) -> list[str]:
        return [one.metadata.labels.get(label, "") for label in self._extra]

    def _lines_of(self, one: ConditionedObject) -> _ConditionLines:
        meta = one.metadata
        extra = zip(self.labels, self._values(one), strict=True)
        labels = labelled([("namespace", meta.namespace), ("name", meta.name), *extra])
        counts, currents = [], []
        for entry in one.status.conditions:
            own = labelled([("type", entry.type), ("status", entry.status), ("reason", entry.reason)])
            counts.append(f"{self.name}_{COUNT}{{{labels},{own}}} 1")
            if (at := entry.last_transition_time) is not None:
                currents.append((f"{self.name}_{CURRENT}{{{labels},{own}}}", int(at.timestamp())))
        at = meta.deletion_timestamp
        goings = () if at is None else ((f"{self.name}_{GOING}{{{labels}}}", int(at.timestamp())),)
        return _ConditionLines(one, tuple(counts), tuple(currents), goings)


def _count_transitions(
    targets: Sequence[tuple[_ConditionCounts, list[str]]], old: ConditionedObject, new: ConditionedObject
) -> None:
    if old.status.conditions == new.status.conditions:
        return
    before = {entry.type: entry for entry in old.status.conditions}
    for entry in new.status.conditions:
        was = before.get(entry.type)
        if was is None or was.status == entry.status:
            continue
        for counts, values in targets:
            counts.transitions.labels(*values, entry.type, entry.status, entry.reason).inc()
            if was.last_transition_time is not None and entry.last_transition_time is not None:
                seconds = (entry.last_transition_time - was.last_transition_time).total_seconds()
                counts.seconds.labels(*values, was.type, was.status).observe(max(0.0, seconds))


def _count_end(targets: Sequence[tuple[_ConditionCounts, list[str]]], meta: objects.ObjectMeta, now: datetime) -> None:
    if meta.deletion_timestamp is None:
        return  # it had no finalizer, so its deletion took no time
    seconds = max(0.0, (now - meta.deletion_timestamp).total_seconds())
    for counts, values in targets:
        (counts.ends.labels(*values) if values else counts.ends).observe(seconds)


class StatusMetrics:
    """The metrics of all kinds. Create them before the reflectors run."""

    def __init__(self, cluster: WatchedCluster, clock: Clock, *, leads: Callable[[], bool]) -> None:
        extra = (names.NODEPOOL_LABEL, cluster.node_class_label)
        claims = _KindMetrics(names.NODECLAIM_KIND, cluster.claims, cluster.manages_claim, extra)
        pools = _KindMetrics(names.NODEPOOL_KIND, cluster.pools, cluster.manages_pool, extra)
        nodes = _KindMetrics("Node", cluster.nodes, cluster.manages_node, (*extra, names.INITIALIZED_LABEL))
        self._kinds: tuple[_KindMetrics, ...] = (claims, pools, nodes)
        self._deprecated = _ConditionCounts(DEPRECATED, ["group", "kind", *claims.labels])
        for kind in self._kinds:
            kind.count([self._deprecated] if kind is not nodes else [], clock, leads)

    def snapshot(self) -> tuple[tuple[KindSnapshot, ...], tuple[Metric, ...]]:
        """By kind, and the counters with the deprecated names. Runs on the event loop."""
        return tuple(kind.snapshot() for kind in self._kinds), tuple(self._deprecated.collect())

    def collect(self, snapshot: tuple[tuple[KindSnapshot, ...], tuple[Metric, ...]], now: datetime) -> Iterator[Metric]:
        """Renders a snapshot, on one thread at a time."""
        kinds, deprecated = snapshot
        for kind, then in zip(self._kinds, kinds, strict=True):
            lines, name = kind.lines(then.objects), kind.name
            counts = [text for object_lines in lines for text in object_lines.counts]
            yield RenderedMetric(f"{name}_{COUNT}", "1 for each condition that an object has.", counts)
            currents, goings = (
                _aged((object_lines.currents for object_lines in lines), now),
                _aged((object_lines.goings for object_lines in lines), now),
            )
            yield RenderedMetric(f"{name}_{CURRENT}", "For how long a condition has had its status.", currents)
            yield RenderedMetric(f"{name}_{GOING}", "For how long an object has been going.", goings)
            yield from then.counts
        yield from deprecated


def _aged(lines: Iterable[Iterable[tuple[str, int]]], now: datetime) -> list[str]:
    """Appends the age in whole seconds to each line."""
    at = int(now.timestamp())
    return [f"{text} {at - since if at > since else 0}" for each in lines for text, since in each]
