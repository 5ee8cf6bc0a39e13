"""What there is besides the pods that are to be placed: prepared once, asked many times (08 §5, §6)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Final, NamedTuple

from dovetail.scheduling.daemons import Daemon
from dovetail.scheduling.existing_nodes import ExistingNode
from dovetail.scheduling.fast.bits import members
from dovetail.scheduling.fast.groups import BoundPods, TopologyGroups
from dovetail.scheduling.fast.rows import Rows
from dovetail.scheduling.fast.shapes import Shapes
from dovetail.scheduling.fast.solving import PlacementStep, Solve
from dovetail.scheduling.fast.tables import Table
from dovetail.scheduling.fast.witness import CachedWitness
from dovetail.scheduling.new_nodes import Reservations, daemon_options, pools_in_order, use_up
from dovetail.scheduling.placement import (
    MachineType,
    NodeInfo,
    PlacementRequest,
    PodInfo,
    Pool,
    SchedulingOptions,
    Solution,
    labels_read,
)
from dovetail.scheduling.topology import Offered, offered_domains

# So many pods that are gone may be remembered besides, before the world is made anew. With what is worked out for them
# they can take some 10 KB each.
_REMEMBERED: Final = 1_000


class _AwaitedPods(NamedTuple):
    """Pods that are to be placed anyway, and what becomes of them."""

    pods: tuple[PodInfo, ...]
    steps: Sequence[PlacementStep]
    with_room: frozenset[str]  # by UID: on nodes that are there


class World:
    """Nodes, pools and daemons."""

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
        self._daemons = daemons
        self._begin()
        self._offered: dict[str, Offered] = {}
        self.seen: dict[tuple[str, ...], CachedWitness] = {}  # by the nodes that would go
        self.rows = Rows((), daemons)
        self._settle(nodes)

    def _begin(self) -> None:
        """Know of no pod."""
        well_known = self.options.well_known
        self.tables = [
            Table(pool, daemon_options(pool, self.types[pool.name], self._daemons, well_known), well_known)
            for pool in pools_in_order(self._pools, self.types)
        ]
        self.shapes = Shapes(respect_preferences=self.options.respect_preferences)

    def _settle(self, nodes: Iterable[NodeInfo]) -> None:
        self.rows = Rows(nodes, self._daemons, self.rows)
        self.bound = BoundPods(self.rows)
        self.groups = TopologyGroups(self.rows, self.bound, self._offered_domains)
        self.labels_read = labels_read(self.bound.carriers)
        self.left = {table: self._left(table.pool) for table in self.tables}
        self._sites: dict[int, ExistingNode] = {}
        self._owed: _AwaitedPods | None = None
        self.seen = {gone: seen for gone, seen in self.seen.items() if all(name in self.rows.of_name for name in gone)}

    def update(self, nodes: Sequence[NodeInfo]) -> None:
        """The nodes are like this now. Those that are the same object have not changed.

        Where only pods came and went, the work is in proportion to them; a node that came, went or looks different
        means that the nodes are read anew.
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
            self._owed = None
        for row, node in changed:
            self.groups.exchange(row, rows.nodes[row].pods, node.pods)
            self._sites.pop(row, None)
        rows.replace(changed)
        self.labels_read = labels_read(self.bound.carriers)
        return None

    @property
    def _outgrown(self) -> bool:
        """Whether far more pods, or kinds or rules of pods, are remembered than there are: who is gone is not told."""
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
    ) -> Solution:
        """Where do these pods go without these nodes? Nothing is changed by asking.

        `shut`: nodes that stay, and take none of them.
        `owed`: pods that are to be placed besides, whatever is asked; who asks often gives the same object, so that
        what becomes of them is found out once.
        With `explain` every error has its reason, which is much more work than to find the error. With `most_new` it
        ends as soon as pods of candidates need more new nodes than that: those without a place have that for a reason.
        """
        begun = self._begun(owed) if owed and pods and not self.reservations else ()
        row = self.rows.of_name
        solve = Solve(self, (*pods, *owed), [row[name] for name in without], [row[name] for name in shut], most_new)
        try:
            return solve.solution(go_on, explain=explain, begun=begun)
        finally:
            solve.undo()

    def _begun(self, owed: tuple[PodInfo, ...]) -> Sequence[PlacementStep]:
        return self._of_owed(owed).steps

    def with_room(self, owed: tuple[PodInfo, ...]) -> frozenset[str]:
        """By UID: of pods that are owed a place, those for which the nodes that are there have room."""
        return self._of_owed(owed).with_room if owed else frozenset()

    def _of_owed(self, owed: tuple[PodInfo, ...]) -> "_AwaitedPods":
        """What becomes of pods that are always asked about, if nothing else is."""
        if self._owed is None or self._owed.pods is not owed:
            steps = self._steps(owed)
            self._owed = _AwaitedPods(owed, steps, frozenset(pod.uid for pod, row, _ in steps if row is not None))
        return self._owed

    def _steps(self, pods: Sequence[PodInfo], shut: Sequence[int] = ()) -> Sequence[PlacementStep]:
        solve = Solve(self, pods, (), shut)
        try:
            solve.solution(lambda: True, explain=False)
        finally:
            solve.undo()
        return solve.steps

    def coming_up(self, owed: tuple[PodInfo, ...]) -> tuple[list[str], tuple[PodInfo, ...]]:
        """The nodes that are not initialized yet, and of pods that are owed a place those that have none there."""
        rows = self.rows.open & ~self.rows.initialized
        coming = [self.rows.nodes[row].name for row in members(rows)]
        if not (rows and owed):
            return coming, owed
        others = list(members(self.rows.open & self.rows.initialized))
        there = {pod.uid for pod, row, _ in self._steps(owed, others) if row is not None}
        return coming, tuple(pod for pod in owed if pod.uid not in there)

    def fingerprint(self) -> str:
        """Of all that asking could change, and must not."""
        return repr((self.groups.counts(), self.left, self.rows.free))

    def site(self, row: int) -> ExistingNode:
        """A node as it is."""
        found = self._sites.get(row)
        if found is None:
            node = self.rows.nodes[row]
            found = self._sites[row] = ExistingNode(node, node.requirements(), self.rows.free[row])
        return found

    def _offered_domains(self, key: str) -> Offered:
        found = self._offered.get(key)
        if found is None:
            found = self._offered[key] = offered_domains(self._pools, self.types, key)
        return found

    def _left(self, pool: Pool) -> dict[str, int]:
        """Of its limits."""
        left = dict(pool.limits)
        for node in self.rows.nodes if left else ():
            if node.pool == pool.name and node.open:
                use_up(left, node.capacity)
        return left


def _looks_the_same(one: NodeInfo, other: NodeInfo) -> bool:
    """Its pods aside."""
    return (
        one.labels == other.labels
        and one.taints == other.taints
        and one.open == other.open
        and one.initialized == other.initialized
        and one.pool == other.pool
        and one.capacity == other.capacity
    )


class IncrementalWorld:
    """A world that is asked again and again, while nodes and pods come and go. By one thread at a time."""

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
        """With these; what is the same object as before is not read again."""
        made_of = (pools, types, daemons)
        if self._world is None or not all(map(is_, made_of, self._made_of)):
            self._world = World(nodes, pools, types, daemons, self._options)
            self._made_of = made_of
        else:
            self._world.update(nodes)
        return self._world


def solve(problem: PlacementRequest, go_on: Callable[[], bool] = lambda: True) -> Solution:
    """A place for each pod, or why not; as `reference.solve`, and much faster."""
    world = World(problem.nodes, problem.pools, problem.types, problem.daemons, problem.options)
    return world.what_if(problem.pods, go_on=go_on, explain=True)
