"""Which gauges follow from the state of the cluster alone (R40, 04 §3)?

They are worked out from the caches when somebody scrapes: nothing polls, and what is gone is gone from the gauges too.
Only the replica that leads tells them; the sum over two replicas would be twice the truth.
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
from dovetail.model.records import PdbRecord
from dovetail.observe.metrics import DeferredMetrics
from dovetail.planning.disruption.evaluation import NodeEvaluation, NodeEvaluator
from dovetail.planning.disruption.pool_budgets import ParsedPool, PoolAllowances, PoolBudgets
from dovetail.ports import Clock
from dovetail.rules.budgets import UNLIMITED, BudgetSemantics
from dovetail.rules.protection import POD_RULES
from dovetail.rules.states import NodeState
from dovetail.rules.verdict import Rule
from dovetail.state.nodes import ManagedNode, NodeKey
from dovetail.state.protections import GroupCounts, PodGroupCounts, PodProtections, ProtectionStatus
from dovetail.state.store import Contents

PROTECTIONS: Final = {each.rule: each.label for each in POD_RULES} | {Rule.POD_DISRUPTION_BUDGET: "pdb"}

L = TypeVar("L", bound=tuple[str, ...])
BlockedKey: TypeAlias = tuple[str, str, str]  # nodepool, reason, blocker


class _MetricsInputs(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """All that is told, as it was at one instant: nothing that happens later touches it."""

    now: datetime
    monotonic: float
    members: Mapping[NodeKey, ManagedNode]
    node_count: int
    pools: Mapping[str, ParsedPool]
    pods: GroupCounts
    pdbs: Contents[PdbRecord]
    pod_times: tuple[Metric, ...]
    costs: Mapping[tuple[str], float] | None


class ClusterMetrics(Collector):
    """Register it on a registry; make it before the caches run. `leads` says whether this replica tells.

    What there is is noted at the scrape, on the event loop; what is told of it is worked out as the text is made.
    """

    def __init__(
        self,
        cluster: WatchedCluster,
        clock: Clock,
        *,
        leads: Callable[[], bool],
        reading: BudgetSemantics = BudgetSemantics.SEED,
        objects_too: bool = True,
        prices: PoolCosts | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._leads = leads
        self._objects_too = objects_too  # gauges of each single node and pool
        self._counts = PodGroupCounts(cluster)
        self._pods = PodProtections()
        self._standing = NodeEvaluator(self._pods)
        self._budgets_of = PoolBudgets(reading)
        self._prices = prices
        self._pod_times = PodTimes(cluster, clock, leads=leads)
        if objects_too:
            self._nodes = NodeGauges(cluster)
            self._statuses = StatusMetrics(cluster, clock, leads=leads)
        self._started_at = clock.monotonic()
        self._blocked: Mapping[BlockedKey, int] = {}
        self._blocked_at = self._started_at
        self._blocked_seconds: dict[BlockedKey, float] = defaultdict(float)

    def collect(self) -> Iterator[Metric]:
        synced = all(store.synced for store in self._cluster.stores.values())
        unsynced_seconds = 0.0 if synced else self._clock.monotonic() - self._started_at
        yield _gauge("karpenter_cluster_state_synced", "1 if all caches are synced.", {(): int(synced)})
        yield _gauge(
            "karpenter_cluster_state_unsynced_time_seconds",
            "For how long the caches have not been synced.",
            {(): unsynced_seconds},
        )
        if synced and self._leads():
            yield from self._asides()

    def _asides(self) -> list[Metric]:
        """All is noted before the first is told: whoever collects may pause between one and the next."""
        noted = self._noted()
        found: list[Metric] = [DeferredMetrics(partial(self._told, noted))]
        if self._objects_too:
            found.append(DeferredMetrics(partial(self._nodes.collect, self._nodes.noted(), noted.now)))
            found.append(DeferredMetrics(partial(self._statuses.collect, self._statuses.noted(), noted.now)))
        return found

    def _noted(self) -> _MetricsInputs:
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
        )

    def _told(self, noted: _MetricsInputs) -> Iterator[Metric]:
        self._pods.know(noted.pdbs)
        nodes = self._standing.at(noted.now, noted.members, {name: pool.record for name, pool in noted.pools.items()})
        count = noted.node_count + sum(one.node is None for one in nodes)
        yield _gauge("karpenter_cluster_state_node_count", "Nodes, and NodeClaims without one.", {(): count})
        yield _states(noted.pools, nodes)
        yield self._protected(noted)
        spending = self._budgets_of.spending(noted.pools, nodes, noted.now)
        yield from self._blocking(nodes, spending, noted)
        yield from noted.pod_times
        if self._objects_too:
            yield from self._budgets(spending)
            yield from _resources(noted)

    # -- protections and states (R40) -----------------------------------------------------------------------------

    def _protected(self, noted: _MetricsInputs) -> Metric:
        """A pod counts once a protection it has: as invalid, or as active, or as elapsed if it protects nothing now."""
        found = self._pods.effects(noted.pods, noted.now)
        counts = {
            (name, effect.value): found[rule, effect]
            for rule, name in PROTECTIONS.items()
            for effect in ProtectionStatus
        }
        return _gauge("dovetail_protected_pods", "Active pods that have a protection.", counts, "protection", "state")

    # -- what does not happen (R40) -------------------------------------------------------------------------------

    def _blocking(
        self, nodes: Sequence[NodeEvaluation], spending: Mapping[str, PoolAllowances], noted: _MetricsInputs
    ) -> Iterator[Metric]:
        """A node counts under every rule that blocks it. The seconds are as exact as scrapes are frequent: what is
        blocked at one of them counts until the next."""
        blocked: Counter[BlockedKey] = Counter()
        next_at: dict[tuple[str, ...], float] = {}
        for one in nodes:
            pool = one.member.pool
            for reason, rules, until in self._standing.held_back(one, noted.now):
                spent, ends = spending.get(pool), [until]
                if spent is not None and not spent.allowances[reason].allowed:
                    rules.add(Rule.BUDGET)
                    ends.append(spent.allowances[reason].until)
                blocked.update((pool, reason.value, rule.value) for rule in rules)
                for end in ends:
                    if end is not None:
                        next_at[pool,] = min(end.timestamp(), next_at.get((pool,), inf))
        at = noted.monotonic
        for key, count in self._blocked.items():
            self._blocked_seconds[key] += count * (at - self._blocked_at)
        self._blocked, self._blocked_at = blocked, at
        labels = ("nodepool", "reason", "blocker")
        yield _gauge("dovetail_nodes_blocked", "Nodes whose wanted disruption is blocked.", blocked, *labels)
        seconds = CounterMetricFamily(
            "dovetail_blocked_node_seconds_total", "For how long, summed over the nodes.", labels=labels
        )
        for key, amount in self._blocked_seconds.items():
            seconds.add_metric(key, amount)
        yield seconds
        yield _gauge(
            "dovetail_next_unblock_timestamp_seconds",
            "When time alone will end the next rule that blocks a wanted disruption; no series if none does.",
            next_at,
            "nodepool",
        )

    # -- each pool (04 §3.3) --------------------------------------------------------------------------------------

    def _budgets(self, spending: Mapping[str, PoolAllowances]) -> Iterator[Metric]:
        limits, consumers = {}, {}
        for pool, spent in spending.items():
            for reason, allowed in spent.allowances.items():
                limits[pool, reason.value] = UNLIMITED if allowed.binding is None else allowed.limit
                consumers[pool, reason.value] = len(spent.counts.consumers)
        labels = ("nodepool", "reason")
        yield _gauge(
            "karpenter_nodepools_allowed_disruptions",
            "The limit of the budgets, of which nothing is subtracted.",
            limits,
            *labels,
        )
        yield _gauge(
            "karpenter_nodepools_nodes_consuming_budgets", "Nodes that use the budgets up.", consumers, *labels
        )


def _states(pools: Iterable[str], nodes: Sequence[NodeEvaluation]) -> Metric:
    counts = Counter({(pool, state.value): 0 for pool in pools for state in NodeState})
    counts.update((one.member.pool, one.state.value) for one in nodes)
    return _gauge("dovetail_node_state", "NodeClaims in each of the states S1 to S6.", counts, "nodepool", "state")


def _resources(noted: _MetricsInputs) -> Iterator[Metric]:
    limits: dict[tuple[str, ...], float] = {}
    usage: dict[tuple[str, ...], float] = {}
    for name, pool in noted.pools.items():
        limits |= {(resource, name): amount for resource, amount in amounts(pool.pool.spec.limits).items()}
        usage |= {(resource, name): amount for resource, amount in amounts(pool.pool.status.resources).items()}
    labels = ("resource_type", "nodepool")
    yield _gauge("karpenter_nodepools_limit", "What the pool may use at most.", limits, *labels)
    yield _gauge("karpenter_nodepools_usage", "What the pool uses.", usage, *labels)
    if noted.costs is not None:
        yield _gauge("karpenter_nodepools_cost_total", "What the pool costs by the hour.", noted.costs, "nodepool")


def _gauge(name: str, documentation: str, amounts: Mapping[L, float], *labels: str) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, amount in amounts.items():
        family.add_metric(values, amount)
    return family
