"""Whether a pod fits on a node given the pods around it: topology spread, pod affinity and anti-affinity."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from dovetail.api.names import TaintEffect
from dovetail.sim.actors.scheduling.demand import Demand, Labels, Neighbours, Spread, untolerated
from dovetail.sim.actors.scheduling.fit import FITS, Fit, NodeUsage, wants

SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = f"{SPREAD} (missing required label)"
EXISTING_ANTI = "node(s) didn't satisfy existing pods anti-affinity rules"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"

Nodes = Mapping[str, NodeUsage]
K = TypeVar("K")


class Crowd:
    """Numbers of pods by node, grouped by labels: there are few groups and many pods."""

    def __init__(self) -> None:
        # Pods by namespace, labels and whether they terminate, and then by node.
        self._groups: dict[tuple[str, tuple[tuple[str, str], ...], bool], dict[str, int]] = {}
        # Pods with anti-affinity, by node.
        self._keeping_away: dict[Demand, dict[str, int]] = {}

    def add(self, demand: Demand, node: str, *, leaving: bool, count: int = 1) -> None:
        """Add a pod to the node, or remove one with `count` -1."""
        key = (demand.namespace, tuple(sorted(demand.labels.items())), leaving)
        _count(self._groups, key, node, count)
        if demand.anti_affinity:
            _count(self._keeping_away, demand, node, count)

    def count(self, selects: Callable[[str, Labels], bool], *, leaving_too: bool) -> dict[str, int]:
        """The number of selected pods by node."""
        total: dict[str, int] = {}
        for (namespace, labels, leaving), nodes in self._groups.items():
            if (leaving_too or not leaving) and selects(namespace, dict(labels)):
                for node, count in nodes.items():
                    total[node] = total.get(node, 0) + count
        return total

    def alike(self, demand: Demand) -> Mapping[str, int]:
        """The number of pods of the same namespace and labels by node."""
        return self._groups.get((demand.namespace, tuple(sorted(demand.labels.items())), False), {})

    def kept_away_from(self, demand: Demand, nodes: Nodes) -> set[tuple[str, str]]:
        """The domains (key, value) in which the anti-affinity of a pod forbids this one."""
        return {
            (term.key, nodes[node].labels[term.key])
            for other, places in self._keeping_away.items()
            for term in other.anti_affinity
            if term.select(demand.namespace, demand.labels)
            for node in places
            if node in nodes and term.key in nodes[node].labels
        }


def _count(table: dict[K, dict[str, int]], key: K, node: str, by: int) -> None:
    places = table.setdefault(key, {})
    places[node] = places.get(node, 0) + by
    if not places[node]:
        del places[node]
        if not places:
            del table[key]


class Surroundings:
    """The topology filters for one demand, computed once for all nodes."""

    def __init__(self, demand: Demand, nodes: Nodes, crowd: Crowd) -> None:
        self._demand = demand
        hard = [spread for spread in demand.spreads if spread.hard]
        self._spreads = [(spread, *domain_counts(demand, spread, hard, nodes, crowd)) for spread in hard]
        self._away = crowd.kept_away_from(demand, nodes)
        self._anti = [(term.key, _near((term,), term.key, nodes, crowd)) for term in demand.anti_affinity]
        self._with = [(term.key, _near(demand.affinity, term.key, nodes, crowd)) for term in demand.affinity]
        # The first pod of a group with affinity to itself fits anywhere.
        self._first = not any(near for _, near in self._with) and all(
            term.select(demand.namespace, demand.labels) for term in demand.affinity
        )

    @property
    def matter(self) -> bool:
        """Whether any node could be rejected."""
        return bool(self._spreads or self._away or self._anti or self._with)

    def fit(self, node: NodeUsage) -> Fit:
        for spread, counts, least in self._spreads:
            domain = node.labels.get(spread.key)
            if domain is None:
                return Fit((SPREAD_LABEL,), final=True)
            own = spread.selector is not None and spread.selector.matches(self._demand.labels)
            if counts.get(domain, 0) + own - least > spread.max_skew:
                return Fit((SPREAD,))
        if not self._joins(node):
            return Fit((AFFINITY,), final=True)
        if any(node.labels.get(key) in near for key, near in self._anti):
            return Fit((ANTI_AFFINITY,))
        if self._away and any((key, value) in self._away for key, value in node.labels.items()):
            return Fit((EXISTING_ANTI,))
        return FITS

    def _joins(self, node: NodeUsage) -> bool:
        if any(key not in node.labels for key, _ in self._with):
            return False
        return self._first or all(node.labels[key] in near for key, near in self._with)


def domain_counts(
    demand: Demand, spread: Spread, hard: Iterable[Spread], nodes: Nodes, crowd: Crowd
) -> tuple[dict[str, int], int]:
    """The number of matching pods by domain, and the minimum that the skew counts from."""
    keys = [other.key for other in hard] or [spread.key]

    def selects(namespace: str, labels: Labels) -> bool:
        return namespace == demand.namespace and spread.selector is not None and spread.selector.matches(labels)

    placed = crowd.count(selects, leaving_too=False)
    counts: dict[str, int] = {}
    for node in nodes.values():
        if all(key in node.labels for key in keys) and _counts(demand, spread, node):
            domain = node.labels[spread.key]
            counts[domain] = counts.get(domain, 0) + placed.get(node.name, 0)
    least = 0 if len(counts) < spread.min_domains else min(counts.values(), default=0)
    return counts, least


def _counts(demand: Demand, spread: Spread, node: NodeUsage) -> bool:
    if spread.honor_affinity and not wants(demand, node):
        return False
    if not spread.honor_taints:
        return True
    return untolerated(demand.tolerations, node.taints, TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE) is None


def _near(terms: Iterable[Neighbours], key: str, nodes: Nodes, crowd: Crowd) -> set[str]:
    """The domains of the key with a pod that all the terms select."""
    wanted = tuple(terms)
    placed = crowd.count(
        lambda namespace, labels: all(term.select(namespace, labels) for term in wanted), leaving_too=True
    )
    return set(by_domain(key, placed, nodes))


def by_domain(key: str, placed: Mapping[str, int], nodes: Nodes) -> dict[str, int]:
    """The number of pods by domain of the key; `placed` by node."""
    counts: dict[str, int] = {}
    for name, count in placed.items():
        domain = nodes[name].labels.get(key) if name in nodes else None
        if domain is not None:
            counts[domain] = counts.get(domain, 0) + count
    return counts
