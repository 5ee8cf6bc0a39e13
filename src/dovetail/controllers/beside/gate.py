"""Keeps commands of drive back until Karpenter is off the nodes, and while there is no Karpenter (10 §I.4).

Karpenter may have begun a command before a node was held. Such a command shows within half a minute.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from dovetail.api import names, objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.beside.karpenter_watch import KarpenterWatch
from dovetail.controllers.beside.scope import BesideScope
from dovetail.model.node_records import node_record
from dovetail.planning.disruption.assessment import ClosedPool
from dovetail.state.store import Change, Deleted, values_of

SETTLES: Final = timedelta(seconds=30)


class NodeGate:
    """Which NodePools are closed. Create it before changes are applied."""

    def __init__(
        self, cluster: WatchedCluster, scope: BesideScope, karpenter: KarpenterWatch, *, gated: bool = True
    ) -> None:
        """Without `gated` it only looks whether there is a Karpenter."""
        self._gated = gated
        self._cluster = cluster
        self._scope = scope
        self._karpenter = karpenter
        self._held_at: dict[str, datetime | None] = {}  # by Node; None: Karpenter could not have chosen it before
        cluster.nodes.subscribe(self._node_changed)

    def _node_changed(self, change: Change[objects.Node]) -> None:
        versions = values_of(change)
        if not versions:
            return
        node, name = versions[-1], versions[-1].metadata.name
        if isinstance(change, Deleted) or not _is_held(node):
            self._held_at.pop(name, None)
        elif name not in self._held_at:
            initialized = node.metadata.labels.get(names.INITIALIZED_LABEL) == "true"
            self._held_at[name] = self._cluster.clock.now() if initialized else None

    def halted(self) -> str | None:
        """Why nobody would launch or drain nodes, as far as it is known."""
        if problem := self._karpenter.problem:
            return f"nobody would launch or drain nodes: {problem}"
        return None if self._karpenter.is_certain else "it is not known yet whether Karpenter runs"

    def closed(self, now: datetime) -> Mapping[str, ClosedPool]:
        """The pools in which no command begins."""
        pools = [pool.metadata.name for pool in self._cluster.our_pools()]
        if (halted := self.halted()) is not None:
            return dict.fromkeys(pools, ClosedPool(halted))
        if not self._gated:
            return {}
        return {pool: closed for pool in pools if (closed := self._closed(pool, now)) is not None}

    def _closed(self, pool: str, now: datetime) -> ClosedPool | None:
        nodes = [node for node in self._scope.nodes_in(pool) if node.metadata.deletion_timestamp is None]
        free = sorted(node.metadata.name for node in nodes if not _is_held(node))
        if free:
            more = f" and {len(free) - 1} more" if len(free) > 1 else ""
            return ClosedPool(f"Karpenter is not yet kept off node {free[0]}{more}")
        held = (self._held_at.get(node.metadata.name) for node in nodes)
        until = max((at + SETTLES for at in held if at is not None), default=now)
        return (
            ClosedPool("Karpenter may have begun a command before its nodes were held", until) if until > now else None
        )


def _is_held(node: objects.Node) -> bool:
    """Whether Karpenter leaves the node alone: by our hold, or by the wish of a user."""
    return node_record(node).do_not_disrupt == "true"
