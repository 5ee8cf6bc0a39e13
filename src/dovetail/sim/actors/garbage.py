"""Which pods does nobody else clean up? Those of nodes that are gone, and the remains of many finished ones.

Owner references are followed, and namespaces emptied, by the server itself.
"""

from datetime import datetime, timedelta

from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.kubelet import BY_NODE
from dovetail.sim.actors.wire import (
    NODES,
    PODS,
    Raw,
    deleting,
    finished,
    key_of,
    name_of,
    node_of,
    oldest_first,
    with_conditions,
)

QUARANTINE_SECONDS = 40.0
MAX_FINISHED_PODS = 12_500
_FINISHED = " finished"  # no node's name has a blank


class PodGarbage(Actor):
    """The pod garbage collector; its keys are names of nodes."""

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self._missing_since: dict[str, datetime] = {}
        self._finished: dict[str, None] = {}
        self._nodes, self._pods = world.store(NODES), world.store(PODS)
        self._pods.index(BY_NODE, node_of)
        self._nodes.on_change(self._node_changed)
        self._pods.on_change(self._pod_changed)

    def _node_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None and old is not None:
            self.enqueue(name_of(old))

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        pod = new or old
        assert pod is not None
        if new is None or not finished(new):
            self._finished.pop(key_of(pod), None)
        else:
            self._finished[key_of(pod)] = None
            if len(self._finished) > MAX_FINISHED_PODS:
                self.enqueue(_FINISHED)
        if new is not None and node_of(new) not in self._nodes.items and (node_of(new) or deleting(new)):
            self.enqueue(node_of(new))

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
        """A node may come back, so its pods wait for a while."""
        pods = list(self._pods.under(BY_NODE, node).values())
        now = self.world.now()
        if not pods:
            self._missing_since.pop(node, None)
            return
        due = self._missing_since.setdefault(node, now) + timedelta(seconds=QUARANTINE_SECONDS)
        if now < due:
            self.enqueue_at(node, due)
            return
        for pod in pods:
            await self._fail(pod, now)
            await self.world.delete(PODS, pod, grace_seconds=0)

    async def _fail(self, pod: Raw, now: datetime) -> None:
        if finished(pod):
            return
        change = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
        }
        status = {"phase": "Failed", "conditions": with_conditions(pod, [change], now)}
        await self.world.patch(PODS, pod, {"status": status}, subresource="status")

    async def _delete_unscheduled(self) -> None:
        for pod in [pod for pod in self._pods.items.values() if deleting(pod) and not node_of(pod)]:
            if pod["metadata"].get("deletionGracePeriodSeconds"):
                await self.world.delete(PODS, pod, grace_seconds=0)

    async def _thin_out(self) -> None:
        pods = [self._pods.items[key] for key in self._finished if not deleting(self._pods.items[key])]
        for pod in sorted(pods, key=oldest_first)[: max(0, len(pods) - MAX_FINISHED_PODS)]:
            await self.world.delete(PODS, pod, grace_seconds=0)
