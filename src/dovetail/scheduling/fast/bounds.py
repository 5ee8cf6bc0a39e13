"""Proves that nodes cannot be removed, and why (08 §7).

Every condition here is necessary for any placement of the pods, so a proof is exact, and its numbers are the
explanation for people. Without a proof the removal may still be impossible.

Each pod is taken at all steps of its relaxation at once. Of the rules between pods only those about hosts count. A new
node has the fewest daemons, and an instance type its lowest price.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Final

from dovetail.api import names
from dovetail.scheduling.fast.bits import Bits, members
from dovetail.scheduling.fast.rows import NodeQuery
from dovetail.scheduling.fast.shapes import PodShape
from dovetail.scheduling.fast.tables import Table
from dovetail.scheduling.fast.witness import CachedWitness, PriceBound, Shortage, Witness
from dovetail.scheduling.fast.world import World
from dovetail.scheduling.host_ports import conflict
from dovetail.scheduling.placement import NodeInfo, Origin, PodInfo, TopologyRuleKind
from dovetail.scheduling.taints import untolerated

# Proofs that depend on more nodes are not cached.
_MOST_TAKERS: Final = 64


def witness(world: World, pods: Sequence[PodInfo], without: Iterable[str], price: int) -> Witness | None:
    """Why the pods do not fit on the other nodes, nor on one new node cheaper than `price`.

    None: there is no proof. `pods` are the pods of the nodes; pending pods do not keep nodes. Callers that ask often
    pass the same object: most changes in a cluster do not touch the few nodes on which a proof depends.
    """
    gone = tuple(without)
    others = _others(world, pods, gone)
    seen = world.seen.get(gone)
    if seen is not None and seen.pods is pods and seen.price == price and seen.read == world.labels_read:
        takers = _takers(world, seen.asked, others)
        if takers.bit_count() == len(seen.takers) and all(map(is_, _nodes(world, takers), seen.takers)):
            return seen.witness
    need = _Need(world, pods, others)
    shown = _prove(world, need, price)
    if need.takers.bit_count() <= _MOST_TAKERS and not need.ruled:
        world.seen[gone] = CachedWitness(
            pods, world.labels_read, price, need.asked, tuple(_nodes(world, need.takers)), shown
        )
    return shown


def _others(world: World, pods: Sequence[PodInfo], without: Iterable[str]) -> Bits:
    """The nodes that remain."""
    rows = world.rows
    remaining = rows.usable & ~sum(1 << rows.of_name[name] for name in without)
    ready = remaining & rows.initialized
    # Pods of a deleting node may wait for a node to start (05 §12.3).
    waits = ready == remaining or not world.options.refuse_uninitialized
    return remaining if waits or any(pod.origin is Origin.DELETING for pod in pods) else ready


def _takers(world: World, asked: Iterable[NodeQuery], others: Bits) -> Bits:
    """The nodes with room for at least one of the pods."""
    takers = 0
    for wanted in asked:
        takers |= world.rows.candidates(wanted)
    return takers & others


def _nodes(world: World, rows: Bits) -> Iterable[NodeInfo]:
    return (world.rows.nodes[row] for row in members(rows))


def _prove(world: World, need: "_Need", price: int) -> Witness | None:
    shortages = [*need.of_resources(), *need.of_places()]
    if not shortages:
        return None
    first = shortages[-1]  # places are clearer to people than sums
    left_over, shapes = need.left_over(shortages), need.shapes_left(shortages)
    offers = (_taker(table, left_over, shapes) for table in world.tables)
    best = min((offer for offer in offers if offer is not None), default=None)
    if best is not None and best[0] < price:
        return Witness(shortage=first)
    dearer = PriceBound(limit=price) if best is None else PriceBound(type=best[1], price=best[0], limit=price)
    return Witness(shortage=first, dearer=dearer)


class _Need:
    """What the pods need of the remaining nodes. `ruled`: rules between pods on hosts take part."""

    def __init__(self, world: World, pods: Sequence[PodInfo], others: Bits) -> None:
        self._world = world
        self._rows = world.rows
        shapes = world.shapes.of(pods, world.labels_read)
        self._count = Counter(shapes)
        self._pods: dict[PodShape, list[str]] = {}
        self._first: dict[PodShape, PodInfo] = {}
        for pod, shape in zip(pods, shapes, strict=True):
            self._pods.setdefault(shape, []).append(str(pod))
            self._first.setdefault(shape, pod)
        self.asked = tuple(dict.fromkeys(level.asked for shape in self._count for level in shape.levels))
        self.takers = _takers(world, self.asked, others)
        # If pods move away from hosts that stay, the rules about these hosts may become looser.
        bound = (world.bound.of_uid.get(pod.uid) for pod in pods)
        hosts = {world.rows.hosts[place[0]] for place in bound if place is not None}
        rows_of = world.rows.column(names.HOSTNAME_LABEL).of
        self._only_from_hidden = not any(rows_of[host] & others for host in hosts)
        self.ruled = not self._only_from_hidden
        self._places = {shape: self._room(shape, count) for shape, count in self._count.items()}

    def of_resources(self) -> list[Shortage]:
        """The resources of which all nodes together have too little."""
        needed: Counter[str] = Counter()
        for shape, count in self._count.items():
            for name, amount in shape.request:
                needed[name] += amount * count
        shortages = []
        for name in sorted(needed):
            there = self._rows.total_free(name, self.takers)
            if there < needed[name]:
                shortages.append(Shortage(resource=name, needed=needed[name], there=there))
        return shortages

    def of_places(self) -> list[Shortage]:
        """The groups of like pods with too few places; the one that lacks most comes last."""
        short = [
            Shortage(
                needed=count,
                there=places,
                pods=tuple(self._pods[shape]),
                like=self._first[shape].ref,
                each=shape.pod.request,
            )
            for shape, count in self._count.items()
            if (places := self._places[shape]) < count
        ]
        return sorted(short, key=lambda shortage: (shortage.needed - shortage.there, shortage.pods))

    def shapes_left(self, shortages: Iterable[Shortage]) -> dict[PodShape, int]:
        """The least number of pods of each shape that need a new node."""
        short = {shortage.pods: shortage.needed - shortage.there for shortage in shortages if shortage.pods}
        return {shape: short[tuple(pods)] for shape, pods in self._pods.items() if tuple(pods) in short}

    def left_over(self, shortages: Sequence[Shortage]) -> dict[str, int]:
        """The least amounts that a new node must have, without daemons."""
        missing: Counter[str] = Counter()
        for shape, count in self.shapes_left(shortages).items():
            for name, amount in shape.request:
                missing[name] += amount * count
        for shortage in shortages:
            if shortage.resource:
                missing[shortage.resource] = max(missing[shortage.resource], shortage.needed - shortage.there)
        return missing

    def _room(self, shape: PodShape, enough: int) -> int:
        """The most pods of a shape that the nodes can take, counted up to `enough`."""
        feasible = 0
        for level in shape.levels:
            feasible |= self._rows.candidates(level.asked)
        limits = self._limits(shape)
        self.ruled |= bool(limits)
        room = 0
        for row in members(feasible & self.takers):
            room += self._fits(shape, row, limits, enough)
            if room >= enough:
                break
        return room

    def _fits(self, shape: PodShape, row: int, limits: list[tuple[Mapping[str, int], int, bool]], most: int) -> int:
        free = self._rows.free[row]
        for name, amount in shape.request:
            most = min(most, free[name] // amount)
        if shape.pod.ports:
            most = 0 if conflict(shape.pod.ports, self._rows.nodes[row].ports) else min(most, 1)
        host = self._rows.hosts[row]
        for counts, allowed, itself in limits:
            more = allowed + 1 - counts.get(host, 0)
            most = min(most, max(0, more)) if itself else most if more > 0 else 0
        return most

    def _limits(self, shape: PodShape) -> list[tuple[Mapping[str, int], int, bool]]:
        """Rules about hosts that are never relaxed: counts, the most before one more, if the shape counts itself.

        An anti-affinity counts the pods of its own shape, so each of them adds one. An inverse rule counts its
        carriers, and this shape may not be one.
        """
        if not self._only_from_hidden:
            return []
        groups = self._world.groups
        own = [
            (group.counts, group.most_on_host(itself), itself)
            for rule in shape.pod.rules
            if rule.key == names.HOSTNAME_LABEL and rule.kind is not TopologyRuleKind.TOGETHER
            for group, itself in ((groups.of(rule), rule.selects(shape.pod)),)
        ]
        inverse = [
            (group.counts, 0, group.rule in shape.apart) for group in groups.keeping_away(shape) if group.of_hosts
        ]
        return [*own, *inverse]


def _taker(table: Table, left_over: Mapping[str, int], shapes: Iterable[PodShape]) -> tuple[int, str] | None:
    """The cheapest type of a pool, at its lowest price, that can take the rest."""
    types = table.fitting(left_over)
    for shape in shapes:
        types &= _open_to(table, shape)
    return table.cheapest_of(types)


def _open_to(table: Table, shape: PodShape) -> Bits:
    """The types that a pod can use at some step of relaxation."""
    open_types = 0
    for level in shape.levels:
        if level.on_new is None or untolerated(level.wish.tolerations, table.pool.taints) is not None:
            continue
        state = table.narrowed(table.start, level.on_new)
        if state is not None:
            open_types |= table.suitable(state)
    return open_types
