"""Gauges of each Node: allocatable resources, requests of its pods, age (04 §3.2).

The lines of a Node are cached as text until it or its pods change, so that 5,000 nodes are cheap to scrape.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric

from dovetail.api import names, objects
from dovetail.model.pod_records import PodRecord
from dovetail.observe.metrics import RenderedMetric, decimal, labelled
from dovetail.scheduling.resources import CPU
from dovetail.state.nodes import ManagedNode
from dovetail.state.pod_sums import NodeSums, PodSums
from dovetail.values.quantity import NANO_PER_UNIT, QuantityError, parse_quantity

ALLOCATABLE: Final = "karpenter_nodes_allocatable"
OVERHEAD: Final = "karpenter_nodes_system_overhead"
LIFETIME: Final = "karpenter_nodes_current_lifetime_seconds"
POD_REQUESTS: Final = "karpenter_nodes_total_pod_requests"
POD_LIMITS: Final = "karpenter_nodes_total_pod_limits"
DAEMON_REQUESTS: Final = "karpenter_nodes_total_daemon_requests"
DAEMON_LIMITS: Final = "karpenter_nodes_total_daemon_limits"
UTILIZATION: Final = "karpenter_cluster_utilization_percent"

_MEANINGS: Final = {
    ALLOCATABLE: "What pods can use.",
    OVERHEAD: "What pods cannot use.",
    POD_REQUESTS: "What its pods request, those of DaemonSets included.",
    POD_LIMITS: "What its pods may use at most, those of DaemonSets included.",
    DAEMON_REQUESTS: "What its pods of DaemonSets request.",
    DAEMON_LIMITS: "What its pods of DaemonSets may use at most.",
}
_MILLI: Final = 1000
_WELL_KNOWN: Final = [(label.partition("/")[2].replace("-", "_"), label) for label in sorted(names.WELL_KNOWN_LABELS)]


class _NodeLines(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The cached lines of a Node."""

    node: objects.Node
    labels: str
    allocatable: Mapping[str, float]
    texts: Mapping[str, tuple[str, ...]]


class _PodLines(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The cached lines of the pods of a Node."""

    labels: str
    pods: tuple[PodRecord, ...]
    sums: NodeSums
    texts: Mapping[str, tuple[str, ...]]


class NodeGauges:
    """The gauges of all Nodes, used by one thread at a time."""

    def __init__(self) -> None:
        self._sums = PodSums()
        self._lines: dict[str, _NodeLines] = {}
        self._pod_lines: dict[str, _PodLines] = {}

    def collect(self, nodes: Iterable[ManagedNode], now: datetime) -> Iterator[Metric]:
        self._refresh(nodes)
        for name in (ALLOCATABLE, OVERHEAD):
            yield _rendered(name, self._lines.values())
        for name in (POD_REQUESTS, POD_LIMITS, DAEMON_REQUESTS, DAEMON_LIMITS):
            yield _rendered(name, self._pod_lines.values())
        yield RenderedMetric(LIFETIME, "How old the Node is.", self._ages(now))
        yield self._utilization()

    def _refresh(self, nodes: Iterable[ManagedNode]) -> None:
        lines: dict[str, _NodeLines] = {}
        pod_lines: dict[str, _PodLines] = {}
        for managed in nodes:
            node = managed.node
            if node is None:
                continue
            name = node.metadata.name
            node_lines = self._lines.get(name)
            if node_lines is None or node_lines.node is not node:
                node_lines = _lines_of(node)
            lines[name] = node_lines
            if (pods := self._pod_lines_of(name, node_lines.labels, managed.pods)) is not None:
                pod_lines[name] = pods
        self._lines, self._pod_lines = lines, pod_lines

    def _pod_lines_of(self, node: str, labels: str, pods: tuple[PodRecord, ...]) -> _PodLines | None:
        pod_lines = self._pod_lines.get(node)
        if pod_lines is not None and pod_lines.pods is pods and pod_lines.labels == labels:
            return pod_lines
        if (sums := self._sums.of(pods)) is None:
            return None
        texts = {
            POD_REQUESTS: sums.requests,
            POD_LIMITS: sums.limits,
            DAEMON_REQUESTS: sums.daemon_requests,
            DAEMON_LIMITS: sums.daemon_limits,
        }
        return _PodLines(
            labels, pods, sums, {name: _texts(name, labels, _units(quantities)) for name, quantities in texts.items()}
        )

    def _ages(self, now: datetime) -> Iterator[str]:
        for node_lines in self._lines.values():
            created_at = node_lines.node.metadata.creation_timestamp
            if created_at is not None:
                seconds = (now - created_at).total_seconds()
                yield f"{LIFETIME}{{{node_lines.labels}}} {decimal(round(seconds, 3))}"

    def _utilization(self) -> Metric:
        has: Counter[str] = Counter()
        asked: Counter[str] = Counter()
        for node_lines in self._lines.values():
            has.update(node_lines.allocatable)
        for pods in self._pod_lines.values():
            asked.update(pods.sums.requests)
        family = GaugeMetricFamily(
            UTILIZATION, "Of what all nodes have, how much their pods request.", labels=["resource_type"]
        )
        requests = _units(asked)
        for resource, amount in has.items():
            if amount > 0:
                family.add_metric([resource], round(100 * requests.get(resource, 0) / amount, 6))
        return family


def _rendered(name: str, lines: Iterable[_NodeLines | _PodLines]) -> Metric:
    return RenderedMetric(name, _MEANINGS[name], [text for entry in lines for text in entry.texts[name]])


def _lines_of(node: objects.Node) -> _NodeLines:
    held = node.metadata.labels
    labels = labelled(
        [
            ("node_name", node.metadata.name),
            ("phase", ""),  # Kubernetes no longer sets it
            ("managed", "true" if names.NODEPOOL_LABEL in held else "false"),
            *((name, held.get(label, "")) for name, label in _WELL_KNOWN),
        ]
    )
    allocatable, capacity = amounts(node.status.allocatable), amounts(node.status.capacity)
    overhead = {
        resource: capacity[resource] - amount for resource, amount in allocatable.items() if resource in capacity
    }
    texts = {ALLOCATABLE: _texts(ALLOCATABLE, labels, allocatable), OVERHEAD: _texts(OVERHEAD, labels, overhead)}
    return _NodeLines(node, labels, allocatable, texts)


def _texts(name: str, labels: str, found: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(
        f"{name}{{{labels},{labelled([('resource_type', resource)])}}} {decimal(amount)}"
        for resource, amount in found.items()
    )


def _units(sums: Mapping[str, int]) -> dict[str, float]:
    """In cores, bytes and pieces."""
    return {name: amount / _MILLI if name == CPU else amount for name, amount in sorted(sums.items())}


def amounts(quantities: objects.Quantities) -> dict[str, float]:
    """In cores, bytes and pieces, without quantities that cannot be read."""
    numbers = {}
    for resource, text in quantities.items():
        try:
            numbers[resource] = parse_quantity(str(text)).nano / NANO_PER_UNIT
        except QuantityError:
            continue
    return numbers
