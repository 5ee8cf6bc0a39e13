"""What a pod requires of its node and of the pods around it.

Pods of one template have the same requirements, so the scheduler parses them once and works on demands.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dovetail.api.names import UNSCHEDULABLE_TAINT, TaintEffect
from dovetail.sim.actors.scheduling.amounts import pod_requests, score_requests
from dovetail.sim.actors.wire import Raw, labels_of, namespace_of, selector_of
from dovetail.values.selector import Expression, Selector

Labels = Mapping[str, str]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
# The fields of a pod spec that a demand depends on, apart from those of containers.
_FIELDS = (
    *("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "overhead", "resources", "volumes"),
    *("priority", "preemptionPolicy"),
)


class Port(NamedTuple):
    ip: str
    protocol: str
    number: int


class Spread(NamedTuple):
    key: str
    max_skew: int
    min_domains: int
    hard: bool
    selector: Selector | None
    honor_affinity: bool
    honor_taints: bool


class Neighbours(NamedTuple):
    """One term of pod affinity or anti-affinity."""

    key: str
    selector: Selector | None
    namespaces: frozenset[str] | None  # None: all
    namespace_selector: Selector | None
    weight: int = 0

    def select(self, namespace: str, labels: Labels) -> bool:
        if self.selector is None or not self.selector.matches(labels):
            return False
        if self.namespaces is None or namespace in self.namespaces:
            return True
        # Every namespace has this label; others are not simulated.
        name = {"kubernetes.io/metadata.name": namespace}
        return self.namespace_selector is not None and self.namespace_selector.matches(name)


class Demand:
    """The parsed requirements of a pod. Compared by identity.

    `defaults`: spread constraints if it has none of its own; None: those of kube-scheduler without a configuration.
    """

    def __init__(self, pod: Raw, defaults: tuple[Spread, ...] | None = None) -> None:
        spec = pod["spec"]
        affinity = spec.get("affinity") or {}
        nodes = affinity.get("nodeAffinity") or {}
        required = nodes.get(REQUIRED)
        self.namespace = namespace_of(pod)
        self.labels: Labels = dict(labels_of(pod))
        self.requests = pod_requests(spec)
        self.score_requests = score_requests(spec)
        self.ports = tuple(host_ports(spec))
        self.tolerations: Sequence[Raw] = spec.get("tolerations") or ()
        self.node_selector: Labels = spec.get("nodeSelector") or {}
        self.required_nodes: Sequence[Raw] | None = None if required is None else required["nodeSelectorTerms"]
        self.preferred_nodes: Sequence[Raw] = nodes.get(_PREFERRED) or ()
        own = tuple(_spread(self.labels, raw) for raw in spec.get("topologySpreadConstraints") or ())
        self.spreads = own or defaults or ()
        self.system_spread = not own and defaults is None
        self.affinity, self.preferred_affinity = self._terms(affinity.get("podAffinity"))
        self.anti_affinity, self.preferred_anti_affinity = self._terms(affinity.get("podAntiAffinity"))
        self.claims = tuple(claim_names(spec))
        self.priority: int = spec.get("priority") or 0
        self.never_preempts = spec.get("preemptionPolicy") == "Never"

    @property
    def looks_around(self) -> bool:
        """Whether the placement depends on pods on other nodes."""
        return bool(self.affinity or self.anti_affinity or any(spread.hard for spread in self.spreads))

    def _terms(self, raw: Raw | None) -> tuple[tuple[Neighbours, ...], tuple[Neighbours, ...]]:
        raw = raw or {}
        return (
            tuple(self._term(term, 0) for term in raw.get(REQUIRED) or ()),
            tuple(self._term(entry["podAffinityTerm"], entry["weight"]) for entry in raw.get(_PREFERRED) or ()),
        )

    def _term(self, raw: Raw, weight: int) -> Neighbours:
        names, by_selector = raw.get("namespaces") or (), raw.get("namespaceSelector")
        selector = _narrowed(self.labels, raw)
        if by_selector == {}:
            return Neighbours(raw["topologyKey"], selector, None, None, weight)
        own = names or (() if by_selector else (self.namespace,))
        return Neighbours(raw["topologyKey"], selector, frozenset(own), selector_of(by_selector), weight)


def demand_key(pod: Raw) -> str:
    """A text that is equal for pods with equal requirements."""
    spec = pod["spec"]
    containers = [
        (container.get("resources"), container.get("ports"), container.get("restartPolicy"))
        for field in ("initContainers", "containers")
        for container in (*(spec.get(field) or ()), {"resources": field})
    ]
    fields = [spec.get(field) for field in _FIELDS]
    return json.dumps([namespace_of(pod), labels_of(pod), containers, fields], sort_keys=True)


def _narrowed(labels: Labels, raw: Raw) -> Selector | None:
    """The label selector, with matchLabelKeys and mismatchLabelKeys resolved by the pod's own labels."""
    selector = selector_of(raw.get("labelSelector"))
    if selector is None:
        return None
    extra = [
        Expression(key, operator, frozenset((labels[key],)))
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in raw.get(field) or ()
        if key in labels
    ]
    return Selector(selector.labels, (*selector.expressions, *extra))


def _spread(labels: Labels, raw: Raw) -> Spread:
    return Spread(
        key=raw["topologyKey"],
        max_skew=raw["maxSkew"],
        min_domains=raw.get("minDomains") or 1,
        hard=raw.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
        selector=_narrowed(labels, raw),
        honor_affinity=raw.get("nodeAffinityPolicy", "Honor") == "Honor",
        honor_taints=raw.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


def host_ports(spec: Raw) -> Iterable[Port]:
    for container in spec.get("containers") or ():
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else 0)
            if number:
                yield Port(port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", number)


def claim_names(spec: Raw) -> Iterable[str]:
    for volume in spec.get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"]


def tolerates(tolerations: Iterable[Raw], taint: Raw) -> bool:
    """Whether one of the tolerations matches the taint."""
    return any(toleration_matches(toleration, taint) for toleration in tolerations)


def toleration_matches(toleration: Raw, taint: Raw) -> bool:
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint["effect"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if key and key != taint["key"]:
        return False
    if operator == "Exists":
        return True
    return bool(key) and operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")


def untolerated(tolerations: Sequence[Raw], taints: Iterable[Raw], *effects: TaintEffect) -> Raw | None:
    """The first taint of these effects that the pod does not tolerate."""
    for taint in taints:
        if taint["effect"] in effects and not tolerates(tolerations, taint):
            return taint
    return None


def tolerates_cordon(tolerations: Sequence[Raw]) -> bool:
    return tolerates(tolerations, {"key": UNSCHEDULABLE_TAINT, "effect": TaintEffect.NO_SCHEDULE})
