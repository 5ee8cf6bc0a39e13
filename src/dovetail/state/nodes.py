"""Joins each NodeClaim with its Node and pods.

A NodeClaim and a Node are joined by their provider ID, if it is not empty and no other of them has it (01 §1). If
several objects have the same ID, none of them is joined (03 §10.2). A NodeClaim of another controller does not count
beside one of ours.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dovetail.api import objects
from dovetail.model.node_records import claim_record, node_record
from dovetail.model.pod_records import PodRecord
from dovetail.model.rule_settings import RuleSettings
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.states import NodeState, state_of
from dovetail.state.derived import Derived

if TYPE_CHECKING:
    from dovetail.state.cluster import ClusterState


class NodeKeyKind(IntEnum):
    """Which object a node is named after."""

    NODE = 0
    CLAIM = 1  # without a Node, or with several


class NodeKey(NamedTuple):
    kind: NodeKeyKind
    name: str


class ManagedNode(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A NodeClaim and its Node, either of which may be missing, with the pods that are bound to the Node.

    A new instance is created whenever the claim, the Node or any of its pods changes.
    """

    claim: objects.NodeClaim | None
    node: objects.Node | None
    ours: bool
    record: ClusterNode
    """The node as records for the rules."""
    state: NodeState

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def pods(self) -> tuple[PodRecord, ...]:
        return self.record.pods


def managed_node(
    claim: objects.NodeClaim | None,
    node: objects.Node | None,
    pods: tuple[PodRecord, ...],
    *,
    ours: bool,
    settings: RuleSettings,
) -> ManagedNode:
    record = ClusterNode(
        claim=None if claim is None else claim_record(claim),
        node=None if node is None else node_record(node, settings),
        pods=pods,
    )
    return ManagedNode(claim, node, ours, record, state_of(record))


class ManagedNodes:
    """Every Node and NodeClaim of the cluster, joined."""

    def __init__(self, cluster: "ClusterState") -> None:
        self._cluster = cluster
        self.derived: Derived[NodeKey, ManagedNode] = Derived(self._make, cluster.failed)
        self._ours: Mapping[NodeKey, ManagedNode] = {}
        self._all: Mapping[NodeKey, ManagedNode] = {}
        cluster.claims.subscribe_values(self._claim_changed)
        cluster.nodes.subscribe_values(self._node_changed)
        cluster.pods.subscribe_values(self._pod_changed)

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, key: NodeKey) -> ManagedNode | None:
        return self.derived.get(key)

    def all(self) -> Mapping[NodeKey, ManagedNode]:
        """Every Node and NodeClaim once. The same object until something changes."""
        return self.derived.all()

    def ours(self) -> Mapping[NodeKey, ManagedNode]:
        """The nodes that we manage. The same object until something changes."""
        nodes = self.derived.all()
        if nodes is not self._all:
            self._all, self._ours = nodes, {key: node for key, node in nodes.items() if node.ours}
        return self._ours

    def of_claim(self, claim: objects.NodeClaim) -> ManagedNode:
        """The node of the given version of a NodeClaim, with its current Node and pods."""
        node = self._node_of(claim)
        joined = self.get(NodeKey(NodeKeyKind.CLAIM, claim.metadata.name) if node is None else _key_of(node))
        return joined if joined is not None and joined.claim is claim else self._joined(claim, node, None)

    def in_pool(self, pool: str) -> list[ManagedNode]:
        """The nodes with a NodeClaim of the NodePool, ordered by the name of the claim."""
        return [self.of_claim(claim) for claim in self._cluster.claims_in[pool]]

    # -- joining ------------------------------------------------------------------------------------------------------

    def _make(self, key: NodeKey, previous: ManagedNode | None) -> ManagedNode | None:
        if key.kind is NodeKeyKind.NODE:
            node = self._cluster.nodes.value(key.name)
            return None if node is None else self._joined(self._claim_of(node), node, previous)
        claim = self._cluster.claims.value(key.name)
        if claim is None or self._node_of(claim) is not None:
            return None
        return self._joined(claim, None, previous)

    def _joined(
        self, claim: objects.NodeClaim | None, node: objects.Node | None, previous: ManagedNode | None
    ) -> ManagedNode:
        pods = () if node is None else tuple(self._cluster.pods_on[node.metadata.name])
        if previous is not None and pods == previous.pods:
            pods = previous.pods
        ours = self._is_ours(claim, node)
        if previous is None or previous.claim is not claim or previous.node is not node or previous.ours is not ours:
            return managed_node(claim, node, pods, ours=ours, settings=self._cluster.settings)
        if pods is previous.pods:
            return previous
        # Most changes are of pods only.
        record = ClusterNode(claim=previous.record.claim, node=previous.record.node, pods=pods)
        return msgspec.structs.replace(previous, record=record)

    def _claim_of(self, node: objects.Node) -> objects.NodeClaim | None:
        claims = self.claims_with(node.spec.provider_id)
        alone = len(claims) == 1 and len(self._cluster.nodes_with[node.spec.provider_id]) == 1
        return claims[0] if alone else None

    def _node_of(self, claim: objects.NodeClaim) -> objects.Node | None:
        others = any(not _is_same(other, claim) for other in self.claims_with(claim.status.provider_id))
        return None if others else self._cluster.node_of(claim)

    def claims_with(self, provider_id: str) -> list[objects.NodeClaim]:
        """Our NodeClaims with the provider ID; if there are none, those of other controllers."""
        claims = self._cluster.claims_with[provider_id]
        return [claim for claim in claims if self._cluster.manages_claim(claim)] or claims

    def _is_ours(self, claim: objects.NodeClaim | None, node: objects.Node | None) -> bool:
        if claim is not None:
            return self._cluster.manages_claim(claim)
        # A Node whose claim is not ours, or has a second Node, counts with that claim.
        return node is not None and self._cluster.manages_node(node) and self._cluster.claim_of(node) is None

    # -- changes -------------------------------------------------------------------------------------------------------

    def _node_changed(self, node: objects.Node) -> None:
        self.derived.touch(_key_of(node))
        self._touch_instance(node.spec.provider_id)

    def _claim_changed(self, claim: objects.NodeClaim) -> None:
        self.derived.touch(NodeKey(NodeKeyKind.CLAIM, claim.metadata.name))
        self._touch_instance(claim.status.provider_id)

    def _pod_changed(self, pod: PodRecord) -> None:
        if pod.node_name:
            self.derived.touch(NodeKey(NodeKeyKind.NODE, pod.node_name))

    def _touch_instance(self, provider_id: str) -> None:
        """The join of the objects with this provider ID may have changed."""
        for key in self.with_instance(provider_id):
            self.derived.touch(key)

    def touch_pool(self, pool: str) -> None:
        """Whether the nodes of the NodePool are ours may have changed."""
        for claim in self._cluster.claims_in[pool]:
            self._claim_changed(claim)

    def with_instance(self, provider_id: str) -> Iterator[NodeKey]:
        """The keys of all objects with the provider ID."""
        yield from (NodeKey(NodeKeyKind.NODE, node.metadata.name) for node in self._cluster.nodes_with[provider_id])
        yield from (NodeKey(NodeKeyKind.CLAIM, claim.metadata.name) for claim in self._cluster.claims_with[provider_id])


def _key_of(node: objects.Node) -> NodeKey:
    return NodeKey(NodeKeyKind.NODE, node.metadata.name)


def _is_same(one: objects.NodeClaim, other: objects.NodeClaim) -> bool:
    """Whether both are versions of one claim. Claims of a dump may lack UIDs, or share one."""
    return (one.metadata.name, one.metadata.uid) == (other.metadata.name, other.metadata.uid)
