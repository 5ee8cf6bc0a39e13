"""Terminates deleted Nodes: taint, drain, volumes, instance, finalizer (03 §3–§6; S4 to S6).

Changes of pods, volumes and the claim add the Node's key, and the drain plan says when time alone changes something.
Only the provider is polled.
"""

import asyncio
import logging
from datetime import datetime
from typing import Final

from dovetail.api import names, objects
from dovetail.api.names import ConditionReason, ConditionType, EventReason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController, own_name, retried, seconds_until
from dovetail.controllers.base.writing import (
    about_claim,
    about_node,
    about_pod,
    delete_claim,
    publish,
    remove_termination_finalizer,
    warn,
    write_node,
    write_status,
)
from dovetail.controllers.pod.evictions import Evictions
from dovetail.model.node_records import claim_record
from dovetail.model.pod_records import PodRecord
from dovetail.observe.metrics import Metrics
from dovetail.planning.conditions import FALSE, UNKNOWN, Conditions
from dovetail.planning.node.drain import (
    EVICTION_FAILS,
    DrainAction,
    DrainPlan,
    PodStep,
    is_drainable,
    is_going,
    is_within_grace,
    late_at,
    waiting_note,
)
from dovetail.planning.nodeclaim.lifecycle import is_ready, to_body
from dovetail.planning.timings import Timings
from dovetail.ports import CloudError, CloudProvider, InstanceGone
from dovetail.rules.deadlines import node_deadline
from dovetail.rules.protection import do_not_disrupt
from dovetail.rules.states import DISRUPTED, has_disrupted_taint
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.values.duration import SECOND, add
from dovetail.values.timestamp import TimeError, parse_time, spoken_time

log = logging.getLogger(__name__)

BALANCERS_VALUE: Final = "karpenter"
VOLUMES_NAMED: Final = 5


class Termination(KeyedController[str]):
    """The controller of Nodes that are being deleted. Keys are names of Nodes."""

    name = "node.termination"
    workers = 100

    def __init__(
        self, cluster: WatchedCluster, provider: CloudProvider, evictions: Evictions, metrics: Metrics, timings: Timings
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._provider = provider
        self._evictions = evictions
        self._metrics = metrics
        self._timings = timings
        # By name of a silent node: the version of the Node, and when its instance counts as gone.
        self._silent: dict[str, tuple[str, datetime | None]] = {}
        evictions.tell_failures(self.add)
        self.own(cluster.nodes, own_name)
        self.follow(cluster.claims, cluster.node_names)
        self.follow(cluster.pods, self._node_of)
        self.follow(cluster.pods, evictions.waves.nodes_waiting_for)
        self.follow(cluster.attachments, lambda attachment: [attachment.spec.node_name])

    def _node_of(self, pod: PodRecord) -> list[str]:
        """Pods change often. Only those of deleted Nodes matter."""
        node = self._cluster.nodes.value(pod.node_name)
        return [pod.node_name] if node is not None and node.metadata.deletion_timestamp is not None else []

    async def reconcile(self, key: str) -> Outcome:
        node = self._cluster.nodes.get_consistent(key)
        if (
            node is None
            or node.metadata.deletion_timestamp is None
            or names.TERMINATION_FINALIZER not in node.metadata.finalizers
            or not self._cluster.manages_node(node)
        ):
            self._silent.pop(key, None)
            return Done()
        claim = self._cluster.consistent_claim_of(node)
        if claim is not None and claim.metadata.deletion_timestamp is None:
            await delete_claim(self.api, self._cluster, claim)
        try:
            gone_at, now = await self._instance_gone_at(node), self.clock.now()
            if gone_at is not None and now >= gone_at:
                await self._finish(node)
                return Done()
            if gone_at is not None:
                self.add_after(key, (gone_at - now).total_seconds())
            await self._taint(node)
            return await self._end(node, claim)
        except CloudError as error:
            return _unanswered(error)

    async def _instance_gone_at(self, node: objects.Node) -> datetime | None:
        """When the instance counts as gone, which ends the drain (03 §3.3, R58). None: never. Raises CloudError."""
        name, version = node.metadata.name, node.metadata.resource_version
        if is_ready(node) or not node.spec.provider_id:
            return None
        known_version, known_at = self._silent.get(name, ("", None))
        if known_at is not None and known_version == version and self.clock.now() < known_at:
            return known_at
        try:
            instance = await self._provider.get(node.spec.provider_id)
        except InstanceGone:
            return self.clock.now()
        if instance.silent_since is None:
            return None
        gone_at = add(instance.silent_since, round(self._timings.silent_instance_seconds * SECOND))
        self._silent[name] = (version, gone_at)
        return gone_at

    async def _taint(self, node: objects.Node) -> None:
        """Keeps new pods and new connections of load balancers away."""
        label = node.metadata.labels.get(names.EXCLUDE_BALANCERS_LABEL)
        if has_disrupted_taint(node) and label == BALANCERS_VALUE:
            return
        # A taint of the same key with another effect is replaced (03 §10.15).
        taints = [taint for taint in node.spec.taints if taint.key != names.DISRUPTED_TAINT]
        body = {
            "metadata": {"labels": {names.EXCLUDE_BALANCERS_LABEL: BALANCERS_VALUE}},
            "spec": {"taints": [to_body(taint) for taint in (*taints, DISRUPTED)]},
        }
        await write_node(self.api, self._cluster, node, body)
        log.info("tainted node", extra={"Node": node.metadata.name, "taint.Key": DISRUPTED.key})

    async def _end(self, node: objects.Node, claim: objects.NodeClaim | None) -> Outcome:
        """Drain, volumes, instance. Writes the conditions however far it gets."""
        conditions = None if claim is None else Conditions(claim, self.clock.now())
        drained_before = conditions is not None and conditions.is_true(ConditionType.DRAINED)
        try:
            outcome = await self._steps(node, claim, conditions)
        except CloudError as error:
            outcome = _unanswered(error)
        if claim is not None and conditions is not None and claim.metadata.deletion_timestamp is not None:
            await write_status(self.api, self._cluster, claim, conditions)
            if conditions.is_true(ConditionType.DRAINED) and not drained_before:
                self._metrics.nodes_drained.labels(node.metadata.pool).inc()
        if outcome is not None:
            return outcome
        await self._finish(node)
        return Done()

    async def _steps(
        self, node: objects.Node, claim: objects.NodeClaim | None, conditions: Conditions | None
    ) -> Outcome | None:
        """Returns None once there is nothing left to wait for."""
        deadline, now = self._deadline(node, claim), self.clock.now()
        forced = deadline is not None and now >= deadline
        waiting = await self._drain(node, conditions, deadline, now)
        if waiting is not None and not forced:
            return waiting
        volumes = self._volumes_left(node)
        if volumes and not forced:
            return self._await_volumes(node, conditions, volumes, deadline)
        if conditions is not None and volumes:
            reason = ConditionReason.TERMINATION_GRACE_PERIOD_ELAPSED
            conditions.set(ConditionType.VOLUMES_DETACHED, FALSE, reason, f"{len(volumes)} volumes were still attached")
        elif conditions is not None:
            conditions.set(ConditionType.VOLUMES_DETACHED)
        if claim is None or conditions is None:
            return None
        try:
            await self._provider.delete(claim)
        except InstanceGone:
            conditions.set(ConditionType.INSTANCE_TERMINATING)
            return None
        conditions.set(ConditionType.INSTANCE_TERMINATING)
        return Done(self._timings.instance_poll_seconds)

    def _deadline(self, node: objects.Node, claim: objects.NodeClaim | None) -> datetime | None:
        if claim is None:
            return None
        deadline = node_deadline(claim_record(claim))
        text = claim.metadata.annotations.get(names.TERMINATION_TIMESTAMP)
        if text is not None:
            try:
                parse_time(text)
            except TimeError as error:  # a mistake forces nothing (03 §10.13)
                instead = "it drains without a deadline"
                if deadline is not None:
                    instead = f"by its terminationGracePeriod the deadline is {spoken_time(deadline)}"
                note = f"annotation {names.TERMINATION_TIMESTAMP}: {error}; {instead}"
                warn(self.recorder, about_claim(claim), EventReason.FAILED_TERMINATION, note)
        if deadline is not None:
            note = f"All pods will be deleted by {spoken_time(deadline)}, the deadline of its drain"
            reason = EventReason.TERMINATION_GRACE_PERIOD_EXPIRING
            warn(self.recorder, about_node(node), reason, note, node.metadata.name)
        return deadline

    # -- the drain ----------------------------------------------------------------------------------------------------

    async def _drain(
        self, node: objects.Node, conditions: Conditions | None, deadline: datetime | None, now: datetime
    ) -> Done | None:
        """Returns None if the drain is over, else when to reconcile again."""
        plan = self._evictions.plan_of(node, now)
        least_until = now if conditions is None else self._least_until(conditions, plan, now)
        if deadline is not None and now >= deadline:
            # Before the instance is terminated, in the same reconcile (R17).
            forced = [
                step.forced for step in plan.steps if step.action is DrainAction.DELETE and step.forced is not None
            ]
            await asyncio.gather(*(self._evictions.delete(deletion, node) for deletion in forced))
            if not plan.steps and conditions is not None:
                conditions.set(ConditionType.DRAINED)
            return Done() if plan.steps else None
        for step in plan.steps:
            if step.action in (DrainAction.EVICT, DrainAction.DELETE):
                self._evictions.want(step.pod)
        if plan.steps or now < least_until:
            self._publish_waiting(node, plan, deadline, waited=now >= least_until)
            late = [late_at(step.pod, self._timings) for step in plan.steps if step.action is DrainAction.GOING]
            ends = [at for at in (plan.until, least_until, *late) if at is not None and at > now]
            return Done(seconds_until(min(ends, default=None), now))
        if conditions is not None:
            conditions.set(ConditionType.DRAINED)
        return None

    def _least_until(self, conditions: Conditions, plan: DrainPlan, now: datetime) -> datetime:
        """When the minimum duration of the drain is over. A finished drain does not start again."""
        if conditions.is_true(ConditionType.DRAINED):
            return now
        answers = (self._evictions.failure(step.pod) for step in plan.steps if step.action is DrainAction.EVICT)
        failing = next((f"{EVICTION_FAILS}: {answer}" for answer in answers if answer), "")
        conditions.set(ConditionType.DRAINED, UNKNOWN, ConditionReason.DRAINING, failing)
        since = conditions.since(ConditionType.DRAINED) or now
        return add(since, round(self._timings.least_drain_seconds * SECOND)) or now

    def _publish_waiting(self, node: objects.Node, plan: DrainPlan, deadline: datetime | None, *, waited: bool) -> None:
        """Says on the Node and its pods what the drain waits for, unless it has only just begun."""
        for step in plan.steps:
            verdict = do_not_disrupt(step.pod, self.clock.now())
            if step.action is DrainAction.PROTECTED and not verdict.allowed and verdict.until is not None:
                until = spoken_time(verdict.until)
                note = f"Holds back the drain of node {node.metadata.name}: {verdict.message}"
                publish(self.recorder, about_pod(step.pod), EventReason.DO_NOT_DISRUPT_UNTIL, note, step.pod.uid, until)
            if step.action is DrainAction.PROTECTED and step.forced is not None:
                at = spoken_time(step.forced.at)
                note = f"Node {node.metadata.name} is draining: the pod is deleted at {at}, although {step.why}"
                reason = EventReason.TERMINATION_GRACE_PERIOD_EXPIRING
                warn(self.recorder, about_pod(step.pod), reason, note, step.pod.uid, at)
        if waited and any(map(self._is_late, plan.steps)):
            refusals = {
                step.pod.uid: why
                for step in plan.steps
                if step.action is DrainAction.EVICT and (why := self._evictions.refusal(step.pod)) is not None
            }
            note = waiting_note(plan.steps, deadline, refusals)
            going = str(is_going(plan.steps))
            warn(self.recorder, about_node(node), EventReason.FAILED_DRAINING, note, node.metadata.name, going)

    def _is_late(self, step: PodStep) -> bool:
        """Whether the drain waits for the pod longer than a drain has to."""
        if step.action is DrainAction.GOING:
            return not is_within_grace(step.pod, self.clock.now(), self._timings)
        if step.action is DrainAction.EVICT:
            return self._evictions.is_held_up(step.pod)
        return step.action is not DrainAction.LATER  # then others are, or nobody is

    # -- volumes and the end ------------------------------------------------------------------------------------------

    def _volumes_left(self, node: objects.Node) -> list[str]:
        """Attachments of pods that leave (03 §6). Attachments of pods that stay and inline volumes do not count."""
        staying = {
            (pod.namespace, name)
            for pod in self._cluster.pods_on[node.metadata.name]
            if not is_drainable(pod)
            for name in pod.volume_claims
        }
        claims = map(self._cluster.stored_claims.get, staying)
        volumes = {claim.value.spec.volume_name for claim in claims if claim is not None}
        return [
            attachment.metadata.name
            for attachment in self._cluster.attachments_to[node.metadata.name]
            if attachment.spec.source.persistent_volume_name
            and attachment.spec.source.persistent_volume_name not in volumes
        ]

    def _await_volumes(
        self, node: objects.Node, conditions: Conditions | None, volumes: list[str], deadline: datetime | None
    ) -> Outcome:
        names_ = ", ".join(volumes[:VOLUMES_NAMED])
        more = f" and {len(volumes) - VOLUMES_NAMED} more" if len(volumes) > VOLUMES_NAMED else ""
        note = f"{len(volumes)} volumes are still attached: {names_}{more}"
        if conditions is not None:
            conditions.set(ConditionType.VOLUMES_DETACHED, UNKNOWN, ConditionReason.AWAITING_VOLUME_DETACHMENT)
        publish(self.recorder, about_node(node), EventReason.AWAITING_VOLUME_DETACHMENT, note, node.metadata.name)
        return Done(seconds_until(deadline, self.clock.now()))

    async def _finish(self, node: objects.Node) -> None:
        if not await remove_termination_finalizer(self.api, self._cluster, node):
            return  # it was counted before (04 §8.7)
        now, pool = self.clock.now(), node.metadata.pool
        self._metrics.nodes_terminated.labels(pool, node.metadata.labels.get(names.ZONE_LABEL, "")).inc()
        if node.metadata.deletion_timestamp is not None:
            elapsed = max(0.0, (now - node.metadata.deletion_timestamp).total_seconds())
            self._metrics.nodes_termination_seconds.labels(pool).observe(elapsed)
        if node.metadata.creation_timestamp is not None:
            age = max(0.0, (now - node.metadata.creation_timestamp).total_seconds())
            self._metrics.nodes_lifetime_seconds.labels(pool).observe(age)
        log.info("deleted node", extra={"Node": node.metadata.name})


def _unanswered(error: CloudError) -> Outcome:
    return retried(error, "the cloud did not answer")
