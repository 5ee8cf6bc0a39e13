"""What is a scheduling engine asked, and what does it answer (05 §1)? Two engines share this, and the order of pods.

Everything is read already: whoever asks has parsed quantities, selectors and requirements once. Nothing here changes.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from dovetail.api import names
from dovetail.api.objects import LabelSelector, NodePool
from dovetail.api.pod_specs import PodAffinityTerm, PreferredPods, SchedulingPod, TopologySpreadConstraint
from dovetail.model.refs import Ref
from dovetail.scheduling.daemons import Daemon
from dovetail.scheduling.host_ports import NO_PORTS, HostPorts, host_ports
from dovetail.scheduling.labels import normalised
from dovetail.scheduling.node_affinity import ANYWHERE, ParsedNodeAffinity, read_node_affinity
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirements, of_labels, read_requirements, selecting
from dovetail.scheduling.resources import CPU, MEMORY, NOTHING, ONE_POD, Resources, pod_request, read_amounts
from dovetail.scheduling.taints import SOFT_TAINTS_TOLERATED, Taints, Tolerations, template_taints, untolerated
from dovetail.scheduling.volumes import NO_VOLUMES, Attachment, PodVolumes
from dovetail.values.selector import Selector, SelectorError, make_selector

S = TypeVar("S", bound=Hashable)

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
# Of namespaces, their labels.
Namespaces = Mapping[str, Mapping[str, str]]


# -- rules between pods ------------------------------------------------------------------------------------------------


class TopologyRuleKind(StrEnum):
    """What a rule wants; in the order in which rules are asked, so that a choice is made among what others leave."""

    APART = "anti-affinity"
    TOGETHER = "affinity"
    SPREAD = "spread"


class NodeFilter(msgspec.Struct, frozen=True, cache_hash=True):
    """Which nodes a spread looks at (05 §7.1.4): like one of these, and with tolerations only nodes open to them."""

    alternatives: tuple[Requirements, ...] = (NO_REQUIREMENTS,)
    tolerations: Tolerations | None = None

    def passes(self, labels: Requirements, taints: Taints) -> bool:
        if self.tolerations is not None and untolerated(self.tolerations, taints) is not None:
            return False
        return any(map(labels.compatible, self.alternatives))


class TopologyRule(msgspec.Struct, frozen=True, cache_hash=True):
    """One term of a pod about other pods. Equal rules of many pods are one group (05 §7): everything is in the key.

    `tolerations`: only domains behind taints that these tolerate are known to it; None: all. What only prefers others
    away is always tolerated here, for in the end the pod goes there.
    """

    kind: TopologyRuleKind
    key: str
    namespaces: frozenset[str] | None  # None: all of them
    selector: Selector | None  # None: no pod at all
    max_skew: int = 0
    min_domains: int | None = None
    nodes: NodeFilter = NodeFilter()
    tolerations: Tolerations | None = None

    def selects(self, pod: "PodInfo | BoundPod") -> bool:
        if self.selector is None or (self.namespaces is not None and pod.namespace not in self.namespaces):
            return False
        return self.selector.matches(pod.labels)

    def counts(self, pod: "PodInfo | BoundPod", labels: Requirements, taints: Taints) -> bool:
        """Whether the pod is one of those that it is about, on a node that it looks at."""
        return self.selects(pod) and self.nodes.passes(labels, taints)

    def inverse(self) -> "TopologyRule":
        """The rule as it restricts the pods that it selects: whatever its carriers tolerate."""
        return msgspec.structs.replace(self, tolerations=None)

    def __str__(self) -> str:
        return f"{self.kind} over {self.key}"


# -- pods --------------------------------------------------------------------------------------------------------------


class Origin(StrEnum):
    """Why a pod is to be placed, which decides what it means if it cannot be (05 §11, §12)."""

    PENDING = "pending"
    CANDIDATE = "candidate"
    DELETING = "deleting"  # its node goes anyway


class PodInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that is to be placed. Rules are in the order of the pod, preferred ones heaviest first."""

    uid: str
    namespace: str = "default"
    name: str = ""
    labels: Mapping[str, str] = {}
    created: datetime | None = None
    origin: Origin = Origin.PENDING
    request: Resources = ONE_POD
    affinity: ParsedNodeAffinity = ANYWHERE
    tolerations: Tolerations = frozenset()
    ports: HostPorts = NO_PORTS
    volumes: PodVolumes = NO_VOLUMES
    rules: tuple[TopologyRule, ...] = ()
    preferred_together: tuple[TopologyRule, ...] = ()
    preferred_apart: tuple[TopologyRule, ...] = ()
    preferred_spread: tuple[TopologyRule, ...] = ()  # those that are scheduled anyway
    resource_claims: bool = False  # which nobody here understands (R39)

    @property
    def all_rules(self) -> tuple[TopologyRule, ...]:
        return (*self.rules, *self.preferred_together, *self.preferred_apart, *self.preferred_spread)

    @property
    def ref(self) -> Ref:
        return Ref("Pod", self.namespace, self.name or self.uid)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name or self.uid}"


class BoundPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that has a node, as far as rules between pods see it. One that ends is on the node, but counts for none."""

    uid: str
    namespace: str = "default"
    labels: Mapping[str, str] = {}
    apart: tuple[TopologyRule, ...] = ()  # what it must not be with
    counts: bool = True


def read_pod(
    pod: SchedulingPod,
    *,
    volumes: PodVolumes = NO_VOLUMES,
    namespaces: Namespaces | None = None,
    origin: Origin = Origin.PENDING,
) -> PodInfo:
    """A pod that is to be placed. Raises RequirementError and ResourceError."""
    meta, spec, known = pod.metadata, pod.spec, namespaces or {}
    affinity = read_node_affinity(spec)
    tolerations = frozenset(spec.tolerations)
    together, apart = spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity
    spreads = [(each, _spread(pod, each, affinity, tolerations)) for each in spec.topology_spread_constraints]
    anyway = [each.when_unsatisfiable == "ScheduleAnyway" for each, _ in spreads]
    return PodInfo(
        uid=meta.uid,
        namespace=meta.namespace or "default",
        name=meta.name,
        labels=meta.labels,
        created=meta.creation_timestamp,
        origin=origin,
        request=pod_request(pod),
        affinity=affinity,
        tolerations=tolerations,
        ports=host_ports(spec),
        volumes=volumes,
        rules=_effective(
            *(rule for (_, rule), soft in zip(spreads, anyway, strict=True) if not soft),
            *_about_the_same(
                _terms(
                    TopologyRuleKind.TOGETHER, pod, together.required_during_scheduling_ignored_during_execution, known
                )
            ),
            *_terms(TopologyRuleKind.APART, pod, apart.required_during_scheduling_ignored_during_execution, known),
        ),
        preferred_together=_effective(
            *_terms(
                TopologyRuleKind.TOGETHER,
                pod,
                _heaviest(together.preferred_during_scheduling_ignored_during_execution),
                known,
            )
        ),
        preferred_apart=_effective(
            *_terms(
                TopologyRuleKind.APART,
                pod,
                _heaviest(apart.preferred_during_scheduling_ignored_during_execution),
                known,
            )
        ),
        preferred_spread=_effective(*(rule for (_, rule), soft in zip(spreads, anyway, strict=True) if soft)),
        resource_claims=bool(spec.resource_claims),
    )


def read_bound_pod(pod: SchedulingPod, namespaces: Namespaces | None = None) -> BoundPod:
    """A pod that has a node already."""
    terms = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    return BoundPod(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace or "default",
        labels=pod.metadata.labels,
        apart=_effective(*(rule.inverse() for rule in _terms(TopologyRuleKind.APART, pod, terms, namespaces or {}))),
        counts=pod.metadata.deletion_timestamp is None and pod.status.phase not in _TERMINAL,
    )


def _effective(*rules: TopologyRule) -> tuple[TopologyRule, ...]:
    """Without those that can have no effect: away from nobody, or spread among nobody."""
    return tuple(rule for rule in rules if rule.kind is TopologyRuleKind.TOGETHER or rule.selector is not None)


def _heaviest(terms: Iterable[PreferredPods]) -> list[PodAffinityTerm]:
    return [each.pod_affinity_term for each in sorted(terms, key=lambda each: -each.weight)]


def _spread(
    pod: SchedulingPod, constraint: TopologySpreadConstraint, affinity: ParsedNodeAffinity, tolerations: Tolerations
) -> TopologyRule:
    """As Kubernetes has it, a spread that honours taints looks only at those that forbid."""
    honoured = tolerations | {SOFT_TAINTS_TOLERATED} if constraint.node_taints_policy == "Honor" else None
    ignored = constraint.node_affinity_policy == "Ignore"
    return TopologyRule(
        kind=TopologyRuleKind.SPREAD,
        key=normalised(constraint.topology_key),
        namespaces=frozenset((pod.metadata.namespace or "default",)),
        selector=_selector(constraint.label_selector, pod.metadata.labels, constraint.match_label_keys),
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains,
        nodes=NodeFilter((NO_REQUIREMENTS,) if ignored else affinity.alternatives(), honoured),
        tolerations=honoured,
    )


def _about_the_same(terms: list[TopologyRule]) -> list[TopologyRule]:
    """As Kubernetes has it, of several required affinities each counts only pods that all of them are about."""
    if len(terms) < 2:
        return terms
    selectors = [rule.selector for rule in terms if rule.selector is not None]
    if len(selectors) < len(terms):
        return [msgspec.structs.replace(rule, selector=None) for rule in terms]
    labels = dict.fromkeys(label for each in selectors for label in each.labels)
    expressions = dict.fromkeys(expression for each in selectors for expression in each.expressions)
    limited = [rule.namespaces for rule in terms if rule.namespaces is not None]
    namespaces = frozenset.intersection(*limited) if limited else None
    selector = Selector(tuple(labels), tuple(expressions))
    return [msgspec.structs.replace(rule, namespaces=namespaces, selector=selector) for rule in terms]


def _terms(
    kind: TopologyRuleKind, pod: SchedulingPod, terms: Iterable[PodAffinityTerm], known: Namespaces
) -> list[TopologyRule]:
    labels, tolerations = pod.metadata.labels, frozenset((*pod.spec.tolerations, SOFT_TAINTS_TOLERATED))
    return [
        TopologyRule(
            kind=kind,
            key=normalised(term.topology_key),
            namespaces=_namespaces(term, pod.metadata.namespace or "default", known),
            selector=_selector(term.label_selector, labels, term.match_label_keys, term.mismatch_label_keys),
            tolerations=tolerations,
        )
        for term in terms
    ]


def _namespaces(term: PodAffinityTerm, own: str, known: Namespaces) -> frozenset[str] | None:
    """A selector that is empty selects all, those included that nobody has told us of."""
    if term.namespace_selector is None:
        return frozenset(term.namespaces or (own,))
    selector = _selector(term.namespace_selector, {})
    if selector == Selector():
        return None
    selected = () if selector is None else (name for name, labels in known.items() if selector.matches(labels))
    return frozenset((*term.namespaces, *selected))


def _selector(
    wire: LabelSelector | None, labels: Mapping[str, str], same: Sequence[str] = (), other: Sequence[str] = ()
) -> Selector | None:
    """With what the pod's own labels add to it; a selector that cannot be read selects nothing (05 §7.1.1)."""
    if wire is None:
        return None
    expressions = [(each.key, each.operator, each.values) for each in wire.match_expressions]
    expressions += [(key, "In", [labels[key]]) for key in same if key in labels]
    expressions += [(key, "NotIn", [labels[key]]) for key in other if key in labels]
    try:
        return make_selector(wire.match_labels, expressions)
    except SelectorError:
        return None


# -- where they could go -----------------------------------------------------------------------------------------------


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node that is there, or is about to be. `taints` are those that count, `requested` that of all its pods.

    Pods on a node that is not open (a candidate, or one that is going) count, but it takes none, and nobody counts on
    its being somewhere.
    """

    name: str
    labels: Mapping[str, str] = {}
    taints: Taints = ()
    allocatable: Resources = NOTHING
    capacity: Resources = NOTHING
    requested: Resources = NOTHING
    requested_by_daemons: Resources = NOTHING  # a part of the above
    pool: str = ""
    initialized: bool = True  # so is a node that nobody manages
    open: bool = True
    ports: HostPorts = NO_PORTS
    attachments: frozenset[Attachment] = frozenset()
    attach_limits: Mapping[str, int] = {}
    pods: tuple[BoundPod, ...] = ()

    def requirements(self) -> Requirements:
        """Its labels; without one for the host's name, that is the node's."""
        return of_labels({names.HOSTNAME_LABEL: self.name, **self.labels})


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A way to buy a type. Prices are whole billionths; `reservation` names what is bought already, `left` how many."""

    requirements: Requirements
    price: int
    available: bool = True
    reservation: str = ""
    left: int = 0


def price_text(price: int) -> str:
    """In the currency, to a hundredth of a cent."""
    return f"{price / 10**9:.4f}".rstrip("0").rstrip(".")


class MachineType(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type; `allocatable` is what it leaves for pods, daemons included (05 §4.7)."""

    name: str
    requirements: Requirements
    capacity: Resources
    allocatable: Resources
    offers: tuple[Offer, ...]


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A NodePool: what all its nodes are like (05 §9), and how much of them there may be. No limit is no entry."""

    name: str
    weight: int = 0
    requirements: Requirements = NO_REQUIREMENTS
    taints: Taints = ()
    limits: Mapping[str, int] = {}


def read_pool(pool: NodePool) -> Pool:
    """What all nodes of the pool will be like. Raises RequirementError and ResourceError."""
    template, limits = pool.spec.template, pool.spec.limits
    class_ = template.spec.node_class_ref
    own = {names.NODEPOOL_LABEL: pool.metadata.name, f"{class_.group}/{class_.kind.lower()}": class_.name}
    amounts = read_amounts(limits)
    return Pool(
        name=pool.metadata.name,
        weight=pool.spec.weight or 0,
        requirements=read_requirements(template.spec.requirements)
        & selecting(template.metadata.labels or {})
        & of_labels(own),
        taints=template_taints(template.spec.taints or ()),
        limits={name: amounts[name] for name in limits},
    )


class SchedulingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to read wishes, and what to do where they cannot all come true (05 §1)."""

    respect_preferences: bool = True
    strict_min_values: bool = True
    strict_reserved: bool = True
    # Disruption: what came from a candidate must not rely on a node that may never come up (05 §12.3).
    refuse_uninitialized: bool = False
    well_known: frozenset[str] = names.WELL_KNOWN_LABELS
    reservation_label: str = ""  # the provider's, by which an instance is launched into a reservation
    max_types: int = 600


class PlacementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Where do these pods go? They count nowhere else while they are moved. `types` are those of each pool by name."""

    pods: tuple[PodInfo, ...]
    nodes: tuple[NodeInfo, ...] = ()
    pools: tuple[Pool, ...] = ()
    types: Mapping[str, tuple[MachineType, ...]] = {}
    daemons: tuple[Daemon, ...] = ()
    options: SchedulingOptions = SchedulingOptions()


# -- the answer --------------------------------------------------------------------------------------------------------


class NewClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A node to be made for these pods (by UID): one of the types, the cheapest first."""

    pool: str
    pods: tuple[str, ...]
    requirements: Requirements
    types: tuple[str, ...]
    requests: Resources
    reservations: tuple[str, ...] = ()
    min_values_relaxed: bool = False


# Dynamic resource allocation is not understood, and never guessed at (R39).
RESOURCE_CLAIMS: Final = "it has resource claims"


class PodError(msgspec.Struct, frozen=True):
    """Why a pod has no place. `waiting`: it is not that there is none, but the next run will see (05 §9, Reserved)."""

    pod: Ref
    origin: Origin
    reason: str
    waiting: bool = False

    def __str__(self) -> str:
        return f"{self.pod.path}: {self.reason}"


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """Pods by UID: on nodes by name, on new nodes, or why not."""

    existing: Mapping[str, tuple[str, ...]] = {}
    new_claims: tuple[NewClaim, ...] = ()
    errors: Mapping[str, PodError] = {}

    @property
    def all_scheduled(self) -> bool:
        """Whether nobody is worse off: a pod that was pending before may be so after (05 §11)."""
        return all(error.origin is Origin.PENDING for error in self.errors.values())

    def new_for(self, uids: Collection[str]) -> list[NewClaim]:
        """The new nodes that hold one of these pods."""
        return [claim for claim in self.new_claims if any(uid in uids for uid in claim.pods)]

    def summary(self, most: int = 5) -> str:
        """What went wrong, for people."""
        said = [str(error) for error in self.errors.values()]
        more = len(said) - most
        return "; ".join(said[:most]) + (f" and {more} other(s)" if more > 0 else "")


# -- the order of pods -------------------------------------------------------------------------------------------------

Shape = tuple[object, ...]


def queue(problem: PlacementRequest) -> list[PodInfo]:
    """Largest first; of equal size those alike together, then the oldest (05 §9, 08 §6.2).

    Pods are alike if nothing but names and times could tell the engine one from the other. Which kind comes first is
    decided by the oldest pod of each.
    """
    carried = (rule for node in problem.nodes for pod in node.pods if pod.counts for rule in pod.apart)
    read = labels_read((*(rule for pod in problem.pods for rule in pod.all_rules), *carried))
    shapes = [(*needs(pod), labels_of(pod, read)) for pod in problem.pods]
    return [pod for pod, _ in in_order(problem.pods, shapes, map(rank, problem.pods))]


Rank = tuple[int, int, datetime, str]


def rank(pod: PodInfo) -> Rank:
    """The largest first, then the oldest."""
    return (-pod.request[CPU], -pod.request[MEMORY], pod.created or _LONG_AGO, pod.uid)


def in_order(pods: Sequence[PodInfo], shapes: Sequence[S], ranks: Iterable[Rank]) -> list[tuple[PodInfo, S]]:
    """The same, once it is known which are alike."""
    ordered = sorted(zip(ranks, range(len(pods)), strict=True))
    first: dict[S, int] = {}
    for place, (_, index) in enumerate(ordered):
        first.setdefault(shapes[index], place)
    # Alike pods are of one size, so to put each after the oldest of its kind keeps the sizes in order.
    ordered.sort(key=lambda each: first[shapes[each[1]]])
    return [(pods[index], shapes[index]) for _, index in ordered]


def labels_read(rules: Iterable[TopologyRule]) -> frozenset[str]:
    """The labels of pods that some rule asks for: no other can make a difference."""
    selectors = {rule.selector for rule in rules if rule.selector is not None}
    return frozenset(key for each in selectors for key, _ in each.labels).union(
        each.key for selector in selectors for each in selector.expressions
    )


def labels_of(pod: PodInfo, read: frozenset[str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in pod.labels.items() if key in read))


def needs(pod: PodInfo) -> Shape:
    """All that the engine asks of a pod, its labels aside."""
    return (
        pod.namespace,
        pod.request,
        pod.affinity,
        pod.tolerations,
        pod.ports,
        pod.volumes,
        pod.rules,
        pod.preferred_together,
        pod.preferred_apart,
        pod.preferred_spread,
        pod.resource_claims,
    )
