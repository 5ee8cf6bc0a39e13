"""The gauge of held nodes, counted when it is read."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.node_records import node_record

_NAME: Final = "dovetail_beside_held_nodes"


class HeldNodes(Collector):
    """The gauge, which is empty unless this replica leads: two replicas would count twice."""

    def __init__(self, cluster: WatchedCluster, leads: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._leads = leads

    def describe(self) -> Iterator[Metric]:
        yield _family()

    def collect(self) -> Iterator[Metric]:
        family = _family()
        counts: Counter[tuple[str, str]] = Counter()
        for node in map(node_record, self._cluster.nodes.values()) if self._leads() else ():
            if (hold := node.hold) is not None:
                counts[node.pool, hold.by.value] += 1
        for labels, count in sorted(counts.items()):
            family.add_metric(labels, count)
        yield family


def _family() -> GaugeMetricFamily:
    return GaugeMetricFamily(_NAME, "Nodes that Dovetail keeps Karpenter off.", labels=("nodepool", "by"))
