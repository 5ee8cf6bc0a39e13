"""The ReplicaSet controller: the number of pods, and which ones it deletes first."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cmp_to_key

from dovetail.api.names import POD_DELETION_COST
from dovetail.sim.actors import wire
from dovetail.sim.actors.wire import PODS, REPLICASETS, Raw
from dovetail.sim.actors.workload import WorkloadActor, count, pod_from_template
from dovetail.values.timestamp import parse_time

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def victims(pods: Sequence[Raw], number: int, *, crowding: Mapping[str, int], now: datetime) -> list[Raw]:
    """The pods to delete. `crowding`: the number of related pods by node."""

    def order(one: Raw, other: Raw) -> int:
        keys = _first_keys(one, crowding), _first_keys(other, crowding)
        if keys[0] != keys[1]:
            return -1 if keys[0] < keys[1] else 1
        if wire.pod_ready(one):
            by_readiness = _younger_first(_ready_since(one), _ready_since(other), one, other, now)
            if by_readiness:
                return by_readiness
        restarts = _restarts(other) - _restarts(one)
        return restarts or _younger_first(wire.created_at(one), wire.created_at(other), one, other, now)

    by_uid = sorted(pods, key=wire.uid_of)  # the real controller leaves this order open
    return sorted(by_uid, key=cmp_to_key(order))[:number]


def _first_keys(pod: Raw, crowding: Mapping[str, int]) -> tuple[bool, int, bool, int, int]:
    node = wire.node_of(pod)
    return (
        node != "",
        _PHASES.get(wire.phase_of(pod), 0),
        wire.pod_ready(pod),
        deletion_cost(pod),
        -crowding.get(node, 0),
    )


def deletion_cost(pod: Raw) -> int:
    """The annotation's number; 0 if it is not an int32."""
    try:
        cost = int(wire.annotations_of(pod).get(POD_DELETION_COST, "0"))
    except ValueError:
        return 0
    return cost if -(2**31) <= cost < 2**31 else 0


def _ready_since(pod: Raw) -> datetime:
    return parse_time((wire.condition_of(pod, "Ready") or {})["lastTransitionTime"])


def _restarts(pod: Raw) -> int:
    return max(
        (status.get("restartCount", 0) for status in wire.status_of(pod).get("containerStatuses") or ()), default=0
    )


def _younger_first(one_at: datetime, other_at: datetime, one: Raw, other: Raw, now: datetime) -> int:
    """The younger one first; ages of the same power of two are equal, and then the UID decides."""
    if one_at == other_at:
        return 0
    ages = [round((now - at).total_seconds() * 1e9) for at in (one_at, other_at)]
    ranks = [math.floor(math.log2(age)) if age > 0 else -1 for age in ages]
    return ranks[0] - ranks[1] or (-1 if wire.uid_of(one) < wire.uid_of(other) else 1)


class ReplicaSets(WorkloadActor):
    """The ReplicaSet controller."""

    kind = REPLICASETS

    async def sync(self, obj: Raw) -> None:
        if not wire.deleting(obj):
            await self._scale(obj)
        spec = obj["spec"]
        counts = count(self.pods_of(obj), min_ready_seconds=spec.get("minReadySeconds", 0), now=self.world.now())
        status = {
            "replicas": counts.replicas,
            "readyReplicas": counts.ready or None,
            "availableReplicas": counts.available or None,
            "terminatingReplicas": counts.terminating,
            "observedGeneration": obj["metadata"].get("generation", 1),
        }
        await self.write_status(obj, status, recheck_at=counts.recheck_at)

    async def _scale(self, obj: Raw) -> None:
        pods = [pod for pod in self.pods_of(obj) if wire.active(pod)]
        missing = obj["spec"].get("replicas", 1) - len(pods)
        for _ in range(missing):
            await self.world.create(PODS, pod_from_template(REPLICASETS, obj, obj["spec"]["template"]))
        if missing < 0:
            for pod in victims(pods, -missing, crowding=self._crowding(obj), now=self.world.now()):
                await self.world.delete(PODS, pod)

    def _crowding(self, obj: Raw) -> Mapping[str, int]:
        """The number of active pods by node, of all ReplicaSets of the same controller."""
        owner = wire.controller_uid(obj)
        related = (
            [other for other in self.objects.items.values() if wire.controller_uid(other) == owner] if owner else [obj]
        )
        return Counter(wire.node_of(pod) for other in related for pod in self.pods_of(other) if wire.active(pod))
