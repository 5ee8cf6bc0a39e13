"""New nodes: instance types, limits of pools, reservations and minValues (05 §9, §11)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from dovetail.api import names
from dovetail.scheduling.daemons import Daemon, DaemonGroup, daemon_groups, least_overhead
from dovetail.scheduling.host_ports import NO_PORTS, HostPorts, conflict
from dovetail.scheduling.no_place import Lack
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
    limits: "Limits | None" = None
    beyond: tuple[Option, ...] = ()  # types that the limits rule out

    @property
    def types(self) -> Iterator[MachineType]:
        return (type_ for option in self.options for type_ in option.types)


class Limits:
    """The limits of a pool. `left`: what new nodes may still take. `used`: by all its nodes, as its status shows it."""

    def __init__(self, pool: Pool, left: dict[str, int], used: Mapping[str, int]) -> None:
        self._pool = pool
        self._left = left
        self._used = used

    def allow(self, type_: MachineType) -> bool:
        return all(_takes(type_, name) <= left for name, left in self._left.items())

    def use_up(self, capacity: Resources) -> None:
        use_up(self._left, capacity)

    def told(self, types: Sequence[MachineType]) -> str:
        """Which limits allow none of these types: `limits.cpu: 3 of 4 in use, a new node takes at least 2`."""
        least = {name: min(_takes(type_, name) for type_ in types) for name in sorted(self._left)}
        short = [name for name, amount in least.items() if amount > self._left[name]]
        short = short or [name for name in least if any(_takes(type_, name) > self._left[name] for type_ in types)]
        return "; ".join(f"limits.{name}: {self._amounts(name, least[name])}" for name in short)

    def _amounts(self, name: str, least: int) -> str:
        limit, used, left = self._pool.limits[name], self._used[name], self._left[name]
        parts = [f"{amount_text(name, used)} of {amount_text(name, limit)} in use"]
        if left > max(0, limit - used):
            parts.append(f"{amount_text(name, left)} left when the leaving nodes are gone")
        if left < limit - used:
            parts.append(f"{amount_text(name, limit - used - left)} planned")
        if name != names.NODES_RESOURCE:
            parts.append(f"a new node takes at least {amount_text(name, least)}")
        return ", ".join(parts)


def _takes(type_: MachineType, name: str) -> int:
    return 1 if name == names.NODES_RESOURCE else type_.capacity[name]


class Supply:
    """What a pool can still create."""

    def __init__(self, pool: Pool, options: Sequence[Option], limits: Limits) -> None:
        self.pool = pool
        self.reach = reach_of(type_ for option in options for type_ in option.types)
        self._options = options
        self._limits = limits

    def draft(self, placeholder: str) -> Draft:
        """A new node without pods."""
        host = of_labels({names.HOSTNAME_LABEL: placeholder})
        return Draft(
            pool=self.pool,
            requirements=self.pool.requirements & host,
            reach=self.reach,
            options=self._allowed(within=True),
            limits=self._limits,
            beyond=self._allowed(within=False),
        )

    def _allowed(self, *, within: bool) -> tuple[Option, ...]:
        """The types within the limits, or beyond them."""
        options = (
            Option(option.daemons, tuple(type_ for type_ in option.types if self._limits.allow(type_) is within))
            for option in self._options
        )
        return tuple(option for option in options if option.types)

    def opened(self, draft: Draft) -> None:
        """Take the node off the limits: it may become the largest of its types, resource by resource."""
        largest = NOTHING
        for type_ in draft.types:
            largest |= type_.capacity
        self._limits.use_up(largest)


def limits_left(pool: Pool, nodes: Iterable[NodeInfo]) -> dict[str, int]:
    """The limits of the pool minus the capacity of its open nodes."""
    left = dict(pool.limits)
    for node in nodes if left else ():
        if node.pool == pool.name and node.open:
            use_up(left, node.capacity)
    return left


def in_use(pool: Pool, nodes: Iterable[NodeInfo]) -> dict[str, int]:
    """The capacity of all nodes of the pool, as far as it has limits."""
    used = dict.fromkeys(pool.limits, 0)
    for node in nodes if used else ():
        if node.pool == pool.name:
            use_up(used, node.capacity, -1)
    return used


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
    """The types that remain. Raises Refusal if none does."""
    kept = []
    for option in draft.options:
        types = tuple(type_ for type_ in option.types if not _flaw(option, type_, requirements, requested, ports))
        if types:
            kept.append(Option(option.daemons, types))
    if not kept:
        raise _no_type(draft, requirements, requested, ports)
    return tuple(kept)


def _no_type(draft: Draft, requirements: Requirements, requested: Resources, ports: HostPorts) -> Refusal:
    """The limits, if they rule out types that would do; else what is wrong with the types that the pool allows."""
    checked = [
        (type_, _flaw(option, type_, requirements, requested, ports))
        for option in (*draft.options, *draft.beyond)
        for type_ in option.types
        if type_.requirements.intersects(draft.pool.requirements)
    ]
    beyond = [type_ for type_, flaw in checked if not flaw]
    if beyond and draft.limits is not None:
        return Refusal(f"its limits leave no room ({draft.limits.told(beyond)})", Lack.LIMITS)
    if not checked:
        return Refusal("no instance type meets its requirements", Lack.TEMPLATE)
    flaws = Counter(flaw for _, flaw in checked)
    listed = ", ".join(f"{flaws[flaw]} {flaw}" for flaw in sorted(flaws))
    return Refusal(f"none of its instance types will do ({listed})")


def _flaw(
    option: Option, type_: MachineType, requirements: Requirements, requested: Resources, ports: HostPorts
) -> str:
    if conflict(ports, option.daemons.ports):
        return "with a DaemonSet on its host port"
    if not type_.requirements.intersects(requirements):
        return "with other requirements"
    if not (requested + option.daemons.overhead).fits(type_.allocatable):
        return "too small"
    return "" if any(offers(type_, requirements)) else "not offered as required"


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
