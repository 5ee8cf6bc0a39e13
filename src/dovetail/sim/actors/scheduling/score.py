"""Scores of fitting nodes, as kube-scheduler computes them. Among equals the name decides, not chance."""

import math
from collections.abc import Mapping, Sequence

from dovetail.api.names import HOSTNAME_LABEL, ZONE_LABEL, TaintEffect
from dovetail.sim.actors.scheduling.demand import Demand, tolerates
from dovetail.sim.actors.scheduling.fit import NodeUsage, term_matches
from dovetail.sim.actors.scheduling.topology import Crowd, Nodes, by_domain, domain_counts

# kube-scheduler's default weights.
_TAINTS, _NODE_AFFINITY, _SPREAD, _POD_AFFINITY = 3, 2, 2, 2
_DEFAULT_SPREAD = ((HOSTNAME_LABEL, 3), (ZONE_LABEL, 5))


def best(demand: Demand, emptiness: Mapping[str, int], nodes: Nodes, crowd: Crowd) -> str:
    """The node with the highest score; among equals the first by name. `emptiness`: `least_allocated` of each."""
    fitting = [nodes[name] for name in emptiness]
    totals = list(emptiness.values())
    for weight, scores in (
        (_TAINTS, _disliked_taints(demand, fitting)),
        (_NODE_AFFINITY, _node_affinity(demand, fitting)),
        (_SPREAD, _spread(demand, fitting, nodes, crowd)),
        (_POD_AFFINITY, _pod_affinity(demand, fitting, nodes, crowd)),
    ):
        if scores:
            totals = [total + weight * score for total, score in zip(totals, scores, strict=True)]
    most = max(totals)
    return min(node.name for node, total in zip(fitting, totals, strict=True) if total == most)


def least_allocated(demand: Demand, node: NodeUsage) -> int:
    """The average free share of cpu and memory, from 0 to 100."""
    total = parts = 0
    for index, name in enumerate(("cpu", "memory")):
        whole = node.allocatable.get(name, 0)
        if whole:
            free = whole - node.score_used[index] - demand.score_requests[index]
            total += max(0, free) * 100 // whole
            parts += 1
    return total // parts if parts else 0


# Each of the following returns a score of 0 to 100 for each node, or nothing if all scores are equal.


def _disliked_taints(demand: Demand, fitting: Sequence[NodeUsage]) -> list[int]:
    if not any(node.taints for node in fitting):
        return []
    return _reversed(
        [
            sum(
                taint["effect"] == TaintEffect.PREFER_NO_SCHEDULE and not tolerates(demand.tolerations, taint)
                for taint in node.taints
            )
            for node in fitting
        ]
    )


def _node_affinity(demand: Demand, fitting: Sequence[NodeUsage]) -> list[int]:
    if not demand.preferred_nodes:
        return []
    raw = [
        sum(
            entry["weight"]
            for entry in demand.preferred_nodes
            if term_matches(entry["preference"], node.name, node.labels)
        )
        for node in fitting
    ]
    most = max(raw)
    return [100 * value // most for value in raw] if most else []


def _spread(demand: Demand, fitting: Sequence[NodeUsage], nodes: Nodes, crowd: Crowd) -> list[int]:
    soft = [spread for spread in demand.spreads if not spread.hard]
    if not demand.system_spread:
        tables = [(spread.key, spread.max_skew, domain_counts(demand, spread, (), nodes, crowd)[0]) for spread in soft]
    else:
        # The default constraints spread pods with equal labels.
        alike = crowd.alike(demand)
        tables = [(key, skew, by_domain(key, alike, nodes)) for key, skew in _DEFAULT_SPREAD] if alike else []
    if not any(counts for _, _, counts in tables):
        return []
    raw = [0.0] * len(fitting)
    for key, skew, counts in tables:
        domains = [node.labels.get(key) for node in fitting]
        factor = math.log(len(set(domains)) + 2)
        worth: dict[str | None, float] = {domain: count * factor for domain, count in counts.items()}
        raw = [value + worth.get(domain, 0.0) + (skew - 1) for value, domain in zip(raw, domains, strict=True)]
    return _reversed(raw)


def _reversed(raw: Sequence[float]) -> list[int]:
    """Scores that are highest for the lowest value."""
    most, least = max(raw), min(raw)
    return [int(100 * (most + least - value) / most) for value in raw] if most > least else []


def _pod_affinity(demand: Demand, fitting: Sequence[NodeUsage], nodes: Nodes, crowd: Crowd) -> list[int]:
    terms = [(term, term.weight) for term in demand.preferred_affinity]
    terms += [(term, -term.weight) for term in demand.preferred_anti_affinity]
    if not terms:
        return []
    counts = [by_domain(term.key, crowd.count(term.select, leaving_too=True), nodes) for term, _ in terms]
    tables = [(term.key, weight, near) for (term, weight), near in zip(terms, counts, strict=True)]
    raw = [sum(weight * near.get(node.labels.get(key, ""), 0) for key, weight, near in tables) for node in fitting]
    most, least = max(raw), min(raw)
    return [100 * (value - least) // (most - least) for value in raw] if most > least else []
