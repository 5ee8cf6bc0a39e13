"""Gauges of the state of the cluster (R40, 04 §3), computed at the scrape.

Only the leader exports them: the sum over two replicas would be twice the real value.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from math import inf
from typing import Final, TypeAlias, TypeVar

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.metrics.conditions import StatusMetrics
from dovetail.controllers.metrics.node_gauges import NodeGauges, amounts
from dovetail.controllers.metrics.pod_times import PodTimes
from dovetail.controllers.metrics.pool_costs import PoolCosts
from dovetail.model.pdb_records import PdbRecord
from dovetail.observe.metrics import DeferredMetrics
from dovetail.planning.disruption.evaluation import NodeEvaluation, NodeEvaluator
from dovetail.planning.disruption.pool_budgets import ParsedPool, PoolAllowances, PoolBudgets
from dovetail.planning.disruption.replaceable import ReplacementVerdicts
from dovetail.ports import Clock
from dovetail.rules.budgets import UNLIMITED
from dovetail.rules.protection import POD_RULES
from dovetail.rules.states import NodeState
from dovetail.rules.verdict import Rule
from dovetail.state.nodes import ManagedNode, NodeKey
from dovetail.state.protections import GroupCounts, PodGroupCounts, PodProtections, ProtectionStatus
from dovetail.state.store import Contents

PROTECTIONS: Final = {pod_rule.rule: pod_rule.label for pod_rule in POD_RULES} | {Rule.POD_DISRUPTION_BUDGET: "pdb"}

L = TypeVar("L", bound=tuple[str, ...])
BlockedKey: TypeAlias = tuple[str, str, str]  # nodepool, reason, blocker


class _MetricsInputs(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The inputs of one scrape, as they are at one instant. Later changes do not affect them."""

    now: datetime
    monotonic: float
    members: Mapping[NodeKey, ManagedNode]
    node_count: int
    pools: Mapping[str, ParsedPool]
    pods: GroupCounts
    pdbs: Contents[PdbRecord]
    pod_times: tuple[Metric, ...]
    costs: Mapping[tuple[str], float] | None
    not_replaced: ReplacementVerdicts


class ClusterMetrics(Collector):
    """The gauges. Register them on a registry, and create them before the reflectors run.

    `leads`: whether this replica is the leader. Inputs are copied on the event loop at the scrape; the metrics are
    computed while the text is rendered.
    """

    def __init__(
        self,
        cluster: WatchedCluster,
        clock: Clock,
        *,
        leads: Callable[[], bool],
        objects_too: bool = True,
        prices: PoolCosts | None = None,
        not_replaced: Callable[[], ReplacementVerdicts] = dict,
    ) -> None:
        """`not_replaced`: what the engine knows about nodes that it cannot replace."""
        self._cluster = cluster
        self._not_replaced = not_replaced
        self._clock = clock
        self._leads = leads
        self._objects_too = objects_too  # gauges of each single node and pool
        self._counts = PodGroupCounts(cluster)
        self._pods = PodProtections()
        self._standing = NodeEvaluator(self._pods)
        self._budgets_of = PoolBudgets(cluster.settings)
        self._prices = prices
        self._pod_times = PodTimes(cluster, clock, leads=leads)
        if objects_too:
            self._nodes = NodeGauges()
            self._statuses = StatusMetrics(cluster, clock, leads=leads)
        self._started_at = clock.monotonic()
        self._blocked: Mapping[BlockedKey, int] = {}
        self._blocked_at = self._started_at
        self._blocked_seconds: dict[BlockedKey, float] = defaultdict(float)

    def collect(self) -> Iterator[Metric]:
        synced = all(store.synced for store in self._cluster.stores.values())
        unsynced_seconds = 0.0 if synced else self._clock.monotonic() - self._started_at
        yield _gauge("karpenter_cluster_state_synced", "1 if all caches are synced.", {(): int(synced)})
        meaning = "For how long the caches have not been synced."
        yield _gauge("karpenter_cluster_state_unsynced_time_seconds", meaning, {(): unsynced_seconds})
        if synced and self._leads():
            yield from self._deferred()

    def _deferred(self) -> list[Metric]:
        """Copies all inputs at once: the registry may pause between two metrics."""
        inputs = self._inputs()
        metrics: list[Metric] = [DeferredMetrics(partial(self._metrics, inputs))]
        if self._objects_too:
            nodes = self._cluster.managed.all().values()
            metrics.append(DeferredMetrics(partial(self._nodes.collect, nodes, inputs.now)))
            metrics.append(DeferredMetrics(partial(self._statuses.collect, self._statuses.snapshot(), inputs.now)))
        return metrics

    def _inputs(self) -> _MetricsInputs:
        pools = self._budgets_of.read(self._cluster.our_pools())
        return _MetricsInputs(
            now=self._clock.now(),
            monotonic=self._clock.monotonic(),
            members=self._cluster.managed.ours(),
            node_count=len(self._cluster.nodes.snapshot().items),
            pools=pools,
            pods=self._counts.counted(),
            pdbs=self._cluster.pdbs.snapshot(),
            pod_times=tuple(self._pod_times.collect()),
            costs=None if self._prices is None else {(name,): self._prices.cost(name) for name in pools},
            not_replaced=self._not_replaced(),
        )

    def _metrics(self, inputs: _MetricsInputs) -> Iterator[Metric]:
        self._pods.know(inputs.pdbs)
        nodes = self._standing.at(
            inputs.now, inputs.members, {name: pool.record for name, pool in inputs.pools.items()}
        )
        count = inputs.node_count + sum(node.node is None for node in nodes)
        yield _gauge("karpenter_cluster_state_node_count", "Nodes, and NodeClaims without one.", {(): count})
        yield _states(inputs.pools, nodes)
        yield self._protected(inputs)
        spending = self._budgets_of.spending(inputs.pools, nodes, inputs.now)
        yield from self._blocking(nodes, spending, inputs)
        yield from inputs.pod_times
        if self._objects_too:
            yield from self._budgets(spending)
            yield from _resources(inputs)

    # -- protections and states (R40) -----------------------------------------------------------------------------

    def _protected(self, inputs: _MetricsInputs) -> Metric:
        """Counts a pod once for each protection it has."""
        effects = self._pods.effects(inputs.pods, inputs.now)
        counts = {
            (name, effect.value): effects[rule, effect]
            for rule, name in PROTECTIONS.items()
            for effect in ProtectionStatus
        }
        return _gauge("dovetail_protected_pods", "Active pods that have a protection.", counts, "protection", "state")

    # -- what does not happen (R40) -------------------------------------------------------------------------------

    def _blocking(
        self, nodes: Sequence[NodeEvaluation], spending: Mapping[str, PoolAllowances], inputs: _MetricsInputs
    ) -> Iterator[Metric]:
        """Counts a node under every rule that blocks it. A node blocked at one scrape counts until the next one."""
        blocked: Counter[BlockedKey] = Counter()
        next_at: dict[tuple[str, ...], float] = {}
        for node in nodes:
            pool = node.member.pool
            for reason, rules, until in self._standing.blocked_reasons(node, inputs.now):
                spent, ends = spending.get(pool), [until]
                if spent is not None and not spent.allowances[reason].allowed:
                    rules.add(Rule.BUDGET)
                    ends.append(spent.allowances[reason].until)
                if (replacement := inputs.not_replaced.get((node.member.name, reason))) is not None:
                    rules.add(Rule.REPLACEMENT)
                    ends.append(replacement.until)
                blocked.update((pool, reason.value, rule.value) for rule in rules)
                for end in ends:
                    if end is not None:
                        next_at[pool,] = min(end.timestamp(), next_at.get((pool,), inf))
        at = inputs.monotonic
        for key, count in self._blocked.items():
            self._blocked_seconds[key] += count * (at - self._blocked_at)
        self._blocked, self._blocked_at = blocked, at
        labels = ("nodepool", "reason", "blocker")
        yield _gauge("dovetail_nodes_blocked", "Nodes whose wanted disruption is blocked.", blocked, *labels)
        meaning = "For how long, summed over the nodes."
        seconds = CounterMetricFamily("dovetail_blocked_node_seconds_total", meaning, labels=labels)
        for key, amount in self._blocked_seconds.items():
            seconds.add_metric(key, amount)
        yield seconds
        meaning = "When time alone will end the next rule that blocks a wanted disruption; no series if none does."
        yield _gauge("dovetail_next_unblock_timestamp_seconds", meaning, next_at, "nodepool")

    # -- each pool (04 §3.3) --------------------------------------------------------------------------------------

    def _budgets(self, spending: Mapping[str, PoolAllowances]) -> Iterator[Metric]:
        limits, consumers = {}, {}
        for pool, spent in spending.items():
            for reason, allowed in spent.allowances.items():
                limits[pool, reason.value] = UNLIMITED if allowed.binding is None else allowed.limit
                consumers[pool, reason.value] = len(spent.counts.consumers)
        labels = ("nodepool", "reason")
        meaning = "The limit of the budgets, of which nothing is subtracted."
        yield _gauge("karpenter_nodepools_allowed_disruptions", meaning, limits, *labels)
        meaning = "Nodes that use the budgets up."
        yield _gauge("karpenter_nodepools_nodes_consuming_budgets", meaning, consumers, *labels)


def _states(pools: Iterable[str], nodes: Sequence[NodeEvaluation]) -> Metric:
    counts = Counter({(pool, state.value): 0 for pool in pools for state in NodeState})
    counts.update((node.member.pool, node.state.value) for node in nodes)
    return _gauge("dovetail_node_state", "NodeClaims in each of the states S1 to S6.", counts, "nodepool", "state")


def _resources(inputs: _MetricsInputs) -> Iterator[Metric]:
    limits: dict[tuple[str, ...], float] = {}
    usage: dict[tuple[str, ...], float] = {}
    for name, pool in inputs.pools.items():
        limits |= {(resource, name): amount for resource, amount in amounts(pool.pool.spec.limits).items()}
        usage |= {(resource, name): amount for resource, amount in amounts(pool.pool.status.resources).items()}
    labels = ("resource_type", "nodepool")
    yield _gauge("karpenter_nodepools_limit", "What the pool may use at most.", limits, *labels)
    yield _gauge("karpenter_nodepools_usage", "What the pool uses.", usage, *labels)
    if inputs.costs is not None:
        yield _gauge("karpenter_nodepools_cost_total", "What the pool costs by the hour.", inputs.costs, "nodepool")


def _gauge(name: str, documentation: str, amounts: Mapping[L, float], *labels: str) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, amount in amounts.items():
        family.add_metric(values, amount)
    return family
