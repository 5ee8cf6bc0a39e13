"""Existing and expected nodes as scheduling sees them (06 §7.2).

A change of a Node, its claim, pods, volumes or CSINode touches that node alone. The node is read again on the next
access, and stays the same object if nothing relevant changed.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionType
from dovetail.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.model.pod_records import Owner, PodRecord
from dovetail.rules.states import IN_DISRUPTION
from dovetail.scheduling.host_ports import NO_PORTS
from dovetail.scheduling.placement import NodeInfo
from dovetail.scheduling.resources import NodeResources, Resources, node_resources
from dovetail.scheduling.taints import Taints, node_taints
from dovetail.scheduling.volumes import Attachment, attach_limits
from dovetail.state.cluster import ClusterState
from dovetail.state.derived import Derived
from dovetail.state.nodes import ManagedNode, NodeKey, NodeKeyKind, managed_node
from dovetail.state.pod_requirements import PodRequirementsIndex
from dovetail.state.store import Change, Deleted, Key, Updated, by_name, steps_of

_NO_ATTACHMENTS: frozenset[Attachment] = frozenset()


class _NodeAndClaim(NamedTuple):
    """What does not depend on the pods of a node."""

    node: objects.Node | None
    claim: objects.NodeClaim | None
    taints: Taints
    resources: NodeResources


class SchedulableNode(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A node as scheduling sees it, with its objects."""

    seen: NodeInfo
    frame: _NodeAndClaim

    @property
    def node(self) -> objects.Node | None:
        return self.frame.node

    @property
    def claim(self) -> objects.NodeClaim | None:
        return self.frame.claim

    @property
    def pods_are_on(self) -> str:
        """The name of the Node; empty if there is none yet."""
        return "" if self.node is None else self.node.metadata.name


class SchedulableNodes:
    """All nodes. Create it before changes are applied."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._csi_nodes = by_name(cluster.csi_nodes)
        self._marked: set[str] = set()  # names of claims
        self.derived: Derived[NodeKey, SchedulableNode] = Derived(self._make, cluster.failed)
        self._shown: dict[str, tuple[int, NodeKey]] = {}  # by name: index in `_nodes`, and key
        self._names: dict[NodeKey, str] = {}
        self._nodes: list[NodeInfo] = []
        self._told: tuple[NodeInfo, ...] = ()
        self._moved = self._changed = False  # since `_told` was made: the set of names, or a node
        self._hidden: set[str] = set()  # claims whose name a Node has
        self._volume_users: dict[Key, Counter[str]] = {}  # by volume claim: the number of its pods, by node
        cluster.nodes.subscribe_values(self._node_changed)
        cluster.claims.subscribe_values(self._claim_changed)
        cluster.claims.subscribe(self._forget_mark)
        cluster.csi_nodes.subscribe_values(lambda node: self._touch_node(node.metadata.name))
        cluster.stored_claims.subscribe_values(self._volume_claim_changed)
        cluster.volumes.subscribe_values(self._volume_changed)
        cluster.storage_classes.subscribe_values(self._storage_class_changed)
        cluster.pods.subscribe(self._pod_changed)
        self.readings = PodRequirementsIndex(
            cluster, reread=self.derived.touch_all, touch=self._touch_node, well_known=cluster.well_known_labels
        )

    # -- what changed -------------------------------------------------------------------------------------------------

    def _node_changed(self, node: objects.Node) -> None:
        self._touch_node(node.metadata.name)
        self._touch_instance(node.spec.provider_id)

    def _claim_changed(self, claim: objects.NodeClaim) -> None:
        self.derived.touch(NodeKey(NodeKeyKind.CLAIM, claim.metadata.name))
        self._touch_instance(claim.status.provider_id)

    def _forget_mark(self, change: Change[objects.NodeClaim]) -> None:
        """Asks the change: the store may already have a new claim with the same name."""
        if isinstance(change, Deleted):
            self._marked.discard(change.key[1])

    def _volume_claim_changed(self, claim: PersistentVolumeClaim) -> None:
        for node in self._volume_users.get((claim.metadata.namespace, claim.metadata.name), ()):
            self._touch_node(node)

    def _volume_changed(self, volume: PersistentVolume) -> None:
        for claim in self._cluster.claims_of_volume[volume.metadata.name]:
            self._volume_claim_changed(claim)

    def _storage_class_changed(self, _: StorageClass) -> None:
        for nodes in self._volume_users.values():
            for node in nodes:
                self._touch_node(node)

    def _touch_node(self, name: str) -> None:
        if name:
            self.derived.touch(NodeKey(NodeKeyKind.NODE, name))

    def _touch_instance(self, provider_id: str) -> None:
        """The join of the objects with this provider ID may have changed."""
        for key in self._cluster.managed.with_instance(provider_id):
            self.derived.touch(key)

    def _pod_changed(self, change: Change[PodRecord]) -> None:
        if isinstance(change, Updated) and _alike(change.old.value, change.new.value):
            return
        for pod, step in steps_of(change):
            self._count_users(pod, step)
            self._touch_node(pod.node_name)

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
        """A command disrupts the claim's node (`marked`), or was rolled back."""
        node_claim = self._cluster.claims.value(claim)
        if node_claim is not None:
            change = self._marked.add if marked else self._marked.discard
            change(claim)
            self._claim_changed(node_claim)

    # -- all nodes ---------------------------------------------------------------------------------------------------

    def nodes(self) -> tuple[NodeInfo, ...]:
        """By name. The same object, with the same nodes in it, until something changes."""
        while self.derived.settle():
            pass
        if self._moved:
            self._arrange()
        if self._moved or self._changed:
            self._told = tuple(self._nodes)
        self._moved = self._changed = False
        return self._told

    def _make(self, key: NodeKey, previous: SchedulableNode | None) -> SchedulableNode | None:
        current = None
        try:
            current = self._read(key, previous)
        finally:  # a place that cannot be read is not shown
            self._show(key, previous, current)
        return current

    def _show(self, key: NodeKey, previous: SchedulableNode | None, current: SchedulableNode | None) -> None:
        before, name = self._names.get(key), None if current is None else current.seen.name
        if before != name:
            self._moved = True
            if name is None:
                self._names.pop(key, None)
            else:
                self._names[key] = name
        elif current is not None and (previous is None or previous.seen is not current.seen):
            shown = self._shown.get(current.seen.name)
            if shown is not None and shown[1] == key:
                self._nodes[shown[0]] = current.seen
                self._changed = True

    def places(self) -> Iterable[SchedulableNode]:
        """Each of `nodes`, with its objects."""
        self.nodes()
        return (self._place(key) for _, key in self._shown.values())

    def place(self, name: str) -> SchedulableNode | None:
        """The node with this name in `nodes`."""
        self.nodes()
        shown = self._shown.get(name)
        return None if shown is None else self._place(shown[1])

    def _place(self, key: NodeKey) -> SchedulableNode:
        place = self.derived.get(key)
        assert place is not None, "shown places exist"
        return place

    def _arrange(self) -> None:
        self._nodes, self._shown = [], {}
        hidden: set[str] = set()
        for key in sorted(self._names, key=self._order):
            seen = self._place(key).seen
            if seen.name in self._shown:  # a claim with the name of another Node
                hidden.add(seen.name)
                continue
            self._shown[seen.name] = (len(self._nodes), key)
            self._nodes.append(seen)
        for name in sorted(hidden - self._hidden):
            self._cluster.warn(f"NodeClaim {name} counts for nothing until its Node is registered: its name is taken")
        self._hidden = hidden

    def _order(self, key: NodeKey) -> tuple[str, bool, NodeKey]:
        """By name. The Node that has the name comes before claims that share it."""
        name = self._names[key]
        return name, key.name != name, key

    # -- one node ----------------------------------------------------------------------------------------------------

    def _read(self, key: NodeKey, previous: SchedulableNode | None) -> SchedulableNode | None:
        managed = self._cluster.managed.get(key)
        if managed is None:
            return None
        if not managed.ours and managed.claim is not None:  # what other controllers promise does not count
            managed = managed_node(None, managed.node, managed.pods, ours=False, settings=self._cluster.settings)
        node = managed.node if managed.node is not None and _counts(managed.node) else None
        claim = managed.claim
        if node is None and (claim is None or not self._counts_alone(claim)):
            return None
        frame = self._frame(node, claim, previous)
        speaks = _speaker(node, claim)
        name = "" if node is None else node.metadata.name
        pods = [pod for pod in self._cluster.pods_on[name] if not pod.terminal]
        readings = [self.readings.of(pod) for pod in pods]
        both = list(zip(pods, readings, strict=True))
        daemons = [reading for pod, reading in both if is_daemon(pod)]
        seen = NodeInfo(
            name=speaks.name,
            labels=speaks.labels,
            taints=frame.taints,
            allocatable=frame.resources.allocatable,
            capacity=frame.resources.capacity,
            requested=_total(reading.request for reading in readings),
            requested_by_daemons=_total(reading.request for reading in daemons),
            pool=speaks.labels.get(names.NODEPOOL_LABEL, ""),
            initialized=_is_initialized(node, claim),
            open=not (_is_going(node, managed) or (claim is not None and claim.metadata.name in self._marked)),
            ports=NO_PORTS.union(*(reading.ports for reading in readings)),
            attachments=_NO_ATTACHMENTS.union(*(self.readings.attached(pod) for pod in pods)),
            attach_limits=attach_limits(self._csi_nodes.get(name)),
            pods=tuple([reading.bound(pod) for pod, reading in both]),
        )
        return SchedulableNode(previous.seen if previous is not None and previous.seen == seen else seen, frame)

    def _frame(
        self, node: objects.Node | None, claim: objects.NodeClaim | None, previous: SchedulableNode | None
    ) -> _NodeAndClaim:
        """Cached, because most changes are of pods. `node`: None if it does not count yet."""
        if previous is not None and previous.node is node and previous.claim is claim:
            return previous.frame
        resources = node_resources(node, claim)
        if resources.bad and (previous is None or previous.frame.resources.bad != resources.bad):
            bad = "; ".join(map(str, resources.bad))
            self._cluster.warn(f"{_speaker(node, claim).name} counts as without what cannot be read: {bad}")
        return _NodeAndClaim(node, claim, node_taints(node, claim), resources)

    def _counts_alone(self, claim: objects.NodeClaim) -> bool:
        """Whether our claim counts without a Node. Of several claims with one provider ID only the first counts."""
        provider_id = claim.status.provider_id
        claims = self._cluster.managed.claims_with(provider_id)
        return not any(map(_counts, self._cluster.nodes_with[provider_id])) and (not claims or claims[0] is claim)


def _alike(old: PodRecord, new: PodRecord) -> bool:
    """Whether the node looks the same. Most changes of pods are of their health. Records share labels."""
    return (
        old.scheduling is new.scheduling
        and old.labels is new.labels
        and old.node_name == new.node_name
        and (old.active, old.terminal) == (new.active, new.terminal)
        and old.volume_claims == new.volume_claims
    )


def _total(requests: Iterable[Resources]) -> Resources:
    """Like `total`, but without an intermediate sum for each pod."""
    amounts: dict[str, int] = {}
    for request in requests:
        for name, amount in request.items():
            amounts[name] = amounts.get(name, 0) + amount
    return Resources(amounts)


def is_daemon(pod: PodRecord) -> bool:
    return pod.owner is not Owner.NONE and bool(pod.owner & Owner.DAEMONSET)  # testing flags is slow


def _says(node: objects.Node | None, label: str) -> bool:
    return node is not None and node.metadata.labels.get(label) == "true"


def _counts(node: objects.Node) -> bool:
    """Whether scheduling counts the Node. A Node of a NodePool needs a provider ID and a type (06 §7.2)."""
    labels = node.metadata.labels
    if names.NODEPOOL_LABEL not in labels:
        return True
    has_type = _says(node, names.INITIALIZED_LABEL) or names.INSTANCE_TYPE_LABEL in labels
    return bool(node.spec.provider_id) and has_type


def _speaker(node: objects.Node | None, claim: objects.NodeClaim | None) -> objects.ObjectMeta:
    """The metadata that counts: the claim's until the Node is registered.

    An initialized Node is registered, even if somebody has edited the label.
    """
    registered = _says(node, names.REGISTERED_LABEL) or _says(node, names.INITIALIZED_LABEL)
    if node is not None and (claim is None or registered):
        return node.metadata
    assert claim is not None
    return claim.metadata


def _is_initialized(node: objects.Node | None, claim: objects.NodeClaim | None) -> bool:
    """Nodes without a NodePool always are. For others the Node's label counts."""
    managed = claim is not None or (node is not None and names.NODEPOOL_LABEL in node.metadata.labels)
    return not managed or _says(node, names.INITIALIZED_LABEL)


def _is_going(node: objects.Node | None, managed: ManagedNode) -> bool:
    """Whether the node is being disrupted. Reads objects only, so that a new leader sees the same (R24)."""
    claim = managed.record.claim
    if claim is not None and claim.is_true(ConditionType.INSTANCE_TERMINATING):
        return True
    if node is None and claim is not None and claim.is_true(ConditionType.REGISTERED):
        return True  # its Node is gone, so that no pod can be bound
    return managed.state in IN_DISRUPTION
