"""May a label be like this, is a taint tolerated, do ports clash? In the plainest words, for the checker alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from dovetail.api import names
from dovetail.api.objects import Taint, Toleration
from dovetail.scheduling.host_ports import HostPort
from dovetail.scheduling.placement import NodeInfo, PodInfo
from dovetail.scheduling.requirements import Requirement, Requirements

HOST = names.HOSTNAME_LABEL
Labels = Mapping[str, str]
_FRESH = "a value that nobody names"


# -- labels ------------------------------------------------------------------------------------------------------------


def allows(requirement: Requirement, value: str | None) -> bool:
    """Whether the label may be like this; None: missing."""
    if value is None:
        return requirement.optional
    if (value in requirement.values) == requirement.complement:
        return False
    if requirement.gte is None and requirement.lte is None:
        return True
    low = 0 if requirement.gte is None else requirement.gte
    return value.isdecimal() and low <= int(value) and (requirement.lte is None or int(value) <= requirement.lte)


def _samples(requirements: Sequence[Requirement]) -> list[str | None]:
    """Values enough to tell requirements apart: all that are named, those about the bounds, another, and none."""
    named = {value for each in requirements for value in each.values}
    bounds = [bound for each in requirements for bound in (each.gte, each.lte) if bound is not None]
    numbers = range(max(0, min(bounds) - 1), max(bounds) + len(named) + 2) if bounds else range(0)
    return [None, _FRESH, *sorted(named), *map(str, numbers)]


def agree(*requirements: Requirement) -> bool:
    return any(all(allows(each, value) for each in requirements) for value in _samples(requirements))


def implies(claim: Requirements, wanted: Requirements) -> bool:
    """Whether every node that the claim may become is as wanted. It gets a name that nobody knows yet."""
    for each in wanted:
        if each.key == HOST:
            if not allows(each, _FRESH):
                return False
        elif any(
            allows(claim.get(each.key), value) and not allows(each, value)
            for value in _samples([claim.get(each.key), each])
        ):
            return False
    return True


def meets(labels: Labels, wanted: Requirements) -> bool:
    return all(allows(each, labels.get(each.key)) for each in wanted)


def node_labels(node: NodeInfo) -> Labels:
    return {HOST: node.name, **node.labels}


# -- taints and ports --------------------------------------------------------------------------------------------------


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    if not toleration.key:
        return False
    if toleration.operator in ("Gt", "Lt"):
        if not (taint.value.isdecimal() and toleration.value.isdecimal()):
            return False
        above = int(taint.value) - int(toleration.value)
        return above > 0 if toleration.operator == "Gt" else above < 0
    return toleration.value == taint.value


def walled_off(pod: PodInfo, taints: Iterable[Taint]) -> Iterator[str]:
    """In the end a taint that only prefers others is no wall."""
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not tolerated(pod.tolerations, taint):
            yield f"pod {pod.uid} does not tolerate {taint.key}={taint.value}:{taint.effect}"


def clashing(ports: Iterable[HostPort], others: Iterable[HostPort]) -> bool:
    everywhere, others = ("0.0.0.0", "::"), list(others)
    return any(
        (one.port, one.protocol) == (other.port, other.protocol)
        and (one.ip == other.ip or one.ip in everywhere or other.ip in everywhere)
        for one in ports
        for other in others
    )


def port_clashes(pods: Sequence[PodInfo], taken: Iterable[HostPort]) -> Iterator[str]:
    taken = list(taken)
    yield from (f"a host port of pod {pod.uid} is taken" for pod in pods if clashing(pod.ports, taken))
    for one, other in combinations(pods, 2):
        if clashing(one.ports, other.ports):
            yield f"pods {one.uid} and {other.uid} want the same host port"
