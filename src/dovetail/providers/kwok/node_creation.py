"""Creates the Nodes of launched kwok NodeClaims, because no kubelet does (07 §4).

A launched claim that is not registered and has no Node gets one, whichever process launched it. The claim records the
name of its Node, so a crash neither loses a Node nor creates a second one.
"""

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import ClaimController, seconds_until
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, NODES, AlreadyExists, Create, Invalid, NotFound
from dovetail.providers.kwok.nodes import appears_at, launched_instance, name_in, node_body
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.work_queue import Done, Outcome, TerminalFailure
from dovetail.state.store import Added, Change, Deleted, Updated


class KwokNodes(ClaimController):
    name = "kwok.nodes"

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__(cluster)
        self.follow(cluster.nodes, cluster.claim_names)
        self.follow(cluster.node_classes, self._claims_of_class)

    def _claims_of_class(self, node_class: objects.NodeClass) -> list[str]:
        """Returns the claims that may wait for the delay of the class."""
        return [
            claim.metadata.name
            for claim in self.cluster.claims.values()
            if claim.spec.node_class_ref.name == node_class.metadata.name and self._awaits_node(claim)
        ]

    def _awaits_node(self, claim: objects.NodeClaim) -> bool:
        launched = self.cluster.manages_claim(claim) and appears_at(claim, None) is not None
        return launched and not self.cluster.nodes_of(claim)

    async def reconcile_claim(self, claim: objects.NodeClaim) -> Outcome:
        if not self._awaits_node(claim):
            return Done()
        self.cluster.nodes.get_consistent(name_in(claim.status.provider_id))  # raises InFlight while our own create is
        due_at = appears_at(claim, await self._node_class(claim))
        if due_at is None:  # a delay beyond the calendar
            return Done()
        if (now := self.clock.now()) < due_at:
            return Done(seconds_until(due_at, now))
        return await self._make_node(claim)

    async def _make_node(self, claim: objects.NodeClaim) -> Outcome:
        # The watches of NodeClaims and Nodes are independent: a deleted Node may disappear before the store shows that
        # its claim was registered. Such a Node must not be created again.
        try:
            fresh = await self.api.get(NODECLAIMS, claim.metadata.name)
        except NotFound:
            return Done()
        if fresh.metadata.uid != claim.metadata.uid or appears_at(fresh, None) is None:
            return Done()
        # If the claim is deleted before its Node is created, Kubernetes' garbage collection deletes the Node with its
        # owner.
        try:
            made = await self.api.write(Create(NODES, node_body(launched_instance(fresh), owner=fresh)))
        except AlreadyExists:
            return Done()
        except Invalid as error:
            return TerminalFailure(f"its Node is refused: {error}")
        self.cluster.nodes.note_write(made)
        return Done()

    async def _node_class(self, claim: objects.NodeClaim) -> objects.KWOKNodeClass | None:
        if not claim.spec.node_class_ref.name:
            return None
        try:
            return await self.api.get(KWOK_NODECLASSES, claim.spec.node_class_ref.name)
        except NotFound:  # deleted since the launch
            return None


def follow_interruptions(cluster: WatchedCluster, provider: KwokProvider) -> None:
    """Shows the provider all Nodes, so that it finds those with the interruption annotation (R41)."""

    def on_change(change: Change[objects.Node]) -> None:
        match change:
            case Added(new=new) | Updated(new=new):
                provider.node_seen(new.value)
            case Deleted(old=old):
                provider.node_gone(old.value)

    cluster.nodes.subscribe(on_change)
