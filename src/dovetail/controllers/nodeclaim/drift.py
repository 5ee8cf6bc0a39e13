"""Writes the condition Drifted: why the NodeClaim would be created differently today (02 §10).

Watches report changes of claims and pools. The provider is asked periodically, for each claim at its own time.
"""

import logging
from collections.abc import Coroutine
from datetime import datetime
from typing import Any, TypeVar

from dovetail.api import names, objects
from dovetail.api.names import ConditionType
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import ASKING_SECONDS, InstanceTypeSource
from dovetail.controllers.base.keyed import seconds_until
from dovetail.controllers.base.writing import write_status
from dovetail.controllers.nodeclaim.conditions import ClaimConditions
from dovetail.model.instance_types import Offering
from dovetail.planning.conditions import TRUE, Conditions
from dovetail.planning.nodeclaim.drift import Drift, drift_by_objects, drift_by_provider, is_offered, type_check_at
from dovetail.planning.timings import Timings
from dovetail.ports import CloudError, CloudProvider
from dovetail.runtime.pace import Backoff
from dovetail.runtime.tasks import within
from dovetail.runtime.work_queue import Done, Outcome, Retry
from dovetail.scheduling.requirements import NO_REQUIREMENTS, RequirementError, Requirements, read_requirements

log = logging.getLogger(__name__)

R = TypeVar("R")


class DriftDetection(ClaimConditions):
    name = "nodeclaim.disruption"
    backoff = Backoff(first_seconds=1.0, cap_seconds=300.0)  # at most as slow as the periodic check

    def __init__(
        self, cluster: WatchedCluster, provider: CloudProvider, types: InstanceTypeSource, timings: Timings
    ) -> None:
        super().__init__(cluster)
        self._provider = provider
        self._timings = timings
        self._offered_at: dict[str, datetime] = {}  # by claim: when its machine was last offered
        self._types = types
        self.follow(cluster.node_classes, self._claims_with)

    def forget(self, key: str) -> None:
        self._offered_at.pop(key, None)

    def _claims_with(self, node_class: objects.NodeClass) -> list[str]:
        return [
            claim.metadata.name
            for claim in self.cluster.claims.values()
            if claim.spec.node_class_ref.name == node_class.metadata.name
        ]

    async def reconcile_claim(self, claim: objects.NodeClaim) -> Outcome:
        pool = self.pool_of(claim)
        if pool is None:
            return Done()
        drift = drift_by_objects(claim, pool)
        if drift is None:
            try:
                drift = await self._ask(claim, pool)
            except CloudError as error:
                return Retry(f"whether {claim.metadata.name} has drifted cannot be told: {error}")
        await self._mark(claim, drift.reason)
        return Done(seconds_until(drift.until, self.clock.now()))

    async def _mark(self, claim: objects.NodeClaim, reason: str) -> None:
        conditions = Conditions(claim, self.clock.now())
        entry = conditions.get(ConditionType.DRIFTED)
        if (None if entry is None else (entry.status, entry.reason)) == ((TRUE, reason) if reason else None):
            return
        conditions.set_or_clear(ConditionType.DRIFTED, bool(reason), reason, reason)
        await write_status(self.api, self.cluster, claim, conditions)
        log.debug("drifted: %s", reason or "no longer", extra={"NodeClaim": claim.metadata.name})

    # -- the provider -------------------------------------------------------------------------------------------------

    async def _ask(self, claim: objects.NodeClaim, pool: objects.NodePool) -> Drift:
        """Raises CloudError."""
        offered = await self._is_offered(claim, pool)
        reason = await self._answer(self._provider.drift_reason(claim)) if offered else ""
        return drift_by_provider(claim, offered=offered, reason=reason, now=self.clock.now(), timings=self._timings)

    async def _is_offered(self, claim: objects.NodeClaim, pool: objects.NodePool) -> bool:
        """Returns True also while the check is not due."""
        key, now = claim.metadata.name, self.clock.now()
        due_at = type_check_at(claim, self._offered_at.get(key), self._timings)
        if due_at is None or now < due_at:
            return True
        labels = claim.metadata.labels
        type_ = (await self._types.of(pool)).by_name.get(labels.get(names.INSTANCE_TYPE_LABEL, ""))
        offered = type_ is not None and is_offered(labels, map(_read, type_.offerings))
        self.forget(key)
        if offered:
            self._offered_at[key] = now
        return offered

    async def _answer(self, asking: Coroutine[Any, Any, R]) -> R:
        try:
            return await within(self.clock, ASKING_SECONDS, asking)
        except TimeoutError:
            raise CloudError(f"no answer within {ASKING_SECONDS:.0f} s") from None


def _read(offering: Offering) -> Requirements:
    """An offering that cannot be read matches every claim, so that a mistake replaces nothing (R32)."""
    try:
        return read_requirements(offering.requirements)
    except RequirementError:
        return NO_REQUIREMENTS
