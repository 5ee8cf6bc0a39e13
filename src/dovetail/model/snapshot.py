"""The cluster as values: what rules and views read. `state/` makes them."""

import msgspec

from dovetail.model.finding import Finding
from dovetail.model.node_records import ClaimRecord, InstanceLabels, NodeRecord
from dovetail.model.pdb_records import PdbRecord
from dovetail.model.pod_records import PodRecord
from dovetail.model.pool_records import PoolRecord
from dovetail.model.record_fields import Record
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings


class ClusterNode(Record, frozen=True):
    """A NodeClaim and its Node, either of which may be missing, with the pods bound to the Node."""

    claim: ClaimRecord | None
    node: NodeRecord | None
    pods: tuple[PodRecord, ...] = ()

    @property
    def name(self) -> str:
        return self.node.name if self.node is not None else self.claim.name if self.claim is not None else ""

    @property
    def object(self) -> Ref:
        return self.node.object if self.node is not None else self.claim.object if self.claim is not None else Ref("")

    @property
    def pool(self) -> str:
        """The claim speaks until the node is registered, then the node does (02 §1)."""
        if self.node is not None and (self.node.registered or self.claim is None):
            return self.node.pool
        return self.claim.pool if self.claim is not None else ""

    @property
    def managed(self) -> bool:
        """Whether a NodePool owns it. Other nodes, such as Fargate's, run pods, and no rule here is about them."""
        return self.claim is not None or bool(self.pool)

    @property
    def machine(self) -> InstanceLabels:
        """By the Node's labels; without a Node, by the NodeClaim's."""
        part = self.node or self.claim
        return InstanceLabels() if part is None else part.machine

    @property
    def deleting(self) -> bool:
        return any(part is not None and part.deleted_at is not None for part in (self.claim, self.node))


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What decisions read. Everything is sorted by name, so that the same input gives the same answer."""

    nodes: tuple[ClusterNode, ...] = ()
    pods: tuple[PodRecord, ...] = ()
    pools: dict[str, PoolRecord] = {}
    pdbs: tuple[PdbRecord, ...] = ()
    problems: tuple[Finding, ...] = ()
    settings: RuleSettings = DEFAULT_SETTINGS
