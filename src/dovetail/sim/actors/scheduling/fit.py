"""Whether a pod fits on a node by itself, with reasons in kube-scheduler's words."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dovetail.api.names import TaintEffect
from dovetail.sim.actors.scheduling.amounts import Amounts, amounts
from dovetail.sim.actors.scheduling.demand import Demand, Labels, Port, tolerates_cordon, untolerated
from dovetail.sim.actors.wire import Raw, labels_of, name_of, status_of

UNSCHEDULABLE = "node(s) were unschedulable"
TAINTED = "node(s) had untolerated taint(s)"
NO_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS = "Too many pods"
NO_ZONE = "node(s) had no available volume zone"

_ANY_ADDRESS = ("0.0.0.0", "::")


class Fit(NamedTuple):
    """Reasons why a pod does not fit; none: it fits. `final`: removing pods from the node would not help."""

    reasons: tuple[str, ...] = ()
    final: bool = False


FITS = Fit()


class NodeUsage:
    """A node as the scheduler sees it, with the requests of its pods."""

    def __init__(self, node: Raw) -> None:
        self.name = name_of(node)
        self.demands: dict[str, Demand] = {}  # by pod key
        self.used: dict[str, int] = {}
        self.score_used = [0, 0]
        self.update(node)

    def update(self, node: Raw) -> None:
        self.labels: Labels = labels_of(node)
        self.taints: Sequence[Raw] = node.get("spec", {}).get("taints") or ()
        self.unschedulable = bool(node.get("spec", {}).get("unschedulable"))
        self.allocatable = amounts(status_of(node).get("allocatable") or status_of(node).get("capacity"))

    def add(self, key: str, demand: Demand) -> None:
        self.remove(key)
        self.demands[key] = demand
        self._count(demand, 1)

    def remove(self, key: str) -> None:
        demand = self.demands.pop(key, None)
        if demand is not None:
            self._count(demand, -1)

    def _count(self, demand: Demand, sign: int) -> None:
        for name, value in demand.requests.items():
            self.used[name] = self.used.get(name, 0) + sign * value
        self.score_used[0] += sign * demand.score_requests[0]
        self.score_used[1] += sign * demand.score_requests[1]


def fit(demand: Demand, node: NodeUsage) -> Fit:
    """The first filter that rejects the node, in kube-scheduler's order."""
    if not named(demand, node):
        return Fit((NOT_NAMED,), final=True)
    if node.unschedulable and not tolerates_cordon(demand.tolerations):
        return Fit((UNSCHEDULABLE,), final=True)
    if untolerated(demand.tolerations, node.taints, TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE) is not None:
        return Fit((TAINTED,), final=True)
    if not wants(demand, node):
        return Fit((NO_AFFINITY,), final=True)
    if demand.ports and _ports_taken(demand.ports, node):
        return Fit((NO_PORTS,))
    short = insufficient(demand.requests, node)
    return short if short.reasons else FITS


def zone_fit(node: NodeUsage, zones: Sequence[Labels]) -> Fit:
    """Whether the node is in the zones of the volumes; two underscores join several zones of one volume."""
    if any(node.labels.get(key) not in value.split("__") for zone in zones for key, value in zone.items()):
        return Fit((NO_ZONE,), final=True)
    return FITS


def named(demand: Demand, node: NodeUsage) -> bool:
    """Whether the node names in the required affinity, as DaemonSets set them, include this one."""
    terms = demand.required_nodes
    if terms is None or not all(term.get("matchFields") for term in terms):
        return True
    return any(_fields_match(term, node.name) for term in terms)


def wants(demand: Demand, node: NodeUsage) -> bool:
    """Whether the node selector and one of the required affinity terms match."""
    for key, value in demand.node_selector.items():
        if node.labels.get(key) != value:
            return False
    terms = demand.required_nodes
    return terms is None or any(term_matches(term, node.name, node.labels) for term in terms)


def term_matches(term: Raw, name: str, labels: Labels) -> bool:
    """One node selector term; an empty one matches nothing."""
    expressions = term.get("matchExpressions") or ()
    if not expressions and not term.get("matchFields"):
        return False
    return _fields_match(term, name) and all(_expression_matches(expression, labels) for expression in expressions)


def _fields_match(term: Raw, name: str) -> bool:
    return all(
        (name in field["values"]) == (field["operator"] == "In")
        for field in term.get("matchFields") or ()
        if field["key"] == "metadata.name"
    )


def _expression_matches(expression: Raw, labels: Labels) -> bool:
    key, operator = expression["key"], expression["operator"]
    values: Sequence[str] = expression.get("values") or ()
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    try:
        have, bound = int(labels[key]), int(values[0])
    except (KeyError, ValueError, IndexError):
        return False
    return have > bound if operator == "Gt" else have < bound


def insufficient(requests: Amounts, node: NodeUsage) -> Fit:
    """All resources that the node lacks."""
    short: list[str] = []
    final = False
    if len(node.demands) + 1 > node.allocatable.get("pods", 0):
        short.append(TOO_MANY_PODS)
    for name in sorted(requests, key=_resource_order):
        asked, whole = requests[name], node.allocatable.get(name, 0)
        if asked > 0 and asked > whole - node.used.get(name, 0):
            short.append(f"Insufficient {name}")
            final = final or asked > whole
    return Fit(tuple(short), final)


def _resource_order(name: str) -> tuple[int, str]:
    first = ("cpu", "memory", "ephemeral-storage")
    return (first.index(name) if name in first else len(first), name)


def _ports_taken(ports: Iterable[Port], node: NodeUsage) -> bool:
    taken = [port for demand in node.demands.values() for port in demand.ports]
    return any(_clash(port, other) for port in ports for other in taken)


def _clash(one: Port, other: Port) -> bool:
    if (one.protocol, one.number) != (other.protocol, other.number):
        return False
    return one.ip == other.ip or one.ip in _ANY_ADDRESS or other.ip in _ANY_ADDRESS


def unfit_message(fits: Mapping[str, Fit], preemption: str = "") -> str:
    """The message of the condition PodScheduled; `preemption`: why preemption does not help."""
    if not fits:
        return "no nodes available to schedule pods"
    return summary(fits) + (f" no new claims to deallocate, preemption: {preemption}" if preemption else "")


def summary(fits: Mapping[str, Fit]) -> str:
    """The number of nodes for each reason."""
    reasons = Counter(reason for outcome in fits.values() for reason in outcome.reasons)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{len(fits)} nodes are available: {listed}."
