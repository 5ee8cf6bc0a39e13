"""Ports of the controllers: the API server, the clock, the cloud, and heavy computations.

Each protocol has a real and a simulated implementation; the contract tests check that they behave alike.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar

import msgspec

from dovetail.api import names, objects, pod_specs, storage
from dovetail.model.instance_types import TypeCatalogue
from dovetail.planning.node.health import RepairPolicy
from dovetail.state.store import UndecodableObject
from dovetail.values.foreign_text import plain

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
U = TypeVar("U")

WriteBody = Mapping[str, Any]


# -- resources --------------------------------------------------------------------------------------------------------


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """A kind of object in the API, and the struct for its objects."""

    group: str
    version: str
    plural: str
    kind: str
    struct: type[T]
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def read_as(self, type_: type[U]) -> "Resource[U]":
        """The same kind with another struct."""
        return Resource(self.group, self.version, self.plural, self.kind, type_, self.namespaced)


PODS = Resource("", "v1", "pods", "Pod", objects.Pod, namespaced=True)
NODES = Resource("", "v1", "nodes", "Node", objects.Node)
PDBS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", objects.PodDisruptionBudget, namespaced=True
)
NODEPOOLS = Resource(names.GROUP, names.VERSION, names.NODEPOOL_PLURAL, names.NODEPOOL_KIND, objects.NodePool)
NODECLAIMS = Resource(names.GROUP, names.VERSION, names.NODECLAIM_PLURAL, names.NODECLAIM_KIND, objects.NodeClaim)
KWOK_NODECLASSES = Resource(
    names.KWOK_GROUP, names.KWOK_VERSION, names.KWOK_NODECLASS_PLURAL, names.KWOK_NODECLASS_KIND, objects.KWOKNodeClass
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", objects.Lease, namespaced=True)
VOLUME_ATTACHMENTS = Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", objects.VolumeAttachment)
VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", storage.PersistentVolumeClaim, namespaced=True
)
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", storage.PersistentVolume)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", storage.StorageClass)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", storage.CSINode)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", objects.Namespace)
DAEMONSETS = Resource("apps", "v1", "daemonsets", "DaemonSet", pod_specs.DaemonSet, namespaced=True)
REPLICASETS = Resource("apps", "v1", "replicasets", "ReplicaSet", pod_specs.ReplicaSet, namespaced=True)
STATEFULSETS = Resource("apps", "v1", "statefulsets", "StatefulSet", pod_specs.ReplicaSet, namespaced=True)
REPLICATION_CONTROLLERS = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController", pod_specs.ReplicationController, namespaced=True
)
SERVICES = Resource("", "v1", "services", "Service", pod_specs.Service, namespaced=True)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", dict[str, Any], namespaced=True)


class PatchType(StrEnum):
    """The type of a patch; the value is its media type."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class Propagation(StrEnum):
    """What happens to the dependents of a deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


# -- writes -----------------------------------------------------------------------------------------------------------


class Write(msgspec.Struct, Generic[T], frozen=True):
    """A change of one object: Create, Patch, Delete or Evict. T is the result: the object, or None."""

    verb: ClassVar[str]

    @property
    def resource(self) -> Resource[Any]:
        raise NotImplementedError

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def namespace(self) -> str | None:
        raise NotImplementedError

    @property
    def subresource(self) -> str:
        return ""


class Create(Write[T], frozen=True):
    """Create an object. Raises AlreadyExists."""

    verb = "create"
    resource: Resource[T]
    body: WriteBody
    namespace: str | None = None

    @property
    def name(self) -> str:
        """Empty if the server generates it."""
        return str((self.body.get("metadata") or {}).get("name", ""))


class Patch(Write[T], frozen=True):
    """Change an object. A `metadata.resourceVersion` or `metadata.uid` in the body is a precondition (Conflict)."""

    verb = "patch"
    resource: Resource[T]
    name: str
    body: WriteBody
    namespace: str | None = None
    type_: PatchType = PatchType.MERGE
    subresource: str = ""


class Delete(Write[None], frozen=True):
    """Delete an object. The UID and the resource version, if given, are preconditions (Conflict)."""

    verb = "delete"
    resource: Resource[Any]
    name: str
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    grace_seconds: int | None = None
    propagation: Propagation | None = None


class Evict(Write[None], frozen=True):
    """Evict a pod. Raises TooManyRequests if a PDB does not allow it, InternalError if there are several."""

    verb = "evict"
    name: str
    namespace: str
    uid: str = ""
    grace_seconds: int | None = None

    @property
    def resource(self) -> Resource[Any]:
        return PODS

    @property
    def subresource(self) -> str:
        return "eviction"

    @property
    def deletion(self) -> Delete:
        """The deletion that a permitted eviction makes."""
        return Delete(PODS, self.name, namespace=self.namespace, uid=self.uid, grace_seconds=self.grace_seconds)


# -- results ----------------------------------------------------------------------------------------------------------


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list; `continue_` requests the next one, and is empty at the end."""

    items: Sequence[T]
    resource_version: str
    continue_: str = ""
    undecodable: int = 0
    unread: Sequence[UndecodableObject] = ()  # the undecodable ones that could be named


class EventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """A change. `object` is None for a bookmark, which only advances `resource_version`.

    It is also None if the object cannot be decoded; `problem` says why, and the watch goes on.
    """

    type: EventType
    resource_version: str
    object: T | None
    problem: str = ""
    unread: UndecodableObject | None = None  # the undecodable object, if it could be named


# -- errors -----------------------------------------------------------------------------------------------------------


class ApiError(Exception):
    """The API server refused the request or did not answer. The message is one line without credentials."""

    def __init__(self, message: str, *, code: int = 0, reason: str = "") -> None:
        self.message = plain(message)
        super().__init__(self.message)
        self.code = code
        self.reason = reason


class NotFound(ApiError):
    """The object does not exist, or has another UID."""


class Conflict(ApiError):
    """A precondition failed: the object has changed, or is another one."""


class AlreadyExists(ApiError):
    """An object of this name exists."""


class TooManyRequests(ApiError):
    """The server is busy, or a PodDisruptionBudget does not allow the eviction."""

    def __init__(
        self, message: str, *, code: int = 429, reason: str = "TooManyRequests", retry_after: float = 0.0
    ) -> None:
        super().__init__(message, code=code, reason=reason)
        self.retry_after = retry_after


class Gone(ApiError):
    """The resource version is too old; list again."""


class Invalid(ApiError):
    """The object or the request is invalid; repeating it does not help."""


class Forbidden(ApiError):
    """The credentials lack the right, or the lease is lost."""


class Unavailable(ApiError):
    """The request has certainly not taken effect: no connection, or the server said so."""


class InternalError(ApiError):
    """The server failed (500), for example to evict a pod with two PodDisruptionBudgets."""


class OutcomeUnknown(ApiError):
    """The request may have taken effect: read before repeating it."""


# -- ports ------------------------------------------------------------------------------------------------------------


class Watch(Protocol[T]):
    """A stream of changes. It holds a connection: close it (`contextlib.aclosing`)."""

    def __aiter__(self) -> AsyncIterator[WatchEvent[T]]: ...

    async def __anext__(self) -> WatchEvent[T]: ...

    async def aclose(self) -> None:
        """End the watch."""


class KubeApi(Protocol):
    """The Kubernetes API. Every call may raise ApiError."""

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        continue_: str = "",
    ) -> Page[T]:
        """One page. Raises Gone if `continue_` is too old."""

    def watch(
        self,
        resource: Resource[T],
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        timeout_seconds: int = 300,
    ) -> Watch[T]:
        """Changes after the version, with bookmarks, until the server ends the watch. Raises Gone if the version is too
        old.
        """

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        """The current object."""

    async def write(self, write: Write[T]) -> T:
        """Make the change."""


class Clock(Protocol):
    """The time. Nothing else may be asked for it, so that it can be simulated."""

    def now(self) -> datetime:
        """The instant, in UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class Compute(Protocol):
    """Runs heavy passes: on a worker thread in production, inline in the simulator (R45)."""

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of the function, which must only read its arguments."""


# -- cloud providers --------------------------------------------------------------------------------------------------


class CloudError(Exception):
    """The provider failed; retry, unless it is one of the errors below.

    `retry_after`: the seconds that the provider asks us to wait, as when it throttles; 0: it says nothing.
    """

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InstanceGone(CloudError):
    """The instance does not exist any more. For a deletion this is success."""


class InsufficientCapacity(CloudError):
    """No offering that the claim accepts is available; the claim is given up."""


class NodeClassNotReady(CloudError):
    """The node class is not ready; the claim is given up."""


class CreateFailed(CloudError):
    """The launch failed for a reason to report in the `Launched` condition; it is retried."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the provider, as a NodeClaim records it."""

    provider_id: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    capacity: objects.Quantities = {}
    allocatable: objects.Quantities = {}
    image_id: str = ""
    deleting: bool = False
    # Set by a provider that cannot tell whether the machine is gone: since when it is being ended and not ready.
    silent_since: datetime | None = None
    claim_uid: str = ""  # of its NodeClaim, to find unknown machines again
    claim_name: str = ""


class Interruption(msgspec.Struct, frozen=True, kw_only=True):
    """The provider is going to take this machine away (R41).

    `force`: do not wait for protected pods; the drain ends at once if there is no deadline. Without `act` it is only a
    warning: it is reported, and the node stays.
    """

    provider_id: str
    kind: str
    deadline: datetime | None = None
    force: bool = False
    act: bool = True


class CloudProvider(Protocol):
    """Creates and deletes machines (07 §8). Every call may raise CloudError."""

    name: str
    # Only NodePools and NodeClaims whose nodeClassRef is of this kind are ours to act on (01 §1).
    node_classes: Resource[objects.NodeClass]

    async def create(self, claim: objects.NodeClaim) -> Instance:
        """Launch a machine for the claim. Called again after an error: the claim's UID makes it idempotent."""

    async def delete(self, claim: objects.NodeClaim) -> None:
        """Begin to delete the machine, or check the progress. Called again until it raises InstanceGone.

        A CloudError with `retry_after` is retried after that time.
        """

    async def get(self, provider_id: str) -> Instance:
        """The machine. Raises InstanceGone."""

    async def list(self) -> Sequence[Instance]:
        """All machines of NodeClaims, including those that are being deleted."""

    async def instance_types(self, pool: objects.NodePool) -> TypeCatalogue:
        """The instance types for the pool."""

    async def drift_reason(self, claim: objects.NodeClaim) -> str:
        """Why the machine differs from its node class; empty if it does not."""

    def repair_policies(self) -> Sequence[RepairPolicy]:
        """The conditions that make a node unhealthy."""

    def interruptions(self) -> AsyncIterator[Interruption]:
        """Notices as they arrive. Each listener first gets all that are not dealt with."""

    def dealt_with(self, notice: Interruption) -> None:
        """The notice has been acted on, and the result is written: do not repeat it."""
