"""The topology spread constraints that kube-scheduler gives to pods without constraints of their own.

They are part of the configuration of the scheduler and have no selector. A pod gets its selector from the Services that
select it and from its ReplicaSet, StatefulSet or ReplicationController. A pod that has neither gets no constraints.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dovetail.api.objects import LabelSelector
from dovetail.api.pod_specs import TopologySpreadConstraint
from dovetail.values.selector import Selector, SelectorError, make_selector

DEFAULT_SCHEDULER: Final = "default-scheduler"


class SchedulerProfile(msgspec.Struct, frozen=True):
    """The default constraints of one profile.

    `system`: kube-scheduler uses its own. They only affect the scores of nodes, in every cluster without a
    configuration too, so that no node is planned for them.
    """

    constraints: tuple[TopologySpreadConstraint, ...] = ()
    system: bool = False


class SchedulerProfiles(msgspec.Struct, frozen=True):
    """The profiles by scheduler name. Without `by_name`, all pods have the profile `every`."""

    by_name: Mapping[str, SchedulerProfile] = {}
    every: SchedulerProfile | None = None

    def profile(self, scheduler: str) -> SchedulerProfile | None:
        """The profile of pods with this schedulerName; None: another scheduler places them."""
        return self.every or self.by_name.get(scheduler or DEFAULT_SCHEDULER)

    def constraints(self, scheduler: str) -> tuple[TopologySpreadConstraint, ...]:
        profile = self.profile(scheduler)
        return () if profile is None else profile.constraints

    @property
    def any_constraints(self) -> bool:
        """Whether any pod can get constraints."""
        profiles = self.by_name.values() if self.every is None else (self.every,)
        return any(profile.constraints for profile in profiles)


class DefaultSpread(msgspec.Struct, frozen=True, cache_hash=True):
    """The default constraints of a pod, with its selector."""

    constraints: tuple[TopologySpreadConstraint, ...]
    selector: Selector


def deduced_selector(services: Iterable[Selector], owner: Selector | None) -> Selector | None:
    """The selector of default constraints; None if there is nothing to deduce it from.

    `services`: selectors of the Services that select the pod. `owner`: the selector of its controller.
    """
    selectors = [*services, *([owner] if owner is not None else [])]
    labels = sorted({label for selector in selectors for label in selector.labels})
    expressions = () if owner is None else owner.expressions
    return Selector(tuple(labels), expressions) if labels or expressions else None


def owner_selector(wire: LabelSelector | None) -> Selector | None:
    """The selector of a ReplicaSet or StatefulSet; None if it cannot be read."""
    if wire is None:
        return None
    try:
        return make_selector(
            wire.match_labels,
            [(expression.key, expression.operator, expression.values) for expression in wire.match_expressions],
        )
    except SelectorError:
        return None
