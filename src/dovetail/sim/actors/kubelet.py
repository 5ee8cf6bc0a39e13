"""The kubelets of all nodes, as one actor: they start, report and stop pods.

Heartbeats of healthy nodes are not written.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from dovetail.sim.actors import pod_life, wire
from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.wire import KUBELET, NODES, NOT_READY, PODS, READY_DELAY, Raw
from dovetail.sim.server.node_leases import RENEWAL

BY_NODE = "node"
_NODE = "node "  # keys of nodes; no pod's key has a blank


class Kubelets(Actor):
    """The kubelets of all nodes."""

    patient = False  # each kubelet is a separate process

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self._dead: dict[str, datetime] = {}  # instant of death by node
        self._revived: dict[str, datetime] = {}  # last restart by node
        self._not_ready: set[str] = set()
        self._seen_at: dict[str, datetime] = {}  # pods that start, by UID
        self._signalled_at: dict[str, datetime] = {}  # pods that stop, by UID
        self._addresses = 0  # given out so far
        self._pods, self._nodes = world.store(PODS), world.store(NODES)
        self._pods.index(BY_NODE, wire.node_of)
        self._pods.on_change(self._pod_changed)
        self._nodes.on_change(self._node_changed)

    # -- faults -------------------------------------------------------------------------------------------------------

    def kill(self, node: str) -> None:
        """Stop the node's kubelet."""
        self._dead.setdefault(node, self.world.now())

    def revive(self, node: str) -> None:
        self._dead.pop(node, None)
        self._revived[node] = self.world.now()
        self._enqueue_all(node)

    def set_ready(self, node: str, *, ready: bool) -> None:
        """Set whether the kubelet reports its node as Ready."""
        (self._not_ready.discard if ready else self._not_ready.add)(node)
        self._enqueue_all(node)

    def lease_renewed_at(self, node: Raw) -> datetime | None:
        """The last renewal of the node's lease; None if another kubelet runs the node."""
        if wire.annotations_of(node).get(KUBELET) == "none":
            return None
        name = wire.name_of(node)
        since = max(wire.created_at(node), self._revived.get(name, datetime.min.replace(tzinfo=UTC)))
        until = self._dead.get(name, self.world.now())
        return since + max(0, (until - since) // RENEWAL) * RENEWAL

    # -- changes ------------------------------------------------------------------------------------------------------

    def _enqueue_all(self, node: str) -> None:
        self.enqueue(_NODE + node)
        for key in self._pods.under(BY_NODE, node):
            self.enqueue(key)

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None:
            self._seen_at.pop(wire.uid_of(old or {}), None)
            self._signalled_at.pop(wire.uid_of(old or {}), None)
        elif wire.node_of(new):
            self.enqueue(wire.key_of(new))

    def _node_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None:
            return
        if old is None or wire.condition_status(old, "Ready") != wire.condition_status(new, "Ready"):
            self._enqueue_all(wire.name_of(new))
        elif wire.labels_of(old).get(NOT_READY) != wire.labels_of(new).get(NOT_READY):
            self.enqueue(_NODE + wire.name_of(new))

    # -- work ---------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> None:
        if key.startswith(_NODE):
            node = self._nodes.get(key.removeprefix(_NODE))
            if node is not None and self._lives(node):
                await self._sync_node(node)
            return
        pod = self._pods.get(key)
        node = None if pod is None else self._nodes.get(wire.node_of(pod))
        if pod is not None and node is not None and self._lives(node):
            await (self._stop(pod) if wire.deleting(pod) else self._sync_pod(pod, node))

    def _lives(self, node: Raw) -> bool:
        return wire.name_of(node) not in self._dead and wire.annotations_of(node).get(KUBELET) != "none"

    async def _sync_node(self, node: Raw) -> None:
        name, now = wire.name_of(node), self.world.now()
        ready = name not in self._not_ready and wire.labels_of(node).get(NOT_READY) != "true"
        is_ready = wire.condition_status(node, "Ready")
        if is_ready == ("True" if ready else "False"):
            return
        if is_ready is None:
            delay = wire.seconds_in(wire.annotations_of(node), READY_DELAY, pod_life.DEFAULT_SECONDS)
            due = wire.created_at(node) + timedelta(seconds=delay)
            if now < due:
                self.enqueue_at(_NODE + name, due)
                return
        await self.world.patch_status(
            NODES, node, pod_life.node_status(node, ready=ready, host=self._address(172), now=now)
        )

    async def _sync_pod(self, pod: Raw, node: Raw) -> None:
        now = self.world.now()
        if wire.finished(pod):
            return
        if wire.phase_of(pod) == "Pending":
            due: datetime | None = pod_life.starts_at(pod, self._seen_at.setdefault(wire.uid_of(pod), now))
            status = pod_life.running_status(pod, node, self._address(10), now) if _due(due, now) else {}
        else:
            due = pod_life.ends_at(pod)
            status = pod_life.ended_status(pod, now) if _due(due, now) else self._readiness(pod, node, now)
        if due is not None and due > now:
            self.enqueue_at(wire.key_of(pod), due)
        if status:
            self._seen_at.pop(wire.uid_of(pod), None)
            await self.world.patch_status(PODS, pod, status)

    def _readiness(self, pod: Raw, node: Raw, now: datetime) -> dict[str, Any]:
        """While the node is not Ready, the node lifecycle controller sets the readiness of its pods."""
        ready = pod_life.wants_ready(pod)
        if wire.pod_ready(pod) == ready or wire.condition_status(node, "Ready") != "True":
            return {}
        statuses = [{**status, "ready": ready} for status in wire.status_of(pod).get("containerStatuses") or ()]
        return {
            "conditions": wire.with_conditions(pod, pod_life.readiness(ready=ready), now),
            "containerStatuses": statuses,
        }

    async def _stop(self, pod: Raw) -> None:
        if not pod["metadata"].get("deletionGracePeriodSeconds"):
            return  # only finalizers keep it
        now = self.world.now()
        due = pod_life.stopped_at(pod, self._signalled_at.setdefault(wire.uid_of(pod), now))
        if due <= now:
            await self.world.delete(PODS, pod, grace_seconds=0)
        else:
            self.enqueue_at(wire.key_of(pod), due)

    def _address(self, first: int) -> str:
        self._addresses += 1
        return f"{first}.{self._addresses >> 16 & 255}.{self._addresses >> 8 & 255}.{self._addresses & 255}"


def _due(at: datetime | None, now: datetime) -> bool:
    return at is not None and at <= now
