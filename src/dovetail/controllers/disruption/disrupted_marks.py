"""Sets and removes the marks of S3: the taint of the Node, the condition and the record of the NodeClaim."""

from datetime import datetime

from dovetail.api import names, objects
from dovetail.api.names import ConditionType
from dovetail.api.objects import is_true
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.writing import write_metadata, write_node, write_status
from dovetail.planning.conditions import Conditions
from dovetail.planning.nodeclaim.lifecycle import to_body
from dovetail.ports import KubeApi
from dovetail.rules.states import DISRUPTED, has_disrupted_taint


def is_going(cluster: WatchedCluster, claim: objects.NodeClaim) -> bool:
    """Whether the claim or its Node is being deleted (S4 and later)."""
    parts = (claim.metadata, *(node.metadata for node in cluster.nodes_of(claim)))
    return any(meta.deletion_timestamp is not None for meta in parts)


async def taint(api: KubeApi, cluster: WatchedCluster, claim: objects.NodeClaim) -> None:
    """Keeps new pods away. The drain replaces a taint with the same key and another effect (02 §9). Raises InFlight."""
    for name in cluster.node_names(claim):
        node = cluster.nodes.get_consistent(name)
        if node is not None and not has_disrupted_taint(node):
            await _write_taints(api, cluster, node, [*node.spec.taints, DISRUPTED])


async def lift_marks(api: KubeApi, cluster: WatchedCluster, claim: objects.NodeClaim, now: datetime) -> None:
    """Removes the record last, so that a new leader continues after a crash. Raises InFlight."""
    for name in cluster.node_names(claim):
        node = cluster.nodes.get_consistent(name)
        if node is not None and node.metadata.deletion_timestamp is None and has_disrupted_taint(node):
            kept = [each for each in node.spec.taints if not each.matches(DISRUPTED)]
            await _write_taints(api, cluster, node, kept)
    if is_true(claim, ConditionType.DISRUPTION_REASON):
        conditions = Conditions(claim, now)
        conditions.clear(ConditionType.DISRUPTION_REASON)
        claim = await write_status(api, cluster, claim, conditions)
    if names.DISRUPTION_COMMAND in claim.metadata.annotations:
        await write_metadata(api, cluster, claim, {"annotations": {names.DISRUPTION_COMMAND: None}})


async def _write_taints(api: KubeApi, cluster: WatchedCluster, node: objects.Node, taints: list[objects.Taint]) -> None:
    await write_node(api, cluster, node, {"spec": {"taints": [to_body(each) for each in taints]}})
