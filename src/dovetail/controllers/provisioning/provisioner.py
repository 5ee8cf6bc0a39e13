"""Creates NodeClaims for pending pods, and for pods of nodes that are being disrupted (06 §1–§5).

Pods are collected in a time window, then planned together on a worker thread. Nodes are read before pods: a pod that is
bound in between leads to too little capacity, never to too much, and the next pass corrects that.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from dovetail.api import objects
from dovetail.controllers.base.claim_creation import ClaimCreation
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.base.passes import PassController
from dovetail.controllers.provisioning.decisions import CONTROLLER, ProvisioningDecisions
from dovetail.controllers.provisioning.expected_pods import ExpectedNodes, ExpectedPods
from dovetail.model.pod_records import PodRecord
from dovetail.observe.metrics import Metrics
from dovetail.planning.disruption.board import CONSOLIDATING
from dovetail.planning.disruption.records import record_on
from dovetail.planning.provisioning.batching import Batch
from dovetail.planning.provisioning.claims import (
    NO_POOLS,
    ProvisioningPlan,
    claim_body,
    claim_name,
    effective_zones,
    nomination,
    over_limits,
    plan,
    usage_by_pool,
)
from dovetail.planning.provisioning.spare_room import WaitingPods
from dovetail.planning.timings import Timings
from dovetail.ports import AlreadyExists, Compute
from dovetail.rules.states import has_disrupted_taint
from dovetail.runtime.dry_run import WouldWrite
from dovetail.runtime.manager import Context
from dovetail.scheduling.fast import IncrementalWorld
from dovetail.scheduling.placement import (
    NewClaim,
    Origin,
    PlacementRequest,
    PodError,
    PodInfo,
    SchedulingOptions,
    Solution,
)
from dovetail.scheduling.resources import NOTHING, Resources
from dovetail.state.scheduling import DisruptedNodeTrigger, PendingPodTrigger, SchedulingState, Trigger
from dovetail.state.store import Added, Change, Deleted, StoredValue, Updated
from dovetail.values.duration import DurationError
from dovetail.values.timestamp import spoken_time

log = logging.getLogger(__name__)

UNSYNCED: Final = timedelta(seconds=30)  # until the log says why nothing is planned
UNSYNCED_AGAIN: Final = timedelta(seconds=10)
PODS_NAMED: Final = 5
# The pods of a consolidation find the room that was planned for them. Later that room may be taken.
CONSOLIDATED_FOR: Final = timedelta(minutes=15)
_AGAIN: Final = "again"  # in a batch: retry pods without a place


class ProvisioningOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The user's options for provisioning, and where plans are computed."""

    compute: Compute
    options: SchedulingOptions = SchedulingOptions()
    batch_idle: timedelta = timedelta(seconds=1)
    batch_longest: timedelta = timedelta(seconds=10)


class Provisioner(PassController):
    name = CONTROLLER

    def __init__(
        self,
        cluster: WatchedCluster,
        state: SchedulingState,
        types: InstanceTypeSource,
        creation: ClaimCreation,
        *,
        provisioning: ProvisioningOptions,
        metrics: Metrics,
        timings: Timings,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self.state = state
        self._types = types
        self._creation = creation
        self._provisioning = provisioning
        self._world: IncrementalWorld  # created in `begin`
        self._metrics = metrics
        self._timings = timings
        self._nominated_for = nomination(provisioning.batch_longest)
        self.decisions = ProvisioningDecisions(
            cluster,
            state,
            metrics,
            nominated_for=self._nominated_for,
            respect_preferences=provisioning.options.respect_preferences,
        )
        self._expected = ExpectedPods(cluster, state, target=self.decisions.target, kept_for=self._nominated_for)
        self._batch = Batch(idle=provisioning.batch_idle, longest=provisioning.batch_longest)
        self._claims_for: Counter[str] = Counter()  # by pod UID: the number of claims created for it
        self._passes = 0
        self._spare: set[str] = set()  # starting claims that are room to spare
        self._owes_room = False  # the last plan left no room to spare, because more pods were arriving
        self._again_at: datetime | None = None  # when pods without a place are retried
        self._unsynced_since: datetime | None = None
        self._unsynced_logged_at: datetime | None = None
        self._started = ""
        self._created: list[Callable[[str, Sequence[PodInfo]], object]] = []
        state.on_change(self._on_trigger)
        cluster.pods.subscribe(self._pod_changed)
        cluster.claims.subscribe(self._claim_changed)

    def on_created(self, subscriber: Callable[[str, Sequence[PodInfo]], object]) -> None:
        """Calls the subscriber with the name of each created NodeClaim, and the pods it is for."""
        self._created.append(subscriber)

    # -- what asks for nodes -------------------------------------------------------------------------------------------

    def _on_trigger(self, trigger: Trigger) -> None:
        if self.context is None:
            return  # `begin` reads the state itself
        if isinstance(trigger, PendingPodTrigger):
            self.decisions.seen(trigger.uid, self.context.clock.now())
        self._batch.add(trigger.uid, self.context.clock.now())
        self.wake()

    def _pod_changed(self, change: Change[PodRecord]) -> None:
        match change:
            case Added(new=new):
                self._bound(new.value)
            case Updated(old=old, new=new) if self.context is not None:
                self.decisions.follow(old.value, new.value, self.context.clock.now())
                if not old.value.node_name:
                    self._bound(new.value)
            case Deleted(old=old):
                self.decisions.forget(old.value.uid)
                del self._claims_for[old.value.uid]

    def _bound(self, pod: PodRecord) -> None:
        """A pod that is bound to another node than planned takes room there. Pods that wait for it are planned anew."""
        if self.context is None or self._again_at is None or not (pod.node_name and pod.reschedulable):
            return
        node = self._cluster.nodes.value(pod.node_name)
        claim = None if node is None else self._cluster.claim_of(node)
        if claim is not None and claim.metadata.name != self.decisions.target(pod.uid):
            self._batch.add(_AGAIN, self.context.clock.now())
            self.wake()

    def _claim_changed(self, change: Change[objects.NodeClaim]) -> None:
        """A pass that waits for launching claims runs as soon as they are launched."""
        del change
        if self._unsynced_since is not None:
            self.wake()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def begin(self, context: Context) -> None:
        """Also runs after a failed pass, whose intermediate state is dropped."""
        self._world = IncrementalWorld(self._provisioning.options)
        self._started = context.clock.now().isoformat()
        for pod in self.state.waiting():
            self._on_trigger(PendingPodTrigger(pod))
        for node in self._cluster.nodes.values():
            if has_disrupted_taint(node):
                self._on_trigger(DisruptedNodeTrigger(node))

    def due(self, now: datetime) -> datetime | None:
        """The end of the window. A postponed pass is due as soon as nothing blocks it."""
        if self._unsynced_since is not None and self.state.unsynced(now) is None:
            return now
        if self._again_at is not None and self._again_at <= now:
            self._again_at = None
            self._batch.add(_AGAIN, now)
        return min((at for at in (self._batch.closes_at, self._again_at) if at is not None), default=None)

    # -- one pass ------------------------------------------------------------------------------------------------------

    async def make_pass(self, context: Context, now: datetime) -> None:
        """Plans for all pods, publishes the results, and creates the claims.

        While more pods are arriving, nobody knows yet which pods will be left over: the next pass leaves room to spare.
        """
        growing = self._batch.is_growing(now)
        self._batch.close()
        self._again_at = now + timedelta(seconds=self._timings.retrigger_seconds)
        if self._is_postponed(now):
            return
        await self._types.refresh(self.state.usable_pools())
        await self._cluster.settled()
        now = context.clock.now()  # the provider may have taken its time
        places = self.state.places()
        pools = {pool.name: self._cluster.pools.get(("", pool.name)) for pool in places.pools}
        pending, leaving = self.state.pending(), self.state.leaving(now)  # after the nodes (06 §4)
        asking = (*pending.pods, *leaving.pods)
        if not asking and not pending.refused:
            self._again_at = None  # no pod waits
        self.decisions.only(pod.uid for pod in asking)
        self.decisions.refused(context, pending.refused.values())
        expected = self._expected.of(asking, places.nodes, places.daemons, now)
        for node in expected.starting.values():
            self.state.nominate(node.name, now + self._nominated_for)
        arriving = [pod for pod in asking if not (self._has_one_coming(pod) or self._is_consolidated(pod, now))]
        problem = PlacementRequest(
            pods=tuple(pod for pod in arriving if pod.uid not in expected.pods),
            nodes=expected.nodes,
            pools=places.pools,
            types=places.types,
            daemons=places.daemons,
            options=self._provisioning.options,
        )
        waiting = None if growing else self._waiting_pods(arriving, expected)
        self._owes_room = growing
        if growing:
            self._batch.add(_AGAIN, now)
        planned = await self._planned(context, problem, waiting)
        if context.stopping.is_set():
            return  # pods that were not reached would be reported as unschedulable
        pods = {pod.uid: pod for pod in arriving}
        self.decisions.planned(context, planned, pods, places.left_out)
        if planned.solution.new_claims:
            await self._create(context, planned, problem, pods, pools)

    def _waiting_pods(self, pods: Sequence[PodInfo], expected: ExpectedNodes) -> WaitingPods:
        self._spare &= expected.starting.keys()
        return WaitingPods(pods, tuple(expected.starting.values()), len(self._spare), self._owes_room)

    def _is_postponed(self, now: datetime) -> bool:
        """Postpones the pass until all created claims are launched: else they would be created twice (06 §7.3)."""
        why = self.state.unsynced(now)
        if why is None:
            self._unsynced_since = self._unsynced_logged_at = None
            return False
        self._unsynced_since = self._unsynced_since or now
        logged_at = self._unsynced_logged_at or self._unsynced_since + UNSYNCED - UNSYNCED_AGAIN
        if now - logged_at >= UNSYNCED_AGAIN:
            self._unsynced_logged_at = now
            log.error("no nodes have been planned since %s: %s", spoken_time(self._unsynced_since), why)
        return True

    def _has_one_coming(self, pod: PodInfo) -> bool:
        """Whether a claim for the pod is still launching: one of ours, or the replacement of its node."""
        return any(map(self._is_launching, (self.decisions.target(pod.uid), *self._replacements_for(pod))))

    def _is_launching(self, claim: str) -> bool:
        claim_object = self._cluster.claims.value(claim)
        return (
            claim_object is not None
            and not claim_object.status.provider_id
            and claim_object.metadata.deletion_timestamp is None
        )

    def _replacements_for(self, pod: PodInfo) -> tuple[str, ...]:
        """The replacements of the command that disrupts the pod's node."""
        claim = self._claim_of(pod)
        record = None if claim is None or claim.metadata.deletion_timestamp is not None else record_on(claim)
        return () if record is None else record.replacements

    def _is_consolidated(self, pod: PodInfo, now: datetime) -> bool:
        """Whether a consolidation moves the pod. Then it has room (R55), though the solver might place others there."""
        claim = self._claim_of(pod)
        record = None if claim is None else record_on(claim)
        if claim is None or record is None or record.method not in CONSOLIDATING:
            return False
        deleted_at = claim.metadata.deletion_timestamp
        return deleted_at is None or now < deleted_at + CONSOLIDATED_FOR

    def _claim_of(self, pod: PodInfo) -> objects.NodeClaim | None:
        """The claim of the node that a pod leaves."""
        bound = self._cluster.pods.value(pod.name, pod.namespace) if pod.origin is Origin.DELETING else None
        node = None if bound is None else self._cluster.nodes.value(bound.node_name)
        return None if node is None else self._cluster.claim_of(node)

    async def _planned(
        self, context: Context, problem: PlacementRequest, waiting: WaitingPods | None
    ) -> ProvisioningPlan:
        if not (problem.pods or (waiting is not None and waiting.owed)):
            return ProvisioningPlan(Solution(), {}, {})
        if not problem.pools:
            errors = {pod.uid: PodError(pod.ref, pod.origin, NO_POOLS) for pod in problem.pods}
            return ProvisioningPlan(Solution(errors=errors), {}, effective_zones(problem))
        clock, stopping = context.clock, context.stopping
        began_at = clock.monotonic()
        ends_at = began_at + self._timings.planning_seconds
        self._passes += 1
        labels = (self.name, str(self._passes))
        depth, unfinished = self._metrics.scheduling_queue_depth, self._metrics.scheduling_unfinished_seconds
        depth.labels(*labels).set(len(problem.pods))
        unfinished.labels(*labels).set_function(lambda: clock.monotonic() - began_at)
        try:
            return await self._provisioning.compute.run(
                plan, problem, waiting, self._world, lambda: clock.monotonic() < ends_at and not stopping.is_set()
            )
        finally:
            self._metrics.scheduling_seconds.labels(self.name).observe(clock.monotonic() - began_at)
            depth.remove(*labels)
            unfinished.remove(*labels)

    # -- what is created -----------------------------------------------------------------------------------------------

    async def _create(
        self,
        context: Context,
        made: ProvisioningPlan,
        problem: PlacementRequest,
        pods: Mapping[str, PodInfo],
        pools: Mapping[str, StoredValue[objects.NodePool] | None],
    ) -> None:
        """Creates all claims concurrently. A failure does not affect the others."""
        usage = usage_by_pool(self.state.places().nodes)
        bodies = []
        for claim in made.solution.new_claims:
            if not any(self._asks(pods[uid]) for uid in claim.pods):
                continue
            body = self._body(claim, problem, pools.get(claim.pool), usage.get(claim.pool, NOTHING))
            if isinstance(body, str):
                self.decisions.not_created(context, claim, body, pods)
            else:
                bodies.append((claim, body))
        outcomes = await self._creation.create(context.api, context.clock, [body for _, body in bodies])
        served: list[str] = []
        for (claim, _), outcome in zip(bodies, outcomes, strict=True):
            if isinstance(outcome, objects.NodeClaim | AlreadyExists):  # a claim with this name exists or existed
                self._claims_for.update(uid for uid in claim.pods if self._record_of(pods[uid]) is not None)
            if isinstance(outcome, objects.NodeClaim):
                served += claim.pods
                if made.spared.issuperset(claim.pods):
                    self._spare.add(outcome.metadata.name)
                self.decisions.created(context, claim, outcome, pods)
                for subscriber in self._created:
                    subscriber(outcome.metadata.name, [pods[uid] for uid in claim.pods])
            elif not isinstance(outcome, WouldWrite):
                why = f"a NodeClaim of NodePool {claim.pool} could not be created: {outcome}"
                self.decisions.not_created(context, claim, why, pods)
        if served:
            named = ", ".join(str(pods[uid]) for uid in served[:PODS_NAMED])
            extra = {"Pods": named, "pod-count": len(served), "spare-room-for": len(made.spared.intersection(served))}
            log.info("found provisionable pod(s)", extra=extra)

    def _record_of(self, pod: PodInfo) -> PodRecord | None:
        """The current pod; None if it is gone."""
        record = self._cluster.pods.value(pod.name, pod.namespace)
        return record if record is not None and record.uid == pod.uid else None

    def _asks(self, pod: PodInfo) -> bool:
        """Whether the pod still needs a place after the time that planning took."""
        record = self._record_of(pod)
        return record is not None and (pod.origin is not Origin.PENDING or record.provisionable)

    def _body(
        self, claim: NewClaim, problem: PlacementRequest, pool: StoredValue[objects.NodePool] | None, used: Resources
    ) -> dict[str, Any] | str:
        """Returns a sentence if no claim may be created. Checks current limits; the rest is as planned (06 §5)."""
        stored = self._cluster.pools.get(("", claim.pool))
        if pool is None or stored is None or stored.uid != pool.uid:
            return f"NodePool {claim.pool} is gone"
        if stored.value.metadata.deletion_timestamp is not None:
            return f"NodePool {claim.pool} is being deleted"
        if over := over_limits(stored.value, used):
            return f"NodePool {claim.pool} is over its limits: {over}"
        reasons = [f"{uid} {self._claims_for[uid]}" for uid in sorted(claim.pods)]
        name = claim_name(claim.pool, pool.uid, self._started, *reasons)
        try:
            types, well_known = problem.types[claim.pool], problem.options.well_known
            return claim_body(pool.value, claim, types, name=name, well_known=well_known)
        except DurationError as error:
            return f"NodePool {claim.pool} cannot be read: {error}"
