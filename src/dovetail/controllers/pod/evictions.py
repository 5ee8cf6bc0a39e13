"""Evicts the pods of deleted Nodes, or deletes them for the node's deadline (03 §5).

Each attempt first asks the drain plan, so that it never acts on old state. A pod blocked by a PodDisruptionBudget waits
for a change of its status. As a fallback, one pod of each budget is retried from time to time (R43).
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from random import Random
from typing import Final, TypeAlias

import msgspec

from dovetail.api import objects
from dovetail.api.names import ConditionType, EventReason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.base.writing import about_node, about_pod, publish, warn
from dovetail.controllers.pod.waves import EvictionWaves
from dovetail.model.node_records import claim_record
from dovetail.model.pdb_records import PdbRecord
from dovetail.model.pod_records import PodRecord
from dovetail.observe.metrics import Metrics
from dovetail.planning.node.drain import DrainAction, DrainPlan, drain_plan, is_within_grace
from dovetail.planning.timings import Timings
from dovetail.ports import PODS, ApiError, Conflict, Delete, Evict, InternalError, NotFound, TooManyRequests
from dovetail.rules.deadlines import ForcedDeletion, node_deadline
from dovetail.rules.pdb import PdbIndex, asks_budgets
from dovetail.runtime.events import namespace_is_going
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.store import Change, Deleted, Updated
from dovetail.values.rate import Rate, TokenBucket
from dovetail.values.timestamp import spoken_time

log = logging.getLogger(__name__)

PodKey: TypeAlias = tuple[str, str, str]  # namespace, name, UID: a new pod with the same name is another key
PdbKey: TypeAlias = tuple[str, str]

FORCEFUL: Final = "Forceful Termination"
CAUSE: Final = "node-deadline"
NAMESPACE_GOES: Final = "its namespace is being deleted, and the pod with it"
# Limits the fallback retries of all budgets together.
NET_RATE: Final = Rate(per_second=2, burst=5)
JITTER: Final = 0.2


class Evictions(KeyedController[PodKey]):
    """The controller of evictions. Keys are the pods that drains remove."""

    name = "eviction-queue"
    workers = 100

    def __init__(self, cluster: WatchedCluster, metrics: Metrics, timings: Timings, *, seed: int = 0) -> None:
        super().__init__()
        self._cluster = cluster
        self._metrics = metrics
        self._timings = timings
        self._chance = Random(seed)
        self._net: TokenBucket | None = None
        self._parked = ParkedPods()
        self.waves = EvictionWaves(cluster)
        self._errors: dict[PodKey, ApiError] = {}  # of evictions that are retried
        self._told: list[Callable[[str], None]] = []  # of nodes where one begins to fail
        # Evictions that the status of the budget does not show yet.
        self._spent: dict[PdbKey, int] = {}
        cluster.pdbs.subscribe(self._budget_changed)
        self.follow(cluster.pods, self._parked_key)

    def want(self, pod: PodRecord) -> None:
        """Removes the pod from its node, as the drain plan says."""
        self.add((pod.namespace, pod.name, pod.uid))

    def tell_failures(self, told: Callable[[str], None]) -> None:
        """Calls this with the name of a node when the eviction of one of its pods begins to fail."""
        self._told.append(told)

    def failure(self, pod: PodRecord) -> str:
        """The answer to the eviction of the pod, if no PodDisruptionBudget refuses it; it names no object."""
        error = self._errors.get((pod.namespace, pod.name, pod.uid))
        return "" if error is None else f"{error.code or ''} {error.reason or type(error).__name__}".lstrip()

    def refusal(self, pod: PodRecord) -> str | None:
        """Why the last eviction of the pod failed, or why the next one would be refused."""
        key = (pod.namespace, pod.name, pod.uid)
        failed = f"its eviction fails: {self._errors[key]}" if key in self._errors else None
        return self._parked.why(key) or failed or self._refused(pod, self._budgets_of(pod))

    def is_held_up(self, pod: PodRecord) -> bool:
        """Whether the eviction of the pod fails, and not because its budget waits for the one before it."""
        return self.refusal(pod) is not None and not self._follows_another(pod)

    def _follows_another(self, pod: PodRecord) -> bool:
        """Whether its budget waits for another pod of this drain that goes within its own grace, as it should be."""
        budgets, now = self._budgets_of(pod), self.clock.now()
        if len(budgets) != 1 or (pod.namespace, pod.name, pod.uid) in self._errors:
            return False
        (budget,) = budgets
        return self._spent.get((budget.namespace, budget.name), 0) > 0 or any(
            other.namespace == pod.namespace and is_within_grace(other, now, self._timings) and _selects(budget, other)
            for other in self._cluster.pods_on[pod.node_name]
        )

    async def reconcile(self, key: PodKey) -> Outcome:
        namespace, name, uid = key
        pod = self._cluster.pods.get_consistent(name, namespace)
        node = None if pod is None else self._cluster.nodes.value(pod.node_name)
        if pod is None or pod.uid != uid or node is None or node.metadata.deletion_timestamp is None:
            self._leave(key)
            return Done()
        step = self.plan_of(node, self.clock.now()).step_of(uid)
        if step is not None and step.action is DrainAction.EVICT:
            return await self._evict(key, pod, node)
        self._leave(key)
        if step is not None and step.action is DrainAction.DELETE and step.forced is not None:
            await self.delete(step.forced, node)
        return Done()  # the termination controller asks again when it is the pod's turn

    def plan_of(self, node: objects.Node, now: datetime) -> DrainPlan:
        """The drain plan of the node."""
        claim = self._cluster.claim_of(node)
        deadline = None if claim is None else node_deadline(claim_record(claim))
        pods = self._cluster.pods_on[node.metadata.name]
        return drain_plan(pods, deadline=deadline, now=now, timings=self._timings, held=self.waves.of(claim, now))

    # -- for the deadline ---------------------------------------------------------------------------------------------

    async def delete(self, forced: ForcedDeletion, node: objects.Node) -> None:
        """Deletes the pod with the grace that is left, whatever protects it (R17)."""
        pod, claim = forced.pod, self._cluster.claim_of(node)
        by = spoken_time(forced.deadline)
        note = (
            f"Deleted by dovetail because its node {node.metadata.name} is terminated by {by} "
            f"({_reason(claim)}): granted {forced.grace_seconds} seconds of grace-period "
            f"(its own {pod.grace_seconds} s, counted back from the node's deadline); "
            "PodDisruptionBudgets, do-not-disrupt and schedules no longer count"
        )
        publish(self.recorder, about_pod(pod), EventReason.DISRUPTED, note)
        with suppress(NotFound, Conflict):  # gone, or another of its name
            await self.api.write(
                Delete(PODS, pod.name, namespace=pod.namespace, uid=pod.uid, grace_seconds=forced.grace_seconds)
            )
            self._cluster.pods.note_delete(pod.name, pod.uid, pod.namespace)
            self._metrics.pods_drained.labels(_reason(claim)).inc()
            self._metrics.forced_pods.labels(CAUSE).inc()
            extra = {"Pod": f"{pod.namespace}/{pod.name}", "Node": node.metadata.name, "grace": forced.grace_seconds}
            log.info("deleting pod", extra=extra)

    # -- by eviction --------------------------------------------------------------------------------------------------

    async def _evict(self, key: PodKey, pod: PodRecord, node: objects.Node) -> Outcome:
        if self._parked.why(key) == NAMESPACE_GOES and not self._may_try_anyway(key):
            return Done(self._net_seconds(key))
        budgets = self._budgets_of(pod)
        keys = [(budget.namespace, budget.name) for budget in budgets]
        # The API server may allow the eviction of an unready pod although the budget's status does not. It is asked
        # once for each change of the pod or of the budget.
        unsure = pod.ready is not True and len(budgets) == 1 and self._parked.has_news(key)
        refused = None if unsure else self._refused(pod, budgets)
        if refused is not None and not self._may_try_anyway(key):
            return self._park(key, keys, refused, node, tried=False)
        self._spend(keys, 1)
        try:
            await self.api.write(Evict(pod.name, namespace=pod.namespace, uid=pod.uid))
        except ApiError as error:
            self._metrics.pods_eviction_requests.labels(str(error.code)).inc()
            self._spend(keys, -1)  # if it took effect nevertheless, the status of the budget will show it
            return self._not_evicted(key, keys, error, node)
        self._leave(key)
        self._cluster.pods.note_delete(pod.name, pod.uid, pod.namespace)
        reason = _reason(self._cluster.claim_of(node))
        self._metrics.pods_eviction_requests.labels("200").inc()
        self._metrics.pods_drained.labels(reason).inc()
        publish(self.recorder, about_pod(pod), EventReason.EVICTED, f"Evicted pod: {reason}")
        return Done()

    def _not_evicted(self, key: PodKey, budgets: list[PdbKey], error: ApiError, node: objects.Node) -> Outcome:
        if isinstance(error, (NotFound, Conflict)):  # gone, or another of its name
            self._leave(key)
            return Done()
        if namespace_is_going(error):
            return self._await_namespace(key)
        if isinstance(error, TooManyRequests):
            return self._park(key, budgets, error.message, node, tried=True)
        if isinstance(error, InternalError) and len(budgets) > 1:
            return self._park(key, budgets, "eviction does not support multiple PodDisruptionBudgets", node, tried=True)
        before, self._errors[key] = self._errors.get(key), error
        if str(before) != str(error):
            for told in self._told:
                told(node.metadata.name)
        raise error

    def _await_namespace(self, key: PodKey) -> Outcome:
        """The namespace controller deletes the pod, and its watch event adds the key. Retries are a fallback."""
        self._hand_on(self._parked.add(key, [], NAMESPACE_GOES, at=self.clock.monotonic()))
        return Done(self._net_seconds(key))

    def _spend(self, budgets: list[PdbKey], evictions: int) -> None:
        for budget in budgets:
            self._spent[budget] = max(0, self._spent.get(budget, 0) + evictions)

    def _budgets_of(self, pod: PodRecord) -> list[PdbRecord]:
        """The budgets that the eviction API checks."""
        if not asks_budgets(pod):
            return []
        return [budget for budget in self._cluster.pdbs_in[pod.namespace] if _selects(budget, pod)]

    def _refused(self, pod: PodRecord, budgets: list[PdbRecord]) -> str | None:
        """Predicts the answer of the API server, to save useless requests."""
        verdict = PdbIndex(budgets, ()).verdict(pod)
        if not verdict.allowed:
            return verdict.message
        for budget in budgets:
            allowed, spent = budget.disruptions_allowed or 0, self._spent.get((budget.namespace, budget.name), 0)
            if spent >= max(1, allowed) and not budget.always_allow:
                return f"{budget.name} allows no disruption now"
        return None

    # -- waiting for a budget -----------------------------------------------------------------------------------------

    def _park(self, key: PodKey, budgets: list[PdbKey], why: str, node: objects.Node, *, tried: bool) -> Outcome:
        """A pod whose eviction failed goes to the end of the queue. One that was not tried keeps its place and time."""
        if tried or self._parked.budgets(key) != budgets:
            self._hand_on(self._parked.add(key, budgets, why, at=self.clock.monotonic()))
        pod = self._cluster.pods.value(key[1], key[0])
        if pod is not None and self._follows_another(pod):
            return Done(self._net_seconds(key))
        note = f"evicting pod {key[0]}/{key[1]} is refused: {why}"
        warn(self.recorder, about_node(node), EventReason.FAILED_DRAINING, note, node.metadata.name, *map(str, budgets))
        return Done(self._net_seconds(key))

    def _net_seconds(self, key: PodKey) -> float | None:
        """Seconds until the fallback retry; None if another pod of the same budgets is retried."""
        if not self._parked.leads(key):
            return None
        seconds = self._timings.blocked_eviction_seconds * (1 + JITTER * self._chance.random())
        return max(0.0, self._parked.since(key) + seconds - self.clock.monotonic())

    def _may_try_anyway(self, key: PodKey) -> bool:
        at = self.clock.monotonic()
        if not self._parked.leads(key) or at - self._parked.since(key) < self._timings.blocked_eviction_seconds:
            return False
        self._parked.restart(key, at=at)
        self._net = self._net or TokenBucket(NET_RATE, at=at)
        return self._net.take(at)

    def _leave(self, key: PodKey) -> None:
        self._errors.pop(key, None)
        self._hand_on(self._parked.remove(key, at=self.clock.monotonic()))

    def _hand_on(self, heirs: list[PodKey]) -> None:
        for heir in heirs:
            seconds = self._net_seconds(heir)
            if seconds is not None:
                self.add_after(heir, seconds)

    def _budget_changed(self, change: Change[PdbRecord]) -> None:
        """Retries as many pods as the budget allows now; all of them if it is deleted or its spec changed."""
        match change:
            case Updated(key=key, old=old, new=new):
                self._spent.pop(key, None)
                same = (old.value.selector, old.value.always_allow) == (new.value.selector, new.value.always_allow)
                allowed = new.value.disruptions_allowed or 0 if same else None
            case Deleted(key=key):
                self._spent.pop(key, None)
                allowed = None
            case _:
                return
        for parked in self._parked.first(key, allowed):
            self.add(parked)
        unready = next((parked for parked in self._parked.first(key, None) if not self._is_ready(parked)), None)
        if unready is not None:
            self._parked.mark_changed(unready)
            self.add(unready)

    def _is_ready(self, key: PodKey) -> bool:
        pod = self._cluster.pods.value(key[1], key[0])
        return pod is not None and pod.ready is True

    def _parked_key(self, pod: PodRecord) -> Iterator[PodKey]:
        """Retries a parked pod that changes: it may be unready now, or have other labels."""
        key = (pod.namespace, pod.name, pod.uid)
        if self._parked.budgets(key) is not None:
            self._parked.mark_changed(key)
            yield key


class ParkedPod(msgspec.Struct):
    """A parked pod: the budgets it waits for, why, and the start of its time until the fallback retry."""

    budgets: list[PdbKey]
    why: str
    since: float
    news: bool = False  # it or one of its budgets changed since the last attempt


class ParkedPods:
    """Pods whose eviction was refused, by the budgets that refused it, in the order in which they came."""

    def __init__(self) -> None:
        self._places: dict[PodKey, ParkedPod] = {}
        self._waiting: dict[PdbKey, dict[PodKey, None]] = {}

    def add(self, pod: PodKey, budgets: list[PdbKey], why: str, *, at: float) -> list[PodKey]:
        """Puts the pod at the end. Returns the pods that lead now in its place, if it was parked before."""
        heirs = self.remove(pod, at=at)
        self._places[pod] = ParkedPod(budgets, why, at)
        for budget in budgets:
            self._waiting.setdefault(budget, {})[pod] = None
        return heirs

    def remove(self, pod: PodKey, *, at: float) -> list[PodKey]:
        """Removes the pod. Returns the pods that lead now in its place; their time starts."""
        place = self._places.pop(pod, None)
        heirs = []
        for budget in place.budgets if place is not None else ():
            waiting = self._waiting[budget]
            led = next(iter(waiting)) == pod
            del waiting[pod]
            if not waiting:
                del self._waiting[budget]
            elif led:
                heir = next(iter(waiting))
                self.restart(heir, at=at)
                heirs.append(heir)
        return heirs

    def restart(self, pod: PodKey, *, at: float) -> None:
        self._places[pod].since = at

    def first(self, budget: PdbKey, count: int | None) -> list[PodKey]:
        """The first `count` pods that wait for the budget; None: all."""
        return list(self._waiting.get(budget, {}))[:count]

    def leads(self, pod: PodKey) -> bool:
        """Whether the pod is the first one of any of its budgets, and so the one for the fallback retry."""
        place = self._places.get(pod)
        return place is not None and (
            not place.budgets or any(next(iter(self._waiting[budget])) == pod for budget in place.budgets)
        )

    def mark_changed(self, pod: PodKey) -> None:
        """The pod or one of its budgets has changed."""
        self._places[pod].news = True

    def has_news(self, pod: PodKey) -> bool:
        """Whether something changed since the last attempt."""
        place = self._places.get(pod)
        return place is None or place.news

    def since(self, pod: PodKey) -> float:
        return self._places[pod].since

    def budgets(self, pod: PodKey) -> list[PdbKey] | None:
        """The budgets it waits for; None if it is not parked."""
        return self._places[pod].budgets if pod in self._places else None

    def why(self, pod: PodKey) -> str | None:
        return self._places[pod].why if pod in self._places else None


def _selects(budget: PdbRecord, pod: PodRecord) -> bool:
    return budget.selector is not None and budget.selector.matches(pod.labels)


def _reason(claim: objects.NodeClaim | None) -> str:
    """The reason for events and metrics (03 §5.3)."""
    if claim is None:
        return ""
    condition = objects.condition_in(claim.status.conditions, ConditionType.DISRUPTION_REASON)
    return condition.reason if condition is not None and condition.status == "True" else FORCEFUL
