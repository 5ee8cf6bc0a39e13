"""The input and output of the scheduling engines (05 §1), and the order of pods.

Callers have parsed quantities, selectors and requirements. All values are immutable.
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
from dovetail.scheduling.default_spread import DefaultSpread
from dovetail.scheduling.host_ports import NO_PORTS, HostPorts, host_ports
from dovetail.scheduling.labels import normalised
from dovetail.scheduling.no_place import NoPlace
from dovetail.scheduling.node_affinity import ANYWHERE, ParsedNodeAffinity, read_node_affinity
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirements, of_labels, read_requirements, selecting
from dovetail.scheduling.resources import CPU, MEMORY, NOTHING, ONE_POD, Resources, pod_request, read_amounts
from dovetail.scheduling.taints import SOFT_TAINTS_TOLERATED, Taints, Tolerations, template_taints, untolerated
from dovetail.scheduling.volumes import NO_VOLUMES, Attachment, PodVolumes
from dovetail.values.selector import Selector, SelectorError, make_selector

S = TypeVar("S", bound=Hashable)

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
# The labels of namespaces.
Namespaces = Mapping[str, Mapping[str, str]]


# -- rules between pods ------------------------------------------------------------------------------------------------


class TopologyRuleKind(StrEnum):
    """The kind of a rule, in the order of evaluation: a rule that chooses a domain comes last."""

    APART = "anti-affinity"
    TOGETHER = "affinity"
    SPREAD = "spread"


class NodeFilter(msgspec.Struct, frozen=True, cache_hash=True):
    """The nodes that a spread counts (05 §7.1.4): they meet one alternative and, with tolerations, have no other
    taints.
    """

    alternatives: tuple[Requirements, ...] = (NO_REQUIREMENTS,)
    tolerations: Tolerations | None = None

    def passes(self, labels: Requirements, taints: Taints) -> bool:
        if self.tolerations is not None and untolerated(self.tolerations, taints) is not None:
            return False
        return any(map(labels.compatible, self.alternatives))


class TopologyRule(msgspec.Struct, frozen=True, cache_hash=True):
    """A term of a pod about other pods. Equal rules of many pods form one group (05 §7), so every field is part of the
    key.

    With `tolerations` only domains behind tolerated taints are known; None: all. PreferNoSchedule is always tolerated,
    because in the end the pod goes there.
    """

    kind: TopologyRuleKind
    key: str
    namespaces: frozenset[str] | None  # None: all
    selector: Selector | None  # None: no pod
    max_skew: int = 0
    min_domains: int | None = None
    nodes: NodeFilter = NodeFilter()
    tolerations: Tolerations | None = None

    def selects(self, pod: "PodInfo | BoundPod") -> bool:
        if self.selector is None or (self.namespaces is not None and pod.namespace not in self.namespaces):
            return False
        return self.selector.matches(pod.labels)

    def counts(self, pod: "PodInfo | BoundPod", labels: Requirements, taints: Taints) -> bool:
        """Whether the rule selects the pod, on a node that it counts."""
        return self.selects(pod) and self.nodes.passes(labels, taints)

    def inverse(self) -> "TopologyRule":
        """The rule as it restricts the pods that it selects, whatever its carriers tolerate."""
        return msgspec.structs.replace(self, tolerations=None)

    def __str__(self) -> str:
        return f"{self.kind} over {self.key}"


# -- pods --------------------------------------------------------------------------------------------------------------


class Origin(StrEnum):
    """Why a pod has to be placed, which decides what a failure means (05 §11, §12)."""

    PENDING = "pending"
    CANDIDATE = "candidate"
    DELETING = "deleting"  # its node is being deleted


class PodInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod to place. Rules are in the order of the spec, preferred ones heaviest first."""

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
    preferred_spread: tuple[TopologyRule, ...] = ()  # ScheduleAnyway
    resource_claims: bool = False  # not supported (R39)

    @property
    def all_rules(self) -> tuple[TopologyRule, ...]:
        return (*self.rules, *self.preferred_together, *self.preferred_apart, *self.preferred_spread)

    @property
    def ref(self) -> Ref:
        return Ref("Pod", self.namespace, self.name or self.uid)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name or self.uid}"


class BoundPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod on a node, as rules between pods see it. A terminating pod does not count."""

    uid: str
    namespace: str = "default"
    labels: Mapping[str, str] = {}
    apart: tuple[TopologyRule, ...] = ()  # its required anti-affinities
    counts: bool = True


def read_pod(
    pod: SchedulingPod,
    *,
    volumes: PodVolumes = NO_VOLUMES,
    namespaces: Namespaces | None = None,
    origin: Origin = Origin.PENDING,
    spread: DefaultSpread | None = None,
) -> PodInfo:
    """Read a pod to place. `spread`: default constraints, for a pod without its own.

    Raises RequirementError and ResourceError.
    """
    meta, spec, known = pod.metadata, pod.spec, namespaces or {}
    affinity = read_node_affinity(spec)
    tolerations = frozenset(spec.tolerations)
    together, apart = spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity
    constraints = [
        (constraint, _selector(constraint.label_selector, meta.labels, constraint.match_label_keys))
        for constraint in spec.topology_spread_constraints
    ]
    if spread is not None:
        constraints = [(constraint, spread.selector) for constraint in spread.constraints]
    spreads = [
        (constraint.when_unsatisfiable == "ScheduleAnyway", _spread(pod, constraint, selector, affinity, tolerations))
        for constraint, selector in constraints
    ]
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
            *(rule for anyway, rule in spreads if not anyway),
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
        preferred_spread=_effective(*(rule for anyway, rule in spreads if anyway)),
        resource_claims=bool(spec.resource_claims),
    )


def read_bound_pod(pod: SchedulingPod, namespaces: Namespaces | None = None) -> BoundPod:
    terms = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    return BoundPod(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace or "default",
        labels=pod.metadata.labels,
        apart=_effective(*(rule.inverse() for rule in _terms(TopologyRuleKind.APART, pod, terms, namespaces or {}))),
        counts=pod.metadata.deletion_timestamp is None and pod.status.phase not in _TERMINAL,
    )


def _effective(*rules: TopologyRule) -> tuple[TopologyRule, ...]:
    """Without rules that select no pod and so have no effect."""
    return tuple(rule for rule in rules if rule.kind is TopologyRuleKind.TOGETHER or rule.selector is not None)


def _heaviest(terms: Iterable[PreferredPods]) -> list[PodAffinityTerm]:
    return [term.pod_affinity_term for term in sorted(terms, key=lambda term: -term.weight)]


def _spread(
    pod: SchedulingPod,
    constraint: TopologySpreadConstraint,
    selector: Selector | None,
    affinity: ParsedNodeAffinity,
    tolerations: Tolerations,
) -> TopologyRule:
    """As in Kubernetes, a spread that honours taints ignores PreferNoSchedule."""
    honoured = tolerations | {SOFT_TAINTS_TOLERATED} if constraint.node_taints_policy == "Honor" else None
    ignored = constraint.node_affinity_policy == "Ignore"
    return TopologyRule(
        kind=TopologyRuleKind.SPREAD,
        key=normalised(constraint.topology_key),
        namespaces=frozenset((pod.metadata.namespace or "default",)),
        selector=selector,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains,
        nodes=NodeFilter((NO_REQUIREMENTS,) if ignored else affinity.alternatives(), honoured),
        tolerations=honoured,
    )


def _about_the_same(terms: list[TopologyRule]) -> list[TopologyRule]:
    """As in Kubernetes, several required affinities count only pods that all of them select."""
    if len(terms) < 2:
        return terms
    selectors = [rule.selector for rule in terms if rule.selector is not None]
    if len(selectors) < len(terms):
        return [msgspec.structs.replace(rule, selector=None) for rule in terms]
    labels = dict.fromkeys(label for selector in selectors for label in selector.labels)
    expressions = dict.fromkeys(expression for selector in selectors for expression in selector.expressions)
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
    """An empty selector selects all namespaces, known or not."""
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
    """The selector with matchLabelKeys of the pod. An unreadable selector selects nothing (05 §7.1.1)."""
    if wire is None:
        return None
    expressions = [(expression.key, expression.operator, expression.values) for expression in wire.match_expressions]
    expressions += [(key, "In", [labels[key]]) for key in same if key in labels]
    expressions += [(key, "NotIn", [labels[key]]) for key in other if key in labels]
    try:
        return make_selector(wire.match_labels, expressions)
    except SelectorError:
        return None


# -- nodes and pools ---------------------------------------------------------------------------------------------------


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An existing node, or one that is starting. `taints` are those that count, `requested` includes all its pods.

    A node that is not open (a candidate, or one that is going) takes no pods, but its pods count. Its domains are not
    known because of it.
    """

    name: str
    labels: Mapping[str, str] = {}
    taints: Taints = ()
    allocatable: Resources = NOTHING
    capacity: Resources = NOTHING
    requested: Resources = NOTHING
    requested_by_daemons: Resources = NOTHING  # part of `requested`
    pool: str = ""
    initialized: bool = True  # unmanaged nodes too
    open: bool = True
    ports: HostPorts = NO_PORTS
    attachments: frozenset[Attachment] = frozenset()
    attach_limits: Mapping[str, int] = {}
    pods: tuple[BoundPod, ...] = ()

    def requirements(self) -> Requirements:
        """The labels; the host name defaults to the node's name."""
        return of_labels({names.HOSTNAME_LABEL: self.name, **self.labels})


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A way to buy a type. Prices are billionths; `left` is the number of free instances in the `reservation`."""

    requirements: Requirements
    price: int
    available: bool = True
    reservation: str = ""
    left: int = 0


def price_text(price: int) -> str:
    return f"{price / 10**9:.4f}".rstrip("0").rstrip(".")


class MachineType(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type; `allocatable` is for pods and daemons (05 §4.7)."""

    name: str
    requirements: Requirements
    capacity: Resources
    allocatable: Resources
    offers: tuple[Offer, ...]


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A NodePool: what its nodes have in common (05 §9), and its limits."""

    name: str
    weight: int = 0
    requirements: Requirements = NO_REQUIREMENTS
    taints: Taints = ()
    limits: Mapping[str, int] = {}


def read_pool(pool: NodePool) -> Pool:
    """Read a NodePool. Raises RequirementError and ResourceError."""
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
    """How strictly preferences are taken (05 §1)."""

    respect_preferences: bool = True
    strict_min_values: bool = True
    strict_reserved: bool = True
    # For disruption: pods of candidates must not rely on a node that may never start (05 §12.3).
    refuse_uninitialized: bool = False
    well_known: frozenset[str] = names.WELL_KNOWN_LABELS
    reservation_label: str = ""  # the provider's label for reservations
    max_types: int = 600


class PlacementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The pods to place. They count in no domain meanwhile. `types` are those of each pool, by name."""

    pods: tuple[PodInfo, ...]
    nodes: tuple[NodeInfo, ...] = ()
    pools: tuple[Pool, ...] = ()
    types: Mapping[str, tuple[MachineType, ...]] = {}
    daemons: tuple[Daemon, ...] = ()
    options: SchedulingOptions = SchedulingOptions()


# -- solutions ---------------------------------------------------------------------------------------------------------


class NewClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A new node for these pods, by UID. Types are in the order of price."""

    pool: str
    pods: tuple[str, ...]
    requirements: Requirements
    types: tuple[str, ...]
    requests: Resources
    reservations: tuple[str, ...] = ()
    min_values_relaxed: bool = False


# Dynamic resource allocation is not supported (R39).
RESOURCE_CLAIMS: Final = "it has resource claims"


class PodError(msgspec.Struct, frozen=True):
    """Why a pod has no place. `waiting`: the next run may find one (05 §9, Reserved).

    `no_place`: what NodePools and nodes lack, if that was asked.
    """

    pod: Ref
    origin: Origin
    reason: str
    waiting: bool = False
    no_place: NoPlace | None = None

    def __str__(self) -> str:
        return f"{self.pod.path}: {self.reason}"


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """Places of pods by UID, on nodes by name and on new nodes, and the errors."""

    existing: Mapping[str, tuple[str, ...]] = {}
    new_claims: tuple[NewClaim, ...] = ()
    errors: Mapping[str, PodError] = {}

    @property
    def all_scheduled(self) -> bool:
        """Whether every pod that was running or has to move has a place (05 §11)."""
        return all(error.origin is Origin.PENDING for error in self.errors.values())

    def new_for(self, uids: Collection[str]) -> list[NewClaim]:
        return [claim for claim in self.new_claims if any(uid in uids for uid in claim.pods)]


# -- order of pods -----------------------------------------------------------------------------------------------------

SharedNeeds = tuple[object, ...]


def queue(problem: PlacementRequest) -> list[PodInfo]:
    """The pods in the order of placement: largest first; of one size, like pods together, then the oldest (05 §9, 08
    §6.2).

    Pods are alike if they differ only in names and times. The oldest pod of each kind decides the order of the kinds.
    """
    carried = (rule for node in problem.nodes for pod in node.pods if pod.counts for rule in pod.apart)
    read = labels_read((*(rule for pod in problem.pods for rule in pod.all_rules), *carried))
    shapes = [(*needs(pod), labels_of(pod, read)) for pod in problem.pods]
    return [pod for pod, _ in in_order(problem.pods, shapes, map(rank, problem.pods))]


Rank = tuple[int, int, datetime, str]


def rank(pod: PodInfo) -> Rank:
    return (-pod.request[CPU], -pod.request[MEMORY], pod.created or _LONG_AGO, pod.uid)


def in_order(pods: Sequence[PodInfo], shapes: Sequence[S], ranks: Iterable[Rank]) -> list[tuple[PodInfo, S]]:
    """Like `queue`, if it is known which pods are alike."""
    ordered = sorted(zip(ranks, range(len(pods)), strict=True))
    first: dict[S, int] = {}
    for place, (_, index) in enumerate(ordered):
        first.setdefault(shapes[index], place)
    # Like pods have one size, so moving each to the oldest of its kind keeps the order of sizes.
    ordered.sort(key=lambda ranked: first[shapes[ranked[1]]])
    return [(pods[index], shapes[index]) for _, index in ordered]


def labels_read(rules: Iterable[TopologyRule]) -> frozenset[str]:
    """The labels of pods that some rule selects by. No other label makes a difference."""
    selectors = {rule.selector for rule in rules if rule.selector is not None}
    return frozenset(key for selector in selectors for key, _ in selector.labels).union(
        expression.key for selector in selectors for expression in selector.expressions
    )


def labels_of(pod: PodInfo, read: frozenset[str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in pod.labels.items() if key in read))


def needs(pod: PodInfo) -> SharedNeeds:
    """Everything that the engine reads of a pod, without its labels."""
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
