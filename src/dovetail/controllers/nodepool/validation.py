"""Says on each NodePool what is wrong with it beyond what the API server checks (01 §4.2)."""

import logging
from typing import Final

from dovetail.api import objects
from dovetail.api.names import Condition, ConditionReason
from dovetail.controllers.nodepool.base import PoolController
from dovetail.planning.conditions import FALSE, Conditions
from dovetail.planning.nodepool.validation import ignored_capacity_types, pool_flaws
from dovetail.runtime.events import cut
from dovetail.runtime.work_queue import Done, Outcome

log = logging.getLogger(__name__)

MESSAGE_BYTES_AT_MOST: Final = 32_768  # of a condition, or the API server refuses it


class NodePoolValidation(PoolController):
    name = "nodepool.validation"

    async def tend(self, pool: objects.NodePool) -> Outcome:
        conditions = Conditions(pool, self.clock.now())
        if flaws := pool_flaws(pool):
            reason = ConditionReason.NODEPOOL_VALIDATION_FAILED
            conditions.set(Condition.VALIDATION_SUCCEEDED, FALSE, reason, cut("; ".join(flaws), MESSAGE_BYTES_AT_MOST))
        else:
            conditions.set(Condition.VALIDATION_SUCCEEDED)
        if conditions.changed and (ignored := ignored_capacity_types(pool)):
            log.warning("nodepool %s: unknown capacity types are ignored: %s", pool.metadata.name, ", ".join(ignored))
        await self.write_conditions(pool, conditions)
        return Done()
