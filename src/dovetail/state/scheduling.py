"""The inputs of scheduling: nodes and NodePools, pending pods, and pods that have to leave their node (06 §7).

All results are immutable, and the same object until something about them changes. The cost is proportional to the
number of changes since the last call.

    if state.unsynced(now) is None:
        places = state.places()             # nodes first: a pod that is bound in between is only planned in vain
        pending, leaving = state.pending(), state.leaving(now)
"""

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from operator import is_
from typing import Final, TypeAlias

import msgspec

from dovetail.api import objects
from dovetail.model.pdb_records import PdbRecord
from dovetail.model.pod_records import PodRecord
from dovetail.rules.states import has_disrupted_taint
from dovetail.scheduling.daemons import Daemon
from dovetail.scheduling.placement import MachineType, NodeInfo, Origin, PodInfo, Pool
from dovetail.state.cluster import ClusterState
from dovetail.state.daemons import SchedulingDaemons
from dovetail.state.derived import Derived
from dovetail.state.instance_types import OfferingKey
from dovetail.state.nodes import ManagedNode, NodeKey
from dovetail.state.pools import SchedulingPools
from dovetail.state.protections import Judgement, PodGroup, PodProtections
from dovetail.state.schedulable_nodes import SchedulableNode, SchedulableNodes
from dovetail.state.store import Added, Change, Contents, Deleted, Key, Updated
from dovetail.state.unplaceable import Unplaceable

_NAMED_AT_MOST: Final = 5
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class SchedulingInputs(msgspec.Struct, frozen=True):
    """A Problem without pods and options. `left_out`: pools that cannot be used now, and why."""

    nodes: tuple[NodeInfo, ...] = ()
    pools: tuple[Pool, ...] = ()
    types: Mapping[str, tuple[MachineType, ...]] = {}
    daemons: tuple[Daemon, ...] = ()
    left_out: Mapping[str, str] = {}


class PodsToPlace(msgspec.Struct, frozen=True, gc=False):
    """Pods to place. `refused`: those that cannot be placed, by UID."""

    pods: tuple[PodInfo, ...] = ()
    refused: Mapping[str, Unplaceable] = {}


class NodePods(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The pods of a node, each as scheduling reads it; None for a pod that needs no other place."""

    place: SchedulableNode | None
    pods: tuple[PodRecord, ...]
    read: tuple[PodInfo | Unplaceable | None, ...]


class MovablePods(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The pods that have to leave a node, and the judgements of all of its pods."""

    of: NodePods
    groups: tuple[PodGroup, ...]
    judged: tuple[Judgement, ...]
    to_place: PodsToPlace

    def is_current(self, now: datetime) -> bool:
        """Whether the judgements are still the same."""
        return all(map(is_, self.judged, [group.judged(now) for group in self.groups]))


def moving(read: NodePods, alike: PodProtections, now: datetime) -> MovablePods:
    """The pods that have to leave now. Runs on any thread."""
    groups = alike.groups_of(read.pods)
    both = ((pod, reading) for pod, reading in zip(read.pods, read.read, strict=True) if reading is not None)
    to_place = _sorted_out((pod, reading) for pod, reading in both if alike.leaves(pod, now))
    return MovablePods(read, groups, tuple(group.judged(now) for group in groups), to_place)


def _sorted_out(read: Iterable[tuple[PodRecord, PodInfo | Unplaceable]]) -> PodsToPlace:
    pods: list[PodInfo] = []
    refused: dict[str, Unplaceable] = {}
    for pod, reading in read:
        if isinstance(reading, Unplaceable):
            refused[pod.uid] = reading
        else:
            pods.append(reading)
    return PodsToPlace(tuple(pods), refused)


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The inputs of decisions at one instant. Every part is the same object until something about it changes."""

    at: datetime
    nodes: Mapping[NodeKey, ManagedNode]
    """The nodes that we manage."""
    movable: Mapping[NodeKey, NodePods]
    """The pods of the nodes that have a Node."""
    claims: Contents[objects.NodeClaim]
    pools: tuple[objects.NodePool, ...]
    """The NodePools that we manage."""
    pdbs: Contents[PdbRecord]
    places: SchedulingInputs
    prices: Mapping[str, Mapping[OfferingKey, int]]
    """By pool: the prices of its offerings."""
    nominations: Mapping[str, datetime]
    """By claim or Node: until when a pod is expected there."""
    owed: tuple[PodInfo, ...]
    """Pods that need a place whatever is decided."""


class PendingPodTrigger(msgspec.Struct, frozen=True):
    """A pod has become provisionable."""

    pod: PodRecord

    @property
    def uid(self) -> str:
        return self.pod.uid


class DisruptedNodeTrigger(msgspec.Struct, frozen=True):
    """A node has the disrupted taint, and its pods will need another node."""

    node: objects.Node

    @property
    def uid(self) -> str:
        return self.node.metadata.uid


Trigger: TypeAlias = PendingPodTrigger | DisruptedNodeTrigger


class SchedulingState:
    """The state of scheduling. Create it before changes are applied: it subscribes to the stores.

    `pause`: for how long a launching claim postpones decisions. `only`: names of the nodes whose pods may have to
    move; None: all.
    """

    def __init__(
        self,
        cluster: ClusterState,
        *,
        pause: timedelta = timedelta(seconds=30),
        only: Container[str] | None = None,
    ) -> None:
        self._cluster = cluster
        self._only = only
        self._pause = pause
        self._listeners: list[Callable[[Trigger], None]] = []
        self._waiting: dict[Key, PodRecord] = {}
        self._unbound: set[Key] = set()  # active pods without a node, also before kube-scheduler has seen them
        self._unlaunched: dict[str, objects.NodeClaim] = {}
        self._nominated: dict[str, datetime] = {}  # by claim, or by Node where there is none
        self._alike = PodProtections()
        self._going: dict[str, MovablePods] = {}  # by node
        self._parts: tuple[object, ...] = (None, None, None)  # the parts of `_told`
        self._told = SchedulingInputs()
        self._nodes = SchedulableNodes(cluster)
        self._daemons = SchedulingDaemons(cluster)
        self._pools = SchedulingPools(cluster)
        self._movable: Derived[NodeKey, NodePods] = Derived(self._read_node, cluster.failed)
        cluster.managed.derived.dependents.append(self._movable)
        self._nodes.derived.dependents.append(self._movable)
        cluster.settle_too(self._nodes.derived, cost=4)
        cluster.settle_too(self._movable, cost=2)
        cluster.pods.subscribe(self._pod_changed)
        cluster.nodes.subscribe(self._node_changed)
        cluster.claims.subscribe(self._claim_changed)

    # -- readiness ----------------------------------------------------------------------------------------------------

    def unsynced(self, now: datetime) -> str | None:
        """Why nothing should be decided now, or None (06 §7.3).

        The capacity of a launching claim is not known yet. After `pause` it counts as a node without capacity, so that
        one slow launch does not stop all decisions.
        """
        behind = [store.name for store in self._cluster.stores.values() if not store.synced]
        if behind:
            return f"not yet listed: {', '.join(behind)}"
        if unseen := self._cluster.claims.unseen_creates():
            return f"the watch does not show the new NodeClaims {_listed(unseen)} yet"
        launching = [name for name, claim in self._unlaunched.items() if self._postpones(claim, now)]
        return f"NodeClaims {_listed(sorted(launching))} are being launched" if launching else None

    def _postpones(self, claim: objects.NodeClaim, now: datetime) -> bool:
        created = claim.metadata.creation_timestamp
        return created is None or now - created < self._pause

    def snapshot(self, now: datetime) -> ClusterSnapshot:
        """The current state. Call `settle` before, because what changed is derived here."""
        cluster, places = self._cluster, self.places()
        return ClusterSnapshot(
            at=now,
            nodes=cluster.managed.ours(),
            movable=self._movable.all(),
            claims=cluster.claims.snapshot(),
            pools=tuple(cluster.our_pools()),
            pdbs=cluster.pdbs.snapshot(),
            places=places,
            prices={name: cluster.instance_types.of(name).prices for name in places.types},
            nominations=self.nominations(now),
            owed=(*self.pending().pods, *self.leaving(now).pods),
        )

    # -- places ------------------------------------------------------------------------------------------------------

    def usable_pools(self) -> Iterable[objects.NodePool]:
        """The pools for new nodes, also those whose instance types are unknown."""
        return self._pools.usable()

    def places(self) -> SchedulingInputs:
        """The same object until something changes; then a new one with the unchanged parts."""
        nodes, pools, daemons = parts = (self._nodes.nodes(), self._pools.pools(), self._daemons.daemons())
        if not all(map(is_, parts, self._parts)):
            self._parts = parts
            self._told = SchedulingInputs(nodes, pools.pools, pools.types, daemons, pools.left_out)
        return self._told

    def place(self, name: str) -> SchedulableNode | None:
        """The objects of the node with this name in `places`."""
        return self._nodes.place(name)

    def _read_node(self, key: NodeKey, previous: NodePods | None) -> NodePods | None:
        if self._only is not None and key.name not in self._only:
            return None
        managed = self._cluster.managed.get(key)
        if managed is None or managed.node is None or not managed.ours:
            return None
        place = self._nodes.derived.get(key)
        if place is not None and place.node is None:  # its Node does not count yet
            place = None
        same = previous is not None and previous.pods is managed.pods and previous.place is place
        if same and place is not None:
            return previous
        # A change of the pods' volumes makes a new place. Without a place the readings are compared.
        current = self.read(place, managed.pods, Origin.CANDIDATE)
        return previous if same and previous is not None and previous.read == current.read else current

    # -- pods ----------------------------------------------------------------------------------------------------------

    def waiting(self) -> list[PodRecord]:
        """All provisionable pods, unordered."""
        return list(self._waiting.values())

    def pending(self) -> PodsToPlace:
        """Provisionable pods (06 §1), in the order in which kube-scheduler is expected to try them again.

        Those that fit no node are in `refused` (06 §2).
        """
        return self._read(sorted(self._waiting.values(), key=_turn), Origin.PENDING)

    def leaving(self, now: datetime) -> PodsToPlace:
        """Pods of disrupted nodes that have to leave now (05 §12.2)."""
        self._alike.know(self._cluster.pdbs.snapshot())
        going: dict[str, MovablePods] = {}
        for place in self._nodes.places():
            if place.seen.open:
                continue
            pods, movable = tuple(self._cluster.pods_on[place.pods_are_on]), self._going.get(place.seen.name)
            if (
                movable is None
                or movable.of.place is not place
                or movable.of.pods != pods
                or not movable.is_current(now)
            ):
                movable = moving(self.read(place, pods, Origin.DELETING), self._alike, now)
            going[place.seen.name] = movable
        self._going = going
        to_place = [movable.to_place for movable in going.values()]
        refused = {uid: reason for pods in to_place for uid, reason in pods.refused.items()}
        return PodsToPlace(tuple(pod for pods in to_place for pod in pods.pods), refused)

    def read(self, place: SchedulableNode | None, pods: tuple[PodRecord, ...], origin: Origin) -> NodePods:
        """The pods of a node as scheduling reads them."""
        to_place = self._nodes.readings.to_place
        return NodePods(place, pods, tuple([to_place(pod, origin) if pod.reschedulable else None for pod in pods]))

    def _read(self, pods: Iterable[PodRecord], origin: Origin) -> PodsToPlace:
        return _sorted_out((pod, self._nodes.readings.to_place(pod, origin)) for pod in pods)

    # -- nominations and marks (06 §7.4) ------------------------------------------------------------------------------

    def nominate(self, node: str, until: datetime) -> None:
        """Expects a pod on the node with this name in `places`, until the later of this and an earlier nomination.

        A node that is gone cannot be nominated. The key is the claim, because the name changes at registration.
        """
        place = self._nodes.place(node)
        if place is not None:
            key = node if place.claim is None else place.claim.metadata.name
            self._nominated[key] = max(until, self._nominated.get(key, until))

    def nominations(self, at: datetime) -> Mapping[str, datetime]:
        """By claim, or by Node where there is none: until when a pod is expected there.

        Nominations end early when every pod has a node and none has to leave its node.
        """
        if not (self._unbound or self.leaving(at).pods):
            return {}
        return {name: until for name, until in self._nominated.items() if at < until}

    def mark(self, claim: str) -> None:
        """A command disrupts the claim's node: it takes no pods and does not count for limits.

        This counts until the objects show it themselves (R24).
        """
        self._nodes.mark(claim, marked=True)

    def unmark(self, claim: str) -> None:
        """The command was rolled back."""
        self._nodes.mark(claim, marked=False)

    # -- changes ------------------------------------------------------------------------------------------------------

    def on_change(self, listener: Callable[[Trigger], None]) -> None:
        """Calls it when a pod becomes provisionable, and when a node gets the disrupted taint.

        It must not read the state: other subscribers may not have seen the change yet.
        """
        self._listeners.append(listener)

    def _pod_changed(self, change: Change[PodRecord]) -> None:
        match change:
            case Added(key=key, new=new) | Updated(key=key, new=new):
                pod = new.value
                if pod.active and not pod.node_name:
                    self._unbound.add(key)
                else:
                    self._unbound.discard(key)
                if not pod.provisionable:
                    self._waiting.pop(key, None)
                    return
                was_waiting = key in self._waiting
                self._waiting[key] = pod
                if not was_waiting:
                    self._notify(PendingPodTrigger(pod))
            case Deleted(key=key):
                self._waiting.pop(key, None)
                self._unbound.discard(key)

    def _node_changed(self, change: Change[objects.Node]) -> None:
        match change:
            case Added(new=new) if has_disrupted_taint(new.value):
                self._notify(DisruptedNodeTrigger(new.value))
            case Updated(old=old, new=new) if has_disrupted_taint(new.value) and not has_disrupted_taint(old.value):
                self._notify(DisruptedNodeTrigger(new.value))
            case Deleted(key=key):
                self._nominated.pop(key[1], None)

    def _claim_changed(self, change: Change[objects.NodeClaim]) -> None:
        match change:
            case Added(key=key, new=new) | Updated(key=key, new=new):
                if self._is_unlaunched(new.value):
                    self._unlaunched[key[1]] = new.value
                else:
                    self._unlaunched.pop(key[1], None)
            case Deleted(key=key):
                self._unlaunched.pop(key[1], None)
                self._nominated.pop(key[1], None)

    def _is_unlaunched(self, claim: objects.NodeClaim) -> bool:
        """Whether the claim is ours, not launched and not being deleted."""
        waits = not claim.status.provider_id and claim.metadata.deletion_timestamp is None
        return waits and self._cluster.manages_claim(claim)

    def _notify(self, trigger: Trigger) -> None:
        for listener in self._listeners:
            listener(trigger)


def _turn(pod: PodRecord) -> tuple[int, datetime]:
    """kube-scheduler takes the highest priority first, then the pod that was refused first, which is seldom not the
    oldest one. Pods of the same second stay in the order in which it refused them.
    """
    return -pod.priority, pod.created_at or _LONG_AGO


def _listed(names_: list[str]) -> str:
    more = len(names_) - _NAMED_AT_MOST
    return ", ".join(names_[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
