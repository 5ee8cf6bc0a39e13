"""Can nodes certainly not be spared, and what shows it (08 §7)?

Everything here is necessary for any way to place the pods, whatever the engine would try: so "impossible" is exact, and
the number that shows it is the explanation for people. That nothing is shown does not mean that it is possible.

To be sure, each pod is taken at all steps of its relaxation at once, rules between pods are only looked at on hosts, a
new node is taken to have the fewest daemons, and a type to have its lowest price.
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

# What depends on more nodes than these is found out anew each time.
_MOST_TAKERS: Final = 64


def witness(world: World, pods: Sequence[PodInfo], without: Iterable[str], price: int) -> Witness | None:
    """Why the pods cannot be on the other nodes, if that is certain, and on one new node that costs less than this.

    `pods` are those of the nodes: one that is pending anyway does not keep them. Who asks often gives the same object:
    most of what happens in a cluster does not touch the few nodes that an answer depends on.
    """
    gone = tuple(without)
    others = _others(world, pods, gone)
    seen = world.seen.get(gone)
    if seen is not None and seen.pods is pods and seen.price == price and seen.read == world.labels_read:
        takers = _takers(world, seen.asked, others)
        if takers.bit_count() == len(seen.takers) and all(map(is_, _nodes(world, takers), seen.takers)):
            return seen.found
    need = _Need(world, pods, others)
    found = _found(world, need, price)
    if need.takers.bit_count() <= _MOST_TAKERS and not need.ruled:
        world.seen[gone] = CachedWitness(
            pods, world.labels_read, price, need.asked, tuple(_nodes(world, need.takers)), found
        )
    return found


def _others(world: World, pods: Sequence[PodInfo], without: Iterable[str]) -> Bits:
    """The nodes that are left."""
    rows = world.rows
    found = rows.usable & ~sum(1 << rows.of_name[name] for name in without)
    ready = found & rows.initialized
    # What a deleting node leaves may wait for a node to come up (05 §12.3).
    waits = ready == found or not world.options.refuse_uninitialized
    return found if waits or any(pod.origin is Origin.DELETING for pod in pods) else ready


def _takers(world: World, asked: Iterable[NodeQuery], others: Bits) -> Bits:
    """Those that have room for at least one of the pods."""
    found = 0
    for each in asked:
        found |= world.rows.candidates(each)
    return found & others


def _nodes(world: World, rows: Bits) -> Iterable[NodeInfo]:
    return (world.rows.nodes[row] for row in members(rows))


def _found(world: World, need: "_Need", price: int) -> Witness | None:
    shortages = [*need.of_resources(), *need.of_places()]
    if not shortages:
        return None
    first = shortages[-1]  # places say more to people than sums do
    left_over, shapes = need.left_over(shortages), need.shapes_left(shortages)
    found = (_taker(table, left_over, shapes) for table in world.tables)
    best = min((each for each in found if each is not None), default=None)
    if best is not None and best[0] < price:
        return Witness(shortage=first)
    dearer = PriceBound(limit=price) if best is None else PriceBound(type=best[1], price=best[0], limit=price)
    return Witness(shortage=first, dearer=dearer)


class _Need:
    """What some pods need of the nodes that are left. `ruled`: rules between pods on hosts have a say."""

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
        # Of pods that are moved from hosts that stay, nobody knows here what their going makes possible.
        bound = (world.bound.of_uid.get(pod.uid) for pod in pods)
        hosts = {world.rows.hosts[each[0]] for each in bound if each is not None}
        rows_of = world.rows.column(names.HOSTNAME_LABEL).of
        self._only_from_hidden = not any(rows_of[host] & others for host in hosts)
        self.ruled = not self._only_from_hidden
        self._places = {shape: self._room(shape, count) for shape, count in self._count.items()}

    def of_resources(self) -> list[Shortage]:
        """Where the sum of all is not enough."""
        needed: Counter[str] = Counter()
        for shape, count in self._count.items():
            for name, amount in shape.request:
                needed[name] += amount * count
        found = []
        for name in sorted(needed):
            there = self._rows.total_free(name, self.takers)
            if there < needed[name]:
                found.append(Shortage(resource=name, needed=needed[name], there=there))
        return found

    def of_places(self) -> list[Shortage]:
        """Where pods that are alike have too few; the one that lacks most is the last."""
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
        return sorted(short, key=lambda each: (each.needed - each.there, each.pods))

    def shapes_left(self, shortages: Iterable[Shortage]) -> dict[PodShape, int]:
        """How many of which shape must go to a new node at least."""
        short = {each.pods: each.needed - each.there for each in shortages if each.pods}
        return {shape: short[tuple(pods)] for shape, pods in self._pods.items() if tuple(pods) in short}

    def left_over(self, shortages: Sequence[Shortage]) -> dict[str, int]:
        """How much a new node must have at least, daemons aside."""
        found: Counter[str] = Counter()
        for shape, count in self.shapes_left(shortages).items():
            for name, amount in shape.request:
                found[name] += amount * count
        for each in shortages:
            if each.resource:
                found[each.resource] = max(found[each.resource], each.needed - each.there)
        return found

    def _room(self, shape: PodShape, enough: int) -> int:
        """How many of a shape the nodes could take, at most; it is not counted further than is asked for."""
        feasible = 0
        for level in shape.levels:
            feasible |= self._rows.candidates(level.asked)
        limits = self._limits(shape)
        self.ruled |= bool(limits)
        found = 0
        for row in members(feasible & self.takers):
            found += self._fits(shape, row, limits, enough)
            if found >= enough:
                break
        return found

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
        """Of rules about hosts that are never relaxed: the counts, how many may be there before, and if it is of them.

        The count of pods of a shape that keeps others away includes its own, so each is one more; of inverse rules it
        is that of the carriers, which this shape may not be.
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
    """The cheapest type of a pool, at its lowest price, that could take what is left over."""
    types = table.fitting(left_over)
    for shape in shapes:
        types &= _open_to(table, shape)
    return table.cheapest_of(types)


def _open_to(table: Table, shape: PodShape) -> Bits:
    """Those that a pod could be on at some step of relaxation."""
    found = 0
    for level in shape.levels:
        if level.on_new is None or untolerated(level.wish.tolerations, table.pool.taints) is not None:
            continue
        state = table.narrowed(table.start, level.on_new)
        if state is not None:
            found |= table.suitable(state)
    return found
