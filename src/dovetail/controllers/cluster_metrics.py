"""Which gauges follow from the state of the cluster alone (R40, 04 §3)?

They are worked out from the caches when somebody scrapes: nothing polls, and what is gone is gone from the gauges too.
Only the replica that leads tells them; the sum over two replicas would be twice the truth.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias, TypeVar

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dovetail.api import names, objects
from dovetail.api.names import Reason
from dovetail.controllers.alike_pods import AlikePods, Effect
from dovetail.controllers.cluster import Cluster
from dovetail.controllers.standing import Standing, StandingNodes
from dovetail.model.records import PoolRecord, pool_record
from dovetail.observe.metrics import Rendered, decimal, labelled
from dovetail.ports import Clock
from dovetail.rules.budgets import (
    BUDGETED,
    UNLIMITED,
    Allowance,
    BudgetRule,
    Reading,
    allowance,
    pool_counts,
    read_budgets,
)
from dovetail.rules.states import State
from dovetail.rules.verdict import Rule
from dovetail.values.quantity import NANO_PER_UNIT, QuantityError, parse_quantity

PROTECTIONS: Final = {
    Rule.DO_NOT_DISRUPT: "do-not-disrupt",
    Rule.DISRUPTION_SCHEDULE: "schedule",
    Rule.DISRUPTION_BLOCK_SCHEDULE: "block-schedule",
    Rule.POD_DISRUPTION_BUDGET: "pdb",
}

_WELL_KNOWN: Final = [(label.partition("/")[2].replace("-", "_"), label) for label in sorted(names.WELL_KNOWN_LABELS)]

L = TypeVar("L", bound=tuple[str, ...])
Blocked: TypeAlias = tuple[str, str, str]  # nodepool, reason, blocker


class _Pool(msgspec.Struct, frozen=True, eq=False):
    """A pool of ours, its budgets read."""

    pool: objects.NodePool
    record: PoolRecord
    budgets: tuple[BudgetRule, ...]


class _Spending(msgspec.Struct, frozen=True, eq=False):
    """What a pool's budgets allow for each reason, and how many nodes use them up."""

    consumers: int
    allowances: Mapping[Reason, Allowance]


class _NodeLines(msgspec.Struct, frozen=True, eq=False):
    """What is said of a Node as long as it does not change."""

    node: objects.Node
    labels: str
    allocatable: tuple[str, ...]
    overhead: tuple[str, ...]


class ClusterMetrics(Collector):
    """Register it on a registry; make it before the caches run. `leads` says whether this replica tells."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        leads: Callable[[], bool],
        reading: Reading = Reading.SEED,
        objects_too: bool = True,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._leads = leads
        self._reading = reading
        self._objects_too = objects_too  # gauges of each single node and pool
        self._pods = AlikePods(cluster)
        self._standing = StandingNodes(cluster, self._pods)
        self._pools: dict[str, _Pool] = {}
        self._lines: dict[str, _NodeLines] = {}
        self._started_at = clock.monotonic()
        self._blocked: Mapping[Blocked, int] = {}
        self._blocked_at = self._started_at
        self._blocked_seconds: dict[Blocked, float] = defaultdict(float)

    def collect(self) -> Iterator[Metric]:
        synced = all(reflector.synced for reflector in self._cluster.reflectors)
        unsynced_seconds = 0.0 if synced else self._clock.monotonic() - self._started_at
        yield _gauge("karpenter_cluster_state_synced", "1 if all caches are synced.", {(): int(synced)})
        yield _gauge(
            "karpenter_cluster_state_unsynced_time_seconds",
            "For how long the caches have not been synced.",
            {(): unsynced_seconds},
        )
        if synced and self._leads():
            yield from self._told(self._clock.now())

    def _told(self, now: datetime) -> Iterator[Metric]:
        self._read_pools()
        nodes = self._standing.at(now, {name: pool.record for name, pool in self._pools.items()})
        count = len(self._cluster.nodes.snapshot().items) + sum(one.node is None for one in nodes)
        yield _gauge("karpenter_cluster_state_node_count", "Nodes, and NodeClaims without one.", {(): count})
        yield self._states(nodes)
        yield self._protected(now)
        spending = self._spending(nodes, now)
        yield from self._blocking(nodes, spending, now)
        if self._objects_too:
            yield from self._budgets(spending)
            yield from self._resources()
            yield from self._node_gauges(now)

    def _read_pools(self) -> None:
        found: dict[str, _Pool] = {}
        for pool in self._cluster.pools.values():
            if self._cluster.manages(pool.spec.template.spec.node_class_ref):
                known = self._pools.get(pool.metadata.name)
                if known is None or known.pool is not pool:
                    record = pool_record(pool)
                    known = _Pool(pool, record, read_budgets(record.budgets))
                found[pool.metadata.name] = known
        self._pools = found

    # -- protections and states (R40) -----------------------------------------------------------------------------

    def _states(self, nodes: Sequence[Standing]) -> Metric:
        counts = Counter({(pool, state.value): 0 for pool in self._pools for state in State})
        counts.update((one.member.pool, one.state.value) for one in nodes)
        return _gauge("dovetail_node_state", "NodeClaims in each of the states S1 to S6.", counts, "nodepool", "state")

    def _protected(self, now: datetime) -> Metric:
        """A pod counts once a protection it has: as invalid, or as active, or as elapsed if it protects nothing now."""
        found = self._pods.effects(now)
        counts = {(name, effect.value): found[rule, effect] for rule, name in PROTECTIONS.items() for effect in Effect}
        return _gauge("dovetail_protected_pods", "Active pods that have a protection.", counts, "protection", "state")

    # -- what does not happen (R40) -------------------------------------------------------------------------------

    def _blocking(
        self, nodes: Sequence[Standing], spending: Mapping[str, _Spending], now: datetime
    ) -> Iterator[Metric]:
        """A node counts under every rule that blocks it. The seconds are as exact as scrapes are frequent: what is
        blocked at one of them counts until the next."""
        blocked: Counter[Blocked] = Counter()
        for one in nodes:
            for reason, rules in self._standing.held_back(one, now):
                spent = spending.get(one.member.pool)
                if spent is not None and not spent.allowances[reason].allowed:
                    rules.add(Rule.BUDGET)
                blocked.update((one.member.pool, reason.value, rule.value) for rule in rules)
        at = self._clock.monotonic()
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

    def _spending(self, nodes: Sequence[Standing], now: datetime) -> dict[str, _Spending]:
        members = defaultdict(list)
        for one in nodes:
            members[one.member.pool].append(one.member)
        found = {}
        for name, pool in self._pools.items():
            counts = pool_counts(members[name])
            allowances = {
                reason: allowance(pool.budgets, reason=reason, now=now, counts=counts, reading=self._reading)
                for reason in BUDGETED
            }
            found[name] = _Spending(len(counts.consumers), allowances)
        return found

    # -- each pool and node (04 §3.2, §3.3) -----------------------------------------------------------------------

    def _budgets(self, spending: Mapping[str, _Spending]) -> Iterator[Metric]:
        limits, consumers = {}, {}
        for pool, spent in spending.items():
            for reason, allowed in spent.allowances.items():
                limits[pool, reason.value] = UNLIMITED if allowed.binding is None else allowed.limit
                consumers[pool, reason.value] = spent.consumers
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

    def _resources(self) -> Iterator[Metric]:
        limits: dict[tuple[str, ...], float] = {}
        usage: dict[tuple[str, ...], float] = {}
        for name, pool in self._pools.items():
            limits |= {(resource, name): amount for resource, amount in _amounts(pool.pool.spec.limits).items()}
            usage |= {(resource, name): amount for resource, amount in _amounts(pool.pool.status.resources).items()}
        labels = ("resource_type", "nodepool")
        yield _gauge("karpenter_nodepools_limit", "What the pool may use at most.", limits, *labels)
        yield _gauge("karpenter_nodepools_usage", "What the pool uses.", usage, *labels)

    def _node_gauges(self, now: datetime) -> Iterator[Metric]:
        lines: dict[str, _NodeLines] = {}
        ages: list[str] = []
        for node in self._cluster.nodes.values():
            known = self._lines.get(node.metadata.name)
            if known is None or known.node is not node:
                known = _node_lines(node)
            lines[node.metadata.name] = known
            if node.metadata.creation_timestamp is not None:
                seconds = (now - node.metadata.creation_timestamp).total_seconds()
                ages.append(f"{LIFETIME}{{{known.labels}}} {decimal(round(seconds, 3))}")
        self._lines = lines
        of_all = lines.values()
        yield Rendered(ALLOCATABLE, "What pods can use.", [line for one in of_all for line in one.allocatable])
        yield Rendered(OVERHEAD, "What pods cannot use.", [line for one in of_all for line in one.overhead])
        yield Rendered(LIFETIME, "How old the Node is.", ages)


ALLOCATABLE: Final = "karpenter_nodes_allocatable"
OVERHEAD: Final = "karpenter_nodes_system_overhead"
LIFETIME: Final = "karpenter_nodes_current_lifetime_seconds"


def _node_lines(node: objects.Node) -> _NodeLines:
    held = node.metadata.labels
    labels = labelled(
        [
            ("node_name", node.metadata.name),
            ("phase", ""),  # Kubernetes has long ceased to set it
            ("managed", "true" if names.NODEPOOL_LABEL in held else "false"),
            *((name, held.get(label, "")) for name, label in _WELL_KNOWN),
        ]
    )
    allocatable, capacity = _amounts(node.status.allocatable), _amounts(node.status.capacity)
    overhead = {
        resource: capacity[resource] - amount for resource, amount in allocatable.items() if resource in capacity
    }
    return _NodeLines(node, labels, _lines(ALLOCATABLE, labels, allocatable), _lines(OVERHEAD, labels, overhead))


def _lines(name: str, labels: str, amounts: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(
        f"{name}{{{labels},{labelled([('resource_type', resource)])}}} {decimal(amount)}"
        for resource, amount in amounts.items()
    )


def _amounts(quantities: objects.Quantities) -> dict[str, float]:
    """In cores, bytes and pieces; what cannot be read is left out."""
    found = {}
    for resource, text in quantities.items():
        try:
            found[resource] = parse_quantity(str(text)).nano / NANO_PER_UNIT
        except QuantityError:
            continue
    return found


def _gauge(name: str, documentation: str, amounts: Mapping[L, float], *labels: str) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, amount in amounts.items():
        family.add_metric(values, amount)
    return family
