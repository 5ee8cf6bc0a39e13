"""Says why pods are pending: which node one waits for, or why none can be made; and how many wait for what."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from dovetail.api.names import NODEPOOL_LABEL, ConditionType
from dovetail.model.node_records import ClaimRecord
from dovetail.model.pod_records import Owner, PodRecord
from dovetail.model.refs import MaySee, Ref
from dovetail.planning.timings import Timings
from dovetail.scheduling.placement import NodeInfo
from dovetail.values.timestamp import spoken_time
from dovetail.views.explain.data import View

_REGISTRATION: Final = timedelta(seconds=Timings().registration_timeout_seconds)
_UNSCHEDULABLE: Final = "Unschedulable"
_GATED: Final = "SchedulingGated"
_TYPES_UNKNOWN: Final = "the instance types that can be had are not known; give them with --instance-types"


class PendingReason(StrEnum):
    """Why a pod is pending. Answers name reasons in this order: what somebody may have to mend comes first."""

    UNPLACEABLE = "unplaceable"
    """No node can be made for it, as the scheduling simulation finds."""
    UNSCHEDULABLE = "unschedulable"
    """kube-scheduler finds no node for it. What follows is not known without the simulation."""
    DAEMON_SET = "daemon-set"
    GATED = "gated"
    NEW_NODE = "new-node"
    STARTING_NODE = "starting-node"
    PREEMPTS = "preempts"
    FITS = "fits"
    NOT_TRIED = "not-tried"
    STARTING = "starting"
    """It has a node."""


# Whoever asks about such a pod learns more.
FITTING_NOWHERE: Final = frozenset({PendingReason.UNPLACEABLE, PendingReason.UNSCHEDULABLE, PendingReason.DAEMON_SET})
# After "1 pod" or "2 pods".
_WORDS: Final = {
    PendingReason.UNPLACEABLE: ("fits on no node, and none can be made", "fit on no node, and none can be made"),
    PendingReason.UNSCHEDULABLE: ("has found no node yet", "have found no node yet"),
    PendingReason.DAEMON_SET: (
        "belongs to a DaemonSet and does not fit on its node",
        "belong to DaemonSets and do not fit on their nodes",
    ),
    PendingReason.GATED: ("has scheduling gates", "have scheduling gates"),
    PendingReason.NEW_NODE: ("needs a new node", "need new nodes"),
    PendingReason.STARTING_NODE: ("waits for a node that starts", "wait for nodes that start"),
    PendingReason.PREEMPTS: ("preempts other pods", "preempt other pods"),
    PendingReason.FITS: ("fits on a node", "fit on nodes"),
    PendingReason.NOT_TRIED: ("is not tried by kube-scheduler yet", "are not tried by kube-scheduler yet"),
    PendingReason.STARTING: ("has a node and starts", "have a node and start"),
}


class PendingView(View, frozen=True):
    """Why a pod is on no node. `waits_for`: the Node or NodeClaim. `until`: when that is given up."""

    reason: PendingReason
    cause: str
    waits_for: Ref | None = None
    until: datetime | None = None
    details: str | UnsetType = UNSET
    """What explains the cause further, and is not needed to act."""


class PendingFacts(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one scheduling simulation of all pods without a node has found."""

    nodes: Mapping[str, NodeInfo]
    """Nodes that pods fit on, also those that are starting, by UID of the pod."""
    pools: Mapping[str, str]
    """NodePools in which pods need a new node, by UID of the pod."""
    refused: Mapping[str, tuple[str, str]]
    """Why no node can be had for the other pods, by UID of the pod: the cause, and the details."""
    claims: Mapping[str, ClaimRecord]
    """By the name of their node."""
    pools_left_out: Mapping[str, str]
    """NodePools that cannot be used, and why."""
    types_known: bool


class PendingCount(View, frozen=True):
    """The pending pods with one reason, the oldest first."""

    reason: PendingReason
    since: datetime | None
    """When the oldest was created."""
    pods: tuple[Ref, ...]

    @property
    def words(self) -> str:
        """What one or several of them do."""
        return _WORDS[self.reason][len(self.pods) > 1]

    def __str__(self) -> str:
        return f"{len(self.pods)} {self.words}"


class PendingSummary(View, frozen=True):
    """The pending pods of a cluster, by reason. False if there are none."""

    counts: tuple[PendingCount, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        """`3 pods are pending: 2 have found no node yet, 1 has scheduling gates`."""
        number = sum(len(count.pods) for count in self.counts)
        what, them = ("1 pod is pending", "it") if number == 1 else (f"{number} pods are pending", "they")
        if len(self.counts) == 1:
            return f"{what}: {them} {self.counts[0].words}"
        return f"{what}: {', '.join(map(str, self.counts))}"

    def redacted(self, may_see: MaySee) -> "PendingSummary":
        """Without the pods that the reader may not list."""
        seen = [
            PendingCount(count.reason, count.since, pods)
            for count in self.counts
            if (pods := tuple(ref for ref in count.pods if ref.is_seen_by(may_see)))
        ]
        return PendingSummary(tuple(seen))


def pending_pods(
    pods: Iterable[PodRecord], views: Mapping[tuple[str, str], PendingView] | None = None
) -> PendingSummary:
    """The pods whose phase is Pending, by reason.

    `views`: by namespace and name, of those for which the simulation was asked; it knows more than the objects do.
    """
    reasons: dict[PendingReason, list[PodRecord]] = {reason: [] for reason in PendingReason}
    for pod in pods:
        if pod.phase == "Pending" and pod.deleted_at is None:
            view = views.get((pod.namespace, pod.name)) if views else None
            reasons[_reason(pod) if view is None else view.reason].append(pod)
    return PendingSummary(tuple(_count(reason, found) for reason, found in reasons.items() if found))


def _count(reason: PendingReason, pods: list[PodRecord]) -> PendingCount:
    pods.sort(key=lambda pod: (pod.created_at is None, pod.created_at, pod.object.path))
    return PendingCount(reason, pods[0].created_at, tuple(pod.object for pod in pods))


def _reason(pod: PodRecord) -> PendingReason:
    """As far as the objects tell it."""
    if pod.node_name:
        return PendingReason.STARTING
    if pod.scheduling is not None and pod.scheduling.nominated_node:
        return PendingReason.PREEMPTS
    if pod.unscheduled == _GATED:
        return PendingReason.GATED
    if pod.unscheduled != _UNSCHEDULABLE:
        return PendingReason.NOT_TRIED
    return PendingReason.DAEMON_SET if pod.owner & Owner.DAEMONSET else PendingReason.UNSCHEDULABLE


def pending_view(pod: PodRecord, facts: PendingFacts) -> PendingView:
    """For an active pod without a node. The record must have what scheduling reads."""
    if not pod.provisionable:
        return _not_asking(pod)
    if node := facts.nodes.get(pod.uid):
        return _on_existing(node, facts.claims.get(node.name))
    if pool := facts.pools.get(pod.uid):
        unsure = "" if facts.types_known else f"; {_TYPES_UNKNOWN}"
        cause = f"needs a new node of NodePool {pool}, which the controller creates next{unsure}"
        return PendingView(PendingReason.NEW_NODE, cause)
    refusal, details = facts.refused.get(pod.uid, ("", ""))
    why = [refusal] if refusal else []
    why += _left_out(pod, facts.pools_left_out)
    why += [] if facts.types_known else [_TYPES_UNKNOWN]
    cause = f"fits on no node, and none can be made for it: {'; '.join(why)}"
    return PendingView(PendingReason.UNPLACEABLE, cause, details=details or UNSET)


def _left_out(pod: PodRecord, pools: Mapping[str, str]) -> Iterator[str]:
    """NodePools that cannot be used: each cause once, and only that of the NodePool that the pod asks for."""
    asked = None if pod.scheduling is None else pod.scheduling.spec.node_selector.get(NODEPOOL_LABEL)
    alike: dict[str, list[str]] = {}
    for name, flaw in pools.items():
        if asked is None or name == asked:
            alike.setdefault(flaw, []).append(name)
    for flaw, named in alike.items():
        others = f", as {'is 1 other' if len(named) == 2 else f'are {len(named) - 1} others'}" if named[1:] else ""
        yield f"NodePool {named[0]} is left out: {flaw}{others}"


def _not_asking(pod: PodRecord) -> PendingView:
    """Pods for which the controller makes no node (06 §1)."""
    reason = _reason(pod)
    if reason is PendingReason.PREEMPTS and pod.scheduling is not None:
        node = pod.scheduling.nominated_node
        return PendingView(reason, f"waits for node {node}, where it preempts other pods", Ref("Node", "", node))
    if reason is PendingReason.GATED:
        return PendingView(reason, "its scheduling gates hold it back until they are removed")
    if pod.owner & Owner.DAEMONSET:
        cause = "belongs to a DaemonSet: it runs on one node only, and no other node is made for it"
        return PendingView(PendingReason.DAEMON_SET, cause)
    return PendingView(reason, "kube-scheduler has not yet said that it fits on no node, so no node is made for it")


def _on_existing(node: NodeInfo, claim: ClaimRecord | None) -> PendingView:
    if node.initialized or claim is None:
        cause = f"fits on node {node.name} now, where kube-scheduler can place it"
        return PendingView(PendingReason.FITS, cause, Ref("Node", "", node.name))
    given_up = None
    if claim.created_at is not None and not claim.is_true(ConditionType.REGISTERED):
        given_up = claim.created_at + _REGISTRATION
    until = "" if given_up is None else f"; it is given up {spoken_time(given_up)} if it has not registered"
    cause = f"waits for NodeClaim {claim.name} of NodePool {node.pool}, which is not ready yet{until}"
    return PendingView(PendingReason.STARTING_NODE, cause, claim.object, given_up)
