"""Metrics of guard and drive (10 §I.7)."""

from prometheus_client import CollectorRegistry

from dovetail.observe.metrics import MetricDeclarations


class BesideMetrics(MetricDeclarations):
    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.writes = self.counter(
            "dovetail_beside_writes_total",
            "Patches that put marks on objects or took them off, by what they did.",
            "what",
        )
        self.late = self.counter(
            "dovetail_beside_late_total",
            "Nodes that Karpenter had taken when one of their pods was not to be disrupted.",
            "nodepool",
        )
        self.stamped = self.counter(
            "dovetail_beside_stamped_total", "NodeClaims marked for a graceful replacement by Karpenter.", "why"
        )
