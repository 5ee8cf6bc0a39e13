"""Are there as many pods as a ReplicaSet asks for, and which ones go if there are too many?"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cmp_to_key

from dovetail.api.names import POD_DELETION_COST
from dovetail.sim.actors.wire import (
    PODS,
    REPLICASETS,
    Raw,
    active,
    annotations_of,
    condition_of,
    controller_uid,
    created_at,
    deleting,
    node_of,
    phase_of,
    pod_ready,
    status_of,
    uid_of,
)
from dovetail.sim.actors.workload import WorkloadActor, count, or_none, pod_from_template
from dovetail.values.timestamp import parse_time

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def victims(pods: Sequence[Raw], number: int, *, crowding: Mapping[str, int], now: datetime) -> list[Raw]:
    """Which pods to delete. `crowding`: how many related pods run on each node."""

    def order(one: Raw, other: Raw) -> int:
        keys = _first_keys(one, crowding), _first_keys(other, crowding)
        if keys[0] != keys[1]:
            return -1 if keys[0] < keys[1] else 1
        if pod_ready(one):
            found = _younger_first(_ready_since(one), _ready_since(other), one, other, now)
            if found:
                return found
        restarts = _restarts(other) - _restarts(one)
        return restarts or _younger_first(created_at(one), created_at(other), one, other, now)

    by_uid = sorted(pods, key=uid_of)  # where the real one leaves the order open
    return sorted(by_uid, key=cmp_to_key(order))[:number]


def _first_keys(pod: Raw, crowding: Mapping[str, int]) -> tuple[bool, int, bool, int, int]:
    node = node_of(pod)
    return (node != "", _PHASES.get(phase_of(pod), 0), pod_ready(pod), deletion_cost(pod), -crowding.get(node, 0))


def deletion_cost(pod: Raw) -> int:
    """The annotation's number; what is not an int32 counts 0."""
    try:
        cost = int(annotations_of(pod).get(POD_DELETION_COST, "0"))
    except ValueError:
        return 0
    return cost if -(2**31) <= cost < 2**31 else 0


def _ready_since(pod: Raw) -> datetime:
    condition = condition_of(pod, "Ready")
    assert condition is not None
    return parse_time(condition["lastTransitionTime"])


def _restarts(pod: Raw) -> int:
    return max((status.get("restartCount", 0) for status in status_of(pod).get("containerStatuses") or ()), default=0)


def _younger_first(one_at: datetime, other_at: datetime, one: Raw, other: Raw, now: datetime) -> int:
    """The younger one first, where ages of one power of two are alike and the UID decides."""
    if one_at == other_at:
        return 0
    ranks = [math.floor(math.log2(age)) if (age := _nanoseconds(now, at)) > 0 else -1 for at in (one_at, other_at)]
    return ranks[0] - ranks[1] or (-1 if uid_of(one) < uid_of(other) else 1)


def _nanoseconds(now: datetime, at: datetime) -> int:
    return round((now - at).total_seconds() * 1e9)


class ReplicaSets(WorkloadActor):
    """The ReplicaSet controller."""

    kind = REPLICASETS

    async def sync(self, obj: Raw) -> None:
        if not deleting(obj):
            await self._scale(obj)
        spec = obj["spec"]
        counts = count(self.pods_of(obj), min_ready_seconds=spec.get("minReadySeconds", 0), now=self.world.now())
        status = {
            "replicas": counts.replicas,
            "fullyLabeledReplicas": or_none(counts.replicas),
            "readyReplicas": or_none(counts.ready),
            "availableReplicas": or_none(counts.available),
            "terminatingReplicas": counts.terminating,
            "observedGeneration": obj["metadata"].get("generation", 1),
        }
        await self.write_status(obj, status, recheck_at=counts.recheck_at)

    async def _scale(self, obj: Raw) -> None:
        pods = [pod for pod in self.pods_of(obj) if active(pod)]
        missing = obj["spec"].get("replicas", 1) - len(pods)
        for _ in range(missing):
            await self.world.create(PODS, pod_from_template(REPLICASETS, obj, obj["spec"]["template"]))
        if missing < 0:
            for pod in victims(pods, -missing, crowding=self._crowding(obj), now=self.world.now()):
                await self.world.delete(PODS, pod)

    def _crowding(self, obj: Raw) -> Mapping[str, int]:
        """Active pods by node, of all ReplicaSets of the same controller."""
        owner = controller_uid(obj)
        related = [other for other in self.objects.items.values() if controller_uid(other) == owner] if owner else [obj]
        crowding: dict[str, int] = {}
        for pod in (pod for other in related for pod in self.pods_of(other) if active(pod)):
            crowding[node_of(pod)] = crowding.get(node_of(pod), 0) + 1
        return crowding
