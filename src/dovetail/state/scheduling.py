"""What does placing pods know of the cluster: where pods could go, which ones wait, and which have to leave (06 §7)?

Everything that is told is immutable, and the same object until something about it changes, so that whoever worked on
it before can tell by identity what is new. It costs in proportion to what has changed since it was last asked for.

    if state.unsynced(now) is None:
        places = state.places()             # nodes first: a pod that is bound meanwhile is merely placed for nothing
        pending, leaving = state.pending(), state.leaving(now)
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from operator import is_
from typing import Final, TypeAlias

import msgspec

from dovetail.api import objects
from dovetail.model.records import PdbRecord, PodRecord
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

__all__ = [
    "DisruptedNodeTrigger",
    "MovablePods",
    "NodePods",
    "PendingPodTrigger",
    "PodsToPlace",
    "SchedulingInputs",
    "SchedulingState",
    "Trigger",
    "Unplaceable",
    "moving",
]

_NAMED_AT_MOST: Final = 5


class SchedulingInputs(msgspec.Struct, frozen=True):
    """All of a Problem but its pods and options. `left_out`: pools that cannot be used now, and why."""

    nodes: tuple[NodeInfo, ...] = ()
    pools: tuple[Pool, ...] = ()
    types: Mapping[str, tuple[MachineType, ...]] = {}
    daemons: tuple[Daemon, ...] = ()
    left_out: Mapping[str, str] = {}


class PodsToPlace(msgspec.Struct, frozen=True, gc=False):
    """Pods to be placed, and by UID those that cannot be."""

    pods: tuple[PodInfo, ...] = ()
    refused: Mapping[str, Unplaceable] = {}


class NodePods(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The pods of a node, as they were read when it looked so; None: one that nobody has to place."""

    place: SchedulableNode | None
    pods: tuple[PodRecord, ...]
    read: tuple[PodInfo | Unplaceable | None, ...]


class MovablePods(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Those of the pods of a node that would have to go, and what was said of all of them."""

    of: NodePods
    groups: tuple[PodGroup, ...]
    judged: tuple[Judgement, ...]
    found: PodsToPlace

    def holds(self, now: datetime) -> bool:
        """Whether the rules still say the same."""
        return all(map(is_, self.judged, [group.judged(now) for group in self.groups]))


def moving(read: NodePods, alike: PodProtections, now: datetime) -> MovablePods:
    """What has to go now. On any thread: it reads nothing else."""
    groups = alike.groups_of(read.pods)
    both = ((pod, each) for pod, each in zip(read.pods, read.read, strict=True) if each is not None)
    found = _sorted_out((pod, each) for pod, each in both if alike.leaves(pod, now))
    return MovablePods(read, groups, tuple(group.judged(now) for group in groups), found)


def _sorted_out(read: Iterable[tuple[PodRecord, PodInfo | Unplaceable]]) -> PodsToPlace:
    found: list[PodInfo] = []
    refused: dict[str, Unplaceable] = {}
    for pod, each in read:
        if isinstance(each, Unplaceable):
            refused[pod.uid] = each
        else:
            found.append(each)
    return PodsToPlace(tuple(found), refused)


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What decisions read, as it was at one instant: nothing that happens later touches it.

    Every part is the same object until something about it changes.
    """

    at: datetime
    nodes: Mapping[NodeKey, ManagedNode]
    """Those that are ours to act on."""
    movable: Mapping[NodeKey, NodePods]
    """The pods of those that have a Node."""
    claims: Contents[objects.NodeClaim]
    pools: tuple[objects.NodePool, ...]
    """Those that are ours."""
    pdbs: Contents[PdbRecord]
    places: SchedulingInputs
    prices: Mapping[str, Mapping[OfferingKey, int]]
    """By pool, of what it can be made of."""
    nominations: Mapping[str, datetime]
    """Until when a pod is expected, by claim or Node."""
    owed: tuple[PodInfo, ...]
    """Pods that are to be placed anyway."""


class PendingPodTrigger(msgspec.Struct, frozen=True):
    """A pod has become provisionable."""

    pod: PodRecord

    @property
    def uid(self) -> str:
        return self.pod.uid


class DisruptedNodeTrigger(msgspec.Struct, frozen=True):
    """A node has been tainted, and its pods will need another."""

    node: objects.Node

    @property
    def uid(self) -> str:
        return self.node.metadata.uid


Trigger: TypeAlias = PendingPodTrigger | DisruptedNodeTrigger


class SchedulingState:
    """Make it before changes are applied: it subscribes to the stores.

    `pause`: how long a claim that is being launched keeps others from being decided.
    """

    def __init__(self, cluster: ClusterState, *, pause: timedelta = timedelta(seconds=30)) -> None:
        self._cluster = cluster
        self._pause = pause
        self._listeners: list[Callable[[Trigger], None]] = []
        self._waiting: dict[Key, PodRecord] = {}
        self._unbound: set[Key] = set()  # active pods without a node, whether the scheduler has seen them or not
        self._unlaunched: dict[str, objects.NodeClaim] = {}
        self._nominated: dict[str, datetime] = {}  # by claim, or by Node where there is none
        self._alike = PodProtections()
        self._going: dict[str, MovablePods] = {}  # by node
        self._parts: tuple[object, ...] = (None, None, None)  # what was told last was made of
        self._told = SchedulingInputs()
        self._nodes = SchedulableNodes(cluster)
        self._daemons = SchedulingDaemons(cluster)
        self._pools = SchedulingPools(cluster)
        self._movable: Derived[NodeKey, NodePods] = Derived(self._read_node)
        cluster.managed.derived.dependents.append(self._movable)
        self._nodes.derived.dependents.append(self._movable)
        cluster.settle_too(self._nodes.derived, cost=4)
        cluster.settle_too(self._movable, cost=2)
        cluster.pods.subscribe(self._pod_changed)
        cluster.nodes.subscribe(self._node_changed)
        cluster.claims.subscribe(self._claim_changed)

    # -- whether it can be relied on ----------------------------------------------------------------------------------

    def unsynced(self, now: datetime) -> str | None:
        """Why nothing should be decided on this, or None (06 §7.3).

        A claim that is being launched is capacity that nobody knows yet. But one slow launch does not stop the others
        for long: after a while it counts as a node on which nothing fits.
        """
        behind = [store.name for store in self._cluster.stores.values() if not store.synced]
        if behind:
            return f"not yet listed: {', '.join(behind)}"
        if unseen := self._cluster.claims.unseen():
            return f"the watch has not told yet of NodeClaims {_listed(unseen)}"
        launching = [name for name, claim in self._unlaunched.items() if self._holds_up(claim, now)]
        return f"NodeClaims {_listed(sorted(launching))} are being launched" if launching else None

    def _holds_up(self, claim: objects.NodeClaim, now: datetime) -> bool:
        created = claim.metadata.creation_timestamp
        return created is None or now - created < self._pause

    def snapshot(self, now: datetime) -> ClusterSnapshot:
        """Everything as it is now. What has changed is derived first, so `settle` before."""
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

    # -- where to -----------------------------------------------------------------------------------------------------

    def usable_pools(self) -> Iterable[objects.NodePool]:
        """Those that new nodes can be made of, if their instance types are known."""
        return self._pools.usable()

    def places(self) -> SchedulingInputs:
        """The same object unless something has changed; then with everything in it that has not."""
        nodes, pools, daemons = parts = (self._nodes.nodes(), self._pools.pools(), self._daemons.daemons())
        if not all(map(is_, parts, self._parts)):
            self._parts = parts
            self._told = SchedulingInputs(nodes, pools.pools, pools.types, daemons, pools.left_out)
        return self._told

    def place(self, name: str) -> SchedulableNode | None:
        """The objects behind the node that `places` tells by this name."""
        return self._nodes.place(name)

    def _read_node(self, key: NodeKey, known: NodePods | None) -> NodePods | None:
        managed = self._cluster.managed.get(key)
        if managed is None or managed.node is None or not managed.ours:
            return None
        place = self._nodes.derived.get(key)
        if place is not None and place.node is None:  # its Node does not count yet
            place = None
        same = known is not None and known.pods is managed.pods and known.place is place
        if same and place is not None:
            return known
        # A change of the pods' volumes makes another place; where there is none, nothing else tells of it.
        found = self.read(place, managed.pods, Origin.CANDIDATE)
        return known if same and known is not None and known.read == found.read else found

    # -- who -----------------------------------------------------------------------------------------------------------

    def waiting(self) -> list[PodRecord]:
        """All provisionable pods, in no order."""
        return list(self._waiting.values())

    def pending(self) -> PodsToPlace:
        """Provisionable pods (06 §1), without those that cannot be placed whatever is done (06 §2)."""
        return self._read((pod for _, pod in sorted(self._waiting.items())), Origin.PENDING)

    def leaving(self, now: datetime) -> PodsToPlace:
        """Pods of nodes that are on their way out, as far as they have to go now (05 §12.2)."""
        self._alike.know(self._cluster.pdbs.snapshot())
        going: dict[str, MovablePods] = {}
        for place in self._nodes.places():
            if place.seen.open:
                continue
            pods, known = tuple(self._cluster.pods_on[place.pods_are_on]), self._going.get(place.seen.name)
            if known is None or known.of.place is not place or known.of.pods != pods or not known.holds(now):
                known = moving(self.read(place, pods, Origin.DELETING), self._alike, now)
            going[place.seen.name] = known
        self._going = going
        found = [known.found for known in going.values()]
        refused = {uid: each for pods in found for uid, each in pods.refused.items()}
        return PodsToPlace(tuple(pod for pods in found for pod in pods.pods), refused)

    def read(self, place: SchedulableNode | None, pods: tuple[PodRecord, ...], origin: Origin) -> NodePods:
        """The pods of a node as they would be placed if they had to go."""
        to_place = self._nodes.readings.to_place
        return NodePods(place, pods, tuple([to_place(pod, origin) if pod.reschedulable else None for pod in pods]))

    def _read(self, pods: Iterable[PodRecord], origin: Origin) -> PodsToPlace:
        return _sorted_out((pod, self._nodes.readings.to_place(pod, origin)) for pod in pods)

    # -- nominations and marks (06 §7.4) ------------------------------------------------------------------------------

    def nominate(self, node: str, until: datetime) -> None:
        """A pod is expected on the node, by the name that `places` has for it; never for shorter than said before."""
        key = self._nomination_key(node)
        self._nominated[key] = max(until, self._nominated.get(key, until))

    def nominations(self, at: datetime) -> Mapping[str, datetime]:
        """By name of the claim, or of the Node where there is none: until when a pod is waited for there.

        Once every pod has a node, and none has to leave its own, nobody is on the way any more, sooner than is said.
        """
        if not (self._unbound or self.leaving(at).pods):
            return {}
        return {name: until for name, until in self._nominated.items() if at < until}

    def _nomination_key(self, node: str) -> str:
        """A nomination outlives the change of names at registration."""
        place = self._nodes.place(node)
        return node if place is None or place.claim is None else place.claim.metadata.name

    def mark(self, claim: str) -> None:
        """A command has begun to move the pods of this claim's node: it takes no more, and does not count for limits.

        Once the command is written down on the objects, these say it themselves (R24).
        """
        self._nodes.mark(claim, marked=True)

    def unmark(self, claim: str) -> None:
        """The command has been given up."""
        self._nodes.mark(claim, marked=False)

    # -- what changed -------------------------------------------------------------------------------------------------

    def on_change(self, told: Callable[[Trigger], None]) -> None:
        """Tell it of pods that become provisionable, and of nodes that turn disrupted.

        It is told in the turn of the change, and may only take note: not all that belongs to the change is in yet.
        """
        self._listeners.append(told)

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
                known = key in self._waiting
                self._waiting[key] = pod
                if not known:
                    self._tell(PendingPodTrigger(pod))
            case Deleted(key=key):
                self._waiting.pop(key, None)
                self._unbound.discard(key)

    def _node_changed(self, change: Change[objects.Node]) -> None:
        match change:
            case Added(new=new) if has_disrupted_taint(new.value):
                self._tell(DisruptedNodeTrigger(new.value))
            case Updated(old=old, new=new) if has_disrupted_taint(new.value) and not has_disrupted_taint(old.value):
                self._tell(DisruptedNodeTrigger(new.value))
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
        """One that is deleted before it is launched is waited for no longer."""
        ours = self._cluster.manages(claim.spec.node_class_ref)
        return ours and not claim.status.provider_id and claim.metadata.deletion_timestamp is None

    def _tell(self, trigger: Trigger) -> None:
        for told in self._listeners:
            told(trigger)


def _listed(found: list[str]) -> str:
    more = len(found) - _NAMED_AT_MOST
    return ", ".join(found[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
