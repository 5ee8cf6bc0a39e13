"""The Deployment controller: ReplicaSets, rollouts and their status."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from dovetail.rules.pdb import scaled
from dovetail.sim.actors import wire
from dovetail.sim.actors.actor import ActorContext
from dovetail.sim.actors.wire import DEPLOYMENTS, REPLICASETS, Raw
from dovetail.sim.actors.workload import BY_CONTROLLER, WorkloadActor

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_THROUGH = "NewReplicaSetAvailable"


class Bounds(NamedTuple):
    """How many replicas a rollout may have above and below the desired number."""

    surge: int
    unavailable: int


def bounds(spec: Raw) -> Bounds:
    """Percentages of the replicas: surge is rounded up, unavailability down. If both are 0, one may be unavailable."""
    replicas = wire.replicas_of(spec)
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return Bounds(0, replicas)
    rolling = strategy.get("rollingUpdate") or {}
    surge = scaled(rolling.get("maxSurge", "25%"), replicas) or 0
    asked = rolling.get("maxUnavailable", "25%")
    unavailable = asked if isinstance(asked, int) else int(asked.removesuffix("%")) * replicas // 100
    return Bounds(surge, min(replicas, unavailable) if surge or unavailable else 1)


def template_hash(deployment: Raw) -> str:
    return wire.short_hash(deployment["spec"]["template"])


class Size(NamedTuple):
    """The size of a ReplicaSet."""

    name: str
    asked: int
    available: int


def grown(replicas: int, limits: Bounds, new: Size, old: Sequence[Size]) -> int:
    """The number of replicas that the new ReplicaSet should have now."""
    if new.asked >= replicas:
        return replicas
    room = replicas + limits.surge - new.asked - sum(size.asked for size in old)
    return new.asked + max(0, min(room, replicas - new.asked))


def shrunk(replicas: int, limits: Bounds, new: Size, old: Sequence[Size]) -> dict[str, int]:
    """The number of replicas that each old ReplicaSet should have now; unavailable pods go first, oldest sets first."""
    sizes = {size.name: size.asked for size in old}
    needed = replicas - limits.unavailable
    spare = sum(sizes.values()) + new.asked - needed - (new.asked - new.available)
    if spare <= 0:
        return sizes
    for size in old:
        unavailable = max(0, min(spare, size.asked - size.available))
        sizes[size.name] -= unavailable
        spare -= unavailable
    spare = new.available + sum(size.available for size in old) - needed
    for size in old:
        taken = max(0, min(spare, sizes[size.name]))
        sizes[size.name] -= taken
        spare -= taken
    return sizes


class Deployments(WorkloadActor):
    """The Deployment controller."""

    kind = DEPLOYMENTS

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self._sets = world.store(REPLICASETS)
        self._sets.index(BY_CONTROLLER, wire.controller_uid)
        self._sets.on_change(self._pod_changed)

    async def sync(self, obj: Raw) -> None:
        sets = self._sets_of(obj)
        if not wire.deleting(obj):
            await self._roll(obj, sets)
            sets = self._sets_of(obj)
        await self.write_status(obj, self._status(obj, sets))

    async def claim(self, owner: Raw) -> None:
        """A Deployment's pods belong to its ReplicaSets."""

    def _sets_of(self, obj: Raw) -> list[Raw]:
        return sorted(self._sets.under(BY_CONTROLLER, wire.uid_of(obj)).values(), key=wire.oldest_first)

    async def _roll(self, obj: Raw, sets: Sequence[Raw]) -> None:
        spec, wanted = obj["spec"], template_hash(obj)
        if spec.get("paused"):
            return
        new = next((one for one in sets if wire.labels_of(one).get(HASH_LABEL) == wanted), None)
        old = [one for one in sets if one is not new]
        replicas, limits = wire.replicas_of(spec), bounds(spec)
        recreate = (spec.get("strategy") or {}).get("type") == "Recreate"
        if recreate and await self._clear(old):
            return
        await self._record_revision(obj, sets, new)
        size = _size(new) if new is not None else Size("", 0, 0)
        target = grown(replicas, limits, size, [] if recreate else [_size(one) for one in old])
        if new is None:
            await self.world.create(REPLICASETS, self._new_set(obj, sets, target))
            return
        if target != size.asked:
            await self._resize(new, target)
            return
        for name, number in shrunk(replicas, limits, size, [_size(one) for one in old]).items():
            await self._resize(next(one for one in old if wire.name_of(one) == name), number)
        if wire.status_of(new).get("availableReplicas", 0) == replicas and not any(_size(one).asked for one in old):
            await self._forget(spec, old)

    async def _clear(self, old: Sequence[Raw]) -> bool:
        """Scale the old ReplicaSets to 0, for the strategy Recreate; True while a pod of theirs runs."""
        for one in old:
            await self._resize(one, 0)
        return any(not wire.finished(pod) for one in old for pod in self.pods_of(one))

    async def _resize(self, one: Raw, number: int) -> None:
        latest = self._sets.get(wire.key_of(one))
        if latest is not None and wire.replicas_of(latest["spec"]) != number:
            await self.world.patch(REPLICASETS, latest, {"spec": {"replicas": number}})

    async def _forget(self, spec: Raw, old: Sequence[Raw]) -> None:
        limit = spec.get("revisionHistoryLimit", 10)
        unused = [one for one in old if not wire.status_of(one).get("replicas") and not wire.deleting(one)]
        for one in unused[: max(0, len(unused) - limit)]:
            await self.world.delete(REPLICASETS, one)

    async def _record_revision(self, obj: Raw, sets: Sequence[Raw], new: Raw | None) -> None:
        """Number the revision: a ReplicaSet that a rollback uses again becomes the newest one."""
        latest = max((_revision(one) for one in sets if one is not new), default=0)
        revision = str(latest + 1) if new is None or _revision(new) <= latest else str(_revision(new))
        for kind, one in ((REPLICASETS, new), (DEPLOYMENTS, obj)):
            if one is not None and wire.annotations_of(one).get(REVISION) != revision:
                current = self.world.store(kind).get(wire.key_of(one)) or one
                await self.world.patch(kind, current, {"metadata": {"annotations": {REVISION: revision}}})

    def _new_set(self, obj: Raw, sets: Sequence[Raw], replicas: int) -> dict[str, Any]:
        spec, mark = obj["spec"], {HASH_LABEL: template_hash(obj)}
        template = deepcopy(spec["template"])
        template.setdefault("metadata", {})["labels"] = {**(template["metadata"].get("labels") or {}), **mark}
        selector = {**spec["selector"], "matchLabels": {**(spec["selector"].get("matchLabels") or {}), **mark}}
        revision = str(max((_revision(one) for one in sets), default=0) + 1)
        made = {"replicas": replicas, "selector": selector, "template": template}
        if spec.get("minReadySeconds"):
            made["minReadySeconds"] = spec["minReadySeconds"]
        metadata = {
            "name": f"{wire.name_of(obj)}-{mark[HASH_LABEL]}",
            "namespace": wire.namespace_of(obj),
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: revision},
            "ownerReferences": [wire.owner_reference(DEPLOYMENTS, obj)],
        }
        return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": made}

    def _status(self, obj: Raw, sets: Sequence[Raw]) -> dict[str, Any]:
        wanted = template_hash(obj)
        total = {
            field: sum(wire.status_of(one).get(field) or 0 for one in sets)
            for field in ("replicas", "readyReplicas", "availableReplicas", "terminatingReplicas")
        }
        new = [one for one in sets if wire.labels_of(one).get(HASH_LABEL) == wanted]
        updated = sum(wire.status_of(one).get("replicas") or 0 for one in new)
        asked = sum(wire.replicas_of(one["spec"]) for one in sets)
        replicas, available = wire.replicas_of(obj["spec"]), total["availableReplicas"]
        complete = updated == total["replicas"] == available == replicas
        conditions = [_available(available >= replicas - bounds(obj["spec"]).unavailable)]
        before = wire.condition_of(obj, "Progressing") or {}
        # A complete rollout stays complete: pods that come and go later are no progress.
        through = before.get("reason") == _THROUGH and total["replicas"] == updated
        if new and (complete or not through):
            conditions.append(_progressing(wire.name_of(new[0]), complete=complete))
        return {
            "observedGeneration": obj["metadata"].get("generation", 1),
            "replicas": total["replicas"] or None,
            "updatedReplicas": updated or None,
            "readyReplicas": total["readyReplicas"] or None,
            "availableReplicas": available or None,
            "unavailableReplicas": max(0, asked - available) or None,
            "terminatingReplicas": total["terminatingReplicas"],
            "conditions": wire.with_conditions(obj, conditions, self.world.now()),
        }

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        """Enqueue the Deployment of a ReplicaSet, or of a pod that is gone (for Recreate)."""
        changed = new or old or {}
        reference = wire.controller_of(changed)
        if reference is None:
            return
        if reference["kind"] == "ReplicaSet" and new is None:
            owner = self._sets.get(f"{wire.namespace_of(changed)}/{reference['name']}")
            reference = wire.controller_of(owner) if owner is not None else None
        if reference is not None and reference["kind"] == "Deployment":
            self.enqueue(f"{wire.namespace_of(changed)}/{reference['name']}")


def _size(one: Raw) -> Size:
    return Size(wire.name_of(one), wire.replicas_of(one["spec"]), wire.status_of(one).get("availableReplicas") or 0)


def _revision(one: Raw) -> int:
    return int(wire.annotations_of(one).get(REVISION, "0"))


def _available(enough: bool) -> Raw:
    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    message = f"Deployment {'has' if enough else 'does not have'} minimum availability."
    return {"type": "Available", "status": "True" if enough else "False", "reason": reason, "message": message}


def _progressing(name: str, *, complete: bool) -> Raw:
    reason = _THROUGH if complete else "ReplicaSetUpdated"
    message = f'ReplicaSet "{name}" {"has successfully progressed" if complete else "is progressing"}.'
    return {"type": "Progressing", "status": "True", "reason": reason, "message": message}
