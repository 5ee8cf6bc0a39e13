"""Writes the conditions of NodePools that say whether they can be used."""

import logging
from typing import Final

from dovetail.api import objects
from dovetail.api.names import ConditionReason, ConditionType
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.nodepool.base import PoolController
from dovetail.planning.conditions import FALSE, Conditions
from dovetail.planning.nodepool.validation import ignored_capacity_types, node_class_readiness, pool_flaws
from dovetail.runtime.events import cut
from dovetail.runtime.work_queue import Done, Outcome

log = logging.getLogger(__name__)

MESSAGE_BYTES_AT_MOST: Final = 32_768  # the limit of the API server for a condition


class NodePoolValidation(PoolController):
    """The controller of ValidationSucceeded: what is wrong beyond what the API server checks (01 §4.2)."""

    name = "nodepool.validation"

    async def reconcile_pool(self, pool: objects.NodePool) -> Outcome:
        conditions = Conditions(pool, self.clock.now())
        if flaws := pool_flaws(pool):
            reason = ConditionReason.NODEPOOL_VALIDATION_FAILED
            conditions.set(
                ConditionType.VALIDATION_SUCCEEDED, FALSE, reason, cut("; ".join(flaws), MESSAGE_BYTES_AT_MOST)
            )
        else:
            conditions.set(ConditionType.VALIDATION_SUCCEEDED)
        if conditions.changed and (ignored := ignored_capacity_types(pool)):
            log.warning("nodepool %s: unknown capacity types are ignored: %s", pool.metadata.name, ", ".join(ignored))
        await self.write_conditions(pool, conditions)
        return Done()


class NodePoolReadiness(PoolController):
    """The controller of NodeClassReady (01 §5.1)."""

    name = "nodepool.readiness"

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__(cluster)
        self.follow(cluster.node_classes, self.pools_with)

    async def reconcile_pool(self, pool: objects.NodePool) -> Outcome:
        class_name = pool.spec.template.spec.node_class_ref.name
        readiness = node_class_readiness(self.cluster.node_classes.get_consistent(class_name), class_name)
        conditions = Conditions(pool, self.clock.now())
        conditions.set(ConditionType.NODECLASS_READY, readiness.status, readiness.reason, readiness.message)
        await self.write_conditions(pool, conditions)
        return Done()
