"""The base of workload controllers: create pods from a template, adopt and count them, and write the status."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from dovetail.sim.actors import wire
from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.wire import PODS, Kind, Raw
from dovetail.values.selector import Selector

REVISION_LABEL = "controller-revision-hash"  # of pods of StatefulSets and DaemonSets
BY_CONTROLLER = "controller"
ORPHANS = "orphans"  # pods without a controller, by namespace


class ReplicaCounts(NamedTuple):
    """The numbers of pods in a workload's status."""

    replicas: int
    ready: int
    available: int
    terminating: int
    recheck_at: datetime | None  # when the next ready pod becomes available


def count(pods: Iterable[Raw], *, min_ready_seconds: int, now: datetime) -> ReplicaCounts:
    """Count active, ready, available and terminating pods."""
    replicas = ready = available = terminating = 0
    recheck_at: datetime | None = None
    for pod in pods:
        if not wire.active(pod):
            terminating += wire.deleting(pod) and not wire.finished(pod)
            continue
        replicas += 1
        since = wire.available_at(pod, min_ready_seconds)
        ready += since is not None
        if since is not None and since <= now:
            available += 1
        elif since is not None and (recheck_at is None or since < recheck_at):
            recheck_at = since
    return ReplicaCounts(replicas, ready, available, terminating, recheck_at)


def is_available(pod: Raw, min_ready_seconds: int, now: datetime) -> bool:
    since = wire.available_at(pod, min_ready_seconds)
    return since is not None and since <= now


def running_and_ready(pod: Raw) -> bool:
    return wire.status_of(pod).get("phase") == "Running" and wire.pod_ready(pod)


def pod_from_template(
    kind: Kind,
    owner: Raw,
    template: Raw,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    finalizers: Iterable[str] = (),
) -> dict[str, Any]:
    """A pod of the owner; without a name the server generates one from the owner's."""
    meta = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "namespace": wire.namespace_of(owner),
        "labels": {**(meta.get("labels") or {}), **(labels or {})},
        "ownerReferences": [wire.owner_reference(kind, owner)],
    }
    metadata.update({"name": name} if name else {"generateName": f"{wire.name_of(owner)}-"})
    if annotations := meta.get("annotations"):
        metadata["annotations"] = dict(annotations)
    if finalizers := [*(meta.get("finalizers") or ()), *finalizers]:
        metadata["finalizers"] = finalizers
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": deepcopy(template["spec"])}


def status_change(obj: Raw, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that differ; None stands for an absent field."""
    have = wire.status_of(obj)
    return {field: value for field, value in wanted.items() if have.get(field) != value}


class WorkloadActor(Actor):
    """A controller of one kind. Changes of its objects and of their pods trigger it."""

    kind: ClassVar[Kind]

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self.objects = world.store(self.kind)
        self._selectors: dict[str, Selector | None] = {}  # by UID
        self.pods = world.store(PODS)
        self.pods.index(BY_CONTROLLER, wire.controller_uid)
        self.pods.index(ORPHANS, lambda pod: "" if wire.controller_uid(pod) else wire.namespace_of(pod))
        self.objects.on_change(self._object_changed)
        self.pods.on_change(self._pod_changed)

    def _object_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is not None:
            self._selectors[wire.uid_of(new)] = wire.selector_of(new["spec"].get("selector"))
            self.enqueue(wire.key_of(new))
        elif old is not None:
            self._selectors.pop(wire.uid_of(old), None)

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        for pod in filter(None, (old, new)):  # a released pod concerns its former owner
            reference = wire.controller_of(pod)
            if reference is not None and reference["kind"] == self.kind.kind:
                self.enqueue(f"{wire.namespace_of(pod)}/{reference['name']}")
        if new is not None and wire.controller_of(new) is None and wire.active(new):
            for key, owner in self.objects.items.items():
                if self.adopts(owner, new):
                    self.enqueue(key)

    def pods_of(self, owner: Raw) -> list[Raw]:
        """The pods that the owner controls, oldest first."""
        return sorted(self.pods.under(BY_CONTROLLER, wire.uid_of(owner)).values(), key=wire.oldest_first)

    def adopts(self, owner: Raw, pod: Raw) -> bool:
        """Whether the owner adopts a pod without a controller."""
        if wire.namespace_of(owner) != wire.namespace_of(pod) or wire.deleting(owner):
            return False
        selector = self._selectors.get(wire.uid_of(owner))
        return selector is not None and selector.matches(wire.labels_of(pod))

    async def claim(self, owner: Raw) -> None:
        """Release pods that the selector no longer matches, and adopt matching pods without a controller."""
        selector = self._selectors.get(wire.uid_of(owner))
        if selector is None or wire.deleting(owner):
            return
        uid, namespace = wire.uid_of(owner), wire.namespace_of(owner)
        for pod in list(self.pods.under(BY_CONTROLLER, uid).values()):
            if not selector.matches(wire.labels_of(pod)) and not wire.deleting(pod):
                left = [entry for entry in pod["metadata"]["ownerReferences"] if entry["uid"] != uid]
                await self.world.patch(PODS, pod, {"metadata": {"ownerReferences": left or None}})
        for pod in list(self.pods.under(ORPHANS, namespace).values()):
            if wire.active(pod) and self.adopts(owner, pod):
                references = [*(pod["metadata"].get("ownerReferences") or ()), wire.owner_reference(self.kind, owner)]
                await self.world.patch(PODS, pod, {"metadata": {"ownerReferences": references}})

    async def reconcile(self, key: str) -> None:
        obj = self.objects.get(key)
        if obj is not None:
            await self.claim(obj)
            await self.sync(obj)

    async def sync(self, obj: Raw) -> None:
        """Bring the workload closer to its spec."""
        raise NotImplementedError

    async def write_status(self, obj: Raw, wanted: Mapping[str, Any], *, recheck_at: datetime | None = None) -> None:
        """Write the fields that differ, and reconcile again at `recheck_at`."""
        if recheck_at is not None:
            self.enqueue_at(wire.key_of(obj), recheck_at)
        latest = self.objects.get(wire.key_of(obj))
        change = {} if latest is None else status_change(latest, wanted)
        if latest is not None and change:
            await self.world.patch_status(self.kind, latest, change)
