"""Looks on while guard works beside a Karpenter, and keeps what must not be.

    async with looking_on(api, clock) as witness:
        ...
    assert not witness.broken

A user's annotation is never changed; no node is taken while it is held, or while a pod has been blocked on it for some
seconds; a protected pod is evicted only from a node that was taken before it could be held.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from dovetail.api import names, objects
from dovetail.api.names import ConditionType
from dovetail.api.objects import is_true
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.pod_records import PodRecord
from dovetail.ports import Clock, KubeApi
from dovetail.rules.protection import protection
from dovetail.rules.states import has_disrupted_taint
from dovetail.state.store import Added, Change, Deleted, Updated


class HoldWitness:
    """`slack_seconds`: between Karpenter's decision and its first write. `noticed_seconds`: within which guard has held
    a node, whatever was lost on the way. `guard_since`: since when guard runs, None while it does not."""

    def __init__(self, cluster: WatchedCluster, *, slack_seconds: float = 1.0, noticed_seconds: float = 5.0) -> None:
        self.broken: list[str] = []
        self.users: dict[str, str] = {}  # by Node: the do-not-disrupt that a user wrote
        self._written: dict[str, int] = {}  # by Node: the version with it
        self.taken: list[str] = []  # Nodes
        self.late: set[str] = set()  # Nodes that were taken before they could be held, and lost a protected pod
        self.late_pods: list[tuple[str, datetime]] = []  # these pods, and when
        self.held: set[str] = set()  # Nodes that were held at any time
        self.guard_since: datetime | None = None
        self._cluster = cluster
        self._slack = timedelta(seconds=slack_seconds)
        self._noticed = timedelta(seconds=noticed_seconds)
        self._held_since: dict[str, datetime] = {}
        self._taken_at: dict[str, datetime] = {}
        self._bound_at: dict[str, datetime] = {}  # by UID of a pod
        cluster.nodes.subscribe(self._node_changed)
        cluster.pods.subscribe(self._pod_changed)

    def user_wrote(self, node: objects.Node, value: str) -> None:
        """Call it with the Node as a user has written it."""
        self.users[node.metadata.name] = value
        self._written[node.metadata.name] = int(node.metadata.resource_version)

    @property
    def _now(self) -> datetime:
        return self._cluster.clock.now()

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _node_changed(self, change: Change[objects.Node]) -> None:
        match change:
            case Added(new=new) | Updated(new=new):
                self._look_at_node(new.value)
            case Deleted(old=old):
                name = old.value.metadata.name
                self.users.pop(name, None)
                self._held_since.pop(name, None)
                self._taken_at.pop(name, None)

    def _look_at_node(self, node: objects.Node) -> None:
        name, annotations = node.metadata.name, node.metadata.annotations
        value = annotations.get(names.DO_NOT_DISRUPT)
        if (
            name in self.users
            and int(node.metadata.resource_version) >= self._written[name]
            and value != self.users[name]
        ):
            self.broken.append(f"{self._now} {name}: a user wrote {self.users[name]!r}, and it is {value!r}")
        if names.HELD in annotations and value == "true":
            self._held_since.setdefault(name, self._now)
            self.held.add(name)
        else:
            self._held_since.pop(name, None)
        if not has_disrupted_taint(node):
            self._taken_at.pop(name, None)
        elif name not in self._taken_at:
            self._taken_at[name] = self._now
            if not any(claim.metadata.deletion_timestamp for claim in self._cluster.claims_of(node)):
                self.taken.append(name)
                self._look_at_command(name)

    def _look_at_command(self, node: str) -> None:
        now, held_since = self._now, self._held_since.get(node)
        if held_since is not None and now - held_since > self._slack:
            self.broken.append(f"{now} {node} was taken though it was held since {held_since}")
        if self.guard_since is None or now - self.guard_since < self._noticed or node in self.users:
            return
        for pod in self._cluster.pods_on[node]:
            bound_at = self._bound_at.get(pod.uid, now)
            if pod.active and now - bound_at >= self._noticed and _is_blocked(pod, now, now - self._noticed):
                self.broken.append(f"{now} {node} was taken though {pod.name} was blocked on it")

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _pod_changed(self, change: Change[PodRecord]) -> None:
        match change:
            case Added(new=new):
                self._note_bound(new.value)
            case Updated(old=old, new=new):
                self._note_bound(new.value)
                if old.value.active and new.value.deleted_at is not None:
                    self._look_at_eviction(old.value)
            case Deleted(old=old):
                self._bound_at.pop(old.value.uid, None)

    def _note_bound(self, pod: PodRecord) -> None:
        if pod.node_name:
            self._bound_at.setdefault(pod.uid, self._now)

    def _look_at_eviction(self, pod: PodRecord) -> None:
        """Somebody may have scaled the workload down, or have deleted the claim."""
        node = self._cluster.nodes.value(pod.node_name)
        claims = [] if node is None else self._cluster.claims_of(node)
        by_command = any(
            claim.metadata.deletion_timestamp is not None and is_true(claim, ConditionType.DISRUPTION_REASON)
            for claim in claims
        )
        if not by_command or not _is_blocked(pod, self._now):
            return
        held_since, taken_at = self._held_since.get(pod.node_name), self._taken_at.get(pod.node_name)
        if held_since is not None and taken_at is not None and held_since + self._slack < taken_at:
            self.broken.append(f"{self._now} {pod.name} was evicted from {pod.node_name}, which was held")
        self.late.add(pod.node_name)
        self.late_pods.append((pod.name, self._now))


def _is_blocked(pod: PodRecord, *instants: datetime) -> bool:
    return all(any(not verdict.allowed for verdict in protection(pod, at)) for at in instants)


@asynccontextmanager
async def looking_on(api: KubeApi, clock: Clock, **seconds: float) -> AsyncIterator[HoldWitness]:
    """A witness with watches of its own. `seconds`: those of the witness."""
    cluster = WatchedCluster(api, clock)
    witness = HoldWitness(cluster, **seconds)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(reflector.run(), name=f"witness {reflector.name}") for reflector in cluster.reflectors
        ]
        for reflector in cluster.reflectors:
            await reflector.wait_synced()
        yield witness
        for task in tasks:
            task.cancel()
