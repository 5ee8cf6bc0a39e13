"""What do the controllers know of the cluster?

One reflector a kind, shared by all controllers, with the indexes between the kinds. Large kinds are kept as compact
records, the ones we write as partial structs. A cache also knows which of our own writes its watch has not told of yet:
until then what it holds is out of date, and acting on it would do things twice (DESIGN §5).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from dovetail.api import names, objects, pod_specs, storage
from dovetail.model.records import PdbRecord, PodRecord, Recorder, pdb_record
from dovetail.model.snapshot import ClusterNode, cluster_node
from dovetail.ports import (
    CSI_NODES,
    DAEMONSETS,
    NAMESPACES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PODS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    VOLUME_CLAIMS,
    VOLUMES,
    Clock,
    KubeApi,
    Resource,
)
from dovetail.runtime.failures import Failures
from dovetail.runtime.reflector import (
    Added,
    Change,
    Deleted,
    Kept,
    Key,
    Named,
    Reflector,
    ReflectorTimings,
    Synced,
    Updated,
)
from dovetail.scheduling.volumes import Storage
from dovetail.state.members import Members

T = TypeVar("T", bound=Named)
V = TypeVar("V")
K = TypeVar("K")


class InFlight(Exception):
    """An own write is not reflected yet; whoever asks is asked again when it is."""


class Cache(Reflector[T, V]):
    """The objects of one kind, and our own writes to them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._written: dict[Key, int] = {}  # the version of our last write, while the watch is behind it
        self._doomed: dict[Key, str] = {}  # the UID of what we deleted, while the watch does not show it
        self.subscribe(self._settle)

    def wrote(self, written: Named) -> None:
        """What we wrote, as the server answered; the watch may have been faster, and the object even be gone."""
        version = _number(written.metadata.resource_version)
        if version > self._reached:
            self._written[written.metadata.namespace, written.metadata.name] = version

    def doomed(self, name: str, uid: str, namespace: str = "") -> None:
        """We have deleted or evicted it."""
        known = self.get((namespace, name))
        if known is not None and known.uid == uid and not _is_deleting(known.value):
            self._doomed[namespace, name] = uid

    def current(self, name: str, namespace: str = "") -> V | None:
        """The object, or None if there is none. Raises InFlight."""
        key = (namespace, name)
        if self._written.get(key, 0) > self._reached or key in self._doomed:
            raise InFlight(f"{self.name} {name}")
        kept = self.get(key)
        return None if kept is None else kept.value

    def unseen(self) -> list[str]:
        """Names of what we made and the watch has not told of yet."""
        written = ((key, version) for key, version in self._written.items() if version > self._reached)
        return sorted(key[1] for key, _ in written if self.get(key) is None)

    def values(self) -> Iterable[V]:
        return (kept.value for kept in self.snapshot().items.values())

    @property
    def _reached(self) -> int:
        """The version up to which the watch has told everything."""
        return _number(self._version)

    def _settle(self, change: Change[V]) -> None:
        match change:
            case Added(key=key, new=new) | Updated(key=key, new=new):
                self._forget_written(key)
                if self._doomed.get(key) != new.uid or _is_deleting(new.value):
                    self._doomed.pop(key, None)
            case Deleted(key=key):
                self._forget_written(key)
                self._doomed.pop(key, None)
            case Synced():
                self._doomed.clear()
                for key in list(self._written):
                    self._forget_written(key)

    def _forget_written(self, key: Key) -> None:
        if self._written.get(key, 0) <= self._reached:
            self._written.pop(key, None)


def _is_deleting(value: object) -> bool:
    if isinstance(value, PodRecord):
        return value.deleted_at is not None
    metadata: objects.ObjectMeta | None = getattr(value, "metadata", None)
    return metadata is not None and metadata.deletion_timestamp is not None


def _number(version: str) -> int:
    """Versions of one resource are numbers that grow; anything else is taken for reflected at once."""
    return int(version) if version.isdecimal() else 0


class Index(Generic[V]):
    """The objects of a cache by some text of theirs; those without one are left out."""

    def __init__(self, cache: Reflector[Any, V], text_of: Callable[[V], str]) -> None:
        self._text_of = text_of
        self._groups: dict[str, dict[Key, V]] = {}
        cache.subscribe(self._follow)

    def __getitem__(self, text: str) -> list[V]:
        """Sorted by name, so that the same state gives the same order."""
        group = self._groups.get(text, {}) if text else {}
        return [group[key] for key in sorted(group)]

    def values(self) -> Iterator[V]:
        """All that have a text, by text."""
        return (value for group in self._groups.values() for value in group.values())

    def _follow(self, change: Change[V]) -> None:
        match change:
            case Added(key=key, new=new):
                self._put(key, new)
            case Updated(key=key, old=old, new=new):
                if self._text_of(old.value) != self._text_of(new.value):
                    self._drop(key, old)
                self._put(key, new)
            case Deleted(key=key, old=old):
                self._drop(key, old)

    def _put(self, key: Key, kept: Kept[V]) -> None:
        if text := self._text_of(kept.value):
            self._groups.setdefault(text, {})[key] = kept.value

    def _drop(self, key: Key, kept: Kept[V]) -> None:
        text = self._text_of(kept.value)
        group = self._groups.get(text)
        if group is not None and group.pop(key, None) is not None and not group:
            del self._groups[text]


class Values(Mapping[K, V]):
    """The objects of a cache as they are at the time of asking, each by what `key_of` makes of the key asked for."""

    def __init__(self, cache: Reflector[Any, V], key_of: Callable[[K], Key], from_key: Callable[[Key], K]) -> None:
        self._cache = cache
        self._key_of = key_of
        self._from_key = from_key

    def __getitem__(self, key: K) -> V:
        kept = self._cache.get(self._key_of(key))
        if kept is None:
            raise KeyError(key)
        return kept.value

    def __iter__(self) -> Iterator[K]:
        return map(self._from_key, self._cache.snapshot().items)

    def __len__(self) -> int:
        return len(self._cache.snapshot().items)


def by_name(cache: Reflector[Any, V]) -> Values[str, V]:
    """The objects of a kind that has no namespaces."""
    return Values(cache, lambda name: ("", name), lambda key: key[1])


def _same(item: T) -> T:
    return item


def _same_key(key: Key) -> Key:
    return key


class Cluster:
    """All caches and indexes."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        node_classes: Resource[objects.NodeClass],
        *,
        seed: int = 0,
        timings: ReflectorTimings = ReflectorTimings(),  # noqa: B008  frozen
        failures: Failures | None = None,
    ) -> None:
        def cache(resource: Resource[T], keep: Callable[[T], V]) -> Cache[T, V]:
            return Cache(api, clock, resource, keep, seed=seed, timings=timings, failures=failures)

        self.clock = clock
        self.node_class_kind = node_classes
        self.pods: Cache[pod_specs.WatchedPod, PodRecord] = cache(
            PODS.read_as(pod_specs.WatchedPod), Recorder().watched_pod
        )
        self.nodes: Cache[objects.Node, objects.Node] = cache(NODES, _same)
        self.claims: Cache[objects.NodeClaim, objects.NodeClaim] = cache(NODECLAIMS, _same)
        self.pools: Cache[objects.NodePool, objects.NodePool] = cache(NODEPOOLS, _same)
        self.node_classes: Cache[objects.NodeClass, objects.NodeClass] = cache(
            node_classes.read_as(objects.NodeClass), _same
        )
        self.pdbs: Cache[objects.PodDisruptionBudget, PdbRecord] = cache(PDBS, pdb_record)
        self.attachments: Cache[objects.VolumeAttachment, objects.VolumeAttachment] = cache(VOLUME_ATTACHMENTS, _same)
        self.stored_claims: Cache[storage.VolumeClaim, storage.VolumeClaim] = cache(VOLUME_CLAIMS, _same)
        self.volumes: Cache[storage.Volume, storage.Volume] = cache(VOLUMES, _same)
        self.storage_classes: Cache[storage.StorageClass, storage.StorageClass] = cache(STORAGE_CLASSES, _same)
        self.csi_nodes: Cache[storage.CSINode, storage.CSINode] = cache(CSI_NODES, _same)
        self.namespaces: Cache[objects.Namespace, Mapping[str, str]] = cache(
            NAMESPACES, lambda namespace: namespace.metadata.labels
        )
        self.daemon_sets: Cache[pod_specs.DaemonSet, pod_specs.DaemonSet] = cache(DAEMONSETS, _same)
        self.storage = Storage(
            Values(self.stored_claims, _same_key, _same_key), by_name(self.volumes), by_name(self.storage_classes)
        )
        self.pods_on = Index(self.pods, lambda pod: pod.node_name)
        self.nodes_with = Index(self.nodes, lambda node: node.spec.provider_id)
        self.claims_with = Index(self.claims, lambda claim: claim.status.provider_id)
        self.claims_in = Index(self.claims, lambda claim: claim.metadata.labels.get(names.NODEPOOL_LABEL, ""))
        self.pdbs_in = Index(self.pdbs, lambda pdb: pdb.namespace)
        self.attachments_to = Index(self.attachments, lambda attachment: attachment.spec.node_name)
        self.claims_of_volume = Index(self.stored_claims, lambda claim: claim.spec.volume_name)
        self.members = Members(self)  # one for all: thousands of them are looked up after the first lists

    @property
    def reflectors(self) -> list[Reflector[Any, Any]]:
        return [
            self.pods,
            self.nodes,
            self.claims,
            self.pools,
            self.node_classes,
            self.pdbs,
            self.attachments,
            self.stored_claims,
            self.volumes,
            self.storage_classes,
            self.csi_nodes,
            self.namespaces,
            self.daemon_sets,
        ]

    # -- whose object is it -------------------------------------------------------------------------------------------

    @property
    def node_class_label(self) -> str:
        """On NodeClaims and Nodes of ours, with the name of their node class."""
        return f"{self.node_class_kind.group}/{self.node_class_kind.kind.lower()}"

    def manages(self, reference: objects.NodeClassReference) -> bool:
        """Whether claims and pools with this reference are ours to act on (01 §1)."""
        return (reference.group, reference.kind) == (self.node_class_kind.group, self.node_class_kind.kind)

    def manages_node(self, node: objects.Node) -> bool:
        return self.node_class_label in node.metadata.labels

    # -- what belongs together ----------------------------------------------------------------------------------------

    def claim_of(self, node: objects.Node) -> objects.NodeClaim | None:
        """The claim of the node's instance; None if there are several, none of which can be right (03 §10.2)."""
        found = self.claims_of(node)
        return found[0] if len(found) == 1 else None

    def claims_of(self, node: objects.Node) -> list[objects.NodeClaim]:
        return self.claims_with[node.spec.provider_id]

    def claim_names(self, node: objects.Node) -> list[str]:
        return [claim.metadata.name for claim in self.claims_of(node)]

    def node_of(self, claim: objects.NodeClaim) -> objects.Node | None:
        """The Node of the claim's instance; None if there are several."""
        found = self.nodes_of(claim)
        return found[0] if len(found) == 1 else None

    def nodes_of(self, claim: objects.NodeClaim) -> list[objects.Node]:
        return self.nodes_with[claim.status.provider_id]

    def node_names(self, claim: objects.NodeClaim) -> list[str]:
        return [node.metadata.name for node in self.nodes_of(claim)]

    def member(self, claim: objects.NodeClaim) -> ClusterNode:
        """The claim with its Node and pods, as the rules read them."""
        node = self.node_of(claim)
        return cluster_node(claim, node, () if node is None else tuple(self.pods_on[node.metadata.name]))
