"""What happens in a simulated cluster, noted as it happens: machines, disruptions, pods that move, and the bill.

Nothing is asked of the controllers but what they decided: what counts is what the API server stored, and what the
controller's client asked of it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.controllers.disruption.reporter import one_line
from dovetail.model.finding import Finding
from dovetail.planning.disruption.records import read_record
from dovetail.ports import NODECLAIMS, PODS, Delete, EventType, Evict, Resource, Write
from dovetail.rules.reasons import MARKED
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import active, condition_of, controller_of, key_of, node_of, phase_of
from dovetail.sim.cloud.machines import SimCloud
from dovetail.sim.server.api_server import ApiServer, Client
from dovetail.sim.server.store import Change
from dovetail.values.timestamp import parse_time, relative
from dovetail.views.simulation.report import (
    DISRUPTED,
    HOUR,
    Cost,
    Hour,
    MachineLife,
    NodeCounts,
    PodCounts,
    ReportedViolation,
    SimulationReport,
    TimelineEntry,
)

Body = Mapping[str, Any]
T = TypeVar("T")

_LOST: Final = {"DeletionByTaintManager": "its node was out of reach", "DeletionByPodGC": "its node is gone"}
_PREEMPTED: Final = "PreemptionByScheduler"
OTHER: Final = "Other"


class _ClaimLife:
    """A NodeClaim as it is followed."""

    def __init__(self, claim: Body, *, standing: bool) -> None:
        self.claim = claim
        self.standing = standing  # from before the start
        self.launched_at: datetime | None = None
        self.ready_at: datetime | None = None
        self.disrupted_at: datetime | None = None
        self.gone_at: datetime | None = None
        self.reason = ""
        self.price: float | None = None


class _Note:
    """An entry whose message may still get longer."""

    __slots__ = ("at", "command", "message", "object", "type")

    def __init__(self, at: datetime, type_: str, object_: str, message: str, command: str = "") -> None:
        self.at, self.type, self.object, self.message, self.command = at, type_, object_, message, command


class Ledger:
    """To be made after the start has been put in, and before anything runs."""

    def __init__(self, cluster: SimCluster, cloud: SimCloud, prices: Mapping[str, float | None]) -> None:
        self._cluster = cluster
        self._cloud = cloud
        self._prices = prices  # of machines from before, by provider ID
        self._lives: dict[str, _ClaimLife] = {}  # by UID
        self._notes: list[_Note] = []
        self._commands: dict[str, str] = {}  # what each command said, by its id
        self._counts: Counter[str] = Counter()
        self.disruption: DisruptionController | None = None
        for claim in cluster.objects(NODECLAIMS):
            life = self._lives[claim["metadata"]["uid"]] = _ClaimLife(claim, standing=True)
            life.ready_at = self.now if _is_true(claim, ConditionType.INITIALIZED) else None
            life.launched_at = self.now if _is_true(claim, ConditionType.LAUNCHED) else None
            life.price = self._price(claim)
        cluster.server.registry.store.observers.append(self._observe)

    @property
    def now(self) -> datetime:
        return self._cluster.clock.now()

    @property
    def count(self) -> int:
        """How much has been noted."""
        return len(self._notes)

    def note(self, type_: str, object_: str, message: str, *, command: str = "") -> None:
        """Write down that something happened now."""
        self._notes.append(_Note(self.now, type_, object_, message, command))

    # -- machines -----------------------------------------------------------------------------------------------------

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        if resource.plural == NODECLAIMS.plural:
            self._claim_changed(change)
        elif resource.plural == PODS.plural and not resource.group:
            self._pod_changed(change)

    def _claim_changed(self, change: Change) -> None:
        claim, old = change.new.body, {} if change.old is None else change.old.body
        meta = claim["metadata"]
        name = f"{names.NODECLAIM_KIND}/{meta['name']}"
        life = self._lives.get(meta["uid"])
        if life is None:
            life = self._lives[meta["uid"]] = _ClaimLife(claim, standing=False)
        if change.type is EventType.DELETED:
            self._gone(life, name)
            return
        life.claim = claim
        self._came_up(life, name, old)
        for reason, condition in MARKED.items():
            if _is_true(claim, condition) and not _is_true(old, condition):
                told = condition_of(claim, condition) or {}
                self.note(reason.lower(), name, str(told.get("message") or told.get("reason") or ""))
        if _is_true(claim, ConditionType.DISRUPTION_REASON) and not _is_true(old, ConditionType.DISRUPTION_REASON):
            self._chosen(life, name)
        elif life.disrupted_at is not None and not _is_true(claim, ConditionType.DISRUPTION_REASON):
            self._back_again(life, name)
        self._follow_commands()

    def _came_up(self, life: _ClaimLife, name: str, old: Body) -> None:
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
            node = (claim.get("status") or {}).get("nodeName", "")
            self.note("ready", name, f"node {node} takes pods")

    def _chosen(self, life: _ClaimLife, name: str) -> None:
        reason = str((condition_of(life.claim, ConditionType.DISRUPTION_REASON) or {}).get("reason", OTHER))
        life.disrupted_at, life.reason = self.now, reason
        record = read_record((life.claim["metadata"].get("annotations") or {}).get(names.DISRUPTION_COMMAND, ""))
        self.note(DISRUPTED, name, reason, command="" if record is None else record.id)

    def _back_again(self, life: _ClaimLife, name: str) -> None:
        if "deletionTimestamp" not in life.claim["metadata"]:
            self.note("rolled-back", name, f"{life.reason}: given up for now")
            life.disrupted_at, life.reason = None, ""

    def _gone(self, life: _ClaimLife, name: str) -> None:
        life.gone_at = self.now
        life.reason = life.reason or OTHER
        self._counts[f"terminated {life.reason}"] += 1
        made = life.claim["metadata"]["creationTimestamp"]
        age = relative(parse_time(made), self.now).removesuffix(" ago")
        took = "" if life.disrupted_at is None else f", {relative(life.disrupted_at, self.now).removesuffix(' ago')}"
        self.note("terminated", name, f"{life.reason}: it lived {age}{took and took + ' of it going'}")

    def _price(self, claim: Body) -> float | None:
        provider_id = (claim.get("status") or {}).get("providerID", "")
        if provider_id in self._prices:
            return self._prices[provider_id]
        machine = self._cloud.machines.get(provider_id)
        text = None if machine is None else machine.instance.labels.get(names.INSTANCE_PRICE_LABEL)
        return None if text is None else float(text)

    def _follow_commands(self) -> None:
        """What the engine has decided, before it forgets."""
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

    def pod_taken_off(self, type_: str, namespace: str, name: str, *, detail: str = "") -> None:
        """The controller has evicted it, or deleted it for a deadline."""
        pod = self._cluster.object(PODS, name, namespace=namespace)
        self._counts[type_] += 1
        node = "" if pod is None else node_of(pod)
        self.note(type_, f"Pod/{namespace}/{name}", f"from {node}{detail}")

    # -- the account --------------------------------------------------------------------------------------------------

    def report(
        self, *, start: datetime, seed: int, problems: Sequence[Finding], violations: Sequence[ReportedViolation]
    ) -> SimulationReport:
        """Of the time from the start to now."""
        self._follow_commands()
        end = self.now
        lives = sorted(self._lives.values(), key=lambda life: life.claim["metadata"]["name"])
        hours = self._hours(start, end, lives)
        return SimulationReport(
            start=start,
            end=end,
            seed=seed,
            nodes=NodeCounts(
                at_start=sum(life.standing for life in lives),
                at_end=sum(life.gone_at is None for life in lives),
                launched=self._counts["launched"],
                terminated={
                    key.removeprefix("terminated "): count
                    for key, count in sorted(self._counts.items())
                    if key.startswith("terminated ")
                },
            ),
            pods=PodCounts(
                **{key: self._counts[key] for key in ("evicted", "preempted", "forced", "lost")},
                pending=sum(active(pod) and phase_of(pod) == "Pending" for pod in self._cluster.objects(PODS)),
            ),
            cost=Cost(
                total=round(sum(_paid(life, start, end) for life in lives), 4),
                per_hour_start=round(sum((life.price or 0.0 for life in lives if life.standing), 0.0), 4),
                per_hour_end=round(self.cost_per_hour, 4),
            ),
            violations=tuple(violations),
            hours=hours,
            lives=tuple(_told(life, start) for life in lives if life.launched_at is not None),
            timeline=self.timeline(),
            problems=tuple(problems),
        )

    @property
    def cost_per_hour(self) -> float:
        return sum((life.price or 0.0 for life in self._lives.values() if life.gone_at is None), 0.0)

    def timeline(self, last: int | None = None) -> tuple[TimelineEntry, ...]:
        """All that was noted, or only the last entries."""
        notes = self._notes if last is None else self._notes[-last:]
        return tuple(
            TimelineEntry(
                at=note.at,
                type=note.type,
                object=note.object,
                message=self._commands.get(note.command, note.message),
            )
            for note in notes
        )

    def _hours(self, start: datetime, end: datetime, lives: Sequence[_ClaimLife]) -> tuple[Hour, ...]:
        number = max(1, -((start - end) // HOUR))
        by_type: dict[str, Counter[int]] = {type_: Counter() for type_ in (DISRUPTED, "evicted", "forced")}
        for note in self._notes:
            if note.type in by_type:
                by_type[note.type][(note.at - start) // HOUR] += 1
        nodes, cost = [0] * number, [0.0] * number
        for life in lives:
            if life.launched_at is None:
                continue
            begin, stop = max(start, life.launched_at), end if life.gone_at is None else life.gone_at
            for index in range((begin - start) // HOUR, min(number, -((start - stop) // HOUR))):
                hour_start, hour_end = start + index * HOUR, min(end, start + (index + 1) * HOUR)
                nodes[index] += life.gone_at is None or life.gone_at > hour_end
                cost[index] += (life.price or 0.0) * ((min(stop, hour_end) - max(begin, hour_start)) / HOUR)
        return tuple(
            Hour(
                at=start + index * HOUR,
                nodes=nodes[index],
                cost=round(cost[index], 4),
                disruptions=by_type[DISRUPTED][index],
                evicted=by_type["evicted"][index],
                forced=by_type["forced"][index],
            )
            for index in range(number)
        )


class ObservedClient(Client):
    """The controller's way to the server: which pods it takes off their nodes, and how, is written down."""

    def __init__(self, server: ApiServer, name: str, ledger: Ledger) -> None:
        super().__init__(server, name)
        self._ledger = ledger

    async def write(self, write: Write[T]) -> T:
        if isinstance(write, Delete) and write.resource.plural == PODS.plural:  # before, for afterwards it may be gone
            detail = f", with {write.grace_seconds} s of grace: its node's deadline is near"
            self._ledger.pod_taken_off("forced", write.namespace or "", write.name, detail=detail)
        answer = await super().write(write)
        if isinstance(write, Evict):
            self._ledger.pod_taken_off("evicted", write.namespace, write.name)
        return answer


# -- reading claims ----------------------------------------------------------------------------------------------------


def _is_true(claim: Body, type_: ConditionType) -> bool:
    for entry in (claim.get("status") or {}).get("conditions") or ():
        if entry["type"] == type_:
            return bool(entry["status"] == "True")
    return False


def _is_daemon(pod: Body) -> bool:
    """They go with their nodes, as they came."""
    owner = controller_of(pod)
    return owner is not None and owner["kind"] == "DaemonSet"


def _machine(claim: Body, price: float | None) -> str:
    labels = claim["metadata"].get("labels") or {}
    keys = (names.INSTANCE_TYPE_LABEL, names.CAPACITY_TYPE_LABEL, names.ZONE_LABEL)
    told = ", ".join(labels[key] for key in keys if labels.get(key))
    return told if price is None else f"{told}, {price:.4f} an hour"


def _paid(life: _ClaimLife, start: datetime, end: datetime) -> float:
    if life.launched_at is None or life.price is None:
        return 0.0
    until = end if life.gone_at is None else life.gone_at
    return life.price * ((until - max(start, life.launched_at)) / HOUR)


def _told(life: _ClaimLife, start: datetime) -> MachineLife:
    meta, status = life.claim["metadata"], life.claim.get("status") or {}
    labels = meta.get("labels") or {}
    return MachineLife(
        node_claim=meta["name"],
        node=status.get("nodeName", ""),
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
