"""Writes the condition NodeRegistrationHealthy of NodePools, from reports of the lifecycle controller (01 §5.1)."""

from typing import Any, Final

from dovetail.api import objects
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.nodepool.base import PoolController
from dovetail.planning.conditions import Conditions
from dovetail.planning.nodepool.registration_health import (
    RegistrationAttempt,
    RegistrationHistory,
    account,
    attempt,
    is_outdated,
    remembered,
    reset,
)
from dovetail.runtime.work_queue import Done, Outcome

WAITING_AT_MOST: Final = 16  # attempts that are not written yet


class RegistrationHealth(PoolController):
    """Also writes `nodeClassObservedGeneration`, the generation that the condition is about."""

    name = "nodepool.registrationhealth"

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__(cluster)
        self._histories: dict[str, RegistrationHistory] = {}  # by pool; a recreated pool is outdated and starts over
        self._waiting: dict[str, list[RegistrationAttempt]] = {}
        self.follow(cluster.node_classes, self.pools_with)

    def registered(self, claim: objects.NodeClaim) -> None:
        """The claim is registered. A second report does not count."""
        self._note(claim, attempt(claim, registered=True))

    def failed(self, claim: objects.NodeClaim) -> None:
        """The claim was not launched or registered in time."""
        self._note(claim, attempt(claim, registered=False))

    def _note(self, claim: objects.NodeClaim, what: RegistrationAttempt) -> None:
        if pool := claim.metadata.pool:
            self._waiting[pool] = [*self._waiting.get(pool, ()), what][-WAITING_AT_MOST:]
            self.add(pool)

    def forget(self, key: str) -> None:
        self._histories.pop(key, None)
        self._waiting.pop(key, None)

    async def reconcile_pool(self, pool: objects.NodePool) -> Outcome:
        name = pool.metadata.name
        node_class = self.cluster.node_classes.get_consistent(pool.spec.template.spec.node_class_ref.name)
        conditions = Conditions(pool, self.clock.now())
        history = self._histories.get(name) or remembered(pool)
        observed: dict[str, Any] = {}
        if is_outdated(pool, node_class):
            history = self._histories[name] = RegistrationHistory()  # before the write, whose answer may be lost
            reset(conditions)
            if node_class is not None:
                observed["nodeClassObservedGeneration"] = node_class.metadata.generation
        attempts = self._waiting.get(name, [])
        history = account(pool, history, attempts, conditions)
        await self.write_conditions(pool, conditions, **observed)
        # After the write: if it fails, the next reconcile starts from the same state.
        self._histories[name] = history
        self._waiting[name] = [attempt for attempt in self._waiting.get(name, ()) if attempt not in attempts]
        return Done()
