"""A scheduler that places pods as kube-scheduler does, with preemption.

Nothing is polled: a pod that fits nowhere is tried again when a change could help it.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from dovetail.api.names import REGION_LABEL, ZONE_LABEL
from dovetail.ports import ApiError, Conflict, Create, NotFound
from dovetail.scheduling.default_spread import DEFAULT_SCHEDULER, SchedulerProfile, SchedulerProfiles
from dovetail.sim.actors import wire
from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.scheduling.default_spread import DefaultSpreads
from dovetail.sim.actors.scheduling.demand import Demand, Labels
from dovetail.sim.actors.scheduling.fit import Fit, summary, unfit_message
from dovetail.sim.actors.scheduling.placement import Answers, SchedulerCache, asks_the_same, place
from dovetail.sim.actors.scheduling.preemption import PreemptionVictims, Preemptor, budget, sacrifice
from dovetail.sim.actors.wire import CLAIMS, NODES, PDBS, PODS, VOLUMES, Raw
from dovetail.sim.server.kinds import BINDINGS
from dovetail.values.timestamp import parse_time

_NO_CONFIGURATION = SchedulerProfiles({DEFAULT_SCHEDULER: SchedulerProfile(system=True)})
_PASS = "pass"
_MESSAGES = "messages"
_MAX_TOUCHED = 100_000
# The shortest time between two messages for a pod that stays unschedulable: each new node changes all messages.
_PAUSE = timedelta(seconds=10)
_NEVER = "not eligible due to preemptionPolicy=Never."
_PREEMPTING = "not eligible due to a terminating pod on the nominated node."


def waits(pod: Raw) -> bool:
    """Whether a scheduler has to place the pod."""
    return (
        not wire.node_of(pod)
        and not pod["spec"].get("schedulingGates")
        and not wire.deleting(pod)
        and not wire.finished(pod)
    )


def queue_order(pod: Raw) -> tuple[int, str, str]:
    """Higher priority first, then the older, then by name."""
    return (-(pod["spec"].get("priority") or 0), pod["metadata"]["creationTimestamp"], wire.key_of(pod))


def nominated_node(pod: Raw) -> str:
    """The node on which the pod waits for others to terminate, or an empty name."""
    return str(wire.status_of(pod).get("nominatedNodeName") or "")


class Scheduler(Actor):
    """Binds pods in passes over the waiting ones. `profiles`: its configuration; by default, it has none."""

    def __init__(self, world: ActorContext, profiles: SchedulerProfiles | None = None) -> None:
        super().__init__(world)
        self._defaults = DefaultSpreads(world, profiles or _NO_CONFIGURATION)
        self.cluster = SchedulerCache()
        self._answers: dict[Demand, Answers] = {}
        self._waiting: dict[str, Raw] = {}
        self._parked: dict[str, int] = {}  # pods that fit nowhere, with the counter of changes at that time
        self._demands: dict[str, Demand] = {}  # of waiting pods
        self._told_at: dict[str, datetime] = {}
        self._untold: dict[str, str] = {}
        self._pods = world.store(PODS)
        self._claims, self._volumes, self._pdbs = world.store(CLAIMS), world.store(VOLUMES), world.store(PDBS)
        self._pods.on_change(self._pod_changed)
        world.store(NODES).on_change(self._node_changed)
        self._claims.on_change(self._volume_changed)
        self._volumes.on_change(self._volume_changed)
        self._defaults.services.on_change(self._service_changed)

    def _node_changed(self, old: Raw | None, new: Raw | None) -> None:
        if self.cluster.node_changed(old, new) and self._waiting:
            self.enqueue(_PASS)

    def _volume_changed(self, _old: Raw | None, _new: Raw | None) -> None:
        self._parked.clear()
        if self._waiting:
            self.enqueue(_PASS)

    def _service_changed(self, _old: Raw | None, _new: Raw | None) -> None:
        """Default constraints select pods as Services do."""
        for key, pod in self._waiting.items():
            demand = self._demand(pod)
            if demand is not self._demands[key]:
                self._demands[key] = demand
                self._parked.pop(key, None)
                self.cluster.nominate(key, nominated_node(pod), demand)
                self.enqueue(_PASS)

    def _demand(self, pod: Raw) -> Demand:
        return self.cluster.demand(pod, self._defaults.of(pod))

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        changed = self.cluster.pod_changed(old, new)
        key = wire.key_of(new or old or {})
        if new is not None and waits(new) and self._defaults.serves(new):
            if old is None or key not in self._waiting or not asks_the_same(old, new):
                self._parked.pop(key, None)
                self._demands[key] = self._demand(new)
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
        """Run one pass over the pods that a change could have helped."""
        if key == _MESSAGES:
            await self._tell_late()
            return
        assert key == _PASS
        failed: dict[Demand, tuple[int, str]] = {}
        problem: ApiError | None = None
        for pod in sorted(self._waiting.values(), key=queue_order):
            try:
                await self._schedule(wire.key_of(pod), failed)
            except ApiError as error:  # the other pods do not wait for this one
                problem = error
        if problem is not None:
            raise problem

    def _state(self, demand: Demand) -> int:
        """A counter that changes whenever the placement of the demand could."""
        return self.cluster.changes if demand.looks_around else self.cluster.chances

    async def _schedule(self, key: str, failed: dict[Demand, tuple[int, str]]) -> None:
        pod = self._waiting.get(key)
        if pod is None:
            return
        demand = self._demands[key]
        state = self._state(demand)
        if self._parked.get(key) == state:
            return
        failure = None if demand.claims or nominated_node(pod) else failed.get(demand)
        if failure is not None and failure[0] == state:
            await self._refuse(pod, failure[1])
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
                yield {key: value for key, value in wire.labels_of(volume).items() if key in (ZONE_LABEL, REGION_LABEL)}

    async def _bind(self, pod: Raw, node: str) -> None:
        meta = {"name": wire.name_of(pod), "uid": wire.uid_of(pod)}
        body = {"metadata": meta, "target": {"kind": "Node", "name": node}}
        with contextlib.suppress(NotFound, Conflict):
            await self.world.api.write(Create(BINDINGS, body, namespace=wire.namespace_of(pod)))
        await self.world.refresh(PODS, pod)

    # -- making room --------------------------------------------------------------------------------------------------

    def _preemption(
        self, pod: Raw, demand: Demand, unfit: Mapping[str, Fit], zones: Sequence[Labels]
    ) -> PreemptionVictims | str:
        """The victims, or why preemption does not help."""
        if demand.never_preempts:
            return _NEVER
        node = nominated_node(pod)
        if node in unfit and not unfit[node].final and self._makes_room(node, demand):
            return _PREEMPTING
        pdbs = self._pdbs.items.values() if self.cluster.anybody_below(demand.priority) else ()
        budgets = [left for pdb in pdbs if (left := budget(pdb)) is not None]
        outcome = sacrifice(Preemptor(wire.key_of(pod), demand, zones, budgets, self._started), self.cluster, unfit)
        return outcome if isinstance(outcome, PreemptionVictims) else summary(outcome)

    def _makes_room(self, node: str, demand: Demand) -> bool:
        """Whether pods of a lower priority terminate on the node."""
        others = self.cluster.nodes[node].demands.items()
        return any(other.priority < demand.priority and self.cluster.leaves(key) for key, other in others)

    def _started(self, key: str) -> float:
        pod = self._pods.get(key)
        since = None if pod is None else wire.status_of(pod).get("startTime")
        return math.inf if since is None else parse_time(since).timestamp()

    async def _preempt(self, pod: Raw, message: str, chosen: PreemptionVictims) -> None:
        """Nominate the pod to the node, and delete the victims with their grace periods."""
        await self._refuse(pod, message, chosen.node)
        why = f"{DEFAULT_SCHEDULER}: preempting to accommodate a higher priority pod"
        for key in chosen.victims:
            victim = self._pods.get(key)
            if victim is not None and not wire.deleting(victim):
                await self.world.disrupt(victim, "PreemptionByScheduler", why)

    # -- messages -----------------------------------------------------------------------------------------------------

    async def _refuse(self, pod: Raw, message: str, nominated: str = "") -> None:
        key, now = wire.key_of(pod), self.world.now()
        change = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        old = wire.condition_of(pod, "PodScheduled") or {}
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
        await self.world.set_conditions(PODS, pod, [change], nominatedNodeName=nominated or None)

    async def _tell_late(self) -> None:
        for key, message in list(self._untold.items()):
            pod = self._waiting.get(key)
            if pod is not None and key in self._untold:
                await self._refuse(pod, message, nominated_node(pod))
