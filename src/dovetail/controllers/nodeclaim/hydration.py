"""Puts the name of the node class as a label on NodeClaims and Nodes that lack it (03 §7.5).

Termination only handles Nodes with the label. NodeClaims that another program created may not have it.
"""

from typing import Final

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import ClaimController, KeyedController, own_name
from dovetail.controllers.base.writing import write_metadata, write_node
from dovetail.runtime.work_queue import Done, Outcome

# Launch and registration write the label too. The delay avoids conflicts with them.
AFTER_SECONDS: Final = 1.0


class ClaimHydration(ClaimController):
    name = "nodeclaim.hydration"

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__(cluster, after_seconds=AFTER_SECONDS)

    async def reconcile_claim(self, claim: objects.NodeClaim) -> Outcome:
        if labels := _missing_label(self.cluster, claim, claim.metadata):
            await write_metadata(self.api, self.cluster, claim, {"labels": labels})
        return Done()


class NodeHydration(KeyedController[str]):
    """The same controller for Nodes. Keys are their names."""

    name = "node.hydration"

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.own(cluster.nodes, own_name, after_seconds=AFTER_SECONDS)
        self.follow(cluster.claims, cluster.node_names, after_seconds=AFTER_SECONDS)

    async def reconcile(self, key: str) -> Outcome:
        node = self._cluster.nodes.get_consistent(key)
        claim = None if node is None else self._cluster.claim_of(node)
        if node is None or claim is None or not self._cluster.manages_claim(claim):
            return Done()
        if labels := _missing_label(self._cluster, claim, node.metadata):
            await write_node(self.api, self._cluster, node, {"metadata": {"labels": labels}})
        return Done()


def _missing_label(cluster: WatchedCluster, claim: objects.NodeClaim, meta: objects.ObjectMeta) -> dict[str, str]:
    label, name = cluster.node_class_label, claim.spec.node_class_ref.name
    return {} if meta.labels.get(label) == name else {label: name}
