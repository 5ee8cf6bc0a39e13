"""What is counted of voluntary disruption (04 §3.4)?"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dovetail.observe.metrics import DURATION_BUCKETS

_DECISION = ("decision", "reason", "consolidation_type")


class DisruptionMetrics:
    """Names and labels are upstream's."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "karpenter_voluntary_disruption"
        self.evaluation_seconds = Histogram(
            f"{prefix}_decision_evaluation_duration_seconds",
            "How long it took to decide.",
            ("reason", "consolidation_type"),
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self.decisions = Counter(f"{prefix}_decisions", "Commands that were started.", _DECISION, registry=registry)
        self.decisions_by_pool = Counter(
            f"{prefix}_decisions_by_nodepool",
            "The same, by the NodePools of their nodes.",
            ("nodepool", *_DECISION),
            registry=registry,
        )
        self.eligible = Gauge(
            f"{prefix}_eligible_nodes", "Nodes that budgets alone may hold back.", ("reason",), registry=registry
        )
        self.timeouts = Counter(
            f"{prefix}_consolidation_timeouts",
            "Passes that ran out of time.",
            ("consolidation_type",),
            registry=registry,
        )
        for consolidation_type in ("multi", "single"):
            self.timeouts.labels(consolidation_type)
        self.failed_validations = Counter(
            f"{prefix}_failed_validations",
            "Nodes that could not go any more when it was time.",
            ("consolidation_type",),
            registry=registry,
        )
        self.queue_failures = Counter(
            f"{prefix}_queue_failures",
            "Replacements that were not there when their command was given up.",
            _DECISION,
            registry=registry,
        )
