"""Where do unscheduled pods go? A scheduler that answers as kube-scheduler does, and makes room for the important.

Nothing is polled: a pod that fits nowhere is looked at again when a change could help it.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from dovetail.api.names import REGION_LABEL, ZONE_LABEL
from dovetail.ports import ApiError, Conflict, Create, NotFound
from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.demand import Demand, Labels
from dovetail.sim.actors.fit import Fit, summary, unfit_message
from dovetail.sim.actors.placement import Answers, SchedulerCache, asks_the_same, place
from dovetail.sim.actors.preemption import PreemptionVictims, Preemptor, budget, sacrifice
from dovetail.sim.actors.wire import (
    CLAIMS,
    NODES,
    PDBS,
    PODS,
    VOLUMES,
    Raw,
    condition_of,
    deleting,
    finished,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    status_of,
    uid_of,
    with_conditions,
)
from dovetail.sim.server.kinds import BINDINGS
from dovetail.values.timestamp import parse_time

NAME = "default-scheduler"
_PASS = "pass"
_MESSAGES = "messages"
_MAX_TOUCHED = 100_000
# A new message for a pod that is still unschedulable is written this often: each new node changes all of them.
_PAUSE = timedelta(seconds=10)
_NEVER = "not eligible due to preemptionPolicy=Never."
_PREEMPTING = "not eligible due to a terminating pod on the nominated node."
_PREEMPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": f"{NAME}: preempting to accommodate a higher priority pod",
}


def waits(pod: Raw) -> bool:
    """Whether the pod is the default scheduler's to place."""
    spec = pod["spec"]
    ours = (spec.get("schedulerName") or NAME) == NAME
    return ours and not node_of(pod) and not spec.get("schedulingGates") and not deleting(pod) and not finished(pod)


def queue_order(pod: Raw) -> tuple[int, str, str]:
    """Higher priority first, then the older, then by name."""
    return (-(pod["spec"].get("priority") or 0), pod["metadata"]["creationTimestamp"], key_of(pod))


def nominated_node(pod: Raw) -> str:
    """The node on which the pod waits for others to leave, or an empty name."""
    return str(status_of(pod).get("nominatedNodeName") or "")


class Scheduler(Actor):
    """Binds pods, one pass over the waiting ones at a time."""

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self.cluster = SchedulerCache()
        self._answers: dict[Demand, Answers] = {}
        self._waiting: dict[str, Raw] = {}
        self._parked: dict[str, int] = {}  # pods that fit nowhere, and the state of the cluster that said so
        self._demands: dict[str, Demand] = {}  # of the waiting ones
        self._told_at: dict[str, datetime] = {}
        self._untold: dict[str, str] = {}
        self._pods = world.store(PODS)
        self._claims, self._volumes, self._pdbs = world.store(CLAIMS), world.store(VOLUMES), world.store(PDBS)
        self._pods.on_change(self._pod_changed)
        world.store(NODES).on_change(self._node_changed)
        self._claims.on_change(self._volume_changed)
        self._volumes.on_change(self._volume_changed)

    def _node_changed(self, old: Raw | None, new: Raw | None) -> None:
        if self.cluster.node_changed(old, new) and self._waiting:
            self.enqueue(_PASS)

    def _volume_changed(self, _old: Raw | None, _new: Raw | None) -> None:
        self._parked.clear()
        if self._waiting:
            self.enqueue(_PASS)

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        changed = self.cluster.pod_changed(old, new)
        pod = new or old
        assert pod is not None
        key = key_of(pod)
        if new is not None and waits(new):
            if old is None or key not in self._waiting or not asks_the_same(old, new):
                self._parked.pop(key, None)
                self._demands[key] = self.cluster.demand(new)
                changed = True
            self._waiting[key] = new
            changed |= self.cluster.nominate(key, nominated_node(new), self._demands[key])
        elif self._waiting.pop(key, None) is not None:
            self.cluster.nominate(key, "", self._demands[key])
            for table in (self._demands, self._parked, self._told_at, self._untold):
                table.pop(key, None)
        if changed and self._waiting:
            self.enqueue(_PASS)

    async def reconcile(self, key: str) -> None:
        """One pass over the pods that a change could have helped."""
        if key == _MESSAGES:
            await self._tell_late()
            return
        assert key == _PASS
        failed: dict[Demand, tuple[int, str]] = {}
        problem: ApiError | None = None
        for pod in sorted(self._waiting.values(), key=queue_order):
            try:
                await self._schedule(key_of(pod), failed)
            except ApiError as error:  # the other pods need not wait for this one
                problem = error
        if problem is not None:
            raise problem

    def _state(self, demand: Demand) -> int:
        """A number that moves when the demand's answer could."""
        return self.cluster.changes if demand.looks_around else self.cluster.chances

    async def _schedule(self, key: str, failed: dict[Demand, tuple[int, str]]) -> None:
        pod = self._waiting.get(key)
        if pod is None:
            return
        demand = self._demands[key]
        state = self._state(demand)
        if self._parked.get(key) == state:
            return
        known = None if demand.claims or nominated_node(pod) else failed.get(demand)
        if known is not None and known[0] == state:
            await self._refuse(pod, known[1])
            self._parked[key] = state
            return
        zones = tuple(self._zones(pod["metadata"].get("namespace", ""), demand.claims))
        chosen, unfit = place(demand, self.cluster, self._answers_to(demand), zones, key=key)
        if chosen is not None:
            await self._bind(pod, chosen)
            return
        outcome = self._preemption(pod, demand, unfit, zones)
        if isinstance(outcome, PreemptionVictims):
            await self._preempt(pod, unfit_message(unfit), outcome)
        elif outcome == _PREEMPTING:
            await self._refuse(pod, unfit_message(unfit, outcome), nominated_node(pod))
        else:
            message = unfit_message(unfit, outcome)
            failed[demand] = (state, message)
            await self._refuse(pod, message)
        self._parked[key] = state

    def _answers_to(self, demand: Demand) -> Answers:
        if len(self.cluster.touched) > _MAX_TOUCHED:
            self.cluster.touched.clear()
            self._answers.clear()
        return self._answers.setdefault(demand, Answers(demand))

    def _zones(self, namespace: str, claims: Iterable[str]) -> Iterable[Labels]:
        """The zone labels of the volumes that the claims are bound to."""
        for name in claims:
            claim = self._claims.get(f"{namespace}/{name}")
            volume = self._volumes.get(claim["spec"].get("volumeName") or "") if claim is not None else None
            if volume is not None:
                yield {key: value for key, value in labels_of(volume).items() if key in (ZONE_LABEL, REGION_LABEL)}

    async def _bind(self, pod: Raw, node: str) -> None:
        meta = {"name": name_of(pod), "uid": uid_of(pod)}
        body = {"metadata": meta, "target": {"kind": "Node", "name": node}}
        with contextlib.suppress(NotFound, Conflict):
            await self.world.api.write(Create(BINDINGS, body, namespace=namespace_of(pod)))
        await self.world.refresh(PODS, pod)

    # -- making room --------------------------------------------------------------------------------------------------

    def _preemption(
        self, pod: Raw, demand: Demand, unfit: Mapping[str, Fit], zones: Sequence[Labels]
    ) -> PreemptionVictims | str:
        """Who has to go, or why that is of no use."""
        if demand.never_preempts:
            return _NEVER
        node = nominated_node(pod)
        if node in unfit and not unfit[node].final and self._makes_room(node, demand):
            return _PREEMPTING
        pdbs = self._pdbs.items.values() if self.cluster.anybody_below(demand.priority) else ()
        budgets = [found for pdb in pdbs if (found := budget(pdb)) is not None]
        outcome = sacrifice(Preemptor(key_of(pod), demand, zones, budgets, self._started), self.cluster, unfit)
        return outcome if isinstance(outcome, PreemptionVictims) else summary(outcome)

    def _makes_room(self, node: str, demand: Demand) -> bool:
        """Whether pods of a lower priority are leaving the node."""
        others = self.cluster.nodes[node].demands.items()
        return any(other.priority < demand.priority and self.cluster.leaves(key) for key, other in others)

    def _started(self, key: str) -> float:
        pod = self._pods.get(key)
        since = None if pod is None else status_of(pod).get("startTime")
        return math.inf if since is None else parse_time(since).timestamp()

    async def _preempt(self, pod: Raw, message: str, chosen: PreemptionVictims) -> None:
        """Keep the place for the pod, and let the others go as gracefully as they wish."""
        await self._refuse(pod, message, chosen.node)
        for key in chosen.victims:
            victim = self._pods.get(key)
            if victim is None or deleting(victim):
                continue
            status = {"conditions": with_conditions(victim, [_PREEMPTED], self.world.now())}
            if await self.world.patch(PODS, victim, {"status": status}, subresource="status") is not None:
                await self.world.delete(PODS, victim)

    # -- saying no ----------------------------------------------------------------------------------------------------

    async def _refuse(self, pod: Raw, message: str, nominated: str = "") -> None:
        key, now = key_of(pod), self.world.now()
        change = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        old = condition_of(pod, "PodScheduled") or {}
        moved = nominated != nominated_node(pod)
        self._untold.pop(key, None)
        if {**old, **change} == old and not moved:
            return
        due = self._told_at.get(key, now - _PAUSE) + _PAUSE
        if due > now and not moved:
            self._untold[key] = message
            self.enqueue_at(_MESSAGES, due)
            return
        self._told_at[key] = now
        status = {"conditions": with_conditions(pod, [change], now), "nominatedNodeName": nominated or None}
        await self.world.patch(PODS, pod, {"status": status}, subresource="status")

    async def _tell_late(self) -> None:
        for key, message in list(self._untold.items()):
            pod = self._waiting.get(key)
            if pod is not None and key in self._untold:
                await self._refuse(pod, message, nominated_node(pod))
