"""Says on each NodePool whether its nodes come up (01 §5.1), as the lifecycle of its claims reports it."""

from typing import Any, Final

from dovetail.api import names, objects
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

WAITING_AT_MOST: Final = 16  # of which the last few decide


class RegistrationHealth(PoolController):
    """Also writes `nodeClassObservedGeneration`: which node class the condition speaks of."""

    name = "nodepool.registrationhealth"

    def __init__(self, cluster: WatchedCluster) -> None:
        super().__init__(cluster)
        self._histories: dict[
            str, RegistrationHistory
        ] = {}  # by the pool's name: one made anew is outdated, and starts over
        self._waiting: dict[str, list[RegistrationAttempt]] = {}
        self.follow(cluster.node_classes, self.pools_with)

    def registered(self, claim: objects.NodeClaim) -> None:
        """The claim's node has come up. Reported twice, it counts once."""
        self._note(claim, attempt(claim, registered=True))

    def failed(self, claim: objects.NodeClaim) -> None:
        """The claim is given up: it was not launched, or did not register, in time."""
        self._note(claim, attempt(claim, registered=False))

    def _note(self, claim: objects.NodeClaim, what: RegistrationAttempt) -> None:
        if pool := claim.metadata.labels.get(names.NODEPOOL_LABEL):
            self._waiting[pool] = [*self._waiting.get(pool, ()), what][-WAITING_AT_MOST:]
            self.add(pool)

    def forget(self, key: str) -> None:
        self._histories.pop(key, None)
        self._waiting.pop(key, None)

    async def tend(self, pool: objects.NodePool) -> Outcome:
        name = pool.metadata.name
        node_class = self.cluster.node_classes.current(pool.spec.template.spec.node_class_ref.name)
        conditions = Conditions(pool, self.clock.now())
        history = self._histories.get(name) or remembered(pool)
        observed: dict[str, Any] = {}
        if is_outdated(pool, node_class):
            history = self._histories[name] = (
                RegistrationHistory()
            )  # at once: the write may take effect and its answer be lost
            reset(conditions)
            if node_class is not None:
                observed["nodeClassObservedGeneration"] = node_class.metadata.generation
        attempts = self._waiting.get(name, [])
        history = account(pool, history, attempts, conditions)
        await self.write_conditions(pool, conditions, **observed)
        # Only now: were the write refused, all of it would be worked out again.
        self._histories[name] = history
        self._waiting[name] = [each for each in self._waiting.get(name, ()) if each not in attempts]
        return Done()
