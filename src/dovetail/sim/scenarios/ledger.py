"""Records what happens in a simulated cluster: machines, disruptions, pods that move, and the cost.

The records come from what the API server stores and from the requests of the controller; the controllers are only asked
for their decisions.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionType
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.controllers.disruption.reporter import one_line
from dovetail.model.decider import Decider
from dovetail.model.finding import Finding
from dovetail.model.pod_records import PodInterner
from dovetail.planning.disruption.records import read_record
from dovetail.ports import NODECLAIMS, NODES, PODS, Delete, EventType, Evict, Resource, Write
from dovetail.rules.protection import protection
from dovetail.rules.reasons import MARKED
from dovetail.sim.actors import wire
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import Raw, condition_of, condition_status, key_of, labels_of, node_of
from dovetail.sim.cloud.machines import SimCloud
from dovetail.sim.karpenter.view import KarpenterClient
from dovetail.sim.server.api_server import ApiServer, Client
from dovetail.sim.server.store import Change
from dovetail.state.instance_types import BILLION
from dovetail.values.timestamp import time_between
from dovetail.views.simulation import report
from dovetail.views.simulation.report import (
    DISRUPTED,
    HOUR,
    UNHEEDED,
    ConsolidationCounts,
    Hour,
    MachineLife,
    ReportedViolation,
    SimulationReport,
    TimelineEntry,
)

T = TypeVar("T")

_LOST: Final = {"DeletionByTaintManager": "its node was out of reach", "DeletionByPodGC": "its node is gone"}
_PREEMPTED: Final = "PreemptionByScheduler"
OTHER: Final = "Other"
NOT_REGISTERED: Final = "NotRegistered"  # given up, because it was not launched or did not register in time


class _ClaimLife(msgspec.Struct):
    """The life of a NodeClaim so far."""

    claim: Raw
    standing: bool  # from before the start
    launched_at: datetime | None = None
    ready_at: datetime | None = None
    disrupted_at: datetime | None = None
    gone_at: datetime | None = None
    reason: str = ""
    price: float | None = None

    def cost_between(self, begin: datetime, end: datetime) -> float:
        """The cost of the part of its life between the instants."""
        if self.launched_at is None or self.price is None:
            return 0.0
        until = end if self.gone_at is None else min(end, self.gone_at)
        return self.price * ((until - max(begin, self.launched_at)) / HOUR)


class Ledger:
    """The record of a run. Create it after the objects of the start, and before any controller runs."""

    def __init__(
        self,
        cluster: SimCluster,
        cloud: SimCloud,
        prices: Mapping[str, float | None],
        guessed: Container[tuple[str, str, str]] = frozenset(),
    ) -> None:
        """`guessed`: type, zone and capacity type of machines whose price is a guess."""
        self._guessed = guessed
        self._cluster = cluster
        self._cloud = cloud
        self._prices = prices  # of the machines at the start, by provider ID
        self._lives: dict[str, _ClaimLife] = {}  # by UID
        self._notes: list[tuple[TimelineEntry, str]] = []  # with the ID of the command, if it is one
        self._commands: dict[str, str] = {}  # descriptions of commands, by ID
        self._counts: Counter[str] = Counter()
        self._terminated: Counter[str] = Counter()  # by reason
        self._blocked: Counter[str] = Counter()  # pods whose annotations ask to keep them, by how they went
        self.disruption: DisruptionController | None = None
        self._pods = PodInterner()
        self._held_since = {wire.name_of(node): self.now for node in cluster.objects(wire.NODES) if is_held(node)}
        self._held_nodes = {node["metadata"]["uid"] for node in cluster.objects(wire.NODES) if is_held(node)}
        self._held = timedelta()
        for claim in cluster.objects(NODECLAIMS):
            self._lives[claim["metadata"]["uid"]] = _ClaimLife(
                claim,
                standing=True,
                ready_at=self.now if _is_true(claim, ConditionType.INITIALIZED) else None,
                launched_at=self.now if _is_true(claim, ConditionType.LAUNCHED) else None,
                price=self._price(claim),
            )
        cluster.server.registry.store.observers.append(self._observe)

    @property
    def now(self) -> datetime:
        return self._cluster.clock.now()

    @property
    def count(self) -> int:
        """The number of entries."""
        return len(self._notes)

    def note(self, type_: str, object_: str, message: str, *, command: str = "") -> None:
        """Add an entry. The description of the command, once it is known, replaces the message."""
        self._notes.append((TimelineEntry(at=self.now, type=type_, object=object_, message=message), command))

    # -- machines -----------------------------------------------------------------------------------------------------

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        if resource.plural == NODECLAIMS.plural:
            self._claim_changed(change)
        elif resource.plural == PODS.plural and not resource.group:
            self._pod_changed(change)
        elif resource.plural == NODES.plural:
            self._node_changed(change)

    def _claim_changed(self, change: Change) -> None:
        claim, old = change.new.body, {} if change.old is None else change.old.body
        meta = claim["metadata"]
        name = f"{names.NODECLAIM_KIND}/{meta['name']}"
        life = self._lives.setdefault(meta["uid"], _ClaimLife(claim, standing=False))
        if change.type is EventType.DELETED:
            self._gone(life, name)
            return
        life.claim = claim
        self._came_up(life, name, old)
        for reason, condition in MARKED.items():
            if _is_true(claim, condition) and not _is_true(old, condition):
                entry = condition_of(claim, condition) or {}
                self.note(reason.lower(), name, str(entry.get("message") or entry.get("reason") or ""))
        if _is_chosen(claim) and not (old and _is_chosen(old)):
            self._chosen(life, name)
        elif life.disrupted_at is not None and not _is_chosen(claim):
            self._back_again(life, name)
        self._follow_commands()

    def _came_up(self, life: _ClaimLife, name: str, old: Raw) -> None:
        claim = life.claim
        if _is_true(claim, ConditionType.LAUNCHED) and life.launched_at is None:
            life.launched_at = self.now
            life.price = self._price(claim)
            self._counts["launched"] += 1
            self.note("launched", name, _machine(claim, life.price))
        if (
            _is_true(claim, ConditionType.INITIALIZED)
            and not _is_true(old, ConditionType.INITIALIZED)
            and not life.ready_at
        ):
            life.ready_at = self.now
            self.note("ready", name, f"node {wire.status_of(claim).get('nodeName', '')} takes pods")

    def _chosen(self, life: _ClaimLife, name: str) -> None:
        record = read_record(wire.annotations_of(life.claim).get(names.DISRUPTION_COMMAND, ""))
        condition = condition_of(life.claim, ConditionType.DISRUPTION_REASON) or {}
        reason = str(condition.get("reason") or (OTHER if record is None else record.reason))
        life.disrupted_at, life.reason = self.now, reason
        self.note(DISRUPTED, name, reason, command="" if record is None else record.id)

    def _back_again(self, life: _ClaimLife, name: str) -> None:
        if not wire.deleting(life.claim):
            self.note("rolled-back", name, f"{life.reason}: given up for now")
            life.disrupted_at, life.reason = None, ""

    def _gone(self, life: _ClaimLife, name: str) -> None:
        life.gone_at = self.now
        life.reason = life.reason or _why_gone(life.claim)
        self._terminated[life.reason] += 1
        age = time_between(wire.created_at(life.claim), self.now)
        took = "" if life.disrupted_at is None else time_between(life.disrupted_at, self.now)
        draining = f", the last {took} draining" if took else ""
        self.note("terminated", name, f"{life.reason}: lifetime {age}{draining}")

    def _is_guessed(self, claim: Raw) -> bool:
        labels = wire.labels_of(claim)
        machine = (names.INSTANCE_TYPE_LABEL, names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL)
        type_, zone, capacity_type = (str(labels.get(label, "")) for label in machine)
        return (type_, zone, capacity_type) in self._guessed

    def _price(self, claim: Raw) -> float | None:
        provider_id = wire.status_of(claim).get("providerID", "")
        if provider_id in self._prices:
            return self._prices[provider_id]
        machine = self._cloud.machines.get(provider_id)
        text = None if machine is None else machine.instance.labels.get(names.INSTANCE_PRICE_LABEL)
        return None if text is None else float(text)

    def _follow_commands(self) -> None:
        """Describe the commands of the controller while its history still holds them."""
        history = () if self.disruption is None else reversed(self.disruption.history)
        for past in history:
            if past.command.id in self._commands:
                return
            if past.rejected is None:
                self._commands[past.command.id] = one_line(past.command)

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _pod_changed(self, change: Change) -> None:
        pod = change.new.body
        target = condition_of(pod, "DisruptionTarget")
        before = None if change.old is None else condition_of(change.old.body, "DisruptionTarget")
        if target is None or before is not None or change.type is EventType.DELETED or _is_daemon(pod):
            return
        reason = str(target.get("reason"))
        if reason == _PREEMPTED:
            self._counts["preempted"] += 1
            self.note("preempted", f"Pod/{key_of(pod)}", str(target.get("message") or "by a pod of higher priority"))
        elif reason in _LOST:
            self._counts["lost"] += 1
            self.note("lost", f"Pod/{key_of(pod)}", f"from {node_of(pod)}: {_LOST[reason]}")

    def pod_taken_off(self, type_: str, namespace: str, name: str, *, blocked: str = "", detail: str = "") -> None:
        """Record that a controller has evicted the pod, or deleted it for a deadline.

        `blocked`: why its annotations ask to keep it.
        """
        pod = self._cluster.object(PODS, name, namespace=namespace)
        self._counts[type_] += 1
        node = "" if pod is None else node_of(pod)
        self.note(type_, f"Pod/{namespace}/{name}", f"from {node}{detail}")
        if blocked:
            self._blocked[type_] += 1
            self.note(UNHEEDED, f"Pod/{namespace}/{name}", f"{type_} all the same: {blocked}")

    def wish_of(self, namespace: str, name: str) -> str:
        """Why the annotations of the pod ask to keep it now, in Dovetail's reading; empty: they do not."""
        pod = self._cluster.object(PODS, name, namespace=namespace)
        if pod is None or wire.annotations_of(pod).keys().isdisjoint(names.PROTECTION_ANNOTATIONS):
            return ""
        read = {"metadata": pod["metadata"], "status": {"phase": wire.phase_of(pod)}}
        record = self._pods.pod(msgspec.convert(read, objects.Pod))
        return next((f"{each.rule}: {each.message}" for each in protection(record, self.now) if not each.allowed), "")

    # -- holds ---------------------------------------------------------------------------------------------------------

    def _node_changed(self, change: Change) -> None:
        """Guard and drive keep Karpenter off."""
        node = change.new.body
        name, held = node["metadata"]["name"], change.type is not EventType.DELETED and is_held(node)
        if held and name not in self._held_since:
            self._held_since[name] = self.now
            self._held_nodes.add(node["metadata"]["uid"])
        elif not held and (since := self._held_since.pop(name, None)) is not None:
            self._held += self.now - since

    # -- the report ---------------------------------------------------------------------------------------------------

    def report(
        self,
        *,
        start: datetime,
        seed: int,
        decider: Decider,
        problems: Sequence[Finding],
        violations: Sequence[ReportedViolation] | None,
        late: int | None,
    ) -> SimulationReport:
        """Report on the time from the start to now. `violations` None: nothing was checked."""
        self._follow_commands()
        end = self.now
        lives = sorted(self._lives.values(), key=lambda life: life.claim["metadata"]["name"])
        total = sum(life.cost_between(start, end) for life in lives)
        known = sum(life.cost_between(start, end) for life in lives if not self._is_guessed(life.claim))
        return SimulationReport(
            start=start,
            end=end,
            seed=seed,
            decider=decider,
            nodes=report.NodeCounts(
                at_start=sum(life.standing for life in lives),
                at_end=sum(life.gone_at is None for life in lives),
                launched=self._counts["launched"],
                terminated=dict(sorted(self._terminated.items())),
            ),
            pods=report.PodCounts(
                **{key: self._counts[key] for key in ("evicted", "preempted", "forced", "lost")},
                pending=sum(
                    wire.active(pod) and wire.phase_of(pod) == "Pending" for pod in self._cluster.objects(PODS)
                ),
            ),
            cost=report.Cost(
                total=round(total, 4),
                known_share=round(known / total, 4) if total else None,
                per_hour_start=round(sum((life.price or 0.0 for life in lives if life.standing), 0.0), 4),
                per_hour_end=round(self.cost_per_hour, 4),
            ),
            protection=report.ProtectionCounts(
                held_nodes=len(self._held_nodes),
                held_hours=round(
                    (self._held + sum((end - at for at in self._held_since.values()), timedelta())) / HOUR, 1
                ),
                evicted=self._blocked["evicted"],
                forced=self._blocked["forced"],
                late=late,
            ),
            consolidation=None if self.disruption is None else self._consolidation(self.disruption, end - start),
            violations=tuple(violations or ()),
            checked=violations is not None,
            hours=self._hours(start, end, lives),
            lives=tuple(_reported(life, start) for life in lives if life.launched_at is not None),
            timeline=self.timeline(),
            problems=tuple(problems),
        )

    def _consolidation(self, disruption: DisruptionController, span: timedelta) -> ConsolidationCounts:
        totals = disruption.accounts.totals
        return ConsolidationCounts(
            commands=totals.commands,
            given_up=totals.given_up,
            promised=round(totals.promised / BILLION, 4),
            realised=round(totals.realised / BILLION, 4),
            moved=totals.moved,
            moved_per_day=round(totals.moved * (timedelta(days=1) / span), 1) if span else 0.0,
            moved_again=totals.moved_again,
            moved_in_vain=totals.moved_in_vain,
            unplanned=totals.unplanned,
        )

    @property
    def cost_per_hour(self) -> float:
        return sum((life.price or 0.0 for life in self._lives.values() if life.gone_at is None), 0.0)

    def timeline(self, last: int | None = None) -> tuple[TimelineEntry, ...]:
        """All entries, or only the last ones."""
        return tuple(
            msgspec.structs.replace(entry, message=self._commands.get(command, entry.message)) if command else entry
            for entry, command in (self._notes if last is None else self._notes[-last:])
        )

    def _hours(self, start: datetime, end: datetime, lives: Sequence[_ClaimLife]) -> tuple[Hour, ...]:
        number = max(1, -((start - end) // HOUR))
        counts = Counter((entry.type, (entry.at - start) // HOUR) for entry, _ in self._notes)
        nodes, cost = [0] * number, [0.0] * number
        for life in lives:
            if life.launched_at is None:
                continue
            begin, stop = max(start, life.launched_at), end if life.gone_at is None else life.gone_at
            for index in range((begin - start) // HOUR, min(number, -((start - stop) // HOUR))):
                hour_start, hour_end = start + index * HOUR, min(end, start + (index + 1) * HOUR)
                nodes[index] += life.gone_at is None or life.gone_at > hour_end
                cost[index] += life.cost_between(hour_start, hour_end)
        return tuple(
            Hour(
                at=start + index * HOUR,
                nodes=nodes[index],
                cost=round(cost[index], 4),
                disruptions=counts[DISRUPTED, index],
                evicted=counts["evicted", index],
                forced=counts["forced", index],
            )
            for index in range(number)
        )


class ObservedClient(Client):
    """The client of a controller, which records evictions and deletions of pods in the ledger."""

    def __init__(self, server: ApiServer, name: str, ledger: Ledger) -> None:
        super().__init__(server, name)
        self._ledger = ledger

    async def write(self, write: Write[T]) -> T:
        if isinstance(write, Delete) and write.resource.plural == PODS.plural:  # the pod may be gone afterwards
            namespace = write.namespace or ""
            blocked = self._ledger.wish_of(namespace, write.name)
            detail = f", with {write.grace_seconds} s of grace: its node's deadline is near"
            self._ledger.pod_taken_off("forced", namespace, write.name, blocked=blocked, detail=detail)
        blocked = self._ledger.wish_of(write.namespace, write.name) if isinstance(write, Evict) else ""
        answer = await super().write(write)
        if isinstance(write, Evict):
            self._ledger.pod_taken_off("evicted", write.namespace, write.name, blocked=blocked)
        return answer


class ObservedKarpenterClient(ObservedClient, KarpenterClient):
    """The same for Karpenter's client."""


# -- reading claims ----------------------------------------------------------------------------------------------------


def _is_true(claim: Raw, type_: ConditionType) -> bool:
    return condition_status(claim, type_) == "True"


def _is_chosen(claim: Raw) -> bool:
    """By the condition; drive leaves that to Karpenter, and only records its command."""
    return _is_true(claim, ConditionType.DISRUPTION_REASON) or names.DISRUPTION_COMMAND in wire.annotations_of(claim)


def is_held(node: Raw) -> bool:
    annotations = wire.annotations_of(node)
    return names.HELD in annotations and annotations.get(names.DO_NOT_DISRUPT) == "true"


def _is_daemon(pod: Raw) -> bool:
    """Pods of DaemonSets come and go with their nodes."""
    owner = wire.controller_of(pod)
    return owner is not None and owner["kind"] == "DaemonSet"


def _machine(claim: Raw, price: float | None) -> str:
    labels = labels_of(claim)
    keys = (names.INSTANCE_TYPE_LABEL, names.CAPACITY_TYPE_LABEL, names.ZONE_LABEL)
    listed = ", ".join(labels[key] for key in keys if labels.get(key))
    return listed if price is None else f"{listed}, {price:.4f} an hour"


def _reported(life: _ClaimLife, start: datetime) -> MachineLife:
    labels = labels_of(life.claim)
    return MachineLife(
        node_claim=wire.name_of(life.claim),
        node=wire.status_of(life.claim).get("nodeName", ""),
        nodepool=labels.get(names.NODEPOOL_LABEL, ""),
        instance_type=labels.get(names.INSTANCE_TYPE_LABEL, ""),
        capacity_type=labels.get(names.CAPACITY_TYPE_LABEL, ""),
        zone=labels.get(names.ZONE_LABEL, ""),
        price=life.price,
        launched_at=None if life.standing and life.launched_at == start else life.launched_at,
        ready_at=life.ready_at,
        disrupted_at=life.disrupted_at,
        gone_at=life.gone_at,
        reason=life.reason,
    )


def _why_gone(claim: Raw) -> str:
    """Of a claim that nobody chose within the span: it was leaving at the start, or was given up."""
    reason = (condition_of(claim, ConditionType.DISRUPTION_REASON) or {}).get("reason")
    if reason:
        return str(reason)
    return OTHER if _is_true(claim, ConditionType.REGISTERED) else NOT_REGISTERED
