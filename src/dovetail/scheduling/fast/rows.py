"""Finds the nodes with the labels, taints and room that a pod asks for (08 §5).

Nodes are rows in the order in which they are tried. A label requirement is evaluated once for each value of the label,
tolerations once for each list of taints, and room is looked up in sorted lists.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.scheduling.daemons import Daemon, node_reserve
from dovetail.scheduling.fast.bits import Bits, Column, Thresholds, bits_where, members
from dovetail.scheduling.placement import NodeFilter, NodeInfo
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirements
from dovetail.scheduling.resources import Resources
from dovetail.scheduling.taints import Taints, Tolerations, untolerated

_ALL_NODES: Final = NodeFilter()
_ANYWHERE: Final = (NO_REQUIREMENTS,)
# A cached sum is adjusted if at most this many nodes differ.
_FEW: Final = 16


class NodeQuery(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod asks of a node at one step of relaxation, without rules between pods."""

    labels: Requirements
    places: tuple[Requirements, ...]  # of its volumes: one of these
    tolerations: Tolerations
    request: Resources


class Rows:
    """All nodes. Nodes that are not open count but take no pods. `before` has the same daemons and is reused."""

    def __init__(self, nodes: Iterable[NodeInfo], daemons: Sequence[Daemon], before: "Rows | None" = None) -> None:
        self.nodes = sorted(nodes, key=lambda node: (not node.initialized, node.name))
        self.of_name = {node.name: row for row, node in enumerate(self.nodes)}
        self.hosts = [node.labels.get(names.HOSTNAME_LABEL, node.name) for node in self.nodes]
        self.open = bits_where(node.open for node in self.nodes)
        self.initialized = bits_where(node.initialized for node in self.nodes)
        self._daemons = daemons
        self._daemon_keys = sorted(
            {requirement.key for daemon in daemons for way in daemon.alternatives for requirement in way}
        )
        self._reserves: dict[object, Resources] = {}
        free_before = {} if before is None else dict(zip(map(id, before.nodes), before.free, strict=True))
        self.free: list[Resources] = [free_before.get(id(node)) or self._free(node) for node in self.nodes]
        self._columns: dict[str, Column] = {}
        self._with_taints: dict[Taints, Bits] = {}
        for row, node in enumerate(self.nodes):
            self._with_taints[node.taints] = self._with_taints.get(node.taints, 0) | 1 << row
        self._like: dict[Requirements, Bits] = {}
        self._tolerated: dict[Tolerations, Bits] = {}
        self._passing: dict[NodeFilter, Bits] = {}
        self._room: dict[str, Thresholds] = {}
        self._not_overdrawn = -1
        self._totals: dict[str, tuple[Bits, int]] = {}
        self._candidates: dict[NodeQuery, Bits] = {}

    def replace(self, changed: Iterable[tuple[int, NodeInfo]]) -> None:
        """Replace nodes of which only the pods or the room differ."""
        for row, node in changed:
            self.nodes[row] = node
            self.free[row] = self._free(node)
            self._room.clear()
            self._not_overdrawn = -1
            self._totals.clear()
            self._candidates.clear()

    def _free(self, node: NodeInfo) -> Resources:
        where = (node.taints, node.requested_by_daemons, *(_label(node, key) for key in self._daemon_keys))
        reserve = self._reserves.get(where)
        if reserve is None:
            reserve = node_reserve(self._daemons, node.requirements(), node.taints, node.requested_by_daemons)
            self._reserves[where] = reserve
        return node.allocatable - node.requested - reserve

    def column(self, key: str) -> Column:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = Column([_label(node, key) for node in self.nodes])
        return column

    def like(self, wanted: Requirements) -> Bits:
        rows = self._like.get(wanted)
        if rows is None:
            rows = (1 << len(self.nodes)) - 1
            for requirement in wanted:
                rows &= self.column(requirement.key).where(requirement.has)
            self._like[wanted] = rows
        return rows

    def tolerated(self, tolerations: Tolerations) -> Bits:
        rows = self._tolerated.get(tolerations)
        if rows is None:
            fine = (bits for taints, bits in self._with_taints.items() if untolerated(tolerations, taints) is None)
            rows = self._tolerated[tolerations] = sum(fine)
        return rows

    def passing(self, wanted: NodeFilter) -> Bits | None:
        """The nodes that a spread counts; None: all."""
        if wanted == _ALL_NODES:
            return None
        rows = self._passing.get(wanted)
        if rows is None:
            rows = self._any_of(wanted.alternatives)
            if wanted.tolerations is not None:
                rows &= self.tolerated(wanted.tolerations)
            self._passing[wanted] = rows
        return rows

    def candidates(self, asked: NodeQuery) -> Bits:
        """The nodes that can take one pod now."""
        rows = self._candidates.get(asked)
        if rows is None:
            rows = self.usable & self.like(asked.labels) & self.tolerated(asked.tolerations)
            if asked.places != _ANYWHERE:
                rows &= self._any_of(asked.places)
            rows &= self.with_room(asked.request)
            self._candidates[asked] = rows
        return rows

    def candidates_by(self, asked: NodeQuery, keys: Sequence[str]) -> list[tuple[tuple[str, ...], Bits]]:
        """The candidates by the values of some labels, without nodes that lack one."""
        by_values: list[tuple[tuple[str, ...], Bits]] = [((), self.candidates(asked))]
        for key in keys:
            of = self.column(key).of.items()
            by_values = [
                ((*texts, text), both) for texts, bits in by_values for text, more in of if (both := bits & more)
            ]
        return by_values

    def _any_of(self, alternatives: Iterable[Requirements]) -> Bits:
        rows = 0
        for alternative in alternatives:
            rows |= self.like(alternative)
        return rows

    def with_room(self, request: Resources) -> Bits:
        rows = self.usable
        for name, amount in request.items():
            rows &= self._with_room(name).at_least(amount)
        return rows

    def _with_room(self, name: str) -> Thresholds:
        thresholds = self._room.get(name)
        if thresholds is None:
            thresholds = self._room[name] = Thresholds([free[name] for free in self.free])
        return thresholds

    @property
    def usable(self) -> Bits:
        """The open nodes. A node with an overdrawn resource takes nothing (05 §4.4)."""
        if self._not_overdrawn < 0:
            self._not_overdrawn = bits_where(all(amount >= 0 for _, amount in free.items()) for free in self.free)
        return self.open & self._not_overdrawn

    def total_free(self, name: str, among: Bits) -> int:
        """The sum of a resource over these nodes. Many callers ask for nearly the same nodes."""
        cached = self._totals.get(name)
        if cached is None or (cached[0] ^ among).bit_count() > _FEW:
            cached = self._totals[name] = (among, sum(self.free[row][name] for row in members(among)))
        others, total = cached
        more = sum(self.free[row][name] for row in members(among & ~others))
        return total + more - sum(self.free[row][name] for row in members(others & ~among))


def _label(node: NodeInfo, key: str) -> str | None:
    """A label of the node; the host name defaults to the node's name."""
    return node.labels.get(key, node.name if key == names.HOSTNAME_LABEL else None)
