"""When does a launched claim get its Node, where nothing but us makes one (07 §4)?

Level-based: a launched claim that is not registered and has no Node gets it, whichever process launched it. A crash at
any point loses nothing, and the name, which the claim records, doubles nothing.
"""

from collections.abc import Iterable

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController, seconds_until
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, NODES, AlreadyExists, Create, Invalid, NotFound
from dovetail.providers.kwok.nodes import appears_at, launched_instance, name_in, node_body
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.work_queue import Done, Outcome, TerminalFailure
from dovetail.state.store import Added, Change, Deleted, Updated


class KwokNodes(KeyedController[str]):
    """Makes Nodes. Keys are the names of claims."""

    name = "kwok.nodes"

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.follow(cluster.claims, lambda claim: [claim.metadata.name])
        self.follow(cluster.nodes, cluster.claim_names)
        self.follow(cluster.node_classes, self._claims_of_class)

    def keys(self) -> Iterable[str]:
        return [claim.metadata.name for claim in self._cluster.claims.values()]

    def _claims_of_class(self, node_class: objects.NodeClass) -> list[str]:
        """Those that may be waiting for its delay."""
        return [
            claim.metadata.name
            for claim in self._cluster.claims.values()
            if claim.spec.node_class_ref.name == node_class.metadata.name and self._awaits_node(claim)
        ]

    def _awaits_node(self, claim: objects.NodeClaim) -> bool:
        return (
            self._cluster.manages(claim.spec.node_class_ref)
            and appears_at(claim, None) is not None
            and not self._cluster.nodes_of(claim)
        )

    async def reconcile(self, key: str) -> Outcome:
        claim = self._cluster.claims.current(key)
        if claim is None or not self._awaits_node(claim):
            return Done()
        self._cluster.nodes.current(name_in(claim.status.provider_id))  # an own create may be in flight
        due_at = appears_at(claim, await self._node_class(claim))
        if due_at is None:  # a delay beyond the calendar
            return Done()
        if (now := self.clock.now()) < due_at:
            return Done(seconds_until(due_at, now))
        return await self._make_node(claim)

    async def _make_node(self, claim: objects.NodeClaim) -> Outcome:
        # The caches of claims and Nodes are not of one instant: a Node may be gone in the one before the other tells
        # that the claim was registered, and must not come back.
        try:
            fresh = await self.api.get(NODECLAIMS, claim.metadata.name)
        except NotFound:
            return Done()
        if fresh.metadata.uid != claim.metadata.uid or appears_at(fresh, None) is None:
            return Done()
        # The claim can still go before its Node is there. Then garbage collection takes the Node: its owner is gone;
        # registration would name the same owner.
        try:
            made = await self.api.write(Create(NODES, node_body(launched_instance(fresh), owner=fresh)))
        except AlreadyExists:
            return Done()
        except Invalid as error:
            return TerminalFailure(f"its Node is refused: {error}")
        self._cluster.nodes.wrote(made)
        return Done()

    async def _node_class(self, claim: objects.NodeClaim) -> objects.KWOKNodeClass | None:
        if not claim.spec.node_class_ref.name:
            return None
        try:
            return await self.api.get(KWOK_NODECLASSES, claim.spec.node_class_ref.name)
        except NotFound:  # deleted since the launch
            return None


def follow_interruptions(cluster: WatchedCluster, provider: KwokProvider) -> None:
    """Let the provider see the Nodes whose annotation says that they are going to be taken away (R41)."""

    def told(change: Change[objects.Node]) -> None:
        match change:
            case Added(new=new) | Updated(new=new):
                provider.node_seen(new.value)
            case Deleted(old=old):
                provider.node_gone(old.value)

    cluster.nodes.subscribe(told)
