"""What Karpenter sees of the cluster, where it reads objects otherwise than Dovetail (10 §1).

It knows no schedules, counts durations from the start of a pod, and counts only `"true"` on a Node. Nothing of ours on
an object means anything to it, and what it does not know it leaves as it is.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, Reason
from dovetail.api.pod_specs import SchedulingPod, SchedulingPodStatus
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.model.pod_records import PodRecord
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PODS, Patch, Write
from dovetail.sim.server.api_server import Client
from dovetail.state.cluster import Projection
from dovetail.values.duration import SECOND, DurationError, parse_duration

T = TypeVar("T")
Annotations = Mapping[str, str]

_OURS: Final = "dovetail.dev/"
# Conditions of NodeClaims that Dovetail alone writes.
_OUR_CONDITIONS: Final = frozenset({ConditionType.DISRUPTION_STATE, ConditionType.EXPIRED})


class StartedPodStatus(SchedulingPodStatus, frozen=True):
    start_time: objects.Instant | None = None


class StartedPod(SchedulingPod, frozen=True):
    """A pod with the instant from which Karpenter counts its do-not-disrupt."""

    status: StartedPodStatus = StartedPodStatus()


class KarpenterView(WatchedCluster):
    """The cluster as Karpenter reads it. `durations`: as since version 1.12, which knows durations on pods."""

    durations: bool = True

    def reading(self, plural: str) -> Projection:
        struct, keep = super().reading(plural)
        if plural == PODS.plural:
            return Projection(StartedPod, lambda pod: self._pod(keep(pod), pod.status.start_time))
        read = _READINGS.get(plural)
        return Projection(struct, keep if read is None else lambda item: read(keep(item)))

    def _pod(self, pod: PodRecord, started_at: datetime | None) -> PodRecord:
        value = pod.annotations.get(names.DO_NOT_DISRUPT, "")
        others = {key: text for key, text in pod.annotations.items() if key == names.POD_DELETION_COST}
        value = value if value == "true" or not self.durations else _from_creation(value, pod.created_at, started_at)
        protected = {names.DO_NOT_DISRUPT: value} if value == "true" or (value and self.durations) else {}
        annotations = {**others, **protected}
        return pod if annotations == pod.annotations else msgspec.structs.replace(pod, annotations=annotations)


def _from_creation(value: str, created_at: datetime | None, started_at: datetime | None) -> str:
    """The duration from the pod's creation that ends when the value does; empty if Karpenter ignores the value."""
    try:
        span_ns = parse_duration(value)
    except DurationError:
        return ""
    if span_ns <= 0:
        return ""
    waited = started_at - created_at if started_at is not None and created_at is not None else timedelta()
    return f"{span_ns + round(waited.total_seconds()) * SECOND}ns"


def _node(node: objects.Node) -> objects.Node:
    annotations = _not_ours(node.metadata.annotations)
    if annotations.get(names.DO_NOT_DISRUPT, "true") != "true":
        del annotations[names.DO_NOT_DISRUPT]
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=annotations))


def _claim(claim: objects.NodeClaim) -> objects.NodeClaim:
    annotations = _not_ours(claim.metadata.annotations)
    annotations.pop(names.DISRUPTION_COMMAND, None)
    conditions = [condition for condition in claim.status.conditions if condition.type not in _OUR_CONDITIONS]
    return msgspec.structs.replace(
        claim,
        metadata=msgspec.structs.replace(claim.metadata, annotations=annotations),
        status=msgspec.structs.replace(claim.status, conditions=conditions),
    )


def _pool(pool: objects.NodePool) -> objects.NodePool:
    """Karpenter's CRD has no graceful expiry, and refuses budgets for it."""
    disruption = pool.spec.disruption
    budgets = tuple(budget for budget in disruption.budgets if Reason.EXPIRED not in budget.reasons)
    stripped = msgspec.structs.replace(disruption, graceful_expire_after=names.NEVER, budgets=budgets)
    return msgspec.structs.replace(
        pool,
        metadata=msgspec.structs.replace(pool.metadata, annotations=_not_ours(pool.metadata.annotations)),
        spec=msgspec.structs.replace(pool.spec, disruption=stripped),
    )


_READINGS: Final[Mapping[str, Callable[[Any], Any]]] = {
    NODES.plural: _node,
    NODECLAIMS.plural: _claim,
    NODEPOOLS.plural: _pool,
}


def _not_ours(annotations: Annotations) -> dict[str, str]:
    return {key: text for key, text in annotations.items() if not key.startswith(_OURS)}


class KarpenterClient(Client):
    """Writes back the conditions that Karpenter does not know as they are on the server."""

    async def write(self, write: Write[T]) -> T:
        if isinstance(write, Patch) and write.resource.plural == NODECLAIMS.plural:
            write = self._with_our_conditions(write)
        return await super().write(write)

    def _with_our_conditions(self, patch: Patch[T]) -> Patch[T]:
        status: Mapping[str, Any] = patch.body.get("status") or {}
        if "conditions" not in status:
            return patch
        claim = self._registry.store.collection(NODECLAIMS).objects.get(("", patch.name))
        stored = [] if claim is None else claim.body.get("status", {}).get("conditions", ())
        theirs = [condition for condition in status["conditions"] if condition["type"] not in _OUR_CONDITIONS]
        ours = [condition for condition in stored if condition["type"] in _OUR_CONDITIONS]
        body = {**patch.body, "status": {**status, "conditions": [*theirs, *ours]}}
        return msgspec.structs.replace(patch, body=body)
