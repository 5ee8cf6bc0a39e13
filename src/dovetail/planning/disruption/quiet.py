"""When something that a command reads has changed last, so that it can start on a quiet cluster at once (R46)."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dovetail.model.pool_records import PoolRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.pool_budgets import ParsedPool, PoolAllowances
from dovetail.rules.budgets import PoolCounts
from dovetail.scheduling.placement import NodeInfo
from dovetail.state.nodes import ManagedNode
from dovetail.state.scheduling import ClusterSnapshot


class _NodeParts(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A node as a command reads it. `place`: as scheduling sees it. `managed`: None for nodes of others."""

    place: NodeInfo | None
    managed: ManagedNode | None
    changed_at: datetime

    def same_as(self, place: NodeInfo | None, managed: ManagedNode | None) -> bool:
        if self.managed is not managed:
            if self.managed is None or managed is None:
                return False
            if _outside_changes(self.managed.record) != _outside_changes(managed.record):
                return False
        return self.place is place or self.place == place


class _PoolParts(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A NodePool as a command reads it: its spec, and the nodes that count for its budgets."""

    record: PoolRecord
    nodes: int
    consumers: tuple[str, ...]
    changed_at: datetime

    def same_as(self, record: PoolRecord, counts: PoolCounts) -> bool:
        return (self.record, self.nodes, self.consumers) == (record, counts.nodes, _names(counts))


class LastChanges:
    """Remembers when each node and NodePool was last seen to have changed. The first look counts as a change."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeParts] = {}
        self._pools: dict[str, _PoolParts] = {}

    def observe(
        self, snapshot: ClusterSnapshot, pools: Mapping[str, ParsedPool], spending: Mapping[str, PoolAllowances]
    ) -> None:
        now = snapshot.at
        places = {place.name: place for place in snapshot.places.nodes}
        managed = {node.name: node for node in snapshot.nodes.values()}
        nodes: dict[str, _NodeParts] = {}
        for name in places.keys() | managed.keys():
            place, node, known = places.get(name), managed.get(name), self._nodes.get(name)
            if known is not None and known.place is place and known.managed is node:
                nodes[name] = known
            else:
                same = known is not None and known.same_as(place, node)
                nodes[name] = _NodeParts(place, node, known.changed_at if known is not None and same else now)
        self._nodes = nodes
        self._pools = {name: self._pool_parts(pool.record, spending[name].counts, now) for name, pool in pools.items()}

    def _pool_parts(self, record: PoolRecord, counts: PoolCounts, now: datetime) -> _PoolParts:
        known = self._pools.get(record.name)
        if known is not None and known.same_as(record, counts):
            return known
        return _PoolParts(record, counts.nodes, _names(counts), now)

    def before(self, command: Command) -> datetime:
        """The last change of anything that the command reads: its nodes, the nodes that get its pods, its pools."""
        nodes = {*command.nodes, *(where.node for where in command.landing.values() if where.node)}
        pools = {candidate.pool for candidate in command.candidates} | {new.pool for new in command.replacements}
        changes = [self._nodes[name].changed_at for name in nodes if name in self._nodes]
        changes += [self._pools[name].changed_at for name in pools if name in self._pools]
        return max(changes, default=command.at)


def _names(counts: PoolCounts) -> tuple[str, ...]:
    """The nodes that use the budgets, in whatever state they are."""
    return tuple(consumer.node for consumer in counts.consumers)


def _outside_changes(node: ClusterNode) -> ClusterNode:
    """Without what the controllers write: the conditions of the claim, and marks of candidates.

    They repeat what has changed elsewhere, or say that time has passed. `place` has the taints that count.
    """
    claim, seen = node.claim, node.node
    return ClusterNode(
        claim=None if claim is None else msgspec.structs.replace(claim, conditions={}, last_pod_event_at=None),
        node=None if seen is None else msgspec.structs.replace(seen, taints=()),
        pods=node.pods,
    )
