"""How does a namespace go away? What is in it is deleted, pods before all else; once it is empty, so is it.

As with owner references, the namespace controller of the controller manager acts through the same operations as
everybody else.
"""

from collections.abc import Callable
from typing import Any

from dovetail.ports import PODS, Delete, EventType, Propagation, Resource
from dovetail.sim.server.kinds import NAMESPACES
from dovetail.sim.server.registry import Registry
from dovetail.sim.server.store import Change, Key

# How long the controller lets others notice that nothing new can be made.
DELAY_SECONDS = 5.0


class NamespaceController:
    """Empties namespaces that are being deleted. It is woken by the last deletion that it waits for."""

    def __init__(self, registry: Registry, later: Callable[[float, Callable[[str], None], str], None]) -> None:
        self._registry = registry
        self._later = later
        self._awaited: dict[str, set[str]] = {}  # UIDs of what is to go, by namespace
        registry.store.observers.append(self._observe)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        meta = change.new.body["metadata"]
        if resource.plural == NAMESPACES.plural:
            before = {} if change.old is None else change.old.body["metadata"]
            if "deletionTimestamp" in meta and "deletionTimestamp" not in before:
                self._later(DELAY_SECONDS, self._sweep, meta["name"])
            return
        awaited = self._awaited.get(meta.get("namespace", "")) if change.type is EventType.DELETED else None
        if awaited is not None and meta["uid"] in awaited:
            awaited.remove(meta["uid"])
            if not awaited:
                self._later(0.0, self._sweep, meta["namespace"])

    def _sweep(self, name: str) -> None:
        """Delete all pods, or if there are none all the rest, or if there is nothing the namespace."""
        contents = self._contents(name)
        going = [place for place in contents if place[0].plural == PODS.plural] or contents
        if not going:
            self._awaited.pop(name, None)
            self._finish(("", name))
            return
        self._awaited[name] = {uid for _, _, uid in going}
        for resource, key, uid in going:
            if uid in self._awaited[name]:  # it has not gone with another
                self._registry.delete(Delete(resource, key[1], namespace=name, propagation=Propagation.BACKGROUND))

    def _contents(self, name: str) -> list[tuple[Resource[Any], Key, str]]:
        return [
            (collection.resource, key, stored.body["metadata"]["uid"])
            for collection in self._registry.store
            for key, stored in collection.sorted()
            if key[0] == name
        ]

    def _finish(self, key: Key) -> None:
        namespace = self._registry.store.collection(NAMESPACES).objects[key].body
        if namespace["metadata"].get("finalizers"):
            self._registry.store.put(NAMESPACES, key, {**namespace, "spec": {}}, "finalize")
        else:
            self._registry.remove(NAMESPACES, key)
