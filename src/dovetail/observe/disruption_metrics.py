"""Metrics of graceful disruption (04 §3.4), with upstream's names and labels where there are some."""

from prometheus_client import CollectorRegistry

from dovetail.observe.metrics import DURATION_BUCKETS, MetricDeclarations

_DECISION = ("decision", "reason", "consolidation_type")


class DisruptionMetrics(MetricDeclarations):
    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        prefix, type_ = "karpenter_voluntary_disruption", "consolidation_type"
        name = f"{prefix}_decision_evaluation_duration_seconds"
        self.evaluation_seconds = self.histogram(name, "How long it took to decide.", DURATION_BUCKETS, "reason", type_)
        self.decisions = self.counter(f"{prefix}_decisions", "Commands that were started.", *_DECISION)
        name, meaning = f"{prefix}_decisions_by_nodepool", "The same, by the NodePools of their nodes."
        self.decisions_by_pool = self.counter(name, meaning, "nodepool", *_DECISION)
        name = f"{prefix}_eligible_nodes"
        self.eligible = self.gauge(name, "Nodes that budgets alone may hold back.", "reason")
        name = f"{prefix}_consolidation_timeouts"
        self.timeouts = self.counter(name, "Passes that ran out of time.", type_)
        for consolidation_type in ("multi", "single"):
            self.timeouts.labels(consolidation_type)
        meaning = "Nodes that could not go any more when it was time."
        self.failed_validations = self.counter(f"{prefix}_failed_validations", meaning, type_)
        meaning = "Replacements that were not there when their command was given up."
        self.queue_failures = self.counter(f"{prefix}_queue_failures", meaning, *_DECISION)
        self._declare_accounts()

    def _declare_accounts(self) -> None:
        """What consolidation commands promised, and what came of it (ADR-0038). Each is counted when it is closed.

        Savings may be negative, so that they are gauges.
        """
        prefix, pool = "dovetail_consolidation", "nodepool"
        meaning = "Savings per hour that consolidation commands promised, since the start."
        self.savings_promised = self.gauge(f"{prefix}_savings_promised", meaning, pool)
        meaning = "Savings per hour that consolidation commands realised, since the start."
        self.savings_realised = self.gauge(f"{prefix}_savings_realised", meaning, pool)
        self.pods_moved = self.counter(f"{prefix}_pods_moved", "Pods that consolidation moved.", pool)
        meaning = "Pods that consolidation moved for the second time within an hour."
        self.pods_moved_again = self.counter(f"{prefix}_pods_moved_again", meaning, pool)
        meaning = "Pods of consolidation commands that realised less than half of what they promised."
        self.pods_moved_in_vain = self.counter(f"{prefix}_pods_moved_in_vain", meaning, pool)
        meaning = "Nodes launched for pods that consolidation moved, which no command planned."
        self.unplanned_nodes = self.counter(f"{prefix}_unplanned_nodes", meaning, pool)
        meaning = "When the back-off of a NodePool whose consolidation saved too little ends; 0: it has none."
        self.backoff_ends = self.gauge(f"{prefix}_backoff_end_timestamp_seconds", meaning, pool)
