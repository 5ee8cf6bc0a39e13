"""Is an answer one that the rules allow (05), whichever engine gave it, and in whatever order it placed the pods?

Written from the rules alone, one plain question at a time, and without the engines' own code: only the values that a
problem is made of are shared. What depends on the order of placing (zone spreads, above all) is not asked.
"""

from collections.abc import Iterable, Iterator, Sequence

from dovetail.api import names
from dovetail.scheduling.daemons import Daemon
from dovetail.scheduling.placement import (
    MachineType,
    NewClaim,
    NodeInfo,
    Offer,
    Origin,
    PlacementRequest,
    PodInfo,
    Pool,
    Solution,
    TopologyRuleKind,
)
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.resources import Resources
from tests.scheduling.company import Spot, crowded, not_apart, not_together, required, selects, spots
from tests.scheduling.plain import (
    agree,
    allows,
    clashing,
    implies,
    meets,
    node_labels,
    port_clashes,
    tolerated,
    walled_off,
)


def violations(problem: PlacementRequest, solution: Solution) -> list[str]:
    """Everything that is wrong with the answer; for people."""
    pods = {pod.uid: pod for pod in problem.pods}
    wrong = list(_unaccounted(problem, solution))
    if wrong:
        return wrong
    for node in problem.nodes:
        placed = [pods[uid] for uid in solution.existing.get(node.name, ())]
        wrong += [f"node {node.name}: {each}" for each in _on_node(problem, node, placed)]
    for index, claim in enumerate(solution.new_claims):
        wrong += [f"claim {index}: {each}" for each in _on_claim(problem, claim, [pods[uid] for uid in claim.pods])]
    wrong += _over_limits(problem, solution)
    wrong += _over_reserved(problem, solution)
    there = spots(problem, solution)
    wrong += not_apart(there)
    wrong += not_together(there, [pods[uid] for uid in solution.errors])
    wrong += crowded(there)
    wrong += _forgotten(problem, solution, there)
    return wrong


def _unaccounted(problem: PlacementRequest, solution: Solution) -> Iterator[str]:
    """Each pod is in one place, or has none for a reason."""
    nodes, pods = {node.name for node in problem.nodes}, {pod.uid: pod for pod in problem.pods}
    yield from (f"there is no node {name}" for name in solution.existing if name not in nodes)
    there = [uid for uids in solution.existing.values() for uid in uids]
    there += [uid for claim in solution.new_claims for uid in claim.pods] + list(solution.errors)
    yield from (f"pod {uid} is answered for {there.count(uid)} times" for uid in pods if there.count(uid) != 1)
    yield from (f"pod {uid} was not asked for" for uid in there if uid not in pods)
    for uid, error in solution.errors.items():
        if uid in pods and (error.pod, error.origin) != (pods[uid].ref, pods[uid].origin):
            yield f"the error of pod {uid} is about another"
    for pod in problem.pods:
        if pod.resource_claims and pod.uid not in solution.errors:
            yield f"pod {pod.uid} has resource claims, and is placed"


# -- one node ----------------------------------------------------------------------------------------------------------


def _sum(parts: Iterable[Resources]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0) + amount
    return found


def _node_reserve(problem: PlacementRequest, node: NodeInfo) -> dict[str, int]:
    """What daemons still need of it."""
    labels = node_labels(node)
    running = [
        daemon.request
        for daemon in problem.daemons
        if all(tolerated(daemon.tolerations, taint) for taint in node.taints)
        and any(meets(labels, each) for each in daemon.alternatives)
    ]
    return {name: max(0, amount - node.requested_by_daemons[name]) for name, amount in _sum(running).items()}


def _free(problem: PlacementRequest, node: NodeInfo, placed: Iterable[PodInfo]) -> dict[str, int]:
    taken = _sum((node.requested, *(pod.request for pod in placed)))
    reserve = _node_reserve(problem, node)
    return {
        name: node.allocatable[name] - taken.get(name, 0) - reserve.get(name, 0)
        for name in sorted({*node.allocatable, *taken, *reserve})
    }


def _on_node(problem: PlacementRequest, node: NodeInfo, placed: Sequence[PodInfo]) -> Iterator[str]:
    if not placed:
        return
    if not node.open:
        yield "is closed"
    yield from (f"too little {name}" for name, amount in _free(problem, node, placed).items() if amount < 0)
    yield from port_clashes(placed, node.ports)
    labels = node_labels(node)
    for pod in placed:
        yield from walled_off(pod, node.taints)
        if not any(meets(labels, each) for each in pod.affinity.alternatives()):
            yield f"pod {pod.uid} asks for another"
        if not any(meets(labels, each) for each in pod.volumes.alternatives):
            yield f"the volumes of pod {pod.uid} are elsewhere"
        if problem.options.refuse_uninitialized and not node.initialized and pod.origin is not Origin.DELETING:
            yield f"is not initialized, which pod {pod.uid} must not rely on"
    attached = node.attachments.union(*(pod.volumes.attachments for pod in placed))
    for driver, limit in node.attach_limits.items():
        added = any(each.driver == driver for each in attached - node.attachments)
        if added and sum(each.driver == driver for each in attached) > limit:
            yield f"has more than {limit} volumes of {driver}"


# -- one claim ---------------------------------------------------------------------------------------------------------


def _daemons_of(problem: PlacementRequest, pool: Pool, type_: MachineType) -> list[Daemon]:
    return [
        daemon
        for daemon in problem.daemons
        if all(tolerated(daemon.tolerations, taint) for taint in pool.taints)
        and any(_could_run(each, pool, type_, problem.options.well_known) for each in daemon.alternatives)
    ]


def _could_run(wanted: Requirements, pool: Pool, type_: MachineType, well_known: frozenset[str]) -> bool:
    coming = {names.REGISTERED_LABEL, names.INITIALIZED_LABEL}
    for each in wanted:
        if each.key in coming:
            if not allows(each, "true"):
                return False
        elif each.key in pool.requirements:
            if not agree(each, pool.requirements.get(each.key)):
                return False
        elif not each.optional and (each.key not in well_known or not agree(each)):
            return False
        if each.key in type_.requirements and not agree(each, type_.requirements.get(each.key)):
            return False
    return True


def _purchases(type_: MachineType, claim: NewClaim) -> list[Offer]:
    """The ways to buy the type that the claim may use: in its reservations if it has any, else outside of all."""
    return [
        offer
        for offer in type_.offers
        if offer.available
        and (offer.reservation in claim.reservations if claim.reservations else not offer.reservation)
        and all(
            agree(each, claim.requirements.get(each.key))
            for each in offer.requirements
            if each.key in claim.requirements
        )
    ]


def _on_claim(problem: PlacementRequest, claim: NewClaim, placed: Sequence[PodInfo]) -> Iterator[str]:
    pool = next((each for each in problem.pools if each.name == claim.pool), None)
    types = {type_.name: type_ for type_ in problem.types.get(claim.pool, ())}
    if pool is None or not claim.types or not types.keys() >= set(claim.types) or not placed:
        yield "is of no pool, of no type of it, or for nobody"
        return
    if any(each.key not in claim.requirements for each in pool.requirements):
        yield "does not say what its pool does"
    if not implies(claim.requirements, pool.requirements):
        yield "is not as its pool wants it"
    yield from port_clashes(placed, ())
    for pod in placed:
        yield from walled_off(pod, pool.taints)
        if not any(implies(claim.requirements, each) for each in pod.affinity.alternatives()):
            yield f"pod {pod.uid} asks for another"
        if not any(implies(claim.requirements, each) for each in pod.volumes.alternatives):
            yield f"the volumes of pod {pod.uid} may be elsewhere"
    chosen = [types[name] for name in claim.types]
    for type_ in chosen:
        yield from (f"{type_.name} {each}" for each in _flaws(problem, pool, claim, type_, placed))
    yield from _unlike_the_rules(problem, pool, claim, chosen, placed)


def _flaws(
    problem: PlacementRequest, pool: Pool, claim: NewClaim, type_: MachineType, placed: Sequence[PodInfo]
) -> Iterator[str]:
    """Why one of its types would not do."""
    daemons = _daemons_of(problem, pool, type_)
    needed = _sum((*(pod.request for pod in placed), *(daemon.request for daemon in daemons)))
    yield from (f"has too little {name}" for name, amount in needed.items() if amount > type_.allocatable[name])
    if any(clashing(pod.ports, daemon.ports) for pod in placed for daemon in daemons):
        yield "has a daemon on a host port of its pods"
    for each in type_.requirements:
        if each.key in claim.requirements and not agree(each, claim.requirements.get(each.key)):
            yield f"is not as wanted: {each.key}"
    if not _purchases(type_, claim):
        yield "cannot be bought"


def _unlike_the_rules(
    problem: PlacementRequest, pool: Pool, claim: NewClaim, chosen: Sequence[MachineType], placed: Sequence[PodInfo]
) -> Iterator[str]:
    """What 05 §9 says of a claim as a whole."""
    options = problem.options
    prices = [(min((each.price for each in _purchases(type_, claim)), default=0), type_.name) for type_ in chosen]
    if prices != sorted(prices) or len({*claim.types}) != len(claim.types):
        yield "its types are not in the order of their prices"
    if len(chosen) > options.max_types:
        yield "has too many types"
    for each in claim.requirements:
        values = {value for type_ in chosen for value in _told(type_, each.key)}
        if each.min_values is not None and len(values) < each.min_values:
            yield f"has {len(values)} values of {each.key}, fewer than it says"
    for each in pool.requirements:
        said = claim.requirements.get(each.key).min_values
        if each.min_values is not None and not claim.min_values_relaxed and (said is None or said < each.min_values):
            yield f"has lowered minValues of {each.key}, and does not say so"
    if claim.min_values_relaxed and options.strict_min_values:
        yield "has lowered minValues, which it must not"
    if claim.reservations:
        how = claim.requirements.get(names.CAPACITY_TYPE_LABEL)
        if how.complement or how.values != {"reserved"}:
            yield "holds reservations, and may be launched without"
    overheads = [_sum(daemon.request for daemon in _daemons_of(problem, pool, type_)) for type_ in chosen]
    asked = _sum(pod.request for pod in placed)
    for name in sorted({*asked, *(name for each in overheads for name in each)}):
        least = min(each.get(name, 0) for each in overheads)
        if claim.requests[name] != asked.get(name, 0) + least:
            yield f"requests {claim.requests[name]} of {name}, not {asked.get(name, 0) + least}"


def _told(type_: MachineType, key: str) -> frozenset[str]:
    requirement = type_.requirements.get(key)
    return frozenset() if requirement.complement else requirement.values


# -- all claims --------------------------------------------------------------------------------------------------------


def _over_limits(problem: PlacementRequest, solution: Solution) -> Iterator[str]:
    """Whichever of their types the claims become."""
    for pool in problem.pools:
        claims = [claim for claim in solution.new_claims if claim.pool == pool.name]
        types = {type_.name: type_ for type_ in problem.types.get(pool.name, ())}
        there = [node.capacity for node in problem.nodes if node.pool == pool.name and node.open]
        for name, limit in pool.limits.items() if claims else ():
            if name == names.NODES_RESOURCE:
                used = len(there) + len(claims)
            else:
                used = sum(each[name] for each in there)
                used += sum(max(types[each].capacity[name] for each in claim.types) for claim in claims)
            if used > limit:
                yield f"pool {pool.name}: {used} of {name}, more than {limit}"


def _over_reserved(problem: PlacementRequest, solution: Solution) -> Iterator[str]:
    held = [each for claim in solution.new_claims for each in claim.reservations]
    offers = [offer for types in problem.types.values() for type_ in types for offer in type_.offers]
    for reservation in sorted({*held}):
        left = min((offer.left for offer in offers if offer.reservation == reservation), default=0)
        if held.count(reservation) > left:
            yield f"reservation {reservation} is held {held.count(reservation)} times, and has {left} left"


# -- nobody forgotten --------------------------------------------------------------------------------------------------


def _forgotten(problem: PlacementRequest, solution: Solution, there: Sequence[Spot]) -> Iterator[str]:
    """A pod without any special wish has no place only if no node has room for it, even now."""
    pods = {pod.uid: pod for pod in problem.pods}
    kept_away = [rule for spot in there for rule in required(spot, TopologyRuleKind.APART)]
    kept_away += [rule for pod in problem.pods for rule in pod.rules if rule.kind is TopologyRuleKind.APART]
    plain = [
        pods[uid]
        for uid in solution.errors
        if _is_plain(pods[uid]) and not any(selects(rule, pods[uid]) for rule in kept_away)
    ]
    for node in problem.nodes if plain else ():
        if not node.open or (problem.options.refuse_uninitialized and not node.initialized):
            continue
        free = _free(problem, node, [pods[uid] for uid in solution.existing.get(node.name, ())])
        for pod in plain:
            fits = min(free.values(), default=0) >= 0 and all(
                free.get(name, 0) >= need for name, need in pod.request.items()
            )
            welcome = all(tolerated(pod.tolerations, taint) for taint in node.taints)
            if fits and welcome and meets(node_labels(node), pod.affinity.alternatives()[0]):
                yield f"pod {pod.uid} has no place, and node {node.name} would do"


def _is_plain(pod: PodInfo) -> bool:
    between_pods = pod.rules or pod.preferred_together or pod.preferred_apart or pod.preferred_spread
    special = pod.resource_claims or pod.ports or pod.volumes.attachments or len(pod.volumes.alternatives[0])
    return not (between_pods or special or pod.affinity.preferences or len(pod.affinity.terms) > 1)
