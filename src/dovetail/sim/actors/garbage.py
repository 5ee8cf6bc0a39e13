"""The pod garbage collector: deletes pods of nodes that are gone, and the oldest of too many finished pods.

The server itself follows owner references and empties namespaces.
"""

from datetime import datetime, timedelta

from dovetail.sim.actors import wire
from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.kubelet import BY_NODE
from dovetail.sim.actors.wire import NODES, PODS, Raw

QUARANTINE_SECONDS = 40.0
MAX_FINISHED_PODS = 12_500
_FINISHED = " finished"  # no node's name has a blank


class PodGarbage(Actor):
    """The pod garbage collector. Keys are names of nodes."""

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self._missing_since: dict[str, datetime] = {}
        self._finished: dict[str, None] = {}
        self._nodes, self._pods = world.store(NODES), world.store(PODS)
        self._pods.index(BY_NODE, wire.node_of)
        self._nodes.on_change(self._node_changed)
        self._pods.on_change(self._pod_changed)

    def _node_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None and old is not None:
            self.enqueue(wire.name_of(old))

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None or not wire.finished(new):
            self._finished.pop(wire.key_of(new or old or {}), None)
        else:
            self._finished[wire.key_of(new)] = None
            if len(self._finished) > MAX_FINISHED_PODS:
                self.enqueue(_FINISHED)
        if new is not None and wire.node_of(new) not in self._nodes.items and (wire.node_of(new) or wire.deleting(new)):
            self.enqueue(wire.node_of(new))

    async def reconcile(self, key: str) -> None:
        if key == _FINISHED:
            await self._thin_out()
        elif not key:
            await self._delete_unscheduled()
        elif self._nodes.get(key) is not None:
            self._missing_since.pop(key, None)
        else:
            await self._delete_orphans(key)

    async def _delete_orphans(self, node: str) -> None:
        """Delete the pods of a missing node after a delay, since the node may come back."""
        pods, now = list(self._pods.under(BY_NODE, node).values()), self.world.now()
        if not pods:
            self._missing_since.pop(node, None)
            return
        due = self._missing_since.setdefault(node, now) + timedelta(seconds=QUARANTINE_SECONDS)
        if now < due:
            self.enqueue_at(node, due)
            return
        target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
        for pod in pods:
            if not wire.finished(pod):
                change = {**target, "message": "PodGC: node no longer exists"}
                await self.world.set_conditions(PODS, pod, [change], phase="Failed")
            await self.world.delete(PODS, pod, grace_seconds=0)

    async def _delete_unscheduled(self) -> None:
        for pod in [pod for pod in self._pods.items.values() if wire.deleting(pod) and not wire.node_of(pod)]:
            if pod["metadata"].get("deletionGracePeriodSeconds"):
                await self.world.delete(PODS, pod, grace_seconds=0)

    async def _thin_out(self) -> None:
        pods = [self._pods.items[key] for key in self._finished if not wire.deleting(self._pods.items[key])]
        for pod in sorted(pods, key=wire.oldest_first)[: max(0, len(pods) - MAX_FINISHED_PODS)]:
            await self.world.delete(PODS, pod, grace_seconds=0)
