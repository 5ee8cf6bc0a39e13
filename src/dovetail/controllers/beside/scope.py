"""The Nodes that guard and drive may write to (10 §I.2)."""

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.beside.driven_cluster import DrivenCluster
from dovetail.model.beside import is_opted_out
from dovetail.state.store import Index
from dovetail.values.selector import Selector


class BesideScope:
    """Nodes of NodePools that exist, are not opted out and match the selector. Create it before changes are applied."""

    def __init__(self, cluster: WatchedCluster, selector: Selector = Selector()) -> None:  # noqa: B008  frozen
        self._pools = cluster.pools
        self._selector = selector
        self._nodes_in = Index(cluster.nodes, lambda node: node.metadata.pool)

    def has_pool(self, name: str) -> bool:
        pool = self._pools.value(name) if name else None
        return pool is not None and self.takes(pool)

    def takes(self, pool: objects.NodePool) -> bool:
        return not is_opted_out(pool) and self._selector.matches(pool.metadata.labels)

    def has(self, node: objects.Node) -> bool:
        return self.has_pool(node.metadata.pool)

    def is_unsure(self, node: objects.Node) -> bool:
        """Whether its NodePool may be one that cannot be read. Holds then stay as they are."""
        pool = node.metadata.pool
        return bool(pool) and self._pools.value(pool) is None and self._pools.undecodable > 0

    def nodes_in(self, pool: str) -> list[objects.Node]:
        """The Nodes of the NodePool, whether or not the pool is in the scope."""
        return self._nodes_in[pool]

    def node_names(self, pool: objects.NodePool) -> list[str]:
        """The names of the Nodes of the NodePool."""
        return [node.metadata.name for node in self.nodes_in(pool.metadata.name)]


class DriveScope(BesideScope):
    """The Nodes that drive decides about."""

    def __init__(self, cluster: DrivenCluster) -> None:
        super().__init__(cluster)
        self._cluster = cluster

    def takes(self, pool: objects.NodePool) -> bool:
        return self._cluster.drives(pool)
