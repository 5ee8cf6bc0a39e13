"""Leases of nodes. Kubelets renew them every ten seconds; the simulated server writes them only when a client sees it.

They are updated when a client reads them, and at each renewal while a client watches them.
"""

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from dovetail.ports import LEASES, NODES, EventType, Resource
from dovetail.sim.server.kinds import NAMESPACES, Body
from dovetail.sim.server.registry import Registry, call_later
from dovetail.sim.server.store import Change, StoredObject

NAMESPACE = "kube-node-lease"
RENEWAL = timedelta(seconds=10)


def may_be_node_lease(resource: Resource[Any], namespace: str | None) -> bool:
    """Whether a request in this namespace, or in all, can return leases of nodes."""
    return (resource.group, resource.plural) == (LEASES.group, LEASES.plural) and namespace in (None, NAMESPACE)


class NodeLeases:
    """All leases of nodes. `watched` returns whether a client watches them."""

    def __init__(
        self,
        registry: Registry,
        watched: Callable[[], bool],
    ) -> None:
        # The last renewal by the kubelet of the node; None: it has no lease. The actor of the kubelets sets this.
        self.renewed_at: Callable[[Body], datetime | None] = lambda _node: None
        self._registry = registry
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
        """Renew the lease of the node: a kubelet does that first."""
        if self._ticking:
            call_later(0.0, self._renew, node)

    def keep_up_to_date(self) -> None:
        """Write each renewal when it is due, until no client watches any more."""
        self._renew("")
        if not self._ticking:
            self._ticking = True
            call_later(self._seconds_to_next(), self._tick)

    def _tick(self) -> None:
        self._ticking = False
        if self._watched():
            self.keep_up_to_date()

    def _seconds_to_next(self) -> float:
        now = self._registry.now()
        due = [at + RENEWAL for node in self._nodes("") if (at := self.renewed_at(node.body)) is not None]
        return min((at - now for at in due if at > now), default=RENEWAL).total_seconds()

    def _nodes(self, name: str) -> list[StoredObject]:
        """All nodes, or the one with the name."""
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
        lease = store.collection(LEASES).objects.get((NAMESPACE, name))
        if lease is None:
            store.put(LEASES, (NAMESPACE, name), self._new(node, renewed), "create")
        elif lease.body["spec"].get("renewTime") != renewed:
            spec = {**lease.body["spec"], "renewTime": renewed}
            store.put(LEASES, (NAMESPACE, name), {**lease.body, "spec": spec}, "update")

    def _new(self, node: Body, renewed: str) -> Body:
        meta = node["metadata"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": meta["name"],
                "namespace": NAMESPACE,
                # Not random: reading leases must not change anything else in the run.
                "uid": str(uuid.uuid5(uuid.UUID(meta["uid"]), str(self._registry.store.version))),
                "creationTimestamp": meta["creationTimestamp"],
                "ownerReferences": [owner],
            },
            "spec": {"holderIdentity": meta["name"], "leaseDurationSeconds": 40, "renewTime": renewed},
        }
