"""Whom does a pod of a higher priority drive away, and from which node? The least harm, as kube-scheduler sees it.

On a node all pods of a lower priority are thought away, and as many as can stay are taken back: first those whose
disruption budget would be violated, and the more important before the less. Among nodes the one with the fewest
violations is chosen, then the one whose most important victim has the lowest priority, then the one with the fewest.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from dovetail.sim.actors.demand import Demand, Labels
from dovetail.sim.actors.fit import FITS, Fit
from dovetail.sim.actors.placement import SchedulerCache, Supposition, answer
from dovetail.sim.actors.wire import Raw, namespace_of, selector_of, status_of
from dovetail.values.selector import Selector

NOT_HELPFUL = Fit(("Preemption is not helpful for scheduling",), final=True)
NO_VICTIMS = Fit(("No preemption victims found for incoming pod",))


class PdbAllowance(NamedTuple):
    """What a PodDisruptionBudget still allows."""

    namespace: str
    selector: Selector
    allowed: int
    disrupted: Collection[str]  # names of pods that are counted already


class PreemptionVictims(NamedTuple):
    """The pods that have to leave a node, by key, the most important first."""

    node: str
    victims: tuple[str, ...]
    violations: int


class Preemptor(NamedTuple):
    """A pod that needs a place, and what decides who makes it."""

    key: str
    demand: Demand
    zones: Sequence[Labels]
    budgets: Sequence[PdbAllowance]
    started: Callable[[str], float]  # when the pod of the key began to run, in seconds; inf if it did not


def budget(pdb: Raw) -> PdbAllowance | None:
    """None if the budget is about no pods."""
    selector, status = selector_of(pdb["spec"].get("selector")), status_of(pdb)
    if selector is None:
        return None
    allowed = status.get("disruptionsAllowed", 0)
    return PdbAllowance(namespace_of(pdb), selector, allowed, status.get("disruptedPods") or {})


def sacrifice(
    preemptor: Preemptor, cluster: SchedulerCache, unfit: Mapping[str, Fit]
) -> PreemptionVictims | dict[str, Fit]:
    """The least harm, or why there is no use in any, node by node."""
    if not cluster.anybody_below(preemptor.demand.priority):
        return {name: NOT_HELPFUL if outcome.final else NO_VICTIMS for name, outcome in unfit.items()}
    found: list[PreemptionVictims] = []
    useless: dict[str, Fit] = {}
    for name, outcome in unfit.items():
        result = NOT_HELPFUL if outcome.final else _on_node(preemptor, cluster, name)
        if isinstance(result, PreemptionVictims):
            found.append(result)
        else:
            useless[name] = result
    return min(found, key=lambda one: _harm(preemptor, cluster, one)) if found else useless


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
    """The pods whose budget would not allow that they go after those before them."""
    left = [budget.allowed for budget in budgets]
    found: set[str] = set()
    for key in keys:
        pod, name = demands[key], key.rpartition("/")[2]
        for index, (namespace, selector, _, disrupted) in enumerate(budgets):
            if namespace == pod.namespace and name not in disrupted and selector.matches(pod.labels):
                left[index] -= 1
                if left[index] < 0:
                    found.add(key)
    return found


def _harm(
    preemptor: Preemptor, cluster: SchedulerCache, one: PreemptionVictims
) -> tuple[int, int, int, int, float, str]:
    """The less, the better; of two alike, the one whose most important victim has run for the shortest time."""
    demands = cluster.nodes[one.node].demands
    priorities = [demands[key].priority for key in one.victims]
    since = -preemptor.started(one.victims[0])
    return (one.violations, priorities[0], len(priorities), sum(priorities), since, one.node)
