"""Publishes events and metrics about the decisions on pending pods, and remembers each pod's target (06 §6)."""

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.api import objects
from dovetail.api.names import EventReason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.writing import about_pod, about_pool, publish, warn
from dovetail.model.pod_records import PodRecord
from dovetail.observe.metrics import Metrics
from dovetail.planning.provisioning.claims import ProvisioningPlan, failed_note, hinders_consolidation, nominated_note
from dovetail.runtime.events import ObjectReference
from dovetail.runtime.manager import Context
from dovetail.scheduling.placement import RESOURCE_CLAIMS, NewClaim, PodInfo
from dovetail.state.scheduling import SchedulingState
from dovetail.state.unplaceable import Unplaceable

log = logging.getLogger(__name__)

CONTROLLER: Final = "provisioner"
FAILED_SECONDS: Final = 300.0
STARVED_SECONDS: Final = 60.0
WISHES_AGAIN: Final = timedelta(days=1)
_WISHES: Final = "pod has a preferred anti-affinity or spread, which can prevent consolidation"


class _PodHistory(msgspec.Struct):
    """A pod that was pending, for as long as it exists."""

    seen_at: datetime
    decided: bool = False
    placed_at: datetime | None = None  # when it was first placed; None after an error
    wishes_logged_at: datetime | None = None


class ProvisioningDecisions:
    """Of pods on disrupted nodes it remembers only the target: they are not pending yet."""

    def __init__(
        self,
        cluster: WatchedCluster,
        state: SchedulingState,
        metrics: Metrics,
        *,
        nominated_for: timedelta,
        respect_preferences: bool,
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._metrics = metrics
        self._nominated_for = nominated_for
        self._respect_preferences = respect_preferences
        self._pods: dict[str, _PodHistory] = {}
        self._targets: dict[str, str] = {}  # by pod UID: the claim that it was last sent to

    def seen(self, uid: str, now: datetime) -> None:
        self._pods.setdefault(uid, _PodHistory(now))

    def forget(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def only(self, uids: Iterable[str]) -> None:
        """Forgets the targets of all other pods."""
        self._targets = {uid: self._targets[uid] for uid in uids if uid in self._targets}

    def target(self, uid: str) -> str:
        """The claim that the pod was last sent to; empty if none."""
        return self._targets.get(uid, "")

    # -- what was decided ----------------------------------------------------------------------------------------------

    def refused(self, context: Context, refused: Collection[Unplaceable]) -> None:
        """Reports pods that are not planned at all (06 §2)."""
        self._metrics.scheduling_ignored_pods.set(len(refused))
        for unplaceable in refused:
            self._left_out(context, unplaceable.uid)
            if not unplaceable.silent:
                _warn_of(
                    context,
                    ObjectReference("v1", "Pod", unplaceable.pod.name, unplaceable.uid, unplaceable.pod.namespace),
                    str(unplaceable),
                )

    def planned(
        self, context: Context, plan: ProvisioningPlan, pods: Mapping[str, PodInfo], left_out: Mapping[str, str]
    ) -> None:
        """Reports all pods except those of new claims. `left_out`: unusable pools, and why."""
        self._measure(plan)
        unsupported = sum(error.reason == RESOURCE_CLAIMS for error in plan.solution.errors.values())
        self._metrics.scheduling_unsupported_pods.labels("resource-claims").set(unsupported)
        for name, why in plan.starved.items():
            if (pool := self._cluster.pools.value(name)) is not None:
                about, reason = about_pool(pool), EventReason.NO_COMPATIBLE_INSTANCE_TYPES
                warn(context.recorder, about, reason, why, dedupe_seconds=STARVED_SECONDS)
        others = [f"NodePool {name} is left out: {why}" for name, why in left_out.items()]
        for uid, error in plan.solution.errors.items():
            self._left_out(context, uid)
            if not error.waiting:
                _warn_of(context, about_pod(pods[uid]), "; ".join((error.reason, *others)))
        until = context.clock.now() + self._nominated_for
        for node, uids in plan.solution.existing.items():
            self._state.nominate(node, until)
            claim, note = self._destination(node)
            for uid in uids:
                self._placed(context, pods[uid], target=claim)
                publish(context.recorder, about_pod(pods[uid]), EventReason.NOMINATED, note)
        self._log_wishes(context, pods.values())

    def created(self, context: Context, claim: NewClaim, made: objects.NodeClaim, pods: Mapping[str, PodInfo]) -> None:
        note = nominated_note(made.metadata.name)
        for uid in claim.pods:
            self._placed(context, pods[uid], target=made.metadata.name)
            publish(context.recorder, about_pod(pods[uid]), EventReason.NOMINATED, note)

    def not_created(self, context: Context, claim: NewClaim, why: str, pods: Mapping[str, PodInfo]) -> None:
        log.error("no nodeclaim was created: %s", why, extra={"NodePool": claim.pool, "pod-count": len(claim.pods)})
        for uid in claim.pods:
            self._left_out(context, uid)
            _warn_of(context, about_pod(pods[uid]), why)

    def _placed(self, context: Context, pod: PodInfo, *, target: str) -> None:
        history = self._decided(context, pod.uid, target=target)
        record = self._cluster.pods.value(pod.name, pod.namespace)
        waits = record is not None and record.uid == pod.uid and not record.node_name  # planning takes a while
        if history is not None and history.placed_at is None and waits:
            history.placed_at = context.clock.now()

    def _left_out(self, context: Context, uid: str) -> None:
        history = self._decided(context, uid, target="")
        if history is not None:
            history.placed_at = None

    def _decided(self, context: Context, uid: str, *, target: str) -> _PodHistory | None:
        self._targets[uid] = target
        history = self._pods.get(uid)
        if history is not None and not history.decided:
            history.decided = True
            self._metrics.pods_decision_seconds.observe(_seconds(history.seen_at, context.clock.now()))
        return history

    # -- what became of it ---------------------------------------------------------------------------------------------

    def follow(self, old: PodRecord, new: PodRecord, now: datetime) -> None:
        """Measures the time from the first plan for a pod until it is bound, and until it runs (04 §3.5)."""
        history = self._pods.get(new.uid)
        if history is None or history.placed_at is None:
            return
        if new.node_name and not old.node_name:
            self._metrics.pods_provisioning_bound_seconds.observe(_seconds(history.placed_at, now))
        if old.phase == "Pending" and new.phase == "Running":
            self._metrics.pods_provisioning_startup_seconds.observe(_seconds(history.placed_at, now))
            history.placed_at = None

    def _destination(self, node: str) -> tuple[str, str]:
        """The claim of a node, if it has one, and the note of the event for its pods."""
        place = self._state.place(node)
        claim = "" if place is None or place.claim is None else place.claim.metadata.name
        return claim, nominated_note(claim, "" if place is None else place.pods_are_on)

    def _measure(self, plan: ProvisioningPlan) -> None:
        self._metrics.scheduling_unschedulable_pods.labels(CONTROLLER).set(len(plan.solution.errors))
        self._metrics.scheduling_zones.clear()
        for zone, count in plan.zones.items():
            self._metrics.scheduling_zones.labels(CONTROLLER, zone).set(count)

    def _log_wishes(self, context: Context, pods: Iterable[PodInfo]) -> None:
        """Logs once a day for each pod."""
        if not self._respect_preferences:
            return
        now = context.clock.now()
        for pod in filter(hinders_consolidation, pods):
            history = self._pods.get(pod.uid)
            if history is not None and (
                history.wishes_logged_at is None or now - history.wishes_logged_at >= WISHES_AGAIN
            ):
                history.wishes_logged_at = now
                log.info(_WISHES, extra={"Pod": str(pod)})


def _seconds(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())


def _warn_of(context: Context, pod: ObjectReference, why: str) -> None:
    warn(context.recorder, pod, EventReason.FAILED_SCHEDULING, failed_note(why), dedupe_seconds=FAILED_SECONDS)
