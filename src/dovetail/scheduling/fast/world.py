"""Nodes, pools and daemons, prepared once for many questions (08 §5, §6)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import is_
from typing import Final, NamedTuple

from dovetail.scheduling.daemons import Daemon
from dovetail.scheduling.existing_nodes import ExistingNode
from dovetail.scheduling.fast.bits import members
from dovetail.scheduling.fast.groups import BoundPods, TopologyGroups
from dovetail.scheduling.fast.landing import FreeShares
from dovetail.scheduling.fast.rows import Rows
from dovetail.scheduling.fast.shapes import Shapes
from dovetail.scheduling.fast.solving import PlacementStep, Solve
from dovetail.scheduling.fast.tables import Table
from dovetail.scheduling.fast.witness import CachedWitness
from dovetail.scheduling.new_nodes import Reservations, daemon_options, in_use, limits_left, pools_in_order
from dovetail.scheduling.placement import (
    MachineType,
    NewClaim,
    NodeInfo,
    PlacementRequest,
    PodInfo,
    Pool,
    SchedulingOptions,
    Solution,
    labels_read,
)
from dovetail.scheduling.topology import Offered, offered_domains

# The number of deleted pods that may stay in the caches. With everything derived from them they take some 10 KB each.
_REMEMBERED: Final = 1_000


class _AwaitedPods(NamedTuple):
    """Pods that have to be placed in any case, and their places."""

    pods: tuple[PodInfo, ...]
    steps: Sequence[PlacementStep]
    with_room: frozenset[str]  # by UID: on existing nodes
    new_claims: tuple[NewClaim, ...]


class World:
    def __init__(
        self,
        nodes: Iterable[NodeInfo],
        pools: Sequence[Pool],
        types: Mapping[str, Sequence[MachineType]],
        daemons: Sequence[Daemon],
        options: SchedulingOptions,
    ) -> None:
        self.options = options
        self.types = types
        self._pools = pools
        self.reservations = Reservations(types)
        self.daemons = daemons
        self._begin()
        self._offered: dict[str, Offered] = {}
        self.seen: dict[tuple[str, ...], CachedWitness] = {}  # by the nodes to remove
        self.rows = Rows((), daemons)
        self._settle(nodes)

    def _begin(self) -> None:
        well_known = self.options.well_known
        self.tables = [
            Table(pool, daemon_options(pool, self.types[pool.name], self.daemons, well_known), well_known)
            for pool in pools_in_order(self._pools, self.types)
        ]
        self.shapes = Shapes(respect_preferences=self.options.respect_preferences)

    def _settle(self, nodes: Iterable[NodeInfo]) -> None:
        self.rows = Rows(nodes, self.daemons, self.rows)
        self.bound = BoundPods(self.rows)
        self.groups = TopologyGroups(self.rows, self.bound, self._offered_domains)
        self.labels_read = labels_read(self.bound.carriers)
        self.left = {table: limits_left(table.pool, self.rows.nodes) for table in self.tables}
        self.__dict__.pop("in_use", None)
        self._sites: dict[int, ExistingNode] = {}
        self._owed: _AwaitedPods | None = None
        self._free_shares: FreeShares | None = None
        self.seen = {gone: seen for gone, seen in self.seen.items() if all(name in self.rows.of_name for name in gone)}

    def update(self, nodes: Sequence[NodeInfo]) -> None:
        """Replace the nodes. Those that are the same object have not changed.

        If only pods changed, the cost is proportional to them. If a node came, went or looks different, all nodes are
        read again.
        """
        if self._outgrown:
            self._begin()
            return self._settle(nodes)
        rows = self.rows
        changed = []
        for node in nodes:
            row = rows.of_name.get(node.name)
            if row is None or (rows.nodes[row] is not node and not _looks_the_same(rows.nodes[row], node)):
                return self._settle(nodes)
            if rows.nodes[row] is not node:
                changed.append((row, node))
        if len(nodes) != len(rows.nodes):
            return self._settle(nodes)
        if changed:
            self._owed = self._free_shares = None
        for row, node in changed:
            self.groups.exchange(row, rows.nodes[row].pods, node.pods)
            self._sites.pop(row, None)
        rows.replace(changed)
        self.labels_read = labels_read(self.bound.carriers)
        return None

    @property
    def _outgrown(self) -> bool:
        """Whether the caches hold far more pods, kinds or rules than exist. They do not see pods go."""
        there = len(self.bound.of_uid) + self.shapes.most_at_once
        return max(len(self.shapes), len(self.bound.kinds), self.bound.rules_of_nobody) > 2 * there + _REMEMBERED

    def what_if(
        self,
        pods: Sequence[PodInfo],
        without: Iterable[str] = (),
        go_on: Callable[[], bool] = lambda: True,
        *,
        shut: Iterable[str] = (),
        owed: tuple[PodInfo, ...] = (),
        explain: bool = False,
        most_new: int | None = None,
        only_new: bool = False,
    ) -> Solution:
        """The places of the pods without these nodes. Asking changes nothing.

        `shut` nodes stay and take none of the pods; with `only_new` no node does. `owed` pods are placed as well;
        callers that ask often pass the same object, so that their places are computed once. `explain` adds the reason
        to every error, which takes much longer. With `most_new` the search ends as soon as pods of candidates need more
        new nodes.
        """
        begun = self._of_owed(owed).steps if owed and pods and not self.reservations else ()
        row = self.rows.of_name
        closed = range(len(self.rows.nodes)) if only_new else [row[name] for name in shut]
        solve = Solve(self, (*pods, *owed), [row[name] for name in without], closed, most_new)
        try:
            return solve.solution(go_on, explain=explain, begun=begun)
        finally:
            solve.undo()

    def with_room(self, owed: tuple[PodInfo, ...]) -> frozenset[str]:
        """The UIDs of owed pods that fit on existing nodes."""
        return self._of_owed(owed).with_room if owed else frozenset()

    def nodes_for(self, owed: tuple[PodInfo, ...]) -> dict[str, NodeInfo]:
        """By UID: the existing nodes of owed pods if nothing else changes, also nodes that are not initialized."""
        steps = self._of_owed(owed).steps if owed else ()
        return {pod.uid: self.rows.nodes[row] for pod, row, _ in steps if row is not None}

    def pools_for(self, owed: tuple[PodInfo, ...]) -> dict[str, str]:
        """By UID: the pools of the new nodes that owed pods need if nothing else changes."""
        claims = self._of_owed(owed).new_claims if owed else ()
        return {uid: claim.pool for claim in claims for uid in claim.pods}

    def _of_owed(self, owed: tuple[PodInfo, ...]) -> "_AwaitedPods":
        """The places of the owed pods if nothing else changes."""
        if self._owed is None or self._owed.pods is not owed:
            steps, solution = self._steps(owed)
            with_room = frozenset(pod.uid for pod, row, _ in steps if row is not None)
            self._owed = _AwaitedPods(owed, steps, with_room, solution.new_claims)
        return self._owed

    def _steps(self, pods: Sequence[PodInfo], shut: Sequence[int] = ()) -> tuple[Sequence[PlacementStep], Solution]:
        solve = Solve(self, pods, (), shut)
        try:
            solution = solve.solution(lambda: True, explain=False)
        finally:
            solve.undo()
        return solve.steps, solution

    def coming_up(self, owed: tuple[PodInfo, ...]) -> tuple[list[str], tuple[PodInfo, ...]]:
        """The nodes that are not initialized, and the owed pods without a place on them."""
        rows = self.rows.open & ~self.rows.initialized
        coming = [self.rows.nodes[row].name for row in members(rows)]
        if not (rows and owed):
            return coming, owed
        others = list(members(self.rows.open & self.rows.initialized))
        there = {pod.uid for pod, row, _ in self._steps(owed, others)[0] if row is not None}
        return coming, tuple(pod for pod in owed if pod.uid not in there)

    @cached_property
    def in_use(self) -> dict[Table, dict[str, int]]:
        """What `limits_left` leaves out: the capacity of all nodes of a pool, for people."""
        return {table: in_use(table.pool, self.rows.nodes) for table in self.tables}

    @property
    def free_shares(self) -> FreeShares:
        """What `landing` reads of all rows."""
        if self._free_shares is None:
            self._free_shares = FreeShares(self)
        return self._free_shares

    def site(self, row: int) -> ExistingNode:
        site = self._sites.get(row)
        if site is None:
            node = self.rows.nodes[row]
            site = self._sites[row] = ExistingNode(node, node.requirements(), self.rows.free[row])
        return site

    def _offered_domains(self, key: str) -> Offered:
        domains = self._offered.get(key)
        if domains is None:
            domains = self._offered[key] = offered_domains(self._pools, self.types, key)
        return domains


def _looks_the_same(one: NodeInfo, other: NodeInfo) -> bool:
    """Whether the nodes are equal, apart from their pods."""
    return (
        one.labels == other.labels
        and one.taints == other.taints
        and one.open == other.open
        and one.initialized == other.initialized
        and one.pool == other.pool
        and one.capacity == other.capacity
    )


class IncrementalWorld:
    """A world that is kept while nodes and pods change. Use it from one thread at a time."""

    def __init__(self, options: SchedulingOptions) -> None:
        self._options = options
        self._world: World | None = None
        self._made_of: tuple[object, ...] = ()

    def now(
        self,
        nodes: Sequence[NodeInfo],
        pools: Sequence[Pool],
        types: Mapping[str, Sequence[MachineType]],
        daemons: Sequence[Daemon],
    ) -> World:
        """The world with these objects. Those that are the same as before are not read again."""
        made_of = (pools, types, daemons)
        if self._world is None or not all(map(is_, made_of, self._made_of)):
            self._world = World(nodes, pools, types, daemons, self._options)
            self._made_of = made_of
        else:
            self._world.update(nodes)
        return self._world


def solve(problem: PlacementRequest, go_on: Callable[[], bool] = lambda: True) -> Solution:
    """A place for each pod, or the reason why there is none, as `reference.solve` answers."""
    world = World(problem.nodes, problem.pools, problem.types, problem.daemons, problem.options)
    return world.what_if(problem.pods, go_on=go_on, explain=True)
