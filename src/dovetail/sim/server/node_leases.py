"""When are the leases of nodes written? Kubelets renew them every ten seconds; but here, only so that somebody sees it.

They are brought up to date when somebody reads them, and in time for as long as somebody watches them.
"""

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from dovetail.ports import LEASES, NODES, EventType, Resource
from dovetail.sim.server.kinds import NAMESPACES
from dovetail.sim.server.registry import Registry
from dovetail.sim.server.store import Body, Change, StoredObject

NAMESPACE = "kube-node-lease"
RENEWAL = timedelta(seconds=10)


def may_be_node_lease(resource: Resource[Any], namespace: str | None) -> bool:
    """Whether a question in this namespace, or in all, is about leases of nodes too."""
    return (resource.group, resource.plural) == (LEASES.group, LEASES.plural) and namespace in (None, NAMESPACE)


class NodeLeases:
    """All leases of nodes. `watched` tells whether anybody watches them."""

    def __init__(
        self,
        registry: Registry,
        later: Callable[[float, Callable[[str], None], str], None],
        watched: Callable[[], bool],
    ) -> None:
        # When the node's kubelet has renewed its lease last, as told by whoever plays the kubelets; None: it has none.
        self.renewed_at: Callable[[Body], datetime | None] = lambda _node: None
        self._registry = registry
        self._later = later
        self._watched = watched
        self._ticking = False
        registry.before_reading = self._before_reading
        registry.store.observers.append(self._observe)

    def _before_reading(self, resource: Resource[Any], namespace: str | None, name: str) -> None:
        if may_be_node_lease(resource, namespace):
            self._renew(name)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        if resource.plural == NODES.plural and change.type is EventType.ADDED:
            self.kubelet_starts(change.new.body["metadata"]["name"])

    def kubelet_starts(self, node: str) -> None:
        """It renews the lease of its node first of all."""
        if self._ticking:
            self._later(0.0, self._renew, node)

    def keep_up_to_date(self) -> None:
        """A watch begins: from now on each renewal is written when it is due, until nobody watches any more."""
        self._renew("")
        if not self._ticking:
            self._ticking = True
            self._later(self._seconds_to_next(), self._tick, "")

    def _tick(self, _: str) -> None:
        self._ticking = False
        if self._watched():
            self.keep_up_to_date()

    def _seconds_to_next(self) -> float:
        now = self._registry.now()
        due = [at + RENEWAL for node in self._nodes("") if (at := self.renewed_at(node.body)) is not None]
        return min((at - now for at in due if at > now), default=RENEWAL).total_seconds()

    def _nodes(self, name: str) -> list[StoredObject]:
        """All nodes, or the one of the name."""
        nodes = self._registry.store.collection(NODES).objects
        return [nodes[key] for key in ([("", name)] if name else nodes) if key in nodes]

    def _renew(self, name: str) -> None:
        space = self._registry.store.collection(NAMESPACES).objects.get(("", NAMESPACE))
        if space is None or "deletionTimestamp" in space.body["metadata"]:
            return
        for node in self._nodes(name):
            at = self.renewed_at(node.body)
            if at is not None:
                self._write(node.body, at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))

    def _write(self, node: Body, renewed: str) -> None:
        store, name = self._registry.store, node["metadata"]["name"]
        found = store.collection(LEASES).objects.get((NAMESPACE, name))
        if found is None:
            store.put(LEASES, (NAMESPACE, name), self._new(node, renewed), "create")
        elif found.body["spec"].get("renewTime") != renewed:
            spec = {**found.body["spec"], "renewTime": renewed}
            store.put(LEASES, (NAMESPACE, name), {**found.body, "spec": spec}, "update")

    def _new(self, node: Body, renewed: str) -> Body:
        meta = node["metadata"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": meta["name"],
                "namespace": NAMESPACE,
                # Not drawn: whether somebody looks at leases changes nothing else.
                "uid": str(uuid.uuid5(uuid.UUID(meta["uid"]), str(self._registry.store.version))),
                "creationTimestamp": meta["creationTimestamp"],
                "ownerReferences": [owner],
            },
            "spec": {"holderIdentity": meta["name"], "leaseDurationSeconds": 40, "renewTime": renewed},
        }
