"""Which domains (zones, hosts, ...) do the rules between pods leave to a pod (05 §7)?

Equal rules of many pods are one group, which counts the pods that it selects by domain. A required anti-affinity is
also seen from the other side: an inverse group counts the pods that carry it, and keeps those that it selects away.
"""

from collections.abc import Iterable, Iterator, Mapping

from dovetail.api import names
from dovetail.scheduling.problem import Kind, Node, Pod, Problem, Rule
from dovetail.scheduling.requirements import Requirement, Requirements, one_of
from dovetail.scheduling.taints import Taints, untolerated

# Of each topology key, its domains; of each domain, the taints of the pools that offer it.
Universe = Mapping[str, Mapping[str, frozenset[Taints]]]


class Group:
    """How many pods are in each domain, of those that one rule is about."""

    __slots__ = ("counts", "rule")

    def __init__(self, rule: Rule, domains: Iterable[str] = ()) -> None:
        self.rule = rule
        self.counts = dict.fromkeys(sorted(domains), 0)

    def add(self, domain: str) -> None:
        self.counts[domain] = self.counts.get(domain, 0) + 1

    def choose(self, pod_allows: Requirement, node_allows: Requirement, selects_itself: bool) -> frozenset[str]:
        """The domains that are left to a pod on a node; none: it cannot go there (05 §7.2)."""
        match self.rule.kind:
            case Kind.APART:
                open_ = self._domains(pod_allows, node_allows)
                return frozenset(domain for domain in open_ if not self._count(domain))
            case Kind.TOGETHER:
                return self._with_others(pod_allows, node_allows, selects_itself)
            case Kind.SPREAD:
                return self._evenly(pod_allows, node_allows, 1 if selects_itself else 0)

    def possible(self, node_allows: Requirement) -> list[str]:
        """Where a node could still turn out to be."""
        if not node_allows.complement:
            return sorted(node_allows.values)
        return [domain for domain in sorted(self.counts) if node_allows.has(domain)]

    def _domains(self, pod_allows: Requirement, node_allows: Requirement) -> list[str]:
        """In the order of their names. A host is its own domain, known or not; other domains have to be known."""
        known = node_allows.values if self._of_hosts and not node_allows.complement else self.counts
        return [domain for domain in sorted(known) if node_allows.has(domain) and pod_allows.has(domain)]

    def _with_others(self, pod_allows: Requirement, node_allows: Requirement, selects_itself: bool) -> frozenset[str]:
        """Where some are. The first of those that want to be together chooses, unless others are in its reach."""
        domains = self._domains(pod_allows, node_allows)
        joined = frozenset(domain for domain in domains if self._count(domain))
        if joined or not selects_itself:
            return joined
        if any(count and pod_allows.has(domain) for domain, count in self.counts.items()):
            return joined
        return frozenset(domains[:1])

    def _evenly(self, pod_allows: Requirement, node_allows: Requirement, added: int) -> frozenset[str]:
        """Of hosts there can always be one more, so the least of them counts 0."""
        most = self._least(pod_allows) + self.rule.max_skew - added
        domains = [each for each in self._domains(pod_allows, node_allows) if self._count(each) <= most]
        if self._of_hosts:
            return frozenset(domains)
        best = min(domains, key=lambda domain: (self._count(domain), domain), default=None)
        return frozenset() if best is None else frozenset((best,))

    def _least(self, pod_allows: Requirement) -> int:
        counts = [count for domain, count in self.counts.items() if pod_allows.has(domain)]
        too_few = self.rule.min_domains is not None and len(counts) < self.rule.min_domains
        return 0 if self._of_hosts or too_few else min(counts, default=0)

    def _count(self, domain: str) -> int:
        return self.counts.get(domain, 0)

    @property
    def _of_hosts(self) -> bool:
        return self.rule.key == names.HOSTNAME_LABEL


class Topology:
    """All groups of a problem. It changes with each placement, which is to be recorded."""

    def __init__(self, problem: Problem) -> None:
        moving = {pod.uid for pod in problem.pods}
        bound = [(node, pod) for node in problem.nodes for pod in node.pods if pod.counts and pod.uid not in moving]
        rules = dict.fromkeys(rule for pod in problem.pods for rule in pod.all_rules)
        carried = [(rule.inverse(), node) for node, pod in bound for rule in pod.apart]
        inverse = dict.fromkeys(
            (*(rule for rule, _ in carried), *(rule.inverse() for pod in problem.pods for rule in _apart(pod)))
        )
        labels = {node.name: node.requirements() for node in problem.nodes}
        universe = _universe(problem, frozenset(rule.key for rule in (*rules, *inverse)))

        def group(rule: Rule) -> Group:
            return Group(rule, _domains(rule, universe, problem.nodes, labels))

        self._groups = {rule: group(rule) for rule in rules}
        self._inverse = {rule: group(rule) for rule in sorted(inverse, key=lambda rule: rule.key)}
        for node, pod in bound:
            for each in self._groups.values():
                if each.rule.counts(pod, labels[node.name], node.taints):
                    _count_on(each, labels[node.name])
        for rule, node in carried:
            _count_on(self._inverse[rule], labels[node.name])

    def group(self, rule: Rule) -> Group:
        return self._groups[rule]

    def narrowed(
        self,
        pod: Pod,
        rules: Iterable[Rule],
        strict: Requirements,
        node: Requirements,
        allow_undefined: frozenset[str] = frozenset(),
    ) -> Requirements | Rule:
        """The node with the pod on it, or the rule that does not let it go there.

        `rules`: those of the pod that it has not given up. `strict`: what the pod asks of nodes, preferences aside.
        Each group is asked about what the ones before it have left; spreads come last, as they choose one domain.
        """
        for group in self._consulted(pod, rules):
            rule = group.rule
            domains = group.choose(strict.get(rule.key), node.get(rule.key), rule.selects(pod))
            answer = Requirements((one_of(rule.key, domains),))
            if not domains or not node.compatible(answer, allow_undefined):
                return rule
            node = node & answer
        return node

    def _consulted(self, pod: Pod, rules: Iterable[Rule]) -> Iterator[Group]:
        yield from (each for each in self._inverse.values() if each.rule.selects(pod))
        own = list(rules)
        for kind in Kind:
            yield from (self._groups[rule] for rule in own if rule.kind is kind)

    def record(self, pod: Pod, node: Requirements, taints: Taints) -> None:
        """The pod is on this node, which may be one that is still to be made (05 §7.3)."""
        for group in self._groups.values():
            rule = group.rule
            if not rule.counts(pod, node, taints):
                continue
            domains = group.possible(node.get(rule.key))
            if rule.kind is Kind.APART or (len(domains) == 1 and not node.get(rule.key).complement):
                _add_all(group, domains)
        for rule in _apart(pod):
            group = self._inverse[rule.inverse()]
            _add_all(group, group.possible(node.get(rule.key)))


def _apart(pod: Pod) -> Iterator[Rule]:
    """Preferences never keep others away."""
    return (rule for rule in pod.rules if rule.kind is Kind.APART)


def _add_all(group: Group, domains: Iterable[str]) -> None:
    for domain in domains:
        group.add(domain)


def _count_on(group: Group, labels: Requirements) -> None:
    """On a node without the label, a pod is in no domain."""
    _add_all(group, labels.get(group.rule.key).values)


# -- which domains there are -------------------------------------------------------------------------------------------


def _universe(problem: Problem, keys: frozenset[str]) -> Universe:
    """What the pools offer (05 §7.1.3)."""
    found: dict[str, dict[str, frozenset[Taints]]] = {key: {} for key in keys}
    for pool in problem.pools:
        types = (type_.requirements for type_ in problem.types.get(pool.name, ()))
        offered = [pool.requirements & each for each in types if pool.requirements.intersects(each)]
        for each in (pool.requirements, *offered):
            for key in keys & each.keys():
                requirement, domains = each.get(key), found[key]
                for domain in () if requirement.complement else requirement.values:
                    domains[domain] = domains.get(domain, frozenset()) | {pool.taints}
    return found


def _domains(
    rule: Rule, universe: Universe, nodes: Iterable[Node], labels: Mapping[str, Requirements]
) -> frozenset[str]:
    """Those that a rule knows: offered behind taints that do not matter, or there already."""
    offered = (
        domain
        for domain, behind in universe[rule.key].items()
        if rule.tolerations is None or any(untolerated(rule.tolerations, taints) is None for taints in behind)
    )
    there = (
        domain
        for node in nodes
        if node.open and rule.nodes.passes(labels[node.name], node.taints)
        for domain in labels[node.name].get(rule.key).values
    )
    return frozenset((*offered, *there))
