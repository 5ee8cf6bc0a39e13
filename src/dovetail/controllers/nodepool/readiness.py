"""Says on each NodePool whether its node class is ready (01 §5.1)."""

from dovetail.api import objects
from dovetail.api.names import Condition
from dovetail.controllers.base.cluster import Cluster
from dovetail.controllers.nodepool.base import PoolController
from dovetail.planning.conditions import Conditions
from dovetail.planning.nodepool.readiness import node_class_readiness
from dovetail.runtime.work_queue import Done, Outcome


class NodePoolReadiness(PoolController):
    name = "nodepool.readiness"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.follow(cluster.node_classes, self.pools_with)

    async def tend(self, pool: objects.NodePool) -> Outcome:
        class_name = pool.spec.template.spec.node_class_ref.name
        found = node_class_readiness(self.cluster.node_classes.current(class_name), class_name)
        conditions = Conditions(pool, self.clock.now())
        conditions.set(Condition.NODECLASS_READY, found.status, found.reason, found.message)
        await self.write_conditions(pool, conditions)
        return Done()
