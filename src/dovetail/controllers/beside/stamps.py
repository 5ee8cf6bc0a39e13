"""Marks NodeClaims as drifted, so that Karpenter replaces them gracefully, and takes the mark back (10 §I.3).

The mark is a hash of the NodePool that no pool has. The hash that it replaces is kept beside it. The first mark is a
test: if Karpenter does not answer it, it is taken back, and no other is made until Karpenter was away and is back.
"""

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, EventReason
from dovetail.api.objects import is_true
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController, own_name, seconds_until
from dovetail.controllers.base.writing import about_claim, publish, warn, write_metadata
from dovetail.controllers.beside.holds import NodeHolding
from dovetail.model.beside import Roll, RollCause, at_second, is_stamped, read_roll, stamp_at, written_mark
from dovetail.model.pod_records import PodRecord
from dovetail.model.pool_records import pool_record
from dovetail.model.rule_settings import BudgetSemantics
from dovetail.observe.beside_metrics import BesideMetrics
from dovetail.planning.beside.stamping import GuardedNode, StampOrder, StampPlan, is_pending, stamp_plan
from dovetail.ports import ApiError
from dovetail.rules.protection import may_be_protected
from dovetail.runtime.dry_run import WouldWrite
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.nodes import ManagedNode
from dovetail.state.store import Index

log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 30.0
_TOGETHER_SECONDS: Final = 0.5
_NO_MORE: Final = "its pods must not be disrupted now, or the reason has gone"
_MARKS: Final = (names.ROLLED, names.HASH_BEFORE)


class _StampTest(NamedTuple):
    """The first mark, until Karpenter answers it."""

    claim: str
    until: float


class ClaimStamps(KeyedController[str]):
    """The controller of stamps. Keys are names of NodePools."""

    name = "beside.stamps"
    workers = 1

    def __init__(
        self,
        cluster: WatchedCluster,
        holding: NodeHolding,
        metrics: BesideMetrics,
        karpenter_runs: Callable[[], bool],
        reading: BudgetSemantics = BudgetSemantics.SEED,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._holding = holding
        self._scope = holding.scope
        self._metrics = metrics
        self._karpenter_runs = karpenter_runs
        self._reading = reading
        self._test: _StampTest | None = None
        self._answered: bool | None = None  # whether Karpenter acts on marks; None: not known yet
        self._marked = Index(cluster.claims, lambda claim: claim.metadata.pool if _has_marks(claim) else "")
        after = _TOGETHER_SECONDS
        self.own(cluster.pools, own_name)
        self.follow(cluster.claims, lambda claim: filter(None, (claim.metadata.pool,)), after_seconds=after)
        self.follow(cluster.nodes, lambda node: filter(None, (node.metadata.pool,)), after_seconds=after)
        self.follow(cluster.pods, self._pool_of_pod, after_seconds=after)

    def look_again(self) -> None:
        """Karpenter has come or gone. One that has come may answer."""
        if self._answered is False and self._karpenter_runs():
            self._answered = None
        for pool in self._cluster.pools.values():
            self.add(pool.metadata.name)

    def _pool_of_pod(self, pod: PodRecord) -> Iterator[str]:
        if may_be_protected(pod) and (node := self._cluster.nodes.value(pod.node_name)) is not None:
            yield from filter(None, (node.metadata.pool,))

    async def reconcile(self, key: str) -> Outcome:
        pool, now = self._cluster.pools.value(key), self.clock.now()
        marked = self._marked[key]
        record = None if pool is None else pool_record(pool)
        if record is None or pool is None or (record.graceful_expire_after_ns is None and not marked):
            return Done()
        for claim in self._cluster.claims_in[key]:
            self._cluster.claims.get_consistent(claim.metadata.name)
        members = self._cluster.managed.in_pool(key)
        if not self._scope.takes(pool):
            plan = StampPlan(undo=tuple(claim.metadata.name for claim in _pending(members)))
        else:
            nodes = [self._guarded(member, now) for member in members]
            plan = stamp_plan(record, nodes, now, self._reading)
        self._look_at_test(members)
        claims = {claim.metadata.name: claim for claim in self._cluster.claims_in[key]}
        try:
            for name in plan.undo:
                await self._undo(claims[name], pool, _NO_MORE)
            await self._end_test(claims, pool)
            for order in plan.stamps:
                if not self._may_stamp():
                    break
                await self._stamp(claims[order.claim], order, now)
        except WouldWrite:  # a dry run has told it
            return Done(seconds_until(plan.until, now))
        return Done(_sooner(self._test_seconds(), seconds_until(plan.until, now)))

    def _guarded(self, each: ManagedNode, now: datetime) -> GuardedNode:
        node = each.node
        return GuardedNode(each.record, node is not None and self._holding.wanted(node, now).hold is not None)

    # -- the first mark ------------------------------------------------------------------------------------------------

    def _may_stamp(self) -> bool:
        if self._answered is None:
            return self._test is None and self._karpenter_runs()
        return self._answered

    def _look_at_test(self, members: list[ManagedNode]) -> None:
        """Karpenter has answered if any claim that is marked has drifted or is being replaced."""
        for member in members:
            claim = member.claim
            if claim is None or not is_stamped(claim.metadata.annotations):
                continue
            if is_true(claim, ConditionType.DRIFTED) or not is_pending(member.record):
                self._answered, self._test = True, None
            elif self._answered is None and self._test is None:  # one that an earlier process has made
                self._test = _StampTest(claim.metadata.name, self.clock.monotonic() + ANSWER_SECONDS)

    def _test_seconds(self) -> float | None:
        return None if self._test is None else max(0.0, self._test.until - self.clock.monotonic())

    async def _end_test(self, claims: dict[str, objects.NodeClaim], pool: objects.NodePool) -> None:
        """Takes the first mark back, if Karpenter has not answered it in time."""
        test = self._test
        claim = None if test is None else claims.get(test.claim)
        if test is None or claim is None:
            if test is not None and self._cluster.claims.value(test.claim) is None:
                self._test = None  # it is gone for another reason
            return
        if not is_stamped(claim.metadata.annotations):
            self._test = None
        elif self.clock.monotonic() >= test.until:
            self._answered, self._test = False, None
            why = f"Karpenter has not set the condition Drifted within {ANSWER_SECONDS:.0f} s; stamping stops"
            log.error("stamping stopped: %s", why, extra={"NodeClaim": test.claim})
            await self._undo(claim, pool, why)

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _stamp(self, claim: objects.NodeClaim, order: StampOrder, now: datetime) -> None:
        stamp = stamp_at(now)
        written = {names.NODEPOOL_HASH: stamp, names.HASH_BEFORE: claim.metadata.annotations[names.NODEPOOL_HASH]}
        if order.why is RollCause.EXPIRED:
            written[names.ROLLED] = written_mark(Roll(why=order.why, at=at_second(now)))
        if self._answered is None:
            self._test = _StampTest(claim.metadata.name, self.clock.monotonic() + ANSWER_SECONDS)
        try:
            await write_metadata(self.api, self._cluster, claim, {"annotations": written})
        except ApiError:
            self._test = None  # if it was made after all, the watch shows it
            raise
        self._metrics.writes.labels("stamp").inc()
        self._metrics.stamped.labels(order.why).inc()
        reason = {
            RollCause.EXPIRED: "it is older than gracefulExpireAfter of its NodePool",
            RollCause.ASKED: "somebody asked for it with `dovetail roll`",
        }[order.why]
        about = about_claim(claim)
        note = f"marked as drifted, so that Karpenter replaces it: {reason}"
        publish(self.recorder, about, EventReason.STAMPED, note, about.uid, stamp)
        log.info("stamped nodeclaim", extra={"NodeClaim": claim.metadata.name, "why": order.why.value})

    async def _undo(self, claim: objects.NodeClaim, pool: objects.NodePool, why: str) -> None:
        """Puts the old hash back. If the pool has another one by now, the claim has drifted anyway."""
        annotations = claim.metadata.annotations
        before = annotations.get(names.HASH_BEFORE)
        if before is None or before != pool.metadata.annotations.get(names.NODEPOOL_HASH):
            return
        back: dict[str, str | None] = {names.NODEPOOL_HASH: before, names.HASH_BEFORE: None}
        roll = annotations.get(names.ROLLED)
        if roll is not None and _is_expired_roll(claim):
            back[names.ROLLED] = None
        await write_metadata(self.api, self._cluster, claim, {"annotations": back})
        self._metrics.writes.labels("unstamp").inc()
        about = about_claim(claim)
        tell = warn if self._answered is False else publish
        note = f"no longer marked as drifted: {why}"
        tell(self.recorder, about, EventReason.STAMP_UNDONE, note, about.uid, claim.metadata.resource_version)
        log.info("removed the stamp of a NodeClaim", extra={"NodeClaim": claim.metadata.name, "why": why})


def _is_expired_roll(claim: objects.NodeClaim) -> bool:
    roll = read_roll(claim.metadata.annotations.get(names.ROLLED, ""))
    return roll is not None and roll.why is RollCause.EXPIRED


def _pending(members: list[ManagedNode]) -> Iterator[objects.NodeClaim]:
    for member in members:
        if member.claim is not None and is_pending(member.record):
            yield member.claim


def _has_marks(claim: objects.NodeClaim) -> bool:
    return any(key in claim.metadata.annotations for key in _MARKS) or is_stamped(claim.metadata.annotations)


def _sooner(*seconds: float | None) -> float | None:
    return min((each for each in seconds if each is not None), default=None)
