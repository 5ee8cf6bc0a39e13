"""Sets and removes the marks of S3: the taint of the Node, the condition and the record of the NodeClaim."""

from datetime import datetime

from dovetail.api import names, objects
from dovetail.api.names import ConditionType
from dovetail.api.objects import is_true
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.writing import write_metadata, write_node, write_status
from dovetail.planning.conditions import Conditions
from dovetail.planning.disruption.execution import BY_DOVETAIL, Execution
from dovetail.planning.nodeclaim.lifecycle import to_body
from dovetail.ports import KubeApi
from dovetail.rules.states import has_disrupted_taint


def is_going(cluster: WatchedCluster, claim: objects.NodeClaim) -> bool:
    """Whether the claim or its Node is being deleted (S4 and later)."""
    parts = (claim.metadata, *(node.metadata for node in cluster.nodes_of(claim)))
    return any(meta.deletion_timestamp is not None for meta in parts)


async def taint(
    api: KubeApi, cluster: WatchedCluster, claim: objects.NodeClaim, execution: Execution = BY_DOVETAIL
) -> None:
    """Keeps new pods away. The drain replaces a taint with the same key and another effect (02 §9). Raises InFlight."""
    for name in cluster.node_names(claim):
        node = cluster.nodes.get_consistent(name)
        if node is not None and not has_disrupted_taint(node, execution.disrupted):
            await _write_taints(api, cluster, node, [*node.spec.taints, execution.disrupted])


def is_marked(cluster: WatchedCluster, claim: objects.NodeClaim, execution: Execution = BY_DOVETAIL) -> bool:
    """Whether the claim has a mark of S3 that is ours, besides the record."""
    reasoned = execution.writes_reason and is_true(claim, ConditionType.DISRUPTION_REASON)
    return reasoned or any(has_disrupted_taint(node, execution.disrupted) for node in cluster.nodes_of(claim))


async def lift_marks(
    api: KubeApi,
    cluster: WatchedCluster,
    claim: objects.NodeClaim,
    now: datetime,
    execution: Execution = BY_DOVETAIL,
) -> None:
    """Removes the record last, so that a new leader continues after a crash. Raises InFlight."""
    for name in cluster.node_names(claim):
        node = cluster.nodes.get_consistent(name)
        if node is None or node.metadata.deletion_timestamp is not None:
            continue
        if has_disrupted_taint(node, execution.disrupted):
            others = [entry for entry in node.spec.taints if not entry.matches(execution.disrupted)]
            await _write_taints(api, cluster, node, others)
    if execution.writes_reason and is_true(claim, ConditionType.DISRUPTION_REASON):
        conditions = Conditions(claim, now)
        conditions.clear(ConditionType.DISRUPTION_REASON)
        claim = await write_status(api, cluster, claim, conditions)
    if names.DISRUPTION_COMMAND in claim.metadata.annotations:
        await write_metadata(api, cluster, claim, {"annotations": {names.DISRUPTION_COMMAND: None}})


async def _write_taints(api: KubeApi, cluster: WatchedCluster, node: objects.Node, taints: list[objects.Taint]) -> None:
    await write_node(api, cluster, node, {"spec": {"taints": [to_body(entry) for entry in taints]}})
