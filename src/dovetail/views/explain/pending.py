"""Says why a pod is on no node yet: which node it waits for, or why none can be made."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.api.names import ConditionType
from dovetail.model.records import ClaimRecord, Owner, PodRecord
from dovetail.model.refs import Ref
from dovetail.planning.timings import Timings
from dovetail.scheduling.placement import NodeInfo
from dovetail.values.timestamp import format_time
from dovetail.views.explain.data import View

_REGISTRATION: Final = timedelta(seconds=Timings().registration_timeout_seconds)
_GATED: Final = "SchedulingGated"
_TYPES_UNKNOWN: Final = "the instance types that can be had are not known; give them with --instance-types"


class PendingView(View, frozen=True):
    """Why a pod is on no node. `waits_for`: the Node or NodeClaim. `until`: when that is given up."""

    cause: str
    waits_for: Ref | None = None
    until: datetime | None = None


class PendingFacts(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one scheduling simulation of all pods without a node has found."""

    nodes: Mapping[str, NodeInfo]
    """Nodes that pods fit on, also those that are starting, by UID of the pod."""
    pools: Mapping[str, str]
    """NodePools in which pods need a new node, by UID of the pod."""
    refused: Mapping[str, str]
    """Why no node can be had for the other pods, by UID of the pod."""
    claims: Mapping[str, ClaimRecord]
    """By the name of their node."""
    pools_left_out: Mapping[str, str]
    """NodePools that cannot be used, and why."""
    types_known: bool


def pending_view(pod: PodRecord, facts: PendingFacts) -> PendingView:
    """For an active pod without a node. The record must have what scheduling reads."""
    if not pod.provisionable:
        return _not_asking(pod)
    if node := facts.nodes.get(pod.uid):
        return _on_existing(node, facts.claims.get(node.name))
    if pool := facts.pools.get(pod.uid):
        unsure = "" if facts.types_known else f"; {_TYPES_UNKNOWN}"
        return PendingView(f"needs a new node of NodePool {pool}, which the controller creates next{unsure}")
    why = [facts.refused[pod.uid]] if pod.uid in facts.refused else []
    why += [f"NodePool {name} is left out: {flaw}" for name, flaw in facts.pools_left_out.items()]
    why += [] if facts.types_known else [_TYPES_UNKNOWN]
    return PendingView(f"fits on no node, and none can be made for it: {'; '.join(why)}")


def _not_asking(pod: PodRecord) -> PendingView:
    """Pods for which the controller makes no node (06 §1)."""
    waiting = pod.scheduling
    if waiting is not None and waiting.nominated_node:
        node = waiting.nominated_node
        return PendingView(f"waits for node {node}, where it preempts other pods", Ref("Node", "", node))
    if waiting is not None and waiting.unscheduled == _GATED:
        return PendingView("its scheduling gates hold it back until they are removed")
    if pod.owner & Owner.DAEMONSET:
        return PendingView("belongs to a DaemonSet: it runs on one node only, and no other node is made for it")
    return PendingView("kube-scheduler has not yet said that it fits on no node, so no node is made for it")


def _on_existing(node: NodeInfo, claim: ClaimRecord | None) -> PendingView:
    if node.initialized or claim is None:
        return PendingView(
            f"fits on node {node.name} now, where kube-scheduler can place it", Ref("Node", "", node.name)
        )
    given_up = None
    if claim.created_at is not None and not claim.is_true(ConditionType.REGISTERED):
        given_up = claim.created_at + _REGISTRATION
    until = "" if given_up is None else f"; it is given up {format_time(given_up)} if it has not registered"
    cause = f"waits for NodeClaim {claim.name} of NodePool {node.pool}, which is not ready yet{until}"
    return PendingView(cause, claim.object, given_up)
