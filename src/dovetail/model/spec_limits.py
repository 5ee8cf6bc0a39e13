"""Limits on what a pod may ask of scheduling.

The cost of scheduling grows with the number of terms of a pod, and with products of some of them. A pod with 10,000 of
each would stop all provisioning, and creating it takes only rights in one namespace.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail.api.objects import LabelSelector
from dovetail.api.pod_specs import Affinity, ContainerResources, NodeSelectorTerm, PodAffinityTerm, SchedulingPodSpec

TERMS: Final = 128
RESOURCES: Final = 64
AMOUNTS: Final = 1024
PORTS: Final = 1024
# A spec with fewer encoded bytes exceeds no limit, so most pods are not counted.
UNCOUNTED_BYTES: Final = 384


def within_limits(spec: SchedulingPodSpec) -> tuple[SchedulingPodSpec, str]:
    """The spec without the parts that exceed a limit, and a description of these."""
    terms, containers = _too_many_terms(spec), _too_much_for_containers(spec)
    if terms:
        spec = msgspec.structs.replace(
            spec, node_selector={}, affinity=Affinity(), tolerations=[], topology_spread_constraints=()
        )
    if containers:
        spec = msgspec.structs.replace(
            spec, containers=(), init_containers=(), resources=ContainerResources(), overhead={}
        )
    return spec, "; ".join(filter(None, (terms, containers)))


def _too_many_terms(spec: SchedulingPodSpec) -> str:
    count = sum(_term_counts(spec))
    if count <= TERMS:
        return ""
    where = "nodeSelector, affinity, tolerations and topologySpreadConstraints"
    return f"{where} have {count} terms and expressions together, at most {TERMS} are read"


def _term_counts(spec: SchedulingPodSpec) -> Iterator[int]:
    yield len(spec.node_selector) + len(spec.tolerations)
    for term in _node_terms(spec):
        yield 1 + len(term.match_expressions) + len(term.match_fields)
    for pod_term in _pod_terms(spec):
        yield 1 + _size(pod_term.label_selector) + _size(pod_term.namespace_selector)
        yield len(pod_term.match_label_keys) + len(pod_term.mismatch_label_keys)
    for constraint in spec.topology_spread_constraints:
        yield 1 + _size(constraint.label_selector) + len(constraint.match_label_keys)


def _node_terms(spec: SchedulingPodSpec) -> Iterator[NodeSelectorTerm]:
    affinity = spec.affinity.node_affinity
    if affinity.required_during_scheduling_ignored_during_execution is not None:
        yield from affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    yield from (term.preference for term in affinity.preferred_during_scheduling_ignored_during_execution)


def _pod_terms(spec: SchedulingPodSpec) -> Iterator[PodAffinityTerm]:
    for side in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity):
        yield from side.required_during_scheduling_ignored_during_execution
        yield from (term.pod_affinity_term for term in side.preferred_during_scheduling_ignored_during_execution)


def _size(selector: LabelSelector | None) -> int:
    return 0 if selector is None else len(selector.match_labels) + len(selector.match_expressions)


def _too_much_for_containers(spec: SchedulingPodSpec) -> str:
    containers = (*spec.containers, *spec.init_containers)
    listed = [
        amounts
        for resources in (spec.resources, *(container.resources for container in containers))
        for amounts in (resources.requests, resources.limits)
    ]
    counts = {
        f"amounts of resources, at most {AMOUNTS}": (sum(map(len, listed)), AMOUNTS),
        f"different resources, at most {RESOURCES}": (len(set().union(*listed)), RESOURCES),
        f"ports, at most {PORTS}": (sum(len(container.ports) for container in containers), PORTS),
    }
    return next(
        (f"containers have {count} {what} are read" for what, (count, most) in counts.items() if count > most), ""
    )
