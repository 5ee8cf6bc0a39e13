"""A cluster state without watches, the objects that it was fed with, and a new state to compare it with."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from operator import is_
from typing import Any, Final, TypeVar

import msgspec

from dovetail.api import names
from dovetail.scheduling.default_spread import SchedulerProfiles
from dovetail.scheduling.placement import NodeInfo
from dovetail.state.cluster import ClusterState, NodeClassKind
from dovetail.state.nodes import ManagedNode, NodeKey
from dovetail.state.schedulable_nodes import SchedulableNode
from dovetail.state.scheduling import ClusterSnapshot, NodePods, PodsToPlace, SchedulingState
from dovetail.state.store import Added, Change, Deleted, Key, StoredValue, Updated

NOW: Final = datetime(2026, 3, 1, tzinfo=UTC)
CREATED: Final = "2026-02-01T00:00:00Z"
CLASS: Final = NodeClassKind("example.com", "Machine", "machines")
CLAIMS: Final = names.NODECLAIM_PLURAL
VOLUME_CLAIMS: Final = "persistentvolumeclaims"
POOLS: Final = ("a", "b")
AMOUNTS: Final = {"cpu": "4", "memory": "8Gi", "pods": "10"}

Manifest = dict[str, Any]
Put = tuple[str, Manifest]  # the plural name of its kind, and the object
V = TypeVar("V")


class World:
    """A state, and the objects that it was fed with."""

    def __init__(self, profiles: SchedulerProfiles | None = None) -> None:
        self.profiles = profiles
        self.state = ClusterState(CLASS, scheduler_profiles=profiles)
        self.placing = SchedulingState(self.state)
        self.objects: dict[str, dict[Key, StoredValue[Any]]] = {plural: {} for plural in self.state.stores}
        self.marked: set[str] = set()
        self._uids = count(1)

    # -- changes ------------------------------------------------------------------------------------------------------

    def put(self, plural: str, manifest: Manifest, *, anew: bool = False) -> list[Change[Any]]:
        """The changes that a watch tells. `anew`: it was deleted and created again between two messages."""
        meta = manifest["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        old = self.objects[plural].get(key)
        uid = f"u{next(self._uids)}" if old is None or anew else old.uid
        reading = self.state.reading(plural)
        wire = msgspec.convert(
            {**manifest, "metadata": {"creationTimestamp": CREATED, **meta, "uid": uid}}, reading.struct
        )
        new = self.objects[plural][key] = StoredValue(uid, "", reading.keep(wire))
        if old is None:
            return [Added(key, new)]
        if not anew:
            return [Updated(key, old, new)]
        self._forget(plural, key)
        return [Deleted(key, old), Added(key, new)]

    def delete(self, plural: str, key: Key) -> list[Change[Any]]:
        old = self.objects[plural].pop(key, None)
        self._forget(plural, key)
        return [] if old is None else [Deleted(key, old)]

    def _forget(self, plural: str, key: Key) -> None:
        if plural == CLAIMS:
            self.marked.discard(key[1])

    def feed(self, *puts: Put) -> None:
        """One after the other."""
        for plural, manifest in puts:
            self.state.apply(plural, *self.put(plural, manifest))

    def mark(self, claim: str, *, marked: bool) -> None:
        (self.placing.mark if marked else self.placing.unmark)(claim)
        if ("", claim) in self.objects[CLAIMS]:
            (self.marked.add if marked else self.marked.discard)(claim)

    def begun_now(self) -> tuple[ClusterState, SchedulingState]:
        """A new state with the same objects."""
        state = ClusterState(CLASS, scheduler_profiles=self.profiles)
        placing = SchedulingState(state)
        for plural, kept in self.objects.items():
            state.apply(plural, *(Added(key, kept[key]) for key in sorted(kept)))
        for claim in self.marked:
            placing.mark(claim)
        if all(store.synced for store in self.state.stores.values()):
            state.loaded()
        return state, placing

    # -- looks --------------------------------------------------------------------------------------------------------

    def check_identity(self, change: Callable[["World"], object] = lambda _: None) -> None:
        """Through one change, whatever is equal to what it was is the same object."""
        nodes, places, read = self._looked()
        change(self)
        found = self._looked()
        assert kept(nodes, found[0], managed)
        assert kept(places, found[1], lambda place: place)
        assert kept(read, found[2], lambda read: (id(read.place), read.pods, read.read))
        first, second = self.placing.snapshot(NOW), self.placing.snapshot(NOW)
        assert all(map(is_, told_by(first), told_by(second)))

    def _looked(self) -> tuple[Mapping[NodeKey, ManagedNode], Mapping[NodeKey, NodeInfo], Mapping[NodeKey, NodePods]]:
        movable = self.placing.snapshot(NOW).movable
        places = {key: place.seen for key, place in self.placing._nodes.derived.all().items()}
        return self.state.managed.derived.all(), places, movable

    def check_equal(self) -> None:
        state, placing = self.begun_now()
        assert all_managed(self.state) == all_managed(state)
        assert by_claim(self.state) == by_claim(state)
        assert shown(self.placing) == shown(placing)
        assert {place.seen.name: framed(place) for place in self.placing._nodes.places()} == {
            place.seen.name: framed(place) for place in placing._nodes.places()
        }

    def check_nothing_is_left(self) -> None:
        for plural, kept in self.objects.items():
            self.state.apply(plural, *(change for key in list(kept) for change in self.delete(plural, key)))
        self.check_equal()
        nodes, readings, joined = self.placing._nodes, self.placing._nodes.readings, self.state.managed
        left: list[Any] = [nodes.derived.all(), nodes._names, nodes._shown, nodes._nodes, nodes._marked]
        left += [nodes._volume_users, readings._specs, readings._placed, joined.derived.all(), joined.ours()]
        left += [self.placing._waiting, self.placing._unbound, self.placing._unlaunched, self.placing._going]
        left += [each._touched for each in (joined.derived, nodes.derived, self.placing._movable)]
        left += [self.placing._movable.all(), self.placing._nominated]
        left += [index._groups for index in vars(self.state).values() if hasattr(index, "_groups")]
        left += [store.items for store in self.state.stores.values()]
        left += [readings._spreads]
        if (defaults := readings._defaults) is not None:
            left += [defaults._selectors_in, *(index._groups for index in (defaults._pods_in, defaults._pods_of))]
        assert not any(left), left


def kept(old: Mapping[NodeKey, V], new: Mapping[NodeKey, V], parts: Callable[[V], object]) -> bool:
    return all(old[key] is value for key, value in new.items() if key in old and parts(old[key]) == parts(value))


def managed(node: ManagedNode) -> tuple[object, ...]:
    """By identity of the objects: both states were fed with the same."""
    return id(node.claim), id(node.node), node.ours, node.state, node.record


def all_managed(state: ClusterState) -> dict[NodeKey, object]:
    nodes = state.managed.derived.all()
    ours = state.managed.ours()
    assert ours == {key: node for key, node in nodes.items() if node.ours}
    return {key: managed(node) for key, node in nodes.items()}


def by_claim(state: ClusterState) -> object:
    """What those are told who ask about a claim or a pool."""
    claims = {claim.metadata.name: managed(state.managed.of_claim(claim)) for claim in state.claims.values()}
    return claims, {pool: [managed(node) for node in state.managed.in_pool(pool)] for pool in POOLS}


def told_by(snapshot: ClusterSnapshot) -> tuple[object, ...]:
    parts = (snapshot.nodes, snapshot.movable, snapshot.claims, snapshot.pdbs, snapshot.places, snapshot.places.nodes)
    return (*parts, *snapshot.owed)


def shown(placing: SchedulingState) -> Mapping[str, object]:
    snapshot = placing.snapshot(NOW)
    return {
        "nodes": {key: managed(node) for key, node in snapshot.nodes.items()},
        "places": snapshot.places,
        "movable": {
            key: (read.place and framed(read.place), read.pods, read.read) for key, read in snapshot.movable.items()
        },
        "owed": sorted(snapshot.owed, key=lambda pod: pod.uid),
        "pending": unordered(placing.pending()),
        "leaving": placing.leaving(NOW),
        "unsynced": placing.unsynced(NOW),
    }


def unordered(read: PodsToPlace) -> PodsToPlace:
    """Pods of the same second are in the order in which they were refused, which a new state does not know."""
    return msgspec.structs.replace(read, pods=tuple(sorted(read.pods, key=lambda pod: pod.uid)))


def framed(place: SchedulableNode) -> object:
    frame = place.frame
    return place.seen, id(frame.node), id(frame.claim), frame.taints, frame.resources


# -- objects ----------------------------------------------------------------------------------------------------------


def a_node(
    name: str,
    instance: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Manifest] = (),
    **meta: Any,
) -> Put:
    spec = {"providerID": instance, "taints": list(taints)}
    status = {"capacity": AMOUNTS, "allocatable": AMOUNTS}
    return "nodes", {"metadata": {"name": name, "labels": dict(labels or {}), **meta}, "spec": spec, "status": status}


def a_claim(
    name: str, instance: str = "", *, kind: str = CLASS.kind, pool: str = "a", true: Sequence[str] = (), **meta: Any
) -> Put:
    """A claim of ours, unless `kind` names another node class."""
    conditions = [{"type": each, "status": "True"} for each in true]
    status = {"providerID": instance, "conditions": conditions, "capacity": AMOUNTS, "allocatable": AMOUNTS}
    spec = {"nodeClassRef": {"group": CLASS.group, "kind": kind, "name": "default"}}
    return CLAIMS, {
        "metadata": {"name": name, "labels": {names.NODEPOOL_LABEL: pool}, **meta},
        "spec": spec,
        "status": status,
    }


def a_pod(
    name: str, node: str = "", *, cpu: str = "1", phase: str = "Running", spec: Manifest | None = None, **meta: Any
) -> Put:
    """A pod on a node, or one that waits for a node."""
    status: Manifest = {"phase": phase}
    if not node:
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status = {"phase": "Pending", "conditions": [unscheduled]}
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    made = {"nodeName": node, "containers": [container], **(spec or {})}
    return "pods", {"metadata": {"name": name, "namespace": "x", **meta}, "spec": made, "status": status}


WITH_VOLUME: Final[Manifest] = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "v0"}}]}


def a_volume_claim() -> Put:
    meta = {"name": "v0", "namespace": "x", "annotations": {names.PVC_BIND_COMPLETED: "yes"}}
    return VOLUME_CLAIMS, {"metadata": meta, "spec": {"volumeName": "pv0"}}


def a_volume(driver: str = "disks") -> Put:
    return "persistentvolumes", {"metadata": {"name": "pv0"}, "spec": {"csi": {"driver": driver}}}
