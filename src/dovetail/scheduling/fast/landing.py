"""Predicts where kube-scheduler puts pods that arrive one after the other (R55).

The solver places pods in an order of its own, each on the first node that fits. kube-scheduler takes pods as they
arrive, and prefers nodes with few like pods and much free room. So small pods may fill the room that a plan has for a
large one. A plan holds only if all pods find room in whatever order they arrive.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import log
from typing import TYPE_CHECKING, Final, TypeAlias
from zlib import crc32

import msgspec

from dovetail.api import names
from dovetail.scheduling.daemons import node_reserve
from dovetail.scheduling.fast.bits import Bits, members
from dovetail.scheduling.fast.groups import BoundPodGroup, CountedGroup
from dovetail.scheduling.fast.searching import Search, Walk
from dovetail.scheduling.fast.shapes import PodShape
from dovetail.scheduling.fast.solving import Solve
from dovetail.scheduling.host_ports import HostPorts, conflict
from dovetail.scheduling.placement import NodeInfo, PodInfo, TopologyRuleKind
from dovetail.scheduling.taints import untolerated

if TYPE_CHECKING:
    from dovetail.scheduling.fast.world import World

# Up to so many nodes are scored exactly. In larger clusters kube-scheduler scores a sample, which nobody can predict.
_FEW: Final = 100
# kube-scheduler's weight of the spread of like pods.
_SPREAD_WEIGHT: Final = 2
_SPREAD_SKEW: Final = 2 + 4  # one less than the maxSkew of the default constraints for hosts and zones
# So many orders are tried with everything that a coming node may look like.
_WITH_ALL: Final = 3
# kube-scheduler does not always take the best node: it samples large clusters, and knows scores that are not modelled.
# One pod of so many goes to any node that takes it.
_ONE_OF: Final = 5

# What a node that is not there yet may look like: each order of arrival takes one of these.
ComingNode: TypeAlias = tuple[NodeInfo, ...]


class ArrivalOrder(msgspec.Struct, frozen=True):
    """Pods in the order in which they arrive. `by_chance`: some go to a node other than the best one."""

    pods: Sequence[PodInfo]
    spread: bool = True  # like pods are spread first, as the scheduler's defaults do; else only room counts
    seed: str = ""  # decides between nodes that are equally good
    by_chance: bool = False
    one_by_one: bool = False  # the nodes come one after the other, and each takes what it can


def draw(text: str) -> int:
    """A number that looks random, and is always the same for the same text."""
    return crc32(text.encode())


class FreeShares:
    """The free share of each row, and the rows of each share from 0 to 100."""

    def __init__(self, world: "World") -> None:
        rows = world.rows
        self.whole = [(node.allocatable["cpu"], node.allocatable["memory"]) for node in rows.nodes]
        self.of_row = [
            _share(free["cpu"], cpu, free["memory"], memory)
            for free, (cpu, memory) in zip(rows.free, self.whole, strict=True)
        ]
        flags = [bytearray((len(rows.nodes) + 7) // 8) for _ in range(101)]
        for row, share in enumerate(self.of_row):
            flags[share][row >> 3] |= 1 << (row & 7)
        self.rows: list[Bits] = [int.from_bytes(bitmap, "little") for bitmap in flags]


def spreads_itself(pod: PodInfo) -> bool:
    """Whether the default constraints do not apply, because the pod has its own."""
    return bool(pod.preferred_spread) or any(rule.kind is TopologyRuleKind.SPREAD for rule in pod.rules)


def _share(free_cpu: int, all_cpu: int, free_memory: int, all_memory: int) -> int:
    """kube-scheduler's LeastAllocated: the average free share, from 0 to 100."""
    cpu = max(0, free_cpu) * 100 // all_cpu if all_cpu else 0
    memory = max(0, free_memory) * 100 // all_memory if all_memory else 0
    parts = bool(all_cpu) + bool(all_memory)
    return (cpu + memory) // parts if parts else 0


class _StartingNode:
    """A replacement that is not there yet."""

    def __init__(self, node: NodeInfo, world: "World") -> None:
        self.node = node
        self.labels = node.requirements()
        self.host = node.labels.get(names.HOSTNAME_LABEL, node.name)
        reserve = node_reserve(world.daemons, self.labels, node.taints, node.requested_by_daemons)
        self.free = dict((node.allocatable - node.requested - reserve).items())
        self.ports: HostPorts = node.ports
        self.like = Counter[BoundPodGroup | PodShape]()

    def domain(self, group: CountedGroup) -> str | None:
        """The value of the group's label; None: it has none."""
        return self.host if group.of_hosts else self.node.labels.get(group.rule.key)

    def takes(self, search: Search) -> bool:
        shape, wish = search.shape, search.level.wish
        if any(self.free.get(name, 0) < amount for name, amount in shape.request):
            return False
        if untolerated(wish.tolerations, self.node.taints) or self.labels.incompatibility(wish.full):
            return False
        if conflict(shape.pod.ports, self.ports) or not any(
            map(self.labels.compatible, shape.pod.volumes.alternatives)
        ):
            return False
        if any(counts.get(self.host, 0) > most for counts, most in search.limits):
            return False
        for consulted in search.together:
            if not (
                consulted.group.counts.get(self.host)
                or (consulted.selects_itself and not any(consulted.group.counts.values()))
            ):
                return False
        return all(
            self.domain(consulted.group)
            in consulted.group.allowed(consulted.pod_allows, consulted.selects_itself).names
            for consulted in search.elsewhere
        )

    def put(self, shape: PodShape) -> None:
        for name, amount in shape.request:
            self.free[name] -= amount
        self.ports |= shape.pod.ports

    def share(self, shape: PodShape | None = None) -> int:
        """Its free share, with the pod if one is given."""
        whole, asked = self.node.allocatable, dict(() if shape is None else shape.request)
        free_cpu, free_memory = (self.free.get(name, 0) - asked.get(name, 0) for name in ("cpu", "memory"))
        return _share(free_cpu, whole["cpu"], free_memory, whole["memory"])


class Arrivals(Solve):
    """Places pods as they arrive, on nodes that are there and on replacements."""

    def __init__(
        self, world: "World", pods: Sequence[PodInfo], hidden: Sequence[int], coming: Iterable[NodeInfo]
    ) -> None:
        super().__init__(world, pods, hidden)
        shares = world.free_shares
        self._whole = shares.whole
        self._share_of, self._rows_of_share, self._top = list(shares.of_row), list(shares.rows), 100
        self._shape_of = {pod.uid: shape for pod, shape in self._order}
        self._coming = [_StartingNode(node, world) for node in coming]
        self._like: dict[object, Counter[int]] = {}  # by kind of pod: the number on each row, without those that move
        self._leaving: dict[object, list[int]] = {}  # by kind of pod: the rows of those that move
        for pod, _ in self._order:
            if (bound := world.bound.of_uid.get(pod.uid)) is not None:
                self._leaving.setdefault(bound[2], []).append(bound[0])

    def without_room(self, order: ArrivalOrder) -> list[PodInfo]:
        """The pods without room. A pod is tried again as long as others land: they may make way for it."""
        coming = self._coming
        if order.one_by_one:
            self._coming = []
        waiting = list(order.pods)
        for node in (None, *coming) if order.one_by_one else (None,):
            if node is not None:
                self._coming.append(node)
            before = len(waiting) + 1
            while waiting and len(waiting) < before:
                before = len(waiting)
                waiting = [pod for pod in waiting if not self._lands(pod, order)]
        return waiting

    def _lands(self, pod: PodInfo, order: ArrivalOrder) -> bool:
        chance = draw(f"{order.seed} {pod.uid}")
        shape = self._shape_of[pod.uid]
        level = shape.levels[-1]  # preferences do not keep a pod off a node
        search = self._searches.get(level)
        if search is None:
            search = self._searches[level] = Search(shape, level, self._consulted(shape, level))
        return self._land(search, pod, chance, order)

    def _land(self, search: Search, pod: PodInfo, chance: int, order: ArrivalOrder) -> bool:
        kind, walks = self._kind(pod, search.shape), search.walks(self._rows)
        only = self._where_others_are(search) if search.together else None
        coming = [arriving for arriving in self._coming if arriving.takes(search)]
        open_ = self._shown if only is None else self._shown & only
        row = self._any_row(search, walks, open_, chance) if order.by_chance and chance % _ONE_OF == 0 else None
        if row is None:
            if sum((walk.left & open_).bit_count() for walk in walks) <= _FEW:
                node = self._best_of_few(search, walks, kind, open_, coming, chance=chance, spread=order.spread)
            else:
                node = self._best_of_many(search, walks, open_, coming)
            if node is None:
                return False
            if isinstance(node, _StartingNode):
                self._put_on_coming(search.shape, node)
                node.like[kind] += 1
                return True
            row = node
        self._put(search.shape, pod, row)
        self._like[kind][row] += 1
        return True

    def _best_of_few(
        self,
        search: Search,
        walks: Iterable[Walk],
        kind: BoundPodGroup | PodShape,
        open_: Bits,
        coming: Sequence[_StartingNode],
        *,
        chance: int,
        spread: bool,
    ) -> "int | _StartingNode | None":
        """The node with kube-scheduler's highest score."""
        rows = [row for walk in walks for row in members(walk.left & open_) if self._takes(search, row)]
        nodes: list[int | _StartingNode] = [*rows, *coming]
        if not nodes:
            return None
        scores = [self._share(search, row) for row in rows] + [starting.share(search.shape) for starting in coming]
        if spread and not spreads_itself(search.shape.pod):
            like = self._spread_scores(kind, rows, coming)
            scores = [score + _SPREAD_WEIGHT * other for score, other in zip(scores, like, strict=True)]
        most = max(scores)
        best = [node for node, score in zip(nodes, scores, strict=True) if score == most]
        return best[chance // _ONE_OF % len(best)]  # kube-scheduler takes any of these

    def _share(self, search: Search, row: int) -> int:
        """The free share of the row with the pod."""
        touched = self._touched.get(row)
        cpu, memory = self._whole[row]
        asked = search.shape.pod.request
        if touched is None:
            left = self._rows.free[row]
            return _share(left["cpu"] - asked["cpu"], cpu, left["memory"] - asked["memory"], memory)
        free = touched.free
        return _share(free.get("cpu", 0) - asked["cpu"], cpu, free.get("memory", 0) - asked["memory"], memory)

    def _spread_scores(
        self, kind: BoundPodGroup | PodShape, rows: Sequence[int], coming: Sequence[_StartingNode]
    ) -> list[int]:
        """The scores of the default constraints, by host and zone, from 0 to 100."""
        zone_of, like = self._rows.column(names.ZONE_LABEL).texts, self._like[kind]
        in_zone = Counter[str | None]()
        for row, number in like.items():
            in_zone[zone_of[row]] += number
        for starting in self._coming:
            in_zone[starting.node.labels.get(names.ZONE_LABEL)] += starting.like[kind]
        if not any(in_zone.values()):
            return [0] * (len(rows) + len(coming))
        zones = [*(zone_of[row] for row in rows), *(starting.node.labels.get(names.ZONE_LABEL) for starting in coming)]
        here = [*(like[row] for row in rows), *(starting.like[kind] for starting in coming)]
        hosts_factor, zones_factor = log(len(here) + 2), log(len(set(zones)) + 2)
        raw = [
            number * hosts_factor + in_zone[zone] * zones_factor + _SPREAD_SKEW
            for number, zone in zip(here, zones, strict=True)
        ]
        most, least = max(raw), min(raw)
        return [int(100 * (most + least - value) / most) for value in raw] if most > least else [0] * len(raw)

    def _best_of_many(
        self, search: Search, walks: Sequence[Walk], open_: Bits, coming: Sequence[_StartingNode]
    ) -> "int | _StartingNode | None":
        """The node with the largest free share before the pod arrives."""
        best = max(coming, key=lambda arriving: (arriving.share(), arriving.node.name), default=None)
        least = -1 if best is None else best.share()
        while self._top and not self._rows_of_share[self._top]:
            self._top -= 1  # shares only become smaller
        for share in range(self._top, least, -1):
            there = self._rows_of_share[share] & open_
            if there and (row := self._first_that_takes(search, walks, there)) is not None:
                return row
        return best

    def _first_that_takes(self, search: Search, walks: Sequence[Walk], rows: Bits) -> int | None:
        for walk in walks:
            left = walk.left & rows
            while left:
                lowest = left & -left
                row = lowest.bit_length() - 1
                if self._takes(search, row):
                    return row
                left ^= lowest
                walk.left ^= lowest  # a refusal is final
        return None

    def _kind(self, pod: PodInfo, shape: PodShape) -> BoundPodGroup | PodShape:
        """Pods with the same labels, which are spread."""
        bound = self._world.bound.of_uid.get(pod.uid)
        kind = shape if bound is None else bound[2]
        if kind not in self._like:
            self._like[kind] = Counter() if bound is None else Counter(bound[2].rows)
            self._like[kind].subtract(self._leaving.get(kind, ()))
        return kind

    def _any_row(self, search: Search, walks: Sequence[Walk], open_: Bits, chance: int) -> int | None:
        """A row that takes the pod, by chance."""
        first = chance // _ONE_OF % len(self._whole) if self._whole else 0
        later = open_ >> first << first
        row = self._first_that_takes(search, walks, later)
        return row if row is not None else self._first_that_takes(search, walks, open_)

    def _put(self, shape: PodShape, pod: PodInfo, row: int) -> None:
        super()._put(shape, pod, row)
        free, (cpu, memory), before = self._touched[row].free, self._whole[row], self._share_of[row]
        share = self._share_of[row] = _share(free.get("cpu", 0), cpu, free.get("memory", 0), memory)
        if share != before:
            self._rows_of_share[before] ^= 1 << row
            self._rows_of_share[share] ^= 1 << row

    def _put_on_coming(self, shape: PodShape, node: _StartingNode) -> None:
        node.put(shape)
        groups = (*self._selected[shape], *(self._own_inverse[rule] for rule in shape.apart))
        for group in groups:
            domain = node.domain(group)
            if domain is not None:
                self._ledger.count(group, domain)


def _with_nodes(
    orders: Iterable[ArrivalOrder], coming: Sequence[ComingNode]
) -> Iterator[tuple[ArrivalOrder, list[NodeInfo]]]:
    """Each order with what the coming nodes may look like; the first orders with everything."""
    most = max(map(len, coming), default=1)
    for number, order in enumerate(orders):
        for first in range(most) if number < _WITH_ALL else (draw(str(number)),):
            yield order, [looks[(first + index) % len(looks)] for index, looks in enumerate(coming)]


def without_room(
    world: "World",
    orders: Iterable[ArrivalOrder],
    *,
    without: Sequence[str] = (),
    coming: Sequence[ComingNode] = (),
    homeless: Collection[str] = (),
) -> list[PodInfo]:
    """The pods that find no room in one of these orders; empty: all find room in all of them.

    `without`: nodes that go. `coming`: nodes that will be there. `homeless`: UIDs of pods that need not find room.
    """
    rows = [world.rows.of_name[name] for name in without]
    for order, nodes in _with_nodes(orders, coming):
        arrivals = Arrivals(world, order.pods, rows, nodes)
        try:
            pods = [pod for pod in arrivals.without_room(order) if pod.uid not in homeless]
        finally:
            arrivals.undo()
        if pods:
            return pods
    return []
