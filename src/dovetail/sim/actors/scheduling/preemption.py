"""Preemption: which pods make room for a pod of a higher priority, as kube-scheduler chooses them.

On each node all pods of a lower priority are removed on trial, and as many as possible are put back: first those whose
disruption budget would be violated, and the more important before the less. Among nodes the one with the fewest
violations is chosen, then the one whose most important victim has the lowest priority, then the one with the fewest.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from dovetail.sim.actors.scheduling.demand import Demand, Labels
from dovetail.sim.actors.scheduling.fit import FITS, Fit
from dovetail.sim.actors.scheduling.placement import SchedulerCache, Supposition, answer
from dovetail.sim.actors.wire import Raw, namespace_of, selector_of, status_of
from dovetail.values.selector import Selector

NOT_HELPFUL = Fit(("Preemption is not helpful for scheduling",), final=True)
NO_VICTIMS = Fit(("No preemption victims found for incoming pod",))


class PdbAllowance(NamedTuple):
    """The remaining disruptions of a PodDisruptionBudget."""

    namespace: str
    selector: Selector
    allowed: int
    disrupted: Collection[str]  # names of pods that are counted already


class PreemptionVictims(NamedTuple):
    """The keys of pods to evict from a node, the most important first."""

    node: str
    victims: tuple[str, ...]
    violations: int


class Preemptor(NamedTuple):
    """A pod that needs room, and what decides on the victims."""

    key: str
    demand: Demand
    zones: Sequence[Labels]
    budgets: Sequence[PdbAllowance]
    started: Callable[[str], float]  # when the pod of the key started, in seconds; inf if it did not


def budget(pdb: Raw) -> PdbAllowance | None:
    """None if the budget selects no pods."""
    selector, status = selector_of(pdb["spec"].get("selector")), status_of(pdb)
    if selector is None:
        return None
    allowed = status.get("disruptionsAllowed", 0)
    return PdbAllowance(namespace_of(pdb), selector, allowed, status.get("disruptedPods") or {})


def sacrifice(
    preemptor: Preemptor, cluster: SchedulerCache, unfit: Mapping[str, Fit]
) -> PreemptionVictims | dict[str, Fit]:
    """The best victims, or why no preemption helps, by node."""
    if not cluster.anybody_below(preemptor.demand.priority):
        return {name: NOT_HELPFUL if outcome.final else NO_VICTIMS for name, outcome in unfit.items()}
    sacrifices: list[PreemptionVictims] = []
    useless: dict[str, Fit] = {}
    for name, outcome in unfit.items():
        result = NOT_HELPFUL if outcome.final else _on_node(preemptor, cluster, name)
        if isinstance(result, PreemptionVictims):
            sacrifices.append(result)
        else:
            useless[name] = result
    return min(sacrifices, key=lambda one: _harm(preemptor, cluster, one)) if sacrifices else useless


def _on_node(preemptor: Preemptor, cluster: SchedulerCache, name: str) -> PreemptionVictims | Fit:
    demand, node = preemptor.demand, cluster.nodes[name]
    lower = [key for key, other in node.demands.items() if other.priority < demand.priority]
    if not lower:
        return NO_VICTIMS
    lower.sort(key=lambda key: (-node.demands[key].priority, preemptor.started(key), key))
    violating = _violating(lower, node.demands, preemptor.budgets)
    victims: list[str] = []
    with Supposition(cluster, name) as what_if:
        what_if.others_come(preemptor.key, demand.priority)
        for key in lower:
            what_if.goes(key)
        outcome = answer(demand, cluster, node, preemptor.zones)
        if outcome is not FITS:
            return outcome
        for key in sorted(lower, key=lambda key: key not in violating):  # stable: the more important first
            what_if.stays(key)
            if answer(demand, cluster, node, preemptor.zones) is not FITS:
                what_if.goes(key)
                victims.append(key)
    ordered = tuple(key for key in lower if key in victims)
    return PreemptionVictims(name, ordered, sum(key in violating for key in victims)) if victims else NO_VICTIMS


def _violating(keys: Sequence[str], demands: Mapping[str, Demand], budgets: Sequence[PdbAllowance]) -> set[str]:
    """The pods whose budget would be violated if they and all pods before them were evicted."""
    left = [budget.allowed for budget in budgets]
    violating: set[str] = set()
    for key in keys:
        pod, name = demands[key], key.rpartition("/")[2]
        for index, (namespace, selector, _, disrupted) in enumerate(budgets):
            if namespace == pod.namespace and name not in disrupted and selector.matches(pod.labels):
                left[index] -= 1
                if left[index] < 0:
                    violating.add(key)
    return violating


def _harm(
    preemptor: Preemptor, cluster: SchedulerCache, one: PreemptionVictims
) -> tuple[int, int, int, int, float, str]:
    """A sort key; among equals, the node whose most important victim has run for the shortest time is first."""
    demands = cluster.nodes[one.node].demands
    priorities = [demands[key].priority for key in one.victims]
    since = -preemptor.started(one.victims[0])
    return (one.violations, priorities[0], len(priorities), sum(priorities), since, one.node)
