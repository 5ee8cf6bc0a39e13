"""The garbage collector: deletes objects whose owners are gone, and events that have expired.

It acts a moment after each write, through the same operations as any client.
"""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from dovetail.ports import Delete, EventType, NotFound, Patch, Propagation, Resource
from dovetail.sim.server.deletion import FOREGROUND, ORPHAN
from dovetail.sim.server.kinds import Body
from dovetail.sim.server.registry import Registry, call_soon
from dovetail.sim.server.store import Change
from dovetail.state.store import Key

_ObjectPlace = tuple[Resource[Any], Key]

EVENT_TTL = timedelta(hours=1)


class GarbageCollector:
    """Follows owner references by UID, as the garbage collector of kube-controller-manager does."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._places: dict[str, _ObjectPlace] = {}  # by UID
        self._dependents: dict[str, dict[str, None]] = {}  # UIDs by the UID of the owner, in order
        for collection in registry.store:
            for key, stored in collection.objects.items():
                self._places[stored.body["metadata"]["uid"]] = (collection.resource, key)
        registry.store.observers.append(self._observe)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        meta = change.new.body["metadata"]
        uid = meta["uid"]
        if change.type is EventType.DELETED:
            self._gone(uid, meta)
            return
        if change.old is None:
            self._places[uid] = (resource, (meta.get("namespace", ""), meta["name"]))
        self._follow_owners(uid, meta, {} if change.old is None else change.old.body["metadata"])
        if "deletionTimestamp" in meta and any(f in (ORPHAN, FOREGROUND) for f in meta.get("finalizers") or ()):
            for dependent in self._dependents.get(uid, ()):
                call_soon(self._look, dependent)
            call_soon(self._finish, uid)

    def _follow_owners(self, uid: str, meta: Body, before: Body) -> None:
        new, old = meta.get("ownerReferences"), before.get("ownerReferences")
        if new is old or new == old:
            return
        for owner in _owners(before):
            self._dependents.get(owner, {}).pop(uid, None)
            call_soon(self._finish, owner)
        for owner in _owners(meta):
            self._dependents.setdefault(owner, {})[uid] = None
        call_soon(self._look, uid)

    def _gone(self, uid: str, meta: Body) -> None:
        self._places.pop(uid, None)
        for owner in _owners(meta):
            self._dependents.get(owner, {}).pop(uid, None)
            call_soon(self._finish, owner)
        for dependent in self._dependents.get(uid, ()):
            call_soon(self._look, dependent)

    # -- acting -------------------------------------------------------------------------------------------------------

    def _look(self, uid: str) -> None:
        """Delete the object if all its owners are gone or wait for it, else drop the references to these owners."""
        meta = self._metadata(uid)
        if meta is None or "deletionTimestamp" in meta or not meta.get("ownerReferences"):
            return
        references = meta["ownerReferences"]
        solid = [r for r in references if self._state(r["uid"]) == "solid"]
        if len(solid) == len(references):
            return
        if solid:
            self._set(uid, ownerReferences=solid)
            return
        resource, key = self._places[uid]
        waiting = any(self._state(r["uid"]) == "foreground" for r in references)
        foreground = waiting and self._dependents.get(uid)
        propagation = Propagation.FOREGROUND if foreground else Propagation.BACKGROUND
        self._registry.delete(Delete(resource, key[1], namespace=key[0] or None, uid=uid, propagation=propagation))

    def _finish(self, uid: str) -> None:
        """Remove the finalizer of an owner once its dependents are orphaned, or none blocks it any more."""
        meta = self._metadata(uid)
        if meta is None or "deletionTimestamp" not in meta:
            return
        finalizers = meta.get("finalizers") or []
        if ORPHAN in finalizers:
            for dependent in list(self._dependents.get(uid, ())):
                if (dependent_meta := self._metadata(dependent)) is not None:
                    self._set(
                        dependent, ownerReferences=[r for r in dependent_meta["ownerReferences"] if r["uid"] != uid]
                    )
            self._set(uid, finalizers=[f for f in finalizers if f != ORPHAN])
        elif FOREGROUND in finalizers and not any(self._blocks(d, uid) for d in self._dependents.get(uid, ())):
            self._set(uid, finalizers=[f for f in finalizers if f != FOREGROUND])

    def _blocks(self, dependent: str, owner: str) -> bool:
        meta = self._metadata(dependent) or {}
        return any(r["uid"] == owner and r.get("blockOwnerDeletion") for r in meta.get("ownerReferences") or ())

    def _state(self, uid: str) -> str:
        meta = self._metadata(uid)
        if meta is None:
            return "gone"
        return "foreground" if "deletionTimestamp" in meta and FOREGROUND in (meta.get("finalizers") or ()) else "solid"

    def _metadata(self, uid: str) -> Body | None:
        place = self._places.get(uid)
        if place is None:
            return None
        stored = self._registry.store.collection(place[0]).objects.get(place[1])
        return None if stored is None else stored.body["metadata"]

    def _set(self, uid: str, **metadata: Any) -> None:
        resource, key = self._places[uid]
        with suppress(NotFound):
            self._registry.patch(Patch(resource, key[1], {"metadata": metadata}, namespace=key[0] or None))


def _owners(meta: Body) -> list[str]:
    return [reference["uid"] for reference in meta.get("ownerReferences") or ()]


class EventExpiry:
    """Removes events an hour after their last write, when the next event is written."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._written: dict[_ObjectPlace, datetime] = {}  # last write, oldest first
        registry.store.observers.append(self._observe)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        if resource.plural != "events":
            return
        meta = change.new.body["metadata"]
        place = (resource, (meta["namespace"], meta["name"]))
        self._written.pop(place, None)
        if change.type is not EventType.DELETED:
            self._written[place] = self._registry.now()
            if self._due():
                call_soon(self._remove_due)

    def _due(self) -> bool:
        return next(iter(self._written.values())) + EVENT_TTL <= self._registry.now()

    def _remove_due(self) -> None:
        while self._written and self._due():
            self._registry.remove(*next(iter(self._written)))
