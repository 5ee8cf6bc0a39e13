"""Where do pods go, one at a time and without any short cut (05 §9-§11)?

This is the measure of every faster way: same order, same ties, same answer. Nothing that was asked is changed.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from dovetail.api import names
from dovetail.scheduling.daemons import Daemon, DaemonGroup, daemon_groups, least_overhead, node_reserve
from dovetail.scheduling.host_ports import NO_PORTS, HostPorts, conflict
from dovetail.scheduling.problem import (
    RESOURCE_CLAIMS,
    MachineType,
    NewClaim,
    Node,
    Offer,
    Options,
    Origin,
    Pod,
    PodError,
    Pool,
    Problem,
    Rule,
    Solution,
    queue,
)
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirement, Requirements, of_labels, one_of
from dovetail.scheduling.resources import NOTHING, Resources
from dovetail.scheduling.taints import SOFT_TAINTS_TOLERATED, Taints, Tolerations, untolerated
from dovetail.scheduling.topology import Topology, reach_of
from dovetail.scheduling.volumes import over_limit


def solve(problem: Problem, go_on: Callable[[], bool] = lambda: True) -> Solution:
    """A place for each pod, or why not. Once `go_on` says no, what has been placed so far is the answer."""
    engine = Engine.of(problem)
    order = queue(problem)
    waiting = deque(pod for pod in order if not pod.resource_claims)
    errors = {pod.uid: pod_error(pod, Refusal(RESOURCE_CLAIMS)) for pod in order if pod.resource_claims}
    length_when_pushed: dict[str, int] = {}
    while waiting and length_when_pushed.get(waiting[0].uid) != len(waiting):  # else a whole round was in vain
        if not go_on():
            reached = Waiting("it was not reached in the time given")
            errors.update((pod.uid, pod_error(pod, reached)) for pod in waiting if pod.uid not in errors)
            break
        pod = waiting.popleft()
        try:
            engine.place(pod)
            errors.pop(pod.uid, None)
        except (Refusal, Waiting) as refusal:
            errors[pod.uid] = pod_error(pod, refusal)
            waiting.append(pod)
            length_when_pushed[pod.uid] = len(waiting)
    return engine.solution(order, errors)


def fitting(problem: Problem, pod: Pod) -> tuple[str, ...]:
    """The nodes, by name, that would take the pod at some step of relaxation, were it the next to be placed."""
    return Engine.of(problem).fitting(pod)


class Refusal(Exception):
    """The pod cannot go there; the message is for people."""


class Waiting(Exception):
    """It could, were it not for others: relaxing does not help, the next run may."""


def pod_error(pod: Pod, refusal: Refusal | Waiting) -> PodError:
    return PodError(pod.ref, pod.origin, str(refusal), waiting=isinstance(refusal, Waiting))


# -- relaxation --------------------------------------------------------------------------------------------------------


class Wish(msgspec.Struct, frozen=True):
    """What a pod asks for at one step of relaxation."""

    pod: Pod
    strict: Requirements
    full: Requirements
    tolerations: Tolerations
    rules: tuple[Rule, ...]


def wishes(pod: Pod, *, respect_preferences: bool = True) -> Iterator[Wish]:
    """Everything first, then each time one thing less, in the order of 05 §10."""
    affinity = pod.affinity
    preferences = (pod.preferred_together, pod.preferred_apart, affinity.preferences, pod.preferred_spread)
    counts = [len(each) for each in preferences]
    given_up = [0, *([0] * 4 if respect_preferences else counts), 0]
    may_give_up = [max(0, len(affinity.terms) - 1), *counts, 1]

    def wish() -> Wish:
        terms, together, apart, nodes, spread, soft_taints = given_up
        return Wish(
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


# -- nodes that are there ----------------------------------------------------------------------------------------------


class Site:
    """A node, and what of it is left."""

    def __init__(self, node: Node, labels: Requirements, free: Resources) -> None:
        self.node = node
        self.labels = labels
        self.free = free
        self.ports = node.ports
        self.attachments = node.attachments
        self.placed: list[Pod] = []

    def take(self, wish: Wish, topology: Topology) -> None:
        """Raises Refusal."""
        self.check(wish, topology)
        pod = wish.pod
        self.free -= pod.request
        self.ports |= pod.ports
        self.attachments |= pod.volumes.attachments
        self.placed.append(pod)
        topology.record(pod, self.labels, self.node.taints, there=True)

    def check(self, wish: Wish, topology: Topology) -> None:
        """Raises Refusal. The labels of a node are as they are: no answer can narrow them any further."""
        pod = wish.pod
        _check_taints(wish, self.node.taints)
        if driver := over_limit(pod.volumes.attachments, self.attachments, self.node.attach_limits):
            raise Refusal(f"volumes of {driver} are at their limit")
        _check_ports(pod.ports, self.ports)
        if short := pod.request.lacking(self.free):
            raise Refusal(f"too little {short}")
        if unmet := self.labels.incompatibility(wish.full):
            raise Refusal(str(unmet))
        self._check_topology(wish, topology)

    def takes(self, wish: Wish, topology: Topology) -> bool:
        """Whether it would."""
        try:
            self.check(wish, topology)
        except Refusal:
            return False
        return True

    def _check_topology(self, wish: Wish, topology: Topology) -> None:
        if not any(map(self.labels.compatible, wish.pod.volumes.alternatives)):
            raise Refusal("its volumes cannot be used here")
        found = topology.narrowed(wish.pod, wish.rules, wish.strict, self.labels)
        if isinstance(found, Rule):
            raise Refusal(f"{found} does not allow it")


def _check_taints(wish: Wish, taints: Taints) -> None:
    if taint := untolerated(wish.tolerations, taints):
        value = f"={taint.value}" if taint.value else ""
        raise Refusal(f"the taint {taint.key}{value}:{taint.effect} is not tolerated")


def _check_ports(ports: HostPorts, taken: HostPorts) -> None:
    if port := conflict(ports, taken):
        raise Refusal(f"host port {port} is taken")


# -- nodes to be made --------------------------------------------------------------------------------------------------


class Option(msgspec.Struct, frozen=True):
    """Types of a pool that get the same daemons."""

    daemons: DaemonGroup
    types: tuple[MachineType, ...]


def daemon_options(
    pool: Pool, types: Iterable[MachineType], daemons: Sequence[Daemon], well_known: frozenset[str]
) -> list[Option]:
    """All types of a pool."""
    by_name = {type_.name: type_ for type_ in types}
    groups = daemon_groups(
        daemons,
        template=pool.requirements,
        taints=pool.taints,
        types={name: type_.requirements for name, type_ in by_name.items()},
        allow_undefined=well_known,
    )
    return [Option(group, tuple(by_name[name] for name in group.types)) for group in groups]


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A node to be made, as far as its pods have decided it."""

    pool: Pool
    requirements: Requirements
    reach: Requirements = NO_REQUIREMENTS
    options: tuple[Option, ...]
    pods: tuple[Pod, ...] = ()
    requested: Resources = NOTHING
    ports: HostPorts = NO_PORTS
    held: frozenset[str] = frozenset()
    min_values_relaxed: bool = False

    @property
    def types(self) -> Iterator[MachineType]:
        return (type_ for option in self.options for type_ in option.types)


class Supply:
    """What a pool can still be made of; `left` of its limits."""

    def __init__(self, pool: Pool, options: Sequence[Option], left: dict[str, int]) -> None:
        self.pool = pool
        self.reach = reach_of(type_ for option in options for type_ in option.types)
        self._options = options
        self._left = left

    @staticmethod
    def of(pool: Pool, problem: Problem) -> "Supply":
        options = daemon_options(pool, problem.types[pool.name], problem.daemons, problem.options.well_known)
        supply = Supply(pool, options, dict(pool.limits))
        for node in problem.nodes:
            if node.pool == pool.name and node.open:
                use_up(supply._left, node.capacity)
        return supply

    def draft(self, placeholder: str) -> Draft:
        """A node without pods. Raises Refusal if the pool is at its limits."""
        if self._left.get(names.NODES_RESOURCE, 1) <= 0:
            raise Refusal("its limit of nodes is reached")
        options = [Option(each.daemons, tuple(filter(self._affordable, each.types))) for each in self._options]
        within = tuple(each for each in options if each.types)
        if not within:
            raise Refusal("its limits leave room for none of its instance types")
        host = of_labels({names.HOSTNAME_LABEL: placeholder})
        return Draft(pool=self.pool, requirements=self.pool.requirements & host, reach=self.reach, options=within)

    def opened(self, draft: Draft) -> None:
        """It may become the largest of its types, resource by resource."""
        largest = NOTHING
        for type_ in draft.types:
            largest |= type_.capacity
        use_up(self._left, largest)

    def _affordable(self, type_: MachineType) -> bool:
        return all(type_.capacity[name] <= left for name, left in self._left.items() if name != names.NODES_RESOURCE)


def use_up(left: dict[str, int], capacity: Resources, nodes: int = 1) -> None:
    """So many more nodes of a pool with limits, or less; `nodes` is one of the limits, too (R34)."""
    for name in left:
        left[name] -= nodes * (1 if name == names.NODES_RESOURCE else capacity[name])


class Reservations:
    """What is bought already, across pools; of what is told of one reservation the least counts."""

    def __init__(self, types: Mapping[str, Sequence[MachineType]], left: dict[str, int] | None = None) -> None:
        self._left = left or {}
        for offer in (
            offer for each in types.values() for type_ in each for offer in type_.offers if offer.reservation
        ):
            self._left[offer.reservation] = min(offer.left, self._left.get(offer.reservation, offer.left))

    def __bool__(self) -> bool:
        return bool(self._left)

    def copy(self) -> "Reservations":
        return Reservations({}, dict(self._left))

    def holdable(self, wanted: Iterable[str], held: frozenset[str]) -> frozenset[str]:
        return frozenset(each for each in wanted if each in held or self._left[each] > 0)

    def exchange(self, before: frozenset[str], after: frozenset[str]) -> None:
        for each in before - after:
            self._left[each] += 1
        for each in after - before:
            self._left[each] -= 1


def offers(type_: MachineType, requirements: Requirements) -> Iterator[Offer]:
    """The ways to buy a type for a node like this, now."""
    return (each for each in type_.offers if each.available and requirements.intersects(each.requirements))


def _suitable(draft: Draft, requirements: Requirements, requested: Resources, ports: HostPorts) -> tuple[Option, ...]:
    """The instance type filter. Raises Refusal if nothing is left, and says of how many types what is wrong."""
    kept, flaws = [], Counter[str]()
    for option in draft.options:
        if conflict(ports, option.daemons.ports):
            flaws["have a daemon on one of its host ports"] += len(option.types)
            continue
        found = [(type_, _flaw(type_, requirements, requested + option.daemons.overhead)) for type_ in option.types]
        flaws.update(flaw for _, flaw in found if flaw)
        if types := tuple(type_ for type_, flaw in found if not flaw):
            kept.append(Option(option.daemons, types))
    if not kept:
        raise Refusal("of its instance types, " + ", ".join(f"{flaws[flaw]} {flaw}" for flaw in sorted(flaws)))
    return tuple(kept)


def _flaw(type_: MachineType, requirements: Requirements, needed: Resources) -> str:
    if not type_.requirements.intersects(requirements):
        return "do not meet the requirements"
    if not needed.fits(type_.allocatable):
        return "are too small"
    return "" if any(offers(type_, requirements)) else "cannot be bought like this"


def too_few(requirements: Requirements, types: Sequence[MachineType]) -> dict[str, int]:
    """Of the labels with too few different values among the types, how many there are."""
    asked = {each.key: each.min_values for each in requirements if each.min_values is not None}
    reached = {key: len({value for type_ in types for value in _values(type_, key)}) for key in asked}
    return {key: reached[key] for key, least in asked.items() if reached[key] < least}


def _values(type_: MachineType, key: str) -> frozenset[str]:
    requirement = type_.requirements.get(key)
    return frozenset() if requirement.complement else requirement.values


def _check_min_values(requirements: Requirements, types: Sequence[MachineType]) -> None:
    for key, reached in too_few(requirements, types).items():
        least = requirements.get(key).min_values
        raise Refusal(f"minValues asks for {least} values of {key}, and its instance types have {reached}")


def _with_min_values(requirements: Requirements, reached: Mapping[str, int]) -> Requirements:
    def lowered(each: Requirement) -> Requirement:
        return msgspec.structs.replace(each, min_values=reached[each.key]) if each.key in reached else each

    return Requirements(map(lowered, requirements))


# -- the engine --------------------------------------------------------------------------------------------------------


class Engine:
    """Places one pod after the other."""

    def __init__(
        self,
        options: Options,
        topology: Topology,
        sites: Sequence[Site],
        supplies: Sequence[Supply],
        reservations: Reservations,
        *,
        made: int = 0,  # nodes that are to be made anyway, and cannot be joined
    ) -> None:
        self._made = made
        self._options = options
        self._topology = topology
        self._sites = sites
        self._supplies = supplies
        self._reservations = reservations
        self._drafts: list[Draft] = []

    @staticmethod
    def of(problem: Problem) -> "Engine":
        sites = []
        for node in nodes_in_order(problem.nodes):
            labels = node.requirements()
            reserve = node_reserve(problem.daemons, labels, node.taints, node.requested_by_daemons)
            sites.append(Site(node, labels, node.allocatable - node.requested - reserve))
        supplies = [Supply.of(pool, problem) for pool in pools_in_order(problem.pools, problem.types)]
        return Engine(problem.options, Topology.of(problem), sites, supplies, Reservations(problem.types))

    def place(self, pod: Pod) -> None:
        """Raises Refusal, with what is wrong when all is given up that can be, or Waiting."""
        refusal = Refusal()
        for wish in wishes(pod, respect_preferences=self._options.respect_preferences):
            try:
                return self.attempt(wish)
            except Refusal as error:
                refusal = error
        raise refusal

    def fitting(self, pod: Pod) -> tuple[str, ...]:
        steps = list(wishes(pod, respect_preferences=self._options.respect_preferences))
        found = [site for site in self._sites if any(site.takes(wish, self._topology) for wish in steps)]
        return tuple(sorted(site.node.name for site in found))

    def attempt(self, wish: Wish) -> None:
        reasons: list[str] = []
        if self._on_a_node(wish, reasons) or self._with_others(wish) or self._alone(wish, reasons):
            return
        raise Refusal("; ".join(reasons) or "there is no node, and no NodePool that could make one")

    def _on_a_node(self, wish: Wish, reasons: list[str]) -> bool:
        refusals = Counter[str]()
        for site in self._sites:
            try:
                site.take(wish, self._topology)
            except Refusal as refusal:
                refusals[str(refusal)] += 1
            else:
                return True
        reasons += [f"{count} node(s): {why}" for why, count in sorted(refusals.items())]
        return False

    def _with_others(self, wish: Wish) -> bool:
        """On a node that is to be made anyway; the one with the fewest pods first, of equals the oldest."""
        for index in sorted(range(len(self._drafts)), key=lambda index: len(self._drafts[index].pods)):
            try:
                draft = self._joined(self._drafts[index], wish)
            except (Refusal, Waiting):
                continue
            self._settle(index, draft)
            return True
        return False

    def _alone(self, wish: Wish, reasons: list[str]) -> bool:
        """On a node of its own. What waits for a reservation of one pool does not fall through to the next."""
        index = len(self._drafts)
        for supply in self._supplies:
            try:
                empty = supply.draft(f"new node {self._made + index + 1}")  # no label can be like that
                draft = self._joined(empty, wish)
            except Refusal as refusal:
                reasons.append(f"NodePool {supply.pool.name}: {refusal}")
                continue
            self._drafts.append(empty)
            self._settle(index, draft)
            supply.opened(draft)
            return True
        return False

    def _settle(self, index: int, draft: Draft) -> None:
        self._reservations.exchange(self._drafts[index].held, draft.held)
        self._drafts[index] = draft
        self._topology.record(draft.pods[-1], draft.requirements, draft.pool.taints, reach=draft.reach)

    # -- one pod on one node to be made

    def _joined(self, draft: Draft, wish: Wish) -> Draft:
        """With the pod. Raises Refusal and Waiting."""
        well_known = self._options.well_known
        _check_taints(wish, draft.pool.taints)
        _check_ports(wish.pod.ports, draft.ports)
        if unmet := draft.requirements.incompatibility(wish.full, well_known):
            raise Refusal(str(unmet))
        node = draft.requirements & wish.full
        refusal = Refusal()
        for place in wish.pod.volumes.alternatives:
            try:
                if unmet := node.incompatibility(place, well_known):
                    raise Refusal(f"its volumes: {unmet}")
                return self._joined_at(draft, wish, node & place)
            except Refusal as error:
                refusal = error
        raise refusal

    def _joined_at(self, draft: Draft, wish: Wish, node: Requirements) -> Draft:
        pod = wish.pod
        found = self._topology.narrowed(pod, wish.rules, wish.strict, node, self._options.well_known, reach=draft.reach)
        if isinstance(found, Rule):
            raise Refusal(f"{found} does not allow it")
        requested = draft.requested + pod.request
        joined = Draft(
            pool=draft.pool,
            reach=draft.reach,
            requirements=found,
            options=_suitable(draft, found, requested, pod.ports),
            pods=(*draft.pods, pod),
            requested=requested,
            ports=draft.ports | pod.ports,
            min_values_relaxed=draft.min_values_relaxed,
        )
        return self.flexible(self.reserved(self.flexible(joined), draft.held))

    def flexible(self, draft: Draft) -> Draft:
        """With enough different types; if that is only wished for, its first pod may lower it."""
        types = tuple(draft.types)
        if self._options.strict_min_values or len(draft.pods) > 1:
            _check_min_values(draft.requirements, types)
            return draft
        reached = too_few(draft.requirements, types)
        if not reached:
            return draft
        lowered = _with_min_values(draft.requirements, reached)
        return msgspec.structs.replace(draft, requirements=lowered, min_values_relaxed=True)

    def reserved(self, draft: Draft, held: frozenset[str]) -> Draft:
        """It holds whatever it might be launched into. What it cannot hold it cannot be made of."""
        node = draft.requirements
        wanted = {each.reservation for type_ in draft.types for each in offers(type_, node) if each.reservation}
        holds = self._reservations.holdable(wanted, held)
        if holds:
            return msgspec.structs.replace(draft, held=holds)
        if self._options.strict_reserved and (wanted or held):
            raise Waiting("the reservations that it could use are taken" if wanted else "a reservation would be lost")
        bought = [
            Option(option.daemons, tuple(each for each in option.types if _unreserved(each, node)))
            for option in draft.options
        ]
        if not any(option.types for option in bought):
            raise Refusal("the reservations that it could use are taken")
        return msgspec.structs.replace(draft, options=tuple(option for option in bought if option.types))

    # -- the outcome

    def solution(self, order: Sequence[Pod], errors: dict[str, PodError]) -> Solution:
        existing = {}
        for site in self._sites:
            refused = [pod for pod in site.placed if self._too_early(site.node, pod)]
            why = Refusal(f"node {site.node.name} is not initialized")
            errors |= {pod.uid: pod_error(pod, why) for pod in refused}
            if placed := tuple(pod.uid for pod in site.placed if pod.uid not in errors):
                existing[site.node.name] = placed
        claims = []
        for draft in self._drafts:
            try:
                claims.append(finished(draft, self._options))
            except Refusal as refusal:
                errors |= {pod.uid: pod_error(pod, refusal) for pod in draft.pods}
        in_order = {pod.uid: errors[pod.uid] for pod in order if pod.uid in errors}
        return Solution(existing=existing, new_claims=tuple(claims), errors=in_order)

    def _too_early(self, node: Node, pod: Pod) -> bool:
        """What a deleting node leaves is owed already, and may wait for the node to come up (05 §12.3)."""
        return self._options.refuse_uninitialized and not node.initialized and pod.origin is not Origin.DELETING


def nodes_in_order(nodes: Iterable[Node]) -> list[Node]:
    """Those that are open, in the order in which they are tried."""
    return sorted((node for node in nodes if node.open), key=lambda node: (not node.initialized, node.name))


def pools_in_order(pools: Iterable[Pool], types: Mapping[str, Sequence[MachineType]]) -> list[Pool]:
    """Those that can be made of something: the heaviest first, of equals the last by name."""
    usable = (pool for pool in pools if types.get(pool.name))
    return sorted(usable, key=lambda pool: (pool.weight, pool.name), reverse=True)


def _unreserved(type_: MachineType, requirements: Requirements) -> bool:
    return any(not each.reservation for each in offers(type_, requirements))


def finished(draft: Draft, options: Options) -> NewClaim:
    """With the cheapest types, and pinned to the reservations that it holds. Raises Refusal."""
    node = draft.requirements.without(names.HOSTNAME_LABEL)
    if draft.held:
        node = node.add(one_of(names.CAPACITY_TYPE_LABEL, (names.CapacityType.RESERVED.value,)))
        if options.reservation_label:
            node = node.add(one_of(options.reservation_label, draft.held))
    priced = [(price, type_) for type_ in draft.types if (price := cheapest(type_, node, draft.held)) is not None]
    priced.sort(key=lambda each: (each[0], each[1].name))
    types = [type_ for _, type_ in priced[: options.max_types]]
    if not types:
        raise Refusal("of its instance types, none can be bought as all its pods need it")
    lacking = too_few(node, types)
    if options.strict_min_values:
        _check_min_values(node, types)
    chosen = {type_.name for type_ in types}
    groups = [each.daemons for each in draft.options if not chosen.isdisjoint(each.daemons.types)]
    return NewClaim(
        pool=draft.pool.name,
        pods=tuple(pod.uid for pod in draft.pods),
        requirements=_with_min_values(node, lacking),
        types=tuple(type_.name for type_ in types),
        requests=draft.requested + least_overhead(groups),
        reservations=tuple(sorted(draft.held)),
        min_values_relaxed=draft.min_values_relaxed or bool(lacking),
    )


def cheapest(type_: MachineType, requirements: Requirements, held: frozenset[str]) -> int | None:
    """Its best price now: in a reservation, if it holds one, and never in one that it does not hold."""
    may_use = held or frozenset(("",))
    return min((each.price for each in offers(type_, requirements) if each.reservation in may_use), default=None)
