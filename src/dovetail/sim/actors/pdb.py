"""The disruption controller: the status of PodDisruptionBudgets."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from dovetail.api import objects
from dovetail.model.pdb_records import PdbRecord, pdb_record
from dovetail.rules.pdb import desired_healthy, disruptions_allowed
from dovetail.sim.actors import wire
from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.wire import DEPLOYMENTS, PDBS, PODS, REPLICASETS, STATEFULSETS, Raw
from dovetail.sim.actors.workload import status_change
from dovetail.values.selector import Selector
from dovetail.values.timestamp import parse_time

# How long an entry in disruptedPods counts while the pod is not deleted.
DELETION_TIMEOUT = timedelta(minutes=2)


class ControllerScale(NamedTuple):
    """A controller and its number of replicas."""

    uid: str
    replicas: int


class NoController(Exception):
    """A pod has a controller whose scale is not known; the message is that of kube-controller-manager."""


class PdbHealth(NamedTuple):
    healthy: int
    disrupted: dict[str, str]  # pods that are being evicted, and since when
    recheck_at: datetime | None


def record(pdb: Raw) -> PdbRecord:
    return pdb_record(msgspec.convert(dict(pdb), objects.PodDisruptionBudget))


def counts_scales(pdb: PdbRecord) -> bool:
    """Whether the budget counts the replicas of controllers instead of existing pods."""
    return pdb.max_unavailable is not None or isinstance(pdb.min_available, str)


def expected_pods(pods: Iterable[Raw], scales: Mapping[str, ControllerScale]) -> int:
    """The replicas of all controllers of the pods. `scales` by UID of the controllers. Raises NoController."""
    replicas: dict[str, int] = {}
    for pod in pods:
        controller = wire.controller_of(pod)
        if controller is None:
            continue  # unmanaged pods are left out
        scale = scales.get(controller["uid"])
        if scale is None:
            raise NoController(f'found no controllers for pod "{wire.name_of(pod)}"')
        replicas[scale.uid] = scale.replicas
    return sum(replicas.values())


def health(pods: Iterable[Raw], disrupted: Mapping[str, str], now: datetime) -> PdbHealth:
    """Count the pods that are healthy and not being evicted."""
    kept: dict[str, str] = {}
    healthy, recheck_at = 0, None
    for pod in pods:
        if wire.deleting(pod):
            continue
        since = disrupted.get(wire.name_of(pod))
        until = None if since is None else parse_time(since) + DELETION_TIMEOUT
        if since is not None and until is not None and until >= now:
            kept[wire.name_of(pod)] = since
            recheck_at = until if recheck_at is None else min(recheck_at, until)
        if wire.pod_ready(pod) and (until is None or until <= now):
            healthy += 1
    return PdbHealth(healthy, kept, recheck_at)


def pdb_status(pdb: Raw, *, expected: int, pod_health: PdbHealth, now: datetime) -> dict[str, Any]:
    """The status of a budget whose expected number of pods is known."""
    budget = record(pdb)
    allowed = disruptions_allowed(budget, expected=expected, healthy=pod_health.healthy)
    generation = pdb["metadata"].get("generation", 1)
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "observedGeneration": generation,
    }
    # A merge patch removes what is named with None.
    gone = dict.fromkeys(wire.status_of(pdb).get("disruptedPods") or {})
    return {
        "currentHealthy": pod_health.healthy,
        "desiredHealthy": desired_healthy(budget, expected) or 0,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
        "disruptedPods": {**gone, **pod_health.disrupted} or None,
        "observedGeneration": generation,
        "conditions": wire.with_conditions(pdb, [condition], now),
    }


def failed_status(pdb: Raw, problem: str, now: datetime) -> dict[str, Any]:
    """The status while the expected number of pods is not known: no disruption is allowed."""
    condition = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": problem}
    return {"disruptionsAllowed": 0, "conditions": wire.with_conditions(pdb, [condition], now)}


class PodDisruptionBudgets(Actor):
    """Keeps the pods of each budget up to date with every change."""

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self._pdbs, self._pods = world.store(PDBS), world.store(PODS)
        self._owners = {kind.kind: world.store(kind) for kind in (REPLICASETS, DEPLOYMENTS, STATEFULSETS)}
        self._budgets: dict[str, dict[str, Selector]] = {}  # namespace, key
        self._members: dict[str, dict[str, Raw]] = {}  # pods by key, by the budget's key
        self._budgets_of: dict[str, tuple[str, ...]] = {}  # keys of budgets, by the pod's key
        self._pdbs.on_change(self._pdb_changed)
        self._pods.on_change(self._pod_changed)
        for store in self._owners.values():
            store.on_change(self._owner_changed)

    def _pdb_changed(self, old: Raw | None, new: Raw | None) -> None:
        pdb = new or old or {}
        key, budgets = wire.key_of(pdb), self._budgets.setdefault(wire.namespace_of(pdb), {})
        selector = None if new is None else wire.selector_of(pdb["spec"].get("selector"))
        if budgets.get(key) != selector:
            budgets.pop(key, None)
            self._members.pop(key, None)
            if selector is not None:
                budgets[key], self._members[key] = selector, {}
            for pod in self._pods.items.values():
                if wire.namespace_of(pod) == wire.namespace_of(pdb):
                    self._assign(pod)
        if new is not None:
            self.enqueue(key)

    def _assign(self, pod: Raw) -> None:
        """Find the budgets of the pod."""
        pod_key, budgets = wire.key_of(pod), self._budgets.get(wire.namespace_of(pod), {})
        self._dismiss(pod_key)
        mine = tuple(key for key, selector in budgets.items() if selector.matches(wire.labels_of(pod)))
        if mine:
            self._budgets_of[pod_key] = mine
        for key in mine:
            self._members[key][pod_key] = pod

    def _dismiss(self, pod_key: str) -> None:
        for key in self._budgets_of.pop(pod_key, ()):
            self._members.get(key, {}).pop(pod_key, None)

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        pod_key = wire.key_of(new or old or {})
        before = self._budgets_of.get(pod_key, ())
        if new is None:
            self._dismiss(pod_key)
        elif old is not None and wire.labels_of(old) == wire.labels_of(new):
            for key in before:
                self._members[key][pod_key] = new
        else:
            self._assign(new)
        for key in (*before, *self._budgets_of.get(pod_key, ())):
            self.enqueue(key)

    def _owner_changed(self, old: Raw | None, new: Raw | None) -> None:
        if old is None or new is None or old["spec"].get("replicas") != new["spec"].get("replicas"):
            for key in self._budgets.get(wire.namespace_of(new or old or {}), {}):
                self.enqueue(key)

    async def reconcile(self, key: str) -> None:
        pdb = self._pdbs.get(key)
        if pdb is None:
            return
        now = self.world.now()
        pods = list(self._members.get(key, {}).values())
        pod_health = health(pods, wire.status_of(pdb).get("disruptedPods") or {}, now)
        try:
            expected = expected_pods(pods, self._scales(pods)) if counts_scales(record(pdb)) else len(pods)
            status = pdb_status(pdb, expected=expected, pod_health=pod_health, now=now)
        except NoController as problem:
            status = failed_status(pdb, str(problem), now)
        if pod_health.recheck_at is not None:
            self.enqueue_at(key, pod_health.recheck_at + timedelta(seconds=1))
        if change := status_change(pdb, status):
            await self.world.patch_status(PDBS, pdb, change)

    def _scales(self, pods: Iterable[Raw]) -> dict[str, ControllerScale]:
        """The scales of the pods' controllers, by UID; ReplicaSets have the scale of their Deployment."""
        scales: dict[str, ControllerScale] = {}
        for pod in pods:
            reference = wire.controller_of(pod)
            if reference is None or reference["uid"] in scales or reference["kind"] not in self._owners:
                continue
            owner = self._owners[reference["kind"]].get(f"{wire.namespace_of(pod)}/{reference['name']}")
            above = None if owner is None else wire.controller_of(owner)
            if above is not None and above["kind"] == "Deployment":
                owner = self._owners["Deployment"].get(f"{wire.namespace_of(pod)}/{above['name']}")
            if owner is not None:
                scales[reference["uid"]] = ControllerScale(wire.uid_of(owner), wire.replicas_of(owner["spec"]))
        return scales
