"""What do the kubelets do: which pods start, become ready, end, and when is a pod that is being deleted gone?

One actor stands for the kubelets of all nodes. A node's heartbeats are not written while it is healthy.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.pod_life import (
    DEFAULT_SECONDS,
    Address,
    ended_status,
    ends_at,
    node_status,
    readiness,
    running_status,
    starts_at,
    stopped_at,
    wants_ready,
)
from dovetail.sim.actors.wire import (
    KUBELET,
    NODES,
    NOT_READY,
    PODS,
    READY_DELAY,
    Raw,
    annotations_of,
    condition_status,
    created_at,
    deleting,
    finished,
    key_of,
    labels_of,
    name_of,
    node_of,
    phase_of,
    pod_ready,
    seconds_in,
    status_of,
    uid_of,
    with_conditions,
)
from dovetail.sim.server.node_leases import RENEWAL
from dovetail.values.timestamp import parse_time

BY_NODE = "node"
_NODE = "node "  # keys of nodes; no pod's key has a blank


class Kubelets(Actor):
    """The kubelets of all nodes."""

    patient = False  # each kubelet is a process of its own

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self._dead: dict[str, datetime] = {}  # since when
        self._revived: dict[str, datetime] = {}  # when last
        self._not_ready: set[str] = set()
        self._seen_at: dict[str, datetime] = {}  # by UID: pods that are to start
        self._signalled_at: dict[str, datetime] = {}  # by UID: pods that are to end
        self._hosts: dict[str, str] = {}
        self._addresses = 0
        self._pods, self._nodes = world.store(PODS), world.store(NODES)
        self._pods.index(BY_NODE, node_of)
        self._pods.on_change(self._pod_changed)
        self._nodes.on_change(self._node_changed)

    # -- faults -------------------------------------------------------------------------------------------------------

    def kill(self, node: str) -> None:
        """From now on the node's kubelet does nothing."""
        self._dead.setdefault(node, self.world.now())

    def revive(self, node: str) -> None:
        self._dead.pop(node, None)
        self._revived[node] = self.world.now()
        self._enqueue_all(node)

    def set_ready(self, node: str, *, ready: bool) -> None:
        """Whether the kubelet reports its node as Ready."""
        (self._not_ready.discard if ready else self._not_ready.add)(node)
        self._enqueue_all(node)

    def lease_renewed_at(self, node: Raw) -> datetime | None:
        """When the node's kubelet has renewed its lease last; None: it is somebody else's."""
        if annotations_of(node).get(KUBELET) == "none":
            return None
        name = name_of(node)
        since = max(created_at(node), self._revived.get(name, datetime.min.replace(tzinfo=UTC)))
        until = self._dead.get(name, self.world.now())
        return since + max(0, (until - since) // RENEWAL) * RENEWAL

    # -- changes ------------------------------------------------------------------------------------------------------

    def _enqueue_all(self, node: str) -> None:
        self.enqueue(_NODE + node)
        for key in self._pods.under(BY_NODE, node):
            self.enqueue(key)

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None:
            assert old is not None
            self._seen_at.pop(uid_of(old), None)
            self._signalled_at.pop(uid_of(old), None)
        elif node_of(new):
            self.enqueue(key_of(new))

    def _node_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None:
            return
        if old is None or condition_status(old, "Ready") != condition_status(new, "Ready"):
            self._enqueue_all(name_of(new))
        elif labels_of(old).get(NOT_READY) != labels_of(new).get(NOT_READY):
            self.enqueue(_NODE + name_of(new))

    # -- work ---------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> None:
        if key.startswith(_NODE):
            node = self._nodes.get(key.removeprefix(_NODE))
            if node is not None and self._lives(node):
                await self._sync_node(node)
            return
        pod = self._pods.get(key)
        node = None if pod is None else self._nodes.get(node_of(pod))
        if pod is not None and node is not None and self._lives(node):
            await (self._stop(pod) if deleting(pod) else self._sync_pod(pod, node))

    def _lives(self, node: Raw) -> bool:
        return name_of(node) not in self._dead and annotations_of(node).get(KUBELET) != "none"

    async def _sync_node(self, node: Raw) -> None:
        name, now = name_of(node), self.world.now()
        ready = name not in self._not_ready and labels_of(node).get(NOT_READY) != "true"
        is_ready = condition_status(node, "Ready")
        if is_ready == ("True" if ready else "False"):
            return
        if is_ready is None:
            created = parse_time(node["metadata"]["creationTimestamp"])
            due = created + timedelta(seconds=seconds_in(annotations_of(node), READY_DELAY, DEFAULT_SECONDS))
            if now < due:
                self.enqueue_at(_NODE + name, due)
                return
        status = node_status(node, ready=ready, host=self._host(node), now=now)
        await self.world.patch(NODES, node, {"status": status}, subresource="status")

    async def _sync_pod(self, pod: Raw, node: Raw) -> None:
        now = self.world.now()
        if finished(pod):
            return
        if phase_of(pod) == "Pending":
            due: datetime | None = starts_at(pod, self._seen_at.setdefault(uid_of(pod), now))
            status = running_status(pod, Address(self._host(node), self._address()), now) if _due(due, now) else {}
        else:
            due = ends_at(pod)
            status = ended_status(pod, now) if _due(due, now) else self._readiness(pod, node, now)
        if due is not None and due > now:
            self.enqueue_at(key_of(pod), due)
        if status:
            self._seen_at.pop(uid_of(pod), None)
            await self.world.patch(PODS, pod, {"status": status}, subresource="status")

    def _readiness(self, pod: Raw, node: Raw, now: datetime) -> dict[str, Any]:
        """While the node is not Ready, its pods' readiness is the node lifecycle controller's."""
        ready = wants_ready(pod)
        if pod_ready(pod) == ready or condition_status(node, "Ready") != "True":
            return {}
        statuses = [{**status, "ready": ready} for status in status_of(pod).get("containerStatuses") or ()]
        return {"conditions": with_conditions(pod, readiness(ready=ready), now), "containerStatuses": statuses}

    async def _stop(self, pod: Raw) -> None:
        if not pod["metadata"].get("deletionGracePeriodSeconds"):
            return  # only finalizers hold it
        now = self.world.now()
        due = stopped_at(pod, self._signalled_at.setdefault(uid_of(pod), now))
        if due <= now:
            await self.world.delete(PODS, pod, grace_seconds=0)
        else:
            self.enqueue_at(key_of(pod), due)

    def _host(self, node: Raw) -> str:
        known = [entry["address"] for entry in status_of(node).get("addresses") or () if entry["type"] == "InternalIP"]
        if known:
            return str(known[0])
        number = len(self._hosts) + 1
        return self._hosts.setdefault(name_of(node), f"172.16.{number >> 8 & 255}.{number & 255}")

    def _address(self) -> str:
        self._addresses += 1
        return f"10.{self._addresses >> 16 & 255}.{self._addresses >> 8 & 255}.{self._addresses & 255}"


def _due(at: datetime | None, now: datetime) -> bool:
    return at is not None and at <= now
