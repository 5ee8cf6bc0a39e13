"""Says on each initialized claim whether its node is what was promised (02 §11)."""

from collections.abc import Iterable
from typing import Final

from dovetail.api import objects
from dovetail.api.names import ConditionReason, ConditionType, EventReason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.base.writing import about_claim, warn, write_status
from dovetail.planning.conditions import FALSE, Conditions
from dovetail.planning.timings import Timings
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.values.quantity import QuantityError, parse_quantity

_LEAST_PERCENT: Final = 90


class Consistency(KeyedController[str]):
    """Keys are names of claims. A claim is looked at when it or its node changes, but only once in a while."""

    name = "nodeclaim.consistency"

    def __init__(self, cluster: WatchedCluster, timings: Timings) -> None:
        super().__init__()
        self._cluster = cluster
        self._every_seconds = timings.consistency_seconds
        self._looked: dict[str, tuple[str, float]] = {}  # by name: the claim's UID, and when it was looked at
        self.follow(cluster.claims, lambda claim: [claim.metadata.name])
        self.follow(cluster.nodes, cluster.claim_names)

    def keys(self) -> Iterable[str]:
        return [claim.metadata.name for claim in self._cluster.claims.values()]

    async def reconcile(self, key: str) -> Outcome:
        claim = self._cluster.claims.current(key)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            self._looked.pop(key, None)
            return Done()
        nodes = self._cluster.nodes_of(claim)
        conditions = Conditions(claim, self.clock.now())
        ours = self._cluster.manages(claim.spec.node_class_ref)
        if not ours or len(nodes) != 1 or not conditions.is_true(ConditionType.INITIALIZED):
            return Done()
        uid, looked_at = self._looked.get(key, ("", 0.0))
        wait_seconds = looked_at + self._every_seconds - self.clock.monotonic()
        if uid == claim.metadata.uid and wait_seconds > 0:
            return Done(wait_seconds)
        flaws = shape_flaws(claim, nodes[0])
        note = "; ".join(flaws)
        if flaws:
            conditions.set(ConditionType.CONSISTENT_STATE_FOUND, FALSE, ConditionReason.CONSISTENCY_CHECK_FAILED, note)
        else:
            conditions.set(ConditionType.CONSISTENT_STATE_FOUND)
        await write_status(self.api, self._cluster, claim, conditions)
        self._looked[key] = (claim.metadata.uid, self.clock.monotonic())
        if flaws:
            warn(
                self.recorder, about_claim(claim), EventReason.FAILED_CONSISTENCY_CHECK, note, claim.metadata.uid, note
            )
        return Done(self._every_seconds if flaws else None)  # the server forgets events


def shape_flaws(claim: objects.NodeClaim, node: objects.Node) -> list[str]:
    """What the node has much less of than the claim's capacity says, among the resources that are asked for."""
    flaws = []
    for name in sorted(claim.spec.resources.requests):
        expected, found = _nano(claim.status.capacity.get(name)), _nano(node.status.capacity.get(name))
        if found * 100 < expected * _LEAST_PERCENT:
            promised, there = claim.status.capacity[name], node.status.capacity.get(name, "0")
            percent = found * 1000 // expected / 10  # rounded down: 89.99 is not 90
            flaws.append(f"expected {promised} of resource {name}, but found {there} ({percent}% of expected)")
    return flaws


def _nano(quantity: str | float | None) -> int:
    """What is not said, or cannot be read, counts nothing (R32)."""
    try:
        return 0 if quantity is None else parse_quantity(str(quantity)).nano
    except QuantityError:
        return 0
