"""Launches, registers and initializes NodeClaims, and terminates the instances of deleted ones (03 §2, §7).

Each reconcile starts from the claim as it is, so that a new leader continues where the last one stopped.
"""

import logging
from datetime import datetime
from typing import Final, Protocol

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionReason, ConditionType, EventReason
from dovetail.api.objects import is_true
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import ClaimController, retried, seconds_until
from dovetail.controllers.base.writing import (
    about_claim,
    delete_node,
    disrupt,
    warn,
    write_metadata,
    write_node,
    write_status,
)
from dovetail.model.node_records import claim_record
from dovetail.observe.metrics import Metrics
from dovetail.planning.conditions import UNKNOWN, Conditions
from dovetail.planning.nodeclaim.lifecycle import (
    LivenessTimeout,
    is_new,
    lacks_guard,
    launched_metadata,
    liveness,
    note_launch_failure,
    note_lost_node,
    note_nodes,
    registration_patch,
    why_not_initialized,
)
from dovetail.planning.timings import Timings
from dovetail.ports import (
    CloudError,
    CloudProvider,
    CreateFailed,
    Instance,
    InstanceGone,
    InsufficientCapacity,
    NodeClassNotReady,
    NotFound,
)
from dovetail.rules.deadlines import node_deadline
from dovetail.runtime.pace import Backoff
from dovetail.runtime.work_queue import Done, Outcome, Retry
from dovetail.values.timestamp import format_time, spoken_time

log = logging.getLogger(__name__)

LAUNCHES_REMEMBERED: Final = 10_000


class RegistrationObserver(Protocol):
    """Counts the registrations of a pool."""

    def registered(self, claim: objects.NodeClaim) -> None: ...

    def failed(self, claim: objects.NodeClaim) -> None: ...


class Lifecycle(ClaimController):
    name = "nodeclaim.lifecycle"
    workers = 100  # a cloud may take minutes to answer
    backoff = Backoff(first_seconds=1.0, cap_seconds=60.0)

    def __init__(
        self,
        cluster: WatchedCluster,
        provider: CloudProvider,
        health: RegistrationObserver,
        metrics: Metrics,
        timings: Timings,
    ) -> None:
        super().__init__(cluster)
        self._provider = provider
        self._health = health
        self._metrics = metrics
        self._timings = timings
        self._launched: dict[str, Instance] = {}  # by claim UID, until the status is written: one launch per claim
        self.follow(cluster.nodes, cluster.claim_names)

    async def reconcile_claim(self, claim: objects.NodeClaim) -> Outcome:
        if claim.metadata.deletion_timestamp is not None:
            return await self._finalize(claim)
        if names.TERMINATION_FINALIZER not in claim.metadata.finalizers:
            # Written before the launch: the claim must not disappear while its instance runs.
            finalizers = [*claim.metadata.finalizers, names.TERMINATION_FINALIZER]
            labels = {self.cluster.node_class_label: claim.spec.node_class_ref.name}
            await write_metadata(self.api, self.cluster, claim, {"finalizers": finalizers, "labels": labels})
            return Done()
        return await self._bring_up(claim)

    # -- coming up ----------------------------------------------------------------------------------------------------

    async def _bring_up(self, claim: objects.NodeClaim) -> Outcome:
        conditions = Conditions(claim, self.clock.now())
        failure = ""
        if not conditions.is_true(ConditionType.LAUNCHED):
            try:
                return await self._launch(claim, conditions)
            except InsufficientCapacity as error:
                note = f"NodeClaim {claim.metadata.name}: {error}"[:300]
                warn(self.recorder, about_claim(claim), EventReason.INSUFFICIENT_CAPACITY, note)
                return await self._give_up(claim, LivenessTimeout("insufficient_capacity", str(error)))
            except NodeClassNotReady as error:
                warn(self.recorder, about_claim(claim), EventReason.NODECLASS_NOT_READY, str(error)[:300])
                return await self._give_up(claim, LivenessTimeout("nodeclass_not_ready", str(error)))
            except CloudError as error:
                reason = error.reason if isinstance(error, CreateFailed) else ConditionReason.LAUNCH_FAILED
                note_launch_failure(conditions, reason, str(error))
                failure = f"launch failed: {error}"
        elif not conditions.is_true(ConditionType.REGISTERED) or self._has_new_node(claim, conditions):
            await self._register(claim, conditions)
        elif not conditions.is_true(ConditionType.INITIALIZED):
            await self._initialize(claim, conditions)
        note_lost_node(conditions, len(self.cluster.nodes_of(claim)))
        conditions.refresh()
        now = self.clock.now()  # a failed launch may have taken minutes
        alive = liveness(conditions, now, self._timings)
        if conditions.is_true(ConditionType.NODE_LOST):
            self._warn_lost(claim, alive)
        if isinstance(alive, LivenessTimeout):
            if not conditions.is_true(ConditionType.REGISTERED):
                self._health.failed(claim)
            return await self._give_up(claim, alive)
        await write_status(self.api, self.cluster, claim, conditions, **_node_name(self.cluster, claim, conditions))
        self._count_progress(claim, conditions)
        if failure and alive is not None:
            self.add_after(claim.metadata.name, (alive - now).total_seconds())  # may be before the back-off ends
        return Retry(failure) if failure else Done(seconds_until(alive, now))

    async def _launch(self, claim: objects.NodeClaim, conditions: Conditions) -> Outcome:
        instance = self._launched.get(claim.metadata.uid) or await self._provider.create(claim)
        while len(self._launched) >= LAUNCHES_REMEMBERED:
            del self._launched[next(iter(self._launched))]
        self._launched[claim.metadata.uid] = instance
        claim = await write_metadata(
            self.api, self.cluster, claim, launched_metadata(claim, instance.labels, instance.annotations)
        )
        conditions = Conditions(claim, self.clock.now())
        conditions.set(ConditionType.LAUNCHED)
        await write_status(
            self.api,
            self.cluster,
            claim,
            conditions,
            providerID=instance.provider_id,
            imageID=instance.image_id,
            capacity=dict(instance.capacity),
            allocatable=dict(instance.allocatable),
        )
        self._launched.pop(claim.metadata.uid, None)
        log.info(
            "launched nodeclaim",
            extra={
                "NodeClaim": claim.metadata.name,
                "provider-id": instance.provider_id,
                "instance-type": instance.labels.get(names.INSTANCE_TYPE_LABEL, ""),
                "zone": instance.labels.get(names.ZONE_LABEL, ""),
                "capacity-type": instance.labels.get(names.CAPACITY_TYPE_LABEL, ""),
            },
        )
        return Done()

    async def _register(self, claim: objects.NodeClaim, conditions: Conditions) -> None:
        nodes = self.cluster.nodes_of(claim)
        if len(nodes) != 1:
            note_nodes(conditions, len(nodes))
            return
        node = self.cluster.nodes.get_consistent(nodes[0].metadata.name)
        if node is None:
            note_nodes(conditions, 0)
            return
        if lacks_guard(node):
            taint = names.UNREGISTERED_TAINT
            note = f"Node {node.metadata.name} came without the taint {taint}; pods may have run ahead"
            warn(self.recorder, about_claim(claim), EventReason.UNREGISTERED_TAINT_MISSING, note)
        patch = registration_patch(claim, node, self.cluster.node_class_label)
        await write_node(self.api, self.cluster, node, patch)
        conditions.set(ConditionType.REGISTERED)
        if conditions.is_true(ConditionType.INITIALIZED):  # an earlier Node was
            conditions.set(
                ConditionType.INITIALIZED, UNKNOWN, ConditionReason.AWAITING_RECONCILIATION, "its Node is new"
            )

    def _has_new_node(self, claim: objects.NodeClaim, conditions: Conditions) -> bool:
        return any(is_new(node, conditions) for node in self.cluster.nodes_of(claim))

    async def _initialize(self, claim: objects.NodeClaim, conditions: Conditions) -> None:
        cached = self.cluster.node_of(claim)
        node = None if cached is None else self.cluster.nodes.get_consistent(cached.metadata.name)
        if node is None:
            conditions.set(ConditionType.INITIALIZED, UNKNOWN, ConditionReason.NODE_NOT_FOUND, "its Node is not there")
            return
        unmet = why_not_initialized(claim, node)
        if unmet is not None:
            conditions.set(ConditionType.INITIALIZED, UNKNOWN, unmet.reason, unmet.message)
            return
        if node.metadata.labels.get(names.INITIALIZED_LABEL) != "true":
            await write_node(self.api, self.cluster, node, {"metadata": {"labels": {names.INITIALIZED_LABEL: "true"}}})
        conditions.set(ConditionType.INITIALIZED)

    async def _give_up(self, claim: objects.NodeClaim, why: LivenessTimeout) -> Outcome:
        self._launched.pop(claim.metadata.uid, None)
        await disrupt(self.api, self.cluster, self._metrics, claim, reason=why.reason, why=why.message)
        return Done()

    def _warn_lost(self, claim: objects.NodeClaim, alive: LivenessTimeout | datetime | None) -> None:
        """Warns when the Node is first missing, and when the claim is deleted for it."""
        if isinstance(alive, LivenessTimeout):
            note = f"NodeClaim {claim.metadata.name} is deleted: it was {alive.message}"
        else:
            until = "" if alive is None else f" by {spoken_time(alive)}"
            note = f"Its Node is gone. It takes no pods, and is deleted unless the Node is back{until}"
        warn(self.recorder, about_claim(claim), EventReason.NODE_LOST, note, claim.metadata.uid, note)

    def _count_progress(self, claim: objects.NodeClaim, conditions: Conditions) -> None:
        """Runs after the write, so that nothing is counted twice (04 §8.7)."""
        if conditions.is_true(ConditionType.REGISTERED) and not is_true(claim, ConditionType.REGISTERED):
            self._metrics.nodes_created.labels(*_pool_and_zone(claim)).inc()
            self._health.registered(claim)
            log.info("registered nodeclaim", extra={"NodeClaim": claim.metadata.name})
        if conditions.is_true(ConditionType.INITIALIZED) and not is_true(claim, ConditionType.INITIALIZED):
            log.info("initialized nodeclaim", extra={"NodeClaim": claim.metadata.name})

    # -- going --------------------------------------------------------------------------------------------------------

    async def _finalize(self, claim: objects.NodeClaim) -> Outcome:
        if names.TERMINATION_FINALIZER not in claim.metadata.finalizers:
            return Done()
        if names.TERMINATION_TIMESTAMP not in claim.metadata.annotations:
            deadline = node_deadline(claim_record(claim))
            if deadline is not None:
                await self._note_deadline(claim, deadline)
                return Done()
        conditions = Conditions(claim, self.clock.now())
        nodes = self.cluster.nodes_of(claim)
        # A Node with our finalizer was registered, even if the process ended before it wrote the condition.
        registered = any(names.TERMINATION_FINALIZER in node.metadata.finalizers for node in nodes)
        if registered or conditions.is_true(ConditionType.REGISTERED):
            for node in nodes:
                if node.metadata.deletion_timestamp is None:
                    await self._ensure_finalizer(claim, node.metadata.name)
                    await delete_node(self.api, self.cluster, node)
            if nodes:
                return Done()  # the watch event of their end adds the key
        try:
            gone = await self._end_instance(claim)
        except CloudError as error:
            return retried(error, "terminating the instance failed")
        if claim.status.provider_id:  # so that S6 is visible however short it is (R21)
            conditions.set(ConditionType.INSTANCE_TERMINATING)
            claim = await write_status(self.api, self.cluster, claim, conditions)
        if not gone:
            return Done(self._timings.instance_poll_seconds)
        finalizers = [text for text in claim.metadata.finalizers if text != names.TERMINATION_FINALIZER]
        try:
            await write_metadata(self.api, self.cluster, claim, {"finalizers": finalizers})
        except NotFound:  # our last write removed it, and the watch does not show that yet
            return Done()
        self._count_end(claim, conditions)
        return Done()

    async def _ensure_finalizer(self, claim: objects.NodeClaim, name: str) -> None:
        """Registers a Node that lacks our finalizer, as a recreated one does: it would disappear without a drain."""
        node = self.cluster.nodes.get_consistent(name)
        if node is not None and names.TERMINATION_FINALIZER not in node.metadata.finalizers:
            patch = registration_patch(claim, node, self.cluster.node_class_label)
            await write_node(self.api, self.cluster, node, patch)

    async def _note_deadline(self, claim: objects.NodeClaim, deadline: datetime) -> None:
        text = format_time(deadline.replace(microsecond=0))
        await write_metadata(self.api, self.cluster, claim, {"annotations": {names.TERMINATION_TIMESTAMP: text}})
        note = f"All pods will be deleted by {text}, the deadline of its drain"
        warn(self.recorder, about_claim(claim), EventReason.TERMINATION_GRACE_PERIOD_EXPIRING, note)
        log.info("annotated nodeclaim", extra={"NodeClaim": claim.metadata.name, "termination-timestamp": text})

    async def _end_instance(self, claim: objects.NodeClaim) -> bool:
        """Whether the instance is gone. Raises CloudError."""
        if not claim.status.provider_id:
            # A launch whose outcome was never written must not leak.
            instance = self._launched.get(claim.metadata.uid) or await self._lost_launch(claim)
            if instance is None:
                return True
            status = msgspec.structs.replace(claim.status, provider_id=instance.provider_id)
            claim = msgspec.structs.replace(claim, status=status)
        try:
            await self._provider.delete(claim)
        except InstanceGone:
            self._launched.pop(claim.metadata.uid, None)
            return True
        return False

    async def _lost_launch(self, claim: objects.NodeClaim) -> Instance | None:
        uid = claim.metadata.uid
        return next((instance for instance in await self._provider.list() if instance.claim_uid == uid), None)

    def _count_end(self, claim: objects.NodeClaim, conditions: Conditions) -> None:
        now, (pool, zone) = self.clock.now(), _pool_and_zone(claim)
        capacity_type = claim.metadata.labels.get(names.CAPACITY_TYPE_LABEL, "")
        self._metrics.nodeclaims_terminated.labels(pool, capacity_type, zone).inc()
        assert claim.metadata.deletion_timestamp is not None
        elapsed = now - claim.metadata.deletion_timestamp
        self._metrics.nodeclaims_termination_seconds.labels(pool).observe(max(0.0, elapsed.total_seconds()))
        since = conditions.since(ConditionType.INSTANCE_TERMINATING)
        if since is not None:
            seconds = max(0.0, (now - since).total_seconds())
            self._metrics.nodeclaims_instance_termination_seconds.labels(pool).observe(seconds)
        log.info("deleted nodeclaim", extra={"NodeClaim": claim.metadata.name})


def _pool_and_zone(claim: objects.NodeClaim) -> tuple[str, str]:
    labels = claim.metadata.labels
    return labels.get(names.NODEPOOL_LABEL, ""), labels.get(names.ZONE_LABEL, "")


def _node_name(cluster: WatchedCluster, claim: objects.NodeClaim, conditions: Conditions) -> dict[str, str]:
    """Returns `status.nodeName` to write, once the claim is registered."""
    node = cluster.node_of(claim)
    if claim.status.node_name or node is None or not conditions.is_true(ConditionType.REGISTERED):
        return {}
    return {"nodeName": node.metadata.name}
