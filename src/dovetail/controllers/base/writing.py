"""Writes to NodeClaims and Nodes, and events, that several controllers share.

Every write has a precondition. The store remembers it until the watch shows it.
"""

import logging
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, EventReason, Reason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.node_records import claim_record
from dovetail.model.pod_records import PodRecord
from dovetail.model.snapshot import ClusterNode
from dovetail.observe.metrics import Metrics
from dovetail.planning.conditions import Conditions
from dovetail.ports import NODECLAIMS, NODES, Delete, KubeApi, NotFound, Patch, PatchType, Resource
from dovetail.rules.deadlines import node_deadline
from dovetail.rules.states import MEANING, state_of
from dovetail.runtime.events import DEDUPE_SECONDS, NORMAL, WARNING, Event, EventRecorder, ObjectReference
from dovetail.scheduling.placement import PodInfo
from dovetail.state.store import Store
from dovetail.values.duration import DurationError, parse_simple
from dovetail.values.timestamp import format_time

log = logging.getLogger(__name__)


# -- events ------------------------------------------------------------------------------------------------------------


def about_claim(claim: objects.NodeClaim) -> ObjectReference:
    return ObjectReference(names.API_VERSION, names.NODECLAIM_KIND, claim.metadata.name, claim.metadata.uid)


def about_node(node: objects.Node) -> ObjectReference:
    return ObjectReference("v1", "Node", node.metadata.name, node.metadata.uid)


def about_pod(pod: PodRecord | PodInfo) -> ObjectReference:
    return ObjectReference("v1", "Pod", pod.name, pod.uid, pod.namespace)


def about_pool(pool: objects.NodePool) -> ObjectReference:
    return ObjectReference(names.API_VERSION, names.NODEPOOL_KIND, pool.metadata.name, pool.metadata.uid)


def _event(
    type_: str,
    recorder: EventRecorder,
    about: ObjectReference,
    reason: EventReason,
    note: str,
    *dedupe: str,
    dedupe_seconds: float = DEDUPE_SECONDS,
) -> None:
    """Events with the same `dedupe` values, by default the UID of the object, are dropped for `dedupe_seconds`."""
    values = dedupe or (about.uid,)
    event = Event(regarding=about, reason=reason, note=note, type=type_, dedupe=values, dedupe_seconds=dedupe_seconds)
    recorder.publish(event)


warn = partial(_event, WARNING)
publish = partial(_event, NORMAL)


def publish_disrupted(
    recorder: EventRecorder, cluster: WatchedCluster, claim: objects.NodeClaim, reason: Reason, why: str
) -> None:
    """Publishes on the claim and its Nodes why they are disrupted."""
    note = f"Draining: {reason}; {why}"
    for about in (about_claim(claim), *map(about_node, cluster.nodes_of(claim))):
        publish(recorder, about, EventReason.DISRUPTION_TERMINATING, note, about.uid, reason)


# -- NodeClaims --------------------------------------------------------------------------------------------------------


async def write_status(
    api: KubeApi, cluster: WatchedCluster, claim: objects.NodeClaim, conditions: Conditions, **fields: Any
) -> objects.NodeClaim:
    """Writes the conditions, with the state S1–S6 that they make (R21). Sends nothing if nothing changes."""
    show_state(cluster.member(claim), conditions)
    if not conditions.changed and not fields:
        return claim
    body = {
        "metadata": {"resourceVersion": claim.metadata.resource_version},
        "status": {**fields, "conditions": conditions.body()},
    }
    written = await api.write(Patch(NODECLAIMS, claim.metadata.name, body, subresource="status"))
    cluster.claims.note_write(written)
    return written


def show_state(member: ClusterNode, conditions: Conditions) -> None:
    """Sets the condition that shows people the state."""
    assert member.claim is not None
    by_type = {entry.type: entry for entry in conditions.entries()}
    state = state_of(ClusterNode(claim=msgspec.structs.replace(member.claim, conditions=by_type), node=member.node))
    conditions.set(ConditionType.DISRUPTION_STATE, reason=state, message=MEANING[state])


async def write_metadata(
    api: KubeApi, cluster: WatchedCluster, claim: objects.NodeClaim, metadata: dict[str, Any]
) -> objects.NodeClaim:
    """Merges the metadata into the claim. Fails if somebody else has written the claim."""
    body = {"metadata": {"resourceVersion": claim.metadata.resource_version, **metadata}}
    written = await api.write(Patch(NODECLAIMS, claim.metadata.name, body))
    cluster.claims.note_write(written)
    return written


async def bound_drain(api: KubeApi, cluster: WatchedCluster, claim: objects.NodeClaim, deadline: datetime) -> None:
    """Records a deadline on a claim that is being deleted, unless it has an earlier one.

    A deadline is not recorded before the deletion: if the deletion failed, it would force the next one (03 §10.10).
    """
    recorded = node_deadline(claim_record(claim))
    if recorded is None or deadline < recorded:
        text = format_time(deadline.replace(microsecond=0))
        await write_metadata(api, cluster, claim, {"annotations": {names.TERMINATION_TIMESTAMP: text}})


async def delete_claim(api: KubeApi, cluster: WatchedCluster, claim: objects.NodeClaim) -> None:
    """Deletes the claim, if it still exists."""
    await _delete(api, NODECLAIMS, cluster.claims, claim.metadata)


async def disrupt(
    api: KubeApi,
    cluster: WatchedCluster,
    metrics: Metrics,
    claim: objects.NodeClaim,
    *,
    reason: str,
    why: str,
    consolidation_policy: str = "",
) -> None:
    """Deletes the claim and counts it (04 §3.1, §3.5). `reason`: the label of the metrics."""
    nodes = cluster.nodes_of(claim)
    pods = [pod for node in nodes for pod in cluster.pods_on[node.metadata.name] if pod.reschedulable]
    await delete_claim(api, cluster, claim)
    labels = {
        "reason": reason,
        "nodepool": claim.metadata.pool,
        "capacity_type": claim.metadata.labels.get(names.CAPACITY_TYPE_LABEL, ""),
        "consolidation_policy": consolidation_policy,
        "termination_mode": termination_mode(claim),
    }
    metrics.nodeclaims_disrupted.labels(**labels).inc()
    metrics.pods_disruption_initiated.labels(**labels).inc(len(pods))
    extra = {"NodeClaim": claim.metadata.name, "reason": reason, "pod-count": len(pods)}
    log.info("deleting nodeclaim: %s", why, extra=extra)


def termination_mode(claim: objects.NodeClaim) -> str:
    """The label of metrics, by the claim's terminationGracePeriod (04 §8.9)."""
    text = claim.spec.termination_grace_period
    try:
        return "graceful" if text is None else "eventual" if parse_simple(text) > 0 else "forceful"
    except DurationError:
        return "graceful"


# -- Nodes -------------------------------------------------------------------------------------------------------------


async def write_node(api: KubeApi, cluster: WatchedCluster, node: objects.Node, body: dict[str, Any]) -> objects.Node:
    """Merges the body into the Node. Fails if somebody else has written the Node."""
    metadata = {"resourceVersion": node.metadata.resource_version, **body.get("metadata", {})}
    written = await api.write(Patch(NODES, node.metadata.name, {**body, "metadata": metadata}))
    cluster.nodes.note_write(written)
    return written


async def delete_node(api: KubeApi, cluster: WatchedCluster, node: objects.Node) -> None:
    """Deletes the Node, if it still exists."""
    await _delete(api, NODES, cluster.nodes, node.metadata)


async def remove_termination_finalizer(api: KubeApi, cluster: WatchedCluster, node: objects.Node) -> bool:
    """Returns False if the Node was already gone.

    A strategic merge patch treats finalizers as a set, so the UID is the only precondition that is needed.
    """
    removed = {"$deleteFromPrimitiveList/finalizers": [names.TERMINATION_FINALIZER]}
    body = {"metadata": {"uid": node.metadata.uid, **removed}}
    try:
        written = await api.write(Patch(NODES, node.metadata.name, body, type_=PatchType.STRATEGIC))
    except NotFound:
        return False
    cluster.nodes.note_write(written)
    return True


async def _delete(api: KubeApi, resource: Resource[Any], cache: Store[Any], meta: objects.ObjectMeta) -> None:
    try:
        await api.write(Delete(resource, meta.name, uid=meta.uid))
    except NotFound:
        return
    cache.note_delete(meta.name, meta.uid)


async def write_reason(
    api: KubeApi, cluster: WatchedCluster, claim: objects.NodeClaim, reason: Reason, now: datetime
) -> objects.NodeClaim:
    """Writes the condition DisruptionReason, unless the claim is already being deleted. Raises ApiError.

    The drain reads it for the events of pods, also after a change of leader (R24).
    """
    if claim.metadata.deletion_timestamp is not None:
        return claim
    conditions = Conditions(claim, now)
    conditions.set(ConditionType.DISRUPTION_REASON, reason=reason, message=reason)
    return await write_status(api, cluster, claim, conditions)
