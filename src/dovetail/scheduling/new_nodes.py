"""New nodes: instance types, limits of pools, reservations and minValues (05 §9, §11)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from dovetail.api import names
from dovetail.scheduling.daemons import Daemon, DaemonGroup, daemon_groups, least_overhead
from dovetail.scheduling.host_ports import NO_PORTS, HostPorts, conflict
from dovetail.scheduling.placement import MachineType, NewClaim, NodeInfo, Offer, PodInfo, Pool, SchedulingOptions
from dovetail.scheduling.refusals import PlacementDeferred, Refusal
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirement, Requirements, of_labels, one_of
from dovetail.scheduling.resources import NOTHING, Resources, amount_text
from dovetail.scheduling.topology import reach_of


def pools_in_order(pools: Iterable[Pool], types: Mapping[str, Sequence[MachineType]]) -> list[Pool]:
    """The pools with instance types: the highest weight first, then the last name."""
    usable = (pool for pool in pools if types.get(pool.name))
    return sorted(usable, key=lambda pool: (pool.weight, pool.name), reverse=True)


class Option(msgspec.Struct, frozen=True):
    """Types of a pool that get the same daemons."""

    daemons: DaemonGroup
    types: tuple[MachineType, ...]


def daemon_options(
    pool: Pool, types: Iterable[MachineType], daemons: Sequence[Daemon], well_known: frozenset[str]
) -> list[Option]:
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
    """A new node as its pods have narrowed it so far."""

    pool: Pool
    requirements: Requirements
    reach: Requirements = NO_REQUIREMENTS
    options: tuple[Option, ...]
    pods: tuple[PodInfo, ...] = ()
    requested: Resources = NOTHING
    ports: HostPorts = NO_PORTS
    held: frozenset[str] = frozenset()
    min_values_relaxed: bool = False
    beyond_limits: int = 0  # types that the limits of the pool rule out
    limits: str = ""  # those limits, and what is in use

    @property
    def types(self) -> Iterator[MachineType]:
        return (type_ for option in self.options for type_ in option.types)


class Supply:
    """What a pool can still create; `left` has what remains of its limits."""

    def __init__(self, pool: Pool, options: Sequence[Option], left: dict[str, int]) -> None:
        self.pool = pool
        self.reach = reach_of(type_ for option in options for type_ in option.types)
        self._options = options
        self._left = left

    def draft(self, placeholder: str) -> Draft:
        """A new node without pods. Raises Refusal if the pool has reached its limits."""
        if self._left.get(names.NODES_RESOURCE, 1) <= 0:
            raise Refusal(f"its limit of nodes is reached ({self._used(names.NODES_RESOURCE)})")
        options = [Option(option.daemons, tuple(filter(self._affordable, option.types))) for option in self._options]
        within = tuple(option for option in options if option.types)
        limits = ", ".join(map(self._used, self._short()))
        if not within:
            raise Refusal(f"its limits leave room for none of its instance types ({limits})")
        host = of_labels({names.HOSTNAME_LABEL: placeholder})
        return Draft(
            pool=self.pool,
            requirements=self.pool.requirements & host,
            reach=self.reach,
            options=within,
            beyond_limits=sum(len(option.types) for option in self._options)
            - sum(len(option.types) for option in within),
            limits=limits,
        )

    def _short(self) -> list[str]:
        """The resources of which the limits leave too little for some type."""
        largest = NOTHING
        for type_ in (type_ for option in self._options for type_ in option.types):
            largest |= type_.capacity
        return [
            name for name in sorted(self._left) if name != names.NODES_RESOURCE and largest[name] > self._left[name]
        ]

    def _used(self, name: str) -> str:
        """`limits.cpu: 3 of 4 in use`."""
        limit = self.pool.limits[name]
        used, allowed = amount_text(name, limit - self._left[name]), amount_text(name, limit)
        return f"limits.{name}: {used} of {allowed} in use"

    def opened(self, draft: Draft) -> None:
        """Take the node off the limits: it may become the largest of its types, resource by resource."""
        largest = NOTHING
        for type_ in draft.types:
            largest |= type_.capacity
        use_up(self._left, largest)

    def _affordable(self, type_: MachineType) -> bool:
        return all(type_.capacity[name] <= left for name, left in self._left.items() if name != names.NODES_RESOURCE)


def limits_left(pool: Pool, nodes: Iterable[NodeInfo]) -> dict[str, int]:
    """The limits of the pool minus the capacity of its open nodes."""
    left = dict(pool.limits)
    for node in nodes if left else ():
        if node.pool == pool.name and node.open:
            use_up(left, node.capacity)
    return left


def use_up(left: dict[str, int], capacity: Resources, nodes: int = 1) -> None:
    """Take nodes off the limits of a pool, or put them back; `nodes` is one of the limits (R34)."""
    for name in left:
        left[name] -= nodes * (1 if name == names.NODES_RESOURCE else capacity[name])


def types_of(types: Mapping[str, Sequence[MachineType]], claim: NewClaim) -> Iterable[MachineType]:
    """In the order of the pool."""
    named = set(claim.types)
    return (type_ for type_ in types.get(claim.pool, ()) if type_.name in named)


class Reservations:
    """Reserved capacity of all pools. If types disagree about a reservation, the least counts."""

    def __init__(self, types: Mapping[str, Sequence[MachineType]], left: dict[str, int] | None = None) -> None:
        self._left = left or {}
        for offer in (
            offer for listed in types.values() for type_ in listed for offer in type_.offers if offer.reservation
        ):
            self._left[offer.reservation] = min(offer.left, self._left.get(offer.reservation, offer.left))

    def __bool__(self) -> bool:
        return bool(self._left)

    def copy(self) -> "Reservations":
        return Reservations({}, dict(self._left))

    def holdable(self, wanted: Iterable[str], held: frozenset[str]) -> frozenset[str]:
        return frozenset(reservation for reservation in wanted if reservation in held or self._left[reservation] > 0)

    def exchange(self, before: frozenset[str], after: frozenset[str]) -> None:
        for reservation in before - after:
            self._left[reservation] += 1
        for reservation in after - before:
            self._left[reservation] -= 1


def offers(type_: MachineType, requirements: Requirements) -> Iterator[Offer]:
    """The available offers of a type that meet the requirements."""
    return (offer for offer in type_.offers if offer.available and requirements.intersects(offer.requirements))


def suitable(draft: Draft, requirements: Requirements, requested: Resources, ports: HostPorts) -> tuple[Option, ...]:
    """The types that remain. Raises Refusal with the number of types by reason if none does."""
    kept, flaws = [], Counter[str]()
    for option in draft.options:
        if conflict(ports, option.daemons.ports):
            flaws["have a daemon on one of its host ports"] += len(option.types)
            continue
        checked = [(type_, _flaw(type_, requirements, requested + option.daemons.overhead)) for type_ in option.types]
        flaws.update(flaw for _, flaw in checked if flaw)
        if types := tuple(type_ for type_, flaw in checked if not flaw):
            kept.append(Option(option.daemons, types))
    if not kept:
        if draft.beyond_limits:
            flaws[f"exceed its limits ({draft.limits})"] = draft.beyond_limits
        raise Refusal("of its instance types, " + ", ".join(f"{flaws[flaw]} {flaw}" for flaw in sorted(flaws)))
    return tuple(kept)


def _flaw(type_: MachineType, requirements: Requirements, needed: Resources) -> str:
    if not type_.requirements.intersects(requirements):
        return "do not meet the requirements"
    if not needed.fits(type_.allocatable):
        return "are too small"
    return "" if any(offers(type_, requirements)) else "cannot be bought like this"


def too_few(requirements: Requirements, types: Sequence[MachineType]) -> dict[str, int]:
    """The labels with fewer values among the types than minValues asks for, with their number."""
    asked = {
        requirement.key: requirement.min_values for requirement in requirements if requirement.min_values is not None
    }
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
    def lowered(requirement: Requirement) -> Requirement:
        return (
            msgspec.structs.replace(requirement, min_values=reached[requirement.key])
            if requirement.key in reached
            else requirement
        )

    return Requirements(map(lowered, requirements))


def decided(draft: Draft, held: frozenset[str], options: SchedulingOptions, reservations: Reservations) -> Draft:
    """The draft with enough types and its reservations. Raises Refusal and Waiting."""
    return _flexible(_reserved(_flexible(draft, options), held, options, reservations), options)


def _flexible(draft: Draft, options: SchedulingOptions) -> Draft:
    """Checks minValues. If it is only preferred, the first pod of the node may lower it."""
    types = tuple(draft.types)
    if options.strict_min_values or len(draft.pods) > 1:
        _check_min_values(draft.requirements, types)
        return draft
    reached = too_few(draft.requirements, types)
    if not reached:
        return draft
    lowered = _with_min_values(draft.requirements, reached)
    return msgspec.structs.replace(draft, requirements=lowered, min_values_relaxed=True)


def _reserved(draft: Draft, held: frozenset[str], options: SchedulingOptions, reservations: Reservations) -> Draft:
    """The draft with the reservations that it can hold; if it can hold none, without the types that need one."""
    node = draft.requirements
    wanted = {offer.reservation for type_ in draft.types for offer in offers(type_, node) if offer.reservation}
    holds = reservations.holdable(wanted, held)
    if holds:
        return msgspec.structs.replace(draft, held=holds)
    if options.strict_reserved and (wanted or held):
        raise PlacementDeferred(
            "the reservations that it could use are taken" if wanted else "a reservation would be lost"
        )
    bought = [
        Option(
            option.daemons,
            tuple(type_ for type_ in option.types if any(not offer.reservation for offer in offers(type_, node))),
        )
        for option in draft.options
    ]
    if not any(option.types for option in bought):
        raise Refusal("the reservations that it could use are taken")
    return msgspec.structs.replace(draft, options=tuple(option for option in bought if option.types))


def finished(draft: Draft, options: SchedulingOptions) -> NewClaim:
    """The NodeClaim with the cheapest types, pinned to its reservations. Raises Refusal."""
    node = draft.requirements.without(names.HOSTNAME_LABEL)
    if draft.held:
        node = node.add(one_of(names.CAPACITY_TYPE_LABEL, (names.CapacityType.RESERVED.value,)))
        if options.reservation_label:
            node = node.add(one_of(options.reservation_label, draft.held))
    priced = [(price, type_) for type_ in draft.types if (price := cheapest(type_, node, draft.held)) is not None]
    priced.sort(key=lambda pair: (pair[0], pair[1].name))
    types = [type_ for _, type_ in priced[: options.max_types]]
    if not types:
        raise Refusal("of its instance types, none can be bought as all its pods need it")
    lacking = too_few(node, types)
    if options.strict_min_values:
        _check_min_values(node, types)
    chosen = {type_.name for type_ in types}
    groups = [option.daemons for option in draft.options if not chosen.isdisjoint(option.daemons.types)]
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
    """The lowest price of the type: in one of the reservations held, or without a reservation if none is."""
    may_use = held or frozenset(("",))
    return min((offer.price for offer in offers(type_, requirements) if offer.reservation in may_use), default=None)
