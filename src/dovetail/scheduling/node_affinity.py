"""Node selector and node affinity of a pod at each step of relaxation (05 §2.2, §10)."""

from typing import Final

import msgspec

from dovetail.api.pod_specs import NodeSelectorTerm, SchedulingPodSpec
from dovetail.scheduling.requirements import (
    NO_REQUIREMENTS,
    RequirementError,
    Requirements,
    read_requirements,
    selecting,
)


class ParsedNodeAffinity(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The nodes that a pod asks for, by their labels. Node fields are not evaluated."""

    selector: Requirements = NO_REQUIREMENTS
    terms: tuple[Requirements, ...] = ()  # one of these, in the order to try
    preferences: tuple[Requirements, ...] = ()  # heaviest first

    def strict(self, dropped_terms: int = 0) -> Requirements:
        """The requirements after dropping some of the required terms. The last term is never dropped."""
        assert dropped_terms == 0 or dropped_terms < len(self.terms), "the last required term stays"
        return self.selector & self.terms[dropped_terms] if self.terms else self.selector

    def full(self, dropped_terms: int = 0, dropped_preferences: int = 0) -> Requirements:
        """The strict requirements and the heaviest remaining preference."""
        strict = self.strict(dropped_terms)
        left = self.preferences[dropped_preferences:]
        return strict & left[0] if left else strict

    def alternatives(self) -> tuple[Requirements, ...]:
        """The required alternatives, without preferences. A node has to meet one."""
        return tuple(self.selector & term for term in self.terms) or (self.selector,)


ANYWHERE: Final = ParsedNodeAffinity()


def read_node_affinity(spec: SchedulingPodSpec, *, preferences: bool = True) -> ParsedNodeAffinity:
    """Read the affinity of a pod, with or without `preferences`. Raises RequirementError."""
    affinity = spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    terms = () if required is None else required.node_selector_terms
    preferred = affinity.preferred_during_scheduling_ignored_during_execution if preferences else ()
    heaviest_first = sorted(preferred, key=lambda term: -term.weight)
    if not (spec.node_selector or terms or preferred):
        return ANYWHERE
    usable = [term for term in terms if term.match_expressions or term.match_fields]
    if terms and not usable:
        raise RequirementError("the required node affinity is empty, which matches no node")
    return ParsedNodeAffinity(
        selector=selecting(spec.node_selector),
        terms=tuple(map(_expressions, usable)),
        preferences=tuple(_expressions(term.preference) for term in heaviest_first),
    )


def _expressions(term: NodeSelectorTerm) -> Requirements:
    return read_requirements(term.match_expressions)
