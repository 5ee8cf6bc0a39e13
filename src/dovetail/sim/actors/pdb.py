"""What does the disruption controller write into the status of a PodDisruptionBudget?"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from dovetail.api import objects
from dovetail.model.records import PdbRecord, pdb_record
from dovetail.rules.pdb import desired_healthy, disruptions_allowed
from dovetail.sim.actors.actor import Actor, ActorContext
from dovetail.sim.actors.wire import (
    DEPLOYMENTS,
    PDBS,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Raw,
    controller_of,
    deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    pod_ready,
    selector_of,
    status_of,
    uid_of,
    with_conditions,
)
from dovetail.sim.actors.workload import status_change
from dovetail.values.selector import Selector
from dovetail.values.timestamp import parse_time

# How long the API server's note that a pod is being evicted holds without the pod going.
DELETION_TIMEOUT = timedelta(minutes=2)


class ControllerScale(NamedTuple):
    """A controller, and how many pods it wants."""

    uid: str
    replicas: int


class NoController(Exception):
    """A pod has a controller whose scale is not known; the message is the real one's."""


class PdbHealth(NamedTuple):
    healthy: int
    disrupted: dict[str, str]  # pods that are about to go, and since when
    recheck_at: datetime | None


def record(pdb: Raw) -> PdbRecord:
    return pdb_record(msgspec.convert(dict(pdb), objects.PodDisruptionBudget))


def counts_scales(pdb: PdbRecord) -> bool:
    """Whether the budget is about what controllers want, and not about the pods that are there."""
    return pdb.max_unavailable is not None or isinstance(pdb.min_available, str)


def expected_pods(pods: Iterable[Raw], scales: Mapping[str, ControllerScale]) -> int:
    """What the controllers of the pods want together. `scales` by UID of the pods' controllers. Raises NoController."""
    found: dict[str, int] = {}
    for pod in pods:
        controller = controller_of(pod)
        if controller is None:
            continue  # unmanaged pods are left out
        scale = scales.get(controller["uid"])
        if scale is None:
            raise NoController(f'found no controllers for pod "{name_of(pod)}"')
        found[scale.uid] = scale.replicas
    return sum(found.values())


def health(pods: Iterable[Raw], disrupted: Mapping[str, str], now: datetime) -> PdbHealth:
    """How many pods are healthy and not about to go."""
    kept: dict[str, str] = {}
    healthy, recheck_at = 0, None
    for pod in pods:
        if deleting(pod):
            continue
        since = disrupted.get(name_of(pod))
        until = None if since is None else parse_time(since) + DELETION_TIMEOUT
        if since is not None and until is not None and until >= now:
            kept[name_of(pod)] = since
            recheck_at = until if recheck_at is None else min(recheck_at, until)
        if pod_ready(pod) and (until is None or until <= now):
            healthy += 1
    return PdbHealth(healthy, kept, recheck_at)


def pdb_status(pdb: Raw, *, expected: int, found: PdbHealth, now: datetime) -> dict[str, Any]:
    """The whole status."""
    budget = record(pdb)
    allowed = disruptions_allowed(budget, expected=expected, healthy=found.healthy)
    generation = pdb["metadata"].get("generation", 1)
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "observedGeneration": generation,
    }
    # A merge patch removes what is named with None.
    gone = dict.fromkeys(status_of(pdb).get("disruptedPods") or {})
    return {
        "currentHealthy": found.healthy,
        "desiredHealthy": desired_healthy(budget, expected) or 0,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
        "disruptedPods": {**gone, **found.disrupted} or None,
        "observedGeneration": generation,
        "conditions": with_conditions(pdb, [condition], now),
    }


def failed_status(pdb: Raw, problem: str, now: datetime) -> dict[str, Any]:
    """Nothing is allowed while the expected number is not known."""
    condition = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": problem}
    return {"disruptionsAllowed": 0, "conditions": with_conditions(pdb, [condition], now)}


class PodDisruptionBudgets(Actor):
    """The disruption controller. Which pods belong to which budget is kept up to date with each change."""

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self._pdbs, self._pods = world.store(PDBS), world.store(PODS)
        self._owners = {kind.kind: world.store(kind) for kind in (REPLICASETS, DEPLOYMENTS, STATEFULSETS)}
        self._budgets: dict[str, dict[str, Selector]] = {}  # namespace, key
        self._members: dict[str, dict[str, Raw]] = {}  # pods by key, by the budget's key
        self._budgets_of: dict[str, tuple[str, ...]] = {}  # the other way round
        self._pdbs.on_change(self._pdb_changed)
        self._pods.on_change(self._pod_changed)
        for store in self._owners.values():
            store.on_change(self._owner_changed)

    def _pdb_changed(self, old: Raw | None, new: Raw | None) -> None:
        pdb = new or old
        assert pdb is not None
        key, budgets = key_of(pdb), self._budgets.setdefault(namespace_of(pdb), {})
        selector = None if new is None else selector_of(pdb["spec"].get("selector"))
        if budgets.get(key) != selector:
            budgets.pop(key, None)
            self._members.pop(key, None)
            if selector is not None:
                budgets[key], self._members[key] = selector, {}
            for pod in self._pods.items.values():
                if namespace_of(pod) == namespace_of(pdb):
                    self._assign(pod)
        if new is not None:
            self.enqueue(key)

    def _assign(self, pod: Raw) -> None:
        """Find the pod's budgets anew."""
        pod_key, budgets = key_of(pod), self._budgets.get(namespace_of(pod), {})
        self._dismiss(pod_key)
        mine = tuple(key for key, selector in budgets.items() if selector.matches(labels_of(pod)))
        if mine:
            self._budgets_of[pod_key] = mine
        for key in mine:
            self._members[key][pod_key] = pod

    def _dismiss(self, pod_key: str) -> None:
        for key in self._budgets_of.pop(pod_key, ()):
            self._members.get(key, {}).pop(pod_key, None)

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        pod = new or old
        assert pod is not None
        pod_key = key_of(pod)
        before = self._budgets_of.get(pod_key, ())
        if new is None:
            self._dismiss(pod_key)
        elif old is not None and labels_of(old) == labels_of(new):
            for key in before:
                self._members[key][pod_key] = new
        else:
            self._assign(new)
        for key in (*before, *self._budgets_of.get(pod_key, ())):
            self.enqueue(key)

    def _owner_changed(self, old: Raw | None, new: Raw | None) -> None:
        owner = new or old
        assert owner is not None
        if old is None or new is None or old["spec"].get("replicas") != new["spec"].get("replicas"):
            for key in self._budgets.get(namespace_of(owner), {}):
                self.enqueue(key)

    async def reconcile(self, key: str) -> None:
        pdb = self._pdbs.get(key)
        if pdb is None:
            return
        now = self.world.now()
        pods = list(self._members.get(key, {}).values())
        found = health(pods, status_of(pdb).get("disruptedPods") or {}, now)
        try:
            expected = expected_pods(pods, self._scales(pods)) if counts_scales(record(pdb)) else len(pods)
            status = pdb_status(pdb, expected=expected, found=found, now=now)
        except NoController as problem:
            status = failed_status(pdb, str(problem), now)
        if found.recheck_at is not None:
            self.enqueue_at(key, found.recheck_at + timedelta(seconds=1))
        change = status_change(pdb, status)
        if change:
            await self.world.patch(PDBS, pdb, {"status": change}, subresource="status")

    def _scales(self, pods: Iterable[Raw]) -> dict[str, ControllerScale]:
        """By UID of each pod's controller; a Deployment's ReplicaSets have its scale."""
        scales: dict[str, ControllerScale] = {}
        for pod in pods:
            reference = controller_of(pod)
            if reference is None or reference["uid"] in scales or reference["kind"] not in self._owners:
                continue
            owner = self._owners[reference["kind"]].get(f"{namespace_of(pod)}/{reference['name']}")
            above = None if owner is None else controller_of(owner)
            if above is not None and above["kind"] == "Deployment":
                owner = self._owners["Deployment"].get(f"{namespace_of(pod)}/{above['name']}")
            if owner is not None:
                replicas = owner["spec"].get("replicas")
                scales[reference["uid"]] = ControllerScale(uid_of(owner), 1 if replicas is None else replicas)
        return scales
