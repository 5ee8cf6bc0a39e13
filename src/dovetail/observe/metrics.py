"""The program's counters and histograms, and their text format (04 §3, R37, R40).

Names, labels and buckets are upstream's where the meaning is the same, so that existing dashboards work. No label ever
has the name of a pod. Gauges of the cluster's state are in `controllers/metrics`.
"""

import platform
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from math import ceil, isinf, isnan
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

import dovetail

DURATION_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5),
    *(1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60, 120, 150, 300, 450, 600),
)
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
LIFETIME_BUCKETS: Final = (
    *(15 * _MINUTE, 30 * _MINUTE, 45 * _MINUTE),
    *(hours * _HOUR for hours in (1, 2, 4, 6, 8, 10, 12, 16, 20)),
    *(days * _DAY for days in (1, 2, 3, 5, 10, 15, 20, 25, 30)),
)
QUANTILES: Final = (0.0, 0.5, 0.9, 0.99, 1.0)
WINDOW: Final = 1000  # observations for the quantiles of a summary

_DISRUPTED: Final = ("reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode")
_CLOUD: Final = ("controller", "method", "provider")


class Summary(Collector):
    """Count and sum of all observations, and quantiles of the latest ones, with at most one label."""

    def __init__(
        self, name: str, documentation: str, label: str = "", *, registry: CollectorRegistry | None = None
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._children: dict[str, Observations] = {}
        if registry is not None:
            registry.register(self)

    def labels(self, value: str = "") -> "Observations":
        return self._children.setdefault(value, Observations())

    def collect(self) -> Iterator[Metric]:
        names = [self._label] if self._label else []
        family = SummaryMetricFamily(self._name, self._documentation, labels=names)
        for value, child in self._children.items():
            labels = dict.fromkeys(names, value)
            for quantile, seconds in child.quantiles():
                family.add_sample(self._name, labels | {"quantile": f"{quantile:g}"}, seconds)
            family.add_metric([value] if names else [], child.count, child.sum)
        yield family


class Observations:
    """The observations with one label value."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self._latest: deque[float] = deque(maxlen=WINDOW)

    def observe(self, amount: float) -> None:
        self.count += 1
        self.sum += amount
        self._latest.append(amount)

    def quantiles(self) -> list[tuple[float, float]]:
        """Empty before the first observation."""
        ordered = sorted(self._latest)
        return [(q, ordered[max(0, ceil(q * len(ordered)) - 1)]) for q in QUANTILES] if ordered else []


class _ExternalCounter(Collector):
    """A counter that other code keeps and that is read at the scrape, by label values."""

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str], values: Callable[[], Mapping[tuple[str, ...], float]]
    ) -> None:
        self._texts = name, meaning, labels
        self._values = values

    def collect(self) -> Iterator[Metric]:
        name, documentation, labels = self._texts
        family = CounterMetricFamily(name, documentation, labels=labels)
        for values, amount in self._values().items():
            family.add_metric(values, amount)
        yield family


class RenderedMetric(Metric):
    """A gauge with rendered lines: with 5,000 nodes, rendering them for each scrape would take seconds."""

    def __init__(self, name: str, documentation: str, lines: Iterable[str]) -> None:
        super().__init__(name, documentation, "gauge")
        self.lines = lines


class DeferredMetrics(Metric):
    """Metrics that are computed while the text is rendered, on any thread, from inputs of the scrape."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        super().__init__("aside", "", "unknown")
        self.families = families


def labelled(labels: Iterable[tuple[str, str]]) -> str:
    """The labels of a line, without the braces."""
    return ",".join([f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels])


class MetricDeclarations:
    """Metrics that are declared on a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self.registry)

    def histogram(self, name: str, meaning: str, buckets: Iterable[float], *labels: str) -> Histogram:
        return Histogram(name, meaning, labels, buckets=tuple(buckets), registry=self.registry)

    def gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(name, meaning, labels, registry=self.registry)


class Metrics(MetricDeclarations):
    """All counters and histograms except those of disruption."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        counter, histogram, gauge = self.counter, self.histogram, self.gauge

        # -- NodeClaims (04 §3.1)
        self.nodeclaims_created = counter(
            "karpenter_nodeclaims_created_total", "NodeClaims created.", "reason", "nodepool", "min_values_relaxed"
        )
        self.nodeclaims_disrupted = counter(
            "karpenter_nodeclaims_disrupted_total",
            "NodeClaims whose deletion was begun by the controller.",
            *_DISRUPTED,
        )
        self.nodeclaims_terminated = counter(
            "karpenter_nodeclaims_terminated_total",
            "NodeClaims gone, whoever deleted them.",
            *("nodepool", "capacity_type", "zone"),
        )
        self.nodeclaims_termination_seconds = histogram(
            "karpenter_nodeclaims_termination_duration_seconds",
            "From a NodeClaim's deletion to its end.",
            (2**n for n in range(12)),
            "nodepool",
        )
        self.nodeclaims_instance_termination_seconds = histogram(
            "karpenter_nodeclaims_instance_termination_duration_seconds",
            "From the order to terminate an instance to its end.",
            (2**n for n in range(11)),
            "nodepool",
        )
        self.nodeclaims_unhealthy_disrupted = counter(
            "karpenter_nodeclaims_unhealthy_disrupted_total",
            "NodeClaims deleted because their node was unhealthy.",
            *("condition", "nodepool", "capacity_type", "image_id"),
        )

        # -- Nodes (04 §3.2)
        self.nodes_created = counter("karpenter_nodes_created_total", "Nodes registered.", "nodepool", "zone")
        self.nodes_terminated = counter("karpenter_nodes_terminated_total", "Nodes gone.", "nodepool", "zone")
        self.nodes_drained = counter("karpenter_nodes_drained_total", "Nodes drained.", "nodepool")
        self.nodes_termination_seconds = Summary(
            "karpenter_nodes_termination_duration_seconds",
            "From a Node's deletion to its end.",
            "nodepool",
            registry=registry,
        )
        self.nodes_lifetime_seconds = histogram(
            "karpenter_nodes_lifetime_duration_seconds", "How old Nodes became.", LIFETIME_BUCKETS, "nodepool"
        )

        # -- NodePools (04 §3.3)
        self.nodepools_cost_errors = counter(
            "karpenter_nodepools_cost_tracker_errors_total", "Prices that could not be had.", "nodepool"
        )

        # -- pods (04 §3.5)
        self.pods_drained = counter("karpenter_pods_drained_total", "Pods evicted or deleted by a drain.", "reason")
        self.pods_eviction_requests = counter(
            "karpenter_pods_eviction_requests_total", "Evictions asked for, by the HTTP status of the answer.", "code"
        )
        self.pods_disruption_initiated = counter(
            "karpenter_pods_disruption_initiated_total", "Pods to be moved when a disruption began.", *_DISRUPTED
        )
        self.forced_pods = counter(
            "dovetail_forced_pods_total", "Pods deleted against their protection or before their time.", "cause"
        )
        self.invalid_annotations = counter(
            "dovetail_invalid_annotations_total", "Objects found with an annotation that cannot be read.", "annotation"
        )

        # -- scheduling (04 §3.6, 06 §6); `controller` is who asks: the provisioner, or disruption
        self.scheduling_seconds = histogram(
            "karpenter_scheduler_scheduling_duration_seconds",
            "How long it took to find places for pods.",
            DURATION_BUCKETS,
            "controller",
        )
        self.scheduling_queue_depth = gauge(
            "karpenter_scheduler_queue_depth", "Pods that places are sought for now.", "controller", "scheduling_id"
        )
        self.scheduling_unfinished_seconds = gauge(
            "karpenter_scheduler_unfinished_work_seconds",
            "For how long places have been sought.",
            *("controller", "scheduling_id"),
        )
        self.scheduling_ignored_pods = gauge(
            "karpenter_scheduler_ignored_pods_count", "Pending pods that ask for what no node can be made for."
        )
        self.scheduling_unsupported_pods = gauge(
            "dovetail_unsupported_pods", "Pods that ask for what is not understood, and are not placed.", "feature"
        )
        self.scheduling_unschedulable_pods = gauge(
            "karpenter_scheduler_unschedulable_pods_count", "Pods that no place was found for.", "controller"
        )
        self.scheduling_zones = gauge(
            "karpenter_scheduler_pending_pods_by_effective_zone_count",
            "Pods by the only zone that they can go to; flexible: there are several, none: there is none.",
            *("controller", "zone"),
        )
        self.pods_decision_seconds = histogram(
            "karpenter_pods_scheduling_decision_duration_seconds",
            "From a pod's being seen to the first decision on it.",
            DURATION_BUCKETS,
        )
        self.pods_provisioning_bound_seconds = histogram(
            "karpenter_pods_provisioning_bound_duration_seconds",
            "From the first plan for a pod to its being bound to a node.",
            DURATION_BUCKETS,
        )
        self.pods_provisioning_startup_seconds = histogram(
            "karpenter_pods_provisioning_startup_duration_seconds",
            "From the first plan for a pod to its running.",
            DURATION_BUCKETS,
        )

        # -- the cloud, the controllers and the process (04 §3.6)
        self.cloudprovider_seconds = histogram(
            "karpenter_cloudprovider_duration_seconds", "How long the cloud took to answer.", DURATION_BUCKETS, *_CLOUD
        )
        self.cloudprovider_errors = counter(
            "karpenter_cloudprovider_errors_total", "Calls of the cloud that failed.", *_CLOUD, "error"
        )
        self.reconciles = counter(
            "controller_runtime_reconcile_total", "Objects worked on, by what came of it.", "controller", "result"
        )
        self.reconcile_errors = counter("controller_runtime_reconcile_errors_total", "Failed attempts.", "controller")
        self.reconcile_seconds = histogram(
            "controller_runtime_reconcile_time_seconds", "How long an attempt took.", DURATION_BUCKETS, "controller"
        )
        queue = ("name", "controller")
        self.workqueue_depth = gauge("workqueue_depth", "Objects waiting to be worked on.", *queue)
        self.workqueue_adds = counter("workqueue_adds_total", "Objects that were to be worked on.", *queue)
        self.workqueue_retries = counter("workqueue_retries_total", "Objects to be worked on once more.", *queue)
        self.workqueue_queue_seconds = histogram(
            "workqueue_queue_duration_seconds", "How long an object waited for its turn.", DURATION_BUCKETS, *queue
        )
        self.workqueue_work_seconds = histogram(
            "workqueue_work_duration_seconds", "How long an object was worked on.", DURATION_BUCKETS, *queue
        )
        self.workqueue_unfinished_seconds = gauge(
            "workqueue_unfinished_work_seconds", "For how long all that is in work has been, together.", *queue
        )
        self.workqueue_longest_seconds = gauge(
            "workqueue_longest_running_processor_seconds", "For how long the oldest in work has been.", *queue
        )
        self.leader = gauge("leader_election_master_status", "1 if this replica leads.", "name")
        self.event_loop_late_seconds = gauge(
            "dovetail_event_loop_late_seconds_max", "The longest that the event loop was held up since the start."
        )
        self.build_info = gauge("karpenter_build_info", "What is running.", "version", "goversion", "goarch", "commit")
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        self.build_info.labels(dovetail.__version__, f"python{platform.python_version()}", machine, "").set(1)
        ProcessCollector(registry=registry)

    def read_events(self, fates: Callable[[], Mapping[str, float]]) -> None:
        """Exports the number of events by fate: sent, repeated, limited, dropped, ignored, failed."""
        self._read("dovetail_events_total", "Events published, by their fate.", "fate", fates)

    def read_failures(self, parts: Callable[[], Mapping[str, float]]) -> None:
        """Exports the number of unexpected errors of each part of the program."""
        meaning = "Errors that nobody expects: bugs, which are logged; what failed is tried again."
        self._read("dovetail_failures_total", meaning, "controller", parts)

    def read_undecodable(self, kinds: Callable[[], Mapping[str, float]]) -> None:
        """Exports the number of undecodable objects of each kind (R32)."""
        self._read("dovetail_undecodable_objects_total", "Objects that could not be read.", "resource", kinds)

    def read_requests(self, requests: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Exports the number of requests to the API server, by status code, method and host."""
        labels, meaning = ("code", "method", "host"), "Requests to the API server, by its answer."
        self.registry.register(_ExternalCounter("rest_client_requests_total", meaning, labels, requests))

    def _read(self, name: str, documentation: str, label: str, values: Callable[[], Mapping[str, float]]) -> None:
        def by_label() -> dict[tuple[str, ...], float]:
            return {(value,): amount for value, amount in values().items()}

        self.registry.register(_ExternalCounter(name, documentation, (label,), by_label))


# -- the text ---------------------------------------------------------------------------------------------------------

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def rendered(families: Iterable[Metric]) -> Iterator[bytes]:
    """The text, in parts. Runs on any thread.

    Numbers are plain decimals: the library writes large numbers with an exponent, which upstream's test suite cannot
    read (04 §3). The `_created` series of counters are left out.
    """
    for family in families:
        if isinstance(family, DeferredMetrics):
            yield from rendered(family.families())
        else:
            yield "\n".join([*_lines(family), ""]).encode()


def _lines(family: Metric) -> Iterator[str]:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    yield f"# HELP {name} {family.documentation}"
    yield f"# TYPE {name} {family.type}"
    if isinstance(family, RenderedMetric):
        yield from family.lines
        return
    for sample in family.samples:
        if family.type != "gauge" and sample.name.endswith("_created"):
            continue
        pairs = labelled((key, decimal(float(text)) if key == "le" else text) for key, text in sample.labels.items())
        yield f"{sample.name}{f'{{{pairs}}}' if pairs else ''} {decimal(sample.value)}"


def decimal(value: float) -> str:
    """The shortest exact form of the number without an exponent."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value):
        return str(int(value))
    text = repr(value)
    return format(Decimal(text), "f") if "e" in text else text
