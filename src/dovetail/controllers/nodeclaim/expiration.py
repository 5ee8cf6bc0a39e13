"""Deletes NodeClaims after `expireAfter` (R19), and sets the condition Expired after `gracefulExpireAfter` (R20).

Each claim has a timer; nothing is polled.
"""

from datetime import datetime

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, Reason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import seconds_until
from dovetail.controllers.base.writing import disrupt, publish_disrupted, write_reason, write_status
from dovetail.controllers.nodeclaim.conditions import ClaimConditions
from dovetail.model.node_records import claim_record
from dovetail.model.pool_records import pool_record
from dovetail.observe.metrics import Metrics
from dovetail.planning.conditions import Conditions
from dovetail.rules.deadlines import expires_at, gracefully_expires_at
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.values.timestamp import spoken_time


class GracefulExpiration(ClaimConditions):
    """The controller of the condition Expired."""

    name = "nodeclaim.graceful_expiration"

    async def reconcile_claim(self, claim: objects.NodeClaim) -> Outcome:
        return await self.mark_until(claim, None)

    async def mark_until(self, claim: objects.NodeClaim, end: datetime | None) -> Outcome:
        """Sets or clears the condition, and looks again when it changes, or at the end."""
        now, pool = self.clock.now(), self.pool_of(claim)
        soft_at = gracefully_expires_at(
            claim_record(claim), None if pool is None else pool_record(pool, self.cluster.settings)
        )
        await self._mark(claim, expired=soft_at is not None and now >= soft_at)
        ahead = [at for at in (soft_at, end) if at is not None and at > now]
        return Done(seconds_until(min(ahead, default=None), now))

    async def _mark(self, claim: objects.NodeClaim, *, expired: bool) -> None:
        """Sets the condition for the disruption engine, or clears it if the pool was edited to expire later."""
        conditions = Conditions(claim, self.clock.now())
        if expired == conditions.is_true(ConditionType.EXPIRED):
            return
        message = f"older than gracefulExpireAfter of its {names.NODEPOOL_KIND}"
        conditions.set_or_clear(ConditionType.EXPIRED, expired, message=message)
        await write_status(self.api, self.cluster, claim, conditions)


class Expiration(GracefulExpiration):
    """The controller of the condition, and of `expireAfter`."""

    name = "nodeclaim.expiration"

    def __init__(self, cluster: WatchedCluster, metrics: Metrics) -> None:
        super().__init__(cluster)
        self._metrics = metrics

    async def reconcile_claim(self, claim: objects.NodeClaim) -> Outcome:
        now, hard_at = self.clock.now(), expires_at(claim_record(claim))
        if hard_at is not None and now >= hard_at:
            await self._expire(claim, f"expired {spoken_time(hard_at)}")
            return Done()
        return await self.mark_until(claim, hard_at)

    async def _expire(self, claim: objects.NodeClaim, why: str) -> None:
        claim = await write_reason(self.api, self.cluster, claim, Reason.EXPIRED, self.clock.now())
        await disrupt(self.api, self.cluster, self._metrics, claim, reason=Reason.EXPIRED.lower(), why=why)
        publish_disrupted(self.recorder, self.cluster, claim, Reason.EXPIRED, why)
