"""The state of the cluster: a store for each kind of object, and the joins between them.

Watches or the documents of a dump apply changes. The state does no I/O and has no clock.

    state = ClusterState(NodeClassKind(group, kind, plural))
    state.apply("pods", Added(key, kept))
    while state.settle(500): ...              # derive what changed, in slices
    snapshot = state.snapshot()               # every node is the same object until something about it changes
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from dovetail.api import names, objects, pod_specs, storage
from dovetail.model.finding import Finding, Severity
from dovetail.model.pdb_records import PdbRecord, pdb_record
from dovetail.model.pod_records import PodInterner, PodRecord
from dovetail.model.pool_records import pool_record
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings
from dovetail.model.snapshot import ClusterNode, Snapshot
from dovetail.scheduling.default_spread import SchedulerProfiles
from dovetail.scheduling.volumes import Storage
from dovetail.state.derived import Derived
from dovetail.state.instance_types import InstanceTypes
from dovetail.state.nodes import ManagedNodes
from dovetail.state.store import (
    Added,
    Change,
    Index,
    Key,
    KubernetesObject,
    Store,
    StoredValue,
    Synced,
    Updated,
    by_key,
    by_name,
)

_NAME: Final = attrgetter("name")
_IN_NAMESPACE: Final = attrgetter("namespace", "name")


class NodeClassKind(NamedTuple):
    """The kind of node class whose NodePools and NodeClaims we manage (01 §1)."""

    group: str
    kind: str
    plural: str


class Projection(NamedTuple):
    """How objects of a kind are read: the struct of the wire form, and the value that the store keeps."""

    struct: type[Any]
    keep: Callable[[Any], Any]


class ClusterState:
    """A store for each kind, indexes, and the joined nodes.

    `node_class`: without it all nodes count as ours, and pods are kept without what only scheduling reads. That is
    enough for rules and views.
    `failed` is called with errors of subscribers and of derived values; without it, they are raised. `warn` is called
    with lines for the log. `settings`: what rules take as settings.

    `scheduler_profiles`: the configuration of kube-scheduler; only with default spread
    constraints in it are there stores of Services and of the controllers of pods.
    """

    def __init__(
        self,
        node_class: NodeClassKind | None = None,
        *,
        failed: Callable[[str, Exception], object] | None = None,
        warn: Callable[[str], object] = lambda _: None,
        scheduler_profiles: SchedulerProfiles | None = None,
        well_known_labels: frozenset[str] = names.WELL_KNOWN_LABELS,
        settings: RuleSettings = DEFAULT_SETTINGS,
        scheduling: bool | None = None,
    ) -> None:
        """`scheduling`: keep what scheduling reads of pods; by default, with a node class."""
        self._stores: dict[str, Store[Any]] = {}
        self._readings: dict[str, Projection] = {}

        def store(plural: str, struct: Any, keep: Callable[[Any], Any] = lambda item: item) -> Store[Any]:
            self._stores[plural] = Store(plural) if failed is None else Store(plural, failed)
            self._readings[plural] = Projection(struct, keep)
            return self._stores[plural]

        self.node_class = node_class or NodeClassKind("", "", "")
        self.well_known_labels = well_known_labels
        self.settings = settings
        self._all_ours = node_class is None
        self.warn = warn
        self.failed = failed
        by_default = scheduler_profiles is not None and scheduler_profiles.any_constraints
        self.scheduler_profiles = scheduler_profiles if by_default else None
        pods = PodInterner(spread_by_default=by_default, settings=settings)
        self.pods: Store[PodRecord] = (
            store("pods", objects.Pod, pods.pod)
            if not (node_class is not None if scheduling is None else scheduling)
            else store("pods", pod_specs.SchedulingPod, pods.watched_pod)
        )
        self.nodes: Store[objects.Node] = store("nodes", objects.Node)
        self.claims: Store[objects.NodeClaim] = store(names.NODECLAIM_PLURAL, objects.NodeClaim)
        self.pools: Store[objects.NodePool] = store(names.NODEPOOL_PLURAL, objects.NodePool)
        self.node_classes: Store[objects.NodeClass] = store(self.node_class.plural, objects.NodeClass)
        if not self.node_class.plural:  # nobody lists them
            del self._stores[""]
        self.pdbs: Store[PdbRecord] = store("poddisruptionbudgets", objects.PodDisruptionBudget, pdb_record)
        self.attachments: Store[objects.VolumeAttachment] = store("volumeattachments", objects.VolumeAttachment)
        self.stored_claims: Store[storage.PersistentVolumeClaim] = store(
            "persistentvolumeclaims", storage.PersistentVolumeClaim
        )
        self.volumes: Store[storage.PersistentVolume] = store("persistentvolumes", storage.PersistentVolume)
        self.storage_classes: Store[storage.StorageClass] = store("storageclasses", storage.StorageClass)
        self.csi_nodes: Store[storage.CSINode] = store("csinodes", storage.CSINode)
        self.namespaces: Store[Mapping[str, str]] = store(
            "namespaces", objects.Namespace, lambda item: item.metadata.labels
        )
        self.daemon_sets: Store[pod_specs.DaemonSet] = store("daemonsets", pod_specs.DaemonSet)
        if by_default:
            store("services", pod_specs.Service)
            store("replicasets", pod_specs.ReplicaSet)
            store("statefulsets", pod_specs.ReplicaSet)
            store("replicationcontrollers", pod_specs.ReplicationController)
        self.storage = Storage(by_key(self.stored_claims), by_name(self.volumes), by_name(self.storage_classes))
        self.pods_on = Index(self.pods, lambda pod: pod.node_name)
        self.nodes_with = Index(self.nodes, lambda node: node.spec.provider_id)
        self.claims_with = Index(self.claims, lambda claim: claim.status.provider_id)
        self.claims_in = Index(self.claims, lambda claim: claim.metadata.pool)
        self.pdbs_in = Index(self.pdbs, lambda pdb: pdb.namespace)
        self.attachments_to = Index(self.attachments, lambda attachment: attachment.spec.node_name)
        self.claims_of_volume = Index(self.stored_claims, lambda claim: claim.spec.volume_name)
        self.managed = ManagedNodes(self)
        self.instance_types = InstanceTypes(self)
        self._derived: list[tuple[Derived[Any, Any], int]] = [(self.managed.derived, 1)]

    @property
    def stores(self) -> Mapping[str, Store[Any]]:
        """By the plural name of the kind."""
        return self._stores

    def reading(self, plural: str) -> Projection:
        """How objects of this kind are read. Large kinds are kept as compact records."""
        return self._readings[plural]

    def apply(self, plural: str, *changes: Change[Any]) -> None:
        """Applies changes of one kind of object, by its plural name."""
        self._stores[plural].apply(*changes)

    def load(self, plural: str, item: KubernetesObject, key: Key | None = None) -> bool:
        """Adds an object from a document, or replaces it and returns True. Raises ValueError."""
        meta = item.metadata
        kept = StoredValue(meta.uid, meta.resource_version, self._readings[plural].keep(item))
        return self.keep(plural, key or (meta.namespace, meta.name), kept)

    def keep(self, plural: str, key: Key, kept: StoredValue[Any]) -> bool:
        """Adds a value, or replaces it and returns True."""
        store = self._stores[plural]
        old = store.get(key)
        store.apply(Added(key, kept) if old is None else Updated(key, old, kept))
        return old is not None

    def loaded(self) -> None:
        """Call it after the last document."""
        for store in self._stores.values():
            store.apply(Synced())

    def settle(self, at_most: int | None = None) -> bool:
        """Derives what changed, at most at the cost of joining so many nodes. Returns whether work is left."""
        left = at_most
        for derived, cost in self._derived:
            if left is not None and left < cost:
                return True
            before = len(derived)
            if derived.settle(None if left is None else left // cost):
                return True
            left = None if left is None else left - cost * before
        return False

    def settle_too(self, derived: Derived[Any, Any], *, cost: int) -> None:
        """Settles these values with the rest. `cost`: of one value, in joined nodes."""
        self._derived.append((derived, cost))

    def snapshot(self) -> Snapshot:
        """What rules and views read. It has no instant: a forecast asks rules about many."""
        return self.snapshot_later()()

    def snapshot_later(self) -> Callable[[], Snapshot]:
        """Copies what a snapshot needs. The returned function makes it, which takes a while, on any thread."""
        nodes, pods, pools, pdbs = self.managed.all(), self.pods.values(), self.pools.values(), self.pdbs.values()
        problems = self._duplicates()

        def snapshot() -> Snapshot:
            keys = sorted(nodes, key=lambda key: (nodes[key].name, key.kind))
            return Snapshot(
                nodes=tuple([nodes[key].record for key in keys]),
                pods=tuple(sorted(pods, key=_IN_NAMESPACE)),
                pools={
                    pool.name: pool for pool in sorted((pool_record(pool, self.settings) for pool in pools), key=_NAME)
                },
                pdbs=tuple(sorted(pdbs, key=_IN_NAMESPACE)),
                problems=problems,
                settings=self.settings,
            )

        return snapshot

    def _duplicates(self) -> tuple[Finding, ...]:
        """The Nodes and NodeClaims that are not joined because others have the same provider ID."""
        nodes = {provider_id: self.nodes_with[provider_id] for provider_id in self.nodes_with.repeated()}
        claims = {provider_id: self.managed.claims_with(provider_id) for provider_id in self.claims_with.repeated()}
        return (
            *_same_instance(nodes, "Node", "spec.providerID"),
            *_same_instance(claims, names.NODECLAIM_KIND, "status.providerID"),
        )

    # -- ownership ----------------------------------------------------------------------------------------------------

    @property
    def node_class_label(self) -> str:
        """The label of our NodeClaims and Nodes that has the name of their node class."""
        return f"{self.node_class.group}/{self.node_class.kind.lower()}"

    def manages(self, reference: objects.NodeClassReference) -> bool:
        """Whether we manage claims and pools with this reference (01 §1)."""
        return self._all_ours or (reference.group, reference.kind) == (self.node_class.group, self.node_class.kind)

    def manages_claim(self, claim: objects.NodeClaim) -> bool:
        return self.manages(claim.spec.node_class_ref)

    def manages_pool(self, pool: objects.NodePool) -> bool:
        return self.manages(pool.spec.template.spec.node_class_ref)

    def our_pools(self) -> Iterator[objects.NodePool]:
        return filter(self.manages_pool, self.pools.values())

    def manages_node(self, node: objects.Node) -> bool:
        return self._all_ours or self.node_class_label in node.metadata.labels

    # -- joins --------------------------------------------------------------------------------------------------------

    def claim_of(self, node: objects.Node) -> objects.NodeClaim | None:
        """The claim of the node's instance; None if there are several (03 §10.2)."""
        claims = self.claims_of(node)
        return claims[0] if len(claims) == 1 else None

    def consistent_claim_of(self, node: objects.Node) -> objects.NodeClaim | None:
        """Like `claim_of`, but raises InFlight while the store does not show our last write to the claim."""
        claim = self.claim_of(node)
        return None if claim is None else self.claims.get_consistent(claim.metadata.name)

    def claims_of(self, node: objects.Node) -> list[objects.NodeClaim]:
        return self.claims_with[node.spec.provider_id]

    def claim_names(self, node: objects.Node) -> list[str]:
        return [claim.metadata.name for claim in self.claims_of(node)]

    def node_of(self, claim: objects.NodeClaim) -> objects.Node | None:
        """The Node of the claim's instance; None if there are several."""
        nodes = self.nodes_of(claim)
        return nodes[0] if len(nodes) == 1 else None

    def nodes_of(self, claim: objects.NodeClaim) -> list[objects.Node]:
        return self.nodes_with[claim.status.provider_id]

    def node_names(self, claim: objects.NodeClaim) -> list[str]:
        return [node.metadata.name for node in self.nodes_of(claim)]

    def member(self, claim: objects.NodeClaim) -> ClusterNode:
        """The claim with its Node and pods, as records for the rules."""
        return self.managed.of_claim(claim).record


def _same_instance(groups: Mapping[str, Sequence[KubernetesObject]], kind: str, field: str) -> Iterator[Finding]:
    for provider_id, group in sorted(groups.items(), key=lambda entry: entry[1][0].metadata.name):
        for item in group if len(group) > 1 else ():
            yield Finding(
                severity=Severity.WARNING,
                rule="DuplicateProviderID",
                object=Ref(kind, "", item.metadata.name),
                field=field,
                message=f"{len(group)} {kind}s have the provider ID {provider_id}; none of them is matched",
                remedy="delete the one whose instance is gone",
            )
