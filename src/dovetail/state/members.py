"""Which claim, Node and pods belong together, of all nodes of ours?

Noted on the event loop, once for all who ask: only what has changed is looked up again.
"""

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from dovetail.api import names, objects
from dovetail.model.records import PodRecord
from dovetail.runtime.reflector import Added, Change, Deleted, Updated

if TYPE_CHECKING:
    from dovetail.state.cluster import Cluster

V = TypeVar("V")

AT_ONCE: Final = 500  # members looked up in one turn of the event loop: some 5 ms


class Member(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One claim with its Node, either of which may be missing, and the pods on it: another object if any of them is."""

    claim: objects.NodeClaim | None
    node: objects.Node | None
    pods: tuple[PodRecord, ...]


class MemberKey(NamedTuple):
    """Whom a member is named after: its claim, or its Node if it has none."""

    kind: str
    name: str


class Members:
    """All nodes and claims of ours. The cluster has one, for all who ask."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._members: dict[MemberKey, Member] = {}
        self._told: Mapping[MemberKey, Member] = {}
        self._changed = False  # since it was told
        self._dirty: dict[MemberKey, None] = {}  # no set: the same events are to give the same order
        self._with_pods: dict[str, None] = {}  # names of nodes whose pods have changed
        cluster.claims.subscribe(self._claim_changed)
        cluster.nodes.subscribe(self._node_changed)
        cluster.pods.subscribe(self._pod_changed)

    async def settle(self) -> None:
        """Look up most of what has changed, in turns that are short, so that `now` has little left to do."""
        self._look_up(AT_ONCE)
        while self._with_pods or self._dirty:
            await self._cluster.clock.sleep(0)
            self._look_up(AT_ONCE)

    def now(self) -> Mapping[MemberKey, Member]:
        """Everything as it is now; later changes do not touch it. It is the same object until something changes."""
        self._look_up()
        if self._changed:
            self._told, self._changed = self._members.copy(), False
        return self._told

    def stands(self, key: MemberKey, member: Member) -> bool:
        """Whether nothing about it has changed since it was told: its pods are still those that the caches hold."""
        if self._members.get(key) is not member or key in self._dirty:
            return False
        return member.node is None or member.node.metadata.name not in self._with_pods

    def _look_up(self, at_most: int | None = None) -> None:
        for name in list(islice(self._with_pods, at_most)):
            del self._with_pods[name]
            kept = self._cluster.nodes.get(("", name))
            if kept is not None:
                self._touch_node(kept.value)
        if self._with_pods:  # their members first, so that none is looked up twice
            return
        for _ in range(len(self._dirty) if at_most is None else min(at_most, len(self._dirty))):
            key, _ = self._dirty.popitem()
            found = self._claimed(key.name) if key.kind == names.NODECLAIM_KIND else self._unclaimed(key.name)
            self._changed = True
            if found is None:
                self._members.pop(key, None)
            else:
                self._members[key] = found

    def _claimed(self, name: str) -> Member | None:
        kept = self._cluster.claims.get(("", name))
        if kept is None or not self._cluster.manages(kept.value.spec.node_class_ref):
            return None
        return self._member(kept.value, self._cluster.node_of(kept.value))

    def _unclaimed(self, name: str) -> Member | None:
        kept = self._cluster.nodes.get(("", name))
        if kept is None or not self._cluster.manages_node(kept.value) or self._cluster.claim_of(kept.value) is not None:
            return None
        return self._member(None, kept.value)

    def _member(self, claim: objects.NodeClaim | None, node: objects.Node | None) -> Member:
        return Member(claim, node, () if node is None else tuple(self._cluster.pods_on[node.metadata.name]))

    # -- what changed --------------------------------------------------------------------------------------------------

    def _touch_node(self, node: objects.Node) -> None:
        self._dirty[MemberKey("Node", node.metadata.name)] = None
        for name in self._cluster.claim_names(node):
            self._dirty[MemberKey(names.NODECLAIM_KIND, name)] = None

    def _touch_claim(self, claim: objects.NodeClaim) -> None:
        self._dirty[MemberKey(names.NODECLAIM_KIND, claim.metadata.name)] = None
        for node in self._cluster.nodes_of(claim):
            self._dirty[MemberKey("Node", node.metadata.name)] = None

    def _node_changed(self, change: Change[objects.Node]) -> None:
        for node in values_of(change):
            self._touch_node(node)

    def _claim_changed(self, change: Change[objects.NodeClaim]) -> None:
        for claim in values_of(change):
            self._touch_claim(claim)

    def _pod_changed(self, change: Change[PodRecord]) -> None:
        for pod in values_of(change):
            if pod.node_name:
                self._with_pods[pod.node_name] = None


def values_of(change: Change[V]) -> tuple[V, ...]:
    """The object that has changed, as it was and as it is."""
    match change:
        case Added(new=new):
            return (new.value,)
        case Updated(old=old, new=new):
            return old.value, new.value
        case Deleted(old=old):
            return (old.value,)
    return ()
