"""The instance types that a new node of a pool can still have (08 §5.5).

Types with enough of a resource are looked up in a sorted list. Types that meet the requirements are computed once for
each state of a new node.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from dovetail.api import names
from dovetail.scheduling.daemons import least_overhead
from dovetail.scheduling.fast.bits import Bits, Thresholds, bits_where, members
from dovetail.scheduling.host_ports import HostPorts, conflict
from dovetail.scheduling.new_nodes import Option, cheapest, offers
from dovetail.scheduling.placement import MachineType, NodeFilter, Pool
from dovetail.scheduling.requirements import Requirement, Requirements, of_labels, one_of
from dovetail.scheduling.resources import Resources
from dovetail.scheduling.topology import allowed_to, reach_of


class NewNodeState(msgspec.Struct, eq=False):
    """The requirements of a new node so far, without its host name. Each state is created once."""

    table: "Table"
    requirements: Requirements
    asks_for_values: bool
    allowed: dict[str, Requirement] = {}
    then: "dict[object, NewNodeState | None]" = {}
    suitable: Bits | None = None
    by_price: list[tuple[str, Bits]] | None = None
    bought: dict[tuple[Bits, int], tuple[tuple[str, ...], Bits]] = {}
    passes: dict[NodeFilter, bool] = {}


class Table:
    def __init__(self, pool: Pool, options: Sequence[Option], well_known: frozenset[str]) -> None:
        self.pool = pool
        self.options = options
        self.reach = reach_of(type_ for option in options for type_ in option.types)
        self._well_known = well_known
        self._states: dict[Requirements, NewNodeState] = {}
        self.types = [(option, type_) for option in options for type_ in option.types]
        room = [
            {
                name: type_.allocatable[name] - option.daemons.overhead[name]
                for name in {*type_.allocatable, *option.daemons.overhead}
            }
            for option, type_ in self.types
        ]
        self.all = bits_where(min(amounts.values(), default=0) >= 0 for amounts in room)
        self._room = {
            name: Thresholds([amounts.get(name, 0) for amounts in room])
            for name in {n for amounts in room for n in amounts}
        }
        self._capacity = {name: Thresholds([type_.capacity[name] for _, type_ in self.types]) for name in pool.limits}
        self._of_option = [(option, bits_where(of is option for of, _ in self.types)) for option in options]
        self._lowest: list[tuple[int, str, Bits]] | None = None
        self._without_ports: dict[HostPorts, Bits] = {}
        self.start = self.state(pool.requirements)

    def state(self, requirements: Requirements) -> NewNodeState:
        state = self._states.get(requirements)
        if state is None:
            asks_for_values = any(requirement.min_values is not None for requirement in requirements)
            state = self._states[requirements] = NewNodeState(self, requirements, asks_for_values)
        return state

    def narrowed(self, state: NewNodeState, wanted: Requirements) -> NewNodeState | None:
        """The state with the requirements of a pod; None if they conflict."""
        try:
            return state.then[wanted]
        except KeyError:
            fine = state.requirements.compatible(wanted, self._well_known)
            then = state.then[wanted] = self.state(state.requirements & wanted) if fine else None
            return then

    def pinned(self, state: NewNodeState, key: str, domains: frozenset[str]) -> NewNodeState | None:
        """The state in one of these domains; None if it cannot be there."""
        try:
            return state.then[key, domains]
        except KeyError:
            then = self.narrowed(state, Requirements((one_of(key, domains),))) if domains else None
            state.then[key, domains] = then
            return then

    def allowed(self, state: NewNodeState, key: str) -> Requirement:
        domains = state.allowed.get(key)
        if domains is None:
            domains = state.allowed[key] = allowed_to(state.requirements, self.reach, key)
        return domains

    def passes(self, state: NewNodeState, wanted: NodeFilter, host: str) -> bool:
        """Whether a spread counts such a node."""
        passes = state.passes.get(wanted)
        if passes is None:
            labels = state.requirements & of_labels({names.HOSTNAME_LABEL: host})
            passes = wanted.passes(labels, self.pool.taints)
            if not any(names.HOSTNAME_LABEL in requirements for requirements in wanted.alternatives):
                state.passes[wanted] = passes
        return passes

    def fitting(self, needed: Mapping[str, int]) -> Bits:
        """The types with room for this and their daemons."""
        with_room = self.all
        for name, amount in needed.items():
            room = self._room.get(name)
            if room is None:
                return 0
            with_room &= room.at_least(amount)
        return with_room

    def suitable(self, state: NewNodeState) -> Bits:
        if state.suitable is None:
            wanted = state.requirements
            state.suitable = bits_where(
                type_.requirements.intersects(wanted) and any(offers(type_, wanted)) for _, type_ in self.types
            )
        return state.suitable

    def without_ports(self, ports: HostPorts) -> Bits:
        if not ports:
            return self.all
        types = self._without_ports.get(ports)
        if types is None:
            types = self._without_ports[ports] = bits_where(
                conflict(ports, option.daemons.ports) is None for option, _ in self.types
            )
        return types

    def affordable(self, left: Mapping[str, int]) -> Bits:
        types: Bits = self.all_types
        for name, amount in left.items():
            if name != names.NODES_RESOURCE:
                types &= self._capacity[name].at_most(amount)
        return types

    @property
    def all_types(self) -> Bits:
        return (1 << len(self.types)) - 1

    def chosen(self, types: Bits) -> Iterator[tuple[Option, MachineType]]:
        return (self.types[number] for number in members(types))

    def as_options(self, types: Bits) -> tuple[Option, ...]:
        return tuple(
            Option(option.daemons, tuple(type_ for _, type_ in self.chosen(types & bits)))
            for option, bits in self._of_option
            if types & bits
        )

    def largest(self, types: Bits) -> Mapping[str, int]:
        """The most of each limited resource that one of the types has."""
        chosen = [type_ for _, type_ in self.chosen(types)]
        return {name: max(type_.capacity[name] for type_ in chosen) for name in self._capacity}

    def bought(self, state: NewNodeState, types: Bits, most: int) -> tuple[tuple[str, ...], Bits]:
        """The cheapest types that need no reservation, by name and as a set."""
        bought = state.bought.get((types, most))
        if bought is None:
            cheapest_types = [(name, bit) for name, bit in self._cheapest_first(state) if bit & types][:most]
            bought = state.bought[types, most] = (
                tuple(name for name, _ in cheapest_types),
                sum(bit for _, bit in cheapest_types),
            )
        return bought

    def _cheapest_first(self, state: NewNodeState) -> list[tuple[str, Bits]]:
        if state.by_price is None:
            priced = [
                (price, type_.name, 1 << number)
                for number, (_, type_) in enumerate(self.types)
                if (price := cheapest(type_, state.requirements, frozenset())) is not None
            ]
            state.by_price = [(name, bit) for _, name, bit in sorted(priced)]
        return state.by_price

    def cheapest_of(self, types: Bits) -> tuple[int, str] | None:
        """The lowest price of the types in this pool, with or without a reservation."""
        if self._lowest is None:
            wanted = self.pool.requirements
            prices = [min((offer.price for offer in offers(type_, wanted)), default=None) for _, type_ in self.types]
            self._lowest = sorted(
                (price, self.types[number][1].name, 1 << number)
                for number, price in enumerate(prices)
                if price is not None
            )
        return next(((price, name) for price, name, bit in self._lowest if bit & types), None)

    def overhead(self, types: Bits) -> Resources:
        return least_overhead(option.daemons for option, bits in self._of_option if bits & types)
