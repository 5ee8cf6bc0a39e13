"""Makes NodeClaims for pods that have no place, and for those whose node is going (06 §1–§5).

One pass at a time: what asks for nodes is collected in a window, then all of it is planned together, aside, on what is
known of the cluster at that moment. Nodes are read before pods: a pod that is bound meanwhile leads to too little
capacity, never to too much, and the next pass heals that.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from dovetail.api import objects
from dovetail.controllers.base.claim_creation import ClaimCreation
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.base.passes import PassController
from dovetail.controllers.provisioning.decisions import CONTROLLER, ProvisioningDecisions
from dovetail.controllers.provisioning.expected_pods import ExpectedPods
from dovetail.model.records import PodRecord
from dovetail.observe.metrics import Metrics
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
from dovetail.planning.timings import Timings
from dovetail.ports import AlreadyExists, Compute
from dovetail.rules.states import has_disrupted_taint
from dovetail.runtime.dry_run import WouldWrite
from dovetail.runtime.manager import Context
from dovetail.scheduling.fast import IncrementalWorld
from dovetail.scheduling.placement import (
    NewClaim,
    NodeInfo,
    Origin,
    PlacementRequest,
    PodError,
    PodInfo,
    SchedulingOptions,
    Solution,
)
from dovetail.scheduling.resources import NOTHING, Resources
from dovetail.state.scheduling import (
    DisruptedNodeTrigger,
    PendingPodTrigger,
    SchedulingInputs,
    SchedulingState,
    Trigger,
)
from dovetail.state.store import Change, Deleted, StoredValue, Updated
from dovetail.values.duration import DurationError
from dovetail.values.timestamp import format_time

log = logging.getLogger(__name__)

UNSYNCED: Final = timedelta(seconds=30)  # before it is said that, and why, nothing is planned
UNSYNCED_AGAIN: Final = timedelta(seconds=10)
PODS_NAMED: Final = 5
_AGAIN: Final = "again"  # in a batch: whatever is still without a place


class ProvisioningOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes are planned for pods, as far as users say, and where that is worked out."""

    compute: Compute
    options: SchedulingOptions = SchedulingOptions()
    batch_idle: timedelta = timedelta(seconds=1)
    batch_longest: timedelta = timedelta(seconds=10)


class Provisioner(PassController):
    """See the module."""

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
        self._world: IncrementalWorld  # since it began
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
        self._claims_for: Counter[str] = Counter()  # by a pod's UID: how many claims were created for it
        self._passes = 0
        self._again_at: datetime | None = None  # when those ask again that are left without a place
        self._unsynced_since: datetime | None = None
        self._unsynced_told_at: datetime | None = None
        self._started = ""
        state.on_change(self._told)
        cluster.pods.subscribe(self._pod_changed)
        cluster.claims.subscribe(self._claim_changed)

    # -- what asks for nodes -------------------------------------------------------------------------------------------

    def _told(self, trigger: Trigger) -> None:
        if self.context is None:
            return  # when it runs it looks by itself
        if isinstance(trigger, PendingPodTrigger):
            self.decisions.seen(trigger.uid, self.context.clock.now())
        self._batch.add(trigger.uid, self.context.clock.now())
        self.wake()

    def _pod_changed(self, change: Change[PodRecord]) -> None:
        match change:
            case Updated(old=old, new=new) if self.context is not None:
                self.decisions.follow(old.value, new.value, self.context.clock.now())
            case Deleted(old=old):
                self.decisions.forget(old.value.uid)
                del self._claims_for[old.value.uid]

    def _claim_changed(self, change: Change[objects.NodeClaim]) -> None:
        """A pass that claims without a machine have put off is made as soon as there is none any more."""
        del change
        if self._unsynced_since is not None:
            self.wake()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def begin(self, context: Context) -> None:
        """After a pass that failed, too: what it has left half done is not used again."""
        self._world = IncrementalWorld(self._provisioning.options)
        self._started = context.clock.now().isoformat()
        for pod in self.state.waiting():
            self._told(PendingPodTrigger(pod))
        for node in self._cluster.nodes.values():
            if has_disrupted_taint(node):
                self._told(DisruptedNodeTrigger(node))

    def due(self, now: datetime) -> datetime | None:
        """When the window is over. A pass that was put off is due when nothing stands in its way."""
        if self._unsynced_since is not None and self.state.unsynced(now) is None:
            return now
        if self._again_at is not None and self._again_at <= now:
            self._again_at = None
            self._batch.add(_AGAIN, now)
        return min((at for at in (self._batch.closes_at, self._again_at) if at is not None), default=None)

    # -- one pass ------------------------------------------------------------------------------------------------------

    async def make_pass(self, context: Context, now: datetime) -> None:
        """Plan for everybody, tell what came of it, and create what is needed."""
        self._batch.close()
        self._again_at = now + timedelta(seconds=self._timings.retrigger_seconds)
        if self._is_put_off(now):
            return
        await self._types.refresh(self.state.usable_pools())
        await self._cluster.settled()
        now = context.clock.now()  # the provider may have taken its time
        places = self.state.places()
        pools = {pool.name: self._cluster.pools.get(("", pool.name)) for pool in places.pools}
        pending, leaving = self.state.pending(), self.state.leaving(now)  # after the nodes (06 §4)
        asking = (*pending.pods, *leaving.pods)
        if not asking and not pending.refused:
            self._again_at = None  # nobody waits
        self.decisions.only(pod.uid for pod in asking)
        self.decisions.refused(context, pending.refused.values())
        expected = self._expected.of(asking, places.nodes, places.daemons, now)
        for node in expected.names:
            self.state.nominate(node, now + self._nominated_for)
        free = (pod for pod in asking if pod.uid not in expected.pods and not self._has_one_coming(pod))
        problem = self._problem(places, expected.nodes, tuple(free))
        made = await self._planned(context, problem)
        if context.stopping.is_set():
            return  # what was not reached would be told as if there were no place for it
        pods = {pod.uid: pod for pod in problem.pods}
        self.decisions.planned(context, made, pods, places.left_out)
        if made.solution.new_claims:
            await self._create(context, made.solution.new_claims, problem, pools)

    def _is_put_off(self, now: datetime) -> bool:
        """Until all that was made is known to have a machine: else it would be made again (06 §7.3)."""
        why = self.state.unsynced(now)
        if why is None:
            self._unsynced_since = self._unsynced_told_at = None
            return False
        self._unsynced_since = self._unsynced_since or now
        told_at = self._unsynced_told_at or self._unsynced_since + UNSYNCED - UNSYNCED_AGAIN
        if now - told_at >= UNSYNCED_AGAIN:
            self._unsynced_told_at = now
            log.error("no nodes are planned since %s: %s", format_time(self._unsynced_since), why)
        return True

    def _problem(
        self, places: SchedulingInputs, nodes: tuple[NodeInfo, ...], pods: tuple[PodInfo, ...]
    ) -> PlacementRequest:
        return PlacementRequest(
            pods=pods,
            nodes=nodes,
            pools=places.pools,
            types=places.types,
            daemons=places.daemons,
            options=self._provisioning.options,
        )

    def _has_one_coming(self, pod: PodInfo) -> bool:
        """A launch that takes so long that others no longer wait for it is still for its pods; so is a replacement."""
        return any(map(self._is_launching, (self.decisions.target(pod.uid), *self._replacements_for(pod))))

    def _is_launching(self, claim: str) -> bool:
        kept = self._cluster.claims.get(("", claim))
        return kept is not None and not kept.value.status.provider_id and kept.value.metadata.deletion_timestamp is None

    def _replacements_for(self, pod: PodInfo) -> tuple[str, ...]:
        """Those of the command that is going to take its node."""
        if pod.origin is not Origin.DELETING:
            return ()
        bound = self._cluster.pods.get((pod.namespace, pod.name))
        node = None if bound is None else self._cluster.nodes.get(("", bound.value.node_name))
        claim = None if node is None else self._cluster.claim_of(node.value)
        record = None if claim is None or claim.metadata.deletion_timestamp is not None else record_on(claim)
        return () if record is None else record.replacements

    async def _planned(self, context: Context, problem: PlacementRequest) -> ProvisioningPlan:
        if not problem.pods:
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
                plan, problem, self._world, lambda: clock.monotonic() < ends_at and not stopping.is_set()
            )
        finally:
            self._metrics.scheduling_seconds.labels(self.name).observe(clock.monotonic() - began_at)
            depth.remove(*labels)
            unfinished.remove(*labels)

    # -- what is created -----------------------------------------------------------------------------------------------

    async def _create(
        self,
        context: Context,
        claims: Sequence[NewClaim],
        problem: PlacementRequest,
        pools: Mapping[str, StoredValue[objects.NodePool] | None],
    ) -> None:
        """All at once; one that cannot be created does not hold up the others."""
        pods: dict[str, PodInfo] = {pod.uid: pod for pod in problem.pods}
        usage = usage_by_pool(self.state.places().nodes)
        bodies = []
        for claim in claims:
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
            if isinstance(outcome, objects.NodeClaim | AlreadyExists):  # there is or was one of this name
                self._claims_for.update(uid for uid in claim.pods if self._record_of(pods[uid]) is not None)
            if isinstance(outcome, objects.NodeClaim):
                served += claim.pods
                self.decisions.created(context, claim, outcome, pods)
            elif not isinstance(outcome, WouldWrite):
                why = f"a NodeClaim of NodePool {claim.pool} could not be created: {outcome}"
                self.decisions.not_created(context, claim, why, pods)
        if served:
            named = ", ".join(str(pods[uid]) for uid in served[:PODS_NAMED])
            log.info("found provisionable pod(s)", extra={"Pods": named, "pod-count": len(served)})

    def _record_of(self, pod: PodInfo) -> PodRecord | None:
        """The pod as it is now; None if it has gone meanwhile."""
        kept = self._cluster.pods.get((pod.namespace, pod.name))
        return kept.value if kept is not None and kept.uid == pod.uid else None

    def _asks(self, pod: PodInfo) -> bool:
        """Whether it still has no place: planning may have taken a while."""
        record = self._record_of(pod)
        return record is not None and (pod.origin is not Origin.PENDING or record.provisionable)

    def _body(
        self, claim: NewClaim, problem: PlacementRequest, pool: StoredValue[objects.NodePool] | None, used: Resources
    ) -> dict[str, Any] | str:
        """Or why there is none. The limits are those of now, the rest is as it was when pods were placed (06 §5)."""
        kept = self._cluster.pools.get(("", claim.pool))
        if pool is None or kept is None or kept.uid != pool.uid:
            return f"NodePool {claim.pool} is gone"
        if kept.value.metadata.deletion_timestamp is not None:
            return f"NodePool {claim.pool} is being deleted"
        if over := over_limits(kept.value, used):
            return f"NodePool {claim.pool} is over its limits: {over}"
        reasons = [f"{uid} {self._claims_for[uid]}" for uid in sorted(claim.pods)]
        name = claim_name(claim.pool, pool.uid, self._started, *reasons)
        try:
            types, well_known = problem.types[claim.pool], problem.options.well_known
            return claim_body(pool.value, claim, types, name=name, well_known=well_known)
        except DurationError as error:
            return f"NodePool {claim.pool} cannot be read: {error}"
