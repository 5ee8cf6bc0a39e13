"""Puts holds on Nodes and takes them off again, by the verdicts of a policy (10 §I.3).

A hold is one merge patch of both annotations, which fails if somebody else has written the Node. Holds go before
releases, and no release goes before every Node has been looked at once.

Who may read Nodes may not list all pods. So what is written on a Node does not name the pod; an event on the pod names
the Node (R49).
"""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import EventReason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController, own_name, seconds_until
from dovetail.controllers.base.writing import about_node, about_pod, publish, warn, write_node
from dovetail.controllers.beside.scope import BesideScope
from dovetail.model.beside import BesideMode, Hold, at_second
from dovetail.model.node_records import node_record
from dovetail.model.pod_records import PodRecord
from dovetail.observe.beside_metrics import BesideMetrics
from dovetail.planning.beside.holding import hold_decision
from dovetail.planning.beside.marks import MarkAction, MarkChange, hold_change, is_in_the_way
from dovetail.ports import Clock
from dovetail.rules.protection import may_be_protected
from dovetail.runtime.dry_run import WouldWrite
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.values.duration import shown
from dovetail.values.rate import Rate, TokenBucket
from dovetail.values.timestamp import spoken_time

log = logging.getLogger(__name__)

RATE: Final = Rate(per_second=10, burst=50)
_RELEASES_WAIT_SECONDS: Final = 0.1


class WantedHold(msgspec.Struct, frozen=True):
    """The hold that a policy wants on a node (None: none), when that may change by time alone, the reason, and the pod
    that needs it."""

    hold: Hold | None
    until: datetime | None = None
    message: str = ""
    pod: PodRecord | None = None


HoldPolicy: TypeAlias = Callable[[Iterable[PodRecord], datetime], WantedHold]


def guard_policy(lead: timedelta) -> HoldPolicy:
    """Holds the nodes whose pods are protected now or within the lead."""

    def wanted(pods: Iterable[PodRecord], now: datetime) -> WantedHold:
        decision = hold_decision(pods, now, lead)
        if decision.blocker is None:
            return WantedHold(None, decision.until)
        until = None if decision.until is None else at_second(decision.until)
        rule = str(decision.blocker.rule)
        hold = Hold(by=BesideMode.GUARD, until=until, why=rule)
        return WantedHold(hold, decision.until, f"{rule}: {decision.blocker.message}", decision.pod)

    return wanted


def drive_policy(pods: Iterable[PodRecord], now: datetime) -> WantedHold:  # noqa: ARG001
    """Holds every node for good: Dovetail decides."""
    return WantedHold(Hold(by=BesideMode.DRIVE), None, "Dovetail decides when this node is disrupted")


class HoldPace:
    """The rate of writes, shared by holds and releases."""

    def __init__(self) -> None:
        self._bucket: TokenBucket | None = None

    def wait_seconds(self, clock: Clock) -> float:
        """Seconds until the next write is allowed; 0: now, and it counts."""
        at = clock.monotonic()
        self._bucket = self._bucket or TokenBucket(RATE, at=at)
        return 0.0 if self._bucket.take(at) else self._bucket.wait_seconds(at)


class NodeHolding:
    """What holds and releases share: the wanted hold of a Node, and the patch that makes it so."""

    def __init__(self, cluster: WatchedCluster, scope: BesideScope, policy: HoldPolicy, metrics: BesideMetrics) -> None:
        self.cluster = cluster
        self.scope = scope
        self.metrics = metrics
        self.pace = HoldPace()
        self._policy = policy

    def wanted(self, node: objects.Node, now: datetime) -> WantedHold:
        if not self.scope.has(node):
            return WantedHold(None)
        return self._policy(self.cluster.pods_on[node.metadata.name], now)

    def change(self, node: objects.Node, now: datetime) -> tuple[MarkChange | None, WantedHold]:
        if node.metadata.deletion_timestamp is not None or self.scope.is_unsure(node):
            return None, WantedHold(None)
        wanted = self.wanted(node, now)
        return hold_change(node_record(node), wanted.hold, now), wanted


class HoldWriter(KeyedController[str]):
    """A controller of holds. Keys are names of Nodes."""

    actions: frozenset[MarkAction]
    after_seconds = 0.0  # after a change

    def __init__(self, holding: NodeHolding) -> None:
        super().__init__()
        self.holding = holding
        cluster, after_seconds = holding.cluster, self.after_seconds
        self.own(cluster.nodes, own_name, after_seconds=after_seconds)
        self.follow(cluster.pods, _node_of_protected, after_seconds=after_seconds)
        self.follow(cluster.pools, holding.scope.node_names, after_seconds=after_seconds)

    async def reconcile(self, key: str) -> Outcome:
        while True:
            node, now = self.holding.cluster.nodes.get_consistent(key), self.clock.now()
            if node is None:
                return Done()
            change, wanted = self.holding.change(node, now)
            if change is None or change.action not in self.actions:
                return self._when_due(wanted, now)
            if not (seconds := self.wait_seconds()):
                break
            await self.clock.sleep(seconds)
        await self._write(node, change, wanted)
        return self._when_due(wanted, now)

    def _when_due(self, wanted: WantedHold, now: datetime) -> Outcome:
        seconds = seconds_until(wanted.until, now)
        return Done(None if seconds is None else seconds + self.after_seconds)

    def wait_seconds(self) -> float:
        """Seconds until the next write is allowed; 0: now."""
        return self.holding.pace.wait_seconds(self.clock)

    async def _write(self, node: objects.Node, change: MarkChange, wanted: WantedHold) -> None:
        body = {"metadata": {"annotations": dict(change.annotations)}}
        try:
            await write_node(self.api, self.holding.cluster, node, body)
        except WouldWrite:  # a dry run has told it; the hold is wanted anew when time changes the answer
            return
        self.holding.metrics.writes.labels(change.action).inc()
        extra = {"Node": node.metadata.name, "NodePool": node.metadata.pool, "action": change.action.value}
        pod = "" if wanted.pod is None else f"{wanted.pod.namespace}/{wanted.pod.name}"
        why = {key: text for key, text in (("why", wanted.message), ("Pod", pod)) if text}
        log.info("node %s", _DONE[change.action], extra=extra | why)
        self._tell(node, change.action, wanted)

    def _tell(self, node: objects.Node, action: MarkAction, wanted: WantedHold) -> None:
        about, version = about_node(node), node.metadata.resource_version
        if action is MarkAction.HOLD:
            until = "" if wanted.until is None else f", until {spoken_time(wanted.until)}"
            note = f"Karpenter is kept off this node{until}: {wanted.message}"
            publish(self.recorder, about, EventReason.HELD, note, about.uid, version)
            if wanted.pod is not None:
                pod = about_pod(wanted.pod)
                note = f"Karpenter is kept off node {node.metadata.name} for this pod{until}: {wanted.message}"
                publish(self.recorder, pod, EventReason.HELD, note, pod.uid, version)
        elif action is MarkAction.RELEASE:
            note = f"Karpenter may disrupt this node again{_until(node)}"
            publish(self.recorder, about, EventReason.RELEASED, note, about.uid, version)


_DONE: Final = {
    MarkAction.HOLD: "held",
    MarkAction.REFRESH: "hold rewritten",
    MarkAction.RELEASE: "released",
    MarkAction.DROP_MARK: "mark removed: its do-not-disrupt was changed",
}


def _until(node: objects.Node) -> str:
    hold = node_record(node).hold
    return f"; it was held for {hold.why}" if hold is not None and hold.why else ""


class NodeHolds(HoldWriter):
    """The controller that holds nodes."""

    name = "beside.holds"
    workers = 5
    actions = frozenset({MarkAction.HOLD, MarkAction.REFRESH})

    def __init__(self, holding: NodeHolding) -> None:
        super().__init__(holding)
        self._unseen: set[str] | None = None  # not looked at since the start

    def keys(self) -> Iterable[str]:
        keys = list(super().keys())
        self._unseen = set(keys)
        return keys

    @property
    def has_turn(self) -> bool:
        """Whether no release may go: not all nodes have been looked at, or one is to be held."""
        return self._unseen is None or bool(self._unseen) or self.busy

    async def reconcile(self, key: str) -> Outcome:
        try:
            return await super().reconcile(key)
        finally:  # a node that cannot be written must not keep all others from their release
            if self._unseen:
                self._unseen.discard(key)
            self._warn_in_the_way(key)

    def _warn_in_the_way(self, key: str) -> None:
        node = self.holding.cluster.nodes.value(key)
        if node is None or not is_in_the_way(node_record(node)):
            return
        wanted = self.holding.wanted(node, self.clock.now())
        if wanted.hold is not None:
            about, value = about_node(node), node.metadata.annotations[names.DO_NOT_DISRUPT]
            note = (
                f"cannot keep Karpenter off this node: Karpenter ignores the value {shown(value)} of "
                f'{names.DO_NOT_DISRUPT} on Nodes; write "true", or remove it ({wanted.message})'
            )
            warn(self.recorder, about, EventReason.CANNOT_HOLD, note, about.uid, shown(value))


class HoldReleases(HoldWriter):
    """The controller that releases nodes, once no node waits to be held."""

    name = "beside.releases"
    workers = 1  # it waits in its place, and does not judge all nodes anew meanwhile
    after_seconds = _RELEASES_WAIT_SECONDS  # so that it knows of the holds of the same instant
    actions = frozenset({MarkAction.RELEASE, MarkAction.DROP_MARK})

    def __init__(self, holding: NodeHolding, holds: NodeHolds) -> None:
        super().__init__(holding)
        self._holds = holds

    def wait_seconds(self) -> float:
        return _RELEASES_WAIT_SECONDS if self._holds.has_turn else super().wait_seconds()


def _node_of_protected(pod: PodRecord) -> tuple[str, ...]:
    return (pod.node_name,) if pod.node_name and may_be_protected(pod) else ()
