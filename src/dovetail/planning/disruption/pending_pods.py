"""Holds consolidation back while pending pods wait for nodes.

A node that they could use must stay. Where new nodes are needed, the other nodes of the pool are not consolidated
either: pods that are moved now could take the room of those that wait. Pods that no node can take do not count, and no
pod counts for longer than a node takes to start, so that a pod that stays pending blocks nothing for good.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dovetail.api.names import Reason
from dovetail.model.refs import Redactable, Sentence
from dovetail.planning.disruption.board import Candidate
from dovetail.rules.nodes import LONGEST_BOOT
from dovetail.scheduling.fast import World
from dovetail.scheduling.placement import Origin, PodInfo
from dovetail.values.timestamp import spoken_time


class WaitingGroup(msgspec.Struct, frozen=True):
    """Pods that wait for the same: one of them, and when the last of them no longer counts."""

    pod: PodInfo
    until: datetime


class PendingPods(msgspec.Struct, frozen=True):
    """Pods that wait: by existing node that they could use, and by pool in which they need a new one."""

    by_node: Mapping[str, WaitingGroup] = {}
    by_pool: Mapping[str, WaitingGroup] = {}

    def until(self) -> datetime | None:
        """When the first node or pool is no longer waited for, if nothing but time changes."""
        return min((group.until for group in (*self.by_node.values(), *self.by_pool.values())), default=None)


def pending_pods(world: World, owed: tuple[PodInfo, ...], now: datetime) -> PendingPods:
    """`owed`: the pods that need a place whatever is decided."""
    waiting = {
        pod.uid: pod.created + LONGEST_BOOT
        for pod in owed
        if pod.origin is Origin.PENDING and pod.created is not None and now < pod.created + LONGEST_BOOT
    }
    if not waiting:
        return PendingPods()
    by_node: dict[str, WaitingGroup] = {}
    by_pool: dict[str, WaitingGroup] = {}
    nodes, pools = world.nodes_for(owed), world.pools_for(owed)
    for pod in sorted((pod for pod in owed if pod.uid in waiting), key=lambda pod: (pod.namespace, pod.name)):
        node, pool = nodes.get(pod.uid), pools.get(pod.uid, "")
        if node is not None and node.initialized:
            groups, key = by_node, node.name
        else:
            groups, key = by_pool, pool if node is None else node.pool
        if key:  # else no node can take it
            first = groups.get(key, WaitingGroup(pod, now))
            groups[key] = WaitingGroup(first.pod, max(first.until, waiting[pod.uid]))
    return PendingPods(by_node, by_pool)


def held_back(candidate: Candidate, reason: Reason, pending: PendingPods) -> Candidate:
    """Makes a candidate of consolidation unmovable if pods wait for it, or for new nodes of its pool.

    An empty node that no pending pod can use may go.
    """
    if pods := pending.by_node.get(candidate.node):
        return _unmovable(candidate, pods, "could run here")
    if reason is Reason.UNDERUTILIZED and (pods := pending.by_pool.get(candidate.pool)):
        return _unmovable(candidate, pods, f"need new nodes of NodePool {candidate.pool}")
    return candidate


def _unmovable(candidate: Candidate, pods: WaitingGroup, what: str) -> Candidate:
    like = Redactable(pods.pod.ref, pods.pod.ref.path)
    why = Sentence("pending pods like ", like, f" {what}; it stays until {spoken_time(pods.until)} at most")
    return msgspec.structs.replace(candidate, unmovable=(*candidate.unmovable, why))
