"""Puts the name of their node class as a label on claims and Nodes that lack it (03 §7.5).

Termination only handles Nodes with the label, and those that another program left behind may be without.
"""

from collections.abc import Iterable
from typing import Final

from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.base.writing import write_metadata, write_node
from dovetail.runtime.work_queue import Done, Outcome

# Launch and registration write the label too: they must not be disturbed.
AFTER_SECONDS: Final = 1.0


class ClaimHydration(KeyedController[str]):
    """Keys are names of claims."""

    name = "nodeclaim.hydration"

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.follow(cluster.claims, lambda claim: [claim.metadata.name], after_seconds=AFTER_SECONDS)

    def keys(self) -> Iterable[str]:
        return [claim.metadata.name for claim in self._cluster.claims.values()]

    async def reconcile(self, key: str) -> Outcome:
        claim = self._cluster.claims.current(key)
        if claim is not None and self._cluster.manages(claim.spec.node_class_ref):
            labels = {self._cluster.node_class_label: claim.spec.node_class_ref.name}
            if labels.items() - claim.metadata.labels.items():
                await write_metadata(self.api, self._cluster, claim, {"labels": labels})
        return Done()


class NodeHydration(KeyedController[str]):
    """Keys are names of Nodes."""

    name = "node.hydration"

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.follow(cluster.nodes, lambda node: [node.metadata.name], after_seconds=AFTER_SECONDS)
        self.follow(cluster.claims, cluster.node_names, after_seconds=AFTER_SECONDS)

    def keys(self) -> Iterable[str]:
        return [node.metadata.name for node in self._cluster.nodes.values()]

    async def reconcile(self, key: str) -> Outcome:
        node = self._cluster.nodes.current(key)
        claim = None if node is None else self._cluster.claim_of(node)
        if node is not None and claim is not None and self._cluster.manages(claim.spec.node_class_ref):
            labels = {self._cluster.node_class_label: claim.spec.node_class_ref.name}
            if labels.items() - node.metadata.labels.items():
                await write_node(self.api, self._cluster, node, {"metadata": {"labels": labels}})
        return Done()
