"""The node lifecycle controller: taints nodes by their conditions, and evicts pods that do not tolerate the taints."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from dovetail.api.names import NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT, TaintEffect
from dovetail.sim.actors import wire
from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.kubelet import BY_NODE
from dovetail.sim.actors.scheduling.demand import toleration_matches
from dovetail.sim.actors.wire import NODES, PODS, Raw
from dovetail.sim.actors.zones import Zones

# The longest silence of a kubelet: kube-controller-manager's default since 1.32.
MONITOR_GRACE_SECONDS = 50.0

_BY_CONDITION = {
    ("Ready", "False"): NOT_READY_TAINT,
    ("Ready", "Unknown"): UNREACHABLE_TAINT,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_OURS = {(key, TaintEffect.NO_SCHEDULE) for key in (*_BY_CONDITION.values(), UNSCHEDULABLE_TAINT)} | {
    (NOT_READY_TAINT, TaintEffect.NO_EXECUTE),
    (UNREACHABLE_TAINT, TaintEffect.NO_EXECUTE),
}
_SILENT = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def called_for(node: Raw, *, evicts: bool = True) -> list[tuple[str, TaintEffect]]:
    """Key and effect of the taints for the node's conditions and its cordon. `evicts`: NoExecute too."""
    wanted: list[tuple[str, TaintEffect]] = []
    if wire.condition_of(node, "Ready") is None:  # no kubelet has reported yet
        wanted.append((NOT_READY_TAINT, TaintEffect.NO_SCHEDULE))
    for (type_, status), key in _BY_CONDITION.items():
        if wire.condition_status(node, type_) == status:
            wanted.append((key, TaintEffect.NO_SCHEDULE))
            if type_ == "Ready" and evicts:
                wanted.append((key, TaintEffect.NO_EXECUTE))
    if node.get("spec", {}).get("unschedulable"):
        wanted.append((UNSCHEDULABLE_TAINT, TaintEffect.NO_SCHEDULE))
    return wanted


def taints_after(node: Raw, now: datetime, *, evicts: bool = True) -> list[dict[str, Any]]:
    """The desired taints of the node, with those of other controllers."""
    wanted = called_for(node, evicts=evicts)
    taints = {(taint["key"], taint["effect"]): dict(taint) for taint in node.get("spec", {}).get("taints") or ()}
    kept = {pair: taint for pair, taint in taints.items() if pair not in _OURS or pair in wanted}
    added = [pair for pair in wanted if pair not in kept]
    new = [{"key": key, "effect": str(effect), "timeAdded": wire.timestamp(now)} for key, effect in added]
    return [*kept.values(), *new]


def evicted_at(tolerations: Sequence[Raw], taints: Iterable[Raw], since: datetime) -> datetime | None:
    """When the NoExecute taints evict the pod; None: never. The shortest matching toleration counts."""
    seconds: list[int] = []
    for taint in taints:
        if taint["effect"] != TaintEffect.NO_EXECUTE:
            continue
        used = [toleration for toleration in tolerations if toleration_matches(toleration, taint)]
        if not used:
            return since
        seconds += [one["tolerationSeconds"] for one in used if one.get("tolerationSeconds") is not None]
    return since + timedelta(seconds=max(0, min(seconds))) if seconds else None


class NodeLifecycle(Actor):
    """Sets taints for conditions, and conditions for kubelets that are silent."""

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self._zones = Zones()
        self._silent_since: dict[str, datetime] = {}
        self._nodes, self._pods = world.store(NODES), world.store(PODS)
        self._pods.index(BY_NODE, wire.node_of)
        self._nodes.on_change(self._node_changed)

    def kubelet_died(self, node: str) -> None:
        """A fault: the kubelet sends no more heartbeats."""
        now = self._silent_since.setdefault(node, self.world.now())
        self.enqueue_at(node, now + timedelta(seconds=MONITOR_GRACE_SECONDS))

    def kubelet_revived(self, node: str) -> None:
        self._silent_since.pop(node, None)

    def _node_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is not None:
            self.enqueue(wire.name_of(new))
        for name in self._zones.update(wire.name_of(new or old or {}), new, self.world.now()):
            self.enqueue(name)

    async def reconcile(self, key: str) -> None:
        node = self._nodes.get(key)
        if node is None:
            return
        now = self.world.now()
        silent = self._silent_since.get(key)
        lost = silent is not None and now >= silent + timedelta(seconds=MONITOR_GRACE_SECONDS)
        if lost and wire.condition_status(node, "Ready") != "Unknown":
            condition = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
            changes = [{"type": type_, "status": "Unknown", **condition} for type_ in _SILENT]
            node = await self.world.set_conditions(NODES, node, changes)
        if node is None or key not in self._nodes.items:
            return
        evicted = any((taint["key"], taint["effect"]) in _OURS for taint in _no_execute(node))
        evicts = self._evicts(node, evicted=evicted)
        taints = taints_after(node, now, evicts=evicts)
        if taints != (node.get("spec", {}).get("taints") or []):
            await self.world.patch(NODES, node, {"spec": {"taints": taints or None}})
        if evicts and not evicted and key in self._nodes.items:
            self._zones.took_turn(key, now)
        if wire.condition_status(node, "Ready") == "Unknown":
            await self._pods_not_ready(key)

    def _evicts(self, node: Raw, *, evicted: bool) -> bool:
        """Whether the node may have a taint that evicts its pods now; if it may later, enqueue it."""
        name, now = wire.name_of(node), self.world.now()
        if wire.condition_status(node, "Ready") not in ("False", "Unknown") or self._zones.outage:
            return False
        due = now if evicted else self._zones.turn(name, now)
        if due is not None and due > now:
            self.enqueue_at(name, due)
        return due is not None and due <= now

    async def _pods_not_ready(self, node: str) -> None:
        """Mark the pods of a silent node as not ready; a kubelet that reports again does so for its pods, too."""
        for pod in list(self._pods.under(BY_NODE, node).values()):
            if wire.pod_ready(pod):
                await self.world.set_conditions(PODS, pod, [{"type": "Ready", "status": "False"}])


class TaintEviction(Actor):
    """Deletes pods that do not, or no longer, tolerate a NoExecute taint of their node."""

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self._since: dict[str, datetime] = {}  # by UID of the pod
        self._nodes, self._pods = world.store(NODES), world.store(PODS)
        self._pods.index(BY_NODE, wire.node_of)
        self._nodes.on_change(self._node_changed)
        self._pods.on_change(self._pod_changed)

    def _node_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is not None and _no_execute(new) != ([] if old is None else _no_execute(old)):
            for key in self._pods.under(BY_NODE, wire.name_of(new)):
                self.enqueue(key)

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None:
            self._since.pop(wire.uid_of(old or {}), None)
            return
        node = self._nodes.get(wire.node_of(new))
        if node is not None and (old is None or not wire.node_of(old)) and _no_execute(node):
            self.enqueue(wire.key_of(new))

    async def reconcile(self, key: str) -> None:
        pod = self._pods.get(key)
        node = None if pod is None else self._nodes.get(wire.node_of(pod))
        if pod is None or node is None or wire.deleting(pod) or wire.finished(pod):
            return
        taints, now = _no_execute(node), self.world.now()
        if not taints:
            self._since.pop(wire.uid_of(pod), None)
            return
        due = evicted_at(pod["spec"].get("tolerations") or (), taints, self._since.setdefault(wire.uid_of(pod), now))
        if due is None:
            self._since.pop(wire.uid_of(pod), None)
        elif due > now:
            self.enqueue_at(key, due)
        else:
            message = "Taint manager: deleting due to NoExecute taint"
            await self.world.disrupt(pod, "DeletionByTaintManager", message)


def _no_execute(node: Raw) -> list[Raw]:
    return [taint for taint in node.get("spec", {}).get("taints") or () if taint["effect"] == TaintEffect.NO_EXECUTE]
