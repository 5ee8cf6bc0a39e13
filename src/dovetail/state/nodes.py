"""Which nodes are there or will be, as scheduling sees them (06 §7.2), and which of them are on their way out?

A Node and its NodeClaim are one place. Whatever happens to a Node, its claim, its pods, their volumes or its CSINode
marks that place alone; it is made anew when somebody looks, and stays the same object if nothing came of it.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import Condition
from dovetail.api.storage import StorageClass, Volume, VolumeClaim
from dovetail.model.records import Owner, PodRecord
from dovetail.model.snapshot import cluster_node
from dovetail.ports import Clock
from dovetail.rules.states import IN_DISRUPTION, state_of
from dovetail.runtime.reflector import Added, Change, Deleted, Key, Reflector, Updated
from dovetail.scheduling.host_ports import NO_PORTS
from dovetail.scheduling.problem import Node
from dovetail.scheduling.resources import NodeResources, Resources, node_resources
from dovetail.scheduling.taints import Taints, node_taints
from dovetail.scheduling.volumes import Attachment, attach_limits
from dovetail.state.cluster import Cluster, by_name
from dovetail.state.pods import PodReadings

log = logging.getLogger(__name__)

V = TypeVar("V")

AT_ONCE: Final = 50  # places made in one turn of the event loop: some 7 ms
_NO_ATTACHMENTS: frozenset[Attachment] = frozenset()


class _Of(IntEnum):
    """Whose place it is. Of two places of one name the Node's comes first: it is the one that pods are bound to."""

    NODE = 0
    CLAIM = 1  # that has no Node yet


class _Key(NamedTuple):
    of: _Of
    name: str


class Place(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A node as scheduling sees it, with the objects that it is made of."""

    seen: Node
    node: objects.Node | None
    claim: objects.NodeClaim | None

    @property
    def pods_are_on(self) -> str:
        """The name by which pods are bound to it; empty if there is no Node yet."""
        return "" if self.node is None else self.node.metadata.name


class _Frame(NamedTuple):
    """What a Node and its claim say by themselves."""

    node: objects.Node | None
    claim: objects.NodeClaim | None
    taints: Taints
    resources: NodeResources
    going: bool


class PlacingNodes:
    """Make it before the caches run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._csi_nodes = by_name(cluster.csi_nodes)
        self._marked: set[str] = set()  # names of claims
        self._dirty: set[_Key] = set()
        self._frames: dict[_Key, _Frame] = {}
        self._places: dict[_Key, Place] = {}
        self._by_node: dict[str, Place] = {}
        self._shown: dict[str, tuple[int, _Key]] = {}  # by name: where it is among the nodes, and whose it is
        self._nodes: list[Node] = []
        self._told: tuple[Node, ...] = ()
        self._moved = self._changed = False  # since it was told: which nodes there are, what they are
        self._hidden: set[str] = set()  # names of claims that a Node has
        self._volume_users: dict[Key, Counter[str]] = {}  # by volume claim: the nodes of its pods, and how many each
        _concern(cluster.nodes, self._node_changed)
        _concern(cluster.claims, self._claim_changed)
        _concern(cluster.csi_nodes, lambda node: self._touch_node(node.metadata.name))
        _concern(cluster.stored_claims, self._volume_claim_changed)
        _concern(cluster.volumes, self._volume_changed)
        _concern(cluster.storage_classes, self._storage_class_changed)
        cluster.pods.subscribe(self._pod_changed)
        self.readings = PodReadings(cluster, reread=self._touch_all, well_known=names.WELL_KNOWN_LABELS)

    # -- what changed -------------------------------------------------------------------------------------------------

    def _node_changed(self, node: objects.Node) -> None:
        self._touch_node(node.metadata.name)
        self._touch_instance(node.spec.provider_id)

    def _claim_changed(self, claim: objects.NodeClaim) -> None:
        self._dirty.add(_Key(_Of.CLAIM, claim.metadata.name))
        self._touch_instance(claim.status.provider_id)
        if self._cluster.claims.get(("", claim.metadata.name)) is None:
            self._marked.discard(claim.metadata.name)

    def _volume_claim_changed(self, claim: VolumeClaim) -> None:
        for node in self._volume_users.get((claim.metadata.namespace, claim.metadata.name), ()):
            self._touch_node(node)

    def _volume_changed(self, volume: Volume) -> None:
        for claim in self._cluster.claims_of_volume[volume.metadata.name]:
            self._volume_claim_changed(claim)

    def _storage_class_changed(self, _: StorageClass) -> None:
        for nodes in self._volume_users.values():
            for node in nodes:
                self._touch_node(node)

    def _touch_node(self, name: str) -> None:
        if name:
            self._dirty.add(_Key(_Of.NODE, name))

    def _touch_instance(self, provider_id: str) -> None:
        """Which Node and which claim belong together may be another matter now."""
        self._dirty.update(_Key(_Of.NODE, each.metadata.name) for each in self._cluster.nodes_with[provider_id])
        self._dirty.update(_Key(_Of.CLAIM, each.metadata.name) for each in self._cluster.claims_with[provider_id])

    def _touch_all(self) -> None:
        self._dirty.update(self._places)

    def _pod_changed(self, change: Change[PodRecord]) -> None:
        match change:
            case Added(new=new):
                self._count_users(new.value, 1)
                self._touch_node(new.value.node_name)
            case Updated(old=old, new=new) if not _alike(old.value, new.value):
                self._count_users(new.value, 1)
                self._count_users(old.value, -1)
                self._touch_node(old.value.node_name)
                self._touch_node(new.value.node_name)
            case Deleted(old=old):
                self._count_users(old.value, -1)
                self._touch_node(old.value.node_name)

    def _count_users(self, pod: PodRecord, step: int) -> None:
        for claim in pod.volume_claims if pod.node_name else ():
            key = (pod.namespace, claim)
            users = self._volume_users.setdefault(key, Counter())
            users[pod.node_name] += step
            if not users[pod.node_name]:
                del users[pod.node_name]
            if not users:
                del self._volume_users[key]

    # -- marks (06 §7.4) ----------------------------------------------------------------------------------------------

    def mark(self, claim: str, *, marked: bool) -> None:
        """A command has begun to move the pods of the claim's node, or has given it up."""
        kept = self._cluster.claims.get(("", claim))
        if kept is not None:
            change = self._marked.add if marked else self._marked.discard
            change(claim)
            self._claim_changed(kept.value)

    # -- what there is ------------------------------------------------------------------------------------------------

    async def settle(self, clock: Clock) -> None:
        """Make most of what has to be made anew, in turns that are short, so that `nodes` has little left to do."""
        while len(self._dirty) > AT_ONCE:
            for _ in range(AT_ONCE):
                self._make_one()
            await clock.sleep(0)

    def nodes(self) -> tuple[Node, ...]:
        """By name; the same object, with the same nodes in it, unless something has changed."""
        while self._dirty:
            self._make_one()
        if self._moved:
            self._arrange()
        if self._moved or self._changed:
            self._told = tuple(self._nodes)
        self._moved = self._changed = False
        return self._told

    def _make_one(self) -> None:
        key = self._dirty.pop()
        try:
            self._make(key)
        except Exception:
            self._dirty.add(key)  # nobody goes on with what the place was before
            raise

    def _make(self, key: _Key) -> None:
        known, found = self._places.get(key), self._made(key)
        if found is None:
            self._frames.pop(key, None)
            if key.of is _Of.NODE:
                self._by_node.pop(key.name, None)
            self._moved = self._places.pop(key, None) is not None or self._moved
        elif known is not None and found.seen == known.seen:
            self._places[key] = msgspec.structs.replace(found, seen=known.seen)
        else:
            self._places[key] = found
            if known is None or known.seen.name != found.seen.name:
                self._moved = True
            elif (shown := self._shown.get(found.seen.name)) is not None and shown[1] == key:
                self._nodes[shown[0]] = found.seen
                self._changed = True
        if found is not None and key.of is _Of.NODE:
            self._by_node[key.name] = self._places[key]

    def places(self) -> Iterable[Place]:
        """Each node that `nodes` tells, with its objects."""
        self.nodes()
        return (self._places[key] for _, key in self._shown.values())

    def place(self, name: str) -> Place | None:
        """The one that scheduling knows by this name."""
        self.nodes()
        shown = self._shown.get(name)
        return None if shown is None else self._places[shown[1]]

    def by_node(self) -> Mapping[str, Place]:
        """By name of the Node that stands for it; it changes with the places."""
        self.nodes()
        return self._by_node

    def _arrange(self) -> None:
        self._nodes, self._shown = [], {}
        hidden: set[str] = set()
        for key in sorted(self._places, key=self._order):
            seen = self._places[key].seen
            if seen.name in self._shown:  # a claim that is called like a Node, which will have another name
                hidden.add(seen.name)
                continue
            self._shown[seen.name] = (len(self._nodes), key)
            self._nodes.append(seen)
        for name in sorted(hidden - self._hidden):
            log.warning("NodeClaim %s counts for nothing until its Node is registered: its name is taken", name)
        self._hidden = hidden

    def _order(self, key: _Key) -> tuple[str, bool, _Key]:
        """By name. Of several places with one name the Node that has this name comes first."""
        name = self._places[key].seen.name
        return name, key.name != name, key

    # -- one of them --------------------------------------------------------------------------------------------------

    def _made(self, key: _Key) -> Place | None:
        node, claim = self._node_of(key.name) if key.of is _Of.NODE else (None, self._claim_of(key.name))
        if node is None and claim is None:
            return None
        frame = self._frame(key, node, claim)
        speaks = _speaker(node, claim)
        name = "" if node is None else node.metadata.name
        pods = [pod for pod in self._cluster.pods_on[name] if not pod.terminal]
        readings = [self.readings.of(pod) for pod in pods]
        both = list(zip(pods, readings, strict=True))
        daemons = [reading for pod, reading in both if is_daemon(pod)]
        seen = Node(
            name=speaks.name,
            labels=speaks.labels,
            taints=frame.taints,
            allocatable=frame.resources.allocatable,
            capacity=frame.resources.capacity,
            requested=_total(reading.request for reading in readings),
            requested_by_daemons=_total(reading.request for reading in daemons),
            pool=speaks.labels.get(names.NODEPOOL_LABEL, ""),
            initialized=_is_initialized(node, claim),
            open=not (frame.going or (claim is not None and claim.metadata.name in self._marked)),
            ports=NO_PORTS.union(*(reading.ports for reading in readings)),
            attachments=_NO_ATTACHMENTS.union(*(self.readings.attached(pod) for pod in pods)),
            attach_limits=attach_limits(self._csi_nodes.get(name)),
            pods=tuple([reading.bound(pod) for pod, reading in both]),
        )
        return Place(seen, node, claim)

    def _frame(self, key: _Key, node: objects.Node | None, claim: objects.NodeClaim | None) -> _Frame:
        """Most changes are of pods, and leave this as it was."""
        known = self._frames.get(key)
        if known is None or known.node is not node or known.claim is not claim:
            resources = node_resources(node, claim)
            bad = "; ".join(map(str, resources.bad))
            if bad and (known is None or known.resources.bad != resources.bad):
                log.warning("%s counts as without what cannot be read: %s", _speaker(node, claim).name, bad)
            known = _Frame(node, claim, node_taints(node, claim), resources, _is_going(node, claim))
            self._frames[key] = known
        return known

    def _node_of(self, name: str) -> tuple[objects.Node | None, objects.NodeClaim | None]:
        """The Node, if it counts, and its claim."""
        kept = self._cluster.nodes.get(("", name))
        if kept is None or not _counts(kept.value):
            return None, None
        provider_id = kept.value.spec.provider_id
        claims = self._claims_with(provider_id)
        alone = len(claims) == 1 and len(self._cluster.nodes_with[provider_id]) == 1
        return kept.value, claims[0] if alone else None

    def _claim_of(self, name: str) -> objects.NodeClaim | None:
        """The claim, unless a Node stands for it already. Of several that claim one instance only one counts."""
        kept = self._cluster.claims.get(("", name))
        if kept is None or not self._cluster.manages(kept.value.spec.node_class_ref):
            return None
        provider_id = kept.value.status.provider_id
        others = self._claims_with(provider_id)
        if any(map(_counts, self._cluster.nodes_with[provider_id])) or (others and others[0] is not kept.value):
            return None
        return kept.value

    def _claims_with(self, provider_id: str) -> list[objects.NodeClaim]:
        found = self._cluster.claims_with[provider_id]
        return [claim for claim in found if self._cluster.manages(claim.spec.node_class_ref)]


def _concern(cache: Reflector[Any, V], concerned: Callable[[V], None]) -> None:
    """Tell it of every object that changes, as it was and as it is."""

    def told(change: Change[V]) -> None:
        match change:
            case Added(new=new):
                concerned(new.value)
            case Updated(old=old, new=new):
                concerned(old.value)
                concerned(new.value)
            case Deleted(old=old):
                concerned(old.value)

    cache.subscribe(told)


def _alike(old: PodRecord, new: PodRecord) -> bool:
    """Whether nothing has changed that its node shows: most news of a pod are of its health. Records share labels."""
    return (
        old.scheduling is new.scheduling
        and old.labels is new.labels
        and old.node_name == new.node_name
        and (old.active, old.terminal) == (new.active, new.terminal)
        and old.volume_claims == new.volume_claims
    )


def _total(requests: Iterable[Resources]) -> Resources:
    """As `total`, but without a step for each of a hundred pods."""
    amounts: dict[str, int] = {}
    for request in requests:
        for name, amount in request.items():
            amounts[name] = amounts.get(name, 0) + amount
    return Resources(amounts)


def is_daemon(pod: PodRecord) -> bool:
    return pod.owner is not Owner.NONE and bool(pod.owner & Owner.DAEMONSET)  # asking flags is slow


def _says(node: objects.Node | None, label: str) -> bool:
    return node is not None and node.metadata.labels.get(label) == "true"


def _counts(node: objects.Node) -> bool:
    """A Node of a NodePool does once it is known which instance it is, and of which type (06 §7.2)."""
    labels = node.metadata.labels
    if names.NODEPOOL_LABEL not in labels:
        return True
    known = _says(node, names.INITIALIZED_LABEL) or names.INSTANCE_TYPE_LABEL in labels
    return bool(node.spec.provider_id) and known


def _speaker(node: objects.Node | None, claim: objects.NodeClaim | None) -> objects.ObjectMeta:
    """Whose name and labels count: the claim's, until the Node is registered.

    A Node that is initialized has been registered, even if somebody has edited the label that says so.
    """
    registered = _says(node, names.REGISTERED_LABEL) or _says(node, names.INITIALIZED_LABEL)
    if node is not None and (claim is None or registered):
        return node.metadata
    assert claim is not None
    return claim.metadata


def _is_initialized(node: objects.Node | None, claim: objects.NodeClaim | None) -> bool:
    """Nodes of others always are. One whose claim we do not see (yet) is what it says."""
    managed = claim is not None or (node is not None and names.NODEPOOL_LABEL in node.metadata.labels)
    return not managed or _says(node, names.INITIALIZED_LABEL)


def _is_going(node: objects.Node | None, claim: objects.NodeClaim | None) -> bool:
    """By the objects alone, so that a new leader sees what the last one had begun (R24)."""
    member = cluster_node(claim, node)
    if member.claim is not None and member.claim.is_true(Condition.INSTANCE_TERMINATING):
        return True
    if node is None and member.claim is not None and member.claim.is_true(Condition.REGISTERED):
        return True  # its Node is gone: pods cannot come, whatever its machine does
    return state_of(member) in IN_DISRUPTION
