"""The domains (zones, hosts, ...) that the rules between pods leave to a pod (05 §7).

Equal rules of many pods form one group, which counts the selected pods by domain. A required anti-affinity also has an
inverse group, which counts the pods that carry it and keeps the selected pods away.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from dovetail.api import names
from dovetail.scheduling.placement import MachineType, PlacementRequest, PodInfo, Pool, TopologyRule, TopologyRuleKind
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirement, Requirements, one_of
from dovetail.scheduling.taints import Taints, untolerated

# The taints of the pools that offer a domain.
Offered = Mapping[str, Collection[Taints]]


class TopologyGroup:
    """Counts the pods that a rule selects, by domain. A domain without a count is not known.

    A host is its own domain, known or not.
    """

    __slots__ = ("_allowed", "counts", "of_hosts", "rule")

    def __init__(self, rule: TopologyRule, domains: Iterable[str] = ()) -> None:
        self.rule = rule
        self.of_hosts = rule.key == names.HOSTNAME_LABEL
        self.counts = dict.fromkeys(domains, 0)
        self._allowed: dict[tuple[Requirement, bool], AllowedDomains] = {}

    def add(self, domain: str, number: int = 1) -> None:
        self.counts[domain] = self.counts.get(domain, 0) + number
        self.changed()

    def changed(self) -> None:
        """Forget answers: counts or known domains have changed."""
        if self._allowed:
            self._allowed.clear()

    def choose(self, pod_allows: Requirement, node_allows: Requirement, selects_itself: bool) -> frozenset[str]:
        """The domains for a pod on a node; empty: it cannot go there (05 §7.2)."""
        if self.of_hosts:
            hosts = filter(pod_allows.has, node_allows.values if not node_allows.complement else ())
            return frozenset(host for host in hosts if self.lets_onto(host, pod_allows, selects_itself))
        allowed = self.allowed(pod_allows, selects_itself)
        possible = [domain for domain in allowed.domains if node_allows.has(domain)]
        return frozenset(possible[:1] if allowed.only_one else possible)

    def allowed(self, pod_allows: Requirement, selects_itself: bool) -> "AllowedDomains":
        """The domains for a pod on any node. Not for hosts."""
        known = self._allowed.get((pod_allows, selects_itself))
        if known is None:
            known = self._allowed[pod_allows, selects_itself] = self._find_allowed(pod_allows, selects_itself)
        return known

    def lets_onto(self, host: str, pod_allows: Requirement, selects_itself: bool) -> bool:
        if self.rule.kind is TopologyRuleKind.TOGETHER:
            return bool(self.counts.get(host)) or (selects_itself and not self.in_reach(pod_allows))
        return self.counts.get(host, 0) <= self.most_on_host(selects_itself)

    def most_on_host(self, selects_itself: bool) -> int:
        """The most pods on a host before one more comes. A new host is always possible, so the least count is 0."""
        return self.rule.max_skew - selects_itself if self.rule.kind is TopologyRuleKind.SPREAD else 0

    def recorded(self, node_allows: Requirement, *, there: bool) -> list[str]:
        """The domains in which a pod counts: that of its node, if it is certain. An anti-affinity counts in all
        possible ones.

        On an existing node without the label, a pod counts in no domain.
        """
        concrete = not node_allows.complement
        if there or concrete:
            domains = sorted(node_allows.values) if concrete else []
        else:
            domains = [domain for domain in sorted(self.counts) if node_allows.has(domain)]
        return domains if self.rule.kind is TopologyRuleKind.APART or (concrete and len(domains) == 1) else []

    def _find_allowed(self, pod_allows: Requirement, selects_itself: bool) -> "AllowedDomains":
        within = sorted(domain for domain in self.counts if pod_allows.has(domain))
        match self.rule.kind:
            case TopologyRuleKind.APART:
                return AllowedDomains([domain for domain in within if not self.counts[domain]])
            case TopologyRuleKind.TOGETHER:
                # The first pod chooses the domain, unless others are within its reach.
                joined = [domain for domain in within if self.counts[domain]]
                return (
                    AllowedDomains(within, only_one=True) if selects_itself and not joined else AllowedDomains(joined)
                )
            case TopologyRuleKind.SPREAD:
                most = self._least(within) + self.rule.max_skew - selects_itself
                even = [domain for domain in within if self.counts[domain] <= most]
                return AllowedDomains(sorted(even, key=self.counts.__getitem__), only_one=True)

    def _least(self, within: list[str]) -> int:
        too_few = self.rule.min_domains is not None and len(within) < self.rule.min_domains
        return 0 if too_few else min((self.counts[domain] for domain in within), default=0)

    def in_reach(self, pod_allows: Requirement) -> bool:
        return any(count and pod_allows.has(domain) for domain, count in self.counts.items())


class AllowedDomains:
    """Domains in the order of choice; `only_one`: the node takes the first possible one."""

    __slots__ = ("domains", "names", "only_one")

    def __init__(self, domains: list[str], *, only_one: bool = False) -> None:
        self.domains = domains
        self.names = frozenset(domains)
        self.only_one = only_one


class Topology:
    """All groups of a problem. Each placement must be recorded."""

    def __init__(
        self, groups: Mapping[TopologyRule, TopologyGroup], inverse: Mapping[TopologyRule, TopologyGroup]
    ) -> None:
        self._groups = groups
        self._inverse = inverse

    @staticmethod
    def of(problem: PlacementRequest) -> "Topology":
        moving = {pod.uid for pod in problem.pods}
        bound = [(node, pod) for node in problem.nodes for pod in node.pods if pod.counts and pod.uid not in moving]
        rules = dict.fromkeys(rule for pod in problem.pods for rule in pod.all_rules)
        carried = [(rule.inverse(), node) for node, pod in bound for rule in pod.apart]
        inverse = dict.fromkeys(
            (*(rule for rule, _ in carried), *(rule.inverse() for pod in problem.pods for rule in apart(pod)))
        )
        labels = {node.name: node.requirements() for node in problem.nodes}
        offered = {
            key: offered_domains(problem.pools, problem.types, key) for key in {r.key for r in (*rules, *inverse)}
        }

        def group(rule: TopologyRule) -> TopologyGroup:
            there = (
                domain
                for node in problem.nodes
                if node.open and rule.nodes.passes(labels[node.name], node.taints)
                for domain in labels[node.name].get(rule.key).values
            )
            return TopologyGroup(rule, (*reachable(rule, offered[rule.key]), *there))

        topology = Topology(
            {rule: group(rule) for rule in rules},
            {rule: group(rule) for rule in sorted(inverse, key=lambda rule: rule.key)},
        )
        for node, pod in bound:
            for counted in topology._groups.values():
                if counted.rule.counts(pod, labels[node.name], node.taints):
                    _count_on(counted, labels[node.name])
        for rule, node in carried:
            _count_on(topology._inverse[rule], labels[node.name])
        return topology

    def group(self, rule: TopologyRule) -> TopologyGroup:
        return self._groups[rule]

    def narrowed(
        self,
        pod: PodInfo,
        rules: Iterable[TopologyRule],
        strict: Requirements,
        node: Requirements,
        allow_undefined: frozenset[str] = frozenset(),
        *,
        reach: Requirements = NO_REQUIREMENTS,
    ) -> Requirements | TopologyRule:
        """The requirements of the node with the pod on it, or the rule that forbids it.

        `rules` are the remaining rules of the pod, `strict` its requirements without preferences, `reach` the values of
        labels that the node does not restrict. Each group narrows what the groups before it have left; spreads come
        last, because they choose one domain.
        """
        for group in self._consulted(pod, rules):
            rule = group.rule
            domains = group.choose(strict.get(rule.key), allowed_to(node, reach, rule.key), rule.selects(pod))
            answer = Requirements((one_of(rule.key, domains),))
            if not domains or not node.compatible(answer, allow_undefined):
                return rule
            node = node & answer
        return node

    def _consulted(self, pod: PodInfo, rules: Iterable[TopologyRule]) -> Iterator[TopologyGroup]:
        yield from (group for group in self._inverse.values() if group.rule.selects(pod))
        yield from (self._groups[rule] for rule in as_asked(rules))

    def record(
        self,
        pod: PodInfo,
        node: Requirements,
        taints: Taints,
        *,
        there: bool = False,
        reach: Requirements = NO_REQUIREMENTS,
    ) -> None:
        """Count the pod on an existing node (`there`) or on a new one (05 §7.3)."""
        for group in self._groups.values():
            if group.rule.counts(pod, node, taints):
                _add_all(group, group.recorded(allowed_to(node, reach, group.rule.key), there=there))
        for rule in apart(pod):
            group = self._inverse[rule.inverse()]
            _add_all(group, group.recorded(allowed_to(node, reach, rule.key), there=there))


def allowed_to(node: Requirements, reach: Requirements, key: str) -> Requirement:
    """The values of a label on a node: its own requirement, or what the types of its pool allow."""
    return reach.get(key) if key in reach and key not in node else node.get(key)


def reach_of(types: Iterable[MachineType]) -> Requirements:
    """The labels for which all types list values, with these values.

    A domain in which only nodes of other pools are is no choice for a new node, however few pods it has.
    """
    values_by_type = [{own.key: own.values for own in type_.requirements if not own.complement} for type_ in types]
    keys = set[str]().union(*values_by_type).intersection(*values_by_type) if values_by_type else set[str]()
    return Requirements(
        one_of(key, frozenset[str]().union(*(values[key] for values in values_by_type))) for key in sorted(keys)
    )


def as_asked(rules: Iterable[TopologyRule]) -> Iterator[TopologyRule]:
    """The rules in the order of kinds: those that choose a domain come last."""
    own = list(rules)
    return (rule for kind in TopologyRuleKind for rule in own if rule.kind is kind)


def apart(pod: PodInfo) -> Iterator[TopologyRule]:
    return (rule for rule in pod.rules if rule.kind is TopologyRuleKind.APART)


def _add_all(group: TopologyGroup, domains: Iterable[str]) -> None:
    for domain in domains:
        group.add(domain)


def _count_on(group: TopologyGroup, labels: Requirements) -> None:
    """A pod on a node without the label is in no domain."""
    _add_all(group, labels.get(group.rule.key).values)


def offered_domains(pools: Iterable[Pool], types: Mapping[str, Sequence[MachineType]], key: str) -> Offered:
    """The values of a label that the pools offer (05 §7.1.3)."""
    offered: dict[str, set[Taints]] = {}
    for pool in pools:
        asked = pool.requirements.get(key)
        of_types = (
            asked & type_.requirements.get(key)
            for type_ in types.get(pool.name, ())
            if key in type_.requirements and pool.requirements.intersects(type_.requirements)
        )
        for requirement in (asked, *of_types):
            for domain in () if requirement.complement else requirement.values:
                offered.setdefault(domain, set()).add(pool.taints)
    return offered


def reachable(rule: TopologyRule, offered: Offered) -> Iterator[str]:
    """The domains that a rule knows: those offered behind tolerated taints."""
    return (
        domain
        for domain, behind in offered.items()
        if rule.tolerations is None or any(untolerated(rule.tolerations, taints) is None for taints in behind)
    )
