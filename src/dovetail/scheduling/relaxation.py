"""The preferences of a pod, which are given up one after another (05 §10)."""

from collections.abc import Iterator

import msgspec

from dovetail.scheduling.placement import PodInfo, TopologyRule
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.taints import SOFT_TAINTS_TOLERATED, Tolerations


class RelaxedRequest(msgspec.Struct, frozen=True):
    """What a pod asks for at one step of relaxation."""

    pod: PodInfo
    strict: Requirements
    full: Requirements
    tolerations: Tolerations
    rules: tuple[TopologyRule, ...]


def wishes(pod: PodInfo, *, respect_preferences: bool = True) -> Iterator[RelaxedRequest]:
    """Everything first, then one preference less each time, in the order of 05 §10."""
    affinity = pod.affinity
    preferences = (pod.preferred_together, pod.preferred_apart, affinity.preferences, pod.preferred_spread)
    counts = [len(terms) for terms in preferences]
    given_up = [0, *([0] * 4 if respect_preferences else counts), 0]
    may_give_up = [max(0, len(affinity.terms) - 1), *counts, 1]

    def wish() -> RelaxedRequest:
        terms, together, apart, nodes, spread, soft_taints = given_up
        return RelaxedRequest(
            pod=pod,
            strict=affinity.strict(terms),
            full=affinity.full(terms, nodes),
            tolerations=pod.tolerations | {SOFT_TAINTS_TOLERATED} if soft_taints else pod.tolerations,
            rules=(
                *pod.rules,
                *pod.preferred_together[together:],
                *pod.preferred_apart[apart:],
                *pod.preferred_spread[spread:],
            ),
        )

    yield wish()
    for step, most in enumerate(may_give_up):
        while given_up[step] < most:
            given_up[step] += 1
            yield wish()
