"""The namespace controller: empties a namespace that is being deleted, pods first, and then removes it.

It acts through the same operations as any client.
"""

from typing import Any

from dovetail.ports import PODS, Delete, EventType, Propagation, Resource
from dovetail.sim.server.kinds import NAMESPACES
from dovetail.sim.server.registry import Registry, call_later
from dovetail.sim.server.store import Change
from dovetail.state.store import Key

# The delay in which other clients learn that the namespace is being deleted.
DELAY_SECONDS = 5.0


class NamespaceController:
    """Empties namespaces in steps. The last awaited deletion triggers the next step."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._awaited: dict[str, set[str]] = {}  # UIDs of objects that are being deleted, by namespace
        registry.store.observers.append(self._observe)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        meta = change.new.body["metadata"]
        if resource.plural == NAMESPACES.plural:
            before = {} if change.old is None else change.old.body["metadata"]
            if "deletionTimestamp" in meta and "deletionTimestamp" not in before:
                call_later(DELAY_SECONDS, self._sweep, meta["name"])
            return
        awaited = self._awaited.get(meta.get("namespace", "")) if change.type is EventType.DELETED else None
        if awaited is not None and meta["uid"] in awaited:
            awaited.remove(meta["uid"])
            if not awaited:
                call_later(0.0, self._sweep, meta["namespace"])

    def _sweep(self, name: str) -> None:
        """Delete all pods; if there are none, all other objects; if there are none, the namespace."""
        contents = [
            (collection.resource, key, stored.body["metadata"]["uid"])
            for collection in self._registry.store
            for key, stored in collection.sorted()
            if key[0] == name
        ]
        going = [place for place in contents if place[0].plural == PODS.plural] or contents
        if not going:
            self._awaited.pop(name, None)
            self._finish(("", name))
            return
        self._awaited[name] = {uid for _, _, uid in going}
        for resource, key, uid in going:
            if uid in self._awaited[name]:  # it has not gone with another object
                self._registry.delete(Delete(resource, key[1], namespace=name, propagation=Propagation.BACKGROUND))

    def _finish(self, key: Key) -> None:
        namespace = self._registry.store.collection(NAMESPACES).objects[key].body
        if namespace["metadata"].get("finalizers"):
            self._registry.store.put(NAMESPACES, key, {**namespace, "spec": {}}, "finalize")
        else:
            self._registry.remove(NAMESPACES, key)
