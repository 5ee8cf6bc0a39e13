"""What do all workload controllers do alike: make pods from a template, count them, and write a status?"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.wire import (
    PODS,
    Kind,
    Raw,
    active,
    available_at,
    controller_of,
    controller_uid,
    deleting,
    finished,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    oldest_first,
    owner_reference,
    pod_ready,
    selector_of,
    status_of,
    uid_of,
)
from dovetail.values.selector import Selector

BY_CONTROLLER = "controller"
ORPHANS = "orphans"  # pods without a controller, by namespace


class ReplicaCounts(NamedTuple):
    """The pods of a workload, counted as statuses do."""

    replicas: int
    ready: int
    available: int
    terminating: int
    recheck_at: datetime | None  # when the next ready pod becomes available


def count(pods: Iterable[Raw], *, min_ready_seconds: int, now: datetime) -> ReplicaCounts:
    """Active pods, of which ready, of which available; and those on their way out."""
    replicas = ready = available = terminating = 0
    recheck_at: datetime | None = None
    for pod in pods:
        if not active(pod):
            terminating += deleting(pod) and not finished(pod)
            continue
        replicas += 1
        since = available_at(pod, min_ready_seconds)
        ready += since is not None
        if since is not None and since <= now:
            available += 1
        elif since is not None and (recheck_at is None or since < recheck_at):
            recheck_at = since
    return ReplicaCounts(replicas, ready, available, terminating, recheck_at)


def is_available(pod: Raw, min_ready_seconds: int, now: datetime) -> bool:
    since = available_at(pod, min_ready_seconds)
    return since is not None and since <= now


def running_and_ready(pod: Raw) -> bool:
    return status_of(pod).get("phase") == "Running" and pod_ready(pod)


def pod_from_template(
    kind: Kind,
    owner: Raw,
    template: Raw,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    finalizers: Iterable[str] = (),
) -> dict[str, Any]:
    """A pod of the owner; without a name the server makes one up from the owner's."""
    meta = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "namespace": namespace_of(owner),
        "labels": {**(meta.get("labels") or {}), **(labels or {})},
        "ownerReferences": [owner_reference(kind, owner)],
    }
    metadata.update({"name": name} if name else {"generateName": f"{name_of(owner)}-"})
    if annotations := meta.get("annotations"):
        metadata["annotations"] = dict(annotations)
    if finalizers := [*(meta.get("finalizers") or ()), *finalizers]:
        metadata["finalizers"] = finalizers
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": deepcopy(template["spec"])}


def status_change(obj: Raw, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that differ. None and 0 stand for a field left out where the API leaves it out."""
    have = status_of(obj)
    return {field: value for field, value in wanted.items() if have.get(field) != value}


def or_none(number: int) -> int | None:
    """Statuses leave zeros out."""
    return number or None


class WorkloadActor(Actor):
    """A controller of one kind; woken by its objects and by the pods they control."""

    kind: ClassVar[Kind]

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self.objects = world.store(self.kind)
        self._selectors: dict[str, Selector | None] = {}  # by UID
        self.pods = world.store(PODS)
        self.pods.index(BY_CONTROLLER, controller_uid)
        self.pods.index(ORPHANS, lambda pod: "" if controller_uid(pod) else namespace_of(pod))
        self.objects.on_change(self._object_changed)
        self.pods.on_change(self._pod_changed)

    def _object_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is not None:
            self._selectors[uid_of(new)] = selector_of(new["spec"].get("selector"))
            self.enqueue(key_of(new))
        elif old is not None:
            self._selectors.pop(uid_of(old), None)

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        pod = new or old
        assert pod is not None
        for each in (old, new):  # a pod that is released concerns its former owner
            reference = None if each is None else controller_of(each)
            if reference is not None and reference["kind"] == self.kind.kind:
                self.enqueue(f"{namespace_of(pod)}/{reference['name']}")
        if new is not None and controller_of(new) is None and active(new):
            for key, owner in self.objects.items.items():
                if self.adopts(owner, new):
                    self.enqueue(key)

    def pods_of(self, owner: Raw) -> list[Raw]:
        """The pods that the owner controls, oldest first."""
        found = self.pods.under(BY_CONTROLLER, owner["metadata"]["uid"])
        return sorted(found.values(), key=oldest_first)

    def adopts(self, owner: Raw, pod: Raw) -> bool:
        """Whether a pod without a controller is the owner's to take."""
        if namespace_of(owner) != namespace_of(pod) or deleting(owner):
            return False
        selector = self._selectors.get(uid_of(owner))
        return selector is not None and selector.matches(labels_of(pod))

    async def claim(self, owner: Raw) -> None:
        """Release the pods that the selector no longer matches, and adopt those that it does and nobody controls."""
        selector = self._selectors.get(uid_of(owner))
        if selector is None or deleting(owner):
            return
        uid, namespace = uid_of(owner), namespace_of(owner)
        for pod in list(self.pods.under(BY_CONTROLLER, uid).values()):
            if not selector.matches(labels_of(pod)) and not deleting(pod):
                left = [entry for entry in pod["metadata"]["ownerReferences"] if entry["uid"] != uid]
                await self.world.patch(PODS, pod, {"metadata": {"ownerReferences": left or None}})
        for pod in list(self.pods.under(ORPHANS, namespace).values()):
            if active(pod) and self.adopts(owner, pod):
                references = [*(pod["metadata"].get("ownerReferences") or ()), owner_reference(self.kind, owner)]
                await self.world.patch(PODS, pod, {"metadata": {"ownerReferences": references}})

    async def reconcile(self, key: str) -> None:
        obj = self.objects.get(key)
        if obj is not None:
            await self.claim(obj)
            await self.sync(obj)

    async def sync(self, obj: Raw) -> None:
        """Bring the workload nearer to what its spec asks."""
        raise NotImplementedError

    async def write_status(self, obj: Raw, wanted: Mapping[str, Any], *, recheck_at: datetime | None = None) -> None:
        """Write what differs, and look again when time alone changes the answer."""
        if recheck_at is not None:
            self.enqueue_at(key_of(obj), recheck_at)
        latest = self.objects.get(key_of(obj))
        change = {} if latest is None else status_change(latest, wanted)
        if latest is not None and change:
            await self.world.patch(self.kind, latest, {"status": change}, subresource="status")
